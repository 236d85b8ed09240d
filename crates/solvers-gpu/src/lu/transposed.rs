//! Solves with the transposed matrices by the factors that are kept: the values that `lu_kept`
//! reads, made of those of the matrices by `lu_transpose`.

use sparsebatch_cuda::{Args, Executor, KernelBuffer, KernelKey, Value};
use sparsebatch_formats::{CsrPattern, Pattern};
use sparsebatch_solve_core::symbolic::{FactorPattern, NO_SOURCE};

use super::chunks::{MINUS_ONE, NOTHING};
use super::kept::KeptSolve;
use super::kernels;
use super::tables::{FAR_AHEAD, KeptTables};
use crate::GpuSolveError;
use crate::common::item_grid::item_grid;

/// What becomes of a kept value: see `lu_transpose.cu`.
const COPY: u32 = 0;
const TIMES_PIVOT: u32 = 1;
const BY_PIVOT: u32 = 2;
const CONSTANT_MINUS_ONE: u32 = 3;
const CONSTANT_ZERO: u32 = 4;
const KIND: u32 = 24;

/// The kept values of the transposed matrices, and their solves.
pub(super) struct TransposedKept<E: Executor, T: Value> {
    pub(super) solve: KeptSolve<E, T>,
    key: KernelKey,
    words: E::Buffer<u32>,
    pivots: E::Buffer<u16>,
    /// Whether the values are those of the factors.
    pub(super) is_current: bool,
}

impl<E: Executor, T: Value> TransposedKept<E, T> {
    /// Analyses the transposed pattern, and allocates memory for the values of `nitems` items.
    pub(super) fn new(
        executor: &E,
        pattern: &FactorPattern,
        plain: &KeptSolve<E, T>,
        nitems: usize,
    ) -> Result<Self, GpuSolveError> {
        let is_few = plain.sizes.ahead == FAR_AHEAD;
        let refusal = || GpuSolveError::Unsupported {
            what: "transposed solves with kept factors of a system of this size",
            instead: "take a solver of the transposed matrices",
        };
        let transposed = transposed_pattern(pattern)?;
        let map = places(pattern, &transposed).ok_or_else(refusal)?;
        let plain_tables = KeptTables::new(pattern, is_few).ok_or_else(refusal)?;
        let tables = KeptTables::new(&transposed, is_few).ok_or_else(refusal)?;
        let (words, pivots) =
            program(&plain_tables, &tables, &transposed, &map).ok_or_else(refusal)?;
        let key = KernelKey::new(&kernels::LU_TRANSPOSE, format!("lu_transpose<{}>", T::CPP));
        executor.prepare(std::slice::from_ref(&key))?;
        Ok(Self {
            solve: KeptSolve::new(executor, &tables, nitems)?.ok_or_else(refusal)?,
            key,
            words: executor.upload(&words)?,
            pivots: executor.upload(&pivots)?,
            is_current: false,
        })
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        self.solve.bytes() + (self.words.len() * 4 + self.pivots.len() * 2) as u64
    }

    /// Makes the values of the transposed matrices of `nitems` items, at least one. Launches and
    /// returns.
    #[expect(unsafe_code, reason = "a launch")]
    pub(super) fn update(
        &mut self,
        executor: &E,
        plain: &KeptSolve<E, T>,
        nitems: usize,
    ) -> Result<(), GpuSolveError> {
        let config = item_grid(executor.info(), nitems, self.words.len());
        let mut args = Args::new();
        args.scalar(nitems as u64)
            .scalar(self.words.len() as u32)
            .input(&self.words)
            .input(&self.pivots)
            .scalar(plain.stride as u64)
            .input(&plain.values)
            .scalar(self.solve.stride as u64)
            .output(&mut self.solve.values);
        // SAFETY: the arguments are those of `lu_transpose`; words and pivots name values of an
        // item, and both arrays of values have room for all items.
        unsafe { executor.launch(&self.key, config, &mut args) }?;
        Ok(())
    }
}

/// The pattern of L + U of the transposed matrix, in the same order of elimination.
fn transposed_pattern(pattern: &FactorPattern) -> Result<FactorPattern, GpuSolveError> {
    let n = pattern.nrows();
    let perm = pattern.perm();
    let mut rows: Vec<Vec<i32>> = vec![Vec::new(); n];
    for row in 0..n {
        for k in pattern.lower(row).start..pattern.upper(row).end {
            if pattern.source()[k] != NO_SOURCE {
                rows[perm[pattern.cols()[k] as usize] as usize].push(perm[row] as i32);
            }
        }
    }
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::with_capacity(pattern.nnz()));
    for mut row in rows {
        row.sort_unstable();
        col_idx.append(&mut row);
        row_ptr.push(col_idx.len() as i32);
    }
    let matrix =
        CsrPattern::try_new(n, n, row_ptr, col_idx).map_err(sparsebatch_cuda::GpuError::from)?;
    Ok(FactorPattern::lu(matrix.view(), Some(perm), pattern.nnz())?)
}

/// For each place of the transposed pattern, that of the same value in `pattern`; `None` where one
/// is not the transpose of the other.
fn places(pattern: &FactorPattern, transposed: &FactorPattern) -> Option<Vec<u16>> {
    let mut next: Vec<usize> =
        (0..transposed.nrows()).map(|row| transposed.lower(row).start).collect();
    let mut map = vec![0; transposed.nnz()];
    for row in 0..pattern.nrows() {
        for k in pattern.lower(row).start..pattern.upper(row).end {
            let col = pattern.cols()[k] as usize;
            let place = next[col];
            let is_there = place < transposed.upper(col).end
                && transposed.cols()[place] as usize == row
                && (transposed.source()[place] == NO_SOURCE) == (pattern.source()[k] == NO_SOURCE);
            if !is_there {
                return None;
            }
            map[place] = u16::try_from(k).ok()?;
            next[col] += 1;
        }
    }
    (pattern.nnz() == transposed.nnz()).then_some(map)
}

/// What each kept value of the transposed matrices is made of. `map` is that of [`places`].
fn program(
    plain: &KeptTables,
    transposed: &KeptTables,
    pattern: &FactorPattern,
    map: &[u16],
) -> Option<(Vec<u32>, Vec<u16>)> {
    // Where the kept values of the matrices are: the factors, then A.
    let first_of_a = plain.first_of_a as usize;
    let positions = |order: &[u16], first: usize| {
        let mut positions = vec![u32::MAX; map.len()];
        for (k, &place) in order.iter().enumerate() {
            if place != NOTHING && place != MINUS_ONE {
                positions[place as usize] = (first + k) as u32;
            }
        }
        positions
    };
    let of_factors = positions(&plain.order[..first_of_a], 0);
    let of_a = positions(&plain.order[first_of_a..], first_of_a);
    // The row of each place.
    let mut rows = vec![0; map.len()];
    for row in 0..pattern.nrows() {
        rows[pattern.lower(row).start..pattern.upper(row).end].fill(row);
    }
    let mut words = Vec::with_capacity(transposed.order.len());
    let mut pivots = Vec::with_capacity(transposed.order.len());
    for (k, &place) in transposed.order.iter().enumerate() {
        let (kind, source, pivot) = match place {
            NOTHING => (CONSTANT_ZERO, 0, 0),
            MINUS_ONE => (CONSTANT_MINUS_ONE, 0, 0),
            place => {
                let (row, col) = (rows[place as usize], pattern.cols()[place as usize] as usize);
                let own = map[place as usize] as usize;
                if k >= transposed.first_of_a as usize {
                    (COPY, of_a[own], 0)
                } else if row == col {
                    (COPY, of_factors[own], 0)
                } else if row > col {
                    // L of the transposed matrix is U' D^-1.
                    (BY_PIVOT, of_factors[own], col)
                } else {
                    (TIMES_PIVOT, of_factors[own], row)
                }
            }
        };
        if source >> KIND != 0 {
            return None;
        }
        words.push(kind << KIND | source);
        pivots.push(pivot as u16);
    }
    Some((words, pivots))
}
