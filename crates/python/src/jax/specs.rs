//! What a program of JAX solves: patterns and options, by a key ([`Spec`]).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use pyo3::prelude::*;
use sparsebatch::batch::Values;
use sparsebatch::gpu::BatchPatterns;
use sparsebatch::{Batch, BatchValues, CsrPattern, Pattern, Scalar, SolveOptions, UniformBatch};

use super::xla::{Array, Code, Element, Failure, Frame};
use crate::patterns::{Patterns, Place};

static SPECS: LazyLock<RwLock<HashMap<String, Arc<Spec>>>> = LazyLock::new(RwLock::default);

/// The patterns of a batch, and how it is solved.
pub(super) struct Spec {
    pub key: String,
    patterns: Kind,
    options: SolveOptions,
}

enum Kind {
    /// One pattern for any number of items.
    Uniform(Arc<CsrPattern>),
    Ragged {
        patterns: Py<Patterns>,
        nitems: usize,
        rows: usize,
        nnz: usize,
    },
}

/// The sizes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    pub nitems: usize,
    pub nrhs: usize,
    /// Whether all items have the same values.
    pub is_shared: bool,
    /// The elements of the right-hand sides, and of the solutions.
    len: usize,
}

/// What is asked of a call.
#[derive(Clone)]
pub(super) struct Call {
    pub spec: Arc<Spec>,
    /// Whether the transposed systems are solved.
    pub is_transposed: bool,
    /// Whether factors are to be kept, for the transposed systems of a gradient.
    pub keeps: bool,
}

impl Call {
    /// The attributes of a call.
    pub(super) fn of(frame: &Frame<'_>) -> Result<Self, Failure> {
        let key = frame.text("spec")?;
        let specs = SPECS.read().unwrap_or_else(PoisonError::into_inner);
        let Some(spec) = specs.get(key).cloned() else {
            let message = "the patterns of this program are not known in this process: call \
                           sparsebatch.jax.solve with the same batch and options once";
            return Err(Failure { code: Code::NotFound, message: message.to_owned() });
        };
        let (is_transposed, keeps) = (frame.flag("transpose")?, frame.flag("keep")?);
        Ok(Self { spec, is_transposed, keeps })
    }
}

/// Makes patterns and options known under a key.
pub(super) fn register(key: String, patterns: Py<Patterns>, options: SolveOptions) {
    let kind = match patterns.get().one() {
        Some((pattern, _)) => Kind::Uniform(Arc::new(pattern.clone())),
        None => {
            let [rows, _, nnz] = patterns.get().sizes();
            let (nitems, rows, nnz) = (rows.len(), rows.iter().sum(), nnz.iter().sum());
            Kind::Ragged { patterns, nitems, rows, nnz }
        }
    };
    let spec = Arc::new(Spec { key: key.clone(), patterns: kind, options });
    SPECS.write().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(spec);
}

impl Spec {
    /// The options of a solve with so many right-hand sides.
    pub(super) fn options(&self, size: Size) -> SolveOptions {
        self.options.clone().nrhs(size.nrhs)
    }

    /// The sizes of a call with these arrays: values `(nitems, nnz)` or `(nnz,)`, right-hand sides
    /// `(nitems, nrhs, n)`; for a ragged batch both have one axis.
    pub(super) fn size(&self, values: &Array<'_>, b: &Array<'_>) -> Result<Size, Failure> {
        let refuse = || {
            let (values, b) = (values.len(), b.len());
            Err(Failure::argument(format!(
                "{values} values and right-hand sides of {b} numbers do not fit the patterns"
            )))
        };
        match &self.patterns {
            Kind::Uniform(pattern) => {
                let (nitems, nrhs, is_shared) = (b.dim(0), b.dim(1), values.rank() == 1);
                let nvalues = if is_shared { pattern.nnz() } else { nitems * pattern.nnz() };
                let fits = b.rank() == 3 && b.dim(2) == pattern.nrows() && nrhs > 0;
                if !fits || values.len() != nvalues {
                    return refuse();
                }
                Ok(Size { nitems, nrhs, is_shared, len: b.len() })
            }
            Kind::Ragged { nitems, rows, nnz, .. } => {
                let nrhs = b.len() / (*rows).max(1);
                if values.len() != *nnz || nrhs == 0 || b.len() != nrhs * rows {
                    return refuse();
                }
                Ok(Size { nitems: *nitems, nrhs, is_shared: false, len: b.len() })
            }
        }
    }

    /// The batch of a call.
    pub(super) fn batch<T: Scalar>(
        &self,
        values: Values<T>,
        size: Size,
    ) -> Result<Batch<T>, Failure> {
        Ok(match &self.patterns {
            Kind::Uniform(pattern) => {
                let values = match size.is_shared {
                    true => BatchValues::Shared(values),
                    false => BatchValues::ItemMajor(values),
                };
                let pattern = Arc::clone(pattern);
                Batch::Uniform(UniformBatch::from_values(pattern, size.nitems, values)?)
            }
            // This class needs no interpreter to be read.
            Kind::Ragged { patterns, .. } => patterns.get().batch(values, Place::ItemMajor)?,
        })
    }

    /// Calls `f` with the patterns as solvers of device data take them.
    pub(super) fn with_patterns<R>(
        &self,
        size: Size,
        f: impl FnOnce(BatchPatterns<'_>) -> R,
    ) -> Result<R, Failure> {
        match &self.patterns {
            Kind::Uniform(pattern) => Ok(f(BatchPatterns::from((&**pattern, size.nitems)))),
            Kind::Ragged { patterns, .. } => {
                let lost = |_| Failure::argument("the patterns are not valid".to_owned());
                patterns.get().with_items(f).map_err(lost)
            }
        }
    }
}

impl Size {
    /// Refuses arrays of other lengths.
    pub(super) fn check(self, name: &str, array: &Array<'_>) -> Result<(), Failure> {
        let expected = match array.is_of::<i32>() {
            true => self.nitems * self.nrhs,
            false => self.len,
        };
        let found = array.len();
        match found == expected {
            true => Ok(()),
            false => Err(Failure::argument(format!("{name} has {found} numbers, not {expected}"))),
        }
    }
}

/// Precisions, with their numbers in XLA.
pub(super) trait Precision: Element + sparsebatch::SolveScalar {}
impl Precision for f64 {}
impl Precision for f32 {}
