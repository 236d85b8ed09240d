//! Solves with kept factors: every bit is that of a solve that factorises, whatever the systems,
//! their neighbours, right-hand sides, guesses and threads.

use proptest::prelude::*;
use sparsebatch_cpu_ref::lanes::{LaneOptions, LanePlan};
use sparsebatch_cpu_ref::{CpuError, Isa};
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_solve_core::{Criteria, PerSystem, Scheme};
use sparsebatch_solvers::{
    BatchReport, BatchSolver, Method, Preconditioner, Rung, RungRun, SolveError, SolveOptions,
    SolveScalar, Status,
};
use sparsebatch_testing::random_vector;

use crate::solves::support::{
    Bits, Kind, cast, dense, engines, iterative, matrix, options, pattern, ragged, tridiagonal,
    uniform,
};

fn lu() -> SolveOptions {
    options(Method::Lu, Preconditioner::Auto)
}

/// Everything that a solve reports except times.
type Found = (Vec<(Bits, Rung)>, Vec<RungRun>);

fn found<T: SolveScalar>(batch: &Batch<T>, nrhs: usize, report: BatchReport, x: &[T]) -> Found {
    let mut rest = x;
    let systems = report.systems.iter().enumerate().map(|(s, system)| {
        let (x, after) = rest.split_at(batch.pattern(s / nrhs).nrows());
        rest = after;
        (Bits::new(&system.outcome, x), system.rung)
    });
    (systems.collect(), report.runs)
}

/// Solves a batch as a whole and with kept factors, and compares; `solver` is reused as well.
fn compare<T: SolveScalar>(
    solver: &mut BatchSolver<T>,
    batch: &Batch<T>,
    b: &[T],
    x0: &[T],
    nrhs: usize,
) -> Found {
    let (mut whole, mut again) = (x0.to_vec(), x0.to_vec());
    let report = solver.solve(batch, b, &mut whole).unwrap();
    let whole = found(batch, nrhs, report, &whole);

    let report = solver.solve_again(b, &mut again).unwrap();
    let again = found(batch, nrhs, report, &again);

    for (s, (again, whole)) in again.0.iter().zip(&whole.0).enumerate() {
        assert_eq!(again, whole, "system {s}");
    }
    assert_eq!(again.1, whole.1);
    again
}

/// Matrices of every kind on two patterns, with right-hand sides and guesses of every kind.
fn systems<T: SolveScalar>(nrows: usize, nrhs: usize, seed: u64) -> (Vec<Csr<T>>, Vec<T>, Vec<T>) {
    let patterns = [pattern(nrows, seed), pattern(nrows / 2 + 1, seed ^ 1)];
    let (mut matrices, mut b, mut x0) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..4 * Kind::ALL.len() as u64 {
        let kind = Kind::ALL[i as usize % Kind::ALL.len()];
        let pattern = &patterns[(i / 3 % 2) as usize];
        let a: Csr<T> = matrix(pattern, kind, seed.wrapping_add(i)).cast();
        for rhs in 0..nrhs as u64 {
            let seed = seed.wrapping_mul(97) ^ (i << 8) ^ rhs;
            let mut this: Vec<f64> = random_vector(a.nrows(), seed);
            match (seed ^ i) % 7 {
                0 => this.fill(0.0),
                1 => this.iter_mut().for_each(|b| *b *= 1e-30),
                2 => this.iter_mut().for_each(|b| *b *= 1e250),
                3 => this[0] = if rhs == 0 { f64::NAN } else { f64::INFINITY },
                _ => {}
            }
            let mut guess: Vec<f64> = random_vector(a.nrows(), seed ^ 5);
            match (seed >> 1) % 5 {
                0 => {}
                1 => guess[0] = f64::NAN,
                _ => guess.fill(0.0),
            }
            b.extend(cast::<T>(&this));
            x0.extend(cast::<T>(&guess));
        }
        matrices.push(a);
    }
    (matrices, b, x0)
}

fn check<T: SolveScalar>(nrows: usize, nrhs: usize, seed: u64, fallback: bool) {
    let (matrices, b, x0) = systems::<T>(nrows, nrhs, seed);
    let batch = ragged(&matrices);
    let limits = (0..matrices.len() * nrhs).map(|s| [40, 1, 0, 40][(s + seed as usize) % 4]);
    let mut options = lu().nrhs(nrhs).fallback(fallback).history(true);
    options.floor = seed.is_multiple_of(2).then_some(4.0);
    options.rel_tol = seed.is_multiple_of(3).then_some(1e-15.into());
    options.max_iters = (limits.collect::<Vec<_>>()).into();
    let mut solver = BatchSolver::new(&batch, &options).unwrap();
    solver.factor(&batch).unwrap();
    assert!(solver.keeps_factors());
    let first = compare(&mut solver, &batch, &b, &x0, nrhs);
    let second = compare(&mut solver, &batch, &b, &x0, nrhs);
    assert!(first == second, "a solve leaves something behind");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn kept_factors_change_no_bit(
        nrows in 1usize..20,
        nrhs in 1usize..4,
        seed in any::<u64>(),
        fallback in any::<bool>(),
    ) {
        check::<f64>(nrows, nrhs, seed, fallback);
        check::<f32>(nrows, nrhs, seed, fallback);
    }

    #[test]
    fn layouts_of_values_do_not_matter(nrows in 1usize..14, seed in any::<u64>()) {
        let pattern = pattern(nrows, seed);
        let matrices: Vec<Csr<f64>> =
            (0..11).map(|i| matrix(&pattern, Kind::ALL[i % 9], seed ^ i as u64)).collect();
        let item_major = uniform(&matrices);
        let shared = UniformBatch::shared(matrices[1].clone(), 11);
        let batches = [item_major.clone(), item_major.to_interleaved(), shared].map(Batch::from);
        let b: Vec<f64> = random_vector(11 * nrows, seed);
        let found = batches.map(|batch| {
            let mut solver = BatchSolver::new(&batch, &lu()).unwrap();
            solver.factor(&batch).unwrap();
            compare(&mut solver, &batch, &b, &vec![0.0; b.len()], 1)
        });
        assert!(found[0] == found[1]);
    }
}

#[test]
fn statuses_are_those_of_a_solve_and_neighbours_are_spared() {
    let nan = f64::NAN;
    let good: Csr<f64> = dense(&[&[4.0, 1.0], &[2.0, 3.0]]);
    let with = |values: [f64; 4]| {
        let (row_ptr, col_idx) = (good.row_ptr().to_vec(), good.col_idx().to_vec());
        Csr::try_new(2, 2, row_ptr, col_idx, values.to_vec()).unwrap()
    };
    let singular = with([1.0, 1.0, 1.0, 1.0]);
    let swap = with([0.0, 2.0, 4.0, 0.0]);
    let lost = with([nan, 1.0, 2.0, 3.0]);
    let matrices = [
        good.clone(),
        singular.clone(),
        lost.clone(),
        lost.clone(),
        good.clone(),
        swap.clone(),
        good.clone(),
        singular,
        good.clone(),
    ];
    let mut b = [3.0, -1.0].repeat(9);
    b[6..8].fill(0.0);
    b[8..10].fill(0.0);
    (b[12], b[13]) = (1.0, f64::INFINITY);
    b[14..16].fill(1.0);
    for fallback in [false, true] {
        let batch = Batch::from(uniform(&matrices));
        let options = lu().fallback(fallback);
        let mut solver = BatchSolver::new(&batch, &options).unwrap();
        solver.factor(&batch).unwrap();

        let (found, _) = compare(&mut solver, &batch, &b, &[0.0; 18], 1);

        let mut x = [7.0; 18];
        let report = solver.solve_again(&b, &mut x).unwrap();
        let statuses: Vec<Status> =
            report.systems.iter().map(|system| system.outcome.status).collect();
        use Status::{Converged, NonFinite, ZeroPivot};
        let no_pivot = if fallback { Status::Singular } else { ZeroPivot };
        // A permutation of rows solves systems that only lack a pivot; partial pivoting may solve
        // singular but consistent ones.
        let expected = [
            Converged, no_pivot, NonFinite, NonFinite, Converged, Converged, NonFinite, no_pivot,
            Converged,
        ];
        assert_eq!(statuses[..7], expected[..7]);
        assert!(fallback || statuses[7] == expected[7]);
        assert_eq!(statuses[8], expected[8]);
        assert_eq!(report.systems[5].rung, Rung::StaticPivotingLu);
        assert_eq!(x[8..10], [0.0; 2]);
        // 4 x + y = 3, 2 x + 3 y = -1
        for place in [0, 8] {
            let x = &x[2 * place..][..2];
            assert!((x[0] - 1.0).abs() <= 1e-14 && (x[1] + 1.0).abs() <= 1e-14, "{x:?}");
        }
        assert_eq!(found[0], found[8]);
    }
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let (matrices, b, x0) = systems::<f64>(11, 2, 8);
    let matrices: Vec<Csr<f64>> = matrices.iter().cycle().take(30 * 36).cloned().collect();
    let (b, x0) = (b.repeat(30), x0.repeat(30));
    let batch = ragged(&matrices);
    let options = lu().nrhs(2).fallback(true).max_iters(9);
    let by_threads = [1, 2, 5].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut solver = BatchSolver::new(&batch, &options).unwrap();
            solver.factor(&batch).unwrap();
            let mut x = x0.clone();
            let report = solver.solve_again(&b, &mut x).unwrap();
            found(&batch, 2, report, &x).0
        })
    });

    assert!(by_threads[0] == by_threads[1]);
    assert!(by_threads[0] == by_threads[2]);
    assert!(by_threads[0][..72] == by_threads[0][72..144], "a system depends on its place");
}

#[test]
fn new_values_count_once_they_are_factorised() {
    let a = tridiagonal(5, -1.0, 4.0, -1.5);
    let scaled = |factor: f64| {
        let values = a.values().iter().map(|v| v * factor).collect();
        Csr::try_new(5, 5, a.row_ptr().to_vec(), a.col_idx().to_vec(), values).unwrap()
    };
    let of = |factors: &[f64]| {
        let matrices: Vec<_> = factors.iter().map(|&factor| scaled(factor)).collect();
        Batch::from(uniform(&matrices))
    };
    // Groups of 8 or of 4 lanes: some of them change, some do not.
    let mut factors = [1.0; 19];
    let first = of(&factors);
    (factors[3], factors[17]) = (2.0, 0.25);
    let second = of(&factors);
    let b: Vec<f64> = random_vector(95, 4);
    let mut solver = BatchSolver::new(&first, &lu()).unwrap();
    let mut solved = |batch: Option<&Batch<f64>>| {
        if let Some(batch) = batch {
            solver.factor(batch).unwrap();
        }
        let mut x = vec![0.0; 95];
        assert!(solver.solve_again(&b, &mut x).unwrap().all_converged());
        x
    };

    let one = solved(Some(&first));
    let two = solved(Some(&second));
    let same = solved(None);
    let back = solved(Some(&first));

    assert_eq!((&two, &one), (&same, &back));
    for (item, factor) in factors.into_iter().enumerate() {
        for row in item * 5..item * 5 + 5 {
            assert_eq!(two[row] * factor, one[row], "item {item}");
        }
    }
    // A solve of other matrices does not change the kept ones.
    let mut x = vec![0.0; 95];
    solver.solve(&second, &b, &mut x).unwrap();
    assert_eq!(x, two);
    let mut x = vec![0.0; 95];
    solver.solve_again(&b, &mut x).unwrap();
    assert_eq!(x, one);
}

#[test]
fn methods_without_factors_solve_a_copy() {
    let (matrices, b, x0) = systems::<f64>(7, 1, 3);
    let other = ragged(&matrices.iter().map(|_| matrices[0].clone()).collect::<Vec<_>>());
    let batch = ragged(&matrices);
    for engine in engines() {
        for (method, preconditioner) in iterative() {
            let mut options = options(method, preconditioner);
            (options.engine, options.max_iters, options.fallback) =
                (engine.clone(), 20.into(), true);
            let mut solver = BatchSolver::new(&batch, &options).unwrap();
            assert!(!solver.keeps_factors());
            // Factors kept before make no difference.
            solver.factor(&other).unwrap();
            solver.factor(&batch).unwrap();
            compare(&mut solver, &batch, &b, &x0, 1);
        }
    }
}

#[test]
fn no_matrices_and_wrong_ones_are_errors() {
    let (one, other) = (tridiagonal(3, -1.0, 4.0, -1.0), tridiagonal(3, 2.0, 5.0, 1.0));
    let batch = Batch::from(uniform(&[one.clone(), other]));
    let full: Csr<f64> = dense(&[&[1.0; 3], &[2.0; 3], &[3.0; 3]]);
    let full = Batch::from(uniform(&[full.clone(), full]));
    let mut solver = BatchSolver::new(&batch, &lu()).unwrap();
    let mut x = [0.0; 6];
    let none = "no matrices are kept to solve with: expected a call of factor before solve_again";

    let error = solver.solve_again(&[1.0; 6], &mut x).unwrap_err();
    assert!(matches!(error, SolveError::NotFactored));
    assert_eq!(error.to_string(), none);

    solver.factor(&batch).unwrap();
    let short = solver.solve_again(&[1.0; 5], &mut x).unwrap_err();
    assert_eq!(short.to_string(), "b has 5 entries, expected 6");
    let short = solver.solve_again(&[1.0; 6], &mut x[..4]).unwrap_err();
    assert_eq!(short.to_string(), "x0 has 4 entries, expected 6");
    assert_eq!(x, [0.0; 6]);

    // After a refused batch nothing is kept.
    let error = solver.factor(&full).unwrap_err();
    assert!(matches!(error, SolveError::Cpu(CpuError::OtherPattern { .. })));
    assert!(matches!(solver.solve_again(&[1.0; 6], &mut x), Err(SolveError::NotFactored)));
    solver.factor(&batch).unwrap();
    let error = solver.factor(&Batch::from(one)).unwrap_err();
    assert_eq!(error.to_string(), "items of the batch has 1 entries, expected 2");
    assert!(matches!(solver.solve_again(&[1.0; 6], &mut x), Err(SolveError::NotFactored)));
    solver.factor(&batch).unwrap();
    assert!(solver.solve_again(&[1.0; 6], &mut x).unwrap().all_converged());
}

fn criteria() -> Criteria {
    Criteria {
        rel_tol: PerSystem::All(1e-12),
        abs_tol: PerSystem::All(0.0),
        max_iters: PerSystem::All(30),
        max_restarts: 3,
        floor: Some(1.0),
        history: true,
        watch: None,
    }
}

#[test]
fn neither_lanes_nor_instruction_sets_change_a_bit() {
    let (matrices, b, x0) = systems::<f64>(13, 2, 77);
    let batch = ragged(&matrices);
    for isa in Isa::available() {
        for lanes in [None, Some(1), Some(4), Some(8), Some(16)] {
            let options = LaneOptions { isa: Some(isa), lanes };
            let mut plan = LanePlan::new(&batch, Scheme::Lu, options, None).unwrap();
            let (mut whole, mut again) = (x0.clone(), x0.clone());
            let outcomes = plan.solve(&batch, 2, &b, &mut whole, &criteria(), None).unwrap();
            plan.factor(&batch).unwrap();
            let kept = plan.solve_again(2, &b, &mut again, &criteria()).unwrap();

            assert_eq!(bits(&again), bits(&whole), "{isa:?} {lanes:?}");
            let all = |outcomes: &[sparsebatch_solvers::Outcome]| -> Vec<Bits> {
                outcomes.iter().map(|outcome| Bits::new::<f64>(outcome, &[])).collect()
            };
            assert_eq!(all(&kept), all(&outcomes), "{isa:?} {lanes:?}");
        }
    }
}

/// The bits of values; all NaN are equal.
fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }).collect()
}

#[test]
fn a_plan_names_what_it_cannot_keep() {
    let batch = Batch::from(tridiagonal(3, -1.0, 4.0, -1.0));
    let with = |method| LanePlan::new(&batch, method, LaneOptions::default(), None).unwrap();
    let mut cg = with(Scheme::Cg(Preconditioner::None));
    let mut plan = with(Scheme::Lu);
    let mut x = [0.0; 3];

    let not_lu = cg.factor(&batch).unwrap_err();
    let nothing = plan.solve_again(1, &[1.0; 3], &mut x, &criteria()).unwrap_err();
    plan.factor(&batch).unwrap();
    let single = plan.solve_again(1, &[1.0f32; 3], &mut [0.0; 3], &criteria()).unwrap_err();
    let short = plan.solve_again(2, &[1.0; 3], &mut x, &criteria()).unwrap_err();

    assert_eq!(
        not_lu.to_string(),
        "method is Cg(None), expected the sparse or the banded LU, whose factors can be kept"
    );
    for error in [nothing, single] {
        let expected = "plan is none kept, expected one that keeps factors in the precision of b";
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(short.to_string(), "b has 3 entries, expected 6");
    let (kept, rows) = plan.kept_item::<f64>(0).unwrap();
    assert_eq!((kept.values(), rows), (tridiagonal(3, -1.0, 4.0, -1.0).values(), 0..3));
    assert!(plan.kept_item::<f32>(0).is_none() && plan.kept_item::<f64>(1).is_none());
}
