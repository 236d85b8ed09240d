//! Systems to solve, and bitwise comparisons of results.

use crate::common::one_step;
use sparsebatch_cpu_ref::seq;
use sparsebatch_formats::{Batch, BatchValues, Csr, CsrPattern, Scalar, UniformBatch};
use sparsebatch_solvers::{
    Engine, Method, Outcome, Preconditioner, Solution, SolveOptions, SolveScalar, SpmvOptions,
    Status,
};
use sparsebatch_testing::random_vector;

/// Both engines; the composed one has its default format and kernel.
pub(crate) fn engines() -> [Engine; 2] {
    [Engine::Fused, Engine::Composed(SpmvOptions::default())]
}

/// Every iterative method with every named preconditioner.
pub(crate) fn iterative() -> Vec<(Method, Preconditioner)> {
    let preconditioners = [
        Preconditioner::None,
        Preconditioner::Jacobi,
        Preconditioner::BLOCK_JACOBI,
        Preconditioner::ILU0,
        Preconditioner::IC0,
    ];
    [Method::Cg, Method::BiCgStab]
        .into_iter()
        .flat_map(|method| preconditioners.map(|preconditioner| (method, preconditioner)))
        .collect()
}

/// Options with a method and a preconditioner.
pub(crate) fn options(method: Method, preconditioner: Preconditioner) -> SolveOptions {
    one_step().method(method).preconditioner(preconditioner)
}

/// A matrix from dense rows; zeros are not stored.
pub(crate) fn dense<T: Scalar>(rows: &[&[f64]]) -> Csr<T> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in rows {
        for (col, &value) in row.iter().enumerate() {
            if value != 0.0 {
                col_idx.push(col as i32);
                values.push(T::from_f64(value));
            }
        }
        row_ptr.push(col_idx.len() as i32);
    }
    let ncols = rows.first().map_or(0, |row| row.len());
    Csr::try_new(rows.len(), ncols, row_ptr, col_idx, values).unwrap()
}

/// The tridiagonal matrix with the given constants below, on and above the diagonal.
pub(crate) fn tridiagonal(nrows: usize, below: f64, on: f64, above: f64) -> Csr<f64> {
    let rows: Vec<Vec<f64>> = (0..nrows)
        .map(|row| {
            let entry = |col: usize| match col as i64 - row as i64 {
                -1 => below,
                0 => on,
                1 => above,
                _ => 0.0,
            };
            (0..nrows).map(entry).collect()
        })
        .collect();
    dense(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Vectors rounded to another precision.
pub(crate) fn cast<T: Scalar>(v: &[f64]) -> Vec<T> {
    v.iter().map(|&v| T::from_f64(v)).collect()
}

/// `||b - A x||_2` in f64, by the sequential product.
pub(crate) fn residual_norm<T: SolveScalar>(a: &Csr<T>, b: &[T], x: &[T]) -> f64 {
    let wide = |v: &[T]| v.iter().map(|v| v.to_f64()).collect::<Vec<f64>>();
    let mut r = wide(b);
    seq::spmv(-1.0, a.cast::<f64>().view(), &wide(x), 1.0, &mut r).unwrap();
    r.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// `|| |A||x| + |b| ||_2` in f64: the rounding errors of a residual are a few eps of it.
pub(crate) fn magnitude<T: SolveScalar>(a: &Csr<T>, b: &[T], x: &[T]) -> f64 {
    let mut sum = 0.0;
    for (row, b) in b.iter().enumerate() {
        let products = a.view().pattern().row(row).map(|k| {
            let col = a.view().pattern().col_idx()[k] as usize;
            (a.values()[k].to_f64() * x[col].to_f64()).abs()
        });
        let size = products.sum::<f64>() + b.to_f64().abs();
        sum += size * size;
    }
    sum.sqrt()
}

/// The kind of a system's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Symmetric, strictly diagonally dominant.
    Spd,
    /// Nonsymmetric, strictly diagonally dominant.
    Dominant,
    /// Symmetric and nearly singular: takes many iterations.
    Slow,
    /// Arbitrary values in [-1, 1).
    Wild,
    /// Skew-symmetric, with zero diagonal: BiCGStab breaks down.
    Skew,
    /// All zero.
    Zero,
    /// One NaN.
    Nan,
    /// One infinity.
    Infinite,
    /// Products overflow.
    Huge,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Spd,
        Self::Dominant,
        Self::Slow,
        Self::Wild,
        Self::Skew,
        Self::Zero,
        Self::Nan,
        Self::Infinite,
        Self::Huge,
    ];
}

/// A structurally symmetric pattern with a full diagonal and about a third of all other entries.
pub(crate) fn pattern(nrows: usize, seed: u64) -> CsrPattern {
    let draws = random_vector::<f64>(nrows * nrows, seed);
    let stored =
        |row: usize, col: usize| row == col || draws[row.min(col) * nrows + row.max(col)] > 0.3;
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for row in 0..nrows {
        col_idx.extend((0..nrows).filter(|&col| stored(row, col)).map(|col| col as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(nrows, nrows, row_ptr, col_idx).unwrap()
}

/// A matrix of a given kind on a [`pattern`].
pub(crate) fn matrix(pattern: &CsrPattern, kind: Kind, seed: u64) -> Csr<f64> {
    use sparsebatch_formats::Pattern;
    let view = pattern.view();
    let nrows = view.nrows();
    let draws = random_vector::<f64>(nrows * nrows, seed);
    let mut values = Vec::new();
    for row in 0..nrows {
        let mut sum = 0.0;
        let (start, mut diagonal) = (values.len(), 0);
        for k in view.row(row) {
            let col = view.col_idx()[k] as usize;
            let symmetric = draws[row.min(col) * nrows + row.max(col)];
            let value = match kind {
                Kind::Spd => symmetric,
                Kind::Slow => -symmetric.abs(),
                Kind::Skew if row > col => -symmetric,
                Kind::Skew if row == col => 0.0,
                Kind::Skew => symmetric,
                Kind::Zero => 0.0,
                _ => draws[row * nrows + col],
            };
            if row == col {
                diagonal = values.len();
            } else {
                sum += value.abs();
            }
            values.push(value);
        }
        match kind {
            Kind::Spd | Kind::Dominant | Kind::Nan | Kind::Infinite | Kind::Huge => {
                values[diagonal] = 1.05 * sum + 0.1;
            }
            Kind::Slow => values[diagonal] = sum * (1.0 + 1e-7) + 1e-9,
            Kind::Wild | Kind::Skew | Kind::Zero => {}
        }
        if kind == Kind::Huge {
            values[start..].iter_mut().for_each(|v| *v *= 1e307);
        }
    }
    let spot = seed as usize % values.len().max(1);
    match kind {
        Kind::Nan if !values.is_empty() => values[spot] = f64::NAN,
        Kind::Infinite if !values.is_empty() => values[spot] = f64::NEG_INFINITY,
        _ => {}
    }
    let (row_ptr, col_idx) = (view.row_ptr().to_vec(), view.col_idx().to_vec());
    Csr::try_new(nrows, nrows, row_ptr, col_idx, values).unwrap()
}

/// A uniform batch, item-major, of matrices with equal patterns.
pub(crate) fn uniform<T: Scalar>(matrices: &[Csr<T>]) -> UniformBatch<CsrPattern, T> {
    let values = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
    let pattern = matrices[0].pattern().clone();
    UniformBatch::try_new(pattern, matrices.len(), BatchValues::ItemMajor(values)).unwrap()
}

/// A ragged batch.
pub(crate) fn ragged<T: Scalar>(matrices: &[Csr<T>]) -> Batch<T> {
    matrices.iter().cloned().collect()
}

/// One system's result; all NaN are equal. Comparing two compares every bit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bits {
    status: Status,
    iterations: u32,
    restarts: u32,
    floor: bool,
    residual: u64,
    rhs: u64,
    history: Vec<u64>,
    x: Vec<u64>,
}

fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN } else { value }.to_bits()
}

impl Bits {
    pub(crate) fn new<T: Scalar>(outcome: &Outcome, x: &[T]) -> Self {
        Self {
            status: outcome.status,
            iterations: outcome.iterations,
            restarts: outcome.restarts,
            floor: outcome.accepted_by_floor,
            residual: bits(outcome.residual_norm),
            rhs: bits(outcome.rhs_norm),
            history: outcome.history.iter().map(|&v| bits(v)).collect(),
            x: x.iter().map(|v| bits(v.to_f64())).collect(),
        }
    }

    /// The results of all systems of a solution, given the rows of each.
    pub(crate) fn all<T: Scalar>(solution: &Solution<T>, rows: &[usize]) -> Vec<Self> {
        let mut start = 0;
        let systems = solution.report.systems.iter().zip(rows);
        systems
            .map(|(system, &rows)| {
                let x = &solution.x[start..start + rows];
                start += rows;
                Self::new(&system.outcome, x)
            })
            .collect()
    }
}

/// Solves a dense system by Gaussian elimination with partial pivoting.
pub(crate) fn dense_solve(a: &Csr<f64>, b: &[f64]) -> Vec<f64> {
    let n = a.nrows();
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|row| {
            let mut dense = vec![0.0; n];
            for k in a.view().pattern().row(row) {
                dense[a.view().pattern().col_idx()[k] as usize] = a.values()[k];
            }
            dense.push(b[row]);
            dense
        })
        .collect();
    for col in 0..n {
        let pivot =
            (col..n).max_by(|&i, &j| rows[i][col].abs().total_cmp(&rows[j][col].abs())).unwrap();
        rows.swap(col, pivot);
        for row in col + 1..n {
            let factor = rows[row][col] / rows[col][col];
            let pivot_row = rows[col].clone();
            for (entry, pivot) in rows[row].iter_mut().zip(&pivot_row).skip(col) {
                *entry -= factor * pivot;
            }
        }
    }
    let mut x = vec![0.0; n];
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|k| rows[row][k] * x[k]).sum();
        x[row] = (rows[row][n] - known) / rows[row][row];
    }
    x
}
