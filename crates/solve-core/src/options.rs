//! What to solve with: [`SolveOptions`].

use std::fmt;
use std::str::FromStr;

use sparsebatch_formats::Scalar;

use crate::argument::check_len;
use crate::{ArgumentError, Criteria, PerSystem, SpmvOptions};

macro_rules! named {
    ($t:ident, $what:literal, $($variant:ident => $name:literal),+) => {
        impl $t {
            /// Every choice, with its name.
            pub const NAMES: &[(&str, Self)] = &[$(($name, Self::$variant)),+];

            /// The name on the command line and in reports.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $t {
            type Err = ArgumentError;

            fn from_str(name: &str) -> Result<Self, ArgumentError> {
                Self::NAMES.iter().find(|(n, _)| *n == name).map(|(_, v)| *v).ok_or_else(|| {
                    ArgumentError::OutOfRange { name: $what, expected: concat!($($name, " "),+), found: name.to_owned() }
                })
            }
        }
    };
}

/// The method that solves a system first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// System by system, by a rule on its pattern, the symmetry of its values and the signs of its diagonal; the
    /// report says what was taken and why.
    #[default]
    Auto,
    /// Conjugate gradients, for symmetric positive definite matrices.
    Cg,
    /// BiCGStab, for any matrix.
    BiCgStab,
    /// Sparse LU without pivoting in an order of little fill, refined from the true residual: once always, again
    /// while that does not pass, up to [`SolveOptions::max_restarts`] times. Systems in which that order meets a zero
    /// pivot are factorised again with large entries of their rows on the diagonal (static pivoting, chosen by
    /// [`match_rows`](crate::symbolic::match_rows) from the values of each;
    /// the rung `static-pivoting-lu`); they end `ZeroPivot` where that finds none either.
    Lu,
}
named!(Method, "solver", Auto => "auto", Cg => "cg", BiCgStab => "bicgstab", Lu => "lu");

/// The preconditioner of the iterative methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preconditioner {
    /// Jacobi, with 1 in the place of zero diagonal entries, so that it never fails.
    #[default]
    Auto,
    /// None.
    None,
    /// The inverse of the diagonal; a zero diagonal entry ends the system with `ZeroDiagonal`.
    Jacobi,
    /// Inverses of diagonal blocks; see [`SolveOptions::block_size`].
    BlockJacobi,
    /// Incomplete LU on the matrix's own pattern.
    Ilu0,
    /// Incomplete Cholesky on the matrix's own lower pattern.
    Ic0,
}
named!(Preconditioner, "precond", Auto => "auto", None => "none", Jacobi => "jacobi",
    BlockJacobi => "block-jacobi", Ilu0 => "ilu0", Ic0 => "ic0");

/// The order in which ILU(0) and IC(0) eliminate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// As the rows stand.
    #[default]
    Natural,
    /// Minimum degree, computed once per pattern.
    MinDegree,
}
named!(Order, "order", Natural => "natural", MinDegree => "min-degree");

/// The precision in which block-Jacobi, ILU(0) and IC(0) store their factors.
///
/// Factors in f32 take half of the memory and of its traffic, so that a GPU holds more systems at once.
/// They precondition about as well where the matrix is not so ill-conditioned that f32 tells it from a
/// singular one; the solution and its residual have the precision that they have without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PrecondPrecision {
    /// That of the values and vectors.
    #[default]
    Working,
    /// f32 within f64: factors are made in f64, of the matrix with its columns and rows scaled by powers
    /// of two to entries of about 1, rounded once, and applied to f64 vectors with f64 arithmetic. A system
    /// whose scaled factors have entries beyond 3.4e38 ends with `SingularPreconditioner`: one with a
    /// pivot next to nothing beside its row and column, or with equations whose units differ by as much;
    /// the ladder's stronger preconditioner has factors in f64. Changes nothing in f32, with Jacobi, without preconditioner, and for the sparse LU.
    ///
    /// # Source
    /// H. Anzt, J. Dongarra, G. Flegar, N. J. Higham, E. S. Quintana-Orti, Adaptive precision in
    /// block-Jacobi preconditioning for iterative sparse linear system solvers, 2019,
    /// doi 10.1002/cpe.4460; scaling: E. Carson, N. J. Higham, Accelerating the solution of linear systems
    /// by iterative refinement in three precisions, 2018, doi 10.1137/17M1140819, section 7, and N. J.
    /// Higham, S. Pranesh, M. Zounon, Squeezing a matrix into half precision, 2019,
    /// doi 10.1137/18M1229511, algorithm 2.4.
    Single,
}
named!(PrecondPrecision, "precond_precision", Working => "working", Single => "f32");

impl PrecondPrecision {
    /// Whether factors of solves in `T` are stored in another precision than `T`.
    pub fn is_mixed<T: Scalar>(self) -> bool {
        self == Self::Single && T::NAME == "f64"
    }
}

/// The precision in which CG and BiCGStab iterate.
///
/// The solution, and the residual by which it is judged, have the precision of values and vectors either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InnerPrecision {
    /// f32 within f64, where that is quicker: where a GPU has a system whole and its values in registers (up to
    /// nine entries a row), but for the smallest systems, and for small ones where they are few. Elsewhere, and in f32,
    /// it is [`InnerPrecision::Working`]. A system's matrix is rounded once. Iterations bring the residual down by 5e4
    /// (2e5 where that is the last time), or, if 64 do not, by 500; then the solution takes what they have in f64, its
    /// residual is made anew, and the method goes on with it: CG by the direction that it had, BiCGStab from the
    /// residual. Where f32 resolves the system well that leaves the number of iterations about as it is (on average
    /// within 13 % of the CPU's for tridiagonal, five-point and random systems), and a solve takes 0.5 to 0.95 of the
    /// time. A system on which iterations in f32 have no hold, or whose residual they do not bring down by 10 in 32 and
    /// by 500 in 64, or that does not converge for any other reason, is solved in f64 from the start, by a second
    /// launch, in the same threads and rows: that says how it ends, as [`InnerPrecision::Working`] does but for the
    /// order of sums. Ill-conditioned systems are mostly solved so, and take longer by what was in vain. Iterations in
    /// f32 go on while they get the residual down, breakdowns of BiCGStab included: `max_restarts` does not bound that,
    /// and no restarts are counted.
    ///
    /// # Source
    /// M. A. Clark, R. Babich, K. Barros, R. C. Brower, C. Rebbi, Solving lattice QCD systems of equations using
    /// mixed precision solvers on GPUs, 2010, doi 10.1016/j.cpc.2010.05.002, section 5 (reliable updates); G. L. G.
    /// Sleijpen, H. A. van der Vorst, Reliable updated residuals in hybrid Bi-CG methods, 1996,
    /// doi 10.1007/BF02309342.
    #[default]
    Auto,
    /// That of the values and vectors.
    Working,
}
named!(InnerPrecision, "inner_precision", Auto => "auto", Working => "working");

impl InnerPrecision {
    /// Whether solves in `T` may iterate in another precision than `T`.
    pub fn may_mix<T: Scalar>(self) -> bool {
        self == Self::Auto && T::NAME == "f64"
    }
}

/// How the iterations of CG and BiCGStab run.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Engine {
    /// Whole solves: of several systems side by side in SIMD lanes, on a GPU by a group of threads
    /// each: the fast path.
    #[default]
    Fused,
    /// All systems in step over repeated products of one SpMV plan: the reference, and the path
    /// on which a chosen format or kernel and its preprocessing can be studied. A GPU has CSR, COO
    /// (not repeatable there), ELL and SELL-P, and by default the packed product.
    Composed(SpmvOptions),
}

/// What the factorisation of one system may cost where the ladder tries it: LU in any order. Costs are those
/// of elimination in minimum-degree order, known from the pattern before anything is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Most products of the factorisation.
    pub products: u64,
    /// Most entries of the factors.
    pub entries: usize,
}

impl Default for Budget {
    /// Some seconds of one core, and 128 MiB of factors in f64.
    fn default() -> Self {
        Self { products: 4_000_000_000, entries: 1 << 24 }
    }
}

/// How a batch is solved. `SolveOptions::default()` is a good start; set fields by name.
///
/// # Examples
/// ```
/// use sparsebatch_solve_core::{Method, SolveOptions};
/// let options = SolveOptions { method: Method::BiCgStab, rel_tol: Some(1e-8), ..Default::default() };
/// assert_eq!(options.max_iters, 1000);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SolveOptions {
    /// The method.
    pub method: Method,
    /// The preconditioner.
    pub preconditioner: Preconditioner,
    /// The order of ILU(0) and IC(0).
    pub order: Order,
    /// Rows per block of block-Jacobi, 1 to 128; found from the pattern when absent.
    pub block_size: Option<usize>,
    /// The precision of the factors of block-Jacobi, ILU(0) and IC(0).
    pub precond_precision: PrecondPrecision,
    /// The precision of iterations on a GPU.
    pub inner_precision: InnerPrecision,
    /// Relative tolerance; absent: 1e-10 in f64, 1e-5 in f32.
    pub rel_tol: Option<f64>,
    /// Relative tolerances of the systems one by one, instead of `rel_tol`.
    pub rel_tols: Option<Vec<f64>>,
    /// Absolute tolerance.
    pub abs_tol: f64,
    /// Absolute tolerances of the systems one by one, instead of `abs_tol`.
    pub abs_tols: Option<Vec<f64>>,
    /// Most iterations.
    pub max_iters: u32,
    /// Iteration limits of the systems one by one, instead of `max_iters`.
    pub max_iters_each: Option<Vec<u32>>,
    /// Restarts from the recomputed residual within one solve.
    pub max_restarts: u32,
    /// Rounding floor C: `||b - A x|| <= C * eps * || |A||x| + |b| ||` is accepted too, but never more than
    /// `1e-3 ||b||`.
    pub floor: Option<f64>,
    /// Whether systems that did not converge climb the ladder, rung by rung.
    pub fallback: bool,
    /// What a factorisation of the ladder may cost.
    pub fallback_budget: Budget,
    /// Whether the report holds the residual history of every system.
    pub history: bool,
    /// How the iterations run.
    pub engine: Engine,
    /// Right-hand sides per system.
    pub nrhs: usize,
}

impl Default for SolveOptions {
    fn default() -> Self {
        Self {
            method: Method::Auto,
            preconditioner: Preconditioner::Auto,
            order: Order::Natural,
            block_size: None,
            precond_precision: PrecondPrecision::Working,
            inner_precision: InnerPrecision::Auto,
            rel_tol: None,
            rel_tols: None,
            abs_tol: 0.0,
            abs_tols: None,
            max_iters: 1000,
            max_iters_each: None,
            max_restarts: 4,
            floor: None,
            fallback: true,
            fallback_budget: Budget::default(),
            history: false,
            engine: Engine::Fused,
            nrhs: 1,
        }
    }
}

impl SolveOptions {
    /// The default relative tolerance of a precision: 1e-10 in f64, 1e-5 in f32.
    pub fn default_rel_tol<T: Scalar>() -> f64 {
        if T::NAME == "f64" { 1e-10 } else { 1e-5 }
    }

    /// The criteria for `systems` systems (items times right-hand sides).
    ///
    /// # Errors
    /// [`ArgumentError::Length`] when an array has another length than there are systems,
    /// [`ArgumentError::OutOfRange`] for a negative or NaN tolerance or floor.
    pub fn criteria<T: Scalar>(&self, systems: usize) -> Result<Criteria, ArgumentError> {
        let rel_tol = self.rel_tol.unwrap_or_else(Self::default_rel_tol::<T>);
        let tolerance = |name, value: f64| {
            if value >= 0.0 {
                Ok(())
            } else {
                Err(ArgumentError::OutOfRange {
                    name,
                    expected: "a number that is not negative",
                    found: value.to_string(),
                })
            }
        };
        let per_system = |name, all: f64, each: &Option<Vec<f64>>| match each {
            None => tolerance(name, all).map(|()| PerSystem::All(all)),
            Some(each) => {
                check_len(name, systems, each.len())?;
                each.iter().try_for_each(|&value| tolerance(name, value))?;
                Ok(PerSystem::Each(each.clone()))
            }
        };
        if let Some(floor) = self.floor {
            tolerance("floor", floor)?;
        }
        let max_iters = match &self.max_iters_each {
            None => PerSystem::All(self.max_iters),
            Some(each) => {
                check_len("max_iters", systems, each.len())?;
                PerSystem::Each(each.clone())
            }
        };
        Ok(Criteria {
            rel_tol: per_system("rel_tol", rel_tol, &self.rel_tols)?,
            abs_tol: per_system("abs_tol", self.abs_tol, &self.abs_tols)?,
            max_iters,
            max_restarts: self.max_restarts,
            floor: self.floor,
            history: self.history,
        })
    }
}

/// Right-hand sides and guesses of a batch, item-major; those of an item follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Rhs<'a, T> {
    /// `b`.
    pub b: &'a [T],
    /// Initial guesses; 0 where absent.
    pub x0: Option<&'a [T]>,
}

impl<T> Rhs<'_, T> {
    /// Checks that there are `rows` rows of each.
    ///
    /// # Errors
    /// [`ArgumentError::Length`] where there are not.
    pub fn check(&self, rows: usize) -> Result<(), ArgumentError> {
        check_len("b", rows, self.b.len())?;
        self.x0.map_or(Ok(()), |x0| check_len("x0", rows, x0.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_others_named() {
        assert_eq!("bicgstab".parse(), Ok(Method::BiCgStab));

        let error = "gmres".parse::<Method>().unwrap_err();

        assert!(matches!(&error, ArgumentError::OutOfRange { name: "solver", .. }));
        assert_eq!(error.to_string(), "solver is gmres, expected auto cg bicgstab lu ");
    }

    #[test]
    fn limits_given_one_by_one_are_as_many_as_systems() {
        let options = SolveOptions { rel_tols: Some(vec![1e-3; 2]), ..SolveOptions::default() };

        assert_eq!(options.criteria::<f64>(2).unwrap().rel_tol, PerSystem::Each(vec![1e-3; 2]));
        let error = options.criteria::<f64>(3).unwrap_err();
        assert_eq!(error, ArgumentError::Length { what: "rel_tol", expected: 3, found: 2 });
        let negative = SolveOptions { abs_tol: -1.0, ..SolveOptions::default() };
        let error = negative.criteria::<f64>(1).unwrap_err().to_string();
        assert_eq!(error, "abs_tol is -1, expected a number that is not negative");
    }
}
