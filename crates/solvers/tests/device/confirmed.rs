//! Confirmed outcomes on a real GPU: a guess whose computed residual is 0 by chance, and healthy
//! batches.

use sparsebatch_cuda::testing::{device_or_skip, systems};
use sparsebatch_cuda::{Device, Executor, GpuError};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, CsrPattern, Pattern};
use sparsebatch_solvers::gpu::{Confirmer, FactoredSolver, FusedSolver, Guess};
use sparsebatch_solvers::{Method, Outcome, Preconditioner, SolveOptions, Status};

type Arrays = [<Device as Executor>::Buffer<f64>; 3];

fn options(method: Method, preconditioner: Preconditioner) -> SolveOptions {
    SolveOptions::new().method(method).preconditioner(preconditioner).fallback(false)
}

/// The system `[3 -3; -3 3] x = (d, -d)` and the guess `x = (2^53 - 3 - k, 2^53 - 303 - k)`, with
/// `d = fl(3 x_1) - 3 x_2` as fused multiply-adds compute it. The computed residual is 0; the exact
/// one is `fl(3 x_1) - 3 x_1`, where that is not 0.
fn chance(k: i64) -> (f64, [f64; 2], [f64; 2]) {
    let first = (1i64 << 53) - 3 - k;
    let second = first - 300;
    let rounded = (3 * first) as f64 as i64;
    let d = rounded - 3 * second;
    ((rounded - 3 * first) as f64, [d as f64, -d as f64], [first as f64, second as f64])
}

#[test]
fn a_residual_that_vanishes_by_chance_is_found_out() -> Result<(), GpuError> {
    let Some(device) = device_or_skip() else { return Ok(()) };
    let items = systems(1000);
    let pattern = CsrPattern::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1]).unwrap();
    let systems: Vec<_> = (0..items).map(|k| chance(k as i64)).collect();
    let b: Vec<f64> = systems.iter().flat_map(|(_, b, _)| *b).collect();
    let x0: Vec<f64> = systems.iter().flat_map(|(_, _, x)| *x).collect();
    let values = device.upload(&[3.0, -3.0, -3.0, 3.0].repeat(items))?;
    let (b, mut x) = (device.upload(&b)?, device.upload(&x0)?);
    for method in [Method::Cg, Method::BiCgStab] {
        let options = options(method, Preconditioner::None);
        let plan = FusedSolver::<Device, f64>::new(&device, pattern.view(), items, &options);
        let mut plan = plan.unwrap();
        plan.solve(&values, &b, Guess::InX, &mut x).unwrap();
        let before = plan.outcomes().unwrap();
        let confirmer = Confirmer::new(&device, pattern.view(), items, &options).unwrap();
        plan.confirm(&confirmer, &values, &b, &x).unwrap();
        let mut found_out = 0;
        for ((error, ..), (before, after)) in
            systems.iter().zip(before.iter().zip(plan.outcomes().unwrap()))
        {
            if before.status == Status::Converged && before.iterations == 0 && *error != 0.0 {
                assert_eq!(after.status, Status::Stagnated, "{before:?}, {after:?}");
                let exact = error.abs() * std::f64::consts::SQRT_2;
                assert!((after.residual_norm - exact).abs() <= 1e-9 * exact, "{error} {after:?}");
                found_out += 1;
            }
        }
        // About a quarter of the systems.
        assert!(found_out > items / 5, "{found_out} of {items}");
    }
    Ok(())
}

/// Checks that all outcomes are `Converged` before and after confirmation.
fn stay(what: &str, before: &[Outcome], after: &[Outcome]) {
    for (before, after) in before.iter().zip(after) {
        assert_eq!(before.status, Status::Converged, "{what}: {before:?}");
        assert_eq!(after.status, Status::Converged, "{what}: {before:?}, {after:?}");
        assert_eq!(before.iterations, after.iterations, "{what}");
        let change = (before.residual_norm - after.residual_norm).abs();
        assert!(change <= 0.05 * before.residual_norm, "{what}: {before:?}, {after:?}");
    }
}

#[test]
fn what_converged_stays_so() -> Result<(), GpuError> {
    let Some(device) = device_or_skip() else { return Ok(()) };
    for (family, rows) in [(Family::Tri, 64), (Family::Lap2d, 225)] {
        let items = systems(2000);
        let problem = Problem::new(family, rows).unwrap().batch(items).unwrap();
        let Batch::Uniform(batch) = &problem.batch else { unreachable!("one pattern") };
        let values: Vec<f64> = (0..items).flat_map(|k| batch.to_matrix(k).into_parts().1).collect();
        let pattern = batch.pattern().view();
        let [values, b, mut x]: Arrays = [
            device.upload(&values)?,
            device.upload(&problem.rhs)?,
            device.alloc_zeroed(problem.rhs.len())?,
        ];
        let cg = options(Method::Cg, Preconditioner::Jacobi);
        let confirmer = Confirmer::new(&device, pattern, items, &cg).unwrap();
        let mut plan = FusedSolver::<Device, f64>::new(&device, pattern, items, &cg).unwrap();
        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        let before = plan.outcomes().unwrap();
        plan.confirm(&confirmer, &values, &b, &x).unwrap();
        stay("fused", &before, &plan.outcomes().unwrap());

        let ilu = options(Method::BiCgStab, Preconditioner::ILU0);
        let mut plan = FactoredSolver::<Device, f64>::new(&device, pattern, items, &ilu).unwrap();
        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        let before = plan.outcomes().unwrap();
        plan.confirm(&confirmer, &values, &b, &x).unwrap();
        stay("factored", &before, &plan.outcomes().unwrap());
    }
    Ok(())
}
