//! The inverse of the diagonal, row by row: [`Jacobi`].

use rayon::prelude::*;
use sparsebatch_formats::{Batch, Scalar};

/// The preconditioner of all systems.
pub(super) struct Jacobi<T> {
    /// One value for each row of the vectors.
    pub(super) inverse: Vec<T>,
    /// 1 for each system with a zero on the diagonal; empty where zeros count as 1.
    pub(super) flawed: Vec<u8>,
}

impl<T: Scalar> Jacobi<T> {
    /// The preconditioner of `nrhs` systems per item. With `lenient`, a zero or absent diagonal
    /// entry counts as 1.
    pub(super) fn new(batch: &Batch<T>, nrhs: usize, lenient: bool) -> Self {
        let of_item = |item: usize| {
            let pattern = batch.pattern(item);
            let mut copy = Vec::new();
            let values = batch.values_in(item, &mut copy);
            let entry = |row| pattern.position(row, row).map_or(T::ZERO, |k| values[k]);
            let inverse = |row| match entry(row) {
                diagonal if diagonal == T::ZERO => (T::ONE, true),
                diagonal => (T::ONE / diagonal, false),
            };
            let (inverse, zeros): (Vec<T>, Vec<bool>) = (0..pattern.nrows()).map(inverse).unzip();
            (inverse, zeros.contains(&true))
        };
        let items: Vec<_> = (0..batch.nitems()).into_par_iter().map(of_item).collect();
        let each = || items.iter().flat_map(|item| std::iter::repeat_n(item, nrhs));
        Self {
            inverse: each().flat_map(|(inverse, _)| inverse.iter().copied()).collect(),
            flawed: match lenient {
                true => Vec::new(),
                false => each().map(|&(_, is_flawed)| u8::from(is_flawed)).collect(),
            },
        }
    }
}
