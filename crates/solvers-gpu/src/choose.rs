//! Which solver a scheme gets: [`solver_for`], [`solver_for_ragged`] and
//! [`solver_for_batch`].

use rayon::prelude::*;
use sparsebatch_cuda::{DeviceInfo, Executor, Value};
use sparsebatch_formats::{Batch, CsrPatternRef, Pattern, RaggedCsr};
use sparsebatch_solve_core::{LuForm, Scheme, SolveOptions, by_pattern};

use crate::divided::{RefusedItems, SchemeItems};
use crate::{
    BandedSolver, BandedTuning, DenseSolver, DenseTuning, DividedSolver, FactoredSolver,
    FactoredTuning, FrontalLu, FrontalTuning, FusedSolver, GpuLu, GpuSolveError, GpuSolver,
    GpuTuning, RaggedFactored, RaggedLu,
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
}

sparsebatch_formats::option_setters! {
    SolverTuning {
        fused: GpuTuning,
        factored: FactoredTuning,
        frontal: FrontalTuning,
        dense: DenseTuning,
        banded: BandedTuning,
    }
}

/// The solver of a scheme for `nitems` systems of one pattern, `options.nrhs` right-hand sides
/// each, whose arrays are item-major: [`FusedSolver`] for CG and BiCGStab without preconditioner or
/// with Jacobi, [`FactoredSolver`] with other preconditioners, [`GpuLu`] for the sparse LU, or
/// [`FrontalLu`] where its factors do not fit on chip ([`FactoredSolver`] where fronts do not fit
/// either or do not suit the pattern; [`LuForm::BySystem`]: [`RaggedLu`] where it takes the
/// pattern), [`DenseSolver`] for LU with partial pivoting, and [`BandedSolver`] for banded LU, or
/// the solver of the sparse LU where that does not take a band: with more than four diagonals on a
/// side, too many rows, or too few with three or four diagonals. Criteria, right-hand sides and
/// precisions are those of `options`; its method and preconditioner are ignored.
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
    let (options, all) = (options.for_scheme(scheme), tuning);
    let factored = || {
        let tuning = &tuning.factored;
        FactoredSolver::<E, T>::with_tuning(executor, pattern, nitems, &options, tuning)
    };
    Ok(match scheme {
        Scheme::PivotingLu => {
            let tuning = &tuning.dense;
            Box::new(DenseSolver::<E, T>::with_tuning(executor, pattern, nitems, &options, tuning)?)
        }
        Scheme::Banded => {
            let tuning = &tuning.banded;
            match BandedSolver::<E, T>::with_tuning(executor, pattern, nitems, &options, tuning) {
                Err(GpuSolveError::Unsupported { .. }) => {
                    let systems = (pattern, nitems);
                    solver_for::<E, T>(executor, Scheme::Lu, systems, &options, all)?
                }
                solver => Box::new(solver?),
            }
        }
        Scheme::Lu => {
            if options.lu_form == LuForm::BySystem {
                match RaggedLu::<E, T>::uniform(executor, pattern, nitems, &options) {
                    Err(GpuSolveError::Unsupported { .. }) => {}
                    solver => return Ok(Box::new(solver?)),
                }
            }
            match GpuLu::<E, T>::new(executor, pattern, nitems, &options) {
                Err(GpuSolveError::Unsupported { .. }) => {}
                solver => return Ok(Box::new(solver?)),
            }
            if !FrontalLu::<E, T>::suits(pattern)? {
                return Ok(Box::new(factored()?));
            }
            let frontal = &tuning.frontal;
            match FrontalLu::<E, T>::with_tuning(executor, pattern, nitems, &options, frontal) {
                Err(GpuSolveError::Unsupported { .. }) => Box::new(factored()?),
                solver => Box::new(solver?),
            }
        }
        Scheme::Cg(preconditioner) | Scheme::BiCgStab(preconditioner)
            if preconditioner.has_factors() =>
        {
            Box::new(factored()?)
        }
        Scheme::Cg(_) | Scheme::BiCgStab(_) => {
            let tuning = &tuning.fused;
            Box::new(FusedSolver::<E, T>::with_tuning(executor, pattern, nitems, &options, tuning)?)
        }
    })
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

/// The solver of a scheme for all systems of a ragged batch: [`FusedSolver`] for CG and BiCGStab
/// without preconditioner or with Jacobi, [`RaggedFactored`] with other preconditioners,
/// [`RaggedLu`] for the sparse LU of [`LuForm::BySystem`]. A system's result is that of
/// [`solver_for`] for its pattern alone.
///
/// # Errors
/// [`GpuSolveError::Unsupported`] for other factorisations, whose solvers take one pattern each;
/// otherwise those of the solver.
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
    let options = options.for_scheme(scheme);
    Ok(match scheme {
        Scheme::Cg(preconditioner) | Scheme::BiCgStab(preconditioner)
            if preconditioner.has_factors() =>
        {
            let tuning = &tuning.factored;
            Box::new(RaggedFactored::<E, T>::new(executor, batch, &options, tuning)?)
        }
        Scheme::Cg(_) | Scheme::BiCgStab(_) => {
            Box::new(FusedSolver::<E, T>::ragged(executor, batch, &options, &tuning.fused)?)
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

/// Of a ragged batch that [`solver_for_ragged`] refused as a whole: the classes of equal pattern
/// that it takes together, and the others. Some are taken only by the sparse LU of
/// [`LuForm::BySystem`].
#[doc(hidden)]
pub fn taken_together<E, T>(
    info: &DeviceInfo,
    scheme: Scheme,
    (batch, classes): (&RaggedCsr<T>, Vec<Vec<u32>>),
    options: &SolveOptions,
) -> [Vec<Vec<u32>>; 2]
where
    E: Executor + Clone,
    T: Value,
{
    // Other solvers of several patterns are not asked pattern by pattern.
    if !takes_several_patterns(scheme, options) || scheme.krylov().is_some() {
        return [Vec::new(), classes];
    }
    let takes =
        |class: &Vec<u32>| RaggedLu::<E, T>::takes(info, batch.item(class[0] as usize).pattern());
    let (together, apart) = classes.into_par_iter().partition(takes);
    [together, apart]
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
