//! Solves by LU on the GPU, run by the emulation and compared with the CPU's.

mod agreement;
mod deferred;
mod independence;
mod kept;
mod large;
mod plan;
mod real;
mod statuses;
mod support;
