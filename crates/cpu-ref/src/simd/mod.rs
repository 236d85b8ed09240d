//! SIMD lanes: one system per lane, instruction set chosen at run time.
//!
//! A [`Vector`] holds the same quantity of several systems. Algorithms are written once, generic
//! over `V: Vector`, as the [`Kernel::run`] of some struct; [`dispatch`] calls it inside a function
//! compiled for the instruction set, and since every function between that one and the intrinsics
//! is `#[inline(always)]`, the whole algorithm is compiled for it. A system's arithmetic does not
//! depend on the number of lanes, nor on AVX2 against AVX-512: both contract `a * b + c` in the
//! same places. Only the baseline, which has no fused multiply-add, rounds differently.
//!
//! This module is the only one of the crate that holds unsafe code: intrinsics, the calls of
//! `target_feature` functions, casts between lanes and scalars, and unchecked gathers through
//! [`Columns`]. The measurement that justifies it: 10,000 tridiagonal systems of 128 rows by CG on
//! two cores take 39 ms with compiler-vectorised `[f64; 8]`, 22 ms with explicit AVX2 lanes.
#![allow(unsafe_code)]

mod columns;
mod isa;
mod portable;
pub(crate) mod spmv;
#[cfg(target_arch = "x86_64")]
mod x86;

use sparsebatch_formats::Scalar;
pub(crate) use sparsebatch_solve_core::wide::Part;

pub(crate) use columns::Columns;
pub use isa::{CpuScalar, Isa};
pub(crate) use isa::{Kernel, dispatch, dispatch_narrow};
#[cfg(target_arch = "x86_64")]
pub(crate) use portable::Fused;
#[cfg(target_arch = "x86_64")]
pub(crate) use portable::Wide;
pub(crate) use portable::{Plain, plain, plain_mut};

/// The same quantity of `LANES` systems.
///
/// # Safety
/// Implementors are `repr(transparent)` or arrays over exactly `LANES` values of `Scalar`, without
/// padding and valid for every bit pattern, so that slices of them may be seen as slices of
/// scalars.
pub unsafe trait Vector: Copy + Send + Sync + 'static {
    /// The value type.
    type Scalar: Scalar;
    /// Number of systems side by side, at most 16.
    const LANES: usize;
    /// Whether [`Vector::mul_add`] rounds once.
    const FUSED: bool;
    /// The same lanes stored in f32: `f32` values one after the other.
    type Single: Copy + Send + Sync + 'static;

    /// The same value in each lane.
    fn splat(value: Self::Scalar) -> Self;
    /// Sum.
    fn add(self, other: Self) -> Self;
    /// Difference.
    fn sub(self, other: Self) -> Self;
    /// Product.
    fn mul(self, other: Self) -> Self;
    /// Quotient.
    fn div(self, other: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Absolute value.
    fn abs(self) -> Self;
    /// `self * a + b`, fused where the instruction set has it.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// `b - self * a`, fused where the instruction set has it.
    fn neg_mul_add(self, a: Self, b: Self) -> Self;
    /// One bit per lane in which `self <= other`; clear for NaN.
    fn le(self, other: Self) -> u32;
    /// Keeps the lanes whose bit is set in `lanes`; the others become 0.
    fn keep(self, lanes: u32) -> Self;
    /// `a * b + c` of one lane, rounded like [`Vector::mul_add`].
    fn scalar_mul_add(a: Self::Scalar, b: Self::Scalar, c: Self::Scalar) -> Self::Scalar;
    /// Rounded to f32.
    fn to_single(self) -> Self::Single;
    /// Converts lanes stored in f32 back to the value type.
    fn from_single(single: Self::Single) -> Self;
    /// Runs a part of a kernel as a separate function, compiled once for the vector's instruction
    /// set and shared by all kernels with that part.
    fn call<P: Part>(part: P) -> P::Output;

    /// One bit per lane in which `self < other`; clear for NaN.
    #[inline(always)]
    fn lt(self, other: Self) -> u32 {
        self.le(other) & !other.le(self)
    }

    /// All zero.
    #[inline(always)]
    fn zero() -> Self {
        Self::splat(Self::Scalar::ZERO)
    }

    /// One lane. For rare events, not for inner loops.
    #[inline(always)]
    fn get(self, lane: usize) -> Self::Scalar {
        scalars(std::slice::from_ref(&self))[lane]
    }

    /// Replaces one lane. For rare events, not for inner loops.
    #[inline(always)]
    fn set(&mut self, lane: usize, value: Self::Scalar) {
        scalars_mut(std::slice::from_mut(self))[lane] = value;
    }
}

/// The stored form of a vector, loaded in inner loops.
pub(crate) trait Stored<V>: Copy {
    /// The vector.
    fn load(self) -> V;
}

impl<V: Vector> Stored<V> for V {
    #[inline(always)]
    fn load(self) -> V {
        self
    }
}

/// A vector that is stored in f32.
#[repr(transparent)]
pub(crate) struct Single<V: Vector>(V::Single);

impl<V: Vector> Clone for Single<V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Vector> Copy for Single<V> {}

impl<V: Vector> Single<V> {
    #[inline(always)]
    pub(crate) fn new(vector: V) -> Self {
        Self(vector.to_single())
    }
}

impl<V: Vector> Stored<V> for Single<V> {
    #[inline(always)]
    fn load(self) -> V {
        V::from_single(self.0)
    }
}

/// All lanes of all vectors, in order: element `k` of lane `l` is at `k * LANES + l`.
#[inline(always)]
pub(crate) fn scalars<V: Vector>(vectors: &[V]) -> &[V::Scalar] {
    // SAFETY: (1) by the contract of `Vector`, `V` is exactly `LANES` scalars without padding, so
    // the length counts the same bytes; (2) its alignment is at least a scalar's; (3) the borrow
    // is that of `vectors`.
    unsafe { std::slice::from_raw_parts(vectors.as_ptr().cast(), vectors.len() * V::LANES) }
}

/// Mutable form of [`scalars`].
#[inline(always)]
pub(crate) fn scalars_mut<V: Vector>(vectors: &mut [V]) -> &mut [V::Scalar] {
    // SAFETY: as in `scalars`; every bit pattern written is valid for `V`, and the exclusive
    // borrow is that of `vectors`.
    unsafe { std::slice::from_raw_parts_mut(vectors.as_mut_ptr().cast(), vectors.len() * V::LANES) }
}

/// Sets several lanes of all vectors, each from its slice: element `k` goes to vector `k`.
#[inline(always)]
pub(crate) fn set_lanes<V: Vector>(vectors: &mut [V], sources: &[(usize, &[V::Scalar])]) {
    // Eight vectors at a time: all lanes are written while the cache lines are still in cache.
    const BLOCK: usize = 8;
    if sources.is_empty() {
        return;
    }
    let len = vectors.len();
    let blocks = scalars_mut(vectors).chunks_mut(BLOCK * V::LANES);
    for (start, block) in (0..len).step_by(BLOCK).zip(blocks) {
        for &(lane, source) in sources {
            let source = &source[start..(start + BLOCK).min(len)];
            for (chunk, &value) in block.chunks_exact_mut(V::LANES).zip(source) {
                chunk[lane] = value;
            }
        }
    }
}

/// Sets one lane of all vectors from `source`: element `k` goes to vector `k`.
#[inline(always)]
pub(crate) fn set_lane<V: Vector>(
    vectors: &mut [V],
    lane: usize,
    source: impl Iterator<Item = V::Scalar>,
) {
    assert!(lane < V::LANES);
    for (chunk, value) in scalars_mut(vectors).chunks_exact_mut(V::LANES).zip(source) {
        chunk[lane] = value;
    }
}

/// One lane of all vectors, in order.
#[inline(always)]
pub(crate) fn lane<V: Vector>(vectors: &[V], lane: usize) -> impl Iterator<Item = V::Scalar> {
    assert!(lane < V::LANES);
    scalars(vectors).chunks_exact(V::LANES).map(move |chunk| chunk[lane])
}
