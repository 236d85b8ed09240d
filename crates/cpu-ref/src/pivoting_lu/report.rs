//! Result of a pivoting LU solve: a report, or the reason for its absence.

/// Why a system got no solution; `x` is not written in that case.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PivotingLuError {
    /// Only square systems have an LU factorisation that solves them.
    #[error("the matrix is {nrows} x {ncols}, expected a square matrix")]
    NotSquare {
        /// Rows of the matrix.
        nrows: usize,
        /// Columns of the matrix.
        ncols: usize,
    },
    /// The length of an array does not match the pattern.
    #[error("{what} has {found} entries, expected {expected}")]
    Length {
        /// The array.
        what: &'static str,
        /// The length that the pattern requires.
        expected: usize,
        /// The actual length.
        found: usize,
    },
    /// An input is NaN or infinite, or the solution overflows its precision.
    #[error("{what}[{position}] is not finite")]
    NonFinite {
        /// `"values"`, `"b"` or `"x"`.
        what: &'static str,
        /// Index of the first non-finite value.
        position: usize,
    },
    /// The matrix has no inverse: there is a column without a pivot.
    #[error("the matrix is singular: {reason}")]
    Singular {
        /// How the singularity was detected.
        reason: Singularity,
    },
    /// The factors need more memory than is available, or more entries than the index type counts.
    #[error("the factors do not fit into memory")]
    OutOfMemory,
}

/// How the singularity of a matrix was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Singularity {
    /// All entries of a row are 0, or the row is empty.
    #[error("row {0} is zero")]
    ZeroRow(usize),
    /// All entries of a column are 0, or the column is empty.
    #[error("column {0} is zero")]
    ZeroColumn(usize),
    /// The pattern leaves no row for this pivot, whatever the values (structural singularity).
    #[error("no row is left for pivot {0}")]
    NoPivot(usize),
    /// A pivot is exactly 0, so that the factors hold no finite solution.
    #[error("a pivot is zero")]
    ZeroPivot,
}

/// Accuracy and conditioning of a solve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PivotingLuReport {
    /// Rows of the system.
    pub nrows: usize,
    /// `||b - A x||_2` of the `x` returned (rounded to its precision), accumulated in twice f64.
    pub residual_norm: f64,
    /// `||b||_2`.
    pub rhs_norm: f64,
    /// Estimate of `1 / (||S||_1 ||S^-1||_1)` of the equilibrated matrix S, usually within a factor
    /// of 3 from above; 1 for a system without rows.
    pub rcond: f64,
    /// Refinement steps that made the residual smaller.
    pub refinements: u32,
}

impl PivotingLuReport {
    /// Whether the residual norm is at most `threshold`, an absolute bound in the unit of b.
    pub fn is_solved(&self, threshold: f64) -> bool {
        self.residual_norm <= threshold
    }

    /// Whether the matrix is singular to working precision, `rcond < nrows * eps`, and the residual
    /// exceeds `threshold`. Either condition alone is no proof: an ill-conditioned system may have
    /// an accurate solution (its b lies in the range of A), and a large residual may be the best
    /// that the precision of x allows.
    pub fn is_singular(&self, threshold: f64) -> bool {
        !self.is_solved(threshold) && self.rcond < self.nrows as f64 * f64::EPSILON
    }
}
