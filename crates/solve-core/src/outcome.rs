//! How a solve of one system ended: [`Status`] and [`Outcome`].

use std::fmt;

use crate::argument::check_len;
use crate::{ArgumentError, Watch};

/// How the solve of one system ended. The names are the same in Rust, JSON and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
#[non_exhaustive]
pub enum Status {
    /// The true residual, recomputed from `b - A x`, passes the test.
    Converged = 0,
    /// The iteration limit was reached first.
    MaxIterations = 1,
    /// `r'z` (CG) or `r^'r` (BiCGStab) vanished: no next direction exists.
    BreakdownRho = 2,
    /// BiCGStab's stabilising step vanished: `t't` or `t's` is zero.
    BreakdownOmega = 3,
    /// BiCGStab's `r^'v` vanished.
    BreakdownAlpha = 4,
    /// NaN or an infinity, in the input or by overflow inside the solve.
    NonFinite = 5,
    /// CG met `p'Ap <= 0` or a negative `r'z`: the matrix, or the preconditioner made of it, is not
    /// positive definite.
    Indefinite = 6,
    /// The preconditioner needs a diagonal entry that is zero or not stored.
    ZeroDiagonal = 7,
    /// The preconditioner met a zero or (IC(0)) negative pivot, or a singular block.
    SingularPreconditioner = 8,
    /// LU with partial pivoting found no solution, and the matrix is singular to working precision.
    Singular = 9,
    /// The recurrence passed the test and the true residual did not, after all restarts.
    Stagnated = 10,
    /// The sparse LU, which does not choose pivots by their values, met a zero pivot: the matrix
    /// may be singular or not.
    ZeroPivot = 11,
}

impl Status {
    /// Every status, in the order of their codes.
    pub const ALL: &[Self] = &[
        Self::Converged,
        Self::MaxIterations,
        Self::BreakdownRho,
        Self::BreakdownOmega,
        Self::BreakdownAlpha,
        Self::NonFinite,
        Self::Indefinite,
        Self::ZeroDiagonal,
        Self::SingularPreconditioner,
        Self::Singular,
        Self::Stagnated,
        Self::ZeroPivot,
    ];

    /// The name, as in Rust.
    pub fn name(self) -> &'static str {
        match self {
            Self::Converged => "Converged",
            Self::MaxIterations => "MaxIterations",
            Self::BreakdownRho => "BreakdownRho",
            Self::BreakdownOmega => "BreakdownOmega",
            Self::BreakdownAlpha => "BreakdownAlpha",
            Self::NonFinite => "NonFinite",
            Self::Indefinite => "Indefinite",
            Self::ZeroDiagonal => "ZeroDiagonal",
            Self::SingularPreconditioner => "SingularPreconditioner",
            Self::Singular => "Singular",
            Self::Stagnated => "Stagnated",
            Self::ZeroPivot => "ZeroPivot",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is known of one system after a solve.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Outcome {
    /// How the solve ended.
    pub status: Status,
    /// Iterations, restarts included. An iteration of CG has one product, of BiCGStab two.
    pub iterations: u32,
    /// Number of restarts from the true residual.
    pub restarts: u32,
    /// `||b - A x||_2`, recomputed from the returned `x`; NaN when it is not finite. It is
    /// evaluated in the working precision, or in twofold precision where rounding might decide the
    /// status.
    pub residual_norm: f64,
    /// `||b||_2`.
    pub rhs_norm: f64,
    /// Whether the system converged by the rounding floor, not by the tolerance.
    pub accepted_by_floor: bool,
    /// Norm of the recurrence's residual before the first iteration and after each one; empty
    /// unless asked for.
    pub history: Vec<f64>,
}

impl Outcome {
    /// The outcome of a system that a stopped solve did not begin: no iterations, norms NaN.
    #[doc(hidden)]
    pub fn not_begun() -> Self {
        Self {
            status: Status::MaxIterations,
            iterations: 0,
            restarts: 0,
            residual_norm: f64::NAN,
            rhs_norm: f64::NAN,
            accepted_by_floor: false,
            history: Vec::new(),
        }
    }

    /// `||b - A x||_2 / ||b||_2`; 0 when both vanish.
    pub fn relative_residual(&self) -> f64 {
        if self.residual_norm == 0.0 { 0.0 } else { self.residual_norm / self.rhs_norm }
    }
}

/// One value for all systems, or one for each.
#[derive(Clone, Debug, PartialEq)]
pub enum PerSystem<V> {
    /// The same for all.
    All(V),
    /// One per system, in the batch's order.
    Each(Vec<V>),
}

impl<V: Copy> PerSystem<V> {
    /// The value of one system.
    ///
    /// # Panics
    /// When values are given per system and `system` is out of range.
    pub fn get(&self, system: usize) -> V {
        match self {
            Self::All(value) => *value,
            Self::Each(values) => values[system],
        }
    }

    /// The values: one for all, or one per system.
    pub fn values(&self) -> &[V] {
        match self {
            Self::All(value) => std::slice::from_ref(value),
            Self::Each(values) => values,
        }
    }

    /// The values of some systems.
    ///
    /// # Panics
    /// As [`PerSystem::get`].
    #[must_use]
    pub fn pick(&self, systems: &[usize]) -> Self {
        match self {
            Self::All(value) => Self::All(*value),
            Self::Each(values) => {
                Self::Each(systems.iter().map(|&system| values[system]).collect())
            }
        }
    }

    /// Checks that there is a value for each of `systems` systems.
    fn check(&self, what: &'static str, systems: usize) -> Result<(), ArgumentError> {
        match self {
            Self::All(_) => Ok(()),
            Self::Each(values) => check_len(what, systems, values.len()),
        }
    }
}

macro_rules! per_system {
    ($($t:ty),+) => {$(
        impl From<$t> for PerSystem<$t> {
            fn from(value: $t) -> Self {
                Self::All(value)
            }
        }

        impl From<Vec<$t>> for PerSystem<$t> {
            fn from(values: Vec<$t>) -> Self {
                Self::Each(values)
            }
        }
    )+};
}
per_system!(f64, u32);

/// When an iterative solve of a system ends.
///
/// The test is `||b - A x||_2 <= max(abs_tol, rel_tol * ||b||_2)`. It is applied on entry, after
/// each iteration to the recurrence's residual, and before a system counts as converged to the
/// recomputed residual plus a bound of its rounding error.
#[derive(Clone, Debug, PartialEq)]
pub struct Criteria {
    /// Relative to `||b||_2`.
    pub rel_tol: PerSystem<f64>,
    /// Absolute.
    pub abs_tol: PerSystem<f64>,
    /// Iteration limit, restarts included.
    pub max_iters: PerSystem<u32>,
    /// Maximum number of restarts from the true residual, after the residual of the recurrence has
    /// deviated from it or the method has broken down.
    pub max_restarts: u32,
    /// When given, `||b - A x||_2 <= floor * eps * || |A||x| + |b| ||_2` is accepted too, but never
    /// more than `1e-3 ||b||_2` ([`LARGEST_FLOOR`](crate::verdict::LARGEST_FLOOR)).
    pub floor: Option<f64>,
    /// Whether outcomes hold the residual history.
    pub history: bool,
    /// Follows the solve, and stops it on request.
    pub watch: Option<Watch>,
}

impl Criteria {
    /// The criteria of some systems.
    ///
    /// # Panics
    /// As [`PerSystem::get`].
    #[must_use]
    pub fn pick(&self, systems: &[usize]) -> Self {
        Self {
            rel_tol: self.rel_tol.pick(systems),
            abs_tol: self.abs_tol.pick(systems),
            max_iters: self.max_iters.pick(systems),
            ..self.clone()
        }
    }

    /// Checks that every array given per system has `systems` entries.
    ///
    /// # Errors
    /// [`ArgumentError::Length`] otherwise.
    pub fn check(&self, systems: usize) -> Result<(), ArgumentError> {
        self.rel_tol.check("rel_tol", systems)?;
        self.abs_tol.check("abs_tol", systems)?;
        self.max_iters.check("max_iters", systems)
    }
}
