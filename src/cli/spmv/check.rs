//! The check of products: every row is compared with the sequential product.

use sparsebatch::{Batch, Scalar};

/// The constant of the error bound: see [`Expected`].
const ERROR_FACTOR: f64 = 4.0;

/// One row of a product in f64, and the scale of its error.
pub(in crate::cli) struct Expected {
    value: f64,
    bound: f64,
    finite: bool,
    /// Whether a stored entry or its `x` is NaN or infinite, so that no order of summation gives a
    /// finite number.
    poisoned: bool,
}

/// The sequential products, row by row, in f64, each with its error bound
/// `c * nnz_row * eps * (|A| |x|)_row`: that of two sums of the same terms in different orders and
/// precisions.
pub(in crate::cli) fn reference<T: Scalar>(batch: &Batch<T>, x: &[T]) -> Vec<Expected> {
    let mut copy = Vec::new();
    let mut rows = Vec::with_capacity(batch.row_offset(batch.nitems()));
    for item in 0..batch.nitems() {
        let pattern = batch.pattern(item);
        let values = batch.values_in(item, &mut copy);
        let x = &x[batch.col_offset(item)..batch.col_offset(item + 1)];
        for row in 0..pattern.nrows() {
            let entries = pattern.row(row);
            let terms = entries
                .clone()
                .map(|k| values[k].to_f64() * x[pattern.col_idx()[k] as usize].to_f64());
            let poisoned = |mut entries: std::ops::Range<usize>| {
                let is_finite = |k: usize| {
                    values[k].is_finite() && x[pattern.col_idx()[k] as usize].is_finite()
                };
                !entries.all(is_finite)
            };
            let (value, scale) = terms.fold((0.0, 0.0), |(sum, abs), t| (sum + t, abs + t.abs()));
            let rounded = T::from_f64(value).to_f64();
            rows.push(Expected {
                value,
                bound: ERROR_FACTOR * entries.len() as f64 * T::EPSILON.to_f64() * scale,
                finite: rounded.is_finite() && scale.is_finite(),
                poisoned: poisoned(entries),
            });
        }
    }
    rows
}

/// The largest ratio of error to bound, and the first row beyond its bound. Rows that contain NaN
/// or infinities must give NaN or an infinity. Rows whose terms or sum overflow are not checked,
/// since the overflow depends on the order of the sum.
pub(in crate::cli) fn check<T: Scalar>(y: &[T], reference: &[Expected]) -> (f64, Option<String>) {
    let (mut worst, mut wrong) = (0.0f64, None);
    for (row, (found, expected)) in y.iter().zip(reference).enumerate() {
        let found = found.to_f64();
        if expected.poisoned && found.is_finite() {
            worst = f64::INFINITY;
            wrong.get_or_insert_with(|| {
                format!(
                    "row {row} is {found:e}, expected NaN or an infinity as in its entries or x"
                )
            });
        }
        if !expected.finite {
            continue;
        }
        let error = (found - expected.value).abs();
        if error <= expected.bound {
            if error > 0.0 {
                worst = worst.max(error / expected.bound);
            }
        } else {
            worst = f64::INFINITY;
            wrong.get_or_insert_with(|| {
                let Expected { value, bound, .. } = expected;
                format!("row {row} is {found:e}, expected {value:e} within {bound:e}")
            });
        }
    }
    (worst, wrong)
}

#[cfg(test)]
mod tests {
    use sparsebatch::Csr;

    use super::*;

    fn expected() -> Vec<Expected> {
        let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 3.0]).unwrap();
        reference(&Batch::from(a), &[1.0, 10.0])
    }

    #[test]
    fn a_wrong_row_is_found() {
        let (worst, wrong) = check(&[2.0, 31.5], &expected());

        assert_eq!(worst, f64::INFINITY);
        assert!(wrong.unwrap().starts_with("row 1 is 3.15e1, expected 3.1e1"));
    }

    #[test]
    fn a_number_where_nan_has_to_come_out_is_wrong() {
        let a = Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], vec![2.0, 0.0]).unwrap();
        let expected = reference(&Batch::from(a), &[1.0, f64::INFINITY]);

        assert!(check(&[2.0, f64::NAN], &expected).1.is_none());
        assert!(check(&[2.0, 0.0], &expected).1.unwrap().starts_with("row 1 is 0e0, expected NaN"));
    }

    #[test]
    fn a_nan_in_the_product_is_wrong() {
        assert!(check(&[f64::NAN, 31.0], &expected()).1.is_some());
        assert!(check(&[2.0, 31.0], &expected()).1.is_none());
    }
}
