//! Residuals of systems side by side, and the sizes by which they are judged.

use sparsebatch_formats::Scalar;

use super::job::ones;
use super::matrix::LaneMatrix;
use crate::residual::norm2;
use crate::simd::{Part, Vector, lane};

/// The most lanes of a vector.
pub(super) const MOST_LANES: usize = 16;

/// `r = b - A y` in the lanes of `lanes`, `b` in the others, rounded as
/// [`residual`](crate::residual::residual) does.
pub(super) struct Residual<'a, V> {
    pub(super) matrix: &'a LaneMatrix,
    pub(super) a: &'a [V],
    pub(super) b: &'a [V],
    pub(super) y: &'a [V],
    pub(super) r: &'a mut [V],
    pub(super) lanes: u32,
}

impl<V: Vector> Part for Residual<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let rows = self.matrix.row_ptr.windows(2);
        for ((r, b), range) in self.r.iter_mut().zip(self.b).zip(rows) {
            let range = range[0] as usize..range[1] as usize;
            let product = self.matrix.cols.rounded_dot(range, self.a, self.y);
            *r = b.sub(product.keep(self.lanes));
        }
    }
}

/// The norms of some lanes, as [`norm2`] gives them.
#[inline(always)]
pub(super) fn norms<V: Vector>(v: &[V], lanes: u32) -> [f64; MOST_LANES] {
    let mut norms = [0.0; MOST_LANES];
    let wide = V::Scalar::NAME == "f64";
    let squares = if wide { V::call(SquareSums(v)) } else { V::zero() };
    for l in ones(lanes) {
        let sum = squares.get(l).to_f64();
        norms[l] = match wide && (1e-280..1e280).contains(&sum) {
            true => sum.sqrt(),
            false => norm2(&lane(v, l).collect::<Vec<_>>()),
        };
    }
    norms
}

/// The sums of squares, in eight partial ones as [`norm2`] has them.
struct SquareSums<'a, V>(&'a [V]);

impl<V: Vector> Part for SquareSums<'_, V> {
    type Output = V;

    #[inline(always)]
    fn run(self) -> V {
        let mut sums = [V::zero(); 8];
        let (chunks, rest) = self.0.as_chunks::<8>();
        for chunk in chunks {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *sum = sum.add(value.mul(*value));
            }
        }
        for (sum, value) in sums.iter_mut().zip(rest) {
            *sum = sum.add(value.mul(*value));
        }
        let [a, b, c, d, e, f, g, h] = sums;
        a.add(b).add(c.add(d)).add(e.add(f).add(g.add(h)))
    }
}

/// `|| |A||y| + |b| ||_2` of every lane, or `None` where it is out of range or not known to ten digits.
#[inline(always)]
pub(super) fn magnitudes<V: Vector>(
    matrix: &LaneMatrix,
    [a, b, y]: [&[V]; 3],
) -> [Option<f64>; MOST_LANES] {
    if V::Scalar::NAME != "f64" {
        return [None; MOST_LANES];
    }
    let squares = V::call(Magnitudes { matrix, a, b, y });
    let known = |sum: f64| (1e-280..1e280).contains(&sum).then(|| sum.sqrt());
    std::array::from_fn(|l| (l < V::LANES).then(|| known(squares.get(l).to_f64())).flatten())
}

struct Magnitudes<'a, V> {
    matrix: &'a LaneMatrix,
    a: &'a [V],
    b: &'a [V],
    y: &'a [V],
}

impl<V: Vector> Part for Magnitudes<'_, V> {
    type Output = V;

    #[inline(always)]
    fn run(self) -> V {
        let mut squares = V::zero();
        for (b, range) in self.b.iter().zip(self.matrix.row_ptr.windows(2)) {
            let range = range[0] as usize..range[1] as usize;
            let size = self.matrix.cols.rounded_abs_dot(range, self.a, self.y).add(b.abs());
            squares = squares.add(size.mul(size));
        }
        squares
    }
}
