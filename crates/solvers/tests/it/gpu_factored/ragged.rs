//! Systems of several patterns in one plan: each as by the plan for its pattern alone.

use kernel_emu::{Emulator, Order as Threads};
use proptest::prelude::*;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::RaggedCsr;
use sparsebatch_solvers::gpu::{FactoredTuning, GpuSolveError, GpuSolver, Guess, RaggedFactored};
use sparsebatch_solvers::{
    Method, PrecondPrecision, Preconditioner, SolveOptions, SolveScalar, Status,
};
use sparsebatch_testing::random_vector;

use super::independence::{batch, flaw};
use super::support::{PRECONDITIONERS, SHAPES, by_factors, matrix, pattern, tuning};
use crate::backends::common::chain;
use crate::common::{METHODS, Solved, Systems, one_step, options};
use crate::gpu_lu_columns::solve_by;

/// Solves all as one batch, without and with kept factors, and gives each its part.
fn solve_all<T: Value>(
    executor: &Emulator,
    all: &[Systems<T>],
    options: &SolveOptions,
    tuning: &FactoredTuning,
) -> Vec<Solved<T>> {
    solve_by(executor, all, |ragged| {
        RaggedFactored::<_, T>::new(executor, ragged, options, tuning).unwrap()
    })
}

fn check<T: SolveScalar>(
    all: &[Systems<T>],
    options: &SolveOptions,
    tuning: &FactoredTuning,
    seed: u64,
) -> Result<(), TestCaseError> {
    let together = solve_all(&Emulator::new(Threads::Random(seed)), all, options, tuning);
    for (number, (systems, part)) in all.iter().zip(&together).enumerate() {
        let alone = by_factors(&Emulator::new(Threads::Forward), systems, options, tuning);
        for item in 0..systems.batch.nitems() {
            let what = format!("{} {options:?} {tuning:?} seed {seed}: {number}, {item}", T::CPP);
            prop_assert_eq!(part.bits(item), alone.bits(item), "{}", what);
        }
    }
    Ok(())
}

/// Rows of the systems of a pattern, and most entries beside the diagonal in a row.
const SIZES: [(usize, usize); 4] = [(9, 2), (70, 3), (31, 1), (150, 2)];

fn choices() -> impl Strategy<Value = (SolveOptions, FactoredTuning)> {
    let methods = prop::sample::select(METHODS.to_vec());
    let preconditioners = prop::sample::select(PRECONDITIONERS.to_vec());
    let shapes = prop::sample::select(SHAPES.to_vec());
    (methods, preconditioners, shapes).prop_map(|(method, preconditioner, shape)| {
        let options = one_step().method(method).preconditioner(preconditioner).max_iters(60);
        (options, tuning(shape))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn other_patterns_change_no_bit_in_f64(
        flaws in prop::collection::vec(prop::collection::vec(flaw(), 1..4), SIZES.len()),
        (options, tuning) in choices(),
        seed in 0u64..1000,
    ) {
        let each = SIZES.iter().zip(&flaws).zip(seed..);
        let all: Vec<Systems<f64>> =
            each.map(|((&(n, most), flaws), seed)| batch(n, most, flaws, seed)).collect();
        check(&all, &options, &tuning, seed)?;
    }
}

/// In f32, and with factors in f32 within f64.
#[test]
fn other_patterns_change_no_bit_in_other_precisions() {
    for (number, method) in (0u64..).zip(METHODS) {
        for (turn, preconditioner) in (0..).zip(PRECONDITIONERS) {
            let options = one_step().method(method).preconditioner(preconditioner).max_iters(60);
            let seed = 3 * number + turn;
            let of = |&(n, most): &(usize, usize)| {
                let pattern = pattern(n, most, true, seed);
                let one = |k| matrix(&pattern, 1.1, true, seed + k);
                (one(1), one(2))
            };
            let singles: Vec<Systems<f32>> = SIZES
                .iter()
                .map(|size| {
                    let (first, second) = of(size);
                    let b = random_vector(2 * size.0, seed);
                    let convert = super::support::convert::<f32>;
                    Systems::new(&[convert(&first), convert(&second)], b)
                })
                .collect();
            for shape in &SHAPES[..3] {
                check(&singles, &options, &tuning(*shape), seed).unwrap();
            }
            let doubles: Vec<Systems<f64>> = SIZES
                .iter()
                .map(|size| Systems::new(&[of(size).0], random_vector(size.0, seed)))
                .collect();
            let mixed = options.clone().precond_precision(PrecondPrecision::Single);
            check(&doubles, &mixed, &tuning(SHAPES[0]), seed).unwrap();
        }
    }
}

/// Chains of different lengths, all converging.
fn chains(lengths: impl IntoIterator<Item = usize>) -> RaggedCsr<f64> {
    let mut all = RaggedCsr::new();
    lengths.into_iter().for_each(|n| all.push(chain::<f64>(n, 2.5).view()));
    all
}

#[test]
fn patterns_of_about_one_size_are_one_launch() {
    let executor = Emulator::new(Threads::Forward);
    let all = chains((40..80).chain([200]));
    let options = options(Method::Cg, Preconditioner::ILU0);
    let tuning = FactoredTuning::default();
    let plan = RaggedFactored::<_, f64>::new(&executor, &all, &options, &tuning).unwrap();
    let report = plan.explain();
    assert!(report.launches.len() <= 5, "{}", report.launches.len());
    assert_eq!(report.launches.iter().map(|launch| launch.patterns).sum::<usize>(), 41);
    assert_eq!(report.launches.iter().map(|launch| launch.systems).sum::<usize>(), 41);
    assert_eq!(report.launches.iter().map(|launch| launch.nrows).max(), Some(200));
    assert!(report.launches[0].kernel.starts_with("factored_ragged<double, "));
}

#[test]
fn several_right_hand_sides_are_those_of_solves_one_by_one() {
    let all = chains([5, 40, 1, 0, 17]);
    let (nrhs, rows) = (3, 63);
    let b = random_vector::<f64>(rows * nrhs, 5);
    let options = options(Method::BiCgStab, Preconditioner::BLOCK_JACOBI);
    let tuning = FactoredTuning::default();
    let solve = |nrhs: usize, b: &[f64]| {
        let executor = Emulator::new(Threads::Random(3));
        let options = options.clone().nrhs(nrhs);
        let mut plan = RaggedFactored::<_, f64>::new(&executor, &all, &options, &tuning).unwrap();
        let values = executor.upload(all.values()).unwrap();
        let on_b = executor.upload(b).unwrap();
        let mut x = executor.upload(&vec![0.0; b.len()]).unwrap();
        plan.factor(&values).unwrap();
        plan.solve_again(&values, &on_b, Guess::Zero, &mut x).unwrap();
        (executor.download(&x).unwrap(), plan.outcomes().unwrap())
    };
    let (together, outcomes) = solve(nrhs, &b);
    assert!(outcomes.iter().all(|outcome| outcome.status == Status::Converged));
    for rhs in 0..nrhs {
        let place = |item: usize| {
            let (first, end) = (all.row_offsets()[item], all.row_offsets()[item + 1]);
            let begin = first * nrhs + rhs * (end - first);
            begin..begin + end - first
        };
        let own: Vec<f64> = (0..all.nitems()).flat_map(|item| b[place(item)].to_vec()).collect();
        let (x, of_rhs) = solve(1, &own);
        let expected: Vec<f64> =
            (0..all.nitems()).flat_map(|item| together[place(item)].to_vec()).collect();
        assert_eq!(x, expected);
        let of_all: Vec<_> = outcomes.iter().skip(rhs).step_by(nrhs).cloned().collect();
        assert_eq!(of_rhs, of_all);
    }
}

/// Factors of other values precondition.
#[test]
fn kept_factors_precondition_values_that_changed() {
    let executor = Emulator::new(Threads::Forward);
    let all = chains([30, 12, 44]);
    let options = options(Method::Cg, Preconditioner::IC0);
    let tuning = FactoredTuning::default();
    let mut plan = RaggedFactored::<_, f64>::new(&executor, &all, &options, &tuning).unwrap();
    assert!(plan.keeps_factors() && plan.solves_near());
    let then = executor.upload(all.values()).unwrap();
    let now: Vec<f64> = all.values().iter().map(|&v| if v > 0.0 { v + 0.05 } else { v }).collect();
    let now = executor.upload(&now).unwrap();
    let b = executor.upload(&random_vector::<f64>(86, 4)).unwrap();
    let mut x = executor.upload(&[0.0; 86]).unwrap();
    plan.factor(&then).unwrap();
    plan.solve_again(&now, &b, Guess::Zero, &mut x).unwrap();
    // IC(0) of a chain is complete: only old factors need more than one iteration.
    for outcome in plan.outcomes().unwrap() {
        assert_eq!(outcome.status, Status::Converged);
        assert!((2..12).contains(&outcome.iterations), "{outcome:?}");
    }
    plan.forget_factors();
    assert_eq!(plan.explain().kept_bytes, 0);
    assert!(matches!(
        plan.solve_again(&now, &b, Guess::Zero, &mut x),
        Err(GpuSolveError::Argument(_))
    ));
}

#[test]
fn refused_arguments() {
    let executor = Emulator::new(Threads::Forward);
    let all = chains([4, 6]);
    let tuning = FactoredTuning::default();
    let new = |options: &SolveOptions, tuning: &FactoredTuning| {
        RaggedFactored::<_, f64>::new(&executor, &all, options, tuning)
    };
    let good = options(Method::Cg, Preconditioner::ILU0);
    for other in [
        good.clone().method(Method::Lu),
        options(Method::Cg, Preconditioner::Jacobi),
        good.clone().history(true),
    ] {
        assert!(
            matches!(new(&other, &tuning), Err(GpuSolveError::Unsupported { .. })),
            "{other:?}"
        );
    }
    assert!(matches!(new(&good.clone().nrhs(0), &tuning), Err(GpuSolveError::Argument(_))));
    assert!(matches!(
        new(&good, &tuning.max_bytes(Some(100))),
        Err(GpuSolveError::Gpu(GpuError::OutOfMemory { .. }))
    ));

    let mut plan = new(&good, &tuning).unwrap();
    let values = executor.upload(all.values()).unwrap();
    let (short, b) = (executor.upload(&[1.0; 9]).unwrap(), executor.upload(&[1.0; 10]).unwrap());
    let mut x = executor.upload(&[0.5; 10]).unwrap();
    let mut little = executor.upload(&[0.5; 9]).unwrap();
    assert!(plan.solve(&short, &b, Guess::Zero, &mut x).is_err());
    assert!(plan.solve(&values, &short, Guess::Zero, &mut x).is_err());
    assert!(plan.solve(&values, &b, Guess::Zero, &mut little).is_err());
    assert!(plan.factor(&short).is_err());
    assert_eq!(executor.download(&x).unwrap(), [0.5; 10]);
    plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
    assert!(plan.outcomes().unwrap().iter().all(|outcome| outcome.status == Status::Converged));
}

/// The choice for a whole batch: one plan with few launches, for data of any shape.
#[test]
fn batches_of_all_different_patterns_have_one_plan() {
    use sparsebatch_solvers::gpu::{SolverTuning, solver_for_ragged};
    use sparsebatch_solvers::{Scheme, solve_on_executor};

    let executor = Emulator::new(Threads::Forward);
    let all = chains(20..44);
    let scheme = Scheme::BiCgStab(Preconditioner::ILU0);
    let options = options(Method::BiCgStab, Preconditioner::ILU0);
    let tuning = SolverTuning::default();
    let plan = solver_for_ragged::<_, f64>(&executor, scheme, &all, &options, &tuning).unwrap();
    assert!(plan.explain().launches.len() <= 3);

    let rows = all.row_offsets()[all.nitems()];
    let b = random_vector::<f64>(rows, 8);
    let backend = crate::backends::common::gpu(&executor);
    let batch = sparsebatch_formats::Batch::Ragged(all);
    executor.forget_launched();
    let solution = solve_on_executor(&backend, &batch, &b, None, &options).unwrap();
    assert!(solution.report.all_converged());
    let launched = executor.launched();
    let of_factors: Vec<_> = launched.iter().filter(|name| name.contains(": factored")).collect();
    assert!(!of_factors.is_empty() && of_factors.len() <= 3, "{of_factors:?}");
    assert!(of_factors.iter().all(|name| name.contains(": factored_ragged<")), "{of_factors:?}");
}
