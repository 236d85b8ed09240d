//! Diagonal blocks for block-Jacobi.

use std::ops::Range;

use sparsebatch_formats::CsrPatternRef;

use super::{NO_SOURCE, SymbolicError, check_square};

/// The largest diagonal block: beyond it a sparse factorisation is the better preconditioner.
pub const MAX_BLOCK_SIZE: usize = 128;

/// The largest block that [`find_blocks`] makes for a preconditioner whose block size is not given.
pub const FOUND_BLOCK_SIZE: usize = 16;

/// Cuts `nrows` rows into blocks of `size` rows, the last one possibly smaller.
///
/// Returns the block starts, ascending from 0, with `nrows` at the end: one more than there are
/// blocks.
///
/// # Errors
/// [`SymbolicError::BlockSize`] unless `1 <= size <= MAX_BLOCK_SIZE`;
/// [`SymbolicError::TooManyRows`] for more rows than a matrix can have.
///
/// # Examples
/// ```
/// # use sparsebatch_solve_core::symbolic::fixed_blocks;
/// assert_eq!(fixed_blocks(7, 3)?, [0, 3, 6, 7]);
/// # Ok::<(), sparsebatch_solve_core::symbolic::SymbolicError>(())
/// ```
pub fn fixed_blocks(nrows: usize, size: usize) -> Result<Vec<u32>, SymbolicError> {
    check_block_size(size)?;
    if i32::try_from(nrows).is_err() {
        return Err(SymbolicError::TooManyRows { found: nrows, limit: i32::MAX as usize });
    }
    let mut starts: Vec<u32> = (0..nrows).step_by(size).map(|row| row as u32).collect();
    starts.push(nrows as u32);
    Ok(starts)
}

/// Finds the natural blocks of a matrix and joins neighbours up to `max_size` rows.
///
/// A natural block (supervariable) is a longest run of consecutive rows with the same columns;
/// runs longer than `max_size` are cut. Consecutive natural blocks are then joined, first to last,
/// as long as the sum of their rows does not pass `max_size`. Returns block starts as
/// [`fixed_blocks`] does.
/// Cost: one pass over the pattern.
///
/// # Errors
/// [`SymbolicError::NotSquare`]; [`SymbolicError::BlockSize`] unless
/// `1 <= max_size <= MAX_BLOCK_SIZE`.
///
/// # Source
/// H. Anzt, J. Dongarra, G. Flegar, E. S. Quintana-Orti, Variable-size batched Gauss-Jordan
/// elimination for block-Jacobi preconditioning on graphics processors, 2019,
/// doi:10.1016/j.parco.2017.12.006 (supervariable agglomeration).
pub fn find_blocks(pattern: CsrPatternRef<'_>, max_size: usize) -> Result<Vec<u32>, SymbolicError> {
    let nrows = check_square(pattern)?;
    check_block_size(max_size)?;
    let columns = |row: usize| &pattern.col_idx()[pattern.row(row)];
    let mut starts = vec![0];
    let (mut block, mut natural) = (0, 0);
    for row in 1..=nrows {
        let continues = row < nrows && row - natural < max_size && columns(row) == columns(row - 1);
        if continues {
            continue;
        }
        // The natural block natural..row ends here.
        if row - block > max_size {
            starts.push(natural as u32);
            block = natural;
        }
        natural = row;
    }
    if nrows > 0 {
        starts.push(nrows as u32);
    }
    Ok(starts)
}

fn check_block_size(size: usize) -> Result<(), SymbolicError> {
    if (1..=MAX_BLOCK_SIZE).contains(&size) {
        Ok(())
    } else {
        Err(SymbolicError::BlockSize { found: size, limit: MAX_BLOCK_SIZE })
    }
}

/// The diagonal blocks of a matrix and where their entries stand in its value array.
///
/// Invariants, all enforced by [`DiagonalBlocks::try_new`]:
/// 1. `starts` begins with 0, ascends strictly and ends with the number of rows (`[0]` for a
///    matrix without rows).
/// 2. No block has more than [`MAX_BLOCK_SIZE`] rows.
/// 3. `dense_ptr` has one entry per start: block `i` of `s` rows owns the `s * s` slots
///    `dense_ptr[i]..dense_ptr[i + 1]`.
/// 4. `source` has one entry per slot, row-major within the block: the position in A's value
///    array, or [`NO_SOURCE`] where A has no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagonalBlocks {
    starts: Vec<u32>,
    dense_ptr: Vec<usize>,
    source: Vec<u32>,
}

impl DiagonalBlocks {
    /// Blocks of `size` rows; without a size, the blocks of [`find_blocks`], of at most
    /// [`FOUND_BLOCK_SIZE`] rows.
    ///
    /// # Errors
    /// Those of [`fixed_blocks`] and [`find_blocks`].
    pub fn of_size(pattern: CsrPatternRef<'_>, size: Option<usize>) -> Result<Self, SymbolicError> {
        let starts = match size {
            Some(size) => fixed_blocks(pattern.nrows(), size)?,
            None => find_blocks(pattern, FOUND_BLOCK_SIZE)?,
        };
        Self::try_new(pattern, &starts)
    }

    /// Looks up the entries of the blocks that `starts` defines, as made by [`fixed_blocks`],
    /// [`find_blocks`] or the caller.
    ///
    /// # Errors
    /// [`SymbolicError::NotSquare`]; [`SymbolicError::BlockStart`] when the starts do not cut the
    /// rows as the invariants say; [`SymbolicError::BlockSize`] for a block that is too large.
    pub fn try_new(pattern: CsrPatternRef<'_>, starts: &[u32]) -> Result<Self, SymbolicError> {
        let nrows = check_square(pattern)?;
        check_starts(starts, nrows)?;
        let mut dense_ptr = Vec::with_capacity(starts.len());
        dense_ptr.push(0);
        let mut source = Vec::new();
        for block in starts.windows(2) {
            let (start, end) = (block[0] as usize, block[1] as usize);
            for row in start..end {
                let dense_row = source.len();
                source.resize(dense_row + end - start, NO_SOURCE);
                let entries = pattern.row(row);
                let columns = &pattern.col_idx()[entries.clone()];
                let from = columns.partition_point(|&col| (col as usize) < start);
                let to = columns.partition_point(|&col| (col as usize) < end);
                for k in from..to {
                    source[dense_row + columns[k] as usize - start] = (entries.start + k) as u32;
                }
            }
            dense_ptr.push(source.len());
        }
        Ok(Self { starts: starts.to_vec(), dense_ptr, source })
    }

    /// Number of blocks.
    #[inline]
    pub fn nblocks(&self) -> usize {
        self.starts.len() - 1
    }

    /// Rows of the matrix.
    #[inline]
    pub fn nrows(&self) -> usize {
        self.starts[self.nblocks()] as usize
    }

    /// Block starts, `nblocks + 1` of them.
    #[inline]
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// Where each block's dense slots start, `nblocks + 1` entries; the last is the number of
    /// slots of all blocks.
    #[inline]
    pub fn dense_ptr(&self) -> &[usize] {
        &self.dense_ptr
    }

    /// The position in A's value array of each dense slot, or [`NO_SOURCE`].
    #[inline]
    pub fn source(&self) -> &[u32] {
        &self.source
    }

    /// The rows (and columns) of a block.
    #[inline]
    pub fn rows(&self, block: usize) -> Range<usize> {
        self.starts[block] as usize..self.starts[block + 1] as usize
    }

    /// The sources of a block, row-major, `rows * rows` of them.
    #[inline]
    pub fn block_source(&self, block: usize) -> &[u32] {
        &self.source[self.dense_ptr[block]..self.dense_ptr[block + 1]]
    }
}

fn check_starts(starts: &[u32], nrows: usize) -> Result<(), SymbolicError> {
    let refuse = |position, found, expected: String| {
        Err(SymbolicError::BlockStart { position, found, expected })
    };
    let Some(&first) = starts.first() else {
        return refuse(0, 0, "a first start, 0, that is missing".to_owned());
    };
    if first != 0 {
        return refuse(0, first, "0".to_owned());
    }
    for (position, pair) in (1..).zip(starts.windows(2)) {
        if pair[1] <= pair[0] || pair[1] as usize > nrows {
            return refuse(position, pair[1], format!("a value in {}..={nrows}", pair[0] + 1));
        }
        check_block_size((pair[1] - pair[0]) as usize)?;
    }
    let last = starts[starts.len() - 1];
    if last as usize == nrows {
        Ok(())
    } else {
        refuse(starts.len() - 1, last, format!("{nrows} at the end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    /// Rows 0 and 1 alike, row 2 alone, rows 3 and 4 alike.
    fn sample() -> CsrPattern {
        CsrPattern::try_new(
            5,
            5,
            vec![0, 3, 6, 8, 10, 12],
            vec![0, 1, 4, 0, 1, 4, 0, 2, 3, 4, 3, 4],
        )
        .unwrap()
    }

    #[test]
    fn fixed_blocks_end_with_the_rest() {
        assert_eq!(fixed_blocks(6, 3).unwrap(), [0, 3, 6]);
        assert_eq!(fixed_blocks(4, 3).unwrap(), [0, 3, 4]);
        assert_eq!(fixed_blocks(0, 3).unwrap(), [0]);
    }

    #[test]
    fn find_blocks_does_not_cut_natural_blocks() {
        let a = sample();

        assert_eq!(find_blocks(a.view(), 2).unwrap(), [0, 2, 3, 5]);
        assert_eq!(find_blocks(a.view(), 3).unwrap(), [0, 3, 5]);
        assert_eq!(find_blocks(a.view(), 4).unwrap(), [0, 3, 5]);
        assert_eq!(find_blocks(a.view(), 5).unwrap(), [0, 5]);
    }

    #[test]
    fn find_blocks_cuts_natural_blocks_that_are_too_long() {
        let dense =
            CsrPattern::try_new(3, 3, vec![0, 3, 6, 9], vec![0, 1, 2, 0, 1, 2, 0, 1, 2]).unwrap();

        assert_eq!(find_blocks(dense.view(), 2).unwrap(), [0, 2, 3]);
        assert_eq!(find_blocks(sample().view(), 1).unwrap(), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn blocks_of_a_matrix_without_rows_are_none() {
        let a = CsrPattern::try_new(0, 0, vec![0], vec![]).unwrap();

        let starts = find_blocks(a.view(), 4).unwrap();
        let blocks = DiagonalBlocks::try_new(a.view(), &starts).unwrap();

        assert_eq!(starts, [0]);
        assert_eq!((blocks.nblocks(), blocks.nrows()), (0, 0));
    }

    #[test]
    fn sources_of_a_block_are_row_major_with_holes() {
        let blocks = DiagonalBlocks::try_new(sample().view(), &[0, 3, 5]).unwrap();

        assert_eq!(blocks.nblocks(), 2);
        assert_eq!(blocks.dense_ptr(), [0, 9, 13]);
        const N: u32 = NO_SOURCE;
        assert_eq!(blocks.block_source(0), [0, 1, N, 3, 4, N, 6, N, 7]);
        assert_eq!(blocks.block_source(1), [8, 9, 10, 11]);
        assert_eq!(blocks.rows(1), 3..5);
    }

    #[test]
    fn bad_sizes_and_starts_are_refused() {
        let a = sample();
        let refused = |starts: &[u32]| DiagonalBlocks::try_new(a.view(), starts).is_err();
        let size = |found| Some(SymbolicError::BlockSize { found, limit: MAX_BLOCK_SIZE });

        assert_eq!(fixed_blocks(5, 0).err(), size(0));
        let limit = i32::MAX as usize;
        for found in [limit + 1, usize::MAX] {
            let refused = Some(SymbolicError::TooManyRows { found, limit });
            assert_eq!(fixed_blocks(found, 1).err(), refused);
        }
        assert_eq!(find_blocks(a.view(), usize::MAX).err(), size(usize::MAX));
        assert_eq!(find_blocks(a.view(), 1000).err(), size(1000));
        assert!(refused(&[]));
        assert!(refused(&[1, 5]));
        assert!(refused(&[0, 3]));
        assert!(refused(&[0, 3, 3, 5]));
        assert!(refused(&[0, 3, 2, 5]));
        assert!(refused(&[0, 6]));
        assert!(refused(&[0, u32::MAX]));
        assert!(!refused(&[0, 3, 5]));
    }
}
