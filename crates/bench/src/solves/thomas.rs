//! Thomas' algorithm on the CPU, the peer of banded solves there.

use sparsebatch_formats::{Batch, Pattern};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::SolveError;

use super::systems::Systems;
use super::{Answer, Real, Solve};

/// Configuration name of the peer in rows.
pub(crate) const CONFIGURATION: &str = "Thomas, system by system";

/// A batch of tridiagonal systems, and their solutions.
pub(crate) struct ThomasLoop<'a, T: Real> {
    systems: &'a Systems<T>,
    rows: usize,
    x: Vec<T>,
}

impl<'a, T: Real> ThomasLoop<'a, T> {
    /// Takes a uniform batch whose pattern is tridiagonal, with all entries.
    ///
    /// # Errors
    /// [`SolveError::Argument`] for other batches.
    pub(crate) fn new(systems: &'a Systems<T>) -> Result<Self, SolveError> {
        let is_tridiagonal = |batch: &sparsebatch_formats::BatchCsr<T>| {
            let pattern = batch.pattern().view();
            let is_near = |row: usize| {
                let columns = &pattern.col_idx()[pattern.row(row)];
                columns.iter().all(|&col| row.abs_diff(col as usize) <= 1)
            };
            pattern.nnz() + 2 == 3 * pattern.nrows() && (0..pattern.nrows()).all(is_near)
        };
        match &systems.batch {
            Batch::Uniform(batch) if is_tridiagonal(batch) => {
                let x = vec![T::ZERO; systems.b.len()];
                Ok(Self { systems, rows: batch.pattern().nrows(), x })
            }
            _ => Err(SolveError::Argument(ArgumentError::OutOfRange {
                name: "batch",
                expected: "whole tridiagonal systems of one size",
                found: "another pattern".to_owned(),
            })),
        }
    }
}

impl<T: Real> Solve<T> for ThomasLoop<'_, T> {
    fn copies(&self) -> usize {
        1
    }

    fn restore(&mut self, _copy: usize) -> Result<(), SolveError> {
        Ok(())
    }

    fn wants_restoring(&self) -> bool {
        false
    }

    fn solve(&mut self, _copy: usize) -> Result<(), SolveError> {
        T::thomas(self.rows, self.systems.values(), &self.systems.b, &mut self.x);
        Ok(())
    }

    fn answer(&mut self, _copy: usize) -> Result<Answer<T>, SolveError> {
        Ok(Answer { x: self.x.clone(), outcomes: None })
    }
}
