//! CG and BiCGStab of one system as a careful user writes them without SIMD: plain indexed loops
//! over CSR, vector passes fused, dot products in four partial sums, buffers reused.
//!
//! Sources: Hestenes and Stiefel 1952 (doi 10.6028/jres.049.044); van der Vorst 1992
//! (doi 10.1137/0913035). Both start from x = 0 and test the recurrence's residual alone.

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
        Self {
            r: vector(),
            p: vector(),
            ap: vector(),
            shadow: vector(),
            t: vector(),
        }
    }
}

/// `a'b` in four partial sums.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest = a.remainder().iter().zip(b.remainder());
    let mut sums = [0.0; 4];
    for (a, b) in a.zip(b) {
        for j in 0..4 {
            sums[j] += a[j] * b[j];
        }
    }
    for ((a, b), sum) in rest.zip(&mut sums) {
        *sum += a * b;
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// `(REL_TOL * ||b||)^2`, what `r'r` is compared with.
pub(crate) fn threshold(b: &[f64]) -> f64 {
    REL_TOL * REL_TOL * dot(b, b)
}

impl ScalarCsr {
    pub(crate) fn new((row_ptr, col_idx): (Vec<u32>, Vec<u32>)) -> Self {
        Self { row_ptr, col_idx }
    }

    #[inline(always)]
    fn row(&self, values: &[f64], p: &[f64], row: usize) -> f64 {
        let entries = self.row_ptr[row] as usize..self.row_ptr[row + 1] as usize;
        let cols = &self.col_idx[entries.clone()];
        let products = values[entries].iter().zip(cols);
        products.map(|(value, &col)| value * p[col as usize]).sum()
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
        let (mut dots, mut squares) = ([0.0; 4], [0.0; 4]);
        let blocks = y.len() / 4 * 4;
        let mut add = |j: usize, w: f64, y: f64| {
            dots[j] += w * y;
            if SQUARE {
                squares[j] += y * y;
            }
        };
        let (head, tail) = y.split_at_mut(blocks);
        for (block, (y, w)) in head.chunks_exact_mut(4).zip(w.chunks_exact(4)).enumerate() {
            for j in 0..4 {
                y[j] = self.row(values, p, 4 * block + j);
                add(j, w[j], y[j]);
            }
        }
        for (j, y) in tail.iter_mut().enumerate() {
            *y = self.row(values, p, blocks + j);
            add(j, w[blocks + j], *y);
        }
        let sum = |s: [f64; 4]| (s[0] + s[1]) + (s[2] + s[3]);
        (sum(dots), sum(squares))
    }

    /// CG; `x` is 0 on entry. Returns the iterations.
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

    /// BiCGStab; `x` is 0 on entry. Returns the iterations; one that ends at its half step counts.
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
            // s = r - alpha A p and x += alpha p; s takes the place of r.
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
fn step(alpha: f64, p: &[f64], ap: &[f64], x: &mut [f64], r: &mut [f64]) -> f64 {
    let mut sums = [0.0; 4];
    let operands = p.chunks(4).zip(ap.chunks(4));
    let results = x.chunks_mut(4).zip(r.chunks_mut(4));
    for ((p, ap), (x, r)) in operands.zip(results) {
        for ((((p, ap), x), r), sum) in p.iter().zip(ap).zip(x).zip(r).zip(&mut sums) {
            *x += alpha * p;
            *r -= alpha * ap;
            *sum += *r * *r;
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// `x += omega r`, `r -= omega t`, `r'r` and `shadow'r`, in one pass.
fn stabilise(omega: f64, t: &[f64], shadow: &[f64], x: &mut [f64], r: &mut [f64]) -> (f64, f64) {
    let (mut squares, mut dots) = ([0.0; 4], [0.0; 4]);
    let operands = t.chunks(4).zip(shadow.chunks(4));
    let results = x.chunks_mut(4).zip(r.chunks_mut(4));
    for ((t, shadow), (x, r)) in operands.zip(results) {
        let sums = squares.iter_mut().zip(&mut dots);
        let elements = t.iter().zip(shadow).zip(x).zip(r).zip(sums);
        for ((((t, shadow), x), r), (square, dot)) in elements {
            *x += omega * *r;
            *r -= omega * t;
            *square += *r * *r;
            *dot += shadow * *r;
        }
    }
    let sum = |s: [f64; 4]| (s[0] + s[1]) + (s[2] + s[3]);
    (sum(squares), sum(dots))
}
