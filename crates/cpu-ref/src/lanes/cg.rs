//! Conjugate gradients over lanes.
//!
//! Algorithm (Hestenes and Stiefel 1952, doi 10.6028/jres.049.044; preconditioned form of Saad,
//! Iterative Methods for Sparse Linear Systems, 2nd ed. 2003, algorithm 9.1):
//!
//! 1. `r = b - A x`, `z = M r`, `p = z`, `rho = r'z`
//! 2. `alpha = rho / p'Ap`
//! 3. `x += alpha p`, `r -= alpha Ap`
//! 4. stop when `||r|| <= max(abs_tol, rel_tol ||b||)` and the true residual agrees
//! 5. `z = M r`, `beta = r'z / rho`, `rho = r'z`, `p = z + beta p`, back to 2
//!
//! Cost per iteration: one product, two dot products, one application of M; vectors `x`, `r`, `p`,
//! `Ap` (and `z` for preconditioners that are not diagonal). The update of `x` is deferred to the
//! next update of `p`, which reads `p` anyway; the arithmetic is the same. Lanes that stop are
//! settled within the iteration and refilled from the queue; the other lanes are unaffected.
//! (Updating `p` just ahead of the rows of the product that need it, which saves a pass, was slower
//! by 10 to 25 %.)

use super::dot::{Dot, PARTIAL_SUMS, dot};
use super::job::{Job, Lanes, Slot, Verdict, ones};
use super::matrix::{LaneMatrix, staggered};
use super::precond::LanePrecond;
use crate::simd::{CpuScalar, Kernel, Vector, lane, set_lane};
use sparsebatch_solve_core::Status;
use sparsebatch_solve_core::verdict::Stop;

/// CG on one job. Returns the systems that are not symmetric, untouched, when the matrix stores
/// its values once for both triangles.
pub(crate) struct Cg<'a, T, P> {
    pub(crate) job: Job<'a, T>,
    pub(crate) precond: P,
}

/// The vectors of a group.
struct CgVectors<V> {
    a: Vec<V>,
    x: Vec<V>,
    r: Vec<V>,
    p: Vec<V>,
    ap: Vec<V>,
    /// `M r`; empty when the preconditioner is diagonal.
    z: Vec<V>,
}

impl<V: Vector> CgVectors<V> {
    #[inline(always)]
    fn new(matrix: &LaneMatrix, is_diagonal: bool) -> Self {
        let vector = |place| staggered(matrix.nrows(), place);
        Self {
            a: staggered(matrix.nvalues(), 0),
            x: vector(1),
            r: vector(2),
            p: vector(3),
            ap: vector(4),
            z: if is_diagonal { Vec::new() } else { vector(5) },
        }
    }
}

/// The scalars of each lane. `alpha` and `beta` belong to the updates that are still deferred.
struct CgScalars<V> {
    threshold: V,
    rho: V,
    alpha: V,
    beta: V,
    /// Lanes that ended in this step with a finite direction, one bit each.
    harmless: u32,
}

/// Why lanes stop in an iteration. Each reason has one bit for each lane.
struct CgStops<V> {
    /// The norm of the residual passes the test.
    passed: u32,
    /// The residual is not finite.
    lost: u32,
    /// The curvature `p'Ap` is not positive.
    bad: u32,
    /// With a diagonal preconditioner: `r'z` is not positive.
    broken: u32,
    curvature: V,
    rz: V,
}

impl<V: Vector> CgStops<V> {
    /// The reason that counts for a lane. A lane without any has reached its iteration limit.
    #[inline(always)]
    fn of(&self, l: usize) -> Stop {
        let bit = 1 << l;
        if self.passed & bit != 0 {
            Stop::Passed
        } else if self.lost & bit != 0 {
            Stop::Failed(Status::NonFinite)
        } else if self.bad & bit != 0 {
            Stop::failed(self.curvature.get(l), Status::Indefinite)
        } else if self.broken & bit != 0 {
            Stop::not_positive(self.rz.get(l))
        } else {
            Stop::Failed(Status::MaxIterations)
        }
    }
}

impl<'a, T: CpuScalar, P: LanePrecond<T>> Kernel<T> for Cg<'a, T, P> {
    type Output = Vec<Slot<'a, T>>;

    #[inline(always)]
    fn run<V: Vector<Scalar = T>>(self) -> Self::Output {
        let matrix = self.job.matrix;
        let mut lanes = Lanes::new(self.job, V::LANES);
        let mut m = self.precond.start::<V>();
        let mut v = CgVectors::new(matrix, P::DIAGONAL);
        let zero = V::zero();
        let mut c = CgScalars { threshold: zero, rho: zero, alpha: zero, beta: zero, harmless: 0 };
        let largest = V::splat(T::MAX);
        loop {
            // With a preconditioner that is factorised for a whole group, lanes are refilled
            // together.
            let mut vacant = lanes.vacant(P::DIAGONAL);
            while vacant != 0 {
                fill::<T, P, V>(&mut lanes, &self.precond, &mut m, vacant, &mut v, &mut c);
                vacant = lanes.vacant(P::DIAGONAL);
            }
            if lanes.active == 0 {
                return lanes.unsuited;
            }

            direction::<T, P, V>(&m, &self.precond, &mut v, &c);
            matrix.product(&v.a, &v.p, &mut v.ap);
            let curvature = dot(&v.ap, &v.p);
            let bad = !zero.lt(curvature);
            // Empty lanes and lanes that break down take a zero step.
            c.alpha = c.rho.div(curvature).keep(lanes.active & !bad);
            let (rr, rz) = residual::<T, P, V>(&m, &self.precond, c.alpha, &mut v);
            lanes.step += 1;
            lanes.record(rr);

            let passed = rr.le(c.threshold) & !bad;
            let lost = !rr.le(largest);
            let mut stopped = (passed | lost | bad | lanes.overdue()) & lanes.active;
            let mut broken = 0;
            if P::DIAGONAL {
                broken = !zero.lt(rz);
                stopped |= broken & lanes.active;
                c.beta = rz.div(c.rho).keep(lanes.active);
                c.rho = rz;
            }
            if stopped != 0 {
                flush(&mut v, &mut c);
            }
            let stops = CgStops { passed, lost, bad, broken, curvature, rz };
            for l in ones(stopped) {
                let stop = stops.of(l);
                settle::<T, P, V>(&mut lanes, &self.precond, &m, l, stop, &mut v, &mut c);
            }
            if !P::DIAGONAL && lanes.active != 0 {
                self.precond.apply(&mut m, &v.r, &mut v.z);
                let rz = dot(&v.r, &v.z);
                // A restarted lane has beta = 0: its direction is z.
                c.beta = rz.div(c.rho).keep(lanes.active & !stopped);
                c.rho = rz;
                // On a breakdown here (rare), `x` is updated in a separate pass.
                let broken = !zero.lt(rz) & lanes.active;
                if broken != 0 {
                    flush(&mut v, &mut c);
                }
                for l in ones(broken) {
                    let stop = Stop::not_positive(rz.get(l));
                    settle::<T, P, V>(&mut lanes, &self.precond, &m, l, stop, &mut v, &mut c);
                }
            }
        }
    }
}

/// Makes the deferred update of `x` in all lanes.
#[inline(always)]
fn flush<V: Vector>(v: &mut CgVectors<V>, c: &mut CgScalars<V>) {
    for (x, &p) in v.x.iter_mut().zip(&v.p) {
        *x = c.alpha.mul_add(p, *x);
    }
    c.alpha = V::zero();
}

/// Judges a stopped lane, whose `x` is up to date, and leaves it without a deferred update.
#[inline(always)]
fn settle<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    lanes: &mut Lanes<'_, T>,
    precond: &P,
    m: &P::State<V>,
    l: usize,
    stop: Stop,
    v: &mut CgVectors<V>,
    c: &mut CgScalars<V>,
) {
    match lanes.settle(l, stop, lane(&v.x, l)) {
        Verdict::Restart => {
            stand_still(l, c);
            set_lane(&mut v.p, l, std::iter::repeat(T::ZERO));
            set_lane(&mut v.r, l, lanes.residual(l).iter().copied());
            if P::DIAGONAL {
                c.rho.set(l, precond.weighted_dot::<V>(m, l, lanes.residual(l)));
            }
        }
        // The next system overwrites the lane. Its beta is 0, so that the old direction, which
        // is finite where the test passed, need not be cleared.
        Verdict::Ended if stop == Stop::Passed && lanes.refills(P::DIAGONAL) => {
            c.harmless |= 1 << l;
        }
        // Zero vectors stay zero: an empty lane must not run into slow subnormal numbers.
        Verdict::Ended => {
            stand_still(l, c);
            for vector in [&mut v.p, &mut v.r] {
                set_lane(vector, l, std::iter::repeat(T::ZERO));
            }
        }
    }
}

/// Clears the deferred updates of a lane.
#[inline(always)]
fn stand_still<T: CpuScalar, V: Vector<Scalar = T>>(l: usize, c: &mut CgScalars<V>) {
    c.alpha.set(l, T::ZERO);
    c.beta.set(l, T::ZERO);
}

/// Loads systems from the queue into vacant lanes and prepares their preconditioner.
#[inline(always)]
fn fill<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    lanes: &mut Lanes<'_, T>,
    precond: &P,
    m: &mut P::State<V>,
    vacant: u32,
    v: &mut CgVectors<V>,
    c: &mut CgScalars<V>,
) {
    let loaded = lanes.load(vacant, &mut v.a, &mut v.x, &mut v.r, &mut c.threshold);
    for l in ones(loaded) {
        stand_still(l, c);
        if c.harmless >> l & 1 == 0 {
            set_lane(&mut v.p, l, std::iter::repeat(T::ZERO));
        }
    }
    c.harmless = 0;
    let mut failed = 0;
    if P::DIAGONAL {
        for l in ones(loaded) {
            match precond.load::<V>(m, l, &v.a) {
                Ok(()) => c.rho.set(l, precond.weighted_dot::<V>(m, l, lanes.residual(l))),
                Err(status) => {
                    failed |= 1 << l;
                    settle::<T, P, V>(lanes, precond, m, l, Stop::Failed(status), v, c);
                }
            }
        }
    } else {
        failed = precond.factor(m, &v.a) & loaded;
        for l in ones(failed) {
            // A negative diagonal entry shows that A is not positive definite; a failed pivot alone
            // does not.
            let status = match lanes.has_negative_diagonal(&v.a, l) {
                true => Status::Indefinite,
                false => Status::SingularPreconditioner,
            };
            let stop = Stop::Failed(status);
            settle::<T, P, V>(lanes, precond, m, l, stop, v, c);
        }
        precond.apply(m, &v.r, &mut v.z);
        c.rho = dot(&v.r, &v.z);
    }
    for l in ones(!V::zero().lt(c.rho) & loaded & !failed) {
        let stop = Stop::not_positive(c.rho.get(l));
        settle::<T, P, V>(lanes, precond, m, l, stop, v, c);
    }
}

/// The deferred `x += alpha p` with the old direction, then `p = M r + beta p`.
#[inline(always)]
fn direction<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    m: &P::State<V>,
    precond: &P,
    v: &mut CgVectors<V>,
    c: &CgScalars<V>,
) {
    let z = if P::DIAGONAL { &v.r } else { &v.z };
    for (i, ((x, p), &z)) in v.x.iter_mut().zip(&mut v.p).zip(z).enumerate() {
        *x = c.alpha.mul_add(*p, *x);
        let z = if P::DIAGONAL { precond.scale(m, i, z) } else { z };
        *p = c.beta.mul_add(*p, z);
    }
}

/// One row of [`residual`].
struct ResidualRow<'m, P, M, V> {
    precond: &'m P,
    m: &'m M,
    alpha: V,
    rr: Dot<V>,
    rz: Dot<V>,
}

impl<P, M, V: Vector> ResidualRow<'_, P, M, V>
where
    V::Scalar: CpuScalar,
    P: LanePrecond<V::Scalar, State<V> = M>,
{
    #[inline(always)]
    fn row(&mut self, i: usize, slot: usize, r: &mut V, ap: V) {
        let next = self.alpha.neg_mul_add(ap, *r);
        *r = next;
        self.rr.add(slot, next, next);
        if P::DIAGONAL && !P::IDENTITY {
            self.rz.add(slot, self.precond.scale(self.m, i, next), next);
        }
    }
}

/// `r -= alpha ap`; returns `r'r` and, for diagonal preconditioners, `r'Mr`.
#[inline(always)]
fn residual<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    m: &P::State<V>,
    precond: &P,
    alpha: V,
    v: &mut CgVectors<V>,
) -> (V, V) {
    let mut each = ResidualRow { precond, m, alpha, rr: Dot::new(), rz: Dot::new() };
    let (rs, r_rest) = v.r.as_chunks_mut::<PARTIAL_SUMS>();
    let (aps, ap_rest) = v.ap.as_chunks::<PARTIAL_SUMS>();
    let mut i = 0;
    for (r, ap) in rs.iter_mut().zip(aps) {
        each.row(i, 0, &mut r[0], ap[0]);
        each.row(i + 1, 1, &mut r[1], ap[1]);
        each.row(i + 2, 2, &mut r[2], ap[2]);
        each.row(i + 3, 3, &mut r[3], ap[3]);
        i += PARTIAL_SUMS;
    }
    for (slot, (r, &ap)) in r_rest.iter_mut().zip(ap_rest).enumerate() {
        each.row(i + slot, slot, r, ap);
    }
    let rr = each.rr.sum();
    (rr, if P::IDENTITY { rr } else { each.rz.sum() })
}
