//! CG and BiCGStab of one system as a careful user writes them without SIMD: plain indexed loops
//! over CSR, vector passes fused, dot products in four partial sums, buffers reused.
//!
//! Sources: Hestenes and Stiefel 1952 (doi 10.6028/jres.049.044); van der Vorst 1992 (doi
//! 10.1137/0913035). Both methods start from x = 0 and test only the residual of the recurrence.

use crate::solve_case::{MAX_ITERS, REL_TOL};

/// A CSR pattern in the loops' index type.
pub(crate) struct ScalarCsr {
    row_ptr: Vec<u32>,
    col_idx: Vec<u32>,
}

/// The vectors of one solve.
pub(crate) struct Vectors {
    r: Vec<f64>,
    p: Vec<f64>,
    ap: Vec<f64>,
    shadow: Vec<f64>,
    t: Vec<f64>,
}

impl Vectors {
    pub(crate) fn new(nrows: usize) -> Self {
        let vector = || vec![0.0; nrows];
        Self { r: vector(), p: vector(), ap: vector(), shadow: vector(), t: vector() }
    }
}

/// Four partial sums.
type Sums = [f64; 4];

fn total(sums: Sums) -> f64 {
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// `a'b` in four partial sums.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    let mut sums = Sums::default();
    for (a, b) in a.iter().zip(b) {
        for j in 0..4 {
            sums[j] += a[j] * b[j];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    total(sums) + rest
}

/// `(REL_TOL * ||b||)^2`, the threshold for `r'r`.
pub(crate) fn threshold(b: &[f64]) -> f64 {
    REL_TOL * REL_TOL * dot(b, b)
}

impl ScalarCsr {
    pub(crate) fn new((row_ptr, col_idx): (&[usize], &[usize])) -> Self {
        let narrow = |v: &[usize]| v.iter().map(|&i| i as u32).collect();
        Self { row_ptr: narrow(row_ptr), col_idx: narrow(col_idx) }
    }

    /// `y = A p` and, in the same pass, `w'y` and (when `SQUARE`) `y'y`.
    #[inline(always)]
    fn product<const SQUARE: bool>(
        &self,
        values: &[f64],
        p: &[f64],
        y: &mut [f64],
        w: &[f64],
    ) -> (f64, f64) {
        let mut start = 0;
        let mut row = |end: u32| {
            let entries = start..end as usize;
            start = end as usize;
            let cols = &self.col_idx[entries.clone()];
            let mut sum = 0.0;
            for (value, &col) in values[entries].iter().zip(cols) {
                sum += value * p[col as usize];
            }
            sum
        };
        let (mut dots, mut squares) = (Sums::default(), Sums::default());
        let (ends, ends_rest) = self.row_ptr[1..].as_chunks::<4>();
        let ((y, y_rest), (w, w_rest)) = (y.as_chunks_mut::<4>(), w.as_chunks::<4>());
        for ((ends, y), w) in ends.iter().zip(y).zip(w) {
            for j in 0..4 {
                y[j] = row(ends[j]);
                dots[j] += w[j] * y[j];
                if SQUARE {
                    squares[j] += y[j] * y[j];
                }
            }
        }
        for ((&end, y), w) in ends_rest.iter().zip(y_rest).zip(w_rest) {
            *y = row(end);
            dots[0] += w * *y;
            if SQUARE {
                squares[0] += *y * *y;
            }
        }
        (total(dots), total(squares))
    }

    /// CG; `x` is 0 on entry. Returns the number of iterations.
    pub(crate) fn cg(&self, values: &[f64], b: &[f64], x: &mut [f64], v: &mut Vectors) -> usize {
        let threshold = threshold(b);
        v.r.copy_from_slice(b);
        v.p.copy_from_slice(b);
        let mut rho = dot(b, b);
        if rho == 0.0 {
            return 0;
        }
        for iteration in 1..=MAX_ITERS {
            let (curvature, _) = self.product::<false>(values, &v.p, &mut v.ap, &v.p);
            let alpha = rho / curvature;
            let next = step(alpha, &v.p, &v.ap, x, &mut v.r);
            if next <= threshold {
                return iteration;
            }
            let beta = next / rho;
            rho = next;
            for (p, r) in v.p.iter_mut().zip(&v.r) {
                *p = r + beta * *p;
            }
        }
        MAX_ITERS
    }

    /// BiCGStab; `x` is 0 on entry. Returns the number of iterations; one that ends at its half
    /// step counts.
    pub(crate) fn bicgstab(
        &self,
        values: &[f64],
        b: &[f64],
        x: &mut [f64],
        v: &mut Vectors,
    ) -> usize {
        let threshold = threshold(b);
        for vector in [&mut v.r, &mut v.p, &mut v.shadow] {
            vector.copy_from_slice(b);
        }
        let mut rho = dot(b, b);
        if rho == 0.0 {
            return 0;
        }
        for iteration in 1..=MAX_ITERS {
            let (shadow_ap, _) = self.product::<false>(values, &v.p, &mut v.ap, &v.shadow);
            let alpha = rho / shadow_ap;
            // s = r - alpha A p and x += alpha p; s overwrites r.
            if step(alpha, &v.p, &v.ap, x, &mut v.r) <= threshold {
                return iteration;
            }
            let (ts, tt) = self.product::<true>(values, &v.r, &mut v.t, &v.r);
            let omega = ts / tt;
            let (rr, next) = stabilise(omega, &v.t, &v.shadow, x, &mut v.r);
            if rr <= threshold {
                return iteration;
            }
            let beta = next / rho * (alpha / omega);
            rho = next;
            for ((p, r), ap) in v.p.iter_mut().zip(&v.r).zip(&v.ap) {
                *p = r + beta * (*p - omega * ap);
            }
        }
        MAX_ITERS
    }
}

/// `x += alpha p`, `r -= alpha ap` and `r'r`, in one pass.
#[inline(always)]
fn step(alpha: f64, p: &[f64], ap: &[f64], x: &mut [f64], r: &mut [f64]) -> f64 {
    let ((p, p_rest), (ap, ap_rest)) = (p.as_chunks::<4>(), ap.as_chunks::<4>());
    let ((x, x_rest), (r, r_rest)) = (x.as_chunks_mut::<4>(), r.as_chunks_mut::<4>());
    let mut sums = Sums::default();
    for (((p, ap), x), r) in p.iter().zip(ap).zip(x).zip(r) {
        for j in 0..4 {
            x[j] += alpha * p[j];
            r[j] -= alpha * ap[j];
            sums[j] += r[j] * r[j];
        }
    }
    for (((p, ap), x), r) in p_rest.iter().zip(ap_rest).zip(x_rest).zip(r_rest) {
        *x += alpha * p;
        *r -= alpha * ap;
        sums[0] += *r * *r;
    }
    total(sums)
}

/// `x += omega r`, `r -= omega t`, then `r'r` and `shadow'r`, in one pass.
#[inline(always)]
fn stabilise(omega: f64, t: &[f64], shadow: &[f64], x: &mut [f64], r: &mut [f64]) -> (f64, f64) {
    let ((t, t_rest), (shadow, shadow_rest)) = (t.as_chunks::<4>(), shadow.as_chunks::<4>());
    let ((x, x_rest), (r, r_rest)) = (x.as_chunks_mut::<4>(), r.as_chunks_mut::<4>());
    let (mut squares, mut dots) = (Sums::default(), Sums::default());
    for (((t, shadow), x), r) in t.iter().zip(shadow).zip(x).zip(r) {
        for j in 0..4 {
            x[j] += omega * r[j];
            r[j] -= omega * t[j];
            squares[j] += r[j] * r[j];
            dots[j] += shadow[j] * r[j];
        }
    }
    for (((t, shadow), x), r) in t_rest.iter().zip(shadow_rest).zip(x_rest).zip(r_rest) {
        *x += omega * *r;
        *r -= omega * t;
        squares[0] += *r * *r;
        dots[0] += shadow * *r;
    }
    (total(squares), total(dots))
}
