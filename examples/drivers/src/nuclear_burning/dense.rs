//! Dense LU with partial pivoting of one small system, as codes without sparse solvers use it; here
//! for comparison.

use faer::Mat;
use faer::linalg::solvers::{PartialPivLu, Solve};
use sparsebatch::CsrPatternRef;

/// Systems of at least this many rows use faer, which blocks and vectorises; smaller ones are
/// faster in plain loops.
const LARGE: usize = 24;

/// The factors of one system, kept for the stages of a step.
pub(crate) struct DenseLu {
    nrows: usize,
    /// Row-major L (without its unit diagonal) and U.
    factors: Vec<f64>,
    /// For each elimination step k, the row exchanged with row k.
    pivots: Vec<usize>,
    blocked: Option<PartialPivLu<f64>>,
    singular: bool,
}

impl DenseLu {
    pub(crate) fn new(nrows: usize) -> Self {
        let (factors, pivots) = (vec![0.0; nrows * nrows], vec![0; nrows]);
        Self { nrows, factors, pivots, blocked: None, singular: true }
    }

    /// Factors a matrix.
    pub(crate) fn factor(&mut self, pattern: CsrPatternRef<'_>, values: &[f64]) {
        let n = self.nrows;
        if n >= LARGE {
            let mut matrix = Mat::zeros(n, n);
            for row in 0..n {
                for k in pattern.row(row) {
                    matrix[(row, pattern.col_idx()[k] as usize)] = values[k];
                }
            }
            self.blocked = Some(matrix.partial_piv_lu());
            self.singular = false;
            return;
        }
        self.factors.fill(0.0);
        for row in 0..n {
            for k in pattern.row(row) {
                self.factors[row * n + pattern.col_idx()[k] as usize] = values[k];
            }
        }
        self.singular = !self.eliminate();
    }

    fn eliminate(&mut self) -> bool {
        let n = self.nrows;
        for k in 0..n {
            let size = |row: usize| self.factors[row * n + k].abs();
            let pivot = (k..n).fold(k, |best, row| if size(row) > size(best) { row } else { best });
            self.pivots[k] = pivot;
            // NaN does not count as a pivot either.
            let is_pivot = size(pivot) > 0.0;
            if !is_pivot {
                return false;
            }
            if pivot != k {
                for column in 0..n {
                    self.factors.swap(k * n + column, pivot * n + column);
                }
            }
            let (above, below) = self.factors.split_at_mut((k + 1) * n);
            let pivot_row = &above[k * n..];
            for row in below.chunks_exact_mut(n) {
                let factor = row[k] / pivot_row[k];
                row[k] = factor;
                for (value, &above) in row[k + 1..].iter_mut().zip(&pivot_row[k + 1..]) {
                    *value -= factor * above;
                }
            }
        }
        true
    }

    /// Solves with the factors; returns whether the solution is finite.
    pub(crate) fn solve(&self, b: &[f64], x: &mut [f64]) -> bool {
        x.copy_from_slice(b);
        if self.singular {
            return b.iter().all(|&b| b == 0.0);
        }
        if let Some(blocked) = &self.blocked {
            blocked.solve_in_place(faer::MatMut::from_column_major_slice_mut(x, self.nrows, 1));
            return x.iter().all(|x| x.is_finite());
        }
        let n = self.nrows;
        for k in 0..n {
            x.swap(k, self.pivots[k]);
        }
        for row in 0..n {
            let sum: f64 = (0..row).map(|k| self.factors[row * n + k] * x[k]).sum();
            x[row] -= sum;
        }
        for row in (0..n).rev() {
            let sum: f64 = (row + 1..n).map(|k| self.factors[row * n + k] * x[k]).sum();
            x[row] = (x[row] - sum) / self.factors[row * n + row];
        }
        x.iter().all(|x| x.is_finite())
    }
}
