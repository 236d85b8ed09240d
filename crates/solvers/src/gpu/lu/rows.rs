//! The rows of a substitution and of a residual, given to the warps of a block: see `lu_kept.cu`.

use sparsebatch_cpu_ref::symbolic::{FactorPattern, NO_SOURCE};

use super::graph::{Graph, NONE, Places};

/// Values of each system that a warp's ring takes at a time.
pub(super) const CHUNK: usize = 8;

const STARTS: u32 = 1;
const ENDS: u32 = 2;
const DIVIDES: u32 = 4;
const BARRIERS_SHIFT: u32 = 8;

/// Words of a record.
pub(super) const RECORD_WORDS: usize = 12;

/// Cycles of a row beside its products, and of a product, roughly.
const ROW_CYCLES: usize = 150;
const PRODUCT_CYCLES: usize = 12;

/// The programs of substitution and residual, warp by warp.
#[derive(Debug)]
pub(super) struct RowPrograms {
    /// Places of what is kept, in the order of its use: factors, from `first_of_a` on A.
    pub(super) order: Vec<u16>,
    pub(super) first_of_a: u32,
    /// First chunk, and chunks: of each warp, for each program.
    pub(super) parts: Vec<u32>,
    /// What is done with each chunk.
    pub(super) records: Vec<u32>,
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
    /// For blocks of so many warps, with `stride` values from row to row. The order of a row's products is
    /// that of a whole solve.
    pub(super) fn new(pattern: &FactorPattern, places: Places, warps: usize, stride: u32) -> Self {
        let layout = Layout {
            nothing: (places.len - 1) as u16,
            zero: pattern.nrows() as u32 * stride,
            stride,
        };
        let mut all =
            Self { order: Vec::new(), first_of_a: 0, parts: Vec::new(), records: Vec::new() };
        let lists = substitution(&Graph::new(pattern), places, pattern.nrows(), warps);
        all.append(lists, &layout);
        all.first_of_a = all.order.len() as u32;
        all.append(residual(pattern, warps), &layout);
        all
    }

    fn append(&mut self, lists: Lists, layout: &Layout) {
        for mut list in lists.warps {
            let first = self.order.len() / CHUNK;
            if list.is_empty() {
                list.push((None, 0));
            }
            for (row, barriers) in list {
                match row {
                    None => self.chunk(&[], 0, barriers << BARRIERS_SHIFT, layout),
                    Some(row) => self.row(&row, barriers, layout),
                }
            }
            self.parts.extend([first as u32, (self.order.len() / CHUNK - first) as u32]);
        }
    }

    fn row(&mut self, row: &Row, barriers: u32, layout: &Layout) {
        let products = row.products.iter();
        let products = products.map(|&(place, column)| (place, column * layout.stride));
        let pivot = (row.pivot != NONE).then_some((row.pivot, layout.zero));
        let values: Vec<(u32, u32)> = pivot.into_iter().chain(products).collect();
        let of_row = if pivot.is_some() { DIVIDES } else { 0 };
        let chunks = values.len().div_ceil(CHUNK).max(1);
        for number in 0..chunks {
            let own = values.chunks(CHUNK).nth(number).unwrap_or(&[]);
            let mut control = of_row | if number == 0 { STARTS } else { 0 };
            if number + 1 == chunks {
                control |= ENDS | barriers << BARRIERS_SHIFT;
            }
            self.chunk(own, row.target * layout.stride, control, layout);
        }
    }

    /// Places of values, and of what they are multiplied with.
    fn chunk(&mut self, values: &[(u32, u32)], target: u32, control: u32, layout: &Layout) {
        let value = |k: usize| values.get(k).map_or(layout.nothing, |&(place, _)| place as u16);
        let operand = |k: usize| values.get(k).map_or(layout.zero, |&(_, operand)| operand);
        self.order.extend((0..CHUNK).map(value));
        self.records.extend((0..CHUNK).map(operand));
        self.records.extend([target, control, 0, 0]);
    }
}

/// Places of zeros, among those of the factorisation and in y, and values from row to row.
struct Layout {
    nothing: u16,
    zero: u32,
    stride: u32,
}
