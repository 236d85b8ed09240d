//! CG and BiCGStab over ranks that are threads: statuses, bits, iterations, faults.

use sparsebatch_formats::generate::{Stencil, laplace, spd};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_mpi::{
    DistributedMatrix, DistributedOptions, DistributedReport, MatrixOptions, MpiError, Partition,
    Ranks, solve_distributed_operator,
};
use sparsebatch_solvers::{
    CpuScalar, Method, OperatorError, Preconditioner, SolveOptions, Status, Watch,
};
use sparsebatch_testing::random_vector;

const RANKS: [usize; 4] = [1, 2, 3, 5];

type Solved<T> = Result<(Vec<T>, DistributedReport), MpiError>;

/// What each rank got: its part of x, and the report.
fn solve_on<T: CpuScalar>(
    size: usize,
    matrix: &Csr<T>,
    (b, x0): (&[T], &[T]),
    options: &DistributedOptions,
) -> Vec<Solved<T>> {
    let parts = Partition::by_entries(matrix.row_iter().map(|(cols, _)| cols.len()), size);
    Ranks::on_threads(size, |ranks| {
        let mut own =
            DistributedMatrix::from_matrix(ranks, matrix, &parts, &parts, &MatrixOptions::new())?;
        let (b, mut x) = (parts.share(ranks.rank(), b), parts.share(ranks.rank(), x0));
        let report = own.solve(&b, &mut x, options)?;
        Ok((x, report))
    })
}

/// The solution, and the report, which is the same on all ranks.
fn solve<T: CpuScalar>(
    size: usize,
    matrix: &Csr<T>,
    (b, x0): (&[T], &[T]),
    options: &DistributedOptions,
) -> (Vec<T>, DistributedReport) {
    let solved = solve_on(size, matrix, (b, x0), options);
    let solved: Vec<_> = solved.into_iter().map(|solved| solved.unwrap()).collect();
    let report = solved[0].1.clone();
    for (_, other) in &solved {
        assert_eq!(format!("{:?}", other.outcome), format!("{:?}", report.outcome));
        assert_eq!(other.scheme, report.scheme);
    }
    (solved.into_iter().flat_map(|(x, _)| x).collect(), report)
}

fn of(method: Method) -> SolveOptions {
    SolveOptions::new().method(method)
}

fn over(solve: SolveOptions) -> DistributedOptions {
    DistributedOptions::new().solve(solve)
}

/// The relative residual of a solution, evaluated here.
fn relative_residual(matrix: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let row = |((cols, values), &b): ((&[i32], &[f64]), &f64)| {
        let sum: f64 = cols.iter().zip(values).map(|(&col, value)| value * x[col as usize]).sum();
        (b - sum).powi(2)
    };
    let residual: f64 = matrix.row_iter().zip(b).map(row).sum();
    (residual / b.iter().map(|b| b * b).sum::<f64>()).sqrt()
}

/// A matrix that is not symmetric: a Laplacian with wind.
fn wind(n: usize) -> Csr<f64> {
    let matrix = laplace(Stencil::Point5, &[n, n]).unwrap();
    let values = matrix.triplet_iter().map(|(row, col, value)| match col {
        col if col > row => value * 0.7,
        col if col < row => value * 1.3,
        _ => value,
    });
    let values = values.collect();
    Csr::from_parts(matrix.pattern().clone(), values).unwrap()
}

/// Iterations on one rank are those of the batched solver, and within 2 % of them on several.
#[test]
fn iterations_are_those_of_one_process() {
    let grid = laplace(Stencil::Point7, &[14, 13, 12]).unwrap();
    for (matrix, method) in [(&grid, Method::Cg), (&wind(40), Method::BiCgStab)] {
        let n = matrix.nrows();
        let b: Vec<f64> = random_vector(n, 7);
        for preconditioner in [Preconditioner::None, Preconditioner::Jacobi] {
            let options = of(method).preconditioner(preconditioner).fallback(false);
            let batch: Batch<f64> = matrix.clone().into();
            let alone = sparsebatch_solvers::solve(&batch, &b, None, &options).unwrap();
            let expected = alone.report.systems[0].outcome.iterations;
            for ranks in RANKS {
                let options = over(options.clone());
                let (x, report) = solve(ranks, matrix, (&b, &vec![0.0; n]), &options);
                let found = report.outcome.iterations;
                assert_eq!(report.outcome.status, Status::Converged);
                assert!(relative_residual(matrix, &b, &x) <= 1.001e-10);
                // BiCGStab is sensitive to the last bits; CG is not.
                let apart = f64::from(expected.abs_diff(found)) / f64::from(expected);
                let limit = if method == Method::Cg { 0.02 } else { 0.25 };
                assert!(apart <= limit, "{ranks} ranks: {found} iterations, {expected} expected");
            }
        }
    }
}

/// Rows of several chunks, in which residuals are evaluated and matrices are divided: the figures of a
/// report are those of a plain evaluation, and `auto` finds symmetry and its lack in the last rows.
#[test]
fn many_rows_are_judged_in_parts() {
    let matrix = laplace(Stencil::Point7, &[35, 34, 33]).unwrap();
    let (n, mut skew) = (matrix.nrows(), matrix.values().to_vec());
    let last = skew.len() - 2;
    skew[last] *= 0.5;
    let skew = Csr::from_parts(matrix.pattern().clone(), skew).unwrap();
    let (b, zeros) = (random_vector::<f64>(n, 11), vec![0.0; n]);
    for (matrix, method) in [(&matrix, "cg"), (&skew, "bicgstab")] {
        for (rtol, ranks) in [(1e-6, 1), (1e-6, 3), (4e-15, 2)] {
            let (x, report) =
                solve(ranks, matrix, (&b, &zeros), &over(of(Method::Auto).rel_tol(rtol)));

            assert!(report.scheme.to_string().contains(method), "{}", report.scheme);
            let expected = relative_residual(matrix, &b, &x);
            let found = report.outcome.residual_norm / report.outcome.rhs_norm;
            let near = (found - expected).abs() <= 1e-9 * expected + 2e-15;
            assert!(near, "{found:e}, {expected:e} expected");
            assert_eq!(report.outcome.status == Status::Converged, found <= rtol);
            assert!(rtol < 1e-7 || report.outcome.status == Status::Converged);
        }
    }
}

/// Sums of chunks are added in their order.
#[test]
fn bits_of_many_rows_do_not_depend_on_threads() {
    let matrix = laplace(Stencil::Point7, &[35, 34, 33]).unwrap();
    let b: Vec<f64> = random_vector(matrix.nrows(), 11);
    let of_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (ranks, parts) = (Ranks::alone(), Partition::even(b.len(), 1));
            let options = MatrixOptions::new();
            let own = DistributedMatrix::from_matrix(&ranks, &matrix, &parts, &parts, &options);
            let mut x = vec![0.0; b.len()];
            let options = over(of(Method::Auto).rel_tol(1e-14));
            let report = own.unwrap().solve(&b, &mut x, &options).unwrap();
            (x.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), format!("{:?}", report.outcome))
        })
    };

    assert_eq!(of_threads(1), of_threads(3));
}

#[test]
fn three_solves_have_equal_bits() {
    let matrix = wind(24);
    let b: Vec<f64> = random_vector(matrix.nrows(), 8);
    let zero = vec![0.0; matrix.nrows()];
    let grid = laplace(Stencil::Point5, &[24, 24]).unwrap();
    for ranks in RANKS {
        for (matrix, options) in [
            (&grid, over(of(Method::Cg).history(true))),
            (&grid, over(of(Method::Cg).history(true)).pipelined(true)),
            (&matrix, over(of(Method::BiCgStab).history(true))),
            (&grid, over(of(Method::Cg).preconditioner(Preconditioner::ILU0))),
        ] {
            let bits = || {
                let (x, report) = solve(ranks, matrix, (&b, &zero), &options);
                let history = report.outcome.history.iter().map(|r| r.to_bits());
                let x = x.iter().map(|x| x.to_bits());
                (x.chain(history).collect::<Vec<_>>(), report.outcome.iterations)
            };
            let first = bits();
            assert!(first == bits() && first == bits(), "{ranks} ranks, {options:?}");
        }
    }
}

#[test]
fn pipelined_cg_takes_about_as_many_iterations() {
    let matrix = laplace(Stencil::Point5, &[30, 30]).unwrap();
    let b: Vec<f64> = random_vector(900, 9);
    for preconditioner in [Preconditioner::None, Preconditioner::Jacobi, Preconditioner::IC0] {
        let options = over(of(Method::Cg).preconditioner(preconditioner));
        for ranks in RANKS {
            let (_, plain) = solve(ranks, &matrix, (&b, &vec![0.0; 900]), &options);
            let piped = options.clone().pipelined(true);
            let (x, report) = solve(ranks, &matrix, (&b, &vec![0.0; 900]), &piped);
            assert!(report.converged() && relative_residual(&matrix, &b, &x) <= 1.001e-10);
            let (found, expected) = (report.outcome.iterations, plain.outcome.iterations);
            assert!(found <= expected + expected / 10 + 2, "{found} for {expected}");
        }
    }
}

#[test]
fn the_block_of_a_rank_preconditions() {
    let matrix = spd(300, 7, 5).unwrap();
    let grid = wind(18);
    for (matrix, method) in [(&matrix, Method::Cg), (&grid, Method::BiCgStab)] {
        let n = matrix.nrows();
        let b: Vec<f64> = random_vector(n, 10);
        let iterations = |ranks, options: &DistributedOptions| {
            let (x, report) = solve(ranks, matrix, (&b, &vec![0.0; n]), options);
            assert!(report.converged() && relative_residual(matrix, &b, &x) <= 1.001e-10);
            report.outcome.iterations
        };
        for ranks in RANKS {
            let none = iterations(ranks, &over(of(method).preconditioner(Preconditioner::None)));
            let lu = iterations(ranks, &over(of(method)).block_lu(true));
            let ilu = over(of(method).preconditioner(Preconditioner::ILU0));
            let ilu = iterations(ranks, &ilu);
            let blocks = over(of(method).preconditioner(Preconditioner::BLOCK_JACOBI));
            let blocks = iterations(ranks, &blocks);
            assert!(
                lu <= ilu + 2 && ilu <= none + 2 && blocks <= none + 2,
                "{lu} {ilu} {blocks} {none}"
            );
            // LU of the only block is the inverse.
            assert!(ranks > 1 || lu <= 2, "{lu} iterations");
        }
    }
}

#[test]
fn auto_takes_cg_where_the_matrix_is_symmetric_with_a_positive_diagonal() {
    let grid = laplace(Stencil::Point5, &[9, 8]).unwrap();
    let mut negative = grid.clone();
    let at = negative.row(71).0.binary_search(&71).unwrap() + negative.row_ptr()[71] as usize;
    negative.values_mut()[at] = -4.0;
    // One entry of the last row differs from its mirror image, which another rank has.
    let mut skew = grid.clone();
    let at = skew.row_ptr()[71] as usize;
    skew.values_mut()[at] = -0.5;
    for ranks in RANKS {
        let method = |matrix: &Csr<f64>| {
            let (_, report) =
                solve(ranks, matrix, (&[1.0; 72], &[0.0; 72]), &over(SolveOptions::new()));
            (report.scheme.name(), report.reason)
        };
        let found = [method(&grid), method(&skew), method(&negative)];
        assert_eq!(found[0], ("cg", "it is symmetric with a positive diagonal".to_owned()));
        assert_eq!(found[1], ("bicgstab", "it is not symmetric".to_owned()));
        assert_eq!(found[2], ("bicgstab", "its diagonal is not positive".to_owned()));
    }
}

/// The status, iterations and x of a small solve.
fn small(
    ranks: usize,
    rows: usize,
    entries: &[(usize, usize, f64)],
    b: &[f64],
    options: &DistributedOptions,
) -> (Vec<f64>, DistributedReport) {
    let mut dense = vec![None; rows * rows];
    entries.iter().for_each(|&(row, col, value)| dense[row * rows + col] = Some(value));
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in dense.chunks(rows.max(1)) {
        for (col, value) in row.iter().enumerate() {
            if let Some(value) = value {
                col_idx.push(col as i32);
                values.push(*value);
            }
        }
        row_ptr.push(col_idx.len() as i32);
    }
    let matrix = Csr::try_new(rows, rows, row_ptr, col_idx, values).unwrap();
    solve(ranks, &matrix, (b, &vec![0.0; rows]), options)
}

#[test]
fn statuses_are_those_of_one_process() {
    use Status::*;
    let (cg, bicgstab) = (over(of(Method::Cg)), over(of(Method::BiCgStab)));
    let none = |method| over(of(method).preconditioner(Preconditioner::None));
    let diagonal = |d: [f64; 4]| -> Vec<(usize, usize, f64)> {
        d.iter().enumerate().map(|(i, &d)| (i, i, d)).collect()
    };
    let swap = [(0, 1, 1.0), (1, 0, 1.0), (2, 2, 1.0), (3, 3, 1.0)];
    let ones = [1.0; 4];
    let usual = diagonal([1.0, 2.0, 3.0, 4.0]);
    let nan = diagonal([1.0, 2.0, f64::NAN, 4.0]);
    let few = over(of(Method::Cg).preconditioner(Preconditioner::None).max_iters(2));
    let jacobi = |method| over(of(method).preconditioner(Preconditioner::Jacobi));
    let ilu = |method| over(of(method).preconditioner(Preconditioner::ILU0));
    for ranks in [1, 2, 3, 5, 9] {
        let status = |entries: &[(usize, usize, f64)], b: &[f64], options: &DistributedOptions| {
            let (x, report) = small(ranks, 4, entries, b, options);
            assert!(x.iter().all(|x| x.is_finite()), "{x:?}");
            report.outcome.status
        };
        assert_eq!(status(&usual, &ones, &cg), Converged);
        assert_eq!(status(&usual, &ones, &few), MaxIterations);
        assert_eq!(status(&usual, &ones, &over(of(Method::Cg).max_iters(0))), MaxIterations);
        assert_eq!(status(&nan, &ones, &cg), NonFinite);
        assert_eq!(status(&usual, &[1.0, f64::NAN, 1.0, 1.0], &bicgstab), NonFinite);
        assert_eq!(
            status(&diagonal([-1.0, -2.0, -3.0, -4.0]), &ones, &none(Method::Cg)),
            Indefinite
        );
        assert_eq!(status(&swap, &ones, &jacobi(Method::Cg)), ZeroDiagonal);
        let singular = diagonal([1.0, 0.0, 3.0, 4.0]);
        assert_eq!(status(&singular, &ones, &ilu(Method::BiCgStab)), SingularPreconditioner);
        assert_eq!(status(&singular, &ones, &cg.clone().block_lu(true)), SingularPreconditioner);
        // r'A r = 0 for the rotation by a quarter turn.
        let turn = [(0, 1, 1.0), (1, 0, -1.0), (2, 3, 1.0), (3, 2, -1.0)];
        assert_eq!(status(&turn, &ones, &none(Method::BiCgStab)), BreakdownAlpha);
        // 1e200 squared overflows within the solve unless it is scaled.
        assert_eq!(status(&diagonal([1e200, 2e200, 3e200, 4e200]), &ones, &cg), Converged);
        assert_eq!(status(&usual, &[1e200; 4], &cg), Converged);
    }
}

#[test]
fn a_tolerance_below_rounding_stagnates_unless_a_floor_accepts_it() {
    let matrix = laplace(Stencil::Point3, &[300]).unwrap();
    let b: Vec<f64> = random_vector(300, 11);
    let tight = of(Method::Cg).rel_tol(1e-17).max_iters(20_000);
    for ranks in RANKS {
        let (_, report) = solve(ranks, &matrix, (&b, &[0.0; 300]), &over(tight.clone()));
        assert_eq!(report.outcome.status, Status::Stagnated, "{ranks} ranks");
        let options = over(tight.clone().floor(4.0));
        let (_, report) = solve(ranks, &matrix, (&b, &[0.0; 300]), &options);
        assert_eq!(report.outcome.status, Status::Converged, "{ranks} ranks");
        assert!(report.outcome.accepted_by_floor);
    }
}

#[test]
fn zero_right_hand_sides_and_systems_without_rows_need_no_iterations() {
    for ranks in [1, 2, 5] {
        let matrix = laplace(Stencil::Point3, &[6]).unwrap();
        let (x, report) = solve(ranks, &matrix, (&[0.0; 6], &[3.0; 6]), &over(of(Method::Cg)));
        assert_eq!((x, report.outcome.iterations), (vec![0.0; 6], 0));
        assert_eq!(report.outcome.relative_residual(), 0.0);
        let empty = Csr::<f64>::zeros(0, 0).unwrap();
        let (x, report) = solve(ranks, &empty, (&[], &[]), &over(SolveOptions::new()));
        assert_eq!((x.len(), report.outcome.status), (0, Status::Converged));
        let ilu = over(of(Method::Cg).preconditioner(Preconditioner::ILU0));
        assert!(solve(ranks, &empty, (&[], &[]), &ilu).1.converged());
    }
}

#[test]
fn a_guess_is_kept_where_it_is_better() {
    let matrix = laplace(Stencil::Point3, &[50]).unwrap();
    let exact: Vec<f64> = random_vector(50, 12);
    let mut b = vec![0.0; 50];
    sparsebatch_cpu_ref::seq::spmv(1.0, matrix.view(), &exact, 0.0, &mut b).unwrap();
    let guess: Vec<f64> = exact.iter().map(|x| x * (1.0 + 1e-7)).collect();
    for ranks in RANKS {
        let (x, report) = solve(ranks, &matrix, (&b, &guess), &over(of(Method::Cg)));
        assert!(report.converged() && report.outcome.iterations <= 100);
        assert!(x.iter().zip(&exact).all(|(x, exact)| (x - exact).abs() < 1e-7));
        // BiCGStab cannot finish in one iteration, and does not get better.
        let one = over(of(Method::BiCgStab).max_iters(1).preconditioner(Preconditioner::None));
        let (x, report) = solve(ranks, &matrix, (&b, &guess), &one);
        assert_eq!(report.outcome.status, Status::MaxIterations);
        let before = relative_residual(&matrix, &b, &guess);
        assert!(relative_residual(&matrix, &b, &x) <= before);
    }
}

#[test]
fn single_precision_converges_to_its_tolerance() {
    let matrix = laplace(Stencil::Point5, &[15, 15]).unwrap();
    let single: Csr<f32> = matrix.cast();
    let b: Vec<f32> = random_vector(225, 13);
    for ranks in RANKS {
        let (_, report) = solve(ranks, &single, (&b, &[0.0; 225]), &over(of(Method::Cg)));
        assert!(report.converged() && report.outcome.relative_residual() <= 1e-5);
    }
}

#[test]
fn operators_and_preconditioners_of_the_caller_solve() {
    let matrix = laplace(Stencil::Point5, &[12, 12]).unwrap();
    let b: Vec<f64> = random_vector(144, 14);
    for size in RANKS {
        let parts = Partition::even(144, size);
        let shares = Ranks::on_threads(size, |ranks| {
            let options = MatrixOptions::new();
            let mut own =
                DistributedMatrix::from_matrix(ranks, &matrix, &parts, &parts, &options).unwrap();
            let b = parts.share(ranks.rank(), &b);
            let mut quarter = |r: &[f64], z: &mut [f64]| -> Result<(), OperatorError> {
                z.iter_mut().zip(r).for_each(|(z, r)| *z = 0.25 * r);
                Ok(())
            };
            let cg = over(of(Method::Cg));
            let (mut x, mut again) = (vec![0.0; b.len()], vec![0.0; b.len()]);
            let by_matrix = own.solve_preconditioned(&mut quarter, &b, &mut x, &cg).unwrap();
            let by_operator = solve_distributed_operator(
                ranks,
                &mut own,
                Some(&mut quarter),
                &b,
                &mut again,
                &cg,
            );
            let by_operator = by_operator.unwrap();
            assert!(by_matrix.converged() && by_operator.converged());
            assert_eq!(by_matrix.outcome.iterations, by_operator.outcome.iterations);
            assert_eq!(x, again);
            let plain = over(of(Method::BiCgStab));
            let mut x = vec![0.0; b.len()];
            assert!(
                solve_distributed_operator(ranks, &mut own, None, &b, &mut x, &plain)
                    .unwrap()
                    .converged()
            );
            x
        });
        assert!(relative_residual(&matrix, &b, &shares.concat()) < 1e-9);
    }
}

#[test]
fn an_operator_that_fails_on_one_rank_ends_all() {
    let matrix = laplace(Stencil::Point3, &[30]).unwrap();
    let parts = Partition::even(30, 3);
    let errors = Ranks::on_threads(3, |ranks| {
        let options = MatrixOptions::new();
        let mut own =
            DistributedMatrix::from_matrix(ranks, &matrix, &parts, &parts, &options).unwrap();
        let mut calls = 0;
        let mut failing = |r: &[f64], z: &mut [f64]| -> Result<(), OperatorError> {
            calls += 1;
            z.copy_from_slice(r);
            if ranks.rank() == 1 && calls == 4 { Err("no more".into()) } else { Ok(()) }
        };
        let (b, mut x) = ([1.0; 10], [0.0; 10]);
        let cg = over(of(Method::Cg));
        let plain = own.solve_preconditioned(&mut failing, &b, &mut x, &cg).unwrap_err();
        calls = 0;
        let mut failing = |r: &[f64], z: &mut [f64]| -> Result<(), OperatorError> {
            calls += 1;
            z.copy_from_slice(r);
            if ranks.rank() == 1 && calls == 4 { Err("no more".into()) } else { Ok(()) }
        };
        let piped = cg.pipelined(true);
        let piped = own.solve_preconditioned(&mut failing, &b, &mut x, &piped).unwrap_err();
        [plain.to_string(), piped.to_string()]
    });
    let line = "rank 1 on this host: an operator of the caller failed: no more";
    assert!(errors.iter().flatten().all(|error| error == line), "{errors:?}");
}

#[test]
fn a_watch_of_one_rank_stops_all() {
    let matrix = laplace(Stencil::Point3, &[3000]).unwrap();
    let parts = Partition::even(3000, 3);
    let errors = Ranks::on_threads(3, |ranks| {
        let options = MatrixOptions::new();
        let mut own =
            DistributedMatrix::from_matrix(ranks, &matrix, &parts, &parts, &options).unwrap();
        let watch = Watch::new();
        if ranks.rank() == 2 {
            watch.stop();
        }
        let endless = of(Method::Cg).rel_tol(0.0).max_iters(u32::MAX).watch(watch);
        let error = own.solve(&[1.0; 1000], &mut [0.0; 1000], &over(endless)).unwrap_err();
        error.to_string()
    });
    let line = "rank 2 on this host: the solve was stopped: 0 of 1 systems had ended";
    assert!(errors.iter().all(|error| error == line), "{errors:?}");
}

/// The one error of all ranks.
fn refused(options: &DistributedOptions, matrix: &Csr<f64>) -> String {
    let (b, x) = (vec![1.0; matrix.nrows()], vec![0.0; matrix.nrows()]);
    let errors = solve_on(3, matrix, (&b, &x), options);
    let errors: Vec<MpiError> = errors.into_iter().map(|solved| solved.unwrap_err()).collect();
    assert!(errors.iter().all(|error| *error == errors[0] && error.exit_code() == 2));
    errors[0].to_string()
}

#[test]
fn what_ranks_cannot_do_is_refused_in_one_line() {
    let matrix = laplace(Stencil::Point3, &[9]).unwrap();
    let line = refused(&over(of(Method::Lu)), &matrix);
    assert!(line.starts_with("method is lu, expected cg or bicgstab over ranks"), "{line}");
    let line = refused(&over(of(Method::BiCgStab)).pipelined(true), &matrix);
    assert!(line.starts_with("pipelined is bicgstab, expected cg"), "{line}");
    let line = refused(&over(of(Method::Cg).nrhs(2)), &matrix);
    assert_eq!(line, "nrhs is 2, expected one right-hand side over ranks");
    let both = over(of(Method::Cg).preconditioner(Preconditioner::ILU0)).block_lu(true);
    let line = refused(&both, &matrix);
    assert_eq!(line, "preconditioner is ilu0, expected none beside LU of the blocks");
    let line = refused(&over(of(Method::Cg).abs_tol(-1.0)), &matrix);
    assert_eq!(line, "abs_tol is -1, expected a number that is not negative");
}

#[test]
fn a_matrix_that_is_not_square_is_not_solved_with() {
    let wide = Csr::<f64>::zeros(4, 6).unwrap();
    let square = laplace(Stencil::Point3, &[6]).unwrap();
    let errors = Ranks::on_threads(2, |ranks| {
        let (rows, columns) = (Partition::even(4, 2), Partition::even(6, 2));
        let options = MatrixOptions::new();
        let mut own =
            DistributedMatrix::from_matrix(ranks, &wide, &rows, &columns, &options).unwrap();
        let usual = over(of(Method::Cg));
        let wide = own.solve(&[1.0; 2], &mut [0.0; 2], &usual).unwrap_err();
        let rows = Partition::at(vec![0, 2, 6]).unwrap();
        let mut own =
            DistributedMatrix::from_matrix(ranks, &square, &rows, &columns, &options).unwrap();
        let len = own.own_rows();
        let parts = own.solve(&vec![1.0; len], &mut vec![0.0; len], &usual).unwrap_err();
        let mut own =
            DistributedMatrix::from_matrix(ranks, &square, &columns, &columns, &options).unwrap();
        let unequal = over(of(Method::Cg).max_iters(ranks.rank() as u32));
        let unequal = own.solve(&[1.0; 3], &mut [0.0; 3], &unequal).unwrap_err();
        let short = own.solve(&[1.0; 3], &mut [0.0; 2], &usual).unwrap_err();
        let given = over(of(Method::Cg).preconditioner(Preconditioner::Jacobi));
        let mut same = |r: &[f64], z: &mut [f64]| -> Result<(), OperatorError> {
            z.copy_from_slice(r);
            Ok(())
        };
        let (b, mut x) = ([1.0; 3], [0.0; 3]);
        let given = own.solve_preconditioned(&mut same, &b, &mut x, &given).unwrap_err();
        let floor = over(of(Method::Cg).floor(1.0));
        let floor =
            solve_distributed_operator(ranks, &mut same, None, &b, &mut x, &floor).unwrap_err();
        [wide, parts, unequal, short, given, floor].map(|error| error.to_string())
    });
    let expected = [
        "system 0 is 4 x 6, expected a square matrix",
        "the partition of columns is another, expected that of the rows, to solve",
        "rank 1 on this host: max_iters is 1, on rank 0 it is 0",
        "x has 2 entries, expected 3",
        "preconditioner is jacobi, expected none beside that of the caller",
        "floor is a rounding floor, expected none where A is an operator",
    ];
    assert!(errors.iter().all(|errors| errors == &expected), "{errors:?}");
}
