//! The value types of matrices and vectors.

use sparsebatch_formats::Scalar;

use crate::KernelScalar;

/// A value type that host formats and kernels share: `f64` or `f32`.
pub trait Value: Scalar + KernelScalar {
    /// The type's name in kernels.
    const CPP: &'static str;

    /// The value that DIA stores where a diagonal has no entry, as tested by `is_fill` of `dia.cu`:
    /// a specific quiet NaN that the kernel can tell from every entry.
    const DIA_FILL: Self;

    /// This value as an entry of DIA. A NaN that would mark a missing entry becomes another NaN.
    #[must_use]
    fn dia_entry(self) -> Self;
}

impl Value for f64 {
    const CPP: &'static str = "double";
    const DIA_FILL: Self = Self::from_bits(0x7ffd_1a61_0000_0000);

    fn dia_entry(self) -> Self {
        if self.to_bits() >> 32 == Self::DIA_FILL.to_bits() >> 32 { Self::NAN } else { self }
    }
}

impl Value for f32 {
    const CPP: &'static str = "float";
    const DIA_FILL: Self = Self::from_bits(0x7fed_1a61);

    fn dia_entry(self) -> Self {
        if self.to_bits() == Self::DIA_FILL.to_bits() { Self::NAN } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_entry_is_taken_for_fill() {
        assert!(f64::DIA_FILL.is_nan() && f32::DIA_FILL.is_nan());
        assert_ne!(f64::DIA_FILL.dia_entry().to_bits() >> 32, f64::DIA_FILL.to_bits() >> 32);
        assert_ne!(f32::DIA_FILL.dia_entry().to_bits(), f32::DIA_FILL.to_bits());
        assert_eq!([1.5, -0.0, f64::INFINITY].map(Value::dia_entry), [1.5, -0.0, f64::INFINITY]);
    }
}
