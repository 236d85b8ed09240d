//! A CSR pattern prepared for products over lanes: [`LaneMatrix`].

use sparsebatch_formats::CsrPatternRef;

use crate::simd::{Columns, Vector};

/// Rows are handled four at a time. The results of a block's rows go to four separate sums, so
/// that the additions of a dot product do not wait for each other; see [`Dot`].
pub(crate) const ROWS_PER_BLOCK: usize = 4;

/// A dot product in the order that every solver of this crate uses: element `i` is added to the
/// partial sum `i mod 4`, in ascending order, and the result is `(s0 + s1) + (s2 + s3)`.
#[derive(Clone, Copy)]
pub(crate) struct Dot<V>([V; ROWS_PER_BLOCK]);

impl<V: Vector> Dot<V> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self([V::zero(); ROWS_PER_BLOCK])
    }

    /// Adds `a * b` to the partial sum `slot`, which is a constant after unrolling.
    #[inline(always)]
    pub(crate) fn add(&mut self, slot: usize, a: V, b: V) {
        self.0[slot] = a.mul_add(b, self.0[slot]);
    }

    /// Adds four products, each to its partial sum.
    #[inline(always)]
    pub(crate) fn add_block(&mut self, a: [V; ROWS_PER_BLOCK], b: [V; ROWS_PER_BLOCK]) {
        self.add(0, a[0], b[0]);
        self.add(1, a[1], b[1]);
        self.add(2, a[2], b[2]);
        self.add(3, a[3], b[3]);
    }

    #[inline(always)]
    pub(crate) fn sum(self) -> V {
        let [a, b, c, d] = self.0;
        a.add(b).add(c.add(d))
    }
}

/// The dot product of two scalar sequences, in the order and with the rounding of [`Dot`].
#[inline(always)]
pub(crate) fn scalar_dot<V: Vector>(
    pairs: impl Iterator<Item = (V::Scalar, V::Scalar)>,
) -> V::Scalar {
    let mut sums = [V::zero().get(0); ROWS_PER_BLOCK];
    for (i, (a, b)) in pairs.enumerate() {
        let slot = i % ROWS_PER_BLOCK;
        sums[slot] = V::scalar_mul_add(a, b, sums[slot]);
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// Takes the rows of a product as they are computed.
pub(crate) trait RowSink<V> {
    /// `values` are the rows `row..row + 4` of the product; `row mod 4` is 0.
    fn block(&mut self, row: usize, values: [V; ROWS_PER_BLOCK]);

    /// One of the last rows, fewer than four.
    fn row(&mut self, row: usize, value: V);
}

/// Consecutive blocks whose rows all have `width` entries, or any lengths when `width` is `None`.
#[derive(Clone, Copy, Debug)]
struct Run {
    blocks: (u32, u32),
    width: Option<u8>,
}

/// The pattern of a square matrix, with columns checked once and rows grouped by length.
#[derive(Clone, Debug)]
pub(crate) struct LaneMatrix {
    row_ptr: Vec<u32>,
    cols: Columns,
    /// Position of each row's diagonal entry, or `u32::MAX`.
    diag: Vec<u32>,
    runs: Vec<Run>,
}

/// Rows of up to this many entries have a loop of constant length.
const MAX_CONST_WIDTH: usize = 9;

impl LaneMatrix {
    /// Prepares a pattern.
    pub(crate) fn new(pattern: CsrPatternRef<'_>) -> Self {
        let row_ptr: Vec<u32> = pattern.row_ptr().iter().map(|&p| p as u32).collect();
        let cols = Columns::new(pattern.col_idx().iter().map(|&c| c as u32).collect());
        let diag = (0..pattern.nrows())
            .map(|row| pattern.position(row, row).map_or(u32::MAX, |k| k as u32))
            .collect();
        let mut runs: Vec<Run> = Vec::new();
        for block in 0..pattern.nrows() / ROWS_PER_BLOCK {
            let lengths = row_ptr[block * ROWS_PER_BLOCK..=(block + 1) * ROWS_PER_BLOCK].windows(2);
            let mut lengths = lengths.map(|row| row[1] - row[0]);
            let first = lengths.next().unwrap_or(0);
            let equal = first as usize <= MAX_CONST_WIDTH && lengths.all(|l| l == first);
            let width = equal.then_some(first as u8);
            match runs.last_mut() {
                Some(run) if run.width == width => run.blocks.1 = block as u32 + 1,
                _ => runs.push(Run { blocks: (block as u32, block as u32 + 1), width }),
            }
        }
        Self { row_ptr, cols, diag, runs }
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

    pub(crate) fn nnz(&self) -> usize {
        self.cols.as_slice().len()
    }

    /// Position of the diagonal entry of `row`, when it is stored.
    pub(crate) fn diag(&self, row: usize) -> Option<usize> {
        let k = self.diag[row];
        (k != u32::MAX).then_some(k as usize)
    }

    /// Computes `A x` row by row; each row's products are added in ascending column order from 0.
    #[inline(always)]
    pub(crate) fn product<V: Vector, S: RowSink<V>>(&self, values: &[V], x: &[V], sink: &mut S) {
        for run in &self.runs {
            match run.width {
                Some(1) => self.blocks_const::<V, S, 1>(run, values, x, sink),
                Some(2) => self.blocks_const::<V, S, 2>(run, values, x, sink),
                Some(3) => self.blocks_const::<V, S, 3>(run, values, x, sink),
                Some(4) => self.blocks_const::<V, S, 4>(run, values, x, sink),
                Some(5) => self.blocks_const::<V, S, 5>(run, values, x, sink),
                Some(7) => self.blocks_const::<V, S, 7>(run, values, x, sink),
                Some(9) => self.blocks_const::<V, S, 9>(run, values, x, sink),
                _ => {
                    for block in run.blocks.0 as usize..run.blocks.1 as usize {
                        let first = block * ROWS_PER_BLOCK;
                        let mut rows = [V::zero(); ROWS_PER_BLOCK];
                        for (row, value) in (first..).zip(&mut rows) {
                            *value = self.row(row, values, x);
                        }
                        sink.block(first, rows);
                    }
                }
            }
        }
        for row in self.nrows() / ROWS_PER_BLOCK * ROWS_PER_BLOCK..self.nrows() {
            sink.row(row, self.row(row, values, x));
        }
    }

    /// One row of any length.
    #[inline(always)]
    fn row<V: Vector>(&self, row: usize, values: &[V], x: &[V]) -> V {
        let range = self.row_ptr[row] as usize..self.row_ptr[row + 1] as usize;
        match range.len() {
            3 => self.cols.dots::<V, 1, 3>(range.start, values, x)[0],
            4 => self.cols.dots::<V, 1, 4>(range.start, values, x)[0],
            5 => self.cols.dots::<V, 1, 5>(range.start, values, x)[0],
            6 => self.cols.dots::<V, 1, 6>(range.start, values, x)[0],
            7 => self.cols.dots::<V, 1, 7>(range.start, values, x)[0],
            _ => self.cols.dot(range, values, x, V::zero()),
        }
    }

    #[inline(always)]
    fn blocks_const<V: Vector, S: RowSink<V>, const W: usize>(
        &self,
        run: &Run,
        values: &[V],
        x: &[V],
        sink: &mut S,
    ) {
        let mut row = run.blocks.0 as usize * ROWS_PER_BLOCK;
        let mut start = self.row_ptr[row] as usize;
        for _ in run.blocks.0..run.blocks.1 {
            sink.block(row, self.cols.dots::<V, ROWS_PER_BLOCK, W>(start, values, x));
            row += ROWS_PER_BLOCK;
            start += ROWS_PER_BLOCK * W;
        }
    }
}

/// A vector of zeros. The vectors of a group are as long as each other, often a power of two: with
/// more room for each `place` they do not start at the same offset of a page, where loads would
/// wait for stores to other vectors that share their low address bits.
pub(crate) fn staggered<V: Vector>(len: usize, place: usize) -> Vec<V> {
    let mut vector = Vec::with_capacity(len + 13 * place);
    vector.resize(len, V::zero());
    vector
}

/// Four consecutive elements of a vector.
#[inline(always)]
pub(crate) fn block<V: Copy>(v: &[V], row: usize) -> [V; ROWS_PER_BLOCK] {
    let block: &[V; ROWS_PER_BLOCK] =
        v[row..row + ROWS_PER_BLOCK].try_into().expect("four elements");
    *block
}

/// Replaces four consecutive elements of a vector.
#[inline(always)]
pub(crate) fn set_block<V: Copy>(v: &mut [V], row: usize, values: [V; ROWS_PER_BLOCK]) {
    v[row..row + ROWS_PER_BLOCK].copy_from_slice(&values);
}
