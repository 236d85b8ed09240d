//! Which warp of a block takes which fronts, and where what they leave lies.

use sparsebatch_solve_core::symbolic::{AssemblyTree, Front};

/// Multiply-adds that take as long as what a front takes besides them.
pub(super) const PRODUCTS_A_FRONT: u64 = 3000;

/// Most pivots of a front.
const MOST_PIVOTS: usize = 16;

/// A warp gets about so many subtrees, so that all warps have about the same work.
const SUBTREES_A_WARP: u64 = 3;

/// The fronts of each warp, and, as the last list, those of the block. Children come before their
/// parents; fronts of a block come after those of all warps.
pub(super) struct Lists {
    pub(super) lists: Vec<Vec<usize>>,
    /// The children of each front.
    pub(super) children: Vec<Vec<usize>>,
    /// Where what each front leaves lies, in values, and how many values that takes in all.
    pub(super) rests: Vec<usize>,
    pub(super) nrests: usize,
    /// Of each front, whether shared memory has room for all of it.
    pub(super) is_whole: Vec<bool>,
}

/// Values of what is left of a front: its other rows, with a right-hand side each.
pub(super) fn rest_values(front: &Front) -> usize {
    front.rows.len() * (front.rows.len() + 1)
}

/// Values of shared memory of the rows and the columns of the pivots of a front, with a right-hand
/// side.
pub(super) fn line_values(front: &Front) -> usize {
    (2 * front.size() + 1) * line_stride(front.pivots as usize)
}

/// Values from one row or column to the next in a front of so many pivots.
pub(super) fn line_stride(pivots: usize) -> usize {
    (pivots + 1) / 4 * 4 + 2
}

/// Most pivots of a front of `size` rows for which there is room.
pub(super) fn most_pivots(size: usize, capacity: usize) -> usize {
    let fits = |&pivots: &usize| (2 * size + 1) * line_stride(pivots) <= capacity;
    (1..=MOST_PIVOTS).rev().find(fits).unwrap_or(1)
}

impl Lists {
    /// `capacity`: values of shared memory for a front of the block; a warp has its share.
    pub(super) fn new(tree: &AssemblyTree, warps: usize, capacity: usize) -> Self {
        let share = capacity / warps;
        let fronts = tree.fronts();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); fronts.len()];
        let mut work = vec![0u64; fronts.len()];
        // Whether a warp has room for all fronts of a subtree.
        let mut fits = vec![true; fronts.len()];
        let mut open = Vec::new();
        for (number, front) in fronts.iter().enumerate() {
            let pivots = u64::from(front.pivots);
            work[number] += PRODUCTS_A_FRONT + pivots * (front.size() * front.size()) as u64;
            fits[number] &= line_values(front) <= share;
            match front.parent {
                Some(parent) => {
                    let parent = parent as usize;
                    children[parent].push(number);
                    work[parent] += work[number];
                    fits[parent] &= fits[number];
                }
                None => open.push(number),
            }
        }
        let all: u64 = open.iter().map(|&root| work[root]).sum();
        let most = all / (warps as u64 * SUBTREES_A_WARP);
        let mut subtrees = Vec::new();
        let mut of_block = Vec::new();
        while let Some(number) = open.pop() {
            if fits[number] && work[number] <= most {
                subtrees.push(number);
            } else {
                of_block.push(number);
                open.extend(&children[number]);
            }
        }
        of_block.sort_unstable();
        subtrees.sort_by_key(|&root| (std::cmp::Reverse(work[root]), root));
        let mut lists = vec![(0u64, Vec::new()); warps];
        for root in subtrees {
            let least = (0..warps).min_by_key(|&warp| (lists[warp].0, warp)).unwrap_or(0);
            lists[least].0 += work[root];
            lists[least].1.extend(subtree(root, &children));
        }
        let mut lists: Vec<Vec<usize>> = lists.into_iter().map(|(_, list)| list).collect();
        lists.push(of_block);
        let (rests, nrests) = places(tree, &children, &lists);
        let mut is_whole = vec![false; fronts.len()];
        for (number, list) in lists.iter().enumerate() {
            let room = if number < warps { share } else { capacity };
            for &front in list {
                let all = line_values(&fronts[front]) + rest_values(&fronts[front]);
                is_whole[front] = all <= room;
            }
        }
        Self { lists, children, rests, nrests, is_whole }
    }
}

/// The fronts of a subtree, each after its children.
fn subtree(root: usize, children: &[Vec<usize>]) -> Vec<usize> {
    let (mut found, mut open) = (Vec::new(), vec![root]);
    while let Some(number) = open.pop() {
        found.push(number);
        open.extend(&children[number]);
    }
    found.sort_unstable();
    found
}

/// Where what each front leaves lies. Lists run side by side, the last after all others: memory of
/// a front is used again after its parent, if both are of one list.
fn places(
    tree: &AssemblyTree,
    children: &[Vec<usize>],
    lists: &[Vec<usize>],
) -> (Vec<usize>, usize) {
    let mut rests = vec![0; tree.fronts().len()];
    let mut list_of = vec![0; tree.fronts().len()];
    let mut begin = 0;
    for (number, list) in lists.iter().enumerate() {
        let mut memory = Memory { free: Vec::new(), end: begin };
        for &front in list {
            list_of[front] = number;
            rests[front] = memory.take(rest_values(&tree.fronts()[front]));
            for &child in children[front].iter().filter(|&&child| list_of[child] == number) {
                memory.give(rests[child], rest_values(&tree.fronts()[child]));
            }
        }
        begin = memory.end;
    }
    (rests, begin)
}

/// Memory that is taken and given back.
struct Memory {
    /// Where free pieces begin and end, ascending, none beside another.
    free: Vec<(usize, usize)>,
    end: usize,
}

impl Memory {
    /// The first free piece of that length.
    fn take(&mut self, len: usize) -> usize {
        if len == 0 {
            return 0;
        }
        match self.free.iter().position(|(begin, end)| end - begin >= len) {
            Some(at) => {
                let (begin, end) = self.free[at];
                if end - begin == len {
                    self.free.remove(at);
                } else {
                    self.free[at].0 = begin + len;
                }
                begin
            }
            None => {
                // What is free at the end grows.
                let begin = match self.free.last() {
                    Some(&(begin, end)) if end == self.end => {
                        self.free.pop();
                        begin
                    }
                    _ => self.end,
                };
                self.end = begin + len;
                begin
            }
        }
    }

    fn give(&mut self, begin: usize, len: usize) {
        if len == 0 {
            return;
        }
        let at = self.free.partition_point(|&(other, _)| other < begin);
        self.free.insert(at, (begin, begin + len));
        if at + 1 < self.free.len() && self.free[at].1 == self.free[at + 1].0 {
            self.free[at].1 = self.free.remove(at + 1).1;
        }
        if at > 0 && self.free[at - 1].1 == self.free[at].0 {
            self.free[at - 1].1 = self.free.remove(at).1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;

    #[test]
    fn memory_is_used_again() {
        let mut memory = Memory { free: Vec::new(), end: 10 };
        let begins: Vec<usize> = [4, 6, 5].map(|len| memory.take(len)).to_vec();
        assert_eq!(begins, [10, 14, 20]);
        memory.give(10, 4);
        assert_eq!(memory.take(5), 25);
        memory.give(14, 6);
        assert_eq!((memory.take(10), memory.end), (10, 30), "two pieces beside each other");
        memory.give(25, 5);
        assert_eq!((memory.take(8), memory.end), (25, 33), "the last piece grows");
        assert_eq!(memory.take(0), 0);
    }
}
