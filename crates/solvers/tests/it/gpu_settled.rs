//! Systems that did not converge, on the device: the better of guess and x, as on the CPU.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Batch, Pattern, Scalar};
use sparsebatch_solve_core::verdict::System;
use sparsebatch_solve_core::{ArgumentError, residual_magnitude};
use sparsebatch_solvers::gpu::{
    Confirmer, FailedSystem, FusedSolver, GpuSolveError, GpuSolver, GpuTuning, Guess, Span,
    SpanList,
};
use sparsebatch_solvers::{Method, Outcome, Preconditioner, SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::backends::common::{dense, patterns, ragged};
use crate::backends::device::{uniform, values_of};

/// How a system's guess and x lie to its solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    XIsBetter,
    GuessIsBetter,
    /// By less than counts.
    HardlyBetter,
    XIsLost,
    GuessIsLost,
    BothAreLost,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::XIsBetter,
        Self::GuessIsBetter,
        Self::HardlyBetter,
        Self::XIsLost,
        Self::GuessIsLost,
        Self::BothAreLost,
    ];

    fn of(system: usize) -> Self {
        Self::ALL[system % Self::ALL.len()]
    }

    /// Guess and x, given the numbers of a near one.
    fn vectors<T: Scalar>(self, near: &[T]) -> [Vec<T>; 2] {
        let far: Vec<T> = near.iter().map(|x| T::from_f64(x.to_f64() + 40.0)).collect();
        let other: Vec<T> = far.iter().map(|x| T::from_f64(x.to_f64() * (1.0 - 1e-6))).collect();
        let mut lost = far.clone();
        lost[0] = T::from_f64(f64::INFINITY);
        let mut lost_near = near.to_vec();
        lost_near[near.len() - 1] = T::from_f64(f64::NAN);
        match self {
            Self::XIsBetter => [far, near.to_vec()],
            Self::GuessIsBetter => [near.to_vec(), far],
            Self::HardlyBetter => [far, other],
            Self::XIsLost => [far, lost],
            Self::GuessIsLost => [lost, near.to_vec()],
            Self::BothAreLost => [lost_near, lost],
        }
    }
}

/// Outcomes of systems that have failed, on the device.
fn failed<T: Value>(
    executor: &Emulator,
    batch: &Batch<T>,
    options: &SolveOptions,
    (values, b): (&<Emulator as Executor>::Buffer<T>, &<Emulator as Executor>::Buffer<T>),
    rows: usize,
) -> FusedSolver<Emulator, T> {
    let tuning = GpuTuning::default();
    let mut solver = match batch {
        Batch::Uniform(uniform) => {
            let (pattern, nitems) = (uniform.pattern().view(), uniform.nitems());
            FusedSolver::with_tuning(executor, pattern, nitems, options, &tuning).unwrap()
        }
        Batch::Ragged(ragged) => FusedSolver::ragged(executor, ragged, options, &tuning).unwrap(),
    };
    let mut x = executor.alloc(rows).unwrap();
    solver.solve(values, b, Guess::Zero, &mut x).unwrap();
    solver
}

fn check<T: SolveScalar>(batch: &Batch<T>, from_zero: bool, drops: bool) {
    let nrhs = 2;
    let options = SolveOptions::new()
        .method(Method::BiCgStab)
        .preconditioner(Preconditioner::None)
        .max_iters(0)
        .max_restarts(0)
        .nrhs(nrhs);
    let executor = Emulator::new(Order::Forward);
    let b = random_vector::<T>(batch.vector_len(nrhs).unwrap(), 5);
    let values = executor.upload(&values_of(batch)).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut solver = failed(&executor, batch, &options, (&values, &on_b), b.len());
    let before = solver.outcomes().unwrap();
    let (mut guesses, mut x, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
    for system in 0..batch.nitems() * nrhs {
        let nrows = batch.pattern(system / nrhs).nrows();
        let near = random_vector::<T>(nrows, system as u64 + 9);
        let [guess, own] = Kind::of(system).vectors(&near);
        ranges.push(x.len()..x.len() + nrows);
        guesses.extend(guess);
        x.extend(own);
    }
    // The last system of each three is not asked for.
    let asked: Vec<usize> = (0..ranges.len()).filter(|system| system % 3 != 2).collect();
    assert!(asked.iter().all(|&system| before[system].status != Status::Converged));
    let listed: Vec<FailedSystem> =
        asked.iter().map(|&system| FailedSystem { system, drops_lost_guess: drops }).collect();
    let confirmer = Confirmer::for_batch(&executor, batch, &options).unwrap();
    let mut on_guesses = executor.upload(&guesses).unwrap();
    let mut on_x = executor.upload(&x).unwrap();

    let settled = confirmer
        .settle(
            solver.outcome_arrays_mut(),
            &listed,
            (&values, &on_b),
            (!from_zero).then_some(&mut on_guesses),
            &mut on_x,
        )
        .unwrap();

    let after = solver.outcomes().unwrap();
    let found = executor.download(&on_x).unwrap();
    let criteria = options.criteria::<T>(ranges.len()).unwrap();
    let close = |one: f64, other: f64| {
        (one - other).abs() <= 1e-12 * other || (one.is_nan() && other.is_nan())
    };
    let bits = |x: &[T]| x.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<u64>>();
    let mut copy = Vec::new();
    for (system, rows) in ranges.into_iter().enumerate() {
        let what = format!("{} {system}: {:?}", T::NAME, Kind::of(system));
        let Ok(place) = asked.binary_search(&system) else {
            assert_eq!(bits(&found[rows.clone()]), bits(&x[rows]), "{what}");
            assert_eq!(after[system], before[system], "{what}");
            continue;
        };
        let own_values = batch.values_in(system / nrhs, &mut copy);
        let pattern = batch.pattern(system / nrhs);
        let own_b = &b[rows.clone()];
        let on_cpu = System::new(system, pattern, own_values, own_b, &criteria);
        let mut guess = guesses[rows.clone()].to_vec();
        if drops {
            guess.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = T::ZERO);
        }
        let (mut expected_x, mut expected) = (x[rows.clone()].to_vec(), before[system].clone());
        on_cpu.confirm((!from_zero).then_some(&guess), &mut expected_x, &mut expected);
        assert_eq!(bits(&found[rows]), bits(&expected_x), "{what}");
        let Outcome { residual_norm, .. } = after[system];
        // In f32 the CPU evaluates plainly what fails clearly.
        let tolerance = if size_of::<T>() == 8 { 1e-12 } else { 1e-5 };
        let apart = (residual_norm - expected.residual_norm).abs();
        let alike = apart <= tolerance * residual_norm
            || (residual_norm.is_nan() && expected.residual_norm.is_nan());
        assert!(alike, "{what}: {residual_norm}, {}", expected.residual_norm);
        assert_eq!(settled[place].residual_norm.to_bits(), residual_norm.to_bits(), "{what}");
        let norm: f64 = own_values.iter().map(|v| v.to_f64() * v.to_f64()).sum::<f64>().sqrt();
        assert!(close(settled[place].matrix_norm, norm), "{what}");
        if residual_norm.is_finite() {
            let size = residual_magnitude(pattern, own_values, &expected_x, own_b).unwrap();
            assert!(close(settled[place].magnitude, size), "{what}");
        }
        let Outcome { status, iterations, .. } = before[system];
        assert_eq!((after[system].status, after[system].iterations), (status, iterations));
    }
}

#[test]
fn the_better_of_guess_and_x_is_that_of_the_cpu() {
    let wide = uniform(&(0..9).map(|item| dense::<f64>(7, 9.0 + item as f64)).collect::<Vec<_>>());
    let narrow =
        uniform(&(0..9).map(|item| dense::<f32>(6, 8.0 + item as f64)).collect::<Vec<_>>());
    for from_zero in [false, true] {
        for drops in [false, true] {
            check(&wide, from_zero, drops);
            check(&narrow, from_zero, drops);
            check(&ragged(patterns::<f64>(9)), from_zero, drops);
        }
    }
}

#[test]
fn systems_guesses_and_spans_that_do_not_fit_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let batch = uniform(&[dense::<f64>(3, 5.0), dense(3, 6.0)]);
    let options = SolveOptions::new().method(Method::BiCgStab).preconditioner(Preconditioner::None);
    let (values, b) = (executor.upload(&values_of(&batch)), executor.upload(&[1.0; 6]));
    let (values, b) = (values.unwrap(), b.unwrap());
    let mut solver = failed(&executor, &batch, &options, (&values, &b), 6);
    let confirmer = Confirmer::for_batch(&executor, &batch, &options).unwrap();
    let listed = |systems: &[usize]| -> Vec<FailedSystem> {
        systems.iter().map(|&system| FailedSystem { system, drops_lost_guess: false }).collect()
    };
    let mut x = executor.upload(&[7.0; 6]).unwrap();
    let mut short = executor.upload(&[0.0; 5]).unwrap();
    for (systems, with_short, name) in
        [(&[2][..], false, "systems"), (&[1, 1], false, "systems"), (&[0], true, "guesses")]
    {
        let outcomes = solver.outcome_arrays_mut();
        let guesses = with_short.then_some(&mut short);
        let refused = confirmer.settle(outcomes, &listed(systems), (&values, &b), guesses, &mut x);
        match refused {
            Err(GpuSolveError::Argument(
                ArgumentError::OutOfRange { name: found, .. }
                | ArgumentError::Length { what: found, .. },
            )) => assert_eq!(found, name),
            other => panic!("{other:?}"),
        }
    }
    let span = |from: std::ops::Range<usize>, to| Span { from, to };
    for (spans, expected) in [
        (vec![span(4..7, 0)], "from"),
        (vec![span(0..3, 4)], "to"),
        (vec![span(0..3, 0), span(3..4, 2)], "spans"),
    ] {
        let list = SpanList::new(&executor, &spans);
        match list.and_then(|list| list.copy(&b, &mut x)) {
            Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name, .. })) => {
                assert_eq!(name, expected);
            }
            other => panic!("{other:?}"),
        }
    }
    let failed = Outcome { status: Status::Stagnated, ..solver.outcomes().unwrap()[0].clone() };
    for systems in [&[2][..], &[1, 0], &[0]] {
        let outcomes = vec![failed.clone(); 2];
        let refused = solver.outcome_arrays_mut().overwrite(&executor, systems, &outcomes);
        assert!(matches!(refused, Err(GpuSolveError::Argument(_))), "{systems:?}: {refused:?}");
    }
    assert_eq!(executor.download(&x).unwrap(), [7.0; 6]);
    let list = SpanList::new(&executor, &[span(2..2, 0), span(1..3, 1), span(0..2, 4)]).unwrap();
    list.copy(&b, &mut x).unwrap();
    assert_eq!(executor.download(&x).unwrap(), [7.0, 1.0, 1.0, 7.0, 1.0, 1.0]);
    let before = solver.outcomes().unwrap();
    solver.outcome_arrays_mut().overwrite(&executor, &[1], &[failed.clone()]).unwrap();
    assert_eq!(solver.outcomes().unwrap(), [before[0].clone(), failed]);
}
