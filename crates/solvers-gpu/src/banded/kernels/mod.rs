//! Elimination within a narrow band, rows of a system spread over threads.

use sparsebatch_cuda::Module;

use crate::common::kernels::{NORM, SOLVER};

/// Whole solves by LU without pivoting in parts.
pub(crate) static BANDED: Module =
    Module::new("banded", include_str!("banded.cu"), &[NORM, SOLVER]);
