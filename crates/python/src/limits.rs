//! Tolerances, iteration limits and the active systems of one call.

use std::ops::Range;

use pyo3::prelude::*;
use sparsebatch::{Batch, PerSystem, Scalar, SolveOptions};

use crate::errors::OptionError;
use crate::ffi::Input;
use crate::options::{limit, tolerance};

/// The keyword arguments of a call; `None` for what stays as the solver has it. `active` has one
/// byte for each system.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct CallLimits<'py> {
    rtol: Option<Bound<'py, PyAny>>,
    atol: Option<Bound<'py, PyAny>>,
    maxiter: Option<Bound<'py, PyAny>>,
    active: Option<Bound<'py, PyAny>>,
}

/// The options of one call.
pub(crate) struct Limited {
    pub(crate) options: SolveOptions,
    /// Systems that are not solved, ascending.
    inactive: Vec<usize>,
}

impl CallLimits<'_> {
    /// The options of a solver of `systems` systems with the limits of this call. An infinite
    /// tolerance ends the systems that are not active before their first iteration.
    pub(crate) fn limited(&self, options: &SolveOptions, systems: usize) -> PyResult<Limited> {
        let mut options = options.clone();
        if let Some(rtol) = &self.rtol {
            options = options.rel_tol(tolerance("rtol", rtol)?);
        }
        if let Some(atol) = &self.atol {
            options = options.abs_tol(tolerance("atol", atol)?);
        }
        if let Some(maxiter) = &self.maxiter {
            options = options.max_iters(limit(maxiter)?);
        }
        let mut inactive = Vec::new();
        if let Some(active) = &self.active {
            let active = Input::<u8>::of("active", active)?;
            let active = active.as_ref();
            let mut each = match &options.abs_tol {
                PerSystem::All(tolerance) => vec![*tolerance; systems],
                PerSystem::Each(each) => each.clone(),
            };
            if (active.len(), each.len()) != (systems, systems) {
                let found = active.len();
                return Err(OptionError::new_err(format!(
                    "active has {found} entries and atol {}, expected {systems}",
                    each.len()
                )));
            }
            inactive = (0..systems).filter(|&system| active[system] == 0).collect();
            inactive.iter().for_each(|&system| each[system] = f64::INFINITY);
            options = options.abs_tol(each);
        }
        Ok(Limited { options, inactive })
    }
}

impl Limited {
    /// Where x has the rows of the systems that are not active.
    pub(crate) fn rows<T: Scalar>(&self, batch: &Batch<T>) -> Vec<Range<usize>> {
        let nrhs = self.options.nrhs;
        let of = |&system: &usize| {
            let (item, rhs) = (system / nrhs, system % nrhs);
            let first = batch.row_offset(item);
            let nrows = batch.row_offset(item + 1) - first;
            let start = first * nrhs + rhs * nrows;
            start..start + nrows
        };
        self.inactive.iter().map(of).collect()
    }
}

/// Calls `solve` with x, and gives the systems with these rows the x they had: a solve sets that of
/// a right-hand side of zeros to 0, and a guess that is not finite.
pub(crate) fn keeping<T: Scalar, R>(
    rows: Vec<Range<usize>>,
    x: &mut [T],
    solve: impl FnOnce(&mut [T]) -> R,
) -> R {
    if rows.last().is_some_and(|last| last.end > x.len()) {
        // It refuses an x of another length.
        return solve(x);
    }
    let kept: Vec<T> = rows.iter().flat_map(|rows| x[rows.clone()].iter().copied()).collect();
    let solved = solve(x);
    let mut rest = &kept[..];
    for rows in rows {
        let (own, after) = rest.split_at(rows.len());
        x[rows].copy_from_slice(own);
        rest = after;
    }
    solved
}
