//! Solves with transposed matrices, and gradients against finite differences.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::{Batch, BatchValues, Csr, Pattern, UniformBatch};
use sparsebatch_solvers::{
    AdjointSolver, Backend, BatchReport, BatchSolver, Gpu, Method, Preconditioner, SolveError,
    SolveOptions, SolveScalar, Status, solve, value_gradient,
};
use sparsebatch_testing::random_vector;

use crate::backends::common::{patterns, ragged, rhs};

/// An unsymmetric, diagonally dominant matrix of `n` rows; its pattern is unsymmetric, too.
fn matrix<T: SolveScalar>(n: usize, seed: usize) -> Csr<T> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n {
        for col in 0..n {
            let is_entry = row == col || col == row + 1 || col + 2 == row;
            if is_entry {
                let off = 0.1 + ((3 * row + 7 * col + seed) % 11) as f64 / 20.0;
                col_idx.push(col as i32);
                values.push(T::from_f64(if row == col { 4.0 + seed as f64 } else { off - 0.3 }));
            }
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

/// The same matrices in every layout in which a batch may have them.
fn layouts<T: SolveScalar>(n: usize, items: usize) -> Vec<Batch<T>> {
    let matrices: Vec<Csr<T>> = (0..items).map(|item| matrix(n, item)).collect();
    let pattern = matrices[0].pattern().clone();
    let nnz = matrices[0].nnz();
    let item_major: Vec<T> = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
    let interleaved =
        (0..nnz * items).map(|k| item_major[k % items * nnz + k / items]).collect::<Vec<T>>();
    let of = |values| UniformBatch::try_new(pattern.clone(), items, values).unwrap();
    vec![
        Batch::Uniform(of(BatchValues::ItemMajor(item_major))),
        Batch::Uniform(of(BatchValues::Interleaved(interleaved))),
        Batch::Uniform(UniformBatch::shared(matrices[0].clone(), items)),
        ragged(matrices),
    ]
}

fn methods() -> [SolveOptions; 4] {
    let of = |method, preconditioner| {
        SolveOptions::new().method(method).preconditioner(preconditioner).fallback(false)
    };
    [
        SolveOptions::new(),
        of(Method::BiCgStab, Preconditioner::None),
        of(Method::BiCgStab, Preconditioner::ILU0),
        of(Method::Lu, Preconditioner::Auto),
    ]
}

/// The largest entry of `g - A^T lambda`.
fn residual<T: SolveScalar>(batch: &Batch<T>, nrhs: usize, g: &[T], lambda: &[T]) -> f64 {
    let mut worst = 0.0f64;
    for item in 0..batch.nitems() {
        let (matrix, n) = (batch.to_csr(item), batch.pattern(item).nrows());
        for rhs in 0..nrhs {
            let start = batch.row_offset(item) * nrhs + rhs * n;
            let mut r: Vec<f64> = g[start..start + n].iter().map(|g| g.to_f64()).collect();
            for row in 0..n {
                for k in matrix.pattern().view().row(row) {
                    let col = matrix.pattern().col_idx()[k] as usize;
                    let product = matrix.values()[k].to_f64() * lambda[start + row].to_f64();
                    r[col] -= product;
                }
            }
            worst = r.iter().fold(worst, |worst, r| worst.max(r.abs()));
        }
    }
    worst
}

fn check<T: SolveScalar>(tolerance: f64) {
    let executor = Emulator::new(Order::Forward);
    for batch in layouts::<T>(12, 7).into_iter().chain([ragged(patterns::<T>(11))]) {
        for nrhs in [1, 3] {
            let g = rhs(&batch, nrhs);
            for options in methods() {
                let options = options.nrhs(nrhs);
                let gpu = Backend::Gpu(Gpu::new(executor.clone()).or_cpu(true));
                // Kernels of ragged batches are emulated in f64 alone.
                let is_emulated = T::NAME == "f64" || matches!(batch, Batch::Uniform(_));
                for backend in
                    [Some(Backend::Cpu), is_emulated.then_some(gpu)].into_iter().flatten()
                {
                    let mut adjoint =
                        AdjointSolver::on_executor(&backend, &batch, None, &options).unwrap();
                    let mut lambda = vec![T::ZERO; g.len()];
                    let report = adjoint.solve(&batch, &g, &mut lambda).unwrap();
                    assert!(report.all_converged(), "{options:?}");
                    assert!(residual(&batch, nrhs, &g, &lambda) < tolerance);
                    // With the matrices kept: the same bits, on a GPU up to rounding.
                    adjoint.factor(&batch).unwrap();
                    let mut again = vec![T::ZERO; g.len()];
                    assert!(adjoint.solve_again(&g, &mut again).unwrap().all_converged());
                    match backend {
                        Backend::Cpu => assert_eq!(again, lambda),
                        _ => assert!(residual(&batch, nrhs, &g, &again) < tolerance),
                    }
                    check_both_sides(&backend, &batch, &options, &g, tolerance);
                }
            }
        }
    }
}

/// Solves with kept matrices and with the transposed ones in turn, before and after a change of
/// values.
fn check_both_sides<T: SolveScalar>(
    backend: &Backend<Emulator>,
    batch: &Batch<T>,
    options: &SolveOptions,
    g: &[T],
    tolerance: f64,
) {
    let nrhs = options.nrhs;
    let mut solver = BatchSolver::on_executor(backend, batch, None, options).unwrap();
    let mut other = batch.clone();
    match &mut other {
        Batch::Uniform(uniform) => uniform.values_mut().iter_mut().for_each(|v| *v += *v),
        Batch::Ragged(ragged) => ragged.values_mut().iter_mut().for_each(|v| *v += *v),
    }
    for batch in [batch, &other] {
        solver.factor(batch).unwrap();
        for _ in 0..2 {
            let (mut x, mut lambda) = (vec![T::ZERO; g.len()], vec![T::ZERO; g.len()]);
            assert!(solver.solve_transposed_again(g, &mut lambda).unwrap().all_converged());
            assert!(residual(batch, nrhs, g, &lambda) < tolerance, "{options:?}");
            assert!(solver.solve_again(g, &mut x).unwrap().all_converged());
            // The adjoint identity: g' A^-1 g = (A^-T g)' g, over all systems.
            let dot = |v: &[T]| v.iter().zip(g).map(|(v, g)| v.to_f64() * g.to_f64()).sum::<f64>();
            let (of_x, of_lambda) = (dot(&x), dot(&lambda));
            assert!((of_x - of_lambda).abs() < tolerance * of_x.abs().max(1.0), "{options:?}");
        }
    }
}

#[test]
fn factors_serve_transposed_systems_and_failing_ones_climb() {
    let mut matrices: Vec<Csr<f64>> = (0..9).map(|item| matrix(12, item)).collect();
    matrices[2].values_mut().fill(0.0);
    matrices[5].values_mut()[0] = f64::NAN;
    // No pivot without a permutation: the first diagonal entry is 0.
    matrices[7].values_mut()[0] = 0.0;
    let batch = ragged(matrices);
    let g = rhs(&batch, 1);
    for fallback in [false, true] {
        let options = SolveOptions::new().method(Method::Lu).fallback(fallback);
        let mut solver = BatchSolver::new(&batch, &options).unwrap();
        solver.factor(&batch).unwrap();
        let mut lambda = vec![0.5; g.len()];
        let report = solver.solve_transposed_again(&g, &mut lambda).unwrap();

        let mut adjoint = AdjointSolver::on(&Backend::Cpu, &batch, &options).unwrap();
        let mut expected = vec![0.5; g.len()];
        let of_adjoint = adjoint.solve(&batch, &g, &mut expected).unwrap();
        let statuses = |report: &BatchReport| -> Vec<Status> {
            report.systems.iter().map(|system| system.outcome.status).collect()
        };
        assert_eq!(statuses(&report), statuses(&of_adjoint), "{fallback}");
        assert_eq!(report.systems[5].outcome.status, Status::NonFinite);
        let differs = |(x, y): (&f64, &f64)| (x - y).abs() > 1e-9 * (1.0 + y.abs());
        assert!(!lambda.iter().zip(&expected).any(differs), "{fallback}");
    }
    let mut solver = BatchSolver::new(&batch, &SolveOptions::new()).unwrap();
    let error = solver.solve_transposed_again(&g, &mut vec![0.0; g.len()]).unwrap_err();
    assert!(matches!(error, SolveError::NotFactored), "{error}");
    solver.factor(&batch).unwrap();
    let short = solver.solve_transposed_again(&g[1..], &mut vec![0.0; g.len()]).unwrap_err();
    assert!(matches!(short, SolveError::Argument(_)), "{short}");
}

#[test]
fn transposed_systems_are_solved_by_every_method() {
    check::<f64>(1e-8);
    check::<f32>(1e-3);
}

#[test]
fn values_follow_those_of_the_batch() {
    let first = layouts::<f64>(6, 3).remove(0);
    let Batch::Uniform(uniform) = &first else { unreachable!() };
    let mut doubled = uniform.clone();
    doubled.values_mut().iter_mut().for_each(|value| *value *= 2.0);
    let doubled = Batch::Uniform(doubled);
    let g = rhs(&first, 1);
    let options = SolveOptions::new().method(Method::Lu);
    let mut adjoint = AdjointSolver::on(&Backend::Cpu, &first, &options).unwrap();
    let (mut one, mut half) = (vec![0.0; g.len()], vec![0.0; g.len()]);
    adjoint.solve(&first, &g, &mut one).unwrap();
    adjoint.solve(&doubled, &g, &mut half).unwrap();
    assert_eq!(half.iter().map(|x| 2.0 * x).collect::<Vec<f64>>(), one);
}

/// A loss of all solutions: the sum of `w x`.
fn loss(batch: &Batch<f64>, nrhs: usize, b: &[f64], w: &[f64]) -> f64 {
    let options = SolveOptions::new().method(Method::Lu).nrhs(nrhs).rel_tol(1e-14);
    let x = solve(batch, b, None, &options).unwrap().x;
    x.iter().zip(w).map(|(x, w)| x * w).sum()
}

fn changed(batch: &Batch<f64>, value: usize, by: f64) -> Batch<f64> {
    let mut batch = batch.clone();
    match &mut batch {
        Batch::Uniform(uniform) => uniform.values_mut()[value] += by,
        Batch::Ragged(ragged) => ragged.values_mut()[value] += by,
    }
    batch
}

#[test]
fn gradients_agree_with_finite_differences() {
    for batch in layouts::<f64>(5, 4).into_iter().chain([ragged(patterns(6))]) {
        for nrhs in [1, 2] {
            let b = rhs(&batch, nrhs);
            let w: Vec<f64> = random_vector(b.len(), 5);
            let options = SolveOptions::new().method(Method::Lu).nrhs(nrhs).rel_tol(1e-14);
            let x = solve(&batch, &b, None, &options).unwrap().x;
            let mut adjoint = AdjointSolver::on(&Backend::Cpu, &batch, &options).unwrap();
            let mut lambda = vec![0.0; b.len()];
            adjoint.solve(&batch, &w, &mut lambda).unwrap();
            let values = match &batch {
                Batch::Uniform(uniform) => uniform.clone().values_mut().len(),
                Batch::Ragged(ragged) => ragged.total_nnz(),
            };
            let mut gradient = vec![f64::NAN; values];
            value_gradient(&batch, nrhs, &lambda, &x, &mut gradient).unwrap();

            const STEP: f64 = 1e-5;
            for (value, &found) in gradient.iter().enumerate() {
                let at = |by| loss(&changed(&batch, value, by), nrhs, &b, &w);
                let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
                let close = (found - difference).abs() < 1e-7 * (1.0 + found.abs());
                assert!(close, "{value}: {found}, {difference}");
            }
            for (row, &found) in lambda.iter().enumerate() {
                let at = |by: f64| {
                    let mut b = b.clone();
                    b[row] += by;
                    loss(&batch, nrhs, &b, &w)
                };
                let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
                assert!((found - difference).abs() < 1e-7 * (1.0 + found.abs()));
            }
        }
    }
}

#[test]
fn gradients_do_not_depend_on_threads_and_tell_what_was_not_solved() {
    let shared = Batch::Uniform(UniformBatch::shared(matrix::<f64>(8, 1), 1000));
    let (lambda, x) = (rhs(&shared, 2), random_vector::<f64>(16_000, 3));
    let nnz = shared.pattern(0).nnz();
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut gradient = vec![0.0; nnz];
        pool.install(|| value_gradient(&shared, 2, &lambda, &x, &mut gradient)).unwrap();
        gradient
    };
    assert_eq!(with(1), with(4));
    let mut poisoned = lambda.clone();
    poisoned[16 * 500] = f64::NAN;
    let mut gradient = vec![0.0; nnz];
    value_gradient(&shared, 2, &poisoned, &x, &mut gradient).unwrap();
    let first_row = shared.pattern(0).row(0);
    assert!(gradient[first_row.clone()].iter().all(|g| g.is_nan()));
    assert!(gradient[first_row.end..].iter().all(|g| g.is_finite()));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let all = layouts::<f64>(4, 3);
    let options = SolveOptions::new();
    let mut adjoint = AdjointSolver::on(&Backend::Cpu, &all[0], &options).unwrap();
    let mut lambda = vec![0.5; 12];
    for other in &all[1..] {
        let error = adjoint.solve(other, &[1.0; 12], &mut lambda).unwrap_err();
        assert!(error.to_string().contains("as the batch analysed"), "{error}");
        assert!(adjoint.factor(other).is_err());
    }
    let fewer = layouts::<f64>(4, 2).remove(0);
    let error = adjoint.solve(&fewer, &[1.0; 8], &mut lambda[..8]).unwrap_err();
    assert_eq!(error.to_string(), "items of the batch has 2 entries, expected 3");
    let error = adjoint.solve(&all[0], &[1.0; 11], &mut lambda).unwrap_err();
    assert_eq!(error.to_string(), "b has 11 entries, expected 12");
    let mut of_ragged = AdjointSolver::on(&Backend::Cpu, &all[3], &options).unwrap();
    let other: Batch<f64> = ragged([matrix(4, 0), matrix(3, 1), matrix(4, 2)]);
    assert!(of_ragged.solve(&other, &[1.0; 11], &mut lambda[..11]).is_err());
    assert_eq!(lambda, [0.5; 12]);

    // Another pattern with as many entries.
    let of = |columns: Vec<i32>, row_ptr| {
        Batch::from(Csr::try_new(2, 2, row_ptr, columns, vec![2.0, 1.0, 4.0]).unwrap())
    };
    let (upper, lower) = (of(vec![0, 1, 1], vec![0, 2, 3]), of(vec![0, 0, 1], vec![0, 1, 3]));
    for (analysed, other) in
        [(upper.clone(), lower.clone()), (ragged([upper.to_csr(0)]), ragged([lower.to_csr(0)]))]
    {
        let mut adjoint = AdjointSolver::on(&Backend::Cpu, &analysed, &options).unwrap();
        let error = adjoint.solve(&other, &[1.0; 2], &mut lambda[..2]).unwrap_err();
        assert!(error.to_string().contains("item 0 has another pattern"), "{error}");
        assert!(adjoint.factor(&other).is_err());
    }
    let wide = Csr::try_new(1, 2, vec![0, 2], vec![0, 1], vec![1.0, 1.0]).unwrap();
    let error = AdjointSolver::on(&Backend::Cpu, &Batch::from(wide), &options).err().unwrap();
    assert_eq!(error.to_string(), "system 0 is 1 x 2, expected a square matrix");
    assert_eq!(lambda, [0.5; 12]);

    let mut gradient = vec![7.0; all[0].pattern(0).nnz() * 3];
    for (lambda, x, len) in [(11, 12, 0), (12, 11, 0), (12, 12, 1)] {
        let gradient = &mut gradient[len..];
        let refused = value_gradient(&all[0], 1, &vec![0.0; lambda], &vec![0.0; x], gradient);
        assert!(refused.is_err());
    }
    assert!(gradient.iter().all(|&g| g == 7.0));
}
