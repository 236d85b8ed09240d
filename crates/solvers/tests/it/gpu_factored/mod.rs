//! Solves with factorised preconditioners on the GPU, run by the emulation and compared with the
//! CPU's.

mod agreement;
mod extremes;
mod independence;
mod lagged;
mod plan;
mod ragged;
mod real;
mod statuses;
pub(crate) mod support;
