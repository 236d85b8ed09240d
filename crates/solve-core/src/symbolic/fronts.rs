//! The assembly tree of a sparse factorisation: [`AssemblyTree`].

use sparsebatch_formats::CsrPatternRef;

use super::min_degree::symmetric_neighbours;
use super::{Permutation, SymbolicError, check_square};

/// A front of an [`AssemblyTree`]: the dense matrix in which some rows and columns are eliminated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// The first row that is eliminated here, in the order of elimination.
    pub first: u32,
    /// Rows that are eliminated here, at least 1: `first`, `first + 1`, ...
    pub pivots: u32,
    /// The other rows of the front, ascending, in the order of elimination.
    pub rows: Vec<u32>,
    /// The front that takes what the elimination leaves for the other rows. `None`: there are none.
    pub parent: Option<u32>,
}

impl Front {
    /// Rows and columns of the front.
    pub fn size(&self) -> usize {
        self.pivots as usize + self.rows.len()
    }

    /// The place of a row, in the order of elimination, among those of the front.
    pub fn place(&self, row: u32) -> Option<usize> {
        match row.checked_sub(self.first) {
            None => None,
            Some(own) if own < self.pivots => Some(own as usize),
            Some(_) => self.rows.binary_search(&row).ok().map(|k| self.pivots as usize + k),
        }
    }
}

/// How large the fronts of an [`AssemblyTree`] may get.
#[derive(Clone, Copy)]
pub struct FrontLimits<'a> {
    /// Most rows that are eliminated in a front of so many rows. 0 counts as 1.
    pub pivots: &'a dyn Fn(usize) -> usize,
    /// Fronts are merged where that adds at most so many multiply-adds: what a front takes besides.
    pub products: u64,
}

/// The fronts of an LU without pivoting (multifrontal method). A front is a dense matrix of the
/// rows that are eliminated in it, the pivots, and of all rows that have entries in their columns
/// or rows. What their elimination leaves for the other rows is added to the front of its parent.
/// Fronts are those of the pattern of `A + A^T`; neighbours in the tree are merged where that adds
/// few zeros.
///
/// # Source
/// I. S. Duff and J. K. Reid, The multifrontal solution of indefinite sparse symmetric linear
/// equations, 1983, doi 10.1145/356044.356047; J. W. H. Liu, The multifrontal method for sparse
/// matrix solution, 1992, doi 10.1137/1034004. Merged fronts: C. Ashcraft and R. Grimes, The
/// influence of relaxed supernode partitions on the multifrontal method, 1989, doi
/// 10.1145/76909.76910.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssemblyTree {
    order: Vec<u32>,
    fronts: Vec<Front>,
}

/// A front while fronts are merged. Rows have the numbers of the order before.
#[derive(Default)]
struct Draft {
    pivots: Vec<u32>,
    rows: Vec<u32>,
    children: Vec<usize>,
}

impl Draft {
    fn products(&self) -> u64 {
        products(self.pivots.len(), self.pivots.len() + self.rows.len())
    }
}

/// Entries of `pivots` rows and columns of a front of `size` rows.
fn entries(pivots: usize, size: usize) -> usize {
    pivots * (2 * size - pivots)
}

/// Multiply-adds of an elimination of `pivots` rows and columns of a front of `size` rows.
fn products(pivots: usize, size: usize) -> u64 {
    (0..pivots).map(|k| (size - k - 1) as u64).map(|rest| rest * (rest + 1)).sum()
}

impl AssemblyTree {
    /// The tree of a pattern whose rows and columns are eliminated in `order` or in an order with
    /// the same fill: position `k` of `P A P^T` holds row and column `order[k]` of A.
    ///
    /// # Errors
    /// [`SymbolicError::NotSquare`]; [`SymbolicError::OrderLength`] and
    /// [`SymbolicError::NotPermutation`] for an order that is none.
    pub fn new(
        pattern: CsrPatternRef<'_>,
        order: &[u32],
        limits: FrontLimits<'_>,
    ) -> Result<Self, SymbolicError> {
        let nrows = check_square(pattern)?;
        let given = Permutation::try_new(Some(order), nrows)?;
        let neighbours = symmetric_neighbours(pattern);
        let parents = elimination_tree(&neighbours, &given);
        let order: Vec<u32> =
            postorder(&parents).iter().map(|&k| given.order[k as usize]).collect();
        let permutation = Permutation::try_new(Some(&order), nrows)?;
        let parents = elimination_tree(&neighbours, &permutation);
        let mut drafts = drafts(&neighbours, &permutation, &parents);
        let roots = merge(&mut drafts, limits);
        Ok(Self::of_drafts(drafts, &roots, &permutation, limits))
    }

    /// Numbers the rows front by front, children first, and cuts fronts of many pivots.
    fn of_drafts(
        mut drafts: Vec<Draft>,
        roots: &[usize],
        permutation: &Permutation,
        limits: FrontLimits<'_>,
    ) -> Self {
        let nrows = permutation.order.len();
        let (mut order, mut after) = (Vec::with_capacity(nrows), vec![0u32; nrows]);
        let sequence = draft_postorder(&drafts, roots);
        for &number in &sequence {
            for &row in &drafts[number].pivots {
                after[row as usize] = order.len() as u32;
                order.push(permutation.order[row as usize]);
            }
        }
        let mut fronts: Vec<Front> = Vec::with_capacity(drafts.len());
        // The last piece of each draft, which is the child of the front of its parent.
        let mut last = vec![0usize; drafts.len()];
        for &number in &sequence {
            let draft = std::mem::take(&mut drafts[number]);
            let mut rows: Vec<u32> = draft.rows.iter().map(|&row| after[row as usize]).collect();
            rows.sort_unstable();
            let begin = after[draft.pivots[0] as usize];
            let end = begin + draft.pivots.len() as u32;
            let mut children: Vec<usize> = draft.children.iter().map(|&k| last[k]).collect();
            let mut first = begin;
            while first < end {
                let left = (end - first) as usize;
                let most = (limits.pivots)(left + rows.len()).max(1);
                let pivots = left.div_ceil(left.div_ceil(most)) as u32;
                let own = fronts.len();
                children.iter().for_each(|&child| fronts[child].parent = Some(own as u32));
                children = vec![own];
                let rows = (first + pivots..end).chain(rows.iter().copied()).collect();
                fronts.push(Front { first, pivots, rows, parent: None });
                first += pivots;
            }
            last[number] = fronts.len() - 1;
        }
        Self { order, fronts }
    }

    /// The order of elimination: position `k` of `P A P^T` holds row and column `order[k]` of A.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// The fronts, each after its children. Their pivots are all rows, in ascending order.
    pub fn fronts(&self) -> &[Front] {
        &self.fronts
    }

    /// The front of the pivot of each row, in the order of elimination.
    pub fn front_of_rows(&self) -> Vec<u32> {
        let each = |(number, front): (usize, &Front)| {
            std::iter::repeat_n(number as u32, front.pivots as usize)
        };
        self.fronts.iter().enumerate().flat_map(each).collect()
    }

    /// Entries of L + U, zeros of merged fronts included, the diagonal counted once.
    pub fn factor_entries(&self) -> usize {
        self.fronts.iter().map(|front| entries(front.pivots as usize, front.size())).sum()
    }

    /// Multiply-adds of a factorisation, those by zeros of merged fronts included.
    pub fn products(&self) -> u64 {
        self.fronts.iter().map(|front| products(front.pivots as usize, front.size())).sum()
    }
}

/// Marks a row without a parent in the elimination tree.
const NO_PARENT: u32 = u32::MAX;

/// The parent of each row in the elimination tree of `A + A^T` (Liu 1986, with shortened paths).
fn elimination_tree(neighbours: &[Vec<u32>], permutation: &Permutation) -> Vec<u32> {
    let nrows = neighbours.len();
    let (mut parents, mut ancestors) = (vec![NO_PARENT; nrows], vec![NO_PARENT; nrows]);
    for row in 0..nrows as u32 {
        for &other in &neighbours[permutation.order[row as usize] as usize] {
            let mut below = permutation.inverse[other as usize];
            while below < row {
                let next = std::mem::replace(&mut ancestors[below as usize], row);
                if next == NO_PARENT {
                    parents[below as usize] = row;
                    break;
                }
                below = next;
            }
        }
    }
    parents
}

/// The rows, each after its children, those of a parent in ascending order.
fn postorder(parents: &[u32]) -> Vec<u32> {
    let nrows = parents.len();
    // Children as linked lists, the least first.
    let (mut heads, mut next) = (vec![NO_PARENT; nrows + 1], vec![NO_PARENT; nrows]);
    for row in (0..nrows).rev() {
        let parent = if parents[row] == NO_PARENT { nrows } else { parents[row] as usize };
        next[row] = std::mem::replace(&mut heads[parent], row as u32);
    }
    let (mut order, mut path) = (Vec::with_capacity(nrows), vec![nrows]);
    while let Some(&row) = path.last() {
        match heads[row] {
            NO_PARENT => {
                path.pop();
                if row < nrows {
                    order.push(row as u32);
                }
            }
            child => {
                heads[row] = next[child as usize];
                path.push(child as usize);
            }
        }
    }
    order
}

/// The fundamental fronts, each after its children: rows that follow each other in the tree and
/// have the same entries below.
fn drafts(neighbours: &[Vec<u32>], permutation: &Permutation, parents: &[u32]) -> Vec<Draft> {
    let nrows = neighbours.len();
    // Of each row, the later rows of its column of L, until its parent has taken them.
    let mut below: Vec<Vec<u32>> = vec![Vec::new(); nrows];
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); nrows];
    let mut seen = vec![NO_PARENT; nrows];
    let mut drafts: Vec<Draft> = Vec::new();
    let mut draft_of = vec![0usize; nrows];
    for row in 0..nrows {
        let mut own = Vec::new();
        let mut visit = |later: u32| {
            if later as usize > row && seen[later as usize] != row as u32 {
                seen[later as usize] = row as u32;
                own.push(later);
            }
        };
        let near = &neighbours[permutation.order[row] as usize];
        near.iter().for_each(|&other| visit(permutation.inverse[other as usize]));
        for &child in &children[row] {
            below[child as usize].iter().for_each(|&later| visit(later));
        }
        let follows =
            row > 0 && parents[row - 1] == row as u32 && below[row - 1].len() == own.len() + 1;
        if !follows {
            drafts.push(Draft::default());
        }
        let number = drafts.len() - 1;
        for child in std::mem::take(&mut children[row]) {
            let rows = std::mem::take(&mut below[child as usize]);
            if draft_of[child as usize] != number {
                drafts[number].children.push(draft_of[child as usize]);
                drafts[draft_of[child as usize]].rows = rows;
            }
        }
        drafts[number].pivots.push(row as u32);
        draft_of[row] = number;
        below[row] = own;
        if parents[row] != NO_PARENT {
            children[parents[row] as usize].push(row as u32);
        }
    }
    drafts
}

/// Merges fronts into those of their parents where that adds few zeros. Returns the roots.
fn merge(drafts: &mut [Draft], limits: FrontLimits<'_>) -> Vec<usize> {
    let mut is_root = vec![true; drafts.len()];
    for number in 0..drafts.len() {
        let mut parent = std::mem::take(&mut drafts[number]);
        let mut apart = Vec::new();
        let mut children = std::mem::take(&mut parent.children);
        // Those of the most rows first: they add the fewest zeros.
        children.sort_by_key(|&child| std::cmp::Reverse((drafts[child].rows.len(), child)));
        for child in children {
            is_root[child] = false;
            if adds_few_zeros(&drafts[child], &parent, limits) {
                let mut merged = std::mem::take(&mut drafts[child]);
                merged.pivots.append(&mut parent.pivots);
                parent.pivots = merged.pivots;
                parent.children.append(&mut merged.children);
            } else {
                apart.push(child);
            }
        }
        parent.children.append(&mut apart);
        parent.children.sort_unstable();
        drafts[number] = parent;
    }
    (0..drafts.len()).filter(|&number| is_root[number]).collect()
}

fn adds_few_zeros(child: &Draft, parent: &Draft, limits: FrontLimits<'_>) -> bool {
    let pivots = child.pivots.len() + parent.pivots.len();
    let size = pivots + parent.rows.len();
    pivots <= (limits.pivots)(size)
        && products(pivots, size) <= child.products() + parent.products() + limits.products
}

/// The drafts that are left, each after its children.
fn draft_postorder(drafts: &[Draft], roots: &[usize]) -> Vec<usize> {
    let mut order = Vec::with_capacity(drafts.len());
    for &root in roots {
        let mut path = vec![(root, 0)];
        while let Some((number, next)) = path.last_mut() {
            match drafts[*number].children.get(*next) {
                Some(&child) => {
                    *next += 1;
                    path.push((child, 0));
                }
                None => {
                    order.push(*number);
                    path.pop();
                }
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::{CsrPattern, Pattern};

    use super::super::min_degree;
    use super::*;

    const LIMITS: FrontLimits<'_> =
        FrontLimits { pivots: &|size| (4000 / (2 * size)).min(32), products: 2000 };

    /// A grid of `side` x `side` points with links to the next point of a row and of a column.
    fn grid(side: usize) -> CsrPattern {
        let mut rows = Vec::new();
        for i in 0..side {
            for j in 0..side {
                let k = i * side + j;
                let mut row = vec![k];
                row.extend((i > 0).then(|| k - side));
                row.extend((j > 0).then(|| k - 1));
                row.extend((j + 1 < side).then(|| k + 1));
                row.extend((i + 1 < side).then(|| k + side));
                row.sort_unstable();
                rows.push(row);
            }
        }
        of_rows(&rows)
    }

    fn of_rows(rows: &[Vec<usize>]) -> CsrPattern {
        let mut row_ptr = vec![0];
        let mut col_idx = Vec::new();
        for row in rows {
            col_idx.extend(row.iter().map(|&col| col as i32));
            row_ptr.push(col_idx.len() as i32);
        }
        CsrPattern::try_new(rows.len(), rows.len(), row_ptr, col_idx).unwrap()
    }

    /// Rows with pseudo-random entries, and the diagonal for some.
    fn scattered(nrows: usize, each: usize, mut seed: usize) -> CsrPattern {
        let rows: Vec<Vec<usize>> = (0..nrows)
            .map(|row| {
                let mut cols: Vec<usize> = (0..each)
                    .map(|_| {
                        seed = seed
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        (seed >> 33) % nrows
                    })
                    .collect();
                cols.extend((row % 3 > 0).then_some(row));
                cols.sort_unstable();
                cols.dedup();
                cols
            })
            .collect();
        of_rows(&rows)
    }

    fn check(pattern: &CsrPattern, limits: FrontLimits<'_>) -> AssemblyTree {
        let order = min_degree(pattern.view()).unwrap();
        let tree = AssemblyTree::new(pattern.view(), &order, limits).unwrap();
        let permutation = Permutation::try_new(Some(tree.order()), pattern.nrows()).unwrap();
        let front_of = tree.front_of_rows();
        assert_eq!(front_of.len(), pattern.nrows());
        let mut next = 0;
        for (number, front) in tree.fronts().iter().enumerate() {
            assert_eq!(front.first, next, "pivots follow each other");
            next += front.pivots;
            let (pivots, size) = (front.pivots as usize, front.size());
            assert!(pivots == 1 || pivots <= (limits.pivots)(size));
            assert!(front.rows.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(front.rows.first().is_none_or(|&row| row >= next));
            match front.parent {
                None => assert!(front.rows.is_empty(), "what is left has no front"),
                Some(parent) => {
                    assert!(parent as usize > number, "parents come later");
                    let parent = &tree.fronts()[parent as usize];
                    assert!(front.rows.iter().all(|&row| parent.place(row).is_some()));
                }
            }
        }
        for row in 0..pattern.nrows() {
            for &col in &pattern.view().col_idx()[pattern.view().row(row)] {
                let at = [permutation.inverse[row], permutation.inverse[col as usize]];
                let front = &tree.fronts()[front_of[at[0].min(at[1]) as usize] as usize];
                assert!(at.iter().all(|&k| front.place(k).is_some()), "entry {row}, {col}");
            }
        }
        tree
    }

    #[test]
    fn fronts_hold_all_entries_and_what_their_children_leave() {
        for side in [1, 2, 3, 7, 20] {
            check(&grid(side), LIMITS);
        }
        for (nrows, each, seed) in [(1, 1, 1), (5, 0, 2), (40, 2, 3), (150, 3, 4), (90, 8, 5)] {
            for limits in [LIMITS, FrontLimits { pivots: &|_| 0, products: 0 }] {
                check(&scattered(nrows, each, seed), limits);
            }
        }
        assert!(check(&of_rows(&[]), LIMITS).fronts().is_empty());
    }

    #[test]
    fn a_full_matrix_is_cut_into_fronts_of_few_pivots() {
        let full: Vec<Vec<usize>> = (0..50).map(|_| (0..50).collect()).collect();

        let tree = check(&of_rows(&full), FrontLimits { pivots: &|_| 20, products: 0 });

        let pivots: Vec<u32> = tree.fronts().iter().map(|front| front.pivots).collect();
        assert_eq!(pivots, [17, 17, 16]);
        assert_eq!(tree.factor_entries(), 2500);
        assert_eq!(tree.products(), (1..50).map(|k| k * (k + 1)).sum::<u64>());
    }

    #[test]
    fn merged_fronts_are_few_and_add_few_zeros() {
        let pattern = grid(30);
        let order = min_degree(pattern.view()).unwrap();
        let exact = super::super::FactorPattern::lu(pattern.view(), Some(&order), usize::MAX);

        let tree = check(&pattern, FrontLimits { pivots: &|_| 32, products: 2000 });

        assert!(tree.fronts().len() < 120, "{} fronts", tree.fronts().len());
        let (with_zeros, exact) = (tree.factor_entries(), exact.unwrap().nnz());
        assert!(with_zeros < exact * 2, "{with_zeros} entries, {exact} without zeros");
    }
}
