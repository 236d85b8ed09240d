//! Verdicts of the GPU are checked by the rules of the CPU.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::{Batch, BatchValues, Csr, UniformBatch};
use sparsebatch_solvers::{Backend, Chunks, Gpu, Method, Status, solve_on_executor};

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

            for (item, system) in solved.report.systems.iter().enumerate() {
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
    }
}
