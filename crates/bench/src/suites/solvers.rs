//! The suite `solvers`: whole solves of batches, ours on the GPU and the CPU, beside the dense LU
//! of cuBLAS in the same run and figures of other libraries that were recorded elsewhere.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use sparsebatch_formats::Scalar;
use sparsebatch_formats::generate::Problem;
use sparsebatch_solvers::{
    Engine, InnerPrecision, LuForm, Method, Order, PrecondPrecision, Preconditioner, SolveOptions,
    SpmvOptions,
};

pub use super::chunks::ChunksExperiment;
pub use super::gpus::GpusExperiment;
use super::solver_cases::{SolverCase, SystemSource, cases, others};
pub use super::{Precision, Size};
use super::{chunks, gpus};
use crate::phases::Phase::Making;
use crate::phases::timed;
pub use crate::session::Backend;
use crate::session::Target;
use crate::solves::Real;
use crate::solves::session::{SolveProblem, SolveSession, is_first};
use crate::solves::systems::Systems;
pub use crate::solves::tuning::Tuning;
use crate::{BenchError, Outcome};
use crate::{cublas, cusparse};
use sparsebatch_rows::solves::reference::{self, Reference};

/// The rounding floor of the tolerance for systems of the sets; see [`SolveOptions::floor`].
pub(super) const FLOOR: f64 = 4.0;

/// Most rows of a system that one block of the GPU solves as a whole.
const ROWS_OF_BLOCK: usize = 4096;

/// Options of the suite.
#[derive(Clone, Debug, Default)]
pub struct Solvers {
    /// Cases by name, or families; all when empty. Families may have sizes of their own:
    /// `lap2d 10000`.
    pub cases: Vec<String>,
    /// Batch sizes to use instead of the suite's own.
    pub batches: Vec<usize>,
    /// Methods. When empty: CG for symmetric matrices, and BiCGStab; on sets and at full size also
    /// the sparse LU and the automatic choice.
    pub methods: Vec<Method>,
    /// Preconditioners of iterative methods; when empty none and Jacobi.
    pub preconditioners: Vec<Preconditioner>,
    /// Elimination orders, measured side by side with ILU(0) and IC(0); when empty the order of the
    /// rows.
    pub orders: Vec<Order>,
    /// Precisions of the factors of f64 solves, measured side by side where a preconditioner has
    /// factors; when empty the working precision.
    pub precond_precisions: Vec<PrecondPrecision>,
    /// Precisions of the iterations of f64 solves on a GPU, measured side by side with Jacobi and
    /// without preconditioner; when empty all. A precision that changes nothing is left out.
    pub inner_precisions: Vec<InnerPrecision>,
    /// Forms of the sparse LU on a GPU, measured side by side; when empty a plan for each pattern.
    pub lu_forms: Vec<LuForm>,
    /// The precision of the solves.
    pub precision: Precision,
    /// Folders of further `.batch` files to measure.
    pub sets: Vec<PathBuf>,
    /// Whether families and mixes are left out.
    pub no_generated: bool,
    /// The devices of our solves; when absent the GPU if there is one, else the processor.
    pub backend: Option<Backend>,
    /// Further kernel shapes of the GPU to measure.
    pub tunings: Vec<Tuning>,
    /// The experiment `chunks`, instead of the suite's solves.
    pub chunks: Option<ChunksExperiment>,
    /// The experiment `gpus`, instead of the suite's solves.
    pub gpus: Option<GpusExperiment>,
    /// A file of figures recorded elsewhere.
    pub reference: Option<PathBuf>,
    /// Extent of the suite.
    pub size: Size,
    /// Whether cuBLAS is left out.
    pub no_peer: bool,
    /// The file that the rows are written to.
    pub output: Option<PathBuf>,
}

/// Runs the suite. Prints a line per measurement to `report`.
///
/// # Errors
/// Unknown names, files that cannot be read, an output that cannot be written, and the reason why
/// there is no GPU, if one was requested, or why it was lost.
pub fn solvers(options: &Solvers, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let experiment = Experiment::of(options)?;
    let usual = experiment.iter().flat_map(|experiment| experiment.cases);
    let usual: Vec<String> = usual.map(|&case| case.to_owned()).collect();
    let names = match options.cases.as_slice() {
        [] if !options.no_generated => &usual[..],
        names => names,
    };
    let all = known_cases(options, names)?;
    check_cases(&options.cases, &all)?;
    let references = match &options.reference {
        Some(path) => reference::read(path)?,
        None => Vec::new(),
    };
    let (peers, output) = (!options.no_peer, options.output.as_deref());
    let peers = peers && experiment.is_none();
    // The experiments need a GPU.
    let backend = options.backend.or(experiment.is_some().then_some(Backend::Gpu));
    let target = Target::of(backend)?;
    let mut session = SolveSession::start("solvers", &target, peers, output, report)?;
    let wanted: Vec<&SolverCase> = all.iter().filter(|case| is_wanted(names, &case.name)).collect();
    let ended = match options.precision {
        Precision::F64 => measure_cases::<f64>(&mut session, &wanted, options, &references),
        Precision::F32 => measure_cases::<f32>(&mut session, &wanted, options, &references),
    };
    session.finish(ended)
}

/// An experiment in place of the suite.
struct Experiment {
    /// The cases that it measures where none are named.
    cases: &'static [&'static str],
}

impl Experiment {
    /// The experiment that is asked for.
    fn of(options: &Solvers) -> Result<Option<Self>, BenchError> {
        let (name, cases) = match (&options.chunks, &options.gpus) {
            (Some(_), _) => ("chunks", &[chunks::USUAL_CASE][..]),
            (None, Some(_)) => ("gpus", &gpus::USUAL_CASES[..]),
            (None, None) => return Ok(None),
        };
        if options.backend.is_some_and(|backend| backend != Backend::Gpu) {
            return Err(BenchError::Option {
                option: "--backend",
                expected: format!("gpu with --experiment {name}"),
                found: "cpu".to_owned(),
            });
        }
        Ok(Some(Self { cases }))
    }
}

/// The cases of the suite, of the sets and of the families that are named with sizes of their own.
fn known_cases(options: &Solvers, names: &[String]) -> Result<Vec<SolverCase>, BenchError> {
    let mut all = cases(options.size, &options.batches, &options.sets)?;
    if options.no_generated {
        all.retain(|case| matches!(case.source, SystemSource::Set(_)));
    }
    if all.is_empty() {
        return Err(BenchError::Option {
            option: "--sets",
            expected: "a folder of batches if --no-generated is given".to_owned(),
            found: "absent".to_owned(),
        });
    }
    if !options.no_generated {
        all.extend(others(names, &options.batches, &all));
    }
    Ok(all)
}

/// Measures an experiment on each case, if one was asked for, else all contenders.
fn measure_cases<T: Real + cublas::Element + cusparse::Diagonals>(
    session: &mut SolveSession<'_>,
    wanted: &[&SolverCase],
    options: &Solvers,
    references: &[Reference],
) -> Result<(), BenchError> {
    if let Some(chunks) = &options.chunks {
        for case in wanted {
            chunks::measure::<T>(session, case, options, chunks)?;
        }
        return Ok(());
    }
    if let Some(gpus) = &options.gpus {
        for case in wanted {
            gpus::measure::<T>(session, case, options, gpus)?;
        }
        return Ok(());
    }
    compile::<T>(session, wanted, options)?;
    for case in wanted {
        measure_case::<T>(session, case, options, references)?;
    }
    Ok(())
}

/// The family of a case: the first word of its name.
fn family(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

fn is_wanted(names: &[String], name: &str) -> bool {
    super::wanted(names, name) || names.iter().any(|wanted| wanted == family(name))
}

fn check_cases(wanted: &[String], cases: &[SolverCase]) -> Result<(), BenchError> {
    let mut known: Vec<&str> = Vec::new();
    for case in cases {
        for name in [family(&case.name), &case.name] {
            if !known.contains(&name) {
                known.push(name);
            }
        }
    }
    super::check_names("--case", wanted, known)
}

/// Compiles the kernels of all solves of families and mixes beforehand.
fn compile<T: Real>(
    session: &mut SolveSession<'_>,
    cases: &[&SolverCase],
    options: &Solvers,
) -> Result<(), BenchError> {
    if !session.has_gpu() {
        return Ok(());
    }
    let mut all: Vec<(Systems<T>, Vec<SolveOptions>)> = Vec::new();
    for case in cases {
        for &batch in &case.batches {
            let systems = match case.source {
                SystemSource::Family(family, nrows) => {
                    let problem = Problem::new(family, nrows)?;
                    Systems::like(Arc::clone(problem.pattern()), batch)?
                }
                SystemSource::Mix | SystemSource::MixSpd => {
                    let case = SolverCase { batches: vec![batch], ..SolverCase::clone(case) };
                    timed(Making, || case.systems())?.cast()
                }
                SystemSource::Set(_) => continue,
            };
            let is_symmetric = case.is_symmetric().unwrap_or(false);
            all.push((systems, solves(options, false, &case.source, is_symmetric)));
        }
    }
    let jobs = all
        .iter()
        .flat_map(|(systems, solves)| solves.iter().map(move |solve| (systems, solve.clone())));
    session.compile(&jobs.collect::<Vec<_>>())
}

/// Measures all contenders on all batches of one case.
fn measure_case<T: Real + cublas::Element + cusparse::Diagonals>(
    session: &mut SolveSession<'_>,
    case: &SolverCase,
    options: &Solvers,
    references: &[Reference],
) -> Result<(), BenchError> {
    let largest = timed(Making, || case.systems())?;
    let is_symmetric = case.is_symmetric().unwrap_or_else(|| largest.is_symmetric());
    for &batch in &case.batches {
        let systems: Systems<T> = timed(Making, || {
            Ok::<_, BenchError>(match batch == largest.batch.nitems() {
                true => largest.cast(),
                false => largest.first(batch)?.cast(),
            })
        })?;
        let problem = SolveProblem::new(&case.name, &systems);
        let is_set = matches!(case.source, SystemSource::Set(_));
        let solves = solves(options, is_set, &case.source, is_symmetric);
        for solve in &solves {
            session.gpu(&problem, solve, None)?;
            let is_iterative = matches!(solve.method, Method::Cg | Method::BiCgStab);
            // Systems larger than a block are also solved over products.
            let is_large = systems.batch.pattern(0).nrows() > ROWS_OF_BLOCK;
            if is_large && is_iterative && is_first(solve) {
                let engine = Engine::Composed(SpmvOptions::default());
                session.gpu(&problem, &solve.clone().engine(engine), None)?;
            }
            // Only the iterative methods have kernel shapes.
            for tuning in options.tunings.iter().filter(|_| is_iterative) {
                session.gpu(&problem, solve, Some(&tuning.0))?;
            }
            if is_first(solve) {
                session.cpu(&problem, solve)?;
            }
        }
        let is_uniform = matches!(case.source, SystemSource::Family(..) | SystemSource::Set(_));
        if is_uniform && solves.iter().any(|solve| solve.method == Method::Banded) {
            session.banded_peers(&problem, is_set.then_some(FLOOR))?;
        }
        if is_uniform {
            session.dense_lu(&problem, FLOOR)?;
        }
        let source = options.reference.as_deref().and_then(std::path::Path::file_name);
        let source = source.unwrap_or_default().to_string_lossy();
        let same = |reference: &&Reference| {
            (&*reference.case, reference.batch, &*reference.precision)
                == (&*case.name, batch as u64, <T as Scalar>::NAME)
        };
        let like = |reference: &&Reference| {
            is_set || solves.iter().any(|solve| solve.method.name() == reference.operation)
        };
        for reference in references.iter().filter(same).filter(like) {
            session.reference(reference, &format!("recorded in {source}"))?;
        }
    }
    Ok(())
}

/// The options of all solves of a case.
fn solves(
    options: &Solvers,
    is_set: bool,
    source: &SystemSource,
    is_symmetric: bool,
) -> Vec<SolveOptions> {
    let methods = match (options.methods.as_slice(), source) {
        ([], SystemSource::Mix) => vec![Method::BiCgStab],
        ([], SystemSource::MixSpd) => vec![Method::Cg],
        ([], _) if is_set || options.size == Size::Full => {
            vec![Method::Auto, Method::Cg, Method::BiCgStab, Method::Lu]
        }
        ([], _) => vec![Method::Cg, Method::BiCgStab],
        (given, _) => given.to_vec(),
    };
    let preconditioners = match options.preconditioners.as_slice() {
        [] => &[Preconditioner::None, Preconditioner::Jacobi],
        given => given,
    };
    let mut solves = Vec::new();
    for method in methods.into_iter().filter(|&method| method != Method::Cg || is_symmetric) {
        let preconditioners = match method {
            Method::Auto | Method::Lu | Method::PivotingLu | Method::Banded => {
                &[Preconditioner::Auto]
            }
            Method::Cg | Method::BiCgStab => preconditioners,
        };
        for &preconditioner in preconditioners {
            let solve = |order, precond_precision, inner_precision| {
                SolveOptions::new()
                    .method(method)
                    .preconditioner(preconditioner)
                    .order(order)
                    .precond_precision(precond_precision)
                    .inner_precision(inner_precision)
                    .floor(is_set.then_some(FLOOR))
                    .fallback(is_set && method == Method::Auto)
            };
            for &order in orders(options, preconditioner) {
                for &precond_precision in precisions(options, preconditioner) {
                    let inner = inner_precisions(options, preconditioner).iter();
                    for of_inner in inner.map(|&inner| solve(order, precond_precision, inner)) {
                        let forms = lu_forms(options, method).iter();
                        solves.extend(forms.map(|&form| of_inner.clone().lu_form(form)));
                    }
                }
            }
        }
    }
    solves
}

/// The forms of the sparse LU that change the solve.
fn lu_forms(options: &Solvers, method: Method) -> &[LuForm] {
    match (method, options.lu_forms.as_slice()) {
        (Method::Lu, given @ [_, ..]) => given,
        _ => &[LuForm::ByPattern],
    }
}

/// The elimination orders that change the solve.
fn orders(options: &Solvers, preconditioner: Preconditioner) -> &[Order] {
    match (preconditioner, options.orders.as_slice()) {
        (Preconditioner::Ilu0 { .. } | Preconditioner::Ic0 { .. }, given @ [_, ..]) => given,
        _ => &[Order::Natural],
    }
}

/// The precisions of factors that change the solve.
fn precisions(options: &Solvers, preconditioner: Preconditioner) -> &[PrecondPrecision] {
    let has_factors = preconditioner.has_factors();
    match options.precond_precisions.as_slice() {
        [] => &[PrecondPrecision::Working],
        given if has_factors && options.precision == Precision::F64 => given,
        _ => &[PrecondPrecision::Working],
    }
}

/// The precisions of iterations that change the solve, the working one first. A solve that chooses
/// its preconditioner has one only: by default the automatic precision.
fn inner_precisions(options: &Solvers, preconditioner: Preconditioner) -> &[InnerPrecision] {
    match (preconditioner, options.inner_precisions.as_slice()) {
        _ if options.precision != Precision::F64 => &[InnerPrecision::Working],
        (Preconditioner::Auto, []) => &[InnerPrecision::Auto],
        (Preconditioner::Auto, given) => &given[..1],
        (Preconditioner::None | Preconditioner::Jacobi, []) => {
            &[InnerPrecision::Working, InnerPrecision::Auto]
        }
        (Preconditioner::None | Preconditioner::Jacobi, given) => given,
        _ => &[InnerPrecision::Working],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::generate::Family;

    fn named(options: &Solvers, source: &SystemSource, is_symmetric: bool) -> Vec<String> {
        let is_set = matches!(source, SystemSource::Set(_));
        let solves = solves(options, is_set, source, is_symmetric);
        let name = |solve: &SolveOptions| format!("{} {}", solve.method, solve.preconditioner);
        solves.iter().filter(|solve| is_first(solve)).map(name).collect()
    }

    #[test]
    fn symmetric_matrices_are_solved_by_both_methods_others_by_bicgstab() {
        let all = Solvers::default();
        let bicgstab = ["bicgstab none", "bicgstab jacobi"];

        let tri = named(&all, &SystemSource::Family(Family::Tri, 32), true);
        assert_eq!(tri, ["cg none", "cg jacobi", "bicgstab none", "bicgstab jacobi"]);
        assert_eq!(named(&all, &SystemSource::Family(Family::Rand9, 54), false), bicgstab);
        assert_eq!(named(&all, &SystemSource::Mix, false), bicgstab);
        assert_eq!(named(&all, &SystemSource::MixSpd, true), ["cg none", "cg jacobi"]);
        let set = named(&all, &SystemSource::Set(PathBuf::new()), false);
        assert_eq!(set, ["auto auto", "bicgstab none", "bicgstab jacobi", "lu auto"]);
    }

    #[test]
    fn iterations_in_f32_are_measured_beside_those_in_f64() {
        let source = SystemSource::Family(Family::Tri, 32);
        let inner = |options: &Solvers| -> Vec<InnerPrecision> {
            solves(options, false, &source, true).iter().map(|s| s.inner_precision).collect()
        };
        let (working, auto) = (InnerPrecision::Working, InnerPrecision::Auto);

        assert_eq!(inner(&Solvers::default()), [working, auto].repeat(4));
        let only = Solvers { inner_precisions: vec![auto], ..Solvers::default() };
        assert_eq!(inner(&only), [auto; 4]);
        assert_eq!(inner(&Solvers { precision: Precision::F32, ..only.clone() }), [working; 4]);
        let factors = Solvers { preconditioners: vec![Preconditioner::ILU0], ..only };
        assert_eq!(inner(&factors), [working; 2]);
    }

    #[test]
    fn what_is_asked_for_is_measured_where_it_can_be() {
        let options = Solvers {
            methods: vec![Method::Cg, Method::Lu],
            preconditioners: vec![Preconditioner::Jacobi],
            ..Solvers::default()
        };

        let tri = named(&options, &SystemSource::Family(Family::Tri, 32), true);
        assert_eq!(tri, ["cg jacobi", "lu auto"]);
        assert_eq!(named(&options, &SystemSource::Mix, false), ["lu auto"]);
    }

    #[test]
    fn the_sparse_lu_alone_is_measured_in_every_form() {
        let options = Solvers {
            methods: vec![Method::Cg, Method::Lu],
            preconditioners: vec![Preconditioner::None],
            inner_precisions: vec![InnerPrecision::Working],
            lu_forms: vec![LuForm::ByPattern, LuForm::BySystem],
            ..Solvers::default()
        };
        let solves = solves(&options, false, &SystemSource::Family(Family::Tri, 32), true);
        let found: Vec<_> = solves.iter().map(|solve| (solve.method, solve.lu_form)).collect();
        use LuForm::{ByPattern, BySystem};
        let lu = [(Method::Lu, ByPattern), (Method::Lu, BySystem)];
        assert_eq!(found, [&[(Method::Cg, ByPattern)], &lu[..]].concat());
    }

    #[test]
    fn factors_are_measured_in_every_order_that_is_asked_for() {
        let options = Solvers {
            methods: vec![Method::Cg],
            preconditioners: vec![Preconditioner::Jacobi, Preconditioner::IC0],
            orders: vec![Order::Natural, Order::Multicolor],
            inner_precisions: vec![InnerPrecision::Working],
            ..Solvers::default()
        };
        let solves = solves(&options, false, &SystemSource::Family(Family::Tri, 32), true);
        let found: Vec<_> = solves
            .iter()
            .map(|solve| (solve.preconditioner.name(), solve.preconditioner.order()))
            .collect();
        use Order::{Multicolor, Natural};
        assert_eq!(found, [("jacobi", Natural), ("ic0", Natural), ("ic0", Multicolor)]);
    }

    #[test]
    fn factors_are_measured_in_every_precision_that_is_asked_for() {
        let options = Solvers {
            methods: vec![Method::Cg],
            preconditioners: vec![Preconditioner::Jacobi, Preconditioner::IC0],
            precond_precisions: vec![PrecondPrecision::Working, PrecondPrecision::Single],
            inner_precisions: vec![InnerPrecision::Working],
            ..Solvers::default()
        };
        let family = SystemSource::Family(Family::Tri, 32);
        let found = |options: &Solvers| -> Vec<_> {
            let solves = solves(options, false, &family, true);
            solves
                .iter()
                .map(|solve| (solve.preconditioner.name(), solve.preconditioner.precision()))
                .collect()
        };
        use PrecondPrecision::{Single, Working};

        let (jacobi, ic0) = ("jacobi", "ic0");
        assert_eq!(found(&options), [(jacobi, Working), (ic0, Working), (ic0, Single)]);
        // Solves in f32 have no other precision.
        let options = Solvers { precision: Precision::F32, ..options };
        assert_eq!(found(&options), [(jacobi, Working), (ic0, Working)]);
    }

    #[test]
    fn sets_may_be_solved_to_the_rounding_floor() {
        let set = solves(&Solvers::default(), true, &SystemSource::Set(PathBuf::new()), true);
        assert!(set.iter().all(|solve| solve.floor == Some(4.0)));
        assert!(set.iter().all(|solve| solve.fallback == (solve.method == Method::Auto)));
        let family = SystemSource::Family(Family::Tri, 32);
        let family = solves(&Solvers::default(), false, &family, true);
        assert!(family.iter().all(|solve| solve.floor.is_none() && !solve.fallback));
    }

    #[test]
    fn cases_are_named_by_themselves_or_their_family() {
        let all = cases(Size::Paper, &[], &[]).unwrap();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();

        assert!(check_cases(&names(&["tri", "lap2d 900", "mix"]), &all).is_ok());
        let error = check_cases(&names(&["tri 33"]), &all).unwrap_err().to_string();
        assert!(error.contains("--case is tri 33, expected one of tri, tri 32"), "{error}");
        assert!(is_wanted(&names(&["tri"]), "tri 64") && !is_wanted(&names(&["tri 6"]), "tri 64"));
        assert!(is_wanted(&names(&["mix"]), "mix") && !is_wanted(&names(&["mix"]), "mix_spd"));
        assert!(is_wanted(&[], "mid57"));
    }
}
