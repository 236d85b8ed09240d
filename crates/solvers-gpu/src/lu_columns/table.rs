//! What the kernel reads of a pattern: [`ColumnTable`].

use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::symbolic::{FactorPattern, NO_SOURCE, SymbolicError, min_degree};

use crate::GpuSolveError;

/// Most rows of a system: offsets of columns, and numbers of rows, have 16 bits.
const MOST_ROWS: usize = 16_384;

/// Most entries of A and of L + U.
const MOST_ENTRIES: usize = 65_534;

/// The table of a pattern: L + U by columns, in minimum-degree order.
pub(super) struct ColumnTable {
    pub(super) nrows: usize,
    pub(super) nnz: usize,
    pub(super) nfactors: usize,
    /// As `lu_columns.cu` describes it.
    pub(super) words: Vec<u16>,
    /// Products of the factorisation.
    pub(super) products: u64,
}

/// Systems beyond the kernel.
pub(super) const TOO_LARGE: GpuSolveError = GpuSolveError::Unsupported {
    what: "a system whose factors and vectors exceed the shared memory of a block by this solver",
    instead: "take FactoredSolver for its pattern, or an iterative method",
};

impl ColumnTable {
    /// Orders a pattern and finds the pattern of its factors, of at most `most_bytes` in shared
    /// memory with values of `value_bytes`.
    ///
    /// # Errors
    /// [`GpuSolveError::Unsupported`] beyond that; those of the analysis.
    pub(super) fn new(
        a: CsrPatternRef<'_>,
        value_bytes: usize,
        most_bytes: usize,
    ) -> Result<Self, GpuSolveError> {
        let (n, nnz) = (a.nrows(), a.nnz());
        let most = MOST_ENTRIES.min(most_bytes / (value_bytes + 2));
        if n > MOST_ROWS || nnz > MOST_ENTRIES {
            return Err(TOO_LARGE);
        }
        let order = min_degree(a)?;
        let lu = FactorPattern::lu(a, Some(&order), most).map_err(|error| match error {
            SymbolicError::TooManyEntries { .. } => TOO_LARGE,
            error => error.into(),
        })?;
        let nfactors = lu.nnz();
        if bytes(n, nfactors, value_bytes, 1) > most_bytes {
            return Err(TOO_LARGE);
        }
        // From rows to columns: rows ascend within a column, since they are visited in order.
        let mut starts = vec![0usize; n + 1];
        lu.cols().iter().for_each(|&col| starts[col as usize + 1] += 1);
        (0..n).for_each(|col| starts[col + 1] += starts[col]);
        let mut next = starts.clone();
        let (mut rows, mut diagonals) = (vec![0u16; nfactors], vec![0u16; n]);
        let mut targets = vec![0u16; nnz];
        let mut products = 0;
        for (row, diagonal) in diagonals.iter_mut().enumerate() {
            for k in lu.row_ptr()[row] as usize..lu.row_ptr()[row + 1] as usize {
                let col = lu.cols()[k] as usize;
                let place = next[col];
                next[col] += 1;
                rows[place] = row as u16;
                if col == row {
                    *diagonal = place as u16;
                }
                if lu.source()[k] != NO_SOURCE {
                    targets[lu.source()[k] as usize] = place as u16;
                }
            }
        }
        for col in 0..n {
            for &row in &rows[starts[col]..diagonals[col] as usize] {
                let row = row as usize;
                products += (starts[row + 1] - diagonals[row] as usize - 1) as u64;
            }
        }
        let words = (lu.perm().iter().map(|&row| row as u16))
            .chain(starts.iter().map(|&start| start as u16))
            .chain(diagonals)
            .chain(rows)
            .chain(targets)
            .chain(a.row_ptr().iter().map(|&entry| entry as u16))
            .chain(a.col_idx().iter().map(|&col| col as u16));
        Ok(Self { nrows: n, nnz, nfactors, words: words.collect(), products })
    }

    /// Bytes of shared memory that a system needs if its team has `warps` warps, as
    /// `LuColumns::bytes` counts them.
    pub(super) fn bytes(&self, value_bytes: usize, warps: u32) -> usize {
        bytes(self.nrows, self.nfactors, value_bytes, warps)
    }
}

fn bytes(n: usize, nfactors: usize, value_bytes: usize, warps: u32) -> usize {
    let warps = warps as usize;
    let head = if warps > 1 { 6 * warps * size_of::<f64>() } else { 0 };
    let values = (nfactors + (3 + warps) * n) * value_bytes;
    (head + values + (nfactors + 2 * n + 1) * 2).next_multiple_of(16)
}
