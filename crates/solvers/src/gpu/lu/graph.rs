//! Elimination on a pattern as sums of products that wait for each other.

use std::ops::Range;

use sparsebatch_cpu_ref::symbolic::{FactorPattern, NO_SOURCE};
use sparsebatch_formats::CsrPatternRef;

/// No place, no target.
pub(super) const NONE: u32 = u32::MAX;

/// Where the values of a system are during its solve: L + U row by row, the right-hand side in the
/// order of elimination, which becomes the solution, the residual in the order of the matrix, and a 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// The first place of the right-hand side.
    pub(super) y: u32,
    /// The first place of the residual.
    pub(super) r: u32,
    /// How many there are. The last one is the 0.
    pub(super) len: usize,
}

impl Places {
    /// For L + U of so many entries, and so many rows.
    pub(super) fn new(nnz: usize, nrows: usize) -> Self {
        Self { y: nnz as u32, r: (nnz + nrows) as u32, len: nnz + 2 * nrows + 1 }
    }
}

/// The product of two places, and the targets that make them; [`NONE`] what is there from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Product {
    pub(super) left: u32,
    pub(super) right: u32,
    pub(super) makers: [u32; 2],
}

/// `value[place] -= the sum of its products`, then divided by `value[divisor]`.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) place: u32,
    pub(super) divisor: u32,
    /// The target that makes the divisor.
    pub(super) divisor_maker: u32,
    /// Its products among [`Graph::products`], in the order in which they are subtracted.
    pub(super) products: Range<usize>,
}

/// All targets, those that others wait for first.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) targets: Vec<Target>,
    pub(super) products: Vec<Product>,
}

struct Builder {
    graph: Graph,
    /// The target that makes a place.
    maker: Vec<u32>,
    /// The least step in which a target can be complete, were there threads enough.
    step: Vec<u32>,
}

impl Builder {
    /// Appends a target, unless there is nothing to do.
    fn push(&mut self, place: u32, divisor: u32, products: &[(u32, u32)]) {
        if products.is_empty() && divisor == NONE {
            return;
        }
        let graph = &mut self.graph;
        let first = graph.products.len();
        let maker = |place: u32| self.maker[place as usize];
        graph.products.extend(products.iter().map(|&(left, right)| Product {
            left,
            right,
            makers: [maker(left), maker(right)],
        }));
        let divisor_maker = if divisor == NONE { NONE } else { maker(divisor) };
        let step = |target: u32| if target == NONE { 0 } else { self.step[target as usize] };
        // What is there first is subtracted first. The order is one of the pattern, not of who works.
        let ready = |product: &Product| product.makers.map(step).into_iter().max().unwrap_or(0);
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

    /// Each entry is one sum (Crout, inner products): `a_ij - sum of l_ik u_kj over k < min(i, j)`, for
    /// L divided by the pivot. The right-hand side is one more column: forward substitution goes along with
    /// the factorisation.
    fn build(pattern: &FactorPattern, goes_forward: bool) -> Self {
        let nrows = pattern.nrows();
        let places = Places::new(pattern.nnz(), nrows);
        let mut builder =
            Builder { graph: Self::default(), maker: vec![NONE; places.len], step: Vec::new() };
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

    /// The most targets that wait for each other in a row.
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

/// Places of the products of `A x`, row by row of A: those of the entries, and those of x.
pub(super) fn rows(a: CsrPatternRef<'_>, pattern: &FactorPattern) -> Vec<Vec<(u32, u32)>> {
    let places = Places::new(pattern.nnz(), pattern.nrows());
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
    (0..a.nrows()).map(|row| a.row(row).map(|k| (place[k], x(k))).collect()).collect()
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
