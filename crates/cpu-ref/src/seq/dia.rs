//! DIA: row by row over the stored diagonals that cross the row.

use sparsebatch_formats::{DiaPattern, Pattern, Scalar, View};

use super::{Spmv, axpby};

impl Spmv for DiaPattern {
    fn shape(pattern: &Self) -> (usize, usize) {
        (pattern.nrows(), pattern.ncols())
    }

    /// Only entries are multiplied; fill and slots outside the matrix are skipped.
    fn spmv_unchecked<T: Scalar>(alpha: T, a: View<'_, Self, T>, x: &[T], beta: T, y: &mut [T]) {
        let pattern = a.pattern();
        for (row, y) in y.iter_mut().enumerate() {
            let mut sum = T::ZERO;
            for (d, &offset) in pattern.diag_offsets().iter().enumerate() {
                if pattern.is_entry(d, row) {
                    let col = (row as i64 + i64::from(offset)) as usize;
                    sum += a.values()[d * pattern.nrows() + row] * x[col];
                }
            }
            *y = axpby(alpha, sum, beta, *y);
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::convert::DiaOptions;
    use sparsebatch_formats::{Csr, Dia};

    use crate::seq::spmv;

    #[test]
    fn dia_spmv_skips_what_lies_outside() {
        // [1 4; 0 2]; the slot outside holds NaN.
        let a = Dia::try_new(2, 2, vec![0, 1], vec![1.0, 2.0, 4.0, f64::NAN]).unwrap();
        let mut y = [0.0; 2];

        spmv(1.0, a.view(), &[1.0, 10.0], 0.0, &mut y).unwrap();

        assert_eq!(y, [41.0, 20.0]);
    }

    #[test]
    fn dia_spmv_skips_fill_and_multiplies_explicit_zeros() {
        // [1 . .; . . .; . . 0]: the diagonal has no entry in row 1, and a zero in row 2.
        let csr = Csr::try_new(3, 3, vec![0, 1, 1, 2], vec![0, 2], vec![1.0, 0.0]).unwrap();
        let mut a = Dia::from_csr(&csr, &DiaOptions::default()).unwrap();
        a.values_mut()[1] = f64::INFINITY;
        let mut y = [0.0; 3];

        spmv(1.0, a.view(), &[1.0, f64::NAN, f64::NAN], 0.0, &mut y).unwrap();

        assert_eq!(y[..2], [1.0, 0.0]);
        assert!(y[2].is_nan());
    }
}
