//! Dense elimination with partial pivoting on the GPU, run by the emulation and compared with the
//! CPU's.

mod agreement;
mod independence;
mod plan;
mod statuses;
mod support;
