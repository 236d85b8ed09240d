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

pub(crate) mod spmv;
#[cfg(target_arch = "x86_64")]
mod x86;

use sparsebatch_formats::{Batch, Scalar};
pub(crate) use sparsebatch_solve_core::wide::Part;

use crate::lanes::LanePlan;
use crate::{CpuError, PlanSource, SpmvPlan};
use sparsebatch_solve_core::{Criteria, Outcome, SpmvOptions};

/// The same quantity of `LANES` systems.
///
/// # Safety
/// Implementors are `repr(transparent)` or arrays over exactly `LANES` values of `Scalar`, without
/// padding and valid for every bit pattern, so that slices of them may be seen as slices of scalars.
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

/// Column indices with a known upper bound, for gathers without a check per entry.
///
/// Invariant: every index is below `limit`.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    idx: Vec<u32>,
    limit: usize,
}

impl Columns {
    /// Takes indices and finds their bound.
    pub(crate) fn new(idx: Vec<u32>) -> Self {
        let limit = idx.iter().map(|&c| c as usize + 1).max().unwrap_or(0);
        Self { idx, limit }
    }

    /// The indices.
    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.idx
    }

    /// `acc + sum of values[k] * x[columns[k]]` over `range`, in ascending order.
    #[inline(always)]
    pub(crate) fn dot<V: Vector>(
        &self,
        range: std::ops::Range<usize>,
        values: &[V],
        x: &[V],
        acc: V,
    ) -> V {
        let (values, idx) = (&values[range.clone()], &self.idx[range]);
        assert!(x.len() >= self.limit);
        let mut acc = acc;
        for (&value, &col) in values.iter().zip(idx) {
            // SAFETY: (1) every index is below `limit`, the invariant of `Columns`; (2) `x` holds
            // at least `limit` vectors, asserted above.
            acc = value.mul_add(unsafe { *x.get_unchecked(col as usize) }, acc);
        }
        acc
    }

    /// The dot product of `values` and `x[columns]` over `range`, in ascending order from 0, each product
    /// rounded before it is added: the same bits whatever the instruction set.
    #[inline(always)]
    pub(crate) fn rounded_dot<V: Vector>(
        &self,
        range: std::ops::Range<usize>,
        values: &[V],
        x: &[V],
    ) -> V {
        let (values, idx) = (&values[range.clone()], &self.idx[range]);
        assert!(x.len() >= self.limit);
        let mut acc = V::zero();
        for (&value, &col) in values.iter().zip(idx) {
            // SAFETY: as in `dot`.
            acc = value.mul(unsafe { *x.get_unchecked(col as usize) }).add(acc);
        }
        acc
    }

    /// For each entry of `range`, its value paired with the element of `x` in its column.
    #[inline(always)]
    pub(crate) fn pairs<'a, V: Vector>(
        &'a self,
        range: std::ops::Range<usize>,
        values: &'a [V],
        x: &'a [V],
    ) -> impl Iterator<Item = (V, V)> + 'a {
        let (values, idx) = (&values[range.clone()], &self.idx[range]);
        assert!(x.len() >= self.limit);
        values.iter().zip(idx).map(|(&value, &col)| {
            // SAFETY: as in `dot`.
            (value, unsafe { *x.get_unchecked(col as usize) })
        })
    }

    /// `acc - sum of values[k] * x[columns[k]]` over `range`, in ascending order.
    #[inline(always)]
    pub(crate) fn neg_dot<V: Vector, S: Stored<V>>(
        &self,
        range: std::ops::Range<usize>,
        values: &[S],
        x: &[V],
        acc: V,
    ) -> V {
        let (values, idx) = (&values[range.clone()], &self.idx[range]);
        assert!(x.len() >= self.limit);
        let mut acc = acc;
        for (&value, &col) in values.iter().zip(idx) {
            // SAFETY: as in `dot`.
            acc = value.load().neg_mul_add(unsafe { *x.get_unchecked(col as usize) }, acc);
        }
        acc
    }

    /// `x[columns[k]] -= factor * values[k]` over `range`.
    #[inline(always)]
    pub(crate) fn scatter_sub<V: Vector>(
        &self,
        range: std::ops::Range<usize>,
        values: &[V],
        factor: V,
        x: &mut [V],
    ) {
        let (values, idx) = (&values[range.clone()], &self.idx[range]);
        assert!(x.len() >= self.limit);
        for (&value, &col) in values.iter().zip(idx) {
            // SAFETY: as in `dot`; the exclusive borrow of `x` allows the write.
            let target = unsafe { x.get_unchecked_mut(col as usize) };
            *target = factor.neg_mul_add(value, *target);
        }
    }

    /// The dot products of `R` consecutive rows of `W` entries each, from entry `start`; each as
    /// [`Columns::dot`] from 0.
    #[inline(always)]
    pub(crate) fn dots<V: Vector, const R: usize, const W: usize>(
        &self,
        start: usize,
        values: &[V],
        x: &[V],
    ) -> [V; R] {
        let (values, idx) = (&values[start..start + R * W], &self.idx[start..start + R * W]);
        assert!(x.len() >= self.limit);
        let mut sums = [V::zero(); R];
        for (row, sum) in sums.iter_mut().enumerate() {
            for k in row * W..(row + 1) * W {
                // SAFETY: (1) `k` is below `R * W`, the length of both slices; (2) the index is
                // below `limit`, the invariant of `Columns`, and `x` is at least that long.
                *sum = unsafe {
                    let col = *idx.get_unchecked(k) as usize;
                    values.get_unchecked(k).mul_add(*x.get_unchecked(col), *sum)
                };
            }
        }
        sums
    }
}

/// An algorithm over lanes.
pub(crate) trait Kernel<T: CpuScalar> {
    /// Return type of [`Kernel::run`].
    type Output;
    /// Runs the algorithm. Implementations, and all functions that they call per element, are
    /// `#[inline(always)]`.
    fn run<V: Vector<Scalar = T>>(self) -> Self::Output;
}

/// An instruction set that the batched kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// The instruction set that the build assumes (SSE2 on x86-64), without fused multiply-add.
    Baseline,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512F.
    Avx512,
}

impl Isa {
    /// The instruction sets that this machine can run, in ascending order.
    pub fn available() -> Vec<Self> {
        let mut all = vec![Self::Baseline];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                all.push(Self::Avx2);
                if is_x86_feature_detected!("avx512f") {
                    all.push(Self::Avx512);
                }
            }
        }
        all
    }

    /// The widest instruction set that this machine can run.
    pub fn best() -> Self {
        *Self::available().last().expect("the baseline is always available")
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

/// A value type with lanes for every instruction set: `f32` and `f64`.
pub trait CpuScalar: Scalar {
    /// Four lanes where the type has them, else eight.
    #[doc(hidden)]
    #[cfg(target_arch = "x86_64")]
    type Avx2x4: Vector<Scalar = Self>;
    /// Eight lanes.
    #[doc(hidden)]
    #[cfg(target_arch = "x86_64")]
    type Avx2x8: Vector<Scalar = Self>;
    /// Sixteen lanes.
    #[doc(hidden)]
    #[cfg(target_arch = "x86_64")]
    type Avx2x16: Vector<Scalar = Self>;
    /// Eight lanes.
    #[doc(hidden)]
    #[cfg(target_arch = "x86_64")]
    type Avx512x8: Vector<Scalar = Self>;
    /// Sixteen lanes.
    #[doc(hidden)]
    #[cfg(target_arch = "x86_64")]
    type Avx512x16: Vector<Scalar = Self>;

    /// [`LanePlan::solve`]. A method of the value type, so that its many instances (by method,
    /// preconditioner, lanes and instruction set) are compiled here, once for each type, and not
    /// again in every program that solves.
    #[doc(hidden)]
    fn solve_lanes(
        plan: &LanePlan,
        batch: &Batch<Self>,
        nrhs: usize,
        b: &[Self],
        x: &mut [Self],
        criteria: &Criteria,
        only: Option<&[usize]>,
    ) -> Result<Vec<Outcome>, CpuError>;

    /// [`SpmvPlan::new`](crate::SpmvPlan::new), likewise: all products are compiled here.
    #[doc(hidden)]
    fn spmv_plan(
        source: PlanSource<'_, Self>,
        options: &SpmvOptions,
    ) -> Result<SpmvPlan<Self>, CpuError>;

    /// [`LanePlan::factor`], likewise.
    #[doc(hidden)]
    fn factor_lanes(plan: &mut LanePlan, batch: &Batch<Self>) -> Result<(), CpuError>;

    /// [`LanePlan::solve_again`], likewise.
    #[doc(hidden)]
    fn solve_lanes_again(
        plan: &mut LanePlan,
        nrhs: usize,
        b: &[Self],
        x: &mut [Self],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, CpuError>;
}

/// The methods of [`CpuScalar`], the same for both types.
macro_rules! solve_lanes {
    () => {
        fn solve_lanes(
            plan: &$crate::lanes::LanePlan,
            batch: &sparsebatch_formats::Batch<Self>,
            nrhs: usize,
            b: &[Self],
            x: &mut [Self],
            criteria: &sparsebatch_solve_core::Criteria,
            only: Option<&[usize]>,
        ) -> Result<Vec<sparsebatch_solve_core::Outcome>, $crate::CpuError> {
            plan.solve_here(batch, nrhs, b, x, criteria, only)
        }

        fn spmv_plan(
            source: $crate::PlanSource<'_, Self>,
            options: &sparsebatch_solve_core::SpmvOptions,
        ) -> Result<$crate::SpmvPlan<Self>, $crate::CpuError> {
            $crate::SpmvPlan::new_here(source, options)
        }

        fn factor_lanes(
            plan: &mut $crate::lanes::LanePlan,
            batch: &sparsebatch_formats::Batch<Self>,
        ) -> Result<(), $crate::CpuError> {
            plan.factor_here(batch)
        }

        fn solve_lanes_again(
            plan: &mut $crate::lanes::LanePlan,
            nrhs: usize,
            b: &[Self],
            x: &mut [Self],
            criteria: &sparsebatch_solve_core::Criteria,
        ) -> Result<Vec<sparsebatch_solve_core::Outcome>, $crate::CpuError> {
            plan.solve_again_here(nrhs, b, x, criteria)
        }
    };
}
#[cfg(target_arch = "x86_64")]
use solve_lanes;

#[cfg(not(target_arch = "x86_64"))]
impl CpuScalar for f32 {
    solve_lanes!();
}
#[cfg(not(target_arch = "x86_64"))]
impl CpuScalar for f64 {
    solve_lanes!();
}

/// Runs a kernel with `lanes` lanes (1, 4, 8 or 16; other numbers, and numbers that the
/// instruction set lacks, are rounded to one it has).
///
/// # Panics
/// When `isa` is not available on this machine.
pub(crate) fn dispatch<T: CpuScalar, K: Kernel<T>>(isa: Isa, lanes: usize, kernel: K) -> K::Output {
    match (isa, lanes) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2 | Isa::Avx512, 2..=4) => avx2::<T::Avx2x4, K>(isa, kernel),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 9..) => avx2::<T::Avx2x16, K>(isa, kernel),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 9..) => avx512::<T::Avx512x16, K>(isa, kernel),
        _ => dispatch_narrow(isa, lanes, kernel),
    }
}

/// As [`dispatch`], but with 1 or 8 lanes only (4 for the baseline), for large kernels that gain
/// nothing from other widths: each width is compiled separately.
///
/// # Panics
/// When `isa` is not available on this machine.
pub(crate) fn dispatch_narrow<T: CpuScalar, K: Kernel<T>>(
    isa: Isa,
    lanes: usize,
    kernel: K,
) -> K::Output {
    match (isa, lanes) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2 | Isa::Avx512, 0..=1) => avx2::<Fused<T>, K>(isa, kernel),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, _) => avx2::<T::Avx2x8, K>(isa, kernel),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, _) => avx512::<T::Avx512x8, K>(isa, kernel),
        // The baseline's widths differ in nothing but the number of lanes.
        _ => kernel.run::<Plain<T, 4>>(),
    }
}

#[cfg(target_arch = "x86_64")]
fn avx2<V: Vector, K: Kernel<V::Scalar>>(isa: Isa, kernel: K) -> K::Output
where
    V::Scalar: CpuScalar,
{
    assert!(isa >= Isa::Avx2 && Isa::available().contains(&isa), "{} is not here", isa.name());
    // SAFETY: (1) the function needs AVX2 and FMA; (2) `Isa::available` lists AVX2, and AVX-512
    // after it, only where these were detected, asserted above.
    unsafe { x86::run_avx2::<V, K>(kernel) }
}

#[cfg(target_arch = "x86_64")]
fn avx512<V: Vector, K: Kernel<V::Scalar>>(isa: Isa, kernel: K) -> K::Output
where
    V::Scalar: CpuScalar,
{
    assert!(isa >= Isa::Avx512 && Isa::available().contains(&isa), "{} is not here", isa.name());
    // SAFETY: as in `avx2`, with AVX-512F.
    unsafe { x86::run_avx512::<V, K>(kernel) }
}

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
