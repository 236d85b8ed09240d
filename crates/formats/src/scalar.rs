//! The value types: `f32` and `f64`.

use std::fmt::{Debug, Display, LowerExp};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A real value type, `f32` or `f64`. Sealed: kernels exist for these two only.
pub trait Scalar:
    sealed::Sealed
    + Copy
    + Send
    + Sync
    + Default
    + PartialEq
    + PartialOrd
    + Debug
    + Display
    + LowerExp
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + Sum
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The distance from 1 to the next larger value.
    const EPSILON: Self;
    /// The largest finite value.
    const MAX: Self;
    /// The type's name in Rust, files and reports: `"f32"` or `"f64"`.
    const NAME: &'static str;

    /// |x|.
    fn abs(self) -> Self;
    /// The square root; NaN for negative values.
    fn sqrt(self) -> Self;
    /// `self * a + b` with one rounding. Slow where the target has no fused multiply-add
    /// instruction.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// False for NaN and the infinities.
    fn is_finite(self) -> bool;
    /// The nearest value to an `f64`; overflows to an infinity.
    fn from_f64(value: f64) -> Self;
    /// The value as `f64`, exactly.
    fn to_f64(self) -> f64;
}

macro_rules! scalar {
    ($t:ident) => {
        impl Scalar for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const EPSILON: Self = $t::EPSILON;
            const MAX: Self = $t::MAX;
            const NAME: &'static str = stringify!($t);

            #[inline(always)]
            fn abs(self) -> Self {
                $t::abs(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                $t::mul_add(self, a, b)
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }
    };
}
scalar!(f32);
scalar!(f64);
