//! The results of a grid as an `.npz` file.

use std::path::Path;

use sparsebatch::io::{Packing, write_arrays};

use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::integrator::{Burning, Outcome};
use crate::nuclear_burning::zones::{Grid, Zones};

/// A grid and its results.
#[derive(Clone, Copy)]
pub struct GridRun<'a> {
    pub equations: &'a Equations,
    pub grid: &'a Grid,
    pub zones: &'a Zones,
    pub burning: &'a Burning,
}

impl GridRun<'_> {
    /// The fuel of each zone.
    pub(crate) fn fuels(&self) -> impl Iterator<Item = usize> {
        let fuels = 0..self.grid.fuels.len();
        fuels.flat_map(|fuel| self.grid.of_fuel(fuel).map(move |_| fuel))
    }

    /// The unknowns of a zone at the times that it reached.
    pub(crate) fn states(&self, zone: usize) -> impl Iterator<Item = &[f64]> {
        self.burning.zones[zone].y.chunks_exact(self.equations.nvars())
    }

    /// Energy released in a zone when it has the abundances `y`, erg/g.
    pub(crate) fn energy(&self, zone: usize, y: &[f64]) -> f64 {
        let nnuclides = self.equations.nnuclides();
        let start = &self.zones.y[zone * nnuclides..][..nnuclides];
        self.equations.network().energy(|i| y[i] - start[i])
    }

    /// Writes flat arrays, zones first (z), then times (t), then nuclides (n): `nuclides` (n);
    /// `T9`, `rho` and `fuel` (z, at the start); `t` (t); `Y` (z t n, mole/g); `energy` (z t,
    /// erg/g); in self-heating runs `T9_of_t` (z t); `outcome`, `steps`, `rejected`, `drift_A` and
    /// `drift_Z` (z). Times that a zone did not reach hold NaN.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), BurningError> {
        let nnuclides = self.equations.nnuclides();
        let nzones = self.zones.len();
        let times = &self.zones.times[0];
        let mut y = Vec::with_capacity(nzones * times.len() * nnuclides);
        let (mut energy, mut t9) = (Vec::new(), Vec::new());
        for zone in 0..nzones {
            let mut states = self.states(zone);
            for _ in 0..times.len() {
                match states.next() {
                    Some(state) => {
                        y.extend_from_slice(&state[..nnuclides]);
                        energy.push(self.energy(zone, state));
                        t9.extend_from_slice(&state[nnuclides..]);
                    }
                    None => {
                        y.extend(std::iter::repeat_n(f64::NAN, nnuclides));
                        energy.push(f64::NAN);
                        t9.extend(self.equations.gas().map(|_| f64::NAN));
                    }
                }
            }
        }
        let outcome = |outcome: Outcome| match outcome {
            Outcome::Finished => "Finished",
            Outcome::StepUnderflow { .. } => "StepUnderflow",
            Outcome::TooManySteps { .. } => "TooManySteps",
        };
        let burned = &self.burning.zones;
        let names: Vec<&str> =
            self.equations.network().nuclides.iter().map(|n| n.name.as_str()).collect();
        let fuels: Vec<&str> =
            self.fuels().map(|fuel| self.grid.fuels[fuel].name.as_str()).collect();
        let outcomes: Vec<&str> = burned.iter().map(|zone| outcome(zone.outcome)).collect();
        let steps: Vec<i64> = burned.iter().map(|zone| i64::from(zone.steps)).collect();
        let rejected: Vec<i64> = burned.iter().map(|zone| i64::from(zone.rejected)).collect();
        let drift = |k: usize| -> Vec<f64> { burned.iter().map(|zone| zone.drift[k]).collect() };
        write_arrays(path, Packing::Deflated, |npz| {
            npz.add_strings("nuclides", &names)?;
            npz.add_f64("T9", &self.zones.t9)?;
            npz.add_f64("rho", &self.zones.rho)?;
            npz.add_strings("fuel", &fuels)?;
            npz.add_f64("t", times)?;
            npz.add_f64("Y", &y)?;
            npz.add_f64("energy", &energy)?;
            if self.equations.gas().is_some() {
                npz.add_f64("T9_of_t", &t9)?;
            }
            npz.add_strings("outcome", &outcomes)?;
            npz.add_i64("steps", &steps)?;
            npz.add_i64("rejected", &rejected)?;
            npz.add_f64("drift_A", &drift(0))?;
            npz.add_f64("drift_Z", &drift(1))
        })?;
        Ok(())
    }
}
