//! The true residual and robust norms: what every verdict of a solver rests on.

use sparsebatch_formats::{CsrPatternRef, Scalar};

/// `sqrt(sum v_i^2)` without spurious overflow or underflow; NaN when an element is NaN, infinite
/// when one is.
pub fn norm2<T: Scalar>(v: &[T]) -> f64 {
    let sum = sum_squares(v, 1.0);
    // Outside this range squares may have been lost to under- or overflow.
    if (1e-280..1e280).contains(&sum) {
        return sum.sqrt();
    }
    let mut largest = 0.0f64;
    for &value in v {
        let value = value.to_f64().abs();
        if value.is_nan() {
            return f64::NAN;
        }
        largest = largest.max(value);
    }
    if largest == 0.0 || largest.is_infinite() {
        return largest;
    }
    // A power of two, so that scaling is exact.
    let exponent = exponent(largest);
    sum_squares(v, pow2(-exponent)).sqrt() * pow2(exponent)
}

/// `sum (scale * v_i)^2` in eight interleaved partial sums.
fn sum_squares<T: Scalar>(v: &[T], scale: f64) -> f64 {
    let mut sums = [0.0f64; 8];
    let chunks = v.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            let value = value.to_f64() * scale;
            *sum += value * value;
        }
    }
    for (sum, &value) in sums.iter_mut().zip(rest) {
        let value = value.to_f64() * scale;
        *sum += value * value;
    }
    ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
}

/// The exponent of a positive finite number, clamped to what [`pow2`] can undo.
pub(crate) fn exponent(value: f64) -> i32 {
    let biased = (value.to_bits() >> 52 & 0x7ff) as i32;
    (biased - 1023).clamp(-1000, 1000)
}

/// `2^exponent` for exponents in -1022..=1023.
pub(crate) fn pow2(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// `r = b - A x` of one system in the working precision, and `||r||_2` (NaN when it is not finite).
/// The products of a row are added in ascending column order, and their sum subtracted from `b`:
/// in the other order a huge `x` whose products cancel, as a singular matrix invites it, absorbs
/// `b` and leaves a residual of 0 that is none.
///
/// Lengths: `values` one per entry, `x`, `b` and `r` one per row.
pub fn residual<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    values: &[T],
    x: &[T],
    b: &[T],
    r: &mut [T],
) -> f64 {
    let cols = pattern.col_idx();
    for (row, r) in r.iter_mut().enumerate() {
        let range = pattern.row(row);
        let mut sum = T::ZERO;
        for (&value, &col) in values[range.clone()].iter().zip(&cols[range]) {
            sum += value * x[col as usize];
        }
        *r = sum;
    }
    finish_residual(b, r)
}

/// `r = b - r`, where `r` holds `A x`, and `||r||_2` (NaN when it is not finite).
pub(crate) fn finish_residual<T: Scalar>(b: &[T], r: &mut [T]) -> f64 {
    for (r, &b) in r.iter_mut().zip(b) {
        *r = b - *r;
    }
    let norm = norm2(r);
    if norm.is_finite() { norm } else { f64::NAN }
}

/// `|| |A||x| + |b| ||_2` of one system: the size of the numbers that cancel in the residual.
pub fn residual_magnitude<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    values: &[T],
    x: &[T],
    b: &[T],
) -> f64 {
    let magnitudes: Vec<f64> = (0..pattern.nrows())
        .map(|row| {
            let products = pattern.row(row).map(|k| {
                values[k].to_f64().abs() * x[pattern.col_idx()[k] as usize].to_f64().abs()
            });
            products.sum::<f64>() + b[row].to_f64().abs()
        })
        .collect();
    norm2(&magnitudes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_survives_extreme_scales() {
        let close =
            |found: f64, expected: f64| (found / expected - 1.0).abs() <= 4.0 * f64::EPSILON;
        assert!(close(norm2(&[3e-300, 4e-300]), 5e-300));
        assert!(close(norm2(&[3e300, 4e300]), 5e300));
        assert_eq!(
            norm2(&[3.0 * 2f64.powi(-1060), 4.0 * 2f64.powi(-1060)]),
            5.0 * 2f64.powi(-1060)
        );
        assert_eq!(norm2::<f64>(&[]), 0.0);
        assert_eq!(norm2(&[0.0, -0.0]), 0.0);
        assert!(norm2(&[1.0, f64::NAN]).is_nan());
        assert!(norm2(&[f64::INFINITY, f64::NAN]).is_nan());
        assert_eq!(norm2(&[1.0, f64::NEG_INFINITY]), f64::INFINITY);
        assert_eq!(norm2(&[3e-30f32, 4e-30f32]) as f32, 5e-30f32);
    }

    #[test]
    fn residual_is_b_minus_a_x() {
        use sparsebatch_formats::Csr;
        // [2 0; 1 4]
        let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 4.0]).unwrap();
        let (pattern, values) = (a.view().pattern(), a.values());
        let mut r = [9.0; 2];

        let norm = residual(pattern, values, &[1.0, -1.0], &[5.0, 1.0], &mut r);
        let magnitude = residual_magnitude(pattern, values, &[1.0, -1.0], &[-1.0, 1.0]);
        let overflow = residual(pattern, values, &[1e308, 0.0], &[0.0; 2], &mut [0.0; 2]);

        assert_eq!((norm, r), (5.0, [3.0, 4.0]));
        assert_eq!(magnitude, 45f64.sqrt());
        assert!(overflow.is_nan());
    }

    #[test]
    fn products_that_cancel_do_not_absorb_b() {
        use sparsebatch_formats::Csr;
        let a = Csr::try_new(1, 3, vec![0, 3], vec![0, 1, 2], vec![-1.0, 2.0, -1.0]).unwrap();

        let norm = residual(a.view().pattern(), a.values(), &[1e32; 3], &[1.0], &mut [0.0]);

        assert_eq!(norm, 1.0);
    }

    #[test]
    fn powers_of_two_are_exact_and_exponents_clamped() {
        assert_eq!(
            (exponent(1.0), exponent(1.99), exponent(0.5), exponent(0.0)),
            (0, 0, -1, -1000)
        );
        assert_eq!((pow2(-1022), pow2(0)), (f64::MIN_POSITIVE, 1.0));
        assert_eq!(pow2(1023), 2f64.powi(1023));
    }
}
