//! The launches of the kernels of `throughput.cu`, which only this suite measures, with all its
//! unsafe code.
#![allow(unsafe_code)]

use sparsebatch_cuda::{
    Args, Device, DeviceBuffer, Executor, GpuError, KernelKey, LaunchConfig, Module, Value,
};
use sparsebatch_formats::{CsrPattern, View};

use crate::contender::{Multiply, Operand};

/// The kernels of `throughput.cu`.
pub(super) static THROUGHPUT: Module =
    Module::new("throughput", include_str!("throughput.cu"), &[]);

/// Threads per block, a multiple of the warp size.
const THREADS: u32 = 256;

/// A launch configuration with a thread for each of `count` items.
fn for_all(count: u64) -> LaunchConfig {
    let blocks = count.div_ceil(u64::from(THREADS)).clamp(1, i32::MAX as u64);
    LaunchConfig::linear(blocks as u32, THREADS)
}

/// The key of a kernel of this suite.
fn key(expression: String) -> KernelKey {
    KernelKey::new(&THROUGHPUT, expression)
}

/// The key of the kernel of [`Axpy`].
pub(super) fn axpy_key<T: Value>() -> KernelKey {
    key(format!("axpy_strided<{}>", T::CPP))
}

/// The key of the kernel of [`Gather`].
pub(super) fn gather_key<T: Value>(lanes: u32, is_cached: bool) -> KernelKey {
    key(format!("csr_gather<{}, {lanes}, {is_cached}>", T::CPP))
}

/// `y = x + beta y` over strided elements.
pub(super) struct Axpy {
    device: Device,
    key: KernelKey,
    count: u64,
    stride: u64,
    first: u64,
}

impl Axpy {
    /// Prepares for `count` elements from index `first` on, at a distance of `stride`.
    ///
    /// # Errors
    /// An error of compiling the kernel.
    pub(super) fn new<T: Value>(
        device: &Device,
        count: usize,
        stride: usize,
        first: usize,
    ) -> Result<Self, GpuError> {
        let key = axpy_key::<T>();
        device.prepare(std::slice::from_ref(&key))?;
        let (count, stride, first) = (count as u64, stride as u64, first as u64);
        Ok(Self { device: device.clone(), key, count, stride, first })
    }

    /// Least length of a vector.
    fn len(&self) -> u64 {
        match self.count {
            0 => 0,
            count => self.first + (count - 1) * self.stride + 1,
        }
    }
}

/// Refuses a vector that is too short.
fn check_len(name: &'static str, expected: u64, found: usize) -> Result<(), GpuError> {
    if found as u64 >= expected {
        return Ok(());
    }
    let expected = format!("at least {expected} values");
    Err(GpuError::InvalidArgument { name, expected, found: found.to_string() })
}

impl<T: Value> Multiply<T> for Axpy {
    fn multiply(&mut self, x: &Operand<T>, beta: T, y: &mut Operand<T>) -> Result<(), GpuError> {
        check_len("x", self.len(), x.len())?;
        check_len("y", self.len(), y.len())?;
        let mut args = Args::new();
        args.scalar(self.count).scalar(self.stride).scalar(self.first);
        args.input(x).scalar(beta).output(y);
        // SAFETY: the arguments are those of `axpy_strided`; both vectors reach to the last
        // element, checked above, and y is borrowed exclusively.
        unsafe { self.device.launch(&self.key, for_all(self.count), &mut args) }
    }
}

/// A CSR product that reads x through the cache of a multiprocessor or bypasses it.
pub(super) struct Gather<T: Value> {
    device: Device,
    key: KernelKey,
    lanes: u32,
    nrows: usize,
    ncols: usize,
    row_ptr: DeviceBuffer<i32>,
    col_idx: DeviceBuffer<i32>,
    values: DeviceBuffer<T>,
}

impl<T: Value> Gather<T> {
    /// Uploads a matrix; `lanes` is 1 or 32 per row.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], or an error of compiling the kernel.
    pub(super) fn new(
        device: &Device,
        matrix: View<'_, CsrPattern, T>,
        lanes: u32,
        is_cached: bool,
    ) -> Result<Self, GpuError> {
        let key = gather_key::<T>(lanes, is_cached);
        device.prepare(std::slice::from_ref(&key))?;
        let pattern = matrix.pattern();
        Ok(Self {
            device: device.clone(),
            key,
            lanes,
            nrows: pattern.nrows(),
            ncols: pattern.ncols(),
            row_ptr: device.upload(pattern.row_ptr())?,
            col_idx: device.upload(pattern.col_idx())?,
            values: device.upload(matrix.values())?,
        })
    }

    /// Fewest bytes that a product moves.
    pub(super) fn bytes_moved(&self) -> u64 {
        let indices = 4 * (self.row_ptr.len() + self.col_idx.len());
        let values = self.values.len() + self.ncols + 2 * self.nrows;
        (indices + size_of::<T>() * values) as u64
    }
}

impl<T: Value> Multiply<T> for Gather<T> {
    fn multiply(&mut self, x: &Operand<T>, beta: T, y: &mut Operand<T>) -> Result<(), GpuError> {
        check_len("x", self.ncols as u64, x.len())?;
        check_len("y", self.nrows as u64, y.len())?;
        let config = for_all(self.nrows as u64 * u64::from(self.lanes));
        let mut args = Args::new();
        args.scalar(self.nrows as u32).input(&self.row_ptr).input(&self.col_idx);
        args.input(&self.values).input(x).scalar(beta).output(y);
        // SAFETY: the arguments are those of `csr_gather`; the arrays are those of a valid CSR
        // matrix and belong to this value, x and y have a value a column and a row, checked above,
        // and y is borrowed exclusively.
        unsafe { self.device.launch(&self.key, config, &mut args) }
    }
}
