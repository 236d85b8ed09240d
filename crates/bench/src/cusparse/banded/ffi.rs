//! The calls of cuSPARSE for tridiagonal and pentadiagonal systems, with all the unsafe code of
//! this peer.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use cudarc::cusparse::sys::{self, cusparseHandle_t as Handle, cusparseStatus_t as Status};
use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError, Pod};

use super::super::ffi::{CusparseHandle, checked};
use super::BandedCall;

/// A precision that these calls support.
pub(crate) trait Diagonals: Pod + Calls {}

impl Diagonals for f64 {}
impl Diagonals for f32 {}

/// What the calls take: diagonals from the lowest to the highest, then right-hand sides that
/// become solutions, and memory to work in.
#[derive(Clone, Copy)]
pub(crate) struct Arguments<'a, T> {
    diagonals: &'a [*mut T],
    x: *mut T,
    rows: c_int,
    systems: c_int,
}

/// The library's calls in one precision; their safety contracts are the library's.
pub(crate) trait Calls: Sized {
    /// Bytes of memory that a call works in.
    unsafe fn bytes(
        handle: Handle,
        call: BandedCall,
        arguments: Arguments<'_, Self>,
        bytes: *mut usize,
    ) -> Status;

    /// The call itself.
    unsafe fn solve(
        handle: Handle,
        call: BandedCall,
        arguments: Arguments<'_, Self>,
        work: *mut c_void,
    ) -> Status;
}

macro_rules! calls {
    ($t:ty, $strided:ident $strided_bytes:ident, $three:ident $three_bytes:ident,
     $five:ident $five_bytes:ident) => {
        impl Calls for $t {
            unsafe fn bytes(
                handle: Handle,
                call: BandedCall,
                arguments: Arguments<'_, Self>,
                bytes: *mut usize,
            ) -> Status {
                let Arguments { diagonals: d, x, rows: m, systems: n } = arguments;
                // SAFETY: the caller upholds the contracts of the calls.
                unsafe {
                    match call {
                        BandedCall::Strided => {
                            sys::$strided_bytes(handle, m, d[0], d[1], d[2], x, n, m, bytes)
                        }
                        BandedCall::Interleaved(algorithm) => {
                            sys::$three_bytes(handle, algorithm, m, d[0], d[1], d[2], x, n, bytes)
                        }
                        BandedCall::Pentadiagonal => sys::$five_bytes(
                            handle, 0, m, d[0], d[1], d[2], d[3], d[4], x, n, bytes,
                        ),
                    }
                }
            }

            unsafe fn solve(
                handle: Handle,
                call: BandedCall,
                arguments: Arguments<'_, Self>,
                work: *mut c_void,
            ) -> Status {
                let Arguments { diagonals: d, x, rows: m, systems: n } = arguments;
                // SAFETY: the caller upholds the contracts of the calls.
                unsafe {
                    match call {
                        BandedCall::Strided => {
                            sys::$strided(handle, m, d[0], d[1], d[2], x, n, m, work)
                        }
                        BandedCall::Interleaved(algorithm) => {
                            sys::$three(handle, algorithm, m, d[0], d[1], d[2], x, n, work)
                        }
                        BandedCall::Pentadiagonal => {
                            sys::$five(handle, 0, m, d[0], d[1], d[2], d[3], d[4], x, n, work)
                        }
                    }
                }
            }
        }
    };
}

calls!(
    f64,
    cusparseDgtsv2StridedBatch cusparseDgtsv2StridedBatch_bufferSizeExt,
    cusparseDgtsvInterleavedBatch cusparseDgtsvInterleavedBatch_bufferSizeExt,
    cusparseDgpsvInterleavedBatch cusparseDgpsvInterleavedBatch_bufferSizeExt
);
calls!(
    f32,
    cusparseSgtsv2StridedBatch cusparseSgtsv2StridedBatch_bufferSizeExt,
    cusparseSgtsvInterleavedBatch cusparseSgtsvInterleavedBatch_bufferSizeExt,
    cusparseSgpsvInterleavedBatch cusparseSgpsvInterleavedBatch_bufferSizeExt
);

/// The arrays of a call: each diagonal of all systems, and their right-hand sides.
pub(super) struct Work<T: Diagonals> {
    handle: Rc<CusparseHandle>,
    call: BandedCall,
    rows: c_int,
    systems: c_int,
    diagonals: Vec<DeviceBuffer<T>>,
    x: DeviceBuffer<T>,
    work: DeviceBuffer<u8>,
}

impl<T: Diagonals> Work<T> {
    /// Allocates for `systems` systems of `rows` rows.
    pub(super) fn new(
        device: &Device,
        handle: Rc<CusparseHandle>,
        call: BandedCall,
        rows: usize,
        systems: usize,
    ) -> Result<Self, GpuError> {
        let int = |name, value: usize| {
            c_int::try_from(value).map_err(|_| GpuError::InvalidArgument {
                name,
                expected: format!("at most {}", c_int::MAX),
                found: value.to_string(),
            })
        };
        int("rows of all systems", rows * systems)?;
        let alloc = || device.alloc(rows * systems);
        let mut work = Self {
            handle,
            call,
            rows: int("rows", rows)?,
            systems: int("systems", systems)?,
            diagonals: (0..call.diagonals()).map(|_| alloc()).collect::<Result<_, _>>()?,
            x: alloc()?,
            work: device.alloc(0)?,
        };
        let mut bytes = 0;
        let addresses = work.addresses();
        // SAFETY: (1) the handle is alive, with its context bound to this thread, where it was made;
        // (2) the arrays have rows x systems values each, and the last pointer is to one size.
        let status =
            unsafe { T::bytes(work.handle.raw, call, work.arguments(&addresses), &mut bytes) };
        checked("cusparse_bufferSizeExt", status)?;
        work.work = device.alloc(bytes.max(1))?;
        Ok(work)
    }

    fn addresses(&self) -> Vec<*mut T> {
        self.diagonals.iter().map(|diagonal| diagonal.raw() as *mut T).collect()
    }

    fn arguments<'a>(&self, diagonals: &'a [*mut T]) -> Arguments<'a, T> {
        let Self { rows, systems, .. } = *self;
        Arguments { diagonals, x: self.x.raw() as *mut T, rows, systems }
    }

    /// Issues the solve of what the arrays hold, which it overwrites.
    pub(super) fn solve(&mut self) -> Result<(), GpuError> {
        let addresses = self.addresses();
        // SAFETY: as in `new`; (3) the memory to work in has the size asked for; (4) all arrays are
        // this value's, borrowed exclusively, and freed only after work that was issued before.
        let status = unsafe {
            let work = self.work.raw() as *mut c_void;
            T::solve(self.handle.raw, self.call, self.arguments(&addresses), work)
        };
        checked(self.call.name(), status)
    }

    /// The diagonals, and the right-hand sides or solutions.
    pub(super) fn arrays_mut(&mut self) -> (&mut [DeviceBuffer<T>], &mut DeviceBuffer<T>) {
        (&mut self.diagonals, &mut self.x)
    }

    pub(super) fn solutions(&self) -> &DeviceBuffer<T> {
        &self.x
    }
}
