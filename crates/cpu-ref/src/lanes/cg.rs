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
//! `Ap` (and `z` for preconditioners that are not diagonal). Lanes that finish are settled and
//! refilled from the queue within the iteration; the others do not notice.

use super::job::{Job, Lanes, Verdict};
use super::matrix::{Dot, ROWS_PER_BLOCK, RowSink};
use super::precond::LanePrecond;
use crate::outcome::Status;
use crate::simd::{CpuScalar, Kernel, Vector, set_lane};
use crate::verdict::Stop;
use sparsebatch_formats::Scalar;

/// CG on one job.
pub(crate) struct Cg<'a, T, P> {
    pub(crate) job: Job<'a, T>,
    pub(crate) precond: P,
}

/// `ap = A p` and `p'Ap`.
struct Direction<'v, V> {
    p: &'v [V],
    ap: &'v mut [V],
    dot: Dot<V>,
}

impl<V: Vector> RowSink<V> for Direction<'_, V> {
    #[inline(always)]
    fn row(&mut self, row: usize, slot: usize, value: V) {
        self.ap[row] = value;
        self.dot.add(slot, value, self.p[row]);
    }
}

/// The vectors of a group.
struct Vectors<V> {
    a: Vec<V>,
    x: Vec<V>,
    r: Vec<V>,
    p: Vec<V>,
    ap: Vec<V>,
    z: Vec<V>,
}

impl<'a, T: CpuScalar, P: LanePrecond<T>> Kernel<T> for Cg<'a, T, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Scalar = T>>(self) {
        let (matrix, n) = (self.job.matrix, self.job.matrix.nrows());
        let mut lanes = Lanes::new(self.job, V::LANES);
        let mut m = self.precond.start::<V>();
        let vector = || vec![V::zero(); n];
        let mut v = Vectors {
            a: vec![V::zero(); matrix.nnz()],
            x: vector(),
            r: vector(),
            p: vector(),
            ap: vector(),
            z: if P::DIAGONAL { Vec::new() } else { vector() },
        };
        let largest = V::splat(T::MAX);
        let mut threshold = V::zero();
        let mut rho = V::zero();
        let mut beta;
        loop {
            // Empty lanes are filled when all are empty (a preconditioner that is factorised for
            // the whole group) or, for diagonal ones, whenever one is.
            if lanes.active == 0 {
                for lane in 0..V::LANES {
                    fill::<T, P, V>(
                        &mut lanes,
                        &self.precond,
                        &mut m,
                        lane,
                        &mut v,
                        &mut threshold,
                        &mut rho,
                    );
                }
                if lanes.active == 0 {
                    return;
                }
                let bad = self.precond.factor(&mut m, &v.a) & lanes.active;
                for lane in ones(bad) {
                    lanes.settle(lane, Stop::Failed(Status::SingularPreconditioner), &v.x);
                }
                beta = V::zero();
                if !P::DIAGONAL {
                    self.precond.apply(&mut m, &v.r, &mut v.z);
                    rho = dot(&v.r, &v.z);
                    let bad = !V::zero().lt(rho) & lanes.active;
                    for lane in ones(bad) {
                        let stop = Stop::failed(rho.get(lane), Status::BreakdownRho);
                        lanes.settle(lane, stop, &v.x);
                    }
                    if lanes.active == 0 {
                        continue;
                    }
                }
                direction::<T, P, V>(&self.precond, &m, beta, &mut v);
            }

            let mut sink = Direction {
                p: &v.p,
                ap: &mut v.ap,
                dot: Dot::new(),
            };
            matrix.product(&v.a, &v.p, &mut sink);
            let curvature = sink.dot.sum();
            let bad = !V::zero().lt(curvature) & lanes.active;
            let mut alpha = rho.div(curvature);
            if bad != 0 {
                alpha.replace(bad, T::ZERO);
            }
            let (rr, rz) = advance::<T, P, V>(&m, &self.precond, alpha, &mut v);
            lanes.step += 1;
            lanes.record(rr);

            let passed = rr.le(threshold) & !bad;
            let lost = !rr.le(largest);
            let mut stopped = (passed | lost | bad | lanes.overdue()) & lanes.active;
            beta = rz.div(rho);
            if P::DIAGONAL {
                rho = rz;
                let broken = !V::zero().lt(rz);
                stopped |= broken & lanes.active;
            }
            for lane in ones(stopped) {
                let bit = 1 << lane;
                let stop = if passed & bit != 0 {
                    Stop::Passed
                } else if lost & bit != 0 {
                    Stop::Failed(Status::NonFinite)
                } else if bad & bit != 0 {
                    Stop::failed(curvature.get(lane), Status::Indefinite)
                } else if P::DIAGONAL && V::zero().lt(rz) & bit == 0 {
                    Stop::Failed(Status::BreakdownRho)
                } else {
                    Stop::Failed(Status::MaxIterations)
                };
                match lanes.settle(lane, stop, &v.x) {
                    Verdict::Restart => {
                        set_lane(&mut v.r, lane, lanes.scratch.iter().copied());
                        if P::DIAGONAL {
                            rho.set(
                                lane,
                                self.precond.weighted_dot::<V>(&m, lane, &lanes.scratch),
                            );
                        }
                    }
                    Verdict::Ended if P::DIAGONAL => {
                        fill::<T, P, V>(
                            &mut lanes,
                            &self.precond,
                            &mut m,
                            lane,
                            &mut v,
                            &mut threshold,
                            &mut rho,
                        );
                    }
                    Verdict::Ended => {}
                }
                clear_lane(&mut v.p, lane);
                beta.set(lane, T::ZERO);
            }
            if lanes.active == 0 {
                continue;
            }
            if !P::DIAGONAL {
                self.precond.apply(&mut m, &v.r, &mut v.z);
                let rz = dot(&v.r, &v.z);
                // The quotient of a restarted lane stays 0.
                let restarted = stopped;
                beta = rz.div(rho);
                beta.replace(restarted, T::ZERO);
                rho = rz;
                for lane in ones(!V::zero().lt(rz) & lanes.active) {
                    let stop = Stop::failed(rz.get(lane), Status::BreakdownRho);
                    lanes.settle(lane, stop, &v.x);
                }
            }
            direction::<T, P, V>(&self.precond, &m, beta, &mut v);
        }
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

/// Sets one lane of a vector to 0.
#[inline(always)]
pub(super) fn clear_lane<V: Vector>(vectors: &mut [V], lane: usize) {
    set_lane(vectors, lane, std::iter::repeat(V::Scalar::ZERO));
}

/// Loads the next system of the queue into a lane.
#[inline(always)]
fn fill<'a, T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    lanes: &mut Lanes<'a, T>,
    precond: &P,
    m: &mut P::State<V>,
    lane: usize,
    v: &mut Vectors<V>,
    threshold: &mut V,
    rho: &mut V,
) {
    clear_lane(&mut v.p, lane);
    while let Some(square) = lanes.load(lane, &mut v.a, &mut v.x, &mut v.r) {
        threshold.set(lane, square);
        match precond.load::<V>(m, lane, &v.a) {
            Ok(()) if !P::DIAGONAL => return,
            Ok(()) => {
                let weighted = precond.weighted_dot::<V>(m, lane, &lanes.scratch);
                if weighted > T::ZERO {
                    rho.set(lane, weighted);
                    return;
                }
                let stop = Stop::failed(weighted, Status::BreakdownRho);
                lanes.settle(lane, stop, &v.x);
            }
            Err(status) => {
                lanes.settle(lane, Stop::Failed(status), &v.x);
            }
        }
    }
    // An idle lane computes with zeros.
    clear_lane(&mut v.r, lane);
    clear_lane(&mut v.a, lane);
}

/// One row of [`advance`].
struct Advance<'m, P, M, V> {
    precond: &'m P,
    m: &'m M,
    alpha: V,
    rr: Dot<V>,
    rz: Dot<V>,
}

impl<P, M, V: Vector> Advance<'_, P, M, V>
where
    V::Scalar: CpuScalar,
    P: LanePrecond<V::Scalar, State<V> = M>,
{
    #[inline(always)]
    fn row(&mut self, i: usize, slot: usize, x: &mut V, r: &mut V, p: V, ap: V) {
        *x = self.alpha.mul_add(p, *x);
        let next = self.alpha.neg_mul_add(ap, *r);
        *r = next;
        self.rr.add(slot, next, next);
        if P::DIAGONAL && !P::IDENTITY {
            self.rz.add(slot, self.precond.scale(self.m, i, next), next);
        }
    }
}

/// `x += alpha p`, `r -= alpha ap`; returns `r'r` and, for diagonal preconditioners, `r'Mr`.
#[inline(always)]
fn advance<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    m: &P::State<V>,
    precond: &P,
    alpha: V,
    v: &mut Vectors<V>,
) -> (V, V) {
    let mut each = Advance {
        precond,
        m,
        alpha,
        rr: Dot::new(),
        rz: Dot::new(),
    };
    let (xs, x_rest) = v.x.as_chunks_mut::<ROWS_PER_BLOCK>();
    let (rs, r_rest) = v.r.as_chunks_mut::<ROWS_PER_BLOCK>();
    let (ps, p_rest) = v.p.as_chunks::<ROWS_PER_BLOCK>();
    let (aps, ap_rest) = v.ap.as_chunks::<ROWS_PER_BLOCK>();
    let mut i = 0;
    for (((x, r), p), ap) in xs.iter_mut().zip(rs).zip(ps).zip(aps) {
        each.row(i, 0, &mut x[0], &mut r[0], p[0], ap[0]);
        each.row(i + 1, 1, &mut x[1], &mut r[1], p[1], ap[1]);
        each.row(i + 2, 2, &mut x[2], &mut r[2], p[2], ap[2]);
        each.row(i + 3, 3, &mut x[3], &mut r[3], p[3], ap[3]);
        i += ROWS_PER_BLOCK;
    }
    for (slot, (((x, r), &p), &ap)) in x_rest
        .iter_mut()
        .zip(r_rest)
        .zip(p_rest)
        .zip(ap_rest)
        .enumerate()
    {
        each.row(i + slot, slot, x, r, p, ap);
    }
    let rr = each.rr.sum();
    (rr, if P::IDENTITY { rr } else { each.rz.sum() })
}

/// `p = M r + beta p`, with `z` holding `M r` unless the preconditioner is diagonal.
#[inline(always)]
fn direction<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    precond: &P,
    m: &P::State<V>,
    beta: V,
    v: &mut Vectors<V>,
) {
    if P::DIAGONAL {
        for (i, (p, &r)) in v.p.iter_mut().zip(&v.r).enumerate() {
            *p = beta.mul_add(*p, precond.scale(m, i, r));
        }
    } else {
        for (p, &z) in v.p.iter_mut().zip(&v.z) {
            *p = beta.mul_add(*p, z);
        }
    }
}

/// The dot product of two vectors.
#[inline(always)]
pub(super) fn dot<V: Vector>(a: &[V], b: &[V]) -> V {
    let mut sum = Dot::new();
    for (a, b) in a.chunks(ROWS_PER_BLOCK).zip(b.chunks(ROWS_PER_BLOCK)) {
        for (slot, (&a, &b)) in a.iter().zip(b).enumerate() {
            sum.add(slot, a, b);
        }
    }
    sum.sum()
}
