//! A batch over ranks: [`MpiSolver`].

use std::ops::Range;

use sparsebatch_formats::Batch;
use sparsebatch_solvers::{Backend, BatchReport, BatchSolver, SolveOptions, SolveScalar};

use crate::{Failure, Gathered, MpiError, Ranks, cost, described, shares, timed};

/// The analysis of a rank's share of a batch, for repeated solves by all ranks.
///
/// All ranks make it and call its methods together.
pub struct MpiSolver<'a, T> {
    ranks: &'a Ranks,
    solver: BatchSolver<T>,
    nrhs: usize,
}

/// What came out of a solve by all ranks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Solved {
    /// The report of this rank's share.
    pub share: BatchReport,
    /// The report of the whole batch, in the order of the ranks; on rank 0.
    pub whole: Option<BatchReport>,
    /// What each rank did, and the time to gather the report; on rank 0.
    pub gathered: Gathered,
}

impl<'a, T: SolveScalar> MpiSolver<'a, T> {
    /// Analyses the share of this rank, which may be empty. Limits that `options` give per system
    /// are those of the share.
    ///
    /// # Errors
    /// [`MpiError::Unequal`] where options, precision, library or machine differ from those of rank
    /// 0, [`MpiError::Rank`] with the error or panic of a rank whose analysis failed.
    pub fn new(
        ranks: &'a Ranks,
        backend: &Backend,
        share: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, MpiError> {
        ranks.same(&described::<T>(options, backend))?;
        let solver =
            ranks.run(|| BatchSolver::on(backend, share, options).map_err(Failure::from))?;
        Ok(Self { ranks, solver, nrhs: options.nrhs })
    }

    /// Solves the share of every rank; `x` holds the initial guesses of the share on entry and its
    /// solutions on return. Lengths and layout are those of [`BatchSolver::solve`].
    ///
    /// # Errors
    /// [`MpiError::Rank`] with the error or panic of a rank; `x` is then of no use on any rank.
    /// Systems that do not converge are no error.
    pub fn solve(&mut self, share: &Batch<T>, b: &[T], x: &mut [T]) -> Result<Solved, MpiError> {
        let solver = &mut self.solver;
        let own = self.ranks.run(|| solver.solve(share, b, x).map_err(Failure::from))?;
        let mut gathered = self.ranks.gather_report(&own)?;
        Ok(Solved { share: own, whole: gathered.report.take(), gathered })
    }

    /// The shares of all ranks for the next solve of the same systems: by the iterations of each
    /// item in the last one ([`cost`]), and by the time that it took each rank ([`timed`]). Who
    /// holds the data gives each rank its new items, and makes a new solver. Times differ between
    /// runs, and so may shares; solutions do not depend on them.
    ///
    /// # Errors
    /// [`MpiError::Message`] where costs cannot be sent.
    ///
    /// # Panics
    /// When `solved` is not of a solve of `share`.
    pub fn shares_after(
        &self,
        share: &Batch<T>,
        solved: &Solved,
    ) -> Result<Vec<Range<usize>>, MpiError> {
        let of_item = |item: usize| {
            let systems = &solved.share.systems[item * self.nrhs..(item + 1) * self.nrhs];
            let iterations = systems.iter().map(|system| u64::from(system.outcome.iterations));
            let iterations = u32::try_from(iterations.sum::<u64>()).unwrap_or(u32::MAX);
            cost(share.pattern(item).nnz(), iterations)
        };
        let own: Vec<u64> = (0..share.nitems()).map(of_item).collect();
        let own = timed(&own, solved.share.solve_time);
        let all = self.ranks.all_gather(&own)?.concat();
        Ok(shares(&all, self.ranks.size()))
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::Csr;
    use sparsebatch_solvers::Method;

    use super::*;

    #[test]
    fn errors_of_options_are_those_of_the_solver() {
        let ranks = Ranks::alone();
        let batch: Batch<f64> = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![2.0]).unwrap().into();
        let negative = SolveOptions::new().abs_tol(-1.0);

        let error = MpiSolver::new(&ranks, &Backend::Cpu, &batch, &negative).err().unwrap();

        assert_eq!(error.to_string(), "abs_tol is -1, expected a number that is not negative");
    }

    #[test]
    fn shares_follow_the_iterations() {
        let ranks = Ranks::alone();
        let matrix = |d: f64| {
            Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![d, 1.0, 1.0, 2.0 * d]).unwrap()
        };
        let batch: Batch<f64> = [3.0, 2.0].map(matrix).into_iter().collect();
        let options = SolveOptions::new().method(Method::Cg);
        let mut solver = MpiSolver::new(&ranks, &Backend::Cpu, &batch, &options).unwrap();

        let solved = solver.solve(&batch, &[1.0; 4], &mut [0.0; 4]).unwrap();

        let next = solver.shares_after(&batch, &solved).unwrap();
        assert_eq!((next.len(), &next[0]), (1, &(0..2)));
        assert_eq!(solved.whole.as_ref().map(|whole| &whole.systems), Some(&solved.share.systems));
    }
}
