//! Batched sparse LU over lanes: no pivoting, minimum-degree order, iterative refinement.
//!
//! The order and the filled pattern are found once per pattern; the numeric phase is that of
//! [`LuOnPattern`]. The solution is refined from the true residual (Wilkinson 1963; Higham,
//! Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, chapter 12): once always, and
//! repeatedly while the residual does not pass, up to the limit of `max_restarts`.

use super::evaluate::{Closely, LaneClosely, Residual, norms};
use super::factored::LuOnPattern;
use super::job::{Job, Lanes, Verdict, ones};
use crate::simd::{CpuScalar, Kernel, Vector, lane as column, set_lane, set_lanes};
use sparsebatch_solve_core::Status;
use sparsebatch_solve_core::evaluate::by_power_of_two;
use sparsebatch_solve_core::verdict::{Plain, Stop};

/// The direct solve of one job.
pub(crate) struct Direct<'a, T> {
    pub(crate) job: Job<'a, T>,
    pub(crate) lu: &'a LuOnPattern,
}

impl<T: CpuScalar> Kernel<T> for Direct<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Scalar = T>>(self) {
        let (matrix, n) = (self.job.matrix, self.job.matrix.nrows());
        let mut lanes = Lanes::new(self.job, V::LANES);
        let mut state = self.lu.start::<V>();
        let mut a = vec![V::zero(); matrix.nvalues()];
        let [mut x, mut y, mut b, mut r, mut dx] = std::array::from_fn(|_| vec![V::zero(); n]);
        // `load` needs a threshold; it is not used, since the true residual alone decides.
        let mut threshold = V::zero();
        loop {
            let mut vacant = lanes.vacant(false);
            while vacant != 0 {
                lanes.load(vacant, &mut a, &mut x, &mut r, &mut threshold);
                vacant = lanes.vacant(false);
            }
            if lanes.active == 0 {
                return;
            }
            set_lanes(&mut b, &lanes.right_hand_sides());
            if T::NAME == "f64" {
                lanes.know_norms(&norms(&a, lanes.active));
            }
            let bad = self.lu.factor(&mut state, &a) & lanes.active;
            for lane in ones(bad) {
                // NaN and infinite values also fail the pivot test, but do not show a zero pivot.
                let status = if column(&a, lane).all(T::is_finite) {
                    Status::ZeroPivot
                } else {
                    Status::NonFinite
                };
                lanes.settle(lane, Stop::Failed(status), column(&x, lane));
            }
            while lanes.active != 0 {
                self.lu.solve(&mut state, &r, &mut dx);
                for (x, &dx) in x.iter_mut().zip(&dx) {
                    *x = x.add(dx);
                }
                lanes.step += 1;
                let overdue = lanes.overdue();
                // The solutions of the unscaled systems.
                y.copy_from_slice(&x);
                for lane in ones(lanes.active) {
                    let scale = lanes.scale(lane);
                    if scale != 0 {
                        set_lane(&mut y, lane, column(&x, lane).map(by_power_of_two(scale)));
                    }
                }
                let (a, b, y) = (&a, &b, &y);
                V::call(Residual { matrix, a, b, y, r: &mut r, lanes: lanes.active });
                let [of_residuals, of_solutions] = [&r, y].map(|v| norms(v, lanes.active));
                let closely = Closely::new(matrix, [a, b, y], lanes.active);
                for lane in ones(lanes.active) {
                    let stop = if overdue >> lane & 1 == 1 {
                        Stop::Failed(Status::MaxIterations)
                    } else {
                        Stop::Passed
                    };
                    let plain = Plain { norm: of_residuals[lane], of_x: of_solutions[lane] };
                    let closely = LaneClosely(&closely, lane);
                    let verdict = lanes.settle_by(
                        lane,
                        stop,
                        column(&x, lane),
                        |system, entry, x, residual| {
                            let plain_residual = column(&r, lane);
                            system.check_evaluated(
                                entry,
                                plain,
                                plain_residual,
                                closely,
                                x,
                                residual,
                            )
                        },
                    );
                    if let Verdict::Restart = verdict {
                        set_lane(&mut r, lane, lanes.residual(lane).iter().copied());
                    }
                }
            }
        }
    }
}
