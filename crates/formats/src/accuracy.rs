//! The accuracy of products: y = A x compared with a reference, row by row.

use std::ops::Range;

use crate::{CsrPattern, Scalar, View};

/// The constant c of [`assert_spmv_close`].
///
/// A sum of n products in any order, each step rounded or fused, differs from the exact one by at
/// most gamma_n sum |a_j x_j| with gamma_n = n u / (1 - n u) and u = eps / 2 (Higham 2002,
/// «Accuracy and Stability of Numerical Algorithms», section 3.1, doi 10.1137/1.9780898718027).
/// Both sides of the comparison carry that error: n eps together. The factor 4 leaves room for the
/// roundings of alpha and beta and for the reference's own scale, and is far below what a dropped
/// or doubled entry of usual size costs. The bound makes no allowance for products that underflow.
pub const PRODUCT_ERROR_FACTOR: f64 = 4.0;

/// The rows of A x in f64, and of |A| |x|: the reference and the scale of its error.
///
/// # Panics
/// When a column index lies outside `x`.
pub fn spmv_exact<T: Scalar>(a: View<'_, CsrPattern, T>, x: &[T]) -> (Vec<f64>, Vec<f64>) {
    exact_rows(a, x, 0..a.pattern().nrows())
}

fn exact_rows<T: Scalar>(
    a: View<'_, CsrPattern, T>,
    x: &[T],
    rows: Range<usize>,
) -> (Vec<f64>, Vec<f64>) {
    let (pattern, values) = (a.pattern(), a.values());
    rows.map(|row| {
        let products = pattern
            .row(row)
            .map(|k| values[k].to_f64() * x[pattern.col_idx()[k] as usize].to_f64());
        products.fold((0.0, 0.0), |(sum, scale), p| (sum + p, scale + p.abs()))
    })
    .unzip()
}

/// A x with a bound on its rounding errors, for many comparisons.
///
/// Row by row |y - y^| <= c nnz_row eps (|A| |x|)_row, with c = [`PRODUCT_ERROR_FACTOR`] and eps
/// the machine epsilon of `T`; an empty row is exactly 0. A NaN is only close to a NaN, an infinity
/// only to itself. A sum in which infinities of both signs meet is a NaN whatever its order; a sum
/// that overflows only in `T` (f32) is accepted as the infinity of its sign.
#[derive(Clone, Debug)]
pub struct SpmvReference<T> {
    expected: Vec<f64>,
    bounds: Vec<f64>,
    values: std::marker::PhantomData<T>,
}

impl<T: Scalar> SpmvReference<T> {
    /// Computes A x once, in f64.
    ///
    /// # Panics
    /// When a column index lies outside `x`.
    pub fn new(a: View<'_, CsrPattern, T>, x: &[T]) -> Self {
        Self::of_rows(a, x, 0..a.pattern().nrows())
    }

    /// As [`new`](Self::new), for the rows `rows` only; [`error`](Self::error) then takes the
    /// product of these rows alone.
    ///
    /// # Panics
    /// As [`new`](Self::new), and when `rows` reaches beyond the matrix.
    pub fn of_rows(a: View<'_, CsrPattern, T>, x: &[T], rows: Range<usize>) -> Self {
        let (expected, mut bounds) = exact_rows(a, x, rows.clone());
        for (row, bound) in rows.zip(&mut bounds) {
            let terms = a.pattern().row(row).len() as f64;
            *bound *= PRODUCT_ERROR_FACTOR * terms * T::EPSILON.to_f64();
        }
        Self { expected, bounds, values: std::marker::PhantomData }
    }

    /// The first row of `found` that is not A x to rounding, or `None`.
    pub fn error(&self, found: &[T]) -> Option<(usize, String)> {
        let rows = self.expected.len();
        if found.len() != rows {
            return Some((found.len(), format!("{} rows, expected {rows}", found.len())));
        }
        let is_close = |found: f64, exact: f64, bound: f64| {
            let rounded = T::from_f64(exact).to_f64();
            if rounded.is_nan() {
                found.is_nan()
            } else if rounded.is_infinite() {
                found == rounded
            } else {
                (found - exact).abs() <= bound
            }
        };
        let row = (0..rows)
            .find(|&row| !is_close(found[row].to_f64(), self.expected[row], self.bounds[row]))?;
        let (found, exact, bound) = (found[row].to_f64(), self.expected[row], self.bounds[row]);
        Some((row, format!("{found:e}, expected {exact:e} within {bound:e}")))
    }
}

/// The first row of `found` that is not A x to rounding, or `None`; see [`SpmvReference`].
pub fn spmv_error<T: Scalar>(
    a: View<'_, CsrPattern, T>,
    x: &[T],
    found: &[T],
) -> Option<(usize, String)> {
    SpmvReference::new(a, x).error(found)
}

/// Asserts that `found` is A x to rounding, row by row; see [`spmv_error`].
///
/// # Panics
/// When `found` is not A x to rounding, naming the first wrong row.
#[track_caller]
pub fn assert_spmv_close<T: Scalar>(a: View<'_, CsrPattern, T>, x: &[T], found: &[T]) {
    if let Some((row, error)) = spmv_error(a, x, found) {
        panic!("row {row} of the product is {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Csr;

    fn matrix() -> Csr<f64> {
        // [1 2; 0 0; 0 3]
        Csr::try_new(3, 2, vec![0, 2, 2, 3], vec![0, 1, 1], vec![1.0, 2.0, 3.0]).unwrap()
    }

    #[test]
    fn rounding_passes_and_more_does_not() {
        let (a, x) = (matrix(), [0.1, 0.2]);
        let y = [0.1 + 2.0 * 0.2, 0.0, 3.0 * 0.2];

        assert_eq!(spmv_error(a.view(), &x, &y), None);
        let off = [y[0] * (1.0 + 1e-15), 0.0, y[2]];
        assert_eq!(spmv_error(a.view(), &x, &off), None);
        let wrong = [y[0] * (1.0 + 1e-14), 0.0, y[2]];
        assert_eq!(spmv_error(a.view(), &x, &wrong).unwrap().0, 0);
    }

    #[test]
    fn rows_may_be_compared_by_themselves() {
        let (a, x) = (matrix(), [0.1, 0.2]);
        let last = SpmvReference::of_rows(a.view(), &x, 1..3);

        assert_eq!(last.error(&[0.0, 3.0 * 0.2]), None);
        assert_eq!(last.error(&[0.0, 3.0 * 0.3]).unwrap().0, 1);
        assert_eq!(last.error(&[0.0]).unwrap().1, "1 rows, expected 2");
    }

    #[test]
    fn empty_rows_are_exactly_zero() {
        let found = [0.5, 1e-300, 0.6];

        assert_eq!(spmv_error(matrix().view(), &[0.1, 0.2], &found).unwrap().0, 1);
    }

    #[test]
    fn nan_and_infinity_only_match_themselves() {
        let (a, inf, nan) = (matrix(), f64::INFINITY, f64::NAN);

        assert_eq!(spmv_error(a.view(), &[1.0, inf], &[inf, 0.0, inf]), None);
        assert_eq!(spmv_error(a.view(), &[-inf, inf], &[nan, 0.0, inf]), None);
        assert_eq!(spmv_error(a.view(), &[1.0, nan], &[nan, 0.0, nan]), None);
        for wrong in [[inf, nan, inf], [nan, 0.0, inf], [-inf, 0.0, inf], [1.0, 0.0, inf]] {
            assert!(spmv_error(a.view(), &[1.0, inf], &wrong).is_some(), "{wrong:?}");
        }
    }

    #[test]
    #[should_panic(expected = "row 2 of the product is 1e0")]
    fn assertion_names_the_row() {
        assert_spmv_close(matrix().view(), &[1.0, 1.0], &[3.0, 0.0, 1.0]);
    }

    #[test]
    fn a_wrong_number_of_rows_is_an_error() {
        assert!(spmv_error(matrix().view(), &[1.0, 1.0], &[3.0, 0.0]).is_some());
    }
}
