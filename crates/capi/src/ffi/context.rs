//! Contexts, versions, names, messages.

use std::ffi::c_char;
use std::ptr;

use super::limits::sb_limits;
use super::memory::{self, Place, Versioned};
use super::options::{sb_context_options, sb_solver_options, sb_spmv_options};
use super::{MESSAGE, SB_ABI_VERSION, SB_INACTIVE, call, destroy, handle_of, on};
use crate::context::Context;
use crate::handle::{find, insert};
use crate::status::{name_of, sb_status};

/// Where and on which threads a program solves.
///
/// Objects made from a context keep what they need of it: it may be destroyed before them.
pub struct sb_context(());

handle_of!(sb_context => Context, "context", |context| context);

/// `SB_ABI_VERSION` of the library that was linked or loaded. Compare it with the header's. Any
/// thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sb_abi_version() -> u32 {
    SB_ABI_VERSION
}

/// The version of the library, such as `0.1.0`; lives as long as the process. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sb_version() -> *const c_char {
    static VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The name of a code of errors, such as `SB_ERROR_ARGUMENT`; NULL for another number. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sb_status_name(status: sb_status) -> *const c_char {
    name_of(status).map_or(ptr::null(), |name| name.as_ptr())
}

/// A name with the NUL of C.
macro_rules! c_names {
    ($($name:literal)*) => { &[$(concat!($name, "\0")),*] };
}

/// The names of `Status::ALL`.
const OUTCOMES: &[&str] = c_names![
    "Converged" "MaxIterations" "BreakdownRho" "BreakdownOmega" "BreakdownAlpha" "NonFinite"
    "Indefinite" "ZeroDiagonal" "SingularPreconditioner" "Singular" "Stagnated" "ZeroPivot"
];

/// The names of `Rung::ALL`.
const RUNGS: &[&str] = c_names![
    "first" "restart" "stronger-preconditioner" "lu" "static-pivoting-lu" "cg" "bicgstab"
    "pivoting-lu"
];

fn c_name(names: &'static [&'static str], code: u8) -> *const c_char {
    names.get(usize::from(code)).map_or(ptr::null(), |name| name.as_ptr().cast())
}

/// How a system ended, by the code in `sb_report_statuses`, such as `Converged` (0); `Inactive`
/// for `SB_INACTIVE`; NULL for
/// another number. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sb_outcome_name(code: u8) -> *const c_char {
    match code {
        SB_INACTIVE => c"Inactive".as_ptr(),
        _ => c_name(OUTCOMES, code),
    }
}

/// What solved a system, by the code in `sb_report_rungs`, such as `first` (0); NULL for another
/// number. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sb_rung_name(code: u8) -> *const c_char {
    c_name(RUNGS, code)
}

/// Writes the message of the last error, one line and a NUL, cut to `len` bytes: of the functions
/// that were called with objects of `context`; with NULL, of the functions that this thread has
/// called. Empty where there was none. 512 bytes suffice for nearly all. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_last_error(
    context: *const sb_context,
    buffer: *mut c_char,
    len: usize,
) -> sb_status {
    call(|| {
        let message = match context.is_null() {
            true => MESSAGE.with_borrow(Clone::clone),
            false => find(context)?.message(),
        };
        // SAFETY: the caller says that the buffer has `len` bytes.
        unsafe { memory::write_text(&message, buffer, len) }
    })
}

/// Writes the default options of a context. `struct_size` is `sizeof(sb_context_options)`. Any
/// thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_context_options_init(
    options: *mut sb_context_options,
    struct_size: usize,
) -> sb_status {
    init(options, struct_size)
}

/// Writes the default options of a solver. `struct_size` is `sizeof(sb_solver_options)`. Any
/// thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_options_init(
    options: *mut sb_solver_options,
    struct_size: usize,
) -> sb_status {
    init(options, struct_size)
}

/// Writes the default options of products. `struct_size` is `sizeof(sb_spmv_options)`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_spmv_options_init(
    options: *mut sb_spmv_options,
    struct_size: usize,
) -> sb_status {
    init(options, struct_size)
}

/// Writes limits of which none changes. `struct_size` is `sizeof(sb_limits)`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_limits_init(limits: *mut sb_limits, struct_size: usize) -> sb_status {
    init(limits, struct_size)
}

fn init<V: Versioned>(options: *mut V, struct_size: usize) -> sb_status {
    // SAFETY: the callers of the exported functions say that the struct has `struct_size` bytes.
    call(|| unsafe { memory::init(options, struct_size) })
}

/// Creates a context. `options` may be NULL: the CPU, all cores.
///
/// Errors: `SB_ERROR_ARGUMENT` for options out of range, `SB_ERROR_GPU` where the backend is `gpu`
/// and there is no usable one. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_context_create(
    options: *const sb_context_options,
    context: *mut *mut sb_context,
) -> sb_status {
    call(|| {
        // SAFETY: the caller says that this may be written to, and that the options and their
        // strings are what the header says.
        let (place, settings) = unsafe {
            let place = Place::new("context", context)?;
            place.write(ptr::null_mut());
            (place, memory::options(options)?.settings()?)
        };
        place.write(insert(Context::new(&settings)?));
        Ok(())
    })
}

/// Writes 1 where the context has a GPU, else 0. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_context_has_gpu(
    context: *const sb_context,
    has_gpu: *mut i32,
) -> sb_status {
    on(context, |context| {
        // SAFETY: the caller says that this may be written to.
        let place = unsafe { Place::new("has_gpu", has_gpu) }?;
        place.write(context.device().is_ok().into());
        Ok(())
    })
}

/// Destroys a context; NULL is nothing to destroy. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_context_destroy(context: *mut sb_context) -> sb_status {
    destroy(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch::{Rung, Status};

    #[test]
    fn names_are_those_of_the_library() {
        let with_nul = |name: &str| format!("{name}\0");
        let outcomes: Vec<String> = Status::ALL.iter().map(|s| with_nul(s.name())).collect();
        let rungs: Vec<String> = Rung::ALL.iter().map(|rung| with_nul(rung.name())).collect();

        assert_eq!(OUTCOMES, outcomes);
        assert_eq!(RUNGS, rungs);
        assert!(c_name(RUNGS, 8).is_null());
    }
}
