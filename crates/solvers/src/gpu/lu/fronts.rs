//! Fronts: rows and columns that are eliminated together, by a warp: see `lu_fronts.cu`.

use sparsebatch_cpu_ref::symbolic::FactorPattern;
use sparsebatch_formats::CsrPatternRef;

use super::graph::Places;
use super::shape::CHAINS;

/// Pivots of a front, at most.
const PIVOTS: usize = 4;

/// Rows that a turn of a warp has.
const ROWS: usize = 8;

const LANES: usize = 32;

/// Entries of a row of A that a lane adds.
const PIECE: usize = 17;

/// Sections of the tables.
const SECTIONS: usize = 8;

/// Turns of factorisation that are asked for behind the last one.
const TURNS_AHEAD: usize = 2;

/// Steps of substitution that are asked for at a time.
const STEPS: usize = 4;

/// Cycles of a warp, roughly.
mod cycles {
    pub(super) const FRONT: u64 = 500;
    pub(super) const TURN: u64 = 400;
    pub(super) const STEP: u64 = 100;
    /// For 32 entries of A: to fetch them, and to multiply with them.
    pub(super) const ENTRIES: u64 = 100;
    pub(super) const REST: u64 = 10_000;
    /// What a turn and a step keep the multiprocessor busy with.
    pub(super) const BUSY_TURN: u64 = 120;
    pub(super) const BUSY_STEP: u64 = 12;
    pub(super) const BUSY_ENTRIES: u64 = 20;
}

/// The elimination tree in postorder: an order of elimination, position -> row of A, with the same fill in
/// which a row follows its children, those with the longest rows last (Liu 1990, doi 10.1137/0611010).
pub(super) fn postorder(pattern: &FactorPattern) -> Vec<u32> {
    let n = pattern.nrows();
    let parents = parents(pattern);
    // Children of each row, a row's own after it in `next`; roots are those of row n.
    let (mut child, mut next) = (vec![usize::MAX; n + 1], vec![usize::MAX; n]);
    let mut rows: Vec<usize> = (0..n).collect();
    rows.sort_by_key(|&row| pattern.upper(row).len());
    // Pushed in front: the first one to be visited is pushed last.
    for &row in rows.iter().rev() {
        next[row] = std::mem::replace(&mut child[parents[row]], row);
    }
    let mut order = Vec::with_capacity(n);
    let mut open = vec![n];
    while let Some(&row) = open.last() {
        match child[row] {
            usize::MAX => {
                open.pop();
                if row < n {
                    order.push(pattern.perm()[row]);
                }
            }
            first => {
                child[row] = next[first];
                open.push(first);
            }
        }
    }
    order
}

/// The first row after each that its elimination changes; the number of rows where there is none.
fn parents(pattern: &FactorPattern) -> Vec<usize> {
    let n = pattern.nrows();
    let mut parents = vec![n; n];
    for row in 0..n {
        for k in pattern.lower(row) {
            let col = pattern.cols()[k] as usize;
            parents[col] = parents[col].min(row);
        }
        if let Some(&col) = pattern.cols()[pattern.upper(row)].first() {
            parents[row] = parents[row].min(col as usize);
        }
    }
    parents
}

/// Pivots that follow each other, the columns of U beside them, the rows of L below.
#[derive(Debug, PartialEq, Eq)]
struct Front {
    pivots: std::ops::Range<usize>,
    columns: Vec<u32>,
    rows: Vec<u32>,
}

impl Front {
    /// Turns of a warp.
    fn turns(&self) -> usize {
        1 + self.rows.len().div_ceil(ROWS)
    }
}

/// The fronts of an elimination.
#[derive(Debug)]
pub(super) struct Fronts {
    fronts: Vec<Front>,
    /// Of each column of U the rows above the diagonal, and their places.
    above: Vec<Vec<(u32, u32)>>,
    steps: usize,
}

impl Fronts {
    /// Of an order in which a row follows its children; `None` where a front has more columns than a warp
    /// has lanes.
    pub(super) fn new(pattern: &FactorPattern) -> Option<Self> {
        let n = pattern.nrows();
        let parents = parents(pattern);
        let mut below: Vec<Vec<u32>> = vec![Vec::new(); n];
        let mut above: Vec<Vec<(u32, u32)>> = vec![Vec::new(); n];
        for row in 0..n {
            for k in pattern.lower(row) {
                below[pattern.cols()[k] as usize].push(row as u32);
            }
            for k in pattern.upper(row) {
                above[pattern.cols()[k] as usize].push((row as u32, k as u32));
            }
        }
        let mut fronts: Vec<Front> = Vec::new();
        for row in 0..n {
            let beside = &pattern.cols()[pattern.upper(row)];
            let joined = fronts.last().and_then(|front| {
                let follows = parents[front.pivots.end - 1] == row;
                let pivots = front.pivots.start..row + 1;
                let joined = Front {
                    columns: union(&front.columns, beside, row),
                    rows: union(&front.rows, &below[row], row),
                    pivots,
                };
                (follows && joined.pivots.len() <= PIVOTS && fits(&joined)).then_some(joined)
            });
            if let Some(joined) = joined {
                fronts.pop();
                fronts.push(joined);
                continue;
            }
            let alone =
                Front { pivots: row..row + 1, columns: beside.to_vec(), rows: below[row].clone() };
            if !fits(&alone) {
                return None;
            }
            fronts.push(alone);
        }
        let steps = above.iter().map(|rows| rows.len().div_ceil(LANES)).sum();
        Some(Self { fronts, above, steps })
    }

    fn turns(&self) -> usize {
        self.fronts.iter().map(Front::turns).sum()
    }

    /// Turns of factorisation and steps of substitution.
    pub(super) fn steps(&self) -> usize {
        self.turns() + self.steps
    }

    /// Products that all lanes make together, with those of places that there are not.
    pub(super) fn products(&self) -> usize {
        (self.turns() * ROWS * PIVOTS + self.steps) * LANES
    }

    /// Cycles of a warp for a system, and cycles that it keeps a multiprocessor busy with, by the estimate.
    pub(super) fn cycles(&self, nnz: usize) -> (u64, u64) {
        let (fronts, turns, steps) =
            (self.fronts.len() as u64, self.turns() as u64, self.steps as u64);
        let entries = nnz.div_ceil(LANES) as u64;
        let latency = cycles::REST
            + fronts * cycles::FRONT
            + turns * cycles::TURN
            + steps * cycles::STEP
            + entries * cycles::ENTRIES;
        let busy = turns * cycles::BUSY_TURN
            + steps * cycles::BUSY_STEP
            + entries * cycles::BUSY_ENTRIES
            + cycles::REST / 10;
        (latency, busy)
    }

    /// The tables of `lu_fronts.cu`, and where each begins.
    pub(super) fn tables(
        &self,
        a: CsrPatternRef<'_>,
        pattern: &FactorPattern,
        layout: &Layout,
    ) -> (Vec<u32>, Vec<u32>) {
        let Layout { places, zero, .. } = *layout;
        let mut tables = Tables::default();
        let (mut rows, mut begins) = (Vec::new(), Vec::new());
        for front in &self.fronts {
            front.append(pattern, layout, &mut rows);
            begins.push(1);
            begins.extend(std::iter::repeat_n(0, front.turns() - 1));
        }
        let turns = begins.len();
        rows.extend(std::iter::repeat_n(zero, TURNS_AHEAD * ROWS * LANES));
        begins.extend([0; TURNS_AHEAD]);
        tables.halves(rows);
        tables.words(begins);

        let (mut entries, mut controls) = (Vec::new(), Vec::new());
        for (row, above) in self.above.iter().enumerate().rev() {
            for chunk in above.chunks(LANES) {
                entries.extend(chunk.iter().map(|&(row, place)| place | (places.y + row) << 16));
                entries.extend((chunk.len()..LANES).map(|lane| zero | layout.sink(lane) << 16));
                controls.push((places.y + row as u32) | pattern.diag()[row] << 16);
            }
        }
        let steps = controls.len().next_multiple_of(STEPS);
        controls.resize(steps + STEPS, zero | layout.one() << 16);
        let nothing =
            (entries.len()..controls.len() * LANES).map(|k| zero | layout.sink(k % LANES) << 16);
        let nothing: Vec<u32> = nothing.collect();
        entries.extend(nothing);
        tables.words(entries);
        tables.words(controls);

        tables.halves(pattern.diag().to_vec());
        let mut positions = vec![0; pattern.nrows()];
        for (position, &row) in pattern.perm().iter().enumerate() {
            positions[row as usize] = position as u32;
        }
        tables.halves(a.col_idx().iter().map(|&col| places.y + positions[col as usize]).collect());
        tables.halves(a.row_ptr().iter().map(|&begin| begin as u32).collect());
        let mut pieces: Vec<(usize, usize)> = Vec::new();
        for row in 0..a.nrows() {
            let own = a.row(row);
            let begins = own.clone().step_by(PIECE);
            pieces.extend(begins.map(|begin| (begin, PIECE.min(own.end - begin))));
        }
        pieces.sort_by_key(|&(begin, length)| (std::cmp::Reverse(length), begin));
        let npieces = pieces.len();
        tables.words(
            pieces.into_iter().map(|(begin, length)| (begin | length << 16) as u32).collect(),
        );

        let Tables { words, mut starts } = tables;
        debug_assert_eq!(starts.len(), SECTIONS);
        starts.extend([turns as u32, steps as u32, npieces as u32]);
        (words, starts)
    }
}

/// Places that are numbered in the tables: those of a system, and what a warp has behind them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    places: Places,
    /// The place of the 0.
    zero: u32,
    /// The first value of the kernel's `Workspace`.
    workspace: u32,
    /// Shared memory of a warp.
    pub(super) shared_bytes: u32,
}

impl Layout {
    /// `None` where 16 bits cannot number the places.
    pub(super) fn new(places: Places, value_bytes: usize) -> Option<Self> {
        let sums = (places.len * value_bytes).next_multiple_of(8) + (CHAINS as usize + 1) * 8;
        let workspace = sums.next_multiple_of(16) / value_bytes;
        let end = workspace + LANES * PIVOTS + LANES + 1;
        (end <= usize::from(u16::MAX)).then_some(Self {
            places,
            zero: places.len as u32 - 1,
            workspace: workspace as u32,
            shared_bytes: (end * value_bytes) as u32,
        })
    }

    /// Where a lane writes what nobody wants.
    fn sink(&self, lane: usize) -> u32 {
        self.workspace + (LANES * PIVOTS + lane) as u32
    }

    /// The place of a 1.
    fn one(&self) -> u32 {
        self.sink(LANES)
    }
}

impl Front {
    /// Places of each turn, lane by lane.
    fn append(&self, pattern: &FactorPattern, layout: &Layout, all: &mut Vec<u32>) {
        let place = |row: u32, col: u32| {
            let range = pattern.row_ptr()[row as usize] as usize
                ..pattern.row_ptr()[row as usize + 1] as usize;
            let found = pattern.cols()[range.clone()].binary_search(&col);
            found.map(|k| (range.start + k) as u32).ok()
        };
        let pivot =
            |c: usize| Some((self.pivots.start + c) as u32).filter(|_| c < self.pivots.len());
        // The place in a row of a lane's column, which is not a pivot's.
        let beside = |row: u32, lane: usize| match lane {
            _ if lane == LANES - 1 => Some(layout.places.y + row),
            _ => place(row, *self.columns.get(lane.checked_sub(PIVOTS)?)?),
        };
        for lane in 0..LANES {
            all.extend((0..PIVOTS).map(|c| match (pivot(c), pivot(lane)) {
                (None, _) if c == lane => layout.one(),
                (None, _) => layout.zero,
                (Some(row), Some(col)) => place(row, col).unwrap_or(layout.zero),
                (Some(row), None) => beside(row, lane).unwrap_or(layout.zero),
            }));
            let own = self.rows.get(lane);
            let factor = |c: usize| place(*own?, pivot(c)?);
            all.extend((0..PIVOTS).map(|c| factor(c).unwrap_or(layout.zero)));
        }
        for rows in self.rows.chunks(ROWS) {
            for lane in 0..LANES {
                let target = |k: usize| beside(*rows.get(k)?, lane);
                all.extend((0..ROWS).map(|k| target(k).unwrap_or(layout.sink(lane))));
            }
        }
    }
}

/// Whether each column has a lane, and the right-hand side one, and each row below.
fn fits(front: &Front) -> bool {
    PIVOTS + front.columns.len() < LANES && front.rows.len() <= LANES
}

/// Both lists, each ascending, without `row`.
fn union(one: &[u32], other: &[u32], row: usize) -> Vec<u32> {
    let mut both: Vec<u32> =
        one.iter().chain(other).copied().filter(|&k| k as usize != row).collect();
    both.sort_unstable();
    both.dedup();
    both
}

/// Words, section after section.
#[derive(Default)]
struct Tables {
    words: Vec<u32>,
    starts: Vec<u32>,
}

impl Tables {
    fn words(&mut self, own: Vec<u32>) {
        self.words.resize(self.words.len().next_multiple_of(4), 0);
        self.starts.push(self.words.len() as u32);
        self.words.extend(own);
    }

    /// Numbers of 16 bits, two a word.
    fn halves(&mut self, own: Vec<u32>) {
        let two = |two: &[u32]| two[0] | two.get(1).map_or(0, |&second| second << 16);
        self.words(own.chunks(2).map(two).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    fn pattern(rows: &[&[i32]]) -> CsrPattern {
        let mut row_ptr = vec![0];
        row_ptr.extend(rows.iter().scan(0, |end, row| {
            *end += row.len() as i32;
            Some(*end)
        }));
        CsrPattern::try_new(rows.len(), rows.len(), row_ptr, rows.concat()).unwrap()
    }

    /// Two pairs that know the last row, in turns.
    fn pairs() -> CsrPattern {
        pattern(&[&[0, 2], &[1, 3], &[0, 2, 4], &[1, 3, 4], &[2, 3, 4]])
    }

    #[test]
    fn a_row_follows_its_children() {
        let filled = FactorPattern::lu(pairs().view(), None, usize::MAX).unwrap();

        assert_eq!(postorder(&filled), [0, 2, 1, 3, 4]);
    }

    #[test]
    fn rows_join_their_parent_while_there_is_room() {
        let order = postorder(&FactorPattern::lu(pairs().view(), None, usize::MAX).unwrap());
        let filled = FactorPattern::lu(pairs().view(), Some(&order), usize::MAX).unwrap();

        let fronts = Fronts::new(&filled).unwrap().fronts;

        let expected = [
            Front { pivots: 0..2, columns: vec![4], rows: vec![4] },
            Front { pivots: 2..5, columns: vec![], rows: vec![] },
        ];
        assert_eq!(fronts, expected);
    }

    #[test]
    fn columns_have_a_lane_each() {
        let dense = |n: i32| {
            let row: Vec<i32> = (0..n).collect();
            let rows: Vec<&[i32]> = (0..n).map(|_| &row[..]).collect();
            FactorPattern::lu(pattern(&rows).view(), None, usize::MAX).unwrap()
        };

        // The first pivot has 27 columns beside it, which with four pivots and the right-hand side are 32.
        assert!(Fronts::new(&dense(28)).is_some());
        assert!(Fronts::new(&dense(31)).is_none());
    }

    #[test]
    fn no_rows_have_no_fronts() {
        let filled = FactorPattern::lu(pattern(&[]).view(), None, usize::MAX).unwrap();

        assert!(postorder(&filled).is_empty());
        assert_eq!(Fronts::new(&filled).unwrap().steps(), 0);
    }
}
