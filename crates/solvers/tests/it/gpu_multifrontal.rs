//! The sparse LU by fronts: ends, residuals and bits as they should be.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr, CsrPattern, Pattern};
use sparsebatch_solvers::gpu::{FrontalLu, FrontalShape, GpuSolveError, GpuSolver, Guess};
use sparsebatch_solvers::{Method, SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems, compare, on_cpu};
use crate::gpu_lu::agreement::residuals_are_small;
use crate::gpu_lu::independence::{Flaw, batch, flaw, sizes};
use crate::gpu_lu::statuses::{
    a_failure_keeps_the_guess, cases, end_as_expected, pattern_of_cases, scaled, systems,
};
use crate::gpu_lu::support::{matrix, options, pattern};

/// An emulation whose multiprocessors have so much shared memory, for four blocks.
fn with_shared(kib: u32, order: Order) -> Emulator {
    let mut info = Emulator::new(order).info().clone();
    info.shared_bytes_per_multiprocessor = kib << 10;
    Emulator::with_info(info, order)
}

fn shape<T: Value>(plan: &FrontalLu<Emulator, T>) -> FrontalShape {
    *plan.explain().launches[0].frontal().unwrap()
}

/// Solves from the guesses of `systems`. Solves by kept factors give the same bits.
fn solve_on<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
) -> Solved<T> {
    let (pattern, items) = (systems.pattern(), systems.batch.nitems());
    let mut plan = FrontalLu::<_, T>::new(executor, pattern, items, options).unwrap();
    let values = executor.upload(systems.values()).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let mut x = executor.upload(&systems.x0).unwrap();
    let before = executor.bytes_in_use();
    plan.solve(&values, &b, Guess::InX, &mut x).unwrap();
    assert_eq!(executor.bytes_in_use(), before, "a solve allocates nothing");
    let kernel = plan.explain().launches[0].kernel.clone();
    let found = executor.download(&x).unwrap();
    let solved = Solved { x: found, outcomes: plan.outcomes().unwrap(), kernel };

    plan.factor(&values).unwrap();
    executor.copy_from_host(&systems.x0, &mut x).unwrap();
    plan.solve_again(&values, &b, Guess::InX, &mut x).unwrap();
    let again = Solved {
        x: executor.download(&x).unwrap(),
        outcomes: plan.outcomes().unwrap(),
        kernel: String::new(),
    };
    for system in 0..solved.outcomes.len() {
        assert_eq!(solved.bits(system), again.bits(system), "by kept factors");
    }
    solved
}

fn random_patterns<T: SolveScalar>() {
    for (n, most, items, nrhs, kib) in [
        (1, 0, 3, 1, 228),
        (2, 1, 3, 2, 228),
        (13, 4, 3, 1, 228),
        (57, 5, 2, 3, 16),
        (80, 9, 2, 1, 24),
        (150, 3, 2, 1, 40),
        (280, 7, 2, 1, 228),
    ] {
        let pattern = pattern(n, most, n as u64);
        let matrices: Vec<Csr<T>> =
            (0..items).map(|item| matrix(&pattern, 1.1, item + 3)).collect();
        let len = n * matrices.len() * nrhs;
        let mut systems = Systems::new(&matrices, random_vector(len, 5));
        if n % 2 == 1 {
            systems.x0 = random_vector(len, 6);
        }
        let options = options().nrhs(nrhs);
        let cpu = on_cpu(&systems, &options);
        let gpu = solve_on(&with_shared(kib, Order::Random(5)), &systems, &options);
        let what = format!("{} n = {n}, {most} a row", T::CPP);
        assert_eq!(gpu.kernel, format!("multifrontal<{}, 128>", T::CPP));
        assert_eq!(gpu.statuses(), vec![Status::Converged; cpu.outcomes.len()], "{what}");
        compare(&what, &systems, &gpu, &cpu, SolveOptions::default_rel_tol::<T>());
        let counts = |solved: &Solved<T>| -> Vec<(u32, u32)> {
            solved.outcomes.iter().map(|o| (o.iterations, o.restarts)).collect()
        };
        assert_eq!(counts(&gpu), counts(&cpu), "{what}");
        if nrhs == 1 {
            residuals_are_small(&what, &systems, &gpu);
        }
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

/// Grids, whose trees have subtrees for all warps.
#[test]
fn grids_agree() {
    for (side, kib) in [(12, 228), (30, 228), (30, 48), (30, 20)] {
        let problem = Problem::new(Family::Lap2d, side * side).unwrap();
        let matrices: Vec<Csr<f64>> = (0..2)
            .map(|item| {
                let mut values = Vec::new();
                problem.push_values(item, &mut values);
                Csr::from_parts(problem.pattern().clone(), values).unwrap()
            })
            .collect();
        let systems = Systems::new(&matrices, random_vector(2 * side * side, 3));
        let gpu = solve_on(&with_shared(kib, Order::Random(3)), &systems, &options());
        compare("a grid", &systems, &gpu, &on_cpu(&systems, &options()), 1e-10);
        residuals_are_small("a grid", &systems, &gpu);
    }
}
