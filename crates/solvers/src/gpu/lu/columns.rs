//! The columns of substitutions and of a residual, in chunks of a warp: see `lu_kept.cu`.

use sparsebatch_cpu_ref::symbolic::{FactorPattern, NO_SOURCE};

/// Entries of a chunk, at most.
const CHUNK: usize = 32;

/// The tables of forward and backward substitution and of the residual.
#[derive(Debug, Default)]
pub(super) struct ColumnTables {
    /// Places of what is kept, in the order of its use: factors, from `first_of_a` on A.
    pub(super) order: Vec<u16>,
    pub(super) first_of_a: u32,
    /// The first pivot.
    pub(super) pivots: u32,
    /// Chunks up to the last one of L, and of U.
    pub(super) end_of_l: u32,
    pub(super) end_of_u: u32,
    pub(super) chunks: u32,
    /// First values, columns and lengths of chunks, and targets, as the kernel reads them.
    pub(super) words: Vec<u32>,
}

/// Entries of each column: places and rows.
type Columns = Vec<Vec<(u32, u32)>>;

#[derive(Default)]
struct Chunks {
    order: Vec<u16>,
    targets: Vec<u32>,
    firsts: Vec<u32>,
    heads: Vec<u32>,
}

impl Chunks {
    /// Appends some columns.
    fn append(&mut self, columns: impl Iterator<Item = (usize, Vec<(u32, u32)>)>) -> u32 {
        for (column, entries) in columns {
            for chunk in entries.chunks(CHUNK) {
                self.firsts.push(self.order.len() as u32);
                self.heads.push((column | chunk.len() << 16) as u32);
                self.order.extend(chunk.iter().map(|&(place, _)| place as u16));
                self.targets.extend(chunk.iter().map(|&(_, row)| row));
            }
        }
        self.heads.len() as u32
    }
}

impl ColumnTables {
    /// Of a filled pattern.
    pub(super) fn new(pattern: &FactorPattern) -> Self {
        let n = pattern.nrows();
        let (mut l, mut u, mut a): (Columns, Columns, Columns) =
            (vec![Vec::new(); n], vec![Vec::new(); n], vec![Vec::new(); n]);
        for (row, &own) in pattern.perm().iter().enumerate() {
            for k in pattern.lower(row).start..pattern.upper(row).end {
                let column = pattern.cols()[k] as usize;
                let entry = (k as u32, row as u32);
                match column.cmp(&row) {
                    std::cmp::Ordering::Less => l[column].push(entry),
                    std::cmp::Ordering::Equal => {}
                    std::cmp::Ordering::Greater => u[column].push(entry),
                }
                if pattern.source()[k] != NO_SOURCE {
                    a[column].push((k as u32, own));
                }
            }
        }
        let mut all = Chunks::default();
        let end_of_l = all.append(l.into_iter().enumerate());
        let pivots = all.order.len() as u32;
        all.order.extend(pattern.diag().iter().map(|&place| place as u16));
        all.targets.resize(all.order.len(), 0);
        let end_of_u = all.append(u.into_iter().enumerate().rev());
        let first_of_a = all.order.len() as u32;
        let chunks = all.append(a.into_iter().enumerate());

        let mut words = all.firsts;
        words.extend(all.heads);
        words.extend(
            all.targets.chunks(2).map(|two| two[0] | two.get(1).map_or(0, |&other| other << 16)),
        );
        words.resize(words.len().next_multiple_of(4), 0);
        Self { order: all.order, first_of_a, pivots, end_of_l, end_of_u, chunks, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    #[test]
    fn columns_follow_each_other_forward_and_backward() {
        // x 0 x
        // 0 x 0
        // x 0 x
        let a = CsrPattern::try_new(3, 3, vec![0, 2, 3, 5], vec![0, 2, 1, 0, 2]).unwrap();
        let pattern = FactorPattern::lu(a.view(), None, usize::MAX).unwrap();

        let tables = ColumnTables::new(&pattern);

        // L: (2, 0); the pivots; U: (0, 2); A by columns.
        assert_eq!(tables.order, [3, 0, 2, 4, 1, 0, 3, 2, 1, 4]);
        assert_eq!((tables.pivots, tables.first_of_a), (1, 5));
        assert_eq!((tables.end_of_l, tables.end_of_u, tables.chunks), (1, 2, 5));
        assert_eq!(tables.words[..5], [0, 4, 5, 7, 8]);
        let heads = [1 << 16, 2 | 1 << 16, 2 << 16, 1 | 1 << 16, 2 | 2 << 16];
        assert_eq!(tables.words[5..10], heads);
        assert_eq!(tables.words[10..15], [2, 0, 0, 2 | 1 << 16, 2 << 16]);
    }

    #[test]
    fn long_columns_are_cut() {
        let n = 50;
        let row_ptr = (0..=n).map(|row| row * n).collect();
        let dense = CsrPattern::try_new(
            n as usize,
            n as usize,
            row_ptr,
            (0..n * n).map(|k| k % n).collect(),
        );
        let pattern = FactorPattern::lu(dense.unwrap().view(), None, usize::MAX).unwrap();

        let tables = ColumnTables::new(&pattern);

        // The first 17 columns of L have more than 32 rows below, the last one none; A has two chunks each.
        assert_eq!(tables.end_of_l, 49 + 17);
        assert_eq!((tables.end_of_u, tables.chunks), (2 * (49 + 17), 2 * (49 + 17) + 100));
        assert_eq!(tables.order.len(), 2 * 2500);
    }
}
