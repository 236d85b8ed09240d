//! Thomas' algorithm for batches of tridiagonal systems, system by system.

use rayon::prelude::*;
use sparsebatch_formats::Scalar;

/// A value type for which [`Thomas::thomas`] is compiled.
pub trait Thomas: Scalar {
    /// Solves `A x = b` for systems of `rows` rows, item-major, on all threads of the pool in use.
    /// `values` holds for each system, row by row, the entries of a whole tridiagonal matrix:
    /// `3 rows - 2` of them. Without pivoting, checks or residuals.
    ///
    /// # Panics
    /// When the arrays are not of one number of systems.
    fn thomas(rows: usize, values: &[Self], b: &[Self], x: &mut [Self]);
}

macro_rules! compiled_here {
    ($($scalar:ty)*) => {$(
        impl Thomas for $scalar {
            fn thomas(rows: usize, values: &[Self], b: &[Self], x: &mut [Self]) {
                solve_here(rows, values, b, x);
            }
        }
    )*};
}

compiled_here!(f64 f32);

fn solve_here<T: Scalar>(rows: usize, values: &[T], b: &[T], x: &mut [T]) {
    if rows == 0 {
        return;
    }
    let entries = 3 * rows - 2;
    assert_eq!((values.len() / entries, b.len()), (b.len() / rows, x.len()), "arrays of a batch");
    let systems = values.par_chunks(entries).zip(b.par_chunks(rows)).zip(x.par_chunks_mut(rows));
    systems.with_min_len(16).for_each_init(Vec::new, |upper, ((values, b), x)| {
        upper.clear();
        let mut last = (T::ZERO, T::ZERO);
        for (row, (x, &b)) in x.iter_mut().zip(b).enumerate() {
            let lower = if row == 0 { T::ZERO } else { values[3 * row - 1] };
            let pivot = values[3 * row] - lower * last.0;
            let above = values.get(3 * row + 1).copied().unwrap_or(T::ZERO);
            last = (above / pivot, (b - lower * last.1) / pivot);
            upper.push(last.0);
            *x = last.1;
        }
        for row in (1..rows).rev() {
            let behind = x[row];
            x[row - 1] -= upper[row - 1] * behind;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_systems_are_solved() {
        // [2 1; 1 3] x = [4; 7] and [1 0; 2 2] x = [3; 8]
        let values = [2.0, 1.0, 1.0, 3.0, 1.0, 0.0, 2.0, 2.0];
        let mut x = [0.0; 4];

        Thomas::thomas(2, &values, &[4.0, 7.0, 3.0, 8.0], &mut x);

        assert_eq!(x, [1.0, 2.0, 3.0, 1.0]);
    }
}
