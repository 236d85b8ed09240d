//! The residual for callers outside of this crate, lengths checked.

use sparsebatch_formats::{CsrPatternRef, Scalar};

use crate::argument::check_len;
use crate::{ArgumentError, evaluate};

/// `r = b - A x` of one system in the working precision, and `||r||_2` (NaN when it is not finite).
/// The products of a row are added in ascending column order, and their sum subtracted from `b`:
/// in the other order a huge `x` whose products cancel, as a singular matrix invites it, absorbs
/// `b` and leaves a residual of 0 that is none.
///
/// Lengths: `values` one per entry, `x` one per column, `b` and `r` one per row.
///
/// # Errors
/// [`ArgumentError::Length`] for an array of another length; `r` is untouched then.
///
/// # Examples
/// ```
/// use sparsebatch_solve_core::residual;
/// use sparsebatch_formats::Csr;
/// // [2 0; 1 4] x = [5; 1] at x = (1, -1)
/// let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 4.0])?;
/// let mut r = [0.0; 2];
/// let norm = residual(a.view().pattern(), a.values(), &[1.0, -1.0], &[5.0, 1.0], &mut r)?;
/// assert_eq!((norm, r), (5.0, [3.0, 4.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn residual<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    values: &[T],
    x: &[T],
    b: &[T],
    r: &mut [T],
) -> Result<f64, ArgumentError> {
    check(pattern, values, x, b)?;
    check_len("r", pattern.nrows(), r.len())?;
    Ok(evaluate::residual(pattern, values, x, b, r))
}

/// `|| |A||x| + |b| ||_2` of one system: the size of the numbers that cancel in the residual.
///
/// # Errors
/// [`ArgumentError::Length`] for an array of another length.
pub fn residual_magnitude<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    values: &[T],
    x: &[T],
    b: &[T],
) -> Result<f64, ArgumentError> {
    check(pattern, values, x, b)?;
    Ok(evaluate::residual_magnitude(pattern, values, x, b))
}

fn check<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    values: &[T],
    x: &[T],
    b: &[T],
) -> Result<(), ArgumentError> {
    check_len("values", pattern.nnz(), values.len())?;
    check_len("x", pattern.ncols(), x.len())?;
    check_len("b", pattern.nrows(), b.len())
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::Csr;

    use super::*;

    #[test]
    fn arrays_of_other_lengths_are_refused_by_name() {
        // 2 x 3.
        let a = Csr::try_new(2, 3, vec![0, 1, 3], vec![0, 0, 2], vec![2.0, 1.0, 4.0]).unwrap();
        let pattern = a.view().pattern();
        let (three, two) = ([1.0; 3], [1.0; 2]);
        let refused = |values: &[f64], x: &[f64], b: &[f64], len: usize| {
            let mut r = vec![7.0; len];
            let error = residual(pattern, values, x, b, &mut r).err().map(|e| e.to_string());
            assert!(error.is_none() || r.iter().all(|&r| r == 7.0));
            error
        };
        let text = |what: &str, found: usize, expected: usize| {
            Some(format!("{what} has {found} entries, expected {expected}"))
        };

        assert_eq!(refused(&three, &three, &two, 2), None);
        assert_eq!(refused(&two, &three, &two, 2), text("values", 2, 3));
        assert_eq!(refused(&three, &two, &two, 2), text("x", 2, 3));
        assert_eq!(refused(&three, &three, &[], 2), text("b", 0, 2));
        assert_eq!(refused(&three, &three, &two, 3), text("r", 3, 2));
        assert_eq!(
            residual_magnitude(pattern, &three, &two, &two).err().map(|e| e.to_string()),
            text("x", 2, 3)
        );
        assert_eq!(
            residual_magnitude(pattern, a.values(), &three, &[0.0; 2]).unwrap(),
            29f64.sqrt()
        );
    }
}
