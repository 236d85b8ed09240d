//! The plans of the GPU, as the backend sees them: [`plan_for`].

use sparsebatch_cpu_ref::lanes::{LaneMethod, LanePreconditioner};
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{CsrPatternRef, RaggedCsr};
use sparsebatch_solve_core::Outcome;

use crate::choose::Step;
use crate::gpu::{
    FactoredExplain, FactoredPlace, FactoredSolver, FactoredTuning, FusedSolver, GpuExplain, GpuLu,
    GpuLuExplain, GpuTuning, Guess, Outcomes,
};
use crate::options::{Engine, Method, Order, Preconditioner};
use crate::{SolveError, SolveOptions};

/// Solves of systems of equal pattern on a GPU.
pub(super) trait ClassPlan<E: Executor, T: Value>: Send + Sync {
    /// Starts the solve of every system; see [`FusedSolver::solve`].
    fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError>;

    /// How each system ended, item by item. Waits for the solve.
    fn outcomes(&self) -> Result<Vec<Outcome>, SolveError>;

    /// The same on the device, to be copied behind the solve.
    fn outcome_arrays(&self) -> &Outcomes<E>;

    /// Takes tolerances and limits of other systems, in as many options as before; waits for the
    /// last solve.
    fn replace_limits(&mut self, executor: &E, options: &SolveOptions) -> Result<(), SolveError>;

    /// The kernel, for reports.
    fn kernel(&self) -> String;

    /// Bytes of device memory.
    fn bytes(&self) -> u64;
}

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
) -> Result<Box<dyn ClassPlan<E, T>>, SolveError>
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
            Err(SolveError::Unsupported { .. }) => Box::new(factored()?),
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
) -> Result<Box<dyn ClassPlan<E, T>>, SolveError>
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

/// Kernels that a report names.
const NAMED_KERNELS: usize = 3;

/// Kernels with the systems of each, most first, for reports.
pub(super) fn named(kernels: &[(&str, usize)]) -> String {
    match kernels {
        [] => "none".to_owned(),
        [(kernel, _)] => (*kernel).to_owned(),
        kernels => {
            let named = kernels.iter().take(NAMED_KERNELS);
            let mut text: Vec<String> =
                named.map(|(kernel, systems)| format!("{kernel} ({systems} systems)")).collect();
            if kernels.len() > NAMED_KERNELS {
                text.push(format!("{} more", kernels.len() - NAMED_KERNELS));
            }
            text.join(", ")
        }
    }
}

/// The kernels of a plan for several patterns.
fn bins(explain: GpuExplain) -> String {
    let mut bins: Vec<(&str, usize)> =
        explain.bins.iter().map(|bin| (bin.kernel.as_str(), bin.systems)).collect();
    bins.sort_by_key(|&(_, systems)| std::cmp::Reverse(systems));
    named(&bins)
}

/// The kernel; by LU with what is not on chip, as it is in the usual plan.
fn factored(explain: FactoredExplain) -> String {
    let what = match (explain.method, explain.place) {
        ("lu", FactoredPlace::AllGlobal) => " with factors and vectors in device memory",
        ("lu", FactoredPlace::FactorsGlobal) => " with factors in device memory",
        _ => "",
    };
    explain.kernel + what
}

/// A solver of the GPU as a plan, with the kernel out of its account of itself.
macro_rules! class_plan {
    ($solver:ident, $kernel:expr) => {
        impl<E, T> ClassPlan<E, T> for $solver<E, T>
        where
            E: Executor + Clone + Send + Sync,
            T: Value,
        {
            fn solve(
                &mut self,
                values: &E::Buffer<T>,
                b: &E::Buffer<T>,
                guess: Guess,
                x: &mut E::Buffer<T>,
            ) -> Result<(), SolveError> {
                Self::solve(self, values, b, guess, x)
            }

            fn outcomes(&self) -> Result<Vec<Outcome>, SolveError> {
                Self::outcomes(self)
            }

            fn outcome_arrays(&self) -> &Outcomes<E> {
                self.outcome_arrays()
            }

            fn replace_limits(
                &mut self,
                executor: &E,
                options: &SolveOptions,
            ) -> Result<(), SolveError> {
                let systems = self.outcome_arrays().systems();
                self.limits_mut().replace(executor, options.criteria::<T>(systems)?)
            }

            fn kernel(&self) -> String {
                $kernel(self.explain())
            }

            fn bytes(&self) -> u64 {
                let explain = self.explain();
                explain.pattern_bytes + explain.workspace_bytes
            }
        }
    };
}
class_plan!(FusedSolver, bins);
class_plan!(FactoredSolver, factored);
class_plan!(GpuLu, |explain: GpuLuExplain| explain.kernel);
