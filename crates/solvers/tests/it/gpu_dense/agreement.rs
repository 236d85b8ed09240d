//! Dense elimination on the GPU compared with the CPU's LU with partial pivoting.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::Csr;
use sparsebatch_solvers::gpu::DenseTuning;
use sparsebatch_solvers::{SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems, on_cpu, residual_norm};
use crate::gpu_dense::support::{by_dense, options, pattern_with_shift, shifted};

/// Largest difference of two solutions, relative to the largest element.
fn difference<T: SolveScalar>(a: &Solved<T>, b: &Solved<T>) -> f64 {
    let size = b.x.iter().fold(0.0, |most: f64, x| most.max(x.to_f64().abs()));
    let apart = a.x.iter().zip(&b.x).map(|(a, b)| (a.to_f64() - b.to_f64()).abs());
    apart.fold(0.0, f64::max) / size
}

/// Sizes on both sides of every kernel's limit, patterns from a few entries a row to full ones.
fn needs_pivots<T: SolveScalar>() {
    for (n, most) in [
        (1, 0),
        (2, 1),
        (5, 9),
        (8, 3),
        (9, 20),
        (16, 4),
        (17, 40),
        (24, 5),
        (25, 9),
        (32, 80),
        (33, 9),
        (40, 4),
        (41, 100),
        (48, 9),
        (54, 160),
        (56, 7),
        (57, 9),
        (64, 200),
    ] {
        let shift = n / 3;
        let pattern = pattern_with_shift(n, most, shift, n as u64);
        let items = 5;
        let matrices: Vec<Csr<T>> =
            (0..items).map(|item| shifted(&pattern, shift, item + 3)).collect();
        let mut systems = Systems::new(&matrices, random_vector(n * matrices.len(), 5));
        if n % 2 == 1 {
            systems.x0 = random_vector(n * matrices.len(), 6);
        }
        let gpu =
            by_dense(&Emulator::new(Order::Forward), &systems, &options(), &DenseTuning::default());
        let cpu = on_cpu(&systems, &options());
        let what = format!("{} n = {n}, {most} a row: {:?}", T::CPP, gpu.outcomes);
        assert_eq!(gpu.statuses(), [Status::Converged; 5], "{what}");
        assert_eq!(cpu.statuses(), gpu.statuses(), "{what}");
        for (system, outcome) in gpu.outcomes.iter().enumerate() {
            let found = residual_norm(&systems, &gpu.x, system);
            let most = SolveOptions::default_rel_tol::<T>() * outcome.rhs_norm;
            assert!(found <= 1.01 * most, "{what}");
            assert_eq!(outcome.iterations, 1, "{what}");
        }
        let apart = difference(&gpu, &cpu);
        assert!(apart < 1e4 * T::EPSILON.to_f64(), "{what}: {apart:e}");
    }
}

#[test]
fn systems_that_need_pivots_agree_in_f64() {
    needs_pivots::<f64>();
}

#[test]
fn systems_that_need_pivots_agree_in_f32() {
    needs_pivots::<f32>();
}

/// A refinement takes the residual down to rounding, from a guess too.
#[test]
fn refinement_reaches_rounding() {
    for n in [7, 30, 50, 60] {
        let pattern = pattern_with_shift(n, 6, 2, 1);
        let systems = |x0: bool| {
            let mut systems = Systems::new(&[shifted::<f64>(&pattern, 2, 4)], random_vector(n, 3));
            if x0 {
                systems.x0 = random_vector(n, 9);
            }
            systems
        };
        for has_guess in [false, true] {
            let systems = systems(has_guess);
            let options = options().rel_tol(0.0).floor(Some(1.0));
            let executor = Emulator::new(Order::Forward);

            let gpu = by_dense(&executor, &systems, &options, &DenseTuning::default());

            assert_eq!(gpu.statuses(), [Status::Converged], "{n} {:?}", gpu.outcomes);
            assert!(gpu.outcomes[0].accepted_by_floor || gpu.outcomes[0].residual_norm == 0.0);
        }
    }
}
