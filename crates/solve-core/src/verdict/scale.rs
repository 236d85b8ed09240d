//! Powers of two that keep matrices and right-hand sides in the range of the working precision.

use sparsebatch_formats::Scalar;

use crate::evaluate::{exponent, pow2};

/// Largest `|e|` for which squares of numbers near `2^e` stay in the range of `T`.
fn safe_exponent<T: Scalar>() -> i32 {
    if T::NAME == "f64" { 200 } else { 20 }
}

/// The exponent e such that `norm * 2^-e` is about 1; 0 if squares of numbers near `norm` stay in
/// the range of `T`.
pub fn scale_for_squares<T: Scalar>(norm: f64) -> i32 {
    // For `|e| <= largest` both `2^e` and `2^-e` are representable in `T`.
    let (safe, largest) = (safe_exponent::<T>(), if T::NAME == "f64" { 1000 } else { 120 });
    if !(norm > 0.0 && norm.is_finite()) {
        return 0;
    }
    let exponent = exponent(norm);
    if exponent.abs() <= safe { 0 } else { exponent.clamp(-largest, largest) }
}

/// [`scale_of_matrix`], but `norm`, the Frobenius norm of `values`, nearly always suffices to
/// decide.
pub fn scale_by_norm<T: Scalar>(norm: f64, values: &[T]) -> i32 {
    if needs_no_scale::<T>(norm, values.len()) { 0 } else { scale_of_matrix(values) }
}

/// Whether the Frobenius norm of `count` values shows that [`scale_of_matrix`] is 0.
pub fn needs_no_scale<T: Scalar>(norm: f64, count: usize) -> bool {
    let safe = pow2(safe_exponent::<T>());
    // `norm / sqrt(count) <= largest entry <= norm`.
    let least = norm / (count as f64).sqrt();
    norm < safe && least > 1.0 / safe
}

/// The exponent e such that solvers work on `A * 2^-e`. It is 0 unless squares of products with the
/// largest entry might leave the range of `T`, and 0 where the scaling would push the smallest
/// nonzero entry out of that range.
pub fn scale_of_matrix<T: Scalar>(values: &[T]) -> i32 {
    let (mut largest, mut smallest) = (0.0f64, f64::INFINITY);
    for value in values {
        let size = value.to_f64().abs();
        largest = largest.max(size);
        smallest = if size > 0.0 { smallest.min(size) } else { smallest };
    }
    let scale = scale_for_squares::<T>(largest);
    let reach = if T::NAME == "f64" { 900 } else { 100 };
    if exponent(smallest) - scale < -reach { 0 } else { scale }
}
