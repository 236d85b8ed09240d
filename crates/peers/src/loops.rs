//! Loops over arrays: copies, sums, strided additions, and the sequential reference products.

use rayon::prelude::*;
use sparsebatch_cpu_ref::{CpuError, seq};
use sparsebatch_formats::{CsrPattern, Pattern, Scalar, SellPPattern, View};

/// Numbers per piece of an array that a thread takes at a time: 512 KiB of f64.
const PIECE: usize = 1 << 16;

/// Copies on all threads of the pool in use.
pub fn copy(from: &[f64], to: &mut [f64]) {
    let pieces = to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE));
    pieces.for_each(|(to, from)| to.copy_from_slice(from));
}

/// The sum, on all threads of the pool in use.
pub fn sum(numbers: &[f64]) -> f64 {
    numbers.par_chunks(PIECE).map(sum_of_piece).sum()
}

/// The sum from 32 partial sums, so that additions do not wait for each other.
fn sum_of_piece(numbers: &[f64]) -> f64 {
    let mut sums = [0.0; 32];
    let pieces = numbers.chunks_exact(32);
    let rest: f64 = pieces.remainder().iter().sum();
    for piece in pieces {
        for (sum, number) in sums.iter_mut().zip(piece) {
            *sum += number;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// A value type that loops are compiled for.
pub trait PlainLoops: Scalar {
    /// `y += x` over the elements 0, `stride`, 2 `stride`, ... of both. With `grain`, runs on all
    /// threads of the pool in use, `grain` elements per task; without, on the calling thread.
    fn add_strided(x: &[Self], y: &mut [Self], stride: usize, grain: Option<usize>);
}

/// A value type whose sequential products in a format are compiled here.
pub trait SequentialProduct<P: Pattern>: Scalar {
    /// `y += A x` by [`seq::spmv`].
    ///
    /// # Errors
    /// [`CpuError::Argument`] when `x` or `y` does not fit.
    fn add_product(a: View<'_, P, Self>, x: &[Self], y: &mut [Self]) -> Result<(), CpuError>;
}

macro_rules! compiled_here {
    ($($scalar:ty)*) => {$(
        impl PlainLoops for $scalar {
            fn add_strided(x: &[Self], y: &mut [Self], stride: usize, grain: Option<usize>) {
                let add = |(y, x): (&mut [Self], &[Self])| {
                    let elements = y.iter_mut().step_by(stride).zip(x.iter().step_by(stride));
                    elements.for_each(|(y, &x)| *y += x);
                };
                match grain.map(|elements| stride * elements) {
                    Some(part) => y.par_chunks_mut(part).zip(x.par_chunks(part)).for_each(add),
                    None => add((y, x)),
                }
            }
        }
        compiled_here!($scalar: CsrPattern SellPPattern);
    )*};
    ($scalar:ty: $($pattern:ty)*) => {$(
        impl SequentialProduct<$pattern> for $scalar {
            fn add_product(
                a: View<'_, $pattern, Self>,
                x: &[Self],
                y: &mut [Self],
            ) -> Result<(), CpuError> {
                seq::spmv(1.0, a, x, 1.0, y)
            }
        }
    )*};
}
compiled_here!(f32 f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_several_pieces_are_copied_and_summed() {
        let from: Vec<f64> = (0..2 * PIECE + 5).map(|k| (k % 7) as f64).collect();
        let mut to = vec![0.0; from.len()];

        copy(&from, &mut to);

        assert_eq!(to, from);
        assert_eq!(sum(&from), from.iter().sum::<f64>());
    }
}
