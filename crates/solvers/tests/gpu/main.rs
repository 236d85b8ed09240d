//! Solves on the GPU, run by the emulation and held against the CPU's.

mod agreement;
mod common;
mod honesty;
mod independence;
mod mixed;
mod plan;
mod scattered;
mod statuses;
mod trial;
