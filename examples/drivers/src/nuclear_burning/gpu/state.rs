//! The state of the zones of a run on the device.

use std::sync::Arc;

use rayon::prelude::*;
use sparsebatch::gpu::{Executor, GpuError, PinnedValues};

use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::outcome::{Burned, Outcome};
use crate::nuclear_burning::zones::Zones;

/// Numbers per place in `pace` and `course`, and per zone in `counts` and `figures`: see
/// `kernels/state.cuh`.
const PACE: usize = 6;
const COURSE: usize = 3;
const COUNTS: usize = 5;
const FIGURES: usize = 5;

/// The state of the active zones, place by place.
pub(super) struct Places<E: Executor> {
    /// Unknowns: abundances, mole/g, and T9 of self-heating zones.
    pub(super) y: E::Buffer<f64>,
    /// Rates, rate after rate; within a rate, all places side by side.
    pub(super) lambda: E::Buffer<f64>,
    /// Distance between two rates in places, see [`Places::stride`].
    pub(super) stride: u32,
    /// Times and steps.
    pub(super) pace: E::Buffer<f64>,
    /// Zone number, index of the next output time, and flags.
    pub(super) course: E::Buffer<u32>,
}

impl<E: Executor> Places<E> {
    /// Allocates for `places` zones with `nvars` unknowns and the given number of rates.
    pub(super) fn new(
        executor: &E,
        places: usize,
        nvars: usize,
        nrates: usize,
    ) -> Result<Self, GpuError> {
        let stride = Self::stride(places);
        Ok(Self {
            y: executor.alloc_zeroed(places * nvars)?,
            lambda: executor.alloc_zeroed(stride as usize * nrates)?,
            stride,
            pace: executor.alloc_zeroed(places * PACE)?,
            course: executor.alloc_zeroed(places * COURSE)?,
        })
    }

    /// The initial `course`, in which each zone is at the place of its number.
    pub(super) fn course(places: usize) -> Vec<u32> {
        (0..places as u32).flat_map(|zone| [zone, 0, 0]).collect()
    }

    /// The `stride` for `places` places: even, since threads read the rates of two zones at once.
    pub(super) fn stride(places: usize) -> u32 {
        places.next_multiple_of(2) as u32
    }
}

/// The inputs and results of every zone.
pub(super) struct Results<E: Executor> {
    pub(super) zones: usize,
    nvars: usize,
    /// Abundances at t = 0.
    pub(super) start: E::Buffer<f64>,
    /// Offset of the output times of each zone.
    pub(super) time_ptr: E::Buffer<u32>,
    /// Output times, s, zone after zone.
    pub(super) times: E::Buffer<f64>,
    pub(super) counts: E::Buffer<u32>,
    pub(super) figures: E::Buffer<f64>,
    /// Unknowns at the output times.
    pub(super) y: E::Buffer<f64>,
    /// Host memory for `y`, and the results made of it. Both are allocated beforehand: they take as
    /// much memory as all else together, and no run should wait for that.
    y_host: E::Pinned<f64>,
    burned: Vec<Burned>,
    /// Number of active zones.
    pub(super) left: E::Buffer<u32>,
    /// Most steps tried in a zone.
    pub(super) tried: E::Buffer<u32>,
}

impl<E: Executor> Results<E> {
    /// Uploads the inputs of the zones.
    ///
    /// # Errors
    /// [`BurningError::Setting`] for too many output times; an error of the device.
    pub(super) fn new(executor: &E, zones: &Zones, nvars: usize) -> Result<Self, BurningError> {
        let mut time_ptr = vec![0u32];
        let mut times = Vec::new();
        for own in &zones.times {
            times.extend_from_slice(own);
            time_ptr.push(u32::try_from(times.len()).map_err(|_| {
                let problem = "a GPU takes at most 4294967295 output times of all zones";
                BurningError::Setting(problem.to_owned())
            })?);
        }
        // Writing the values makes the system provide the memory now.
        let burned = |times: &Arc<[f64]>| Burned::beginning(vec![1.0; times.len() * nvars]);
        Ok(Self {
            zones: zones.len(),
            nvars,
            burned: zones.times.par_iter().map(burned).collect(),
            start: executor.upload(&zones.y)?,
            time_ptr: executor.upload(&time_ptr)?,
            counts: executor.alloc_zeroed(zones.len() * COUNTS)?,
            figures: executor.alloc_zeroed(zones.len() * FIGURES)?,
            y: executor.alloc(times.len() * nvars)?,
            y_host: executor.alloc_pinned(times.len() * nvars)?,
            times: executor.upload(&times)?,
            left: executor.upload(&[zones.len() as u32])?,
            tried: executor.upload(&[0])?,
        })
    }

    /// The results of the zones, and the most steps tried in one. May be called once; waits for all
    /// work.
    pub(super) fn download(
        &mut self,
        executor: &E,
        zones: &Zones,
    ) -> Result<(Vec<Burned>, u64), GpuError> {
        executor.copy_to_pinned(&self.y, &mut self.y_host)?;
        let counts = executor.download(&self.counts)?;
        let figures = executor.download(&self.figures)?;
        let time_ptr = executor.download(&self.time_ptr)?;
        let tried = executor.download(&self.tried)?[0];
        let y = self.y_host.as_slice()?;
        let nvars = self.nvars;
        let fill = |(zone, burned): (usize, &mut Burned)| {
            let [steps, rejected, unsolved, outcome, clamped] = *part::<_, COUNTS>(&counts, zone);
            let [nucleons, charge, lowest, t, step] = *part::<_, FIGURES>(&figures, zone);
            burned.outcome = match outcome {
                0 => Outcome::Finished,
                1 => Outcome::StepUnderflow { t, step },
                _ => Outcome::TooManySteps { t },
            };
            // The time of a zone is exactly that of the last output reached, or later.
            let reached = zones.times[zone].iter().filter(|time| **time <= t).count();
            burned.y.truncate(reached * nvars);
            let first = time_ptr[zone] as usize * nvars;
            burned.y.copy_from_slice(&y[first..first + reached * nvars]);
            (burned.steps, burned.rejected, burned.unsolved) = (steps, rejected, unsolved);
            burned.drift = [nucleons, charge];
            burned.lowest = lowest;
            burned.clamped = clamped != 0;
        };
        self.burned.par_iter_mut().enumerate().for_each(fill);
        Ok((std::mem::take(&mut self.burned), u64::from(tried)))
    }
}

/// The numbers of one zone, out of those of all zones.
fn part<T, const COUNT: usize>(of_all: &[T], zone: usize) -> &[T; COUNT] {
    &of_all.as_chunks().0[zone]
}
