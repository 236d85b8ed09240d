//! What the tests of this crate share.

pub(crate) mod emulator;
pub(crate) mod matrices;
