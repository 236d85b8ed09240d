//! The true residual and robust norms, on which every verdict of a solver rests. Lengths must match
//! the pattern; they are not checked here ([`crate::residual()`] does).

use sparsebatch_formats::{CsrPatternRef, Scalar};

use crate::wide::{Part, widest};

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

/// `||A||_F` from the values of A. Differs from [`norm2`] only in the order of summation, which is
/// faster for many entries.
pub fn frobenius_norm<T: Scalar>(values: &[T]) -> f64 {
    let sum = widest(ManySquares(values));
    // Squares may have been lost to under- or overflow.
    if (1e-280..1e280).contains(&sum) { sum.sqrt() } else { norm2(values) }
}

/// `sum v_i^2` in 32 interleaved partial sums that are added in pairs: four chains of additions
/// with the widest vectors.
struct ManySquares<'a, T>(&'a [T]);

impl<T: Scalar> Part for ManySquares<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut sums = [0.0f64; 32];
        let (chunks, rest) = self.0.as_chunks::<32>();
        for chunk in chunks {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                let value = value.to_f64();
                *sum += value * value;
            }
        }
        for (sum, value) in sums.iter_mut().zip(rest) {
            let value = value.to_f64();
            *sum += value * value;
        }
        let mut width = sums.len() / 2;
        while width > 0 {
            for i in 0..width {
                sums[i] += sums[i + width];
            }
            width /= 2;
        }
        sums[0]
    }
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
#[inline]
pub fn exponent(value: f64) -> i32 {
    let biased = (value.to_bits() >> 52 & 0x7ff) as i32;
    (biased - 1023).clamp(-1000, 1000)
}

/// `2^exponent` for exponents in -1022..=1023.
#[inline]
pub fn pow2(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Multiplication by `2^exponent`, for exponents in -2044..=2046: exact, short of overflow and
/// underflow.
pub fn by_power_of_two<T: Scalar>(exponent: i32) -> impl Fn(T) -> T {
    let half = exponent / 2;
    let factors = [pow2(half), pow2(exponent - half)];
    move |value| T::from_f64(value.to_f64() * factors[0] * factors[1])
}

/// `r = b - A x` of one system in the working precision, and `||r||_2` (NaN when it is not finite).
/// The products of a row are added in ascending column order, and their sum is subtracted from `b`.
/// In the other order the cancelling products of a huge `x`, as singular matrices yield it, would
/// absorb `b` and leave a false residual of 0.
///
/// Lengths: `values` one per entry, `x`, `b` and `r` one per row.
pub fn residual<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    values: &[T],
    x: &[T],
    b: &[T],
    r: &mut [T],
) -> f64 {
    residual_from(0, pattern, values, x, b, r)
}

/// [`residual`] of the rows from `first` on, as many as `b` and `r` have elements.
pub fn residual_from<T: Scalar>(
    first: usize,
    pattern: CsrPatternRef<'_>,
    values: &[T],
    x: &[T],
    b: &[T],
    r: &mut [T],
) -> f64 {
    let cols = pattern.col_idx();
    for (row, r) in r.iter_mut().enumerate() {
        let range = pattern.row(first + row);
        let mut sum = T::ZERO;
        for (&value, &col) in values[range.clone()].iter().zip(&cols[range]) {
            sum += value * x[col as usize];
        }
        *r = sum;
    }
    finish_residual(b, r)
}

/// `r = b - r`, where `r` holds `A x`, and `||r||_2` (NaN when it is not finite).
pub fn finish_residual<T: Scalar>(b: &[T], r: &mut [T]) -> f64 {
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
    residual_magnitude_from(0, pattern, values, x, b)
}

/// [`residual_magnitude`] of the rows from `first` on, as many as `b` has elements.
pub fn residual_magnitude_from<T: Scalar>(
    first: usize,
    pattern: CsrPatternRef<'_>,
    values: &[T],
    x: &[T],
    b: &[T],
) -> f64 {
    widest(Magnitude { first, pattern, values, x, b })
}

struct Magnitude<'a, T> {
    first: usize,
    pattern: CsrPatternRef<'a>,
    values: &'a [T],
    x: &'a [T],
    b: &'a [T],
}

impl<T: Scalar> Part for Magnitude<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let Self { first, pattern, values, x, b } = self;
        let magnitudes: Vec<f64> = b
            .iter()
            .enumerate()
            .map(|(row, b)| {
                let products = pattern.row(first + row).map(|k| {
                    values[k].to_f64().abs() * x[pattern.col_idx()[k] as usize].to_f64().abs()
                });
                products.sum::<f64>() + b.to_f64().abs()
            })
            .collect();
        norm2(&magnitudes)
    }
}

/// The sizes of a system on which bounds of rounding errors depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    nrows: usize,
    longest_row: usize,
}

impl Sizes {
    /// Sizes of a matrix of which only parts are at hand: its number of rows, and the entries of its
    /// longest row.
    pub fn new(nrows: usize, longest_row: usize) -> Self {
        Self { nrows, longest_row }
    }

    /// Sizes of `pattern`: its number of rows, and the entries of its longest row.
    pub fn of(pattern: CsrPatternRef<'_>) -> Self {
        let nrows = pattern.nrows();
        let longest_row = (0..nrows).map(|row| pattern.row(row).len()).max().unwrap_or(0);
        Self { nrows, longest_row }
    }

    /// A bound of `| ||r||_2 - ||b - A x||_2 |`, where r is what [`residual`] computes, in whatever
    /// order a row's products are added, and `norm` its computed norm.
    ///
    /// `magnitude` is at least `|| |A||x| + |b| ||_2`, up to a relative error of 1e-10. The bound
    /// counts the rounding of products and sums in the working precision, products that underflow,
    /// and the rounding of the norm. It is infinite or NaN where that overflows, and so proves
    /// nothing there.
    ///
    /// # Source
    /// N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002, section 3.1,
    /// doi:10.1137/1.9780898718027.
    #[inline]
    pub fn error_of_plain<T: Scalar>(self, magnitude: f64, norm: f64) -> f64 {
        let unit = 0.5 * T::EPSILON.to_f64();
        let operations = self.longest_row as f64 + 3.0;
        // The smallest positive number of the working precision.
        let smallest = if T::NAME == "f64" { f64::from_bits(1) } else { 2f64.powi(-149) };
        let underflow = operations * (self.nrows as f64).sqrt() * smallest;
        1.001 * operations * unit * magnitude + underflow + self.error_of_norm(norm)
    }

    /// A bound of the rounding error of [`norm2`], in f64, for a vector with one entry per row.
    #[inline]
    fn error_of_norm(self, norm: f64) -> f64 {
        (0.125 * self.nrows as f64 + 16.0) * f64::EPSILON * norm
    }
}

/// A residual evaluated with twice the working precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluated {
    /// `||b - A x||_2`; NaN or infinite where sums overflow.
    pub norm: f64,
    /// A bound of the error of `norm`; 0 where no operation was rounded.
    pub error: f64,
}

/// For products smaller than this the rounding error may not be representable in f64.
pub const SAFE_PRODUCT: f64 = 1e-290;

impl Evaluated {
    /// An evaluation from the `norm` of a residual of `nrows` rows and the norm `error` of the
    /// error bounds of its rows.
    #[inline]
    pub fn new(nrows: usize, norm: f64, error: f64) -> Self {
        let sizes = Sizes { nrows, longest_row: 0 };
        let error = error + sizes.error_of_norm(error) + sizes.error_of_norm(norm);
        Self { norm, error }
    }
}

/// `r = b - A x`, rounded once to the working precision, and its norm with a bound of the error.
///
/// Each row is a dot product of twofold precision in f64: products are split into a rounded product
/// and its error by a fused multiply-add, sums likewise, and the errors are added up beside the
/// sum. The remaining error is bounded by the rounding of the sum of errors, whose sizes are known,
/// and by the underflow of the products' errors.
///
/// # Source
/// T. Ogita, S. M. Rump, S. Oishi, Accurate sum and dot product, 2005, doi:10.1137/030601818,
/// algorithms 3.1 to 5.3; S. Boldo, J.-M. Muller, Some functions computable with a fused-mac, 2005,
/// for the underflow of products.
pub fn residual_twofold<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    values: &[T],
    x: &[T],
    b: &[T],
    r: &mut [T],
) -> Evaluated {
    residual_twofold_from(0, pattern, values, x, b, r)
}

/// [`residual_twofold`] of the rows from `first` on, as many as `b` and `r` have elements.
pub fn residual_twofold_from<T: Scalar>(
    first: usize,
    pattern: CsrPatternRef<'_>,
    values: &[T],
    x: &[T],
    b: &[T],
    r: &mut [T],
) -> Evaluated {
    widest(Twofold { first, pattern, values, x, b, r })
}

/// Task of [`residual_twofold`]. The fused multiply-add is one instruction where the CPU has it,
/// and rounds identically where it is emulated.
struct Twofold<'a, T> {
    first: usize,
    pattern: CsrPatternRef<'a>,
    values: &'a [T],
    x: &'a [T],
    b: &'a [T],
    r: &'a mut [T],
}

impl<T: Scalar> Part for Twofold<'_, T> {
    type Output = Evaluated;

    #[inline(always)]
    fn run(self) -> Evaluated {
        let Self { first, pattern, values, x, b, r } = self;
        let cols = pattern.col_idx();
        let (mut exact, mut errors) = (vec![0.0; r.len()], vec![0.0; r.len()]);
        for (row, r) in r.iter_mut().enumerate() {
            // `sum + rest` is b - A x up to rounding errors of `rest`; `size` adds up the sizes of
            // the terms of `rest`. `lost` counts the products whose error may underflow.
            let (mut sum, mut rest, mut size, mut lost) = (b[row].to_f64(), 0.0f64, 0.0f64, 0u32);
            let range = pattern.row(first + row);
            for (&value, &col) in values[range.clone()].iter().zip(&cols[range.clone()]) {
                let (value, x) = (-value.to_f64(), x[col as usize].to_f64());
                let product = value * x;
                let error_of_product = value.mul_add(x, -product);
                let (next, error_of_sum) = two_sum(sum, product);
                sum = next;
                rest += error_of_product + error_of_sum;
                size += error_of_product.abs() + error_of_sum.abs();
                lost += u32::from(product.abs() < SAFE_PRODUCT && value != 0.0 && x != 0.0);
            }
            let (value, last) = two_sum(sum, rest);
            exact[row] = value;
            let terms = 2.0 * range.len() as f64 + 2.0;
            errors[row] =
                terms * f64::EPSILON * size + last.abs() + f64::from(lost) * f64::from_bits(1);
            *r = T::from_f64(value);
        }
        Evaluated::new(r.len(), norm2(&exact), norm2(&errors))
    }
}

/// `a + b` rounded, and its rounding error, which is representable in f64 whenever the sum is
/// finite.
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
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

    fn csr(ncols: usize, values: &[f64]) -> sparsebatch_formats::Csr<f64> {
        let nrows = values.len() / ncols;
        let row_ptr = (0..=nrows).map(|row| (row * ncols) as i32).collect();
        let col_idx = (0..values.len()).map(|k| (k % ncols) as i32).collect();
        sparsebatch_formats::Csr::try_new(nrows, ncols, row_ptr, col_idx, values.to_vec()).unwrap()
    }

    #[test]
    fn twofold_residuals_see_what_plain_ones_lose() {
        // x = (1e16 + 2, 0.3, -1e16): the sum is 2.3, but 0.3 is lost when it is added to 1e16.
        let a = csr(3, &[1.0, 1.0, 1.0]);
        let x = [1e16 + 2.0, 0.3, -1e16];
        let mut r = [0.0];

        let plain = residual(a.view().pattern(), a.values(), &x, &[2.25], &mut r);
        let twofold = residual_twofold(a.view().pattern(), a.values(), &x, &[2.25], &mut r);

        let exact = 0.3 - 0.25;
        assert!((plain - exact).abs() > 0.04, "{plain}");
        assert!((twofold.norm - exact).abs() <= twofold.error + 1e-17, "{twofold:?}");
        assert!(twofold.error < 1e-14 && r[0] == -twofold.norm);
        let sizes = Sizes::of(a.view().pattern());
        let magnitude = residual_magnitude(a.view().pattern(), a.values(), &x, &[2.25]);
        assert!((plain - exact).abs() <= sizes.error_of_plain::<f64>(magnitude, plain));
    }

    #[test]
    fn bounds_are_zero_where_nothing_is_rounded_and_infinite_where_all_is_lost() {
        let a = csr(2, &[2.0, 1.0, 0.0, 4.0]);
        let of = |x: [f64; 2], b: [f64; 2]| {
            residual_twofold(a.view().pattern(), a.values(), &x, &b, &mut [0.0; 2])
        };

        assert_eq!(of([1.0, 0.5], [2.5, 2.0]), Evaluated { norm: 0.0, error: 0.0 });
        assert!(!of([1e308, 1e308], [0.0; 2]).norm.is_finite());
        // 2e-320 is rounded; the bound says so.
        let tiny = of([1e-320, 0.0], [2e-320, 0.0]);
        assert!(tiny.error > 0.0 && tiny.norm <= tiny.error, "{tiny:?}");
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
