//! Composed solves on the GPU, run by the emulation and held against the CPU's.

#[path = "../gpu/common.rs"]
#[allow(dead_code, reason = "some of it is for the fused solver")]
mod common;
#[path = "../gpu/honesty.rs"]
mod honesty;
#[path = "../gpu/statuses.rs"]
mod statuses;

mod agreement;
mod history;
mod independence;
mod plan;
mod support;
mod trial;
