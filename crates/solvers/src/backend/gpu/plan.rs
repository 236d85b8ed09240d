//! How the plans of a batch are made.

use sparsebatch_solve_core::SolveOptions;

use crate::gpu::{FactoredTuning, GpuTuning, SolverTuning};

/// The tuning of every plan: a system is solved alike however many have its pattern, and whatever
/// the chunks. `max_bytes` is the device memory that a plan may take, where that is known.
pub(crate) fn tuning(max_bytes: Option<u64>) -> SolverTuning {
    SolverTuning::default()
        .fused(GpuTuning::default().few(Some(false)))
        .factored(FactoredTuning::default().max_bytes(max_bytes))
}

/// The options of some items.
pub(super) fn options_of(options: &SolveOptions, items: &[u32]) -> SolveOptions {
    if !options.has_own_limits() {
        return options.clone();
    }
    let nrhs = options.nrhs;
    let systems = |&item: &u32| item as usize * nrhs..(item as usize + 1) * nrhs;
    options.for_systems(&items.iter().flat_map(systems).collect::<Vec<_>>())
}
