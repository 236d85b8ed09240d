//! HYB: each row's ELL slots, then its COO entries.

use sparsebatch_formats::{HybPattern, Pattern, Scalar, View};

use super::{Spmv, axpby, ell};

impl Spmv for HybPattern {
    fn shape(pattern: &Self) -> (usize, usize) {
        (pattern.nrows(), pattern.ncols())
    }

    fn spmv_unchecked<T: Scalar>(alpha: T, a: View<'_, Self, T>, x: &[T], beta: T, y: &mut [T]) {
        let (ell_part, coo) = (a.pattern().ell(), a.pattern().coo());
        let (ell_values, coo_values) = a.values().split_at(ell_part.stored_len());
        let mut k = 0;
        for (row, y) in y.iter_mut().enumerate() {
            let mut sum = ell::row_sum(ell_part, ell_values, x, row);
            while k < coo.nnz() && coo.row_idx()[k] as usize == row {
                sum += coo_values[k] * x[coo.col_idx()[k] as usize];
                k += 1;
            }
            *y = axpby(alpha, sum, beta, *y);
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::{CooPattern, EllPattern, Hyb, PADDING};

    use crate::seq::spmv;

    #[test]
    fn hyb_spmv_adds_both_parts() {
        // [1 2 3; 0 4 0] with one ELL slot per row.
        let ell = EllPattern::try_new(2, 3, 1, vec![0, 1]).unwrap();
        let coo = CooPattern::try_new(2, 3, vec![0, 0], vec![1, 2]).unwrap();
        let a = Hyb::try_new(ell, coo, vec![1.0, 4.0, 2.0, 3.0]).unwrap();
        let mut y = [1.0, 1.0];

        spmv(1.0, a.view(), &[1.0, 10.0, 100.0], 1.0, &mut y).unwrap();

        assert_eq!(y, [322.0, 41.0]);
    }

    #[test]
    fn hyb_spmv_skips_padding_of_short_rows() {
        let ell = EllPattern::try_new(2, 2, 1, vec![PADDING, 1]).unwrap();
        let coo = CooPattern::try_new(2, 2, vec![], vec![]).unwrap();
        let a = Hyb::try_new(ell, coo, vec![f64::NAN, 4.0]).unwrap();
        let mut y = [0.0; 2];

        spmv(1.0, a.view(), &[f64::NAN, 2.0], 0.0, &mut y).unwrap();

        assert_eq!(y, [0.0, 8.0]);
    }
}
