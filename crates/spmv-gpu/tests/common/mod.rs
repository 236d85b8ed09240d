//! What the tests of this crate share.

pub(crate) mod emulator;
mod host_buffer;
pub(crate) mod matrices;
