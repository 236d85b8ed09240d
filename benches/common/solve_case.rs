//! The systems that the solver bench solves, and the check of their answers.

use std::sync::Arc;

use sparsebatch_cpu_ref::seq;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchCsr, BatchValues, CsrPattern, Pattern};

/// Relative tolerance: `||b - A x||_2 <= REL_TOL * ||b||_2` ends a solve.
pub(crate) const REL_TOL: f64 = 1e-10;

/// Most iterations of a solve.
pub(crate) const MAX_ITERS: usize = 1000;

/// A uniform batch of one family with its right-hand sides, item-major.
pub(crate) struct SolveCase {
    /// Family and rows, e.g. `tri 128`.
    pub(crate) name: String,
    pub(crate) family: Family,
    pub(crate) nitems: usize,
    pub(crate) batch: Batch<f64>,
    pub(crate) rhs: Vec<f64>,
    wide_indices: (Vec<usize>, Vec<usize>),
}

/// The result of checking one solve of a batch against the tolerance.
pub(crate) struct Checked {
    /// The largest `||b - A x||_2 / ||b||_2`.
    pub(crate) max_relative_residual: f64,
    /// Number of systems at or under the tolerance.
    pub(crate) converged: usize,
}

impl SolveCase {
    pub(crate) fn new(family: Family, nrows: usize, nitems: usize) -> Self {
        let problem = Problem::new(family, nrows).expect("the sizes suit the families");
        let generated = problem.batch(nitems).expect("the batch fits in memory");
        let wide = |v: &[i32]| v.iter().map(|&i| i as usize).collect();
        let pattern = problem.pattern().view();
        Self {
            name: format!("{} {nrows}", family.name()),
            family,
            nitems,
            wide_indices: (wide(pattern.row_ptr()), wide(pattern.col_idx())),
            batch: generated.batch,
            rhs: generated.rhs,
        }
    }

    fn uniform(&self) -> &BatchCsr<f64> {
        match &self.batch {
            Batch::Uniform(batch) => batch,
            Batch::Ragged(_) => unreachable!("a problem makes uniform batches"),
        }
    }

    pub(crate) fn pattern(&self) -> &Arc<CsrPattern> {
        self.uniform().pattern()
    }

    pub(crate) fn nrows(&self) -> usize {
        self.pattern().nrows()
    }

    pub(crate) fn nnz(&self) -> usize {
        self.pattern().nnz()
    }

    /// The values, item-major.
    pub(crate) fn values(&self) -> &[f64] {
        match self.uniform().values() {
            BatchValues::ItemMajor(values) => values,
            _ => unreachable!("a problem makes item-major values"),
        }
    }

    /// Row offsets and columns of the pattern in the peers' index type; all systems share them.
    pub(crate) fn wide_indices(&self) -> (&[usize], &[usize]) {
        (&self.wide_indices.0, &self.wide_indices.1)
    }

    /// Recomputes the residual of every system with the reference products.
    pub(crate) fn check(&self, x: &[f64]) -> Checked {
        let mut r = self.rhs.clone();
        seq::batch_spmv(-1.0, self.uniform(), 1, x, 1.0, &mut r).expect("x fits the batch");
        let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let n = self.nrows();
        let systems = r.chunks_exact(n).zip(self.rhs.chunks_exact(n));
        let mut checked = Checked { max_relative_residual: 0.0, converged: 0 };
        for (r, b) in systems {
            let relative = norm(r) / norm(b);
            checked.converged += usize::from(relative <= REL_TOL);
            // `max` alone would lose a NaN.
            let worst = &mut checked.max_relative_residual;
            *worst = if relative.is_nan() { f64::INFINITY } else { worst.max(relative) };
        }
        checked
    }
}
