//! Elimination on a pattern as tasks in levels: what can be computed at the same time.

use std::ops::Range;

use sparsebatch_cpu_ref::symbolic::{FactorPattern, NO_SOURCE};
use sparsebatch_formats::CsrPatternRef;

/// No place: the task has no factor, or the lane no task.
pub(in crate::gpu) const NONE: u32 = 0xffff;

/// Where the values of a system are during its solve: U row by row, L column by column, a vector in
/// the order of elimination, x in that of the matrix, and a 0.
///
/// What the lanes of a warp do at the same time stands side by side: a row of U or a column of L.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The place of each entry of the pattern.
    pub(super) entries: Vec<u32>,
    /// The first place of the right-hand side, which becomes the solution.
    pub(super) y: u32,
    /// The first place of x.
    pub(super) x: u32,
    /// How many there are.
    pub(super) len: usize,
}

impl Places {
    /// The number of places for a pattern of so many entries and rows. The last one is the 0 of
    /// padding.
    pub(super) fn count(nnz: usize, nrows: usize) -> usize {
        nnz + 2 * nrows + 1
    }

    pub(super) fn new(pattern: &FactorPattern) -> Self {
        let (nnz, nrows) = (pattern.nnz(), pattern.nrows());
        let mut entries = vec![0; nnz];
        let mut next = 0..;
        for row in 0..nrows {
            let upper = pattern.diag()[row] as usize..pattern.upper(row).end;
            entries[upper].iter_mut().zip(&mut next).for_each(|(entry, place)| *entry = place);
        }
        let mut lower: Vec<(u32, usize)> =
            (0..nrows).flat_map(|row| pattern.lower(row).map(|k| (pattern.cols()[k], k))).collect();
        lower.sort_unstable();
        for ((_, k), place) in lower.into_iter().zip(next) {
            entries[k] = place;
        }
        let y = nnz as u32;
        Self { entries, y, x: y + nrows as u32, len: Self::count(nnz, nrows) }
    }
}

/// `value[place] -= sum of left * right over the pairs`, then times `value[factor]`; inverted where
/// factor and place are one. In products with A, whose left operands are entries of A, `place` gets
/// `b[factor] - sum`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gpu) struct Task {
    pub(in crate::gpu) place: u32,
    pub(in crate::gpu) factor: u32,
    /// Its pairs among [`Tasks::pairs`].
    pub(in crate::gpu) pairs: Range<usize>,
    /// Counted from 0; it needs results of lower levels only.
    pub(in crate::gpu) level: u32,
}

/// Tasks, and the operands of their products.
#[derive(Clone, Debug, Default)]
pub(in crate::gpu) struct Tasks {
    pub(in crate::gpu) tasks: Vec<Task>,
    /// Left operand in the low 16 bits, right one in the high ones.
    pub(in crate::gpu) pairs: Vec<u32>,
}

/// Builds tasks in an order that makes operands first, and finds their levels.
struct Builder {
    tasks: Tasks,
    /// One more than the level of the task that last wrote a place; 0 where none did.
    ready: Vec<u32>,
    /// One more than the highest level of the tasks that read a place as right operand.
    read: Vec<u32>,
}

impl Builder {
    fn new(places: usize) -> Self {
        Self { tasks: Tasks::default(), ready: vec![0; places], read: vec![0; places] }
    }

    /// Whether a factor is made after the operands of a sum.
    fn waits(&self, factor: u32, pairs: &[(u32, u32)]) -> bool {
        let ready = |place: u32| self.ready[place as usize];
        pairs.iter().all(|&(left, right)| ready(left).max(ready(right)) < ready(factor))
    }

    fn push(&mut self, place: u32, factor: u32, pairs: impl Iterator<Item = (u32, u32)>) {
        let first = self.tasks.pairs.len();
        // What others still read is not overwritten.
        let mut level = self.ready[place as usize].max(self.read[place as usize]);
        if factor != NONE {
            level = level.max(self.ready[factor as usize]);
        }
        for (left, right) in pairs {
            level = level.max(self.ready[left as usize]).max(self.ready[right as usize]);
            self.tasks.pairs.push(left | right << 16);
        }
        let pairs = first..self.tasks.pairs.len();
        if pairs.is_empty() && factor == NONE {
            return;
        }
        for pair in &self.tasks.pairs[pairs.clone()] {
            let read = &mut self.read[(pair >> 16) as usize];
            *read = (*read).max(level + 1);
        }
        self.ready[place as usize] = level + 1;
        self.tasks.tasks.push(Task { place, factor, pairs, level });
    }
}

/// Sums of so many products are not made a task apart from the multiplication after them.
const FEW: usize = 2;

/// The solve with factors on a pattern, and their computation before it where `factorise` holds.
///
/// Each entry of L + U is one sum (Crout, inner products): `a_ij - sum of l_ik u_kj over k <
/// min(i, j)`, for L times the inverse of the pivot, which is kept in the pivot's place. Pairs that
/// the pattern lacks are left out, so that ILU(0) is made by its own pattern. The right-hand side is
/// one more column: forward substitution goes along with the factorisation.
pub(super) fn elimination(pattern: &FactorPattern, places: &Places, factorise: bool) -> Tasks {
    let nrows = pattern.nrows();
    let mut builder = Builder::new(places.len);
    let mut in_row = vec![usize::MAX; nrows];
    let mut products: Vec<Vec<(u32, u32)>> = Vec::new();
    for row in 0..nrows {
        let entries = pattern.lower(row).start..pattern.upper(row).end;
        if factorise {
            for (position, k) in entries.clone().enumerate() {
                in_row[pattern.cols()[k] as usize] = position;
            }
            products.clear();
            products.resize(entries.len(), Vec::new());
            for k in pattern.lower(row) {
                for other in pattern.upper(pattern.cols()[k] as usize) {
                    let position = in_row[pattern.cols()[other] as usize];
                    if position != usize::MAX {
                        products[position].push((places.entries[k], places.entries[other]));
                    }
                }
            }
            for (own, k) in products.iter_mut().zip(entries.clone()) {
                let col = pattern.cols()[k] as usize;
                let factor =
                    if col <= row { places.entries[pattern.diag()[col] as usize] } else { NONE };
                let place = places.entries[k];
                // A sum need not wait for the pivot that it is multiplied with.
                if col < row && own.len() > FEW && builder.waits(factor, own) {
                    builder.push(place, NONE, own.drain(..));
                    builder.push(place, factor, std::iter::empty());
                } else {
                    builder.push(place, factor, own.drain(..));
                }
            }
            for k in entries {
                in_row[pattern.cols()[k] as usize] = usize::MAX;
            }
        }
        let known = pattern.lower(row).map(|k| (places.entries[k], places.y + pattern.cols()[k]));
        builder.push(places.y + row as u32, NONE, known);
    }
    for row in (0..nrows).rev() {
        let known = pattern.upper(row).map(|k| (places.entries[k], places.y + pattern.cols()[k]));
        let pivot = places.entries[pattern.diag()[row] as usize];
        builder.push(places.y + row as u32, pivot, known);
    }
    builder.tasks
}

/// `b - A x` for every row of A.
pub(super) fn residual(a: CsrPatternRef<'_>, pattern: &FactorPattern, places: &Places) -> Tasks {
    let mut tasks = Tasks::default();
    for (position, &row) in pattern.perm().iter().enumerate() {
        let first = tasks.pairs.len();
        let entries = a.row(row as usize);
        tasks.pairs.extend(entries.map(|k| k as u32 | (places.x + a.col_idx()[k] as u32) << 16));
        tasks.tasks.push(Task {
            place: places.y + position as u32,
            factor: row,
            pairs: first..tasks.pairs.len(),
            level: 0,
        });
    }
    tasks
}

/// The place of each entry of A, then the places of the other entries of the pattern.
pub(super) fn targets(pattern: &FactorPattern, places: &Places, nnz: usize) -> Vec<u16> {
    let mut targets = vec![0; nnz];
    for (&source, &place) in pattern.source().iter().zip(&places.entries) {
        if source == NO_SOURCE {
            targets.push(place as u16);
        } else {
            targets[source as usize] = place as u16;
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    /// [1 2 .; 3 4 5; . 6 7], in natural order.
    fn chain() -> (CsrPattern, FactorPattern) {
        let a = CsrPattern::try_new(3, 3, vec![0, 2, 5, 7], vec![0, 1, 0, 1, 2, 1, 2]).unwrap();
        let factors = FactorPattern::lu(a.view(), None, 9).unwrap();
        (a, factors)
    }

    /// Works through tasks as they stand, checking that operands are of lower levels.
    fn work(tasks: &Tasks, values: &mut [f64]) {
        let mut level = vec![0; values.len()];
        for task in &tasks.tasks {
            let mut value = values[task.place as usize];
            for pair in &tasks.pairs[task.pairs.clone()] {
                let (left, right) = ((pair & 0xffff) as usize, (pair >> 16) as usize);
                assert!(level[left] <= task.level && level[right] <= task.level);
                value -= values[left] * values[right];
            }
            if task.factor == task.place {
                value = 1.0 / value;
            } else if task.factor != NONE {
                assert!(level[task.factor as usize] <= task.level);
                value *= values[task.factor as usize];
            }
            values[task.place as usize] = value;
            level[task.place as usize] = task.level + 1;
        }
    }

    #[test]
    fn rows_of_u_and_columns_of_l_stand_together() {
        let places = Places::new(&chain().1);

        // u00 u01, l10 u11 u12, l21 u22.
        assert_eq!(places.entries, [0, 1, 5, 2, 3, 6, 4]);
        assert_eq!((places.y, places.x, places.len), (7, 10, 14));
    }

    #[test]
    fn tasks_factor_and_solve() {
        let (a, pattern) = chain();
        let places = Places::new(&pattern);
        let mut values = vec![0.0; places.len];
        for (k, &place) in targets(&pattern, &places, 7).iter().enumerate() {
            values[place as usize] = [4.0, 1.0, 2.0, 5.0, 1.0, 3.0, 6.0][k];
        }
        // b of x = (1, 2, 3).
        values[7..10].copy_from_slice(&[6.0, 15.0, 24.0]);

        work(&elimination(&pattern, &places, true), &mut values);

        let close = |values: &[f64]| {
            values[7..10].iter().zip([1.0, 2.0, 3.0]).all(|(x, y)| (x - y).abs() < 1e-14)
        };
        assert!(close(&values), "{values:?}");
        // Again with the factors that are there; and b - A x of the result.
        values[7..10].copy_from_slice(&[6.0, 15.0, 24.0]);
        work(&elimination(&pattern, &places, false), &mut values);
        assert!(close(&values), "{values:?}");
        let products = residual(a.view(), &pattern, &places);
        assert_eq!(
            products.pairs,
            [
                10 << 16,
                11 << 16 | 1,
                10 << 16 | 2,
                11 << 16 | 3,
                12 << 16 | 4,
                11 << 16 | 5,
                12 << 16 | 6
            ]
        );
    }

    #[test]
    fn independent_work_shares_levels() {
        let a = CsrPattern::try_new(3, 3, vec![0, 1, 2, 3], vec![0, 1, 2]).unwrap();
        let pattern = FactorPattern::lu(a.view(), None, 9).unwrap();

        let tasks = elimination(&pattern, &Places::new(&pattern), true);

        // An inverse and a multiplication each.
        let levels: Vec<u32> = tasks.tasks.iter().map(|task| task.level).collect();
        assert_eq!(levels, [0, 0, 0, 1, 1, 1]);
    }

    /// What another row still reads of the right-hand side is not overwritten by the solution.
    #[test]
    fn unsymmetric_patterns_keep_what_is_read() {
        // Row 1 reads y0; x0 needs nothing of row 1.
        let a = CsrPattern::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1]).unwrap();
        let pattern = FactorPattern::lu(a.view(), None, 9).unwrap();
        let places = Places::new(&pattern);

        let tasks = elimination(&pattern, &places, false);

        let level = |place| tasks.tasks.iter().rfind(|task| task.place == place).unwrap().level;
        assert_eq!((level(places.y), level(places.y + 1)), (1, 1));
    }
}
