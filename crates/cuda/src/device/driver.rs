//! Converts results of the CUDA driver to errors of this crate.

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::CudaContext;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{self, CUresult};

use crate::GpuError;

/// Turns the result of a driver function into an error that names it.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), GpuError> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(error_of(call, result)) }
}

/// As [`check`], for functions of the bindings that return a value.
pub(super) fn checked<T>(
    call: &'static str,
    result: Result<T, DriverError>,
) -> Result<T, GpuError> {
    result.map_err(|DriverError(result)| error_of(call, result))
}

fn error_of(call: &'static str, result: CUresult) -> GpuError {
    let (code, message) = (result as u32, message(result));
    if loses_context(result) {
        GpuError::ContextLost { call, code, message }
    } else {
        GpuError::Driver { call, code, message }
    }
}

/// Makes a context current in this thread, which most functions of the driver need.
pub(super) fn bind(context: &CudaContext) -> Result<(), GpuError> {
    checked("cuCtxSetCurrent", context.bind_to_thread())
}

/// Whether a result means that the context is lost, so that every later call fails.
fn loses_context(result: CUresult) -> bool {
    matches!(
        result,
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
    )
}

/// The driver's text for a result, in one line.
fn message(result: CUresult) -> String {
    // Results come from a loaded driver, except in tests, which construct them without a driver.
    if !super::availability::driver_is_present() {
        return format!("{result:?}");
    }
    let mut text = ptr::null();
    // SAFETY: (1) the driver library can be opened; (2) the pointer is to one pointer.
    let found = unsafe { sys::cuGetErrorString(result, &mut text) };
    if found != CUresult::CUDA_SUCCESS || text.is_null() {
        return format!("{result:?}");
    }
    // SAFETY: the call succeeded, so `text` is a C string owned by the driver.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_is_no_error() {
        assert_eq!(check("cuInit", CUresult::CUDA_SUCCESS), Ok(()));
    }

    #[test]
    fn refusals_and_faults_are_told_apart() {
        let refused = check("cuLaunchKernel", CUresult::CUDA_ERROR_INVALID_VALUE).unwrap_err();
        let fault = check("cuStreamSynchronize", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).unwrap_err();

        assert!(matches!(refused, GpuError::Driver { call: "cuLaunchKernel", code: 1, .. }));
        assert!(matches!(fault, GpuError::ContextLost { code: 700, .. }));
    }
}
