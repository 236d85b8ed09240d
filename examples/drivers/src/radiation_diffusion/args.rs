//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use sparsebatch::{Method, Order, Preconditioner, SolveOptions};

use super::cases::Plane;
use super::error::{Error, positive};
use super::problem::Limiter;

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Grey non-equilibrium Marshak wave (Su and Olson 1996), many rays.
    Grey,
    /// Linear multigroup Marshak wave, many rays.
    Multigroup,
    /// Flux-limited multigroup diffusion in a plane with clouds.
    #[value(name = "2d")]
    Plane,
    /// Errors of both waves in space, at the time of the references nearest to 1, and of the
    /// limited plane in time, at growing resolution.
    Convergence,
    /// The three problems.
    All,
}

/// Where to solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Where {
    /// On a GPU if there is one, with the CPU's help.
    Auto,
    /// On the CPU.
    Cpu,
    /// On the GPU alone.
    Gpu,
}

/// Radiation diffusion by batched solves, checked against references.
///
/// Units are those of Su and Olson: lengths sqrt(3) kappa_0 z, times eps c kappa_0 t, energies
/// relative to those of the light that enters. `docs/radiation-diffusion.md` has the equations.
///
/// Exit codes: 0 all agrees, 1 an internal failure, 2 bad usage or input, 3 a system was not
/// solved, or a profile DIFFERS from its reference.
#[derive(Clone, Debug, Parser)]
#[command(name = "radiation_diffusion")]
pub struct Args {
    /// What to run.
    #[arg(value_enum, default_value_t = Case::All)]
    pub(crate) case: Case,
    /// Where to solve.
    #[arg(long, value_enum, default_value_t = Where::Auto)]
    pub(crate) backend: Where,
    /// Cells of each ray.
    #[arg(long, default_value_t = 256)]
    pub(crate) zones: usize,
    /// Rays of the multigroup wave, and of each epsilon of the grey one.
    #[arg(long, default_value_t = 8)]
    pub(crate) rays: usize,
    /// Length of every ray in its own optical depth [default: beyond the wave].
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) length: Option<f64>,
    /// Cells of the plane along x and y.
    #[arg(long, value_name = "NXxNY", default_value = "48x48", value_parser = pair::<usize>)]
    pub(crate) cells: [usize; 2],
    /// Lengths of the plane along x and y.
    #[arg(
        long,
        value_name = "LXxLY",
        default_value = "10x10",
        value_parser = pair::<f64>,
        allow_hyphen_values = true
    )]
    pub(crate) size: [f64; 2],
    /// Groups of the plane.
    #[arg(long, default_value_t = 8)]
    pub(crate) groups: usize,
    /// How much more opaque the clouds of the plane are; 1: none.
    #[arg(long, default_value_t = 30.0, allow_negative_numbers = true)]
    pub(crate) contrast: f64,
    /// Flux limiter of the plane.
    #[arg(long, value_enum, default_value_t = Limiter::LevermorePomraning)]
    pub(crate) limiter: Limiter,
    /// Epsilon of the plane, and of the units.
    #[arg(long, default_value_t = 0.1, allow_negative_numbers = true)]
    pub(crate) epsilon: f64,
    /// Times to write and compare [default: those of the reference; 0.1 to 10 in the plane].
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) times: Option<Vec<f64>>,
    /// Steps while time grows tenfold; errors fall as its square.
    #[arg(long, default_value_t = 30.0, allow_negative_numbers = true)]
    pub(crate) steps_per_decade: f64,
    /// Relative residual of the coupled systems of a stage.
    #[arg(long, default_value_t = 1e-12, allow_negative_numbers = true)]
    pub(crate) tolerance: f64,
    /// Solver: auto, cg, bicgstab or lu.
    #[arg(long, default_value = "cg")]
    pub(crate) solver: Method,
    /// Preconditioner: auto, none, jacobi, block-jacobi, ilu0 or ic0.
    #[arg(long, default_value = "ic0")]
    pub(crate) precond: Preconditioner,
    /// Order of ILU(0) and IC(0): natural, min-degree or multicolor.
    #[arg(long, default_value = "natural")]
    pub(crate) order: Order,
    /// Relative residual of the batched solves.
    #[arg(long, default_value_t = 1e-3, allow_negative_numbers = true)]
    pub(crate) rtol: f64,
    /// Most iterations of a system.
    #[arg(long, default_value_t = 5000)]
    pub(crate) max_iters: u32,
    /// Leave systems that do not converge as they are, instead of solving them by other means.
    #[arg(long)]
    pub(crate) no_fallback: bool,
    /// Reference opacity in 1/cm, for units in cgs.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) opacity: f64,
    /// Temperature of the light that enters in K, for units in cgs.
    #[arg(long, default_value_t = 1e6, allow_negative_numbers = true)]
    pub(crate) source_temperature: f64,
    /// Folder with the reference files.
    #[arg(long, default_value_os_t = crate::repository().join("examples/data"))]
    pub(crate) data: PathBuf,
    /// Write states as `.npz`.
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// Folder for plots.
    #[arg(long, default_value_os_t = crate::repository().join("target/radiation_diffusion"))]
    pub(crate) plots: PathBuf,
}

fn pair<T: std::str::FromStr>(text: &str) -> Result<[T; 2], String> {
    let parts = text.split_once('x').and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
    parts.ok_or_else(|| format!("expected two numbers with an x between, found {text}"))
}

impl Args {
    /// Whether a case is requested.
    pub(crate) fn runs(&self, case: Case) -> bool {
        self.case == case || (self.case == Case::All && case != Case::Convergence)
    }

    /// The description of the plane.
    pub fn plane(&self) -> Plane {
        Plane {
            cells: self.cells,
            lengths: self.size,
            groups: self.groups,
            epsilon: self.epsilon,
            contrast: self.contrast,
            limiter: self.limiter,
        }
    }

    /// The options of the batched solves.
    ///
    /// # Errors
    /// [`Error::Input`] for a tolerance out of range, or no iterations.
    pub(crate) fn solve_options(&self) -> Result<SolveOptions, Error> {
        positive("--rtol", self.rtol)?;
        if self.rtol >= 1.0 {
            return Err(Error::input(format!("--rtol is {}, expected less than 1", self.rtol)));
        }
        if self.max_iters == 0 {
            return Err(Error::input("--max-iters is 0, expected at least 1"));
        }
        Ok(SolveOptions::new()
            .method(self.solver)
            .preconditioner(self.precond)
            .order(self.order)
            .rel_tol(self.rtol)
            .max_iters(self.max_iters)
            .fallback(!self.no_fallback))
    }
}
