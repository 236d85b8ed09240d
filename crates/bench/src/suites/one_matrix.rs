//! One matrix as what is multiplied: its vector, and the product that answers are checked against.

use sparsebatch_formats::generate::rng;
use sparsebatch_formats::testing::SpmvReference;
use sparsebatch_formats::{Csr, Scalar};

use crate::session::Problem;

/// A matrix with its vector. The product is computed once.
pub(super) struct OneMatrix<'m, T> {
    pub(super) case: &'m str,
    experiment: Option<&'m str>,
    pub(super) matrix: &'m Csr<T>,
    pub(super) x: Vec<T>,
    reference: SpmvReference<T>,
}

impl<'m, T: Scalar> OneMatrix<'m, T> {
    /// With a vector of values uniform in [-1, 1), rounded to T.
    pub(super) fn new(case: &'m str, matrix: &'m Csr<T>) -> Self {
        let x = operand(matrix.ncols());
        let reference = SpmvReference::new(matrix.view(), &x);
        Self { case, experiment: None, matrix, x, reference }
    }

    /// Of an experiment.
    pub(super) fn of(self, experiment: &'m str) -> Self {
        Self { experiment: Some(experiment), ..self }
    }

    /// What is wrong with an answer, of T in f64: the first row that is not the sum of its products.
    pub(super) fn wrong(&self, y: &[f64]) -> Option<String> {
        // An answer in T is not changed by the way through f64.
        let y: Vec<T> = y.iter().map(|&value| T::from_f64(value)).collect();
        self.reference.error(&y).map(|(row, error)| format!("row {row}: {error}"))
    }

    /// As what is multiplied, with an oracle, which is [`OneMatrix::wrong`] or another library.
    pub(super) fn problem<'a>(
        &'a self,
        oracle: &'a dyn Fn(&[f64]) -> Option<String>,
    ) -> Problem<'a> {
        let (nrows, ncols, nnz) = (self.matrix.nrows(), self.matrix.ncols(), self.matrix.nnz());
        let (case, experiment) = (self.case, self.experiment);
        Problem { case, experiment, batch: 1, nrows, ncols, nnz, oracle }
    }
}

/// A vector of values uniform in [-1, 1), rounded to T.
pub(super) fn operand<T: Scalar>(len: usize) -> Vec<T> {
    (0..len as u64).map(|place| T::from_f64(2.0 * rng::uniform(96, 0, place) - 1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::generate::random;
    use sparsebatch_formats::testing::spmv_exact;

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
    }
}
