//! Zones in groups that burn side by side, each on a stream of its own.
//!
//! A round is a chain of kernels, each of which waits for the previous one; with few zones left,
//! most of its time is waiting. The other groups use the device while one waits.

use sparsebatch::gpu::Executor;

use super::integrator::Burner;
use super::linear::StageSolver;
use super::timer::Timer;
use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::outcome::Burning;
use crate::nuclear_burning::stepping::Settings;
use crate::nuclear_burning::zones::Zones;

/// Burners that one thread of the host advances in turn.
pub struct Groups<'a, E: Executor, S, T> {
    burners: Vec<Burner<'a, E, S, T>>,
}

impl<'a, E: Executor + Clone, S: StageSolver<E>, T: Timer> Groups<'a, E, S, T> {
    /// Puts every `count`-th zone into one group, so that all groups have zones of all kinds, and
    /// uploads everything. There are no more groups than zones. `make` makes a solver and a timer
    /// on a stream for a given number of zones.
    ///
    /// # Errors
    /// [`BurningError::Setting`] for no zones or too large a size; an error of `make` or the
    /// device.
    pub fn new(
        executor: &E,
        equations: &'a Equations,
        zones: &Zones,
        settings: &'a Settings,
        count: usize,
        mut make: impl FnMut(&E, usize) -> Result<(S, T), BurningError>,
    ) -> Result<Self, BurningError> {
        let count = count.min(zones.len()).max(1);
        let burner = |(first, stream): (usize, E)| {
            let own = zones.every(count, first);
            let (solver, timer) = make(&stream, own.len())?;
            Burner::new(&stream, equations, own, settings, solver, timer)
        };
        let burners = executor.branches(count)?.into_iter().enumerate().map(burner);
        Ok(Self { burners: burners.collect::<Result<_, _>>()? })
    }

    /// Integrates all zones to their ends; may be called once. `progress` is called now and then
    /// with the number of zones that are left.
    ///
    /// # Errors
    /// [`BurningError::Zone`] for a rate that is not finite; an error of the solver or the device.
    /// A zone that ends early is no error.
    pub fn run(&mut self, mut progress: impl FnMut(usize)) -> Result<Burning, BurningError> {
        let count = self.burners.len();
        for (first, burner) in self.burners.iter_mut().enumerate() {
            burner.start().map_err(|error| match error {
                BurningError::Zone { zone, problem } => {
                    BurningError::Zone { zone: zone * count + first, problem }
                }
                other => other,
            })?;
        }
        let mut left = usize::MAX;
        while left > 0 {
            for burner in self.burners.iter_mut().filter(|burner| burner.left() > 0) {
                burner.advance()?;
            }
            let now = self.burners.iter().map(Burner::left).sum();
            if now != left {
                progress(now);
            }
            left = now;
        }
        let ended: Result<Vec<_>, _> = self.burners.iter_mut().map(Burner::finish).collect();
        Ok(Burning::interleaved(ended?))
    }
}
