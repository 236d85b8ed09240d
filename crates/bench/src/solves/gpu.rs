//! Our solves on the device.

use sparsebatch_cuda::{Device, DeviceBuffer, DeviceInfo, Executor, GpuError};
use sparsebatch_formats::{Batch, Pattern};
use sparsebatch_solvers::gpu::{
    ComposedSolver, GpuSolver, GpuTuning, Guess, ProductKernel, SolverTuning, most_rows,
    solver_for, solver_for_ragged,
};
use sparsebatch_solvers::{Engine, Method, Outcome, SolveError, SolveOptions, choose_schemes};

use super::systems::Systems;
use super::{Answer, Real, Solve};

/// A plan for batches of one pattern or mix of patterns.
pub(crate) trait Plan<T: Real> {
    /// Issues the solve of every system from x = 0; all arrays item-major.
    ///
    /// # Errors
    /// A refusal of the plan or an error of the device.
    fn solve(
        &mut self,
        values: &DeviceBuffer<T>,
        b: &DeviceBuffer<T>,
        x: &mut DeviceBuffer<T>,
    ) -> Result<(), SolveError>;

    /// The outcome of each system of the last solve.
    ///
    /// # Errors
    /// An error of the device.
    fn outcomes(&self) -> Result<Vec<Outcome>, SolveError>;

    /// Kernel and shape, such as `cg(32 threads x 4 rows, registers)`.
    fn configuration(&self) -> String;

    /// Whether some systems iterate in a precision other than that of their data.
    fn is_mixed(&self) -> bool;
}

/// A plan that wraps a solver of data on the device.
struct Ours<T: Real>(Box<dyn GpuSolver<Device, T>>);

impl<T: Real> Plan<T> for Ours<T> {
    fn solve(
        &mut self,
        values: &DeviceBuffer<T>,
        b: &DeviceBuffer<T>,
        x: &mut DeviceBuffer<T>,
    ) -> Result<(), SolveError> {
        Ok(self.0.solve(values, b, Guess::Zero, x)?)
    }

    fn outcomes(&self) -> Result<Vec<Outcome>, SolveError> {
        Ok(self.0.outcomes()?)
    }

    fn configuration(&self) -> String {
        self.0.explain().name()
    }

    fn is_mixed(&self) -> bool {
        self.0.explain().is_mixed()
    }
}

/// A plan that iterates with products of a plan. The latter holds the values that it was made with,
/// which are the same in all copies.
struct Composed<T: Real>(ComposedSolver<Device, T>);

impl<T: Real> Plan<T> for Composed<T> {
    fn solve(
        &mut self,
        _values: &DeviceBuffer<T>,
        b: &DeviceBuffer<T>,
        x: &mut DeviceBuffer<T>,
    ) -> Result<(), SolveError> {
        Ok(self.0.solve(b, Guess::Zero, x)?)
    }

    fn outcomes(&self) -> Result<Vec<Outcome>, SolveError> {
        Ok(self.0.outcomes()?)
    }

    fn configuration(&self) -> String {
        self.0.explain().kernels()
    }

    fn is_mixed(&self) -> bool {
        false
    }
}

/// The plan for systems by the method of `options`; `tuning` fixes the shape of its kernel.
///
/// # Errors
/// [`SolveError::Unsupported`] for what the GPU does not do yet; an error of the plan.
pub(crate) fn plan<T: Real>(
    device: &Device,
    systems: &Systems<T>,
    options: &SolveOptions,
    tuning: Option<&GpuTuning>,
) -> Result<Box<dyn Plan<T>>, SolveError> {
    let batch = &systems.batch;
    let scheme = match options.method {
        // A plan has one scheme, the first choice. The row shows the systems that it leaves
        // unsolved; only the host's solver climbs the ladder of schemes.
        Method::Auto => choose_schemes(batch, options, device.info())[0].0,
        _ => options.scheme::<T>(),
    };
    let is_whole = options.engine == Engine::Fused && largest(batch) <= most_rows(device.info());
    let has_products = scheme.krylov().is_some() && !scheme.preconditioner().has_factors();
    if has_products && tuning.is_none() && !is_whole {
        let kernel = ProductKernel::default();
        let options = options.for_scheme(scheme);
        return Ok(Box::new(Composed(ComposedSolver::new(device, batch, &kernel, &options)?)));
    }
    let tuning = SolverTuning::default().fused(tuning.copied().unwrap_or_default());
    let solver = match batch {
        Batch::Uniform(batch) => {
            let systems = (Pattern::view(&**batch.pattern()), batch.nitems());
            solver_for(device, scheme, systems, options, &tuning)?
        }
        Batch::Ragged(batch) => solver_for_ragged(device, scheme, batch, options, &tuning)?,
    };
    Ok(Box::new(Ours(solver)))
}

/// Most values of a batch whose plan is made just to compile its kernels: for a larger one, making
/// it takes longer than compiling.
const COMPILED_VALUES: usize = 1 << 20;

/// Whether making a plan just to compile its kernels is quick: plans that solve each system as a
/// whole, and those of small batches.
pub(crate) fn is_soon_made<T: Real>(
    systems: &Systems<T>,
    options: &SolveOptions,
    info: &DeviceInfo,
) -> bool {
    let is_iterative = matches!(options.method, Method::Cg | Method::BiCgStab);
    let has_factors = options.preconditioner.has_factors();
    let is_whole = largest(&systems.batch) <= most_rows(info);
    is_iterative && !has_factors && (is_whole || systems.values().len() <= COMPILED_VALUES)
}

/// Number of rows of the largest system.
fn largest<T: Real>(batch: &Batch<T>) -> usize {
    let rows = match batch {
        Batch::Uniform(batch) => return batch.pattern().nrows(),
        Batch::Ragged(batch) => batch.row_offsets().windows(2).map(|range| range[1] - range[0]),
    };
    rows.max().unwrap_or(0)
}

/// Copies of the values, right-hand sides and solutions of a batch on the device.
#[derive(Default)]
pub(crate) struct DeviceSystems<T: Real>(Vec<[DeviceBuffer<T>; 3]>);

impl<T: Real> DeviceSystems<T> {
    /// Uploads `copies` copies of the systems.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub(crate) fn new(
        device: &Device,
        systems: &Systems<T>,
        copies: usize,
    ) -> Result<Self, GpuError> {
        let copy = |_| {
            let (values, b) = (device.upload(systems.values())?, device.upload(&systems.b)?);
            Ok([values, b, device.alloc(systems.b.len())?])
        };
        Ok(Self((0..copies.max(1)).map(copy).collect::<Result<_, GpuError>>()?))
    }
}

/// Systems on the device, and the plan that solves them.
pub(crate) struct GpuSolve<T: Real> {
    device: Device,
    plan: Box<dyn Plan<T>>,
    copies: Vec<[DeviceBuffer<T>; 3]>,
}

impl<T: Real> GpuSolve<T> {
    /// Shares the device copies of systems that several plans solve one after the other. Zeroes
    /// their solutions.
    ///
    /// # Errors
    /// An error of the device.
    pub(crate) fn new(
        device: &Device,
        plan: Box<dyn Plan<T>>,
        systems: &DeviceSystems<T>,
    ) -> Result<Self, SolveError> {
        let whole = |buffer: &DeviceBuffer<T>| buffer.range(0..buffer.len());
        let copy = |[values, b, x]: &[DeviceBuffer<T>; 3]| {
            let mut x = whole(x)?;
            device.fill_zero(&mut x)?;
            Ok([whole(values)?, whole(b)?, x])
        };
        let copies = systems.0.iter().map(copy).collect::<Result<_, SolveError>>()?;
        Ok(Self { device: device.clone(), plan, copies })
    }
}

impl<T: Real> Solve<T> for GpuSolve<T> {
    fn copies(&self) -> usize {
        self.copies.len()
    }

    fn restore(&mut self, _copy: usize) -> Result<(), SolveError> {
        Ok(())
    }

    fn wants_restoring(&self) -> bool {
        false
    }

    fn solve(&mut self, copy: usize) -> Result<(), SolveError> {
        let copy = copy % self.copies.len();
        let [values, b, x] = &mut self.copies[copy];
        self.plan.solve(values, b, x)
    }

    fn answer(&mut self, copy: usize) -> Result<Answer<T>, SolveError> {
        let x = self.device.download(&self.copies[copy % self.copies.len()][2])?;
        Ok(Answer { x, outcomes: Some(self.plan.outcomes()?) })
    }
}
