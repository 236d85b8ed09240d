//! The machine that integrates zones: the host, with a choice of linear solvers, or a GPU from
//! start to end.

use std::time::{Duration, Instant};

use sparsebatch::SolveOptions;
use sparsebatch::gpu::device::cache::DiskCache;
use sparsebatch::gpu::{Device, Executor, MemoryMeter};

use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::gpu::dense::DenseLu;
use crate::nuclear_burning::gpu::linear::StageSolver;
use crate::nuclear_burning::gpu::timer::Events;
use crate::nuclear_burning::gpu::{Groups, SparseStages, launches};
use crate::nuclear_burning::integrator::{Burning, Settings, integrate};
use crate::nuclear_burning::linear::Means;
use crate::nuclear_burning::zones::Zones;

/// Fewest zones of a group with its own stream: fewer do not fill a GPU.
const LEAST_GROUP: usize = 64;

/// Fewest unknowns of a zone at which two groups are faster than one: with fewer, the kernels end
/// before the host has started those of another group (4,096 zones on an H200: 13 unknowns 0.051 s
/// for 0.061, 57 the same, 156 0.71 for 0.67).
const LEAST_UNKNOWNS: usize = 50;

/// The machine that integrates.
#[derive(Clone, Debug)]
pub(crate) enum Machine {
    /// The host, with the solver of its linear systems.
    Host(Means),
    /// A GPU, from the first step to the last, with the solver of its systems, and the most streams
    /// for the zones, if that was requested.
    Gpu(Device, OnGpu, Option<usize>),
}

/// The solver of linear systems on a GPU.
#[derive(Clone, Debug)]
pub(crate) enum OnGpu {
    /// The library's solver.
    Sparse(Box<SolveOptions>),
    /// A dense LU, for comparison.
    DenseLu,
}

/// The times of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// Time for memory, tables, compilation and analyses on a GPU, before the run.
    pub(crate) setup: Duration,
    /// Time from the first rate to the last abundance.
    pub(crate) run: Duration,
}

impl Machine {
    /// Integrates all zones to their ends: see [`integrate`].
    ///
    /// # Errors
    /// As [`integrate`]; [`BurningError::Solve`] for options that the GPU does not support.
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
                    OnGpu::Sparse(options) => {
                        run.compile_ahead(|meter, shape| {
                            SparseStages::new(meter, equations, options, shape).map(drop)
                        });
                        run.with(progress, |stream, shape| {
                            SparseStages::new(stream, equations, options, shape)
                        })
                    }
                    OnGpu::DenseLu => {
                        run.with(progress, |stream, shape| DenseLu::new(stream, equations, shape))
                    }
                }
            }
        }
    }
}

/// A run on a GPU in groups of zones.
struct Run<'a> {
    device: &'a Device,
    equations: &'a Equations,
    zones: &'a Zones,
    settings: &'a Settings,
    count: usize,
}

impl Run<'_> {
    /// Compiles all kernels side by side in the first run on a machine: plans compile theirs one
    /// after the other. `rehearse` makes the plans of a group without a device. What fails here is
    /// said when the plans are made.
    fn compile_ahead(
        &self,
        rehearse: impl FnOnce(&MemoryMeter, (usize, usize)) -> Result<(), BurningError>,
    ) {
        let kernels = launches::KERNELS.map(launches::key);
        let architecture = self.device.architecture();
        if DiskCache::from_env().has_kernel(&kernels[0], architecture).unwrap_or(true) {
            return;
        }
        let meter = MemoryMeter::rehearsal(self.device.info().clone());
        let places = self.zones.len().div_ceil(self.count);
        rehearse(&meter, (places, self.settings.method.stages())).ok();
        self.device.prepare(&[&kernels[..], &meter.kernels()].concat()).ok();
    }

    /// Runs with the solver that `solver` makes for a stream and a number of zones and stages.
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
