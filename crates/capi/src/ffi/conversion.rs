//! Conversions.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::batch::{check_base, sb_batch};
use super::memory::{Input, Output, Place, text};
use super::{destroy, handle_of, make, on};
use crate::batch::Batch;
use crate::conversion::Conversion;
use crate::status::{Failure, sb_status};

/// The pattern of a uniform batch in another format than CSR, and the places of its values there.
///
/// Nothing changes a conversion: threads may share it.
pub struct sb_conversion(());

handle_of!(sb_conversion => Conversion, "conversion", |conversion| &conversion.context);

/// Converts the pattern of a uniform batch to `format`: `"coo"` or `"ell"`. Indices that are
/// written begin at `index_base`, 0 or 1.
///
/// A format has slots for values. COO: one for each entry, in CSR order. ELL: `width` for each row,
/// slot `k` of row `row` at `k * nrows + row`; those without an entry have the column -1 and the
/// value 0.
///
/// Errors: `SB_ERROR_ARGUMENT` for another format; `SB_ERROR_FORMAT` where ELL would have far more
/// slots than entries; `SB_ERROR_UNSUPPORTED` for a ragged batch; `SB_ERROR_OUT_OF_MEMORY`. Any
/// thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_conversion_create(
    batch: *const sb_batch,
    format: *const c_char,
    index_base: i32,
    conversion: *mut *mut sb_conversion,
) -> sb_status {
    let body = |batch: &Arc<Batch>| {
        // SAFETY: the caller says that the string ends with a NUL.
        let format = unsafe { text("format", format) }?;
        check_base(index_base)?;
        let format = format.ok_or_else(|| Failure::argument("format is NULL"))?;
        Conversion::new(batch, format, index_base)
    };
    // SAFETY: the caller says that `conversion` may be written to.
    unsafe { make(batch, conversion, body) }
}

/// Writes the number of slots of an item, and the slots of a row of ELL (0 for COO). Each place may
/// be NULL. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_conversion_sizes(
    conversion: *const sb_conversion,
    nslots: *mut i64,
    width: *mut i64,
) -> sb_status {
    on(conversion, |conversion| {
        // SAFETY: the caller says that these may be written to.
        let (nslots, width) =
            unsafe { (Place::optional("nslots", nslots)?, Place::optional("width", width)?) };
        nslots.iter().for_each(|place| place.write(conversion.nslots() as i64));
        width.iter().for_each(|place| place.write(conversion.width() as i64));
        Ok(())
    })
}

/// Writes the index arrays: for COO `nslots` rows and `nslots` columns; for ELL `nslots` columns
/// and no rows (`row_idx` NULL, `nrow_idx` 0).
///
/// Errors: `SB_ERROR_ARGUMENT` for other lengths. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_conversion_indices(
    conversion: *const sb_conversion,
    row_idx: *mut i32,
    nrow_idx: i64,
    col_idx: *mut i32,
    ncol_idx: i64,
) -> sb_status {
    on(conversion, |conversion| {
        // SAFETY: the caller says that the arrays have these lengths.
        let (rows, cols) = unsafe {
            (Output::new("row_idx", row_idx, nrow_idx)?, Output::new("col_idx", col_idx, ncol_idx)?)
        };
        conversion.indices(rows, cols)
    })
}

/// Copies the values of all items, in CSR order and the batch's type and layout (`nvalues`
/// elements), to their slots (`nslots` elements for each item, in the same layout). In host memory;
/// the arrays do not overlap.
///
/// Errors: `SB_ERROR_ARGUMENT` for other lengths. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_conversion_values(
    conversion: *const sb_conversion,
    values: *const c_void,
    nvalues: i64,
    slots: *mut c_void,
    nslots: i64,
) -> sb_status {
    on(conversion, |conversion| {
        // SAFETY: the caller says that the arrays have these lengths.
        let (from, to) = unsafe {
            (Input::new("values", values, nvalues)?, Output::new("slots", slots, nslots)?)
        };
        conversion.values(from, to, false)
    })
}

/// The reverse of `sb_conversion_values`: copies slots to values in CSR order.
///
/// Errors: `SB_ERROR_ARGUMENT` for other lengths. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_conversion_values_back(
    conversion: *const sb_conversion,
    slots: *const c_void,
    nslots: i64,
    values: *mut c_void,
    nvalues: i64,
) -> sb_status {
    on(conversion, |conversion| {
        // SAFETY: the caller says that the arrays have these lengths.
        let (from, to) = unsafe {
            (Input::new("slots", slots, nslots)?, Output::new("values", values, nvalues)?)
        };
        conversion.values(from, to, true)
    })
}

/// Destroys a conversion; NULL is nothing to destroy. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_conversion_destroy(conversion: *mut sb_conversion) -> sb_status {
    destroy(conversion)
}
