//! BiCGStab over lanes.
//!
//! Algorithm (van der Vorst 1992, doi 10.1137/0913035; right-preconditioned, so that the residual
//! of the recurrence is that of the original system):
//!
//! 1. `r = b - A x`, `r^ = r`, `p = r`, `rho = r^'r`
//! 2. `p^ = M p`, `v = A p^`, `alpha = rho / r^'v`
//! 3. `s = r - alpha v`; when `||s||` passes the test, `x += alpha p^` and stop (half step)
//! 4. `s^ = M s`, `t = A s^`, `omega = t's / t't`
//! 5. `x += alpha p^ + omega s^`, `r = s - omega t`
//! 6. stop when `||r|| <= max(abs_tol, rel_tol ||b||)` and the true residual agrees
//! 7. `beta = (r^'r / rho) (alpha / omega)`, `rho = r^'r`, `p = r + beta (p - omega v)`, back to 2
//!
//! Deviations: breakdowns are judged relative to the sizes of the vectors (`|r^'r| <= eps ||r^||
//! ||r||`), never absolutely, so that small right-hand sides are not called broken down; after a
//! breakdown the solve restarts from the true residual, a bounded number of times.
//! Cost per iteration: two products, five dot products, two applications of M; vectors `x`, `r`
//! (and `s`), `r^`, `p`, `v`, `t`, and `p^`, `s^` when there is a preconditioner.

use super::dot::{Dot, PARTIAL_SUMS, dot, dots, scalar_dot};
use super::job::{Job, Lanes, Verdict, ones};
use super::matrix::LaneMatrix;
use super::precond::LanePrecond;
use crate::simd::{CpuScalar, Kernel, Vector, lane, set_lane};
use sparsebatch_solve_core::Status;
use sparsebatch_solve_core::verdict::Stop;

/// BiCGStab on one job.
pub(crate) struct BiCgStab<'a, T, P> {
    pub(crate) job: Job<'a, T>,
    pub(crate) precond: P,
}

/// The vectors of a group; `r` holds `s` between the products.
struct BiCgStabVectors<V> {
    a: Vec<V>,
    x: Vec<V>,
    r: Vec<V>,
    shadow: Vec<V>,
    p: Vec<V>,
    v: Vec<V>,
    t: Vec<V>,
    /// `p^` and `s^`; empty without a preconditioner.
    p_hat: Vec<V>,
    s_hat: Vec<V>,
}

impl<V: Vector> BiCgStabVectors<V> {
    #[inline(always)]
    fn new(matrix: &LaneMatrix, is_identity: bool) -> Self {
        let vector = || vec![V::zero(); matrix.nrows()];
        let hat = || if is_identity { Vec::new() } else { vector() };
        Self {
            a: vec![V::zero(); matrix.nvalues()],
            x: vector(),
            r: vector(),
            shadow: vector(),
            p: vector(),
            v: vector(),
            t: vector(),
            p_hat: hat(),
            s_hat: hat(),
        }
    }
}

/// The scalars of each lane.
struct BiCgStabScalars<V> {
    threshold: V,
    rho: V,
    /// `||r^||^2`.
    shadow_square: V,
    beta: V,
    omega: V,
}

impl<V: Vector> BiCgStabScalars<V> {
    #[inline(always)]
    fn zero() -> Self {
        let zero = V::zero();
        Self { threshold: zero, rho: zero, shadow_square: zero, beta: zero, omega: zero }
    }
}

/// Why lanes stop in an iteration. Each reason has one bit for each lane.
struct BiCgStabStops<V> {
    /// The norm of `s` or of the residual passes the test.
    passed: u32,
    /// `r^'v`, by which `alpha` is divided, is zero or not finite.
    bad_alpha: u32,
    /// `t's` is zero, or `t't` is not positive.
    bad_omega: u32,
    /// The residual is not finite.
    lost: u32,
    /// `r^'r` vanishes beside the sizes of its vectors.
    bad_rho: u32,
    shadow_v: V,
    ts: V,
    tt: V,
}

impl<V: Vector> BiCgStabStops<V>
where
    V::Scalar: CpuScalar,
{
    /// The reason that counts for a lane. A lane without any has reached its iteration limit.
    #[inline(always)]
    fn of(&self, lane: usize) -> Stop {
        let bit = 1 << lane;
        if self.passed & bit != 0 {
            Stop::Passed
        } else if self.bad_alpha & bit != 0 {
            Stop::broken(self.shadow_v.get(lane), Status::BreakdownAlpha)
        } else if self.bad_omega & bit != 0 {
            let value = self.ts.get(lane) + self.tt.get(lane);
            Stop::broken(value, Status::BreakdownOmega)
        } else if self.lost & bit != 0 {
            Stop::Failed(Status::NonFinite)
        } else if self.bad_rho & bit != 0 {
            Stop::Broken(Status::BreakdownRho)
        } else {
            Stop::Failed(Status::MaxIterations)
        }
    }
}

impl<T: CpuScalar, P: LanePrecond<T>> Kernel<T> for BiCgStab<'_, T, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Scalar = T>>(self) {
        let matrix = self.job.matrix;
        let mut lanes = Lanes::new(self.job, V::LANES);
        let mut m = self.precond.start::<V>();
        let mut v = BiCgStabVectors::new(matrix, P::IDENTITY);
        let mut c = BiCgStabScalars::zero();
        let zero = V::zero();
        let largest = V::splat(T::MAX);
        let tiny = V::splat(T::EPSILON * T::EPSILON);
        loop {
            // With a preconditioner that is factorised for a whole group, lanes are refilled
            // together.
            let mut vacant = lanes.vacant(P::DIAGONAL);
            while vacant != 0 {
                fill::<T, P, V>(&mut lanes, &self.precond, &mut m, vacant, &mut v, &mut c);
                vacant = lanes.vacant(P::DIAGONAL);
            }
            if lanes.active == 0 {
                return;
            }

            direction::<T, P, V>(&self.precond, &m, &mut v, &c);
            if !P::DIAGONAL {
                self.precond.apply(&mut m, &v.p, &mut v.p_hat);
            }
            let p_hat = if P::IDENTITY { &v.p } else { &v.p_hat };
            matrix.product(&v.a, p_hat, &mut v.v);
            let shadow_v = dot(&v.v, &v.shadow);
            let bad_alpha = !(zero.lt(shadow_v) | shadow_v.lt(zero)) & lanes.active;
            // Empty lanes and lanes that break down take a zero step.
            let alpha = c.rho.div(shadow_v).keep(lanes.active & !bad_alpha);

            let ss = half_step::<T, P, V>(&self.precond, &m, &mut v, alpha);
            let half = ss.le(c.threshold) & lanes.active & !bad_alpha;
            if !P::DIAGONAL {
                self.precond.apply(&mut m, &v.r, &mut v.s_hat);
            }
            let s_hat = if P::IDENTITY { &v.r } else { &v.s_hat };
            matrix.product(&v.a, s_hat, &mut v.t);
            let [ts, tt] = dots(&v.t, [&v.r, &v.t]);
            let bad_omega = !((zero.lt(ts) | ts.lt(zero)) & zero.lt(tt)) & lanes.active & !half;
            c.omega = ts.div(tt).keep(lanes.active & !(half | bad_omega | bad_alpha));

            let (rr, rho) = full_step::<T, P, V>(&mut v, alpha, c.omega);
            lanes.step += 1;
            lanes.record(rr);
            c.beta = rho.div(c.rho).mul(alpha.div(c.omega)).keep(lanes.active);
            c.rho = rho;

            let passed = (rr.le(c.threshold) | half) & !bad_alpha;
            let lost = !rr.le(largest);
            // |rho| <= eps ||r^|| ||r||
            let bad_rho = rho.mul(rho).le(tiny.mul(c.shadow_square.mul(rr)));
            let stopped =
                (passed | lost | bad_alpha | bad_omega | bad_rho | lanes.overdue()) & lanes.active;
            let stops =
                BiCgStabStops { passed, bad_alpha, bad_omega, lost, bad_rho, shadow_v, ts, tt };
            for lane in ones(stopped) {
                settle(&mut lanes, lane, stops.of(lane), P::DIAGONAL, &mut v, &mut c);
            }
        }
    }
}

/// Judges a stopped lane.
#[inline(always)]
fn settle<T: CpuScalar, V: Vector<Scalar = T>>(
    lanes: &mut Lanes<'_, T>,
    l: usize,
    stop: Stop,
    early: bool,
    v: &mut BiCgStabVectors<V>,
    c: &mut BiCgStabScalars<V>,
) {
    match lanes.settle(l, stop, lane(&v.x, l)) {
        Verdict::Restart => {
            set_lane(&mut v.r, l, lanes.residual(l).iter().copied());
            start::<T, V>(lanes.residual(l), l, v, c);
        }
        // The next system overwrites the lane.
        Verdict::Ended if lanes.refills(early) => {}
        // Zero vectors stay zero: an empty lane must not run into slow subnormal numbers.
        Verdict::Ended => {
            for vector in [&mut v.r, &mut v.shadow, &mut v.p, &mut v.v] {
                set_lane(vector, l, std::iter::repeat(T::ZERO));
            }
        }
    }
}

/// Starts the recurrence of a lane from its residual, which is in `r` and in `residual`.
#[inline(always)]
fn start<T: CpuScalar, V: Vector<Scalar = T>>(
    residual: &[T],
    lane: usize,
    v: &mut BiCgStabVectors<V>,
    c: &mut BiCgStabScalars<V>,
) {
    set_lane(&mut v.shadow, lane, residual.iter().copied());
    set_lane(&mut v.p, lane, std::iter::repeat(T::ZERO));
    set_lane(&mut v.v, lane, std::iter::repeat(T::ZERO));
    let rho = scalar_dot::<V>(residual.iter().map(|&r| (r, r)));
    c.rho.set(lane, rho);
    c.shadow_square.set(lane, rho);
    c.beta.set(lane, T::ZERO);
    c.omega.set(lane, T::ZERO);
}

/// Loads systems from the queue into vacant lanes and prepares their preconditioner.
#[inline(always)]
fn fill<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    lanes: &mut Lanes<'_, T>,
    precond: &P,
    m: &mut P::State<V>,
    vacant: u32,
    v: &mut BiCgStabVectors<V>,
    c: &mut BiCgStabScalars<V>,
) {
    let loaded = lanes.load(vacant, &mut v.a, &mut v.x, &mut v.r, &mut c.threshold);
    for l in ones(loaded) {
        start::<T, V>(lanes.residual(l), l, v, c);
        if let Err(status) = precond.load::<V>(m, l, &v.a) {
            settle(lanes, l, Stop::Failed(status), P::DIAGONAL, v, c);
        }
    }
    if !P::DIAGONAL {
        for l in ones(precond.factor(m, &v.a) & loaded) {
            settle(lanes, l, Stop::Failed(Status::SingularPreconditioner), P::DIAGONAL, v, c);
        }
    }
}

/// `p = r + beta (p - omega v)`, and `p^ = M p` for a diagonal M.
#[inline(always)]
fn direction<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    precond: &P,
    m: &P::State<V>,
    v: &mut BiCgStabVectors<V>,
    c: &BiCgStabScalars<V>,
) {
    for ((p, &r), &av) in v.p.iter_mut().zip(&v.r).zip(&v.v) {
        *p = c.beta.mul_add(c.omega.neg_mul_add(av, *p), r);
    }
    if P::DIAGONAL && !P::IDENTITY {
        for (i, (hat, &p)) in v.p_hat.iter_mut().zip(&v.p).enumerate() {
            *hat = precond.scale(m, i, p);
        }
    }
}

/// `s = r - alpha v`, overwriting `r`, and `s^ = M s` for a diagonal M; returns `s's`.
#[inline(always)]
fn half_step<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    precond: &P,
    m: &P::State<V>,
    v: &mut BiCgStabVectors<V>,
    alpha: V,
) -> V {
    for (r, &av) in v.r.iter_mut().zip(&v.v) {
        *r = alpha.neg_mul_add(av, *r);
    }
    if P::DIAGONAL && !P::IDENTITY {
        for (i, (hat, &s)) in v.s_hat.iter_mut().zip(&v.r).enumerate() {
            *hat = precond.scale(m, i, s);
        }
    }
    dot(&v.r, &v.r)
}

/// One row of [`full_step`].
struct FullStep<V> {
    alpha: V,
    omega: V,
    rr: Dot<V>,
    rho: Dot<V>,
}

impl<V: Vector> FullStep<V> {
    #[inline(always)]
    fn row(&mut self, slot: usize, x: &mut V, r: &mut V, row: [V; 4]) {
        let [p_hat, s_hat, t, shadow] = row;
        *x = self.omega.mul_add(s_hat, self.alpha.mul_add(p_hat, *x));
        let next = self.omega.neg_mul_add(t, *r);
        *r = next;
        self.rr.add(slot, next, next);
        self.rho.add(slot, next, shadow);
    }
}

/// `x += alpha p^ + omega s^`, `r = s - omega t`; returns `r'r` and `r^'r`.
#[inline(always)]
fn full_step<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    v: &mut BiCgStabVectors<V>,
    alpha: V,
    omega: V,
) -> (V, V) {
    let mut step = FullStep { alpha, omega, rr: Dot::new(), rho: Dot::new() };
    let p_hat = if P::IDENTITY { &v.p } else { &v.p_hat };
    let (xs, x_rest) = v.x.as_chunks_mut::<PARTIAL_SUMS>();
    let (rs, r_rest) = v.r.as_chunks_mut::<PARTIAL_SUMS>();
    let (ps, p_rest) = p_hat.as_chunks::<PARTIAL_SUMS>();
    let (ss, s_rest) = v.s_hat.as_chunks::<PARTIAL_SUMS>();
    let (ts, t_rest) = v.t.as_chunks::<PARTIAL_SUMS>();
    let (hs, h_rest) = v.shadow.as_chunks::<PARTIAL_SUMS>();
    let blocks = xs.iter_mut().zip(rs).zip(ps).zip(ts).zip(hs).enumerate();
    for (i, ((((x, r), p), t), h)) in blocks {
        for slot in 0..PARTIAL_SUMS {
            let s_hat = if P::IDENTITY { r[slot] } else { ss[i][slot] };
            step.row(slot, &mut x[slot], &mut r[slot], [p[slot], s_hat, t[slot], h[slot]]);
        }
    }
    let rest = x_rest.iter_mut().zip(r_rest).zip(p_rest).zip(t_rest).zip(h_rest).enumerate();
    for (slot, ((((x, r), &p), &t), &h)) in rest {
        let s_hat = if P::IDENTITY { *r } else { s_rest[slot] };
        step.row(slot, x, r, [p, s_hat, t, h]);
    }
    (step.rr.sum(), step.rho.sum())
}
