//! A batch whose items lie on several GPUs: [`DeviceSolvers`].

use sparsebatch_formats::Batch;
use sparsebatch_solve_core::{ArgumentError, check_len};

use super::{DeviceReport, DeviceSolver};
use crate::backend::Teams;
use crate::gpu::Guess;
use crate::report::GpuRun;
use crate::{GpuExecutor, SolveError, SolveOptions, SolveScalar};

/// Solves a batch whose items lie on several GPUs of one process: a [`DeviceSolver`] for the items
/// of each GPU, all at once, and one report.
///
/// The parts are consecutive items of the batch, in the order of the GPUs. Every GPU plans for the
/// same model, the least of theirs, so that solutions have the bits of one such GPU that holds all
/// items. The GPUs solve side by side: each has threads of its own while a solve is completed.
///
/// For a batch in the memory of the host use [`Backend::gpus`](crate::Backend::gpus), which also
/// goes on when a GPU is lost. Here the items of a lost GPU are lost with it: the call ends with its
/// error, and the other GPUs complete their solves.
///
/// # Examples
/// ```no_run
/// use sparsebatch_cuda::{Device, Executor};
/// use sparsebatch_formats::generate::{Family, Problem};
/// use sparsebatch_solvers::gpu::Guess;
/// use sparsebatch_solvers::{DeviceArrays, DeviceSolvers, SolveOptions};
///
/// let gpus = [Device::new(0)?, Device::new(1)?];
/// let systems = Problem::new(Family::Tri, 32)?.batch(1000)?;
/// let parts = [(&gpus[0], &systems.batch), (&gpus[1], &systems.batch)];
/// let mut solvers = DeviceSolvers::new(&parts, &SolveOptions::new())?;
/// // What a simulation has on its GPUs already.
/// let items = (0..1000).map(|item| systems.batch.item_values(item).unwrap());
/// let values: Vec<f64> = items.flatten().copied().collect();
/// let mut arrays = Vec::new();
/// for gpu in &gpus {
///     let x = gpu.alloc_zeroed(systems.rhs.len())?;
///     arrays.push((gpu.upload(&values)?, gpu.upload(&systems.rhs)?, x));
/// }
/// let mut arrays: Vec<_> =
///     arrays.iter_mut().map(|(values, b, x)| DeviceArrays { values, b, x }).collect();
/// let report = solvers.solve(&mut arrays, Guess::Zero)?;
/// assert_eq!(report.converged(), 2000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceSolvers<E: GpuExecutor, T: SolveScalar> {
    solvers: Vec<DeviceSolver<E, T>>,
    teams: Teams,
}

/// The arrays of one GPU for a solve of [`DeviceSolvers`].
#[derive(Debug)]
pub struct DeviceArrays<'a, B> {
    /// Values of the matrices of this GPU's items, as [`DeviceSolver::enqueue`] takes them.
    pub values: &'a B,
    /// Their right-hand sides.
    pub b: &'a B,
    /// Their initial guesses, and their solutions on return.
    pub x: &'a mut B,
}

impl<E: GpuExecutor, T: SolveScalar> DeviceSolvers<E, T> {
    /// Analyses the parts of a batch: for each GPU its executor and its items, whose values decide
    /// what `auto` takes for each. Limits that `options` give per system are those of all parts, one
    /// after the other.
    ///
    /// # Errors
    /// [`SolveError::Argument`] for no part, and where the number of limits is not that of all
    /// systems; those of [`DeviceSolver::new`].
    pub fn new(parts: &[(&E, &Batch<T>)], options: &SolveOptions) -> Result<Self, SolveError> {
        let models = parts.iter().map(|(executor, _)| executor.info().model());
        let Some(least) = models.reduce(|one, other| one.least(&other)) else {
            return Err(SolveError::Argument(ArgumentError::OutOfRange {
                name: "parts",
                expected: "the items of at least one GPU",
                found: "none".to_owned(),
            }));
        };
        let systems = |batch: &Batch<T>| batch.nitems().saturating_mul(options.nrhs);
        let all = parts.iter().map(|(_, batch)| systems(batch)).sum();
        options.criteria::<T>(all)?;
        let mut first = 0;
        let mut work = Vec::with_capacity(parts.len());
        for (gpu, &(executor, batch)) in parts.iter().enumerate() {
            let own: Vec<usize> = (first..first + systems(batch)).collect();
            first += own.len();
            work.push((gpu, (executor.planned_as(&least)?, batch, options.for_systems(&own))));
        }
        let teams = Teams::new(parts.len());
        let made = teams.each(work, |_, (executor, batch, options)| {
            DeviceSolver::new(&executor, batch, &options)
        });
        Ok(Self { solvers: made.into_iter().collect::<Result<_, _>>()?, teams })
    }

    /// The solver of each GPU, in the order of the parts.
    pub fn each(&self) -> &[DeviceSolver<E, T>] {
        &self.solvers
    }

    /// The solver of each GPU, for work that this type has no function for.
    pub fn each_mut(&mut self) -> &mut [DeviceSolver<E, T>] {
        &mut self.solvers
    }

    /// Solves all parts, from the guesses in `x` or from 0: [`DeviceSolver::solve`] on every GPU at
    /// once. The report lists the systems of the first GPU, then those of the second, and so on.
    ///
    /// # Errors
    /// [`SolveError::Argument`] where there are not as many arrays as parts; the error of the first
    /// part that has one.
    pub fn solve(
        &mut self,
        arrays: &mut [DeviceArrays<'_, E::Buffer<T>>],
        guess: Guess,
    ) -> Result<DeviceReport, SolveError>
    where
        E::Buffer<T>: Send + Sync,
    {
        self.report_of(arrays, |solver, arrays| {
            solver.solve(arrays.values, arrays.b, guess, arrays.x)
        })
    }

    /// [`DeviceSolver::factor`] on every GPU at once, with the values of each part.
    ///
    /// # Errors
    /// As [`DeviceSolvers::solve`]. Parts without an error keep the new matrices.
    pub fn factor(&mut self, values: &[&E::Buffer<T>]) -> Result<(), SolveError>
    where
        E::Buffer<T>: Send + Sync,
    {
        check_len("values of each part", self.solvers.len(), values.len())?;
        let work = self.solvers.iter_mut().zip(values).enumerate().collect();
        let made = self.teams.each(work, |_, (solver, values)| solver.factor(values));
        made.into_iter().collect()
    }

    /// [`DeviceSolver::solve_again`] on every GPU at once; `values` of the arrays are not read.
    ///
    /// # Errors
    /// As [`DeviceSolvers::solve`].
    pub fn solve_again(
        &mut self,
        arrays: &mut [DeviceArrays<'_, E::Buffer<T>>],
        guess: Guess,
    ) -> Result<DeviceReport, SolveError>
    where
        E::Buffer<T>: Send + Sync,
    {
        self.report_of(arrays, |solver, arrays| solver.solve_again(arrays.b, guess, arrays.x))
    }

    /// Does `work` on every GPU at once; one report of all.
    fn report_of<'a>(
        &mut self,
        arrays: &mut [DeviceArrays<'a, E::Buffer<T>>],
        work: impl Fn(
            &mut DeviceSolver<E, T>,
            &mut DeviceArrays<'a, E::Buffer<T>>,
        ) -> Result<DeviceReport, SolveError>
        + Sync,
    ) -> Result<DeviceReport, SolveError>
    where
        E::Buffer<T>: Send + Sync,
    {
        check_len("arrays of each part", self.solvers.len(), arrays.len())?;
        let parts = self.solvers.iter_mut().zip(arrays).enumerate().collect();
        let reports = self.teams.each(parts, |_, (solver, arrays)| {
            let report = work(solver, arrays)?;
            let gpu = GpuRun {
                systems: report.nsystems(),
                ..GpuRun::new(solver.executor.info().name.clone())
            };
            Ok(report.on_gpu(gpu))
        });
        Ok(DeviceReport::of_parts(reports.into_iter().collect::<Result<_, SolveError>>()?))
    }
}
