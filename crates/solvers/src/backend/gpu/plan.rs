//! The plans of the GPU, as the backend sees them: [`plan_for`].

use sparsebatch_cpu_ref::lanes::{LaneMethod, LanePreconditioner};
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{CsrPatternRef, RaggedCsr};

use crate::choose::Step;
use crate::gpu::{
    FactoredSolver, FactoredTuning, FusedSolver, GpuLu, GpuSolveError, GpuSolver, GpuTuning,
};
use crate::{SolveError, SolveOptions};
use sparsebatch_solve_core::{Engine, Method, Order, Preconditioner};

/// The plan of a step for `nitems` systems of one pattern, in so many bytes of the device. `options` are those of
/// these systems.
///
/// # Errors
/// [`SolveError::Unsupported`] for what the GPU does not do, [`SolveError::Gpu`] when memory or
/// compiler fail.
pub(super) fn plan_for<E, T>(
    executor: &E,
    step: Step,
    pattern: CsrPatternRef<'_>,
    (nitems, room): (usize, u64),
    options: SolveOptions,
) -> Result<Box<dyn GpuSolver<E, T>>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    let options = of_step(step, options)?;
    let factored = || {
        let tuning = FactoredTuning { max_bytes: Some(room), ..FactoredTuning::default() };
        FactoredSolver::<E, T>::with_tuning(executor, pattern, nitems, &options, &tuning)
    };
    Ok(match (options.method, options.preconditioner) {
        (Method::Lu, _) => match GpuLu::<E, T>::new(executor, pattern, nitems, &options) {
            // Factors in device memory, where they do not fit on chip.
            Err(GpuSolveError::Unsupported { .. }) => Box::new(factored()?),
            plan => Box::new(plan?),
        },
        (_, Preconditioner::BlockJacobi | Preconditioner::Ilu0 | Preconditioner::Ic0) => {
            Box::new(factored()?)
        }
        _ => Box::new(FusedSolver::<E, T>::with_tuning(
            executor,
            pattern,
            nitems,
            &options,
            &tuning(),
        )?),
    })
}

/// The plan of a step for all systems of a ragged batch.
///
/// # Errors
/// As [`plan_for`]; [`SolveError::Unsupported`] also for what the GPU does pattern by pattern alone.
pub(super) fn plan_for_ragged<E, T>(
    executor: &E,
    step: Step,
    batch: &RaggedCsr<T>,
    options: SolveOptions,
) -> Result<Box<dyn GpuSolver<E, T>>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    let options = of_step(step, options)?;
    Ok(Box::new(FusedSolver::<E, T>::ragged(executor, batch, &options, &tuning())?))
}

/// A system is solved alike however many have its pattern, and whatever the pieces.
fn tuning() -> GpuTuning {
    GpuTuning { few: Some(false), ..GpuTuning::default() }
}

/// The options that ask a plan for a step.
pub(super) fn of_step(step: Step, mut options: SolveOptions) -> Result<SolveOptions, SolveError> {
    let Step::Lanes(method) = step else {
        return Err(SolveError::Unsupported {
            what: "LU with partial pivoting",
            instead: "it runs on the CPU",
        });
    };
    let order = |min_degree| if min_degree { Order::MinDegree } else { Order::Natural };
    let (method, preconditioner) = match method {
        LaneMethod::Cg(preconditioner) => (Method::Cg, preconditioner),
        LaneMethod::BiCgStab(preconditioner) => (Method::BiCgStab, preconditioner),
        LaneMethod::Lu => (Method::Lu, LanePreconditioner::None),
    };
    options.preconditioner = match preconditioner {
        LanePreconditioner::None => Preconditioner::None,
        LanePreconditioner::Jacobi { lenient: true } => Preconditioner::Auto,
        LanePreconditioner::Jacobi { lenient: false } => Preconditioner::Jacobi,
        LanePreconditioner::BlockJacobi { size } => {
            options.block_size = size;
            Preconditioner::BlockJacobi
        }
        LanePreconditioner::Ilu0 { min_degree } => {
            options.order = order(min_degree);
            Preconditioner::Ilu0
        }
        LanePreconditioner::Ic0 { min_degree } => {
            options.order = order(min_degree);
            Preconditioner::Ic0
        }
    };
    // The ladder is climbed above the plans.
    Ok(SolveOptions { method, fallback: false, engine: Engine::Fused, ..options })
}

/// The options of some items: limits of the systems one by one are picked out.
pub(super) fn options_of(options: &SolveOptions, items: &[u32]) -> SolveOptions {
    let nrhs = options.nrhs;
    fn pick<V: Copy>(each: &Option<Vec<V>>, items: &[u32], nrhs: usize) -> Option<Vec<V>> {
        let of = |&item: &u32| item as usize * nrhs..(item as usize + 1) * nrhs;
        let each = each.as_ref()?;
        Some(items.iter().flat_map(|item| each[of(item)].iter().copied()).collect())
    }
    SolveOptions {
        rel_tols: pick(&options.rel_tols, items, nrhs),
        abs_tols: pick(&options.abs_tols, items, nrhs),
        max_iters_each: pick(&options.max_iters_each, items, nrhs),
        ..options.clone()
    }
}

/// Whether systems have limits of their own.
pub(super) fn has_own_limits(options: &SolveOptions) -> bool {
    options.rel_tols.is_some() || options.abs_tols.is_some() || options.max_iters_each.is_some()
}
