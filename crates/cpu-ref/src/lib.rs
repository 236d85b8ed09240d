//! Multicore CPU backend.

pub mod symbolic;
