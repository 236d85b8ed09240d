//! Batches that stay on the device: the same verdicts, bits and reports as from the host.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError, KernelBuffer};
use sparsebatch_formats::{Batch, BatchValues, Csr, Layout, UniformBatch};
use sparsebatch_solvers::gpu::Guess;
use sparsebatch_solvers::{
    Backend, BatchReport, BatchSolver, DeviceData, DeviceSolver, Gpu, LuForm, Method,
    Preconditioner, Rung, SolveError, SolveOptions, SolveScalar, Status, SystemReport, Watch,
};

use crate::backends::common::{chain, dense, patterns, ragged, rhs};
use crate::common::cases;

/// A uniform batch of some matrices of one pattern.
pub(crate) fn uniform<T: SolveScalar>(matrices: &[Csr<T>]) -> Batch<T> {
    let values = matrices.iter().flat_map(|matrix| matrix.values().to_vec()).collect();
    let pattern = matrices[0].pattern().clone();
    let batch = UniformBatch::try_new(pattern, matrices.len(), BatchValues::ItemMajor(values));
    Batch::Uniform(batch.unwrap())
}

pub(crate) fn values_of<T: SolveScalar>(batch: &Batch<T>) -> Vec<T> {
    let mut copy = Vec::new();
    (0..batch.nitems()).flat_map(|item| batch.values_in(item, &mut copy).to_vec()).collect()
}

/// Solves on the device; returns solutions, the report, and statuses and residuals as they lie there.
pub(super) fn on_device<T: SolveScalar>(
    batch: &Batch<T>,
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> (Vec<T>, BatchReport, Vec<u8>, Vec<f64>) {
    let executor = Emulator::new(Order::Forward);
    let mut solver = DeviceSolver::new(&executor, batch, options).unwrap();
    let values = executor.upload(&values_of(batch)).unwrap();
    let b = executor.upload(b).unwrap();
    let mut x = match x0 {
        Some(x0) => executor.upload(x0).unwrap(),
        None => executor.upload(&vec![T::from_f64(7.0); b.len()]).unwrap(),
    };
    let guess = if x0.is_some() { Guess::InX } else { Guess::Zero };
    let report = solver.solve(&values, &b, guess, &mut x).unwrap();
    let outcomes = solver.device_outcomes();
    let statuses = executor.download(outcomes.statuses).unwrap();
    let residuals = executor.download(outcomes.residual_norms).unwrap();
    (executor.download(&x).unwrap(), report.into_report(), statuses, residuals)
}

pub(super) fn from_host<T: SolveScalar>(
    batch: &Batch<T>,
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> (Vec<T>, BatchReport) {
    let backend = Backend::Gpu(Gpu::new(Emulator::new(Order::Forward)).or_cpu(true));
    let mut solver = BatchSolver::on_executor(&backend, batch, None, options).unwrap();
    let mut x = x0.map_or_else(|| vec![T::ZERO; b.len()], <[T]>::to_vec);
    let report = solver.solve(batch, b, &mut x).unwrap();
    (x, report)
}

/// Status, rung, singular flag and bits of x of every system agree; what lies on the device is what
/// the report says.
pub(super) fn agree<T: SolveScalar>(
    batch: &Batch<T>,
    x0: bool,
    options: &SolveOptions,
) -> BatchReport {
    let b = rhs(batch, options.nrhs);
    let guesses: Option<Vec<T>> =
        x0.then(|| b.iter().map(|&b| T::from_f64(0.3) - b).collect::<Vec<T>>());
    let (host_x, host) = from_host(batch, &b, guesses.as_deref(), options);

    let (x, report, statuses, residuals) = on_device(batch, &b, guesses.as_deref(), options);

    assert_eq!(report.scheme, host.scheme);
    for (system, (found, expected)) in report.systems.iter().zip(&host.systems).enumerate() {
        let what = format!("{system}: {found:?}, {expected:?} {x0} {options:?}");
        assert_eq!(found.outcome.status, expected.outcome.status, "{what}");
        assert_eq!(found.rung, expected.rung, "{system}");
        assert_eq!(found.singular, expected.singular, "{system}");
        assert_eq!(found.outcome.iterations, expected.outcome.iterations, "{system}");
        assert_eq!(statuses[system], found.outcome.status as u8, "{system}");
        let residual = found.outcome.residual_norm;
        assert!(residuals[system] == residual || residual.is_nan(), "{system}");
    }
    let bits = |x: &[T]| x.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<u64>>();
    assert_eq!(bits(&x), bits(&host_x));
    report
}

/// Systems ended alike on the device and on the host. Both evaluate residuals, with sums in another
/// order.
pub(super) fn assert_same(found: &[SystemReport], expected: &[SystemReport]) {
    assert_within(1e-12, found, expected);
}

fn assert_within(tolerance: f64, found: &[SystemReport], expected: &[SystemReport]) {
    assert_eq!(found.len(), expected.len());
    for (system, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (mut found, norm) = (found.clone(), expected.outcome.residual_norm);
        let apart = (found.outcome.residual_norm - norm).abs();
        if apart <= tolerance * (norm + 1e-3 * found.outcome.rhs_norm) {
            found.outcome.residual_norm = norm;
        }
        // NaN is not equal to itself, but prints alike.
        assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{system}");
    }
}

pub(super) fn methods() -> [SolveOptions; 7] {
    let of =
        |method, preconditioner| SolveOptions::new().method(method).preconditioner(preconditioner);
    [
        SolveOptions::new(),
        of(Method::Cg, Preconditioner::Jacobi),
        of(Method::BiCgStab, Preconditioner::None),
        of(Method::BiCgStab, Preconditioner::ILU0),
        of(Method::Lu, Preconditioner::Auto),
        of(Method::Lu, Preconditioner::Auto).lu_form(LuForm::BySystem),
        of(Method::PivotingLu, Preconditioner::Auto),
    ]
}

#[test]
fn the_device_says_what_the_host_says() {
    let chains: Vec<Csr<f64>> = (0..17).map(|item| chain(9, 2.3 + 0.1 * item as f64)).collect();
    let batch = uniform(&chains);
    let narrow =
        uniform(&(0..5).map(|item| chain::<f32>(8, 2.5 + item as f64)).collect::<Vec<_>>());
    for options in methods() {
        for nrhs in [1, 3] {
            for x0 in [false, true] {
                let report = agree(&batch, x0, &options.clone().nrhs(nrhs));
                assert!(report.all_converged());
                assert!(agree(&narrow, x0, &options.clone().nrhs(nrhs)).all_converged());
            }
        }
    }
}

#[test]
fn items_of_other_schemes_are_solved_by_their_own() {
    let batch = two_schemes();
    let report = agree(&batch, false, &SolveOptions::new().max_iters(60));
    agree(&batch, true, &SolveOptions::new().max_iters(60));
    let systems: usize = report.schemes.iter().map(|scheme| scheme.systems).sum();
    assert_eq!(systems, 9);
}

#[test]
fn what_fails_climbs_the_ladder_and_the_device_learns_of_it() {
    // Well-conditioned, singular without a solution, not finite, permuted (no pivots on the
    // diagonal).
    let mut matrices: Vec<Csr<f64>> = (0..8).map(|item| dense(5, 6.0 + item as f64)).collect();
    matrices[1].values_mut().fill(1.0);
    matrices[3].values_mut()[7] = f64::NAN;
    let swapped: Vec<f64> = (0..25)
        .map(|k| {
            if (k / 5 + 1) % 5 == k % 5 {
                4.0
            } else if k / 5 == k % 5 {
                0.0
            } else {
                0.5
            }
        })
        .collect();
    matrices[6].values_mut().copy_from_slice(&swapped);
    let batch = uniform(&matrices);
    for options in methods() {
        for options in [options.clone(), options.max_iters(3).fallback(false)] {
            for x0 in [false, true] {
                let report = agree(&batch, x0, &options);
                assert_eq!(report.systems[3].outcome.status, Status::NonFinite);
                assert_ne!(report.systems[1].outcome.status, Status::Converged);
                // Static pivoting is part of the LU; the CPU takes what elimination leaves.
                let climbs = options.fallback || report.scheme.is_direct();
                assert_eq!(report.runs.len() > 1, climbs);
                if options.fallback {
                    assert_eq!(report.systems[6].outcome.status, Status::Converged);
                    let by_lu = options.method == Method::Lu;
                    assert!(!by_lu || report.systems[6].rung == Rung::StaticPivotingLu);
                }
            }
        }
    }
}

/// Matrices of one pattern: symmetric ones for CG, unsymmetric ones for BiCGStab.
fn two_schemes() -> Batch<f64> {
    let mut matrices: Vec<Csr<f64>> = (0..9).map(|item| dense(6, 9.0 + item as f64)).collect();
    for item in [2, 5] {
        matrices[item].values_mut()[1] = 0.25;
    }
    uniform(&matrices)
}

#[test]
fn limits_of_the_systems_go_with_them_to_every_rung() {
    let batch =
        uniform(&(0..4).map(|item| chain::<f64>(40, 2.0 + 0.01 * item as f64)).collect::<Vec<_>>());
    let cg = SolveOptions::new().method(Method::Cg).preconditioner(Preconditioner::None);
    // The first ones solve, or fail on purpose; the others climb with limits of their own.
    agree(&batch, false, &cg.clone().max_iters(vec![1000, 2, 1000, 3]));
    agree(&batch, false, &cg.rel_tol(vec![1e-2, 1e-10, 1e-3, 1e-12]).max_iters(vec![90, 4, 90, 5]));
    let executor = Emulator::new(Order::Forward);
    let options = |limits: Vec<u32>| {
        let cg = SolveOptions::new().method(Method::Cg).preconditioner(Preconditioner::None);
        cg.max_iters(limits)
    };
    // One solver, solves in which other systems fail.
    let b = rhs(&batch, 1);
    let mut solver: DeviceSolver<_, f64> =
        DeviceSolver::new(&executor, &batch, &options(vec![1000, 2, 1000, 3])).unwrap();
    let values = executor.upload(&values_of(&batch)).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    for limits in [vec![1000, 2, 1000, 3], vec![3, 1000, 2, 1000], vec![1000, 2, 1000, 3]] {
        solver.replace_limits(&options(limits.clone())).unwrap();
        let report = solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
        let (expected, host) = from_host(&batch, &b, None, &options(limits));
        assert_same(&report.systems, &host.systems);
        assert_eq!(executor.download(&x).unwrap(), expected);
    }
}

#[test]
fn replaced_limits_reach_other_schemes_and_rungs() {
    let executor = Emulator::new(Order::Forward);
    let batch = two_schemes();
    let b = rhs(&batch, 1);
    let values = executor.upload(&values_of(&batch)).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    for fallback in [false, true] {
        let options = SolveOptions::new().fallback(fallback);
        let first = options.clone().rel_tol(1e-2).max_iters(2);
        let mut solver: DeviceSolver<_, f64> =
            DeviceSolver::new(&executor, &batch, &first).unwrap();
        for options in [&first, &options, &first] {
            solver.replace_limits(options).unwrap();
            let report = solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
            let (expected, host) = from_host(&batch, &b, None, options);
            assert_same(&report.systems, &host.systems);
            assert_eq!(executor.download(&x).unwrap(), expected);
        }
    }
}

#[test]
fn a_watch_counts_and_stops_solves_on_the_device() {
    let executor = Emulator::new(Order::Forward);
    let batch = two_schemes();
    let watch = Watch::new();
    let options = SolveOptions::new().watch(watch.clone());
    let b = rhs(&batch, 2);
    let mut solver: DeviceSolver<_, f64> =
        DeviceSolver::new(&executor, &batch, &options.nrhs(2)).unwrap();
    let values = executor.upload(&values_of(&batch)).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    for _ in 0..2 {
        assert!(solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap().all_converged());
        assert_eq!((watch.progress().ended, watch.progress().systems), (18, 18));

        watch.stop();
        let error = solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap_err();
        assert!(matches!(error, SolveError::Stopped { ended: 0, systems: 18 }), "{error}");
        assert!(!watch.is_stopped());
    }
}

#[test]
fn a_watch_counts_the_systems_of_rungs_on_the_device() {
    let batch = uniform(&(0..7).map(|item| dense(6, 9.0 + item as f64)).collect::<Vec<_>>());
    let b = rhs(&batch, 1);
    let run = |watch: &Watch| {
        let executor = Emulator::new(Order::Forward);
        let options = SolveOptions::new().method(Method::Cg).max_iters(vec![9, 1, 9, 1, 1, 9, 9]);
        let mut solver: DeviceSolver<_, f64> =
            DeviceSolver::new(&executor, &batch, &options.watch(watch.clone())).unwrap();
        let values = executor.upload(&values_of(&batch)).unwrap();
        let on_b = executor.upload(&b).unwrap();
        let mut x = executor.alloc(b.len()).unwrap();
        solver.solve(&values, &on_b, Guess::Zero, &mut x)
    };
    let watch = Watch::new();
    let report = run(&watch).unwrap();
    assert!(report.all_converged());
    let last = report.runs.last().unwrap().systems;
    assert!(report.runs.len() > 1 && last < 7);
    assert_eq!((watch.progress().ended, watch.progress().systems), (last, last));
}

#[test]
fn a_failed_lu_forgets_a_guess_that_is_not_finite() {
    let mut matrices: Vec<Csr<f64>> = (0..3).map(|item| dense(4, 6.0 + item as f64)).collect();
    matrices[0].values_mut().fill(0.0);
    let batch = uniform(&matrices);
    let b = rhs(&batch, 1);
    let mut guesses = vec![0.5; b.len()];
    (guesses[1], guesses[6]) = (f64::NAN, f64::NAN);
    let options = SolveOptions::new().method(Method::Lu).fallback(false);
    let (host_x, host) = from_host(&batch, &b, Some(&guesses), &options);
    let (x, report, ..) = on_device(&batch, &b, Some(&guesses), &options);
    assert_same(&report.systems, &host.systems);
    assert_eq!(x, host_x);
    assert!(x.iter().all(|x| x.is_finite()));
}

#[test]
fn guesses_that_are_not_finite_count_as_zero_to_factorisations_alone() {
    let batch = uniform(&(0..6).map(|item| dense::<f64>(5, 7.0 + item as f64)).collect::<Vec<_>>());
    let b = rhs(&batch, 2);
    let mut guesses: Vec<f64> = b.iter().map(|b| 0.3 - b).collect();
    (guesses[3], guesses[27]) = (f64::NAN, f64::INFINITY);
    for options in methods() {
        let options = options.nrhs(2).fallback(false);
        let (host_x, host) = from_host(&batch, &b, Some(&guesses), &options);
        let (x, report, ..) = on_device(&batch, &b, Some(&guesses), &options);
        for (found, expected) in report.systems.iter().zip(&host.systems) {
            assert_eq!(found.outcome.status, expected.outcome.status);
        }
        let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
        assert_eq!(bits(&x), bits(&host_x));
        assert_eq!(report.all_converged(), report.scheme.is_direct());
    }
}

#[test]
fn a_system_alone_has_the_bits_that_it_has_beside_failing_ones() {
    let healthy: Vec<Csr<f64>> = (0..6).map(|item| dense(7, 8.0 + item as f64)).collect();
    let mut poisoned = healthy.clone();
    poisoned[0].values_mut().fill(f64::INFINITY);
    poisoned[5].values_mut().fill(0.0);
    for options in methods() {
        let b = rhs(&uniform(&healthy), 1);
        let (x, ..) = on_device(&uniform(&healthy), &b, None, &options);
        let (other, ..) = on_device(&uniform(&poisoned), &b, None, &options);
        assert_eq!(x[7..35], other[7..35]);
    }
}

#[test]
fn solves_repeat_with_other_values_and_shared_ones() {
    let executor = Emulator::new(Order::Forward);
    let first = uniform(&(0..4).map(|item| chain(6, 2.5 + item as f64)).collect::<Vec<_>>());
    let second = uniform(&(0..4).map(|item| chain(6, 4.5 + item as f64)).collect::<Vec<_>>());
    let options = SolveOptions::new().method(Method::Cg);
    let mut solver: DeviceSolver<_, f64> = DeviceSolver::new(&executor, &first, &options).unwrap();
    let b = rhs(&first, 1);
    let on_b = executor.upload(&b).unwrap();
    for batch in [&first, &second, &first] {
        let values = executor.upload(&values_of(batch)).unwrap();
        let mut x = executor.alloc(b.len()).unwrap();
        solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
        assert_eq!(executor.download(&x).unwrap(), from_host(batch, &b, None, &options).0);
    }
    // The values of one item for all, one of whose right-hand sides is not finite.
    let one = chain::<f64>(6, 3.0);
    let shared = Batch::Uniform(UniformBatch::shared(one.clone(), 4));
    let mut b = b;
    b[8] = f64::NAN;
    let values = executor.upload(one.values()).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    let report = solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
    let (expected, host) = from_host(&shared, &b, None, &options);
    // NaN is not equal to itself, but prints alike.
    assert_eq!(format!("{:?}", report.systems), format!("{:?}", host.systems));
    assert_eq!(report.systems[1].outcome.status, Status::NonFinite);
    assert_eq!(executor.download(&x).unwrap()[..6], expected[..6]);

    let pattern = first_pattern(&first);
    let on_values = executor.upload(&values_of(&first)).unwrap();
    let mut again = DeviceSolver::with_values(
        &executor,
        (&pattern, 4),
        &on_values,
        &SolveOptions::new(),
        DeviceData::new(),
    )
    .unwrap();
    let on_b = executor.upload(&rhs(&first, 1)).unwrap();
    assert!(again.solve(&on_values, &on_b, Guess::Zero, &mut x).unwrap().all_converged());
}

fn first_pattern(batch: &Batch<f64>) -> sparsebatch_formats::CsrPattern {
    batch.pattern(0).to_pattern()
}

#[test]
fn limits_are_replaced_between_solves() {
    let executor = Emulator::new(Order::Forward);
    let batch =
        uniform(&(0..3).map(|item| chain::<f64>(30, 2.1 + item as f64)).collect::<Vec<_>>());
    let options = SolveOptions::new().method(Method::Cg).fallback(false);
    let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
    let b = rhs(&batch, 1);
    let values = executor.upload(&values_of(&batch)).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    let each = options.clone().rel_tol(vec![1e-2, 1e-10, 1e-4]).max_iters(vec![50, 2, 9]);
    let common = [options.clone().max_iters(2), options.clone().rel_tol(1e-2), options.clone()];
    for limited in [&common[..], &[each], &common[..]].concat() {
        solver.replace_limits(&limited).unwrap();
        let report = solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
        let (expected, host) = from_host(&batch, &b, None, &limited);
        assert_same(&report.systems, &host.systems);
        assert_eq!(executor.download(&x).unwrap(), expected);
    }
    let of_others = SolveOptions::new().rel_tol(vec![1e-3; 4]);
    let error = solver.replace_limits(&of_others).unwrap_err();
    assert!(error.to_string().contains("rel_tol has 4"), "{error}");
}

#[test]
fn bad_calls_are_refused_and_change_nothing() {
    let executor = Emulator::new(Order::Forward);
    let batch = uniform(&(0..3).map(|item| chain::<f64>(4, 3.0 + item as f64)).collect::<Vec<_>>());
    let options = SolveOptions::new();
    let refused = |error: SolveError, words: &str| {
        assert!(error.to_string().contains(words), "{error}");
    };
    let mixed = ragged::<f64>(patterns(4));
    for data in [
        DeviceData::new().values(Layout::Interleaved),
        DeviceData::new().vectors(Layout::Interleaved),
    ] {
        let error = DeviceSolver::with_data(&executor, &mixed, &options, data).err().unwrap();
        refused(error, "interleaved arrays of a ragged batch");
    }
    let tall = Csr::try_new(2, 1, vec![0, 1, 2], vec![0, 0], vec![1.0, 1.0]).unwrap();
    let with_tall = ragged([chain(3, 3.0), tall.clone()]);
    let error = DeviceSolver::new(&executor, &with_tall, &options).err().unwrap();
    refused(error, "system 1 is 2 x 1");
    let history = options.clone().history(true);
    refused(DeviceSolver::new(&executor, &batch, &history).err().unwrap(), "history");
    let tall = Batch::Uniform(UniformBatch::shared(tall, 2));
    refused(DeviceSolver::new(&executor, &tall, &options).err().unwrap(), "square");
    let short = executor.upload(&[1.0; 9]).unwrap();
    let pattern = first_pattern(&batch);
    let error =
        DeviceSolver::with_values(&executor, (&pattern, 3), &short, &options, DeviceData::new())
            .err()
            .unwrap();
    refused(error, "values has 9 entries, expected 30");

    let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
    let values = executor.upload(&values_of(&batch)).unwrap();
    let b = executor.upload(&[1.0; 12]).unwrap();
    let mut x = executor.upload(&[0.5; 12]).unwrap();
    refused(solver.finish(&values, &b, &mut x).unwrap_err(), "enqueued before");
    refused(solver.enqueue(&short, &b, Guess::Zero, &mut x).unwrap_err(), "values has 9");
    refused(solver.enqueue(&values, &short, Guess::InX, &mut x).unwrap_err(), "b has 9");
    let mut small = executor.upload(&[0.5; 7]).unwrap();
    refused(solver.enqueue(&values, &b, Guess::InX, &mut small).unwrap_err(), "x has 7");
    assert_eq!(executor.download(&x).unwrap(), [0.5; 12]);
    assert!(solver.solve(&values, &b, Guess::InX, &mut x).unwrap().all_converged());
}

#[test]
fn batches_of_nothing_end_at_once() {
    let executor = Emulator::new(Order::Forward);
    let none = Batch::Uniform(UniformBatch::shared(chain::<f64>(3, 3.0), 0));
    let mut solver = DeviceSolver::new(&executor, &none, &SolveOptions::new()).unwrap();
    let empty = executor.upload::<f64>(&[]).unwrap();
    let mut x = executor.upload::<f64>(&[]).unwrap();
    assert!(empty.is_empty());
    let report = solver.solve(&empty, &empty, Guess::Zero, &mut x).unwrap();
    assert!(report.systems.is_empty() && report.all_converged());
}

/// One solver meets other failing items at each solve, of other patterns and in other numbers: its
/// analyses of later rungs serve those of the same items alone.
#[test]
fn failing_items_change_between_solves() {
    let healthy: Vec<Csr<f64>> = patterns(10);
    // A zero pivot is mended by other rows; NaN fails on every rung.
    let sets: [&[(usize, f64)]; 6] = [
        &[(1, 0.0), (5, f64::NAN)],
        &[(1, 0.0)],
        &[(0, 0.0), (1, 0.0), (4, f64::NAN)],
        &[(4, 0.0)],
        &[(9, 0.0)],
        &[(4, 0.0), (9, 0.0)],
    ];
    let executor = Emulator::new(Order::Forward);
    let b = rhs(&ragged(healthy.clone()), 1);
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    let limits: Vec<u32> = (0..10).map(|item| if item % 5 == 1 { 3 } else { 900 }).collect();
    // With `auto` the scheme of an item is that of the values of the analysis.
    for options in methods().into_iter().filter(|options| options.method != Method::Auto) {
        for options in cases(&[options.clone(), options.max_iters(limits.clone())]) {
            let mut solver =
                DeviceSolver::new(&executor, &ragged(healthy.clone()), options).unwrap();
            for (flaws, repeats) in sets.iter().zip([2, 1, 1, 1, 1, 1]).chain([(&sets[0], 1)]) {
                let mut matrices = healthy.clone();
                flaws.iter().for_each(|&(item, value)| matrices[item].values_mut()[0] = value);
                let batch = ragged(matrices);
                let values = executor.upload(&values_of(&batch)).unwrap();
                let (expected, host) = from_host(&batch, &b, None, options);
                for _ in 0..repeats {
                    let report = solver.solve(&values, &on_b, Guess::Zero, &mut x);

                    let report = report.unwrap_or_else(|error| panic!("{flaws:?}: {error}"));
                    assert_same(&report.systems, &host.systems);
                    assert_eq!(executor.download(&x).unwrap(), expected, "{flaws:?}");
                }
            }
        }
    }
}

/// As above, with one pattern, whose rungs have plans for any items: some of their places are left
/// over, and hold what other items have left there.
#[test]
fn failing_items_of_one_pattern_change_between_solves() {
    failing_items_change::<f64>(1e-12);
    // The CPU evaluates plainly what clearly fails.
    failing_items_change::<f32>(1e-3);
}

fn failing_items_change<T: SolveScalar>(tolerance: f64) {
    let healthy: Vec<Csr<T>> = (0..11).map(|item| dense(6, 9.0 + item as f64)).collect();
    let sets: [&[(usize, f64)]; 7] = [
        &[(0, 0.0), (2, 0.0), (3, f64::NAN), (9, 0.0), (10, 0.0)],
        &[(1, 0.0)],
        &[(4, 0.0), (5, f64::NAN), (6, 0.0)],
        &[(1, 0.0), (8, 0.0)],
        &[(0, f64::INFINITY)],
        &[(2, 0.0), (7, 0.0), (8, 0.0)],
        &[],
    ];
    let executor = Emulator::new(Order::Forward);
    for options in methods() {
        for (nrhs, max_iters) in [(1, 3), (2, 900)] {
            let options = options.clone().nrhs(nrhs).max_iters(max_iters);
            let b = rhs(&uniform(&healthy), nrhs);
            let on_b = executor.upload(&b).unwrap();
            let mut x = executor.alloc(b.len()).unwrap();
            let mut solver = DeviceSolver::new(&executor, &uniform(&healthy), &options).unwrap();
            for flaws in sets {
                let mut matrices = healthy.clone();
                flaws
                    .iter()
                    .for_each(|&(item, value)| matrices[item].values_mut()[0] = T::from_f64(value));
                let batch = uniform(&matrices);
                let values = executor.upload(&values_of(&batch)).unwrap();
                let (expected, host) = from_host(&batch, &b, None, &options);

                let report = solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();

                assert_within(tolerance, &report.systems, &host.systems);
                assert_eq!(executor.download(&x).unwrap(), expected, "{flaws:?} {options:?}");
            }
        }
    }
}

/// Rungs for which the device has no memory go through the host.
#[test]
fn systems_climb_where_memory_is_short() {
    let batch = uniform(
        &(0..64).map(|item| chain::<f64>(40, 2.1 + 0.01 * item as f64)).collect::<Vec<_>>(),
    );
    let options = SolveOptions::new().method(Method::Cg).max_iters(2);
    let b = rhs(&batch, 1);
    let (expected, host) = from_host(&batch, &b, None, &options);
    let ended_alike = |report: &BatchReport| {
        for (found, expected) in report.systems.iter().zip(&host.systems) {
            let ended = |s: &SystemReport| (s.outcome.status, s.rung, s.outcome.iterations);
            assert_eq!(ended(found), ended(expected));
        }
    };
    let run = |executor: &Emulator| {
        let mut solver = DeviceSolver::new(executor, &batch, &options)?;
        let values = executor.upload(&values_of(&batch))?;
        let on_b = executor.upload(&b)?;
        let mut x = executor.alloc(b.len())?;
        let before = executor.bytes_in_use();
        let report = solver.solve(&values, &on_b, Guess::Zero, &mut x)?;
        Ok::<_, SolveError>((report.into_report(), executor.download(&x)?, before))
    };
    let roomy = Emulator::new(Order::Forward);
    let (report, x, before) = run(&roomy).unwrap();
    ended_alike(&report);
    assert_eq!((report.runs.len() > 1, x), (true, expected.clone()));
    // What goes through the host may be solved by the CPU.
    let is_near = |(x, expected): (&f64, &f64)| (x - expected).abs() <= 1e-8 * expected.abs();
    let most = roomy.most_bytes_in_use();
    // From what the solver and its arrays take up to what the climb takes.
    let (mut short, mut solved) = (0, 0);
    for part in 1..8 {
        match run(&Emulator::with_memory(before + (most - before) * part / 8)) {
            Ok((report, x, _)) => {
                assert!(report.all_converged());
                assert!(x.iter().zip(&expected).all(is_near), "{part}");
                solved += 1;
            }
            Err(SolveError::Gpu(GpuError::OutOfMemory { .. })) => short += 1,
            Err(error) => panic!("{part}: {error}"),
        }
    }
    assert!(solved >= 4, "{solved} solved, {short} without memory");
}

#[test]
fn a_report_answers_before_its_systems_are_listed() {
    let executor = Emulator::new(Order::Forward);
    let chains: Vec<Csr<f64>> = (0..6).map(|item| chain(9, 2.3 + 0.1 * item as f64)).collect();
    let batch = uniform(&chains);
    let b = rhs(&batch, 1);
    let mut solver = DeviceSolver::new(&executor, &batch, &SolveOptions::new()).unwrap();
    let values = values_of(&batch);
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.upload(&vec![0.0; b.len()]).unwrap();
    let mut solve = |values: &[f64]| {
        let values = executor.upload(values).unwrap();
        solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap()
    };

    let report = solve(&values);

    assert_eq!((report.nsystems(), report.converged()), (6, 6));
    assert!(report.all_converged() && (0..6).all(|s| report.status(s) == Status::Converged));
    // By each of the three ways to the list.
    let (_, host) = from_host(&batch, &b, None, &SolveOptions::new());
    let listed: BatchReport = report.clone().into_report();
    assert_same(&listed.systems, &host.systems);
    assert_eq!((report.systems.len(), report.scheme), (6, host.scheme));
    assert_eq!(BatchReport::from(report), listed);

    let mut poisoned = values;
    poisoned[0] = f64::NAN;
    let report = solve(&poisoned);
    assert_eq!((report.nsystems(), report.converged()), (6, 5));
    assert!(!report.all_converged() && report.status(0) == Status::NonFinite);
    assert_eq!(report.into_report().converged(), 5);
}
