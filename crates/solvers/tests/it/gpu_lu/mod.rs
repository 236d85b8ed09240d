//! Solves by LU on the GPU, run by the emulation and compared with the CPU's.

pub(crate) mod agreement;
mod deferred;
pub(crate) mod independence;
mod kept;
mod large;
mod plan;
mod real;
pub(crate) mod statuses;
pub(crate) mod support;
mod transposed;
