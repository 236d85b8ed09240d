//! Opens the library of runtime and kernels through the C interface of `runtime/registry.cpp`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Same fields and order as `EmuKernel` in `include/emu/registry.h`.
#[repr(C)]
struct Record {
    expression: *const c_char,
    module: *const c_char,
    entry: *const c_void,
    parameter_bytes: *const c_uint,
    parameter_count: c_uint,
}

/// Same fields and order as `LaunchShape` in `runtime/engine.h`.
#[repr(C)]
pub(crate) struct LaunchShape {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) cluster: c_uint,
    pub(crate) order: c_uint,
    pub(crate) seed: u64,
    /// Null, or a pointer to `only_count` cluster numbers.
    pub(crate) only: *const u64,
    pub(crate) only_count: u64,
}

/// The functions of the library.
struct Functions {
    kernel_count: unsafe extern "C" fn() -> c_uint,
    kernel: unsafe extern "C" fn(k: c_uint) -> *const Record,
    launch: unsafe extern "C" fn(
        k: c_uint,
        shape: *const LaunchShape,
        arguments: *mut *mut c_void,
        reason: *mut c_char,
        capacity: usize,
    ) -> c_int,
    sanitizer: unsafe extern "C" fn() -> *const c_char,
}

/// The library in use, opened once and never closed.
fn functions() -> Result<&'static Functions, String> {
    static OPENED: OnceLock<Result<Functions, String>> = OnceLock::new();
    OPENED.get_or_init(|| open(&crate::library_path())).as_ref().map_err(Clone::clone)
}

fn open(path: &Path) -> Result<Functions, String> {
    let failed = |e: libloading::Error| format!("{}: {e}", path.display());
    // SAFETY: the library is what the build made of `runtime/` and the kernels, or a file that the
    // user names as such; its initialisers have no preconditions. The types of the functions are
    // those of `runtime/registry.cpp`. It stays open, so they stay valid.
    unsafe {
        let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).map_err(failed)?;
        let functions = Functions {
            kernel_count: *library.get(b"emu_kernel_count\0").map_err(failed)?,
            kernel: *library.get(b"emu_kernel\0").map_err(failed)?,
            launch: *library.get(b"emu_launch\0").map_err(failed)?,
            sanitizer: *library.get(b"emu_sanitizer\0").map_err(failed)?,
        };
        std::mem::forget(library);
        Ok(functions)
    }
}

/// The sanitizer that the kernels were compiled with; empty if there is none.
pub(crate) fn sanitizer() -> Result<&'static str, String> {
    let functions = functions()?;
    // SAFETY: the function takes nothing and returns a string constant, which ends with a zero.
    let name = unsafe { CStr::from_ptr((functions.sanitizer)()) };
    name.to_str().map_err(|e| e.to_string())
}

/// A registered kernel.
pub(crate) struct Kernel {
    pub(crate) expression: String,
    pub(crate) module: String,
    pub(crate) parameter_bytes: Vec<usize>,
}

/// All registered kernels, in the order of their numbers.
pub(crate) fn kernels() -> Result<Vec<Kernel>, String> {
    let functions = functions()?;
    // SAFETY: the function takes nothing and fills the table once, under a lock.
    let count = unsafe { (functions.kernel_count)() };
    let kernels = (0..count)
        .map(|k| {
            // SAFETY: k is below the count, so the pointer is to a record. The table does not
            // change after it is filled. Strings and sizes are static data of the C++ side: strings
            // end with a zero, `parameter_bytes` has `parameter_count` elements.
            unsafe {
                let record = &*(functions.kernel)(k);
                let text = |at| CStr::from_ptr(at).to_string_lossy().into_owned();
                let sizes = std::slice::from_raw_parts(
                    record.parameter_bytes,
                    record.parameter_count as usize,
                );
                Kernel {
                    expression: text(record.expression),
                    module: text(record.module),
                    parameter_bytes: sizes.iter().map(|&bytes| bytes as usize).collect(),
                }
            }
        })
        .collect();
    Ok(kernels)
}

/// Runs kernel number `k`.
///
/// # Safety
///
/// As for [`crate::launch`]; `shape.only` is as its field says.
pub(crate) unsafe fn launch(
    k: u32,
    shape: &LaunchShape,
    arguments: *mut *mut c_void,
) -> Result<(), String> {
    let functions = functions()?;
    let mut reason = vec![0u8; 2048];
    // SAFETY: `shape` and `reason` live through the call and `reason` has the length that is
    // passed; the caller vouches for `arguments`. The runtime keeps none of the pointers.
    let status = unsafe {
        (functions.launch)(k, shape, arguments, reason.as_mut_ptr().cast(), reason.len())
    };
    if status == 0 {
        return Ok(());
    }
    let length = reason.iter().position(|&byte| byte == 0).unwrap_or(reason.len());
    Err(String::from_utf8_lossy(&reason[..length]).into_owned())
}
