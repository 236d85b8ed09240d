//! A CSR pattern prepared for products over lanes: [`LaneMatrix`].
//!
//! Rows whose columns are those of the row before, shifted by one (most rows of a stencil or a
//! band), form a run whose product needs no index per entry: entry `k` of row `i` multiplies
//! `x[first_k + i]`. Other rows gather through their column indices.
//!
//! For a solver of symmetric systems the values may be stored once for both triangles
//! ([`LaneMatrix::symmetric`]), so that an iteration reads a third to a half less data. The
//! products, their order and so the results are the same.

use sparsebatch_formats::{CsrPatternRef, Scalar};

use crate::simd::{Columns, Vector, plain, plain_mut, set_lane};
use sparsebatch_solve_core::evaluate::Sizes;
use sparsebatch_solve_core::verdict::PreparedProduct;

/// Consecutive rows of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) nrows: u32,
    pub(super) kind: RunKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunKind {
    /// Each row has the columns of the row before, shifted by one, and `width` entries. The columns
    /// of the first row start at `starts` in [`LaneMatrix::starts`]; in symmetric storage the
    /// positions of its values follow.
    Shifted { width: u8, starts: u32 },
    /// As `Shifted`, in symmetric storage. Entries `triple..triple + 3` of a row lie on the
    /// diagonal and beside it, so that two of their columns and the lower value are reused from the
    /// row before.
    Banded { width: u8, triple: u8, starts: u32 },
    /// Any rows of `width` entries.
    Equal { width: u8 },
    /// Any rows.
    Mixed,
}

/// How the values of a pattern are stored.
#[derive(Clone, Debug)]
pub(super) enum Storage {
    /// As in CSR.
    Rows,
    /// Only the values on and above the diagonal, diagonal by diagonal, main diagonal first.
    /// `upper` holds the CSR positions of all stored values, `lower` those of the mirror images of
    /// the values off the main diagonal.
    Symmetric { upper: Vec<u32>, lower: Vec<u32> },
}

/// The pattern of a square matrix, with column indices checked once and rows grouped by kind.
#[derive(Clone, Debug)]
pub(crate) struct LaneMatrix {
    pub(super) row_ptr: Vec<u32>,
    pub(super) cols: Columns,
    /// Index of each row's diagonal entry in the stored values, or `u32::MAX` if it is not stored.
    diag: Vec<u32>,
    pub(super) runs: Vec<Run>,
    pub(super) starts: Vec<u32>,
    pub(super) storage: Storage,
    sizes: Sizes,
}

/// In CSR storage, shorter runs of shifted rows do not repay their setup cost.
const MIN_SHIFTED: u32 = 3;

impl<T: Scalar> PreparedProduct<T> for LaneMatrix {
    fn product(&self, values: &[T], x: &[T], r: &mut [T]) {
        LaneMatrix::product(self, plain(values), plain(x), plain_mut(r));
    }

    fn sizes(&self) -> Sizes {
        LaneMatrix::sizes(self)
    }
}

impl LaneMatrix {
    /// Prepares a pattern, values stored as in CSR.
    pub(crate) fn new(pattern: CsrPatternRef<'_>) -> Self {
        let mut matrix = Self::without_runs(pattern);
        let places: Vec<u32> = (0..pattern.nnz() as u32).collect();
        for shifted in shifted_runs(pattern, &places) {
            let shifted_width = u8::try_from(shifted.width).ok();
            let kind = match shifted_width {
                Some(width) if shifted.nrows >= MIN_SHIFTED && has_const_loop(width) => {
                    let starts = matrix.starts.len() as u32;
                    let row = pattern.row(shifted.first as usize);
                    matrix.starts.extend(pattern.col_idx()[row].iter().map(|&c| c as u32));
                    RunKind::Shifted { width, starts }
                }
                Some(width) if has_const_loop(width) => RunKind::Equal { width },
                _ => RunKind::Mixed,
            };
            match matrix.runs.last_mut() {
                Some(run) if run.kind == kind => run.nrows += shifted.nrows,
                _ => matrix.runs.push(Run { kind, ..shifted.run() }),
            }
        }
        matrix
    }

    /// Prepares a pattern for systems whose values are symmetric, stored once for both triangles.
    /// `None` when the pattern is not symmetric, or too irregular to gain by it.
    pub(crate) fn symmetric(pattern: CsrPatternRef<'_>) -> Option<Self> {
        let n = pattern.nrows();
        let cols = pattern.col_idx();
        // Most patterns that do not gain are rejected by their rows alone, before the sort of
        // entries.
        let has_loop = |row| u8::try_from(pattern.row(row).len()).is_ok_and(has_const_loop);
        if !(0..n).all(has_loop) {
            return None;
        }
        let in_order: Vec<u32> = (0..pattern.nnz() as u32).collect();
        if shifted_runs(pattern, &in_order).len() * 2 > n {
            return None;
        }
        let mut upper: Vec<(u32, u32, u32, u32)> = Vec::new();
        for row in 0..n {
            for k in pattern.row(row) {
                let col = cols[k] as usize;
                let mirror = pattern.position(col, row)? as u32;
                if col >= row {
                    upper.push(((col - row) as u32, row as u32, k as u32, mirror));
                }
            }
        }
        // Diagonal by diagonal, so that the values of shifted rows are shifted too.
        upper.sort_unstable();
        let mut places = vec![0; pattern.nnz()];
        for (place, &(_, _, k, mirror)) in upper.iter().enumerate() {
            places[k as usize] = place as u32;
            places[mirror as usize] = place as u32;
        }
        let mut matrix = Self::without_runs(pattern);
        let runs = shifted_runs(pattern, &places);
        if runs.len() * 2 > n {
            return None;
        }
        for run in runs {
            let width = u8::try_from(run.width).ok()?;
            let starts = matrix.starts.len() as u32;
            let row = pattern.row(run.first as usize);
            matrix.starts.extend(cols[row.clone()].iter().map(|&c| c as u32));
            matrix.starts.extend_from_slice(&places[row.clone()]);
            let kind = match triple(&cols[row.clone()], &places[row]) {
                Some(triple) if has_banded_loop(width, triple) => {
                    RunKind::Banded { width, triple, starts }
                }
                _ => RunKind::Shifted { width, starts },
            };
            matrix.runs.push(Run { kind, ..run.run() });
        }
        for diag in matrix.diag.iter_mut().filter(|diag| **diag != u32::MAX) {
            *diag = places[*diag as usize];
        }
        matrix.storage = Storage::Symmetric {
            upper: upper.iter().map(|u| u.2).collect(),
            lower: upper.iter().filter(|u| u.0 > 0).map(|u| u.3).collect(),
        };
        Some(matrix)
    }

    fn without_runs(pattern: CsrPatternRef<'_>) -> Self {
        let diag = (0..pattern.nrows())
            .map(|row| pattern.position(row, row).map_or(u32::MAX, |k| k as u32))
            .collect();
        Self {
            row_ptr: pattern.row_ptr().iter().map(|&p| p as u32).collect(),
            cols: Columns::new(pattern.col_idx().iter().map(|&c| c as u32).collect()),
            diag,
            runs: Vec::new(),
            starts: Vec::new(),
            storage: Storage::Rows,
            sizes: Sizes::of(pattern),
        }
    }

    /// The sizes of the pattern on which bounds of rounding errors depend.
    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Whether `pattern` equals the one that this matrix was made from.
    pub(crate) fn matches(&self, pattern: CsrPatternRef<'_>) -> bool {
        let same = |ours: &[u32], theirs: &[i32]| {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(&a, &b)| a == b as u32)
        };
        self.nrows() == pattern.ncols()
            && same(&self.row_ptr, pattern.row_ptr())
            && same(self.cols.as_slice(), pattern.col_idx())
    }

    pub(crate) fn nrows(&self) -> usize {
        self.row_ptr.len() - 1
    }

    /// Number of values stored for each system.
    pub(crate) fn nvalues(&self) -> usize {
        match &self.storage {
            Storage::Rows => self.cols.as_slice().len(),
            Storage::Symmetric { upper, .. } => upper.len(),
        }
    }

    /// Index of the diagonal entry of `row` in the stored values, if it is stored.
    pub(crate) fn diag(&self, row: usize) -> Option<usize> {
        let place = self.diag[row];
        (place != u32::MAX).then_some(place as usize)
    }

    /// Whether a diagonal entry is negative; `value(k)` returns stored value `k`.
    pub(crate) fn has_negative_diagonal<T: Scalar>(&self, value: impl Fn(usize) -> T) -> bool {
        (0..self.nrows()).any(|row| self.diag(row).is_some_and(|k| value(k) < T::ZERO))
    }

    /// Whether [`LaneMatrix::store`] accepts any values.
    pub(crate) fn stores_all(&self) -> bool {
        matches!(self.storage, Storage::Rows)
    }

    /// Stores the values of a system (in CSR order) in a lane of `a`. Returns `false` when the
    /// values are not symmetric and the storage is; the lane must not be used in that case.
    #[inline(always)]
    pub(crate) fn store<V: Vector>(&self, values: &[V::Scalar], lane: usize, a: &mut [V]) -> bool {
        match &self.storage {
            Storage::Rows => {
                set_lane(a, lane, values.iter().copied());
                true
            }
            Storage::Symmetric { upper, lower } => {
                let (diagonal, upper) = upper.split_at(upper.len() - lower.len());
                let (a_diagonal, a) = a.split_at_mut(diagonal.len());
                set_lane(a_diagonal, lane, diagonal.iter().map(|&k| values[k as usize]));
                let mut symmetric = true;
                let pairs = upper.iter().zip(lower).map(|(&k, &mirror)| {
                    let value = values[k as usize];
                    symmetric &= value == values[mirror as usize];
                    value
                });
                set_lane(a, lane, pairs);
                symmetric
            }
        }
    }
}

/// Whether [`LaneMatrix::product`] has a loop for rows of `width` entries.
fn has_const_loop(width: u8) -> bool {
    matches!(width, 1..=7 | 9)
}

/// Whether [`LaneMatrix::product`] has a banded loop for `(width, triple)`: those of stencils.
fn has_banded_loop(width: u8, triple: u8) -> bool {
    matches!((width, triple), (3, 0) | (4, 0 | 1) | (5, 1) | (6, 1 | 2) | (7, 2))
}

/// The first of three entries of a row whose columns are consecutive, and whose first value is the
/// third value of the row before.
fn triple(cols: &[i32], places: &[u32]) -> Option<u8> {
    let found = (0..cols.len().saturating_sub(2)).find(|&k| {
        cols[k] + 1 == cols[k + 1] && cols[k] + 2 == cols[k + 2] && places[k] + 1 == places[k + 2]
    });
    found.and_then(|k| u8::try_from(k).ok())
}

/// Rows of `width` entries, each with the columns of the row before shifted by one.
struct ShiftedRun {
    first: u32,
    nrows: u32,
    width: usize,
}

impl ShiftedRun {
    fn run(&self) -> Run {
        Run { first: self.first, nrows: self.nrows, kind: RunKind::Mixed }
    }
}

/// The longest runs of rows whose columns shift by one from row to row, and whose value positions
/// also shift by one (in CSR order, by the width).
fn shifted_runs(pattern: CsrPatternRef<'_>, places: &[u32]) -> Vec<ShiftedRun> {
    let cols = pattern.col_idx();
    let in_csr_order = places.windows(2).all(|pair| pair[0] < pair[1]);
    let mut runs: Vec<ShiftedRun> = Vec::new();
    for row in 0..pattern.nrows() {
        let entries = pattern.row(row);
        if let Some(run) = runs.last_mut()
            && run.width == entries.len()
        {
            let step = if in_csr_order { run.width as u32 } else { 1 };
            let before = entries.start - run.width..entries.start;
            let shifted = before.zip(entries.clone()).all(|(before, k)| {
                cols[before] + 1 == cols[k] && places[before] + step == places[k]
            });
            if shifted {
                run.nrows += 1;
                continue;
            }
        }
        runs.push(ShiftedRun { first: row as u32, nrows: 1, width: entries.len() });
    }
    runs
}

/// A vector of zeros. The vectors of a group have equal lengths, often a power of two. Extra
/// capacity, growing with `place`, keeps them from starting at the same offset within a page, where
/// loads would wait for stores to other vectors with the same low address bits.
pub(crate) fn staggered<V: Vector>(len: usize, place: usize) -> Vec<V> {
    let mut vector = Vec::with_capacity(len + 13 * place);
    vector.resize(len, V::zero());
    vector
}

#[cfg(test)]
mod tests;
