//! How the systems of a composed solve are judged: by their matrices, or by products alone.

use std::ops::Range;

use sparsebatch_formats::{Batch, Scalar};
use sparsebatch_solve_core::Criteria;
use sparsebatch_solve_core::verdict::{Check, Entry, System, norm2, scale_of_matrix, threshold};

/// What judges the systems of a composed solve.
pub(crate) enum Judge<'a, T> {
    /// Their matrices, with the rounding errors of residuals bounded.
    Matrices(&'a Batch<T>),
    /// Products of operators. Nothing else is known of the matrices, so that residuals count as
    /// they are computed.
    Products {
        /// The number of rows of each item.
        rows: &'a [usize],
        /// `A x` for the vectors that are judged next.
        product: Vec<T>,
    },
}

impl<T: Scalar> Judge<'_, T> {
    /// Where each system begins in item-major vectors, and their length at the end.
    pub(super) fn offsets(&self, nrhs: usize) -> Vec<usize> {
        let rows: Vec<usize> = match self {
            Self::Matrices(batch) => {
                (0..batch.nitems()).map(|item| batch.pattern(item).nrows()).collect()
            }
            Self::Products { rows, .. } => rows.to_vec(),
        };
        offsets_of(&rows, nrhs)
    }

    /// The number of systems.
    pub(crate) fn systems(&self, nrhs: usize) -> usize {
        let items = match self {
            Self::Matrices(batch) => batch.nitems(),
            Self::Products { rows, .. } => rows.len(),
        };
        items.saturating_mul(nrhs)
    }

    pub(super) fn has_matrices(&self) -> bool {
        matches!(self, Self::Matrices(_))
    }

    /// Where the product goes by which systems are judged; empty if their matrices judge them.
    pub(super) fn product_mut(&mut self) -> &mut [T] {
        match self {
            Self::Matrices(_) => &mut [],
            Self::Products { product, .. } => product,
        }
    }

    /// The exponent e such that the iterations work on `A * 2^-e`.
    pub(super) fn matrix_scale(&self, item: usize) -> i32 {
        match self {
            Self::Matrices(batch) => scale_of_matrix(batch.values_in(item, &mut Vec::new())),
            Self::Products { .. } => 0,
        }
    }

    /// Calls `f` with a system, given its index and that of its item, its rows, and all right-hand
    /// sides.
    pub(super) fn with_system<R>(
        &self,
        (number, item): (usize, usize),
        rows: Range<usize>,
        b: &[T],
        criteria: &Criteria,
        f: impl FnOnce(&JudgedSystem<'_, T>) -> R,
    ) -> R {
        let b = &b[rows.clone()];
        match self {
            Self::Matrices(batch) => {
                let mut copy = Vec::new();
                let values = batch.values_in(item, &mut copy);
                let system = System::new(number, batch.pattern(item), values, b, criteria);
                f(&JudgedSystem::Matrix(system))
            }
            Self::Products { product, .. } => {
                let product = &product[rows];
                f(&JudgedSystem::Product { number, b, product, criteria })
            }
        }
    }
}

/// Where each system begins in item-major vectors, and their length at the end.
pub(crate) fn offsets_of(rows: &[usize], nrhs: usize) -> Vec<usize> {
    let mut offsets = vec![0];
    for &rows in rows {
        for _ in 0..nrhs {
            offsets.push(offsets[offsets.len() - 1] + rows);
        }
    }
    offsets
}

/// One system as its judge sees it.
pub(super) enum JudgedSystem<'a, T> {
    Matrix(System<'a, T>),
    Product { number: usize, b: &'a [T], product: &'a [T], criteria: &'a Criteria },
}

impl<T: Scalar> JudgedSystem<'_, T> {
    /// [`System::enter`].
    pub(super) fn enter(&self, x: &mut [T], r: &mut [T]) -> Entry {
        let (number, b, product, criteria) = match self {
            Self::Matrix(system) => return system.enter(x, r),
            Self::Product { number, b, product, criteria } => (*number, b, product, criteria),
        };
        let rhs_norm = norm2(b);
        if rhs_norm == 0.0 {
            x.fill(T::ZERO);
        }
        let norm = match x.iter().all(|&x| x == T::ZERO) {
            true => {
                r.copy_from_slice(b);
                rhs_norm
            }
            false => subtract(b, product, r),
        };
        let passed = norm <= threshold(number, criteria, rhs_norm);
        Entry::new(number, criteria, rhs_norm, norm, passed)
    }

    /// [`System::check`].
    pub(super) fn check(&self, entry: &Entry, x: &[T], r: &mut [T]) -> Check {
        match self {
            Self::Matrix(system) => system.check(entry, x, r),
            Self::Product { b, product, .. } => {
                let norm = subtract(b, product, r);
                let is_sound = norm.is_finite() && x.iter().all(|x| x.is_finite());
                Check {
                    residual_norm: if is_sound { norm } else { f64::NAN },
                    passed: is_sound && norm <= entry.threshold,
                    floor_passed: false,
                    is_accurate: is_sound,
                }
            }
        }
    }

    /// [`System::keep_better`].
    pub(super) fn keep_better(
        &self,
        entry: &Entry,
        guess: Option<&[T]>,
        check: &mut Check,
        x: &mut [T],
        r: &mut [T],
    ) {
        match self {
            Self::Matrix(system) => system.keep_better(entry, guess, check, x, r),
            Self::Product { .. } if check.residual_norm < entry.residual_norm => {}
            Self::Product { .. } => {
                match guess {
                    Some(guess) => x.copy_from_slice(guess),
                    None => x.fill(T::ZERO),
                }
                check.residual_norm = entry.residual_norm;
            }
        }
    }
}

/// `r = b - product`, and its norm.
fn subtract<T: Scalar>(b: &[T], product: &[T], r: &mut [T]) -> f64 {
    for ((r, &b), &product) in r.iter_mut().zip(b).zip(product) {
        *r = b - product;
    }
    norm2(r)
}
