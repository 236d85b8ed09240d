//! Systems that the GPU leaves to the CPU once it has tried them.
//!
//! Dense elimination leaves what it cannot solve: the CPU's LU with partial pivoting scales columns
//! too, refines with residuals in twofold precision, and tells singular matrices from others. CG
//! and BiCGStab leave systems that fail because squares of products with their matrix leave the
//! range of the working precision: the CPU iterates on the matrix scaled by a power of two, so that
//! a matrix and its multiples by powers of two end alike.

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::verdict::{frobenius_norm, scale_by_norm};
use sparsebatch_solve_core::{Criteria, Outcome, Scheme, Status};

use super::Analysed;
use crate::SolveError;
use crate::backend::{CpuBackend, Placement, SolveBackend};
use crate::each::map_each;
use crate::report::{Machine, Rung};
use crate::share::{items_of, rows_of, shares_values};

impl<E, T> Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    /// Solves on the CPU what the GPU leaves. `b` and the initial guesses (0 where absent) are
    /// those of the whole batch; `x` and `outcomes` hold what the GPU has reached.
    pub(super) fn solve_left(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        (b, guesses): (&[T], Option<&[T]>),
        x: &mut [T],
        criteria: &Criteria,
        outcomes: &mut [Option<Outcome>],
    ) -> Result<(), SolveError> {
        let left = self.left(batch, nrhs, outcomes);
        self.left_to_cpu = left.len();
        if left.is_empty() {
            return Ok(());
        }
        for &system in &left {
            let rows = rows_of(batch, nrhs, system);
            match guesses {
                Some(guesses) => x[rows.clone()].copy_from_slice(&guesses[rows]),
                None => x[rows].fill(T::ZERO),
            }
        }
        let items = items_of(&left, nrhs);
        let mut cpu = CpuBackend.analyse(batch, (self.rung(), self.scheme), Some(&items))?;
        let solved = cpu.solve(batch, nrhs, b, x, criteria, Some(&left))?;
        for (system, outcome) in left.into_iter().zip(solved) {
            outcomes[system] = Some(outcome);
        }
        Ok(())
    }

    fn rung(&self) -> Rung {
        if self.scheme == Scheme::PivotingLu { Rung::PivotingLu } else { Rung::First }
    }

    /// The systems that the GPU tried and that are the CPU's, ascending.
    fn left(&self, batch: &Batch<T>, nrhs: usize, outcomes: &[Option<Outcome>]) -> Vec<usize> {
        let cpu = self.cpu.as_ref();
        let is_on_cpu = |system: usize| cpu.is_some_and(|cpu| cpu.is_here[system / nrhs]);
        let failed = (0..outcomes.len()).into_par_iter().with_min_len(1 << 14).filter(|&system| {
            let outcome = outcomes[system].as_ref();
            outcome.is_some_and(|o| o.status != Status::Converged) && !is_on_cpu(system)
        });
        if self.scheme == Scheme::PivotingLu {
            return failed.collect();
        }
        if self.scheme.krylov().is_none() {
            return Vec::new();
        }
        OutOfRange::new(batch).among(failed.collect(), |system| system / nrhs)
    }

    /// Names the CPU where it solved what the GPU left.
    pub(super) fn with_left(&self, placement: Placement) -> Placement {
        if self.left_to_cpu == 0 {
            return placement;
        }
        let is_dense = self.scheme == Scheme::PivotingLu;
        let (kernel, whose) = match is_dense {
            true => ("pivoting-lu", "that dense elimination left unsolved"),
            false => {
                ("lanes", "of matrices whose squares leave the range of the working precision")
            }
        };
        let cpu = CpuBackend::placement(kernel.to_owned());
        let left = format!("{} systems {whose}", self.left_to_cpu);
        Placement {
            backend: Machine::GpuAndCpu,
            device: format!("{}; {}", placement.device, cpu.device),
            kernel: format!("{}; {}", placement.kernel, cpu.kernel),
            cpu_reason: Some(match placement.cpu_reason {
                Some(reason) => format!("{reason}; {left}"),
                None => left,
            }),
            ..placement
        }
    }
}

/// The items whose matrices the iterations of the CPU scale.
pub(crate) struct OutOfRange<'a, T> {
    batch: &'a Batch<T>,
    /// The answer for all items where they share their values.
    shared: Option<bool>,
}

impl<'a, T: CpuScalar> OutOfRange<'a, T> {
    pub(crate) fn new(batch: &'a Batch<T>) -> Self {
        let shared = shares_values(batch) && batch.nitems() > 0;
        let mut this = Self { batch, shared: None };
        this.shared = shared.then(|| this.contains(0));
        this
    }

    /// Those of some systems whose items are among them, in their order. `item` gives the item of a
    /// system.
    pub(crate) fn among(
        &self,
        systems: Vec<usize>,
        item: impl Fn(usize) -> usize + Sync,
    ) -> Vec<usize> {
        let among = |system: usize| self.contains(item(system)).then_some(system);
        map_each(systems, among).into_iter().flatten().collect()
    }

    /// Whether an item is one of them.
    fn contains(&self, item: usize) -> bool {
        self.shared.unwrap_or_else(|| {
            let mut copy = Vec::new();
            let values = self.batch.values_in(item, &mut copy);
            scale_by_norm(frobenius_norm(values), values) != 0
        })
    }
}
