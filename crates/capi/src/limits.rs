//! Tolerances, iteration limits and the active systems of solves.

use std::sync::Arc;

use sparsebatch::{Pattern, PerSystem, SolveOptions};

use crate::batch::{Batch, Patterns};
use crate::status::{Failure, check_len};

/// Limits of solves; `None` for those that stay as they are.
#[derive(Default)]
pub(crate) struct Limits {
    pub(crate) rtol: Option<PerSystem<f64>>,
    pub(crate) atol: Option<PerSystem<f64>>,
    pub(crate) maxiter: Option<PerSystem<u32>>,
}

impl Limits {
    /// The options with these limits.
    pub(crate) fn of(self, mut options: SolveOptions) -> SolveOptions {
        if let Some(rtol) = self.rtol {
            options = options.rel_tol(rtol);
        }
        if let Some(atol) = self.atol {
            options = options.abs_tol(atol);
        }
        if let Some(maxiter) = self.maxiter {
            options = options.max_iters(maxiter);
        }
        options
    }
}

/// Where right-hand sides and solutions have the rows of each system.
pub(crate) struct VectorOrder {
    nitems: usize,
    nrhs: usize,
    rows: Rows,
    interleaved: bool,
}

/// The rows of the items.
enum Rows {
    Equal(usize),
    /// Before each item, and those of all.
    Before(Vec<usize>),
}

impl VectorOrder {
    pub(crate) fn new(batch: &Batch, nrhs: usize, interleaved: bool) -> Self {
        let rows = match &batch.patterns {
            Patterns::Uniform { pattern, .. } => Rows::Equal(pattern.nrows()),
            Patterns::Ragged(patterns) => {
                let mut total = 0;
                let ends = patterns.iter().map(|pattern| {
                    total += pattern.nrows();
                    total
                });
                Rows::Before(std::iter::once(0).chain(ends).collect())
            }
        };
        Self { nitems: batch.patterns.nitems(), nrhs, rows, interleaved }
    }

    /// The number of systems: items times right-hand sides.
    pub(crate) fn nsystems(&self) -> usize {
        self.nitems.saturating_mul(self.nrhs)
    }

    /// The places of the rows of a system.
    fn places(&self, system: usize) -> impl Iterator<Item = usize> + use<> {
        let (item, rhs) = (system / self.nrhs, system % self.nrhs);
        let (before, nrows) = match &self.rows {
            Rows::Equal(nrows) => (item * nrows, *nrows),
            Rows::Before(rows) => (rows[item], rows[item + 1] - rows[item]),
        };
        let (start, stride) = match self.interleaved {
            true => (rhs * nrows * self.nitems + item, self.nitems),
            false => (before * self.nrhs + rhs * nrows, 1),
        };
        (0..nrows).map(move |row| start + row * stride)
    }
}

/// The systems that a solve leaves out, at least one, ascending.
#[derive(Clone)]
pub(crate) struct Inactive {
    systems: Arc<[usize]>,
    order: Arc<VectorOrder>,
}

impl Inactive {
    /// From an array with one element for each system, 0 for those that are left out; `None` where
    /// there are none.
    pub(crate) fn new(order: &Arc<VectorOrder>, active: &[u8]) -> Result<Option<Self>, Failure> {
        check_len("active", order.nsystems(), active.len())?;
        if let Some(&other) = active.iter().find(|&&flag| flag > 1) {
            return Err(Failure::argument(format!("active has a {other}, expected 0 and 1")));
        }
        let systems: Arc<[usize]> =
            (0..active.len()).filter(|&system| active[system] == 0).collect();
        let order = Arc::clone(order);
        Ok((!systems.is_empty()).then_some(Self { systems, order }))
    }

    pub(crate) fn systems(&self) -> &[usize] {
        &self.systems
    }

    /// The same list, to keep.
    pub(crate) fn list(&self) -> Arc<[usize]> {
        Arc::clone(&self.systems)
    }

    /// The options with an infinite tolerance of these systems, which ends them before their first
    /// iteration.
    pub(crate) fn of(&self, options: SolveOptions) -> SolveOptions {
        let mut each = match &options.abs_tol {
            PerSystem::All(tolerance) => vec![*tolerance; self.order.nsystems()],
            PerSystem::Each(each) => each.clone(),
        };
        self.systems.iter().for_each(|&system| each[system] = f64::INFINITY);
        options.abs_tol(each)
    }

    /// Calls `solve`, and gives these systems the x that they had: a solve sets that of a
    /// right-hand side of zeros to 0, and a guess that is not finite.
    pub(crate) fn keeping<T: Copy, R>(&self, x: &mut [T], solve: impl FnOnce(&mut [T]) -> R) -> R {
        let places = || self.systems.iter().flat_map(|&system| self.order.places(system));
        let kept: Vec<T> = places().map(|place| x[place]).collect();
        let solved = solve(x);
        places().zip(kept).for_each(|(place, value)| x[place] = value);
        solved
    }

    /// Gives these systems the x of another array.
    pub(crate) fn take_from<T: Copy>(&self, other: &[T], x: &mut [T]) {
        let places = self.systems.iter().flat_map(|&system| self.order.places(system));
        places.for_each(|place| x[place] = other[place]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(rows: Rows, nitems: usize, nrhs: usize, interleaved: bool) -> VectorOrder {
        VectorOrder { nitems, nrhs, rows, interleaved }
    }

    #[test]
    fn places_of_systems_follow_the_order_of_vectors() {
        let places = |order: &VectorOrder, system| order.places(system).collect::<Vec<_>>();
        let item_major = order(Rows::Equal(2), 3, 2, false);
        assert_eq!(places(&item_major, 3), [6, 7]);
        let interleaved = order(Rows::Equal(2), 3, 2, true);
        assert_eq!(places(&interleaved, 3), [7, 10]);
        let ragged = order(Rows::Before(vec![0, 1, 4]), 2, 2, false);
        assert_eq!(places(&ragged, 1), [1]);
        assert_eq!(places(&ragged, 3), [5, 6, 7]);
    }

    #[test]
    fn inactive_systems_keep_their_x() {
        let order = Arc::new(order(Rows::Equal(2), 2, 1, true));
        let inactive = Inactive::new(&order, &[1, 0]).unwrap().unwrap();
        let mut x = [1, 2, 3, 4];
        inactive.keeping(&mut x, |x| x.fill(0));
        assert_eq!(x, [0, 2, 0, 4]);
        inactive.take_from(&[5, 6, 7, 8], &mut x);
        assert_eq!(x, [0, 6, 0, 8]);
        assert!(Inactive::new(&order, &[1, 1]).unwrap().is_none());
        assert!(Inactive::new(&order, &[1]).is_err() && Inactive::new(&order, &[1, 2]).is_err());
    }
}
