//! The kernels of a method, by step of the solve: [`SolveSteps`].

use super::kernels;
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
    /// After each product of an iteration.
    pub(super) iterate: Vec<Phases>,
}

impl SolveSteps {
    /// Names the kernels, and compiles those for whole systems, for parts, or both.
    pub(super) fn new<E: Executor, T: Value>(
        executor: &E,
        method: Krylov,
        jacobi: bool,
        (has_whole, has_parts): (bool, bool),
    ) -> Result<Self, GpuError> {
        let name = match method {
            Krylov::Cg => "Cg",
            Krylov::BiCgStab => "BiCgStab",
        };
        let method_of = format!("{name}<{}, {}>", T::CPP, u32::from(jacobi));
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
        let iterate = match method {
            Krylov::Cg => vec![phases(&method_of, 0, 2)],
            Krylov::BiCgStab => vec![phases(&method_of, 0, 1), phases(&method_of, 2, 4)],
        };
        let steps = Self {
            enter: phases(&verdict, 0, 1),
            lift: phases(&verdict, 1, 1),
            judge: phases(&verdict, 2, 3),
            iterate,
        };
        let all = [&steps.enter, &steps.lift, &steps.judge].into_iter().chain(&steps.iterate);
        for phases in all {
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
