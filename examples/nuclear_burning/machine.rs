//! Where zones are integrated: on the host, with linear systems solved by whatever is asked for, or
//! wholly on a GPU.

use std::time::{Duration, Instant};

use sparsebatch::SolveOptions;
use sparsebatch::spmv_gpu::Device;

use crate::equations::Equations;
use crate::error::BurningError;
use crate::gpu::dense::DenseLu;
use crate::gpu::timer::Events;
use crate::gpu::{Groups, SparseLu};
use crate::integrator::{Burning, Settings, integrate};
use crate::linear::Means;
use crate::zones::Zones;

/// The least zones of a group that burns on a stream of its own: fewer fill no GPU.
const LEAST_GROUP: usize = 64;

/// What integrates.
#[derive(Clone, Debug)]
pub(crate) enum Machine {
    /// The host, and what solves its linear systems.
    Host(Means),
    /// A GPU, from the first step to the last, with the sparse LU, the zones on so many streams at most.
    Gpu(Device, Box<SolveOptions>, usize),
    /// The same with a dense LU: what is compared with.
    DenseGpu(Device, usize),
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
        let groups = |streams: &usize| (zones.len() / LEAST_GROUP).clamp(1, *streams);
        match self {
            Self::Host(means) => {
                let burning = integrate(equations, zones, means.clone(), settings, progress)?;
                Ok((burning, Times { setup: Duration::ZERO, run: clock.elapsed() }))
            }
            Self::Gpu(device, options, streams) => {
                let make = |stream: &Device, zones: usize| {
                    let shape = (zones, settings.method.stages());
                    let solver = SparseLu::new(stream, equations, options, shape)?;
                    Ok((solver, Events::new(stream)))
                };
                let count = groups(streams);
                let mut groups = Groups::new(device, equations, zones, settings, count, make)?;
                timed(clock, || groups.run(progress))
            }
            Self::DenseGpu(device, streams) => {
                let make = |stream: &Device, zones: usize| {
                    let shape = (zones, settings.method.stages());
                    Ok((DenseLu::new(stream, equations, shape)?, Events::new(stream)))
                };
                let count = groups(streams);
                let mut groups = Groups::new(device, equations, zones, settings, count, make)?;
                timed(clock, || groups.run(progress))
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
