//! Elimination of small dense systems in registers.

use sparsebatch_cuda::Module;

use crate::common::kernels::{NORM, SOLVER};

/// Whole solves by elimination with partial pivoting.
pub(crate) static DENSE: Module = Module::new("dense", include_str!("dense.cu"), &[NORM, SOLVER]);
