//! The calls of cuBLAS, with all the unsafe code of this peer.
//!
//! The bindings panic where the library is missing, so [`is_present`] comes first.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;

use cudarc::cublas::sys::{self, cublasStatus_t as Status};
use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError, Pod};

const PLAIN: sys::cublasOperation_t = sys::cublasOperation_t::CUBLAS_OP_N;

/// Whether the library is found.
pub(super) fn is_present() -> bool {
    // SAFETY: looks for the library and loads it; its initialisers have no preconditions.
    unsafe { sys::is_culib_present() }
}

fn checked(call: &'static str, status: Status) -> Result<(), GpuError> {
    if status == Status::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    // SAFETY: the library is loaded, since it gave the status; the text is static and ends in 0.
    let message = unsafe {
        let text = sys::cublasGetStatusString(status);
        if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
    };
    Err(GpuError::Driver { call, code: status as u32, message: message.into_owned() })
}

/// The library's state for a device.
pub(super) struct CublasHandle {
    raw: sys::cublasHandle_t,
    // Keeps the device alive, which owns the stream of the handle.
    _device: Device,
}

impl CublasHandle {
    /// Creates a handle. The library must be present (`is_present`).
    pub(super) fn new(device: &Device) -> Result<Self, GpuError> {
        // Binds the device's context to this thread; the library uses the current context.
        device.synchronize()?;
        let mut raw = ptr::null_mut();
        // SAFETY: (1) the library is present; (2) the pointer is to one handle.
        checked("cublasCreate", unsafe { sys::cublasCreate_v2(&mut raw) })?;
        let handle = Self { raw, _device: device.clone() };
        // SAFETY: (1) the handle is alive; (2) the stream is of the current context and lives as
        // long as the device that the handle keeps.
        let status = unsafe { sys::cublasSetStream_v2(raw, device.raw_stream().cast()) };
        checked("cublasSetStream", status)?;
        Ok(handle)
    }

    pub(super) fn version(&self) -> String {
        let mut number = 0;
        // SAFETY: (1) the handle is alive; (2) the pointer is to one integer.
        let status = unsafe { sys::cublasGetVersion_v2(self.raw, &mut number) };
        if status != Status::CUBLAS_STATUS_SUCCESS {
            return "unknown".to_owned();
        }
        format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
    }
}

impl Drop for CublasHandle {
    fn drop(&mut self) {
        // SAFETY: the handle was made in `new` and is destroyed once; its users hold it by `Rc`.
        unsafe { sys::cublasDestroy_v2(self.raw) };
    }
}

type Int = std::ffi::c_int;

/// A precision that the batched LU supports.
pub(crate) trait Element: Pod + Calls {}

impl Element for f64 {}
impl Element for f32 {}

/// The library's calls in one precision; their safety contracts are the library's.
pub(crate) trait Calls: Sized {
    /// `cublas<t>copy`.
    unsafe fn copy(
        handle: sys::cublasHandle_t,
        len: i64,
        from: *const Self,
        to: *mut Self,
    ) -> Status;
    /// `cublas<t>getrfBatched`.
    unsafe fn getrf(
        handle: sys::cublasHandle_t,
        n: Int,
        matrices: *const *mut Self,
        pivots: *mut Int,
        info: *mut Int,
        batch: Int,
    ) -> Status;
    /// `cublas<t>getrsBatched` with one right-hand side.
    unsafe fn getrs(
        handle: sys::cublasHandle_t,
        n: Int,
        factors: *const *const Self,
        pivots: *const Int,
        vectors: *const *mut Self,
        info: *mut Int,
        batch: Int,
    ) -> Status;
}

macro_rules! calls {
    ($t:ty, $copy:ident, $getrf:ident, $getrs:ident) => {
        impl Calls for $t {
            unsafe fn copy(
                handle: sys::cublasHandle_t,
                len: i64,
                from: *const Self,
                to: *mut Self,
            ) -> Status {
                // SAFETY: the caller upholds the contract of the call.
                unsafe { sys::$copy(handle, len, from, 1, to, 1) }
            }

            unsafe fn getrf(
                handle: sys::cublasHandle_t,
                n: Int,
                matrices: *const *mut Self,
                pivots: *mut Int,
                info: *mut Int,
                batch: Int,
            ) -> Status {
                // SAFETY: the caller upholds the contract of the call.
                unsafe { sys::$getrf(handle, n, matrices, n, pivots, info, batch) }
            }

            unsafe fn getrs(
                handle: sys::cublasHandle_t,
                n: Int,
                factors: *const *const Self,
                pivots: *const Int,
                vectors: *const *mut Self,
                info: *mut Int,
                batch: Int,
            ) -> Status {
                // SAFETY: the caller upholds the contract of the call.
                unsafe {
                    sys::$getrs(handle, PLAIN, n, 1, factors, n, pivots, vectors, n, info, batch)
                }
            }
        }
    };
}

calls!(f64, cublasDcopy_v2_64, cublasDgetrfBatched, cublasDgetrsBatched);
calls!(f32, cublasScopy_v2_64, cublasSgetrfBatched, cublasSgetrsBatched);

/// The arrays of a batched `n` x `n` factorisation, with sets of right-hand sides.
pub(super) struct Work<T: Element> {
    handle: Rc<CublasHandle>,
    n: Int,
    nitems: Int,
    matrices: DeviceBuffer<T>,
    vectors: Vec<DeviceBuffer<T>>,
    /// Device addresses of each matrix, and of each vector of each set.
    matrix_starts: DeviceBuffer<u64>,
    vector_starts: Vec<DeviceBuffer<u64>>,
    pivots: DeviceBuffer<i32>,
    info: DeviceBuffer<i32>,
}

impl<T: Element> Work<T> {
    pub(super) fn new(
        device: &Device,
        handle: Rc<CublasHandle>,
        n: usize,
        nitems: usize,
        sets: usize,
    ) -> Result<Self, GpuError> {
        let int = |name, value: usize| {
            Int::try_from(value).map_err(|_| GpuError::InvalidArgument {
                name,
                expected: format!("at most {}", Int::MAX),
                found: value.to_string(),
            })
        };
        let matrices = device.alloc(n * n * nitems)?;
        let vectors: Vec<DeviceBuffer<T>> =
            (0..sets).map(|_| device.alloc(n * nitems)).collect::<Result<_, _>>()?;
        let starts = |buffer: &DeviceBuffer<T>, each: usize| {
            let bytes = (each * size_of::<T>()) as u64;
            let starts: Vec<u64> =
                (0..nitems as u64).map(|item| buffer.raw() + item * bytes).collect();
            device.upload(&starts)
        };
        Ok(Self {
            handle,
            n: int("rows", n)?,
            nitems: int("systems", nitems)?,
            matrix_starts: starts(&matrices, n * n)?,
            vector_starts: vectors.iter().map(|set| starts(set, n)).collect::<Result<_, _>>()?,
            matrices,
            vectors,
            pivots: device.alloc(n * nitems)?,
            info: device.alloc(nitems)?,
        })
    }

    /// Issues copies of matrices and right-hand sides into the arrays that a solve overwrites.
    pub(super) fn load(
        &mut self,
        matrices: &DeviceBuffer<T>,
        b: &DeviceBuffer<T>,
    ) -> Result<(), GpuError> {
        for (from, to) in [(matrices, &self.matrices), (b, &self.vectors[0])] {
            assert_eq!(from.len(), to.len(), "arrays of the batch that the work was made for");
            // SAFETY: (1) the handle is alive, with its context bound to this thread, where it was
            // made; (2) both arrays are in device memory with `from.len()` values, asserted above,
            // and freeing them waits for work that uses them; (3) they are apart, since `to`
            // belongs to this value alone.
            let status = unsafe {
                T::copy(
                    self.handle.raw,
                    from.len() as i64,
                    from.raw() as *const T,
                    to.raw() as *mut T,
                )
            };
            checked("cublasCopy", status)?;
        }
        Ok(())
    }

    /// Issues factorisation and substitution of the loaded systems.
    pub(super) fn solve(&mut self) -> Result<(), GpuError> {
        let nitems = self.nitems as usize;
        self.factor(nitems)?;
        self.substitute(0, nitems)
    }

    /// Number of systems of a call: `nitems`, at most those allocated.
    fn items(&self, nitems: usize) -> Int {
        Int::try_from(nitems).map_or(self.nitems, |nitems| nitems.min(self.nitems))
    }

    /// Issues the factorisation of the first `nitems` systems; the factors overwrite the matrices.
    pub(super) fn factor(&mut self, nitems: usize) -> Result<(), GpuError> {
        // SAFETY: (1) the handle is alive, with its context bound to this thread; (2) the arrays
        // are in device memory, of at least as many pointers, n times as many pivots and as many
        // codes; (3) the pointers are to matrices of n x n values, n apart, that this value owns.
        let status = unsafe {
            T::getrf(
                self.handle.raw,
                self.n,
                self.matrix_starts.raw() as *const *mut T,
                self.pivots.raw() as *mut Int,
                self.info.raw() as *mut Int,
                self.items(nitems),
            )
        };
        checked("cublasGetrfBatched", status)
    }

    /// Issues the substitution for set `set` of the first `nitems` systems; solutions overwrite the
    /// right-hand sides.
    pub(super) fn substitute(&mut self, set: usize, nitems: usize) -> Result<(), GpuError> {
        let mut wrong_argument = 0;
        // SAFETY: as in `factor`; (4) the pointers of the vectors are to n values each that this
        // value owns; (5) the last pointer is to one integer of the host, written before the call
        // returns.
        let status = unsafe {
            T::getrs(
                self.handle.raw,
                self.n,
                self.matrix_starts.raw() as *const *const T,
                self.pivots.raw() as *const Int,
                self.vector_starts[set].raw() as *const *mut T,
                &mut wrong_argument,
                self.items(nitems),
            )
        };
        checked("cublasGetrsBatched", status)
    }

    /// The solutions of the loaded systems, which overwrote the right-hand sides.
    pub(super) fn solutions(&self) -> &DeviceBuffer<T> {
        &self.vectors[0]
    }

    /// The matrices, column by column, or their factors.
    pub(super) fn matrices_mut(&mut self) -> &mut DeviceBuffer<T> {
        &mut self.matrices
    }

    /// The sets of right-hand sides or solutions.
    pub(super) fn vectors(&self) -> &[DeviceBuffer<T>] {
        &self.vectors
    }

    /// The sets of right-hand sides or solutions.
    pub(super) fn vectors_mut(&mut self) -> &mut [DeviceBuffer<T>] {
        &mut self.vectors
    }

    /// Status of each system: 0, or the column without a pivot, counted from 1.
    pub(super) fn info(&self) -> &DeviceBuffer<i32> {
        &self.info
    }
}
