//! How much device memory a solver takes: [`solver_memory`].

use sparsebatch_cuda::{DeviceInfo, MemoryMeter};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::classes;

use super::{DeviceData, DeviceSolver, check_supported};
use crate::adjoint::TransposedBatch;
use crate::backend::tuning;
use crate::choose::{OnChip, Target, choose};
use crate::gpu::iterates_over_products;
use crate::{SolveError, SolveOptions, SolveScalar};

/// Bytes of device memory of a [`DeviceSolver`], beside the arrays of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SolverMemory {
    /// What the solver holds from the beginning.
    pub bytes: u64,
    /// What it holds after [`DeviceSolver::prepare_guesses`].
    pub bytes_with_guesses: u64,
    /// The most that it holds while it is made.
    pub most_bytes: u64,
}

/// The device memory that a [`DeviceSolver`] of a batch takes on a GPU with these limits. Makes the
/// solver's plan, but neither compiles nor allocates on a device.
///
/// The figures are sums of the sizes of buffers, each of which an allocator rounds up. Plans that
/// keep workspace for every block that runs at a time (factors that do not fit on chip) may differ,
/// since the number of blocks depends on the compiled kernel. [`DeviceSolver::factor`] takes more:
/// a copy of the values, and the factors.
///
/// # Errors
/// Those of [`DeviceSolver::with_data`]; out of memory where the GPU has less;
/// [`SolveError::Unsupported`] for solves over products, which are planned by what the GPU measures
/// of the matrices.
pub fn solver_memory<T: SolveScalar>(
    info: &DeviceInfo,
    batch: &Batch<T>,
    options: &SolveOptions,
    data: DeviceData,
) -> Result<SolverMemory, SolveError> {
    T::memory(info, batch, options, data)
}

/// [`solver_memory`], for each type of values.
pub(crate) fn memory_of<T: SolveScalar>(
    info: &DeviceInfo,
    batch: &Batch<T>,
    options: &SolveOptions,
    data: DeviceData,
) -> Result<SolverMemory, SolveError> {
    check_supported(batch, options, data)?;
    options.criteria::<T>(batch.nitems().saturating_mul(options.nrhs))?;
    let transposed = data.transposed.then(|| TransposedBatch::new(batch));
    let solved = transposed.as_ref().map_or(batch, TransposedBatch::batch);
    if over_products(info, solved, options) {
        return Err(SolveError::Unsupported {
            what: "the memory of a solve over products before it is planned on the GPU",
            instead: "make the solver; its report has the bytes",
        });
    }
    let meter = MemoryMeter::new(info.clone());
    let mut solver = DeviceSolver::with_data(&meter, batch, options, data)?;
    let (bytes, most_bytes) = (meter.bytes_in_use(), meter.most_bytes());
    solver.prepare_guesses()?;
    Ok(SolverMemory { bytes, bytes_with_guesses: meter.bytes_in_use(), most_bytes })
}

/// Whether some systems are solved over products.
fn over_products<T: SolveScalar>(
    info: &DeviceInfo,
    batch: &Batch<T>,
    options: &SolveOptions,
) -> bool {
    let choices = choose(batch, options, Target::Gpu(OnChip::new(info, size_of::<T>())));
    choices.iter().any(|chosen| {
        classes(batch, Some(&chosen.items)).iter().any(|class| {
            let (scheme, pattern) = (chosen.scheme, batch.pattern(class[0] as usize));
            let tuning = tuning(None);
            iterates_over_products::<MemoryMeter, T>(info, scheme, pattern, options, &tuning)
        })
    })
}
