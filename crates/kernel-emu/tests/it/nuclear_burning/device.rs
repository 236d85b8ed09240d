//! The same on a GPU, where there is one: with the sparse LU, and with the dense one that it is
//! compared with.

use sparsebatch::{Method, Preconditioner};
use sparsebatch_cuda::Device;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_drivers::nuclear_burning::equations::Equations;
use sparsebatch_drivers::nuclear_burning::gpu::dense::DenseLu;
use sparsebatch_drivers::nuclear_burning::gpu::timer::Events;
use sparsebatch_drivers::nuclear_burning::gpu::{Groups, SparseStages};
use sparsebatch_drivers::nuclear_burning::integrator::{Burning, Outcome, Settings};
use sparsebatch_drivers::nuclear_burning::zones::{Zones, log_times};

use super::{by_host, difference, equations, grid, heated_zones, options, settings};

/// Burns in so many groups.
fn by_sparse_lu(
    device: &Device,
    equations: &Equations,
    zones: &Zones,
    settings: &Settings,
    count: usize,
) -> Burning {
    let make = |stream: &Device, zones: usize| {
        let shape = (zones, settings.method.stages());
        Ok((SparseStages::new(stream, equations, &options(), shape)?, Events::new(stream)))
    };
    Groups::new(device, equations, zones, settings, count, make).unwrap().run(|_| ()).unwrap()
}

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

    let burning = by_sparse_lu(&device, &equations, &zones, &settings, 3);
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
fn a_zone_on_a_gpu_has_the_same_bits_again_and_in_other_groups() {
    let Some(device) = device_or_skip() else { return };
    let (equations, settings) = (equations(), settings());
    let zones = grid(700).zones(equations.network(), &log_times(1e-3, 9.0, 4)).unwrap();
    let burn = |count| by_sparse_lu(&device, &equations, &zones, &settings, count);

    let first = burn(1);

    for count in [1, 2, 5] {
        for (zone, (one, other)) in first.zones.iter().zip(&burn(count).zones).enumerate() {
            assert_eq!((one.steps, one.rejected), (other.steps, other.rejected), "zone {zone}");
            assert_eq!(one.y, other.y, "zone {zone} of {count} groups");
        }
    }
}

#[test]
fn bicgstab_with_jacobi_burns_on_a_gpu_as_on_the_host() {
    let Some(device) = device_or_skip() else { return };
    let (equations, settings) = (equations(), settings());
    let zones = grid(150).zones(equations.network(), &log_times(1e-3, 9.0, 4)).unwrap();
    let host = by_host(&equations, &zones, &settings);
    let options = options().method(Method::BiCgStab).preconditioner(Preconditioner::Jacobi);
    let make = |stream: &Device, zones: usize| {
        let shape = (zones, settings.method.stages());
        Ok((SparseStages::new(stream, &equations, &options, shape)?, Events::new(stream)))
    };

    let mut groups = Groups::new(&device, &equations, &zones, &settings, 2, make).unwrap();
    let burning = groups.run(|_| ()).unwrap();

    assert!(burning.zones.iter().all(|zone| zone.outcome == Outcome::Finished));
    let most = difference(&burning, &host);
    assert!(most <= 1e-6, "{most:e}");
}

#[test]
fn zones_that_heat_themselves_burn_on_a_gpu_as_on_the_host() {
    let Some(device) = device_or_skip() else { return };
    let (equations, zones) = heated_zones(300);
    let settings = settings();
    let host = by_host(&equations, &zones, &settings);

    let burning = by_sparse_lu(&device, &equations, &zones, &settings, 2);

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
