//! The structs of the C interface of XLA's foreign functions, as far as the handlers use them.
//!
//! They follow `xla/ffi/api/c_api.h` of the interface 0.1 to 0.3. Later minor versions append
//! fields, so that each struct tells its size, and fields are read only where it has them.

use std::ffi::{c_char, c_int, c_void};

/// The versions whose structs these are.
pub(super) const MAJOR: c_int = 0;
pub(super) const NEWEST_MINOR: c_int = 3;

/// The kind of the extension by which XLA asks for the version of a handler.
pub(super) const METADATA: c_int = 1;

/// The stage in which a handler runs its function.
pub(super) const EXECUTE: c_int = 3;

/// Kinds of attributes.
pub(super) const SCALAR: c_int = 3;
pub(super) const STRING: c_int = 4;

/// The kind of arguments and results that are arrays.
pub(super) const BUFFER: c_int = 1;

/// The bytes of a struct up to the end of a field, which is the size that XLA compares.
macro_rules! size_to {
    ($struct:ty, $field:ident: $type:ty) => {
        std::mem::offset_of!($struct, $field) + size_of::<$type>()
    };
}
pub(super) use size_to;

/// An error that XLA owns.
#[repr(C)]
pub(super) struct Error {
    _private: [u8; 0],
}

#[repr(C)]
pub(super) struct Extension {
    pub struct_size: usize,
    pub kind: c_int,
    pub next: *mut Extension,
}

#[repr(C)]
pub(super) struct ApiVersion {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub major: c_int,
    pub minor: c_int,
}

#[repr(C)]
pub(super) struct Metadata {
    pub struct_size: usize,
    pub version: ApiVersion,
    pub traits: u32,
}

#[repr(C)]
pub(super) struct MetadataExtension {
    pub base: Extension,
    pub metadata: *mut Metadata,
}

#[repr(C)]
pub(super) struct ErrorCreateArgs {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub message: *const c_char,
    pub code: c_int,
}

#[repr(C)]
pub(super) struct ErrorDestroyArgs {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub error: *mut Error,
}

#[repr(C)]
pub(super) struct StreamGetArgs {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub context: *mut c_void,
    pub stream: *mut c_void,
}

#[repr(C)]
pub(super) struct DeviceOrdinalGetArgs {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub context: *mut c_void,
    pub ordinal: i32,
}

/// A function of XLA that the handlers do not call.
type Unused = *const c_void;

/// The functions of XLA.
#[repr(C)]
pub(super) struct Api {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub version: ApiVersion,
    pub internal: *const c_void,
    pub error_create: Option<unsafe extern "C" fn(*mut ErrorCreateArgs) -> *mut Error>,
    pub error_get_message: Unused,
    pub error_destroy: Option<unsafe extern "C" fn(*mut ErrorDestroyArgs)>,
    pub handler_register: Unused,
    pub stream_get: Option<unsafe extern "C" fn(*mut StreamGetArgs) -> *mut Error>,
    pub type_register: Unused,
    pub execution_context_get: Unused,
    pub state_set: Unused,
    pub state_get: Unused,
    pub device_memory_allocate: Unused,
    pub device_memory_free: Unused,
    pub thread_pool_schedule: Unused,
    pub thread_pool_num_threads: Unused,
    pub future_create: Unused,
    pub future_set_available: Unused,
    pub future_set_error: Unused,
    pub run_id_get: Unused,
    pub device_ordinal_get: Option<unsafe extern "C" fn(*mut DeviceOrdinalGetArgs) -> *mut Error>,
}

#[repr(C)]
pub(super) struct Buffer {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub dtype: c_int,
    pub data: *mut c_void,
    pub rank: i64,
    pub dims: *mut i64,
}

#[repr(C)]
pub(super) struct ByteSpan {
    pub start: *const u8,
    pub len: usize,
}

#[repr(C)]
pub(super) struct Scalar {
    pub dtype: c_int,
    pub value: *mut c_void,
}

/// Arguments or results.
#[repr(C)]
pub(super) struct Arrays {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub size: i64,
    pub kinds: *mut c_int,
    pub arrays: *mut *mut c_void,
}

#[repr(C)]
pub(super) struct Attributes {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub size: i64,
    pub kinds: *mut c_int,
    pub names: *mut *mut ByteSpan,
    pub attributes: *mut *mut c_void,
}

/// A call of a handler.
#[repr(C)]
pub(super) struct CallFrame {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub api: *const Api,
    pub context: *mut c_void,
    pub stage: c_int,
    pub arguments: Arrays,
    pub results: Arrays,
    pub attributes: Attributes,
}
