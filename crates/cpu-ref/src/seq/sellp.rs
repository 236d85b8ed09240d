//! SELL-P: slice by slice, row by row; a padding slot ends the row.

use sparsebatch_formats::{PADDING, Pattern, Scalar, SellPPattern, View};

use super::{Spmv, axpby};

impl Spmv for SellPPattern {
    fn shape(pattern: &Self) -> (usize, usize) {
        (pattern.nrows(), pattern.ncols())
    }

    fn spmv_unchecked<T: Scalar>(alpha: T, a: View<'_, Self, T>, x: &[T], beta: T, y: &mut [T]) {
        let pattern = a.pattern();
        for (place, &row) in pattern.row_perm().iter().enumerate() {
            let (slice, i) = (place / pattern.slice_size(), place % pattern.slice_size());
            let slots =
                pattern.slice_ptr()[slice] as usize..pattern.slice_ptr()[slice + 1] as usize;
            let mut sum = T::ZERO;
            for k in slots.skip(i).step_by(pattern.slice_size()) {
                if pattern.col_idx()[k] == PADDING {
                    break;
                }
                sum += a.values()[k] * x[pattern.col_idx()[k] as usize];
            }
            let y = &mut y[row as usize];
            *y = axpby(alpha, sum, beta, *y);
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::{PADDING, SellP};

    use crate::seq::spmv;

    #[test]
    fn sellp_spmv_undoes_the_row_permutation() {
        // Rows [0 1 0], [2 0 3], [0 0 4]; slices of 2, rows sorted as 1, 0, 2.
        let a = SellP::try_new(
            3,
            2,
            1,
            vec![0, 4, 6],
            vec![1, 0, 2],
            vec![0, 1, 2, PADDING, 2, PADDING],
            vec![2.0, 1.0, 3.0, f64::NAN, 4.0, f64::NAN],
        )
        .unwrap();
        let mut y = [0.0; 3];

        spmv(1.0, a.view(), &[1.0, 10.0, 100.0], 0.0, &mut y).unwrap();

        assert_eq!(y, [10.0, 302.0, 400.0]);
    }
}
