//! The same on a GPU, where there is one: with the sparse LU, and with the dense one that it is compared
//! with.

use sparsebatch_spmv_gpu::Device;
use sparsebatch_spmv_gpu::testing::device_or_skip;

use crate::gpu::dense::DenseLu;
use crate::gpu::timer::Events;
use crate::gpu::{Groups, SparseLu};
use crate::integrator::{Burning, Outcome};
use crate::zones::log_times;
use crate::{by_host, difference, equations, grid, heated_zones, options, settings};

#[test]
fn a_grid_burns_on_a_gpu_as_on_the_host() {
    let Some(device) = device_or_skip() else { return };
    let (equations, settings) = (equations(), settings());
    let zones = grid(100).zones(equations.network(), &log_times(1e-3, 9.0, 4)).unwrap();
    let host = by_host(&equations, &zones, &settings);
    let check = |burning: &Burning| {
        assert!(burning.zones.iter().all(|zone| zone.outcome == Outcome::Finished));
        assert_eq!(burning.tally.unsolved(), 0);
        let tries: u32 = burning.zones.iter().map(|zone| zone.steps + zone.rejected).sum();
        assert_eq!(burning.tally.systems, 8 * u64::from(tries));
        let most = difference(burning, &host);
        assert!(most <= 1e-8, "{most:e}");
    };

    let sparse = |stream: &Device, zones: usize| {
        let shape = (zones, settings.method.stages());
        let solver = SparseLu::new(stream, &equations, &options(), shape)?;
        Ok((solver, Events::new(stream)))
    };
    let mut groups = Groups::new(&device, &equations, &zones, &settings, 3, sparse).unwrap();
    let burning = groups.run(|_| ()).unwrap();
    check(&burning);
    assert!(burning.shares.solve.as_secs_f64() > 0.0);

    let dense = |stream: &Device, zones: usize| {
        let shape = (zones, settings.method.stages());
        Ok((DenseLu::new(stream, &equations, shape)?, Events::new(stream)))
    };
    match Groups::new(&device, &equations, &zones, &settings, 2, dense) {
        Err(error) => println!("skipped the dense LU: {error}"),
        Ok(mut groups) => check(&groups.run(|_| ()).unwrap()),
    }
}

#[test]
fn zones_that_heat_themselves_burn_on_a_gpu_as_on_the_host() {
    let Some(device) = device_or_skip() else { return };
    let (equations, zones) = heated_zones(300);
    let settings = settings();
    let host = by_host(&equations, &zones, &settings);
    let sparse = |stream: &Device, zones: usize| {
        let shape = (zones, settings.method.stages());
        let solver = SparseLu::new(stream, &equations, &options(), shape)?;
        Ok((solver, Events::new(stream)))
    };

    let mut groups = Groups::new(&device, &equations, &zones, &settings, 2, sparse).unwrap();
    let burning = groups.run(|_| ()).unwrap();

    assert_eq!(burning.tally.unsolved(), 0);
    for (zone, (burned, host)) in burning.zones.iter().zip(&host.zones).enumerate() {
        assert_eq!((burned.outcome, burned.clamped), (Outcome::Finished, host.clamped));
        assert!(burned.steps.abs_diff(host.steps) <= 3, "{} {}", burned.steps, host.steps);
        for (a, b) in burned.y.chunks_exact(14).zip(host.y.chunks_exact(14)) {
            assert!((a[13] - b[13]).abs() <= 1e-5 * b[13], "zone {zone}: {} {}", a[13], b[13]);
        }
    }
    let most = difference(&burning, &host);
    assert!(most <= 1e-5, "{most:e}");
}
