//! ELL: row by row over the slot columns; a padding slot ends the row.

use sparsebatch_formats::{EllPattern, PADDING, Pattern, Scalar, View};

use super::{Spmv, axpby};

/// The product of one row of an ELL matrix whose values start at `values`.
pub(super) fn row_sum<T: Scalar>(pattern: &EllPattern, values: &[T], x: &[T], row: usize) -> T {
    let mut sum = T::ZERO;
    for slot in 0..pattern.width() {
        let k = slot * pattern.nrows() + row;
        if pattern.col_idx()[k] == PADDING {
            break;
        }
        sum += values[k] * x[pattern.col_idx()[k] as usize];
    }
    sum
}

impl Spmv for EllPattern {
    fn shape(pattern: &Self) -> (usize, usize) {
        (pattern.nrows(), pattern.ncols())
    }

    fn spmv_unchecked<T: Scalar>(alpha: T, a: View<'_, Self, T>, x: &[T], beta: T, y: &mut [T]) {
        for (row, y) in y.iter_mut().enumerate() {
            *y = axpby(alpha, row_sum(a.pattern(), a.values(), x, row), beta, *y);
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::{Ell, PADDING};

    use crate::seq::spmv;

    #[test]
    fn ell_spmv_skips_padding() {
        // [1 2; 0 3], width 2; the padding slot holds NaN and x holds an infinity.
        let a =
            Ell::try_new(2, 2, 2, vec![0, 1, 1, PADDING], vec![1.0, 3.0, 2.0, f64::NAN]).unwrap();
        let mut y = [0.0; 2];

        spmv(1.0, a.view(), &[f64::INFINITY, 1.0], 0.0, &mut y).unwrap();

        assert_eq!(y, [f64::INFINITY, 3.0]);
    }
}
