//! Proptest strategies for matrices and vectors, and random vectors.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use sparsebatch_formats::generate::rng;
use sparsebatch_formats::{Csr, Scalar};

/// A CSR pattern: `(nrows, ncols, row_ptr, col_idx)`.
pub type CsrParts = (usize, usize, Vec<i32>, Vec<i32>);

/// Patterns of 0 to `max_rows` rows and 0 to `max_cols` columns: rows of different lengths, about a
/// third of them empty, and one dense row in a third of the patterns.
pub fn csr_parts(max_rows: usize, max_cols: usize) -> impl Strategy<Value = CsrParts> {
    (0..=max_rows, 0..=max_cols).prop_flat_map(|(nrows, ncols)| parts(nrows, ncols))
}

fn parts(nrows: usize, ncols: usize) -> impl Strategy<Value = CsrParts> {
    let columns = 0..ncols.max(1) as i32;
    let row = prop_oneof![
        1 => Just(Vec::new()),
        2 => btree_set(columns, 0..=ncols.min(8)).prop_map(|row| row.into_iter().collect()),
    ];
    let dense_row = proptest::option::weighted(0.33, 0..nrows.max(1));
    (vec(row, nrows), dense_row).prop_map(move |(mut rows, dense_row)| {
        if let Some(row) = dense_row.filter(|&row| row < nrows) {
            rows[row] = (0..ncols as i32).collect();
        }
        let mut row_ptr = vec![0];
        let mut col_idx: Vec<i32> = Vec::new();
        for mut row in rows {
            if ncols > 0 {
                col_idx.append(&mut row);
            }
            row_ptr.push(col_idx.len() as i32);
        }
        (nrows, ncols, row_ptr, col_idx)
    })
}

/// Matrices with patterns from `parts` and values from `value`.
pub fn csr<T: Scalar>(
    parts: impl Strategy<Value = CsrParts>,
    value: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = Csr<T>> {
    parts.prop_flat_map(move |(nrows, ncols, row_ptr, col_idx)| {
        vec(value.clone(), col_idx.len()).prop_map(move |values| {
            Csr::try_new(nrows, ncols, row_ptr.clone(), col_idx.clone(), values)
                .expect("the strategy keeps the invariants")
        })
    })
}

/// Small integers, zero included: sums of their products are exact in f32 too, so that products in
/// any order agree bit for bit.
fn integer<T: Scalar>() -> impl Strategy<Value = T> + Clone {
    (-8i8..=8).prop_map(|v| T::from_f64(f64::from(v)))
}

/// Matrices of any shape (see [`csr_parts`]) with integer values in -8..=8, explicit zeros
/// included.
pub fn csr_integers<T: Scalar>(max_rows: usize, max_cols: usize) -> impl Strategy<Value = Csr<T>> {
    csr(csr_parts(max_rows, max_cols), integer())
}

/// Square matrices with integer values in -8..=8.
pub fn square_csr_integers<T: Scalar>(max_rows: usize) -> impl Strategy<Value = Csr<T>> {
    csr((0..=max_rows).prop_flat_map(|n| parts(n, n)), integer())
}

/// Matrices of any shape (see [`csr_parts`]) with values of any kind and size: normal, subnormal,
/// zeros of both signs, infinities, NaN of any payload.
pub fn csr_reals(max_rows: usize, max_cols: usize) -> impl Strategy<Value = Csr<f64>> {
    csr(csr_parts(max_rows, max_cols), any::<u64>().prop_map(f64::from_bits).boxed())
}

/// Vectors of `len` integers in -8..=8.
pub fn integer_vector<T: Scalar>(len: usize) -> impl Strategy<Value = Vec<T>> {
    vec(integer(), len)
}

/// `len` integers in -8..=8; equal seeds give equal vectors.
pub fn random_integers<T: Scalar>(len: usize, seed: u64) -> Vec<T> {
    rng::vector(seed, len).into_iter().map(|v| T::from_f64((8.5 * v).round())).collect()
}

/// `len` numbers uniform in [-1, 1); equal seeds give equal vectors.
pub fn random_vector<T: Scalar>(len: usize, seed: u64) -> Vec<T> {
    rng::vector(seed, len).into_iter().map(T::from_f64).collect()
}
