//! The sparse LU of systems of any patterns, column by column.

use sparsebatch_cuda::Module;

use crate::common::kernels::SOLVER;

/// Whole solves of systems, a team of warps for each.
pub(crate) static LU_COLUMNS: Module =
    Module::new("lu_columns", include_str!("lu_columns.cu"), &[SOLVER]);
