//! Products on the GPU by every kernel, in the emulation and, if present, on a GPU.
//!
//! One program, so that plans are compiled for the emulation once.

mod common;
mod flexible;
mod halo;
mod interop;
mod nvrtc;
mod packed;
mod single;
mod trust;
