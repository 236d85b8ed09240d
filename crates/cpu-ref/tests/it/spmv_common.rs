//! Matrices and oracles shared by the product tests.

use proptest::prelude::*;
use sparsebatch_formats::{Csr, Scalar};
use sparsebatch_solve_core::{FormatChoice, KernelChoice, SpmvOptions};

/// Every format with each of its kernels; `max_fill` lets all of them take any test matrix.
pub(crate) fn all_options() -> Vec<SpmvOptions> {
    use FormatChoice::{Auto, Coo, Csr, Dia, Ell, Hyb, SellP};
    use KernelChoice::{Blocks, CsrI, Entries, Rows, Runs};
    let kernels = [
        (Auto, KernelChoice::Auto),
        (Csr, Rows),
        (Csr, CsrI),
        (Coo, Entries),
        (Ell, Rows),
        (Hyb, Rows),
        (Dia, Rows),
        (Dia, Blocks),
        (SellP, Rows),
        (SellP, Runs),
    ];
    let mut all: Vec<SpmvOptions> = kernels
        .into_iter()
        .map(|(format, kernel)| SpmvOptions::default().format(format).kernel(kernel).max_fill(1e6))
        .collect();
    let mut sorted = all[8].clone();
    (sorted.sellp.slice_size, sorted.sellp.sort_window) = (4, Some(16));
    let mut scattered = all[8].clone();
    (scattered.sellp.slice_size, scattered.sellp.sort_window) = (100, Some(1 << 20));
    let mut parts = all[2].clone();
    parts.parts = Some(7);
    let mut coo_parts = all[3].clone();
    coo_parts.parts = Some(256);
    all.extend([sorted, scattered, parts, coo_parts]);
    all
}

/// The same without the kernels that support only single matrices.
pub(crate) fn batch_options() -> Vec<SpmvOptions> {
    let mut all = all_options();
    all.retain(|o| !matches!(o.kernel, KernelChoice::Blocks | KernelChoice::Runs));
    all
}

/// A matrix from rows of (column, value); of repeated columns the last one counts.
pub(crate) fn from_rows<T: Scalar>(ncols: usize, rows: &[Vec<(usize, T)>]) -> Csr<T> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in rows {
        let row: std::collections::BTreeMap<usize, T> = row.iter().copied().collect();
        col_idx.extend(row.keys().map(|&col| col as i32));
        values.extend(row.values());
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(rows.len(), ncols, row_ptr, col_idx, values).unwrap()
}

/// A fixed pseudo-random sequence.
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit
    }

    /// -8..=8, without 0.
    pub(crate) fn integer(&mut self) -> f64 {
        let magnitude = 1.0 + self.below(8) as f64;
        if self.below(2) == 0 { magnitude } else { -magnitude }
    }

    pub(crate) fn real(&mut self) -> f64 {
        (self.below(1 << 30) as f64 + 0.5) / (1u64 << 30) as f64 - 0.5
    }
}

/// An `nrows x ncols` matrix with rows of 0 to 12 integer entries; every fifth row is empty, and
/// row `dense` is dense.
pub(crate) fn mixed<T: Scalar>(
    nrows: usize,
    ncols: usize,
    dense: Option<usize>,
    seed: u64,
) -> Csr<T> {
    let mut random = Sequence(seed);
    let rows: Vec<Vec<(usize, T)>> = (0..nrows)
        .map(|row| {
            let cols: Vec<usize> = if dense == Some(row) {
                (0..ncols).collect()
            } else if row % 5 == 4 || ncols == 0 {
                Vec::new()
            } else {
                let len = random.below(13);
                (0..len).map(|_| random.below(ncols)).collect()
            };
            let entries = cols.into_iter();
            entries.map(|col| (col, T::from_f64(random.integer()))).collect()
        })
        .collect();
    from_rows(ncols, &rows)
}

/// Five diagonals, some with gaps: long runs, and the ends of runs.
pub(crate) fn banded<T: Scalar>(nrows: usize, ncols: usize) -> Csr<T> {
    let mut random = Sequence(7);
    let rows: Vec<Vec<(usize, T)>> = (0..nrows as i64)
        .map(|row| {
            [-17, -1, 0, 1, 17]
                .into_iter()
                .map(|offset| row + offset)
                .filter(|col| (0..ncols as i64).contains(col) && (row % 50 != 3 || *col == row))
                .map(|col| (col as usize, T::from_f64(random.integer())))
                .collect()
        })
        .collect();
    from_rows(ncols, &rows)
}

/// Integer entries in -8..=8.
pub(crate) fn integers<T: Scalar>(len: usize, seed: u64) -> Vec<T> {
    let mut random = Sequence(seed);
    (0..len).map(|_| T::from_f64(random.integer())).collect()
}

/// Real entries in -0.5..0.5.
pub(crate) fn reals<T: Scalar>(len: usize, seed: u64) -> Vec<T> {
    let mut random = Sequence(seed);
    (0..len).map(|_| T::from_f64(random.real())).collect()
}

/// Small integer matrices of any shape from 0 x 0.
pub(crate) fn small_matrix() -> impl Strategy<Value = Csr<f64>> {
    (0usize..40, 0usize..40).prop_flat_map(|(nrows, ncols)| {
        let entries = if ncols == 0 { 0 } else { 8 };
        let entry = (0..ncols.max(1), (-8i32..=8).prop_map(f64::from));
        let row = prop::collection::vec(entry, 0..=entries);
        prop::collection::vec(row, nrows).prop_map(move |rows| from_rows(ncols, &rows))
    })
}

/// A rayon pool of `threads` threads.
pub(crate) fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// The bits of a vector, as f64.
pub(crate) fn bits<T: Scalar>(y: &[T]) -> Vec<u64> {
    y.iter().map(|v| v.to_f64().to_bits()).collect()
}
