//! Lanes in plain Rust, one lane with fused multiply-add, and several vectors as one.

use sparsebatch_formats::Scalar;

use super::{Part, Vector};

/// `N` lanes in plain Rust, without fused multiply-add.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Plain<T, const N: usize>([T; N]);

/// One lane with fused multiply-add.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Fused<T>(T);

/// `N` vectors as one.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Wide<V, const N: usize>([V; N]);

#[cfg(test)]
impl<T, const N: usize> Plain<T, N> {
    /// The values of all lanes.
    pub(crate) fn from_lanes(lanes: [T; N]) -> Self {
        Self(lanes)
    }
}

/// Scalars as vectors of one lane.
pub(crate) fn plain<T: Scalar>(scalars: &[T]) -> &[Plain<T, 1>] {
    // SAFETY: `Plain<T, 1>` is `repr(transparent)` over `[T; 1]`, which has the layout of `T`.
    unsafe { std::slice::from_raw_parts(scalars.as_ptr().cast(), scalars.len()) }
}

/// Mutable form of [`plain`].
pub(crate) fn plain_mut<T: Scalar>(scalars: &mut [T]) -> &mut [Plain<T, 1>] {
    // SAFETY: as in `plain`; the exclusive borrow is that of `scalars`.
    unsafe { std::slice::from_raw_parts_mut(scalars.as_mut_ptr().cast(), scalars.len()) }
}

macro_rules! by_element {
    ($($name:ident($($arg:ident),*)),*; $method:ident) => {$(
        #[inline(always)]
        fn $name(self, $($arg: Self),*) -> Self {
            Self(std::array::from_fn(|i| $method!($name, self.0[i] $(, $arg.0[i])*)))
        }
    )*};
}

macro_rules! plain {
    (add, $a:expr, $b:expr) => {
        $a + $b
    };
    (sub, $a:expr, $b:expr) => {
        $a - $b
    };
    (mul, $a:expr, $b:expr) => {
        $a * $b
    };
    (div, $a:expr, $b:expr) => {
        $a / $b
    };
    (sqrt, $a:expr) => {
        $a.sqrt()
    };
    (abs, $a:expr) => {
        $a.abs()
    };
    (mul_add, $a:expr, $b:expr, $c:expr) => {
        $a * $b + $c
    };
    (neg_mul_add, $a:expr, $b:expr, $c:expr) => {
        $c - $a * $b
    };
}

// SAFETY: `repr(transparent)` over an array of `N` scalars.
unsafe impl<T: Scalar, const N: usize> Vector for Plain<T, N> {
    type Scalar = T;
    const LANES: usize = N;
    const FUSED: bool = false;
    type Single = [f32; N];

    #[inline(always)]
    fn splat(value: T) -> Self {
        Self([value; N])
    }
    by_element!(add(o), sub(o), mul(o), div(o), sqrt(), abs(), mul_add(a, b), neg_mul_add(a, b); plain);
    #[inline(always)]
    fn le(self, other: Self) -> u32 {
        (0..N).fold(0, |bits, i| bits | u32::from(self.0[i] <= other.0[i]) << i)
    }
    #[inline(always)]
    fn keep(self, lanes: u32) -> Self {
        Self(std::array::from_fn(|i| if lanes >> i & 1 == 1 { self.0[i] } else { T::ZERO }))
    }
    #[inline(always)]
    fn scalar_mul_add(a: T, b: T, c: T) -> T {
        a * b + c
    }
    #[inline(always)]
    fn to_single(self) -> [f32; N] {
        std::array::from_fn(|i| self.0[i].to_f64() as f32)
    }
    #[inline(always)]
    fn from_single(single: [f32; N]) -> Self {
        Self(std::array::from_fn(|i| T::from_f64(f64::from(single[i]))))
    }
    #[inline(never)]
    fn call<P: Part>(part: P) -> P::Output {
        part.run()
    }
}

#[cfg(target_arch = "x86_64")]
// SAFETY: `repr(transparent)` over one scalar.
unsafe impl<T: Scalar> Vector for Fused<T> {
    type Scalar = T;
    const LANES: usize = 1;
    const FUSED: bool = true;
    type Single = f32;

    #[inline(always)]
    fn splat(value: T) -> Self {
        Self(value)
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(self.0 * other.0)
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Self(self.0 / other.0)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.sqrt())
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.abs())
    }
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        Self(self.0.mul_add(a.0, b.0))
    }
    #[inline(always)]
    fn neg_mul_add(self, a: Self, b: Self) -> Self {
        Self((-self.0).mul_add(a.0, b.0))
    }
    #[inline(always)]
    fn le(self, other: Self) -> u32 {
        u32::from(self.0 <= other.0)
    }
    #[inline(always)]
    fn keep(self, lanes: u32) -> Self {
        if lanes & 1 == 1 { self } else { Self::zero() }
    }
    #[inline(always)]
    fn scalar_mul_add(a: T, b: T, c: T) -> T {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn to_single(self) -> f32 {
        self.0.to_f64() as f32
    }
    #[inline(always)]
    fn from_single(single: f32) -> Self {
        Self(T::from_f64(f64::from(single)))
    }
    #[inline(always)]
    fn call<P: Part>(part: P) -> P::Output {
        // SAFETY: `call_avx2` needs AVX2 and FMA; values of this type are only made under
        // `avx2`, after detection.
        unsafe { sparsebatch_solve_core::wide::call_avx2(part) }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! wide {
    ($name:ident, $a:expr $(, $arg:expr)*) => { $a.$name($($arg),*) };
}

#[cfg(target_arch = "x86_64")]
// SAFETY: `repr(transparent)` over an array of `N` vectors, each of which is `V::LANES` scalars.
unsafe impl<V: Vector, const N: usize> Vector for Wide<V, N> {
    type Scalar = V::Scalar;
    const LANES: usize = V::LANES * N;
    const FUSED: bool = V::FUSED;
    type Single = [V::Single; N];

    #[inline(always)]
    fn splat(value: V::Scalar) -> Self {
        Self([V::splat(value); N])
    }
    by_element!(add(o), sub(o), mul(o), div(o), sqrt(), abs(), mul_add(a, b), neg_mul_add(a, b); wide);
    #[inline(always)]
    fn le(self, other: Self) -> u32 {
        (0..N).fold(0, |bits, i| bits | self.0[i].le(other.0[i]) << (i * V::LANES))
    }
    #[inline(always)]
    fn keep(self, lanes: u32) -> Self {
        Self(std::array::from_fn(|i| self.0[i].keep(lanes >> (i * V::LANES))))
    }
    #[inline(always)]
    fn scalar_mul_add(a: V::Scalar, b: V::Scalar, c: V::Scalar) -> V::Scalar {
        V::scalar_mul_add(a, b, c)
    }
    #[inline(always)]
    fn to_single(self) -> [V::Single; N] {
        std::array::from_fn(|i| self.0[i].to_single())
    }
    #[inline(always)]
    fn from_single(single: [V::Single; N]) -> Self {
        Self(std::array::from_fn(|i| V::from_single(single[i])))
    }
    #[inline(always)]
    fn call<P: Part>(part: P) -> P::Output {
        V::call(part)
    }
}
