//! Systems that did not converge, on the device: the better of guess and x, as on the CPU.

use std::ops::Range;

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Batch, Pattern, Scalar};
use sparsebatch_solve_core::verdict::System;
use sparsebatch_solve_core::{ArgumentError, residual_magnitude};
use sparsebatch_solvers::gpu::{
    Confirmer, FailedSystem, FusedSolver, GpuSolveError, GpuSolver, GpuTuning, Guess, Settled,
    Span, SpanList,
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

/// Right-hand sides a system has.
const NRHS: usize = 2;

/// Systems with guesses and solutions on the host, and where each has its rows.
struct Vectors<T> {
    b: Vec<T>,
    guesses: Vec<T>,
    x: Vec<T>,
    ranges: Vec<Range<usize>>,
}

impl<T: SolveScalar> Vectors<T> {
    fn of(batch: &Batch<T>) -> Self {
        let (mut guesses, mut x, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        for system in 0..batch.nitems() * NRHS {
            let nrows = batch.pattern(system / NRHS).nrows();
            let near = random_vector::<T>(nrows, system as u64 + 9);
            let [guess, own] = Kind::of(system).vectors(&near);
            ranges.push(x.len()..x.len() + nrows);
            guesses.extend(guess);
            x.extend(own);
        }
        Self { b: random_vector(batch.vector_len(NRHS).unwrap(), 5), guesses, x, ranges }
    }
}

fn bits<T: Scalar>(x: &[T]) -> Vec<u64> {
    x.iter().map(|x| x.to_f64().to_bits()).collect()
}

fn close(one: f64, other: f64, tolerance: f64) -> bool {
    (one - other).abs() <= tolerance * other || (one.is_nan() && other.is_nan())
}

fn check<T: SolveScalar>(batch: &Batch<T>, from_zero: bool, drops: bool) {
    let options = SolveOptions::new()
        .method(Method::BiCgStab)
        .preconditioner(Preconditioner::None)
        .max_iters(0)
        .max_restarts(0)
        .nrhs(NRHS);
    let executor = Emulator::new(Order::Forward);
    let all = Vectors::of(batch);
    let values = executor.upload(&values_of(batch)).unwrap();
    let on_b = executor.upload(&all.b).unwrap();
    let mut solver = failed(&executor, batch, &options, (&values, &on_b), all.b.len());
    let before = solver.outcomes().unwrap();
    // The last system of each three is not asked for.
    let asked: Vec<usize> = (0..all.ranges.len()).filter(|system| system % 3 != 2).collect();
    assert!(asked.iter().all(|&system| before[system].status != Status::Converged));
    let listed: Vec<FailedSystem> =
        asked.iter().map(|&system| FailedSystem { system, drops_lost_guess: drops }).collect();
    let confirmer = Confirmer::for_batch(&executor, batch, &options).unwrap();
    let mut on_guesses = executor.upload(&all.guesses).unwrap();
    let mut on_x = executor.upload(&all.x).unwrap();

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
    for (system, rows) in all.ranges.iter().cloned().enumerate() {
        let what = format!("{} {system}: {:?}", T::NAME, Kind::of(system));
        let Ok(place) = asked.binary_search(&system) else {
            assert_eq!(bits(&found[rows.clone()]), bits(&all.x[rows]), "{what}");
            assert_eq!(after[system], before[system], "{what}");
            continue;
        };
        let mut guess = all.guesses[rows.clone()].to_vec();
        if drops {
            guess.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = T::ZERO);
        }
        let guess = (!from_zero).then_some(&guess[..]);
        let own = (&before[system], &after[system], settled[place]);
        is_that_of_the_cpu(&what, batch, &options, (system, guess, &all), (own, &found[rows]));
    }
}

/// Compares what was found of a system with the CPU's: the outcomes before and after, and x.
fn is_that_of_the_cpu<T: SolveScalar>(
    what: &str,
    batch: &Batch<T>,
    options: &SolveOptions,
    (system, guess, all): (usize, Option<&[T]>, &Vectors<T>),
    ((before, after, settled), x): ((&Outcome, &Outcome, Settled), &[T]),
) {
    let (item, rows) = (system / NRHS, all.ranges[system].clone());
    let criteria = options.criteria::<T>(all.ranges.len()).unwrap();
    let mut copy = Vec::new();
    let values = batch.values_in(item, &mut copy);
    let (pattern, b) = (batch.pattern(item), &all.b[rows.clone()]);
    let (mut expected_x, mut expected) = (all.x[rows].to_vec(), before.clone());
    System::new(system, pattern, values, b, &criteria).confirm(
        guess,
        &mut expected_x,
        &mut expected,
    );
    assert_eq!(bits(x), bits(&expected_x), "{what}");
    let found = after.residual_norm;
    // In f32 the CPU evaluates plainly what fails clearly.
    let tolerance = if size_of::<T>() == 8 { 1e-12 } else { 1e-5 };
    assert!(close(found, expected.residual_norm, tolerance), "{what}: {found}, {expected:?}");
    assert_eq!(settled.residual_norm.to_bits(), found.to_bits(), "{what}");
    let norm = values.iter().map(|v| v.to_f64() * v.to_f64()).sum::<f64>().sqrt();
    assert!(close(settled.matrix_norm, norm, 1e-12), "{what}");
    if found.is_finite() {
        let size = residual_magnitude(pattern, values, &expected_x, b).unwrap();
        assert!(close(settled.magnitude, size, 1e-12), "{what}");
    }
    let counts = |outcome: &Outcome| (outcome.status, outcome.iterations, outcome.restarts);
    assert_eq!(counts(after), counts(before), "{what}");
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
fn systems_and_guesses_that_do_not_fit_are_refused() {
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
    assert_eq!(executor.download(&x).unwrap(), [7.0; 6]);
    let failed = Outcome { status: Status::Stagnated, ..solver.outcomes().unwrap()[0].clone() };
    for systems in [&[2][..], &[1, 0], &[0]] {
        let outcomes = vec![failed.clone(); 2];
        let refused = solver.outcome_arrays_mut().overwrite(&executor, systems, &outcomes);
        assert!(matches!(refused, Err(GpuSolveError::Argument(_))), "{systems:?}: {refused:?}");
    }
    let before = solver.outcomes().unwrap();
    solver.outcome_arrays_mut().overwrite(&executor, &[1], std::slice::from_ref(&failed)).unwrap();
    assert_eq!(solver.outcomes().unwrap(), [before[0].clone(), failed]);
}

#[test]
fn spans_that_do_not_fit_are_refused_and_others_copied() {
    let executor = Emulator::new(Order::Forward);
    let b = executor.upload(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let mut x = executor.upload(&[7.0; 6]).unwrap();
    let span = |from: Range<usize>, to| Span { from, to };
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
    assert_eq!(executor.download(&x).unwrap(), [7.0; 6]);
    let list = SpanList::new(&executor, &[span(2..2, 0), span(1..3, 1), span(0..2, 4)]).unwrap();
    list.copy(&b, &mut x).unwrap();
    assert_eq!(executor.download(&x).unwrap(), [7.0, 2.0, 3.0, 7.0, 1.0, 2.0]);
}
