//! The oracle: `y = alpha*A*x + beta*y` by plain sequential loops, one file per format.
//!
//! Every other product of this project, on CPU cores or on a device, is compared with these loops,
//! so they stay simple: one sum per row in the order of the stored entries, two roundings per entry
//! (no fused multiply-add), no unrolling.
//!
//! Rules shared by all formats:
//! - `alpha` and every stored entry multiply, even when zero: `0 * NaN` is NaN, as in IEEE
//!   arithmetic.
//! - `beta == 0` means that `y` is written without being read.
//! - Padding never multiplies, whatever value its slot holds; nor does the fill of a DIA diagonal.

mod coo;
mod csr;
mod dia;
mod ell;
mod hyb;
mod sellp;

use sparsebatch_formats::batch::checked_len;
use sparsebatch_formats::{BatchOf, Pattern, Scalar, View};
use sparsebatch_solve_core::ArgumentError;

use crate::CpuError;
use sparsebatch_solve_core::check_len;

/// A format with a sequential product. Implemented by all six patterns.
pub trait Spmv: Pattern {
    /// Rows and columns of a borrowed pattern.
    fn shape(pattern: Self::Ref<'_>) -> (usize, usize);

    /// `y = alpha*A*x + beta*y` for vectors whose lengths have been checked against the shape.
    ///
    /// # Panics
    /// When `x` has fewer elements than columns, or `y` fewer than rows.
    fn spmv_unchecked<T: Scalar>(alpha: T, a: View<'_, Self, T>, x: &[T], beta: T, y: &mut [T]);
}

/// `y = alpha*A*x + beta*y`, sequentially.
///
/// `x` has one entry per column of `a`, `y` one per row. One pass over the matrix, no extra
/// memory, always the same order of sums.
///
/// # Errors
/// [`CpuError::Argument`] when `x` or `y` does not fit the matrix; in that case `y` is untouched.
///
/// # Examples
/// ```
/// use sparsebatch_cpu_ref::seq;
/// use sparsebatch_formats::Csr;
/// // [2 0; 1 3] * [1, 10]
/// let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 3.0])?;
/// let mut y = [f64::NAN; 2];
/// seq::spmv(1.0, a.view(), &[1.0, 10.0], 0.0, &mut y)?;
/// assert_eq!(y, [2.0, 31.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn spmv<P: Spmv, T: Scalar>(
    alpha: T,
    a: View<'_, P, T>,
    x: &[T],
    beta: T,
    y: &mut [T],
) -> Result<(), CpuError> {
    let (nrows, ncols) = P::shape(a.pattern());
    check_len("x", ncols, x.len())?;
    check_len("y", nrows, y.len())?;
    P::spmv_unchecked(alpha, a, x, beta, y);
    Ok(())
}

/// `Y_i = alpha*A_i*X_i + beta*Y_i` for every item of a batch, sequentially, with `nrhs`
/// right-hand sides per item.
///
/// `x` and `y` are item-major: item after item, right-hand side after right-hand side within the
/// item. The batch holds its items one by one, so a uniform batch must have item-major or shared
/// values.
///
/// # Errors
/// [`CpuError::Argument`] when `x` or `y` does not fit; [`CpuError::Format`] when the length
/// overflows; [`CpuError::Argument`] for a uniform batch with interleaved values. On an error
/// `y` is untouched.
pub fn batch_spmv<P: Spmv, T: Scalar>(
    alpha: T,
    batch: &impl BatchOf<P, T>,
    nrhs: usize,
    x: &[T],
    beta: T,
    y: &mut [T],
) -> Result<(), CpuError> {
    check_batch(batch, nrhs, x, y)?;
    let (mut x, mut y) = (x, y);
    if x.is_empty() && y.is_empty() {
        return Ok(());
    }
    for item in 0..batch.nitems() {
        let a = batch.item(item);
        let (nrows, ncols) = P::shape(a.pattern());
        for _ in 0..nrhs {
            let (x_now, x_rest) = x.split_at(ncols);
            let (y_now, y_rest) = y.split_at_mut(nrows);
            P::spmv_unchecked(alpha, a, x_now, beta, y_now);
            (x, y) = (x_rest, y_rest);
        }
    }
    Ok(())
}

/// Checks that vectors fit a batch, and that its items can be borrowed.
pub(crate) fn check_batch<P: Spmv, T: Scalar>(
    batch: &impl BatchOf<P, T>,
    nrhs: usize,
    x: &[T],
    y: &[T],
) -> Result<(), CpuError> {
    check_len("x", checked_len("number of values of x", batch.total_cols(), nrhs)?, x.len())?;
    check_len("y", checked_len("number of values of y", batch.total_rows(), nrhs)?, y.len())?;
    if !batch.has_contiguous_items() {
        return Err(CpuError::Argument(ArgumentError::OutOfRange {
            name: "layout of the values",
            expected: "item-major or shared (UniformBatch::to_item_major)",
            found: "interleaved".to_owned(),
        }));
    }
    Ok(())
}

/// `alpha*sum + beta*y` without reading `y` when `beta` is 0.
#[inline(always)]
pub(crate) fn axpby<T: Scalar>(alpha: T, sum: T, beta: T, y: T) -> T {
    if beta == T::ZERO { alpha * sum } else { alpha * sum + beta * y }
}
