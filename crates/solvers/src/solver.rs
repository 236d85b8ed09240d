//! The one entry: [`solve`] for a batch at once, [`BatchSolver`] for repeated solves.

use sparsebatch_formats::{Batch, Scalar};

use crate::{BatchReport, SolveError, SolveOptions};

/// The solutions of a batch and how each system ended.
#[derive(Clone, Debug)]
pub struct Solution<T> {
    /// Item-major, like the right-hand sides.
    pub x: Vec<T>,
    /// How each system ended.
    pub report: BatchReport,
}

/// Solves `A_i x_i = b_i` for every system of a batch.
///
/// `b` and `x0` (0 when absent) are item-major: the rows of item 0, of item 1, ...; with
/// `options.nrhs` right-hand sides, those of an item follow each other.
///
/// # Errors
/// [`SolveError`] when nothing was solved: a matrix that is not square, a vector of the wrong
/// length, an option out of range. Systems that do not converge are no error.
pub fn solve<T: Scalar>(
    batch: &Batch<T>,
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> Result<Solution<T>, SolveError> {
    let solver = BatchSolver::new(batch, options)?;
    let mut x = match x0 {
        Some(x0) => x0.to_vec(),
        None => vec![T::ZERO; b.len()],
    };
    let report = solver.solve(b, &mut x)?;
    Ok(Solution { x, report })
}

/// A batch with everything that is computed once per pattern, for repeated solves.
pub struct BatchSolver<'a, T> {
    batch: &'a Batch<T>,
    options: SolveOptions,
}

impl<'a, T: Scalar> BatchSolver<'a, T> {
    /// Analyses a batch.
    ///
    /// # Errors
    /// As [`solve`].
    pub fn new(batch: &'a Batch<T>, options: &SolveOptions) -> Result<Self, SolveError> {
        Ok(Self {
            batch,
            options: options.clone(),
        })
    }

    /// Solves every system; `x` holds the initial guesses on entry and the solutions on return.
    ///
    /// # Errors
    /// As [`solve`].
    pub fn solve(&self, b: &[T], x: &mut [T]) -> Result<BatchReport, SolveError> {
        crate::options::check_len("b", self.batch.row_offset(self.batch.nitems()), b.len())?;
        crate::options::check_len("x0", b.len(), x.len())?;
        let _criteria = self
            .options
            .criteria::<T>(self.batch.nitems() * self.options.nrhs)?;
        Err(SolveError::Option {
            name: "engine",
            expected: "the engine of the next commit",
            found: String::new(),
        })
    }
}
