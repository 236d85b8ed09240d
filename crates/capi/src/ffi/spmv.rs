//! Products.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::batch::sb_batch;
use super::memory::{Input, Output};
use super::options::sb_spmv_options;
use super::{destroy, handle_of, make, memory, on};
use crate::batch::Batch;
use crate::spmv::{Product, Spmv};
use crate::status::sb_status;

/// Products `y = alpha A x + beta y` of a batch, prepared once.
///
/// One call at a time: a second one at the same moment gets `SB_ERROR_BUSY` and does nothing.
pub struct sb_spmv(());

handle_of!(sb_spmv => Spmv, "spmv", |spmv| &spmv.context);

/// Prepares products: chooses format and kernel, and copies the values. `options` may be NULL.
///
/// `values` has `nvalues` elements of the batch's type in the batch's layout, in the memory that
/// the options say; they are not needed after the call.
///
/// Errors: `SB_ERROR_ARGUMENT`; `SB_ERROR_FORMAT` for a format that would take far more memory than
/// the matrices; `SB_ERROR_UNSUPPORTED`, `SB_ERROR_GPU`, `SB_ERROR_OUT_OF_MEMORY` on a device;
/// `SB_ERROR_FORKED`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_spmv_create(
    batch: *const sb_batch,
    values: *const c_void,
    nvalues: i64,
    options: *const sb_spmv_options,
    spmv: *mut *mut sb_spmv,
) -> sb_status {
    let body = |batch: &Arc<Batch>| {
        // SAFETY: the caller says that options and arrays are what the header says.
        let (settings, values) = unsafe {
            let settings = memory::options(options)?.settings()?;
            (settings, Input::new("values", values, nvalues)?)
        };
        Spmv::new(batch, values, &settings)
    };
    // SAFETY: the caller says that `spmv` may be written to.
    unsafe { make(batch, spmv, body) }
}

/// Copies other values for the products that follow; on a device, enqueued on the stream.
///
/// Errors: `SB_ERROR_ARGUMENT` for another number of values. One call of a plan at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_spmv_set_values(
    spmv: *mut sb_spmv,
    values: *const c_void,
    nvalues: i64,
) -> sb_status {
    on(spmv, |spmv| {
        // SAFETY: the caller says that the array is what the header says.
        spmv.set_values(unsafe { Input::new("values", values, nvalues) }?)
    })
}

/// `y = alpha A x + beta y` for all items; on a device, enqueued on the stream. With a `beta` of 0
/// `y` is not read.
///
/// `x` has `nx` elements: the columns of item 0 for right-hand side 0, for right-hand side 1, ...,
/// of item 1, and so on; `y` has `ny` elements alike, for the rows. They do not overlap.
///
/// Errors: `SB_ERROR_ARGUMENT`, `SB_ERROR_FORKED`, `SB_ERROR_GPU`; `y` is untouched then. One call
/// of a plan at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_spmv_apply(
    spmv: *mut sb_spmv,
    alpha: f64,
    x: *const c_void,
    nx: i64,
    beta: f64,
    y: *mut c_void,
    ny: i64,
) -> sb_status {
    on(spmv, |spmv| {
        // SAFETY: the caller says that the arrays are what the header says.
        let (x, y) = unsafe { (Input::new("x", x, nx)?, Output::new("y", y, ny)?) };
        spmv.apply(Product { alpha, x, beta, y })
    })
}

/// Writes format, kernel and why: lines and a NUL, cut to `len` bytes. `needed` gets the bytes that
/// the whole text takes; may be NULL. One call of a plan at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_spmv_text(
    spmv: *const sb_spmv,
    buffer: *mut c_char,
    len: usize,
    needed: *mut usize,
) -> sb_status {
    on(spmv, |spmv| {
        let text = spmv.text()?;
        // SAFETY: the caller says that the buffer has `len` bytes, and that the place may be
        // written to.
        unsafe { memory::write_whole_text(&text, buffer, len, needed) }
    })
}

/// Destroys a plan of products; NULL is nothing to destroy. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_spmv_destroy(spmv: *mut sb_spmv) -> sb_status {
    destroy(spmv)
}
