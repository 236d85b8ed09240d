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

    /// Moves the partial sums on by one, so that slot 0 is the next row's.
    #[inline(always)]
    pub(crate) fn rotate(&mut self) {
        let [a, b, c, d] = self.0;
        self.0 = [b, c, d, a];
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

/// Provides the operand of a product and takes its rows as they are computed.
pub(crate) trait RowSink<V> {
    /// Makes sure that the first `rows` elements of the operand are there.
    #[inline(always)]
    fn need(&mut self, _rows: usize) {}

    /// The operand.
    fn operand(&self) -> &[V];

    /// `value` is row `row` of the product; `slot` is `row mod 4`, or 0 where rows come singly,
    /// each followed by a `rotate`.
    fn row(&mut self, row: usize, slot: usize, value: V);

    /// Moves the sums on by one row.
    fn rotate(&mut self);
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
    /// For each block of rows, one past the largest column in it and the blocks before it.
    ahead: Vec<u32>,
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
                _ => runs.push(Run {
                    blocks: (block as u32, block as u32 + 1),
                    width,
                }),
            }
        }
        let mut largest = 0;
        let ahead = (0..pattern.nrows() / ROWS_PER_BLOCK)
            .map(|block| {
                for row in block * ROWS_PER_BLOCK..(block + 1) * ROWS_PER_BLOCK {
                    let last = pattern.col_idx()[pattern.row(row)].last();
                    largest = largest.max(last.map_or(0, |&col| col as u32 + 1));
                }
                largest
            })
            .collect();
        Self {
            row_ptr,
            cols,
            diag,
            runs,
            ahead,
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
    pub(crate) fn product<V: Vector, S: RowSink<V>>(&self, values: &[V], sink: &mut S) {
        for run in &self.runs {
            match run.width {
                Some(1) => self.blocks_const::<V, S, 1>(run, values, sink),
                Some(2) => self.blocks_const::<V, S, 2>(run, values, sink),
                Some(3) => self.blocks_const::<V, S, 3>(run, values, sink),
                Some(4) => self.blocks_const::<V, S, 4>(run, values, sink),
                Some(5) => self.blocks_const::<V, S, 5>(run, values, sink),
                Some(7) => self.blocks_const::<V, S, 7>(run, values, sink),
                Some(9) => self.blocks_const::<V, S, 9>(run, values, sink),
                _ => {
                    for block in run.blocks.0..run.blocks.1 {
                        sink.need(self.ahead[block as usize] as usize);
                        let row = block as usize * ROWS_PER_BLOCK;
                        for row in row..row + ROWS_PER_BLOCK {
                            self.row(row, values, sink);
                        }
                    }
                }
            }
        }
        let rest = self.nrows() / ROWS_PER_BLOCK * ROWS_PER_BLOCK;
        sink.need(self.nrows());
        for row in rest..self.nrows() {
            self.row(row, values, sink);
        }
        for _ in self.nrows()..self.nrows().next_multiple_of(ROWS_PER_BLOCK) {
            sink.rotate();
        }
    }

    /// One row of any length.
    #[inline(always)]
    fn row<V: Vector, S: RowSink<V>>(&self, row: usize, values: &[V], sink: &mut S) {
        let range = self.row_ptr[row] as usize..self.row_ptr[row + 1] as usize;
        let (start, x) = (range.start, sink.operand());
        let value = match range.len() {
            2 => self.cols.dot_const::<V, 2>(start, values, x),
            3 => self.cols.dot_const::<V, 3>(start, values, x),
            4 => self.cols.dot_const::<V, 4>(start, values, x),
            5 => self.cols.dot_const::<V, 5>(start, values, x),
            6 => self.cols.dot_const::<V, 6>(start, values, x),
            7 => self.cols.dot_const::<V, 7>(start, values, x),
            _ => self.cols.dot(range, values, x, V::zero()),
        };
        sink.row(row, 0, value);
        sink.rotate();
    }

    #[inline(always)]
    fn blocks_const<V: Vector, S: RowSink<V>, const W: usize>(
        &self,
        run: &Run,
        values: &[V],
        sink: &mut S,
    ) {
        let mut row = run.blocks.0 as usize * ROWS_PER_BLOCK;
        let mut start = self.row_ptr[row] as usize;
        for &ahead in &self.ahead[run.blocks.0 as usize..run.blocks.1 as usize] {
            sink.need(ahead as usize);
            // Written out: the slots must be constants.
            let value = self.cols.dot_const::<V, W>(start, values, sink.operand());
            sink.row(row, 0, value);
            let value = self
                .cols
                .dot_const::<V, W>(start + W, values, sink.operand());
            sink.row(row + 1, 1, value);
            let value = self
                .cols
                .dot_const::<V, W>(start + 2 * W, values, sink.operand());
            sink.row(row + 2, 2, value);
            let value = self
                .cols
                .dot_const::<V, W>(start + 3 * W, values, sink.operand());
            sink.row(row + 3, 3, value);
            row += ROWS_PER_BLOCK;
            start += ROWS_PER_BLOCK * W;
        }
    }
}
