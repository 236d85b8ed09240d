//! Factors that a plan keeps: [`LanePlan::factor`] computes them, [`LanePlan::solve_again`] solves
//! with them.
//!
//! Items have fixed lanes here: item `k` of a class is in lane `k mod L` of group `k / L`. Values
//! and factors stay in the layout that the lanes read, so a solve streams them once and copies only
//! vectors.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use sparsebatch_formats::batch::{checked_len, count_systems};
use sparsebatch_formats::{Batch, Csr, CsrPattern};

use super::again::{Count, FactorPart, PartMatrices, SolvePart, TakeValues, TransposedClass};
use super::job::Slot;
use super::{Class, Factors, LanePlan, LuOnPattern, slots};
use crate::simd::{CpuScalar, dispatch_narrow};
use crate::{CpuError, check_threads};
use sparsebatch_solve_core::{ArgumentError, Criteria, Outcome, check_len, is_stopped};

/// The factors and values of a batch that a plan keeps.
pub(super) struct Kept {
    /// `"f64"` or `"f32"`.
    scalar: &'static str,
    /// Number of rows before each item of the batch; the last entry is the total.
    row_offsets: Vec<usize>,
    /// Kept data of each class, in the order of the plan's classes.
    classes: Vec<KeptClass>,
}

/// The matrices that are solved with by kept factors.
#[derive(Clone, Copy, Debug)]
pub enum WithFactors<'a, T> {
    /// Those that were factorised.
    Kept,
    /// The transposed ones of these.
    Transposed,
    /// Those of another batch with the same patterns.
    Near(&'a Batch<T>),
}

struct KeptClass {
    pattern: Arc<CsrPattern>,
    /// Number of lanes of a group.
    lanes: usize,
    /// Items per part: whole groups, except in the last part. A part is the work of one thread.
    part_items: usize,
    /// The parts; their type depends on the instruction set, the number of lanes and the value
    /// type.
    parts: Vec<AnyPart>,
    /// The transposed pattern, once it was asked for.
    transposed: Option<TransposedClass>,
}

/// A part: groups of one vector type; `()` before the first factorisation.
pub(super) type AnyPart = Box<dyn Any + Send + Sync>;

/// Number of parts per thread, so that no thread waits long for the last one.
const PARTS_PER_THREAD: usize = 8;

/// The matrices of a part of a class with these items.
fn matrices_of<'a, T>(
    with: WithFactors<'a, T>,
    transposed: &'a Option<TransposedClass>,
    items: &'a [u32],
) -> PartMatrices<'a, T> {
    match (with, transposed) {
        (WithFactors::Near(batch), _) => PartMatrices::Near(batch, items),
        (WithFactors::Transposed, Some(class)) => PartMatrices::Transposed(class),
        (WithFactors::Transposed, None) | (WithFactors::Kept, _) => PartMatrices::Kept,
    }
}

impl Class {
    fn lu(&self) -> Option<&LuOnPattern> {
        match &self.factors {
            Factors::Lu(lu) => Some(lu),
            _ => None,
        }
    }
}

impl LanePlan {
    /// Whether the method has factors that [`LanePlan::factor`] can keep: the sparse and the banded
    /// LU.
    pub fn keeps_factors(&self) -> bool {
        self.scheme.has_fixed_order()
    }

    /// Factorises the matrices of a batch and keeps factors and values for
    /// [`LanePlan::solve_again`]; those of an earlier batch are dropped.
    ///
    /// Memory: for every item the entries of L, U and A, and two numbers per row. Groups of items
    /// whose values equal the kept ones are not factorised again.
    ///
    /// # Errors
    /// [`CpuError::Argument`] when the method is not the sparse LU; [`CpuError::OtherPattern`]
    /// when the patterns are not those of the plan; [`CpuError::Argument`] for another number of
    /// items; [`CpuError::Forked`]. On an error nothing is kept. An item that cannot be factorised
    /// is no error: the outcomes of its solves report it.
    pub fn factor<T: CpuScalar>(&mut self, batch: &Batch<T>) -> Result<(), CpuError> {
        T::factor_lanes(self, batch)
    }

    /// Solves `A x = b` for every system with the matrices of the last [`LanePlan::factor`].
    ///
    /// Everything else is as in [`LanePlan::solve`], and the result is bitwise the same.
    ///
    /// # Errors
    /// [`CpuError::Argument`] when a vector or a per-system criterion does not fit;
    /// [`CpuError::Format`] for too many systems; [`CpuError::Argument`] when no factors are kept
    /// in this precision; [`CpuError::Forked`].
    pub fn solve_again<T: CpuScalar>(
        &mut self,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, CpuError> {
        T::solve_lanes_again(self, WithFactors::Kept, nrhs, b, x, criteria)
    }

    /// Solves `A^T x = b` for every system with the matrices of the last [`LanePlan::factor`], by
    /// the same factors: `U^T`, then `L^T`.
    ///
    /// # Errors
    /// Those of [`LanePlan::solve_again`].
    pub fn solve_transposed_again<T: CpuScalar>(
        &mut self,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, CpuError> {
        T::solve_lanes_again(self, WithFactors::Transposed, nrhs, b, x, criteria)
    }

    /// Solves `A x = b` for every system of a batch with the patterns of the plan, by the factors
    /// of the last [`LanePlan::factor`]: solutions are refined by the residuals of these matrices.
    /// That converges where they are near to those that were factorised; other systems end as they
    /// do where a refinement does not help.
    ///
    /// # Errors
    /// Those of [`LanePlan::solve_again`]; [`CpuError::OtherPattern`] and [`CpuError::Argument`]
    /// for another batch than one that [`LanePlan::factor`] takes.
    pub fn solve_near<T: CpuScalar>(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, CpuError> {
        T::solve_lanes_again(self, WithFactors::Near(batch), nrhs, b, x, criteria)
    }

    /// The kept matrix of an item and the range of its rows among those of the batch; `None` when
    /// no matrix is kept in this precision.
    pub fn kept_item<T: CpuScalar>(&self, item: usize) -> Option<(Csr<T>, Range<usize>)> {
        let kept = self.kept.as_ref().filter(|kept| kept.scalar == T::NAME)?;
        let rows = *kept.row_offsets.get(item)?..*kept.row_offsets.get(item + 1)?;
        let place = |class: &Class| class.items.binary_search(&(item as u32)).ok();
        let (kept, k) = self
            .classes
            .iter()
            .zip(&kept.classes)
            .find_map(|(class, kept)| place(class).map(|k| (kept, k)))?;
        let part = &kept.parts[k / kept.part_items];
        let within = k % kept.part_items;
        let values = dispatch_narrow(self.isa, kept.lanes, TakeValues { part, item: within })?;
        Some((Csr::from_parts(Arc::clone(&kept.pattern), values).ok()?, rows))
    }

    /// Body of [`LanePlan::factor`], instantiated for each type within this crate.
    pub(crate) fn factor_here<T: CpuScalar>(&mut self, batch: &Batch<T>) -> Result<(), CpuError> {
        check_threads()?;
        let before = self.kept.take().filter(|kept| kept.scalar == T::NAME);
        if !self.keeps_factors() {
            return Err(CpuError::Argument(ArgumentError::OutOfRange {
                name: "method",
                expected: "the sparse or the banded LU, whose factors can be kept",
                found: format!("{:?}", self.scheme),
            }));
        }
        self.check_patterns(batch)?;
        let mut kept = before.unwrap_or_else(|| self.keep_nothing(batch));
        let mut jobs = Vec::new();
        for (class, kept) in self.classes.iter().zip(&mut kept.classes) {
            let items = class.items.chunks(kept.part_items);
            for (items, part) in items.zip(&mut kept.parts) {
                jobs.push((class, kept.lanes, items, part));
            }
        }
        jobs.into_par_iter().for_each(|(class, lanes, items, part)| {
            if let Some(lu) = class.lu() {
                let matrix = &class.matrix;
                dispatch_narrow(self.isa, lanes, FactorPart { part, batch, items, matrix, lu });
            }
        });
        self.kept = Some(kept);
        Ok(())
    }

    /// Empty parts for the factors of a batch.
    fn keep_nothing<T: CpuScalar>(&self, batch: &Batch<T>) -> Kept {
        let classes = self.classes.iter().map(|class| {
            let items = class.items.len();
            let lanes = if items == 1 { 1 } else { class.lanes };
            let of_group = dispatch_narrow::<T, _>(self.isa, lanes, Count);
            let groups = items.div_ceil(of_group);
            let part = groups.div_ceil(rayon::current_num_threads() * PARTS_PER_THREAD).max(1);
            let empty = || Box::new(()) as AnyPart;
            KeptClass {
                pattern: Arc::new(batch.pattern(class.items[0] as usize).to_pattern()),
                lanes,
                part_items: part * of_group,
                parts: (0..groups.div_ceil(part)).map(|_| empty()).collect(),
                transposed: None,
            }
        });
        let row_offsets = (0..=self.nitems).map(|item| batch.row_offset(item)).collect();
        Kept { scalar: T::NAME, row_offsets, classes: classes.collect() }
    }

    /// Body of [`LanePlan::solve_again`] and of the other solves with kept factors, instantiated
    /// for each type within this crate.
    pub(crate) fn solve_again_here<T: CpuScalar>(
        &mut self,
        with: WithFactors<'_, T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, CpuError> {
        if let WithFactors::Near(batch) = with {
            self.check_patterns(batch)?;
        }
        let Some(kept) = self.kept.as_mut().filter(|kept| kept.scalar == T::NAME) else {
            return Err(CpuError::Argument(ArgumentError::OutOfRange {
                name: "plan",
                expected: "one that keeps factors in the precision of b",
                found: "none kept".to_owned(),
            }));
        };
        check_threads()?;
        let offsets = &kept.row_offsets;
        let rows = checked_len(
            "number of values of the right-hand sides",
            offsets[self.nitems] as u128,
            nrhs,
        )?;
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        if nrhs == 0 {
            return Ok(Vec::new());
        }
        let systems = count_systems(self.nitems, nrhs)?;
        criteria.check(systems)?;
        let mut outcomes: Vec<Option<Outcome>> = vec![None; systems];
        let nrows = |item: usize| offsets[item + 1] - offsets[item];
        let mut slots = slots((self.nitems, nrhs), nrows, b, x, &mut outcomes, None);
        let mut jobs = Vec::new();
        for (class, kept) in self.classes.iter().zip(&mut kept.classes) {
            if matches!(with, WithFactors::Transposed) && kept.transposed.is_none() {
                kept.transposed = Some(TransposedClass::new(&kept.pattern));
            }
            let items = class.items.chunks(kept.part_items);
            for (items, part) in items.zip(&mut kept.parts) {
                let systems = items.iter().flat_map(|&item| {
                    let first = item as usize * nrhs;
                    first..first + nrhs
                });
                let systems: Vec<Slot<'_, T>> =
                    systems.filter_map(|system| slots[system].take()).collect();
                let matrices = matrices_of(with, &kept.transposed, items);
                jobs.push((class, kept.lanes, (&*kept.pattern, matrices), part, systems));
            }
        }
        jobs.into_par_iter().for_each(|(class, lanes, (pattern, matrices), part, slots)| {
            let count = slots.len();
            if is_stopped(&criteria.watch) {
                slots.into_iter().for_each(|slot| *slot.outcome = Some(Outcome::not_begun()));
            } else if let Some(lu) = class.lu() {
                let matrix = &class.matrix;
                let solve =
                    SolvePart { part, pattern, matrix, lu, matrices, nrhs, criteria, slots };
                dispatch_narrow(self.isa, lanes, solve);
                if let Some(watch) = &criteria.watch {
                    watch.add(count);
                }
            }
        });
        // Items that are not in the plan have no outcome.
        Ok(outcomes.into_iter().flatten().collect())
    }
}
