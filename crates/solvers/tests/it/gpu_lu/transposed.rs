//! Solves with the transposed matrices by the factors that are kept of the matrices.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::Csr;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::{GpuLu, GpuSolveError, GpuSolver, Guess, LuTuning};
use sparsebatch_solvers::{SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems, compare};
use crate::gpu_lu::independence::{batch, flaw, sizes};
use crate::gpu_lu::support::{by_lu, matrix, options, pattern};

/// The same systems with the transposed matrices.
fn transposed<T: SolveScalar>(systems: &Systems<T>) -> Systems<T> {
    let matrices: Vec<Csr<T>> =
        (0..systems.batch.nitems()).map(|item| systems.batch.to_matrix(item).transpose()).collect();
    let mut transposed = Systems::new(&matrices, systems.b.clone());
    transposed.x0.clone_from(&systems.x0);
    transposed
}

/// Solves the transposed systems by the factors of the matrices, after a solve with these and after
/// one with other values.
fn by_kept<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
) -> Solved<T> {
    let items = systems.batch.nitems();
    let mut plan = GpuLu::<_, T>::new(executor, systems.pattern(), items, options).unwrap();
    let others = random_vector::<T>(systems.values().len(), 3);
    let mut values = executor.upload(&others).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let mut x = executor.upload(&systems.x0).unwrap();
    plan.factor(&values).unwrap();
    plan.solve_transposed_again(&b, Guess::Zero, &mut x).unwrap();
    let before = executor.bytes_in_use();
    executor.copy_from_host(systems.values(), &mut values).unwrap();
    plan.factor(&values).unwrap();
    plan.solve_again(&b, Guess::Zero, &mut x).unwrap();
    executor.copy_from_host(&systems.x0, &mut x).unwrap();
    plan.solve_transposed_again(&b, Guess::InX, &mut x).unwrap();
    assert_eq!(executor.bytes_in_use(), before, "only the first solve allocates");
    let launched = executor.launched();
    assert!(launched.iter().any(|kernel| kernel.contains("lu_transpose")), "{launched:?}");
    Solved {
        x: executor.download(&x).unwrap(),
        outcomes: plan.outcomes().unwrap(),
        kernel: plan.explain().launches[0].kernel.clone(),
    }
}

/// Compares with a whole solve of the transposed systems.
fn check<T: SolveScalar>(systems: &Systems<T>, options: &SolveOptions, seed: u64) {
    let expected = transposed(systems);
    let whole = by_lu(&Emulator::new(Order::Forward), &expected, options, &LuTuning::default());
    let kept = by_kept(&Emulator::new(Order::Random(seed)), systems, options);
    let what = format!("{} seed {seed}", T::CPP);
    compare(&what, &expected, &kept, &whole, SolveOptions::default_rel_tol::<T>());
    let forward = by_kept(&Emulator::new(Order::Forward), systems, options);
    for system in 0..whole.outcomes.len() {
        assert_eq!(forward.bits(system), kept.bits(system), "{what} system {system}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn factors_solve_the_transposed_systems_as_a_whole_solve_does(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..9),
        seed in 0u64..1_000_000,
    ) {
        let (n, most) = size;
        check(&batch::<f64>(n, most, &flaws, seed), &options(), seed);
        check(&batch::<f32>(n, most, &flaws, seed), &options(), seed);
    }
}

#[test]
fn many_items_and_right_hand_sides() {
    for (n, items, nrhs) in [(3, 700, 1), (40, 300, 1), (170, 40, 1), (20, 5, 3), (20, 150, 3)] {
        let pattern = pattern(n, 4, n as u64);
        let matrices: Vec<Csr<f64>> =
            (0..items as u64).map(|item| matrix(&pattern, 1.2, item)).collect();
        let systems = Systems::new(&matrices, random_vector(n * items * nrhs, 5));
        check(&systems, &options().nrhs(nrhs), 4);
    }
}

#[test]
fn families_fill_in_alike() {
    for (family, n) in [(Family::Tri, 64), (Family::Lap2d, 100), (Family::Rand9, 54)] {
        let problem = Problem::new(family, n).unwrap().batch(3).unwrap();
        let matrices: Vec<Csr<f64>> = (0..3).map(|item| problem.batch.to_csr(item)).collect();
        check(&Systems::new(&matrices, problem.rhs), &options(), 8);
    }
}

#[test]
fn one_matrix_of_all_items_and_only_some_items() {
    let executor = Emulator::new(Order::Forward);
    let (n, items) = (33, 300);
    let pattern = pattern(n, 4, 8);
    let a: Csr<f64> = matrix(&pattern, 1.2, 9);
    let each = Systems::new(&vec![a.clone(); items], random_vector(n * items, 10));
    let expected = by_kept(&executor, &each, &options());

    let view = a.view().pattern();
    let mut plan = GpuLu::<_, f64>::new(&executor, view, items, &options()).unwrap();
    let b = executor.upload(&each.b).unwrap();
    let mut x = executor.alloc_zeroed(n * items).unwrap();
    let none = plan.solve_transposed_again(&b, Guess::Zero, &mut x).unwrap_err();
    assert!(
        matches!(none, GpuSolveError::Argument(ArgumentError::OutOfRange { name: "factors", .. })),
        "{none}"
    );
    plan.factor(&executor.upload(a.values()).unwrap()).unwrap();
    plan.set_active(7).unwrap();
    plan.solve_transposed_again(&b, Guess::Zero, &mut x).unwrap();
    let some = executor.download(&x).unwrap();
    assert_eq!(some[..7 * n], expected.x[..7 * n]);
    assert!(some[7 * n..].iter().all(|&x| x == 0.0), "items that take no part");
    plan.set_active(items).unwrap();
    plan.solve_transposed_again(&b, Guess::Zero, &mut x).unwrap();
    assert_eq!(executor.download(&x).unwrap(), expected.x);
    assert!(plan.outcomes().unwrap().iter().all(|outcome| outcome.status == Status::Converged));
    let kept = plan.explain().kept_bytes;
    plan.forget_factors();
    assert!(kept > 0 && plan.explain().kept_bytes == 0);
}
