//! Kernels over vectors.

use crate::Module;

/// Vector operations, and the kernels that measure memory bandwidth.
pub static VECTOR: Module = Module::new("vector", include_str!("vector.cu"), &[]);

/// Every module of this crate.
#[doc(hidden)]
pub static MODULES: &[&Module] = &[&VECTOR];
