//! Kernels that a rehearsed solve asks for are those that the solve launches, and a cache that was
//! filled with them has them.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::device::cache::DiskCache;
use sparsebatch_cuda::testing::nvrtc_or_skip;
use sparsebatch_cuda::{DeviceInfo, Executor};
use sparsebatch_formats::{Batch, UniformBatch};
use sparsebatch_solvers::{
    Backend, Engine, Gpu, Method, Preconditioner, Rhs, SolveError, SolveOptions, SolveScalar,
    SpmvOptions, kernels_of, solve_on_executor,
};

use super::common::{cg, chain, patterns, ragged, rhs};
use super::several::{lacks_a_kernel, uniform};
use crate::common::one_step;

/// Compares a rehearsal with a solve on the emulation, which must not need the ladder; false where
/// the emulation lacks a kernel of it.
fn agrees<T: SolveScalar>(batch: &Batch<T>, options: &SolveOptions, is_guessed: bool) -> bool {
    let emulator = Emulator::new(Order::Forward);
    let b = rhs(batch, 1);
    let x0 = is_guessed.then(|| vec![T::ONE; b.len()]);
    let backend = Backend::Gpu(Gpu::new(emulator.clone()).in_chunks(true));
    let solved = match solve_on_executor(&backend, batch, &b, x0.as_deref(), options) {
        Err(error) if lacks_a_kernel(&error) => return false,
        solved => solved.unwrap(),
    };
    assert!(solved.report.all_converged());
    assert_eq!(solved.report.runs.len(), 1);

    let rhs = Rhs { b: &b, x0: x0.as_deref() };
    let kernels = kernels_of(emulator.info(), batch, rhs, options, false).unwrap();

    let kernels: Vec<String> = kernels.iter().map(ToString::to_string).collect();
    let launched = emulator.launched();
    assert!(!launched.is_empty());
    for kernel in launched {
        assert!(kernels.contains(&kernel), "{kernel} was launched, rehearsed: {kernels:#?}");
    }
    true
}

#[test]
fn a_rehearsal_asks_for_the_kernels_that_a_solve_launches() {
    let of = |method| one_step().method(method);
    let mut compared = 0;
    for batch in [uniform(31), ragged(patterns(31))] {
        for options in [
            SolveOptions::new(),
            cg(),
            of(Method::BiCgStab).preconditioner(Preconditioner::Jacobi),
            of(Method::BiCgStab).preconditioner(Preconditioner::ILU0),
            of(Method::Lu),
            of(Method::PivotingLu),
        ] {
            for is_guessed in [false, true] {
                compared += usize::from(agrees(&batch, &options, is_guessed));
            }
        }
    }
    assert!(compared >= 12, "{compared} solves");
    let single = Batch::Uniform(UniformBatch::shared(chain::<f32>(12, 2.5), 40));
    assert!(agrees(&single, &cg().rel_tol(1e-4), false));
}

#[test]
fn kernels_of_products_that_the_device_chooses_are_not_told() {
    let batch = uniform(3);
    let b = rhs(&batch, 1);
    let options = cg().engine(Engine::Composed(SpmvOptions::default()));
    let info = DeviceInfo::known("sm_90").unwrap();

    let refused = kernels_of(&info, &batch, Rhs { b: &b, x0: None }, &options, false);

    let refused = refused.unwrap_err();
    assert!(matches!(refused, SolveError::Unsupported { .. }), "{refused}");
    assert!(refused.to_string().contains("composed"), "{refused}");
}

#[test]
fn a_warmed_cache_has_the_kernels_of_a_solve() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("sparsebatch-warm-{}", std::process::id()));
    let cache = DiskCache::in_folder(&folder);
    let info = DeviceInfo::known("sm_90").unwrap();
    let architecture = sparsebatch_cuda::device::compiled_for(&info).unwrap();
    let batch = Batch::Uniform(UniformBatch::shared(chain::<f64>(20, 2.5), 40));
    let b = rhs(&batch, 1);
    let options = SolveOptions::new().method(Method::Cg).rel_tol(1e-8);
    let kernels = kernels_of(&info, &batch, Rhs { b: &b, x0: None }, &options, false).unwrap();

    for kernel in &kernels {
        assert_eq!(cache.has_kernel(kernel, &architecture), Ok(false));
        let compiled = cache.compile_kernel(kernel, &architecture).unwrap();
        assert!(compiled.image.starts_with(b"\x7fELF"));
        assert_eq!(cache.has_kernel(kernel, &architecture), Ok(true));
        assert_eq!(cache.has_kernel(kernel, "sm_80"), Ok(false));
    }
    assert!(!kernels.is_empty());
    std::fs::remove_dir_all(&folder).unwrap();
}
