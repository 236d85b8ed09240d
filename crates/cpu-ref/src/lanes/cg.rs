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
//! `Ap` (and `z` for preconditioners that are not diagonal). The updates of `x` and `p` are put off
//! into the pass of the next product, which computes each element of `p` just before the first row
//! that needs it: two passes per iteration, with the same arithmetic. Lanes that stop are settled
//! within the iteration and refilled from the queue; the others do not notice.

use super::job::{Job, Lanes, Verdict, ones};
use super::matrix::{Dot, ROWS_PER_BLOCK, RowSink};
use super::precond::LanePrecond;
use crate::outcome::Status;
use crate::simd::{CpuScalar, Kernel, Vector, lane, set_lane};
use crate::verdict::Stop;

/// CG on one job.
pub(crate) struct Cg<'a, T, P> {
    pub(crate) job: Job<'a, T>,
    pub(crate) precond: P,
}

/// The vectors of a group.
struct Vectors<V> {
    a: Vec<V>,
    x: Vec<V>,
    r: Vec<V>,
    p: Vec<V>,
    ap: Vec<V>,
    /// `M r`; empty when the preconditioner is diagonal.
    z: Vec<V>,
}

/// The scalars of each lane. `alpha` and `beta` are those of the updates still to be made.
struct Scalars<V> {
    threshold: V,
    rho: V,
    alpha: V,
    beta: V,
}

impl<T: CpuScalar, P: LanePrecond<T>> Kernel<T> for Cg<'_, T, P> {
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
        let zero = V::zero();
        let mut c = Scalars {
            threshold: zero,
            rho: zero,
            alpha: zero,
            beta: zero,
        };
        let largest = V::splat(T::MAX);
        loop {
            // A preconditioner that is factorised for the whole group waits for all its lanes.
            let mut vacant = lanes.vacant(P::DIAGONAL);
            while vacant != 0 {
                fill::<T, P, V>(&mut lanes, &self.precond, &mut m, vacant, &mut v, &mut c);
                vacant = lanes.vacant(P::DIAGONAL);
            }
            if lanes.active == 0 {
                return;
            }

            let mut pass = Direction::<T, P, V> {
                precond: &self.precond,
                m: &m,
                alpha: c.alpha,
                beta: c.beta,
                x: &mut v.x,
                r: &v.r,
                z: &v.z,
                p: &mut v.p,
                ap: &mut v.ap,
                done: 0,
                dot: Dot::new(),
            };
            matrix.product(&v.a, &mut pass);
            let curvature = pass.dot.sum();
            let bad = !zero.lt(curvature);
            // Lanes that are empty or break down stand still.
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
            for l in ones(stopped) {
                let bit = 1 << l;
                let stop = if passed & bit != 0 {
                    Stop::Passed
                } else if lost & bit != 0 {
                    Stop::Failed(Status::NonFinite)
                } else if bad & bit != 0 {
                    Stop::failed(curvature.get(l), Status::Indefinite)
                } else if broken & bit != 0 {
                    Stop::Failed(Status::BreakdownRho)
                } else {
                    Stop::Failed(Status::MaxIterations)
                };
                settle::<T, P, V>(&mut lanes, &self.precond, &m, l, stop, &mut v, &mut c);
            }
            if !P::DIAGONAL && lanes.active != 0 {
                self.precond.apply(&mut m, &v.r, &mut v.z);
                let rz = dot(&v.r, &v.z);
                // The direction of a lane that started again is z.
                c.beta = rz.div(c.rho).keep(lanes.active & !stopped);
                c.rho = rz;
                for l in ones(!zero.lt(rz) & lanes.active) {
                    let stop = Stop::failed(rz.get(l), Status::BreakdownRho);
                    settle::<T, P, V>(&mut lanes, &self.precond, &m, l, stop, &mut v, &mut c);
                }
            }
        }
    }
}

/// Judges a stopped lane by its solution, the update still to be made included, and leaves the
/// lane with no update to make.
#[inline(always)]
fn settle<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    lanes: &mut Lanes<'_, T>,
    precond: &P,
    m: &P::State<V>,
    l: usize,
    stop: Stop,
    v: &mut Vectors<V>,
    c: &mut Scalars<V>,
) {
    let alpha = c.alpha.get(l);
    let solution: Vec<T> = lane(&v.x, l)
        .zip(lane(&v.p, l))
        .map(|(x, p)| V::scalar_mul_add(alpha, p, x))
        .collect();
    let verdict = lanes.settle(l, stop, solution.iter().copied());
    stand_still(l, v, c);
    match verdict {
        Verdict::Restart => {
            set_lane(&mut v.x, l, solution.into_iter());
            set_lane(&mut v.r, l, lanes.residual(l).iter().copied());
            if P::DIAGONAL {
                c.rho
                    .set(l, precond.weighted_dot::<V>(m, l, lanes.residual(l)));
            }
        }
        // Zeros stay zeros: an empty lane must not run into slow subnormal numbers.
        Verdict::Ended => set_lane(&mut v.r, l, std::iter::repeat(T::ZERO)),
    }
}

/// Leaves a lane without a direction and without updates to make.
#[inline(always)]
fn stand_still<T: CpuScalar, V: Vector<Scalar = T>>(
    l: usize,
    v: &mut Vectors<V>,
    c: &mut Scalars<V>,
) {
    set_lane(&mut v.p, l, std::iter::repeat(T::ZERO));
    c.alpha.set(l, T::ZERO);
    c.beta.set(l, T::ZERO);
}

/// Loads systems of the queue into vacant lanes and prepares their preconditioner.
#[inline(always)]
fn fill<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>>(
    lanes: &mut Lanes<'_, T>,
    precond: &P,
    m: &mut P::State<V>,
    vacant: u32,
    v: &mut Vectors<V>,
    c: &mut Scalars<V>,
) {
    let loaded = lanes.load(vacant, &mut v.a, &mut v.x, &mut v.r, &mut c.threshold);
    for l in ones(loaded) {
        stand_still(l, v, c);
    }
    let mut failed = 0;
    if P::DIAGONAL {
        for l in ones(loaded) {
            match precond.load::<V>(m, l, &v.a) {
                Ok(()) => c
                    .rho
                    .set(l, precond.weighted_dot::<V>(m, l, lanes.residual(l))),
                Err(status) => {
                    failed |= 1 << l;
                    settle::<T, P, V>(lanes, precond, m, l, Stop::Failed(status), v, c);
                }
            }
        }
    } else {
        failed = precond.factor(m, &v.a) & loaded;
        for l in ones(failed) {
            let stop = Stop::Failed(Status::SingularPreconditioner);
            settle::<T, P, V>(lanes, precond, m, l, stop, v, c);
        }
        precond.apply(m, &v.r, &mut v.z);
        c.rho = dot(&v.r, &v.z);
    }
    for l in ones(!V::zero().lt(c.rho) & loaded & !failed) {
        let stop = Stop::failed(c.rho.get(l), Status::BreakdownRho);
        settle::<T, P, V>(lanes, precond, m, l, stop, v, c);
    }
}

/// The pass of the product: `x += alpha p` and `p = M r + beta p` ahead of the rows, `ap = A p`
/// and `p'Ap`.
struct Direction<'v, T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>> {
    precond: &'v P,
    m: &'v P::State<V>,
    alpha: V,
    beta: V,
    x: &'v mut [V],
    r: &'v [V],
    z: &'v [V],
    p: &'v mut [V],
    ap: &'v mut [V],
    /// Elements of `p` that are up to date.
    done: usize,
    dot: Dot<V>,
}

impl<T: CpuScalar, P: LanePrecond<T>, V: Vector<Scalar = T>> RowSink<V> for Direction<'_, T, P, V> {
    #[inline(always)]
    fn need(&mut self, rows: usize) {
        while self.done < rows {
            let i = self.done;
            self.done += ROWS_PER_BLOCK;
            let source = if P::DIAGONAL { self.r } else { self.z };
            let (x, p, z) = (&mut self.x[i..], &mut self.p[i..], &source[i..]);
            let blocks = (x.first_chunk_mut(), p.first_chunk_mut(), z.first_chunk());
            if let (Some(x), Some(p), Some(z)) = blocks {
                let (x, p, z): (&mut [V; 4], &mut [V; 4], &[V; 4]) = (x, p, z);
                let (alpha, beta) = (self.alpha, self.beta);
                for slot in 0..ROWS_PER_BLOCK {
                    x[slot] = alpha.mul_add(p[slot], x[slot]);
                    let z = if P::DIAGONAL {
                        self.precond.scale(self.m, i + slot, z[slot])
                    } else {
                        z[slot]
                    };
                    p[slot] = beta.mul_add(p[slot], z);
                }
            } else {
                for (k, &z) in source.iter().enumerate().skip(i) {
                    self.x[k] = self.alpha.mul_add(self.p[k], self.x[k]);
                    let z = if P::DIAGONAL {
                        self.precond.scale(self.m, k, z)
                    } else {
                        z
                    };
                    self.p[k] = self.beta.mul_add(self.p[k], z);
                }
            }
        }
    }
    #[inline(always)]
    fn operand(&self) -> &[V] {
        self.p
    }
    #[inline(always)]
    fn row(&mut self, row: usize, slot: usize, value: V) {
        self.ap[row] = value;
        self.dot.add(slot, value, self.p[row]);
    }
    #[inline(always)]
    fn rotate(&mut self) {
        self.dot.rotate();
    }
}

/// One row of [`residual`].
struct Residual<'m, P, M, V> {
    precond: &'m P,
    m: &'m M,
    alpha: V,
    rr: Dot<V>,
    rz: Dot<V>,
}

impl<P, M, V: Vector> Residual<'_, P, M, V>
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
    v: &mut Vectors<V>,
) -> (V, V) {
    let mut each = Residual {
        precond,
        m,
        alpha,
        rr: Dot::new(),
        rz: Dot::new(),
    };
    let (rs, r_rest) = v.r.as_chunks_mut::<ROWS_PER_BLOCK>();
    let (aps, ap_rest) = v.ap.as_chunks::<ROWS_PER_BLOCK>();
    let mut i = 0;
    for (r, ap) in rs.iter_mut().zip(aps) {
        each.row(i, 0, &mut r[0], ap[0]);
        each.row(i + 1, 1, &mut r[1], ap[1]);
        each.row(i + 2, 2, &mut r[2], ap[2]);
        each.row(i + 3, 3, &mut r[3], ap[3]);
        i += ROWS_PER_BLOCK;
    }
    for (slot, (r, &ap)) in r_rest.iter_mut().zip(ap_rest).enumerate() {
        each.row(i + slot, slot, r, ap);
    }
    let rr = each.rr.sum();
    (rr, if P::IDENTITY { rr } else { each.rz.sum() })
}

/// The dot product of two vectors.
#[inline(always)]
pub(super) fn dot<V: Vector>(a: &[V], b: &[V]) -> V {
    let mut sum = Dot::new();
    let (a, a_rest) = a.as_chunks::<ROWS_PER_BLOCK>();
    let (b, b_rest) = b.as_chunks::<ROWS_PER_BLOCK>();
    for (a, b) in a.iter().zip(b) {
        sum.add(0, a[0], b[0]);
        sum.add(1, a[1], b[1]);
        sum.add(2, a[2], b[2]);
        sum.add(3, a[3], b[3]);
    }
    for (slot, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        sum.add(slot, a, b);
    }
    sum.sum()
}
