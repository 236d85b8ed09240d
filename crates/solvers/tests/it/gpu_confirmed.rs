//! Verdicts of [`Confirmer`] on guesses whose residual is 0 as the kernels compute it, but not
//! exactly.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Batch, BatchValues, Csr, Layout, RaggedCsr, Scalar, UniformBatch};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::{
    ComposedSolver, Confirmer, FactoredSolver, FusedSolver, GpuLu, GpuSolver, GpuTuning, Guess,
    HostOutcomes, Layouts, OutcomeMemory, ProductKernel,
};
use sparsebatch_solvers::{
    Engine, InnerPrecision, Method, Outcome, Preconditioner, SolveOptions, SpmvOptions, Status,
};
use sparsebatch_spmv_gpu::FlexibleKernel;
use sparsebatch_testing::random_vector;

use crate::common::statuses::{chain, chain_of};
use crate::common::{METHODS, Memory, Systems, one_step, options};

/// The kind of a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The guess is 0, in a system that any method solves.
    Healthy,
    /// The guess is a solution.
    Right,
    /// The guess is no solution, although the computed residual vanishes: the products of 3 and
    /// numbers with all digits cancel.
    Wrong,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Healthy, Self::Right, Self::Wrong];

    fn of(system: usize) -> Self {
        Self::ALL[system % 3]
    }
}

/// A system of `n` rows, its right-hand side and the guess. `fused`: kernels do not round products
/// before they add them.
fn system<T: Scalar>(kind: Kind, n: usize, seed: u64, fused: bool) -> (Csr<T>, Vec<T>, Vec<T>) {
    let draws = random_vector::<f64>(n.max(2), seed);
    if kind == Kind::Healthy {
        let b = draws.iter().map(|&b| T::from_f64(b)).collect();
        return (chain(n, &[]), b, vec![T::ZERO; n]);
    }
    let matrix = chain_of(n, |row, col| match (row.min(col), row == col) {
        (0, same) if row < 2 && col < 2 => {
            if same {
                3.0
            } else {
                -3.0
            }
        }
        (1, true) => 3.0,
        (_, same) => {
            if same {
                2.0
            } else {
                0.0
            }
        }
    });
    // Numbers with all digits, or multiples of 4, whose products with 3 are exact.
    let digits = if size_of::<T>() == 8 { 53 } else { 24 };
    let step = if kind == Kind::Right { 4 } else { 1 };
    let mut first = (1i64 << digits) - step * (1 + (draws[0].abs() * 1e5) as i64);
    let distance = step * (200 + (draws[1].abs() * 100.0) as i64);
    let rounded = |product: i64| T::from_f64(product as f64).to_f64() as i64;
    // Finds a number whose product with 3 is rounded.
    while kind == Kind::Wrong && rounded(3 * first) == 3 * first {
        first -= 1;
    }
    let second = first - distance;
    let product = 3 * second;
    let difference = rounded(3 * first) - if fused { product } else { rounded(product) };
    let (mut b, mut x) = (vec![T::from_f64(2.0); n], vec![T::ONE; n]);
    (x[0], x[1]) = (T::from_f64(first as f64), T::from_f64(second as f64));
    (b[0], b[1]) = (T::from_f64(difference as f64), T::from_f64(-difference as f64));
    if kind == Kind::Wrong && 3 * (first - second) == difference {
        // Both products were rounded alike: try another seed.
        return system(kind, n, seed + 1000, fused);
    }
    (matrix, b, x)
}

fn systems<T: Scalar>(n: usize, items: usize, fused: bool) -> Systems<T> {
    let all = (0..items).map(|item| system::<T>(Kind::of(item), n, item as u64 + 7, fused));
    let (mut matrices, mut b, mut x0) = (Vec::new(), Vec::new(), Vec::new());
    for (matrix, own_b, own_x) in all {
        matrices.push(matrix);
        b.extend(own_b);
        x0.extend(own_x);
    }
    Systems { x0, ..Systems::new(&matrices, b) }
}

/// Checks outcomes before and after confirmation. `takes_all`: the plan is iterative and takes
/// every guess for a solution at first.
fn check(what: &str, [before, after]: &[Vec<Outcome>; 2], takes_all: bool) {
    let mut found_out = 0;
    for (number, (before, after)) in before.iter().zip(after).enumerate() {
        let what = format!("{what}, system {number}: {before:?}, then {after:?}");
        match Kind::of(number) {
            Kind::Healthy => {
                assert_eq!(after.status, Status::Converged, "{what}");
                // In f32 the bound of rounding errors nearly always requires twofold evaluation.
                let evaluated = Outcome { residual_norm: after.residual_norm, ..before.clone() };
                assert_eq!(after, &evaluated, "{what}");
                let change = (after.residual_norm - before.residual_norm).abs();
                assert!(change <= 0.01 * before.residual_norm, "{what}");
            }
            Kind::Right => {
                assert_eq!((after.status, after.iterations), (Status::Converged, 0), "{what}");
                assert_eq!(after.residual_norm, 0.0, "{what}");
            }
            Kind::Wrong => {
                assert!(!takes_all || before.status == Status::Converged, "{what}");
                if before.status == Status::Converged {
                    found_out += 1;
                    assert_eq!(after.status, Status::Stagnated, "{what}");
                    // The residual is the same integer in both rows, 1 to 4.
                    let square = (after.residual_norm * after.residual_norm).round();
                    assert!([2.0, 8.0, 18.0, 32.0].contains(&square), "{what}");
                }
            }
        }
    }
    assert!(found_out > 0, "{what}: no guess was taken for a solution");
}

/// The arrays of a solve on the device.
struct Arrays<T: Value> {
    values: Memory<T>,
    b: Memory<T>,
    x: Memory<T>,
}

impl<T: Value> Arrays<T> {
    fn new(executor: &Emulator, values: &[T], b: &[T], x: &[T]) -> Self {
        let upload = |array| executor.upload(array).unwrap();
        Self { values: upload(values), b: upload(b), x: upload(x) }
    }

    fn of(executor: &Emulator, systems: &Systems<T>) -> Self {
        Self::new(executor, systems.values(), &systems.b, &systems.x0)
    }
}

/// The outcomes of a plan's last solve, before and after confirmation.
macro_rules! confirmed {
    ($plan:expr, $confirmer:expr, $arrays:expr) => {{
        let before = $plan.outcomes().unwrap();
        let Arrays { values, b, x } = &$arrays;
        $plan.confirm($confirmer, values, b, x).unwrap();
        [before, $plan.outcomes().unwrap()]
    }};
    // The confirmation packs them, too.
    ($plan:expr, $confirmer:expr, $executor:expr, $arrays:expr) => {{
        $plan.outcome_arrays_mut().keep_packed($executor).unwrap();
        let [before, after] = confirmed!($plan, $confirmer, $arrays);
        let packed = HostOutcomes::download(
            $executor,
            $plan.outcome_arrays(),
            &mut OutcomeMemory::default(),
        )
        .unwrap();
        // As text, in which a norm that is NaN equals itself.
        let packed: Vec<Outcome> = packed.outcomes().collect();
        assert_eq!(format!("{packed:?}"), format!("{after:?}"));
        [before, after]
    }};
}

/// Solves by [`FusedSolver`].
fn fused<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
) -> [Vec<Outcome>; 2] {
    let (pattern, items) = (systems.pattern(), systems.batch.nitems());
    let tuning = GpuTuning::default().mixed(Some(true));
    let plan = FusedSolver::<_, T>::with_tuning(executor, pattern, items, options, &tuning);
    let (mut plan, mut arrays) = (plan.unwrap(), Arrays::of(executor, systems));
    plan.solve(&arrays.values, &arrays.b, Guess::InX, &mut arrays.x).unwrap();
    let confirmer = Confirmer::new(executor, pattern, items, options).unwrap();
    confirmed!(plan, &confirmer, executor, arrays)
}

#[test]
fn fused_solves_of_uniform_batches() {
    let executor = Emulator::new(Order::Random(3));
    for (n, method) in [3, 24, 100, 700].into_iter().flat_map(|n| METHODS.map(|m| (n, m))) {
        for inner_precision in [InnerPrecision::Working, InnerPrecision::Auto] {
            let options = options(method, Preconditioner::None).inner_precision(inner_precision);
            let what = format!("n = {n} {method} {inner_precision:?}");
            check(&what, &fused(&executor, &systems::<f64>(n, 9, false), &options), true);
        }
        let options = options(method, Preconditioner::Jacobi);
        let outcomes = fused(&executor, &systems::<f32>(n, 9, false), &options);
        check(&format!("n = {n} {method} f32"), &outcomes, true);
    }
}

#[test]
fn fused_solves_of_ragged_batches() {
    let executor = Emulator::new(Order::Forward);
    let (mut batch, mut b, mut x0) = (RaggedCsr::<f64>::new(), Vec::new(), Vec::new());
    for (item, n) in [13, 32, 200, 29, 13, 32, 29, 200, 13].into_iter().enumerate() {
        let (matrix, own_b, own_x) = system(Kind::of(item), n, item as u64, false);
        batch.push(matrix.view());
        b.extend(own_b);
        x0.extend(own_x);
    }
    let (options, tuning) =
        (options(Method::BiCgStab, Preconditioner::Jacobi), GpuTuning::default());
    let mut plan = FusedSolver::ragged(&executor, &batch, &options, &tuning).unwrap();
    let mut arrays = Arrays::new(&executor, batch.values(), &b, &x0);
    plan.solve(&arrays.values, &arrays.b, Guess::InX, &mut arrays.x).unwrap();
    let confirmer = Confirmer::for_batch(&executor, &Batch::Ragged(batch), &options).unwrap();
    check("ragged", &confirmed!(plan, &confirmer, &executor, arrays), true);
}

#[test]
fn fused_solves_of_interleaved_arrays_with_right_hand_sides() {
    let executor = Emulator::new(Order::Reverse);
    let (n, items) = (12, 6);
    let systems = systems::<f64>(n, items, false);
    let values = BatchValues::ItemMajor(systems.values().to_vec());
    let batch = UniformBatch::try_new(systems.batch.pattern().clone(), items, values).unwrap();
    let interleaved = batch.to_interleaved();
    let BatchValues::Interleaved(values) = interleaved.values() else { unreachable!("so made") };
    // Two equal right-hand sides, and interleaved vectors.
    let twice = |v: &[f64]| -> Vec<f64> {
        (0..2 * n * items).map(|k| v[k % items * n + k / items % n]).collect()
    };
    let options = options(Method::Cg, Preconditioner::Jacobi).nrhs(2);
    let layouts = Layouts { values: Layout::Interleaved, vectors: Layout::Interleaved };
    let (pattern, tuning) = (systems.pattern(), GpuTuning::default());
    let plan = FusedSolver::with_layouts(&executor, pattern, items, layouts, &options, &tuning);
    let mut plan = plan.unwrap();
    let mut arrays = Arrays::new(&executor, values, &twice(&systems.b), &twice(&systems.x0));
    plan.solve(&arrays.values, &arrays.b, Guess::InX, &mut arrays.x).unwrap();
    let confirmer = Confirmer::with_layouts(&executor, pattern, items, layouts, &options).unwrap();
    let all = confirmed!(plan, &confirmer, &executor, arrays);
    for rhs in 0..2 {
        let own = |all: &Vec<Outcome>| all.iter().skip(rhs).step_by(2).cloned().collect();
        check(&format!("right-hand side {rhs}"), &[own(&all[0]), own(&all[1])], true);
    }
}

#[test]
fn factored_solves() {
    let executor = Emulator::new(Order::Random(9));
    let preconditioners = [Preconditioner::ILU0, Preconditioner::BLOCK_JACOBI];
    let iterative = METHODS.into_iter().flat_map(|m| preconditioners.map(|p| (m, p)));
    for (method, preconditioner) in iterative.chain([(Method::Lu, Preconditioner::None)]) {
        for n in [3, 40, 150] {
            let systems = systems::<f64>(n, 6, false);
            let options = options(method, preconditioner);
            let plan = FactoredSolver::new(&executor, systems.pattern(), 6, &options);
            let (mut plan, mut arrays) = (plan.unwrap(), Arrays::of(&executor, &systems));
            plan.solve(&arrays.values, &arrays.b, Guess::InX, &mut arrays.x).unwrap();
            let confirmer = Confirmer::new(&executor, systems.pattern(), 6, &options).unwrap();
            let outcomes = confirmed!(plan, &confirmer, &executor, arrays);
            check(&format!("n = {n} {method} {preconditioner}"), &outcomes, true);
        }
    }
}

#[test]
fn lu_in_one_launch_and_with_kept_factors() {
    let executor = Emulator::new(Order::Random(4));
    for n in [3, 40, 150] {
        let systems = systems::<f64>(n, 12, true);
        let options = one_step().method(Method::Lu);
        let mut plan = GpuLu::new(&executor, systems.pattern(), 12, &options).unwrap();
        let confirmer = Confirmer::new(&executor, systems.pattern(), 12, &options).unwrap();
        let mut arrays = Arrays::of(&executor, &systems);
        plan.solve(&arrays.values, &arrays.b, Guess::InX, &mut arrays.x).unwrap();
        check(&format!("n = {n}"), &confirmed!(plan, &confirmer, &executor, arrays), false);

        let mut arrays = Arrays::of(&executor, &systems);
        plan.factor(&arrays.values).unwrap();
        plan.solve_again(&arrays.b, Guess::InX, &mut arrays.x).unwrap();
        check(&format!("n = {n} again"), &confirmed!(plan, &confirmer, &executor, arrays), false);
    }
}

#[test]
fn composed_solves_of_whole_systems_and_of_parts() {
    for n in [3, 200, 9000] {
        let systems = systems::<f64>(n, 3, false);
        let batch = Batch::Uniform(systems.batch.clone());
        let ragged =
            || -> Batch<f64> { (0..3).map(|item| systems.batch.to_matrix(item)).collect() };
        for (batch, kernel) in [
            (batch.clone(), ProductKernel::default()),
            (batch, ProductKernel::flexible(FlexibleKernel::CsrScalar)),
            (ragged(), ProductKernel::default()),
        ] {
            let executor = Emulator::new(Order::Random(2));
            let engine = Engine::Composed(SpmvOptions::default());
            let options = options(Method::Cg, Preconditioner::None).engine(engine);
            let mut plan = ComposedSolver::new(&executor, &batch, &kernel, &options).unwrap();
            let mut arrays = Arrays::of(&executor, &systems);
            plan.solve(&arrays.b, Guess::InX, &mut arrays.x).unwrap();
            let confirmer = Confirmer::for_batch(&executor, &batch, &options).unwrap();
            check(&format!("n = {n} {kernel:?}"), &confirmed!(plan, &confirmer, arrays), true);
        }
    }
}

#[test]
fn an_infinite_solution_and_a_floor_are_looked_at() {
    let executor = Emulator::new(Order::Forward);
    // The second column is empty: no residual depends on x there.
    let matrix = Csr::try_new(2, 2, vec![0, 1, 1], vec![0], vec![2.0f64]).unwrap();
    let systems =
        Systems { x0: vec![1.0, f64::INFINITY], ..Systems::new(&[matrix], vec![2.0, 0.0]) };
    let options = options(Method::BiCgStab, Preconditioner::None);
    let [before, after] = fused(&executor, &systems, &options);
    assert_eq!(before[0].status, Status::Converged);
    assert_eq!((after[0].status, after[0].residual_norm.is_nan()), (Status::Stagnated, true));

    // A system that the floor accepted stays accepted.
    let made: Vec<_> = (0..8).map(|seed| system::<f64>(Kind::Healthy, 24, seed, false)).collect();
    let matrices: Vec<_> = made.iter().map(|(matrix, ..)| matrix.clone()).collect();
    let b = made.iter().flat_map(|(_, b, _)| b.clone()).collect();
    let options = options.rel_tol(0.0).floor(4.0);
    let [before, after] = fused(&executor, &Systems::new(&matrices, b), &options);
    assert!(before.iter().any(|outcome| outcome.accepted_by_floor), "{before:?}");
    for (before, after) in before.iter().zip(&after) {
        let stays = (before.status, before.accepted_by_floor) == (Status::Converged, true);
        assert!(!stays || (after.status, after.accepted_by_floor) == (Status::Converged, true));
    }
}

#[test]
fn arrays_that_do_not_fit_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let systems = systems::<f64>(5, 3, false);
    let options = options(Method::Cg, Preconditioner::None);
    let mut plan = FusedSolver::new(&executor, systems.pattern(), 3, &options).unwrap();
    let mut arrays = Arrays::of(&executor, &systems);
    plan.solve(&arrays.values, &arrays.b, Guess::InX, &mut arrays.x).unwrap();
    let before = plan.outcomes().unwrap();
    let confirmer = |items| Confirmer::new(&executor, systems.pattern(), items, &options).unwrap();
    let short = executor.upload(&systems.b[1..]).unwrap();
    let Arrays { values, b, x } = &arrays;
    for (what, refused) in [
        ("values", plan.confirm(&confirmer(3), &short, b, x)),
        ("b", plan.confirm(&confirmer(3), values, &short, x)),
        ("x", plan.confirm(&confirmer(3), values, b, &short)),
        ("values", plan.confirm(&confirmer(2), values, b, x)),
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, GpuSolveError::Argument(ArgumentError::Length { .. })),
            "{refused}"
        );
        assert!(refused.to_string().contains(what), "{refused}");
    }
    assert_eq!(plan.outcomes().unwrap(), before);
    // The same arrays for another number of systems.
    let twice = options.clone().nrhs(2);
    let mut other = FusedSolver::<_, f64>::new(&executor, systems.pattern(), 3, &twice).unwrap();
    let refused = other.confirm(&confirmer(3), values, b, x).unwrap_err();
    assert!(refused.to_string().contains("outcomes"), "{refused}");
    assert!(confirmer(3).bytes() > 0);

    // A plan with as many systems as the confirmer, divided otherwise among items: nothing beyond
    // the confirmer's systems is read.
    let one = options.clone().nrhs(1);
    let mut six = FusedSolver::<_, f64>::new(&executor, systems.pattern(), 6, &one).unwrap();
    let by = Confirmer::new(&executor, systems.pattern(), 3, &twice).unwrap();
    let b = executor.upload(&[&systems.b[..], &systems.b].concat()).unwrap();
    let mut x = executor.alloc_zeroed(2 * systems.b.len()).unwrap();
    let all = executor.upload(&[systems.values(), systems.values()].concat()).unwrap();
    six.solve(&all, &b, Guess::Zero, &mut x).unwrap();
    six.confirm(&by, values, &b, &x).unwrap();
    assert_eq!(six.outcomes().unwrap().len(), 6);
    let refused =
        HostOutcomes::download(&executor, six.outcome_arrays(), &mut OutcomeMemory::default())
            .unwrap_err();
    assert!(refused.to_string().contains("packed outcomes"), "{refused}");
}

/// Items that take no part keep their outcomes, which are packed with those of the others.
#[test]
fn outcomes_of_all_items_are_packed_where_some_take_no_part() {
    let executor = Emulator::new(Order::Forward);
    for active in [0, 1, 6] {
        let systems = systems::<f64>(7, 6, false);
        let options = options(Method::Lu, Preconditioner::None);
        let mut plan = GpuLu::<_, f64>::new(&executor, systems.pattern(), 6, &options).unwrap();
        let mut arrays = Arrays::of(&executor, &systems);
        plan.solve(&arrays.values, &arrays.b, Guess::Zero, &mut arrays.x).unwrap();
        plan.set_active(active).unwrap();
        let confirmer = Confirmer::new(&executor, systems.pattern(), 6, &options).unwrap();
        let [before, after] = confirmed!(plan, &confirmer, &executor, arrays);
        assert_eq!(before[active..], after[active..]);
    }
}

/// Outcomes stay as they were while later solves write theirs, however many are in use.
#[test]
fn outcomes_in_use_are_not_overwritten() {
    let executor = Emulator::new(Order::Forward);
    let systems = systems::<f64>(7, 6, false);
    let options = options(Method::Lu, Preconditioner::None);
    let mut plan = GpuLu::<_, f64>::new(&executor, systems.pattern(), 6, &options).unwrap();
    plan.outcome_arrays_mut().keep_packed(&executor).unwrap();
    let confirmer = Confirmer::new(&executor, systems.pattern(), 6, &options).unwrap();
    let mut arrays = Arrays::of(&executor, &systems);
    let mut memory = OutcomeMemory::default();
    let mut solve = |scale: f64| {
        let b: Vec<f64> = systems.b.iter().map(|b| scale * b).collect();
        executor.copy_from_host(&b, &mut arrays.b).unwrap();
        let Arrays { values, b, x } = &mut arrays;
        plan.solve(values, b, Guess::Zero, x).unwrap();
        plan.confirm(&confirmer, values, b, x).unwrap();
        HostOutcomes::download(&executor, plan.outcome_arrays(), &mut memory).unwrap()
    };
    let norms = |outcomes: &HostOutcomes| -> Vec<f64> {
        outcomes.outcomes().map(|outcome| outcome.rhs_norm).collect()
    };
    let scales = [1.0, 2.0, 4.0, 8.0, 16.0];
    let kept: Vec<HostOutcomes> = scales.iter().map(|&scale| solve(scale)).collect();
    let first = norms(&kept[0]);
    assert!(first.iter().all(|&norm| norm > 0.0));
    for (outcomes, scale) in kept.iter().zip(scales) {
        let expected: Vec<f64> = first.iter().map(|norm| scale * norm).collect();
        assert_eq!(norms(outcomes), expected);
    }
    let copy = kept[1].clone();
    drop(kept);
    let last = solve(32.0);
    assert_eq!(norms(&copy)[0], 2.0 * first[0]);
    assert_eq!(norms(&last)[0], 32.0 * first[0]);
    assert!(format!("{last:?}").contains("rhs_norm"));
}
