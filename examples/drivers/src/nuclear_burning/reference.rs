//! Reference states and runs that another code computed, and the comparison with them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::nuclear_burning::equations::{Equations, Group, LANES, Scratch};
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::integrator::Burning;
use crate::nuclear_burning::network::Network;
use crate::nuclear_burning::rates;
use crate::nuclear_burning::zones::Zones;

/// Reference states with derivatives, and reference runs.
#[derive(Clone, Debug, Deserialize)]
pub struct Reference {
    pub states: Vec<State>,
    pub runs: Vec<Run>,
}

/// `dY/dt` and J at one state, and the same sums over absolute values.
#[derive(Clone, Debug, Deserialize)]
#[expect(non_snake_case, reason = "as in the file")]
pub struct State {
    pub T9: f64,
    pub rho: f64,
    pub Y: Vec<f64>,
    pub ydot: Vec<f64>,
    pub ydot_magnitude: Vec<f64>,
    pub jac_row: Vec<usize>,
    pub jac_col: Vec<usize>,
    pub jac_val: Vec<f64>,
    pub jac_magnitude: Vec<f64>,
}

/// Abundances and energy of a zone at several times.
#[derive(Clone, Debug, Deserialize)]
#[expect(non_snake_case, reason = "as in the file")]
pub struct Run {
    pub(crate) label: String,
    pub(crate) T9: f64,
    pub(crate) rho: f64,
    pub(crate) Y0: Vec<f64>,
    pub(crate) t: Vec<f64>,
    pub(crate) Y: Vec<Vec<f64>>,
    pub(crate) energy_erg_per_g: Vec<f64>,
}

/// The differences of a run from its reference, over all times.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    pub label: String,
    /// Number of compared times, and of reference times.
    pub times: (usize, usize),
    /// Largest difference of an abundance, mole/g.
    pub absolute: f64,
    /// Largest relative difference where Y is above 1e-10.
    pub relative: f64,
    /// Largest difference of the energy released, relative to the total energy released.
    pub energy: f64,
}

/// The differences of `dY/dt` and J from the reference at its states, relative to the sums of
/// absolute values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Derivatives {
    /// Largest relative difference of `dY/dt`.
    pub rhs: f64,
    /// Largest relative difference of J; infinite if the patterns differ.
    pub jacobian: f64,
}

/// The tolerance of derivatives: ten times the rounding.
const DERIVATIVES: f64 = 1e-11;

impl Derivatives {
    /// Whether both are within 1e-11.
    pub fn hold(self) -> bool {
        self.rhs <= DERIVATIVES && self.jacobian <= DERIVATIVES
    }
}

impl fmt::Display for Derivatives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rhs, jacobian } = self;
        write!(
            f,
            "dY/dt within {rhs:.1e}, J within {jacobian:.1e} of the sums of absolute values  {}",
            verdict(self.hold())
        )
    }
}

/// The printed verdict of a comparison.
pub(crate) fn verdict(agrees: bool) -> &'static str {
    if agrees { "agrees" } else { "DIFFERS" }
}

/// The larger of two differences; NaN counts as infinite.
fn worse(worst: f64, difference: f64) -> f64 {
    if difference.is_nan() { f64::INFINITY } else { worst.max(difference) }
}

impl Agreement {
    /// Whether a run is within the tolerances: 1e-6 absolute, 1e-5 relative above 1e-10, 1e-6 of
    /// the energy.
    pub fn holds(&self) -> bool {
        self.times.0 == self.times.1
            && self.absolute <= 1e-6
            && self.relative <= 1e-5
            && self.energy <= 1e-6
    }
}

impl Reference {
    /// Reads a reference file of a network.
    ///
    /// # Errors
    /// [`BurningError::File`] when the file is not a reference file, or belongs to another network.
    pub fn read(path: &Path, network: &Network) -> Result<Self, BurningError> {
        let file = |problem: String| BurningError::File { path: path.to_owned(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| file(error.to_string()))?;
        let reference: Self =
            serde_json::from_str(&text).map_err(|error| file(error.to_string()))?;
        let nnuclides = network.nuclides.len();
        let lengths = reference.states.iter().map(|state| state.Y.len());
        let lengths = lengths.chain(reference.runs.iter().map(|run| run.Y0.len()));
        if let Some(found) = lengths.into_iter().find(|&found| found != nnuclides) {
            return Err(file(format!("expected {nnuclides} abundances, found {found}")));
        }
        Ok(reference)
    }

    /// The runs as zones.
    ///
    /// # Errors
    /// As [`Zones::push`].
    pub fn zones(&self, network: &Network) -> Result<Zones, BurningError> {
        let mut zones = Zones::default();
        for run in &self.runs {
            zones.push(network, (run.T9, run.rho), &run.Y0, Arc::from(run.t.as_slice()))?;
        }
        Ok(zones)
    }

    /// Compares the integrated runs with the reference.
    pub fn compare(&self, network: &Network, burning: &Burning) -> Vec<Agreement> {
        let nnuclides = network.nuclides.len();
        let compare = |(run, burned): (&Run, &crate::nuclear_burning::integrator::Burned)| {
            let states: Vec<&[f64]> = burned.y.chunks_exact(nnuclides).collect();
            let released = run.energy_erg_per_g.iter().fold(0.0f64, |most, e| most.max(e.abs()));
            let mut agreement = Agreement {
                label: run.label.clone(),
                times: (states.len(), run.t.len()),
                absolute: 0.0,
                relative: 0.0,
                energy: 0.0,
            };
            for ((y, expected), energy) in states.iter().zip(&run.Y).zip(&run.energy_erg_per_g) {
                for (y, expected) in y.iter().zip(expected) {
                    let difference = (y - expected).abs();
                    agreement.absolute = worse(agreement.absolute, difference);
                    if *expected > 1e-10 {
                        agreement.relative = worse(agreement.relative, difference / expected);
                    }
                }
                let found = network.energy(|i| y[i] - run.Y0[i]);
                let off = if found == *energy { 0.0 } else { (found - energy).abs() / released };
                agreement.energy = worse(agreement.energy, off);
            }
            agreement
        };
        self.runs.iter().zip(&burning.zones).map(compare).collect()
    }

    /// Compares `dY/dt` and J with those of the reference states.
    pub fn compare_derivatives(&self, equations: &Equations) -> Derivatives {
        let network = equations.network();
        let pattern = equations.pattern();
        let view = sparsebatch::Pattern::view(&**pattern);
        let (mut rhs, mut jacobian) = (0.0f64, 0.0f64);
        let mut lambda = vec![0.0; network.rates.len()];
        let mut scratch = Scratch::default();
        for state in &self.states {
            rates::evaluate(network, state.T9, state.rho, &mut lambda);
            let lanes: Vec<[f64; LANES]> = lambda.iter().map(|lambda| [*lambda; LANES]).collect();
            let group = Group { rho: &[state.rho], lambda: &lanes };
            let mut ydot = vec![0.0; equations.nvars()];
            equations.rhs(group, &state.Y, &mut scratch, &mut ydot);
            let mut values = vec![0.0; view.nnz()];
            equations.shifted_jacobian(group, &state.Y, &[0.0], &mut scratch, &mut values);
            values.iter_mut().for_each(|value| *value = -*value);
            let part = |found: f64, expected: f64, magnitude: f64| {
                if found == expected { 0.0 } else { (found - expected).abs() / magnitude }
            };
            for ((found, expected), magnitude) in
                ydot.iter().zip(&state.ydot).zip(&state.ydot_magnitude)
            {
                rhs = worse(rhs, part(*found, *expected, *magnitude));
            }
            if [state.ydot.len(), state.ydot_magnitude.len()] != [ydot.len(); 2] {
                rhs = f64::INFINITY;
            }
            let (places, entries) = (state.jac_row.len(), state.jac_val.len());
            if [places, state.jac_col.len(), entries, state.jac_magnitude.len()] != [view.nnz(); 4]
            {
                jacobian = f64::INFINITY;
            }
            let places = state.jac_row.iter().zip(&state.jac_col);
            for ((place, expected), magnitude) in
                places.zip(&state.jac_val).zip(&state.jac_magnitude)
            {
                let found = view.position(*place.0, *place.1).map_or(f64::NAN, |k| values[k]);
                jacobian = worse(jacobian, part(found, *expected, *magnitude));
            }
        }
        Derivatives { rhs, jacobian }
    }
}
