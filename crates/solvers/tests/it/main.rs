//! Solves of whole batches: on the CPU through the public interface, and by every solver of the
//! GPU, run by the emulation and compared with the CPU's.
//!
//! One program, so that plans are compiled for the emulation once.

mod backends;
mod bits;
mod common;
mod gpu;
mod gpu_banded;
mod gpu_clusters;
mod gpu_composed;
mod gpu_confirmed;
mod gpu_dense;
mod gpu_factored;
mod gpu_krylov_steps;
mod gpu_lu;
mod gpu_lu_columns;
mod gpu_multifrontal;
mod gpu_settled;
mod nvrtc;
mod solves;
