//! Systems with their vectors, and permutations of a batch.
#![allow(dead_code, reason = "each test file uses a part of this one")]

use sparsebatch_formats::{Csr, Scalar};
use sparsebatch_testing::random_vector;

use super::matrices::Sequence;

/// A system and its vectors.
pub(crate) struct System<T> {
    pub(crate) matrix: Csr<T>,
    pub(crate) x: Vec<T>,
    pub(crate) y: Vec<T>,
}

pub(crate) fn with_vectors<T: Scalar>(matrices: Vec<Csr<T>>) -> Vec<System<T>> {
    let vectors = |(k, matrix): (usize, Csr<T>)| System {
        x: random_vector(matrix.ncols(), 2 * k as u64),
        y: random_vector(matrix.nrows(), 2 * k as u64 + 1),
        matrix,
    };
    matrices.into_iter().enumerate().map(vectors).collect()
}

/// A permutation of `0..len`.
pub(crate) fn shuffled(len: usize, random: &mut Sequence) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    for k in (1..len).rev() {
        order.swap(k, random.below(k + 1));
    }
    order
}

pub(crate) fn bits<T: Scalar>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.to_f64().to_bits()).collect()
}
