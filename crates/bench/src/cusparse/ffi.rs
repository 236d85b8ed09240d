//! The calls of cuSPARSE, with all the unsafe code of this peer.
//!
//! The bindings panic where the library is missing, so [`is_present`] comes first.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr;
use std::rc::Rc;

use cudarc::cusparse::sys::{self, cusparseSpMVAlg_t as Alg, cusparseStatus_t as Status};
use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError, Pod, Value};

use super::{Algorithm, Format, SLICE};

const INDEX: sys::cusparseIndexType_t = sys::cusparseIndexType_t::CUSPARSE_INDEX_32I;
const BASE: sys::cusparseIndexBase_t = sys::cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO;
const PLAIN: sys::cusparseOperation_t = sys::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;

/// The library's name of a value type.
fn real<T: Value>() -> sys::cudaDataType {
    match size_of::<T>() {
        4 => sys::cudaDataType::CUDA_R_32F,
        _ => sys::cudaDataType::CUDA_R_64F,
    }
}

/// Whether the library is found.
pub(super) fn is_present() -> bool {
    // SAFETY: looks for the library and loads it; its initialisers have no preconditions.
    unsafe { sys::is_culib_present() }
}

pub(super) fn checked(call: &'static str, status: Status) -> Result<(), GpuError> {
    if status == Status::CUSPARSE_STATUS_SUCCESS {
        return Ok(());
    }
    // SAFETY: the library is loaded, since it gave the status; the text is static and ends in 0.
    let message = unsafe {
        let text = sys::cusparseGetErrorString(status);
        if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
    };
    Err(GpuError::Driver { call, code: status as u32, message: message.into_owned() })
}

fn address<T: Pod>(buffer: &DeviceBuffer<T>) -> *mut c_void {
    buffer.raw() as *mut c_void
}

/// The library's state for a device.
pub(super) struct CusparseHandle {
    pub(super) raw: sys::cusparseHandle_t,
    // Keeps the device alive, which owns the stream of the handle.
    _device: Device,
}

impl CusparseHandle {
    /// Creates a handle. The library must be present (`is_present`).
    pub(super) fn new(device: &Device) -> Result<Self, GpuError> {
        // Binds the device's context to this thread; the library uses the current context.
        device.synchronize()?;
        let mut raw = ptr::null_mut();
        // SAFETY: (1) the library is present; (2) the pointer is to one handle.
        checked("cusparseCreate", unsafe { sys::cusparseCreate(&mut raw) })?;
        let handle = Self { raw, _device: device.clone() };
        // SAFETY: (1) the handle is alive; (2) the stream is of the current context and lives as
        // long as the device that the handle keeps.
        let status = unsafe { sys::cusparseSetStream(raw, device.raw_stream().cast()) };
        checked("cusparseSetStream", status)?;
        Ok(handle)
    }

    pub(super) fn version(&self) -> String {
        let mut number = 0;
        // SAFETY: (1) the handle is alive; (2) the pointer is to one integer.
        let status = unsafe { sys::cusparseGetVersion(self.raw, &mut number) };
        if status != Status::CUSPARSE_STATUS_SUCCESS {
            return "unknown".to_owned();
        }
        format!("{}.{}.{}", number / 1000, number / 100 % 10, number % 100)
    }
}

impl Drop for CusparseHandle {
    fn drop(&mut self) {
        // SAFETY: the handle was made in `new` and is destroyed once; its users hold it by `Rc`.
        unsafe { sys::cusparseDestroy(self.raw) };
    }
}

/// The arrays of a matrix.
pub(super) struct Layout<T: Value> {
    pub(super) format: Format,
    /// Row offsets (CSR), the row of each entry (COO) or slice offsets (SELL).
    pub(super) starts: DeviceBuffer<i32>,
    pub(super) cols: DeviceBuffer<i32>,
    pub(super) values: DeviceBuffer<T>,
}

impl<T: Value> Layout<T> {
    /// A second handle on the same arrays, without a copy.
    pub(super) fn share(&self) -> Result<Self, GpuError> {
        fn whole<T: Pod>(buffer: &DeviceBuffer<T>) -> Result<DeviceBuffer<T>, GpuError> {
            buffer.range(0..buffer.len())
        }
        let Self { format, starts, cols, values } = self;
        let (starts, cols, values) = (whole(starts)?, whole(cols)?, whole(values)?);
        Ok(Self { format: *format, starts, cols, values })
    }

    /// Total bytes of the arrays.
    pub(super) fn bytes(&self) -> u64 {
        (self.starts.bytes() + self.cols.bytes() + self.values.bytes()) as u64
    }
}

/// A descriptor of a matrix, which keeps the matrix's arrays alive.
struct Descriptor<T: Value> {
    raw: sys::cusparseSpMatDescr_t,
    _layout: Layout<T>,
}

impl<T: Value> Descriptor<T> {
    fn new(layout: Layout<T>, [nrows, ncols, nnz]: [usize; 3]) -> Result<Self, GpuError> {
        let mut raw = ptr::null_mut();
        let (starts, cols) = (address(&layout.starts), address(&layout.cols));
        let (values, slots) = (address(&layout.values), layout.values.len());
        let real = real::<T>();
        let (nrows, ncols, nnz) = (nrows as i64, ncols as i64, nnz as i64);
        // SAFETY: (1) the pointer is to one descriptor; (2) the arrays are in device memory, of the
        // types named, with the lengths that the sizes ask for, and outlive the descriptor.
        let (call, status) = unsafe {
            match layout.format {
                Format::Csr => (
                    "cusparseCreateCsr",
                    sys::cusparseCreateCsr(
                        &mut raw, nrows, ncols, nnz, starts, cols, values, INDEX, INDEX, BASE, real,
                    ),
                ),
                Format::Coo => (
                    "cusparseCreateCoo",
                    sys::cusparseCreateCoo(
                        &mut raw, nrows, ncols, nnz, starts, cols, values, INDEX, BASE, real,
                    ),
                ),
                Format::Sell => (
                    "cusparseCreateSlicedEll",
                    sys::cusparseCreateSlicedEll(
                        &mut raw,
                        nrows,
                        ncols,
                        nnz,
                        slots as i64,
                        SLICE as i64,
                        starts,
                        cols,
                        values,
                        INDEX,
                        INDEX,
                        BASE,
                        real,
                    ),
                ),
            }
        };
        checked(call, status)?;
        Ok(Self { raw, _layout: layout })
    }
}

impl<T: Value> Drop for Descriptor<T> {
    fn drop(&mut self) {
        // SAFETY: the descriptor was made in `new` and is destroyed once.
        unsafe { sys::cusparseDestroySpMat(self.raw.cast_const()) };
    }
}

/// A descriptor of a vector whose address is set before each use.
struct Vector {
    raw: sys::cusparseDnVecDescr_t,
    len: usize,
}

impl Vector {
    /// `at` is the address of a buffer with `len` values.
    fn new<T: Value>(len: usize, at: *mut c_void) -> Result<Self, GpuError> {
        let mut raw = ptr::null_mut();
        // SAFETY: (1) the pointer is to one descriptor; (2) nothing is read through the address
        // before `set` replaces it, but by the analysis in `AnalysedProduct::new`, where the scratch lives.
        let status = unsafe { sys::cusparseCreateDnVec(&mut raw, len as i64, at, real::<T>()) };
        checked("cusparseCreateDnVec", status)?;
        Ok(Self { raw, len })
    }

    fn set(&self, at: *mut c_void) -> Result<(), GpuError> {
        // SAFETY: the descriptor is alive; the address is only used by the products that follow.
        checked("cusparseDnVecSetValues", unsafe { sys::cusparseDnVecSetValues(self.raw, at) })
    }
}

impl Drop for Vector {
    fn drop(&mut self) {
        // SAFETY: the descriptor was made in `new` and is destroyed once.
        unsafe { sys::cusparseDestroyDnVec(self.raw.cast_const()) };
    }
}

/// Stands in for the vectors while a matrix is analysed.
pub(super) struct Scratch<T: Value> {
    x: DeviceBuffer<T>,
    y: DeviceBuffer<T>,
    workspaces: Workspaces,
}

/// Memory that workspaces are carved from: thousands of allocations, and the waits to free them,
/// would take longer than the measurement.
struct Workspaces {
    block: DeviceBuffer<u8>,
    used: usize,
}

impl Workspaces {
    /// Bytes of a block that several workspaces share.
    const BLOCK: usize = 4 << 20;

    /// Alignment of a workspace in bytes, that of an allocation.
    const ALIGNMENT: usize = 256;

    fn take(&mut self, device: &Device, bytes: usize) -> Result<DeviceBuffer<u8>, GpuError> {
        let bytes = bytes.max(1).next_multiple_of(Self::ALIGNMENT);
        if bytes > Self::BLOCK / 4 {
            return device.alloc(bytes);
        }
        if self.used + bytes > self.block.len() {
            *self = Self { block: device.alloc(Self::BLOCK)?, used: 0 };
        }
        self.used += bytes;
        self.block.range(self.used - bytes..self.used)
    }
}

impl<T: Value> Scratch<T> {
    /// Allocates for matrices of up to `nrows` rows and `ncols` columns.
    pub(super) fn new(device: &Device, nrows: usize, ncols: usize) -> Result<Self, GpuError> {
        let workspaces = Workspaces { block: device.alloc(0)?, used: 0 };
        Ok(Self { x: device.alloc(ncols)?, y: device.alloc(nrows)?, workspaces })
    }

    fn check(&self, [nrows, ncols, _]: [usize; 3]) -> Result<(), GpuError> {
        for (name, expected, found) in [("x", ncols, self.x.len()), ("y", nrows, self.y.len())] {
            if expected > found {
                return Err(GpuError::Length { name, expected, found });
            }
        }
        Ok(())
    }
}

/// A matrix analysed for one algorithm.
pub(super) struct AnalysedProduct<T: Value> {
    matrix: Descriptor<T>,
    x: Vector,
    y: Vector,
    algorithm: Alg,
    workspace: DeviceBuffer<u8>,
    /// Addresses of x and y that the descriptors now hold.
    bound: (u64, u64),
    handle: Rc<CusparseHandle>,
}

impl<T: Value> AnalysedProduct<T> {
    /// Analyses a matrix. `sizes` are rows, columns and entries, and `layout` has the arrays of
    /// such a matrix with indices in their ranges.
    pub(super) fn new(
        device: &Device,
        handle: Rc<CusparseHandle>,
        layout: Layout<T>,
        sizes: [usize; 3],
        algorithm: Algorithm,
        scratch: &mut Scratch<T>,
    ) -> Result<Self, GpuError> {
        scratch.check(sizes)?;
        let algorithm = match algorithm {
            Algorithm::Csr1 => Alg::CUSPARSE_SPMV_CSR_ALG1,
            Algorithm::Csr2 => Alg::CUSPARSE_SPMV_CSR_ALG2,
            Algorithm::Coo1 => Alg::CUSPARSE_SPMV_COO_ALG1,
            Algorithm::Coo2 => Alg::CUSPARSE_SPMV_COO_ALG2,
            Algorithm::Sell => Alg::CUSPARSE_SPMV_SELL_ALG1,
        };
        let [nrows, ncols, _] = sizes;
        let matrix = Descriptor::new(layout, sizes)?;
        let x = Vector::new::<T>(ncols, address(&scratch.x))?;
        let y = Vector::new::<T>(nrows, address(&scratch.y))?;
        let one = T::ONE;
        let scalar = ptr::from_ref(&one).cast();
        let mut bytes = 0;
        // SAFETY: (1) handle and descriptors are alive; (2) scalars are on the host, as by default;
        // (3) the last pointer is to one size.
        let status = unsafe {
            sys::cusparseSpMV_bufferSize(
                handle.raw,
                PLAIN,
                scalar,
                matrix.raw.cast_const(),
                x.raw.cast_const(),
                scalar,
                y.raw,
                real::<T>(),
                algorithm,
                &mut bytes,
            )
        };
        checked("cusparseSpMV_bufferSize", status)?;
        let workspace = scratch.workspaces.take(device, bytes)?;
        let product = Self { matrix, x, y, algorithm, workspace, bound: (0, 0), handle };
        // SAFETY: as above; (4) the workspace has the size asked for and stays this product's.
        let status = unsafe {
            sys::cusparseSpMV_preprocess(
                product.handle.raw,
                PLAIN,
                scalar,
                product.matrix.raw.cast_const(),
                product.x.raw.cast_const(),
                scalar,
                product.y.raw,
                real::<T>(),
                algorithm,
                address(&product.workspace),
            )
        };
        // Only some formats have an analysis; products of the others do without it.
        if algorithm != Alg::CUSPARSE_SPMV_SELL_ALG1 {
            checked("cusparseSpMV_preprocess", status)?;
        }
        Ok(product)
    }

    /// Issues `y = A x + beta y` and returns.
    pub(super) fn apply(
        &mut self,
        x: &DeviceBuffer<T>,
        beta: T,
        y: &mut DeviceBuffer<T>,
    ) -> Result<(), GpuError> {
        for (name, expected, found) in [("x", self.x.len, x.len()), ("y", self.y.len, y.len())] {
            if expected != found {
                return Err(GpuError::Length { name, expected, found });
            }
        }
        if self.bound != (x.raw(), y.raw()) {
            self.x.set(address(x))?;
            self.y.set(address(y))?;
            self.bound = (x.raw(), y.raw());
        }
        let one = T::ONE;
        // SAFETY: (1) handle and descriptors are alive; (2) scalars are on the host and read during
        // the call; (3) x and y have the lengths of the descriptors, checked above, and y is
        // borrowed exclusively; (4) the workspace has the size asked for; (5) buffers are freed
        // only after work that was issued before.
        let status = unsafe {
            sys::cusparseSpMV(
                self.handle.raw,
                PLAIN,
                ptr::from_ref(&one).cast(),
                self.matrix.raw.cast_const(),
                self.x.raw.cast_const(),
                ptr::from_ref(&beta).cast(),
                self.y.raw,
                real::<T>(),
                self.algorithm,
                address(&self.workspace),
            )
        };
        checked("cusparseSpMV", status)
    }
}
