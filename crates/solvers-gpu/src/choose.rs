//! Which solver a scheme gets: [`solver_for`], [`solver_for_ragged`] and
//! [`solver_for_batch`].

use rayon::prelude::*;
use sparsebatch_cuda::{DeviceInfo, Executor, Value};
use sparsebatch_formats::{Batch, CsrPatternRef, Pattern, RaggedCsr};
use sparsebatch_solve_core::{Engine, LuForm, Scheme, SolveOptions, by_pattern};

use crate::divided::{RefusedItems, SchemeItems};
use crate::{
    BandedSolver, BandedTuning, ComposedSolver, DenseSolver, DenseTuning, DividedSolver,
    FactoredSolver, FactoredTuning, FrontalLu, FrontalTuning, FusedSolver, GpuLu, GpuSolveError,
    GpuSolver, GpuTuning, ProductKernel, RaggedFactored, RaggedLu,
};

/// Choices that solvers make by themselves where they are left open, solver by solver.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SolverTuning {
    /// Of CG and BiCGStab without factors.
    pub fused: GpuTuning,
    /// Of preconditioners with factors, and of the sparse LU whose fronts do not fit on chip.
    pub factored: FactoredTuning,
    /// Of the sparse LU by fronts, for factors that do not fit on chip.
    pub frontal: FrontalTuning,
    /// Of elimination with partial pivoting.
    pub dense: DenseTuning,
    /// Of elimination within a band.
    pub banded: BandedTuning,
    /// Whether the items of one pattern are expected to share their values. Products are planned
    /// for that; solves may have it otherwise.
    pub shares_values: bool,
}

sparsebatch_formats::option_setters! {
    SolverTuning {
        fused: GpuTuning,
        factored: FactoredTuning,
        frontal: FrontalTuning,
        dense: DenseTuning,
        banded: BandedTuning,
        shares_values: bool,
    }
}

/// The solver of a scheme for `nitems` systems of one pattern, `options.nrhs` right-hand sides
/// each, whose arrays are item-major: [`FusedSolver`] for CG and BiCGStab without preconditioner or
/// with Jacobi ([`ComposedSolver`] where it does not take the systems, for residual histories, and
/// for [`Engine::Composed`]), [`FactoredSolver`] with other preconditioners, [`GpuLu`] for the
/// sparse LU, or [`FrontalLu`] where its factors do not fit on chip ([`FactoredSolver`] where
/// fronts do not fit either or do not suit the pattern; [`LuForm::BySystem`]: [`RaggedLu`] where it
/// takes the pattern), [`DenseSolver`] for LU with partial pivoting, and [`BandedSolver`] for
/// banded LU, or the solver of the sparse LU where that does not take a band: with more than four
/// diagonals on a side, too many rows, or too few with three or four diagonals. Criteria,
/// right-hand sides and precisions are those of `options`; its method and preconditioner are
/// ignored.
///
/// # Errors
/// Those of the solver; [`GpuSolveError::Unsupported`] for what it refuses, such as
/// [`Scheme::PivotingLu`] beyond 64 rows; [`GpuSolveError::Symbolic`] for [`Scheme::Banded`] and a
/// pattern that is no band.
pub fn solver_for<E, T>(
    executor: &E,
    scheme: Scheme,
    (pattern, nitems): (CsrPatternRef<'_>, usize),
    options: &SolveOptions,
    tuning: &SolverTuning,
) -> Result<Box<dyn GpuSolver<E, T>>, GpuSolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    let products = asked_products(options)?;
    let (options, all) = (options.for_scheme(scheme), tuning);
    let over_products = |kernel: &ProductKernel, reason: Option<String>| {
        let systems = (pattern, nitems, tuning.shares_values);
        let solver = ComposedSolver::<E, T>::of_pattern(executor, systems, kernel, &options)?;
        Ok::<_, GpuSolveError>(Box::new(solver.because(reason)))
    };
    if let Some(kernel) = products {
        return Ok(over_products(&kernel, None)?);
    }
    Ok(match scheme {
        Scheme::PivotingLu => {
            let tuning = &tuning.dense;
            Box::new(DenseSolver::<E, T>::with_tuning(executor, pattern, nitems, &options, tuning)?)
        }
        Scheme::Banded => {
            let tuning = &tuning.banded;
            match BandedSolver::<E, T>::with_tuning(executor, pattern, nitems, &options, tuning) {
                Err(GpuSolveError::Unsupported { .. }) => {
                    let options = options.for_scheme(Scheme::Lu);
                    sparse_lu(executor, (pattern, nitems), &options, all)?
                }
                solver => Box::new(solver?),
            }
        }
        Scheme::Lu => sparse_lu(executor, (pattern, nitems), &options, all)?,
        Scheme::Cg(preconditioner) | Scheme::BiCgStab(preconditioner)
            if preconditioner.has_factors() =>
        {
            let tuning = &tuning.factored;
            Box::new(FactoredSolver::with_tuning(executor, pattern, nitems, &options, tuning)?)
        }
        Scheme::Cg(_) | Scheme::BiCgStab(_) => {
            let tuning = &tuning.fused;
            match FusedSolver::<E, T>::with_tuning(executor, pattern, nitems, &options, tuning) {
                Err(refusal @ GpuSolveError::Unsupported { .. }) => {
                    over_products(&ProductKernel::default(), Some(refusal.to_string()))?
                }
                solver => Box::new(solver?),
            }
        }
    })
}

/// The solver of the sparse LU: on chip, front by front, or level by level in device memory.
fn sparse_lu<E, T>(
    executor: &E,
    (pattern, nitems): (CsrPatternRef<'_>, usize),
    options: &SolveOptions,
    tuning: &SolverTuning,
) -> Result<Box<dyn GpuSolver<E, T>>, GpuSolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    let factored = || {
        let tuning = &tuning.factored;
        FactoredSolver::<E, T>::with_tuning(executor, pattern, nitems, options, tuning)
    };
    if options.lu_form == LuForm::BySystem {
        match RaggedLu::<E, T>::uniform(executor, pattern, nitems, options) {
            Err(GpuSolveError::Unsupported { .. }) => {}
            solver => return Ok(Box::new(solver?)),
        }
    }
    match GpuLu::<E, T>::new(executor, pattern, nitems, options) {
        Err(GpuSolveError::Unsupported { .. }) => {}
        solver => return Ok(Box::new(solver?)),
    }
    if !FrontalLu::<E, T>::suits(pattern)? {
        return Ok(Box::new(factored()?));
    }
    let frontal = &tuning.frontal;
    match FrontalLu::<E, T>::with_tuning(executor, pattern, nitems, options, frontal) {
        Err(GpuSolveError::Unsupported { .. }) => Ok(Box::new(factored()?)),
        solver => Ok(Box::new(solver?)),
    }
}

/// The plan of the products that options ask for, if they do.
fn asked_products(options: &SolveOptions) -> Result<Option<ProductKernel>, GpuSolveError> {
    match &options.engine {
        Engine::Composed(spmv) => ProductKernel::of(spmv).map(Some),
        Engine::Fused => Ok(None),
    }
}

/// Whether [`solver_for`] takes [`ComposedSolver`] for systems of a pattern, or refuses them.
#[doc(hidden)]
pub fn iterates_over_products<E, T>(
    info: &DeviceInfo,
    scheme: Scheme,
    pattern: CsrPatternRef<'_>,
    options: &SolveOptions,
    tuning: &SolverTuning,
) -> bool
where
    E: Executor + Clone,
    T: Value,
{
    let is_plain = scheme.krylov().is_some() && !scheme.preconditioner().has_factors();
    let is_asked_for = matches!(options.engine, Engine::Composed(_)) || options.history;
    let options = options.for_scheme(scheme);
    let takes = || FusedSolver::<E, T>::takes(info, pattern, &options, &tuning.fused).is_ok();
    is_plain && (is_asked_for || !takes())
}

/// Whether [`solver_for_ragged`] has a solver for several patterns by this scheme.
#[doc(hidden)]
pub fn takes_several_patterns(scheme: Scheme, options: &SolveOptions) -> bool {
    match scheme {
        Scheme::Cg(_) | Scheme::BiCgStab(_) => true,
        Scheme::Lu => options.lu_form == LuForm::BySystem,
        Scheme::PivotingLu | Scheme::Banded => false,
    }
}

/// The solver of a scheme for all systems of a ragged batch: [`FusedSolver`] or [`ComposedSolver`]
/// for CG and BiCGStab without preconditioner or with Jacobi, [`RaggedFactored`] with other
/// preconditioners, [`RaggedLu`] for the sparse LU of [`LuForm::BySystem`]. A system's result is
/// that of [`solver_for`] for its pattern alone.
///
/// # Errors
/// [`GpuSolveError::Unsupported`] for other factorisations, whose solvers take one pattern each,
/// and where some systems are for [`FusedSolver`] and others for [`ComposedSolver`]; otherwise
/// those of the solver.
pub fn solver_for_ragged<E, T>(
    executor: &E,
    scheme: Scheme,
    batch: &RaggedCsr<T>,
    options: &SolveOptions,
    tuning: &SolverTuning,
) -> Result<Box<dyn GpuSolver<E, T>>, GpuSolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    let products = asked_products(options)?;
    let options = options.for_scheme(scheme);
    let over_products = |kernel: &ProductKernel, reason: Option<String>| {
        let solver = ComposedSolver::<E, T>::ragged(executor, batch, kernel, &options)?;
        Ok::<_, GpuSolveError>(Box::new(solver.because(reason)))
    };
    if let Some(kernel) = products {
        return Ok(over_products(&kernel, None)?);
    }
    Ok(match scheme {
        Scheme::Cg(preconditioner) | Scheme::BiCgStab(preconditioner)
            if preconditioner.has_factors() =>
        {
            let tuning = &tuning.factored;
            Box::new(RaggedFactored::<E, T>::new(executor, batch, &options, tuning)?)
        }
        Scheme::Cg(_) | Scheme::BiCgStab(_) => {
            let is_over_products = |class: &Vec<u32>| {
                let pattern = batch.item(class[0] as usize).pattern();
                let info = executor.info();
                iterates_over_products::<E, T>(info, scheme, pattern, &options, tuning)
            };
            match FusedSolver::<E, T>::ragged(executor, batch, &options, &tuning.fused) {
                Err(refusal @ GpuSolveError::Unsupported { .. }) => {
                    let classes = by_pattern(batch.nitems(), |item| batch.item(item).pattern());
                    if !classes.iter().all(is_over_products) {
                        return Err(refusal);
                    }
                    over_products(&ProductKernel::default(), Some(refusal.to_string()))?
                }
                solver => Box::new(solver?),
            }
        }
        Scheme::Lu if takes_several_patterns(scheme, &options) => {
            Box::new(RaggedLu::<E, T>::new(executor, batch, &options)?)
        }
        Scheme::Lu | Scheme::PivotingLu | Scheme::Banded => {
            return Err(GpuSolveError::Unsupported {
                what: "factorisation of systems with several patterns",
                instead: "make a solver for each pattern",
            });
        }
    })
}

/// The classes of equal pattern of a ragged batch, by the plans that take them.
#[doc(hidden)]
pub struct TakenTogether {
    /// Groups of classes that [`solver_for_ragged`] takes, a plan for each group.
    pub groups: Vec<Vec<Vec<u32>>>,
    /// Classes that have plans of their own.
    pub apart: Vec<Vec<u32>>,
}

/// Which classes of a ragged batch that [`solver_for_ragged`] refused as a whole it takes together:
/// by the sparse LU of [`LuForm::BySystem`] those whose factors fit; by CG and BiCGStab those of
/// [`FusedSolver`], and those of [`ComposedSolver`].
#[doc(hidden)]
pub fn taken_together<E, T>(
    info: &DeviceInfo,
    scheme: Scheme,
    (batch, classes): (&RaggedCsr<T>, Vec<Vec<u32>>),
    (options, tuning): (&SolveOptions, &SolverTuning),
) -> TakenTogether
where
    E: Executor + Clone,
    T: Value,
{
    let pattern = |class: &Vec<u32>| batch.item(class[0] as usize).pattern();
    let takes = |class: &Vec<u32>| RaggedLu::<E, T>::takes(info, pattern(class));
    let is_over_products = |class: &Vec<u32>| {
        iterates_over_products::<E, T>(info, scheme, pattern(class), options, tuning)
    };
    match scheme {
        Scheme::Lu if takes_several_patterns(scheme, options) => {
            let (together, apart) = classes.into_par_iter().partition(takes);
            TakenTogether { groups: vec![together], apart }
        }
        Scheme::Cg(preconditioner) | Scheme::BiCgStab(preconditioner)
            if !preconditioner.has_factors() =>
        {
            let (composed, fused) = classes.into_par_iter().partition(is_over_products);
            TakenTogether { groups: vec![fused, composed], apart: Vec::new() }
        }
        _ => TakenTogether { groups: Vec::new(), apart: classes },
    }
}

/// A solver, and the items that it does not take.
pub type BatchPlan<E, T> = (Box<dyn GpuSolver<E, T>>, Vec<RefusedItems>);

/// The solver of a batch whose items are to be solved by these schemes, and the items that no solver
/// on the device takes: one solver for all where there is one scheme and its solver takes all
/// patterns, else a [`DividedSolver`]. Arrays are item-major, whatever the layout of the batch.
///
/// # Errors
/// Those of [`DividedSolver::new`].
pub fn solver_for_batch<E, T>(
    executor: &E,
    batch: &Batch<T>,
    schemes: &[SchemeItems],
    options: &SolveOptions,
    tuning: &SolverTuning,
) -> Result<BatchPlan<E, T>, GpuSolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    let shares_values = matches!(batch, Batch::Uniform(uniform) if uniform.is_shared());
    let tuning = &tuning.clone().shares_values(shares_values);
    let one = match (schemes, batch) {
        ([SchemeItems { scheme, .. }], Batch::Uniform(uniform)) => {
            let systems = (uniform.pattern().view(), uniform.nitems());
            Some(solver_for::<E, T>(executor, *scheme, systems, options, tuning)?)
        }
        ([SchemeItems { scheme, .. }], Batch::Ragged(ragged)) => {
            let patterns = by_pattern(ragged.nitems(), |item| ragged.item(item).pattern());
            let one = match patterns.len() {
                0 => None,
                1 => {
                    let systems = (ragged.item(0).pattern(), ragged.nitems());
                    Some(solver_for::<E, T>(executor, *scheme, systems, options, tuning))
                }
                _ => Some(solver_for_ragged::<E, T>(executor, *scheme, ragged, options, tuning)),
            };
            match one {
                Some(Err(GpuSolveError::Unsupported { .. })) | None => None,
                Some(one) => Some(one?),
            }
        }
        _ => None,
    };
    match one {
        Some(solver) => Ok((solver, Vec::new())),
        None => {
            let (solver, refused) =
                DividedSolver::<E, T>::new(executor, batch, schemes, options, tuning)?;
            Ok((Box::new(solver), refused))
        }
    }
}
