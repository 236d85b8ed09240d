//! A pattern in the order in which the threads of a group read it.

use sparsebatch_formats::CsrPatternRef;

use super::shape::Shape;

/// The pattern in slices of as many rows as a group has threads, each as wide as its longest row
/// (or as the kernel's registers): entry `k` of row `j * threads + lane` is at
/// `starts[j] + k * threads + lane`.
pub(super) struct Slices {
    /// Where each slice begins; the last one is the length.
    pub(super) starts: Vec<u32>,
    /// The first entry of each row in CSR, also of the rows that the system does not have.
    pub(super) firsts: Vec<u32>,
    /// Columns; `threads * rows` where there is no entry.
    pub(super) columns: Vec<u16>,
}

impl Slices {
    /// Cuts a pattern that fits the shape: at most `threads * rows` rows, and no more than 65,535.
    pub(super) fn new(pattern: CsrPatternRef<'_>, shape: &Shape) -> Self {
        let threads = shape.threads as usize;
        let places = threads * shape.rows as usize;
        let none = places as u16;
        let entries = |row: usize| if row < pattern.nrows() { pattern.row(row) } else { 0..0 };
        let mut slices =
            Self { starts: vec![0], firsts: Vec::with_capacity(places), columns: Vec::new() };
        for first in (0..places).step_by(threads) {
            let rows = first..first + threads;
            let longest = rows.clone().map(|row| entries(row).len()).max().unwrap_or(0);
            let width = if shape.width > 0 { shape.width as usize } else { longest };
            slices.firsts.extend(rows.clone().map(|row| entries(row).start as u32));
            for k in 0..width {
                slices.columns.extend(rows.clone().map(|row| {
                    let entry = entries(row).nth(k);
                    entry.map_or(none, |entry| pattern.col_idx()[entry] as u16)
                }));
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
    use super::super::shape::ValuePlace;
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    fn shape(width: u32) -> Shape {
        Shape { threads: 2, rows: 2, width, place: ValuePlace::Shared }
    }

    #[test]
    fn slices_hold_rows_side_by_side() {
        // Rows {0, 2}, {}, {1}.
        let pattern = CsrPattern::try_new(3, 3, vec![0, 2, 2, 3], vec![0, 2, 1]).unwrap();

        let narrow = Slices::new(pattern.view(), &shape(0));
        let wide = Slices::new(pattern.view(), &shape(2));

        assert_eq!(narrow.starts, [0, 4, 6]);
        assert_eq!(narrow.columns, [0, 4, 2, 4, 1, 4]);
        assert_eq!(narrow.firsts, [0, 2, 2, 0]);
        assert_eq!(wide.columns, [0, 4, 2, 4, 1, 4, 4, 4]);
        assert_eq!(widths(pattern.view(), 2), (2, 6));
    }
}
