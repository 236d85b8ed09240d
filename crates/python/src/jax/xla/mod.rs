//! The border to XLA: handlers in C that no panic crosses, and the memory of their arrays. The only
//! unsafe code of [`crate::jax`].
//!
//! | file | holds |
//! | --- | --- |
//! | `structs.rs` | the structs of XLA's interface |
//! | `frame.rs` | a call of a handler, as slices and numbers |
//! | `lent.rs` | arrays of a call as values of a batch |

mod frame;
mod lent;
mod structs;

use std::any::Any;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use sparsebatch::gpu::GpuError;
use sparsebatch::{FormatError, SolveError};

pub(super) use self::frame::{Array, Element, Frame};
pub(super) use self::lent::Lent;
use self::structs::{
    CallFrame, EXECUTE, Error, ErrorCreateArgs, Extension, MAJOR, METADATA, Metadata,
    MetadataExtension, NEWEST_MINOR, size_to,
};
use crate::errors::OptionError;

/// Kinds of errors, by XLA's numbers.
#[derive(Clone, Copy)]
pub(super) enum Code {
    Cancelled = 1,
    InvalidArgument = 3,
    NotFound = 5,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Internal = 13,
}

/// Why a call failed; JAX raises it as `JaxRuntimeError`.
pub(super) struct Failure {
    pub code: Code,
    pub message: String,
}

impl Failure {
    pub(super) fn argument(message: String) -> Self {
        Self { code: Code::InvalidArgument, message }
    }

    fn version(found: &str) -> Self {
        let message = format!(
            "{found}, sparsebatch knows XLA's foreign functions {MAJOR}.1 to {MAJOR}.{NEWEST_MINOR}"
        );
        Self { code: Code::FailedPrecondition, message }
    }

    fn panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = format!("a solve panicked: {}", text.unwrap_or("for an unknown reason"));
        Self { code: Code::Internal, message }
    }
}

impl From<SolveError> for Failure {
    fn from(error: SolveError) -> Self {
        let code = match &error {
            SolveError::Unsupported { .. } => Code::Unimplemented,
            SolveError::Stopped { .. } => Code::Cancelled,
            SolveError::Gpu(GpuError::OutOfMemory { .. }) => Code::ResourceExhausted,
            SolveError::Gpu(_) => Code::Internal,
            _ => Code::InvalidArgument,
        };
        Self { code, message: error.to_string() }
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Self {
        Self::argument(error.to_string())
    }
}

impl From<GpuError> for Failure {
    fn from(error: GpuError) -> Self {
        SolveError::from(error).into()
    }
}

/// What a handler does.
type Run = fn(&mut Frame<'_>) -> Result<(), Failure>;

/// The handler of a platform of JAX, as `jax.ffi.register_ffi_target` takes it.
pub(super) fn capsule<'py>(py: Python<'py>, platform: &str) -> PyResult<Bound<'py, PyCapsule>> {
    type Handler = unsafe extern "C" fn(*mut CallFrame) -> *mut Error;
    let handler: Handler = match platform {
        "cpu" => on_host,
        "CUDA" => on_gpu,
        _ => return Err(OptionError::new_err(format!("no handler for platform {platform}"))),
    };
    let Some(pointer) = NonNull::new(handler as *mut c_void) else {
        return Err(OptionError::new_err("the handler has no address"));
    };
    // SAFETY: the pointer is one to a function, which lives as long as the process.
    unsafe { PyCapsule::new_with_pointer(py, pointer, c"xla._CUSTOM_CALL_TARGET") }
}

/// The handler of solves in host memory.
unsafe extern "C" fn on_host(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: XLA calls with a frame that lives as long as the call.
    unsafe { handle(frame, super::host::run) }
}

/// The handler of solves on a GPU.
unsafe extern "C" fn on_gpu(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: as above.
    unsafe { handle(frame, super::device::run) }
}

/// Answers questions for the version, and runs calls.
///
/// # Safety
/// `frame` is one that XLA calls a handler with.
unsafe fn handle(frame: *mut CallFrame, run: Run) -> *mut Error {
    // SAFETY: the caller says so.
    let Some(frame) = (unsafe { frame.as_ref() }) else { return std::ptr::null_mut() };
    if frame.struct_size < size_to!(CallFrame, attributes: structs::Attributes) {
        // There may be no functions that make an error: XLA refuses a handler that tells no
        // version.
        return std::ptr::null_mut();
    }
    // SAFETY: the frame is one of XLA.
    if unsafe { tell_version(frame) } {
        return std::ptr::null_mut();
    }
    if frame.stage != EXECUTE {
        return std::ptr::null_mut();
    }
    // A solver that was lost in a panic is not used again: see `plans.rs`.
    let done = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the frame is one of XLA, and lives as long as this call.
        let mut call = unsafe { Frame::new(frame) }?;
        run(&mut call)
    }));
    let done = done.unwrap_or_else(|panic| {
        let failure = Failure::panic(&*panic);
        // A payload may panic when it is dropped.
        std::mem::forget(panic);
        Err(failure)
    });
    match done {
        Ok(()) => std::ptr::null_mut(),
        // SAFETY: the frame is one of XLA.
        Err(failure) => unsafe { error_of(frame, failure) },
    }
}

/// Answers XLA's question for the version of the interface, if this call is one; XLA asks at
/// registration, and refuses a handler with a version that it does not support.
///
/// # Safety
/// `frame` is one that XLA calls a handler with.
unsafe fn tell_version(frame: &CallFrame) -> bool {
    let mut extension: *mut Extension = frame.extension;
    // SAFETY: extensions of XLA are a list, whose end is null.
    while let Some(own) = unsafe { extension.as_ref() } {
        if own.kind != METADATA {
            extension = own.next;
            continue;
        }
        // SAFETY: extensions of this kind have this struct, and metadata to be filled in.
        unsafe {
            let metadata = (*extension.cast::<MetadataExtension>()).metadata;
            if !metadata.is_null() && (*metadata).struct_size >= size_to!(Metadata, traits: u32) {
                // Fields of these versions are the same; an older XLA wants no newer one. Without
                // functions there could be no errors: XLA is to refuse the handler.
                let (major, minor) = match frame::version_of(frame) {
                    Some((MAJOR, minor)) => (MAJOR, minor.min(NEWEST_MINOR)),
                    Some(_) => (MAJOR, NEWEST_MINOR),
                    None => (-1, 0),
                };
                (*metadata).version.major = major;
                (*metadata).version.minor = minor;
                (*metadata).traits = 0;
            }
        }
        return true;
    }
    false
}

/// An error of XLA with a message.
///
/// # Safety
/// `frame` is one that XLA calls a handler with.
unsafe fn error_of(frame: &CallFrame, failure: Failure) -> *mut Error {
    // SAFETY: the frame is one of XLA.
    if unsafe { frame::version_of(frame) }.is_none() {
        return std::ptr::null_mut();
    }
    let text = format!("sparsebatch: {}", failure.message).replace('\0', " ");
    let text = CString::new(text).unwrap_or_default();
    let mut args = ErrorCreateArgs {
        struct_size: size_to!(ErrorCreateArgs, code: c_int),
        extension: std::ptr::null_mut(),
        message: text.as_ptr().cast::<c_char>(),
        code: failure.code as c_int,
    };
    // SAFETY: XLA gives its functions with each call, and copies the message.
    unsafe {
        match (*frame.api).error_create {
            Some(create) => create(&raw mut args),
            None => std::ptr::null_mut(),
        }
    }
}
