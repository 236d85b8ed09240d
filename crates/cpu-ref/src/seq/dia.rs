//! DIA: row by row over the stored diagonals that cross the row.

use sparsebatch_formats::{DiaPattern, Pattern, Scalar, View};

use super::{Spmv, axpby};

impl Spmv for DiaPattern {
    fn shape(pattern: &Self) -> (usize, usize) {
        (pattern.nrows(), pattern.ncols())
    }

    /// Slots inside the matrix multiply, fill included; slots outside are skipped.
    fn spmv_unchecked<T: Scalar>(alpha: T, a: View<'_, Self, T>, x: &[T], beta: T, y: &mut [T]) {
        let pattern = a.pattern();
        for (row, y) in y.iter_mut().enumerate() {
            let mut sum = T::ZERO;
            for (d, &offset) in pattern.diag_offsets().iter().enumerate() {
                let col = row as i64 + i64::from(offset);
                if (0..pattern.ncols() as i64).contains(&col) {
                    sum += a.values()[d * pattern.nrows() + row] * x[col as usize];
                }
            }
            *y = axpby(alpha, sum, beta, *y);
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::Dia;

    use crate::seq::spmv;

    #[test]
    fn dia_spmv_multiplies_fill_but_not_what_lies_outside() {
        // [1 4; 0 2]; the slot outside holds NaN.
        let a = Dia::try_new(2, 2, vec![0, 1], vec![1.0, 2.0, 4.0, f64::NAN]).unwrap();
        let fill = Dia::try_new(2, 2, vec![0], vec![1.0, 0.0]).unwrap();
        let (mut y, mut y_fill) = ([0.0; 2], [0.0; 2]);

        spmv(1.0, a.view(), &[1.0, 10.0], 0.0, &mut y).unwrap();
        spmv(1.0, fill.view(), &[1.0, f64::NAN], 0.0, &mut y_fill).unwrap();

        assert_eq!(y, [41.0, 20.0]);
        assert!(y_fill[0] == 1.0 && y_fill[1].is_nan());
    }
}
