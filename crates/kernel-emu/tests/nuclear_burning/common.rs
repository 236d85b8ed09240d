//! The emulated GPU.

#[path = "../../../spmv-gpu/tests/common/emulator.rs"]
pub(crate) mod emulator;
#[path = "../../../spmv-gpu/tests/common/host_buffer.rs"]
mod host_buffer;
