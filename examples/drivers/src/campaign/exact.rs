//! Residuals in twice the precision of f64, and exact ones.

use num_bigint::BigInt;
use sparsebatch::{Csr, Scalar};

/// `||b - A x||_2` with sums in double-double arithmetic, where nothing overflows; infinite or NaN where it does.
/// Relative error: 1e-15, and 1e-30 of `|A||x| + |b|`.
pub(super) fn residual_norm<T: Scalar>(a: &Csr<T>, x: &[T], b: &[T]) -> f64 {
    let pattern = a.view().pattern();
    let residuals = (0..pattern.nrows()).map(|row| {
        let (mut high, mut low) = (b[row].to_f64(), 0.0);
        for k in pattern.row(row) {
            let (v, x) = (-a.values()[k].to_f64(), x[pattern.col_idx()[k] as usize].to_f64());
            let product = v * x;
            let error = v.mul_add(x, -product);
            let sum = high + product;
            let part = sum - high;
            low += (high - (sum - part)) + (product - part) + error;
            // Normalised, so that `low` stays small.
            high = sum + low;
            low -= high - sum;
        }
        high + low
    });
    norm(residuals.collect())
}

/// `||v||_2`, scaled.
pub(super) fn norm(v: Vec<f64>) -> f64 {
    if v.iter().any(|v| v.is_nan()) {
        return f64::NAN;
    }
    let most = v.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    if most == 0.0 || most.is_infinite() {
        return most;
    }
    most * v.iter().map(|v| (v / most) * (v / most)).sum::<f64>().sqrt()
}

/// `|| |A||x| + |b| ||_2`.
pub(super) fn magnitude<T: Scalar>(a: &Csr<T>, x: &[T], b: &[T]) -> f64 {
    let pattern = a.view().pattern();
    let sizes = (0..pattern.nrows()).map(|row| {
        let products = pattern
            .row(row)
            .map(|k| (a.values()[k].to_f64() * x[pattern.col_idx()[k] as usize].to_f64()).abs());
        products.sum::<f64>() + b[row].to_f64().abs()
    });
    norm(sizes.collect())
}

/// A finite number as an integer times `2^-2200`: as f64 and products of two have them.
fn integer(value: f64, shift: u32) -> BigInt {
    let bits = value.to_bits();
    let field = (bits >> 52 & 0x7ff) as i64;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) =
        if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
    let signed = if value < 0.0 { -(mantissa as i64) } else { mantissa as i64 };
    BigInt::from(signed) << (exponent + i64::from(shift)) as usize
}

/// Whether `||b - A x||_2 <= threshold`, without any rounding. All numbers are finite.
pub(super) fn passes<T: Scalar>(a: &Csr<T>, x: &[T], b: &[T], threshold: f64) -> bool {
    // Products of two numbers scaled by 2^1100 each are scaled by 2^2200.
    const HALF: u32 = 1100;
    let pattern = a.view().pattern();
    let mut square = BigInt::from(0);
    for (row, b) in b.iter().enumerate() {
        let mut residual = integer(b.to_f64(), 2 * HALF);
        for k in pattern.row(row) {
            let x = integer(x[pattern.col_idx()[k] as usize].to_f64(), HALF);
            residual -= integer(a.values()[k].to_f64(), HALF) * x;
        }
        square += &residual * &residual;
    }
    let threshold = integer(threshold, 2 * HALF);
    square <= &threshold * &threshold
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residuals_are_exact_where_f64_loses_them() {
        let a = Csr::try_new(1, 3, vec![0, 3], vec![0, 1, 2], vec![1.0, 1.0, 1.0]).unwrap();
        let x = [1e16, 0.25, -1e16];

        assert_eq!(residual_norm(&a, &x, &[1.25]), 1.0);
        assert!(passes(&a, &x, &[1.25], 1.0));
        assert!(!passes(&a, &x, &[1.25], 1.0 - f64::EPSILON));
        let tiny = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![5e-324]).unwrap();
        assert!(passes(&tiny, &[1.0], &[5e-324], 0.0));
        assert!(!passes(&tiny, &[0.5], &[5e-324], 0.0));
    }
}
