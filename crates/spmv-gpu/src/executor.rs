//! The seam between host plans and kernels.
//!
//! A plan is written once, generic over [`Executor`]: on a [`Device`](crate::Device) it launches
//! CUDA kernels, in an emulation the same kernel sources run on host memory. Kernels are named by
//! [`KernelKey`], their arguments are collected in [`Args`].

mod args;

use std::fmt;
use std::hash::{Hash, Hasher};

pub use args::{Args, KernelScalar, Kind, MAX_ARGS};

use crate::{DeviceInfo, GpuError};

/// A value that host and kernels share bit for bit. Sealed: `f32`, `f64`, `u8`, `u16`, `u32`,
/// `i32`, `u64`.
///
/// Every bit pattern is a value and there is no padding, which reading from and writing to device
/// memory relies on.
pub trait Pod:
    sealed::Sealed + Copy + Default + fmt::Debug + PartialEq + Send + Sync + 'static
{
    /// The name of the type in kernels, to put name expressions together.
    const NAME: &'static str;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! pod {
    ($($t:ty => $name:literal),*) => {$(
        impl sealed::Sealed for $t {}
        impl Pod for $t {
            const NAME: &'static str = $name;
        }
    )*};
}
pod!(f32 => "float", f64 => "double");
pod!(u8 => "u8", u16 => "u16", u32 => "u32", i32 => "i32", u64 => "u64");

/// CUDA source of a caller, from which kernels are compiled beside those of this crate: what follows
/// [`kernels::PRELUDE`](crate::kernels::PRELUDE), whose types and helpers it may use. Two are equal
/// where they are the same texts in memory.
///
/// # Examples
/// ```
/// use sparsebatch_spmv_gpu::{KernelKey, Source};
/// static SQUARES: Source = Source::new(
///     "template <typename V> __global__ void squares(u32 len, V* values) {
///          const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
///          if (i < len) values[i] *= values[i];
///      }",
/// );
/// let key = KernelKey::of_source("squares", &SQUARES, "squares<double>");
/// assert_eq!(key.to_string(), "squares.cu: squares<double>");
/// ```
#[derive(Debug)]
pub struct Source {
    text: &'static str,
    headers: &'static [(&'static str, &'static str)],
}

impl Source {
    /// The source of a module. It is compiled when a kernel of it is prepared or launched.
    pub const fn new(text: &'static str) -> Self {
        Self::with_headers(text, &[])
    }

    /// The source of a module of several files: names and texts of those that the first one, or one of
    /// them, has in lines `#include "name"`. Each stands once in what is compiled. A name that is not
    /// here is one of this crate's headers, or left to the compiler, which knows none.
    pub const fn with_headers(
        text: &'static str,
        headers: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { text, headers }
    }

    /// The text of the first file.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// Names and texts of the others.
    pub fn headers(&self) -> &'static [(&'static str, &'static str)] {
        self.headers
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.text, other.text) && std::ptr::eq(self.headers, other.headers)
    }
}

impl Eq for Source {}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.as_ptr().hash(state);
    }
}

/// Names a kernel instance: a module, which is one CUDA source, and a C++ name expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelKey {
    /// The source, as [`kernels::source`](crate::kernels::source) knows it, such as `csr`; or what the
    /// compiler is to call `source`.
    pub module: &'static str,
    /// Source of the caller; `None` where the module is one of this crate.
    pub source: Option<&'static Source>,
    /// The instance, such as `csr_vector<double, 8>`: [`Pod::NAME`] gives the types, and one space
    /// follows each comma, since an emulation knows its instances by this text.
    pub expression: String,
}

impl KernelKey {
    /// A key of a module of this crate.
    pub fn new(module: &'static str, expression: impl Into<String>) -> Self {
        Self { module, source: None, expression: expression.into() }
    }

    /// A key of a source of the caller, in which the compiler finds its errors under `name`.
    pub fn of_source(
        name: &'static str,
        source: &'static Source,
        expression: impl Into<String>,
    ) -> Self {
        Self { module: name, source: Some(source), expression: expression.into() }
    }
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.cu: {}", self.module, self.expression)
    }
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Whether the launch may begin before the one ahead of it on the stream has ended, where the
    /// device can do that: programmatic dependent launch, compute capability 9.0. Only for kernels
    /// that wait for it by themselves.
    pub overlaps: bool,
    /// Blocks next to each other in x that run at the same time and reach each other's shared memory;
    /// 1: none do. More from compute capability 9.0.
    pub cluster: u32,
}

/// Blocks of a cluster that every device with clusters takes.
const MAX_CLUSTER: u32 = 8;

impl LaunchConfig {
    /// A one-dimensional launch without dynamic shared memory and clusters.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            overlaps: false,
            cluster: 1,
        }
    }

    /// Checks the shape against the limits of CUDA and of a device.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when a dimension is 0 or too large, a block has more threads
    /// than the device takes, more dynamic shared memory is asked for than a block can have, the device
    /// has no clusters or none of that size, or they do not divide the blocks in x.
    pub fn check(&self, info: &DeviceInfo) -> Result<(), GpuError> {
        let refuse = |name, expected: String, found: String| {
            Err(GpuError::InvalidArgument { name, expected, found })
        };
        let [x, y, z] = self.grid;
        if x == 0 || x > i32::MAX as u32 || y == 0 || z == 0 || y > 65_535 || z > 65_535 {
            let expected = "1 to 2147483647 by 65535 by 65535 blocks".to_owned();
            return refuse("grid", expected, format!("{:?}", self.grid));
        }
        let threads: u64 = self.block.iter().map(|&n| u64::from(n)).product();
        if threads == 0 || threads > u64::from(info.max_threads_per_block) || self.block[2] > 64 {
            let expected = format!("1 to {} threads", info.max_threads_per_block);
            return refuse("block", expected, format!("{:?}", self.block));
        }
        if self.shared_bytes > info.shared_bytes_per_block {
            let expected = format!("at most {} bytes", info.shared_bytes_per_block);
            return refuse("shared_bytes", expected, self.shared_bytes.to_string());
        }
        let most = if info.compute_capability >= (9, 0) { MAX_CLUSTER } else { 1 };
        if self.cluster == 0 || self.cluster > most {
            let expected = format!("1 to {most} blocks on this device");
            return refuse("cluster", expected, self.cluster.to_string());
        }
        if !x.is_multiple_of(self.cluster) {
            let expected = format!("a divisor of the {x} blocks in x");
            return refuse("cluster", expected, self.cluster.to_string());
        }
        Ok(())
    }
}

/// Shared memory that a block takes beside that of its launch, about: what kernels declare, and the system.
const SHARED_BYTES_OF_A_BLOCK: u32 = 1536;

/// Memory of an executor, as kernels see it.
pub trait KernelBuffer<T: Pod> {
    /// The address of the first value: a device pointer, or a host address in an emulation.
    fn raw(&self) -> u64;
    /// The number of values.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether some memory belongs to both.
    fn shares_memory_with(&self, other: &impl KernelBuffer<T>) -> bool {
        let end = |raw: u64, len: usize| raw + (len * size_of::<T>()) as u64;
        self.raw() < end(other.raw(), other.len()) && other.raw() < end(self.raw(), self.len())
    }
}

/// Host memory of an executor, which copies between it and a [`KernelBuffer`] need not be waited for:
/// reaching the values, and dropping them, waits for the copies that were started.
pub trait PinnedValues<T: Pod> {
    /// The values, after all copies.
    ///
    /// # Errors
    /// What the work before the copies met, as [`GpuError::ContextLost`].
    fn as_slice(&self) -> Result<&[T], GpuError>;

    /// The values, after all copies.
    ///
    /// # Errors
    /// As [`PinnedValues::as_slice`].
    fn as_mut_slice(&mut self) -> Result<&mut [T], GpuError>;
}

/// Checks that a product reads no x from memory that it writes y to.
pub(crate) fn check_apart<T: Pod>(
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

/// Where kernels run.
///
/// Work is ordered as it is issued, but on [`branches`](Executor::branches).
/// [`launch`](Executor::launch) and
/// [`fill_zero`](Executor::fill_zero) may return before the work is done; uploads and downloads
/// wait for their own copy and for all work before it.
pub trait Executor {
    /// Memory that kernels read and write.
    type Buffer<T: Pod>: KernelBuffer<T> + Send + Sync;

    /// Host memory for copies that nobody waits for.
    type Pinned<T: Pod>: PinnedValues<T> + Send;

    /// The limits that choices of kernels and launch shapes depend on.
    fn info(&self) -> &DeviceInfo;

    /// Bytes that can be allocated now, as far as the executor knows.
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

    /// All values of a buffer.
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

    /// Overwrites a buffer of the same length. Waits for the copy.
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
    /// [`copy_to_pinned`](Executor::copy_to_pinned). To be kept: the system takes a while to pin them.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the system has no such memory to give.
    fn alloc_pinned<T: Pod>(&self, len: usize) -> Result<Self::Pinned<T>, GpuError>;

    /// Starts to overwrite a buffer with the first values of host memory, in the order of launches, and
    /// returns.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the host memory is shorter; else what the device reports.
    fn copy_from_pinned<T: Pod>(
        &self,
        host: &Self::Pinned<T>,
        buffer: &mut Self::Buffer<T>,
    ) -> Result<(), GpuError>;

    /// Starts to copy a buffer to the beginning of host memory, in the order of launches, and returns.
    ///
    /// # Errors
    /// As [`Executor::copy_from_pinned`].
    fn copy_to_pinned<T: Pod>(
        &self,
        buffer: &Self::Buffer<T>,
        host: &mut Self::Pinned<T>,
    ) -> Result<(), GpuError>;

    /// Makes kernels ready, so that later launches neither compile nor load anything.
    ///
    /// # Errors
    /// [`GpuError::Compile`]; [`GpuError::InvalidArgument`] for a module that does not exist.
    fn prepare(&self, keys: &[KernelKey]) -> Result<(), GpuError>;

    /// Starts a kernel. Compiles and loads it when it was not [prepared](Executor::prepare).
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when the shape exceeds the limits of the device, or when the
    /// arguments visibly differ from the kernel's parameters in number or size; else what compiling
    /// or launching reports. Nothing ran then.
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

    /// Blocks of this shape that a multiprocessor holds at once, of a kernel that is compiled and loaded when it
    /// was not [prepared](Executor::prepare); at least 1. Where nobody knows what a kernel takes, as many as threads
    /// and the shared memory of the launch leave.
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

    /// Clusters of this shape that the whole device holds at once, of a kernel as in
    /// [`resident_blocks`](Executor::resident_blocks); at least 1. The blocks of a cluster share a part of the
    /// device, so that some multiprocessors may be left over. Where nobody knows how many, as if none were.
    ///
    /// # Errors
    /// As [`Executor::launch`], but for the arguments.
    fn resident_clusters(&self, key: &KernelKey, config: LaunchConfig) -> Result<u32, GpuError> {
        let blocks = self.resident_blocks(key, config)? * self.info().multiprocessors;
        Ok((blocks / config.cluster).max(1))
    }

    /// Executors of the same memory, on which work can run beside that of this one, between
    /// [`fork`](Executor::fork) and [`join`](Executor::join). To be made once: they take a while.
    ///
    /// # Errors
    /// What the device reports.
    fn branches(&self, count: usize) -> Result<Vec<Self>, GpuError>
    where
        Self: Sized;

    /// Whether what is issued is recorded into a graph, and does not run.
    ///
    /// # Errors
    /// What the device reports.
    fn is_recording(&self) -> Result<bool, GpuError> {
        Ok(false)
    }

    /// Puts later work on the branches behind all work issued here so far. Neither waits nor
    /// allocates; may be recorded in a graph, the branches with it.
    ///
    /// # Errors
    /// What the device reports.
    fn fork(&self, branches: &[Self]) -> Result<(), GpuError>
    where
        Self: Sized;

    /// Puts later work here behind all work issued to the branches so far, as
    /// [`fork`](Executor::fork) does.
    ///
    /// # Errors
    /// What the device reports.
    fn join(&self, branches: &[Self]) -> Result<(), GpuError>
    where
        Self: Sized;

    /// Waits until all work is done.
    ///
    /// # Errors
    /// What a kernel since the last wait met, as [`GpuError::ContextLost`].
    fn synchronize(&self) -> Result<(), GpuError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> DeviceInfo {
        DeviceInfo {
            compute_capability: (9, 0),
            max_threads_per_block: 1024,
            shared_bytes_per_block: 232_448,
            ..DeviceInfo::default()
        }
    }

    #[test]
    fn launch_shapes_within_the_limits_pass() {
        let wide = LaunchConfig {
            grid: [1, 65_535, 1],
            block: [32, 32, 1],
            shared_bytes: 232_448,
            overlaps: true,
            cluster: 1,
        };
        let clustered = LaunchConfig { cluster: 8, ..LaunchConfig::linear(16, 1024) };

        assert_eq!(LaunchConfig::linear(i32::MAX as u32, 1024).check(&info()), Ok(()));
        assert_eq!(wide.check(&info()), Ok(()));
        assert_eq!(clustered.check(&info()), Ok(()));
    }

    #[test]
    fn launch_shapes_outside_the_limits_are_refused_by_name() {
        let fine = LaunchConfig::linear(1, 32);
        let cases = [
            ("grid", LaunchConfig { grid: [0, 1, 1], ..fine }),
            ("grid", LaunchConfig { grid: [1, 65_536, 1], ..fine }),
            ("grid", LaunchConfig { grid: [1 << 31, 1, 1], ..fine }),
            ("block", LaunchConfig { block: [0, 1, 1], ..fine }),
            ("block", LaunchConfig { block: [1025, 1, 1], ..fine }),
            ("block", LaunchConfig { block: [u32::MAX, u32::MAX, 1], ..fine }),
            ("block", LaunchConfig { block: [1, 1, 65], ..fine }),
            ("shared_bytes", LaunchConfig { shared_bytes: 232_449, ..fine }),
            ("cluster", LaunchConfig { cluster: 0, ..fine }),
            ("cluster", LaunchConfig { cluster: 2, ..fine }),
            ("cluster", LaunchConfig { cluster: 4, ..LaunchConfig::linear(6, 32) }),
            ("cluster", LaunchConfig { cluster: 16, ..LaunchConfig::linear(16, 32) }),
        ];

        for (expected, config) in cases {
            match config.check(&info()) {
                Err(GpuError::InvalidArgument { name, .. }) => assert_eq!(name, expected),
                other => panic!("{config:?} gave {other:?}"),
            }
        }
    }

    #[test]
    fn clusters_are_refused_where_there_are_none() {
        let older = DeviceInfo { compute_capability: (8, 9), ..info() };
        let pair = LaunchConfig { cluster: 2, ..LaunchConfig::linear(2, 32) };

        assert_eq!(LaunchConfig::linear(2, 32).check(&older), Ok(()));
        let refused = pair.check(&older);
        assert!(matches!(refused, Err(GpuError::InvalidArgument { name: "cluster", .. })));
    }

    #[test]
    fn keys_are_shown_with_their_file() {
        let key = KernelKey::new("csr", "csr_vector<double, 8>");

        assert_eq!(key.to_string(), "csr.cu: csr_vector<double, 8>");
    }
}
