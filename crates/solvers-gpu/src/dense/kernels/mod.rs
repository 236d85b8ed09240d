//! Elimination of small dense systems in registers.

use sparsebatch_cuda::Module;
use sparsebatch_cuda::module::Header;

use crate::common::kernels::{NORM, SOLVER};

const HEADERS: &[Header] = &[NORM, SOLVER, ("dense_system.cuh", include_str!("dense_system.cuh"))];

/// Whole solves by elimination with partial pivoting, each thread with whole rows.
pub(crate) static DENSE: Module = Module::new("dense", include_str!("dense.cu"), HEADERS);
/// The same, a warp with tiles of tensor cores.
pub(crate) static DENSE_TILES: Module =
    Module::new("dense_tiles", include_str!("dense_tiles.cu"), HEADERS);
