//! Runs the inner loop of a product under the best instruction set of the machine.
//!
//! The loops are safe code in `par`. Here they are compiled twice, for any x86-64 (or other)
//! processor and for AVX2 with FMA; the choice is made at run time. FMA rounds once where the
//! portable loop rounds twice, so results may differ by rounding between machines, never between
//! runs or thread counts on one machine.
//!
//! A library built for plain x86-64 would otherwise use half the vector width and no FMA in
//! its products.

use sparsebatch_formats::Scalar;

/// An instruction set, as far as the inner loops see it.
pub(crate) trait SpmvIsa {
    /// `a * b + c`, rounded once where the instruction set does that at full speed.
    fn mul_add<T: Scalar>(a: T, b: T, c: T) -> T;

    /// [`prefetch`], in loops over one large matrix.
    #[inline(always)]
    fn prefetch<T>(data: &[T], index: usize) {
        prefetch(data, index);
    }
}

/// The instruction set of every processor of the target.
pub(crate) struct Portable;

/// AVX2 and FMA.
pub(crate) struct Fma;

impl SpmvIsa for Portable {
    #[inline(always)]
    fn mul_add<T: Scalar>(a: T, b: T, c: T) -> T {
        a * b + c
    }
}

impl SpmvIsa for Fma {
    #[inline(always)]
    fn mul_add<T: Scalar>(a: T, b: T, c: T) -> T {
        a.mul_add(b, c)
    }
}

/// An instruction set in loops over many small matrices, where the processor's own prefetching does
/// better than ours: with ours, mixes of small matrices take 1.2 to 1.7 times as long on an AMD EPYC
/// (Zen 4), while a stencil of 100^3 takes 1.1 to 1.5 times as long without.
pub(crate) struct Unfetched<I>(std::marker::PhantomData<I>);

impl<I: SpmvIsa> SpmvIsa for Unfetched<I> {
    #[inline(always)]
    fn mul_add<T: Scalar>(a: T, b: T, c: T) -> T {
        I::mul_add(a, b, c)
    }

    #[inline(always)]
    fn prefetch<T>(_: &[T], _: usize) {}
}

/// An inner loop that can be compiled for any [`SpmvIsa`]. `run` and all it calls in its hot path
/// must be `#[inline(always)]`: only then do they take on the caller's instruction set.
pub(crate) trait Leaf {
    /// Does the work.
    fn run<I: SpmvIsa>(self);
}

/// Runs a loop under AVX2 and FMA where the machine has them, else as compiled for the target.
#[inline]
pub(crate) fn dispatch(leaf: impl Leaf) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: (1) `run_fma` is safe code whose only requirement is that the processor has
        // AVX2 and FMA; (2) both were detected in the condition above.
        unsafe { run_fma(leaf) };
        return;
    }
    leaf.run::<Portable>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_fma(leaf: impl Leaf) {
    leaf.run::<Fma>();
}

/// Prefetch distance of a product in bytes: one page, since the processor's own prefetching stops
/// at page ends.
pub(crate) const AHEAD: usize = 4096;

/// Prefetches the cache line that holds `data[index]` into the second-level cache. An `index` past
/// the end is harmless. Does nothing if the target has no such instruction.
#[inline(always)]
pub(crate) fn prefetch<T>(data: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T2, _mm_prefetch};
        // SAFETY: (1) the address is formed by wrapping arithmetic, so it may lie anywhere;
        // (2) a prefetch of any address reads nothing the program can see and never faults;
        // (3) SSE, which has the instruction, is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T2>(data.as_ptr().wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, index);
}

/// Prefetches all cache lines of `data`.
#[inline(always)]
pub(crate) fn prefetch_all<T>(data: &[T]) {
    const LINE: usize = 64;
    for index in (0..data.len()).step_by((LINE / size_of::<T>()).max(1)) {
        prefetch(data, index);
    }
}

/// Arrays of fewer bytes get no advice on their pages.
const MANY_PAGES: usize = 16 << 20;

/// Asks the system to back a large array, not yet written to, by huge pages; does nothing where
/// the system cannot. This is a hint: contents and addresses do not change.
///
/// A product streams its matrix once, and translating a 4 KiB page every 64 cache lines costs it
/// up to a seventh of its time on a virtual machine.
pub(crate) fn advise_huge_pages<T>(data: &[T]) {
    #[cfg(target_os = "linux")]
    if size_of_val(data) >= MANY_PAGES {
        const PAGE: usize = 4096;
        let start = (data.as_ptr() as usize).next_multiple_of(PAGE);
        let end = (data.as_ptr() as usize + size_of_val(data)) / PAGE * PAGE;
        // SAFETY: (1) `start..end` are whole pages inside `data`, which is borrowed and so
        // mapped; (2) the advice leaves the contents, the addresses and the protection of the
        // pages as they are; (3) a refusal is returned as a status and changes nothing.
        unsafe {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (data, MANY_PAGES);
}
