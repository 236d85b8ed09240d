//! One task of a batched solve: loads systems with equal patterns from a queue into lanes and
//! judges each system when its lane stops.

use std::cell::Cell;

use sparsebatch_formats::Batch;

use super::matrix::LaneMatrix;
use crate::simd::spmv::prefetch_all;
use crate::simd::{CpuScalar, Vector, set_lane, set_lanes};
use sparsebatch_solve_core::evaluate::{by_power_of_two, frobenius_norm, pow2};
use sparsebatch_solve_core::verdict::{Check, Entry, Prepared, Stop, System, scale_by_norm};
use sparsebatch_solve_core::{Criteria, Outcome, Status, is_stopped};

/// Matrix entries, times lanes, that iterations multiply between two looks at the watch.
const LOOK_ENTRIES: usize = 1 << 20;

/// A system to solve, with the destinations of its solution and outcome.
pub(crate) struct Slot<'a, T> {
    /// Number of the system: `item * nrhs + rhs`.
    pub(crate) system: usize,
    /// Right-hand side.
    pub(crate) b: &'a [T],
    /// Initial guess on entry, solution on return.
    pub(crate) x: &'a mut [T],
    /// Filled when the system ends.
    pub(crate) outcome: &'a mut Option<Outcome>,
}

/// Systems of one pattern, solved by one thread.
pub(crate) struct Job<'a, T> {
    pub(crate) batch: &'a Batch<T>,
    pub(crate) nrhs: usize,
    /// The pattern and value storage that the iterations use.
    pub(crate) matrix: &'a LaneMatrix,
    /// The pattern with values stored as in CSR, for residuals.
    pub(crate) rows: &'a LaneMatrix,
    /// Whether the method squares products with A. A is then scaled to keep the squares in range.
    pub(crate) squares_products: bool,
    pub(crate) criteria: &'a Criteria,
    /// Waiting systems, taken from the back.
    pub(crate) queue: Vec<Slot<'a, T>>,
    /// Number of systems that were not begun, since the solve was stopped.
    pub(crate) skipped: &'a Cell<usize>,
}

/// What happens to a stopped lane.
pub(crate) enum Verdict {
    /// The system has its outcome; the lane is free.
    Ended,
    /// The lane restarts from the true residual.
    Restart,
}

/// A system in a lane.
struct Occupant<'a, T> {
    slot: Slot<'a, T>,
    /// The lane works on `b * 2^-scale`.
    scale: i32,
    /// The lane works on `A * 2^-matrix_scale`.
    matrix_scale: i32,
    /// `||A||_F`, if computed.
    norm: Option<f64>,
    entry: Entry,
    /// The initial guess; `None` if it is 0.
    guess: Option<Vec<T>>,
    /// The step at which the lane was loaded.
    start: u64,
    /// The step at which the system reaches its iteration limit.
    deadline: u64,
    restarts: u32,
    history: Vec<f64>,
}

impl<T> Occupant<'_, T> {
    fn scale_of_x(&self) -> i32 {
        self.scale - self.matrix_scale
    }
}

/// The lanes of a group and the systems in them.
pub(crate) struct Lanes<'a, T> {
    job: Job<'a, T>,
    occupants: Vec<Option<Occupant<'a, T>>>,
    /// One bit per occupied lane.
    pub(crate) active: u32,
    /// Batched iterations done.
    pub(crate) step: u64,
    /// The next step at which an occupant reaches its iteration limit, or the watch is looked at.
    next_look: u64,
    /// Steps between two looks at the watch: one millisecond of work, or one step.
    look_every: u64,
    /// Systems whose values the matrix cannot store.
    pub(crate) unsuited: Vec<Slot<'a, T>>,
    /// The residuals from which the lanes started or restarted, lane after lane.
    residuals: Vec<T>,
    values: Vec<T>,
}

impl<'a, T: CpuScalar> Lanes<'a, T> {
    pub(crate) fn new(job: Job<'a, T>, lanes: usize) -> Self {
        let nrows = job.matrix.nrows();
        let look_every = match job.criteria.watch {
            Some(_) => (LOOK_ENTRIES / (job.matrix.nvalues() * lanes).max(1)).max(1) as u64,
            None => u64::MAX,
        };
        Self {
            job,
            occupants: (0..lanes).map(|_| None).collect(),
            active: 0,
            step: 0,
            next_look: look_every,
            look_every,
            unsuited: Vec::new(),
            residuals: vec![T::ZERO; nrows * lanes],
            values: Vec::new(),
        }
    }

    /// The lanes to fill now, one bit each: the empty lanes, or none when the queue is empty.
    /// Unless `early`, lanes are filled only once all are empty. Waiting until half of the lanes
    /// are empty, to fill them together, cost more in idle lanes (tri 32: 28 %) than it saved.
    pub(crate) fn vacant(&self, early: bool) -> u32 {
        let lanes = self.occupants.len() as u32;
        let vacant = !self.active & ((1u64 << lanes) - 1) as u32;
        if (early || self.active == 0) && !self.job.queue.is_empty() { vacant } else { 0 }
    }

    /// Whether an empty lane is filled before the next iteration.
    pub(crate) fn refills(&self, early: bool) -> bool {
        early && !self.job.queue.is_empty()
    }

    /// Fills lanes with systems from the queue that need iterations: values into `a`, initial
    /// guesses into `x`, residuals into `r` (and [`Lanes::residual`]), squared thresholds into
    /// `threshold`. Returns the lanes filled, one bit each.
    pub(crate) fn load<V: Vector<Scalar = T>>(
        &mut self,
        vacant: u32,
        a: &mut [V],
        x: &mut [V],
        r: &mut [V],
        threshold: &mut V,
    ) -> u32 {
        let (batch, matrix) = (self.job.batch, self.job.matrix);
        if is_stopped(&self.job.criteria.watch) {
            self.job.skipped.set(self.job.skipped.get() + self.job.queue.len());
            let rest = self.job.queue.drain(..);
            rest.for_each(|slot| *slot.outcome = Some(Outcome::not_begun()));
        }
        let mut loaded = 0;
        let mut together = Vec::new();
        for lane in ones(vacant) {
            while let Some(slot) = self.job.queue.pop() {
                let Some((occupant, square)) = self.admit(lane, slot) else {
                    continue;
                };
                let item = occupant.slot.system / self.job.nrhs;
                match batch.item_values(item) {
                    Some(values)
                        if matrix.stores_all()
                            && !vacant.is_power_of_two()
                            && occupant.matrix_scale == 0 =>
                    {
                        together.push((lane, values));
                    }
                    _ => {
                        let mut values = batch.values_in(item, &mut self.values);
                        let scaled: Vec<T>;
                        if occupant.matrix_scale != 0 {
                            let down = by_power_of_two(-occupant.matrix_scale);
                            scaled = values.iter().map(|&v| down(v)).collect();
                            values = &scaled;
                        }
                        if !matrix.store(values, lane, a) {
                            self.unsuited.push(occupant.slot);
                            continue;
                        }
                    }
                }
                let down = by_power_of_two(occupant.matrix_scale - occupant.scale);
                // Adding 0 turns -0 into +0: the sign of a -0 could come to depend on the other
                // lanes.
                set_lane(x, lane, occupant.slot.x.iter().map(|&v| down(v) + T::ZERO));
                set_lane(r, lane, self.residual(lane).iter().copied());
                threshold.set(lane, square);
                self.next_look = self.next_look.min(occupant.deadline);
                self.occupants[lane] = Some(occupant);
                loaded |= 1 << lane;
                break;
            }
        }
        set_lanes(a, &together);
        self.active |= loaded;
        if let Some(next) = self.job.queue.last() {
            if let Some(values) = batch.item_values(next.system / self.job.nrhs) {
                prefetch_all(values);
            }
            prefetch_all(next.b);
            prefetch_all(next.x);
        }
        loaded
    }

    /// The residual from which a lane started or restarted.
    pub(crate) fn residual(&self, lane: usize) -> &[T] {
        let nrows = self.job.matrix.nrows();
        &self.residuals[lane * nrows..(lane + 1) * nrows]
    }

    /// Prepares a system. Returns `None` if it ends at once; otherwise its scaled residual becomes
    /// the lane's, and the scaled squared threshold is returned with the occupant.
    fn admit(&mut self, lane: usize, slot: Slot<'a, T>) -> Option<(Occupant<'a, T>, T)> {
        let criteria = self.job.criteria;
        let item = slot.system / self.job.nrhs;
        let norm = match self.job.squares_products {
            true => Some(frobenius_norm(self.job.batch.values_in(item, &mut self.values))),
            // The norm is not needed before the values are in their lane.
            false => None,
        };
        let entry = self.with_system(lane, slot.system, norm, slot.b, |system, residual| {
            system.enter(slot.x, residual)
        });
        if let Some(status) = entry.status {
            *slot.outcome = Some(entry.outcome(status, criteria.history));
            return None;
        }
        let scale = entry.scale::<T>();
        if scale != 0 {
            self.scale_residual(lane, -scale);
        }
        let matrix_scale = norm.map_or(0, |norm| {
            scale_by_norm(norm, self.job.batch.values_in(item, &mut self.values))
        });
        let threshold = T::from_f64(entry.threshold * pow2(-scale));
        let is_zero = slot.x.iter().fold(true, |zero, &v| zero & (v == T::ZERO));
        let occupant = Occupant {
            scale,
            matrix_scale,
            norm,
            entry,
            guess: if is_zero { None } else { Some(slot.x.to_vec()) },
            start: self.step,
            deadline: self.step + u64::from(criteria.max_iters.get(slot.system)),
            restarts: 0,
            history: if criteria.history { vec![entry.residual_norm] } else { Vec::new() },
            slot,
        };
        Some((occupant, threshold * threshold))
    }

    /// Whether the matrix of a lane has a negative diagonal entry.
    pub(crate) fn has_negative_diagonal<V: Vector<Scalar = T>>(
        &self,
        a: &[V],
        lane: usize,
    ) -> bool {
        self.job.matrix.has_negative_diagonal(|k| a[k].get(lane))
    }

    fn scale_residual(&mut self, lane: usize, exponent: i32) {
        let (nrows, factor) = (self.job.matrix.nrows(), T::from_f64(pow2(exponent)));
        self.residuals[lane * nrows..(lane + 1) * nrows].iter_mut().for_each(|v| *v *= factor);
    }

    /// Calls `f` with system `number`, whose matrix has the norm `norm` if known, and the residual
    /// of `lane`.
    fn with_system<R>(
        &mut self,
        lane: usize,
        number: usize,
        norm: Option<f64>,
        b: &[T],
        f: impl FnOnce(&System<'_, T>, &mut [T]) -> R,
    ) -> R {
        let item = number / self.job.nrhs;
        let batch = self.job.batch;
        let pattern = batch.pattern(item);
        let values = batch.values_in(item, &mut self.values);
        let prepared = Some(Prepared { matrix: self.job.rows, norm });
        let criteria = self.job.criteria;
        let system = System { number, pattern, values, b, criteria, prepared };
        let nrows = pattern.nrows();
        f(&system, &mut self.residuals[lane * nrows..(lane + 1) * nrows])
    }

    /// Records the residual norms of the active lanes, given their squares.
    pub(crate) fn record<V: Vector<Scalar = T>>(&mut self, squares: V) {
        if !self.job.criteria.history {
            return;
        }
        for (lane, occupant) in self.occupants.iter_mut().enumerate() {
            if let Some(occupant) = occupant {
                let norm = squares.get(lane).to_f64().sqrt() * pow2(occupant.scale);
                occupant.history.push(norm);
            }
        }
    }

    /// The lanes that have reached their iteration limit, one bit each: all of them when the solve
    /// was stopped.
    pub(crate) fn overdue(&mut self) -> u32 {
        if self.step < self.next_look {
            return 0;
        }
        if is_stopped(&self.job.criteria.watch) {
            let occupants = self.occupants.iter_mut().flatten();
            occupants.for_each(|o| o.deadline = o.deadline.min(self.step));
        }
        self.plan_look();
        let overdue =
            |o: &Option<Occupant<'_, T>>| o.as_ref().is_some_and(|o| o.deadline <= self.step);
        (self.occupants.iter().enumerate())
            .fold(0, |bits, (l, o)| bits | u32::from(overdue(o)) << l)
    }

    fn plan_look(&mut self) {
        let deadlines = self.occupants.iter().flatten().map(|o| o.deadline);
        self.next_look = deadlines.fold(self.step.saturating_add(self.look_every), u64::min);
    }

    /// Whether the solve was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        is_stopped(&self.job.criteria.watch)
    }

    /// The right-hand sides of the occupied lanes.
    pub(crate) fn right_hand_sides(&self) -> Vec<(usize, &'a [T])> {
        let occupants = self.occupants.iter().enumerate();
        occupants.filter_map(|(lane, o)| Some((lane, o.as_ref()?.slot.b))).collect()
    }

    /// Sets the Frobenius norms of the matrices in the occupied lanes.
    pub(crate) fn know_norms(&mut self, norms: &[f64]) {
        for (occupant, &norm) in self.occupants.iter_mut().zip(norms) {
            if let Some(occupant) = occupant {
                occupant.norm = Some(norm);
            }
        }
    }

    /// The exponent e such that a lane works on `x * 2^-e`.
    pub(crate) fn scale(&self, lane: usize) -> i32 {
        self.occupants[lane].as_ref().map_or(0, Occupant::scale_of_x)
    }

    /// Copies the solution of a stopped lane to its system, recomputes the residual and decides.
    /// On a restart, the new residual is [`Lanes::residual`].
    pub(crate) fn settle(
        &mut self,
        lane: usize,
        stop: Stop,
        solution: impl Iterator<Item = T>,
    ) -> Verdict {
        self.settle_by(lane, stop, solution, |system, entry, x, r| system.check(entry, x, r))
    }

    /// As [`Lanes::settle`], with a custom `check` of the system; its arguments are the system, its
    /// entry, `x` and the array for the residual.
    pub(crate) fn settle_by(
        &mut self,
        lane: usize,
        stop: Stop,
        solution: impl Iterator<Item = T>,
        check: impl FnOnce(&System<'_, T>, &Entry, &[T], &mut [T]) -> Check,
    ) -> Verdict {
        let Some(mut occupant) = self.occupants[lane].take() else {
            return Verdict::Ended;
        };
        let up = by_power_of_two(occupant.scale_of_x());
        for (x, value) in occupant.slot.x.iter_mut().zip(solution) {
            *x = up(value);
        }
        let Occupant { slot, entry, norm, .. } = &mut occupant;
        let mut check = self.with_system(lane, slot.system, *norm, slot.b, |system, residual| {
            check(system, entry, slot.x, residual)
        });
        let criteria = self.job.criteria;
        let iterations_left = self.step < occupant.deadline;
        let Some(status) = check.status(stop, occupant.restarts, iterations_left, criteria) else {
            self.scale_residual(lane, -occupant.scale);
            occupant.restarts += 1;
            self.occupants[lane] = Some(occupant);
            return Verdict::Restart;
        };
        if status != Status::Converged {
            let Occupant { slot, entry, guess, norm, .. } = &mut occupant;
            self.with_system(lane, slot.system, *norm, slot.b, |system, residual| {
                system.keep_better(entry, guess.as_deref(), &mut check, slot.x, residual);
            });
        }
        *occupant.slot.outcome = Some(Outcome {
            status,
            iterations: u32::try_from(self.step - occupant.start).unwrap_or(u32::MAX),
            restarts: occupant.restarts,
            residual_norm: check.residual_norm,
            rhs_norm: occupant.entry.rhs_norm,
            accepted_by_floor: check.floor_passed,
            history: std::mem::take(&mut occupant.history),
        });
        self.active &= !(1 << lane);
        self.plan_look();
        Verdict::Ended
    }
}

/// The positions of the set bits.
#[inline(always)]
pub(super) fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lane
    })
}
