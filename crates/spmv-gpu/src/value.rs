//! The value types of matrices and vectors.

use sparsebatch_formats::Scalar;

use crate::KernelScalar;

/// A value type that host formats and kernels share: `f64` or `f32`.
pub trait Value: Scalar + KernelScalar {
    /// The type's name in kernels.
    const CPP: &'static str;
}

impl Value for f64 {
    const CPP: &'static str = "double";
}

impl Value for f32 {
    const CPP: &'static str = "float";
}
