//! The product of a [`LaneMatrix`] and a vector, over lanes.

use super::matrix::{LaneMatrix, Run, RunKind, Storage};
use crate::simd::{Part, Vector};

impl LaneMatrix {
    /// `y = A x`; each row's products are added in ascending column order from 0.
    #[inline(always)]
    pub(crate) fn product<V: Vector>(&self, values: &[V], x: &[V], y: &mut [V]) {
        V::call(LaneProduct { matrix: self, values, x, y });
    }
}

/// A product to be computed. (The dot product that a solver needs next is a separate pass: fused
/// with the rows it cost 5 to 25 % more.)
struct LaneProduct<'a, V> {
    matrix: &'a LaneMatrix,
    values: &'a [V],
    x: &'a [V],
    y: &'a mut [V],
}

impl<V: Vector> Part for LaneProduct<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        for run in &self.matrix.runs {
            match run.kind {
                RunKind::Shifted { width: 1, starts } => self.shifted::<1>(run, starts),
                RunKind::Shifted { width: 2, starts } => self.shifted::<2>(run, starts),
                RunKind::Shifted { width: 3, starts } => self.shifted::<3>(run, starts),
                RunKind::Shifted { width: 4, starts } => self.shifted::<4>(run, starts),
                RunKind::Shifted { width: 5, starts } => self.shifted::<5>(run, starts),
                RunKind::Shifted { width: 6, starts } => self.shifted::<6>(run, starts),
                RunKind::Shifted { width: 7, starts } => self.shifted::<7>(run, starts),
                RunKind::Shifted { width: _, starts } => self.shifted::<9>(run, starts),
                RunKind::Banded { width: 3, triple: _, starts } => self.banded::<3, 0>(run, starts),
                RunKind::Banded { width: 4, triple: 0, starts } => self.banded::<4, 0>(run, starts),
                RunKind::Banded { width: 4, triple: _, starts } => self.banded::<4, 1>(run, starts),
                RunKind::Banded { width: 5, triple: _, starts } => self.banded::<5, 1>(run, starts),
                RunKind::Banded { width: 6, triple: 1, starts } => self.banded::<6, 1>(run, starts),
                RunKind::Banded { width: 6, triple: _, starts } => self.banded::<6, 2>(run, starts),
                RunKind::Banded { width: _, triple: _, starts } => self.banded::<7, 2>(run, starts),
                RunKind::Equal { width: 5 } => self.equal::<5>(run),
                RunKind::Equal { width: 9 } => self.equal::<9>(run),
                RunKind::Equal { .. } | RunKind::Mixed => self.mixed(run),
            }
        }
    }
}

impl<V: Vector> LaneProduct<'_, V> {
    #[inline(always)]
    fn shifted<const W: usize>(&mut self, run: &Run, starts: u32) {
        let (first, nrows) = (run.first as usize, run.nrows as usize);
        let starts = &self.matrix.starts[starts as usize..];
        let x = windows::<V, W>(self.x, starts, nrows);
        let y = &mut self.y[first..first + nrows];
        match &self.matrix.storage {
            Storage::Rows => {
                let start = self.matrix.row_ptr[first] as usize;
                let rows = &self.values[start..].as_chunks::<W>().0[..nrows];
                for (i, (y, row)) in y.iter_mut().zip(rows).enumerate() {
                    let mut sum = V::zero();
                    for (value, x) in row.iter().zip(&x) {
                        sum = value.mul_add(x[i], sum);
                    }
                    *y = sum;
                }
            }
            Storage::Symmetric { .. } => {
                let diagonals = windows::<V, W>(self.values, &starts[W..], nrows);
                for (i, y) in y.iter_mut().enumerate() {
                    let mut sum = V::zero();
                    for (values, x) in diagonals.iter().zip(&x) {
                        sum = values[i].mul_add(x[i], sum);
                    }
                    *y = sum;
                }
            }
        }
    }

    #[inline(always)]
    fn banded<const W: usize, const T: usize>(&mut self, run: &Run, starts: u32) {
        let (first, nrows) = (run.first as usize, run.nrows as usize);
        let starts = &self.matrix.starts[starts as usize..];
        let x = windows::<V, W>(self.x, starts, nrows);
        let diagonals = windows::<V, W>(self.values, &starts[W..], nrows);
        let (mut left, mut here, mut lower) = (x[T][0], x[T + 1][0], diagonals[T][0]);
        for (i, y) in self.y[first..first + nrows].iter_mut().enumerate() {
            let (right, upper) = (x[T + 2][i], diagonals[T + 2][i]);
            let mut sum = V::zero();
            for k in 0..T {
                sum = diagonals[k][i].mul_add(x[k][i], sum);
            }
            sum = lower.mul_add(left, sum);
            sum = diagonals[T + 1][i].mul_add(here, sum);
            sum = upper.mul_add(right, sum);
            for k in T + 3..W {
                sum = diagonals[k][i].mul_add(x[k][i], sum);
            }
            *y = sum;
            (left, here, lower) = (here, right, upper);
        }
    }

    #[inline(always)]
    fn equal<const W: usize>(&mut self, run: &Run) {
        let mut start = self.matrix.row_ptr[run.first as usize] as usize;
        let cols = &self.matrix.cols;
        let (blocks, rest) =
            self.y[run.first as usize..][..run.nrows as usize].as_chunks_mut::<4>();
        for block in blocks {
            *block = cols.dots::<V, 4, W>(start, self.values, self.x);
            start += 4 * W;
        }
        for y in rest {
            [*y] = cols.dots::<V, 1, W>(start, self.values, self.x);
            start += W;
        }
    }

    #[inline(always)]
    fn mixed(&mut self, run: &Run) {
        let (first, nrows) = (run.first as usize, run.nrows as usize);
        let (values, x) = (self.values, self.x);
        let rows = self.matrix.row_ptr[first..=first + nrows].windows(2);
        let cols = &self.matrix.cols;
        for (y, range) in self.y[first..first + nrows].iter_mut().zip(rows) {
            let range = range[0] as usize..range[1] as usize;
            *y = match range.len() {
                3 => cols.dots::<V, 1, 3>(range.start, values, x)[0],
                4 => cols.dots::<V, 1, 4>(range.start, values, x)[0],
                5 => cols.dots::<V, 1, 5>(range.start, values, x)[0],
                6 => cols.dots::<V, 1, 6>(range.start, values, x)[0],
                7 => cols.dots::<V, 1, 7>(range.start, values, x)[0],
                _ => cols.dot(range, values, x, V::zero()),
            };
        }
    }
}

/// `W` slices of `v` of length `len`, starting at each of `starts`.
#[inline(always)]
fn windows<'v, V, const W: usize>(v: &'v [V], starts: &[u32], len: usize) -> [&'v [V]; W] {
    let mut windows = [v; W];
    for (window, &start) in windows.iter_mut().zip(&starts[..W]) {
        *window = &v[start as usize..][..len];
    }
    windows
}
