//! A CSR pattern prepared for products over lanes: [`LaneMatrix`].
//!
//! Rows that look like the row before, moved on by one (most rows of a stencil or a band), form a
//! run whose product needs no index per entry: entry `k` of row `i` multiplies `x[first_k + i]`.
//! Other rows gather through their column indices.
//!
//! For a solver of symmetric systems the values may be stored once for both triangles
//! ([`LaneMatrix::symmetric`]), which takes a third to a half off what an iteration reads. The
//! products, their order and so the results are the same.

use sparsebatch_formats::CsrPatternRef;

use crate::simd::{Columns, Part, Vector, set_lane};

/// Consecutive rows.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    nrows: u32,
    kind: RunKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunKind {
    /// Each row is the one before, moved on by one. `width` entries a row; the columns of the
    /// first row start at `starts` in [`LaneMatrix::starts`], and where values are shared by both
    /// triangles the places of its values follow.
    Shifted { width: u8, starts: u32 },
    /// As `Shifted`, values shared by both triangles: entries `triple..triple + 3` of a row lie on
    /// the diagonal and beside it, so that two of their columns and the lower value are those of
    /// the row before.
    Banded { width: u8, triple: u8, starts: u32 },
    /// Any rows of so many entries.
    Equal { width: u8 },
    /// Any rows.
    Mixed,
}

/// Where the values of a pattern lie.
#[derive(Clone, Debug)]
enum Storage {
    /// As in CSR.
    Rows,
    /// Those on and above the diagonal, one diagonal after the other, the main one first. `upper`
    /// are the CSR positions of all, `lower` those of the mirror images of all but the main one.
    Symmetric { upper: Vec<u32>, lower: Vec<u32> },
}

/// The pattern of a square matrix, with columns checked once and rows grouped by kind.
#[derive(Clone, Debug)]
pub(crate) struct LaneMatrix {
    row_ptr: Vec<u32>,
    cols: Columns,
    /// Place of the value of each row's diagonal entry, or `u32::MAX`.
    diag: Vec<u32>,
    runs: Vec<Run>,
    starts: Vec<u32>,
    storage: Storage,
}

/// Rows of up to this many entries have a loop of constant length.
const MAX_CONST_WIDTH: usize = 9;

/// Shorter runs of shifted rows are not worth their start where rows may be taken as they come.
const MIN_SHIFTED: u32 = 3;

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
        // One diagonal after the other: rows that are shifted have shifted values then.
        upper.sort_unstable();
        let mut places = vec![0; pattern.nnz()];
        for (place, &(_, _, k, mirror)) in upper.iter().enumerate() {
            places[k as usize] = place as u32;
            places[mirror as usize] = place as u32;
        }
        let mut matrix = Self::without_runs(pattern);
        let runs = shifted_runs(pattern, &places);
        let regular = runs.len() * MIN_SHIFTED as usize <= n;
        if !regular || runs.iter().any(|run| run.width > MAX_CONST_WIDTH) {
            return None;
        }
        for run in runs {
            let width = run.width as u8;
            if !has_const_loop(width) {
                return None;
            }
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
        }
    }

    /// Whether this is the pattern it was made from.
    pub(crate) fn matches(&self, pattern: CsrPatternRef<'_>) -> bool {
        let same = |ours: &[u32], theirs: &[i32]| {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(&a, &b)| a == b as u32)
        };
        same(&self.row_ptr, pattern.row_ptr()) && same(self.cols.as_slice(), pattern.col_idx())
    }

    pub(crate) fn nrows(&self) -> usize {
        self.row_ptr.len() - 1
    }

    /// Values stored for each system.
    pub(crate) fn nvalues(&self) -> usize {
        match &self.storage {
            Storage::Rows => self.cols.as_slice().len(),
            Storage::Symmetric { upper, .. } => upper.len(),
        }
    }

    /// Place of the value of the diagonal entry of `row`, when it is stored.
    pub(crate) fn diag(&self, row: usize) -> Option<usize> {
        let place = self.diag[row];
        (place != u32::MAX).then_some(place as usize)
    }

    /// Whether [`LaneMatrix::store`] takes all values.
    pub(crate) fn stores_all(&self) -> bool {
        matches!(self.storage, Storage::Rows)
    }

    /// Stores the values of a system (in CSR order) in a lane of `a`. False when they are not
    /// symmetric and the matrix stores them once for both triangles; the lane is of no use then.
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

    /// `y = A x`; each row's products are added in ascending column order from 0.
    #[inline(always)]
    pub(crate) fn product<V: Vector>(&self, values: &[V], x: &[V], y: &mut [V]) {
        V::call(Product { matrix: self, values, x, y });
    }
}

/// The widths that [`LaneMatrix::product`] has a loop for.
fn has_const_loop(width: u8) -> bool {
    matches!(width, 1..=7 | 9)
}

/// The (width, triple)s that [`LaneMatrix::product`] has a loop for: those of stencils.
fn has_banded_loop(width: u8, triple: u8) -> bool {
    matches!((width, triple), (3, 0) | (4, 0 | 1) | (5, 1) | (6, 1 | 2) | (7, 2))
}

/// Where three entries of a row begin whose columns follow each other, and the first of whose
/// values is the third of the row before.
fn triple(cols: &[i32], places: &[u32]) -> Option<u8> {
    let found = (0..cols.len().saturating_sub(2)).find(|&k| {
        cols[k] + 1 == cols[k + 1] && cols[k] + 2 == cols[k + 2] && places[k] + 1 == places[k + 2]
    });
    found.and_then(|k| u8::try_from(k).ok())
}

/// Rows of `width` entries, each the row before it moved on by one.
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

/// The longest runs of rows whose columns move on by one, and whose values' places do so too (or,
/// in CSR order, by the width).
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

/// A product to be computed. (The dot product that a solver needs next is a pass of its own:
/// taken along with the rows it cost 5 to 25 % more.)
struct Product<'a, V> {
    matrix: &'a LaneMatrix,
    values: &'a [V],
    x: &'a [V],
    y: &'a mut [V],
}

impl<V: Vector> Part for Product<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        for run in &self.matrix.runs {
            match run.kind {
                RunKind::Shifted { width: 1, starts } => self.shifted::<1>(run, starts),
                RunKind::Shifted { width: 2, starts } => self.shifted::<2>(run, starts),
                RunKind::Shifted { width: 3, starts } => self.shifted::<3>(run, starts),
                RunKind::Shifted { width: 4, starts } => self.shifted::<4>(run, starts),
                RunKind::Shifted { width: 5, starts } => self.shifted::<5>(run, starts),
                RunKind::Shifted { width: 6, starts } => self.shifted::<6>(run, starts),
                RunKind::Shifted { width: 7, starts } => self.shifted::<7>(run, starts),
                RunKind::Shifted { width: _, starts } => self.shifted::<9>(run, starts),
                RunKind::Banded { width: 3, triple: _, starts } => self.banded::<3, 0>(run, starts),
                RunKind::Banded { width: 4, triple: 0, starts } => self.banded::<4, 0>(run, starts),
                RunKind::Banded { width: 4, triple: _, starts } => self.banded::<4, 1>(run, starts),
                RunKind::Banded { width: 5, triple: _, starts } => self.banded::<5, 1>(run, starts),
                RunKind::Banded { width: 6, triple: 1, starts } => self.banded::<6, 1>(run, starts),
                RunKind::Banded { width: 6, triple: _, starts } => self.banded::<6, 2>(run, starts),
                RunKind::Banded { width: _, triple: _, starts } => self.banded::<7, 2>(run, starts),
                RunKind::Equal { width: 5 } => self.equal::<5>(run),
                RunKind::Equal { width: 9 } => self.equal::<9>(run),
                RunKind::Equal { .. } | RunKind::Mixed => self.mixed(run),
            }
        }
    }
}

impl<V: Vector> Product<'_, V> {
    #[inline(always)]
    fn shifted<const W: usize>(&mut self, run: &Run, starts: u32) {
        let (first, nrows) = (run.first as usize, run.nrows as usize);
        let starts = &self.matrix.starts[starts as usize..];
        let x = windows::<V, W>(self.x, starts, nrows);
        let y = &mut self.y[first..first + nrows];
        match &self.matrix.storage {
            Storage::Rows => {
                let start = self.matrix.row_ptr[first] as usize;
                let rows = &self.values[start..].as_chunks::<W>().0[..nrows];
                for (i, (y, row)) in y.iter_mut().zip(rows).enumerate() {
                    let mut sum = V::zero();
                    for (value, x) in row.iter().zip(&x) {
                        sum = value.mul_add(x[i], sum);
                    }
                    *y = sum;
                }
            }
            Storage::Symmetric { .. } => {
                let diagonals = windows::<V, W>(self.values, &starts[W..], nrows);
                for (i, y) in y.iter_mut().enumerate() {
                    let mut sum = V::zero();
                    for (values, x) in diagonals.iter().zip(&x) {
                        sum = values[i].mul_add(x[i], sum);
                    }
                    *y = sum;
                }
            }
        }
    }

    #[inline(always)]
    fn banded<const W: usize, const T: usize>(&mut self, run: &Run, starts: u32) {
        let (first, nrows) = (run.first as usize, run.nrows as usize);
        let starts = &self.matrix.starts[starts as usize..];
        let x = windows::<V, W>(self.x, starts, nrows);
        let diagonals = windows::<V, W>(self.values, &starts[W..], nrows);
        let (mut left, mut here, mut lower) = (x[T][0], x[T + 1][0], diagonals[T][0]);
        for (i, y) in self.y[first..first + nrows].iter_mut().enumerate() {
            let (right, upper) = (x[T + 2][i], diagonals[T + 2][i]);
            let mut sum = V::zero();
            for k in 0..T {
                sum = diagonals[k][i].mul_add(x[k][i], sum);
            }
            sum = lower.mul_add(left, sum);
            sum = diagonals[T + 1][i].mul_add(here, sum);
            sum = upper.mul_add(right, sum);
            for k in T + 3..W {
                sum = diagonals[k][i].mul_add(x[k][i], sum);
            }
            *y = sum;
            (left, here, lower) = (here, right, upper);
        }
    }

    #[inline(always)]
    fn equal<const W: usize>(&mut self, run: &Run) {
        let mut start = self.matrix.row_ptr[run.first as usize] as usize;
        let cols = &self.matrix.cols;
        let (blocks, rest) =
            self.y[run.first as usize..][..run.nrows as usize].as_chunks_mut::<4>();
        for block in blocks {
            *block = cols.dots::<V, 4, W>(start, self.values, self.x);
            start += 4 * W;
        }
        for y in rest {
            [*y] = cols.dots::<V, 1, W>(start, self.values, self.x);
            start += W;
        }
    }

    #[inline(always)]
    fn mixed(&mut self, run: &Run) {
        let (first, nrows) = (run.first as usize, run.nrows as usize);
        let (values, x) = (self.values, self.x);
        let rows = self.matrix.row_ptr[first..=first + nrows].windows(2);
        let cols = &self.matrix.cols;
        for (y, range) in self.y[first..first + nrows].iter_mut().zip(rows) {
            let range = range[0] as usize..range[1] as usize;
            *y = match range.len() {
                3 => cols.dots::<V, 1, 3>(range.start, values, x)[0],
                4 => cols.dots::<V, 1, 4>(range.start, values, x)[0],
                5 => cols.dots::<V, 1, 5>(range.start, values, x)[0],
                6 => cols.dots::<V, 1, 6>(range.start, values, x)[0],
                7 => cols.dots::<V, 1, 7>(range.start, values, x)[0],
                _ => cols.dot(range, values, x, V::zero()),
            };
        }
    }
}

/// The parts of `v` that start at each of `starts`.
#[inline(always)]
fn windows<'v, V, const W: usize>(v: &'v [V], starts: &[u32], len: usize) -> [&'v [V]; W] {
    let mut windows = [v; W];
    for (window, &start) in windows.iter_mut().zip(&starts[..W]) {
        *window = &v[start as usize..][..len];
    }
    windows
}

/// A vector of zeros. The vectors of a group are as long as each other, often a power of two: with
/// more room for each `place` they do not start at the same offset of a page, where loads would
/// wait for stores to other vectors that share their low address bits.
pub(crate) fn staggered<V: Vector>(len: usize, place: usize) -> Vec<V> {
    let mut vector = Vec::with_capacity(len + 13 * place);
    vector.resize(len, V::zero());
    vector
}
