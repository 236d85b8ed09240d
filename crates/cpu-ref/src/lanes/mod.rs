//! Batched solves with one system per SIMD lane: [`LanePlan`].
//!
//! Systems with equal patterns form a class; within a class, groups of 4, 8 or 16 systems are
//! solved side by side, each with scalars of its own, and a lane whose system has ended takes the
//! next one from the queue (with preconditioners that are factorised, once its whole group has
//! ended). Classes and groups are spread over the threads of rayon's current pool. A system's
//! result is a function of that system and the instruction set alone: not of its neighbours, the
//! number of lanes or threads, or its place in the batch.

mod again;
mod bicgstab;
mod cg;
mod classes;
mod direct;
mod dot;
mod equilibrate;
mod factored;
mod job;
mod kept;
mod matrix;
mod precond;
mod product;
mod single;

pub use classes::{by_pattern, classes};
pub use single::{SystemPreconditioner, dot};

use rayon::prelude::*;
use sparsebatch_formats::{Batch, CsrPatternRef};

use crate::CpuError;
use crate::outcome::{Criteria, Outcome};
use crate::simd::{CpuScalar, Isa, Kernel, dispatch, dispatch_narrow};
use crate::symbolic::{self, DiagonalBlocks, FactorPattern, LowerPattern};
use factored::{BlockJacobi, Ic0, LuOnPattern};
use job::{Job, Slot};
pub(crate) use matrix::LaneMatrix;

/// What runs in the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneMethod {
    /// Conjugate gradients.
    Cg(LanePreconditioner),
    /// BiCGStab.
    BiCgStab(LanePreconditioner),
    /// Sparse LU without pivoting on a minimum-degree order.
    Lu,
}

/// The preconditioner of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LanePreconditioner {
    /// None.
    None,
    /// The inverse of the diagonal.
    Jacobi {
        /// Whether a zero or missing diagonal entry counts as 1 rather than end the system.
        lenient: bool,
    },
    /// Inverses of diagonal blocks.
    BlockJacobi {
        /// Rows per block; found from the pattern when absent.
        size: Option<usize>,
    },
    /// Incomplete LU.
    Ilu0 {
        /// In minimum-degree order rather than the natural one.
        min_degree: bool,
    },
    /// Incomplete Cholesky.
    Ic0 {
        /// In minimum-degree order rather than the natural one.
        min_degree: bool,
    },
}

/// The largest block that is looked for when no size is given.
const FOUND_BLOCK_SIZE: usize = 16;

/// The most entries that the factors of a complete LU may hold.
const MAX_LU_ENTRIES: usize = 1 << 28;

/// How the lanes are used; the default is right for everything but experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneOptions {
    /// The instruction set; the best of this machine when absent.
    pub isa: Option<Isa>,
    /// Systems side by side (1, 4, 8 or 16); by working set when absent.
    pub lanes: Option<usize>,
    /// Whether block-Jacobi, ILU(0) and IC(0) store the factors of f64 solves in f32: made in f64, of the
    /// matrix with its rows and columns scaled by powers of two, and rounded once. A system whose scaled
    /// factors have entries beyond the range of f32 ends with `SingularPreconditioner`.
    pub single_factors: bool,
}

/// A factorisation pattern, where the method needs one.
enum Factors {
    None,
    Jacobi { lenient: bool },
    Lu(Box<LuOnPattern>),
    Ic0(Box<Ic0>),
    Blocks(BlockJacobi),
}

/// Systems with equal patterns, analysed.
struct Class {
    items: Vec<u32>,
    matrix: LaneMatrix,
    /// The pattern once more, for the symmetric systems among the class, where the method can
    /// work on values stored once for both triangles.
    symmetric: Option<LaneMatrix>,
    factors: Factors,
    lanes: usize,
}

/// The analysis of a batch for solves in lanes, done once per pattern.
pub struct LanePlan {
    method: LaneMethod,
    isa: Isa,
    classes: Vec<Class>,
    nitems: usize,
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
    /// factors would be too large.
    pub fn new<T: CpuScalar>(
        batch: &Batch<T>,
        method: LaneMethod,
        options: LaneOptions,
        only: Option<&[usize]>,
    ) -> Result<Self, CpuError> {
        let isa = options.isa.unwrap_or_else(Isa::best);
        let single = options.single_factors && size_of::<T>() > size_of::<f32>();
        let classes = classes::classes(batch, only);
        let classes = classes.into_par_iter().map(|items| {
            let pattern = batch.pattern(items[0] as usize);
            let matrix = LaneMatrix::new(pattern);
            let factors = factors(pattern, method, single)?;
            let symmetric = match (method, &factors) {
                (LaneMethod::Cg(_), Factors::None | Factors::Jacobi { .. }) => {
                    LaneMatrix::symmetric(pattern)
                }
                _ => None,
            };
            let stored = symmetric.as_ref().unwrap_or(&matrix);
            let lanes = options.lanes.unwrap_or_else(|| lanes_for::<T>(isa, stored, &factors));
            Ok(Class { items, matrix, symmetric, factors, lanes })
        });
        let classes = classes.collect::<Result<Vec<_>, CpuError>>()?;
        Ok(Self { method, isa, classes, nitems: batch.nitems(), kept: None })
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Whether the method has a preconditioner.
    pub fn is_preconditioned(&self) -> bool {
        let none = LanePreconditioner::None;
        !matches!(self.method, LaneMethod::Cg(p) | LaneMethod::BiCgStab(p) if p == none)
    }

    /// Distinct patterns.
    pub fn npatterns(&self) -> usize {
        self.classes.len()
    }

    fn class_of(&self, item: usize) -> &Class {
        let holds = |class: &&Class| class.items.binary_search(&(item as u32)).is_ok();
        self.classes.iter().find(holds).expect("the item is in the plan")
    }

    /// Systems side by side in the largest class; 0 for an empty batch.
    pub fn lanes(&self) -> usize {
        self.classes.iter().max_by_key(|c| c.items.len()).map_or(0, |c| c.lanes)
    }

    /// Solves `A x = b` for every system, or for those in `only` (ascending).
    ///
    /// `batch` is the one the plan was made for, or one with other values. `b` and `x` are
    /// item-major, `nrhs` right-hand sides per item; system `s` is right-hand side `s % nrhs` of
    /// item `s / nrhs`. `x` holds initial guesses on entry; systems not in `only` keep theirs.
    /// Returns the outcomes in the order of the systems solved.
    ///
    /// # Errors
    /// [`CpuError::Length`] when a vector does not fit the batch, or the batch not the plan;
    /// [`CpuError::Parameter`] when its patterns are not those of the plan.
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

    /// [`LanePlan::solve`], to be called for each type from within this crate.
    pub(crate) fn solve_here<T: CpuScalar>(
        &self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
        only: Option<&[usize]>,
    ) -> Result<Vec<Outcome>, CpuError> {
        self.check_patterns(batch)?;
        let rows = batch.row_offset(self.nitems) * nrhs;
        crate::error::check_len("b", rows, b.len())?;
        crate::error::check_len("x", rows, x.len())?;
        let systems = self.nitems * nrhs;
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
            let rows = &class.matrix;
            let squares_products = self.method != LaneMethod::Lu;
            let job = |matrix, queue| Job {
                batch,
                nrhs,
                matrix,
                rows,
                squares_products,
                criteria,
                queue,
            };
            let rest = match &class.symmetric {
                Some(matrix) => self.run_cg(class, lanes, job(matrix, queue)),
                None => queue,
            };
            if !rest.is_empty() {
                self.run(class, lanes, job(rows, rest));
            }
        });
        let settled = outcomes.into_iter();
        Ok(settled.map(|o| o.expect("every system that is queued is settled")).collect())
    }

    /// Checks that a batch has the patterns that were analysed: loads write by position.
    ///
    /// # Errors
    /// [`CpuError::Length`] for another number of items, [`CpuError::Parameter`] for other
    /// patterns.
    pub fn check_patterns<T: CpuScalar>(&self, batch: &Batch<T>) -> Result<(), CpuError> {
        crate::error::check_len("batch", self.nitems, batch.nitems())?;
        let same = |class: &Class| match batch {
            Batch::Uniform(_) => class.matrix.matches(batch.pattern(0)),
            Batch::Ragged(_) => {
                let items = class.items.par_iter();
                items.all(|&item| class.matrix.matches(batch.pattern(item as usize)))
            }
        };
        if self.classes.iter().all(same) {
            return Ok(());
        }
        Err(CpuError::Parameter {
            name: "batch",
            expected: "the patterns that the plan was made for",
            found: "others".to_owned(),
        })
    }

    fn run<T: CpuScalar>(&self, class: &Class, lanes: usize, job: Job<'_, T>) {
        match (self.method, &class.factors) {
            (LaneMethod::Lu, Factors::Lu(lu)) => self.go_narrow(lanes, direct::Direct { job, lu }),
            (LaneMethod::Cg(_), _) => {
                let unsuited = self.run_cg(class, lanes, job);
                debug_assert!(unsuited.is_empty(), "the whole pattern takes any values");
            }
            (_, factors) => match factors {
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

    /// Returns the systems that the job's matrix cannot store.
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

    /// For methods with factors.
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

/// The systems with their parts of `b`, `x` and the outcomes, by system number.
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

/// `single`: factors of preconditioners are stored in f32.
fn factors(
    pattern: CsrPatternRef<'_>,
    method: LaneMethod,
    single: bool,
) -> Result<Factors, CpuError> {
    let order = |min_degree: bool| {
        if min_degree { symbolic::min_degree(pattern).map(Some) } else { Ok(None) }
    };
    let precond = match method {
        LaneMethod::Cg(precond) | LaneMethod::BiCgStab(precond) => precond,
        LaneMethod::Lu => {
            let filled = FactorPattern::lu(pattern, order(true)?.as_deref(), MAX_LU_ENTRIES)?;
            return Ok(Factors::Lu(Box::new(LuOnPattern::new(filled, false))));
        }
    };
    Ok(match precond {
        LanePreconditioner::None => Factors::None,
        LanePreconditioner::Jacobi { lenient } => Factors::Jacobi { lenient },
        LanePreconditioner::BlockJacobi { size } => {
            let starts = match size {
                Some(size) => symbolic::fixed_blocks(pattern.nrows(), size)?,
                None => symbolic::find_blocks(pattern, FOUND_BLOCK_SIZE)?,
            };
            Factors::Blocks(BlockJacobi::new(DiagonalBlocks::try_new(pattern, &starts)?, single))
        }
        LanePreconditioner::Ilu0 { min_degree } => {
            let factors = FactorPattern::ilu0(pattern, order(min_degree)?.as_deref())?;
            Factors::Lu(Box::new(LuOnPattern::new(factors, single)))
        }
        LanePreconditioner::Ic0 { min_degree } => {
            let factors = LowerPattern::ic0(pattern, order(min_degree)?.as_deref())?;
            Factors::Ic0(Box::new(Ic0::new(factors, single)))
        }
    })
}

/// Lanes by working set: as many as keep a group's values and vectors in the first-level cache
/// (48 KiB, a little left for the rest), else the natural width of the instruction set.
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
        // `dispatch_narrow` has no other.
        _ if factored != 0 => 8,
        Isa::Avx2 | Isa::Avx512 if 16 * bytes <= CACHE => 16,
        Isa::Avx2 if 8 * bytes > CACHE && 4 * bytes <= CACHE => 4,
        Isa::Avx2 | Isa::Avx512 => 8,
    }
}
