//! Residuals in twice the precision of f64, and exact ones.

use num_bigint::BigInt;
use sparsebatch::{Csr, Scalar};

/// `||b - A x||_2` with a relative error of at most 1e-4, usually about 1e-15; infinite or NaN if
/// it overflows.
///
/// Sums are in double-double arithmetic, whose error is 1e-30 of `|A||x| + |b|`; if that is not
/// small against the result, they are in exact integer arithmetic.
pub(super) fn residual_norm<T: Scalar>(a: &Csr<T>, x: &[T], b: &[T]) -> f64 {
    let norm = in_double_double(a, x, b);
    let noise = 1e-30 * magnitude(a, x, b);
    let is_finite = |v: &[T]| v.iter().all(|v| v.is_finite());
    if noise <= 1e-4 * norm || !(is_finite(a.values()) && is_finite(x) && is_finite(b)) {
        return norm;
    }
    self::norm(exactly(a, x, b).iter().map(to_f64).collect())
}

fn in_double_double<T: Scalar>(a: &Csr<T>, x: &[T], b: &[T]) -> f64 {
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
            // Renormalises the pair, so that `low` stays small.
            high = sum + low;
            low -= high - sum;
        }
        high + low
    });
    norm(residuals.collect())
}

/// `||v||_2`, scaled against overflow and underflow.
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

/// A finite number times `2^shift`, as an integer: a shift of 1100 suffices for any f64, and 2200
/// for products of two.
fn integer(value: f64, shift: u32) -> BigInt {
    let bits = value.to_bits();
    let field = (bits >> 52 & 0x7ff) as i64;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) =
        if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
    let signed = if value < 0.0 { -(mantissa as i64) } else { mantissa as i64 };
    BigInt::from(signed) << (exponent + i64::from(shift)) as usize
}

/// Products of two numbers scaled by `2^HALF` each are scaled by `2^2200`.
const HALF: u32 = 1100;

/// `b - A x` times `2^2200`, without any rounding. All numbers are finite.
fn exactly<T: Scalar>(a: &Csr<T>, x: &[T], b: &[T]) -> Vec<BigInt> {
    let pattern = a.view().pattern();
    let of_row = |(row, b): (usize, &T)| {
        let mut residual = integer(b.to_f64(), 2 * HALF);
        for k in pattern.row(row) {
            let x = integer(x[pattern.col_idx()[k] as usize].to_f64(), HALF);
            residual -= integer(a.values()[k].to_f64(), HALF) * x;
        }
        residual
    };
    b.iter().enumerate().map(of_row).collect()
}

/// An integer times `2^-2200`, rounded to 63 bits and then to f64.
fn to_f64(value: &BigInt) -> f64 {
    let shift = value.bits().saturating_sub(63);
    let leading = i64::try_from(value >> shift).expect("63 bits and a sign");
    // The scaling takes two steps, whose powers of two are both within the range of f64.
    let exponent = shift as i32 - 2 * HALF as i32;
    leading as f64 * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
}

/// Whether `||b - A x||_2 <= threshold`, without any rounding. All numbers are finite.
pub(super) fn passes<T: Scalar>(a: &Csr<T>, x: &[T], b: &[T], threshold: f64) -> bool {
    let square: BigInt = exactly(a, x, b).iter().map(|residual| residual * residual).sum();
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
        // Terms of 1e40 hide 0.5 from double-double arithmetic.
        let x = [1e40, 0.25, -1e40];
        assert_eq!(residual_norm(&a, &x, &[-0.25]), 0.5);
    }
}
