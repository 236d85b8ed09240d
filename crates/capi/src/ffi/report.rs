//! Reports.

use std::ffi::c_char;

use sparsebatch::gpu::Pod;
use sparsebatch::{Rung, SystemReport};

use super::memory::{Output, Place};
use super::options::count;
use super::{destroy, handle_of, memory, on};
use crate::report::Report;
use crate::status::{Failure, sb_status};

/// How each system of a solve ended. Systems are in the order of items, and within an item in that
/// of right-hand sides.
///
/// Nothing changes a report: threads may share it, and it outlives its solver.
pub struct sb_report(());

handle_of!(sb_report => Report, "report", |report| &report.context);

/// Writes the numbers of systems and of active ones that converged. Each place may be NULL. Any
/// thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_sizes(
    report: *const sb_report,
    nsystems: *mut i64,
    nconverged: *mut i64,
) -> sb_status {
    on(report, |report| {
        // SAFETY: the caller says that these may be written to.
        let (systems, converged) = unsafe {
            (Place::optional("nsystems", nsystems)?, Place::optional("nconverged", nconverged)?)
        };
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        systems.iter().for_each(|place| place.write(number(report.systems().len())));
        converged.iter().for_each(|place| place.write(number(report.converged())));
        Ok(())
    })
}

/// Writes how each system ended: codes of `sb_outcome_name`, 0 where it converged, `SB_INACTIVE`
/// where it was not active. `len` is the number of systems, else `SB_ERROR_ARGUMENT`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_statuses(
    report: *const sb_report,
    out: *mut u8,
    len: i64,
) -> sb_status {
    on(report, |report| {
        // SAFETY: the caller says that the array has `len` elements.
        let out = unsafe { Output::new("out", out, len) }?;
        out.fill(report.systems().len(), report.statuses())
    })
}

/// Writes what solved each system: codes of `sb_rung_name`, 0 for the first method. `len` is the
/// number of systems, else `SB_ERROR_ARGUMENT`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_rungs(
    report: *const sb_report,
    out: *mut u8,
    len: i64,
) -> sb_status {
    // SAFETY: the caller says that the array has `len` elements.
    unsafe { fill(report, out, len, |system| rung_code(system.rung)) }
}

/// Writes the iterations of each system, of all methods that were tried. `len` is the number of
/// systems, else `SB_ERROR_ARGUMENT`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_iterations(
    report: *const sb_report,
    out: *mut u32,
    len: i64,
) -> sb_status {
    // SAFETY: the caller says that the array has `len` elements.
    unsafe { fill(report, out, len, |system| system.outcome.iterations) }
}

/// Writes the restarts of each system from its true residual. `len` is the number of systems, else
/// `SB_ERROR_ARGUMENT`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_restarts(
    report: *const sb_report,
    out: *mut u32,
    len: i64,
) -> sb_status {
    // SAFETY: the caller says that the array has `len` elements.
    unsafe { fill(report, out, len, |system| system.outcome.restarts) }
}

/// Writes `||b - A x||_2` of each system, recomputed from the x that was returned; NaN where it is
/// not finite. `len` is the number of systems, else `SB_ERROR_ARGUMENT`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_residual_norms(
    report: *const sb_report,
    out: *mut f64,
    len: i64,
) -> sb_status {
    // SAFETY: the caller says that the array has `len` elements.
    unsafe { fill(report, out, len, |system| system.outcome.residual_norm) }
}

/// Writes `||b||_2` of each system. `len` is the number of systems, else `SB_ERROR_ARGUMENT`. Any
/// thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_rhs_norms(
    report: *const sb_report,
    out: *mut f64,
    len: i64,
) -> sb_status {
    // SAFETY: the caller says that the array has `len` elements.
    unsafe { fill(report, out, len, |system| system.outcome.rhs_norm) }
}

/// Writes 1 for each system that the rounding floor accepted, else 0. `len` is the number of
/// systems, else `SB_ERROR_ARGUMENT`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_accepted_by_floor(
    report: *const sb_report,
    out: *mut u8,
    len: i64,
) -> sb_status {
    // SAFETY: the caller says that the array has `len` elements.
    unsafe { fill(report, out, len, |system| system.outcome.accepted_by_floor.into()) }
}

/// Writes 1 for each system whose matrix was found singular to working precision, else 0. `len` is
/// the number of systems, else `SB_ERROR_ARGUMENT`. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_singular(
    report: *const sb_report,
    out: *mut u8,
    len: i64,
) -> sb_status {
    // SAFETY: the caller says that the array has `len` elements.
    unsafe { fill(report, out, len, |system| system.singular.into()) }
}

/// Writes one element for each system.
///
/// # Safety
/// `out` is NULL or has `len` elements.
unsafe fn fill<V: Pod>(
    report: *const sb_report,
    out: *mut V,
    len: i64,
    of: impl Fn(&SystemReport) -> V,
) -> sb_status {
    on(report, |report| {
        // SAFETY: the contract of this function.
        let out = unsafe { Output::new("out", out, len) }?;
        out.fill(report.systems().len(), report.systems().iter().map(of))
    })
}

fn rung_code(rung: Rung) -> u8 {
    Rung::ALL.iter().position(|&other| other == rung).unwrap_or(usize::from(u8::MAX)) as u8
}

/// Writes the residual norms of the iterations of a system (from 0), the first `len` of them, and
/// to `needed` their number; `needed` may be NULL. There are none unless the solver was asked for
/// them.
///
/// Errors: `SB_ERROR_ARGUMENT` where there is no such system. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_history(
    report: *const sb_report,
    system: i64,
    out: *mut f64,
    len: i64,
    needed: *mut i64,
) -> sb_status {
    on(report, |report| {
        let history = &system_of(report, system)?.outcome.history;
        let written = count("len", len)?.min(history.len());
        // SAFETY: the caller says that the array has `len` elements and that the place may be
        // written to.
        let (out, needed) = unsafe {
            (Output::new("out", out, written as i64)?, Place::optional("needed", needed)?)
        };
        out.fill(written, history.iter().copied())?;
        needed.iter().for_each(|place| place.write(history.len() as i64));
        Ok(())
    })
}

fn system_of(report: &Report, system: i64) -> Result<&SystemReport, Failure> {
    let systems = report.systems();
    systems.get(count("system", system)?).ok_or_else(|| {
        Failure::argument(format!("system is {system}, expected a number below {}", systems.len()))
    })
}

/// Writes what may solve a system (from 0) that did not converge, one line and a NUL, cut to `len`
/// bytes; nothing for one that converged or was not active.
///
/// Errors: `SB_ERROR_ARGUMENT` where there is no such system. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_advice(
    report: *const sb_report,
    system: i64,
    buffer: *mut c_char,
    len: usize,
) -> sb_status {
    on(report, |report| {
        let advice = system_of(report, system)?.advice(report.fallback);
        let is_active = report.is_active(count("system", system)?);
        let advice = advice.filter(|_| is_active).unwrap_or("");
        // SAFETY: the caller says that the buffer has `len` bytes.
        unsafe { memory::write_text(advice, buffer, len) }
    })
}

/// Writes what ran, where, why, and how it went: lines and a NUL, cut to `len` bytes. `needed` gets
/// the bytes that the whole text takes; may be NULL. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_text(
    report: *const sb_report,
    buffer: *mut c_char,
    len: usize,
    needed: *mut usize,
) -> sb_status {
    on(report, |report| {
        let text = report.text();
        // SAFETY: the caller says that the buffer has `len` bytes, and that the place may be
        // written to.
        unsafe { memory::write_whole_text(&text, buffer, len, needed) }
    })
}

/// Writes the seconds of the analysis and of the solve. Each place may be NULL. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_times(
    report: *const sb_report,
    plan: *mut f64,
    solve: *mut f64,
) -> sb_status {
    on(report, |report| {
        // SAFETY: the caller says that these may be written to.
        let (plan, solve) =
            unsafe { (Place::optional("plan", plan)?, Place::optional("solve", solve)?) };
        plan.iter().for_each(|place| place.write(report.get().plan_time.as_secs_f64()));
        solve.iter().for_each(|place| place.write(report.get().solve_time.as_secs_f64()));
        Ok(())
    })
}

/// Destroys a report; NULL is nothing to destroy. Any thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_report_destroy(report: *mut sb_report) -> sb_status {
    destroy(report)
}
