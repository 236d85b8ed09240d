//! Composed solves on the GPU, run by the emulation and held against the CPU's.

#[path = "../../../spmv-gpu/tests/common/emulator.rs"]
mod emulator;
#[path = "../../../spmv-gpu/tests/common/host_buffer.rs"]
mod host_buffer;

mod agreement;
mod support;
