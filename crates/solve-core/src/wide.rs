//! Functions compiled for the widest instruction set of the machine.
//!
//! This module holds all unsafe code of the crate: calls of functions that need AVX2 or AVX-512,
//! after these were detected.
#![allow(unsafe_code)]

/// A computation that is compiled for several instruction sets. Implementations are
/// `#[inline(always)]`, and so is all that they call per element.
pub trait Part {
    /// What it returns.
    type Output;
    /// Runs it.
    fn run(self) -> Self::Output;
}

/// Runs a part with the widest instruction set of this machine, for parts that round alike in all
/// of them.
pub fn widest<P: Part>(part: P) -> P::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the functions need AVX2 and FMA, and AVX-512F in the first case, which were
        // detected.
        return unsafe {
            match is_x86_feature_detected!("avx512f") {
                true => call_avx512(part),
                false => call_avx2(part),
            }
        };
    }
    part.run()
}

/// A part as a function of its own, for AVX2 and FMA.
///
/// # Safety
/// The processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
pub fn call_avx2<P: Part>(part: P) -> P::Output {
    part.run()
}

/// A part as a function of its own, for AVX-512F.
///
/// # Safety
/// The processor has AVX-512F, AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
#[inline(never)]
pub fn call_avx512<P: Part>(part: P) -> P::Output {
    part.run()
}
