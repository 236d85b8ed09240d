//! One matrix over ranks.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use sparsebatch::gpu::Guess;

use super::batch::{dtype_of, sb_batch};
use super::memory::{self, Input, Output, Place};
use super::options::{DevicePlace, flag, sb_solver_options, sb_spmv_options};
use super::ranks::sb_ranks;
use super::report::sb_report;
use super::{SB_GUESS_IN_X, SB_GUESS_ZERO, destroy, handle_of, make_together, on};
use crate::distributed::{Distributed, DistributedCall, Rows};
use crate::handle::{find, insert};
use crate::ranks::Ranks;
use crate::status::{Failure, sb_status};

/// One large matrix of which each rank of an `sb_ranks` has consecutive rows, on its CPU or, with a
/// context on a GPU, on that. Vectors are in host memory: each rank has the elements of its rows, and
/// of x, for products with a matrix that is not square, those of its columns.
///
/// All functions but `sb_distributed_sizes` are collective, as those of `sb_ranks` are: an error of
/// one rank is the error of all, `SB_ERROR_RANKS`. MPI is called by a thread of the context where its
/// options gave a number of threads, for which MPI has to allow calls of several threads, one at a
/// time (`MPI_THREAD_SERIALIZED`); otherwise by the calling thread alone.
pub struct sb_distributed(());

handle_of!(sb_distributed => Distributed, "matrix", |matrix| &matrix.context);

/// A value that moves to a thread of a context, while the thread that gave it waits.
pub(crate) struct Carried<V> {
    value: V,
}

// SAFETY: one thread at a time uses the value, as locks and the wait see to. What it holds of MPI is a
// handle, which any thread may hold; the header says from which threads MPI is called.
unsafe impl<V> Send for Carried<V> {}

impl<V> Carried<V> {
    pub(crate) fn new(value: V) -> Self {
        Self { value }
    }

    pub(crate) fn take(self) -> V {
        self.value
    }

    pub(crate) fn get(&self) -> &V {
        &self.value
    }

    pub(crate) fn get_mut(&mut self) -> &mut V {
        &mut self.value
    }
}

/// Makes the matrix whose rows the ranks give: those of rank 0 come first, then those of rank 1, and
/// so on. A rank may have none.
///
/// - `batch`: of one item (`sb_batch_uniform` with `nitems` 1), the rows of this rank: `nrows` is
///   their number, and `ncols` that of all columns, equal on all ranks. May be destroyed afterwards.
/// - `values`: `nvalues` elements, in host memory, which are copied.
/// - `options`: format and kernel of products; NULL is `"auto"`.
///
/// Elements of x belong to the ranks as rows do where the matrix is square, else evenly.
///
/// Errors: `SB_ERROR_RANKS`. Collective.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_distributed_create(
    ranks: *const sb_ranks,
    batch: *const sb_batch,
    values: *const c_void,
    nvalues: i64,
    options: *const sb_spmv_options,
    matrix: *mut *mut sb_distributed,
) -> sb_status {
    let body = |ranks: &Arc<Ranks>, checked: Result<(), Failure>| {
        let own = checked.and_then(|()| {
            // SAFETY: the caller says that options and arrays are what the header says.
            let (settings, values) = unsafe {
                let settings = memory::options(options)?.settings()?;
                (settings, Input::new("values", values, nvalues)?)
            };
            check_host(&settings.place)?;
            Ok(Rows { batch: find(batch)?, values, options: settings.options })
        });
        Distributed::new(ranks, own)
    };
    // SAFETY: the caller says that `matrix` may be written to.
    unsafe { make_together(ranks, matrix, body) }
}

/// Makes the matrix of a file that all ranks can read, Matrix Market or an `.npz` in the format `csr`:
/// each reads its rows, about as many entries as the others.
///
/// - `dtype`: `SB_F64` or `SB_F32`, of values and vectors.
/// - `path`: ends with a NUL.
///
/// Errors: `SB_ERROR_RANKS`. Collective.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_distributed_read(
    ranks: *const sb_ranks,
    dtype: i32,
    path: *const c_char,
    options: *const sb_spmv_options,
    matrix: *mut *mut sb_distributed,
) -> sb_status {
    let body = |ranks: &Arc<Ranks>, checked: Result<(), Failure>| {
        let own = checked.and_then(|()| {
            // SAFETY: the caller says that options and string are what the header says.
            let (settings, path) =
                unsafe { (memory::options(options)?.settings()?, memory::text("path", path)?) };
            check_host(&settings.place)?;
            let path = path.ok_or_else(|| Failure::argument("path is NULL, expected a file"))?;
            Ok((dtype_of(dtype)?, path.to_owned(), settings.options))
        });
        Distributed::read(ranks, own)
    };
    // SAFETY: the caller says that `matrix` may be written to.
    unsafe { make_together(ranks, matrix, body) }
}

/// Refuses data on a device.
fn check_host(place: &Option<DevicePlace>) -> Result<(), Failure> {
    match place {
        None => Ok(()),
        Some(_) => Err(Failure::unsupported(
            "data of one matrix over ranks on a device: expected space SB_HOST",
        )),
    }
}

/// Writes the numbers of rows, columns and entries of all ranks; the first row of this rank, counted
/// from 0, and how many it has; and the same of its columns. Each place may be NULL. One call at a
/// time.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(clippy::too_many_arguments, reason = "a function of C without optional arguments")]
pub unsafe extern "C" fn sb_distributed_sizes(
    matrix: *const sb_distributed,
    nrows: *mut i64,
    ncols: *mut i64,
    nnz: *mut i64,
    first_row: *mut i64,
    own_rows: *mut i64,
    first_col: *mut i64,
    own_cols: *mut i64,
) -> sb_status {
    on(matrix, |matrix| {
        // SAFETY: the caller says that these may be written to.
        let places = unsafe {
            [
                Place::optional("nrows", nrows)?,
                Place::optional("ncols", ncols)?,
                Place::optional("nnz", nnz)?,
                Place::optional("first_row", first_row)?,
                Place::optional("own_rows", own_rows)?,
                Place::optional("first_col", first_col)?,
                Place::optional("own_cols", own_cols)?,
            ]
        };
        for (place, size) in places.iter().zip(matrix.sizes()?) {
            place.iter().for_each(|place| place.write(i64::try_from(size).unwrap_or(i64::MAX)));
        }
        Ok(())
    })
}

/// `y = A x`: `x` has the `nx` elements of the own columns, `y` the `ny` elements of the own rows, in
/// host memory. They do not overlap.
///
/// Errors: `SB_ERROR_RANKS`. Collective.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_distributed_apply(
    matrix: *mut sb_distributed,
    x: *const c_void,
    nx: i64,
    y: *mut c_void,
    ny: i64,
) -> sb_status {
    on(matrix, |matrix| {
        // SAFETY: the caller says that the arrays are what the header says.
        let arrays =
            unsafe { Input::new("x", x, nx).and_then(|x| Ok((x, Output::new("y", y, ny)?))) };
        matrix.apply(arrays)
    })
}

/// Solves `A x = b` by CG or BiCGStab on all ranks together.
///
/// - `options`: method (`"auto"` is CG for a symmetric matrix with a positive diagonal, else
///   BiCGStab), preconditioner, tolerances and limits; NULL: defaults. `"block-jacobi"`, `"ilu0"` and
///   `"ic0"` are those of the block of rows and columns of each rank. There is no ladder of further
///   attempts, and format and kernel are those of the matrix.
/// - `pipelined`: 1 for CG with one sum over ranks for each iteration, which travels while the next
///   product is computed; else 0.
/// - `block_lu`: 1 to precondition with a sparse LU of the block of each rank; else 0.
/// - `guess`: `SB_GUESS_ZERO`, or `SB_GUESS_IN_X`.
/// - `b`, `x`: `nb` and `nx` elements of the own rows, in host memory. They do not overlap.
/// - `nfailed`: gets 1 where the system did not converge, which is no error, else 0; may be NULL.
/// - `report`: gets the report, of one system, the same on all ranks but for times; may be NULL.
///
/// Errors: `SB_ERROR_RANKS`. Collective.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(clippy::too_many_arguments, reason = "a function of C without optional arguments")]
pub unsafe extern "C" fn sb_distributed_solve(
    matrix: *mut sb_distributed,
    options: *const sb_solver_options,
    pipelined: i32,
    block_lu: i32,
    guess: i32,
    b: *const c_void,
    nb: i64,
    x: *mut c_void,
    nx: i64,
    nfailed: *mut i64,
    report: *mut *mut sb_report,
) -> sb_status {
    // SAFETY: the caller says that this may be written to.
    let whole = unsafe { Place::optional("report", report) };
    if let Ok(Some(place)) = &whole {
        place.write(ptr::null_mut());
    }
    on(matrix, |matrix| {
        let mut places = None;
        let call = || {
            // SAFETY: the caller says that this may be written to.
            places = Some((unsafe { Place::optional("nfailed", nfailed) }?, whole?));
            // SAFETY: the caller says that options and arrays are what the header says.
            let (settings, b, x) = unsafe {
                let settings = memory::options(options)?.settings(1)?;
                (settings, Input::new("b", b, nb)?, Output::new("x", x, nx)?)
            };
            check_host(&settings.place)?;
            let guess = match guess {
                SB_GUESS_ZERO => Guess::Zero,
                SB_GUESS_IN_X => Guess::InX,
                _ => {
                    return Err(Failure::argument(format!(
                        "guess is {guess}, expected SB_GUESS_ZERO or SB_GUESS_IN_X"
                    )));
                }
            };
            let (pipelined, block_lu) =
                (flag("pipelined", pipelined)?, flag("block_lu", block_lu)?);
            Ok(DistributedCall { options: settings.options, pipelined, block_lu, guess, b, x })
        };
        let own = call();
        let (count, found) = matrix.solve(own)?;
        let (failed, whole) = places.unwrap_or((None, None));
        failed.iter().for_each(|place| place.write(count as i64));
        if let Some(place) = whole {
            place.write(insert::<sb_report>(found));
        }
        Ok(())
    })
}

/// Destroys a matrix; NULL is nothing to destroy. The ranks that it was made with stay until it is
/// destroyed, so that this comes before MPI is finalised. Collective.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_distributed_destroy(matrix: *mut sb_distributed) -> sb_status {
    destroy(matrix)
}
