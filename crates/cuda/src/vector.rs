//! Vector operations on the device.

use crate::kernels::VECTOR;
use crate::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value, check_len};

const THREADS: u32 = 256;

fn copy_key<T: Value>() -> KernelKey {
    KernelKey::new(&VECTOR, format!("copy<{}>", T::CPP))
}

/// Compiles the kernel of [`copy_values`].
///
/// # Errors
/// What the compiler reports.
pub fn prepare_copy<T: Value>(executor: &impl Executor) -> Result<(), GpuError> {
    executor.prepare(&[copy_key::<T>()])
}

/// Copies all values of a buffer to another one of the same length, in the order of launches, and
/// returns before it is done. Allocates nothing; compiles its kernel the first time, unless it was
/// [prepared](prepare_copy).
///
/// # Errors
/// [`GpuError::Length`] when the lengths differ; [`GpuError::InvalidArgument`] when the buffers share
/// memory.
#[expect(unsafe_code, reason = "the one launch")]
pub fn copy_values<E: Executor, T: Value>(
    executor: &E,
    from: &E::Buffer<T>,
    to: &mut E::Buffer<T>,
) -> Result<(), GpuError> {
    check_len("the copy", from.len(), to.len())?;
    crate::executor::check_apart(from, to)?;
    if from.is_empty() {
        return Ok(());
    }
    let most = u64::from(8 * executor.info().multiprocessors.max(1));
    let blocks = (from.len() as u64).div_ceil(u64::from(THREADS)).min(most);
    let config = LaunchConfig::linear(blocks as u32, THREADS);
    let mut args = Args::new();
    args.scalar(from.len() as u64).input(from).output(to);
    // SAFETY: the arguments are those of `copy`; both buffers have as many values as it copies and
    // do not overlap.
    unsafe { executor.launch(&copy_key::<T>(), config, &mut args) }
}
