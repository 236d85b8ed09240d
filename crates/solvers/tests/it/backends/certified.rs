//! Verdicts of the GPU are checked by the rules of the CPU.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::{Batch, BatchValues, Csr, UniformBatch};
use sparsebatch_solvers::gpu::{ComposedSolver, Guess, ProductKernel};
use sparsebatch_solvers::{
    Backend, BatchReport, BatchSolver, Chunks, DeviceSolver, Engine, Gpu, LuForm, Method,
    SpmvOptions, Status, solve_on_executor,
};

use crate::backends::device::values_of;
use crate::common::{cases, one_step};

/// Matrices of rank 2 alternate with healthy ones; the right-hand side is not in the range of the
/// former.
fn singular_beside_healthy(items: usize) -> (Batch<f64>, Vec<f64>) {
    let singular = [3.0, -2.0, -1.0, 2.0, 0.0, 0.0, 2.0, -2.0, -1.0];
    let healthy = [3.0, -2.0, -1.0, 2.0, 5.0, 0.0, 2.0, -2.0, 4.0];
    let col_idx = (0..9).map(|k| k % 3).collect();
    let first = Csr::try_new(3, 3, vec![0, 3, 6, 9], col_idx, singular.to_vec()).unwrap();
    let values = (0..items).flat_map(|item| if item % 2 == 0 { singular } else { healthy });
    let values = BatchValues::ItemMajor(values.collect());
    let batch = UniformBatch::try_new(first.pattern().clone(), items, values).unwrap();
    (Batch::Uniform(batch), [-1.0, -1.0, 0.0].repeat(items))
}

/// Elimination leaves a pivot of rounding size and an x of 1e16, whose residual is 0 in working
/// precision; the exact one is at least 0.354. Values are copied whole, or in chunks.
#[test]
fn a_singular_system_does_not_converge_by_a_residual_that_vanishes_by_chance() {
    let executor = Emulator::new(Order::Forward);
    let (batch, b) = singular_beside_healthy(200);
    let options = one_step().method(Method::Lu);
    for &bytes in cases(&[1 << 20, 1000]) {
        let chunks = Chunks::default().bytes(bytes).at_once(2);
        let backend = Backend::Gpu(Gpu::new(executor.clone()).chunks(chunks));
        for guess in cases(&[None, Some(vec![0.25; 600])]) {
            let solved =
                solve_on_executor(&backend, &batch, &b, guess.as_deref(), &options).unwrap();

            check(&solved.report);
        }
    }
}

/// Healthy systems converge, the others do not.
fn check(report: &BatchReport) {
    for (item, system) in report.systems.iter().enumerate() {
        let outcome = &system.outcome;
        if item % 2 == 1 {
            assert_eq!(outcome.status, Status::Converged, "{item}");
        } else {
            // The smallest residual norm of any x is 0.3535.
            assert_ne!(outcome.status, Status::Converged, "{item}");
            assert!(outcome.residual_norm > 0.35, "{item}: {}", outcome.residual_norm);
            // At most the residual norm of the guess.
            assert!(outcome.residual_norm < 1.5, "{item}: {}", outcome.residual_norm);
        }
    }
}

/// The same with limits of each system's own, in chunks whose last one is not full, for batches
/// of one pattern and ragged ones, by either form of the LU, and by kept factors.
#[test]
fn the_same_holds_for_limits_of_their_own_and_for_kept_factors() {
    let (batch, b) = singular_beside_healthy(201);
    let ragged: Batch<f64> = (0..201).map(|item| batch.to_csr(item)).collect();
    let tolerances: Vec<f64> = (0..201).map(|item| 1e-8 * f64::from(item % 3 + 1)).collect();
    for form in [LuForm::ByPattern, LuForm::BySystem] {
        let options = one_step().method(Method::Lu).lu_form(form).rel_tol(tolerances.clone());
        for batch in [&batch, &ragged] {
            for &bytes in cases(&[1000, 1 << 20]) {
                let chunks = Chunks::default().bytes(bytes).at_once(2);
                let gpu = Gpu::new(Emulator::new(Order::Forward)).chunks(chunks);
                let backend = Backend::Gpu(gpu);
                let mut solver = BatchSolver::on_executor(&backend, batch, None, &options).unwrap();
                let mut x = vec![0.0; b.len()];
                check(&solver.solve(batch, &b, &mut x).unwrap());

                solver.factor(batch).unwrap();
                let mut x = vec![0.0; b.len()];
                check(&solver.solve_again(&b, &mut x).unwrap());
            }
        }
    }
}

/// A guess of 1e16 whose computed product with a singular matrix is `b`, while the exact residual
/// is 1.8: iterations over products end at once, and are not believed. From the host and on the
/// device.
#[test]
fn a_guess_whose_residual_over_products_vanishes_by_chance_is_no_solution() {
    let (batch, _) = singular_beside_healthy(40);
    let ragged: Batch<f64> = (0..40).map(|item| batch.to_csr(item)).collect();
    let b = [0.0, -1.0, 0.0].repeat(40);
    let guess: Vec<f64> = [-0.5, 1e16, -2e16, 0.0, 0.0, 0.0].repeat(20);
    let bicgstab = one_step().method(Method::BiCgStab).max_iters(100);
    let composed = bicgstab.clone().engine(Engine::Composed(SpmvOptions::default()));
    for (batch, options) in
        [(&batch, &composed), (&ragged, &composed), (&batch, &bicgstab.history(true))]
    {
        let executor = Emulator::new(Order::Forward);
        // The solver alone is taken in.
        let plain = options.clone().engine(Engine::Fused);
        let mut alone =
            ComposedSolver::new(&executor, batch, &ProductKernel::default(), &plain).unwrap();
        let mut x = executor.upload(&guess).unwrap();
        alone.solve(&executor.upload(&b).unwrap(), Guess::InX, &mut x).unwrap();
        assert_eq!(alone.outcomes().unwrap()[0].status, Status::Converged);

        let backend = Backend::Gpu(Gpu::new(executor.clone()));
        let host = solve_on_executor(&backend, batch, &b, Some(&guess), options).unwrap();
        let mut solver = DeviceSolver::new(&executor, batch, options).unwrap();
        let values = executor.upload(&values_of(batch)).unwrap();
        let on_b = executor.upload(&b).unwrap();
        let mut x = executor.upload(&guess).unwrap();
        let device = solver.solve(&values, &on_b, Guess::InX, &mut x).unwrap();

        for report in [&host.report, &*device] {
            assert!(report.kernel.starts_with("composed"), "{}", report.kernel);
            for (item, system) in report.systems.iter().enumerate() {
                let outcome = &system.outcome;
                assert_eq!(
                    outcome.status == Status::Converged,
                    item % 2 == 1,
                    "{item} {outcome:?}"
                );
                let least = if item % 2 == 0 { 0.35 } else { 0.0 };
                assert!((least..1.9).contains(&outcome.residual_norm), "{item} {outcome:?}");
            }
        }
    }
}
