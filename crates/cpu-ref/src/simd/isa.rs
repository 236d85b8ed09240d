//! Instruction sets, the types that have lanes, and the dispatch of kernels to them.

use sparsebatch_formats::{Batch, Scalar};
use sparsebatch_solve_core::{Criteria, Outcome, SpmvOptions};

#[cfg(target_arch = "x86_64")]
use super::{Fused, x86};
use super::{Plain, Vector};
use crate::lanes::{LanePlan, WithFactors};
use crate::{CpuError, PlanSource, SpmvPlan};

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

    /// [`LanePlan::solve_again`] and the other solves with kept factors, likewise.
    #[doc(hidden)]
    fn solve_lanes_again(
        plan: &mut LanePlan,
        with: WithFactors<'_, Self>,
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
            with: $crate::lanes::WithFactors<'_, Self>,
            nrhs: usize,
            b: &[Self],
            x: &mut [Self],
            criteria: &sparsebatch_solve_core::Criteria,
        ) -> Result<Vec<sparsebatch_solve_core::Outcome>, $crate::CpuError> {
            plan.solve_again_here(with, nrhs, b, x, criteria)
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use solve_lanes;

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
