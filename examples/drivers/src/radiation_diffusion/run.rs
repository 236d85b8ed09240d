//! Runs a case: the batch, the march, the comparison.

use sparsebatch::gpu::Device;
use sparsebatch::{Backend, Gpu};

use super::args::{Args, Case, Where};
use super::cases::{self, Rays};
use super::error::Error;
use super::march::{March, Settings, march};
use super::problem::Problem;
use super::reference::{Agreement, Multigroup, SuOlson, same};

/// Output times of the plane.
const PLANE_TIMES: [f64; 5] = [0.1, 0.3, 1.0, 3.0, 10.0];

/// A case that has run.
#[derive(Clone, Debug)]
pub struct Run {
    pub case: Case,
    /// The name of the case in files.
    pub name: &'static str,
    pub problem: Problem,
    pub times: Vec<f64>,
    pub march: March,
    /// Comparisons with the references; none for the plane.
    pub agreements: Vec<Agreement>,
}

/// The reference files that the requested cases need.
#[derive(Debug)]
pub struct References {
    pub grey: Option<SuOlson>,
    pub multigroup: Option<Multigroup>,
}

impl References {
    /// Reads the reference files.
    ///
    /// # Errors
    /// [`Error::Input`] for a file that is missing or malformed.
    pub fn read(args: &Args) -> Result<Self, Error> {
        let file = |name: &str| args.data.join(name);
        let all = args.runs(Case::Convergence);
        let grey =
            (all || args.runs(Case::Grey)).then(|| SuOlson::read(&file("su_olson_reference.json")));
        let multigroup = (all || args.runs(Case::Multigroup))
            .then(|| Multigroup::read(&file("multigroup_marshak_reference.json")));
        Ok(Self { grey: grey.transpose()?, multigroup: multigroup.transpose()? })
    }
}

/// The backend, and the reason for it.
///
/// # Errors
/// [`Error::Input`] when a GPU was requested and there is none.
pub fn backend(asked: Where) -> Result<(Backend, String), Error> {
    if asked == Where::Cpu {
        return Ok((Backend::Cpu, "asked for".to_owned()));
    }
    match Device::new(0) {
        Ok(device) => {
            let or_cpu = asked == Where::Auto;
            let gpu = Gpu::new(device).or_cpu(or_cpu).in_chunks(true);
            Ok((Backend::Gpu(gpu), "there is a GPU".to_owned()))
        }
        Err(error) if asked == Where::Auto => Ok((Backend::Cpu, format!("no GPU: {error}"))),
        Err(error) => Err(Error::input(format!("--backend gpu: {error}"))),
    }
}

/// Runs a case; `progress` is called with the steps done and the total.
///
/// # Errors
/// [`Error`] for bad input, or an unsolved system.
pub fn run(
    case: Case,
    args: &Args,
    references: &References,
    backend: &Backend,
    progress: &mut (dyn FnMut(usize, usize) + Send),
) -> Result<Run, Error> {
    let times = |default: Vec<f64>| args.times.clone().unwrap_or(default);
    let rays = |times: &[f64]| Rays {
        number: args.rays,
        zones: args.zones,
        length: args.length,
        end: times.iter().copied().fold(0.0, f64::max),
    };
    let missing = || Error::Internal(format!("no reference for {case:?}"));
    let (name, problem, times) = match case {
        Case::Grey => {
            let reference = references.grey.as_ref().ok_or_else(missing)?;
            let times = times(reference.times());
            ("grey", cases::grey(reference, &rays(&times))?, times)
        }
        Case::Multigroup => {
            let reference = references.multigroup.as_ref().ok_or_else(missing)?;
            let times = times(reference.times());
            ("multigroup", cases::multigroup(reference, &rays(&times))?, times)
        }
        Case::Plane | Case::Convergence | Case::All => {
            ("2d", cases::plane(&args.plane())?, times(PLANE_TIMES.to_vec()))
        }
    };
    let settings = Settings {
        times: times.clone(),
        steps_per_decade: args.steps_per_decade,
        tolerance: args.tolerance,
        solve: args.solve_options()?,
    };
    let march = march(&problem, &settings, backend, progress)?;
    let mut run = Run { case, name, problem, times, march, agreements: Vec::new() };
    match case {
        Case::Grey => run.agreements = against_grey(&run, references.grey.as_ref())?,
        Case::Multigroup => {
            run.agreements = against_groups(&run, references.multigroup.as_ref())?;
        }
        Case::Plane | Case::Convergence | Case::All => {}
    }
    Ok(run)
}

impl Run {
    /// The opacity of a ray.
    pub(crate) fn opacity(&self, ray: usize) -> f64 {
        self.problem.domains[ray].opacity[0]
    }

    /// The cell centres of a ray in its own optical depth.
    pub(crate) fn depths(&self, ray: usize) -> Vec<f64> {
        let opacity = self.opacity(ray);
        self.problem.domains[ray].mesh.centres(0).into_iter().map(|x| x * opacity).collect()
    }

    /// Radiation of a group of a domain at an output.
    pub fn u(&self, output: usize, domain: usize, group: usize) -> &[f64] {
        let (cells, groups) = (self.problem.cells(), self.problem.groups.len());
        let item = domain * groups + group;
        &self.march.states[output].u[item * cells..(item + 1) * cells]
    }

    /// Matter of a domain at an output.
    pub fn v(&self, output: usize, domain: usize) -> &[f64] {
        let cells = self.problem.cells();
        &self.march.states[output].v[domain * cells..(domain + 1) * cells]
    }

    /// The worst energy balance of any domain.
    pub fn imbalance(&self) -> f64 {
        self.march.imbalance.iter().copied().fold(0.0, f64::max)
    }
}

fn against_grey(run: &Run, reference: Option<&SuOlson>) -> Result<Vec<Agreement>, Error> {
    let mut found = Vec::new();
    for case in reference.into_iter().flat_map(|reference| &reference.cases) {
        for (ray, domain) in run.problem.domains.iter().enumerate() {
            for (output, &tau) in run.times.iter().enumerate() {
                if domain.epsilon != case.epsilon || !same(run.opacity(ray) * tau, case.tau) {
                    continue;
                }
                let label =
                    |what| format!("{what} eps {} opacity {}", case.epsilon, run.opacity(ray));
                let x = run.depths(ray);
                let (u, v) = (run.u(output, ray, 0), run.v(output, ray));
                found.push(Agreement::new(case.tau, label("U"), &x, u, &case.x, &case.u)?);
                found.push(Agreement::new(case.tau, label("V"), &x, v, &case.x, &case.v)?);
            }
        }
    }
    Ok(found)
}

fn against_groups(run: &Run, reference: Option<&Multigroup>) -> Result<Vec<Agreement>, Error> {
    let mut found = Vec::new();
    for case in reference.into_iter().flat_map(|reference| &reference.cases) {
        for ray in 0..run.problem.domains.len() {
            for (output, &tau) in run.times.iter().enumerate() {
                let opacity = run.opacity(ray);
                if !same(opacity * tau, case.tau) {
                    continue;
                }
                let label = |what: String| format!("{what} opacity {opacity}");
                let x = run.depths(ray);
                for g in 0..run.problem.groups.len() {
                    let (u, name) = (run.u(output, ray, g), label(format!("U_{g}")));
                    found.push(Agreement::new(case.tau, name, &x, u, &case.x, &case.group(g))?);
                }
                let v = run.v(output, ray);
                found.push(Agreement::new(
                    case.tau,
                    label("V".to_owned()),
                    &x,
                    v,
                    &case.x,
                    &case.v,
                )?);
            }
        }
    }
    Ok(found)
}
