//! Residual norms of every iteration, as on the CPU.

use kernel_emu::{Emulator, Order};
use sparsebatch_solvers::gpu::ProductKernel;
use sparsebatch_solvers::{Preconditioner, Status};

use crate::gpu_composed::support::{METHODS, on_cpu, on_gpu, options, ragged, rhs};

#[test]
fn histories_are_those_of_the_cpu() {
    for method in METHODS {
        let batch = ragged::<f64>(&[20, 0, 3, 700, 9000, 1], method);
        let mut b = rhs(&batch, 1);
        // This system ends before the first iteration.
        b[20..23].fill(0.0);
        let options = options(method, Preconditioner::Jacobi).history(true);

        let executor = Emulator::new(Order::Forward);
        let gpu = on_gpu(&executor, &batch, (&b, None), &ProductKernel::default(), &options);
        let cpu = on_cpu(&batch, (&b, None), &options);

        assert_eq!(gpu.statuses(), vec![Status::Converged; 6]);
        for (system, (g, c)) in gpu.outcomes.iter().zip(&cpu.outcomes).enumerate() {
            assert_eq!(g.history.len(), g.iterations as usize + 1, "system {system}");
            assert_eq!(g.history[0].to_bits(), g.history[0].abs().to_bits());
            for (i, (g, c)) in g.history.iter().zip(&c.history).enumerate() {
                // BiCGStab magnifies rounding.
                let close = 1e-3 * c + 1e-12 * cpu.outcomes[system].rhs_norm;
                assert!((g - c).abs() <= close, "{method} system {system}, {i}: {g} {c}");
            }
        }
    }
}

/// Histories are complete across restarts and across the chunks in which they are collected.
#[test]
fn histories_go_on_after_restarts_and_begin_anew_with_each_solve() {
    for method in METHODS {
        let batch = ragged::<f64>(&[40, 300], method);
        let b = rhs(&batch, 1);
        let options =
            options(method, Preconditioner::None).history(true).rel_tol(1e-22).max_iters(400);
        let executor = Emulator::new(Order::Forward);

        let gpu = on_gpu(&executor, &batch, (&b, None), &ProductKernel::default(), &options);

        for outcome in &gpu.outcomes {
            assert!(outcome.restarts > 0, "{outcome:?}");
            assert_eq!(outcome.history.len(), outcome.iterations as usize + 1);
        }
    }
}

#[test]
fn residuals_of_any_scale_and_none_at_all_are_recorded() {
    let batch = ragged::<f64>(&[30, 30, 30], METHODS[0]);
    let mut b = rhs(&batch, 1);
    b[..30].iter_mut().for_each(|b| *b *= 1e-300);
    b[30..60].iter_mut().for_each(|b| *b *= 1e300);
    b[60] = f64::NAN;
    let options = options(METHODS[0], Preconditioner::None).history(true);
    let executor = Emulator::new(Order::Forward);

    let gpu = on_gpu(&executor, &batch, (&b, None), &ProductKernel::default(), &options);
    let cpu = on_cpu(&batch, (&b, None), &options);

    for (g, c) in gpu.outcomes.iter().zip(&cpu.outcomes).take(2) {
        assert_eq!((g.status, g.iterations), (Status::Converged, c.iterations));
        let rhs_norm = g.rhs_norm;
        for (g, c) in g.history.iter().zip(&c.history) {
            assert!((g - c).abs() <= 1e-3 * c + 1e-12 * rhs_norm, "{g:e} {c:e}");
        }
    }
    let lost = &gpu.outcomes[2];
    assert_eq!((lost.status, lost.history.len()), (Status::NonFinite, 1));
    assert!(lost.history[0].is_nan());
}
