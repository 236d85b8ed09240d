//! The shape of the launch, as fields and as text.

use std::fmt;

use super::shape::FactoredPlace;
use sparsebatch_solve_core::Order;

/// The factors of a system, and where its data are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FactoredShape {
    /// The kind of factors: `block-jacobi`, `ilu0` or `ic0`; `complete factors` for LU.
    pub factors: &'static str,
    /// The order of elimination; natural for block-Jacobi.
    pub order: Order,
    /// Number of values in a system's factors.
    pub factor_entries: usize,
    /// Precision of values and vectors: `f64` or `f32`.
    pub precision: &'static str,
    /// Precision of the stored factors.
    pub factor_precision: &'static str,
    /// Bytes of the factors; in f32 within f64 including the exponents by which rows and columns
    /// are scaled.
    pub factor_bytes: u64,
    /// Levels of the factorisation, each of which ends with a barrier; 1 for block-Jacobi.
    pub factorisation_levels: usize,
    /// Levels of an application of the factors; 1 for block-Jacobi.
    pub application_levels: usize,
    /// Bytes of a system's values, factors and vectors.
    pub system_bytes: u64,
    /// What is in shared memory.
    pub place: FactoredPlace,
    /// Estimated number of systems that a multiprocessor holds at once.
    pub systems_per_multiprocessor: u32,
}

impl FactoredShape {
    /// Whether factors are stored in lower precision than values and vectors.
    pub fn has_mixed_precision(&self) -> bool {
        self.factor_precision != self.precision
    }

    pub(crate) fn name(&self, threads: u32) -> String {
        let place = match self.place {
            FactoredPlace::AllShared => "shared",
            FactoredPlace::ValuesGlobal => "values in global",
            FactoredPlace::FactorsGlobal => "factors in global",
            FactoredPlace::AllGlobal => "global",
        };
        let factors = match self.has_mixed_precision() {
            true => format!(", factors in {}", self.factor_precision),
            false => String::new(),
        };
        format!("{threads} threads, {place}{factors}")
    }
}

impl fmt::Display for FactoredShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} order), whose numbers take {} bytes, {}; {} values of factors in {}, {} bytes, made in {} levels, \
             applied in {}; {} systems a multiprocessor",
            self.factors,
            self.order,
            self.system_bytes,
            self.place.name(),
            self.factor_entries,
            self.factor_precision,
            self.factor_bytes,
            self.factorisation_levels,
            self.application_levels,
            self.systems_per_multiprocessor,
        )
    }
}
