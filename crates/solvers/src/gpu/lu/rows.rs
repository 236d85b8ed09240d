//! The rows of a substitution and of a residual, given to the warps of a block: see `lu_kept.cu`.

use sparsebatch_cpu_ref::symbolic::{FactorPattern, NO_SOURCE};

use super::graph::{Graph, NONE, Places};

/// Values of each system that a warp's ring takes at a time, and products whose columns stand together.
pub(super) const CHUNK: usize = 8;

const DIVIDES: u32 = 1;
const IS_LAST: u32 = 2;
const IS_NOTHING: u32 = 4;
const BARRIERS_SHIFT: u32 = 8;

/// Cycles of a row beside its products, and of a product, roughly.
const ROW_CYCLES: usize = 150;
const PRODUCT_CYCLES: usize = 12;

/// The programs of substitution and residual, warp by warp.
#[derive(Debug)]
pub(super) struct RowPrograms {
    /// Places of what is kept, in the order of its use: factors, from `first_of_a` on A.
    pub(super) order: Vec<u16>,
    pub(super) first_of_a: u32,
    /// First value, chunks, first row, first columns in fours of words: of each warp, for each program.
    pub(super) parts: Vec<u32>,
    pub(super) rows: Vec<u32>,
    pub(super) columns: Vec<u32>,
}

/// A sum of products.
#[derive(Clone, Debug)]
struct Row {
    target: u32,
    /// The place of the pivot by which it is divided, or [`NONE`].
    pivot: u32,
    /// Places of factors, and columns.
    products: Vec<(u32, u32)>,
}

impl Row {
    fn cycles(&self) -> usize {
        ROW_CYCLES + self.products.len() * PRODUCT_CYCLES
    }
}

/// The rows of each warp, with the barriers that follow each.
struct Lists {
    warps: Vec<Vec<(Option<Row>, u32)>>,
    spent: Vec<usize>,
}

impl Lists {
    fn new(warps: usize) -> Self {
        Self { warps: vec![Vec::new(); warps], spent: vec![0; warps] }
    }

    /// The warp that has spent the least since the last barrier.
    fn least(&self) -> usize {
        (0..self.spent.len()).min_by_key(|&warp| self.spent[warp]).unwrap_or(0)
    }

    fn give(&mut self, warp: usize, row: Row) {
        self.spent[warp] += row.cycles();
        self.warps[warp].push((Some(row), 0));
    }

    fn barrier(&mut self) {
        for warp in &mut self.warps {
            if warp.is_empty() {
                warp.push((None, 0));
            }
            if let Some((_, barriers)) = warp.last_mut() {
                *barriers += 1;
            }
        }
        self.spent.fill(0);
    }
}

/// Forward and backward substitution: the sums that a whole solve makes, each when all that it reads is
/// there. Rows wait at a barrier for those of other warps; a row that waits for one warp alone follows
/// there without.
fn substitution(graph: &Graph, places: Places, nrows: usize, warps: usize) -> Lists {
    let mut levels: Vec<Vec<Row>> = Vec::new();
    // Of each row of y: the level after which it can be read.
    let mut level_of = vec![0; nrows];
    let (mut floor, mut is_backward) = (0, false);
    for target in graph.targets.iter().filter(|target| target.place >= places.y) {
        // Backward rows overwrite what forward rows read: all of these come first.
        if target.divisor != NONE && !is_backward {
            (floor, is_backward) = (levels.len(), true);
            level_of.fill(floor);
        }
        let products = &graph.products[target.products.clone()];
        let products: Vec<(u32, u32)> =
            products.iter().map(|product| (product.left, product.right - places.y)).collect();
        let ready = products.iter().map(|&(_, column)| level_of[column as usize]).max();
        let level = ready.unwrap_or(0).max(floor);
        let row = Row { target: target.place - places.y, pivot: target.divisor, products };
        level_of[row.target as usize] = level + 1;
        levels.resize_with(levels.len().max(level + 1), Vec::new);
        levels[level].push(row);
    }
    let mut lists = Lists::new(warps);
    // The warp that made a row since the last barrier.
    let mut maker: Vec<Option<usize>> = vec![None; nrows];
    for mut level in levels {
        level.sort_by_key(|row| (std::cmp::Reverse(row.products.len()), row.target));
        let only = |row: &Row| {
            let mut makers = row.products.iter().filter_map(|&(_, column)| maker[column as usize]);
            let own = makers.next();
            (makers.all(|other| Some(other) == own)).then_some(own).flatten()
        };
        match &level[..] {
            [row] if row.pivot == NONE || maker[row.target as usize].is_none() => {
                if let Some(warp) = only(row) {
                    maker[row.target as usize] = Some(warp);
                    lists.give(warp, row.clone());
                    continue;
                }
            }
            _ => {}
        }
        lists.barrier();
        maker.fill(None);
        for row in level {
            let warp = lists.least();
            maker[row.target as usize] = Some(warp);
            lists.give(warp, row);
        }
    }
    lists
}

/// `r -= A x`: rows that wait for nothing.
fn residual(pattern: &FactorPattern, warps: usize) -> Lists {
    let mut rows: Vec<Vec<(u32, u32, u32)>> = vec![Vec::new(); pattern.nrows()];
    for (position, &row) in pattern.perm().iter().enumerate() {
        for k in pattern.lower(position).start..pattern.upper(position).end {
            if pattern.source()[k] != NO_SOURCE {
                rows[row as usize].push((pattern.source()[k], k as u32, pattern.cols()[k]));
            }
        }
    }
    let mut rows: Vec<Row> = rows
        .into_iter()
        .enumerate()
        .map(|(target, mut entries)| {
            // In the order of CSR.
            entries.sort_unstable();
            let products = entries.into_iter().map(|(_, place, column)| (place, column)).collect();
            Row { target: target as u32, pivot: NONE, products }
        })
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.products.len()), row.target));
    let mut lists = Lists::new(warps);
    for row in rows {
        lists.give(lists.least(), row);
    }
    lists
}

impl RowPrograms {
    /// For blocks of so many warps. The order of a row's products is that of a whole solve.
    pub(super) fn new(pattern: &FactorPattern, places: Places, warps: usize) -> Self {
        let zero = (places.len - 1) as u16;
        let mut all = Self {
            order: Vec::new(),
            first_of_a: 0,
            parts: Vec::new(),
            rows: Vec::new(),
            columns: Vec::new(),
        };
        all.append(substitution(&Graph::new(pattern), places, pattern.nrows(), warps), zero);
        all.first_of_a = all.order.len() as u32;
        all.append(residual(pattern, warps), zero);
        all
    }

    fn append(&mut self, lists: Lists, zero: u16) {
        for mut list in lists.warps {
            let first = self.order.len();
            self.parts.push(first as u32);
            let place_of_chunks = self.parts.len();
            self.parts.extend([0, self.rows.len() as u32 / 2, self.columns.len() as u32 / 4]);
            if list.is_empty() {
                list.push((None, 0));
            }
            let last = list.len() - 1;
            for (number, (row, barriers)) in list.into_iter().enumerate() {
                let mut flags = barriers << BARRIERS_SHIFT;
                flags |= if number == last { IS_LAST } else { 0 };
                match row {
                    None => self.rows.extend([0, flags | IS_NOTHING]),
                    Some(row) => self.row(&row, flags),
                }
            }
            // What is asked for ahead: a head, columns, eight values.
            self.rows.extend([0; 2]);
            self.columns.extend([0; 4]);
            let len = (self.order.len() - first + CHUNK).next_multiple_of(CHUNK);
            self.order.resize(first + len, zero);
            self.parts[place_of_chunks] = (len / CHUNK) as u32;
        }
    }

    fn row(&mut self, row: &Row, flags: u32) {
        let divides = if row.pivot == NONE { 0 } else { DIVIDES };
        self.rows.extend([row.target | (row.products.len() as u32) << 16, flags | divides]);
        self.order.extend((row.pivot != NONE).then_some(row.pivot as u16));
        self.order.extend(row.products.iter().map(|&(place, _)| place as u16));
        for eight in row.products.chunks(CHUNK) {
            let column = |k: usize| eight.get(k).map_or(0, |&(_, column)| column);
            self.columns.extend((0..CHUNK / 2).map(|k| column(2 * k) | column(2 * k + 1) << 16));
        }
    }
}
