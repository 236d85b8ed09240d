//! CSR to DIA and back.

use super::{DEFAULT_MAX_FILL, FromCsr, SlotMap, StorageSize, ToCsr, check_fill};
use crate::{CsrPattern, CsrPatternRef, DiaPattern, FormatError, Pattern};

/// The choices of a conversion to DIA. Every occupied diagonal is stored whole.
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
/// Cost: one pass over the entries, and O(nrows + ncols), or a sort of O(nnz) offsets where the
/// matrix is so empty that this is less.
pub fn occupied_diagonals(pattern: CsrPatternRef<'_>) -> Vec<i32> {
    let offsets = || {
        (0..pattern.nrows()).flat_map(move |row| {
            pattern.col_idx()[pattern.row(row)].iter().map(move |&col| i64::from(col) - row as i64)
        })
    };
    let lowest = 1 - pattern.nrows() as i64;
    let span = (pattern.nrows() + pattern.ncols()).saturating_sub(1);
    if span / 8 > pattern.nnz() {
        let mut found: Vec<i32> = offsets().map(|offset| offset as i32).collect();
        found.sort_unstable();
        found.dedup();
        return found;
    }
    let mut occupied = vec![false; span];
    for offset in offsets() {
        occupied[(offset - lowest) as usize] = true;
    }
    (lowest..)
        .zip(occupied)
        .filter(|&(_, occupied)| occupied)
        .map(|(offset, _)| offset as i32)
        .collect()
}

fn size(
    pattern: CsrPatternRef<'_>,
    ndiags: usize,
    options: &DiaOptions,
) -> Result<StorageSize, FormatError> {
    let stored_len = check_fill(
        DiaPattern::NAME,
        ndiags as u128 * pattern.nrows() as u128,
        4 * ndiags as u128,
        pattern.nnz(),
        options.max_fill,
    )?;
    Ok(StorageSize { stored_len, index_bytes: 4 * ndiags })
}

impl FromCsr for DiaPattern {
    type Options = DiaOptions;

    fn size_from_csr(
        pattern: CsrPatternRef<'_>,
        options: &DiaOptions,
    ) -> Result<StorageSize, FormatError> {
        size(pattern, occupied_diagonals(pattern).len(), options)
    }

    fn from_csr(
        pattern: CsrPatternRef<'_>,
        options: &DiaOptions,
    ) -> Result<(Self, SlotMap), FormatError> {
        let diag_offsets = occupied_diagonals(pattern);
        size(pattern, diag_offsets.len(), options)?;
        let nrows = pattern.nrows();
        let mut slots = Vec::with_capacity(pattern.nnz());
        for row in 0..nrows {
            let mut d = 0;
            for &col in &pattern.col_idx()[pattern.row(row)] {
                let offset = col - row as i32;
                while diag_offsets[d] != offset {
                    d += 1;
                }
                slots.push((d * nrows + row) as u32);
            }
        }
        let dia = Self::try_new(nrows, pattern.ncols(), diag_offsets)?;
        Ok((dia, SlotMap::Slots(slots)))
    }
}

impl ToCsr for DiaPattern {
    fn to_csr(&self, is_entry: impl Fn(usize) -> bool) -> (CsrPattern, SlotMap) {
        let (nrows, ncols) = (self.nrows(), self.ncols());
        let mut row_ptr = Vec::with_capacity(nrows + 1);
        let mut col_idx = Vec::new();
        let mut slots = Vec::new();
        row_ptr.push(0);
        for row in 0..nrows {
            for (d, &offset) in self.diag_offsets().iter().enumerate() {
                let col = row as i64 + i64::from(offset);
                let slot = d * nrows + row;
                if (0..ncols as i64).contains(&col) && is_entry(slot) {
                    col_idx.push(col as i32);
                    slots.push(slot as u32);
                }
            }
            row_ptr.push(col_idx.len() as i32);
        }
        let pattern = CsrPattern::new_unvalidated(ncols, row_ptr, col_idx);
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
                bytes: 32_008_000,
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
