//! The GPU's LU compared with the CPU's.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::{Csr, Scalar};
use sparsebatch_solvers::gpu::LuTuning;
use sparsebatch_solvers::{SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems, compare, on_cpu};
use crate::gpu_lu::support::{by_lu, matrix, options, pattern};

/// Checks the x of a solve against rounding errors: in every row the residual is within a few units
/// of `|A||x| + |b|`.
pub(crate) fn residuals_are_small<T: Scalar>(what: &str, systems: &Systems<T>, solved: &Solved<T>) {
    let n = systems.nrows();
    for system in 0..solved.outcomes.len() {
        let a = systems.batch.to_matrix(system);
        let pattern = a.view().pattern();
        let x = &solved.x[system * n..(system + 1) * n];
        for (row, b) in systems.b[system * n..(system + 1) * n].iter().enumerate() {
            let (mut sum, mut size) = (-b.to_f64(), b.to_f64().abs());
            for k in pattern.row(row) {
                let product = a.values()[k].to_f64() * x[pattern.col_idx()[k] as usize].to_f64();
                sum += product;
                size += product.abs();
            }
            let most = 64.0 * T::EPSILON.to_f64() * size;
            assert!(sum.abs() <= most, "{what}, system {system}, row {row}: {sum} > {most}");
        }
    }
}

fn random_patterns<T: SolveScalar>() {
    for (n, most, items) in [
        (1, 0, 5),
        (2, 1, 5),
        (5, 3, 5),
        (13, 4, 5),
        (31, 2, 4),
        (57, 5, 3),
        (80, 9, 3),
        (150, 3, 3),
    ] {
        let pattern = pattern(n, most, n as u64);
        let matrices: Vec<Csr<T>> =
            (0..items).map(|item| matrix(&pattern, 1.1, item + 3)).collect();
        let mut systems = Systems::new(&matrices, random_vector(n * matrices.len(), 5));
        if n % 2 == 1 {
            systems.x0 = random_vector(n * matrices.len(), 6);
        }
        let options = options();
        let gpu = by_lu(&Emulator::new(Order::Forward), &systems, &options, &LuTuning::default());
        let cpu = on_cpu(&systems, &options);
        let what = format!("{} n = {n}, {most} a row", T::CPP);
        assert!(
            gpu.statuses().iter().all(|&s| s == Status::Converged),
            "{what} {:?}",
            gpu.outcomes
        );
        compare(&what, &systems, &gpu, &cpu, SolveOptions::default_rel_tol::<T>());
        residuals_are_small(&what, &systems, &gpu);
    }
}

#[test]
fn random_patterns_agree_in_f64() {
    random_patterns::<f64>();
}

#[test]
fn random_patterns_agree_in_f32() {
    random_patterns::<f32>();
}
