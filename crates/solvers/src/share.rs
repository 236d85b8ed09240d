//! The systems of a batch that one engine solves: all of them, or those of one scheme.

use std::ops::Range;
use std::sync::Arc;

use sparsebatch_formats::{Batch, BatchValues, Pattern, RaggedCsr, Scalar, UniformBatch};
use sparsebatch_solve_core::{Criteria, Engine, Outcome, Scheme};

use crate::backend::{AnalysedSolve, SolveBackend};
use crate::choose::{Chosen, Target};
use crate::report::Rung;
use crate::{SolveError, SolveOptions};

/// The systems whose first scheme is the same, and the engine that runs it.
pub(crate) struct Share<T> {
    pub(crate) chosen: Chosen,
    pub(crate) engine: Box<dyn AnalysedSolve<T>>,
    scope: Scope,
}

/// Which systems of a batch an engine takes.
enum Scope {
    /// All.
    All,
    /// These systems of the batch, ascending.
    Only(Vec<usize>),
    /// All systems of a copied batch, for engines that take whole batches only.
    Copied,
}

impl<T: Scalar> Share<T> {
    /// Analyses the items of a scheme.
    pub(crate) fn new(
        backend: &dyn SolveBackend<T>,
        batch: &Batch<T>,
        chosen: Chosen,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        let scheme = chosen.scheme;
        let composed = matches!(options.engine, Engine::Composed(_));
        // A GPU solves all patterns of a ragged batch in one plan if it gets the whole batch.
        let is_pooled =
            matches!(batch, Batch::Ragged(_)) && matches!(backend.target(), Target::Gpu(_));
        let scope = if chosen.items.len() == batch.nitems() {
            Scope::All
        } else if composed || is_pooled {
            Scope::Copied
        } else {
            Scope::Only(systems_of(&chosen.items, options.nrhs))
        };
        let engine = match scope {
            Scope::All => analyse(backend, batch, scheme, options)?,
            Scope::Only(_) => backend.analyse(batch, (Rung::First, scheme), Some(&chosen.items))?,
            Scope::Copied => {
                let own = options.for_systems(&systems_of(&chosen.items, options.nrhs));
                let backend = backend.with_options(&own);
                analyse(&*backend, &some_items(batch, &chosen.items), scheme, &own)?
            }
        };
        Ok(Self { chosen, engine, scope })
    }

    /// Takes tolerances and iteration limits of other options of the whole batch.
    pub(crate) fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        match self.scope {
            Scope::All | Scope::Only(_) => self.engine.replace_limits(options),
            Scope::Copied => {
                let systems = systems_of(&self.chosen.items, options.nrhs);
                self.engine.replace_limits(&options.for_systems(&systems))
            }
        }
    }

    /// Solves the systems of the share and writes their outcomes into those of the batch.
    pub(crate) fn solve(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
        outcomes: &mut Vec<Option<Outcome>>,
    ) -> Result<(), SolveError> {
        match &self.scope {
            Scope::All => {
                let solved = self.engine.solve(batch, nrhs, b, x, criteria, None)?;
                *outcomes = solved.into_iter().map(Some).collect();
                return Ok(());
            }
            Scope::Only(systems) => {
                let solved = self.engine.solve(batch, nrhs, b, x, criteria, Some(systems))?;
                for (&system, outcome) in systems.iter().zip(solved) {
                    outcomes[system] = Some(outcome);
                }
                return Ok(());
            }
            Scope::Copied => {}
        }
        let items = &self.chosen.items;
        let places = systems_of(items, nrhs);
        let parts: Vec<_> = items
            .iter()
            .map(|&item| batch.row_offset(item) * nrhs..batch.row_offset(item + 1) * nrhs)
            .collect();
        let own_b: Vec<T> = parts.iter().flat_map(|part| &b[part.clone()]).copied().collect();
        let mut own_x: Vec<T> = parts.iter().flat_map(|part| &x[part.clone()]).copied().collect();
        let own = some_items(batch, items);
        let criteria = criteria.pick(&places);
        let solved = self.engine.solve(&own, nrhs, &own_b, &mut own_x, &criteria, None)?;
        let mut rest = own_x.as_slice();
        for part in parts {
            let (this, after) = rest.split_at(part.len());
            x[part].copy_from_slice(this);
            rest = after;
        }
        for (place, outcome) in places.into_iter().zip(solved) {
            outcomes[place] = Some(outcome);
        }
        Ok(())
    }
}

fn analyse<T: Scalar>(
    backend: &dyn SolveBackend<T>,
    batch: &Batch<T>,
    scheme: Scheme,
    options: &SolveOptions,
) -> Result<Box<dyn AnalysedSolve<T>>, SolveError> {
    match (&options.engine, scheme) {
        (Engine::Composed(spmv), Scheme::Cg(_) | Scheme::BiCgStab(_)) => {
            backend.analyse_composed(batch, scheme, spmv, options.nrhs)
        }
        _ => backend.analyse(batch, (Rung::First, scheme), None),
    }
}

/// Whether all items have the same values, stored once.
pub(crate) fn shares_values<T: Scalar>(batch: &Batch<T>) -> bool {
    matches!(batch, Batch::Uniform(batch) if batch.is_shared())
}

/// The number of columns of the widest item; 0 without items.
pub(crate) fn most_cols<T: Scalar>(batch: &RaggedCsr<T>) -> usize {
    (0..batch.nitems()).map(|item| batch.item(item).pattern().ncols()).max().unwrap_or(0)
}

/// The part of item-major vectors that belongs to a system.
pub(crate) fn rows_of<T: Scalar>(batch: &Batch<T>, nrhs: usize, system: usize) -> Range<usize> {
    let (item, rhs) = (system / nrhs, system % nrhs);
    let nrows = batch.pattern(item).nrows();
    let start = batch.row_offset(item) * nrhs + rhs * nrows;
    start..start + nrows
}

/// The systems of some items, `nrhs` each.
pub(crate) fn systems_of(items: &[usize], nrhs: usize) -> Vec<usize> {
    items.iter().flat_map(|&item| item * nrhs..(item + 1) * nrhs).collect()
}

/// The items of some systems, `nrhs` each; both ascend.
pub(crate) fn items_of(systems: &[usize], nrhs: usize) -> Vec<usize> {
    let mut items: Vec<usize> = systems.iter().map(|system| system / nrhs).collect();
    items.dedup();
    items
}

/// A batch of some items, uniform if the original is.
pub(crate) fn some_items<T: Scalar>(batch: &Batch<T>, items: &[usize]) -> Batch<T> {
    match batch {
        Batch::Ragged(ragged) => {
            let mut some = RaggedCsr::new();
            items.iter().for_each(|&item| some.push(ragged.item(item)));
            some.into()
        }
        Batch::Uniform(uniform) if uniform.is_shared() => {
            Batch::Uniform(UniformBatch::shared(uniform.to_matrix(0), items.len()))
        }
        Batch::Uniform(uniform) => {
            let mut values = Vec::with_capacity(items.len() * uniform.pattern().nnz());
            items.iter().for_each(|&item| uniform.append_values(item, &mut values));
            let pattern = Arc::clone(uniform.pattern());
            let some = UniformBatch::try_new(pattern, items.len(), BatchValues::ItemMajor(values));
            Batch::Uniform(some.expect("as many values as items have entries"))
        }
    }
}
