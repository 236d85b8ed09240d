//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use sparsebatch::gpu::Device;
use sparsebatch::{Method, Order, Preconditioner, SolveOptions};

use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::integrator::Settings;
use crate::nuclear_burning::linear::Means;
use crate::nuclear_burning::machine::{Machine, OnGpu};
use crate::nuclear_burning::tableau::Tableau;
use crate::nuclear_burning::zones::Fuel;

/// Burns nuclear fuel in many zones at once: a reaction network in every zone of a grid of
/// temperatures and densities, integrated implicitly with a step of its own, all linear systems
/// solved in batches. Ends with a comparison with reference runs: what differs from them by more
/// than its tolerance says DIFFERS, and the exit code is 3.
#[derive(Debug, Parser)]
#[command(name = "nuclear_burning")]
pub(crate) struct Options {
    /// Network, REACLIB rates as JSON [default: the alpha chain of 13 nuclides in examples/data]
    #[arg(long, value_name = "FILE")]
    pub(crate) network: Option<PathBuf>,
    /// Reference states and runs of the network [default: reference_X.json beside reaclib_X.json]
    #[arg(long, value_name = "FILE")]
    pub(crate) reference: Option<PathBuf>,
    /// Zones, shared out over the fuels
    #[arg(long, value_name = "N", default_value_t = 768)]
    pub(crate) zones: usize,
    /// A fuel, nuclides of the network and their mass fractions, which add up to 1; once for each
    /// fuel [default: he4=1, c12=0.5,o16=0.5 and si28=1]
    #[arg(long, value_name = "NAME=FRACTION,...", value_parser = Fuel::parse)]
    pub(crate) fuel: Vec<Fuel>,
    /// Temperatures of the grid, GK
    #[arg(long, value_name = "LOW:HIGH", value_parser = range, default_value = "1:6")]
    pub(crate) t9: (f64, f64),
    /// Densities of the grid, g/cm^3
    #[arg(long, value_name = "LOW:HIGH", value_parser = range, default_value = "1e5:1e9")]
    pub(crate) rho: (f64, f64),
    /// How long to burn, s
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value_t = 1.0)]
    pub(crate) t_end: f64,
    /// Let the temperature follow the energy released, at constant density
    #[arg(long)]
    pub(crate) self_heating: bool,
    #[command(flatten)]
    pub(crate) integrator: IntegratorOptions,
    #[command(flatten)]
    pub(crate) linear: LinearOptions,
    /// Write abundances, energies and statistics
    #[arg(long, value_name = "FILE.npz")]
    pub(crate) output: Option<PathBuf>,
    /// Append times, steps and solves of the grid to a file, as a line of JSON
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) json: Option<PathBuf>,
    /// Folder for plots: abundances against time and maps of the grid
    #[arg(long, value_name = "DIR", default_value_os_t = crate::repository().join("target/nuclear_burning"))]
    pub(crate) plots: PathBuf,
    /// No plots
    #[arg(long)]
    pub(crate) no_plots: bool,
    /// Zones whose abundances are drawn, counted from 0 [default: the middle of each fuel's grid]
    #[arg(long, value_name = "ZONE")]
    pub(crate) plot_zone: Vec<usize>,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Burn the grid only, without the comparison with reference runs
    #[arg(long)]
    pub(crate) no_reference: bool,
    /// No progress bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// How zones are integrated.
#[derive(Debug, Args)]
pub(crate) struct IntegratorOptions {
    /// Relative tolerance of the error of a step; abundances are resolved down to 1e-10
    #[arg(long, value_name = "TOL", allow_negative_numbers = true, default_value_t = 1e-5)]
    pub(crate) tolerance: f64,
    /// Rosenbrock method: rodas5p (order 5, 8 stages) or rodas4p2 (order 4, 6 stages)
    #[arg(long, value_parser = method, default_value = "rodas5p")]
    pub(crate) method: &'static Tableau,
    /// Leave steps as they are, rather than project each onto the conserved sums of nucleons and
    /// charge
    #[arg(long)]
    pub(crate) no_project: bool,
    /// Most steps of a zone
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) max_steps: u32,
}

/// What solves the linear systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Solver {
    Auto,
    Bicgstab,
    Lu,
    /// Dense LU with partial pivoting of every zone, on a GPU by cuBLAS: to compare with.
    DenseLu,
}

/// Where they are solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendChoice {
    Auto,
    Cpu,
    Gpu,
}

/// How linear systems are solved.
#[derive(Debug, Args)]
pub(crate) struct LinearOptions {
    /// Where to solve
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto)]
    pub(crate) backend: BackendChoice,
    /// Method; `auto` takes the sparse LU where it fills in little, as it does here
    #[arg(long, value_enum, default_value_t = Solver::Auto)]
    pub(crate) solver: Solver,
    /// Preconditioner of bicgstab: none, jacobi, block-jacobi, ilu0
    #[arg(long, value_name = "PRECONDITIONER", default_value = "ilu0")]
    pub(crate) precond: Preconditioner,
    /// Order in which ilu0 eliminates
    #[arg(long, default_value = "min-degree")]
    pub(crate) order: Order,
    /// Relative tolerance of the linear systems
    #[arg(long, value_name = "RTOL", allow_negative_numbers = true, default_value_t = 1e-10)]
    pub(crate) rtol: f64,
    /// Also accept residuals of C eps || |A||x| + |b| ||; 0 for never
    #[arg(long, value_name = "C", allow_negative_numbers = true, default_value_t = 4.0)]
    pub(crate) floor: f64,
    /// Most iterations of a system
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub(crate) max_iters: u32,
    /// Most groups of zones that burn side by side where all of it is on a GPU, each on a stream:
    /// one fills what others leave idle. Default: 2 from 50 unknowns on, else 1
    #[arg(long, value_name = "N", value_parser = streams)]
    pub(crate) streams: Option<usize>,
    /// Leave systems that were not solved as they are: the zone takes a shorter step
    #[arg(long)]
    pub(crate) no_fallback: bool,
}

fn range(text: &str) -> Result<(f64, f64), String> {
    let number = |text: &str| text.parse::<f64>().map_err(|_| format!("{text:?} is no number"));
    match text.split_once(':') {
        Some((low, high)) => Ok((number(low)?, number(high)?)),
        None => number(text).map(|value| (value, value)),
    }
}

fn streams(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=64).contains(number));
    number.ok_or_else(|| "expected 1 to 64".to_owned())
}

fn method(name: &str) -> Result<&'static Tableau, String> {
    let named = Tableau::ALL.into_iter().find(|tableau| tableau.name == name);
    named.ok_or_else(|| {
        format!("expected {}", Tableau::ALL.map(|tableau| tableau.name).join(" or "))
    })
}

impl Options {
    /// The fuels.
    pub(crate) fn fuels(&self) -> Vec<Fuel> {
        if self.fuel.is_empty() { Fuel::defaults() } else { Fuel::distinct(self.fuel.clone()) }
    }
}

impl IntegratorOptions {
    /// The settings.
    ///
    /// # Errors
    /// For a tolerance out of range.
    pub(crate) fn settings(&self) -> Result<Settings, BurningError> {
        Ok(Settings {
            method: self.method,
            project: !self.no_project,
            max_steps: self.max_steps,
            ..Settings::new(self.tolerance)?
        })
    }
}

impl LinearOptions {
    /// The machine that integrates the zones, and the reason for it. On a GPU zones burn from the
    /// first step to the last.
    ///
    /// # Errors
    /// When a GPU was requested and there is none.
    pub(crate) fn machine(&self) -> Result<(Machine, String), BurningError> {
        let (device, reason) = match self.backend {
            BackendChoice::Cpu => (None, "CPU: asked for".to_owned()),
            asked => match (Device::new(0), asked) {
                (Ok(device), BackendChoice::Gpu) => (Some(device), "GPU: asked for".to_owned()),
                (Ok(device), _) => (Some(device), "GPU: there is one".to_owned()),
                (Err(error), BackendChoice::Gpu) => {
                    return Err(BurningError::Setting(format!("--backend gpu: {error}")));
                }
                (Err(error), _) => (None, format!("CPU: no GPU: {error}")),
            },
        };
        let options = self.options();
        let Some(device) = device else {
            let means = match self.solver {
                Solver::DenseLu => Means::DenseLu,
                _ => Means::Sparse(Box::new(options)),
            };
            return Ok((Machine::Host(means), reason));
        };
        // On the GPU, a zone with an unsolved system takes a shorter step, so no fallback is
        // needed.
        let on_gpu = |method| Box::new(options.method(method).fallback(false));
        let solver = match self.solver {
            Solver::DenseLu => OnGpu::DenseLu,
            Solver::Bicgstab => OnGpu::Sparse(on_gpu(Method::BiCgStab)),
            Solver::Auto | Solver::Lu => OnGpu::Sparse(on_gpu(Method::Lu)),
        };
        Ok((Machine::Gpu(device, solver, self.streams), format!("{reason}; everything there")))
    }

    /// The solve options for the library.
    fn options(&self) -> SolveOptions {
        SolveOptions::new()
            .method(match self.solver {
                Solver::Auto | Solver::DenseLu => Method::Auto,
                Solver::Bicgstab => Method::BiCgStab,
                Solver::Lu => Method::Lu,
            })
            .preconditioner(self.precond)
            .order(self.order)
            .rel_tol(self.rtol)
            .floor((self.floor != 0.0).then_some(self.floor))
            .max_iters(self.max_iters)
            .fallback(!self.no_fallback)
    }
}
