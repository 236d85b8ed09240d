//! Matrices for the tests of products.
#![allow(dead_code, reason = "each test file uses a part of this one")]

use std::collections::BTreeMap;

use sparsebatch_cpu_ref::seq;
use sparsebatch_formats::{Csr, Scalar};
use sparsebatch_testing::random_vector;

/// A fixed pseudo-random sequence.
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) as usize) % limit
    }

    /// An integer in -8..=8: sums of products are exact in f32, too.
    fn integer(&mut self) -> f64 {
        self.below(17) as f64 - 8.0
    }
}

/// `len` integers in -8..=8.
pub(crate) fn integers<T: Scalar>(len: usize, seed: u64) -> Vec<T> {
    let mut random = Sequence(seed);
    (0..len).map(|_| T::from_f64(random.integer())).collect()
}

/// A matrix of integers whose row `r` has the columns that `columns` returns for it, without
/// duplicates.
pub(crate) fn from_columns<T: Scalar>(
    nrows: usize,
    ncols: usize,
    mut columns: impl FnMut(usize, &mut Sequence) -> Vec<usize>,
) -> Csr<T> {
    let mut random = Sequence((nrows * 1000 + ncols) as u64);
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..nrows {
        let columns = columns(row, &mut random);
        let row: BTreeMap<usize, T> =
            columns.into_iter().map(|col| (col, T::from_f64(random.integer()))).collect();
        col_idx.extend(row.keys().map(|&col| col as i32));
        values.extend(row.values());
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(nrows, ncols, row_ptr, col_idx, values).unwrap()
}

/// Rows of 0 to 12 entries; every fifth row is empty, and row `dense` is dense.
pub(crate) fn mixed<T: Scalar>(nrows: usize, ncols: usize, dense: Option<usize>) -> Csr<T> {
    from_columns(nrows, ncols, |row, random| {
        if dense == Some(row) {
            (0..ncols).collect()
        } else if row % 5 == 4 || ncols == 0 {
            Vec::new()
        } else {
            (0..random.below(13)).map(|_| random.below(ncols)).collect()
        }
    })
}

/// Five diagonals.
pub(crate) fn banded<T: Scalar>(nrows: usize, ncols: usize) -> Csr<T> {
    from_columns(nrows, ncols, |row, _| {
        let columns = [-7, -1, 0, 1, 7].map(|offset| row as i64 + offset);
        columns.into_iter().filter_map(|c| usize::try_from(c).ok().filter(|&c| c < ncols)).collect()
    })
}

/// The same pattern with values in [-1, 1).
pub(crate) fn with_reals<T: Scalar>(mut a: Csr<T>) -> Csr<T> {
    let values = random_vector(a.nnz(), 5);
    a.values_mut().copy_from_slice(&values);
    a
}

/// `alpha*A*x + beta*y` by the oracle.
pub(crate) fn oracle<T: Scalar>(alpha: T, a: &Csr<T>, x: &[T], beta: T, y: &[T]) -> Vec<T> {
    let mut y = y.to_vec();
    seq::spmv(alpha, a.view(), x, beta, &mut y).unwrap();
    y
}
