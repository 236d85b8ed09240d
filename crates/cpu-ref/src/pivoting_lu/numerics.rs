//! Scaling, residuals, norms and the condition estimate around the factorisation.

use sparsebatch_formats::CsrPatternRef;

use super::Singularity;

/// Powers of two with `max over j of |row_scale[i] a[i][j]|` in `[1, 2)` for every row and then
/// `max over i of |row_scale[i] a[i][j] col_scale[j]|` in `[1, 2)` for every column (entries near
/// the ends of the range of f64 apart: exponents are kept within 1,000).
pub(super) fn equilibrate(
    pattern: CsrPatternRef<'_>,
    values: &[f64],
    row_scale: &mut Vec<f64>,
    col_scale: &mut Vec<f64>,
) -> Result<(), Singularity> {
    row_scale.clear();
    col_scale.clear();
    col_scale.resize(pattern.ncols(), 0.0);
    for row in 0..pattern.nrows() {
        let entries = pattern.row(row);
        let largest = largest(&values[entries.clone()]);
        if largest == 0.0 {
            return Err(Singularity::ZeroRow(row));
        }
        let scale = inverse_power_of_two(largest);
        row_scale.push(scale);
        for k in entries {
            let largest = &mut col_scale[pattern.col_idx()[k] as usize];
            *largest = largest.max((values[k] * scale).abs());
        }
    }
    for (col, scale) in col_scale.iter_mut().enumerate() {
        if *scale == 0.0 {
            return Err(Singularity::ZeroColumn(col));
        }
        *scale = inverse_power_of_two(*scale);
    }
    Ok(())
}

/// `2^-e` for `2^e <= value < 2^(e + 1)`, e kept within 1,000.
fn inverse_power_of_two(value: f64) -> f64 {
    let exponent = (value.to_bits() >> 52 & 0x7FF) as i64 - 1023;
    let inverse = (-exponent).clamp(-1000, 1000);
    f64::from_bits(((inverse + 1023) as u64) << 52)
}

/// `out = b - A x`, each row accumulated in twice the precision of f64 and rounded once.
///
/// The products and sums are split into a rounded value and its exact error (Ogita, Rump, Oishi,
/// Accurate sum and dot product, 2005, doi:10.1137/030601818, algorithm Dot2).
pub(super) fn residual(
    pattern: CsrPatternRef<'_>,
    values: &[f64],
    b: &[f64],
    x: &[f64],
    out: &mut Vec<f64>,
) {
    out.clear();
    for (row, &b) in b.iter().enumerate() {
        let (mut sum, mut error) = (b, 0.0);
        for k in pattern.row(row) {
            let (a, x) = (-values[k], x[pattern.col_idx()[k] as usize]);
            let product = a * x;
            let total = sum + product;
            let rest = total - sum;
            error += (sum - (total - rest)) + (product - rest) + a.mul_add(x, -product);
            sum = total;
        }
        out.push(sum + error);
    }
}

fn largest(v: &[f64]) -> f64 {
    v.iter().fold(0.0, |largest: f64, v| largest.max(v.abs()))
}

/// `||v||_2` without intermediate overflow; NaN if any entry is NaN.
pub(super) fn norm2(v: &[f64]) -> f64 {
    let largest = largest(v);
    let sum: f64 = v.iter().map(|v| v * v).sum();
    if sum.is_finite() && sum >= f64::MIN_POSITIVE / f64::EPSILON || sum.is_nan() {
        return sum.sqrt();
    }
    if largest == 0.0 || largest.is_infinite() {
        return largest;
    }
    let scaled: f64 = v.iter().map(|v| (v / largest) * (v / largest)).sum();
    largest * scaled.sqrt()
}

/// `||A||_1`, the largest column sum of absolute values; `values` are stored by columns.
pub(super) fn norm1(col_ptr: &[usize], values: &[f64]) -> f64 {
    col_ptr
        .windows(2)
        .map(|range| values[range[0]..range[1]].iter().map(|v| v.abs()).sum())
        .fold(0.0, f64::max)
}

/// `S^-1`, available only through its products with vectors.
pub(super) trait Inverse {
    /// `v = S^-1 v`.
    fn apply(&mut self, v: &mut [f64]);
    /// `v = S^-T v`.
    fn apply_transposed(&mut self, v: &mut [f64]);
}

/// A lower bound on `||S^-1||_1`, usually within a factor of 3, from at most 12 solves; infinite
/// when one of them is not finite.
///
/// For x in the simplex, `||S^-1 x||_1` is convex and `S^-T sign(S^-1 x)` its subgradient: move to
/// the vertex that the subgradient points at until the norm no longer grows, then compare with a
/// vector of alternating signs, which catches the cases where this walk is misled.
/// N. J. Higham, FORTRAN codes for estimating the one-norm of a real or complex matrix, 1988,
/// doi:10.1145/50063.214386, algorithm 4.1.
pub(super) fn inverse_norm1(nrows: usize, inverse: &mut impl Inverse) -> f64 {
    let sum = |v: &[f64]| v.iter().map(|v| v.abs()).sum::<f64>();
    let mut v = vec![1.0 / nrows as f64; nrows];
    inverse.apply(&mut v);
    let mut estimate = sum(&v);
    if nrows == 1 || !estimate.is_finite() {
        return finite_or_infinity(estimate);
    }
    let mut vertex = None;
    for _ in 0..5 {
        for v in &mut v {
            *v = 1f64.copysign(*v);
        }
        inverse.apply_transposed(&mut v);
        let (next, steepest) = v
            .iter()
            .enumerate()
            .fold((0, -1.0), |best, (i, v)| if v.abs() > best.1 { (i, v.abs()) } else { best });
        if !steepest.is_finite() {
            return f64::INFINITY;
        }
        // The walk is at this vertex already: it cannot improve.
        if vertex == Some(next) {
            break;
        }
        vertex = Some(next);
        v.fill(0.0);
        v[next] = 1.0;
        inverse.apply(&mut v);
        let value = sum(&v);
        if !value.is_finite() {
            return f64::INFINITY;
        }
        if value <= estimate {
            break;
        }
        estimate = value;
    }
    for (i, v) in v.iter_mut().enumerate() {
        let size = 1.0 + i as f64 / (nrows - 1) as f64;
        *v = if i % 2 == 0 { size } else { -size };
    }
    inverse.apply(&mut v);
    finite_or_infinity(estimate.max(2.0 * sum(&v) / (3.0 * nrows as f64)))
}

fn finite_or_infinity(value: f64) -> f64 {
    if value.is_finite() { value } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{Csr, CsrPattern, Pattern};

    #[test]
    fn scales_are_powers_of_two_that_bring_entries_to_one() {
        // [6 0; 1e300 5e-324]
        let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![6.0, 1e300, 5e-324]).unwrap();
        let (mut rows, mut cols) = (Vec::new(), Vec::new());

        // Row scaling underflows the tiny entry beside the huge one: its column becomes zero.
        let result = equilibrate(a.view().pattern(), a.values(), &mut rows, &mut cols);
        assert_eq!(result, Err(Singularity::ZeroColumn(1)));

        let result = equilibrate(a.view().pattern(), &[6.0, -3.0, 0.25], &mut rows, &mut cols);
        assert_eq!(result, Ok(()));
        assert_eq!((rows, cols), (vec![0.25, 0.5], vec![1.0, 8.0]));
    }

    #[test]
    fn residual_sees_what_f64_would_cancel() {
        // 1e16 * 1 + 1 * 1 - 1e16 * 1, subtracted from 0.
        let pattern = CsrPattern::try_new(1, 3, vec![0, 3], vec![0, 1, 2]).unwrap();
        let mut out = Vec::new();

        residual(pattern.view(), &[1e16, 1.0, -1e16], &[0.0], &[1.0; 3], &mut out);

        assert_eq!(out, [-1.0]);
    }

    #[test]
    fn norm2_neither_overflows_nor_underflows() {
        assert_eq!(norm2(&[3.0, 4.0]), 5.0);
        assert_eq!(norm2(&[3e300, 4e300]), 5e300);
        assert!((norm2(&[3e-300, 4e-300]) / 5e-300 - 1.0).abs() < 1e-15);
        assert_eq!(norm2(&[0.0, 0.0]), 0.0);
        assert_eq!(norm2(&[1.0, f64::INFINITY]), f64::INFINITY);
        assert!(norm2(&[1.0, f64::NAN]).is_nan());
        assert!(norm2(&[f64::INFINITY, f64::NAN]).is_nan());
    }

    /// A dense inverse, row-major.
    struct Dense(Vec<f64>, usize);

    impl Inverse for Dense {
        fn apply(&mut self, v: &mut [f64]) {
            let old = v.to_vec();
            for (i, out) in v.iter_mut().enumerate() {
                *out = (0..self.1).map(|j| self.0[i * self.1 + j] * old[j]).sum();
            }
        }
        fn apply_transposed(&mut self, v: &mut [f64]) {
            let old = v.to_vec();
            for (i, out) in v.iter_mut().enumerate() {
                *out = (0..self.1).map(|j| self.0[j * self.1 + i] * old[j]).sum();
            }
        }
    }

    #[test]
    fn estimate_finds_the_largest_column_of_the_inverse() {
        let mut inverse = Dense(vec![1.0, -7.0, 0.5, 2.0, 3.0, 1.0, 0.0, 2.0, -4.0], 3);

        assert_eq!(inverse_norm1(3, &mut inverse), 12.0);
    }

    #[test]
    fn estimate_of_a_singular_matrix_is_infinite() {
        let mut inverse = Dense(vec![f64::NAN; 4], 2);

        assert_eq!(inverse_norm1(2, &mut inverse), f64::INFINITY);
    }
}
