//! What a plan chose.

use std::fmt;

use super::shape::FactoredPlace;

/// What a plan chose and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactoredExplain {
    /// `cg`, `bicgstab` or `lu`.
    pub method: &'static str,
    /// `block-jacobi`, `ilu0` or `ic0`; `complete factors` of the LU.
    pub preconditioner: &'static str,
    /// The order of elimination; natural for block-Jacobi.
    pub order: &'static str,
    /// The kernel, as it is compiled.
    pub kernel: String,
    /// Rows of each system.
    pub nrows: usize,
    /// Entries of each system.
    pub nnz: usize,
    /// Values of a system's factors.
    pub factor_entries: usize,
    /// Precision of values and vectors: `f64` or `f32`.
    pub precision: &'static str,
    /// Precision in which factors are stored.
    pub factor_precision: &'static str,
    /// Their bytes; in f32 within f64 with the exponents by which rows and columns are scaled.
    pub factor_bytes: u64,
    /// Levels of the factorisation, each of which ends with a barrier; 1 for block-Jacobi.
    pub factorisation_levels: usize,
    /// Levels of an application of the preconditioner; 1 for block-Jacobi.
    pub application_levels: usize,
    /// Bytes of a system's values, factors and vectors.
    pub system_bytes: u64,
    /// What is in shared memory: as much of them as a block can have.
    pub place: FactoredPlace,
    /// Threads that solve a system.
    pub threads_per_system: u32,
    /// Systems that a block solves side by side.
    pub systems_per_block: u32,
    /// Systems that a multiprocessor holds at once, by the estimate.
    pub systems_per_multiprocessor: u32,
    /// Blocks of the launch; each takes systems until there are none left.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Bytes of pattern and schedule on the device.
    pub pattern_bytes: u64,
    /// Bytes of factors and vectors outside shared memory, outcomes, limits and tolerances on the
    /// device.
    pub workspace_bytes: u64,
    /// Bytes of factors that are kept on the device.
    pub kept_bytes: u64,
}

impl FactoredExplain {
    /// Whether factors are stored in less precision than values and vectors.
    pub fn has_mixed_precision(&self) -> bool {
        self.factor_precision != self.precision
    }

    /// Method and shape, as rows of measurements name them: such as `cg(32 threads,shared)`.
    pub fn shape(&self) -> String {
        let place = match self.place {
            FactoredPlace::AllShared => "shared",
            FactoredPlace::ValuesGlobal => "values in global",
            FactoredPlace::FactorsGlobal => "factors in global",
            FactoredPlace::AllGlobal => "global",
        };
        let factors = match self.has_mixed_precision() {
            true => format!(",factors in {}", self.factor_precision),
            false => String::new(),
        };
        format!("{}({} threads,{place}{factors})", self.method, self.threads_per_system)
    }
}

impl fmt::Display for FactoredExplain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} with {} ({} order): {} threads for a system of {} rows and {} entries, whose numbers \
             take {} bytes, {}; {} values of factors in {}, {} bytes, made in {} levels, applied in {}; {} blocks of {} \
             systems and {} bytes of shared memory each, {} systems a multiprocessor; on the device {} \
             bytes of pattern and schedule, {} of workspace and outcomes, {} of kept factors",
            self.method,
            self.preconditioner,
            self.order,
            self.threads_per_system,
            self.nrows,
            self.nnz,
            self.system_bytes,
            self.place.name(),
            self.factor_entries,
            self.factor_precision,
            self.factor_bytes,
            self.factorisation_levels,
            self.application_levels,
            self.blocks,
            self.systems_per_block,
            self.shared_bytes,
            self.systems_per_multiprocessor,
            self.pattern_bytes,
            self.workspace_bytes,
            self.kept_bytes,
        )
    }
}
