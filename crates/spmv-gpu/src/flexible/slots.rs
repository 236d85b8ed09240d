//! Where the entries of a CSR matrix stand in each storage.

use sparsebatch_formats::CsrPatternRef;

use super::kernel::Storage;
use sparsebatch_cuda::GpuError;

/// The column index of a padding slot: all ones, even when truncated to 16 bits.
pub(super) const PADDING: u32 = u32::MAX;

/// Returns the slots per row of an ELL matrix (0 for other storages) and the total number of slots.
///
/// # Errors
/// [`GpuError::InvalidArgument`] when the slots do not fit `i32`.
pub(super) fn measure(
    storage: Storage,
    pattern: CsrPatternRef<'_>,
) -> Result<(u32, u32), GpuError> {
    let len = |row| pattern.row(row).len();
    let (width, stored) = match storage {
        Storage::Csr | Storage::Coo => (0, pattern.nnz()),
        Storage::Ell => {
            let width = (0..pattern.nrows()).map(len).max().unwrap_or(0);
            (width, width.saturating_mul(pattern.nrows()))
        }
        Storage::SellP { threads_per_row } => {
            let slices = slice_widths(pattern.row_ptr(), threads_per_row as usize);
            (0, slices.map(|width| width * (32 / threads_per_row as usize)).sum())
        }
    };
    match i32::try_from(stored) {
        Ok(stored) => Ok((width as u32, stored as u32)),
        Err(_) => Err(GpuError::InvalidArgument {
            name: "slots of a system",
            expected: format!("at most {}: choose a storage with less padding", i32::MAX),
            found: stored.to_string(),
        }),
    }
}

/// The width of each slice of a SELL-P matrix with 32 threads per slice.
fn slice_widths(row_ptr: &[i32], threads_per_row: usize) -> impl Iterator<Item = usize> {
    let slice_size = 32 / threads_per_row;
    let nrows = row_ptr.len() - 1;
    (0..nrows.div_ceil(slice_size)).map(move |slice| {
        let rows = slice * slice_size..((slice + 1) * slice_size).min(nrows);
        let longest = rows.map(|row| (row_ptr[row + 1] - row_ptr[row]) as usize).max();
        longest.unwrap_or(0).next_multiple_of(threads_per_row)
    })
}

/// Appends the slice pointers of a SELL-P matrix.
pub(super) fn push_slice_ptr(row_ptr: &[i32], threads_per_row: u32, out: &mut Vec<u32>) {
    let mut end = 0;
    out.push(0);
    for width in slice_widths(row_ptr, threads_per_row as usize) {
        end += width as u32 * (32 / threads_per_row);
        out.push(end);
    }
}

/// Appends one element per entry of a matrix: `entries` are in CSR order, `out` is in the order of
/// the slots. Padding slots get `fill`.
pub(super) fn push_slots<U: Copy>(
    storage: Storage,
    row_ptr: &[i32],
    entries: &[U],
    fill: U,
    out: &mut Vec<U>,
) {
    let begin = out.len();
    let nrows = row_ptr.len() - 1;
    let row = |row: usize| &entries[row_ptr[row] as usize..row_ptr[row + 1] as usize];
    match storage {
        Storage::Csr | Storage::Coo => out.extend_from_slice(entries),
        Storage::Ell => {
            let width = (0..nrows).map(|r| row(r).len()).max().unwrap_or(0);
            out.resize(begin + width * nrows, fill);
            for r in 0..nrows {
                for (slot, &entry) in row(r).iter().enumerate() {
                    out[begin + slot * nrows + r] = entry;
                }
            }
        }
        Storage::SellP { threads_per_row } => {
            let slice_size = 32 / threads_per_row as usize;
            for (slice, width) in slice_widths(row_ptr, threads_per_row as usize).enumerate() {
                let begin = out.len();
                out.resize(begin + width * slice_size, fill);
                for i in 0..slice_size.min(nrows - slice * slice_size) {
                    for (slot, &entry) in row(slice * slice_size + i).iter().enumerate() {
                        out[begin + slot * slice_size + i] = entry;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::CsrPattern;

    use super::*;

    fn placed(storage: Storage, row_ptr: &[i32], entries: &[char]) -> String {
        let mut out = vec!['|'];
        push_slots(storage, row_ptr, entries, '.', &mut out);
        out.into_iter().collect()
    }

    #[test]
    fn ell_slots_are_column_by_column() {
        assert_eq!(placed(Storage::Ell, &[0, 2, 2, 5], &['a', 'b', 'c', 'd', 'e']), "|a.cb.d..e");
        assert_eq!(placed(Storage::Ell, &[0], &[]), "|");
        assert_eq!(placed(Storage::Ell, &[0, 0], &[]), "|");
    }

    #[test]
    fn sell_p_slices_have_32_slots_or_multiples() {
        let storage = Storage::SellP { threads_per_row: 8 };

        // Slices of 4 rows; the second one has 1 row of 1 entry.
        let found = placed(storage, &[0, 2, 2, 3, 3, 4], &['a', 'b', 'c', 'd']);

        assert_eq!(found, format!("|a.c.b...{}d{}", ".".repeat(24), ".".repeat(31)));
        let mut slices = vec![9];
        push_slice_ptr(&[0, 2, 2, 3, 3, 4], 8, &mut slices);
        assert_eq!(slices, [9, 0, 32, 64]);
    }

    #[test]
    fn sizes_count_padding() {
        let pattern = CsrPattern::try_new(3, 4, vec![0, 3, 3, 4], vec![0, 1, 2, 3]).unwrap();
        let measured =
            |storage| measure(storage, sparsebatch_formats::Pattern::view(&pattern)).unwrap();

        assert_eq!(measured(Storage::Csr), (0, 4));
        assert_eq!(measured(Storage::Ell), (3, 9));
        assert_eq!(measured(Storage::SellP { threads_per_row: 1 }), (0, 96));
        assert_eq!(measured(Storage::SellP { threads_per_row: 4 }), (0, 32));
    }
}
