//! Multicore CPU backend.

pub mod pivoting_lu;
pub mod symbolic;
