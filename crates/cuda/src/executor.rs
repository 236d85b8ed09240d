//! The interface between host plans and kernels.
//!
//! A plan is written once, generic over [`Executor`]: on a [`Device`](crate::Device) it launches
//! CUDA kernels; in an emulation the same kernel sources run on host memory. Kernels are named by
//! [`KernelKey`], and their arguments are collected in [`Args`].

mod args;
mod key;
mod launch;
mod meter;

use std::fmt;
use std::ops::Range;

pub use args::{Args, KernelScalar, Kind, MAX_ARGS};
pub use key::KernelKey;
pub use launch::LaunchConfig;
pub use meter::{MemoryMeter, MeteredBuffer, MeteredPinned};

use crate::{DeviceInfo, DeviceModel, GpuError};

/// A value that host and kernels share bit for bit. Sealed: `f32`, `f64`, `u8`, `u16`, `u32`,
/// `i32`, `u64`.
///
/// Every bit pattern is a value and there is no padding; reads and writes of device memory rely on
/// this.
pub trait Pod:
    sealed::Sealed + Copy + Default + fmt::Debug + PartialEq + Send + Sync + 'static
{
    /// The C++ name of the type, for building name expressions of kernels.
    const CPP_NAME: &'static str;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! pod {
    ($($t:ty => $name:literal),*) => {$(
        impl sealed::Sealed for $t {}
        impl Pod for $t {
            const CPP_NAME: &'static str = $name;
        }
    )*};
}
pod!(f32 => "float", f64 => "double");
pod!(u8 => "u8", u16 => "u16", u32 => "u32", i32 => "i32", u64 => "u64");

/// Estimate of the shared memory that a block takes in addition to that of its launch: static
/// shared memory of kernels, and the system's share.
const SHARED_BYTES_OF_A_BLOCK: u32 = 1536;

/// Memory of an executor, as kernels see it.
pub trait KernelBuffer<T: Pod> {
    /// The address of the first value: a device pointer, or a host address in an emulation.
    fn raw(&self) -> u64;
    /// The number of values.
    fn len(&self) -> usize;
    /// Whether the buffer has no values.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether the memory of the two buffers overlaps.
    fn shares_memory_with(&self, other: &impl KernelBuffer<T>) -> bool {
        let end = |raw: u64, len: usize| raw + (len * size_of::<T>()) as u64;
        self.raw() < end(other.raw(), other.len()) && other.raw() < end(self.raw(), self.len())
    }
}

/// Host memory of an executor for asynchronous copies to and from a [`KernelBuffer`]. Access to the
/// values, and dropping them, waits for the copies that were started.
pub trait PinnedValues<T: Pod> {
    /// The values, after all copies. Once they have been read, they can be read again without a
    /// wait or an error, until the next copy to them.
    ///
    /// # Errors
    /// [`GpuError::ContextLost`] for a fault of the work before the copies.
    fn as_slice(&self) -> Result<&[T], GpuError>;

    /// The values, after all copies.
    ///
    /// # Errors
    /// As [`PinnedValues::as_slice`].
    fn as_mut_slice(&mut self) -> Result<&mut [T], GpuError>;
}

/// Checks that `x` and `y` of a product do not share memory.
pub fn check_apart<T: Pod>(
    x: &impl KernelBuffer<T>,
    y: &impl KernelBuffer<T>,
) -> Result<(), GpuError> {
    if x.shares_memory_with(y) {
        return Err(GpuError::InvalidArgument {
            name: "y",
            expected: "memory apart from x".to_owned(),
            found: "memory shared with x".to_owned(),
        });
    }
    Ok(())
}

/// A device or emulation on which kernels run.
///
/// Work runs in the order of issue, except on [`branches`](Executor::branches).
/// [`launch`](Executor::launch) and
/// [`fill_zero`](Executor::fill_zero) may return before the work is done; uploads and downloads
/// wait for their own copy and for all work before it.
pub trait Executor {
    /// Memory that kernels read and write.
    type Buffer<T: Pod>: KernelBuffer<T> + Send + Sync;

    /// Host memory for asynchronous copies.
    type Pinned<T: Pod>: PinnedValues<T> + Send + Sync + 'static;

    /// A point in the order of work, for which executors of other devices can wait.
    type Mark: Send + Sync;

    /// The limits that choices of kernels and launch shapes depend on.
    fn info(&self) -> &DeviceInfo;

    /// The same device with the limits of another model, so that plans are made as they would be
    /// there. Kernels are still compiled for the device itself.
    ///
    /// # Errors
    /// Those of [`DeviceInfo::planned_as`].
    fn planned_as(&self, model: &DeviceModel) -> Result<Self, GpuError>
    where
        Self: Sized;

    /// Number of bytes that can be allocated now, as far as the executor knows.
    ///
    /// # Errors
    /// What the device reports.
    fn free_memory(&self) -> Result<u64, GpuError>;

    /// Allocates `len` values of unspecified contents, for buffers that a kernel fills.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    fn alloc<T: Pod>(&self, len: usize) -> Result<Self::Buffer<T>, GpuError>;

    /// Allocates `len` zeros.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<Self::Buffer<T>, GpuError> {
        let mut buffer = self.alloc(len)?;
        self.fill_zero(&mut buffer)?;
        Ok(buffer)
    }

    /// Allocates a copy of `host`.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    fn upload<T: Pod>(&self, host: &[T]) -> Result<Self::Buffer<T>, GpuError> {
        let mut buffer = self.alloc(host.len())?;
        self.copy_from_host(host, &mut buffer)?;
        Ok(buffer)
    }

    /// Copies all values of a buffer to the host.
    ///
    /// # Errors
    /// What the device reports.
    fn download<T: Pod>(&self, buffer: &Self::Buffer<T>) -> Result<Vec<T>, GpuError> {
        let mut host = vec![T::default(); buffer.len()];
        self.copy_to_host(buffer, &mut host)?;
        Ok(host)
    }

    /// Overwrites a buffer with zeros, in the order of launches.
    ///
    /// # Errors
    /// What the device reports.
    fn fill_zero<T: Pod>(&self, buffer: &mut Self::Buffer<T>) -> Result<(), GpuError>;

    /// Overwrites a buffer with `host`, which has the same length. Waits for the copy.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the lengths differ.
    fn copy_from_host<T: Pod>(
        &self,
        host: &[T],
        buffer: &mut Self::Buffer<T>,
    ) -> Result<(), GpuError>;

    /// Copies a buffer into a slice of the same length. Waits for the copy.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the lengths differ.
    fn copy_to_host<T: Pod>(
        &self,
        buffer: &Self::Buffer<T>,
        host: &mut [T],
    ) -> Result<(), GpuError>;

    /// Allocates `len` zeros on the host, for [`copy_from_pinned`](Executor::copy_from_pinned) and
    /// [`copy_to_pinned`](Executor::copy_to_pinned). Keep and reuse this memory: pinning is slow.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the system cannot provide pinned memory.
    fn alloc_pinned<T: Pod>(&self, len: usize) -> Result<Self::Pinned<T>, GpuError>;

    /// Starts to overwrite a buffer with the first values of pinned host memory, in the order of
    /// launches, and returns without waiting.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the host memory is shorter than the buffer; else what the device
    /// reports.
    fn copy_from_pinned<T: Pod>(
        &self,
        host: &Self::Pinned<T>,
        buffer: &mut Self::Buffer<T>,
    ) -> Result<(), GpuError>;

    /// Starts to copy a buffer to the beginning of pinned host memory, in the order of launches,
    /// and returns without waiting.
    ///
    /// # Errors
    /// As [`Executor::copy_from_pinned`].
    fn copy_to_pinned<T: Pod>(
        &self,
        buffer: &Self::Buffer<T>,
        host: &mut Self::Pinned<T>,
    ) -> Result<(), GpuError>;

    /// Whether all values lie in one piece of page-locked host memory, from which a
    /// [`Lender`](crate::Lender) copies; never where an executor has no such copies.
    fn is_page_locked<T: Pod>(&self, host: &[T]) -> bool {
        let _ = host;
        false
    }

    /// Starts to overwrite a buffer with page-locked host memory of the same length, in the order
    /// of launches, and may return before it is done. See [`lending`](crate::lending).
    ///
    /// # Errors
    /// As [`Executor::copy_from_host`].
    ///
    /// # Safety
    /// The values are neither freed nor written before the work of this executor was waited for.
    #[expect(unsafe_code, reason = "the borrow ends before the copy does")]
    unsafe fn start_from_page_locked<T: Pod>(
        &self,
        host: &[T],
        buffer: &mut Self::Buffer<T>,
    ) -> Result<(), GpuError> {
        self.copy_from_host(host, buffer)
    }

    /// Compiles and loads kernels, so that later launches need not.
    ///
    /// # Errors
    /// [`GpuError::Compile`]; [`GpuError::InvalidArgument`] for a module that does not exist.
    fn prepare(&self, keys: &[KernelKey]) -> Result<(), GpuError>;

    /// Whether kernels still have to be compiled or read from a file: none was loaded so far.
    #[doc(hidden)]
    fn is_unused(&self) -> bool {
        false
    }

    /// Starts a kernel. Compiles and loads it when it was not [prepared](Executor::prepare).
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when the shape exceeds the limits of the device, or when the
    /// arguments visibly differ from the kernel's parameters in number or size; else what compiling
    /// or launching reports. On an error nothing has run.
    ///
    /// # Safety
    /// 1. The arguments match the kernel's parameters in number, order and type.
    /// 2. Every buffer has the length that the kernel's comment asks for, given the scalars and the
    ///    launch shape, and index values in buffers are in the ranges that it asks for.
    /// 3. Buffers belong to this executor; those given by raw address are alive until the work is
    ///    done.
    /// 4. No buffer that the kernel writes is another argument of it, unless its comment allows so.
    /// 5. Where the launch [overlaps](LaunchConfig::overlaps) with the one ahead, the kernel waits
    ///    for it before it touches what launches write that may not have ended.
    #[expect(unsafe_code, reason = "a launch cannot be checked against the kernel's own promises")]
    unsafe fn launch(
        &self,
        key: &KernelKey,
        config: LaunchConfig,
        args: &mut Args<'_>,
    ) -> Result<(), GpuError>;

    /// Number of blocks of this shape that a multiprocessor holds at once; at least 1. Compiles and
    /// loads the kernel if it was not [prepared](Executor::prepare). An executor that does not know
    /// the kernel's resources estimates the number from threads and shared memory of the launch.
    ///
    /// # Errors
    /// As [`Executor::launch`], but for the arguments.
    fn resident_blocks(&self, key: &KernelKey, config: LaunchConfig) -> Result<u32, GpuError> {
        let _ = key;
        config.check(self.info())?;
        let threads = config.block.iter().product::<u32>();
        let by_threads = self.info().max_threads_per_multiprocessor / threads;
        let by_shared = self.info().shared_bytes_per_multiprocessor
            / (config.shared_bytes + SHARED_BYTES_OF_A_BLOCK);
        Ok(by_threads.min(by_shared).clamp(1, 32))
    }

    /// Number of clusters of this shape that the whole device holds at once, for a kernel as in
    /// [`resident_blocks`](Executor::resident_blocks); at least 1. The blocks of a cluster share
    /// one part of the device, so some multiprocessors may stay unused; an executor that does not
    /// know how many assumes none.
    ///
    /// # Errors
    /// As [`Executor::launch`], but for the arguments.
    fn resident_clusters(&self, key: &KernelKey, config: LaunchConfig) -> Result<u32, GpuError> {
        let blocks = self.resident_blocks(key, config)? * self.info().multiprocessors;
        Ok((blocks / config.cluster).max(1))
    }

    /// Executors on the same memory whose work can run concurrently with that of this one, between
    /// [`fork`](Executor::fork) and [`join`](Executor::join). Create them once: creation is slow.
    ///
    /// # Errors
    /// What the device reports.
    fn branches(&self, count: usize) -> Result<Vec<Self>, GpuError>
    where
        Self: Sized;

    /// A [branch](Executor::branches) whose kernels go before those of other branches that wait for
    /// room: for short work that other devices wait for.
    ///
    /// # Errors
    /// What the device reports.
    fn urgent_branch(&self) -> Result<Self, GpuError>
    where
        Self: Sized;

    /// Whether issued work is recorded into a graph instead of being run.
    ///
    /// # Errors
    /// What the device reports.
    fn is_recording(&self) -> Result<bool, GpuError> {
        Ok(false)
    }

    /// Orders later work on the branches after all work issued here so far. Neither waits nor
    /// allocates. May be recorded in a graph, which then includes the branches.
    ///
    /// # Errors
    /// What the device reports.
    fn fork(&self, branches: &[Self]) -> Result<(), GpuError>
    where
        Self: Sized;

    /// Orders later work here after all work issued to the branches so far; otherwise as
    /// [`fork`](Executor::fork).
    ///
    /// # Errors
    /// What the device reports.
    fn join(&self, branches: &[Self]) -> Result<(), GpuError>
    where
        Self: Sized;

    /// A mark that is not set.
    ///
    /// # Errors
    /// What the device reports.
    fn new_mark(&self) -> Result<Self::Mark, GpuError>;

    /// Sets a mark of this executor's device behind all work issued here so far, in place of where
    /// it was. Does not wait.
    ///
    /// # Errors
    /// What the device reports.
    fn set_mark(&self, mark: &Self::Mark) -> Result<(), GpuError>;

    /// Orders later work here after what a mark of any device of the process was set behind; nothing
    /// if it was not set. The host does not wait.
    ///
    /// # Errors
    /// What the device reports.
    fn wait_for(&self, mark: &Self::Mark) -> Result<(), GpuError>;

    /// Whether memory of another executor can be copied here by [`Executor::copy_from_other`]
    /// without the host. Opens the way on the first call.
    ///
    /// # Errors
    /// What the device reports.
    fn reaches(&self, other: &Self) -> Result<bool, GpuError>
    where
        Self: Sized;

    /// Copies a range of a buffer of another executor, which this one [reaches](Executor::reaches),
    /// to the values of `to` from index `at` on, in the order of work here. Returns before it is done.
    ///
    /// # Errors
    /// [`GpuError::Length`] for a range beyond either buffer; what the device reports.
    fn copy_from_other<T: Pod>(
        &self,
        other: &Self,
        from: (&Self::Buffer<T>, Range<usize>),
        to: &mut Self::Buffer<T>,
        at: usize,
    ) -> Result<(), GpuError>
    where
        Self: Sized;

    /// Waits until all work is done.
    ///
    /// # Errors
    /// [`GpuError::ContextLost`] for a fault of a kernel since the last wait.
    fn synchronize(&self) -> Result<(), GpuError>;
}

/// Checks the ranges of a copy between buffers of `from` and `to` values.
///
/// # Errors
/// [`GpuError::Length`].
pub fn check_ranges(
    from: usize,
    range: &Range<usize>,
    to: usize,
    at: usize,
) -> Result<(), GpuError> {
    if range.start > range.end || range.end > from {
        return Err(GpuError::Length { name: "from", expected: range.end, found: from });
    }
    let end = at.saturating_add(range.len());
    if end > to {
        return Err(GpuError::Length { name: "to", expected: end, found: to });
    }
    Ok(())
}
