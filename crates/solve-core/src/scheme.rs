//! How a system is solved: [`Scheme`], made of a [`Method`] and a [`Preconditioner`] with their
//! data.

use std::fmt;
use std::str::FromStr;

use sparsebatch_formats::Scalar;

use crate::ArgumentError;
use crate::named::named;

/// The method that solves a system first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// Chosen for each system from its pattern, the symmetry of its values and the signs of its
    /// diagonal; the report says which method was chosen and why. On the CPU one of [`Method::Lu`],
    /// [`Method::Cg`] and [`Method::BiCgStab`]; on a GPU also [`Method::Banded`], for at most two
    /// diagonals on each side, and [`Method::PivotingLu`].
    #[default]
    Auto,
    /// Conjugate gradients, for symmetric positive definite matrices.
    Cg,
    /// BiCGStab, for any matrix.
    BiCgStab,
    /// Sparse LU without pivoting in an order of little fill, with iterative refinement: one step
    /// always, further steps while the true residual does not pass, up to
    /// [`SolveOptions::max_restarts`](crate::SolveOptions::max_restarts) times. Systems with a zero
    /// pivot in that order are factorised again with permuted rows, so that large entries are on
    /// the diagonal (static pivoting, by [`match_rows`](crate::symbolic::match_rows) from the
    /// values of each system; the rung `static-pivoting-lu`). They end `ZeroPivot` if that meets a
    /// zero pivot, too.
    Lu,
    /// LU with partial pivoting: pivots are chosen by the values of each system, for matrices that
    /// elimination in a fixed order cannot take. On a GPU systems of at most 64 rows are eliminated
    /// dense, all at once, and those that fail go to the CPU; there it is a sparse LU, system by
    /// system, several times slower than [`Method::Lu`] where that works.
    PivotingLu,
    /// LU without pivoting of a matrix whose entries are near the diagonal, at most
    /// [`MOST_DIAGONALS`](crate::symbolic::MOST_DIAGONALS) away on each side, in the order of its
    /// rows or in reverse Cuthill-McKee order ([`Band`](crate::symbolic::Band)): tridiagonal and
    /// pentadiagonal systems, rings, thin grids. Refinement and static pivoting are those of
    /// [`Method::Lu`]; rows are also permuted where refinement stagnates, as it does where entries
    /// have grown in the elimination. Other patterns are an error.
    Banded,
}
named!(Method, "solver", Auto => "auto", Cg => "cg", BiCgStab => "bicgstab", Lu => "lu",
       PivotingLu => "pivoting-lu", Banded => "banded");

impl Method {
    /// Whether it is a factorisation, which takes no preconditioner.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::Lu | Self::PivotingLu | Self::Banded)
    }
}

/// The preconditioner of the iterative methods, with what is to be said of it.
///
/// # Examples
/// ```
/// use sparsebatch_solve_core::{Order, Preconditioner};
/// let ilu0 = Preconditioner::ILU0.with_order(Order::MinDegree);
/// assert_eq!(ilu0.order(), Order::MinDegree);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Preconditioner {
    /// Jacobi that treats zero diagonal entries as 1, so that it never fails. Beside [`Method::Auto`]
    /// it may be IC(0) or ILU(0) by colours on a GPU, for large systems whose factors exist; the
    /// report says so.
    #[default]
    Auto,
    /// None.
    None,
    /// The inverse of the diagonal; a zero diagonal entry ends the system with `ZeroDiagonal`.
    Jacobi,
    /// Inverses of diagonal blocks.
    BlockJacobi {
        /// Rows per block, 1 to 128; found from the pattern when absent.
        size: Option<usize>,
        /// The precision of the inverses.
        precision: PrecondPrecision,
    },
    /// Incomplete LU on the matrix's own pattern.
    Ilu0 {
        /// The order of elimination.
        order: Order,
        /// The precision of the factors.
        precision: PrecondPrecision,
    },
    /// Incomplete Cholesky on the matrix's own lower pattern.
    Ic0 {
        /// The order of elimination.
        order: Order,
        /// The precision of the factors.
        precision: PrecondPrecision,
    },
}

impl Preconditioner {
    /// Block-Jacobi with blocks found from the pattern, in the working precision.
    pub const BLOCK_JACOBI: Self =
        Self::BlockJacobi { size: None, precision: PrecondPrecision::Working };
    /// ILU(0) in the natural order and the working precision.
    pub const ILU0: Self =
        Self::Ilu0 { order: Order::Natural, precision: PrecondPrecision::Working };
    /// IC(0) in the natural order and the working precision.
    pub const IC0: Self = Self::Ic0 { order: Order::Natural, precision: PrecondPrecision::Working };

    /// Whether it has factors or inverses of blocks, which are recomputed when values change.
    pub fn has_factors(self) -> bool {
        match self {
            Self::BlockJacobi { .. } | Self::Ilu0 { .. } | Self::Ic0 { .. } => true,
            Self::Auto | Self::None | Self::Jacobi => false,
        }
    }

    /// The order of elimination; natural where nothing is eliminated.
    pub fn order(self) -> Order {
        match self {
            Self::Ilu0 { order, .. } | Self::Ic0 { order, .. } => order,
            Self::Auto | Self::None | Self::Jacobi | Self::BlockJacobi { .. } => Order::Natural,
        }
    }

    /// The precision of the factors; the working one where there are none.
    pub fn precision(self) -> PrecondPrecision {
        match self {
            Self::BlockJacobi { precision, .. }
            | Self::Ilu0 { precision, .. }
            | Self::Ic0 { precision, .. } => precision,
            Self::Auto | Self::None | Self::Jacobi => PrecondPrecision::Working,
        }
    }

    /// The same with another order of elimination, where it eliminates.
    #[must_use]
    pub const fn with_order(mut self, new: Order) -> Self {
        if let Self::Ilu0 { order, .. } | Self::Ic0 { order, .. } = &mut self {
            *order = new;
        }
        self
    }

    /// The same with factors in another precision, where it has some.
    #[must_use]
    pub const fn with_precision(mut self, new: PrecondPrecision) -> Self {
        if let Self::BlockJacobi { precision, .. }
        | Self::Ilu0 { precision, .. }
        | Self::Ic0 { precision, .. } = &mut self
        {
            *precision = new;
        }
        self
    }

    /// The same with another block size, where it has blocks.
    #[must_use]
    pub const fn with_block_size(mut self, new: Option<usize>) -> Self {
        if let Self::BlockJacobi { size, .. } = &mut self {
            *size = new;
        }
        self
    }
}
named!(Preconditioner, "precond", Self::Auto, Self::Auto => "auto", Self::None, Self::None => "none",
    Self::Jacobi, Self::Jacobi => "jacobi",
    Self::BlockJacobi { .. }, Self::BLOCK_JACOBI => "block-jacobi",
    Self::Ilu0 { .. }, Self::ILU0 => "ilu0", Self::Ic0 { .. }, Self::IC0 => "ic0");

/// The order in which ILU(0) and IC(0) eliminate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Order {
    /// The order of the rows in the matrix.
    #[default]
    Natural,
    /// Minimum degree, computed once per pattern.
    MinDegree,
    /// By colours, such that rows of one colour share no entry
    /// ([`multicolor`](crate::symbolic::multicolor()), computed once per pattern). An application
    /// of the factors takes a step for each colour: many rows at once, which a GPU needs. CG and
    /// BiCGStab take more iterations with it than in the order of the rows, on grids about twice as
    /// many, and far more where few couplings are much stronger than the others.
    Multicolor,
}
named!(Order, "order", Natural => "natural", MinDegree => "min-degree",
       Multicolor => "multicolor");

/// The precision in which block-Jacobi, ILU(0) and IC(0) store their factors.
///
/// Factors in f32 take half of the memory and of its traffic, so that a GPU holds more systems at
/// once. They precondition about as well unless the matrix is numerically singular in f32. The
/// precision of solution and residual stays the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PrecondPrecision {
    /// The precision of values and vectors.
    #[default]
    Working,
    /// f32 within f64. Factors are computed in f64 from the matrix with rows and columns scaled by
    /// powers of two to entries of about 1, rounded once, and applied to f64 vectors with f64
    /// arithmetic. A system whose scaled factors have entries beyond 3.4e38 ends with
    /// `SingularPreconditioner`: its pivots are tiny compared with their row and column, or the
    /// units of its equations differ too much. The ladder's stronger preconditioner has factors in
    /// f64. No effect in f32, with Jacobi, without preconditioner, and for the sparse LU.
    ///
    /// # Source
    /// H. Anzt, J. Dongarra, G. Flegar, N. J. Higham, E. S. Quintana-Orti, Adaptive precision in
    /// block-Jacobi preconditioning for iterative sparse linear system solvers, 2019,
    /// doi 10.1002/cpe.4460; scaling: E. Carson, N. J. Higham, Accelerating the solution of linear
    /// systems by iterative refinement in three precisions, 2018, doi 10.1137/17M1140819, section
    /// 7, and N. J. Higham, S. Pranesh, M. Zounon, Squeezing a matrix into half precision, 2019,
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
/// Solution and true residual have the precision of values and vectors in both cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InnerPrecision {
    /// f32 within f64 where that is faster: on a GPU, for fused solves whose values are in
    /// registers (up to nine entries per row), except for the smallest systems, and for small
    /// systems if there are few. Otherwise, and in f32, the same as [`InnerPrecision::Working`].
    ///
    /// The matrix of a system is rounded once. Iterations in f32 reduce the residual by 5e4 (2e5
    /// the last time), or by 500 if 64 iterations do not reach that. Then the correction is added
    /// to the solution in f64, the true residual is recomputed, and the method continues from it:
    /// CG with its search direction, BiCGStab from the residual. For well-conditioned systems the
    /// number of iterations stays about the same (on average within 13 % of the CPU's for
    /// tridiagonal, five-point and random systems), and a solve takes 0.5 to 0.95 of the time.
    ///
    /// A system is solved again in f64 from the start, by a second launch with the same threads and
    /// rows, if f32 iterations do not reduce its residual by 10 in 32 iterations and by 500 in 64,
    /// or if it does not converge for any other reason. The second solve decides its status; it
    /// differs from [`InnerPrecision::Working`] only in the order of sums. Most ill-conditioned
    /// systems are solved so, and the f32 iterations are lost. f32 iterations continue as long as
    /// they reduce the residual, through breakdowns of BiCGStab as well: `max_restarts` does not
    /// limit them, and they count no restarts.
    ///
    /// # Source
    /// M. A. Clark, R. Babich, K. Barros, R. C. Brower, C. Rebbi, Solving lattice QCD systems of
    /// equations using mixed precision solvers on GPUs, 2010, doi 10.1016/j.cpc.2010.05.002,
    /// section 5 (reliable updates); G. L. G. Sleijpen, H. A. van der Vorst, Reliable updated
    /// residuals in hybrid Bi-CG methods, 1996, doi 10.1007/BF02309342.
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

/// How a GPU makes the sparse LU of systems with several patterns, for [`Method::Lu`] and wherever
/// else that factorisation is taken. No effect on the CPU.
///
/// Both forms eliminate without pivoting in minimum-degree order and refine until the true residual
/// passes; their last bits differ, since sums have another order. So the form is chosen for all
/// systems of a batch, whatever their patterns, and how a system is solved does not depend on the
/// others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LuForm {
    /// A plan and a launch for each pattern, by a schedule of all its operations, or front by front
    /// where its factors do not fit on chip: where hundreds of systems share each pattern.
    #[default]
    ByPattern,
    /// One plan for systems of any patterns, one to eight warps for each system: where few systems
    /// share a pattern, up to a different one for each. Systems whose factors and vectors exceed
    /// the shared memory of a block (about 23,000 entries of L + U in f64 on an H200) are solved as
    /// by [`LuForm::ByPattern`].
    BySystem,
}
named!(LuForm, "lu_form", ByPattern => "by-pattern", BySystem => "by-system");

/// A Krylov method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Krylov {
    /// Conjugate gradients, for symmetric positive definite matrices.
    Cg,
    /// BiCGStab, for any matrix.
    BiCgStab,
}

impl Krylov {
    /// The name in reports, and of the kernels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cg => "cg",
            Self::BiCgStab => "bicgstab",
        }
    }
}

/// What a system is solved by, with nothing left to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Scheme {
    /// Conjugate gradients.
    Cg(Preconditioner),
    /// BiCGStab.
    BiCgStab(Preconditioner),
    /// Sparse LU without pivoting in a minimum-degree order, with refinement.
    Lu,
    /// LU with partial pivoting: dense on a GPU up to 64 rows, else sparse on the CPU, system by
    /// system.
    PivotingLu,
    /// LU without pivoting within a narrow band, with refinement.
    Banded,
}

impl Scheme {
    /// The scheme of a method and a preconditioner for solves in `T`. [`Method::Auto`] becomes CG:
    /// the caller chooses a method before. In f32, factors in f32 have the working precision.
    pub fn new<T: Scalar>(method: Method, preconditioner: Preconditioner) -> Self {
        let preconditioner = match preconditioner.precision().is_mixed::<T>() {
            true => preconditioner,
            false => preconditioner.with_precision(PrecondPrecision::Working),
        };
        match method {
            Method::Auto | Method::Cg => Self::Cg(preconditioner),
            Method::BiCgStab => Self::BiCgStab(preconditioner),
            Method::Lu => Self::Lu,
            Method::PivotingLu => Self::PivotingLu,
            Method::Banded => Self::Banded,
        }
    }

    /// The name of the method in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cg(_) => Krylov::Cg.name(),
            Self::BiCgStab(_) => Krylov::BiCgStab.name(),
            Self::Lu => Method::Lu.name(),
            Self::PivotingLu => Method::PivotingLu.name(),
            Self::Banded => Method::Banded.name(),
        }
    }

    /// Whether it is a factorisation.
    pub fn is_direct(self) -> bool {
        self.krylov().is_none()
    }

    /// Whether it eliminates in an order that the pattern determines, whatever the values. Systems
    /// that this fails on are eliminated again with permuted rows, without being asked for.
    pub fn has_fixed_order(self) -> bool {
        matches!(self, Self::Lu | Self::Banded)
    }

    /// The Krylov method, where it is one.
    pub fn krylov(self) -> Option<Krylov> {
        match self {
            Self::Cg(_) => Some(Krylov::Cg),
            Self::BiCgStab(_) => Some(Krylov::BiCgStab),
            Self::Lu | Self::PivotingLu | Self::Banded => None,
        }
    }

    /// The preconditioner; factorisations have none.
    pub fn preconditioner(self) -> Preconditioner {
        match self {
            Self::Cg(preconditioner) | Self::BiCgStab(preconditioner) => preconditioner,
            Self::Lu | Self::PivotingLu | Self::Banded => Preconditioner::None,
        }
    }
}

/// Method and preconditioner, such as `cg + ilu0`.
impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.krylov() {
            None => f.pad(self.name()),
            Some(method) => f.pad(&format!("{} + {}", method.name(), self.preconditioner())),
        }
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
        assert_eq!(
            error.to_string(),
            "solver is gmres, expected auto cg bicgstab lu pivoting-lu banded "
        );
    }

    #[test]
    fn preconditioners_are_parsed_and_keep_what_they_have_no_use_for_out() {
        for &(name, preconditioner) in Preconditioner::NAMES {
            assert_eq!(name.parse(), Ok(preconditioner));
            let with = preconditioner
                .with_order(Order::MinDegree)
                .with_precision(PrecondPrecision::Single)
                .with_block_size(Some(7));
            assert_eq!(with.name(), name);
            assert_eq!(with == preconditioner, !preconditioner.has_factors());
        }
        let error = "ilu".parse::<Preconditioner>().unwrap_err().to_string();
        assert_eq!(error, "precond is ilu, expected auto none jacobi block-jacobi ilu0 ic0 ");
    }

    #[test]
    fn schemes_are_told_by_their_data_and_factors_of_f32_are_in_f32() {
        let single = Preconditioner::ILU0.with_precision(PrecondPrecision::Single);
        let of = |scheme: Scheme| scheme.preconditioner();

        assert_eq!(of(Scheme::new::<f64>(Method::Cg, single)), single);
        assert_eq!(of(Scheme::new::<f32>(Method::Cg, single)), Preconditioner::ILU0);
        assert_eq!(Scheme::new::<f64>(Method::Auto, single), Scheme::Cg(single));
        assert_eq!(Scheme::BiCgStab(single).to_string(), "bicgstab + ilu0");
        assert_eq!(Scheme::PivotingLu.to_string(), "pivoting-lu");
    }
}
