//! Solvers.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use sparsebatch::gpu::Guess;

use super::batch::sb_batch;
use super::limits::sb_limits;
use super::memory::{Input, Output, Place};
use super::options::sb_solver_options;
use super::report::sb_report;
use super::{
    SB_GUESS_IN_X, SB_GUESS_ZERO, SB_KEPT, SB_KEPT_TRANSPOSED, SB_NEAR, SB_TRANSPOSED, SB_VALUES,
    destroy_after, handle_of, make, memory, on,
};
use crate::batch::Batch;
use crate::solver::{By, Call, CallLimits, Solver};
use crate::status::{Failure, sb_status};

/// An analysed batch with its current values, and its factors where they are kept.
///
/// One call at a time: a second one at the same moment gets `SB_ERROR_BUSY` and does nothing.
/// Threads that solve at the same time have a solver each.
pub struct sb_solver(());

handle_of!(sb_solver => Solver, "solver", |solver| &solver.context);

/// Where the outcomes of the last solve lie on the device, `len` of each: of item 0 all right-hand
/// sides, of item 1, ... They are written on the solver's stream, and belong to the solver.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sb_device_outcomes {
    /// Codes of `sb_outcome_name`, `uint8_t`.
    pub statuses: *const u8,
    /// `uint32_t`.
    pub iterations: *const u32,
    /// `||b - A x||_2`.
    pub residual_norms: *const f64,
    /// `||b||_2`.
    pub rhs_norms: *const f64,
    /// The number of systems.
    pub len: i64,
}

/// Addresses on a device.
pub(crate) struct DeviceOutcomes {
    pub(crate) statuses: u64,
    pub(crate) iterations: u64,
    pub(crate) residual_norms: u64,
    pub(crate) rhs_norms: u64,
    pub(crate) len: usize,
}

fn by_of(by: i32) -> Result<By, Failure> {
    match by {
        SB_VALUES => Ok(By::Values),
        SB_KEPT => Ok(By::Kept),
        SB_NEAR => Ok(By::Near),
        SB_TRANSPOSED => Ok(By::Transposed),
        SB_KEPT_TRANSPOSED => Ok(By::KeptTransposed),
        _ => {
            Err(Failure::argument(format!("by is {by}, expected SB_VALUES to SB_KEPT_TRANSPOSED")))
        }
    }
}

fn guess_of(guess: i32) -> Result<Guess, Failure> {
    match guess {
        SB_GUESS_ZERO => Ok(Guess::Zero),
        SB_GUESS_IN_X => Ok(Guess::InX),
        _ => Err(Failure::argument(format!(
            "guess is {guess}, expected SB_GUESS_ZERO or SB_GUESS_IN_X"
        ))),
    }
}

/// Arguments of a solve.
///
/// # Safety
/// The arrays are what the header says of `sb_solver_solve`.
unsafe fn call_of(
    by: i32,
    guess: i32,
    (b, nb): (*const c_void, i64),
    (x, nx): (*mut c_void, i64),
) -> Result<Call, Failure> {
    let (by, guess) = (by_of(by)?, guess_of(guess)?);
    // SAFETY: the contract of this function.
    unsafe { Ok(Call { by, guess, b: Input::new("b", b, nb)?, x: Output::new("x", x, nx)? }) }
}

/// Writes a number where there is a place for it.
///
/// # Safety
/// `place` is NULL or may be written to.
unsafe fn write_failed(
    place: *mut i64,
    solve: impl FnOnce() -> Result<usize, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the contract of this function.
    let place = unsafe { Place::optional("nfailed", place) }?;
    let failed = solve()?;
    if let Some(place) = place {
        place.write(i64::try_from(failed).unwrap_or(i64::MAX));
    }
    Ok(())
}

/// Creates a solver: chooses methods where the options say `auto`, for which the values are read,
/// and analyses the patterns. `options` may be NULL.
///
/// `values` has `nvalues` elements of the batch's type in the batch's layout, in the memory that
/// the options say. They stay the current values until `sb_solver_set_values` or `sb_solver_shift`,
/// and are read where they lie: keep the array until then, or until the solver is destroyed. After
/// writing to it call `sb_solver_set_values` again.
///
/// Errors: `SB_ERROR_ARGUMENT` for options out of range, matrices that are not square, another
/// number of values; `SB_ERROR_UNSUPPORTED`; for data on a device `SB_ERROR_GPU` and
/// `SB_ERROR_OUT_OF_MEMORY`; `SB_ERROR_FORKED`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_create(
    batch: *const sb_batch,
    values: *const c_void,
    nvalues: i64,
    options: *const sb_solver_options,
    solver: *mut *mut sb_solver,
) -> sb_status {
    let body = |batch: &Arc<Batch>| {
        // SAFETY: the caller says that options and arrays are what the header says.
        let (settings, values) = unsafe {
            let settings = memory::options(options)?.settings(batch.patterns.nitems())?;
            (settings, Input::new("values", values, nvalues)?)
        };
        Solver::new(batch, values, settings)
    };
    // SAFETY: the caller says that `solver` may be written to.
    unsafe { make(batch, solver, body) }
}

/// Writes the bytes of GPU memory that a solver of data on a device takes, beside the arrays of the
/// program: `bytes` from the beginning, `bytes_with_guesses` after `sb_solver_prepare_guesses`, and
/// `most_bytes` the most while it is created. Each place may be NULL.
///
/// Nothing is allocated on the device. `values` and `nvalues` are those of `sb_solver_create`, but
/// in host memory, for matrices such as will be solved; method and plan are chosen as there. The
/// figures are sums of sizes of arrays, each of which an allocator rounds up.
/// `sb_solver_factor` takes more: a copy of the values, and the factors.
///
/// Errors: those of `sb_solver_create`; `SB_ERROR_UNSUPPORTED` where the context has no GPU. Any
/// thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(clippy::too_many_arguments, reason = "a function of C without optional arguments")]
pub unsafe extern "C" fn sb_solver_memory(
    batch: *const sb_batch,
    values: *const c_void,
    nvalues: i64,
    options: *const sb_solver_options,
    bytes: *mut i64,
    bytes_with_guesses: *mut i64,
    most_bytes: *mut i64,
) -> sb_status {
    on(batch, |batch| {
        // SAFETY: the caller says that options, arrays and places are what the header says.
        let (settings, values, places) = unsafe {
            let settings = memory::options(options)?.settings(batch.patterns.nitems())?;
            let places = [
                Place::optional("bytes", bytes)?,
                Place::optional("bytes_with_guesses", bytes_with_guesses)?,
                Place::optional("most_bytes", most_bytes)?,
            ];
            (settings, Input::new("values", values, nvalues)?, places)
        };
        let found = Solver::memory(batch, values, &settings)?;
        let found = [found.bytes, found.bytes_with_guesses, found.most_bytes];
        for (place, bytes) in places.iter().zip(found) {
            if let Some(place) = place {
                place.write(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
        }
        Ok(())
    })
}

/// Takes other values for the solves that follow: as for `sb_solver_create`. The analysis stays,
/// and so do kept matrices.
///
/// Errors: `SB_ERROR_ARGUMENT` for another number of values. One call of a solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_set_values(
    solver: *mut sb_solver,
    values: *const c_void,
    nvalues: i64,
) -> sb_status {
    on(solver, |solver| {
        // SAFETY: the caller says that the array is what the header says.
        solver.set_values(unsafe { Input::new("values", values, nvalues) }?)
    })
}

/// Takes `I/dt - J` as matrices for the solves that follow: those of an implicit step of length
/// `dt` with the Jacobians J. Every row of the pattern needs an entry on the diagonal.
///
/// `jacobian` is an array as the values. `dt` has `ndt` elements: one for each item, or in host
/// memory one for all items; on a device always one for each item. Both are of the batch's type, in
/// the solver's memory, and are not needed after the call; on a device, after the work on the
/// stream. The solver has an array of its own for the result. A `dt` of 0 is not refused: that
/// system ends `NonFinite`.
///
/// On a device a solve that was enqueued reads the matrices until `sb_solver_finish`, and a shift
/// between the two is refused. Do not shift between the launch of a graph that has recorded the
/// solve and `sb_solver_finish` either, which the library cannot see.
///
/// Errors: `SB_ERROR_ARGUMENT` for other lengths, for an entry missing on the diagonal, and after
/// `sb_solver_enqueue` without `sb_solver_finish`; `SB_ERROR_UNSUPPORTED` for a `dt` for each item
/// of shared values, and on a device for ragged batches, interleaved values and shared values. One
/// call of a solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_shift(
    solver: *mut sb_solver,
    jacobian: *const c_void,
    njacobian: i64,
    dt: *const c_void,
    ndt: i64,
) -> sb_status {
    on(solver, |solver| {
        // SAFETY: the caller says that the arrays are what the header says.
        let (jacobian, dt) =
            unsafe { (Input::new("jacobian", jacobian, njacobian)?, Input::new("dt", dt, ndt)?) };
        solver.shift(jacobian, dt)
    })
}

/// Takes other tolerances and iteration limits for the solves that follow; those that `limits`
/// does not say stay. The analysis stays, and so do kept matrices and factors. On a device this
/// waits for the stream, and a graph that was recorded before may keep the limits that it had.
///
/// Errors: `SB_ERROR_ARGUMENT` for limits out of range, and after `sb_solver_enqueue` without
/// `sb_solver_finish`; `SB_ERROR_UNSUPPORTED` where a context on a GPU solves data in host memory
/// with a format or a kernel. The limits are as before then. One call of a solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_set_limits(
    solver: *mut sb_solver,
    limits: *const sb_limits,
) -> sb_status {
    on(solver, |solver| {
        // SAFETY: the caller says that struct and arrays are what the header says.
        solver.set_limits(unsafe { memory::options(limits)?.limits(solver.nsystems()) }?)
    })
}

/// Keeps the current matrices for solves with `SB_KEPT`, `SB_NEAR` and `SB_KEPT_TRANSPOSED`, and
/// factorises them where the method has factors. An item that cannot be factorised is no error: its
/// systems end with a status, or are solved otherwise.
///
/// Errors: `SB_ERROR_FORKED`; on a GPU `SB_ERROR_GPU`, `SB_ERROR_OUT_OF_MEMORY`. One call of a
/// solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_factor(solver: *mut sb_solver) -> sb_status {
    on(solver, |solver| solver.factor())
}

/// Writes 1 where the last `sb_solver_factor`, or else the next one, keeps factors, and 0 where it
/// keeps a copy of the matrices alone. One call of a solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_keeps_factors(
    solver: *const sb_solver,
    keeps_factors: *mut i32,
) -> sb_status {
    on(solver, |solver| {
        // SAFETY: the caller says that this may be written to.
        let place = unsafe { Place::new("keeps_factors", keeps_factors) }?;
        place.write(solver.keeps_factors()?.into());
        Ok(())
    })
}

/// Solves all systems.
///
/// - `by`: with which matrices: `SB_VALUES`, `SB_KEPT`, `SB_NEAR`, `SB_TRANSPOSED` or
///   `SB_KEPT_TRANSPOSED`.
/// - `guess`: `SB_GUESS_ZERO`, or `SB_GUESS_IN_X`.
/// - `b`: `nb` elements: the rows of item 0 for right-hand side 0, for right-hand side 1, ..., of
///   item 1, and so on. `x`: `nx` elements alike, for the solutions. They do not overlap.
/// - `nfailed`: gets the number of systems that did not converge; may be NULL. They are no error:
///   each has a status in `sb_solver_report`, and an x that is no worse than its guess. They have
///   no influence on other systems.
///
/// Data on a device: waits for the stream.
///
/// Errors: `SB_ERROR_ARGUMENT`; `SB_ERROR_NOT_FACTORED`; `SB_ERROR_STOPPED` by `sb_solver_stop`;
/// `SB_ERROR_UNSUPPORTED` for `SB_TRANSPOSED` on a device; `SB_ERROR_FORKED`; `SB_ERROR_GPU`,
/// `SB_ERROR_OUT_OF_MEMORY`. One call of a solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(clippy::too_many_arguments, reason = "a function of C without optional arguments")]
pub unsafe extern "C" fn sb_solver_solve(
    solver: *mut sb_solver,
    by: i32,
    guess: i32,
    b: *const c_void,
    nb: i64,
    x: *mut c_void,
    nx: i64,
    nfailed: *mut i64,
) -> sb_status {
    on(solver, |solver| {
        // SAFETY: the caller says that arrays and place are what the header says.
        unsafe {
            let call = call_of(by, guess, (b, nb), (x, nx))?;
            write_failed(nfailed, || solver.solve(call))
        }
    })
}

/// Solves with limits of this call, or some systems alone. Afterwards the solver has its own limits
/// again.
///
/// - `limits`: NULL for those of the solver.
/// - `active`: one element for each of the `nactive` systems (items times right-hand sides), 1
///   where it is solved and 0 where it is left out; always in host memory. NULL with `nactive` 0:
///   all. The x of a system that is left out stays with `SB_GUESS_IN_X`, and becomes 0 with
///   `SB_GUESS_ZERO`; its status is `SB_INACTIVE`, and `nfailed` does not count it.
/// - Others as of `sb_solver_solve`.
///
/// Nothing is analysed or compiled anew. Data on a device: the limits wait for the stream, and with
/// `active` and `SB_GUESS_IN_X` the guesses are copied to the host.
///
/// Errors: as `sb_solver_solve`; `SB_ERROR_ARGUMENT` for limits out of range, another `nactive`,
/// and after `sb_solver_enqueue` without `sb_solver_finish`; `SB_ERROR_UNSUPPORTED` where a context
/// on a GPU solves data in host memory with a format or a kernel. One call of a solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(clippy::too_many_arguments, reason = "a function of C without optional arguments")]
pub unsafe extern "C" fn sb_solver_solve_with(
    solver: *mut sb_solver,
    by: i32,
    guess: i32,
    b: *const c_void,
    nb: i64,
    x: *mut c_void,
    nx: i64,
    limits: *const sb_limits,
    active: *const u8,
    nactive: i64,
    nfailed: *mut i64,
) -> sb_status {
    on(solver, |solver| {
        // SAFETY: the caller says that arrays, struct and place are what the header says.
        unsafe {
            let call = call_of(by, guess, (b, nb), (x, nx))?;
            let limits = memory::options(limits)?.limits(solver.nsystems())?;
            let active = match active.is_null() && nactive == 0 {
                true => None,
                false => Some(Input::new("active", active, nactive)?.slice()?.to_vec()),
            };
            write_failed(nfailed, || solver.solve_with(call, CallLimits { limits, active }))
        }
    })
}

/// Starts the first method for all systems of data on a device, on the solver's stream, and returns
/// without waiting. Arguments as of `sb_solver_solve`; keep the arrays until `sb_solver_finish`.
///
/// May be captured in a CUDA graph, with `SB_GUESS_IN_X` after `sb_solver_prepare_guesses`.
///
/// Errors: as `sb_solver_solve`; `SB_ERROR_UNSUPPORTED` for data in host memory. One call of a
/// solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(clippy::too_many_arguments, reason = "a function of C without optional arguments")]
pub unsafe extern "C" fn sb_solver_enqueue(
    solver: *mut sb_solver,
    by: i32,
    guess: i32,
    b: *const c_void,
    nb: i64,
    x: *mut c_void,
    nx: i64,
) -> sb_status {
    on(solver, |solver| {
        // SAFETY: the caller says that the arrays are what the header says.
        solver.enqueue(unsafe { call_of(by, guess, (b, nb), (x, nx)) }?)
    })
}

/// Waits for the last `sb_solver_enqueue`, or the last launch of a graph that has recorded it,
/// confirms what converged, and solves systems that failed by stronger methods where the options
/// allow that. `nfailed` as of `sb_solver_solve`.
///
/// Errors: `SB_ERROR_NOT_FACTORED` where nothing was started; those of `sb_solver_solve`. One call
/// of a solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_finish(solver: *mut sb_solver, nfailed: *mut i64) -> sb_status {
    on(solver, |solver| {
        // SAFETY: the caller says that this may be written to.
        unsafe { write_failed(nfailed, || solver.finish()) }
    })
}

/// Makes solves of data on a device with `SB_GUESS_IN_X` ready: compiles kernels and allocates
/// memory, which else the first such solve does. Nothing to do for data in host memory. One call of
/// a solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_prepare_guesses(solver: *mut sb_solver) -> sb_status {
    on(solver, |solver| solver.prepare_guesses())
}

/// Writes where the outcomes lie on the device: after `sb_solver_enqueue` those of the first
/// method, not confirmed; after `sb_solver_finish` those of the report.
///
/// Errors: `SB_ERROR_UNSUPPORTED` for data in host memory. One call of a solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_device_outcomes(
    solver: *const sb_solver,
    outcomes: *mut sb_device_outcomes,
) -> sb_status {
    on(solver, |solver| {
        // SAFETY: the caller says that this may be written to.
        let place = unsafe { Place::new("outcomes", outcomes) }?;
        let on_device = solver.device_outcomes()?;
        place.write(sb_device_outcomes {
            statuses: address(on_device.statuses),
            iterations: address(on_device.iterations),
            residual_norms: address(on_device.residual_norms),
            rhs_norms: address(on_device.rhs_norms),
            len: i64::try_from(on_device.len).unwrap_or(i64::MAX),
        });
        Ok(())
    })
}

/// An address on a device.
fn address<V>(address: u64) -> *const V {
    ptr::without_provenance(address as usize)
}

/// Asks the solve that runs to stop: its call returns `SB_ERROR_STOPPED`. Without a solve that runs
/// the next one stops. Any thread, while another one is in a call of the solver.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_stop(solver: *const sb_solver) -> sb_status {
    on(solver, |solver| {
        solver.stop();
        Ok(())
    })
}

/// Creates the report of the last solve.
///
/// Errors: `SB_ERROR_NOT_FACTORED` where no solve has ended since the solver was created, or since
/// an error. One call of a solver at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_report(
    solver: *const sb_solver,
    report: *mut *mut sb_report,
) -> sb_status {
    // SAFETY: the caller says that `report` may be written to.
    unsafe { make(solver, report, |solver| solver.report()) }
}

/// Destroys a solver; NULL is nothing to destroy. Reports stay. Any thread; a call of another
/// thread that runs ends first, for which this one waits.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_solver_destroy(solver: *mut sb_solver) -> sb_status {
    destroy_after(solver, Solver::end)
}
