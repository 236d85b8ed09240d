//! Sparse matrix-vector products on an NVIDIA GPU, with one matrix and with whole batches.
//!
//! | module | holds |
//! | --- | --- |
//! | [`packed`] | [`PackedPlan`]: products of whole batches, the default |
//! | [`flexible`] | products of a whole batch in one launch, systems of any sizes and patterns |
//! | [`single`] | products with one matrix: a plan for each format and kernel |
//! | [`halo`] | the part of one GPU in products with a matrix divided among several |
//!
//! Each module has its kernels in its folder. Plans are written over
//! [`Executor`](sparsebatch_cuda::Executor) and run on a [`Device`](sparsebatch_cuda::Device) or in
//! an emulation.
#![deny(unsafe_code)]

mod csr_arrays;
pub mod flexible;
pub mod halo;
pub mod kernels;
pub mod packed;
pub mod single;

pub use csr_arrays::{CsrArrays, CsrSize};
pub use flexible::{FlexibleKernel, FlexibleOptions, FlexiblePlan};
pub use halo::{HaloParts, HaloPlan, Incoming, Mailbox};
pub use packed::{PackedExplain, PackedKernel, PackedOptions, PackedPlan};
pub use single::{
    AdaptiveRows, BalancedRows, SingleExplain, SingleKernel, SingleOptions, SinglePlan,
};
