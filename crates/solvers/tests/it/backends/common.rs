//! Batches, and the same solve on the CPU and on the emulated GPU.

use crate::common::one_step;
use kernel_emu::Emulator;
use sparsebatch_formats::{Batch, Csr, Scalar};
use sparsebatch_solvers::{
    Backend, Gpu, InnerPrecision, Method, Preconditioner, Solution, SolveOptions, SolveScalar,
    Status, solve_on_executor,
};
use sparsebatch_testing::random_vector;

/// A tridiagonal matrix of `n` rows with `diagonal` on the diagonal and -1 beside it.
pub(crate) fn chain<T: Scalar>(n: usize, diagonal: f64) -> Csr<T> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n {
        for col in row.saturating_sub(1)..(row + 2).min(n) {
            col_idx.push(col as i32);
            values.push(T::from_f64(if row == col { diagonal } else { -1.0 }));
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

/// A dense matrix with `diagonal` on the diagonal and -0.5 elsewhere.
pub(crate) fn dense<T: Scalar>(n: usize, diagonal: f64) -> Csr<T> {
    let row_ptr = (0..=n).map(|row| (row * n) as i32).collect();
    let col_idx = (0..n * n).map(|k| (k % n) as i32).collect();
    let entry = |k: usize| if k / n == k % n { diagonal } else { -0.5 };
    let values = (0..n * n).map(|k| T::from_f64(entry(k))).collect();
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

/// Healthy systems of five patterns in turn.
pub(crate) fn patterns<T: Scalar>(items: usize) -> Vec<Csr<T>> {
    let of = |item: usize| {
        let diagonal = 2.5 + 0.1 * (item / 5) as f64;
        match item % 5 {
            0 => chain(5, diagonal),
            1 => dense(6, diagonal + 2.0),
            2 => chain(12, diagonal),
            3 => chain(1, diagonal),
            _ => dense(3, diagonal),
        }
    };
    (0..items).map(of).collect()
}

pub(crate) fn ragged<T: Scalar>(matrices: impl IntoIterator<Item = Csr<T>>) -> Batch<T> {
    matrices.into_iter().collect()
}

/// Right-hand sides for every row of a batch.
pub(crate) fn rhs<T: Scalar>(batch: &Batch<T>, nrhs: usize) -> Vec<T> {
    random_vector(batch.row_offset(batch.nitems()) * nrhs, 17)
}

/// CG with Jacobi and default options.
pub(crate) fn cg() -> SolveOptions {
    let (method, preconditioner) = (Method::Cg, Preconditioner::Jacobi);
    one_step().method(method).preconditioner(preconditioner)
}

pub(crate) fn gpu(executor: &Emulator) -> Backend<Emulator> {
    Backend::Gpu(Gpu::new(executor.clone()))
}

/// The GPU, and the CPU for what it cannot do.
pub(crate) fn gpu_or_cpu(executor: &Emulator) -> Backend<Emulator> {
    Backend::Gpu(Gpu::new(executor.clone()).or_cpu(true))
}

pub(crate) const CPU: Backend<Emulator> = Backend::Cpu;

/// Every bit of a system's result; all NaN are equal.
pub(crate) fn bits<T: Scalar>(
    batch: &Batch<T>,
    solution: &Solution<T>,
    nrhs: usize,
    system: usize,
) -> (Status, u32, u32, bool, Vec<u64>) {
    let bits = |v: f64| if v.is_nan() { f64::NAN } else { v }.to_bits();
    let o = &solution.report.systems[system].outcome;
    let mut numbers = vec![bits(o.residual_norm), bits(o.rhs_norm)];
    let rows = rows(batch, nrhs, system);
    numbers.extend(solution.x[rows].iter().map(|v| bits(v.to_f64())));
    (o.status, o.iterations, o.restarts, o.accepted_by_floor, numbers)
}

/// The rows of a system in item-major vectors.
pub(crate) fn rows<T: Scalar>(
    batch: &Batch<T>,
    nrhs: usize,
    system: usize,
) -> std::ops::Range<usize> {
    let (item, rhs) = (system / nrhs, system % nrhs);
    let n = batch.pattern(item).nrows();
    let first = batch.row_offset(item) * nrhs + rhs * n;
    first..first + n
}

/// `||b - A x||_2`, in f64.
fn residual<T: Scalar>(batch: &Batch<T>, nrhs: usize, b: &[T], x: &[T], system: usize) -> f64 {
    let (pattern, rows) = (batch.pattern(system / nrhs), rows(batch, nrhs, system));
    let (b, x) = (&b[rows.clone()], &x[rows]);
    let mut copy = Vec::new();
    let values = batch.values_in(system / nrhs, &mut copy);
    let square = |row: usize| {
        let products = pattern
            .row(row)
            .map(|k| values[k].to_f64() * x[pattern.col_idx()[k] as usize].to_f64());
        (b[row].to_f64() - products.sum::<f64>()).powi(2)
    };
    (0..pattern.nrows()).map(square).sum::<f64>().sqrt()
}

/// Solves on both backends and compares: equal statuses and rungs, iterations within 10 % (or 2;
/// within 20 % where the GPU iterates in f32 within f64), residuals as reported and within the
/// tolerance. Returns the GPU's solution.
pub(crate) fn agree<T: SolveScalar>(
    what: &str,
    backend: &Backend<Emulator>,
    batch: &Batch<T>,
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> Solution<T> {
    let on = |backend| solve_on_executor(backend, batch, b, x0, options).unwrap();
    let (gpu, cpu) = (on(backend), on(&CPU));
    let criteria = options.criteria::<T>(batch.nitems() * options.nrhs).unwrap();
    assert_eq!(gpu.report.systems.len(), cpu.report.systems.len(), "{what}");
    let is_mixed = options.inner_precision == InnerPrecision::Auto
        && T::CPP == "double"
        && gpu.report.kernel.contains("f32 inner");
    let share = if is_mixed { 0.2 } else { 0.1 };
    for (system, (g, c)) in gpu.report.systems.iter().zip(&cpu.report.systems).enumerate() {
        let what = format!("{what}, system {system}: {g:?} {c:?}");
        assert_eq!((g.outcome.status, g.rung), (c.outcome.status, c.rung), "{what}");
        let (g, c) = (&g.outcome, &c.outcome);
        let close = (share * f64::from(c.iterations)).max(2.0);
        assert!((f64::from(g.iterations) - f64::from(c.iterations)).abs() <= close, "{what}");
        if g.status == Status::Converged {
            let found = residual(batch, options.nrhs, b, &gpu.x, system);
            let rounding = 1e3 * T::EPSILON.to_f64() * g.rhs_norm;
            assert!((found - g.residual_norm).abs() <= rounding + 1e-6 * found, "{what}: {found}");
            let threshold =
                criteria.abs_tol.get(system).max(criteria.rel_tol.get(system) * g.rhs_norm);
            assert!(g.accepted_by_floor || g.residual_norm <= threshold, "{what}");
        }
    }
    gpu
}
