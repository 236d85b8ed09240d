//! Solves with factors that are kept on the device.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Csr, CsrPattern, Pattern};
use sparsebatch_solve_core::{ArgumentError, Outcome};
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::{GpuLu, Guess, LuTuning};
use sparsebatch_solvers::{SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems, compare};
use crate::gpu_lu::independence::{Flaw, batch, flaw, sizes};
use crate::gpu_lu::support::{by_lu, matrix, mixed_tolerances, options, pattern};

/// As [`by_lu`], with kept factors, after a solve of other right-hand sides with them.
fn again<T: Value>(executor: &Emulator, systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
    let items = systems.batch.nitems();
    let mut plan = GpuLu::<_, T>::new(executor, systems.pattern(), items, options).unwrap();
    let mut values = executor.upload(systems.values()).unwrap();
    plan.factor(&values).unwrap();
    executor.fill_zero(&mut values).unwrap();
    let others = executor.upload(&random_vector::<T>(systems.b.len(), 11)).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let mut x = executor.upload(&systems.x0).unwrap();
    let before = executor.bytes_in_use();
    plan.solve_again(&others, Guess::Zero, &mut x).unwrap();
    executor.copy_from_host(&systems.x0, &mut x).unwrap();
    plan.solve_again(&b, Guess::InX, &mut x).unwrap();
    assert_eq!(executor.bytes_in_use(), before, "a solve allocates nothing");
    Solved {
        x: executor.download(&x).unwrap(),
        outcomes: plan.outcomes().unwrap(),
        kernel: plan.explain().launches[0].kernel.clone(),
    }
}

/// Compares with a whole solve; alone and in another order of threads a system has the same bits.
fn check<T: SolveScalar>(systems: &Systems<T>, options: &SolveOptions, seed: u64) {
    let whole = by_lu(&Emulator::new(Order::Forward), systems, options, &LuTuning::default());
    let kept = again(&Emulator::new(Order::Random(seed)), systems, options);
    let what = format!("{} seed {seed}", T::CPP);
    // Where tolerances are about as small as rounding errors, rounding decides how a system ends.
    if !options.has_own_limits() && options.floor.is_none() {
        compare(&what, systems, &kept, &whole, SolveOptions::default_rel_tol::<T>());
    }
    let forward = again(&Emulator::new(Order::Forward), systems, options);
    for system in 0..whole.outcomes.len() {
        assert_eq!(forward.bits(system), kept.bits(system), "{what} system {system}");
    }
    if options.nrhs > 1 {
        return;
    }
    let item = seed as usize % systems.batch.nitems();
    let alone = options.for_systems(&[item]);
    let alone = again(&Emulator::new(Order::Forward), &systems.select(&[item]), &alone);
    assert_eq!(alone.bits(0), kept.bits(item), "{what} item {item}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn kept_factors_solve_as_a_whole_solve_does(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..9),
        seed in 0u64..1_000_000,
        floor in prop::option::of(0.0f64..8.0),
    ) {
        let (n, most) = size;
        let mut options = options().floor(floor);
        options.rel_tol = mixed_tolerances(flaws.len(), seed);
        check(&batch::<f64>(n, most, &flaws, seed), &options, seed);
        check(&batch::<f32>(n, most, &flaws, seed), &options, seed);
    }
}

/// Healthy items of one pattern, with right-hand sides.
fn healthy(n: usize, items: usize, nrhs: usize) -> Systems<f64> {
    let pattern = pattern(n, 4, n as u64);
    let matrices: Vec<Csr<f64>> =
        (0..items as u64).map(|item| matrix(&pattern, 1.2, item)).collect();
    Systems::new(&matrices, random_vector(n * items * nrhs, 5))
}

#[test]
fn many_items_stand_side_by_side() {
    for (n, items) in [(3, 700), (40, 300), (170, 40)] {
        check(&healthy(n, items, 1), &options(), 3);
    }
}

#[test]
fn right_hand_sides_share_the_factors_of_their_item() {
    for items in [1, 5, 150] {
        let systems = healthy(20, items, 3);
        check(&systems, &options().nrhs(3), 4);
    }
}

/// Each right-hand side of an item ends as it does alone, bit for bit, whatever the others are.
fn check_each<T: SolveScalar>(nrhs: usize, floor: Option<f64>, seed: u64) {
    let kinds = [Flaw::None, Flaw::Nan, Flaw::None, Flaw::Zero, Flaw::Scaled(1e9), Flaw::Infinite];
    let flaws = kinds.repeat(4);
    let (n, items) = (23, flaws.len());
    let one = batch::<T>(n, 5, &flaws, seed);
    let mut systems = batch::<T>(n, 5, &flaws, seed);
    let random = random_vector::<f64>(n * items * nrhs, seed);
    let rhs = |item: usize, rhs: usize, row: usize| match rhs {
        0 => one.b[item * n + row],
        1 => T::from_f64(0.0),
        2 if row == 3 => T::from_f64(f64::NAN),
        3 => T::from_f64(1e20 * random[(item * nrhs + 3) * n + row]),
        rhs => T::from_f64(random[(item * nrhs + rhs) * n + row]),
    };
    let elements = 0..items * nrhs * n;
    systems.b = elements.clone().map(|k| rhs(k / n / nrhs, k / n % nrhs, k % n)).collect();
    let guess = |k: usize| if (k / n).is_multiple_of(3) { 0.5 } else { 0.0 };
    systems.x0 = elements.map(|k| T::from_f64(guess(k))).collect();
    let options = options().nrhs(nrhs).floor(floor);
    let all = again(&Emulator::new(Order::Random(seed)), &systems, &options);
    for rhs in 0..nrhs {
        let of_rhs = |all: &[T]| -> Vec<T> {
            let of_item = |item: usize| &all[(item * nrhs + rhs) * n..][..n];
            (0..items).flat_map(of_item).copied().collect()
        };
        let mut alone = batch::<T>(n, 5, &flaws, seed);
        (alone.b, alone.x0) = (of_rhs(&systems.b), of_rhs(&systems.x0));
        let alone = again(&Emulator::new(Order::Forward), &alone, &options.clone().nrhs(1));
        for (item, flaw) in flaws.iter().enumerate() {
            let what = format!("{} {nrhs} {floor:?}: {item} {rhs} {flaw:?}", T::CPP);
            assert_eq!(all.bits(item * nrhs + rhs), alone.bits(item), "{what}");
        }
    }
}

#[test]
fn right_hand_sides_that_share_factors_end_as_alone() {
    for (nrhs, floor) in [(5, None), (5, Some(4.0)), (11, Some(1e-3))] {
        check_each::<f64>(nrhs, floor, 7);
        check_each::<f32>(nrhs, floor, 8);
    }
}

#[test]
fn one_matrix_of_all_items_is_kept_once() {
    let executor = Emulator::new(Order::Forward);
    let (n, items) = (33, 300);
    let pattern = pattern(n, 4, 8);
    let a: Csr<f64> = matrix(&pattern, 1.2, 9);
    let b: Vec<f64> = random_vector(n * items, 10);
    let each = Systems::new(&vec![a.clone(); items], b.clone());
    let kept = again(&executor, &each, &options());

    let mut plan = GpuLu::<_, f64>::new(&executor, pattern.view(), items, &options()).unwrap();
    plan.factor(&executor.upload(a.values()).unwrap()).unwrap();
    let b = executor.upload(&b).unwrap();
    let mut x = executor.alloc_zeroed(n * items).unwrap();
    plan.solve_again(&b, Guess::Zero, &mut x).unwrap();

    assert_eq!(executor.download(&x).unwrap(), kept.x);
    assert!(plan.outcomes().unwrap().iter().all(|outcome| outcome.status == Status::Converged));
}

#[test]
fn only_the_active_items_take_part() {
    let executor = Emulator::new(Order::Forward);
    let (n, items, active) = (12, 90, 37);
    let systems = healthy(n, items, 1);
    let whole = by_lu(&executor, &systems, &options(), &LuTuning::default());
    let again = again(&executor, &systems, &options());
    let mut plan = GpuLu::<_, f64>::new(&executor, systems.pattern(), items, &options()).unwrap();
    let values = executor.upload(systems.values()).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    plan.set_active(active).unwrap();
    plan.factor(&values).unwrap();
    for kept in [true, false] {
        let mut x = executor.upload(&vec![7.0; n * items]).unwrap();
        if kept {
            plan.solve_again(&b, Guess::Zero, &mut x).unwrap();
        } else {
            plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        }
        let x = executor.download(&x).unwrap();
        let all = if kept { &again.x } else { &whole.x };
        assert_eq!(x[..n * active], all[..n * active]);
        assert!(x[n * active..].iter().all(|&x| x == 7.0));
    }
    let untouched = |outcome: &Outcome| outcome.iterations == 0 && outcome.rhs_norm == 0.0;
    assert!(plan.outcomes().unwrap()[active..].iter().all(untouched));

    // Fewer active items may follow; more need factors of their own; with none nothing is done.
    let mut x = executor.upload(&vec![7.0; n * items]).unwrap();
    plan.set_active(3).unwrap();
    plan.solve_again(&b, Guess::Zero, &mut x).unwrap();
    assert_eq!(executor.download(&x).unwrap()[..n * 3], again.x[..n * 3]);
    plan.set_active(active + 1).unwrap();
    let refused = plan.solve_again(&b, Guess::Zero, &mut x);
    assert!(
        matches!(
            refused,
            Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "factors", .. }))
        ),
        "{refused:?}"
    );
    plan.set_active(0).unwrap();
    plan.factor(&values).unwrap();
    plan.solve_again(&b, Guess::Zero, &mut x).unwrap();
    assert_eq!(executor.download(&x).unwrap()[n * 3..], vec![7.0; n * (items - 3)]);
    assert!(matches!(
        plan.set_active(items + 1),
        Err(GpuSolveError::Argument(ArgumentError::Length { .. }))
    ));

    // The factors of one item shared by all are computed whatever the number of active items.
    let one = executor.upload(&systems.values()[..systems.values().len() / items]).unwrap();
    plan.factor(&one).unwrap();
    plan.set_active(1).unwrap();
    plan.solve_again(&b, Guess::Zero, &mut x).unwrap();
    assert_eq!(executor.download(&x).unwrap()[..n], again.x[..n]);
}

#[test]
fn without_factors_nothing_is_solved() {
    let executor = Emulator::new(Order::Forward);
    let systems = healthy(5, 4, 1);
    let mut plan = GpuLu::<_, f64>::new(&executor, systems.pattern(), 4, &options()).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let mut x = executor.upload(&[7.0; 20]).unwrap();

    let refused = plan.solve_again(&b, Guess::Zero, &mut x);

    assert!(
        matches!(
            refused,
            Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "factors", .. }))
        ),
        "{refused:?}"
    );
    assert_eq!(executor.download(&x).unwrap(), [7.0; 20]);
    let few = executor.upload(&vec![1.0; systems.values().len() - 1]).unwrap();
    assert!(matches!(
        plan.factor(&few),
        Err(GpuSolveError::Argument(ArgumentError::Length { .. }))
    ));
    plan.factor(&executor.upload(systems.values()).unwrap()).unwrap();
    let short = executor.upload(&[1.0; 19]).unwrap();
    let refused = plan.solve_again(&short, Guess::Zero, &mut x);
    assert!(
        matches!(refused, Err(GpuSolveError::Argument(ArgumentError::Length { .. }))),
        "{refused:?}"
    );
}

#[test]
fn a_long_chain_whose_vectors_exceed_a_block_is_refused() {
    let executor = Emulator::new(Order::Forward);
    let n = 9_000;
    let (row_ptr, col_idx) = ((0..=n as i32).collect(), (0..n as i32).collect());
    let chain = CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap();
    let mut plan = GpuLu::<_, f64>::new(&executor, chain.view(), 2, &options()).unwrap();

    let refused = plan.factor(&executor.upload(&vec![2.0; 2 * n]).unwrap());

    assert!(matches!(refused, Err(GpuSolveError::Unsupported { .. })), "{refused:?}");
}
