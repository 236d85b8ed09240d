//! A pattern in the order in which a group of threads reads it.

use sparsebatch_formats::CsrPatternRef;

use super::banks::{self, Entry};
use super::shape::{GroupShape, ValuePlace};

/// The pattern in slices. A slice has one slot per thread of the group and is as wide as its
/// longest row (or as the kernel's registers). Place `k` of slot `j * threads + lane` is at
/// `starts[j] + k * threads + lane`. Each slot holds one row; see [`GroupShape::row_in`].
#[derive(Default)]
pub(super) struct Slices {
    /// Offset of each slice; the last element is the total length.
    pub(super) starts: Vec<u32>,
    /// Index in CSR of the first entry of each slot's row, 0 for slots without a row. Where threads
    /// share rows, the upper 16 bits hold the number of entries.
    pub(super) firsts: Vec<u32>,
    /// Slot of the column of each place; `threads * rows` for padding.
    pub(super) columns: Vec<u16>,
    /// For values in shared memory, the number within its CSR row of each place's entry. For values
    /// in registers, the offset in shared memory where the value waits, or [`NO_ENTRY`]. Empty for
    /// values in device memory, which are read in CSR order.
    pub(super) order: Vec<u16>,
}

impl Slices {
    /// Slices a pattern that fits the shape: at most `threads * rows` rows, and no more than
    /// 65,535. Where columns are in registers, the first place of a row is kept for the diagonal
    /// (padding if it is absent), and with `near` the next two for the columns before and behind
    /// it. The other entries are ordered so that lanes read the vector from different banks of
    /// shared memory.
    pub(super) fn new(pattern: CsrPatternRef<'_>, shape: &GroupShape, value_bytes: usize) -> Self {
        let threads = shape.threads as usize;
        let nslots = threads * shape.rows as usize;
        if shape.parts > 1 {
            return Self::shared(pattern, shape, nslots);
        }
        let none = nslots as u16;
        let mut slices = Self { starts: vec![0], ..Self::default() };
        for first in (0..nslots).step_by(threads) {
            let rows: Vec<Row> =
                (first..first + threads).map(|slot| Row::new(pattern, shape, slot)).collect();
            let longest = rows.iter().map(Row::len).max().unwrap_or(0);
            let width = if shape.width > 0 { shape.width as usize } else { longest };
            slices.firsts.extend(rows.iter().map(|row| row.first as u32));
            let far: Vec<Vec<Entry>> = rows.iter().map(|row| row.far.clone()).collect();
            let far: Vec<Vec<Option<Entry>>> = if shape.place == ValuePlace::Global {
                far.iter().map(|row| row.iter().copied().map(Some).collect()).collect()
            } else {
                banks::spread(&far, width - shape.own_places(), value_bytes)
            };
            for k in 0..width {
                let at = |(row, far): (&Row, &Vec<Option<Entry>>)| match row.own.get(k) {
                    Some(&own) => own,
                    None => far.get(k - row.own.len()).copied().flatten(),
                };
                let entries = || rows.iter().zip(&far).map(at);
                slices.columns.extend(entries().map(|entry| entry.map_or(none, |e| e.column)));
                match shape.place {
                    ValuePlace::Global => {}
                    ValuePlace::Shared => {
                        slices.order.extend(entries().map(|entry| entry.map_or(0, |e| e.number)));
                    }
                    ValuePlace::Registers => {
                        slices.order.extend(entries().zip(&rows).map(|(entry, row)| {
                            let number = |e: Entry| row.first + usize::from(e.number);
                            entry.map_or(NO_ENTRY, |e| waiting(number(e)) as u16)
                        }));
                    }
                }
            }
            slices.starts.push(slices.columns.len() as u32);
        }
        slices
    }

    /// The pattern in CSR order, for threads that share rows.
    fn shared(pattern: CsrPatternRef<'_>, shape: &GroupShape, nslots: usize) -> Self {
        let nrows = pattern.nrows();
        let slot_of = |&column: &i32| shape.slot_of(column as usize, nrows) as u16;
        let first = |slot: usize| {
            let row = shape.row_in(slot, nrows);
            let entries = if row < nrows { pattern.row(row) } else { 0..0 };
            (entries.start | entries.len() << 16) as u32
        };
        Self {
            starts: vec![0; shape.rows as usize + 1],
            firsts: (0..nslots).map(first).collect(),
            columns: pattern.col_idx().iter().map(slot_of).collect(),
            order: Vec::new(),
        }
    }

    /// Number of places, padding included.
    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }
}

/// The entries of a row; columns are given as slots.
struct Row {
    /// Index in CSR of its first entry.
    first: usize,
    /// The places kept for the diagonal and the neighbours; `None` where the entry is absent.
    own: Vec<Option<Entry>>,
    far: Vec<Entry>,
}

impl Row {
    fn new(pattern: CsrPatternRef<'_>, shape: &GroupShape, slot: usize) -> Self {
        let nrows = pattern.nrows();
        let row = shape.row_in(slot, nrows);
        let entries = if row < nrows { pattern.row(row) } else { 0..0 };
        let mut this =
            Self { first: entries.start, own: vec![None; shape.own_places()], far: vec![] };
        for (k, number) in entries.zip(0..) {
            let column = pattern.col_idx()[k] as usize;
            let entry = Entry { column: shape.slot_of(column, nrows) as u16, number };
            match own_place(row, column).and_then(|place| this.own.get_mut(place)) {
                Some(own) => *own = Some(entry),
                None => this.far.push(entry),
            }
        }
        this
    }

    fn len(&self) -> usize {
        self.own.len() + self.far.len()
    }
}

/// The kept place of a column: 0 for the diagonal, 1 for the row before, 2 for the row behind.
fn own_place(row: usize, column: usize) -> Option<usize> {
    if column == row {
        Some(0)
    } else if column + 1 == row {
        Some(1)
    } else if column == row + 1 {
        Some(2)
    } else {
        None
    }
}

/// Places that the longest row needs when its first `own` places are kept for the diagonal, the row
/// before and the row behind.
pub(super) fn places_a_row(pattern: CsrPatternRef<'_>, own: usize) -> usize {
    let of_row = |row: usize| {
        let is_far = |&k: &usize| {
            own_place(row, pattern.col_idx()[k] as usize).is_none_or(|place| place >= own)
        };
        own + pattern.row(row).filter(is_far).count()
    };
    (0..pattern.nrows()).map(of_row).max().unwrap_or(own)
}

/// The share of rows that store both neighbours, the columns before and behind the diagonal.
pub(super) fn share_of_neighbours(pattern: CsrPatternRef<'_>) -> f64 {
    let nrows = pattern.nrows();
    let both = |row: &usize| {
        let columns = || pattern.row(*row).map(|k| pattern.col_idx()[k] as usize);
        columns().any(|column| column + 1 == *row) && columns().any(|column| column == *row + 1)
    };
    (0..nrows).filter(both).count() as f64 / nrows.max(1) as f64
}

/// Whether some column has no entry in any row.
pub(super) fn has_empty_column(pattern: CsrPatternRef<'_>) -> bool {
    let mut stored = vec![false; pattern.ncols()];
    pattern.col_idx().iter().for_each(|&column| stored[column as usize] = true);
    stored.contains(&false)
}

/// Offset in shared memory of the 0 that stands for absent entries.
pub(super) const NO_ENTRY: u16 = 0;

/// Offset in shared memory of the waiting value of entry `number`, behind the 0. For the number of
/// entries, the length of that array.
pub(super) fn waiting(number: usize) -> usize {
    1 + skewed(number)
}

/// A skewed offset: lanes that read elements 8, 12 or 24 apart hit different banks.
pub(super) fn skewed(number: usize) -> usize {
    number + number / 16
}

/// The length of the longest row, and the number of places in slices of `threads` rows.
pub(super) fn widths(pattern: CsrPatternRef<'_>, threads: usize) -> (usize, usize) {
    let rows: Vec<usize> = (0..pattern.nrows()).map(|row| pattern.row(row).len()).collect();
    let places = rows.chunks(threads).map(|slice| slice.iter().max().unwrap_or(&0) * threads).sum();
    (rows.into_iter().max().unwrap_or(0), places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    fn shape(width: u32, place: ValuePlace) -> GroupShape {
        let (near, mixed) = (false, false);
        GroupShape {
            threads: 2,
            parts: 1,
            rows: 2,
            width,
            place,
            near,
            vectors: 1,
            mixed,
            cluster: 1,
        }
    }

    #[test]
    fn slices_hold_rows_side_by_side() {
        // Rows {0, 2}, {}, {1}.
        let pattern = CsrPattern::try_new(3, 3, vec![0, 2, 2, 3], vec![0, 2, 1]).unwrap();
        let slices = |width, place| Slices::new(pattern.view(), &shape(width, place), 8);

        let narrow = slices(0, ValuePlace::Shared);
        let wide = slices(3, ValuePlace::Registers);
        let global = slices(0, ValuePlace::Global);

        assert_eq!(narrow.starts, [0, 4, 6]);
        assert_eq!(narrow.columns, [0, 4, 2, 4, 1, 4]);
        assert_eq!(narrow.order, [0, 0, 1, 0, 0, 0]);
        assert_eq!(narrow.firsts, [0, 2, 2, 0]);
        // The diagonal or its padding, then the other entries.
        assert_eq!(wide.columns, [0, 4, 2, 4, 4, 4, 4, 4, 1, 4, 4, 4]);
        assert_eq!(&wide.order[..6], [1, NO_ENTRY, 2, NO_ENTRY, NO_ENTRY, NO_ENTRY]);
        assert_eq!(wide.order[8], 3);
        assert_eq!((global.columns, global.order), (narrow.columns, vec![]));
        assert_eq!(widths(pattern.view(), 2), (2, 6));
        assert_eq!((places_a_row(pattern.view(), 1), places_a_row(pattern.view(), 3)), (2, 4));
        assert!(!has_empty_column(pattern.view()));
        let hollow = CsrPattern::try_new(2, 2, vec![0, 1, 2], vec![0, 0]).unwrap();
        assert!(has_empty_column(hollow.view()));
    }

    #[test]
    fn near_rows_belong_to_one_thread() {
        // A tridiagonal matrix of four rows.
        let columns = vec![0, 1, 0, 1, 2, 1, 2, 3, 2, 3];
        let pattern = CsrPattern::try_new(4, 4, vec![0, 2, 5, 8, 10], columns).unwrap();
        let near = GroupShape { near: true, ..shape(3, ValuePlace::Registers) };

        let slices = Slices::new(pattern.view(), &near, 8);

        // Slots hold rows 0, 2, 1, 3; places are the diagonal, the row before, the row behind.
        assert_eq!(slices.firsts, [0, 5, 2, 8]);
        assert_eq!(slices.columns, [0, 1, 4, 2, 2, 3, 2, 3, 0, 1, 1, 4]);
        assert_eq!(slices.order, [1, 7, NO_ENTRY, 6, 2, 8, 4, 10, 3, 9, 5, NO_ENTRY]);
        assert_eq!(share_of_neighbours(pattern.view()), 0.5);
    }

    #[test]
    fn blocks_of_a_cluster_have_rows_side_by_side() {
        // Two blocks of two threads, three rows per thread; seven rows need only two of the three
        // slices.
        let cluster =
            GroupShape { threads: 4, rows: 3, cluster: 2, ..shape(0, ValuePlace::Shared) };

        let rows: Vec<usize> = (0..12).map(|slot| cluster.row_in(slot, 7)).collect();

        assert_eq!(rows, [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 10, 11]);
        assert!((0..7).all(|row| rows[cluster.slot_of(row, 7)] == row));
        let columns = (0..7).collect();
        let pattern = CsrPattern::try_new(7, 7, (0..8).collect(), columns).unwrap();
        let slices = Slices::new(pattern.view(), &cluster, 8);
        assert_eq!(slices.starts, [0, 4, 8, 8]);
        assert_eq!(slices.columns, [0, 1, 2, 3, 4, 5, 6, 12]);
        assert_eq!(slices.firsts[..8], [0, 1, 4, 5, 2, 3, 6, 0]);
    }
}
