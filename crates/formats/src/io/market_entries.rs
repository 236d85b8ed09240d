//! Matrix Market files: the entries.

use std::ops::Range;
use std::path::Path;

use super::assemble::{NoBlock, Triplets};
use super::market_header::{Banner, Field, MarketLayout, MarketSymmetry, Size};
use super::number::{self, NoValue, is_blank_or_end};
use super::text::{Fault, describe};
use crate::FormatError;
use crate::error::reserve;

/// A position in a block of whole lines. The block ends with a line feed, at which every scan
/// stops.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    line_start: usize,
    /// Lines before the current one.
    lines: u64,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of a block.
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self { bytes: block, at: 0, line_start: 0, lines: 0 }
    }

    /// The offset at which the current line begins, and the number of lines before it.
    pub(super) fn line_start(&self) -> (usize, u64) {
        (self.line_start, self.lines)
    }

    #[inline(always)]
    fn skip_blanks(&mut self) {
        while matches!(self.bytes[self.at], b' ' | b'\t' | b'\r') {
            self.at += 1;
        }
    }

    fn fault(&self, expected: String) -> Fault {
        let found = describe(&self.bytes[self.at..]);
        Fault::new(self.at - self.line_start + 1, expected, found)
    }

    /// Reads an index in `1..=limit` and makes it zero-based.
    #[inline(always)]
    fn index(&mut self, what: &str, limit: usize) -> Result<i32, Fault> {
        match number::unsigned(self.bytes, self.at) {
            Some((index, end)) if index.wrapping_sub(1) < limit as u64 => {
                self.at = end;
                Ok((index - 1) as i32)
            }
            _ => Err(self.fault(format!("a {what} index in 1..={limit}"))),
        }
    }

    #[inline(always)]
    fn value(&mut self, field: Field) -> Result<f64, Fault> {
        let fast = match field {
            Field::Integer => number::fast_integer(self.bytes, self.at),
            Field::Real | Field::Pattern => number::fast(self.bytes, self.at),
        };
        if let Some((value, end)) = fast {
            self.at = end;
            return Ok(value);
        }
        self.slow_value(field)
    }

    fn slow_value(&mut self, field: Field) -> Result<f64, Fault> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&b| is_blank_or_end(b));
        let token = &rest[..length.unwrap_or(0)];
        let (value, kind) = match field {
            Field::Integer => (number::slow_integer(token), "an integer"),
            Field::Real | Field::Pattern => (number::slow(token), "a number"),
        };
        match value {
            Ok(value) => {
                self.at += token.len();
                Ok(value)
            }
            Err(NoValue::Overflow) => Err(self.fault(format!("{kind} in the range of f64"))),
            Err(NoValue::NotANumber) => Err(self.fault(kind.to_owned())),
        }
    }
}

/// Why reading stopped.
pub(super) enum Stop {
    /// The file has a fault.
    Fault(Fault),
    /// There is no memory for more entries.
    Memory,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What becomes of the entries of a file.
pub(super) enum Wanted {
    /// All are collected as the file has them.
    All,
    /// Those of some rows are collected, the entries that a symmetry implies among them, with rows
    /// counted from the first of these.
    Rows {
        rows: Range<i32>,
        /// The entries that the symmetry implies.
        implied: Triplets,
    },
    /// They are counted by groups of `group` rows, those that a symmetry implies among them.
    Counts { group: i32, counts: Vec<u64> },
}

/// Collects the entries of a file.
pub(super) struct Entries {
    banner: Banner,
    size: Size,
    wanted: Wanted,
    triplets: Triplets,
    /// Entries read.
    count: usize,
    /// Array files: the row and column of the next value.
    next: (i32, i32),
    /// Whether entries below and above the diagonal of a symmetric matrix were read.
    sides: (bool, bool),
}

impl Entries {
    /// A collector without entries. Of array files all entries are collected.
    pub(super) fn new(banner: Banner, size: Size, wanted: Wanted) -> Self {
        Self {
            banner,
            size,
            wanted,
            triplets: Triplets::default(),
            count: 0,
            next: (0, 0),
            sides: (false, false),
        }
    }

    /// Entries read so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Entries held: those read so far, less the duplicates already summed.
    pub(super) fn held(&self) -> usize {
        let implied = match &self.wanted {
            Wanted::Rows { implied, .. } => implied.len(),
            Wanted::All | Wanted::Counts { .. } => 0,
        };
        self.triplets.len() + implied
    }

    /// Sums duplicates where there are many, see [`Triplets::compact`].
    pub(super) fn compact(&mut self) -> Result<(), FormatError> {
        let Size { nrows, ncols, .. } = self.size;
        match &mut self.wanted {
            Wanted::All | Wanted::Counts { .. } => self.triplets.compact(nrows, ncols),
            Wanted::Rows { rows, implied } => {
                implied.compact(rows.len(), ncols)?;
                self.triplets.compact(rows.len(), ncols)
            }
        }
    }

    /// The number of entries of each group of rows, once the file is complete.
    pub(super) fn into_counts(self) -> Vec<u64> {
        match self.wanted {
            Wanted::Counts { counts, .. } => counts,
            Wanted::All | Wanted::Rows { .. } => Vec::new(),
        }
    }

    /// Checks that all declared entries were read; the error names the one that is missing.
    pub(super) fn check_complete(&self) -> Result<(), String> {
        let Size { entries, fewest, .. } = self.size;
        if self.count == fewest || self.count == entries {
            return Ok(());
        }
        let declared = if self.count < fewest { fewest } else { entries };
        Err(format!("entry {} of {declared}", self.count + 1))
    }

    /// The entries, once the file is complete.
    ///
    /// # Errors
    /// [`FormatError::Binary`] where the entries contradict each other or their symmetry,
    /// [`FormatError::Memory`] where the check for that cannot allocate.
    pub(super) fn finish(mut self, path: &Path) -> Result<Triplets, FormatError> {
        let fault = |expected: &str, found: String| FormatError::Binary {
            path: path.to_owned(),
            what: "entries".to_owned(),
            expected: expected.to_owned(),
            found,
        };
        let Banner { layout, symmetry, .. } = self.banner;
        if layout == MarketLayout::Array && symmetry == MarketSymmetry::SkewSymmetric {
            if self.count == self.size.fewest {
                self.move_below_diagonal();
            } else if let Some((row, value)) = self.leave_out_diagonal() {
                let expected = "zeros on the diagonal of a skew-symmetric matrix, or no diagonal";
                return Err(fault(expected, format!("{value:?} in row {}", row + 1)));
            }
        }
        if self.sides == (true, true)
            && let Some((row, col)) = self.mirrored_entry()?
        {
            let (row, col) = (row + 1, col + 1);
            let expected = "each entry of a symmetric matrix on one side of its diagonal";
            return Err(fault(expected, format!("both ({row}, {col}) and ({col}, {row})")));
        }
        let mut triplets = self.triplets;
        if let Wanted::Rows { implied, .. } = self.wanted {
            // Positions are either given or implied: the order of sums is that of the file.
            implied.iter().try_for_each(|(row, col, value)| triplets.push(row, col, value))?;
        }
        Ok(triplets)
    }

    /// Moves the values of a skew-symmetric array without diagonal to their positions, column by
    /// column: they were read as if the file held the diagonal.
    fn move_below_diagonal(&mut self) {
        let order = self.size.nrows as i32;
        let (mut row, mut col) = (1, 0);
        for entry in self.triplets.iter_mut() {
            (entry.0, entry.1) = (row, col);
            row += 1;
            if row == order {
                col += 1;
                row = col + 1;
            }
        }
    }

    /// Removes the diagonal of a skew-symmetric array, which other files leave out. Returns the row
    /// and the value of its first entry that is not 0.
    fn leave_out_diagonal(&mut self) -> Option<(i32, f64)> {
        let found = self.triplets.iter().find(|&(row, col, value)| row == col && value != 0.0);
        self.triplets.retain(|&(row, col, _)| row != col);
        found.map(|(row, _, value)| (row, value))
    }

    /// The first entry below the diagonal whose mirror image is an entry too; of some rows, that of
    /// one of them.
    fn mirrored_entry(&self) -> Result<Option<(i32, i32)>, FormatError> {
        if let Wanted::Rows { rows, implied } = &self.wanted {
            // An entry that is given as well as implied.
            let mut places = reserve("implied entries", implied.len() as u128)?;
            places.extend(implied.iter().map(|(row, col, _)| (row, col)));
            places.sort_unstable();
            let mut given = self.triplets.iter().map(|(row, col, _)| (row, col));
            let found = given.find(|place| places.binary_search(place).is_ok());
            return Ok(found.map(|(row, col)| {
                let row = row + rows.start;
                (row.max(col), row.min(col))
            }));
        }
        let above = || self.triplets.iter().filter(|&(row, col, _)| col > row);
        let mut images = reserve("entries above the diagonal", above().count() as u128)?;
        images.extend(above().map(|(row, col, _)| (col, row)));
        images.sort_unstable();
        let mut below = self.triplets.iter().filter(|&(row, col, _)| col < row);
        let found = below.find(|&(row, col, _)| images.binary_search(&(row, col)).is_ok());
        Ok(found.map(|(row, col, _)| (row, col)))
    }

    /// Reads a block of whole lines.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        while cursor.at < cursor.bytes.len() {
            cursor.line_start = cursor.at;
            cursor.skip_blanks();
            match cursor.bytes[cursor.at] {
                b'\n' => {}
                b'%' => {
                    let comment = &cursor.bytes[cursor.at..];
                    let length = comment.iter().position(|&b| b == b'\n');
                    cursor.at += length.unwrap_or(comment.len() - 1);
                }
                _ => {
                    self.read_entry(cursor)?;
                    cursor.skip_blanks();
                    if cursor.bytes[cursor.at] != b'\n' {
                        return Err(cursor.fault(self.end_of_line()).into());
                    }
                }
            }
            cursor.at += 1;
            cursor.lines += 1;
        }
        cursor.line_start = cursor.at;
        Ok(())
    }

    /// Describes what must follow an entry.
    fn end_of_line(&self) -> String {
        let end = "the end of the line";
        match self.banner.field {
            Field::Pattern => format!("{end}, since a pattern has no values"),
            Field::Real | Field::Integer => end.to_owned(),
        }
    }

    #[inline(always)]
    fn read_entry(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        if self.count == self.size.entries {
            let expected = format!("the end of the file after {} entries", self.count);
            return Err(cursor.fault(expected).into());
        }
        let (row, col, value) = match self.banner.layout {
            MarketLayout::Coordinate => self.coordinate(cursor)?,
            MarketLayout::Array => {
                let (row, col) = self.next;
                let value = cursor.value(self.banner.field)?;
                self.advance();
                (row, col, value)
            }
        };
        self.take(row, col, value).map_err(|NoBlock| Stop::Memory)?;
        self.count += 1;
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self, row: i32, col: i32, value: f64) -> Result<(), NoBlock> {
        if let Wanted::All = self.wanted {
            return self.triplets.push(row, col, value);
        }
        let symmetry = self.banner.symmetry;
        let is_implied = symmetry != MarketSymmetry::General && row != col;
        match &mut self.wanted {
            Wanted::All => {}
            Wanted::Rows { rows, implied } => {
                if rows.contains(&row) {
                    self.triplets.push(row - rows.start, col, value)?;
                }
                if is_implied && rows.contains(&col) {
                    let skew = symmetry == MarketSymmetry::SkewSymmetric;
                    implied.push(col - rows.start, row, if skew { -value } else { value })?;
                }
            }
            Wanted::Counts { group, counts } => {
                counts[(row / *group) as usize] += 1;
                if is_implied {
                    counts[(col / *group) as usize] += 1;
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn coordinate(&mut self, cursor: &mut Cursor<'_>) -> Result<(i32, i32, f64), Fault> {
        let row = cursor.index("row", self.size.nrows)?;
        let mut col = 0;
        if !self.banner.is_vector {
            cursor.skip_blanks();
            col = cursor.index("column", self.size.ncols)?;
        }
        if self.banner.symmetry != MarketSymmetry::General {
            self.sides.0 |= col < row;
            self.sides.1 |= col > row;
        }
        if self.banner.field == Field::Pattern {
            return Ok((row, col, 1.0));
        }
        cursor.skip_blanks();
        let start = cursor.at;
        let value = cursor.value(self.banner.field)?;
        if self.banner.symmetry == MarketSymmetry::SkewSymmetric && row == col && value != 0.0 {
            cursor.at = start;
            let expected = "0 on the diagonal of a skew-symmetric matrix";
            return Err(cursor.fault(expected.to_owned()));
        }
        Ok((row, col, value))
    }

    /// Moves `next` on to the next position of an array file: down the column, then to the next
    /// column.
    fn advance(&mut self) {
        let (row, col) = &mut self.next;
        *row += 1;
        if *row as usize == self.size.nrows {
            *col += 1;
            *row = match self.banner.symmetry {
                MarketSymmetry::General => 0,
                MarketSymmetry::Symmetric | MarketSymmetry::SkewSymmetric => *col,
            };
        }
    }
}
