//! Division of a batch into pieces. A block multiplies one piece at a time: a system, several
//! consecutive small systems, or some rows of a large one. The division depends on sizes alone, not
//! on patterns or values.

use std::ops::Range;

use super::PackedOptions;
use super::source::ItemSizes;
use crate::CsrSize;
use sparsebatch_cuda::{DeviceInfo, GpuError};

/// Limits of a group of systems: entries (by default), and rows or columns.
const MAX_GROUP_ENTRIES: usize = 2048;
const MAX_GROUP_ROWS: usize = 1024;

/// Shared memory per block that has room for any group.
const GROUP_SHARED_BYTES: u32 = 96 << 10;

/// Least number of groups wanted per multiprocessor.
const GROUPS_PER_MULTIPROCESSOR: usize = 4;

/// Systems above these limits are cut into pieces of consecutive rows with at most about
/// [`PIECE_ENTRIES`] entries. Where rows are cut into segments, and so the order of their sums, is
/// decided for such a piece (or a smaller whole system), whether or not it is divided further.
const MAX_PIECE_ENTRIES: usize = 65_536;
const MAX_PIECE_ROWS: usize = 2048;
const PIECE_ENTRIES: usize = 8192;

/// Least number of pieces wanted per multiprocessor, if they have at least `SMALL_PIECE_ENTRIES`.
/// Smaller batches get a piece for each multiprocessor, if it has at least `MIN_PIECE_ENTRIES`.
const PIECES_PER_MULTIPROCESSOR: usize = 8;
const SMALL_PIECE_ENTRIES: usize = 2048;
const MIN_PIECE_ENTRIES: usize = 512;

/// Most entries of a segment, but in parts of very many entries: `USUAL_CUT` of `pack.cu`.
const SEGMENT_ENTRIES: usize = 32;

/// Least number of rows of a piece, a power of two.
const MIN_PIECE_ROWS: usize = 8;

/// In systems with more columns, packing finds the range of columns that a piece uses.
const MAX_WHOLE_COLUMNS: usize = 2048;

/// Most blocks of one launch: jobs that pack patterns and pieces, or blocks of a product.
const MAX_BLOCKS: usize = i32::MAX as usize;

/// Checks, before any piece is made, that one launch can pack `pieces` pieces of `patterns`
/// patterns and another launch can multiply them.
fn check_count(pieces: usize, patterns: usize) -> Result<(), GpuError> {
    if pieces.saturating_add(patterns) <= MAX_BLOCKS {
        return Ok(());
    }
    Err(GpuError::InvalidArgument {
        name: "batch",
        expected: format!("at most {} pieces to multiply", MAX_BLOCKS - patterns),
        found: pieces.to_string(),
    })
}

/// Consecutive rows of one matrix: `Part` of `pack.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Offsets in the batch: first row pointer of the part, first entry of the matrix, first row of
    /// the part, first column of the matrix.
    pub(super) row_ptr: usize,
    pub(super) entries: usize,
    pub(super) first_row: usize,
    pub(super) first_col: usize,
    pub(super) nrows: usize,
    pub(super) ncols: usize,
    /// Row cuts are decided for `cut_nrows` rows together, `cut_ahead` of which precede this part.
    pub(super) cut_ahead: usize,
    pub(super) cut_nrows: usize,
}

pub(super) const PART_WORDS: usize = 6;

impl Part {
    pub(super) fn words(&self) -> [u64; PART_WORDS] {
        [
            self.row_ptr as u64,
            self.entries as u64,
            self.first_row as u64,
            self.first_col as u64,
            self.nrows as u64 | (self.ncols as u64) << 32,
            self.cut_ahead as u64 | (self.cut_nrows as u64) << 32,
        ]
    }
}

/// What is packed once: consecutive parts, or one part repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) parts: Range<usize>,
    /// If not 0: the first part is repeated this many times.
    pub(super) repeated: usize,
    /// Total columns of the matrices, which lie side by side.
    pub(super) ncols: usize,
    /// Entries of a matrix, at least those of the part.
    pub(super) nnz: usize,
    /// Whether packing shall find the range of columns that are used.
    pub(super) windowed: bool,
}

/// A piece of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) pattern: usize,
    /// The first item.
    pub(super) item: usize,
    /// The first row within that item.
    pub(super) row: usize,
}

/// How a batch is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    pub(super) parts: Vec<Part>,
    pub(super) patterns: Vec<Pattern>,
    pub(super) pieces: Vec<Piece>,
}

impl Pieces {
    pub(super) fn new(
        shape: &ItemSizes,
        options: &PackedOptions,
        info: &DeviceInfo,
    ) -> Result<Self, GpuError> {
        let entries = options.group_entries.unwrap_or_else(|| {
            let groups = info.multiprocessors as usize * GROUPS_PER_MULTIPROCESSOR;
            (shape.before(shape.nitems())[2] / groups.max(1)).min(MAX_GROUP_ENTRIES)
        });
        let has_room = info.shared_bytes_per_block >= GROUP_SHARED_BYTES;
        let entries = (options.nrhs == 1 && has_room).then_some(entries);
        let piece_entries = options.piece_entries.unwrap_or_else(|| {
            let pieces = info.multiprocessors as usize * PIECES_PER_MULTIPROCESSOR;
            let entries = shape.before(shape.nitems())[2];
            let one_each = entries / (info.multiprocessors as usize).max(1);
            (entries / pieces.max(1)).max(one_each.clamp(MIN_PIECE_ENTRIES, SMALL_PIECE_ENTRIES))
        });
        let mut pieces = Self::default();
        let mut patterns_of = Vec::with_capacity(shape.sizes().len());
        for (number, &size) in shape.sizes().iter().enumerate() {
            let first = pieces.parts.len();
            pieces.add_parts(shape, number, size, piece_entries);
            patterns_of.push(first..pieces.parts.len());
        }
        if shape.uniform {
            pieces.divide_uniform(shape, entries.unwrap_or(0))?;
        } else {
            check_count(pieces.parts.len(), 0)?;
            pieces.divide_ragged(shape, entries, &patterns_of);
        }
        Ok(pieces)
    }

    /// Adds the parts of one distinct matrix: one part, or several with about equal numbers of
    /// rows.
    fn add_parts(&mut self, shape: &ItemSizes, number: usize, size: CsrSize, piece_entries: usize) {
        let [rows, cols, entries] = shape.before_pattern(number);
        let CsrSize { nrows, ncols, nnz } = size;
        let mean = nnz.div_ceil(nrows.max(1)).max(1);
        let rows_together = if nrows <= MAX_PIECE_ROWS && nnz <= MAX_PIECE_ENTRIES {
            nrows.max(1)
        } else {
            (PIECE_ENTRIES / mean).next_multiple_of(32).clamp(32, MAX_PIECE_ROWS)
        };
        for start in (0..nrows.max(1)).step_by(rows_together) {
            let cut_nrows = rows_together.min(nrows - start);
            let pieces = (mean * cut_nrows).div_ceil(piece_entries).max(1);
            // A step has a slot for each of 32 segments: rows of several segments make pieces of
            // fewer rows, since long rows often lie together.
            let full_step = 32 / mean.div_ceil(SEGMENT_ENTRIES).next_power_of_two();
            let together = full_step.max(MIN_PIECE_ROWS);
            let rows_of_part = cut_nrows.div_ceil(pieces).next_multiple_of(together);
            for cut_ahead in (0..cut_nrows.max(1)).step_by(rows_of_part.max(1)) {
                let first = start + cut_ahead;
                self.parts.push(Part {
                    row_ptr: rows + number + first,
                    entries,
                    first_row: rows + first,
                    first_col: cols,
                    nrows: rows_of_part.min(cut_nrows - cut_ahead),
                    ncols,
                    cut_ahead,
                    cut_nrows,
                });
            }
        }
    }

    fn pattern(parts: Range<usize>, repeated: usize, size: CsrSize) -> Pattern {
        let windowed = parts.len() == 1 && repeated <= 1 && size.ncols > MAX_WHOLE_COLUMNS;
        Pattern { parts, repeated, ncols: size.ncols, nnz: size.nnz, windowed }
    }

    fn divide_uniform(&mut self, shape: &ItemSizes, entries: usize) -> Result<(), GpuError> {
        let nitems = shape.nitems();
        if nitems == 0 {
            return Ok(());
        }
        let size = shape.size(0);
        if self.parts.len() > 1 {
            let parts = self.parts.len();
            check_count(parts.saturating_mul(nitems), parts)?;
            self.patterns = (0..parts).map(|p| Self::pattern(p..p + 1, 1, size)).collect();
            for item in 0..nitems {
                let piece =
                    |(pattern, part): (usize, &Part)| Piece { pattern, item, row: part.first_row };
                self.pieces.extend(self.parts.iter().enumerate().map(piece));
            }
            return Ok(());
        }
        let rows = size.nrows.max(size.ncols).max(1);
        let count = (entries / size.nnz.max(1)).min(MAX_GROUP_ROWS / rows).clamp(1, nitems);
        check_count(nitems.div_ceil(count), 2)?;
        let group = |count: usize| {
            let ncols = size.ncols * count;
            Pattern { ncols, ..Self::pattern(0..1, count, size) }
        };
        self.patterns.push(group(count));
        if !nitems.is_multiple_of(count) {
            self.patterns.push(group(nitems % count));
        }
        for item in (0..nitems).step_by(count) {
            let pattern = usize::from(item + count > nitems);
            self.pieces.push(Piece { pattern, item, row: 0 });
        }
        Ok(())
    }

    /// Groups consecutive systems with at most `entries` entries in total. `None`: every system is
    /// on its own, even one without entries.
    fn divide_ragged(
        &mut self,
        shape: &ItemSizes,
        entries: Option<usize>,
        parts_of: &[Range<usize>],
    ) {
        let mut group = CsrSize { nrows: 0, ncols: 0, nnz: 0 };
        // Whether the last pattern may take another item.
        let mut open = false;
        for (item, parts) in parts_of.iter().enumerate() {
            let size = shape.size(item);
            let with = CsrSize {
                nrows: group.nrows + size.nrows,
                ncols: group.ncols + size.ncols,
                nnz: group.nnz + size.nnz,
            };
            let fits = entries.is_some_and(|entries| with.nnz <= entries)
                && with.nrows.max(with.ncols) <= MAX_GROUP_ROWS;
            match self.patterns.last_mut() {
                Some(last) if open && fits && parts.len() == 1 => {
                    last.parts.end = parts.end;
                    last.ncols = with.ncols;
                    last.nnz = with.nnz;
                    group = with;
                }
                _ => {
                    for part in parts.clone() {
                        let row = self.parts[part].first_row - shape.before(item)[0];
                        self.pieces.push(Piece { pattern: self.patterns.len(), item, row });
                        self.patterns.push(Self::pattern(part..part + 1, 0, size));
                    }
                    group = size;
                    open = parts.len() == 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flexible::BatchSizes;

    fn pieces(item: CsrSize, nitems: usize, options: PackedOptions) -> Result<usize, GpuError> {
        let shape = ItemSizes::new(BatchSizes::Uniform { item, nitems, shared_values: true });
        let info = DeviceInfo { shared_bytes_per_block: 227 << 10, ..DeviceInfo::default() };
        Pieces::new(&shape, &options, &info).map(|pieces| pieces.pieces.len())
    }

    #[test]
    fn counts_that_one_launch_does_not_take_are_refused() {
        assert_eq!(check_count(0, 0), Ok(()));
        assert_eq!(check_count(MAX_BLOCKS - 2, 2), Ok(()));
        for (pieces, patterns) in [(MAX_BLOCKS, 1), (MAX_BLOCKS - 1, 2), (1 << 32, 1)] {
            assert!(check_count(pieces, patterns).is_err(), "{pieces} of {patterns}");
        }
        assert_eq!(
            check_count(usize::MAX, 2).unwrap_err().to_string(),
            "batch is 18446744073709551615, expected at most 2147483645 pieces to multiply"
        );
    }

    #[test]
    fn uniform_batches_are_counted_before_they_are_divided() {
        let alone = PackedOptions { group_entries: Some(0), ..PackedOptions::default() };
        let one = CsrSize { nrows: 1, ncols: 1, nnz: 1 };
        let large = CsrSize { nrows: 5000, ncols: 1, nnz: 5000 };

        assert_eq!(pieces(one, 70_000, alone), Ok(70_000));
        assert_eq!(pieces(one, 70_000, PackedOptions::default()), Ok(69));
        assert_eq!(pieces(large, 7, alone), Ok(21));
        for (item, nitems) in [(one, MAX_BLOCKS - 1), (one, 1 << 32), (large, MAX_BLOCKS / 3)] {
            assert!(pieces(item, nitems, alone).is_err(), "{nitems}");
        }
    }
}
