//! Where zones are integrated: on the host, with linear systems solved by whatever is asked for, or
//! wholly on a GPU.

use std::time::{Duration, Instant};

use sparsebatch::SolveOptions;
use sparsebatch::spmv_gpu::Device;

use crate::equations::Equations;
use crate::error::BurningError;
use crate::gpu::dense::DenseLu;
use crate::gpu::timer::Events;
use crate::gpu::{Burner, SparseLu};
use crate::integrator::{Burning, Settings, integrate};
use crate::linear::Means;
use crate::zones::Zones;

/// What integrates.
#[derive(Clone, Debug)]
pub(crate) enum Machine {
    /// The host, and what solves its linear systems.
    Host(Means),
    /// A GPU, from the first step to the last, with the sparse LU.
    Gpu(Device, Box<SolveOptions>),
    /// The same with a dense LU: what is compared with.
    DenseGpu(Device),
}

/// How long it took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// Memory, tables, compiled kernels and analyses of a GPU, before it begins.
    pub(crate) setup: Duration,
    /// From the first rate to the last abundance.
    pub(crate) run: Duration,
}

impl Machine {
    /// Carries all zones to their ends: see [`integrate`].
    ///
    /// # Errors
    /// As [`integrate`]; [`BurningError::Solve`] for what the GPU cannot do.
    pub(crate) fn integrate(
        &self,
        equations: &Equations,
        zones: &Zones,
        settings: &Settings,
        progress: impl FnMut(usize),
    ) -> Result<(Burning, Times), BurningError> {
        let clock = Instant::now();
        match self {
            Self::Host(means) => {
                let burning = integrate(equations, zones, means.clone(), settings, progress)?;
                Ok((burning, Times { setup: Duration::ZERO, run: clock.elapsed() }))
            }
            Self::Gpu(device, options) => {
                let shape = (zones.len(), settings.method.stages());
                let solver = SparseLu::new(device, equations, options, shape)?;
                let timer = Events::new(device);
                let burner = Burner::new(device, equations, zones, settings, solver, timer)?;
                timed(clock, || burner.run(progress))
            }
            Self::DenseGpu(device) => {
                let shape = (zones.len(), settings.method.stages());
                let solver = DenseLu::new(device, equations, shape)?;
                let timer = Events::new(device);
                let burner = Burner::new(device, equations, zones, settings, solver, timer)?;
                timed(clock, || burner.run(progress))
            }
        }
    }
}

/// Runs what has been set up since `begun`.
fn timed(
    begun: Instant,
    run: impl FnOnce() -> Result<Burning, BurningError>,
) -> Result<(Burning, Times), BurningError> {
    let setup = begun.elapsed();
    let clock = Instant::now();
    let burning = run()?;
    Ok((burning, Times { setup, run: clock.elapsed() }))
}
