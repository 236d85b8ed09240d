//! Banded elimination on the GPU compared with the CPU's, for every kernel.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::Csr;
use sparsebatch_solvers::gpu::BandedTuning;
use sparsebatch_solvers::{SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::{Systems, compare, on_cpu};
use crate::gpu_banded::support::{Look, band, by_banded, options};
use crate::gpu_lu::support::matrix;

/// Sizes on both sides of the limit of each kernel, around the sizes of warps, and large ones.
const TRIDIAGONAL: &[usize] = &[
    1, 2, 3, 7, 8, 9, 24, 25, 31, 32, 33, 40, 41, 72, 73, 100, 144, 145, 288, 289, 544, 545, 1000,
    1088, 1089, 2176, 2177, 4352, 5000,
];
const PENTADIAGONAL: &[usize] = &[
    1, 2, 3, 4, 5, 31, 32, 33, 40, 41, 72, 73, 100, 144, 145, 288, 289, 576, 577, 1000, 1152, 1153,
    2304, 2305, 3584,
];

fn agrees<T: SolveScalar>(n: usize, half: usize, look: Look) {
    let pattern = band(n, half, look);
    // More systems than a block has groups, where that is quick.
    let items = if n > 300 { 2 } else { 9 };
    let matrices: Vec<Csr<T>> =
        (0..items).map(|item| matrix(&pattern, 1.1, (n + item) as u64)).collect();
    let mut systems = Systems::new(&matrices, random_vector(n * items, 5));
    if n % 2 == 1 {
        systems.x0 = random_vector(n * items, 6);
    }
    let executor = Emulator::new(Order::Forward);

    let gpu = by_banded(&executor, &systems, &options(), &BandedTuning::default());
    let cpu = on_cpu(&systems, &options());

    let what = format!("{} n = {n}, {half} on a side, {look:?}", T::CPP);
    let in_a_block = match (half, T::CPP) {
        (1, "double") => n <= 6656,
        (1, _) => n <= 8704,
        (2, "double") => n <= 3584,
        (2, _) => n <= 5632,
        (4, "double") => n <= 1152,
        _ => n <= 2304,
    };
    let is_cluster = gpu.kernel.split(',').count() == 5;
    assert_eq!(in_a_block, !is_cluster, "{what}: {}", gpu.kernel);
    assert_eq!(gpu.statuses(), vec![Status::Converged; items], "{what} {:?}", gpu.outcomes);
    compare(&what, &systems, &gpu, &cpu, SolveOptions::default_rel_tol::<T>());
    let size = cpu.x.iter().fold(0.0, |most: f64, x| most.max(x.to_f64().abs()));
    let apart = gpu.x.iter().zip(&cpu.x).map(|(a, b)| (a.to_f64() - b.to_f64()).abs());
    let apart = apart.fold(0.0, f64::max) / size;
    assert!(apart < 1e3 * T::EPSILON.to_f64(), "{what}: {apart:e}");
}

#[test]
fn tridiagonal_systems_agree_in_f64() {
    TRIDIAGONAL.iter().for_each(|&n| agrees::<f64>(n, 1, Look::Whole));
}

#[test]
fn tridiagonal_systems_agree_in_f32() {
    TRIDIAGONAL.iter().for_each(|&n| agrees::<f32>(n, 1, Look::Whole));
    agrees::<f32>(8704, 1, Look::Whole);
}

#[test]
fn pentadiagonal_systems_agree_in_f64() {
    PENTADIAGONAL.iter().for_each(|&n| agrees::<f64>(n, 2, Look::Whole));
}

#[test]
fn pentadiagonal_systems_agree_in_f32() {
    PENTADIAGONAL.iter().for_each(|&n| agrees::<f32>(n, 2, Look::Whole));
    agrees::<f32>(5632, 2, Look::Whole);
}

#[test]
fn systems_with_three_and_four_diagonals_on_a_side_agree() {
    for n in [25, 31, 36, 52, 72, 88, 144, 145, 288, 289, 576, 577, 1152, 1153, 2304, 2305, 4609] {
        agrees::<f64>(n, 3, Look::Whole);
        agrees::<f32>(n, 3, Look::Whole);
    }
    for n in [118, 131, 144, 172, 288, 325, 576, 577, 1152, 2048, 2305, 4609] {
        agrees::<f64>(n, 4, Look::Whole);
        agrees::<f32>(n, 4, Look::Whole);
    }
}

/// Systems that the blocks of a cluster solve together: limits of kernels and of blocks, a last
/// block with one row and blocks without rows.
#[test]
fn systems_of_several_blocks_agree() {
    for n in [6657, 8704, 8705, 10_881, 17_409] {
        agrees::<f64>(n, 1, Look::Whole);
    }
    for n in [3585, 4609, 9217, 18_433] {
        agrees::<f64>(n, 2, Look::Whole);
    }
    for (n, half) in [(9000, 1), (17_409, 1), (34_816, 1), (5633, 2), (18_500, 2)] {
        agrees::<f32>(n, half, Look::Whole);
    }
}

#[test]
fn systems_of_several_blocks_with_holes_and_shuffled_rows_agree() {
    for look in [Look::WithHoles, Look::Shuffled] {
        for (n, half) in [(6700, 1), (9000, 1), (3700, 2), (6001, 2)] {
            agrees::<f64>(n, half, look);
        }
    }
}

#[test]
fn bands_with_holes_and_shuffled_rows_agree() {
    for look in [Look::WithHoles, Look::Shuffled] {
        for n in [2, 3, 5, 20, 33, 100, 300, 1000] {
            for half in [1, 2] {
                agrees::<f64>(n, half, look);
                agrees::<f32>(n, half, look);
            }
        }
        for (n, half) in [(33, 3), (60, 3), (100, 3), (1000, 3), (120, 4), (180, 4), (1000, 4)] {
            agrees::<f64>(n, half, look);
            agrees::<f32>(n, half, look);
        }
    }
}

/// A refinement takes the residual down to rounding, from a guess too.
#[test]
fn refinement_reaches_rounding() {
    let usual = BandedTuning::default();
    let in_blocks = usual.cluster(Some(4));
    for (n, half, tuning) in [
        (7, 1, usual),
        (100, 2, usual),
        (600, 1, usual),
        (60, 3, usual),
        (200, 4, usual),
        (2300, 1, in_blocks),
        (1200, 2, in_blocks),
    ] {
        for has_guess in [false, true] {
            let pattern = band(n, half, Look::Whole);
            let mut systems = Systems::new(&[matrix::<f64>(&pattern, 1.1, 4)], random_vector(n, 3));
            if has_guess {
                systems.x0 = random_vector(n, 9);
            }
            let options = options().rel_tol(0.0).floor(Some(1.0));
            let executor = Emulator::new(Order::Forward);

            let gpu = by_banded(&executor, &systems, &options, &tuning);

            assert_eq!(gpu.statuses(), [Status::Converged], "{n} {:?}", gpu.outcomes);
            assert!(gpu.outcomes[0].accepted_by_floor || gpu.outcomes[0].residual_norm == 0.0);
        }
    }
}
