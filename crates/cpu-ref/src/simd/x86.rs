//! AVX2 and AVX-512 lanes.

use std::arch::x86_64::*;

use sparsebatch_solve_core::wide::{Part, call_avx2, call_avx512};

use super::{CpuScalar, Kernel, Vector, Wide};

/// Compiles a kernel for AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) fn run_avx2<V: Vector, K: Kernel<V::Scalar>>(kernel: K) -> K::Output
where
    V::Scalar: CpuScalar,
{
    kernel.run::<V>()
}

/// Compiles a kernel for AVX-512F.
#[target_feature(enable = "avx512f,avx2,fma")]
pub(super) fn run_avx512<V: Vector, K: Kernel<V::Scalar>>(kernel: K) -> K::Output
where
    V::Scalar: CpuScalar,
{
    kernel.run::<V>()
}

macro_rules! vector {
    ($name:ident, $raw:ident, $t:ident, $lanes:literal, $call:ident, $doc:literal,
     $set1:ident, $add:ident, $sub:ident, $mul:ident, $div:ident, $sqrt:ident,
     $fmadd:ident, $fnmadd:ident, |$of:ident| $abs:expr, |$a:ident, $b:ident| $le:expr, |$v:ident, $lanes_bits:ident| $keep:expr,
     $single:ident, |$wide:ident| $narrowed:expr, |$narrow:ident| $widened:expr) => {
        #[doc = $doc]
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub struct $name($raw);

        // SAFETY: of the trait: the register type is exactly these lanes. Of the blocks inside:
        // (1) these intrinsics need the instruction set and nothing else; (2) values of this type
        // are only made inside `run_avx2` or `run_avx512` (`dispatch` alone names the type), which
        // are called after detection.
        unsafe impl Vector for $name {
            type Scalar = $t;
            const LANES: usize = $lanes;
            const FUSED: bool = true;
            type Single = $single;

            #[inline(always)]
            fn splat(value: $t) -> Self {
                // SAFETY: (1) and (2) above.
                Self(unsafe { $set1(value) })
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: (1) and (2) above.
                Self(unsafe { $add(self.0, other.0) })
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                // SAFETY: (1) and (2) above.
                Self(unsafe { $sub(self.0, other.0) })
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                // SAFETY: (1) and (2) above.
                Self(unsafe { $mul(self.0, other.0) })
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                // SAFETY: (1) and (2) above.
                Self(unsafe { $div(self.0, other.0) })
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                // SAFETY: (1) and (2) above.
                Self(unsafe { $sqrt(self.0) })
            }
            #[inline(always)]
            fn abs(self) -> Self {
                let $of = self.0;
                // SAFETY: (1) and (2) above.
                Self(unsafe { $abs })
            }
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                // SAFETY: (1) and (2) above.
                Self(unsafe { $fmadd(self.0, a.0, b.0) })
            }
            #[inline(always)]
            fn neg_mul_add(self, a: Self, b: Self) -> Self {
                // SAFETY: (1) and (2) above.
                Self(unsafe { $fnmadd(self.0, a.0, b.0) })
            }
            #[inline(always)]
            fn le(self, other: Self) -> u32 {
                let ($a, $b) = (self.0, other.0);
                // SAFETY: (1) and (2) above.
                unsafe { $le }
            }
            #[inline(always)]
            fn keep(self, lanes: u32) -> Self {
                let ($v, $lanes_bits) = (self.0, lanes);
                // SAFETY: (1) and (2) above.
                Self(unsafe { $keep })
            }
            #[inline(always)]
            fn scalar_mul_add(a: $t, b: $t, c: $t) -> $t {
                a.mul_add(b, c)
            }
            #[inline(always)]
            #[allow(unused_unsafe, reason = "f32 stays as it is")]
            fn to_single(self) -> $single {
                let $wide = self.0;
                // SAFETY: (1) and (2) above.
                unsafe { $narrowed }
            }
            #[inline(always)]
            #[allow(unused_unsafe, reason = "f32 stays as it is")]
            fn from_single(single: $single) -> Self {
                let $narrow = single;
                // SAFETY: (1) and (2) above.
                Self(unsafe { $widened })
            }
            #[inline(always)]
            fn call<P: Part>(part: P) -> P::Output {
                // SAFETY: (1) and (2) above.
                unsafe { $call(part) }
            }
        }
    };
}

vector!(
    F64x4,
    __m256d,
    f64,
    4,
    call_avx2,
    "Four f64 in AVX2.",
    _mm256_set1_pd,
    _mm256_add_pd,
    _mm256_sub_pd,
    _mm256_mul_pd,
    _mm256_div_pd,
    _mm256_sqrt_pd,
    _mm256_fmadd_pd,
    _mm256_fnmadd_pd,
    |v| _mm256_andnot_pd(_mm256_set1_pd(-0.0), v),
    |a, b| _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_LE_OQ>(a, b)) as u32,
    |v, lanes| {
        let bits = _mm256_set_epi64x(8, 4, 2, 1);
        let set = _mm256_and_si256(_mm256_set1_epi64x(i64::from(lanes)), bits);
        _mm256_and_pd(v, _mm256_castsi256_pd(_mm256_cmpeq_epi64(set, bits)))
    },
    __m128,
    |wide| _mm256_cvtpd_ps(wide),
    |narrow| _mm256_cvtps_pd(narrow)
);
vector!(
    F32x8,
    __m256,
    f32,
    8,
    call_avx2,
    "Eight f32 in AVX2.",
    _mm256_set1_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_div_ps,
    _mm256_sqrt_ps,
    _mm256_fmadd_ps,
    _mm256_fnmadd_ps,
    |v| _mm256_andnot_ps(_mm256_set1_ps(-0.0), v),
    |a, b| _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LE_OQ>(a, b)) as u32,
    |v, lanes| {
        let bits = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
        let set = _mm256_and_si256(_mm256_set1_epi32(lanes as i32), bits);
        _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bits)))
    },
    __m256,
    |wide| wide,
    |narrow| narrow
);
vector!(
    F64x8,
    __m512d,
    f64,
    8,
    call_avx512,
    "Eight f64 in AVX-512.",
    _mm512_set1_pd,
    _mm512_add_pd,
    _mm512_sub_pd,
    _mm512_mul_pd,
    _mm512_div_pd,
    _mm512_sqrt_pd,
    _mm512_fmadd_pd,
    _mm512_fnmadd_pd,
    |v| _mm512_abs_pd(v),
    |a, b| u32::from(_mm512_cmp_pd_mask::<_CMP_LE_OQ>(a, b)),
    |v, lanes| _mm512_maskz_mov_pd(lanes as u8, v),
    __m256,
    |wide| _mm512_cvtpd_ps(wide),
    |narrow| _mm512_cvtps_pd(narrow)
);
vector!(
    F32x16,
    __m512,
    f32,
    16,
    call_avx512,
    "Sixteen f32 in AVX-512.",
    _mm512_set1_ps,
    _mm512_add_ps,
    _mm512_sub_ps,
    _mm512_mul_ps,
    _mm512_div_ps,
    _mm512_sqrt_ps,
    _mm512_fmadd_ps,
    _mm512_fnmadd_ps,
    |v| _mm512_abs_ps(v),
    |a, b| u32::from(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b)),
    |v, lanes| _mm512_maskz_mov_ps(lanes as u16, v),
    __m512,
    |wide| wide,
    |narrow| narrow
);

impl CpuScalar for f64 {
    type Avx2x4 = F64x4;
    type Avx2x8 = Wide<F64x4, 2>;
    type Avx2x16 = Wide<F64x4, 4>;
    type Avx512x8 = F64x8;
    type Avx512x16 = Wide<F64x8, 2>;

    super::isa::solve_lanes!();
}

impl CpuScalar for f32 {
    type Avx2x4 = F32x8;
    type Avx2x8 = F32x8;
    type Avx2x16 = Wide<F32x8, 2>;
    type Avx512x8 = F32x8;
    type Avx512x16 = F32x16;

    super::isa::solve_lanes!();
}
