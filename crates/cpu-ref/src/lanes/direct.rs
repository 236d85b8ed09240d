//! Batched sparse LU over lanes: no pivoting, minimum-degree order, iterative refinement.
//!
//! The order and the filled pattern are found once per pattern; the numeric phase is that of
//! [`LuOnPattern`]. The solution is refined from the true residual (Wilkinson 1963; Higham,
//! Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, chapter 12): once always, and
//! repeatedly while the residual does not pass, up to the limit of `max_restarts`.

use super::evaluate::{Closely, LaneClosely, Residual, norms};
use super::factored::LuOnPattern;
use super::job::{Job, Lanes, Verdict, ones};
use super::matrix::LaneMatrix;
use crate::simd::{CpuScalar, Kernel, Vector, lane as column, set_lane, set_lanes};
use sparsebatch_solve_core::Status;
use sparsebatch_solve_core::evaluate::by_power_of_two;
use sparsebatch_solve_core::verdict::{Plain, Stop};

/// The direct solve of one job.
pub(crate) struct Direct<'a, T> {
    pub(crate) job: Job<'a, T>,
    pub(crate) lu: &'a LuOnPattern,
}

/// The vectors of a group.
struct DirectVectors<V> {
    a: Vec<V>,
    b: Vec<V>,
    x: Vec<V>,
    /// The solutions of the unscaled systems.
    y: Vec<V>,
    r: Vec<V>,
    dx: Vec<V>,
}

impl<V: Vector> DirectVectors<V> {
    #[inline(always)]
    fn new(matrix: &LaneMatrix) -> Self {
        let [x, y, b, r, dx] = std::array::from_fn(|_| vec![V::zero(); matrix.nrows()]);
        Self { a: vec![V::zero(); matrix.nvalues()], b, x, y, r, dx }
    }
}

impl<T: CpuScalar> Kernel<T> for Direct<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Scalar = T>>(self) {
        let matrix = self.job.matrix;
        let mut lanes = Lanes::new(self.job, V::LANES);
        let mut state = self.lu.start::<V>();
        let mut v = DirectVectors::<V>::new(matrix);
        // `load` needs a threshold; it is not used, since the true residual alone decides.
        let mut threshold = V::zero();
        loop {
            let mut vacant = lanes.vacant(false);
            while vacant != 0 {
                lanes.load(vacant, &mut v.a, &mut v.x, &mut v.r, &mut threshold);
                vacant = lanes.vacant(false);
            }
            if lanes.active == 0 {
                return;
            }
            set_lanes(&mut v.b, &lanes.right_hand_sides());
            if T::NAME == "f64" {
                lanes.know_norms(&norms(&v.a, lanes.active));
            }
            let bad = self.lu.factor_until(&mut state, &v.a, || lanes.is_stopped());
            let bad = bad & lanes.active;
            fail(&mut lanes, bad, &v);
            while lanes.active != 0 {
                self.lu.solve(&mut state, &v.r, &mut v.dx);
                lanes.step += 1;
                correct(&lanes, &mut v);
                judge(&mut lanes, matrix, &mut v);
            }
        }
    }
}

/// Ends the lanes of `bad`, in which a pivot was zero or NaN.
#[inline(always)]
fn fail<T: CpuScalar, V: Vector<Scalar = T>>(
    lanes: &mut Lanes<'_, T>,
    bad: u32,
    v: &DirectVectors<V>,
) {
    for lane in ones(bad) {
        // NaN and infinite values also fail the pivot test, but do not show a zero pivot.
        let status = if column(&v.a, lane).all(T::is_finite) {
            Status::ZeroPivot
        } else {
            Status::NonFinite
        };
        lanes.settle(lane, Stop::Failed(status), column(&v.x, lane));
    }
}

/// Adds the corrections `dx` to `x`, and writes the solutions of the unscaled systems to `y`.
#[inline(always)]
fn correct<T: CpuScalar, V: Vector<Scalar = T>>(lanes: &Lanes<'_, T>, v: &mut DirectVectors<V>) {
    for (x, &dx) in v.x.iter_mut().zip(&v.dx) {
        *x = x.add(dx);
    }
    v.y.copy_from_slice(&v.x);
    for lane in ones(lanes.active) {
        let scale = lanes.scale(lane);
        if scale != 0 {
            set_lane(&mut v.y, lane, column(&v.x, lane).map(by_power_of_two(scale)));
        }
    }
}

/// Judges the active lanes by their true residuals. The residual of a lane that does not pass is in
/// `r` then, for the next correction.
#[inline(always)]
fn judge<T: CpuScalar, V: Vector<Scalar = T>>(
    lanes: &mut Lanes<'_, T>,
    matrix: &LaneMatrix,
    v: &mut DirectVectors<V>,
) {
    let DirectVectors { a, b, x, y, r, .. } = v;
    let (a, b, y) = (&*a, &*b, &*y);
    let overdue = lanes.overdue();
    V::call(Residual { matrix, a, b, y, r, lanes: lanes.active });
    let [of_residuals, of_solutions] = [&*r, y].map(|v| norms(v, lanes.active));
    let closely = Closely::new(matrix, [a, b, y], lanes.active);
    for lane in ones(lanes.active) {
        let stop = if overdue >> lane & 1 == 1 {
            Stop::Failed(Status::MaxIterations)
        } else {
            Stop::Passed
        };
        let plain = Plain { norm: of_residuals[lane], of_x: of_solutions[lane] };
        let closely = LaneClosely(&closely, lane);
        let verdict = lanes.settle_by(lane, stop, column(x, lane), |system, entry, x, residual| {
            system.check_evaluated(entry, plain, column(r, lane), closely, x, residual)
        });
        if let Verdict::Restart = verdict {
            set_lane(r, lane, lanes.residual(lane).iter().copied());
        }
    }
}
