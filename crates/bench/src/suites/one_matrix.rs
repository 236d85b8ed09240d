//! A problem of products with one matrix: its vector, and the reference product.

use rayon::prelude::*;
use sparsebatch_formats::accuracy::SpmvReference;
use sparsebatch_formats::generate::rng;
use sparsebatch_formats::{Csr, CsrPattern, Scalar, View};

use crate::parallel;
use crate::phases::Phase::Checking;
use crate::phases::timed;
use crate::session::Problem;

/// A matrix with its vector. The product is computed once.
pub(super) struct OneMatrix<'m, T> {
    pub(super) case: &'m str,
    experiment: Option<&'m str>,
    pub(super) matrix: &'m Csr<T>,
    pub(super) x: Vec<T>,
    reference: ReferenceProduct<T>,
}

/// Rows that a thread compares at a time.
const ROWS: usize = 4_096;

/// The reference product of a matrix, computed once, on all cores in runs of rows.
pub(super) struct ReferenceProduct<T> {
    nrows: usize,
    runs: Vec<SpmvReference<T>>,
}

impl<T: Scalar> ReferenceProduct<T> {
    pub(super) fn new(matrix: View<'_, CsrPattern, T>, x: &[T]) -> Self {
        let nrows = matrix.pattern().nrows();
        let run = |run: usize| {
            SpmvReference::of_rows(matrix, x, run * ROWS..((run + 1) * ROWS).min(nrows))
        };
        Self { nrows, runs: parallel::map(nrows.div_ceil(ROWS), run) }
    }

    /// Describes the first row of an answer that is not the sum of its products, if any.
    pub(super) fn wrong(&self, y: &[T]) -> Option<String> {
        if y.len() != self.nrows {
            return Some(format!("{} rows, expected {}", y.len(), self.nrows));
        }
        let parts: Vec<&[T]> = y.chunks(ROWS).collect();
        let wrong = |run: usize| {
            let error = self.runs[run].error(parts[run]);
            error.map(|(row, error)| format!("row {}: {error}", run * ROWS + row))
        };
        parallel::map(self.runs.len(), wrong).into_iter().flatten().next()
    }
}

impl<'m, T: Scalar> OneMatrix<'m, T> {
    /// Takes a matrix with a vector of values uniform in [-1, 1), rounded to `T`.
    pub(super) fn new(case: &'m str, matrix: &'m Csr<T>) -> Self {
        let x = operand(matrix.ncols());
        let reference = timed(Checking, || ReferenceProduct::new(matrix.view(), &x));
        Self { case, experiment: None, matrix, x, reference }
    }

    /// Sets the experiment.
    pub(super) fn of(self, experiment: &'m str) -> Self {
        Self { experiment: Some(experiment), ..self }
    }

    /// Describes the first row of an answer that is not the sum of its products, if any. The answer
    /// is of `T`, in f64.
    pub(super) fn wrong(&self, y: &[f64]) -> Option<String> {
        // Converting `T` to f64 and back is exact.
        let y: Vec<T> = y.par_iter().map(|&value| T::from_f64(value)).collect();
        self.reference.wrong(&y)
    }

    /// The matrix as a `Problem` with an oracle: [`OneMatrix::wrong`] or another library.
    pub(super) fn problem<'a>(
        &'a self,
        oracle: &'a dyn Fn(&[f64]) -> Option<String>,
    ) -> Problem<'a> {
        let (nrows, ncols, nnz) = (self.matrix.nrows(), self.matrix.ncols(), self.matrix.nnz());
        let (case, experiment) = (self.case, self.experiment);
        Problem { case, experiment, batch: 1, nrows, ncols, nnz, oracle }
    }
}

/// A vector of values uniform in [-1, 1), rounded to `T`.
pub(super) fn operand<T: Scalar>(len: usize) -> Vec<T> {
    let key = rng::key(96, 0);
    let value = |place: usize| T::from_f64(2.0 * rng::keyed(key, place as u64) - 1.0);
    (0..len).into_par_iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::accuracy::spmv_exact;
    use sparsebatch_formats::generate::random;

    #[test]
    fn answers_are_checked_in_their_precision() {
        let matrix = random(200, 150, 7, 3).unwrap();
        let single = matrix.cast::<f32>();
        let (double, single) = (OneMatrix::new("a", &matrix), OneMatrix::new("a", &single));
        let (mut y, _) = spmv_exact(matrix.view(), &double.x);

        assert_eq!((double.wrong(&y), single.wrong(&y).is_some()), (None, false));
        y[17] *= 1.0 + 1e-9;
        assert!(double.wrong(&y).unwrap().starts_with("row 17: "));
        y[17] *= 1.0 + 1e-3;
        assert!(single.wrong(&y).unwrap().starts_with("row 17: "));
        assert_eq!(double.wrong(&y[1..]).unwrap(), "199 rows, expected 200");
    }

    #[test]
    fn the_first_wrong_row_is_named_wherever_it_is() {
        let matrix = random(3 * ROWS + 5, 50, 3, 3).unwrap();
        let x = operand::<f64>(50);
        let reference = ReferenceProduct::new(matrix.view(), &x);
        let (y, _) = spmv_exact(matrix.view(), &x);

        assert_eq!(reference.wrong(&y), None);
        for row in [0, ROWS - 1, ROWS, 3 * ROWS + 4] {
            let mut off = y.clone();
            off[row] += 1.0;
            off[3 * ROWS + 4] += 1.0;
            assert!(reference.wrong(&off).unwrap().starts_with(&format!("row {row}: ")));
        }
    }

    #[test]
    fn vectors_are_those_of_the_generator() {
        let found = operand::<f64>(1_000);

        assert!((0..1_000).all(|c| found[c] == 2.0 * rng::uniform(96, 0, c as u64) - 1.0));
    }
}
