//! Multicore CPU backend.
