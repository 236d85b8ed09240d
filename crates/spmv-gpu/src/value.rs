//! The value types of kernels.

use sparsebatch_formats::Scalar;

use crate::KernelScalar;

/// `f32` and `f64`: values of matrices and vectors, on the host and on the device.
pub trait GpuValue: Scalar + KernelScalar {}

impl GpuValue for f32 {}
impl GpuValue for f64 {}
