//! Solves with matrices that a solver keeps: [`BatchSolver::factor`] and
//! [`BatchSolver::solve_again`].

use std::time::Instant;

use sparsebatch_cpu_ref::check_threads;
use sparsebatch_cuda::GpuError;
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solve_core::{Criteria, Status, check_len};

use crate::adjoint::TransposedBatch;
use crate::backend::KeptFactors;
use crate::error::{go_on, stopped};
use crate::ladder::{HostSystems, Ladder};
use crate::report::{BatchReport, RungRun, SystemReport};
use crate::share::systems_of;
use crate::solver::{drop_lost, reports};
use crate::{BatchSolver, SolveError, SolveScalar};

/// The matrices that a solver keeps for [`BatchSolver::solve_again`].
#[derive(Default)]
pub(crate) enum Matrices<T> {
    /// Nothing.
    #[default]
    None,
    /// The engine keeps factors and values; the total number of rows of the batch.
    Factored(usize),
    /// A copy of the matrices, for engines that keep no factors.
    Copied(Batch<T>),
}

/// The matrices of a solve: those that are kept, or their transposed ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Plain,
    Transposed,
}

/// A solver of the transposed matrices of another solver.
pub(crate) struct Adjoint<T> {
    pub(crate) solver: BatchSolver<T>,
    transposed: TransposedBatch<T>,
    /// Whether it has the values of the kept matrices.
    is_current: bool,
}

impl<T: SolveScalar> BatchSolver<T> {
    /// Whether [`BatchSolver::factor`] keeps factors: with the fused sparse LU on the CPU; on a GPU
    /// with the sparse LU and with preconditioners that have factors, where the whole batch is there
    /// at once.
    ///
    /// Otherwise a copy of the matrices is kept, and each solve prepares them again. A caller that
    /// still has the batch saves the copy with [`BatchSolver::solve`].
    ///
    /// After a call of [`BatchSolver::factor`] it says what that call kept.
    pub fn keeps_factors(&self) -> bool {
        match self.matrices {
            Matrices::None => self.keeps_factors,
            Matrices::Factored(_) => true,
            Matrices::Copied(_) => false,
        }
    }

    /// Keeps the matrices of a batch for [`BatchSolver::solve_again`], in place of those of the
    /// last call. Matrices that several solves share, as the stages of a time step do, are then
    /// factorised once.
    ///
    /// `batch` is the one that was analysed, or one with the same patterns and other values. Later
    /// changes of the batch, and solves of other batches, do not change the kept matrices. Memory:
    /// for each item the entries of L, U and A where factors are
    /// [kept](BatchSolver::keeps_factors), else the entries of A. An item whose factorisation fails
    /// is no error: its solves end with a status, or go to later rungs.
    ///
    /// # Errors
    /// [`SolveError::Argument`] for another number of items. [`SolveError::Cpu`] for other patterns
    /// than those analysed; a solver that keeps no factors reports them at the next solve instead.
    /// After an error nothing is kept.
    ///
    /// # Examples
    /// ```
    /// use sparsebatch_formats::{Batch, Csr};
    /// use sparsebatch_solvers::{BatchSolver, Method, SolveOptions};
    /// // [2 1; 0 4]
    /// let a = Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![2.0, 1.0, 4.0])?;
    /// let batch = Batch::from(a);
    /// let options = SolveOptions::new().method(Method::Lu);
    /// let mut solver = BatchSolver::new(&batch, &options)?;
    /// solver.factor(&batch)?;
    /// for b in [[3.0, 4.0], [2.0, 0.0]] {
    ///     let mut x = [0.0; 2];
    ///     assert!(solver.solve_again(&b, &mut x)?.all_converged());
    ///     assert_eq!(x, [1.0, b[1] / 4.0]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn factor(&mut self, batch: &Batch<T>) -> Result<(), SolveError> {
        T::factor(self, batch)
    }

    /// [`BatchSolver::factor`], compiled where it is called.
    pub(crate) fn factor_here(&mut self, batch: &Batch<T>) -> Result<(), SolveError> {
        check_threads()?;
        self.matrices = Matrices::None;
        if let Some(adjoint) = &mut self.adjoint {
            adjoint.is_current = false;
        }
        check_len("items of the batch", self.nitems, batch.nitems())?;
        self.matrices = match self.kept_factors() {
            Some(factors) => match factors.factor(batch) {
                // They are too large to keep.
                Err(
                    SolveError::Unsupported { .. } | SolveError::Gpu(GpuError::OutOfMemory { .. }),
                ) => Matrices::Copied(batch.with_own_values()),
                factored => {
                    factored?;
                    Matrices::Factored(batch.row_offset(self.nitems))
                }
            },
            None => Matrices::Copied(batch.with_own_values()),
        };
        Ok(())
    }

    /// Solves every system with the matrices of the last [`BatchSolver::factor`]; `x` holds the
    /// initial guesses on entry and the solutions on return.
    ///
    /// Solutions and reports equal those of [`BatchSolver::solve`] with these matrices bit for bit,
    /// except for the times, which do not include the factorisation; on a GPU last bits may differ, as
    /// residuals are summed in another order. Matrices and factors stay on the GPU.
    ///
    /// # Errors
    /// [`SolveError::NotFactored`] when no matrices are kept, else those of [`BatchSolver::solve`].
    pub fn solve_again(&mut self, b: &[T], x: &mut [T]) -> Result<BatchReport, SolveError> {
        T::solve_again(self, b, x)
    }

    /// [`BatchSolver::solve_again`], compiled where it is called.
    pub(crate) fn solve_again_here(
        &mut self,
        b: &[T],
        x: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        match std::mem::take(&mut self.matrices) {
            Matrices::None => Err(SolveError::NotFactored),
            Matrices::Factored(rows) => {
                self.matrices = Matrices::Factored(rows);
                let report = self.solve_factored(Side::Plain, rows, b, x);
                let report = report.and_then(|report| report.ok_or(SolveError::NotFactored));
                stopped(&self.options.watch, report)
            }
            Matrices::Copied(batch) => {
                let report = self.solve_here(&batch, b, x);
                self.matrices = Matrices::Copied(batch);
                report
            }
        }
    }

    /// Solves `A_i^T lambda_i = g_i` for every system with the matrices of the last
    /// [`BatchSolver::factor`], as the gradient of a loss needs it; `lambda` holds the initial
    /// guesses on entry and the solutions on return.
    ///
    /// The kept factors of the sparse LU serve `A` and `A^T`, on the CPU and, where one launch of a
    /// GPU factorises a system on chip, there. Elsewhere the first call after
    /// [`BatchSolver::factor`] analyses the transposed matrices and keeps them, as an
    /// [`AdjointSolver`](crate::AdjointSolver) does.
    ///
    /// # Errors
    /// Those of [`BatchSolver::solve_again`], and of [`BatchSolver::on`] where the transposed
    /// matrices are analysed.
    ///
    /// # Examples
    /// ```
    /// use sparsebatch_formats::{Batch, Csr};
    /// use sparsebatch_solvers::{BatchSolver, Method, SolveOptions};
    /// // [2 1; 0 4]
    /// let a = Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![2.0, 1.0, 4.0])?;
    /// let batch = Batch::from(a);
    /// let mut solver = BatchSolver::new(&batch, &SolveOptions::new().method(Method::Lu))?;
    /// solver.factor(&batch)?;
    /// let (mut x, mut lambda) = ([0.0; 2], [0.0; 2]);
    /// solver.solve_again(&[4.0, 4.0], &mut x)?;
    /// assert!(solver.solve_transposed_again(&[1.0, 0.0], &mut lambda)?.all_converged());
    /// assert_eq!((x, lambda), ([1.5, 1.0], [0.5, -0.125]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn solve_transposed_again(
        &mut self,
        g: &[T],
        lambda: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        T::solve_transposed_again(self, g, lambda)
    }

    /// [`BatchSolver::solve_transposed_again`], compiled where it is called.
    pub(crate) fn solve_transposed_again_here(
        &mut self,
        g: &[T],
        lambda: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        check_threads()?;
        if let Matrices::Factored(rows) = self.matrices {
            let report = self.solve_factored(Side::Transposed, rows, g, lambda);
            if let Some(report) = stopped(&self.options.watch, report)? {
                return Ok(report);
            }
        }
        let mut adjoint = self.adjoint.take();
        let solved = self.current_adjoint(&mut adjoint).and_then(|adjoint| {
            let Adjoint { solver, transposed, .. } = adjoint;
            match solver.keeps_factors() {
                true => solver.solve_again(g, lambda),
                false => solver.solve(transposed.batch(), g, lambda),
            }
        });
        self.adjoint = adjoint;
        solved
    }

    /// Solves the systems of a batch whose matrices are near to those of the last
    /// [`BatchSolver::factor`], as between the iterations of Newton's method; `x` holds the initial
    /// guesses on entry and the solutions on return.
    ///
    /// The kept factors of the sparse LU refine with the residuals of the new matrices, up to
    /// [`SolveOptions::max_restarts`](crate::SolveOptions::max_restarts) times; on a GPU kept
    /// factors of a preconditioner precondition the new matrices. Systems that do not converge so
    /// are solved as by [`BatchSolver::solve`], with factors of their own, from the better of guess
    /// and iterate. Where no factors are kept that can do either, all systems are. The kept
    /// matrices stay as they are.
    ///
    /// # Errors
    /// Those of [`BatchSolver::solve`].
    ///
    /// # Examples
    /// ```
    /// use sparsebatch_formats::{Batch, Csr};
    /// use sparsebatch_solvers::{BatchSolver, Method, SolveOptions};
    /// let matrix = |a: f64| Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![a, 1.0, 4.0]);
    /// let (then, now) = (Batch::from(matrix(2.0)?), Batch::from(matrix(2.001)?));
    /// let mut solver = BatchSolver::new(&then, &SolveOptions::new().method(Method::Lu))?;
    /// solver.factor(&then)?;
    /// let mut x = [0.0; 2];
    /// assert!(solver.solve_near(&now, &[3.001, 4.0], &mut x)?.all_converged());
    /// assert!((x[0] - 1.0).abs() < 1e-9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn solve_near(
        &mut self,
        batch: &Batch<T>,
        b: &[T],
        x: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        T::solve_near(self, batch, b, x)
    }

    /// [`BatchSolver::solve_near`], compiled where it is called.
    pub(crate) fn solve_near_here(
        &mut self,
        batch: &Batch<T>,
        b: &[T],
        x: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        let by_kept = matches!(self.matrices, Matrices::Factored(_));
        let report = self.solve_watched(batch, b, x, by_kept);
        stopped(&self.options.watch, report)
    }

    /// The solver of the transposed matrices, with the values of the kept ones.
    fn current_adjoint<'a>(
        &mut self,
        adjoint: &'a mut Option<Box<Adjoint<T>>>,
    ) -> Result<&'a mut Adjoint<T>, SolveError> {
        let batch = match &self.matrices {
            Matrices::None => return Err(SolveError::NotFactored),
            Matrices::Copied(batch) => batch,
            // The engine has them.
            Matrices::Factored(_) => {
                let [share] = self.shares.as_mut_slice() else {
                    return Err(SolveError::NotFactored);
                };
                let factors = share.engine.kept_factors().map(|factors| &*factors);
                factors.and_then(KeptFactors::batch).ok_or(SolveError::NotFactored)?
            }
        };
        let adjoint = match adjoint {
            Some(adjoint) => {
                if !adjoint.is_current {
                    adjoint.transposed.follow(batch);
                }
                adjoint
            }
            None => {
                let transposed = TransposedBatch::new(batch);
                let backend = self.backend.with_options(&self.options);
                let solver =
                    BatchSolver::analyse(backend, transposed.batch(), None, &self.options)?;
                adjoint.insert(Box::new(Adjoint { solver, transposed, is_current: false }))
            }
        };
        if !adjoint.is_current && adjoint.solver.kept_factors().is_some() {
            adjoint.solver.factor(adjoint.transposed.batch())?;
        }
        adjoint.is_current = true;
        Ok(adjoint)
    }

    /// Solves with the kept factors; `None` where they do not serve this side.
    fn solve_factored(
        &mut self,
        side: Side,
        rows: usize,
        b: &[T],
        x: &mut [T],
    ) -> Result<Option<BatchReport>, SolveError> {
        let nrhs = self.options.nrhs;
        check_threads()?;
        // The numbers of systems and of rows were checked with the patterns.
        check_len("b", rows * nrhs, b.len())?;
        check_len("x0", b.len(), x.len())?;
        let criteria = self.options.criteria::<T>(self.nitems * nrhs)?;
        if self.first[0].is_direct() {
            drop_lost(x);
        }
        if let Some(watch) = &criteria.watch {
            watch.begin(self.nitems * nrhs);
        }
        let start = Instant::now();
        let factors = self.kept_factors().ok_or(SolveError::NotFactored)?;
        go_on(&criteria.watch)?;
        let outcomes = match side {
            Side::Plain => factors.solve_again(nrhs, b, x, &criteria)?,
            Side::Transposed => match factors.solve_transposed_again(nrhs, b, x, &criteria)? {
                Some(outcomes) => outcomes,
                None => return Ok(None),
            },
        };
        go_on(&criteria.watch)?;
        let mut systems = reports(outcomes.into_iter().map(Some).collect());
        let mut later = Vec::new();
        if self.climbs() {
            later = self.climb_again(side, b, x, &mut systems, &criteria)?;
        }
        self.finish(systems, later, start).map(Some)
    }

    /// Runs the ladder on the items with unsolved systems, copied into a batch of their own.
    fn climb_again(
        &mut self,
        side: Side,
        b: &[T],
        x: &mut [T],
        systems: &mut [SystemReport],
        criteria: &Criteria,
    ) -> Result<Vec<RungRun>, SolveError> {
        let nrhs = self.options.nrhs;
        // Without the ladder static pivoting is the only later rung.
        let failed = |systems: &[SystemReport]| {
            systems.iter().any(|system| match system.outcome.status {
                Status::Converged => false,
                status => self.options.fallback || status == Status::ZeroPivot,
            })
        };
        let items: Vec<usize> = systems
            .chunks(nrhs)
            .enumerate()
            .filter_map(|(item, systems)| failed(systems).then_some(item))
            .collect();
        let Some(factors) = self.kept_factors().filter(|_| !items.is_empty()) else {
            return Ok(Vec::new());
        };
        let (matrices, rows): (Vec<Csr<T>>, Vec<_>) =
            items.iter().filter_map(|&item| factors.item(item)).unzip();
        let parts = || rows.iter().map(|rows| rows.start * nrhs..rows.end * nrhs);
        let places = systems_of(&items, nrhs);

        let mut some_systems: Vec<_> = places.iter().map(|&s| systems[s].clone()).collect();
        let some_b: Vec<T> = parts().flat_map(|part| &b[part]).copied().collect();
        let mut some_x: Vec<T> = parts().flat_map(|part| &x[part]).copied().collect();
        // Plans of rungs hold the limits of their systems.
        let options = self.options.for_systems(&places);
        let backend = self.backend.with_options(&options);
        let plain: Batch<T> = matrices.into_iter().collect();
        let transposed = (side == Side::Transposed).then(|| TransposedBatch::new(&plain));
        let mut site = HostSystems {
            backend: &*backend,
            batch: transposed.as_ref().map_or(&plain, TransposedBatch::batch),
            options: &options,
            criteria: &criteria.pick(&places),
            b: &some_b,
            x: &mut some_x,
            trial: &mut Vec::new(),
            kept: &mut Vec::new(),
        };
        let ladder = Ladder { options: &options, first: &self.first[..1] };
        let runs = ladder.climb(&mut site, &mut some_systems)?;
        for (system, report) in places.into_iter().zip(some_systems) {
            systems[system] = report;
        }
        let mut solved = some_x.as_slice();
        for part in parts() {
            let (this, rest) = solved.split_at(part.len());
            x[part].copy_from_slice(this);
            solved = rest;
        }
        Ok(runs)
    }
}
