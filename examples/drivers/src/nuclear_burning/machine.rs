//! Where zones are integrated: on the host, with linear systems solved by whatever is asked for, or
//! wholly on a GPU.

use std::time::{Duration, Instant};

use sparsebatch::SolveOptions;
use sparsebatch::gpu::Device;

use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::gpu::dense::DenseLu;
use crate::nuclear_burning::gpu::linear::StageSolver;
use crate::nuclear_burning::gpu::timer::Events;
use crate::nuclear_burning::gpu::{Groups, Iterative, SparseLu};
use crate::nuclear_burning::integrator::{Burning, Settings, integrate};
use crate::nuclear_burning::linear::Means;
use crate::nuclear_burning::zones::Zones;

/// The least zones of a group that burns on a stream of its own: fewer fill no GPU.
const LEAST_GROUP: usize = 64;

/// Unknowns of a zone from which on two groups are quicker than one: the kernels of smaller ones end before the host has
/// started those of another group (4,096 zones on an H200: 13 unknowns 0.051 s for 0.061, 57 the same, 156 0.71 for 0.67).
const LEAST_UNKNOWNS: usize = 50;

/// What integrates.
#[derive(Clone, Debug)]
pub(crate) enum Machine {
    /// The host, and what solves its linear systems.
    Host(Means),
    /// A GPU, from the first step to the last, what solves the systems there, and the zones on so many streams at
    /// most, if that is asked for.
    Gpu(Device, OnGpu, Option<usize>),
}

/// What solves linear systems on a GPU.
#[derive(Clone, Debug)]
pub(crate) enum OnGpu {
    SparseLu(Box<SolveOptions>),
    Iterative(Box<SolveOptions>),
    /// What is compared with.
    DenseLu,
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
        match self {
            Self::Host(means) => {
                let clock = Instant::now();
                let burning = integrate(equations, zones, means.clone(), settings, progress)?;
                Ok((burning, Times { setup: Duration::ZERO, run: clock.elapsed() }))
            }
            Self::Gpu(device, solver, streams) => {
                let most = if equations.nvars() < LEAST_UNKNOWNS { 1 } else { 2 };
                let count = (zones.len() / LEAST_GROUP).clamp(1, streams.unwrap_or(most));
                let run = Run { device, equations, zones, settings, count };
                match solver {
                    OnGpu::SparseLu(options) => run.with(progress, |stream, shape| {
                        SparseLu::new(stream, equations, options, shape)
                    }),
                    OnGpu::Iterative(options) => run.with(progress, |stream, shape| {
                        Iterative::new(stream, equations, options, shape)
                    }),
                    OnGpu::DenseLu => {
                        run.with(progress, |stream, shape| DenseLu::new(stream, equations, shape))
                    }
                }
            }
        }
    }
}

/// A run on a GPU, in so many groups.
struct Run<'a> {
    device: &'a Device,
    equations: &'a Equations,
    zones: &'a Zones,
    settings: &'a Settings,
    count: usize,
}

impl Run<'_> {
    /// `solver` makes one for a stream, so many zones and so many stages.
    fn with<S: StageSolver<Device>>(
        self,
        progress: impl FnMut(usize),
        mut solver: impl FnMut(&Device, (usize, usize)) -> Result<S, BurningError>,
    ) -> Result<(Burning, Times), BurningError> {
        let clock = Instant::now();
        let Self { device, equations, zones, settings, count } = self;
        let make = |stream: &Device, zones: usize| {
            Ok((solver(stream, (zones, settings.method.stages()))?, Events::new(stream)))
        };
        let mut groups = Groups::new(device, equations, zones, settings, count, make)?;
        let setup = clock.elapsed();
        let clock = Instant::now();
        let burning = groups.run(progress)?;
        Ok((burning, Times { setup, run: clock.elapsed() }))
    }
}
