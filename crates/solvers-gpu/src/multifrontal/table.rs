//! What the kernel reads of a pattern: [`FrontalTable`].

use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::symbolic::{
    AssemblyTree, FactorPattern, Front, FrontLimits, is_structurally_symmetric, min_degree,
};

use super::lists::{Lists, PRODUCTS_A_FRONT, line_stride, line_values, most_pivots};
use super::shape::FrontalBlocks;
use crate::GpuSolveError;

/// Words ahead of the rest of a table.
const HEADER: usize = 13;

/// Words of a child.
const CHILD: u32 = 5;

/// A row of a front that a child has not.
const NONE: u32 = u32::MAX;

/// The table of a pattern, as `multifrontal.cu` describes it.
pub(super) struct FrontalTable {
    pub(super) words: Vec<u32>,
    pub(super) nrows: usize,
    pub(super) fronts: usize,
    /// Rows of the largest front.
    pub(super) largest: usize,
    /// Entries of L + U, zeros of merged fronts included.
    pub(super) factor_entries: usize,
    /// Values of L and U, with reciprocals of pivots.
    pub(super) nfactors: usize,
    /// Values of device memory that a system takes besides.
    pub(super) nrest: usize,
}

/// Systems beyond the kernel.
const TOO_LARGE: GpuSolveError = GpuSolveError::Unsupported {
    what: "a system whose fronts exceed the shared memory of a block",
    instead: "take an iterative method",
};

impl FrontalTable {
    /// Orders a pattern and cuts it into fronts that fit in `capacity` values of shared memory, for
    /// `blocks` that have at least as many.
    ///
    /// # Errors
    /// [`GpuSolveError::Unsupported`] where a front is too large for that, or the factors for 32
    /// bits; those of the analysis.
    pub(super) fn new(
        a: CsrPatternRef<'_>,
        capacity: usize,
        blocks: &FrontalBlocks,
    ) -> Result<Self, GpuSolveError> {
        let order = min_degree(a)?;
        let limits =
            FrontLimits { pivots: &|size| most_pivots(size, capacity), products: PRODUCTS_A_FRONT };
        let tree = AssemblyTree::new(a, &order, limits)?;
        let fronts = tree.fronts();
        if fronts.iter().any(|front| line_values(front) > capacity) {
            return Err(TOO_LARGE);
        }
        let lists = Lists::new(&tree, blocks.warps(), blocks.capacity as usize);
        let mut parts = Parts::new(a, &tree);
        parts.add_fronts(&tree, &lists);
        // Factors begin at an even place.
        let vectors = parts.vectors + (parts.vectors + lists.nrests) % 2;
        let nfactors = parts.nfactors;
        let begins = lists.lists.iter().scan(0, |end, list| {
            let begin = *end;
            *end += list.len() as u32;
            Some(begin)
        });
        let begins: Vec<u32> = begins.chain([fronts.len() as u32]).collect();
        let row_ptr: Vec<u32> = a.row_ptr().iter().map(|&entry| entry as u32).collect();
        let columns: Vec<u32> = a.col_idx().iter().map(|&column| column as u32).collect();
        let arrays = [
            parts.fronts,
            parts.children,
            parts.maps,
            parts.rows,
            parts.entries,
            tree.order().to_vec(),
            row_ptr,
            columns,
            begins,
        ];
        let counts = [a.nrows(), nfactors, lists.nrests, vectors];
        let words = HEADER + arrays.iter().map(Vec::len).sum::<usize>();
        if counts.iter().chain([&words]).any(|&len| u32::try_from(len).is_err()) {
            return Err(TOO_LARGE);
        }
        let mut words: Vec<u32> = counts.iter().map(|&count| count as u32).collect();
        let mut begin = HEADER as u32;
        for array in &arrays {
            words.push(begin);
            begin += array.len() as u32;
        }
        debug_assert_eq!(words.len(), HEADER);
        words.extend(arrays.iter().flatten());
        Ok(Self {
            words,
            nrows: a.nrows(),
            fronts: fronts.len(),
            largest: fronts.iter().map(Front::size).max().unwrap_or(0),
            factor_entries: tree.factor_entries(),
            nfactors,
            nrest: lists.nrests + vectors + 2 * a.nrows(),
        })
    }

    /// Values of the kept factors of an item: an even number, with what is known of its pivots.
    pub(super) fn kept_values(&self) -> usize {
        self.nfactors + 2
    }

    /// Values of device memory of a block.
    pub(super) fn block_values(&self) -> usize {
        (self.nfactors + self.nrest).next_multiple_of(16)
    }
}

/// How many times the multiply-adds of an elimination of A alone fronts may take.
const MOST_TIMES: u64 = 8;

/// Whether fronts are for a pattern: those of `A + A^T` take many times the work where A is far
/// from structurally symmetric.
///
/// # Errors
/// Those of the analysis.
pub(super) fn are_for(a: CsrPatternRef<'_>) -> Result<bool, GpuSolveError> {
    if is_structurally_symmetric(a) {
        return Ok(true);
    }
    let order = min_degree(a)?;
    let limits = FrontLimits { pivots: &|_| usize::MAX, products: 0 };
    let tree = AssemblyTree::new(a, &order, limits)?;
    let factors = FactorPattern::lu(a, Some(&order), tree.factor_entries())?;
    Ok(tree.products() <= MOST_TIMES * factors.flops())
}

/// The parts of a table about fronts.
#[derive(Default)]
struct Parts {
    fronts: Vec<u32>,
    children: Vec<u32>,
    maps: Vec<u32>,
    rows: Vec<u32>,
    entries: Vec<u32>,
    nfactors: usize,
    vectors: usize,
    /// Of each front, the entries of A in the rows and columns of its pivots, and their places.
    own_entries: Vec<Vec<[u32; 2]>>,
}

impl Parts {
    fn new(a: CsrPatternRef<'_>, tree: &AssemblyTree) -> Self {
        let mut place = vec![0u32; a.nrows()];
        tree.order().iter().enumerate().for_each(|(k, &row)| place[row as usize] = k as u32);
        let front_of = tree.front_of_rows();
        let mut own_entries: Vec<Vec<[u32; 2]>> = vec![Vec::new(); tree.fronts().len()];
        for row in 0..a.nrows() {
            for k in a.row(row) {
                let (row, column) = (place[row], place[a.col_idx()[k] as usize]);
                let number = front_of[row.min(column) as usize] as usize;
                let front = &tree.fronts()[number];
                let at = |k| front.place(k).expect("entries lie in the front of their pivot");
                let place = place_in_front(front, at(row), at(column));
                own_entries[number].push([k as u32, place as u32]);
            }
        }
        Self { own_entries, ..Self::default() }
    }

    /// Adds the fronts, list after list.
    fn add_fronts(&mut self, tree: &AssemblyTree, lists: &Lists) {
        let fronts = tree.fronts();
        let sequence: Vec<usize> = lists.lists.iter().flatten().copied().collect();
        let mut vectors = vec![0; fronts.len()];
        for &number in &sequence {
            vectors[number] = self.vectors;
            self.vectors += fronts[number].rows.len();
        }
        for &number in &sequence {
            let front = &fronts[number];
            let entries = std::mem::take(&mut self.own_entries[number]);
            self.fronts.extend([
                front.first,
                front.pivots,
                front.size() as u32,
                self.rows.len() as u32,
                self.children.len() as u32 / CHILD,
                lists.children[number].len() as u32,
                self.entries.len() as u32 / 2,
                entries.len() as u32,
                self.nfactors as u32,
                lists.rests[number] as u32,
                vectors[number] as u32,
            ]);
            self.rows.extend(&front.rows);
            self.entries.extend(entries.iter().flatten());
            for &child in &lists.children[number] {
                let places = [lists.rests[child], vectors[child]];
                self.add_child(front, &fronts[child].rows, places, lists.is_whole[number]);
            }
            self.nfactors += (line_values(front) + front.pivots as usize).next_multiple_of(2);
        }
    }

    /// Adds a child of a front, with the rows that it leaves and the places of what it leaves.
    /// `is_whole`: all of the front is in shared memory.
    fn add_child(
        &mut self,
        front: &Front,
        rows: &[u32],
        [rest, vector]: [usize; 2],
        is_whole: bool,
    ) {
        let place = |&row: &u32| front.place(row).expect("a front has the rows of its children");
        let places: Vec<usize> = rows.iter().map(place).collect();
        let pivots = places.iter().filter(|&&place| place < front.pivots as usize).count();
        let words = [rest, rows.len(), pivots, self.maps.len(), vector];
        self.children.extend(words.map(|word| word as u32));
        self.maps.extend(places.iter().map(|&place| place as u32));
        if is_whole {
            let columns = || places.iter().copied().chain([front.size()]);
            let targets: Vec<u32> = places
                .iter()
                .flat_map(|&row| columns().map(move |column| place_in_front(front, row, column)))
                .map(|place| place as u32)
                .collect();
            let word = |pair: &[u32]| pair[0] | pair.get(1).copied().unwrap_or(0) << 16;
            self.maps.extend(targets.chunks(2).map(word));
        } else {
            let mut numbers = vec![NONE; front.size()];
            places.iter().enumerate().for_each(|(k, &place)| numbers[place] = k as u32);
            self.maps.extend(numbers);
        }
    }
}

/// The place of an entry in shared memory, as `Matrix` of `multifrontal.cu` lays it out.
fn place_in_front(front: &Front, row: usize, column: usize) -> usize {
    let (pivots, size) = (front.pivots as usize, front.size());
    let stride = line_stride(pivots);
    if column < pivots.min(row) {
        row * stride + column
    } else if row < pivots {
        (size + column) * stride + row
    } else {
        line_values(front) + (row - pivots) * (size - pivots + 1) + column - pivots
    }
}
