//! The sparse LU by fronts.

use sparsebatch_cuda::Module;

use crate::common::kernels::SOLVER;

/// Whole solves of systems, a block for each.
pub(crate) static MULTIFRONTAL: Module =
    Module::new("multifrontal", include_str!("multifrontal.cu"), &[SOLVER]);
