//! Solves with factorised preconditioners on the GPU, run by the emulation and held against the CPU's.

#[path = "../gpu/common.rs"]
#[allow(dead_code, reason = "some of it is for other solvers")]
mod common;

mod agreement;
mod extremes;
mod independence;
mod lagged;
mod plan;
mod real;
mod statuses;
mod support;
