//! One task of a batched solve: systems with equal patterns, taken from a queue into lanes, and
//! the verdict on each when its lane stops.

use sparsebatch_formats::Batch;

use super::matrix::LaneMatrix;
use crate::outcome::{Criteria, Outcome};
use crate::residual::{exponent, pow2};
use crate::simd::{CpuScalar, Vector, lane, set_lane};
use crate::verdict::{Stop, System};

/// A system to solve: where its solution and its outcome go.
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
    pub(crate) matrix: &'a LaneMatrix,
    pub(crate) criteria: &'a Criteria,
    /// Taken from the back.
    pub(crate) queue: Vec<Slot<'a, T>>,
}

/// What becomes of a stopped lane.
pub(crate) enum Verdict {
    /// The system has its outcome; the lane is free.
    Ended,
    /// The lane goes on from the recomputed residual, which is in the scratch vector.
    Restart,
}

/// A system in a lane.
struct Occupant<'a, T> {
    slot: Slot<'a, T>,
    /// The lane works on `b * 2^-scale`.
    scale: i32,
    threshold: f64,
    rhs_norm: f64,
    /// The step at which the lane was loaded.
    start: u64,
    /// The step at which its iteration limit is reached.
    deadline: u64,
    restarts: u32,
    history: Vec<f64>,
}

/// The lanes of a group and who is in them.
pub(crate) struct Lanes<'a, T> {
    job: Job<'a, T>,
    occupants: Vec<Option<Occupant<'a, T>>>,
    /// One bit per occupied lane.
    pub(crate) active: u32,
    /// Batched iterations done.
    pub(crate) step: u64,
    /// The first step at which an occupant reaches its iteration limit.
    pub(crate) next_deadline: u64,
    /// The residual of the system that was loaded or restarted last.
    pub(crate) scratch: Vec<T>,
    values: Vec<T>,
}

impl<'a, T: CpuScalar> Lanes<'a, T> {
    pub(crate) fn new(job: Job<'a, T>, lanes: usize) -> Self {
        let nrows = job.matrix.nrows();
        Self {
            job,
            occupants: (0..lanes).map(|_| None).collect(),
            active: 0,
            step: 0,
            next_deadline: u64::MAX,
            scratch: vec![T::ZERO; nrows],
            values: Vec::new(),
        }
    }

    /// Takes systems from the queue until one needs iterations, and puts it into `lane`: its
    /// values into `a`, its initial guess into `x`, its residual into `r` (and the scratch
    /// vector). Returns the squared threshold, or `None` when the queue is empty.
    pub(crate) fn load<V: Vector<Scalar = T>>(
        &mut self,
        lane: usize,
        a: &mut [V],
        x: &mut [V],
        r: &mut [V],
    ) -> Option<T> {
        while let Some(slot) = self.job.queue.pop() {
            let Some((occupant, threshold)) = self.admit(slot) else {
                continue;
            };
            let down = T::from_f64(pow2(-occupant.scale));
            self.with_system(occupant.slot.system, occupant.slot.b, |system, _| {
                set_lane(a, lane, system.values.iter().copied());
            });
            set_lane(x, lane, occupant.slot.x.iter().map(|&v| v * down));
            set_lane(r, lane, self.scratch.iter().copied());
            self.active |= 1 << lane;
            self.next_deadline = self.next_deadline.min(occupant.deadline);
            self.occupants[lane] = Some(occupant);
            return Some(threshold);
        }
        None
    }

    /// Prepares a system: either it ends at once, or its (scaled) residual is in the scratch
    /// vector and its (scaled) squared threshold is returned.
    fn admit(&mut self, slot: Slot<'a, T>) -> Option<(Occupant<'a, T>, T)> {
        let criteria = self.job.criteria;
        let entry = self.with_system(slot.system, slot.b, |system, scratch| {
            system.enter(slot.x, scratch)
        });
        if let Some(status) = entry.status {
            *slot.outcome = Some(entry.outcome(status, criteria.history));
            return None;
        }
        // Squares of very small or large right-hand sides would leave the range of T.
        let safe = if T::NAME == "f64" { 200 } else { 20 };
        let exponent = exponent(entry.rhs_norm);
        let scale = if exponent.abs() <= safe { 0 } else { exponent };
        if scale != 0 {
            let down = T::from_f64(pow2(-scale));
            self.scratch.iter_mut().for_each(|v| *v *= down);
        }
        let threshold = T::from_f64(entry.threshold * pow2(-scale));
        let occupant = Occupant {
            scale,
            threshold: entry.threshold,
            rhs_norm: entry.rhs_norm,
            start: self.step,
            deadline: self.step + u64::from(criteria.max_iters.get(slot.system)),
            restarts: 0,
            history: if criteria.history {
                vec![entry.residual_norm]
            } else {
                Vec::new()
            },
            slot,
        };
        Some((occupant, threshold * threshold))
    }

    /// Calls `f` with a system and the scratch vector.
    fn with_system<R>(
        &mut self,
        number: usize,
        b: &[T],
        f: impl FnOnce(&System<'_, T>, &mut [T]) -> R,
    ) -> R {
        let item = number / self.job.nrhs;
        let batch = self.job.batch;
        let pattern = batch.pattern(item);
        let values = match batch.item_values(item) {
            Some(values) => values,
            None => {
                batch.copy_values(item, &mut self.values);
                &self.values
            }
        };
        let system = System {
            number,
            pattern,
            values,
            b,
            criteria: self.job.criteria,
        };
        f(&system, &mut self.scratch)
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

    /// The lanes whose iteration limit is reached now, one bit each.
    pub(crate) fn overdue(&self) -> u32 {
        if self.step < self.next_deadline {
            return 0;
        }
        let overdue =
            |o: &Option<Occupant<'_, T>>| o.as_ref().is_some_and(|o| o.deadline <= self.step);
        (self.occupants.iter().enumerate())
            .fold(0, |bits, (l, o)| bits | u32::from(overdue(o)) << l)
    }

    /// Takes the solution out of a stopped lane, recomputes the residual and decides.
    pub(crate) fn settle<V: Vector<Scalar = T>>(
        &mut self,
        lane_idx: usize,
        stop: Stop,
        x: &[V],
    ) -> Verdict {
        let Some(mut occupant) = self.occupants[lane_idx].take() else {
            return Verdict::Ended;
        };
        let up = T::from_f64(pow2(occupant.scale));
        for (x, value) in occupant.slot.x.iter_mut().zip(lane(x, lane_idx)) {
            *x = value * up;
        }
        let Occupant {
            slot, threshold, ..
        } = &occupant;
        let check = self.with_system(slot.system, slot.b, |system, scratch| {
            system.check(*threshold, slot.x, scratch)
        });
        let criteria = self.job.criteria;
        let iterations_left = self.step < occupant.deadline;
        let Some(status) = check.status(stop, occupant.restarts, iterations_left, criteria) else {
            let down = T::from_f64(pow2(-occupant.scale));
            self.scratch.iter_mut().for_each(|v| *v *= down);
            occupant.restarts += 1;
            self.occupants[lane_idx] = Some(occupant);
            return Verdict::Restart;
        };
        *occupant.slot.outcome = Some(Outcome {
            status,
            iterations: u32::try_from(self.step - occupant.start).unwrap_or(u32::MAX),
            restarts: occupant.restarts,
            residual_norm: check.residual_norm,
            rhs_norm: occupant.rhs_norm,
            accepted_by_floor: check.floor_passed,
            history: std::mem::take(&mut occupant.history),
        });
        self.active &= !(1 << lane_idx);
        self.next_deadline = self
            .occupants
            .iter()
            .flatten()
            .map(|o| o.deadline)
            .min()
            .unwrap_or(u64::MAX);
        Verdict::Ended
    }
}
