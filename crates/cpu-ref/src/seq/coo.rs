//! COO: entry by entry; entries are row-major, so a row's sum is complete when the row changes.

use sparsebatch_formats::{CooPattern, Pattern, Scalar, View};

use super::{Spmv, axpby};

impl Spmv for CooPattern {
    fn shape(pattern: &Self) -> (usize, usize) {
        (pattern.nrows(), pattern.ncols())
    }

    fn spmv_unchecked<T: Scalar>(alpha: T, a: View<'_, Self, T>, x: &[T], beta: T, y: &mut [T]) {
        let pattern = a.pattern();
        let mut k = 0;
        for (row, y) in y.iter_mut().enumerate() {
            let mut sum = T::ZERO;
            while k < pattern.nnz() && pattern.row_idx()[k] as usize == row {
                sum += a.values()[k] * x[pattern.col_idx()[k] as usize];
                k += 1;
            }
            *y = axpby(alpha, sum, beta, *y);
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::Coo;

    use crate::seq::spmv;

    #[test]
    fn coo_spmv_visits_empty_rows_too() {
        // [0 5; 0 0; 6 7]
        let a = Coo::try_new(3, 2, vec![0, 2, 2], vec![1, 0, 1], vec![5.0, 6.0, 7.0]).unwrap();
        let mut y = [1.0, 2.0, 3.0];

        spmv(1.0, a.view(), &[1.0, 10.0], 2.0, &mut y).unwrap();

        assert_eq!(y, [52.0, 4.0, 82.0]);
    }
}
