//! The composed engine of the CPU: iterations over the products of an SpMV plan.

use std::borrow::Cow;

use sparsebatch_cpu_ref::lanes::{LaneOptions, LanePlan};
use sparsebatch_cpu_ref::{CpuError, CpuScalar, SpmvPlan};
use sparsebatch_formats::{Batch, BatchValues, Layout};
use sparsebatch_solve_core::{ArgumentError, Criteria, Outcome, ProductCost, Scheme, SpmvOptions};

use crate::SolveError;
use crate::backend::{AnalysedSolve, CpuBackend, CpuPrimitives, Placement};
use crate::composed::{Composed, Judge};

/// A batch analysed for composed solves.
pub(crate) struct ComposedEngine<T> {
    plan: Box<SpmvPlan<T>>,
    analysis: LanePlan,
    order: ValueOrder,
    scheme: Scheme,
    /// Why the CPU solves instead of the GPU.
    cpu_reason: Option<String>,
    /// The cost of the products of the last solve.
    cost: Option<ProductCost>,
}

impl<T: CpuScalar> ComposedEngine<T> {
    /// Analyses a batch for CG or BiCGStab over the products that `spmv` asks for.
    pub(crate) fn new(
        batch: &Batch<T>,
        scheme: Scheme,
        spmv: &SpmvOptions,
        nrhs: usize,
        cpu_reason: Option<String>,
    ) -> Result<Self, SolveError> {
        let spmv = spmv.clone().nrhs(nrhs);
        if spmv.layout != Layout::ItemMajor {
            return Err(SolveError::Argument(ArgumentError::OutOfRange {
                name: "layout",
                expected: "item-major vectors",
                found: "interleaved".to_owned(),
            }));
        }
        Ok(Self {
            plan: Box::new(SpmvPlan::new(batch, &spmv)?),
            analysis: LanePlan::new(batch, scheme, LaneOptions::default(), None)?,
            order: ValueOrder::of(batch),
            scheme,
            cpu_reason,
            cost: None,
        })
    }
}

impl<T: CpuScalar> AnalysedSolve<T> for ComposedEngine<T> {
    fn format(&self) -> &'static str {
        self.plan.explain().format
    }

    fn placement(&self) -> Placement {
        let kernel = self.plan.explain().kernel.to_owned();
        Placement { cpu_reason: self.cpu_reason.clone(), ..CpuBackend::placement(kernel) }
    }

    fn product_cost(&mut self) -> Result<Option<ProductCost>, SolveError> {
        Ok(self.cost.clone())
    }

    /// Solves all systems: later rungs use engines of their own.
    fn solve(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
        _: Option<&[usize]>,
    ) -> Result<Vec<Outcome>, SolveError> {
        self.analysis.check_patterns(batch)?;
        self.plan.update_values(&values_in(self.order, batch)?)?;
        let (mut primitives, failed) = CpuPrimitives::new(batch, nrhs, &self.plan, &self.analysis)?;
        let mut run = Composed::new(Judge::Matrices(batch), nrhs, b, x, criteria, &failed);
        match self.scheme {
            Scheme::Cg(_) => run.cg(x, &mut primitives)?,
            Scheme::BiCgStab(_) => run.bicgstab(x, &mut primitives)?,
            Scheme::Lu | Scheme::PivotingLu | Scheme::Banded => {
                unreachable!("LU has no products to compose")
            }
        }
        let (products, product_time) = (primitives.products, primitives.product_time);
        self.cost = Some(ProductCost::new(products, product_time, self.plan.explain().cost));
        Ok(run.finish())
    }
}

/// The order in which the values of all items are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueOrder {
    ItemMajor,
    Interleaved,
    Shared,
}

impl ValueOrder {
    fn of<T: CpuScalar>(batch: &Batch<T>) -> Self {
        match batch {
            Batch::Ragged(_) => Self::ItemMajor,
            Batch::Uniform(batch) => match batch.values() {
                BatchValues::ItemMajor(_) => Self::ItemMajor,
                BatchValues::Interleaved(_) => Self::Interleaved,
                BatchValues::Shared(_) => Self::Shared,
            },
        }
    }
}

/// The values of a batch in the order in which an SpMV plan was made of another one.
fn values_in<T: CpuScalar>(
    order: ValueOrder,
    batch: &Batch<T>,
) -> Result<Cow<'_, [T]>, SolveError> {
    if ValueOrder::of(batch) == order {
        return Ok(Cow::Borrowed(source_values(batch)));
    }
    let (mut values, mut one) = (Vec::with_capacity(batch.total_nnz()), Vec::new());
    for item in 0..batch.nitems() {
        batch.copy_values(item, &mut one);
        values.extend_from_slice(&one);
    }
    match order {
        ValueOrder::ItemMajor => Ok(Cow::Owned(values)),
        ValueOrder::Interleaved => {
            let entries = 0..one.len();
            let of_all = |k| values[k..].iter().step_by(one.len()).copied();
            Ok(Cow::Owned(entries.flat_map(of_all).collect()))
        }
        ValueOrder::Shared => Err(SolveError::Cpu(CpuError::Argument(ArgumentError::OutOfRange {
            name: "batch",
            expected: "values shared by all items, as in the batch analysed",
            found: "values of each item's own".to_owned(),
        }))),
    }
}

/// The values of a batch as they stand.
fn source_values<T: CpuScalar>(batch: &Batch<T>) -> &[T] {
    match batch {
        Batch::Uniform(batch) => batch.values().into_array(),
        Batch::Ragged(batch) => batch.values(),
    }
}
