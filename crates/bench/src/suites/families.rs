//! Uniform batches that are multiplied and solved: the families of problems, and single symmetric
//! matrices.

use std::sync::{Arc, OnceLock};

use sparsebatch_formats::generate::{self, Family, dense, rng, spd};
use sparsebatch_formats::{Batch, Csr, FormatError};
use sparsebatch_solvers::{Method, Preconditioner, SolveOptions};

use super::one_matrix::ReferenceProduct;
use sparsebatch_rows::solves::families::family_name;

use super::solver_cases::{SolverCase, SystemSource};
use crate::BenchError;
use crate::parallel;
use crate::session::Problem;
use crate::solves::systems::Systems;

/// Number of systems of a batch that are checked.
const CHECKED: usize = 100;

/// Seed of symmetric matrices.
const SEED: u64 = 1;

/// Systems of one pattern with their right-hand sides; products multiply the matrices by the
/// right-hand sides.
pub(super) struct Systemed {
    pub(super) name: String,
    pub(super) systems: Systems<f64>,
    is_symmetric: bool,
    /// The products of systems spread over the batch, computed when the first answer is checked.
    references: OnceLock<Vec<(usize, ReferenceProduct<f64>)>>,
}

impl Systemed {
    /// The first `nitems` systems of a family.
    ///
    /// # Errors
    /// When the family has no such size; when memory is short.
    pub(super) fn family(family: Family, nrows: usize, nitems: usize) -> Result<Self, BenchError> {
        let name = family_name((family, nrows));
        let source = SystemSource::Family(family, nrows);
        let case = SolverCase { name: name.clone(), source, batches: vec![nitems] };
        let is_symmetric = family != Family::Rand9;
        let systems = case.systems()?;
        Ok(Self { name, systems, is_symmetric, references: OnceLock::new() })
    }

    /// A stand-in for `nitems` systems of a family that is enough for making plans: all values are
    /// 1, stored once.
    ///
    /// # Errors
    /// As [`Systemed::family`].
    pub(super) fn like(family: Family, nrows: usize, nitems: usize) -> Result<Self, BenchError> {
        let problem = generate::Problem::new(family, nrows)?;
        let systems = Systems::like(Arc::clone(problem.pattern()), nitems)?;
        let (name, is_symmetric) = (family_name((family, nrows)), family != Family::Rand9);
        Ok(Self { name, systems, is_symmetric, references: OnceLock::new() })
    }

    /// One symmetric positive definite matrix with `draws` random entries per row. With `draws`
    /// equal to `nrows` the matrix is full.
    ///
    /// # Errors
    /// When memory is short.
    pub(super) fn symmetric(nrows: usize, draws: usize) -> Result<Self, BenchError> {
        let matrix = if draws < nrows { spd(nrows, draws, SEED)? } else { full(nrows)? };
        let name = format!("spd {}", matrix.nnz());
        let (pattern, values) = matrix.into_parts();
        let b = (0..nrows as u64).map(|row| 2.0 * rng::uniform(96, 0, row) - 1.0).collect();
        let systems = Systems::uniform(pattern, 1, values, b)?;
        Ok(Self { name, systems, is_symmetric: true, references: OnceLock::new() })
    }

    /// The matrices.
    pub(super) fn batch(&self) -> &Batch<f64> {
        &self.systems.batch
    }

    /// The vectors that they are multiplied with.
    pub(super) fn x(&self) -> &[f64] {
        &self.systems.b
    }

    /// The batch as a `Problem` of products.
    pub(super) fn problem<'a>(
        &'a self,
        experiment: Option<&'a str>,
        oracle: &'a dyn Fn(&[f64]) -> Option<String>,
    ) -> Problem<'a> {
        let batch = self.batch();
        let nitems = batch.nitems();
        let nrows = batch.row_offset(nitems);
        let nnz = self.systems.values().len();
        let case = &self.name;
        Problem { case, experiment, batch: nitems, nrows, ncols: nrows, nnz, oracle }
    }

    /// Describes the first error in a product, if any, from sampled systems of the batch.
    pub(super) fn wrong(&self, y: &[f64]) -> Option<String> {
        let batch = self.batch();
        let references = self.references.get_or_init(|| {
            let nitems = batch.nitems();
            let step = nitems.div_ceil(CHECKED).max(1);
            let items: Vec<usize> =
                (0..nitems).step_by(step).chain(nitems.checked_sub(1)).collect();
            let reference = |at: usize| {
                let item = items[at];
                let x = &self.x()[batch.rows(item)];
                let reference = match batch {
                    Batch::Uniform(batch) => ReferenceProduct::new(batch.to_matrix(item).view(), x),
                    Batch::Ragged(batch) => ReferenceProduct::new(batch.item(item), x),
                };
                (item, reference)
            };
            parallel::map(items.len(), reference)
        });
        let wrong = |at: usize| {
            let (item, reference) = &references[at];
            let rows = batch.row_offset(*item)..batch.row_offset(item + 1);
            Some(format!("item {item}, {}", reference.wrong(&y[rows])?))
        };
        parallel::map(references.len(), wrong).into_iter().flatten().next()
    }

    /// Solve options: CG where the matrices are symmetric, else BiCGStab; with Jacobi.
    pub(super) fn solve(&self) -> SolveOptions {
        let method = if self.is_symmetric { Method::Cg } else { Method::BiCgStab };
        SolveOptions::new().method(method).preconditioner(Preconditioner::Jacobi)
    }
}

/// A full symmetric matrix with off-diagonal values uniform in [-1, 1); the diagonal is the order,
/// so that it is positive definite.
fn full(order: usize) -> Result<Csr<f64>, FormatError> {
    let (pattern, mut values) = dense(order, order, SEED)?.into_parts();
    mirror(order, &mut values);
    for row in 0..order {
        values[row * order + row] = order as f64;
    }
    Csr::from_parts(pattern, values)
}

/// Makes a full matrix symmetric: each value below the diagonal becomes that of its mirror image
/// above it, in blocks that fit into a cache.
fn mirror(order: usize, values: &mut [f64]) {
    const SIDE: usize = 64;
    for rows in (0..order).step_by(SIDE) {
        for cols in (0..=rows).step_by(SIDE) {
            for row in rows..(rows + SIDE).min(order) {
                for col in cols..(cols + SIDE).min(row) {
                    values[row * order + col] = values[col * order + row];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_checked_system_by_system() {
        let tri = Systemed::family(Family::Tri, 5, 3).unwrap();
        let oracle = |y: &[f64]| tri.wrong(y);
        let problem = tri.problem(None, &oracle);
        let Batch::Uniform(batch) = tri.batch() else { panic!("of one pattern") };
        let mut y = vec![0.0; 15];
        sparsebatch_cpu_ref::seq::batch_spmv(1.0, batch, 1, tri.x(), 0.0, &mut y).unwrap();

        assert_eq!((problem.nrows, problem.nnz, problem.batch), (15, 39, 3));
        assert_eq!(tri.wrong(&y), None);
        y[11] += 1e-9;
        assert!(tri.wrong(&y).unwrap().starts_with("item 2, row 1: "));
    }

    #[test]
    fn with_all_places_stored_a_matrix_is_symmetric_and_dominated_by_its_diagonal() {
        let order = 200;
        let made = Systemed::symmetric(order, order).unwrap();

        let Batch::Uniform(batch) = made.batch() else { panic!("of one pattern") };
        let matrix = batch.to_matrix(0);
        assert_eq!((made.name.as_str(), matrix.nnz()), ("spd 40000", 40_000));
        let value = |row: usize, col: usize| matrix.values()[order * row + col];
        for row in 0..order {
            let others: f64 =
                (0..order).filter(|&col| col != row).map(|col| value(row, col).abs()).sum();
            assert!(value(row, row) > others);
            assert!((0..order).all(|col| value(row, col) == value(col, row)));
        }
    }

    #[test]
    fn symmetric_matrices_are_solved_by_cg_others_by_bicgstab() {
        let method = |systems: Systemed| systems.solve().method;

        assert_eq!(method(Systemed::symmetric(20, 2).unwrap()), Method::Cg);
        assert_eq!(method(Systemed::family(Family::Rand9, 9, 1).unwrap()), Method::BiCgStab);
        assert!(Systemed::family(Family::Lap2d, 10, 1).is_err());
        assert_eq!(method(Systemed::like(Family::Rand9, 9, 1).unwrap()), Method::BiCgStab);
    }
}
