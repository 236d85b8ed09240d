//! CSR to DIA and back.

use super::{DEFAULT_MAX_FILL, FromCsr, SlotMap, StorageSize, ToCsr, check_fill};
use crate::dia::{for_each_slot, rows_of};
use crate::{CsrPattern, CsrPatternRef, DiaPattern, FormatError, Pattern};

/// The choices of a conversion to DIA. Every occupied diagonal has a slot for each row; a diagonal
/// with fill also has a bit for each row, which tells entries from fill.
#[derive(Clone, Debug, PartialEq)]
pub struct DiaOptions {
    /// Slots per entry above which the conversion is refused.
    pub max_fill: f64,
}

impl Default for DiaOptions {
    fn default() -> Self {
        Self { max_fill: DEFAULT_MAX_FILL }
    }
}

/// The diagonals that hold an entry: column minus row, ascending.
///
/// Cost: one pass over the entries, and O(nrows + ncols), or a sort of nnz offsets where nnz is
/// below about (nrows + ncols) / 8.
pub fn occupied_diagonals(pattern: CsrPatternRef<'_>) -> Vec<i32> {
    Diagonals::of(pattern).offsets
}

/// The diagonals that hold an entry, ascending, and how many entries each holds.
struct Diagonals {
    offsets: Vec<i32>,
    entries: Vec<usize>,
}

impl Diagonals {
    fn of(pattern: CsrPatternRef<'_>) -> Self {
        let offsets = || {
            (0..pattern.nrows()).flat_map(move |row| {
                let columns = &pattern.col_idx()[pattern.row(row)];
                columns.iter().map(move |&col| i64::from(col) - row as i64)
            })
        };
        let lowest = 1 - pattern.nrows() as i64;
        let span = (pattern.nrows() + pattern.ncols()).saturating_sub(1);
        let mut found = Self { offsets: Vec::new(), entries: Vec::new() };
        if span / 8 > pattern.nnz() {
            let mut all: Vec<i32> = offsets().map(|offset| offset as i32).collect();
            all.sort_unstable();
            for same in all.chunk_by(|a, b| a == b) {
                found.offsets.push(same[0]);
                found.entries.push(same.len());
            }
            return found;
        }
        // No diagonal holds more entries than the matrix, and `nnz` fits 32 bits.
        let mut entries = vec![0u32; span];
        for offset in offsets() {
            entries[(offset - lowest) as usize] += 1;
        }
        for (offset, entries) in (lowest..).zip(entries).filter(|&(_, entries)| entries > 0) {
            found.offsets.push(offset as i32);
            found.entries.push(entries as usize);
        }
        found
    }

    /// The storage that DIA takes for a pattern with these diagonals.
    fn size(
        &self,
        pattern: CsrPatternRef<'_>,
        options: &DiaOptions,
    ) -> Result<StorageSize, FormatError> {
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        let has_holes =
            |(&offset, &entries): (&i32, &usize)| entries < rows_of(nrows, ncols, offset).len();
        let masked = self.offsets.iter().zip(&self.entries).filter(|&d| has_holes(d)).count();
        let index_bytes =
            4 * self.offsets.len() as u128 + 8 * (masked * nrows.div_ceil(64)) as u128;
        let stored_len = check_fill(
            DiaPattern::NAME,
            self.offsets.len() as u128 * nrows as u128,
            index_bytes,
            pattern.nnz(),
            options.max_fill,
        )?;
        Ok(StorageSize { stored_len, index_bytes: index_bytes as usize })
    }
}

/// Converts a pattern without making its [`SlotMap`].
///
/// # Errors
/// Those of [`FromCsr::size_from_csr`].
pub fn dia_pattern(
    pattern: CsrPatternRef<'_>,
    options: &DiaOptions,
) -> Result<DiaPattern, FormatError> {
    let diagonals = Diagonals::of(pattern);
    diagonals.size(pattern, options)?;
    DiaPattern::of_csr(pattern, diagonals.offsets, &diagonals.entries)
}

impl FromCsr for DiaPattern {
    type Options = DiaOptions;

    fn size_from_csr(
        pattern: CsrPatternRef<'_>,
        options: &DiaOptions,
    ) -> Result<StorageSize, FormatError> {
        Diagonals::of(pattern).size(pattern, options)
    }

    fn from_csr(
        pattern: CsrPatternRef<'_>,
        options: &DiaOptions,
    ) -> Result<(Self, SlotMap), FormatError> {
        let dia = dia_pattern(pattern, options)?;
        let nrows = pattern.nrows();
        let mut slots = Vec::with_capacity(pattern.nnz());
        for_each_slot(pattern, dia.diag_offsets(), |d, row| slots.push((d * nrows + row) as u32));
        Ok((dia, SlotMap::Slots(slots)))
    }
}

impl ToCsr for DiaPattern {
    fn to_csr(&self, is_entry: impl Fn(usize) -> bool) -> (CsrPattern, SlotMap) {
        let nrows = self.nrows();
        let mut row_ptr = Vec::with_capacity(nrows + 1);
        let mut col_idx = Vec::new();
        let mut slots = Vec::new();
        row_ptr.push(0);
        for row in 0..nrows {
            for (d, &offset) in self.diag_offsets().iter().enumerate() {
                let slot = d * nrows + row;
                if self.is_entry(d, row) && is_entry(slot) {
                    col_idx.push(row as i32 + offset);
                    slots.push(slot as u32);
                }
            }
            row_ptr.push(col_idx.len() as i32);
        }
        let pattern = CsrPattern::new_unvalidated(self.ncols(), row_ptr, col_idx);
        (pattern, SlotMap::Slots(slots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Csr, Dia};

    #[test]
    fn diagonals_are_stored_whole_and_zeros_are_dropped_on_the_way_back() {
        // [1 0 2; 0 . 0] with an explicit zero at (1, 1)
        let csr = Csr::try_new(2, 3, vec![0, 2, 3], vec![0, 2, 1], vec![1.0, 2.0, 0.0]).unwrap();

        let dia = Dia::from_csr(&csr, &DiaOptions::default()).unwrap();

        assert_eq!(dia.pattern().diag_offsets(), [0, 2]);
        assert_eq!(dia.values(), [1.0, 0.0, 2.0, 0.0]);
        let back = dia.to_csr();
        assert_eq!(back.row_ptr(), [0, 2, 2]);
        assert_eq!(back.col_idx(), [0, 2]);
        assert_eq!(back.values(), [1.0, 2.0]);
    }

    #[test]
    fn a_scattered_matrix_is_refused() {
        // One entry in each of 2,000 rows, each on a diagonal of its own: 4,000,000 slots.
        let rows = 2000;
        let columns = (0..rows).map(|row| 2 * row).collect();
        let pattern = CsrPattern::try_new(2000, 4000, (0..=rows).collect(), columns).unwrap();

        let error = DiaPattern::from_csr(pattern.view(), &DiaOptions::default()).unwrap_err();

        assert!(matches!(
            error,
            FormatError::Blowup {
                format: "dia",
                slots: 4_000_000,
                bytes: 32_520_000,
                nnz: 2000,
                limit: 1_048_576
            }
        ));
    }

    #[test]
    fn occupied_diagonals_of_a_huge_empty_matrix_are_found_by_sorting() {
        let huge = i32::MAX as usize;
        let pattern = CsrPattern::try_new(2, huge, vec![0, 2, 4], vec![0, 9, 1, 7]).unwrap();

        assert_eq!(occupied_diagonals(pattern.view()), [0, 6, 9]);
    }
}
