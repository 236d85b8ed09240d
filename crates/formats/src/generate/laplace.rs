//! Laplacians on regular grids.

use std::sync::Arc;

use crate::error::check_i32;
use crate::{Csr, CsrPattern, FormatError, Matrix, Pattern};

/// Which neighbours a grid point is coupled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stencil {
    /// 1-D: left and right.
    Point3,
    /// 2-D: the 4 neighbours along the axes.
    Point5,
    /// 2-D: all 8 neighbours.
    Point9,
    /// 3-D: the 6 neighbours along the axes.
    Point7,
    /// 3-D: all 26 neighbours.
    Point27,
}

impl Stencil {
    /// The stencil with that many points.
    ///
    /// # Errors
    /// [`FormatError::Parameter`] unless `points` is 3, 5, 7, 9 or 27.
    pub fn from_points(points: usize) -> Result<Self, FormatError> {
        match points {
            3 => Ok(Self::Point3),
            5 => Ok(Self::Point5),
            7 => Ok(Self::Point7),
            9 => Ok(Self::Point9),
            27 => Ok(Self::Point27),
            _ => Err(FormatError::Parameter {
                name: "stencil",
                expected: "3, 5, 7, 9 or 27 points",
                found: points.to_string(),
            }),
        }
    }

    /// Points of the stencil, the centre included.
    pub fn points(self) -> usize {
        match self {
            Self::Point3 => 3,
            Self::Point5 => 5,
            Self::Point7 => 7,
            Self::Point9 => 9,
            Self::Point27 => 27,
        }
    }

    /// Dimensions of its grid.
    pub fn dimensions(self) -> usize {
        match self {
            Self::Point3 => 1,
            Self::Point5 | Self::Point9 => 2,
            Self::Point7 | Self::Point27 => 3,
        }
    }

    fn is_box(self) -> bool {
        matches!(self, Self::Point9 | Self::Point27)
    }
}

/// The Laplacian of a k-point stencil on a grid with zero boundary values: k - 1 on the diagonal,
/// -1 for each neighbour inside the grid. Symmetric, positive definite.
///
/// `grid` holds the number of points along each axis, x first; row `(z * ny + y) * nx + x` is grid
/// point (x, y, z).
///
/// # Errors
/// [`FormatError::Parameter`] when `grid` has another dimension than the stencil,
/// [`FormatError::TooLarge`] when rows or entries exceed `i32`.
///
/// # Examples
/// ```
/// use sparsebatch_formats::generate::{Stencil, laplace};
/// let a = laplace(Stencil::Point3, &[3])?;
/// assert_eq!(a.values(), [2.0, -1.0, -1.0, 2.0, -1.0, -1.0, 2.0]);
/// # Ok::<(), sparsebatch_formats::FormatError>(())
/// ```
///
/// # Source
/// Bell and Garland 2009 (doi 10.1145/1654059.1654078), Table 2.
pub fn laplace(stencil: Stencil, grid: &[usize]) -> Result<Csr<f64>, FormatError> {
    if grid.len() != stencil.dimensions() {
        return Err(FormatError::Parameter {
            name: "grid",
            expected: match stencil.dimensions() {
                1 => "one number of points for a 3-point stencil",
                2 => "two numbers of points for a 5- or 9-point stencil",
                _ => "three numbers of points for a 7- or 27-point stencil",
            },
            found: format!("{} numbers", grid.len()),
        });
    }
    let mut extents = [1; 3];
    extents[..grid.len()].copy_from_slice(grid);
    let is_box = stencil.is_box();
    let pattern = grid_pattern(extents, |[x, y, z]| is_box || x.abs() + y.abs() + z.abs() <= 1)?;
    let diagonal = (stencil.points() - 1) as f64;
    let view = pattern.view();
    let mut values = Vec::with_capacity(pattern.nnz());
    for row in 0..view.nrows() {
        values.extend(
            view.col_idx()[view.row(row)]
                .iter()
                .map(|&col| if col as usize == row { diagonal } else { -1.0 }),
        );
    }
    Matrix::from_parts(Arc::new(pattern), values)
}

/// The pattern that couples each grid point to those of its 27 neighbours (itself included) that
/// lie inside the grid and whose offset `[x, y, z]` `accepts` allows.
pub(super) fn grid_pattern(
    extents: [usize; 3],
    accepts: impl Fn([i64; 3]) -> bool,
) -> Result<CsrPattern, FormatError> {
    for extent in extents {
        check_i32("grid", extent)?;
    }
    let check = |what, count: u128| check_i32(what, usize::try_from(count).unwrap_or(usize::MAX));
    let nrows = extents.iter().map(|&extent| extent as u128).product();
    check("nrows", nrows)?;
    let nrows = nrows as usize;
    // The exact number of entries: for each accepted offset, the points whose neighbour is inside.
    let mut distances = Vec::new();
    let mut nnz = 0u128;
    for z in -1..=1i64 {
        for y in -1..=1i64 {
            for x in -1..=1i64 {
                if accepts([x, y, z]) {
                    distances.push([x, y, z]);
                    nnz += std::iter::zip(extents, [x, y, z])
                        .map(|(extent, d)| {
                            (extent as u128).saturating_sub(u128::from(d.unsigned_abs()))
                        })
                        .product::<u128>();
                }
            }
        }
    }
    check("nnz", nnz)?;
    let [nx, ny, nz] = extents.map(|extent| extent as i64);
    let mut row_ptr = Vec::with_capacity(nrows + 1);
    let mut col_idx = Vec::with_capacity(nnz as usize);
    row_ptr.push(0);
    for z in 0..nz {
        for y in 0..ny {
            for x in 0..nx {
                for &[dx, dy, dz] in &distances {
                    let (x, y, z) = (x + dx, y + dy, z + dz);
                    if (0..nx).contains(&x) && (0..ny).contains(&y) && (0..nz).contains(&z) {
                        col_idx.push(((z * ny + y) * nx + x) as i32);
                    }
                }
                row_ptr.push(col_idx.len() as i32);
            }
        }
    }
    CsrPattern::try_new(nrows, nrows, row_ptr, col_idx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_points_on_a_small_grid() {
        let a = laplace(Stencil::Point5, &[3, 2]).unwrap();

        assert_eq!(a.row_ptr(), [0, 3, 7, 10, 13, 17, 20]);
        assert_eq!(a.col_idx()[3..7], [0, 1, 2, 4]);
        assert_eq!(a.values()[3..7], [-1.0, 4.0, -1.0, -1.0]);
        assert_eq!(a.transpose(), a);
    }

    #[test]
    fn entry_counts_follow_the_formulas() {
        let nnz = |stencil, grid: &[usize]| laplace(stencil, grid).unwrap().nnz();

        assert_eq!(nnz(Stencil::Point3, &[1000]), 2998);
        assert_eq!(nnz(Stencil::Point5, &[30, 20]), 5 * 600 - 2 * 30 - 2 * 20);
        assert_eq!(nnz(Stencil::Point9, &[30, 20]), (3 * 30 - 2) * (3 * 20 - 2));
        assert_eq!(nnz(Stencil::Point7, &[10, 10, 10]), 7 * 1000 - 6 * 100);
        assert_eq!(nnz(Stencil::Point27, &[10, 11, 12]), 28 * 31 * 34);
        assert_eq!(nnz(Stencil::Point3, &[0]), 0);
        assert_eq!(nnz(Stencil::Point27, &[1, 1, 1]), 1);
    }

    #[test]
    fn the_published_seven_point_matrix_has_6940000_entries() {
        let a = laplace(Stencil::Point7, &[100, 100, 100]).unwrap();

        assert_eq!((a.nrows(), a.nnz()), (1_000_000, 6_940_000));
    }

    #[test]
    fn grids_that_do_not_fit_are_refused() {
        assert!(matches!(
            laplace(Stencil::Point7, &[10, 10]),
            Err(FormatError::Parameter { name: "grid", .. })
        ));
        assert!(matches!(
            laplace(Stencil::Point5, &[usize::MAX, 0]),
            Err(FormatError::TooLarge { what: "grid", .. })
        ));
        assert!(matches!(
            laplace(Stencil::Point5, &[1 << 20, 1 << 20]),
            Err(FormatError::TooLarge { what: "nrows", .. })
        ));
        assert!(matches!(
            laplace(Stencil::Point27, &[1000, 1000, 1000]),
            Err(FormatError::TooLarge { what: "nnz", .. })
        ));
        assert!(Stencil::from_points(11).is_err());
    }
}
