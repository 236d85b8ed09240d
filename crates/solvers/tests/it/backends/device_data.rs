//! Arrays on the device in any layout, transposed systems and kept matrices: one body over layouts,
//! shared values, methods and right-hand sides.

use std::sync::Arc;

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, Csr, CsrPattern, Layout, Pattern, UniformBatch};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::{ArrayMove, GpuSolveError, Guess};
use sparsebatch_solvers::{
    AdjointSolver, Backend, BatchReport, BatchSolver, DeviceData, DeviceSolver, Gpu, Method,
    Preconditioner, SolveError, SolveOptions, Status,
};
use sparsebatch_testing::random_vector;

use crate::backends::common::rhs;
use crate::common::cases;

/// Unsymmetric matrices with a dominant diagonal, and a pattern that differs from its transpose.
fn matrices(items: usize) -> Vec<Csr<f64>> {
    let n = 9;
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for row in 0..n {
        let mut cols = vec![row, (row + 1) % n, (row * 2 + 3) % n];
        cols.sort_unstable();
        cols.dedup();
        col_idx.extend(cols.iter().map(|&col| col as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    let pattern = Arc::new(CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap());
    let one = |seed: usize| {
        let mut values = random_vector::<f64>(pattern.nnz(), seed as u64);
        for row in 0..n {
            let k = pattern.view().position(row, row).unwrap();
            values[k] += 4.0;
        }
        Csr::from_parts(Arc::clone(&pattern), values).unwrap()
    };
    (0..items).map(one).collect()
}

/// A batch with item-major values, or those of the first matrix for all items.
fn batch(matrices: &[Csr<f64>], is_shared: bool) -> Batch<f64> {
    let values = match is_shared {
        true => BatchValues::Shared(matrices[0].values().to_vec()),
        false => BatchValues::ItemMajor(
            matrices.iter().flat_map(|matrix| matrix.values().to_vec()).collect(),
        ),
    };
    let pattern = Arc::new(matrices[0].view().pattern().to_pattern());
    Batch::Uniform(UniformBatch::try_new(pattern, matrices.len(), values).unwrap())
}

/// An array of `items` items in a layout.
fn in_layout(array: &[f64], items: usize, layout: Layout) -> Vec<f64> {
    let len = array.len() / items;
    match layout {
        Layout::ItemMajor => array.to_vec(),
        Layout::Interleaved => {
            (0..array.len()).map(|at| array[at % items * len + at / items]).collect()
        }
    }
}

fn from_layout(array: &[f64], items: usize, layout: Layout) -> Vec<f64> {
    let len = array.len() / items;
    match layout {
        Layout::ItemMajor => array.to_vec(),
        Layout::Interleaved => {
            (0..array.len()).map(|at| array[at % len * items + at / len]).collect()
        }
    }
}

fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn statuses(report: &BatchReport) -> Vec<Status> {
    report.systems.iter().map(|system| system.outcome.status).collect()
}

fn methods() -> [SolveOptions; 6] {
    let of =
        |method, preconditioner| SolveOptions::new().method(method).preconditioner(preconditioner);
    [
        SolveOptions::new(),
        of(Method::BiCgStab, Preconditioner::Jacobi),
        of(Method::BiCgStab, Preconditioner::ILU0),
        of(Method::Lu, Preconditioner::Auto),
        of(Method::PivotingLu, Preconditioner::Auto),
        // Too few iterations: the ladder finishes.
        of(Method::BiCgStab, Preconditioner::None).max_iters(2),
    ]
}

/// A solve of data on the host, with the matrices or the transposed ones.
fn from_host(
    batch: &Batch<f64>,
    b: &[f64],
    is_transposed: bool,
    guess: Guess,
    x0: &[f64],
    options: &SolveOptions,
) -> (Vec<f64>, BatchReport) {
    let backend = Backend::Gpu(Gpu::new(Emulator::new(Order::Forward)).or_cpu(true));
    let mut x = match guess {
        Guess::InX => x0.to_vec(),
        Guess::Zero => vec![0.0; b.len()],
    };
    let report = match is_transposed {
        true => {
            let solver = AdjointSolver::on_executor(&backend, batch, None, options);
            solver.unwrap().solve(batch, b, &mut x).unwrap()
        }
        false => {
            let solver = BatchSolver::on_executor(&backend, batch, None, options);
            solver.unwrap().solve(batch, b, &mut x).unwrap()
        }
    };
    (x, report)
}

/// One case: what the device gives for its arrays is what the host gives, bit for bit.
fn agree(
    matrices: &[Csr<f64>],
    is_shared: bool,
    data: DeviceData,
    options: &SolveOptions,
    guess: Guess,
) {
    let what = format!("{data:?} shared {is_shared} {guess:?} {options:?}");
    let executor = Emulator::new(Order::Forward);
    let batch = batch(matrices, is_shared);
    let items = matrices.len();
    let b: Vec<f64> = rhs(&batch, options.nrhs);
    let x0: Vec<f64> = b.iter().map(|b| 0.3 - b).collect();
    let (host_x, host) = from_host(&batch, &b, data.transposed, guess, &x0, options);
    let Batch::Uniform(uniform) = &batch else { unreachable!() };
    let (BatchValues::ItemMajor(values) | BatchValues::Shared(values)) = uniform.values() else {
        unreachable!()
    };
    let layout = if is_shared { Layout::ItemMajor } else { data.values };
    let values_items = if is_shared { 1 } else { items };
    let values = executor.upload(&in_layout(values, values_items, layout)).unwrap();
    let on_b = executor.upload(&in_layout(&b, items, data.vectors)).unwrap();
    let start = || executor.upload(&in_layout(&x0, items, data.vectors)).unwrap();
    let mut solver = DeviceSolver::with_data(&executor, &batch, options, data).unwrap();

    let mut x = start();
    let report = solver.solve(&values, &on_b, guess, &mut x).unwrap();

    let found = from_layout(&executor.download(&x).unwrap(), items, data.vectors);
    assert_eq!(statuses(&report), statuses(&host), "{what}");
    assert_eq!(bits(&found), bits(&host_x), "{what}");

    // With kept matrices; those given before are overwritten meanwhile.
    let mut passing = executor.upload(&executor.download(&values).unwrap()).unwrap();
    solver.factor(&passing).unwrap();
    let gone = vec![f64::NAN; sparsebatch_cuda::KernelBuffer::len(&passing)];
    executor.copy_from_host(&gone, &mut passing).unwrap();
    for _ in 0..2 {
        let mut x = start();
        let report = solver.solve_again(&on_b, guess, &mut x).unwrap();
        assert_eq!(statuses(&report), statuses(&host), "{what}");
        let again = from_layout(&executor.download(&x).unwrap(), items, data.vectors);
        let apart = again.iter().zip(&host_x).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-8, "{what}: {apart:e}");
    }
    // The other side, by the same factors where the method has some that serve both.
    let (other_x, other) = from_host(&batch, &b, !data.transposed, guess, &x0, options);
    for _ in 0..2 {
        let mut x = start();
        let report = solver.solve_transposed_again(&on_b, guess, &mut x).unwrap();
        assert_eq!(statuses(&report), statuses(&other), "{what}");
        let found = from_layout(&executor.download(&x).unwrap(), items, data.vectors);
        let apart = found.iter().zip(&other_x).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-8, "{what}: {apart:e}");
    }
    // A solve with given matrices in between is as before.
    let mut x = start();
    solver.solve(&values, &on_b, guess, &mut x).unwrap();
    let once_more = from_layout(&executor.download(&x).unwrap(), items, data.vectors);
    assert_eq!(bits(&once_more), bits(&host_x), "{what}");
}

fn layouts() -> [DeviceData; 4] {
    use Layout::{Interleaved, ItemMajor};
    let data = |values, vectors| DeviceData::new().values(values).vectors(vectors);
    [
        data(ItemMajor, ItemMajor),
        data(Interleaved, ItemMajor),
        data(ItemMajor, Interleaved),
        data(Interleaved, Interleaved),
    ]
}

#[test]
fn layouts_methods_and_right_hand_sides_agree_with_the_host() {
    for (options, guess) in methods().iter().zip([Guess::Zero, Guess::InX].iter().cycle()) {
        for &data in cases(&layouts()) {
            for &nrhs in cases(&[1, 3]) {
                agree(&matrices(37), false, data, &options.clone().nrhs(nrhs), *guess);
            }
        }
    }
}

#[test]
fn transposed_systems_agree_with_the_host() {
    for (options, guess) in methods().iter().zip([Guess::InX, Guess::Zero].iter().cycle()) {
        for &data in cases(&layouts()) {
            let options = options.clone().nrhs(1 + data.values as usize);
            agree(&matrices(37), false, data.transposed(true), &options, *guess);
        }
    }
}

#[test]
fn shared_values_and_single_items_agree_with_the_host() {
    for options in methods() {
        for data in [layouts()[0], layouts()[3]] {
            for transposed in [false, true] {
                let data = data.transposed(transposed);
                agree(&matrices(5), true, data, &options.clone().nrhs(2), Guess::Zero);
                agree(&matrices(1), false, data, &options, Guess::InX);
            }
        }
    }
}

/// Diffusion on a square grid of 2,116 cells with decay, and wind along one axis.
fn grids(winds: &[f64], decay: f64) -> Vec<Csr<f64>> {
    let grid = Problem::new(Family::Lap2d, 2116).unwrap().batch(1).unwrap().batch.to_csr(0);
    let of = |&wind: &f64| {
        let mut grid = grid.clone();
        for row in 0..grid.nrows() {
            for k in grid.view().pattern().row(row) {
                let distance = grid.col_idx()[k] - row as i32;
                grid.values_mut()[k] = match distance {
                    0 => 4.2 + decay + wind,
                    -1 => -1.0 - wind,
                    _ => -1.0,
                };
            }
        }
        grid
    };
    winds.iter().map(of).collect()
}

/// `auto` takes the sparse LU by fronts for large grids where iterations would be many: on the
/// device as on the host, for kept matrices and transposed ones too.
#[test]
fn large_grids_are_eliminated_front_by_front() {
    let options = SolveOptions::new();
    let grids = grids(&[0.0, 0.0], 0.0);
    agree(&grids, false, layouts()[3], &options, Guess::Zero);
    let batch = batch(&grids, false);
    let (b, x0) = (rhs(&batch, 1), vec![0.0; 2 * 2116]);
    let (_, report) = from_host(&batch, &b, false, Guess::Zero, &x0, &options);
    assert!(report.all_converged());
    assert_eq!((report.scheme.name(), report.reason.as_str()), ("lu", QUICKER));
    assert!(report.kernel.contains("by fronts"), "{}", report.kernel);
}

const QUICKER: &str = "estimated to be quicker than iterations";

/// `auto` takes factors by two colours for large grids where iterations are few: one scheme on the
/// device as on the host, for kept matrices and transposed ones too.
#[test]
fn large_grids_are_solved_with_factors_by_colours() {
    let options = SolveOptions::new();
    for (winds, scheme) in [([0.5, 1.0], "bicgstab"), ([0.0, 0.0], "cg")] {
        let grids = grids(&winds, 4.0);
        agree(&grids, false, layouts()[3], &options, Guess::Zero);
        let batch = batch(&grids, false);
        let (b, x0) = (rhs(&batch, 1), vec![0.0; 2 * 2116]);

        let (_, report) = from_host(&batch, &b, false, Guess::Zero, &x0, &options);

        let jacobi = options.clone().preconditioner(Preconditioner::Jacobi);
        let (_, plain) = from_host(&batch, &b, false, Guess::Zero, &x0, &jacobi);
        let most = |report: &BatchReport| {
            report.systems.iter().map(|system| system.outcome.iterations).max()
        };
        assert!(report.all_converged());
        assert_eq!(report.scheme.name(), scheme);
        assert!(report.scheme.preconditioner().has_factors(), "{}", report.scheme);
        assert!(report.kernel.contains("multicolor"), "{}", report.kernel);
        assert!(report.reason.ends_with("factors by two colours"), "{}", report.reason);
        assert!(most(&report) < most(&plain), "{:?} {:?}", most(&report), most(&plain));
    }
}

/// Matrices near to the kept ones, some with a flaw, end as by whole solves, by every method.
#[test]
fn near_matrices_are_solved_by_kept_factors_or_their_own() {
    let executor = Emulator::new(Order::Forward);
    let then = matrices(9);
    let mut now = then.clone();
    let each = now.iter_mut().flat_map(|matrix| matrix.values_mut()).enumerate();
    each.for_each(|(k, value)| *value *= 1.0 + 1e-4 * (k % 3) as f64);
    // Far from it, not finite, singular.
    now[3].values_mut().iter_mut().enumerate().for_each(|(k, v)| *v *= 1.0 + (k % 2) as f64);
    now[4].values_mut()[3] = f64::NAN;
    now[7].values_mut().fill(0.0);
    let (then, now) = (batch(&then, false), batch(&now, false));
    let b = rhs(&then, 1);
    let up = |batch: &Batch<f64>| {
        let Batch::Uniform(uniform) = batch else { unreachable!() };
        executor.upload(uniform.values().into_array()).unwrap()
    };
    for options in methods() {
        let mut solver = DeviceSolver::new(&executor, &then, &options).unwrap();
        let on_b = executor.upload(&b).unwrap();
        let mut x = executor.upload(&vec![0.5; b.len()]).unwrap();
        let error = solver.solve_near(&up(&now), &on_b, Guess::InX, &mut x).unwrap_err();
        assert!(matches!(error, SolveError::NotFactored), "{error}");
        solver.factor(&up(&then)).unwrap();

        let report = solver.solve_near(&up(&now), &on_b, Guess::InX, &mut x).unwrap();

        let x0 = vec![0.5; b.len()];
        let (expected, host) = from_host(&now, &b, false, Guess::InX, &x0, &options);
        assert_eq!(statuses(&report), statuses(&host), "{options:?}");
        let found = executor.download(&x).unwrap();
        let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-8, "{options:?}: {apart:e}");
        // The kept matrices are as before.
        let report = solver.solve_again(&on_b, Guess::Zero, &mut x).unwrap();
        assert!(report.all_converged(), "{options:?}");
        let (expected, _) = from_host(&then, &b, false, Guess::Zero, &x0, &options);
        let found = executor.download(&x).unwrap();
        let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-8, "{options:?}: {apart:e}");
    }
}

#[test]
fn the_transposed_side_follows_values_of_all_and_of_each() {
    let executor = Emulator::new(Order::Forward);
    let (all, each) = (batch(&matrices(7), true), batch(&matrices(7), false));
    let b = rhs(&all, 1);
    let on_b = executor.upload(&b).unwrap();
    let options = SolveOptions::new().method(Method::Lu);
    let mut solver = DeviceSolver::new(&executor, &all, &options).unwrap();
    let mut host = BatchSolver::new(&all, &options.clone().method(Method::BiCgStab)).unwrap();
    for kept in [&all, &each, &all] {
        let Batch::Uniform(uniform) = kept else { unreachable!() };
        solver.factor(&executor.upload(uniform.values().into_array()).unwrap()).unwrap();
        let mut x = executor.alloc(b.len()).unwrap();
        let report = solver.solve_transposed_again(&on_b, Guess::Zero, &mut x).unwrap();
        assert!(report.all_converged());
        let (expected, _) = from_host(kept, &b, true, Guess::Zero, &[], &options);
        let apart =
            |x: &[f64]| x.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart(&executor.download(&x).unwrap()) < 1e-8);
        // A solver of data on the host follows other layouts, too.
        host.factor(kept).unwrap();
        let mut x = vec![0.0; b.len()];
        assert!(host.solve_transposed_again(&b, &mut x).unwrap().all_converged());
        assert!(apart(&x) < 1e-7);
    }
}

#[test]
fn systems_without_factors_climb_on_the_transposed_side() {
    let executor = Emulator::new(Order::Forward);
    let mut flawed = matrices(9);
    // No pivot without a permutation, not finite, and singular.
    flawed[2].values_mut()[0] = 0.0;
    flawed[4].values_mut()[3] = f64::NAN;
    flawed[7].values_mut().fill(0.0);
    let batch = batch(&flawed, false);
    let b = rhs(&batch, 1);
    for fallback in [false, true] {
        let options = SolveOptions::new().method(Method::Lu).fallback(fallback);
        let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
        let values: Vec<f64> = flawed.iter().flat_map(|m| m.values().to_vec()).collect();
        let values = executor.upload(&values).unwrap();
        let on_b = executor.upload(&b).unwrap();
        let mut x = executor.upload(&vec![0.5; b.len()]).unwrap();
        solver.factor(&values).unwrap();
        for _ in 0..2 {
            executor.copy_from_host(&vec![0.5; b.len()], &mut x).unwrap();
            let report = solver.solve_transposed_again(&on_b, Guess::InX, &mut x).unwrap();
            let x0 = vec![0.5; b.len()];
            let (expected, host) = from_host(&batch, &b, true, Guess::InX, &x0, &options);
            assert_eq!(statuses(&report), statuses(&host), "{fallback}");
            assert_eq!(report.systems[4].outcome.status, Status::NonFinite);
            let found = executor.download(&x).unwrap();
            let apart = |(a, b): (&f64, &f64)| (a - b).abs();
            let apart = found.iter().zip(&expected).map(apart).fold(0.0, f64::max);
            assert!(apart < 1e-8, "{fallback}: {apart:e}");
            // The matrices themselves are solved with as before.
            let report = solver.solve_again(&on_b, Guess::Zero, &mut x).unwrap();
            let (_, host) = from_host(&batch, &b, false, Guess::Zero, &x0, &options);
            assert_eq!(statuses(&report), statuses(&host), "{fallback}");
        }
        assert!(matches!(
            solver.finish_transposed_again(&on_b, &mut x),
            Err(SolveError::Argument(_))
        ));
    }
}

#[test]
fn kept_matrices_are_asked_for_in_one_line() {
    let executor = Emulator::new(Order::Forward);
    let batch = batch(&matrices(4), false);
    let options = SolveOptions::new().method(Method::Lu);
    let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
    let vector = || executor.upload(&[1.0; 36]).unwrap();
    let (b, mut x) = (vector(), vector());
    assert!(solver.keeps_factors());
    for error in [
        solver.enqueue_again(&b, Guess::Zero, &mut x).unwrap_err(),
        solver.finish_again(&b, &mut x).unwrap_err(),
        solver.enqueue_transposed_again(&b, Guess::Zero, &mut x).unwrap_err(),
        solver.finish_transposed_again(&b, &mut x).unwrap_err(),
    ] {
        assert!(matches!(error, SolveError::NotFactored), "{error}");
    }
    let short = executor.upload(&[1.0; 5]).unwrap();
    assert!(matches!(solver.factor(&short), Err(SolveError::Argument(_))));
    assert!(matches!(solver.solve_again(&b, Guess::Zero, &mut x), Err(SolveError::NotFactored)));
    // A method without factors keeps the matrices alone, of the right number.
    let options = SolveOptions::new().method(Method::BiCgStab);
    let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
    assert!(!solver.keeps_factors());
    assert!(matches!(solver.factor(&short), Err(SolveError::Argument(_))));
    // One kind of solve is not finished as the other.
    let values = executor.upload(&vec![1.0; batch.pattern(0).nnz() * 4]).unwrap();
    solver.factor(&values).unwrap();
    solver.enqueue_again(&b, Guess::Zero, &mut x).unwrap();
    assert!(matches!(solver.finish(&values, &b, &mut x), Err(SolveError::Argument(_))));
    assert!(matches!(solver.finish_transposed_again(&b, &mut x), Err(SolveError::Argument(_))));
    solver.finish_again(&b, &mut x).unwrap();
}

#[test]
fn wrong_arrays_are_refused_and_lose_nothing() {
    let executor = Emulator::new(Order::Forward);
    let batch = batch(&matrices(4), false);
    let data = layouts()[3].transposed(true);
    let mut solver =
        DeviceSolver::with_data(&executor, &batch, &SolveOptions::new(), data).unwrap();
    let nnz = batch.pattern(0).nnz();
    let up = |len: usize| executor.upload(&vec![2.0; len]).unwrap();
    let what = |error: SolveError| match error {
        SolveError::Argument(ArgumentError::Length { what, .. }) => what,
        error => panic!("{error}"),
    };
    let mut x = up(36);
    // Values of one item for all are another arrangement than that of the batch.
    let lengths = [(nnz, 36, "values"), (4 * nnz, 35, "b")];
    for (values, b, expected) in lengths {
        let error = solver.solve(&up(values), &up(b), Guess::Zero, &mut x).unwrap_err();
        assert_eq!(what(error), expected);
    }
    let error = solver.solve(&up(4 * nnz), &up(36), Guess::Zero, &mut up(37)).unwrap_err();
    assert_eq!(what(error), "x");
    assert_eq!(executor.download(&x).unwrap(), [2.0; 36]);
    // A solve that was refused cannot be finished, nor can one with other arrays.
    solver.enqueue(&up(4 * nnz), &up(36), Guess::Zero, &mut x).unwrap();
    assert!(solver.enqueue(&up(4 * nnz), &up(35), Guess::Zero, &mut x).is_err());
    let error = solver.finish(&up(4 * nnz), &up(36), &mut x).unwrap_err();
    assert!(matches!(
        error,
        SolveError::Argument(ArgumentError::OutOfRange { name: "finish", .. })
    ));
    solver.enqueue(&up(4 * nnz), &up(36), Guess::Zero, &mut x).unwrap();
    assert_eq!(what(solver.finish(&up(3), &up(36), &mut x).unwrap_err()), "values");
    solver.solve(&up(4 * nnz), &up(36), Guess::Zero, &mut x).unwrap();
    let small = Emulator::with_memory(20_000);
    let error = DeviceSolver::with_data(&small, &batch, &SolveOptions::new(), data).err();
    if let Some(error) = error {
        assert!(matches!(error, SolveError::Gpu(GpuError::OutOfMemory { .. })), "{error}");
    }
}

#[test]
fn moves_check_their_places() {
    let executor = Emulator::new(Order::Forward);
    let make = |places: &[u32]| {
        ArrayMove::<_, f64>::new(&executor, (2, 3), Layout::ItemMajor, Some(places)).map(drop)
    };
    for places in [&[0, 1][..], &[0, 1, 3]] {
        assert!(matches!(make(places), Err(GpuSolveError::Argument(_))));
    }
    let moves =
        ArrayMove::<_, f64>::new(&executor, (2, 3), Layout::ItemMajor, Some(&[2, 0, 1])).unwrap();
    let from = executor.upload(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let mut to = executor.upload(&[0.0; 6]).unwrap();
    moves.to_item_major("values", &from, &mut to).unwrap();
    assert_eq!(executor.download(&to).unwrap(), [3.0, 1.0, 2.0, 6.0, 4.0, 5.0]);
    for (from, to) in [(5, 6), (6, 5)] {
        let mut to = executor.upload(&vec![0.0; to]).unwrap();
        let from = executor.upload(&vec![0.0; from]).unwrap();
        let error = moves.to_item_major("values", &from, &mut to).unwrap_err();
        assert!(matches!(
            error,
            GpuSolveError::Argument(ArgumentError::Length { what: "values", .. })
        ));
    }
    let back = moves.from_item_major("values", &to, &mut executor.upload(&[0.0; 6]).unwrap());
    assert!(matches!(back, Err(GpuSolveError::Unsupported { .. })));
    // An order that is the same is a copy.
    let moves = ArrayMove::<_, f64>::new(&executor, (2, 3), Layout::ItemMajor, None).unwrap();
    moves.from_item_major("values", &from, &mut to).unwrap();
    moves.to_item_major("values", &from, &mut to).unwrap();
    assert_eq!(executor.download(&to).unwrap(), executor.download(&from).unwrap());
}
