//! The value types of kernels.

use sparsebatch_formats::Scalar as HostScalar;

use crate::executor::Scalar;

/// `f32` and `f64`: values of matrices and vectors on the device.
pub trait GpuValue: HostScalar + Scalar {
    /// The type's name in kernels.
    const CPP: &'static str;
}

impl GpuValue for f64 {
    const CPP: &'static str = "double";
}

impl GpuValue for f32 {
    const CPP: &'static str = "float";
}
