//! Residuals of systems side by side, and the norms and magnitudes by which they are judged.

use std::cell::OnceCell;

use sparsebatch_formats::Scalar;

use super::job::ones;
use super::matrix::LaneMatrix;
use crate::simd::{Part, Vector, lane};
use sparsebatch_solve_core::evaluate::{Evaluated, SAFE_PRODUCT, norm2};
use sparsebatch_solve_core::verdict::Elsewhere;

/// Maximum number of lanes of a vector.
pub(super) const MOST_LANES: usize = 16;

/// `r = b - A y` in the lanes of `lanes`, `b` in the others, rounded as
/// [`residual`](sparsebatch_solve_core::evaluate::residual) does.
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

/// The 2-norms of the lanes in `lanes`, as [`norm2`] computes them.
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

/// The sums of squares, from eight partial sums as in [`norm2`].
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

/// `|| |A||y| + |b| ||_2` of every lane, or `None` where it is out of range or not known to ten
/// digits.
#[inline(always)]
fn magnitudes<V: Vector>(matrix: &LaneMatrix, [a, b, y]: [&[V]; 3]) -> [Option<f64>; MOST_LANES] {
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
            let mut size = V::zero();
            for (value, y) in self.matrix.cols.pairs(range, self.a, self.y) {
                size = value.mul(y).abs().add(size);
            }
            size = size.add(b.abs());
            squares = squares.add(size.mul(size));
        }
        squares
    }
}

/// Quantities that verdicts may need in addition to the plain residual. They are computed for all
/// lanes when the first lane asks.
pub(super) struct Closely<'a, V> {
    matrix: &'a LaneMatrix,
    /// The vectors `a`, `b` and `y`.
    vectors: [&'a [V]; 3],
    lanes: u32,
    magnitudes: OnceCell<[Option<f64>; MOST_LANES]>,
    twofold: OnceCell<Option<TwofoldResiduals<V>>>,
}

impl<'a, V: Vector> Closely<'a, V> {
    /// For the residuals `b - A y` of the lanes in `lanes`.
    pub(super) fn new(matrix: &'a LaneMatrix, vectors: [&'a [V]; 3], lanes: u32) -> Self {
        Self { matrix, vectors, lanes, magnitudes: OnceCell::new(), twofold: OnceCell::new() }
    }
}

/// The [`Closely`] quantities of one lane.
pub(super) struct LaneClosely<'a, V>(pub(super) &'a Closely<'a, V>, pub(super) usize);

impl<V: Vector> Elsewhere<V::Scalar> for LaneClosely<'_, V> {
    fn magnitude(&self) -> Option<f64> {
        let &Self(all, lane) = self;
        all.magnitudes.get_or_init(|| magnitudes(all.matrix, all.vectors))[lane]
    }

    fn twofold(&self, r: &mut [V::Scalar]) -> Option<Evaluated> {
        let &Self(all, lane) = self;
        let twofold =
            all.twofold.get_or_init(|| TwofoldResiduals::new(all.matrix, all.vectors, all.lanes));
        Some(twofold.as_ref()?.of(lane, r))
    }
}

/// Residuals `b - A y` of the systems side by side in twofold precision, each as
/// [`residual_twofold`](sparsebatch_solve_core::evaluate::residual_twofold) computes it.
struct TwofoldResiduals<V> {
    /// The residuals, rounded to the working precision.
    r: Vec<V>,
    evaluated: [Evaluated; MOST_LANES],
}

impl<V: Vector> TwofoldResiduals<V> {
    /// The residuals of the lanes in `lanes`; `None` if vectors are not f64 or lack fused
    /// multiply-add.
    #[inline(always)]
    fn new(matrix: &LaneMatrix, [a, b, y]: [&[V]; 3], lanes: u32) -> Option<Self> {
        if V::Scalar::NAME != "f64" || !V::FUSED {
            return None;
        }
        let [mut r, mut errors] = std::array::from_fn(|_| vec![V::zero(); b.len()]);
        V::call(Twofold { matrix, a, b, y, r: &mut r, errors: &mut errors });
        let (of_residuals, of_errors) = (norms(&r, lanes), norms(&errors, lanes));
        let evaluated =
            std::array::from_fn(|l| Evaluated::new(b.len(), of_residuals[l], of_errors[l]));
        Some(Self { r, evaluated })
    }

    /// The residual of lane `l`, copied to `r`, and its evaluation.
    fn of(&self, l: usize, r: &mut [V::Scalar]) -> Evaluated {
        r.iter_mut().zip(lane(&self.r, l)).for_each(|(r, value)| *r = value);
        self.evaluated[l]
    }
}

struct Twofold<'a, V> {
    matrix: &'a LaneMatrix,
    a: &'a [V],
    b: &'a [V],
    y: &'a [V],
    r: &'a mut [V],
    errors: &'a mut [V],
}

impl<V: Vector> Part for Twofold<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let number = |value: f64| V::splat(V::Scalar::from_f64(value));
        let (zero, one, safe) = (V::zero(), number(1.0), number(SAFE_PRODUCT));
        let minus_one = number(-1.0);
        let two_sum = |a: V, b: V| {
            let sum = a.add(b);
            let of_b = sum.sub(a);
            (sum, a.sub(sum.sub(of_b)).add(b.sub(of_b)))
        };
        let rows = self.matrix.row_ptr.windows(2).zip(self.b);
        let results = self.r.iter_mut().zip(self.errors);
        for ((range, &b), (r, error)) in rows.zip(results) {
            let range = range[0] as usize..range[1] as usize;
            let terms = 2.0 * range.len() as f64 + 2.0;
            let (mut sum, mut rest, mut size, mut lost) = (b, zero, zero, zero);
            for (value, y) in self.matrix.cols.pairs(range, self.a, self.y) {
                let value = value.mul(minus_one);
                let product = value.mul(y);
                let error_of_product = value.mul_add(y, product.mul(minus_one));
                let (next, error_of_sum) = two_sum(sum, product);
                sum = next;
                rest = rest.add(error_of_product.add(error_of_sum));
                size = size.add(error_of_product.abs().add(error_of_sum.abs()));
                let small = product.abs().lt(safe);
                if small != 0 {
                    let counted = small & zero.lt(value.abs()) & zero.lt(y.abs());
                    lost = lost.add(one.keep(counted));
                }
            }
            let (value, last) = two_sum(sum, rest);
            *r = value;
            *error = (number(terms * f64::EPSILON).mul(size).add(last.abs()))
                .add(lost.mul(number(f64::from_bits(1))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{CpuScalar, Isa, Kernel, dispatch, set_lane};
    use sparsebatch_formats::Csr;
    use sparsebatch_solve_core::evaluate::{residual_magnitude, residual_twofold};

    /// Compares the results of the lanes with those of one system at a time.
    struct Compared;

    impl<T: CpuScalar> Kernel<T> for Compared {
        type Output = bool;

        #[inline(always)]
        fn run<V: Vector<Scalar = T>>(self) -> bool {
            // [. . 0; . 0 .; 0 0 .] with entries of very different sizes, some of which cancel.
            let pattern =
                Csr::try_new(3, 3, vec![0, 2, 4, 5], vec![0, 1, 0, 2, 2], vec![1.0f64; 5]);
            let pattern = pattern.unwrap();
            let matrix = LaneMatrix::new(pattern.view().pattern());
            let number = |seed: usize, l: usize| {
                let step = (seed * 37 + l * 11) % 23;
                let size = [1.0, 1e16, 1e-200, 0.0, -1e16][(seed + l) % 5];
                T::from_f64(size * (1.0 + step as f64 / 7.0))
            };
            let filled = |len: usize, seed: usize| {
                let mut vectors = vec![V::zero(); len];
                for l in 0..V::LANES {
                    set_lane(&mut vectors, l, (0..len).map(|k| number(seed + k, l)));
                }
                vectors
            };
            let (a, b, y) = (filled(5, 0), filled(3, 7), filled(3, 13));
            let closely = Closely::new(&matrix, [&a, &b, &y], (1u64 << V::LANES) as u32 - 1);
            let mut has_all = true;
            for l in 0..V::LANES {
                let [a, b, y]: [Vec<T>; 3] = [&a, &b, &y].map(|v| lane(v, l).collect());
                let (mut r, mut expected_r) = ([T::ONE; 3], [T::ONE; 3]);
                let pattern = pattern.view().pattern();
                let expected = residual_twofold(pattern, &a, &y, &b, &mut expected_r);
                let lane = LaneClosely(&closely, l);
                match lane.twofold(&mut r) {
                    Some(found) => assert_eq!((found, r), (expected, expected_r), "lane {l}"),
                    None => has_all = false,
                }
                if let Some(found) = lane.magnitude() {
                    let expected = residual_magnitude(pattern, &a, &y, &b);
                    assert!((found / expected - 1.0).abs() < 1e-14, "{found} {expected}");
                }
            }
            has_all
        }
    }

    #[test]
    fn lanes_say_of_a_system_what_is_said_of_it_alone() {
        for isa in Isa::available() {
            for lanes in [1, 4, 8, 16] {
                let fused = isa != Isa::Baseline;
                assert_eq!(dispatch::<f64, _>(isa, lanes, Compared), fused, "{isa:?} {lanes}");
                assert!(!dispatch::<f32, _>(isa, lanes, Compared));
            }
        }
    }
}
