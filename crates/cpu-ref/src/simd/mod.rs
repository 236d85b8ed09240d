//! The SIMD code of this crate and all of its `unsafe`.
#![expect(
    unsafe_code,
    reason = "instruction-set dispatch; each block argues its safety"
)]

mod spmv;

pub(crate) use spmv::{Isa, Leaf, dispatch, prefetch};
