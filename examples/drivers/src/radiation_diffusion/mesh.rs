//! Rectangular meshes, and the topology that meshes of one shape share: faces and the matrix
//! pattern.

use std::sync::Arc;

use sparsebatch::CsrPattern;

use super::error::{Error, positive};

/// Cells of a rectangular mesh, `nx` along x times `ny` along y; cell `j * nx + i`. A ray is a mesh
/// with `ny = 1`, of unit width.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// Widths along x, `nx` of them.
    dx: Vec<f64>,
    /// Widths along y, `ny` of them.
    dy: Vec<f64>,
}

impl Mesh {
    /// A ray of `cells` cells over `[0, length]`, with faces at `length (R^(i/n) - 1) / (R - 1)`:
    /// the last cell is about `R = ratio` times as wide as the first, and cells halve when their
    /// number is doubled.
    ///
    /// # Errors
    /// [`Error::Input`] without cells, or when a length or the ratio is not positive.
    pub(crate) fn ray(cells: usize, length: f64, ratio: f64) -> Result<Self, Error> {
        Self::rectangle([cells, 1], [length, 1.0], ratio)
    }

    /// A mesh of `cells` over `lengths`: along x graded as [`Mesh::ray`], along y uniform.
    ///
    /// # Errors
    /// As [`Mesh::ray`].
    pub(crate) fn rectangle(
        cells: [usize; 2],
        lengths: [f64; 2],
        ratio: f64,
    ) -> Result<Self, Error> {
        if cells.contains(&0) {
            return Err(Error::input("the mesh has 0 cells, expected at least 1"));
        }
        // Local indices and the number of entries, five per row, are 32-bit.
        if cells[0].checked_mul(cells[1]).is_none_or(|n| n > i32::MAX as usize / 5) {
            return Err(Error::input(format!(
                "the mesh has {} x {} cells, expected at most {} in all",
                cells[0],
                cells[1],
                i32::MAX / 5
            )));
        }
        positive("the length of the domain", lengths[0])?;
        positive("the width of the domain", lengths[1])?;
        positive("the ratio of the widest cell to the narrowest", ratio)?;
        let [nx, ny] = cells;
        let face = |i: usize| {
            let s = i as f64 / nx as f64;
            let along =
                if ratio == 1.0 { s } else { (s * ratio.ln()).exp_m1() / ratio.ln().exp_m1() };
            lengths[0] * along
        };
        let dx: Vec<f64> = (0..nx).map(|i| face(i + 1) - face(i)).collect();
        positive("the area of the domain", lengths[0] * lengths[1])?;
        let dy = lengths[1] / ny as f64;
        if dx.iter().any(|&h| (h * dy).is_nan() || h * dy < f64::MIN_POSITIVE) {
            return Err(Error::input(format!(
                "{nx} x {ny} cells over {} x {} with a ratio of {ratio} vanish, expected a wider domain",
                lengths[0], lengths[1]
            )));
        }
        Ok(Self { dx, dy: vec![dy; ny] })
    }

    /// Numbers of cells along x and along y.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.dx.len(), self.dy.len()]
    }

    /// Number of cells.
    pub(crate) fn cells(&self) -> usize {
        self.dx.len() * self.dy.len()
    }

    /// Widths of a cell along x and y.
    pub fn widths(&self, cell: usize) -> [f64; 2] {
        [self.dx[cell % self.dx.len()], self.dy[cell / self.dx.len()]]
    }

    /// Volume of a cell.
    pub(crate) fn volume(&self, cell: usize) -> f64 {
        let [dx, dy] = self.widths(cell);
        dx * dy
    }

    /// Positions of the faces along an axis, 0 for x; one more than cells.
    pub(crate) fn faces(&self, axis: usize) -> Vec<f64> {
        let widths = if axis == 0 { &self.dx } else { &self.dy };
        let mut face = 0.0;
        let next = widths.iter().map(|h| {
            face += h;
            face
        });
        std::iter::once(0.0).chain(next).collect()
    }

    /// Positions of the cell centres along an axis, 0 for x.
    pub fn centres(&self, axis: usize) -> Vec<f64> {
        self.faces(axis).windows(2).map(|faces| (faces[0] + faces[1]) / 2.0).collect()
    }
}

/// A face between two cells.
#[derive(Clone, Copy, Debug)]
pub struct Face {
    /// The cell with the lower number.
    pub a: usize,
    /// The cell with the higher number.
    pub b: usize,
    /// 0 when `b` follows `a` along x, 1 along y.
    pub axis: usize,
    /// Indices of the matrix entries `(a, b)` and `(b, a)`.
    slots: [usize; 2],
}

/// The topology that meshes of one shape share.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Faces between cells.
    pub faces: Vec<Face>,
    /// Number of cells along x; cell `j * nx` is at the left boundary.
    pub nx: usize,
    /// Number of cells along y.
    pub ny: usize,
    /// The matrix pattern: three or five points per row, ascending.
    pub pattern: Arc<CsrPattern>,
    /// Indices of the diagonal entries of the matrix.
    diagonal: Vec<usize>,
}

impl Topology {
    /// Makes the topology of meshes of `nx` times `ny` cells.
    ///
    /// # Errors
    /// [`Error::Input`] when the pattern is too large.
    pub(crate) fn new([nx, ny]: [usize; 2]) -> Result<Self, Error> {
        let cells = nx * ny;
        let mut row_ptr = vec![0];
        let mut col_idx = Vec::new();
        let mut diagonal = Vec::with_capacity(cells);
        // For each cell: the positions in its row of the neighbours before and behind along x, then
        // along y.
        let mut slots = vec![[[0; 2]; 2]; cells];
        for (cell, slots) in slots.iter_mut().enumerate() {
            let (i, j) = (cell % nx, cell / nx);
            let neighbours = [
                (j > 0, cell.wrapping_sub(nx), Some((1, 0))),
                (i > 0, cell.wrapping_sub(1), Some((0, 0))),
                (true, cell, None),
                (i + 1 < nx, cell + 1, Some((0, 1))),
                (j + 1 < ny, cell + nx, Some((1, 1))),
            ];
            for (_, column, side) in neighbours.into_iter().filter(|n| n.0) {
                match side {
                    None => diagonal.push(col_idx.len()),
                    Some((axis, side)) => slots[axis][side] = col_idx.len(),
                }
                col_idx.push(column as i32);
            }
            row_ptr.push(col_idx.len() as i32);
        }
        let mut faces = Vec::new();
        for a in 0..cells {
            for (axis, b, inside) in [(0, a + 1, a % nx + 1 < nx), (1, a + nx, a + nx < cells)] {
                if inside {
                    faces.push(Face { a, b, axis, slots: [slots[a][axis][1], slots[b][axis][0]] });
                }
            }
        }
        let pattern = Arc::new(CsrPattern::try_new(cells, cells, row_ptr, col_idx)?);
        Ok(Self { faces, nx, ny, pattern, diagonal })
    }

    /// Number of cells.
    pub(crate) fn cells(&self) -> usize {
        self.nx * self.ny
    }

    /// Computes the values of a matrix: the flows through faces between cells (`through`) and out
    /// of the left boundary (`left`), with `reaction` on the diagonal.
    pub(crate) fn fill(&self, through: &[f64], left: &[f64], reaction: &[f64], values: &mut [f64]) {
        for (&slot, &reaction) in self.diagonal.iter().zip(reaction) {
            values[slot] = reaction;
        }
        for (j, &left) in left.iter().enumerate() {
            values[self.diagonal[j * self.nx]] += left;
        }
        for (face, &c) in self.faces.iter().zip(through) {
            values[self.diagonal[face.a]] += c;
            values[self.diagonal[face.b]] += c;
            values[face.slots[0]] = -c;
            values[face.slots[1]] = -c;
        }
    }

    /// The product with the matrix of [`Topology::fill`], as a sum of flows, so that the flow out
    /// of a cell enters its neighbour exactly.
    pub(crate) fn apply(
        &self,
        through: &[f64],
        left: &[f64],
        reaction: &[f64],
        u: &[f64],
        out: &mut [f64],
    ) {
        for ((out, &reaction), &u) in out.iter_mut().zip(reaction).zip(u) {
            *out = reaction * u;
        }
        for (j, &left) in left.iter().enumerate() {
            out[j * self.nx] += left * u[j * self.nx];
        }
        for (face, &c) in self.faces.iter().zip(through) {
            let flow = c * (u[face.a] - u[face.b]);
            out[face.a] += flow;
            out[face.b] -= flow;
        }
    }
}
