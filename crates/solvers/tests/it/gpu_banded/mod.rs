//! Banded elimination on the GPU, run by the emulation and compared with the CPU's.

mod agreement;
mod backends;
mod independence;
mod plan;
mod statuses;
pub(crate) mod support;
