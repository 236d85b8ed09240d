//! The shape of the launch, as fields and as text.

use std::fmt;

use sparsebatch_cuda::Value;
use sparsebatch_formats::Scalar;
use sparsebatch_solve_core::{Order, Scheme};

use super::shape::{FactoredPlace, FactoredPlacement};

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
    /// The shape of systems whose factors have `factor_entries` values.
    pub(super) fn new<T: Value>(
        scheme: Scheme,
        factor_entries: usize,
        shape: &FactoredPlacement,
    ) -> Self {
        let (factors, order) = match (scheme, scheme.preconditioner()) {
            (Scheme::Lu, _) => ("complete factors", Order::MinDegree),
            (_, preconditioner) => (preconditioner.name(), preconditioner.order()),
        };
        Self {
            factors,
            order,
            factor_entries,
            precision: <T as Scalar>::NAME,
            factor_precision: if shape.is_mixed { "f32" } else { <T as Scalar>::NAME },
            factor_bytes: shape.factor_bytes,
            factorisation_levels: shape.levels[0],
            application_levels: shape.levels[1],
            system_bytes: shape.system_bytes,
            place: shape.place,
            systems_per_multiprocessor: shape.resident * shape.groups,
        }
    }

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
        let order = match (self.factors, self.order) {
            ("complete factors", _) | (_, Order::Natural) => String::new(),
            (_, order) => format!(", {order} order"),
        };
        format!("{threads} threads, {place}{factors}{order}")
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
