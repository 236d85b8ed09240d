//! CSR: row by row, entries in order.

use sparsebatch_formats::{CsrPattern, CsrPatternRef, Scalar, View};

use super::{Spmv, axpby};

impl Spmv for CsrPattern {
    fn shape(pattern: CsrPatternRef<'_>) -> (usize, usize) {
        (pattern.nrows(), pattern.ncols())
    }

    fn spmv_unchecked<T: Scalar>(alpha: T, a: View<'_, Self, T>, x: &[T], beta: T, y: &mut [T]) {
        let pattern = a.pattern();
        for (row, y) in y.iter_mut().enumerate() {
            let mut sum = T::ZERO;
            for k in pattern.row(row) {
                sum += a.values()[k] * x[pattern.col_idx()[k] as usize];
            }
            *y = axpby(alpha, sum, beta, *y);
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::Csr;

    use crate::seq::spmv;

    /// [1 0 2; 0 0 0; 0 3 4]
    fn matrix() -> Csr<f64> {
        Csr::try_new(3, 3, vec![0, 2, 2, 4], vec![0, 2, 1, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap()
    }

    #[test]
    fn csr_spmv_scales_by_alpha_and_beta() {
        let mut y = [1.0, 2.0, 3.0];

        spmv(2.0, matrix().view(), &[1.0, 10.0, 100.0], -1.0, &mut y).unwrap();

        assert_eq!(y, [401.0, -2.0, 857.0]);
    }

    #[test]
    fn csr_spmv_does_not_read_y_when_beta_is_zero() {
        let mut y = [f64::NAN; 3];

        spmv(1.0, matrix().view(), &[1.0, 10.0, 100.0], 0.0, &mut y).unwrap();

        assert_eq!(y, [201.0, 0.0, 430.0]);
    }

    #[test]
    fn spmv_refuses_vectors_of_other_lengths() {
        let mut y = [7.0; 3];

        let short_x = spmv(1.0, matrix().view(), &[1.0; 2], 0.0, &mut y).unwrap_err();
        let long_y = spmv(1.0, matrix().view(), &[1.0; 3], 0.0, &mut [0.0; 4]).unwrap_err();

        assert_eq!(short_x.to_string(), "x has 2 entries, expected 3");
        assert_eq!(long_y.to_string(), "y has 4 entries, expected 3");
        assert_eq!(y, [7.0; 3]);
    }
}
