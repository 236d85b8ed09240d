//! Tolerances, iteration limits and active systems of solves.

use std::ptr;

use sparsebatch::PerSystem;
use sparsebatch::gpu::Pod;

use super::SB_DEFAULT;
use super::memory::{Versioned, each};
use crate::limits::Limits;
use crate::status::Failure;

/// Limits of solves that are to change. Fill it by `sb_limits_init`, after which none changes, then
/// set those that do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sb_limits {
    /// `sizeof(sb_limits)`.
    pub struct_size: usize,
    /// As in `sb_solver_options`. `SB_DEFAULT`: stays as it is.
    pub rtol: f64,
    /// `SB_DEFAULT`: stays as it is.
    pub atol: f64,
    /// Iteration limit, 0 to 2^32 - 1. -1: stays as it is.
    pub maxiter: i64,
    /// `rtol` for each of the `nitems * nrhs` systems, in place of the one above, or NULL. Read
    /// during the call, as the next two.
    pub rtol_each: *const f64,
    /// `atol` for each system, or NULL.
    pub atol_each: *const f64,
    /// `maxiter` for each system, or NULL.
    pub maxiter_each: *const u32,
}

impl Default for sb_limits {
    fn default() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            rtol: SB_DEFAULT,
            atol: SB_DEFAULT,
            maxiter: -1,
            rtol_each: ptr::null(),
            atol_each: ptr::null(),
            maxiter_each: ptr::null(),
        }
    }
}

impl Versioned for sb_limits {
    const NAME: &'static str = "sb_limits";
}

impl sb_limits {
    /// The limits of `systems` systems.
    ///
    /// # Safety
    /// Arrays are NULL or have `systems` elements.
    pub(super) unsafe fn limits(&self, systems: usize) -> Result<Limits, Failure> {
        let maxiter = match self.maxiter {
            -1 => None,
            number => Some(u32::try_from(number).map_err(|_| {
                Failure::argument(format!("maxiter is {number}, expected 0 to {}", u32::MAX))
            })?),
        };
        let tolerance = |value: f64| (value != SB_DEFAULT).then_some(value);
        // SAFETY: the contract of this function.
        unsafe {
            Ok(Limits {
                rtol: limit("rtol_each", self.rtol_each, systems, tolerance(self.rtol))?,
                atol: limit("atol_each", self.atol_each, systems, tolerance(self.atol))?,
                maxiter: limit("maxiter_each", self.maxiter_each, systems, maxiter)?,
            })
        }
    }
}

/// A limit for each system where there is an array, else one for all.
///
/// # Safety
/// `values` is NULL or has `systems` elements.
unsafe fn limit<V: Pod>(
    name: &'static str,
    values: *const V,
    systems: usize,
    all: Option<V>,
) -> Result<Option<PerSystem<V>>, Failure> {
    // SAFETY: the contract of this function.
    let each = unsafe { each(name, values, systems) }?;
    Ok(each.map(PerSystem::Each).or(all.map(PerSystem::All)))
}
