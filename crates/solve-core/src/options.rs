//! What to solve with: [`SolveOptions`].

use sparsebatch_formats::Scalar;

use crate::argument::check_len;
use crate::{
    ArgumentError, Criteria, InnerPrecision, LuForm, Method, Order, PerSystem, PrecondPrecision,
    Preconditioner, Scheme, SpmvOptions, Watch,
};

/// How the iterations of CG and BiCGStab run.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Engine {
    /// Whole solves, the fast path: several systems side by side in SIMD lanes; on a GPU a group of
    /// threads per system.
    #[default]
    Fused,
    /// All systems iterate together over repeated products of one SpMV plan. This is the reference,
    /// and the engine in which a format or a kernel and the cost of its preprocessing can be
    /// studied. A GPU supports CSR, COO (not bitwise repeatable there), ELL and SELL-P; its default
    /// is the packed product.
    Composed(SpmvOptions),
}

/// The limit on the cost of an LU factorisation in the ladder, per system. Costs are those of
/// elimination in minimum-degree order, known from the pattern in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of products of the factorisation.
    pub products: u64,
    /// Maximum number of entries of the factors.
    pub entries: usize,
}

impl Default for Budget {
    /// A few seconds on one core, and 128 MiB of factors in f64.
    fn default() -> Self {
        Self { products: 4_000_000_000, entries: 1 << 24 }
    }
}

/// How a batch is solved: the scheme ([`SolveOptions::scheme`]), the criteria by which a solve ends
/// ([`SolveOptions::criteria`]), and the ladder of further attempts.
///
/// # Examples
/// ```
/// use sparsebatch_solve_core::{Method, Preconditioner, SolveOptions};
/// let options = SolveOptions::new()
///     .method(Method::BiCgStab)
///     .preconditioner(Preconditioner::ILU0)
///     .rel_tol(1e-8);
/// assert_eq!(options.max_restarts, 4);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SolveOptions {
    /// The method.
    pub method: Method,
    /// The preconditioner.
    pub preconditioner: Preconditioner,
    /// The precision of iterations on a GPU.
    pub inner_precision: InnerPrecision,
    /// How a GPU makes the sparse LU of systems with several patterns.
    pub lu_form: LuForm,
    /// Relative tolerance, one or per system; absent: 1e-10 in f64, 1e-5 in f32.
    pub rel_tol: Option<PerSystem<f64>>,
    /// Absolute tolerance, one or per system.
    pub abs_tol: PerSystem<f64>,
    /// Iteration limit, one or per system.
    pub max_iters: PerSystem<u32>,
    /// Restarts from the recomputed residual within one solve.
    pub max_restarts: u32,
    /// Rounding floor C: residuals `||b - A x|| <= C * eps * || |A||x| + |b| ||` are accepted as
    /// well, but never above `1e-3 ||b||`.
    pub floor: Option<f64>,
    /// Whether the ladder is tried on systems that did not converge.
    pub fallback: bool,
    /// Limit on the cost of a factorisation in the ladder.
    pub fallback_budget: Budget,
    /// Whether the report holds the residual history of every system.
    pub history: bool,
    /// How the iterations run.
    pub engine: Engine,
    /// Right-hand sides per system.
    pub nrhs: usize,
    /// Follows solves, and stops them on request.
    pub watch: Option<Watch>,
}

impl Default for SolveOptions {
    fn default() -> Self {
        Self {
            method: Method::Auto,
            preconditioner: Preconditioner::Auto,
            inner_precision: InnerPrecision::Auto,
            lu_form: LuForm::ByPattern,
            rel_tol: None,
            abs_tol: PerSystem::All(0.0),
            max_iters: PerSystem::All(1000),
            max_restarts: 4,
            floor: None,
            fallback: true,
            fallback_budget: Budget::default(),
            history: false,
            engine: Engine::Fused,
            nrhs: 1,
            watch: None,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr,)+) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $value;
            self
        }
    )+};
}

/// Setters, which can be chained.
impl SolveOptions {
    /// The defaults: automatic method and preconditioner, tolerance 1e-10 (1e-5 in f32), 1,000
    /// iterations, the ladder.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the method.
        method: Method = method,
        /// Sets the preconditioner with its data.
        preconditioner: Preconditioner = preconditioner,
        /// Sets the precision of iterations on a GPU.
        inner_precision: InnerPrecision = inner_precision,
        /// Sets how a GPU makes the sparse LU of systems with several patterns.
        lu_form: LuForm = lu_form,
        /// Sets the relative tolerance: one, or a vector with one per system.
        rel_tol: impl Into<PerSystem<f64>> = Some(rel_tol.into()),
        /// Sets the absolute tolerance: one, or a vector with one per system.
        abs_tol: impl Into<PerSystem<f64>> = abs_tol.into(),
        /// Sets the iteration limit: one, or a vector with one per system.
        max_iters: impl Into<PerSystem<u32>> = max_iters.into(),
        /// Sets the number of restarts.
        max_restarts: u32 = max_restarts,
        /// Sets the rounding floor, or removes it with `None`.
        floor: impl Into<Option<f64>> = floor.into(),
        /// Sets whether the ladder is tried.
        fallback: bool = fallback,
        /// Sets the limit on the cost of a factorisation in the ladder.
        fallback_budget: Budget = fallback_budget,
        /// Sets whether the report holds residual histories.
        history: bool = history,
        /// Sets how the iterations run.
        engine: Engine = engine,
        /// Sets the number of right-hand sides per system.
        nrhs: usize = nrhs,
        /// Sets the watch that follows solves and stops them on request, or removes it with `None`.
        watch: impl Into<Option<Watch>> = watch.into(),
    }

    /// Sets the order of elimination of ILU(0) or IC(0); no effect on other preconditioners.
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        let preconditioner = self.preconditioner.with_order(order);
        self.preconditioner(preconditioner)
    }

    /// Sets the rows per block of block-Jacobi, 1 to 128; `None` finds the blocks from the pattern.
    #[must_use]
    pub fn block_size(self, size: impl Into<Option<usize>>) -> Self {
        let preconditioner = self.preconditioner.with_block_size(size.into());
        self.preconditioner(preconditioner)
    }

    /// Sets the precision of the preconditioner's factors; no effect on preconditioners without
    /// factors.
    #[must_use]
    pub fn precond_precision(self, precision: PrecondPrecision) -> Self {
        let preconditioner = self.preconditioner.with_precision(precision);
        self.preconditioner(preconditioner)
    }
}

impl SolveOptions {
    /// The default relative tolerance of a precision: 1e-10 in f64, 1e-5 in f32.
    pub fn default_rel_tol<T: Scalar>() -> f64 {
        if T::NAME == "f64" { 1e-10 } else { 1e-5 }
    }

    /// The relative tolerance of a system: its own, that of all, or the default.
    ///
    /// # Panics
    /// As [`PerSystem::get`].
    pub fn rel_tol_of<T: Scalar>(&self, system: usize) -> f64 {
        self.rel_tol.as_ref().map_or_else(Self::default_rel_tol::<T>, |each| each.get(system))
    }

    /// The scheme of these options; CG for [`Method::Auto`].
    pub fn scheme<T: Scalar>(&self) -> Scheme {
        Scheme::new::<T>(self.method, self.preconditioner)
    }

    /// The options of a plan for one scheme: the same criteria, the fused engine, no ladder.
    #[must_use]
    pub fn for_scheme(&self, scheme: Scheme) -> Self {
        let method = match scheme {
            Scheme::Cg(_) => Method::Cg,
            Scheme::BiCgStab(_) => Method::BiCgStab,
            Scheme::Lu => Method::Lu,
            Scheme::PivotingLu => Method::PivotingLu,
            Scheme::Banded => Method::Banded,
        };
        self.clone()
            .method(method)
            .preconditioner(scheme.preconditioner())
            .fallback(false)
            .engine(Engine::Fused)
    }

    /// The options of some systems: limits given per system are those of these systems.
    #[must_use]
    pub fn for_systems(&self, systems: &[usize]) -> Self {
        Self {
            rel_tol: self.rel_tol.as_ref().map(|each| each.pick(systems)),
            abs_tol: self.abs_tol.pick(systems),
            max_iters: self.max_iters.pick(systems),
            ..self.clone()
        }
    }

    /// These options with the tolerances and iteration limits of others.
    #[must_use]
    pub fn with_limits_of(&self, other: &Self) -> Self {
        Self {
            rel_tol: other.rel_tol.clone(),
            abs_tol: other.abs_tol.clone(),
            max_iters: other.max_iters.clone(),
            ..self.clone()
        }
    }

    /// Whether a tolerance or an iteration limit is given per system.
    pub fn has_own_limits(&self) -> bool {
        let each = |limit: &PerSystem<f64>| matches!(limit, PerSystem::Each(_));
        self.rel_tol.as_ref().is_some_and(each)
            || each(&self.abs_tol)
            || matches!(self.max_iters, PerSystem::Each(_))
    }

    /// The criteria for `systems` systems (items times right-hand sides).
    ///
    /// # Errors
    /// [`ArgumentError::Length`] when an array has another length than there are systems,
    /// [`ArgumentError::OutOfRange`] for a negative or NaN tolerance or floor.
    pub fn criteria<T: Scalar>(&self, systems: usize) -> Result<Criteria, ArgumentError> {
        let default = || PerSystem::All(Self::default_rel_tol::<T>());
        let criteria = Criteria {
            rel_tol: self.rel_tol.clone().unwrap_or_else(default),
            abs_tol: self.abs_tol.clone(),
            max_iters: self.max_iters.clone(),
            max_restarts: self.max_restarts,
            floor: self.floor,
            history: self.history,
            watch: self.watch.clone(),
        };
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
        criteria.check(systems)?;
        for (name, limit) in [("rel_tol", &criteria.rel_tol), ("abs_tol", &criteria.abs_tol)] {
            limit.values().iter().try_for_each(|&value| tolerance(name, value))?;
        }
        self.floor.map_or(Ok(()), |floor| tolerance("floor", floor))?;
        Ok(criteria)
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
    fn limits_given_one_by_one_are_as_many_as_systems() {
        let options = SolveOptions::new().rel_tol(vec![1e-3; 2]);

        assert_eq!(options.criteria::<f64>(2).unwrap().rel_tol, PerSystem::Each(vec![1e-3; 2]));
        let error = options.criteria::<f64>(3).unwrap_err();
        assert_eq!(error, ArgumentError::Length { what: "rel_tol", expected: 3, found: 2 });
        let negative = SolveOptions::new().abs_tol(-1.0);
        let error = negative.criteria::<f64>(1).unwrap_err().to_string();
        assert_eq!(error, "abs_tol is -1, expected a number that is not negative");
    }
}
