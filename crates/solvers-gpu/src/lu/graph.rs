//! Elimination on a pattern as sums of products that depend on each other.

use std::ops::Range;

use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::symbolic::{FactorPattern, NO_SOURCE};

use super::chunks::PRODUCTS;

/// Marks an absent place or target.
pub(super) const NONE: u32 = u32::MAX;

/// The places of the values of a system during its solve: L + U row by row, the right-hand side in
/// the order of elimination, which becomes the solution, the residual in the order of the matrix,
/// parts of its sums, a -1, and a 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// The first place of the right-hand side.
    pub(super) y: u32,
    /// The first place of the residual.
    pub(super) r: u32,
    /// The first place of the parts.
    pub(super) parts: u32,
    /// Number of places. The last one holds the 0.
    pub(super) len: usize,
}

impl Places {
    /// The places for L + U of `nnz` entries and the rows of `a`.
    pub(super) fn new(nnz: usize, a: CsrPatternRef<'_>) -> Self {
        let parts = |row: usize| match a.row(row).len() {
            0..=PRODUCTS => 0,
            long => long.div_ceil(PRODUCTS),
        };
        Self::with_parts(nnz, a.nrows(), (0..a.nrows()).map(parts).sum())
    }

    pub(super) fn with_parts(nnz: usize, nrows: usize, parts: usize) -> Self {
        let r = nnz + nrows;
        Self { y: nnz as u32, r: r as u32, parts: (r + nrows) as u32, len: r + nrows + parts + 2 }
    }

    /// The place of the -1.
    pub(super) fn minus_one(self) -> u32 {
        self.len as u32 - 2
    }
}

/// The product of the values at two places. `makers` are the targets that compute these values,
/// [`NONE`] for a value that is there from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TargetProduct {
    pub(super) left: u32,
    pub(super) right: u32,
    pub(super) makers: [u32; 2],
}

/// `value[place] -= the sum of its products`, then divided by `value[divisor]`.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) place: u32,
    pub(super) divisor: u32,
    /// The target that computes the divisor.
    pub(super) divisor_maker: u32,
    /// Its products among [`Graph::products`], in the order in which they are subtracted.
    pub(super) products: Range<usize>,
}

/// All targets, each after those that it depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) targets: Vec<Target>,
    pub(super) products: Vec<TargetProduct>,
}

struct GraphBuilder {
    graph: Graph,
    /// The target that computes each place.
    maker: Vec<u32>,
    /// The earliest step in which each target can be complete, given enough threads.
    step: Vec<u32>,
}

impl GraphBuilder {
    /// Appends a target, unless there is nothing to do.
    fn push(&mut self, place: u32, divisor: u32, products: &[(u32, u32)]) {
        if products.is_empty() && divisor == NONE {
            return;
        }
        let graph = &mut self.graph;
        let first = graph.products.len();
        let maker = |place: u32| self.maker[place as usize];
        graph.products.extend(products.iter().map(|&(left, right)| TargetProduct {
            left,
            right,
            makers: [maker(left), maker(right)],
        }));
        let divisor_maker = if divisor == NONE { NONE } else { maker(divisor) };
        let step = |target: u32| if target == NONE { 0 } else { self.step[target as usize] };
        // Products are subtracted in the order in which their operands can be known. This order
        // depends on the pattern only, not on the workers.
        let ready =
            |product: &TargetProduct| product.makers.map(step).into_iter().max().unwrap_or(0);
        graph.products[first..].sort_by_key(ready);
        let last = graph.products[first..].last().map_or(0, ready);
        let own = 1 + last.max(step(divisor_maker));
        self.maker[place as usize] = graph.targets.len() as u32;
        graph.targets.push(Target {
            place,
            divisor,
            divisor_maker,
            products: first..graph.products.len(),
        });
        self.step.push(own);
    }
}

impl Graph {
    /// Factorisation alone, on the pattern of L + U.
    pub(super) fn factorisation(pattern: &FactorPattern) -> Self {
        Self::build(pattern, false)
    }

    /// Factorisation and forward substitution on the pattern of L + U.
    pub(super) fn with_forward(pattern: &FactorPattern) -> Self {
        Self::build(pattern, true)
    }

    /// Each entry is one sum (Crout, inner products): `a_ij - sum of l_ik u_kj over k < min(i, j)`,
    /// divided by the pivot in L. The right-hand side is one more column: forward substitution goes
    /// along with the factorisation.
    fn build(pattern: &FactorPattern, goes_forward: bool) -> Self {
        let nrows = pattern.nrows();
        let places = Places::with_parts(pattern.nnz(), nrows, 0);
        let mut builder = GraphBuilder {
            graph: Self::default(),
            maker: vec![NONE; places.len],
            step: Vec::new(),
        };
        let mut in_row = vec![usize::MAX; nrows];
        let mut products: Vec<Vec<(u32, u32)>> = Vec::new();
        let pivot = |row: usize| pattern.diag()[row];
        let y = |row: usize| places.y + row as u32;
        for row in 0..nrows {
            let entries = pattern.lower(row).start..pattern.upper(row).end;
            for (position, k) in entries.clone().enumerate() {
                in_row[pattern.cols()[k] as usize] = position;
            }
            products.clear();
            products.resize(entries.len(), Vec::new());
            for k in pattern.lower(row) {
                for other in pattern.upper(pattern.cols()[k] as usize) {
                    let position = in_row[pattern.cols()[other] as usize];
                    if position != usize::MAX {
                        products[position].push((k as u32, other as u32));
                    }
                }
            }
            for (own, k) in products.iter().zip(entries.clone()) {
                let col = pattern.cols()[k] as usize;
                in_row[col] = usize::MAX;
                builder.push(k as u32, if col < row { pivot(col) } else { NONE }, own);
            }
            if goes_forward {
                let known: Vec<(u32, u32)> =
                    pattern.lower(row).map(|k| (k as u32, y(pattern.cols()[k] as usize))).collect();
                builder.push(y(row), NONE, &known);
            }
        }
        builder.graph
    }

    /// Length of the longest chain of targets that depend on each other.
    pub(super) fn depth(&self) -> usize {
        let mut step: Vec<usize> = Vec::with_capacity(self.targets.len());
        let mut most = 0;
        for target in &self.targets {
            let operands = &self.products[target.products.clone()];
            let own = operands
                .iter()
                .flat_map(|product| product.makers)
                .chain([target.divisor_maker])
                .filter(|&maker| maker != NONE)
                .map(|maker| step[maker as usize])
                .max()
                .unwrap_or(0);
            step.push(own + 1);
            most = most.max(own + 1);
        }
        most
    }
}

/// `value[place] -= the sum of products of places`.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    pub(super) place: u32,
    pub(super) pairs: Vec<(u32, u32)>,
}

/// `r -= A x` as two steps of sums of products: first short rows and the parts of long rows, then
/// the sums of the parts of each long row.
pub(super) fn residual(
    a: CsrPatternRef<'_>,
    pattern: &FactorPattern,
    places: Places,
) -> [Vec<Sum>; 2] {
    let mut place = vec![0; a.nnz()];
    for (k, &source) in pattern.source().iter().enumerate() {
        if source != NO_SOURCE {
            place[source as usize] = k as u32;
        }
    }
    let mut eliminated = vec![0; pattern.nrows()];
    for (position, &row) in pattern.perm().iter().enumerate() {
        eliminated[row as usize] = position as u32;
    }
    let x = |k: usize| places.y + eliminated[a.col_idx()[k] as usize];
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut part = places.parts;
    for row in 0..a.nrows() {
        let pairs: Vec<(u32, u32)> = a.row(row).map(|k| (place[k], x(k))).collect();
        let own = places.r + row as u32;
        if pairs.len() <= PRODUCTS {
            first.push(Sum { place: own, pairs });
            continue;
        }
        let mut parts = Vec::new();
        for some in pairs.chunks(PRODUCTS) {
            first.push(Sum { place: part, pairs: some.to_vec() });
            parts.push((part, places.minus_one()));
            part += 1;
        }
        second.push(Sum { place: own, pairs: parts });
    }
    debug_assert_eq!(part, places.minus_one());
    [first, second]
}

/// The place of each entry of A, then the places of the other entries of L + U.
pub(super) fn targets(pattern: &FactorPattern) -> Vec<u32> {
    let nnz = pattern.source().iter().filter(|&&source| source != NO_SOURCE).count();
    let mut targets = vec![0; nnz];
    for (k, &source) in pattern.source().iter().enumerate() {
        if source == NO_SOURCE {
            targets.push(k as u32);
        } else {
            targets[source as usize] = k as u32;
        }
    }
    targets
}
