//! Substitution alone, and solves that are verified together.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Csr, CsrPattern, Pattern};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::{GpuLu, Guess};
use sparsebatch_solvers::{Outcome, SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::Systems;
use crate::gpu_lu::independence::{batch, flaw, sizes};
use crate::gpu_lu::support::{matrix, mixed_tolerances, options, pattern};

/// Solutions of several successive solves, and their outcomes.
struct Together<T> {
    x: Vec<Vec<T>>,
    outcomes: Vec<Outcome>,
}

/// A plan that keeps the factors of all systems.
fn factored<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
) -> GpuLu<Emulator, T> {
    let items = systems.batch.nitems();
    let mut plan = GpuLu::new(executor, systems.pattern(), items, options).unwrap();
    plan.factor(&executor.upload(systems.values()).unwrap()).unwrap();
    plan
}

/// Solves with kept factors for all of `b`, and verifies the solves together.
fn together<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    b: &[Vec<T>],
    options: &SolveOptions,
) -> Together<T> {
    let mut plan = factored(executor, systems, options);
    let b: Vec<_> = b.iter().map(|b| executor.upload(b).unwrap()).collect();
    let length = systems.b.len();
    let mut x: Vec<_> = b.iter().map(|_| executor.alloc(length).unwrap()).collect();
    for (b, x) in b.iter().zip(&mut x) {
        plan.substitute(b, x).unwrap();
    }
    let pairs: Vec<_> = b.iter().zip(&x).collect();
    plan.verify(&pairs).unwrap();
    let before = executor.bytes_in_use();
    plan.verify(&pairs).unwrap();
    assert_eq!(executor.bytes_in_use(), before, "later calls allocate nothing");
    Together {
        x: x.iter().map(|x| executor.download(x).unwrap()).collect(),
        outcomes: plan.verified().unwrap(),
    }
}

/// The solution and the outcome of each solve by itself, from 0.
fn one_by_one<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    b: &[Vec<T>],
    options: &SolveOptions,
) -> Together<T> {
    let mut plan = factored(executor, systems, options);
    let (mut x, mut outcomes) = (Vec::new(), Vec::new());
    for b in b {
        let b = executor.upload(b).unwrap();
        let mut own = executor.alloc(systems.b.len()).unwrap();
        plan.solve_again(&b, Guess::Zero, &mut own).unwrap();
        x.push(executor.download(&own).unwrap());
        outcomes.extend(plan.outcomes().unwrap());
    }
    Together { x, outcomes }
}

fn bits<T: Value>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.to_f64().to_bits()).collect()
}

/// Compares with solves one by one; alone and in another order of threads a system has the same
/// bits.
fn check<T: SolveScalar>(systems: &Systems<T>, solves: usize, options: &SolveOptions, seed: u64) {
    let length = systems.b.len();
    let mut b: Vec<Vec<T>> =
        (0..solves as u64).map(|solve| random_vector::<T>(length, seed + solve)).collect();
    b[0].copy_from_slice(&systems.b);
    let found = together(&Emulator::new(Order::Forward), systems, &b, options);
    let again = together(&Emulator::new(Order::Random(seed)), systems, &b, options);
    // Without refinement, since substitution computes only the first x.
    let once = options.clone().max_restarts(0);
    let whole = one_by_one(&Emulator::new(Order::Reverse), systems, &b, &once);
    let count = systems.batch.nitems() * options.nrhs;
    let n = length / count;
    assert_eq!(found.outcomes.len(), solves * count);
    for solve in 0..solves {
        for system in 0..count {
            let (one, other) =
                (&found.outcomes[solve * count + system], &whole.outcomes[solve * count + system]);
            let what =
                format!("{} seed {seed} solve {solve} system {system}: {one:?} {other:?}", T::CPP);
            let own = |x: &[Vec<T>]| bits(&x[solve][system * n..(system + 1) * n]);
            assert_eq!(own(&found.x), own(&again.x), "{what}");
            assert_eq!(
                format!("{one:?}"),
                format!("{:?}", again.outcomes[solve * count + system]),
                "{what}"
            );
            assert_eq!(one.rhs_norm.is_nan(), other.rhs_norm.is_nan(), "{what}");
            if other.rhs_norm.is_finite() {
                let close = 1e-14 * other.rhs_norm;
                assert!((one.rhs_norm - other.rhs_norm).abs() <= close, "{what}");
            }
            if other.iterations == 1 && other.status != Status::NonFinite {
                assert_eq!(own(&found.x), own(&whole.x), "{what}");
                let close = 4.0 * T::EPSILON.to_f64() * other.rhs_norm + 1e-2 * other.residual_norm;
                assert!((one.residual_norm - other.residual_norm).abs() <= close, "{what}");
            }
            // Where tolerances are about as small as rounding errors, rounding decides how a system
            // ends.
            if !options.has_own_limits() && options.floor.is_none() {
                assert_eq!(one.status, other.status, "{what}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn systems_end_as_by_a_solve_of_their_own(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..9),
        solves in 1usize..9,
        seed in 0u64..1_000_000,
        floor in prop::option::of(0.0f64..8.0),
    ) {
        let (n, most) = size;
        let mut options = options().floor(floor);
        options.rel_tol = mixed_tolerances(flaws.len(), seed);
        check(&batch::<f64>(n, most, &flaws, seed), solves, &options, seed);
        check(&batch::<f32>(n, most, &flaws, seed), solves, &options, seed);
    }
}

/// A system with its expected end: some entries of its matrix, and its right-hand side.
struct Case {
    name: &'static str,
    entry: fn(usize, usize) -> Option<f64>,
    b: fn(f64) -> f64,
    expected: Status,
}

fn cases() -> Vec<Case> {
    use Status::{Converged, NonFinite, ZeroPivot};
    let case = |name, entry, b, expected| Case { name, entry, b, expected };
    vec![
        case("healthy", |_, _| None, |b| b, Converged),
        case("zero matrix", |_, _| Some(0.0), |b| b, ZeroPivot),
        case("row of zeros", |row, _| (row == 1).then_some(0.0), |b| b, ZeroPivot),
        case("row of zeros, b = 0", |row, _| (row == 1).then_some(0.0), |_| 0.0, Converged),
        case("NaN in A", |row, col| (row == 1 && col == 1).then_some(f64::NAN), |b| b, NonFinite),
        case("NaN in A, b = 0", |row, _| (row == 1).then_some(f64::NAN), |_| 0.0, NonFinite),
        case("Inf in A", |row, col| (row == col).then_some(f64::INFINITY), |b| b, NonFinite),
        case("NaN in b", |_, _| None, |_| f64::NAN, NonFinite),
        case("Inf in b", |_, _| None, |_| f64::INFINITY, NonFinite),
        case("b = 0", |_, _| None, |_| 0.0, Converged),
        case("b of 1e-30", |_, _| None, |b| b * 1e-30, Converged),
        case("b of 1e30", |_, _| None, |b| b * 1e30, Converged),
        case("healthy", |_, _| None, |b| b, Converged),
    ]
}

fn table<T: SolveScalar>() {
    for n in [4, 40, 130] {
        let cases = cases();
        let pattern = pattern(n, 3, 5);
        let view = pattern.view();
        let healthy = matrix::<f64>(&pattern, 1.5, 4);
        let of = |case: &Case| {
            let mut values = healthy.values().to_vec();
            for row in 0..n {
                for k in view.row(row) {
                    let found = (case.entry)(row, view.col_idx()[k] as usize);
                    values[k] = found.unwrap_or(values[k]);
                }
            }
            let values = values.into_iter().map(T::from_f64).collect();
            Csr::try_new(n, n, view.row_ptr().to_vec(), view.col_idx().to_vec(), values).unwrap()
        };
        let rhs = |seed: u64| -> Vec<T> {
            let of = |case: &Case| -> Vec<T> {
                let b = random_vector::<f64>(n, seed);
                b.into_iter().map(|b| T::from_f64((case.b)(b))).collect()
            };
            cases.iter().flat_map(of).collect()
        };
        let matrices: Vec<Csr<T>> = cases.iter().map(of).collect();
        let b: Vec<Vec<T>> = (0..5).map(rhs).collect();
        let systems = Systems::new(&matrices, b[0].clone());

        let found = together(&Emulator::new(Order::Random(3)), &systems, &b, &options());

        let all = found.outcomes.chunks(cases.len());
        for (outcome, case) in all.flat_map(|own| own.iter().zip(&cases)) {
            let what = format!("{} n = {n} {}: {outcome:?}", T::CPP, case.name);
            assert_eq!(outcome.status, case.expected, "{what}");
            assert_eq!(
                outcome.residual_norm.is_nan(),
                case.expected == Status::NonFinite,
                "{what}"
            );
            match case.name {
                "healthy" => assert_eq!(outcome.iterations, 1, "{what}"),
                "zero matrix" => assert_eq!(outcome.iterations, 0, "{what}"),
                _ => {}
            }
        }
        // x is 0 where a pivot is zero.
        let singular = cases.iter().position(|case| case.name == "row of zeros").unwrap();
        for x in &found.x {
            assert!(x[singular * n..(singular + 1) * n].iter().all(|x| x.to_f64() == 0.0));
        }
    }
}

#[test]
fn bad_systems_end_each_in_its_way() {
    table::<f64>();
    table::<f32>();
}

#[test]
fn what_needs_refinement_stagnates_unless_the_floor_accepts_it() {
    let n = 60;
    let healthy = matrix::<f64>(&pattern(n, 3, 1), 1.2, 2);
    let systems = Systems::new(&vec![healthy; 5], random_vector(5 * n, 7));
    let b = vec![systems.b.clone(), random_vector(5 * n, 8)];
    let mut options = options();
    options.rel_tol = Some((vec![0.0, 1e-10, 0.0, 0.0, 1e-10]).into());
    options.max_iters = (vec![100, 100, 1, 0, 0]).into();
    let found = |options: &SolveOptions| {
        let found = together(&Emulator::new(Order::Forward), &systems, &b, options);
        found.outcomes.iter().map(|one| (one.status, one.accepted_by_floor)).collect::<Vec<_>>()
    };
    use Status::{Converged, MaxIterations, Stagnated};

    let strict = found(&options);
    let with_floor = found(&options.clone().floor(4.0));

    let expected = [
        (Stagnated, false),
        (Converged, false),
        (MaxIterations, false),
        (MaxIterations, false),
        (MaxIterations, false),
    ];
    assert_eq!(strict, [expected, expected].concat());
    let expected =
        [(Converged, true), (Converged, false), (Converged, true), expected[3], expected[4]];
    assert_eq!(with_floor, [expected, expected].concat());
    // An absolute tolerance accepts, too, without an iteration where x = 0 meets it.
    options.abs_tol = (vec![1e-3, 0.0, 1e-3, 1e-3, 1e9]).into();
    let accepted: Vec<Status> = found(&options)[..5].iter().map(|one| one.0).collect();
    assert_eq!(accepted, [Converged, Converged, Converged, MaxIterations, Converged]);
}

#[test]
fn without_iterations_no_pivot_is_looked_at() {
    let zero = Csr::<f64>::try_new(1, 1, vec![0, 1], vec![0], vec![0.0]).unwrap();
    let systems = Systems::new(&[zero.clone(), zero], vec![1.0; 2]);
    let options = options().max_iters(vec![0, 1]);

    let found = together(
        &Emulator::new(Order::Forward),
        &systems,
        std::slice::from_ref(&systems.b),
        &options,
    );

    let ends: Vec<_> = found.outcomes.iter().map(|one| (one.status, one.iterations)).collect();
    assert_eq!(ends, [(Status::MaxIterations, 0), (Status::ZeroPivot, 0)]);
}

#[test]
fn solves_that_differ_in_scale_are_judged_each_by_its_own() {
    let n = 50;
    let systems =
        Systems::new(&[matrix::<f64>(&pattern(n, 3, 1), 1.2, 2)], random_vector::<f64>(n, 7));
    // Squares of values of these sizes overflow or underflow; the sums of products do not.
    let scales = [1.0, 1e-180, 1e180, 1e-250, 1e250];
    let b: Vec<Vec<f64>> =
        scales.iter().map(|scale| systems.b.iter().map(|b| b * scale).collect()).collect();

    let found = together(&Emulator::new(Order::Forward), &systems, &b, &options());

    for (outcome, scale) in found.outcomes.iter().zip(scales) {
        let first = &found.outcomes[0];
        assert_eq!(outcome.status, Status::Converged, "{scale:e}: {outcome:?}");
        let close = (outcome.rhs_norm / scale - first.rhs_norm).abs() <= 1e-13 * first.rhs_norm;
        assert!(close, "{scale:e}: {outcome:?}");
        assert!(outcome.residual_norm <= 1e-13 * outcome.rhs_norm, "{scale:e}: {outcome:?}");
    }
}

#[test]
fn right_hand_sides_of_an_item_and_items_of_one_matrix() {
    let (n, items, nrhs) = (20, 37, 3);
    let a: Csr<f64> = matrix(&pattern(n, 4, 2), 1.2, 9);
    let systems = Systems::new(&vec![a.clone(); items], random_vector(n * items * nrhs, 5));
    let options = options().nrhs(nrhs);
    check(&systems, 5, &options, 4);
    let executor = Emulator::new(Order::Forward);
    let each = together(&executor, &systems, std::slice::from_ref(&systems.b), &options);

    let mut plan = GpuLu::<_, f64>::new(&executor, systems.pattern(), items, &options).unwrap();
    plan.factor(&executor.upload(a.values()).unwrap()).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let mut x = executor.upload(&vec![7.0; n * items * nrhs]).unwrap();
    plan.set_active(11).unwrap();
    plan.substitute(&b, &mut x).unwrap();
    plan.verify(&[(&b, &x)]).unwrap();

    // Active systems are solved, no others.
    let active = 11 * nrhs;
    let x = executor.download(&x).unwrap();
    assert_eq!(x[..active * n], each.x[0][..active * n]);
    assert!(x[active * n..].iter().all(|&x| x == 7.0));
    let verified = plan.verified().unwrap();
    assert_eq!(verified.len(), items * nrhs);
    for (found, wanted) in verified[..active].iter().zip(&each.outcomes) {
        assert_eq!(format!("{found:?}"), format!("{wanted:?}"));
    }
    assert!(verified[active..].iter().all(|outcome| outcome.rhs_norm == 0.0));
}

#[test]
fn what_is_asked_for_in_the_wrong_order_is_refused() {
    let executor = Emulator::new(Order::Forward);
    let n = 5;
    let systems = Systems::new(&[matrix::<f64>(&pattern(n, 2, 1), 1.2, 2)], vec![1.0; n]);
    let mut plan = GpuLu::<_, f64>::new(&executor, systems.pattern(), 1, &options()).unwrap();
    let values = executor.upload(systems.values()).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let mut x = executor.upload(&[7.0; 5]).unwrap();
    let option = |result: Result<(), GpuSolveError>| match result {
        Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name, .. })) => name,
        other => panic!("{other:?}"),
    };

    assert_eq!(option(plan.substitute(&b, &mut x)), "factors");
    assert_eq!(option(plan.verify(&[(&b, &x)])), "factors");
    assert!(plan.verified().unwrap().is_empty() && plan.verified_on_device().is_none());
    plan.factor(&values).unwrap();
    assert_eq!(option(plan.verify(&[(&b, &x)])), "solves");
    plan.substitute(&b, &mut x).unwrap();
    assert_eq!(option(plan.verify(&[])), "solves");
    assert_eq!(option(plan.verify(&[(&b, &x); 9])), "solves");
    let short = executor.upload(&[1.0; 4]).unwrap();
    assert!(matches!(
        plan.substitute(&short, &mut x),
        Err(GpuSolveError::Argument(ArgumentError::Length { .. }))
    ));
    assert!(matches!(
        plan.verify(&[(&b, &short)]),
        Err(GpuSolveError::Argument(ArgumentError::Length { .. }))
    ));
    plan.verify(&[(&b, &x), (&b, &x)]).unwrap();
    let both = plan.verified().unwrap();
    assert_eq!(both.len(), 2);
    assert_eq!(format!("{:?}", both[0]), format!("{:?}", both[1]));
    plan.verify(&[(&b, &x)]).unwrap();
    assert_eq!(plan.verified().unwrap().len(), 1);
}

#[test]
fn a_chain_of_which_eight_vectors_exceed_a_block_is_refused() {
    let executor = Emulator::new(Order::Forward);
    let n = 4_000;
    let (row_ptr, col_idx) = ((0..=n as i32).collect(), (0..n as i32).collect());
    let chain = CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap();
    let mut plan = GpuLu::<_, f64>::new(&executor, chain.view(), 1, &options()).unwrap();
    plan.factor(&executor.upload(&vec![2.0; n]).unwrap()).unwrap();
    let b = executor.upload(&vec![1.0; n]).unwrap();
    let mut x = executor.upload(&vec![7.0; n]).unwrap();

    let refused = plan.substitute(&b, &mut x);

    assert!(matches!(refused, Err(GpuSolveError::Unsupported { .. })), "{refused:?}");
    plan.solve_again(&b, Guess::Zero, &mut x).unwrap();
    assert_eq!(executor.download(&x).unwrap(), vec![0.5; n]);
}
