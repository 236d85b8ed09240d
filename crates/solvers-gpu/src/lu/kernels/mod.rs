//! Sparse LU with its factors on chip.

use sparsebatch_cuda::Module;
use sparsebatch_cuda::module::Header;

use crate::common::kernels::SOLVER;

const PROGRAMS: Header = ("programs.cuh", include_str!("programs.cuh"));
const SYSTEM: Header = ("lu_system.cuh", include_str!("lu_system.cuh"));
const SUMS: Header = ("lu_sums.cuh", include_str!("lu_sums.cuh"));
const KEPT: Header = ("lu_kept.cuh", include_str!("lu_kept.cuh"));

/// Whole solves, and factorisations whose factors are kept.
pub(crate) static LU: Module =
    Module::new("lu", include_str!("lu.cu"), &[SOLVER, PROGRAMS, SYSTEM, SUMS]);
/// Solves with kept factors.
pub(crate) static LU_KEPT: Module =
    Module::new("lu_kept", include_str!("lu_kept.cu"), &[SOLVER, PROGRAMS, SYSTEM, KEPT]);
/// The kept values of transposed matrices.
pub(crate) static LU_TRANSPOSE: Module =
    Module::new("lu_transpose", include_str!("lu_transpose.cu"), &[]);
/// Substitution alone, with kept factors.
pub(crate) static LU_SUBSTITUTE: Module =
    Module::new("lu_substitute", include_str!("lu_substitute.cu"), &[SOLVER, PROGRAMS, KEPT]);
/// Residuals of substituted solutions, and their verdicts.
pub(crate) static LU_VERIFY: Module =
    Module::new("lu_verify", include_str!("lu_verify.cu"), &[SOLVER, PROGRAMS, SYSTEM, KEPT]);
