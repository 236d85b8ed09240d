//! Solves by LU on the GPU, run by the emulation and held against the CPU's.

#[path = "../gpu/common.rs"]
#[allow(dead_code, reason = "some of it is for CG")]
mod common;

mod agreement;
mod deferred;
mod independence;
mod kept;
mod large;
mod plan;
mod real;
mod statuses;
mod support;
