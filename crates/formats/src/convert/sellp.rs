//! CSR to SELL-P and back.

use std::cmp::Reverse;

use super::{DEFAULT_MAX_FILL, FromCsr, SlotMap, StorageSize, ToCsr, check_fill};
use crate::error::check_i32;
use crate::{CsrPattern, CsrPatternRef, FormatError, PADDING, Pattern, SellPPattern};

/// The choices of a conversion to SELL-P.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SellPOptions {
    /// Rows per slice, b: 8 in the source.
    pub slice_size: usize,
    /// Threads per row, t, of which every slice width is a multiple: 8 in the source. Kernels that
    /// give a row to one thread or lane waste less padding with 1.
    pub threads_per_row: usize,
    /// Sorts the rows by descending length within windows of this many rows (the sigma of
    /// SELL-C-sigma), so that slices hold rows of like length. `None` keeps the order.
    pub sort_window: Option<usize>,
    /// Slots per entry above which the conversion is refused.
    pub max_fill: f64,
}

crate::option_setters! {
    SellPOptions {
        slice_size: usize,
        threads_per_row: usize,
        sort_window: Option<usize>,
        max_fill: f64,
    }
}

impl Default for SellPOptions {
    fn default() -> Self {
        Self { slice_size: 8, threads_per_row: 8, sort_window: None, max_fill: DEFAULT_MAX_FILL }
    }
}

/// The order of the rows and the width of each slice.
struct Slices {
    row_perm: Vec<i32>,
    widths: Vec<usize>,
}

impl Slices {
    fn new(pattern: CsrPatternRef<'_>, options: &SellPOptions) -> Result<Self, FormatError> {
        for (name, value) in [
            ("slice_size", options.slice_size),
            ("threads_per_row", options.threads_per_row),
            ("sort_window", options.sort_window.unwrap_or(1)),
        ] {
            if value == 0 || check_i32(name, value).is_err() {
                return Err(FormatError::Parameter {
                    name,
                    expected: "a positive 32-bit number",
                    found: value.to_string(),
                });
            }
        }
        let mut row_perm: Vec<i32> = (0..pattern.nrows() as i32).collect();
        if let Some(window) = options.sort_window {
            for rows in row_perm.chunks_mut(window) {
                rows.sort_by_key(|&row| Reverse(pattern.row(row as usize).len()));
            }
        }
        let widths = row_perm
            .chunks(options.slice_size)
            .map(|rows| {
                let longest = rows.iter().map(|&row| pattern.row(row as usize).len()).max();
                longest.unwrap_or(0).next_multiple_of(options.threads_per_row)
            })
            .collect();
        Ok(Self { row_perm, widths })
    }

    fn size(
        &self,
        pattern: CsrPatternRef<'_>,
        options: &SellPOptions,
    ) -> Result<StorageSize, FormatError> {
        let widths: u128 = self.widths.iter().map(|&width| width as u128).sum();
        let slots = widths * options.slice_size as u128;
        let rest = 4 * (self.widths.len() + 1 + self.row_perm.len());
        let stored_len = check_fill(
            SellPPattern::NAME,
            slots,
            rest as u128 + 4 * slots,
            pattern.nnz(),
            options.max_fill,
        )?;
        Ok(StorageSize { stored_len, index_bytes: rest + 4 * stored_len })
    }
}

impl FromCsr for SellPPattern {
    type Options = SellPOptions;

    fn size_from_csr(
        pattern: CsrPatternRef<'_>,
        options: &SellPOptions,
    ) -> Result<StorageSize, FormatError> {
        Slices::new(pattern, options)?.size(pattern, options)
    }

    fn from_csr(
        pattern: CsrPatternRef<'_>,
        options: &SellPOptions,
    ) -> Result<(Self, SlotMap), FormatError> {
        let slices = Slices::new(pattern, options)?;
        let stored_len = slices.size(pattern, options)?.stored_len;
        let slice_size = options.slice_size;
        let mut slice_ptr = Vec::with_capacity(slices.widths.len() + 1);
        let mut col_idx = vec![PADDING; stored_len];
        let mut slots = vec![0; pattern.nnz()];
        let mut start = 0;
        slice_ptr.push(0);
        for (rows, width) in slices.row_perm.chunks(slice_size).zip(&slices.widths) {
            for (i, &row) in rows.iter().enumerate() {
                let places = (start + i..).step_by(slice_size);
                for (k, slot) in pattern.row(row as usize).zip(places) {
                    col_idx[slot] = pattern.col_idx()[k];
                    slots[k] = slot as u32;
                }
            }
            start += width * slice_size;
            slice_ptr.push(start as i32);
        }
        let sellp = Self::new_unvalidated(
            pattern.ncols(),
            (slice_size, options.threads_per_row),
            pattern.nnz(),
            slice_ptr,
            slices.row_perm,
            col_idx,
        );
        Ok((sellp, SlotMap::Slots(slots)))
    }
}

impl ToCsr for SellPPattern {
    fn to_csr(&self, _: impl Fn(usize) -> bool) -> (CsrPattern, SlotMap) {
        let slice_size = self.slice_size();
        let mut place_of = vec![0; self.nrows()];
        for (place, &row) in self.row_perm().iter().enumerate() {
            place_of[row as usize] = place;
        }
        let mut row_ptr = Vec::with_capacity(self.nrows() + 1);
        let mut col_idx = Vec::with_capacity(self.nnz());
        let mut slots = Vec::with_capacity(self.nnz());
        row_ptr.push(0);
        for place in place_of {
            let (slice, i) = (place / slice_size, place % slice_size);
            let end = self.slice_ptr()[slice + 1] as usize;
            let start = self.slice_ptr()[slice] as usize + i;
            for slot in (start..end).step_by(slice_size) {
                let col = self.col_idx()[slot];
                if col == PADDING {
                    break;
                }
                col_idx.push(col);
                slots.push(slot as u32);
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
    use crate::{Csr, SellP};

    /// [1 0 0; 2 3 4; 0 5 0]
    fn example() -> Csr<f64> {
        Csr::try_new(3, 3, vec![0, 1, 4, 5], vec![0, 0, 1, 2, 1], vec![1.0, 2.0, 3.0, 4.0, 5.0])
            .unwrap()
    }

    fn options(sort_window: Option<usize>) -> SellPOptions {
        SellPOptions { slice_size: 2, threads_per_row: 2, sort_window, ..SellPOptions::default() }
    }

    #[test]
    fn slices_are_as_wide_as_their_longest_row_rounded_up() {
        let sellp = SellP::from_csr(&example(), &options(None)).unwrap();

        assert_eq!(sellp.pattern().slice_ptr(), [0, 8, 12]);
        assert_eq!(sellp.pattern().row_perm(), [0, 1, 2]);
        assert_eq!(sellp.pattern().col_idx(), [0, 0, -1, 1, -1, 2, -1, -1, 1, -1, -1, -1]);
        assert_eq!(sellp.values()[..6], [1.0, 2.0, 0.0, 3.0, 0.0, 4.0]);
        assert_eq!(sellp.to_csr(), example());
    }

    #[test]
    fn sorting_puts_long_rows_first_within_the_window() {
        let sellp = SellP::from_csr(&example(), &options(Some(3))).unwrap();

        assert_eq!(sellp.pattern().row_perm(), [1, 0, 2]);
        assert_eq!(sellp.to_csr(), example());
    }

    #[test]
    fn a_slice_size_of_zero_is_refused() {
        let options = SellPOptions { slice_size: 0, ..SellPOptions::default() };

        let error = SellP::from_csr(&example(), &options).unwrap_err();

        assert_eq!(error.to_string(), "slice_size is 0, expected a positive 32-bit number");
    }
}
