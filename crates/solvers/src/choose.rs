//! Which method and preconditioner run first, and what the later rungs are.

use sparsebatch_cpu_ref::lanes::{LaneMethod, LanePreconditioner};
use sparsebatch_cpu_ref::symbolic::{FactorPattern, min_degree};
use sparsebatch_formats::{Batch, CsrPatternRef, Scalar};

use crate::{Method, Order, Preconditioner, SolveOptions};

/// One way of solving a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A method in lanes.
    Lanes(LaneMethod),
    /// LU with partial pivoting, system by system.
    PivotingLu,
}

/// A first step and the reason for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) method: Method,
    pub(crate) preconditioner: Preconditioner,
    pub(crate) reason: String,
}

/// `auto` takes the sparse LU when its factors hold at most this many times the entries of A: a
/// factorisation then costs about as much as a few products.
const MAX_FILL: f64 = 2.0;

/// ... and at most this many entries, so that the factors of a group stay in the caches.
const MAX_LU_ENTRIES: usize = 20_000;

/// Patterns that are looked at before `auto` decides; in larger ragged batches the first ones.
const MAX_PATTERNS: usize = 64;

/// Decides what `auto` stands for.
///
/// Rule: sparse LU where elimination in minimum-degree order fills in little (at most 2 entries
/// for one of A, 20,000 in all, in every pattern looked at) and no diagonal entry is missing; else
/// CG where every matrix is symmetric with a positive diagonal; else BiCGStab. The preconditioner
/// `auto` is Jacobi that takes 1 for zero diagonal entries.
pub(crate) fn choose<T: Scalar>(batch: &Batch<T>, options: &SolveOptions) -> Choice {
    let asked = || "asked for".to_owned();
    let (method, reason) = match options.method {
        Method::Auto if fills_little(batch) => {
            (Method::Lu, "elimination in minimum-degree order fills in little".to_owned())
        }
        Method::Auto if looks_positive(batch) => {
            (Method::Cg, "every matrix is symmetric with a positive diagonal".to_owned())
        }
        Method::Auto => (Method::BiCgStab, "not every matrix is symmetric".to_owned()),
        method => (method, asked()),
    };
    Choice { method, preconditioner: options.preconditioner, reason }
}

/// The step of a method with the preconditioner of the options.
pub(crate) fn step(choice: &Choice, options: &SolveOptions) -> Step {
    let min_degree = options.order == Order::MinDegree;
    let preconditioner = match choice.preconditioner {
        Preconditioner::Auto => LanePreconditioner::Jacobi { lenient: true },
        Preconditioner::None => LanePreconditioner::None,
        Preconditioner::Jacobi => LanePreconditioner::Jacobi { lenient: false },
        Preconditioner::BlockJacobi => LanePreconditioner::BlockJacobi { size: options.block_size },
        Preconditioner::Ilu0 => LanePreconditioner::Ilu0 { min_degree },
        Preconditioner::Ic0 => LanePreconditioner::Ic0 { min_degree },
    };
    Step::Lanes(match choice.method {
        Method::Cg => LaneMethod::Cg(preconditioner),
        Method::Lu => LaneMethod::Lu,
        Method::BiCgStab | Method::Auto => LaneMethod::BiCgStab(preconditioner),
    })
}

/// The rung of the stronger preconditioner.
pub(crate) const STRONGER: LaneMethod =
    LaneMethod::BiCgStab(LanePreconditioner::Ilu0 { min_degree: true });

fn fills_little<T: Scalar>(batch: &Batch<T>) -> bool {
    let patterns = match batch {
        Batch::Uniform(_) => batch.nitems().min(1),
        Batch::Ragged(_) => batch.nitems().min(MAX_PATTERNS),
    };
    patterns > 0 && (0..patterns).all(|item| little_fill(batch.pattern(item)))
}

fn little_fill(pattern: CsrPatternRef<'_>) -> bool {
    let limit = ((MAX_FILL * pattern.nnz() as f64) as usize).min(MAX_LU_ENTRIES);
    if pattern.nnz() > limit || (0..pattern.nrows()).any(|row| pattern.position(row, row).is_none())
    {
        return false;
    }
    let order = min_degree(pattern);
    order.is_ok_and(|order| FactorPattern::lu(pattern, Some(&order), limit).is_ok())
}

/// Whether every matrix is symmetric, value by value, with a positive diagonal.
fn looks_positive<T: Scalar>(batch: &Batch<T>) -> bool {
    use rayon::prelude::*;
    (0..batch.nitems()).into_par_iter().all(|item| {
        let pattern = batch.pattern(item);
        is_symmetric_positive(pattern, batch.values_in(item, &mut Vec::new()))
    })
}

fn is_symmetric_positive<T: Scalar>(pattern: CsrPatternRef<'_>, values: &[T]) -> bool {
    // The next entry of each row that a transposed entry has not been matched with: walking the
    // rows in order meets the columns of each row in order too.
    let mut next: Vec<usize> = pattern.row_ptr().iter().map(|&p| p as usize).collect();
    for row in 0..pattern.nrows() {
        let mut diagonal = false;
        for k in pattern.row(row) {
            let col = pattern.col_idx()[k] as usize;
            let mirror = next[col];
            let matches = mirror < pattern.row_ptr()[col + 1] as usize
                && pattern.col_idx()[mirror] as usize == row
                && values[mirror] == values[k];
            if !matches {
                return false;
            }
            next[col] += 1;
            if col == row {
                diagonal = values[k] > T::ZERO;
            }
        }
        if !diagonal {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::Csr;

    use super::*;

    fn dense(n: usize, values: Vec<f64>) -> Csr<f64> {
        let row_ptr = (0..=n).map(|r| (r * n) as i32).collect();
        let col_idx = (0..n * n).map(|k| (k % n) as i32).collect();
        Csr::try_new(n, n, row_ptr, col_idx, values).expect("valid")
    }

    fn symmetric_positive(matrix: &Csr<f64>) -> bool {
        is_symmetric_positive(matrix.view().pattern(), matrix.values())
    }

    #[test]
    fn symmetry_is_judged_value_by_value() {
        assert!(symmetric_positive(&dense(2, vec![2.0, 1.0, 1.0, 2.0])));
        assert!(!symmetric_positive(&dense(2, vec![2.0, 1.0, 1.5, 2.0])));
        assert!(!symmetric_positive(&dense(2, vec![2.0, f64::NAN, f64::NAN, 2.0])));
        assert!(!symmetric_positive(&dense(2, vec![2.0, 1.0, 1.0, -2.0])));
        let triangular = Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![1.0, 1.0, 1.0]);
        assert!(!symmetric_positive(&triangular.expect("valid")));
    }

    #[test]
    fn auto_takes_lu_for_a_tridiagonal_matrix() {
        let a = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![2.0, 1.0, 0.5, 2.0]);
        let batch = Batch::from(a.expect("valid"));

        let choice = choose(&batch, &SolveOptions::default());

        assert_eq!(choice.method, Method::Lu);
    }
}
