//! The same on a GPU, where there is one: with the sparse LU, and with the dense one that it is compared
//! with.

use sparsebatch_spmv_gpu::testing::device_or_skip;

use crate::gpu::dense::DenseLu;
use crate::gpu::timer::Events;
use crate::gpu::{Burner, SparseLu};
use crate::integrator::{Burning, Outcome};
use crate::zones::log_times;
use crate::{by_host, difference, equations, grid, options, settings};

#[test]
fn a_grid_burns_on_a_gpu_as_on_the_host() {
    let Some(device) = device_or_skip() else { return };
    let (equations, settings) = (equations(), settings());
    let zones = grid(100).zones(equations.network(), &log_times(1e-3, 9.0, 4)).unwrap();
    let host = by_host(&equations, &zones, &settings);
    let shape = (zones.len(), settings.method.stages());
    let check = |burning: &Burning| {
        assert!(burning.zones.iter().all(|zone| zone.outcome == Outcome::Finished));
        assert_eq!(burning.tally.unsolved(), 0);
        let tries: u32 = burning.zones.iter().map(|zone| zone.steps + zone.rejected).sum();
        assert_eq!(burning.tally.systems, 8 * u64::from(tries));
        let most = difference(burning, &host);
        assert!(most <= 1e-8, "{most:e}");
    };

    let solver = SparseLu::new(&device, &equations, &options(), shape).unwrap();
    let timer = Events::new(&device);
    let burner = Burner::new(&device, &equations, &zones, &settings, solver, timer).unwrap();
    let burning = burner.run(|_| ()).unwrap();
    check(&burning);
    assert!(burning.shares.solve.as_secs_f64() > 0.0);

    match DenseLu::new(&device, &equations, shape) {
        Err(error) => println!("skipped the dense LU: {error}"),
        Ok(solver) => {
            let timer = Events::new(&device);
            let burner = Burner::new(&device, &equations, &zones, &settings, solver, timer);
            check(&burner.unwrap().run(|_| ()).unwrap());
        }
    }
}
