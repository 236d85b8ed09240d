//! The columns of substitutions and the products of a residual, in chunks of a warp: see `lu_kept.cu`.

use sparsebatch_cpu_ref::symbolic::{FactorPattern, NO_SOURCE};

/// Entries of a chunk, at most.
const CHUNK: usize = 32;

/// Chunks that are asked for ahead: their numbers are multiples of it, and as many may be read behind the last.
const AHEAD: usize = 8;

/// Values behind the last item's that may be read: of empty chunks, and of as many asked for ahead.
pub(super) const BEHIND: usize = 2 * AHEAD * CHUNK;

/// Products of a sum of the residual, at most.
const PRODUCTS: usize = 16;

/// Of a target or a sum: the lane writes nothing.
const IDLE_LANE: u32 = 0x8000;

/// The tables of forward and backward substitution and of the residual.
#[derive(Debug)]
pub(super) struct ColumnTables {
    /// Places of what is kept, in the order of its use: factors, from `first_of_a` on A.
    pub(super) order: Vec<u16>,
    pub(super) first_of_a: u32,
    /// The first pivot.
    pub(super) pivots: u32,
    /// Chunks up to the last one of L, and of U.
    pub(super) end_of_l: u32,
    pub(super) end_of_u: u32,
    /// Chunks of A.
    pub(super) products: u32,
    /// Sums of the residual, one for each row at least.
    pub(super) sums: u32,
    /// What the kernel copies to shared memory.
    pub(super) words: Vec<u32>,
}

/// Entries of each column: places and rows.
type Columns = Vec<Vec<(u32, u32)>>;

/// Chunks of columns.
#[derive(Default)]
struct Chunks {
    order: Vec<u16>,
    words: Vec<u32>,
    targets: Vec<u32>,
}

impl Chunks {
    fn len(&self) -> usize {
        self.words.len() / 2
    }

    fn push(&mut self, column: u32, entries: &[(u32, u32)]) {
        let last = entries.len().saturating_sub(1) as u32;
        self.words.extend([self.order.len() as u32, last | column << 16]);
        self.order.extend(entries.iter().map(|&(place, _)| place as u16));
        let idle = entries.last().map_or(0, |&(_, row)| row) | IDLE_LANE;
        self.targets.extend((0..CHUNK).map(|lane| entries.get(lane).map_or(idle, |&(_, row)| row)));
    }

    /// Appends some columns, and empty chunks up to a multiple of [`AHEAD`].
    fn append(&mut self, columns: impl Iterator<Item = (usize, Vec<(u32, u32)>)>) {
        for (column, entries) in columns {
            for chunk in entries.chunks(CHUNK) {
                self.push(column as u32, chunk);
            }
        }
        while !self.len().is_multiple_of(AHEAD) {
            self.push(0, &[]);
        }
    }
}

/// Products of the residual: chunks of entries that belong to different sums, most of them neighbours.
struct Products {
    order: Vec<u16>,
    /// Columns and sums.
    words: Vec<u32>,
    /// Where the sums of each row begin, and the sums row by row.
    sums_of: Vec<u32>,
    sums: usize,
}

impl Products {
    /// Of the rows of A, each with the places and columns of its entries.
    fn new(rows: &[Vec<(u32, u32)>]) -> Self {
        let pieces = |(row, entries): (usize, &'_ Vec<(u32, u32)>)| {
            let parts = 0..entries.len().div_ceil(PRODUCTS).max(1);
            parts.map(move |part| (row, part * PRODUCTS)).collect::<Vec<_>>()
        };
        let mut sums: Vec<(usize, usize)> = rows.iter().enumerate().flat_map(pieces).collect();
        let entry = |&(row, first): &(usize, usize), number: usize| {
            rows[row].get(first + number).filter(|_| number < PRODUCTS).copied()
        };
        let length = |&(row, first): &(usize, usize)| (rows[row].len() - first).min(PRODUCTS);
        sums.sort_by_key(|sum| (std::cmp::Reverse(length(sum)), *sum));
        let mut products = Self {
            order: Vec::new(),
            words: Vec::new(),
            sums_of: sums_of(rows.len(), &sums),
            sums: sums.len(),
        };
        for number in 0..PRODUCTS {
            for (own, sum) in sums.iter().enumerate() {
                let Some((place, column)) = entry(sum, number) else { break };
                let first = products.words.len() / CHUNK * CHUNK;
                if products.words[first..].iter().any(|&word| word >> 16 == own as u32) {
                    products.fill();
                }
                products.order.push(place as u16);
                products.words.push(column | (own as u32) << 16);
            }
        }
        products.fill();
        products
    }

    /// Fills the last chunk up with what is not written.
    fn fill(&mut self) {
        while !self.words.len().is_multiple_of(CHUNK) {
            let last = self.words.last().copied().unwrap_or(0);
            self.words.push(last | IDLE_LANE << 16);
            self.order.push(self.order.last().copied().unwrap_or(0));
        }
    }

    /// Appends empty chunks up to a multiple of [`AHEAD`], and one more.
    fn append_empty(&mut self) -> u32 {
        let chunks = (self.words.len() / CHUNK).next_multiple_of(AHEAD);
        self.words.resize((chunks + 1) * CHUNK, IDLE_LANE << 16);
        chunks as u32
    }
}

/// Where the sums of each row begin in what follows, and the sums row by row.
fn sums_of(nrows: usize, sums: &[(usize, usize)]) -> Vec<u32> {
    let mut own: Vec<Vec<(usize, u32)>> = vec![Vec::new(); nrows];
    for (number, &(row, first)) in sums.iter().enumerate() {
        own[row].push((first, number as u32));
    }
    let mut all: Vec<u32> = vec![(nrows + 1) as u32];
    for row in &mut own {
        row.sort_unstable();
        all.push(all[all.len() - 1] + row.len() as u32);
    }
    all.extend(own.iter().flatten().map(|&(_, number)| number));
    all
}

impl ColumnTables {
    /// Of a filled pattern.
    pub(super) fn new(pattern: &FactorPattern) -> Self {
        let n = pattern.nrows();
        let (mut l, mut u): (Columns, Columns) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        let mut rows: Columns = vec![Vec::new(); n];
        for (row, &own) in pattern.perm().iter().enumerate() {
            for k in pattern.lower(row) {
                l[pattern.cols()[k] as usize].push((k as u32, row as u32));
            }
            for k in pattern.upper(row) {
                u[pattern.cols()[k] as usize].push((k as u32, row as u32));
            }
            let all = pattern.lower(row).start..pattern.upper(row).end;
            let of_a = all.filter(|&k| pattern.source()[k] != NO_SOURCE);
            rows[own as usize] = of_a.map(|k| (k as u32, pattern.cols()[k])).collect();
        }
        let mut chunks = Chunks::default();
        chunks.append(l.into_iter().enumerate());
        let (end_of_l, pivots) = (chunks.len(), chunks.order.len());
        chunks.order.extend(pattern.diag().iter().map(|&place| place as u16));
        chunks.append(u.into_iter().enumerate().rev());
        let end_of_u = chunks.len();
        let Chunks { mut order, mut words, targets } = chunks;
        words.extend([0; 2 * AHEAD]);
        words.extend(halves(&targets));

        let mut of_a = Products::new(&rows);
        let products = of_a.append_empty();
        // Sectors of memory begin with the first value of A.
        order.resize(order.len().next_multiple_of(8), 0);
        let first_of_a = order.len();
        order.extend(of_a.order);
        words.extend(of_a.words);
        words.extend(halves(&of_a.sums_of));
        words.resize(words.len().next_multiple_of(4), 0);
        Self {
            order,
            first_of_a: first_of_a as u32,
            pivots: pivots as u32,
            end_of_l: end_of_l as u32,
            end_of_u: end_of_u as u32,
            products,
            sums: of_a.sums as u32,
            words,
        }
    }
}

/// Numbers of 16 bits, two a word.
fn halves(numbers: &[u32]) -> impl Iterator<Item = u32> + '_ {
    numbers.chunks(2).map(|two| two[0] | two.get(1).map_or(0, |&other| other << 16))
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

        // L: (2, 0); the pivots; U: (0, 2); A: the first entries of all rows, the second ones.
        assert_eq!(tables.order[..5], [3, 0, 2, 4, 1]);
        assert_eq!((tables.pivots, tables.first_of_a, tables.sums), (1, 8, 3));
        assert_eq!((tables.end_of_l, tables.end_of_u, tables.products), (8, 16, 8));
        assert_eq!(tables.words[..2], [0, 0]);
        assert_eq!(tables.words[16..18], [4, 2 << 16]);
        let targets = 2 * (16 + AHEAD);
        assert_eq!(tables.words[targets], 2 | (2 | IDLE_LANE) << 16);
        assert_eq!(tables.words[targets + 8 * 16], (IDLE_LANE) << 16);
        assert_eq!(tables.order[8..11], [0, 3, 2]);
        let products = targets + 16 * 16;
        // Rows 0 and 2 have two entries each, and are first.
        assert_eq!(tables.words[products..products + 3], [0, 1 << 16, 1 | 2 << 16]);
        assert_eq!(tables.words[products + 3], 1 | (2 | IDLE_LANE) << 16);
        assert_eq!(tables.words[products + 32..products + 34], [2, 2 | 1 << 16]);
        // Sums of rows 0, 1 and 2.
        let sums = products + 9 * 32;
        assert_eq!(tables.words[sums..sums + 4], [4 | 5 << 16, 6 | 7 << 16, 2 << 16, 1]);
    }

    #[test]
    fn long_columns_are_cut_and_long_rows_have_several_sums() {
        let n = 50;
        let row_ptr = (0..=n).map(|row| row * n).collect();
        let col_idx = (0..n * n).map(|k| k % n).collect();
        let dense = CsrPattern::try_new(n as usize, n as usize, row_ptr, col_idx).unwrap();
        let pattern = FactorPattern::lu(dense.view(), None, usize::MAX).unwrap();

        let tables = ColumnTables::new(&pattern);

        // The first 17 columns of L have more than 32 rows below, the last one none.
        let chunks = (49 + 17u32).next_multiple_of(8);
        assert_eq!((tables.end_of_l, tables.end_of_u), (chunks, 2 * chunks));
        // Rows of 50 entries have sums of 16, 16, 16 and 2.
        assert_eq!(tables.sums, 50 + 150);
        assert!(tables.order.len() - tables.first_of_a as usize >= 2500);
        for chunk in tables.words[2 * (2 * chunks as usize + AHEAD) + 2 * chunks as usize * 16..]
            .chunks_exact(CHUNK)
            .take(tables.products as usize)
        {
            let written = chunk.iter().map(|word| word >> 16).filter(|&sum| sum < IDLE_LANE);
            let mut sums: Vec<u32> = written.collect();
            let count = sums.len();
            sums.sort_unstable();
            sums.dedup();
            assert_eq!(sums.len(), count);
        }
    }
}
