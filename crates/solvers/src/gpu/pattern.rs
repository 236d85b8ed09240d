//! A pattern in the order in which the threads of a group read it.

use sparsebatch_formats::CsrPatternRef;

use super::banks::{self, Entry};
use super::shape::{Shape, ValuePlace};

/// The pattern in slices of as many rows as a group has threads, each as wide as its longest row
/// (or as the kernel's registers): place `k` of row `j * threads + lane` is at
/// `starts[j] + k * threads + lane`.
#[derive(Default)]
pub(super) struct Slices {
    /// Where each slice begins; the last one is the length.
    pub(super) starts: Vec<u32>,
    /// The first entry of each row in CSR, also of the rows that the system does not have.
    pub(super) firsts: Vec<u32>,
    /// Columns; `threads * rows` where there is no entry.
    pub(super) columns: Vec<u16>,
    /// Which entry of its row in CSR is where; empty where values stay in device memory, which are
    /// read in the order of CSR.
    pub(super) order: Vec<u16>,
}

impl Slices {
    /// Cuts a pattern that fits the shape: at most `threads * rows` rows, and no more than 65,535.
    /// Entries of a row are brought into an order in which lanes read the vector from different
    /// banks of shared memory.
    pub(super) fn new(pattern: CsrPatternRef<'_>, shape: &Shape, value_bytes: usize) -> Self {
        let threads = shape.threads as usize;
        let nplaces = threads * shape.rows as usize;
        let none = nplaces as u16;
        let in_order = shape.place == ValuePlace::Global;
        let entries = |row: usize| if row < pattern.nrows() { pattern.row(row) } else { 0..0 };
        let mut slices = Self { starts: vec![0], ..Self::default() };
        for first in (0..nplaces).step_by(threads) {
            let rows: Vec<Vec<Entry>> = (first..first + threads)
                .map(|row| {
                    let columns = entries(row).map(|k| pattern.col_idx()[k] as u16);
                    columns.zip(0..).map(|(column, number)| Entry { column, number }).collect()
                })
                .collect();
            let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
            let width = if shape.width > 0 { shape.width as usize } else { longest };
            slices.firsts.extend((first..first + threads).map(|row| entries(row).start as u32));
            let placed = if in_order {
                rows.iter().map(|row| row.iter().copied().map(Some).collect()).collect()
            } else {
                banks::spread(&rows, width, value_bytes)
            };
            let at = |row: &Vec<Option<Entry>>, k: usize| row.get(k).copied().flatten();
            for k in 0..width {
                let entries = || placed.iter().map(|row| at(row, k));
                slices.columns.extend(entries().map(|entry| entry.map_or(none, |e| e.column)));
                if !in_order {
                    slices.order.extend(entries().map(|entry| entry.map_or(0, |e| e.number)));
                }
            }
            slices.starts.push(slices.columns.len() as u32);
        }
        slices
    }

    /// Places, padding included.
    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }
}

/// The length of the longest row, and the places that slices of `threads` rows take.
pub(super) fn widths(pattern: CsrPatternRef<'_>, threads: usize) -> (usize, usize) {
    let rows: Vec<usize> = (0..pattern.nrows()).map(|row| pattern.row(row).len()).collect();
    let places = rows.chunks(threads).map(|slice| slice.iter().max().unwrap_or(&0) * threads).sum();
    (rows.into_iter().max().unwrap_or(0), places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    fn shape(width: u32, place: ValuePlace) -> Shape {
        Shape { threads: 2, rows: 2, width, place, vectors: 1 }
    }

    #[test]
    fn slices_hold_rows_side_by_side() {
        // Rows {0, 2}, {}, {1}.
        let pattern = CsrPattern::try_new(3, 3, vec![0, 2, 2, 3], vec![0, 2, 1]).unwrap();
        let slices = |width, place| Slices::new(pattern.view(), &shape(width, place), 8);

        let narrow = slices(0, ValuePlace::Shared);
        let wide = slices(2, ValuePlace::Registers);
        let global = slices(0, ValuePlace::Global);

        assert_eq!(narrow.starts, [0, 4, 6]);
        assert_eq!(narrow.columns, [0, 4, 2, 4, 1, 4]);
        assert_eq!(narrow.order, [0, 0, 1, 0, 0, 0]);
        assert_eq!(narrow.firsts, [0, 2, 2, 0]);
        assert_eq!(wide.columns, [0, 4, 2, 4, 1, 4, 4, 4]);
        assert_eq!((global.columns, global.order), (narrow.columns, vec![]));
        assert_eq!(widths(pattern.view(), 2), (2, 6));
    }
}
