//! Batches.

use std::sync::Arc;

use sparsebatch::Pattern;

use super::context::sb_context;
use super::memory::{Input, Place};
use super::options::count;
use super::{
    SB_F32, SB_F64, SB_INTERLEAVED, SB_ITEM_MAJOR, SB_SHARED, destroy, handle_of, make, on,
};
use crate::batch::{Batch, DType, Indices, Patterns, Place as Layout};
use crate::context::Context;
use crate::status::{Failure, sb_status};

/// The patterns of the matrices of a batch, and how their values lie. The values themselves are
/// given to solvers and products.
///
/// Nothing changes a batch: threads may share it.
pub struct sb_batch(());

handle_of!(sb_batch => Batch, "batch", |batch| &batch.context);

pub(super) fn dtype_of(dtype: i32) -> Result<DType, Failure> {
    match dtype {
        SB_F64 => Ok(DType::F64),
        SB_F32 => Ok(DType::F32),
        _ => Err(Failure::argument(format!("dtype is {dtype}, expected SB_F64 or SB_F32"))),
    }
}

fn layout_of(layout: i32) -> Result<Layout, Failure> {
    match layout {
        SB_ITEM_MAJOR => Ok(Layout::ItemMajor),
        SB_INTERLEAVED => Ok(Layout::Interleaved),
        SB_SHARED => Ok(Layout::Shared),
        _ => Err(Failure::argument(format!(
            "layout is {layout}, expected SB_ITEM_MAJOR, SB_INTERLEAVED or SB_SHARED"
        ))),
    }
}

pub(super) fn check_base(index_base: i32) -> Result<(), Failure> {
    match index_base {
        0 | 1 => Ok(()),
        _ => Err(Failure::argument(format!("index_base is {index_base}, expected 0 or 1"))),
    }
}

/// Creates a batch of `nitems` matrices of one CSR pattern. The index arrays are in host memory and
/// are copied.
///
/// - `dtype`: `SB_F64` or `SB_F32`, of values and vectors.
/// - `row_ptr`: `nrows + 1` elements, ascending from `index_base` to `index_base + nnz`.
/// - `col_idx`: `nnz` elements, strictly ascending in each row, from `index_base` on.
/// - `layout`: of the values that solvers get: `nitems * nnz` of them as `SB_ITEM_MAJOR` or
///   `SB_INTERLEAVED` says, or `nnz` of them with `SB_SHARED`.
/// - `index_base`: 0 or 1.
///
/// Errors: `SB_ERROR_ARGUMENT`; `SB_ERROR_FORMAT` for arrays that are no CSR pattern (positions and
/// indices in the message are counted from 0). Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(clippy::too_many_arguments, reason = "a function of C without optional arguments")]
pub unsafe extern "C" fn sb_batch_uniform(
    context: *const sb_context,
    dtype: i32,
    nitems: i64,
    nrows: i64,
    ncols: i64,
    nnz: i64,
    row_ptr: *const i32,
    col_idx: *const i32,
    layout: i32,
    index_base: i32,
    batch: *mut *mut sb_batch,
) -> sb_status {
    let body = |context: &Arc<Context>| {
        let (dtype, place) = (dtype_of(dtype)?, layout_of(layout)?);
        check_base(index_base)?;
        let (nitems, rows) = (count("nitems", nitems)?, count("nrows", nrows)?);
        let cols = count("ncols", ncols)?;
        // SAFETY: the caller says that the arrays are as long as the header says.
        let (row_ptr, col_idx) = unsafe {
            let row_ptr = Input::new("row_ptr", row_ptr, nrows.saturating_add(1))?;
            (row_ptr, Input::new("col_idx", col_idx, nnz)?)
        };
        let indices =
            Indices { row_ptr: row_ptr.slice()?, col_idx: col_idx.slice()?, base: index_base };
        let patterns = Patterns::uniform(rows, cols, indices, nitems)?;
        Ok(Batch { context: Arc::clone(context), dtype, place, patterns })
    };
    // SAFETY: the caller says that `batch` may be written to.
    unsafe { make(context, batch, body) }
}

/// Creates a batch of `nitems` matrices of any sizes. The index arrays are in host memory and are
/// copied.
///
/// - `nrows`, `ncols`, `nnz`: `nitems` elements each, the sizes of the items; `ncols` NULL: square.
/// - `row_ptr`: the row pointers of item 0 (`nrows[0] + 1` elements, from `index_base` on), of item
///   1 (from `index_base` on), and so on.
/// - `col_idx`: the columns of item 0 (`nnz[0]` elements, from `index_base` on), of item 1, ...
/// - `index_base`: 0 or 1.
///
/// The values that solvers get are those of item 0, of item 1, and so on.
///
/// Errors: as `sb_batch_uniform`; the message names the first item that is wrong. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(clippy::too_many_arguments, reason = "a function of C without optional arguments")]
pub unsafe extern "C" fn sb_batch_ragged(
    context: *const sb_context,
    dtype: i32,
    nitems: i64,
    nrows: *const i64,
    ncols: *const i64,
    nnz: *const i64,
    row_ptr: *const i32,
    col_idx: *const i32,
    index_base: i32,
    batch: *mut *mut sb_batch,
) -> sb_status {
    let body = |context: &Arc<Context>| {
        let dtype = dtype_of(dtype)?;
        check_base(index_base)?;
        let ncols = if ncols.is_null() { nrows } else { ncols };
        // SAFETY: the caller says that the arrays have `nitems` elements.
        let (nrows, ncols, nnz) = unsafe {
            (
                sizes("nrows", nrows, nitems)?,
                sizes("ncols", ncols, nitems)?,
                sizes("nnz", nnz, nitems)?,
            )
        };
        let total = |sizes: &[usize]| -> i64 {
            let total = sizes.iter().fold(0usize, |sum, &size| sum.saturating_add(size));
            i64::try_from(total).unwrap_or(i64::MAX)
        };
        let pointers = total(&nrows).saturating_add(nitems);
        // SAFETY: the caller says that the arrays are as long as the sizes of the items say.
        let (row_ptr, col_idx) = unsafe {
            let row_ptr = Input::new("row_ptr", row_ptr, pointers)?;
            (row_ptr, Input::new("col_idx", col_idx, total(&nnz))?)
        };
        let indices =
            Indices { row_ptr: row_ptr.slice()?, col_idx: col_idx.slice()?, base: index_base };
        let sizes = nrows.into_iter().zip(ncols).zip(nnz);
        let sizes = sizes.map(|((nrows, ncols), nnz)| (nrows, ncols, nnz));
        let patterns = Patterns::ragged(sizes, indices)?;
        let (context, place) = (Arc::clone(context), Layout::ItemMajor);
        Ok(Batch { context, dtype, place, patterns })
    };
    // SAFETY: the caller says that `batch` may be written to.
    unsafe { make(context, batch, body) }
}

/// Sizes of items.
///
/// # Safety
/// `sizes` is NULL or has `nitems` elements.
unsafe fn sizes(name: &'static str, sizes: *const i64, nitems: i64) -> Result<Vec<usize>, Failure> {
    // SAFETY: the contract of this function; an `i64` is read as a `u64`.
    let sizes = unsafe { Input::new(name, sizes, nitems) }?;
    sizes.slice::<u64>()?.iter().map(|&size| count(name, size as i64)).collect()
}

/// Writes the number of items, and the numbers of rows and of entries of all items together. Each
/// place may be NULL. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_batch_sizes(
    batch: *const sb_batch,
    nitems: *mut i64,
    nrows: *mut i64,
    nnz: *mut i64,
) -> sb_status {
    on(batch, |batch| {
        let patterns = &batch.patterns;
        let write = |name, place, number: usize| -> Result<(), Failure> {
            // SAFETY: the caller says that this may be written to.
            if let Some(place) = unsafe { Place::optional(name, place) }? {
                place.write(i64::try_from(number).unwrap_or(i64::MAX));
            }
            Ok(())
        };
        write("nitems", nitems, patterns.nitems())?;
        write("nrows", nrows, patterns.total(|pattern| pattern.nrows()))?;
        write("nnz", nnz, patterns.total(|pattern| pattern.nnz()))
    })
}

/// Destroys a batch; NULL is nothing to destroy. Solvers made from it stay. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_batch_destroy(batch: *mut sb_batch) -> sb_status {
    destroy(batch)
}
