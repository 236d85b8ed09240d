//! Batched solves with one system per SIMD lane: [`LanePlan`].
//!
//! Systems with equal patterns form a class. Within a class, groups of 4, 8 or 16 systems are
//! solved side by side, each with its own scalars. A lane whose system has ended takes the next
//! system from the queue; with a factorised preconditioner, the lanes are refilled once the whole
//! group has ended. Classes and groups are spread over the threads of rayon's current pool. A
//! system's result depends on that system and the instruction set alone: not on its neighbours, the
//! number of lanes or threads, or its position in the batch.

mod again;
mod bicgstab;
mod cg;
mod direct;
mod dot;
mod equilibrate;
mod evaluate;
mod factored;
mod job;
mod kept;
mod matrix;
mod precond;
mod product;
mod single;

pub use kept::WithFactors;
pub use single::{SystemPreconditioner, dot};

use std::cell::Cell;

use rayon::prelude::*;
use sparsebatch_formats::{Batch, CsrPatternRef};

use sparsebatch_solve_core::{ArgumentError, Criteria, Outcome, Preconditioner, Scheme, classes};

use crate::error::check_numbers;
use crate::simd::{CpuScalar, Isa, Kernel, dispatch, dispatch_narrow};
use crate::{CpuError, check_threads};
use factored::{BlockJacobi, Ic0, LuOnPattern};
use job::{Job, Slot};
pub(crate) use matrix::LaneMatrix;
use sparsebatch_solve_core::check_len;
use sparsebatch_solve_core::symbolic::{self, Band, DiagonalBlocks, FactorPattern, LowerPattern};

/// Maximum number of entries in the factors of a complete LU.
const MAX_LU_ENTRIES: usize = 1 << 28;

/// How the lanes are used; the default suits everything but experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneOptions {
    /// The instruction set; `None` takes the best of this machine.
    pub isa: Option<Isa>,
    /// Systems solved side by side: 1, 4, 8 or 16; other numbers are rounded to one of these.
    /// `None` chooses by the size of the working set.
    pub lanes: Option<usize>,
}

/// A factorisation pattern, where the method needs one.
enum Factors {
    None,
    Jacobi { lenient: bool },
    Lu(Box<LuOnPattern>),
    Ic0(Box<Ic0>),
    Blocks(BlockJacobi),
}

/// Systems with equal patterns and the analysis of that pattern.
struct Class {
    items: Vec<u32>,
    matrix: LaneMatrix,
    /// The same pattern with values stored once for both triangles, for the symmetric systems of
    /// the class; `None` where the method or the pattern does not allow it.
    symmetric: Option<LaneMatrix>,
    factors: Factors,
    lanes: usize,
}

/// The analysis of a batch for solves in lanes, done once per pattern.
pub struct LanePlan {
    scheme: Scheme,
    isa: Isa,
    classes: Vec<Class>,
    nitems: usize,
    /// Whether the plan covers all items of the batch.
    is_whole: bool,
    kept: Option<kept::Kept>,
}

impl LanePlan {
    /// Groups the items of a batch (or those in `only`, ascending) by pattern and analyses each
    /// pattern.
    ///
    /// Cost: one pass over the index arrays; for factorised methods the order and the symbolic
    /// factorisation of each distinct pattern, in parallel.
    ///
    /// # Errors
    /// [`CpuError::Symbolic`] when a pattern is not square, a block size is out of range or the
    /// factors would be too large; [`CpuError::Argument`] for an instruction set that this machine
    /// does not have; [`CpuError::Number`] and [`CpuError::NotAscending`] when `only` is not a
    /// strictly ascending list of item indices; [`CpuError::Format`] for more items than 32-bit
    /// indices allow; [`CpuError::Forked`] in a forked process whose threads are in its parent.
    pub fn new<T: CpuScalar>(
        batch: &Batch<T>,
        scheme: Scheme,
        options: LaneOptions,
        only: Option<&[usize]>,
    ) -> Result<Self, CpuError> {
        check_threads()?;
        let nitems = batch.count_systems(1)?;
        if let Some(only) = only {
            check_numbers(only, nitems)?;
        }
        let isa = options.isa.unwrap_or_else(Isa::best);
        if !Isa::available().contains(&isa) {
            return Err(CpuError::Argument(ArgumentError::OutOfRange {
                name: "isa",
                expected: "an instruction set of this machine",
                found: isa.name().to_owned(),
            }));
        }
        if scheme == Scheme::PivotingLu {
            return Err(CpuError::Argument(ArgumentError::OutOfRange {
                name: "scheme",
                expected: "cg, bicgstab, lu or banded: lanes do not pivot",
                found: scheme.name().to_owned(),
            }));
        }
        let classes = classes(batch, only);
        let classes = classes.into_par_iter().map(|items| {
            let pattern = batch.pattern(items[0] as usize);
            symbolic::check_square(pattern)?;
            let matrix = LaneMatrix::new(pattern);
            let factors = factors::<T>(pattern, scheme)?;
            let symmetric = match (scheme, &factors) {
                (Scheme::Cg(_), Factors::None | Factors::Jacobi { .. }) => {
                    LaneMatrix::symmetric(pattern)
                }
                _ => None,
            };
            let stored = symmetric.as_ref().unwrap_or(&matrix);
            let lanes = match options.lanes {
                Some(lanes) => lanes.clamp(1, 16),
                None => lanes_for::<T>(isa, stored, &factors),
            };
            Ok(Class { items, matrix, symmetric, factors, lanes })
        });
        let classes = classes.collect::<Result<Vec<_>, CpuError>>()?;
        let is_whole = only.is_none_or(|only| only.len() == nitems);
        Ok(Self { scheme, isa, classes, nitems, is_whole, kept: None })
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Whether the method has a preconditioner.
    pub fn is_preconditioned(&self) -> bool {
        self.scheme.krylov().is_some() && self.scheme.preconditioner() != Preconditioner::None
    }

    /// Number of distinct patterns.
    pub fn npatterns(&self) -> usize {
        self.classes.len()
    }

    fn class_of(&self, item: usize) -> Result<&Class, CpuError> {
        let number = u32::try_from(item).map_err(|_| CpuError::NotPlanned { item })?;
        let holds = |class: &&Class| class.items.binary_search(&number).is_ok();
        self.classes.iter().find(holds).ok_or(CpuError::NotPlanned { item })
    }

    /// Number of systems solved side by side in the largest class; 0 for an empty batch.
    pub fn lanes(&self) -> usize {
        self.classes.iter().max_by_key(|c| c.items.len()).map_or(0, |c| c.lanes)
    }

    /// Solves `A x = b` for every system, or for those in `only` (ascending).
    ///
    /// `batch` has the patterns of the batch that the plan was made for; its values may differ. `b`
    /// and `x` are item-major, `nrhs` right-hand sides per item; system `s` is right-hand side
    /// `s % nrhs` of item `s / nrhs`. `x` holds initial guesses on entry; the `x` of systems not in
    /// `only` is unchanged. Returns the outcomes in the order of the systems solved.
    ///
    /// # Errors
    /// [`CpuError::Argument`] when a vector or a per-system criterion does not fit the batch, or the
    /// batch does not fit the plan; [`CpuError::OtherPattern`] when the batch has other patterns
    /// than the plan; [`CpuError::NotPlanned`] for a system whose item the plan leaves out;
    /// [`CpuError::Number`] and [`CpuError::NotAscending`] when `only` is not a strictly ascending
    /// list of system indices; [`CpuError::Format`] when there are too many systems;
    /// [`CpuError::Forked`] in a forked process whose threads are in its parent. On an error `x` is
    /// untouched. After a [stop](Criteria::watch) the systems that were not begun have no iterations
    /// and residuals of NaN.
    pub fn solve<T: CpuScalar>(
        &self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
        only: Option<&[usize]>,
    ) -> Result<Vec<Outcome>, CpuError> {
        T::solve_lanes(self, batch, nrhs, b, x, criteria, only)
    }

    /// Body of [`LanePlan::solve`], instantiated for each type within this crate.
    pub(crate) fn solve_here<T: CpuScalar>(
        &self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
        only: Option<&[usize]>,
    ) -> Result<Vec<Outcome>, CpuError> {
        check_threads()?;
        self.check_patterns(batch)?;
        let (systems, rows) = (batch.count_systems(nrhs)?, batch.vector_len(nrhs)?);
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        criteria.check(systems)?;
        self.check_planned(nrhs, systems, only)?;
        let wanted = only.map_or(systems, <[usize]>::len);
        let mut outcomes: Vec<Option<Outcome>> = vec![None; wanted];
        let nrows = |item| batch.pattern(item).nrows();
        let mut slots = slots((self.nitems, nrhs), nrows, b, x, &mut outcomes, only);
        let mut jobs = Vec::new();
        match self.classes.as_slice() {
            [class] => {
                let queue = slots.into_iter().flatten();
                spread(class, wanted, queue, |lanes, q| jobs.push((class, lanes, q)));
            }
            classes => {
                for class in classes {
                    let systems = (class.items.iter())
                        .flat_map(|&item| item as usize * nrhs..(item as usize + 1) * nrhs);
                    let queue: Vec<_> = systems.filter_map(|system| slots[system].take()).collect();
                    spread(class, queue.len(), queue.into_iter(), |lanes, q| {
                        jobs.push((class, lanes, q));
                    });
                }
            }
        }
        jobs.into_par_iter().for_each(|(class, lanes, queue)| {
            let (count, skipped) = (queue.len(), Cell::new(0));
            let rows = &class.matrix;
            let squares_products = !self.scheme.has_fixed_order();
            let job = |matrix, queue| Job {
                batch,
                nrhs,
                matrix,
                rows,
                squares_products,
                criteria,
                queue,
                skipped: &skipped,
            };
            let rest = match &class.symmetric {
                Some(matrix) => self.run_cg(class, lanes, job(matrix, queue)),
                None => queue,
            };
            if !rest.is_empty() {
                self.run(class, lanes, job(rows, rest));
            }
            let ended = count - skipped.get();
            if let Some(watch) = criteria.watch.as_ref().filter(|_| ended > 0) {
                watch.add(ended);
            }
        });
        let settled = outcomes.into_iter();
        Ok(settled.map(|o| o.expect("every system that is queued is settled")).collect())
    }

    /// Checks that all items of the plan have the analysed patterns in `batch`, since loads write
    /// values by position. Compares the index arrays; of a uniform batch, those of one item.
    ///
    /// # Errors
    /// [`CpuError::Argument`] for another number of items, [`CpuError::OtherPattern`] for other
    /// patterns.
    pub fn check_patterns<T: CpuScalar>(&self, batch: &Batch<T>) -> Result<(), CpuError> {
        check_len("batch", self.nitems, batch.nitems())?;
        let other = |class: &Class| {
            let is_other = |&&item: &&u32| !class.matrix.matches(batch.pattern(item as usize));
            match batch {
                Batch::Uniform(_) => class.items.first().filter(is_other).copied(),
                Batch::Ragged(_) => class.items.par_iter().find_first(is_other).copied(),
            }
        };
        match self.classes.iter().filter_map(other).min() {
            None => Ok(()),
            Some(item) => Err(CpuError::OtherPattern { item: item as usize }),
        }
    }

    /// Checks that the systems to solve are in the batch, and their items in the plan.
    fn check_planned(
        &self,
        nrhs: usize,
        systems: usize,
        only: Option<&[usize]>,
    ) -> Result<(), CpuError> {
        if let Some(only) = only {
            check_numbers(only, systems)?;
        }
        if self.is_whole || systems == 0 {
            return Ok(());
        }
        let mut planned = vec![false; self.nitems];
        for class in &self.classes {
            class.items.iter().for_each(|&item| planned[item as usize] = true);
        }
        let left_out = match only {
            None => planned.iter().position(|planned| !planned),
            Some(only) => only.iter().map(|system| system / nrhs).find(|&item| !planned[item]),
        };
        left_out.map_or(Ok(()), |item| Err(CpuError::NotPlanned { item }))
    }

    fn run<T: CpuScalar>(&self, class: &Class, lanes: usize, job: Job<'_, T>) {
        match (self.scheme, &class.factors) {
            (Scheme::Lu | Scheme::Banded, Factors::Lu(lu)) => {
                self.go_narrow(lanes, direct::Direct { job, lu })
            }
            (Scheme::Cg(_), _) => {
                let unsuited = self.run_cg(class, lanes, job);
                debug_assert!(unsuited.is_empty(), "the whole pattern takes any values");
            }
            (Scheme::PivotingLu | Scheme::Lu | Scheme::Banded, _) => {
                unreachable!("plans of LU have factors, and partial pivoting has no lanes")
            }
            (Scheme::BiCgStab(_), factors) => match factors {
                Factors::None => {
                    self.go(lanes, bicgstab::BiCgStab { job, precond: precond::Identity });
                }
                Factors::Jacobi { lenient } => {
                    let precond = precond::Jacobi { matrix: job.matrix, lenient: *lenient };
                    self.go(lanes, bicgstab::BiCgStab { job, precond });
                }
                Factors::Lu(lu) => {
                    self.go_narrow(lanes, bicgstab::BiCgStab { job, precond: &**lu })
                }
                Factors::Ic0(ic0) => {
                    self.go_narrow(lanes, bicgstab::BiCgStab { job, precond: &**ic0 })
                }
                Factors::Blocks(blocks) => {
                    self.go_narrow(lanes, bicgstab::BiCgStab { job, precond: blocks });
                }
            },
        }
    }

    /// Runs CG. Returns the systems that the job's matrix cannot store.
    fn run_cg<'a, T: CpuScalar>(
        &self,
        class: &Class,
        lanes: usize,
        job: Job<'a, T>,
    ) -> Vec<Slot<'a, T>> {
        match &class.factors {
            Factors::None => self.go(lanes, cg::Cg { job, precond: precond::Identity }),
            Factors::Jacobi { lenient } => {
                let precond = precond::Jacobi { matrix: job.matrix, lenient: *lenient };
                self.go(lanes, cg::Cg { job, precond })
            }
            Factors::Lu(lu) => self.go_narrow(lanes, cg::Cg { job, precond: &**lu }),
            Factors::Ic0(ic0) => self.go_narrow(lanes, cg::Cg { job, precond: &**ic0 }),
            Factors::Blocks(blocks) => self.go_narrow(lanes, cg::Cg { job, precond: blocks }),
        }
    }

    fn go<T: CpuScalar, K: Kernel<T>>(&self, lanes: usize, kernel: K) -> K::Output {
        dispatch(self.isa, lanes, kernel)
    }

    /// [`LanePlan::go`] for methods with factors.
    fn go_narrow<T: CpuScalar, K: Kernel<T>>(&self, lanes: usize, kernel: K) -> K::Output {
        dispatch_narrow(self.isa, lanes, kernel)
    }
}

/// Cuts the systems of a class into queues, several per thread, and hands each to `push` with the
/// number of lanes.
fn spread<'a, T: 'a>(
    class: &Class,
    systems: usize,
    mut queue: impl Iterator<Item = Slot<'a, T>>,
    mut push: impl FnMut(usize, Vec<Slot<'a, T>>),
) {
    let lanes = if systems == 1 { 1 } else { class.lanes };
    let chunk = systems.div_ceil(rayon::current_num_threads() * 8).max(2 * lanes);
    for start in (0..systems).step_by(chunk) {
        let mut part = Vec::with_capacity(chunk.min(systems - start));
        part.extend(queue.by_ref().take(chunk));
        push(lanes, part);
    }
}

/// One slot per system, with its parts of `b`, `x` and the outcomes; `None` for systems that are
/// not to be solved.
fn slots<'a, T: CpuScalar>(
    (nitems, nrhs): (usize, usize),
    nrows: impl Fn(usize) -> usize,
    b: &'a [T],
    x: &'a mut [T],
    outcomes: &'a mut [Option<Outcome>],
    only: Option<&[usize]>,
) -> Vec<Option<Slot<'a, T>>> {
    let mut slots = Vec::with_capacity(nitems * nrhs);
    let (mut b, mut x) = (b, x);
    let mut outcomes = outcomes.iter_mut();
    let mut only = only.map(|only| only.iter().copied().peekable());
    for item in 0..nitems {
        let nrows = nrows(item);
        for system in item * nrhs..(item + 1) * nrhs {
            let (this_b, rest_b) = b.split_at(nrows);
            let (this_x, rest_x) = x.split_at_mut(nrows);
            (b, x) = (rest_b, rest_x);
            let wanted = match &mut only {
                None => true,
                Some(only) => only.next_if_eq(&system).is_some(),
            };
            let slot = if wanted { outcomes.next() } else { None };
            slots.push(slot.map(|outcome| Slot { system, b: this_b, x: this_x, outcome }));
        }
    }
    slots
}

fn factors<T: CpuScalar>(pattern: CsrPatternRef<'_>, scheme: Scheme) -> Result<Factors, CpuError> {
    if scheme.has_fixed_order() {
        let order = match scheme {
            Scheme::Banded => Band::of(pattern)?.order().map(<[u32]>::to_vec),
            _ => Some(symbolic::min_degree(pattern)?),
        };
        let filled = FactorPattern::lu(pattern, order.as_deref(), MAX_LU_ENTRIES)?;
        return Ok(Factors::Lu(Box::new(LuOnPattern::new(filled, false))));
    }
    let preconditioner = scheme.preconditioner();
    let single = preconditioner.precision().is_mixed::<T>();
    let order = symbolic::elimination_order(pattern, preconditioner.order())?;
    Ok(match preconditioner {
        Preconditioner::None => Factors::None,
        Preconditioner::Auto => Factors::Jacobi { lenient: true },
        Preconditioner::Jacobi => Factors::Jacobi { lenient: false },
        Preconditioner::BlockJacobi { size, .. } => {
            Factors::Blocks(BlockJacobi::new(DiagonalBlocks::of_size(pattern, size)?, single))
        }
        Preconditioner::Ilu0 { .. } => {
            let factors = FactorPattern::ilu0(pattern, order.as_deref())?;
            Factors::Lu(Box::new(LuOnPattern::new(factors, single)))
        }
        Preconditioner::Ic0 { .. } => {
            let factors = LowerPattern::ic0(pattern, order.as_deref())?;
            Factors::Ic0(Box::new(Ic0::new(factors, single)))
        }
    })
}

/// Number of lanes by working set: as many as keep a group's values and vectors in the first-level
/// cache (48 KiB, less some space for other data), else the natural width of the instruction set.
fn lanes_for<T: CpuScalar>(isa: Isa, matrix: &LaneMatrix, factors: &Factors) -> usize {
    let factored = match factors {
        Factors::None | Factors::Jacobi { .. } => 0,
        Factors::Lu(lu) => lu.pattern().nnz(),
        Factors::Ic0(_) | Factors::Blocks(_) => matrix.nvalues(),
    };
    let bytes = size_of::<T>() * (matrix.nvalues() + factored + 5 * matrix.nrows());
    const CACHE: usize = 44 << 10;
    match isa {
        Isa::Baseline => 4,
        // The only group width of `dispatch_narrow` with AVX.
        _ if factored != 0 => 8,
        Isa::Avx2 | Isa::Avx512 if 16 * bytes <= CACHE => 16,
        Isa::Avx2 if 8 * bytes > CACHE && 4 * bytes <= CACHE => 4,
        Isa::Avx2 | Isa::Avx512 => 8,
    }
}
