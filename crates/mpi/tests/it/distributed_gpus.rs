//! One matrix over ranks that have a GPU each, emulated: products, CG, statuses, bits, faults.

use kernel_emu::{Call, Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cpu_ref::seq;
use sparsebatch_cuda::GpuError;
use sparsebatch_formats::Csr;
use sparsebatch_formats::generate::{Stencil, laplace};
use sparsebatch_mpi::{
    DistributedMatrix, DistributedOptions, DistributedReport, MatrixOptions, MpiError, Partition,
    Ranks,
};
use sparsebatch_solvers::{
    Backend, FormatChoice, Gpu, GpuExecutor, Method, OperatorError, Preconditioner, SolveOptions,
    SolveScalar, SpmvOptions, Status,
};
use sparsebatch_testing::{csr_integers, random_integers, random_vector};

/// A GPU for a rank, whose threads run in another order than those of other ranks.
fn gpu(rank: usize) -> Backend<Emulator> {
    let order = [Order::Forward, Order::Reverse, Order::Random(7)][rank % 3];
    Backend::Gpu(Gpu::new(Emulator::new(order)))
}

/// `y = alpha A x + beta y` of all ranks.
fn product<T: SolveScalar>(
    matrix: &Csr<T>,
    (rows, columns): (&Partition, &Partition),
    (alpha, x, beta, y): (T, &[T], T, &[T]),
) -> Vec<T> {
    let options = MatrixOptions::new();
    let shares = Ranks::on_threads(rows.ranks(), |ranks| {
        let backend = gpu(ranks.rank());
        let mut own =
            DistributedMatrix::from_matrix_on(ranks, &backend, matrix, rows, columns, &options)
                .unwrap();
        assert!(own.has_direct_exchange());
        let x = columns.share(ranks.rank(), x);
        let before = rows.share(ranks.rank(), y);
        let mut y = before.clone();
        own.apply(alpha, &x, beta, &mut y).unwrap();
        // The second product has memory of its own for what is exchanged, the third that of the
        // first.
        for _ in 0..2 {
            let mut again = before.clone();
            own.apply(alpha, &x, beta, &mut again).unwrap();
            assert_eq!(again, y);
        }
        y
    });
    rows.by_rows(shares.concat())
}

fn check<T: SolveScalar>(matrix: &Csr<T>) {
    let x: Vec<T> = random_integers(matrix.ncols(), 1);
    let y: Vec<T> = random_integers(matrix.nrows(), 2);
    let (alpha, beta) = (T::from_f64(2.0), T::from_f64(-1.0));
    let mut expected = y.clone();
    seq::spmv(alpha, matrix.view(), &x, beta, &mut expected).unwrap();
    for ranks in [1, 2, 3, 5] {
        let parts =
            (Partition::even(matrix.nrows(), ranks), Partition::even(matrix.ncols(), ranks));
        let found = product(matrix, (&parts.0, &parts.1), (alpha, &x, beta, &y));
        assert_eq!(found, expected, "{ranks} ranks");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Empty rows, empty columns, no rows at all, more ranks than rows: whole numbers as values, so
    /// that any order of sums gives the same bits.
    #[test]
    fn products_are_those_of_the_reference(matrix in csr_integers::<f64>(14, 14)) {
        check(&matrix);
        check(&matrix.cast::<f32>());
    }
}

#[test]
fn products_of_a_grid_are_those_of_a_cpu() {
    let matrix = laplace(Stencil::Point7, &[7, 6, 5]).unwrap();
    check(&matrix);
    // x stays on the GPUs.
    let x: Vec<f64> = random_integers(210, 3);
    let mut expected = vec![0.0; 210];
    seq::spmv(1.0, matrix.view(), &x, 0.0, &mut expected).unwrap();
    let parts = Partition::even(210, 2);
    let shares = Ranks::on_threads(2, |ranks| {
        let (backend, options) = (gpu(ranks.rank()), MatrixOptions::new());
        let mut own =
            DistributedMatrix::from_matrix_on(ranks, &backend, &matrix, &parts, &parts, &options)
                .unwrap();
        let found = own.parts();
        assert_eq!((found.device.as_deref(), found.received), (Some("emulation"), 42));
        assert!(own.is_on_gpu() && found.to_string().ends_with(", on emulation"), "{found}");
        own.load(&parts.share(ranks.rank(), &x)).unwrap();
        let mut y = vec![0.0; 105];
        for _ in 0..3 {
            own.multiply_loaded().unwrap();
            own.wait().unwrap();
        }
        own.store(&mut y).unwrap();
        assert!(own.load(&[0.0]).is_err() && own.store(&mut [0.0]).is_err());
        y
    });
    assert_eq!(shares.concat(), expected);
}

type Solved<T> = Result<(Vec<T>, DistributedReport), MpiError>;

/// What each rank got. `backend` makes those of the ranks.
fn solve_on<T: SolveScalar, E: GpuExecutor>(
    size: usize,
    backend: impl Fn(usize) -> Backend<E> + Sync,
    matrix: &Csr<T>,
    (b, x0): (&[T], &[T]),
    options: &DistributedOptions,
) -> Vec<Solved<T>> {
    let parts = Partition::by_entries(matrix.row_iter().map(|(cols, _)| cols.len()), size);
    Ranks::on_threads(size, |ranks| {
        let (backend, plans) = (backend(ranks.rank()), MatrixOptions::new());
        let mut own =
            DistributedMatrix::from_matrix_on(ranks, &backend, matrix, &parts, &parts, &plans)?;
        let (b, mut x) = (parts.share(ranks.rank(), b), parts.share(ranks.rank(), x0));
        let report = own.solve(&b, &mut x, options)?;
        Ok((x, report))
    })
}

/// The solution, and the report, which is the same on all ranks.
fn solve<T: SolveScalar>(
    size: usize,
    backend: impl Fn(usize) -> Backend<Emulator> + Sync,
    matrix: &Csr<T>,
    b: &[T],
    options: &DistributedOptions,
) -> (Vec<T>, DistributedReport) {
    let zero = vec![T::ZERO; b.len()];
    let solved = solve_on(size, backend, matrix, (b, &zero), options);
    let solved: Vec<_> = solved.into_iter().map(|solved| solved.unwrap()).collect();
    let report = solved[0].1.clone();
    for (_, other) in &solved {
        assert_eq!(format!("{:?}", other.outcome), format!("{:?}", report.outcome));
    }
    (solved.into_iter().flat_map(|(x, _)| x).collect(), report)
}

fn of(preconditioner: Preconditioner) -> SolveOptions {
    SolveOptions::new().method(Method::Cg).preconditioner(preconditioner)
}

fn over(solve: SolveOptions) -> DistributedOptions {
    DistributedOptions::new().solve(solve)
}

/// The relative residual of a solution, evaluated here.
fn relative_residual(matrix: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let mut r = b.to_vec();
    seq::spmv(-1.0, matrix.view(), x, 1.0, &mut r).unwrap();
    let square = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>();
    (square(&r) / square(b)).sqrt()
}

/// A grid with another diagonal in each row, so that Jacobi matters.
fn uneven(sizes: [usize; 3]) -> Csr<f64> {
    let matrix = laplace(Stencil::Point7, &sizes).unwrap();
    let value = |(row, col, value): (usize, usize, f64)| match row == col {
        true => value + (row % 9) as f64,
        false => value,
    };
    let values = matrix.triplet_iter().map(value).collect();
    Csr::from_parts(matrix.pattern().clone(), values).unwrap()
}

/// A method with a preconditioner of each kind: none, a diagonal, and blocks of ranks, which the host
/// has.
fn methods() -> Vec<(&'static str, DistributedOptions)> {
    let mut methods = Vec::new();
    for preconditioner in [
        Preconditioner::None,
        Preconditioner::Jacobi,
        Preconditioner::Auto,
        Preconditioner::IC0,
        Preconditioner::BLOCK_JACOBI,
    ] {
        let cg = over(of(preconditioner));
        methods.push(("cg", cg.clone()));
        methods.push(("pipelined cg", cg.pipelined(true)));
        let preconditioner = match preconditioner {
            Preconditioner::Ic0 { .. } => Preconditioner::ILU0,
            other => other,
        };
        methods.push(("bicgstab", over(of(preconditioner).method(Method::BiCgStab))));
    }
    let none = of(Preconditioner::None);
    methods.push(("cg", over(none.clone()).block_lu(true)));
    methods.push(("bicgstab", over(none.method(Method::BiCgStab)).block_lu(true)));
    methods
}

#[test]
fn methods_take_as_many_iterations_as_on_cpus() {
    let matrix = uneven([7, 6, 6]);
    let b: Vec<f64> = random_vector(matrix.nrows(), 7);
    for (method, options) in methods() {
        for ranks in [1, 2, 3] {
            let what = format!("{method} {:?}, {ranks} ranks", options.solve.preconditioner);
            let (_, on_cpus) = solve(ranks, |_| Backend::Cpu, &matrix, &b, &options);
            let (x, report) = solve(ranks, gpu, &matrix, &b, &options);
            assert_eq!(report.outcome.status, Status::Converged, "{what}");
            assert!(relative_residual(&matrix, &b, &x) <= 1.001e-10, "{what}");
            let (found, expected) = (report.outcome.iterations, on_cpus.outcome.iterations);
            assert!(found.abs_diff(expected) <= 1, "{what}: {found}, not {expected}");
            assert!(report.iteration_time <= report.solve_time);
            assert_eq!(report.device.as_deref(), Some("emulation"));
        }
    }
}

#[test]
fn ranks_on_gpus_and_on_cpus_solve_together() {
    let matrix = uneven([5, 5, 6]);
    let b: Vec<f64> = random_vector(matrix.nrows(), 8);
    let mixed = |rank| if rank == 1 { Backend::Cpu } else { gpu(rank) };
    for (method, options) in methods() {
        let (x, report) = solve(3, mixed, &matrix, &b, &options);
        let found = relative_residual(&matrix, &b, &x);
        assert!(report.converged() && found <= 1.001e-10, "{method} {options:?}: {found}");
    }
}

#[test]
fn three_solves_have_equal_bits() {
    let matrix = uneven([6, 6, 5]);
    let b: Vec<f64> = random_vector(matrix.nrows(), 9);
    let history = |options: DistributedOptions| {
        let solve = options.solve.clone().history(true);
        options.solve(solve)
    };
    let some = methods().into_iter().filter(|(_, options)| {
        matches!(options.solve.preconditioner, Preconditioner::Jacobi | Preconditioner::Ilu0 { .. })
    });
    let all = some.map(|(method, options)| (method, history(options)));
    for ((method, options), ranks) in
        all.flat_map(|one| [1, 2, 3].map(|ranks| (one.clone(), ranks)))
    {
        // In other orders of threads each time.
        let bits = |seed: u64| {
            let gpu = |rank| {
                let order = Order::Random(seed + rank as u64);
                Backend::Gpu(Gpu::new(Emulator::new(order)))
            };
            let (x, report) = solve(ranks, gpu, &matrix, &b, &options);
            let history = report.outcome.history.iter().map(|r| r.to_bits());
            x.iter().map(|x| x.to_bits()).chain(history).collect::<Vec<_>>()
        };
        let first = bits(1);
        assert!(first == bits(20) && first == bits(300), "{method}, {ranks} ranks");
    }
}

/// Vectors of several chunks of sums: the residuals are those of a CPU, for a few iterations.
#[test]
fn long_vectors_are_summed_over_all_chunks() {
    let matrix = laplace(Stencil::Point5, &[150, 120]).unwrap();
    let b: Vec<f64> = random_vector(matrix.nrows(), 10);
    let cg = of(Preconditioner::Jacobi).history(true).max_iters(4);
    for options in
        [over(cg.clone()), over(cg.clone()).pipelined(true), over(cg.method(Method::BiCgStab))]
    {
        let (_, expected) = solve(1, |_| Backend::Cpu, &matrix, &b, &options);
        let (_, report) = solve(1, gpu, &matrix, &b, &options);
        assert_eq!(report.outcome.status, Status::MaxIterations);
        let (found, expected) = (&report.outcome.history, &expected.outcome.history);
        assert_eq!(found.len(), 5);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-12 * expected, "{found}, expected {expected}");
        }
    }
}

#[test]
fn single_precision_converges_to_its_tolerance() {
    let matrix: Csr<f32> = laplace(Stencil::Point5, &[12, 11]).unwrap().cast();
    let b: Vec<f32> = random_vector(132, 11);
    for (method, options) in methods() {
        let (_, report) = solve(2, gpu, &matrix, &b, &options);
        let converged = report.converged() && report.outcome.relative_residual() <= 1e-5;
        assert!(converged, "{method} {options:?}: {report:?}");
    }
}

#[test]
fn statuses_are_those_of_cpus() {
    let diagonal = |d: [f64; 4]| {
        Csr::try_new(4, 4, vec![0, 1, 2, 3, 4], vec![0, 1, 2, 3], d.to_vec()).unwrap()
    };
    let usual = diagonal([1.0, 2.0, 3.0, 4.0]);
    let nan = diagonal([1.0, 2.0, f64::NAN, 4.0]);
    let negative = diagonal([-1.0, -2.0, -3.0, -4.0]);
    let huge = diagonal([1e200, 2e200, 3e200, 4e200]);
    let ones = [1.0; 4];
    let nan_rhs = [1.0, 1.0, f64::NAN, 1.0];
    let none = of(Preconditioner::None);
    let jacobi = of(Preconditioner::Jacobi);
    let tight = jacobi.clone().rel_tol(1e-17).abs_tol(0.0);
    let few = none.clone().max_iters(2);
    let zero = diagonal([1.0, 2.0, 0.0, 4.0]);
    // With more ranks than rows, some of them are empty.
    for ranks in [1, 3, 5] {
        for (matrix, b, options, expected) in [
            (&usual, &ones, &jacobi, Status::Converged),
            (&usual, &ones, &few, Status::MaxIterations),
            (&usual, &[0.0; 4], &none, Status::Converged),
            (&nan, &ones, &none, Status::NonFinite),
            (&usual, &nan_rhs, &none, Status::NonFinite),
            (&negative, &ones, &none, Status::Indefinite),
            (&zero, &ones, &jacobi, Status::ZeroDiagonal),
            (&huge, &ones, &none, Status::Converged),
            (&huge, &ones, &jacobi, Status::Converged),
        ] {
            let cg = over(options.clone());
            let (_, on_cpus) = solve(ranks, |_| Backend::Cpu, matrix, b, &cg);
            let (x, report) = solve(ranks, gpu, matrix, b, &cg);
            assert_eq!((report.outcome.status, on_cpus.outcome.status), (expected, expected));
            assert!(x.iter().all(|x| x.is_finite()), "{x:?}");
            let others =
                [cg.clone().pipelined(true), over(options.clone().method(Method::BiCgStab))];
            for other in others {
                let (_, on_cpus) = solve(ranks, |_| Backend::Cpu, matrix, b, &other);
                let (x, report) = solve(ranks, gpu, matrix, b, &other);
                assert_eq!(report.outcome.status, on_cpus.outcome.status, "{other:?}");
                assert!(x.iter().all(|x| x.is_finite()), "{x:?}");
            }
        }
    }
    // Below rounding: restarts from the true residual, and an end.
    let grid = laplace(Stencil::Point3, &[40]).unwrap();
    let b: Vec<f64> = random_vector(40, 12);
    let (_, report) = solve(2, gpu, &grid, &b, &over(tight));
    assert_eq!(report.outcome.status, Status::Stagnated);
    assert!(report.outcome.restarts > 0);
    let empty = Csr::<f64>::zeros(0, 0).unwrap();
    assert!(solve(2, gpu, &empty, &[], &over(none)).1.converged());
}

/// The one line of all ranks.
fn one_line<T>(ends: Vec<Result<T, MpiError>>) -> (String, u8) {
    let all: Vec<(String, u8)> = ends
        .into_iter()
        .map(|end| end.err().map(|error| (error.to_string(), error.exit_code())).unwrap())
        .collect();
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    all[0].clone()
}

#[test]
fn a_rank_whose_gpu_has_no_memory_ends_all() {
    let matrix = laplace(Stencil::Point7, &[6, 6, 6]).unwrap();
    let b = vec![1.0; 216];
    let options = over(of(Preconditioner::Jacobi));
    // What the plans of rank 1 take.
    let counted = Emulator::new(Order::Forward);
    let parts = Partition::by_entries(matrix.row_iter().map(|(cols, _)| cols.len()), 3);
    Ranks::on_threads(3, |ranks| {
        let backend = match ranks.rank() {
            1 => Backend::Gpu(Gpu::new(counted.clone())),
            rank => gpu(rank),
        };
        let plans = MatrixOptions::new();
        DistributedMatrix::from_matrix_on(ranks, &backend, &matrix, &parts, &parts, &plans)
            .map(drop)
            .unwrap();
    });
    let plans = counted.most_bytes_in_use();
    // Too little for the plans, and for the vectors of CG.
    for bytes in [plans - 8, plans + 8] {
        let little = |rank| match rank {
            1 => Backend::Gpu(Gpu::new(Emulator::with_memory(bytes))),
            _ => gpu(rank),
        };
        let (line, code) = one_line(solve_on(3, little, &matrix, (&b, &vec![0.0; 216]), &options));
        assert!(line.starts_with("rank 1 on this host: ") && line.contains("memory"), "{line}");
        assert_eq!(code, 1);
    }
}

/// Each call of a GPU that can fail during a solve does: one error on all ranks, and no rank waits.
fn check_failures(options: &DistributedOptions, calls: &[Call], least: usize) {
    let matrix = laplace(Stencil::Point7, &[5, 5, 6]).unwrap();
    let (b, zero) = (vec![1.0; 150], vec![0.0; 150]);
    let lost = GpuError::ContextLost {
        call: "cuStreamSynchronize",
        code: 700,
        message: "an illegal memory access was encountered".to_owned(),
    };
    let mut ended = 0;
    for &call in calls {
        for left in (0..40).chain([60, 90]) {
            let backend = |rank| {
                let emulator = Emulator::new(Order::Forward);
                let failing = match rank {
                    1 => emulator.failing_after(left, call, lost.clone()),
                    _ => emulator,
                };
                Backend::Gpu(Gpu::new(failing))
            };
            let ends = solve_on(2, backend, &matrix, (&b, &zero), options);
            if ends.iter().all(Result::is_ok) {
                // There were fewer calls.
                continue;
            }
            let (line, code) = one_line(ends);
            assert!(line.starts_with("rank 1 on this host: "), "{call:?} {left}: {line}");
            assert!(line.contains("illegal memory access") && code == 1, "{line}");
            ended += 1;
        }
    }
    assert!(ended > least, "{ended} solves ended");
}

#[test]
fn a_gpu_that_fails_ends_all_ranks() {
    let jacobi = of(Preconditioner::Jacobi);
    let calls = [Call::Launch, Call::CopyToHost, Call::Alloc];
    check_failures(&over(jacobi.clone()), &calls, 60);
    check_failures(&over(jacobi.clone()).pipelined(true), &calls, 60);
    check_failures(&over(jacobi.method(Method::BiCgStab)), &calls, 60);
}

#[test]
fn a_gpu_that_fails_beside_a_preconditioner_of_the_host_ends_all_ranks() {
    let calls = [Call::CopyToHost, Call::CopyFromHost];
    check_failures(&over(of(Preconditioner::IC0)), &calls, 20);
    check_failures(&over(of(Preconditioner::IC0)).pipelined(true), &calls, 20);
    check_failures(&over(of(Preconditioner::ILU0).method(Method::BiCgStab)), &calls, 20);
}

/// A product that fails on one rank: the others get NaN, and do not wait.
#[test]
fn a_product_fails_on_its_rank_alone() {
    let matrix = laplace(Stencil::Point3, &[8]).unwrap();
    let parts = Partition::even(8, 2);
    let ends = Ranks::on_threads(2, |ranks| {
        let full = GpuError::OutOfMemory { needed: 8, free: 0 };
        let left = if ranks.rank() == 1 { 0 } else { 1000 };
        let failing = Emulator::new(Order::Forward).failing_after(left, Call::Launch, full);
        let (backend, options) = (Backend::Gpu(Gpu::new(failing)), MatrixOptions::new());
        let mut own =
            DistributedMatrix::from_matrix_on(ranks, &backend, &matrix, &parts, &parts, &options)
                .unwrap();
        let mut y = [0.0; 4];
        let ended = own.apply(1.0, &[1.0; 4], 0.0, &mut y);
        let short = own.apply(1.0, &[1.0; 3], 0.0, &mut y).unwrap_err();
        (ended.map_err(|failure| failure.code), y, short.message)
    });
    assert_eq!(ends[0].0, Ok(()));
    assert!(ends[0].1[3].is_nan() && ends[0].1[0] == 1.0, "{ends:?}");
    assert_eq!(ends[1].0, Err(1));
    assert!(ends.iter().all(|(_, _, short)| short == "x has 3 entries, expected 4"));
}

/// One rank alone gives a vector of another length, beside GPUs that copy from each other: the other
/// gets NaN in the place of its elements, and the next product is as ever.
#[test]
fn a_vector_of_another_length_on_one_gpu_is_an_error_of_its_rank() {
    let matrix = laplace(Stencil::Point3, &[8]).unwrap();
    let parts = Partition::even(8, 2);
    let ends = Ranks::on_threads(2, |ranks| {
        let (rank, options) = (ranks.rank(), MatrixOptions::new());
        let mut own =
            DistributedMatrix::from_matrix_on(ranks, &gpu(rank), &matrix, &parts, &parts, &options)
                .unwrap();
        assert!(own.has_direct_exchange());
        let (x, mut y) = ([1.0; 4], [0.0; 4]);
        let wrong = own.apply(1.0, &x[..4 - rank], 0.0, &mut y);
        let before = y;
        own.apply(1.0, &x, 0.0, &mut y).unwrap();
        (wrong.map_err(|failure| failure.message), before, y)
    });
    assert_eq!(ends[0].0, Ok(()));
    assert!(ends[0].1[3].is_nan() && ends[0].1[0] == 1.0, "{ends:?}");
    assert_eq!(ends[1].0, Err("x has 3 entries, expected 4".to_owned()));
    assert_eq!((ends[0].2, ends[1].2), ([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]));
}

#[test]
fn a_preconditioner_of_the_caller_has_vectors_of_the_host() {
    let matrix = uneven([5, 4, 4]);
    let b: Vec<f64> = random_vector(80, 13);
    let parts = Partition::even(80, 2);
    let inverse: Vec<f64> = (0..80).map(|row| 1.0 / (6.0 + (row % 9) as f64)).collect();
    let solve = |method: Method, fails: bool| {
        let (backend, options) = (gpu, MatrixOptions::new());
        Ranks::on_threads(2, |ranks| {
            let rank = ranks.rank();
            let mut own = DistributedMatrix::from_matrix_on(
                ranks,
                &backend(rank),
                &matrix,
                &parts,
                &parts,
                &options,
            )?;
            let inverse = parts.share(rank, &inverse);
            let mut calls = 0;
            let mut jacobi = |r: &[f64], z: &mut [f64]| -> Result<(), OperatorError> {
                calls += 1;
                if fails && rank == 1 && calls == 3 {
                    return Err("no third time".into());
                }
                z.iter_mut().zip(r).zip(&inverse).for_each(|((z, r), m)| *z = m * r);
                Ok(())
            };
            let mut x = vec![0.0; 40];
            let given = over(SolveOptions::new().method(method));
            let b = parts.share(rank, &b);
            let report = own.solve_preconditioned(&mut jacobi, &b, &mut x, &given)?;
            assert_eq!(report.device.as_deref(), Some("emulation"));
            Ok((x, report))
        })
    };
    for method in [Method::Cg, Method::BiCgStab, Method::Auto] {
        let solved: Vec<_> = solve(method, false).into_iter().map(Result::unwrap).collect();
        let x: Vec<f64> = solved.iter().flat_map(|(x, _)| x.clone()).collect();
        assert!(solved[0].1.converged() && relative_residual(&matrix, &b, &x) <= 1.001e-10);
        let (line, code) = one_line(solve(method, true));
        let expected = "rank 1 on this host: an operator of the caller failed: no third time";
        assert_eq!((&*line, code), (expected, 1));
    }
}

#[test]
fn methods_that_ranks_cannot_use_are_refused_in_one_line() {
    let matrix = laplace(Stencil::Point3, &[9]).unwrap();
    let refused = |options: &DistributedOptions| {
        let ends = solve_on(2, gpu, &matrix, (&[1.0; 9], &[0.0; 9]), options);
        let (line, code) = one_line(ends);
        assert_eq!(code, 2);
        line
    };
    let bicgstab = SolveOptions::new().method(Method::BiCgStab);
    for (options, expected) in [
        (
            over(SolveOptions::new().method(Method::Lu)),
            "method is lu, expected cg or bicgstab over ranks, or LU of the block of each rank as \
             preconditioner",
        ),
        (
            over(bicgstab).pipelined(true),
            "pipelined is bicgstab, expected cg, of which alone there is such a form",
        ),
        (
            over(of(Preconditioner::ILU0)).block_lu(true),
            "preconditioner is ilu0, expected none beside LU of the blocks",
        ),
    ] {
        assert_eq!(refused(&options), expected);
    }
}

#[test]
fn backends_and_calls_that_do_not_fit_are_refused() {
    let matrix = laplace(Stencil::Point3, &[8]).unwrap();
    let parts = Partition::even(8, 2);
    let lines = Ranks::on_threads(2, |ranks| {
        let made = |backend: &Backend<Emulator>, options: &MatrixOptions| {
            DistributedMatrix::from_matrix_on(ranks, backend, &matrix, &parts, &parts, options)
        };
        let emulator = || Gpu::new(Emulator::new(Order::Forward));
        let two = Backend::gpus(vec![emulator(), emulator()]).unwrap();
        let two = made(&two, &MatrixOptions::new()).unwrap_err();
        let dia = MatrixOptions::new().spmv(SpmvOptions::default().format(FormatChoice::Dia));
        let dia = made(&gpu(0), &dia).unwrap_err();
        let mut on_cpu = made(&Backend::Cpu, &MatrixOptions::new()).unwrap();
        let loaded = on_cpu.load(&[0.0; 4]).unwrap_err().message;
        let multiplied = on_cpu.multiply_loaded().unwrap_err().message;
        let stored = on_cpu.store(&mut [0.0; 4]).unwrap_err().message;
        let mut on_gpu = made(&gpu(0), &MatrixOptions::new()).unwrap();
        let too_soon = on_gpu.store(&mut [0.0; 4]).unwrap_err().message;
        [two.to_string(), dia.to_string(), loaded, multiplied, stored, too_soon]
    });
    let expected = [
        "GPUs of a rank is 2, expected one",
        "format or kernel is one of a CPU, expected auto, or MatrixOptions::gpu, on a GPU",
        "the matrix is on a CPU, expected on a GPU",
        "the matrix is on a CPU, expected on a GPU",
        "the matrix is on a CPU, expected on a GPU",
        "x is none, expected vectors that were copied to the GPU before",
    ];
    assert!(lines.iter().all(|lines| lines == &expected), "{lines:?}");
}
