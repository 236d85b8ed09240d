//! The kernels of a method, by step of the solve: [`SolveSteps`].

use super::kernels;
use super::operators::Precond;
use sparsebatch_cuda::{Executor, GpuError, KernelKey, Value};

use sparsebatch_solve_core::Krylov;

/// Consecutive phases: one launch for systems handled whole, one launch per phase for parts.
pub(super) struct Phases {
    pub(super) whole: KernelKey,
    pub(super) parts: Vec<KernelKey>,
}

/// The launches between the products of a solve.
pub(super) struct SolveSteps {
    /// Before the first product.
    pub(super) enter: Phases,
    /// Before a product `A x`: undoes the scaling of `x`.
    pub(super) lift: Phases,
    /// After a product `A x`: judges systems by their true residuals.
    pub(super) judge: Phases,
    /// After the caller's `m = M r`, with which its preconditioned CG starts.
    pub(super) start: Option<Phases>,
    /// After each product, or preconditioner of the caller, of an iteration.
    pub(super) iterate: Vec<Phases>,
}

impl SolveSteps {
    /// Names the kernels, and compiles those for whole systems, for parts, or both.
    pub(super) fn new<E: Executor, T: Value>(
        executor: &E,
        method: Krylov,
        precond: &Precond<E, T>,
        (has_whole, has_parts): (bool, bool),
    ) -> Result<Self, GpuError> {
        let name = match method {
            Krylov::Cg => "Cg",
            Krylov::BiCgStab => "BiCgStab",
        };
        let method_of = format!("{name}<{}, {}>", T::CPP, precond.code());
        let phases = |of: &str, first: u32, last: u32| {
            let key = |expression| KernelKey::new(&kernels::KRYLOV, expression);
            Phases {
                whole: key(format!("krylov<{of}, {first}, {last}>")),
                parts: (first..=last)
                    .map(|phase| key(format!("krylov_part<{of}, {phase}>")))
                    .collect(),
            }
        };
        let verdict = format!("Verdict<{method_of}>");
        let waits = matches!((method, precond), (Krylov::Cg, Precond::Given(_)));
        let iterate = match method {
            Krylov::Cg if waits => vec![phases(&method_of, 0, 1), phases(&method_of, 2, 3)],
            Krylov::Cg => vec![phases(&method_of, 0, 2)],
            Krylov::BiCgStab => vec![phases(&method_of, 0, 1), phases(&method_of, 2, 4)],
        };
        let steps = Self {
            enter: phases(&verdict, 0, 1),
            lift: phases(&verdict, 1, 1),
            judge: phases(&verdict, 2, 3),
            start: waits.then(|| phases(&verdict, 4, 4)),
            iterate,
        };
        let once = [&steps.enter, &steps.lift, &steps.judge].into_iter().chain(&steps.start);
        for phases in once.chain(&steps.iterate) {
            if has_whole {
                executor.prepare(std::slice::from_ref(&phases.whole))?;
            }
            if has_parts {
                executor.prepare(&phases.parts)?;
            }
        }
        Ok(steps)
    }
}
