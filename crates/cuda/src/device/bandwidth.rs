//! The memory bandwidth that kernels can reach, as a reference for measured kernels.

use cudarc::driver::result;

use super::driver::{bind, checked};
use super::{Device, Event};
use crate::kernels::VECTOR;
use crate::{Args, Executor, GpuError, KernelKey, LaunchConfig};

/// Bytes of each vector, if the device has four times as many free: more than caches hold.
const VECTOR_BYTES: u64 = 2 << 30;

const THREADS: u32 = 512;
const REPETITIONS: usize = 11;

/// Measured bandwidth, in 1e9 bytes per second: the median of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Bandwidth of copying a vector, by the driver or by a kernel, whichever is faster; bytes read
    /// and bytes written both count.
    pub copy_gb_per_s: f64,
    /// Bandwidth of reading a vector.
    pub read_gb_per_s: f64,
    /// Bytes of each vector used.
    pub vector_bytes: u64,
}

/// Measures the bandwidth of the device's memory. Takes some tenths of a second and meanwhile
/// occupies up to half of the free memory, at most 4 GiB.
///
/// # Errors
/// [`GpuError::OutOfMemory`]; what compiling or running the two kernels reports.
pub fn measure_bandwidth(device: &Device) -> Result<Bandwidth, GpuError> {
    // Whole 16-byte values, at least one.
    let pairs = (VECTOR_BYTES.min(device.memory()?.free_bytes / 4) / 16).max(1);
    let words = pairs as usize * 2;
    let x = device.alloc_zeroed::<u64>(words)?;
    let mut y = device.alloc::<u64>(words)?;
    let info = device.info();
    let blocks = info.multiprocessors * (info.max_threads_per_multiprocessor / THREADS).max(1);
    let config = LaunchConfig::linear(blocks.max(1), THREADS);
    let mut partial = device.alloc::<f64>(config.grid[0] as usize)?;

    let copy = KernelKey::new(&VECTOR, "copy<ulonglong2>");
    let copy_ms = median_ms(device, || {
        let mut args = Args::new();
        args.scalar(pairs).input(&x).output(&mut y);
        // SAFETY: (1) `copy` takes a count and two vectors; (2) both have `pairs` values of 16
        // bytes, aligned as allocations are; (3) both are of this device; (4) they are distinct.
        unsafe { device.launch(&copy, config, &mut args) }
    })?;
    let driver_ms = median_ms(device, || {
        bind(&device.shared.context)?;
        // SAFETY: both vectors have `16 * pairs` bytes, are of this device and distinct.
        let copied = unsafe {
            result::memcpy_dtod_async(y.raw(), x.raw(), 16 * pairs as usize, device.stream.raw())
        };
        checked("cuMemcpyDtoDAsync", copied)
    })?;
    let read = KernelKey::new(&VECTOR, "read_sum<double>");
    let read_ms = median_ms(device, || {
        let mut args = Args::new();
        args.scalar(2 * pairs).input(&x).output(&mut partial);
        // SAFETY: (1) `read_sum` takes a count and two vectors; (2) `x` has `2 * pairs` values of 8
        // bytes, which are doubles by any bits, and `partial` one per block of 512 threads; (3)
        // both are of this device; (4) they are distinct.
        unsafe { device.launch(&read, config, &mut args) }
    })?;
    let gb_per_s = |bytes: u64, ms: f64| bytes as f64 / ms / 1e6;
    Ok(Bandwidth {
        copy_gb_per_s: gb_per_s(32 * pairs, copy_ms.min(driver_ms)),
        read_gb_per_s: gb_per_s(16 * pairs, read_ms),
        vector_bytes: 16 * pairs,
    })
}

/// The median time of a launch, in milliseconds, after one launch that is not counted.
fn median_ms(
    device: &Device,
    mut launch: impl FnMut() -> Result<(), GpuError>,
) -> Result<f64, GpuError> {
    launch()?;
    let (start, end) = (Event::new(device)?, Event::new(device)?);
    let mut times = Vec::with_capacity(REPETITIONS);
    for _ in 0..REPETITIONS {
        start.record(device)?;
        launch()?;
        end.record(device)?;
        times.push(f64::from(start.elapsed_ms(&end)?));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[REPETITIONS / 2])
}
