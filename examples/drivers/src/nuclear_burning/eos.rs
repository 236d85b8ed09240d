//! The equation of state of self-heating runs: ideal ions, ideal electrons and radiation.
//!
//! ```text
//! E(T, Y) = 3/2 N_A k T sum_i Y_i (1 + Z_i) + a T^4 / rho        erg/g
//! ```
//!
//! At constant density no work is done, so that the energy of nuclear binding heats the gas:
//! `dE = N_A sum_i B_i dY_i`. Ionisation is complete; electrons are ideal and not degenerate, and
//! there are no pairs and no Coulomb terms. Below about 1e6 g/cm^3 at these temperatures this is a
//! fair description of the gas; above, it heats more slowly than a degenerate gas.
//!
//! # Source
//! Hansen, Kawaler and Trimble 2004, Stellar Interiors, 2nd ed., sections 3.2 and 3.3; constants
//! CODATA 2018.

use crate::nuclear_burning::network::{AVOGADRO, ERG_PER_MEV, Network};

/// Boltzmann's constant, erg/K.
const BOLTZMANN: f64 = 1.380_649e-16;
/// Radiation constant, erg cm^-3 K^-4.
pub(crate) const RADIATION: f64 = 7.565_733_250e-15;
/// Kelvin per GK.
const GIGA: f64 = 1e9;

/// The gas of a network's nuclides.
#[derive(Clone, Debug)]
pub struct Gas {
    /// `3/2 N_A k (1 + Z_i)`, erg/(mole K).
    heat: Vec<f64>,
    /// `N_A B_i`, erg/mole.
    binding: Vec<f64>,
}

impl Gas {
    pub(crate) fn new(network: &Network) -> Self {
        let per_particle = 1.5 * AVOGADRO * BOLTZMANN;
        let nuclides = &network.nuclides;
        Self {
            heat: nuclides.iter().map(|n| per_particle * f64::from(1 + n.z)).collect(),
            binding: nuclides.iter().map(|n| AVOGADRO * ERG_PER_MEV * n.binding_mev).collect(),
        }
    }

    /// `3/2 N_A k (1 + Z_i)` of each nuclide, erg/(mole K).
    pub(crate) fn heats(&self) -> &[f64] {
        &self.heat
    }

    /// `N_A B_i` of each nuclide, erg/mole.
    pub(crate) fn bindings(&self) -> &[f64] {
        &self.binding
    }

    /// Heat capacity at constant volume, erg/(g K).
    pub fn heat_capacity(&self, y: &[f64], t9: f64, rho: f64) -> f64 {
        let ideal: f64 = self.heat.iter().zip(y).map(|(heat, y)| heat * y).sum();
        ideal + 4.0 * RADIATION * (GIGA * t9).powi(3) / rho
    }

    /// Internal energy less nuclear binding energy, erg/g: constant in a closed zone.
    pub fn total_energy(&self, y: &[f64], t9: f64, rho: f64) -> f64 {
        let temperature = GIGA * t9;
        let sum = self.heat.iter().zip(&self.binding).zip(y);
        let ideal: f64 = sum.map(|((heat, binding), y)| (heat * temperature - binding) * y).sum();
        ideal + RADIATION * temperature.powi(4) / rho
    }

    /// `dT9/dt` from `dY/dt`, GK/s.
    pub(crate) fn heating(&self, y: &[f64], t9: f64, rho: f64, ydot: &[f64]) -> f64 {
        self.released(ydot, t9) / (GIGA * self.heat_capacity(y, t9, rho))
    }

    /// Energy that changes of abundance leave to the temperature: binding energy less the thermal
    /// energy of the particles that appear.
    fn released(&self, ydot: &[f64], t9: f64) -> f64 {
        let sum = self.heat.iter().zip(&self.binding).zip(ydot);
        sum.map(|((heat, binding), ydot)| (binding - heat * GIGA * t9) * ydot).sum()
    }

    /// The derivatives of [`Gas::heating`]: with respect to every abundance when `column(j)` is
    /// `d(dY/dt)/dY_j`, see [`Slopes`].
    pub(crate) fn slopes(&self, y: &[f64], t9: f64, rho: f64, ydot: &[f64]) -> Slopes<'_> {
        let capacity = self.heat_capacity(y, t9, rho);
        Slopes { gas: self, t9, rho, capacity, heating: self.heating(y, t9, rho, ydot) }
    }
}

/// Derivatives of the heating at one state.
pub(crate) struct Slopes<'a> {
    gas: &'a Gas,
    t9: f64,
    rho: f64,
    capacity: f64,
    heating: f64,
}

impl Slopes<'_> {
    /// Energy, erg/mole, that one mole of a nuclide leaves to the temperature, over `1e9 c_v`.
    pub(crate) fn weight(&self, nuclide: usize) -> f64 {
        let released = self.gas.binding[nuclide] - self.gas.heat[nuclide] * GIGA * self.t9;
        released / (GIGA * self.capacity)
    }

    /// The term of the derivative with respect to `Y_j` beyond the weighted sum of `d(dY/dt)/dY_j`.
    pub(crate) fn of_abundance(&self, nuclide: usize) -> f64 {
        -self.heating * self.gas.heat[nuclide] / self.capacity
    }

    /// The term of the derivative with respect to T9 beyond the weighted sum of `d(dY/dt)/dT9`.
    pub(crate) fn of_temperature(&self, ydot: &[f64]) -> f64 {
        let particles: f64 = self.gas.heat.iter().zip(ydot).map(|(heat, ydot)| heat * ydot).sum();
        let stiffening = 12.0 * RADIATION * (GIGA * self.t9).powi(2) * GIGA / self.rho;
        -(particles + self.heating * stiffening) / self.capacity
    }
}
