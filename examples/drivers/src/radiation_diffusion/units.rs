//! The units of Su and Olson in cgs.

use super::error::{Error, positive};

/// Radiation constant, erg cm^-3 K^-4 (CODATA 2018).
const RADIATION_CONSTANT: f64 = 7.565_733e-15;
/// Speed of light, cm/s.
const LIGHT: f64 = 2.997_924_58e10;

/// The size of each unit in cgs. With `kappa_0` the reference opacity and `T_s` the temperature of
/// the incoming light: `x = sqrt(3) kappa_0 z`, `tau = eps c kappa_0 t`, `U = E / (a T_s^4)`,
/// `V = (T / T_s)^4`; the heat capacity of matter is `4 a T^3 / eps`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Units {
    /// cm per unit of x.
    pub length: f64,
    /// s per unit of tau.
    pub time: f64,
    /// erg/cm^3 per unit of U.
    pub energy_density: f64,
}

impl Units {
    /// Units for an opacity in 1/cm, a temperature in K and `eps`.
    ///
    /// # Errors
    /// [`Error::Input`] for a number that is not positive, or out of range in cgs.
    pub fn new(opacity: f64, temperature: f64, epsilon: f64) -> Result<Self, Error> {
        positive("the reference opacity", opacity)?;
        positive("the temperature of the source", temperature)?;
        positive("epsilon", epsilon)?;
        let units = Self {
            length: 1.0 / (3f64.sqrt() * opacity),
            time: 1.0 / (epsilon * LIGHT * opacity),
            energy_density: RADIATION_CONSTANT * temperature.powi(4),
        };
        positive("the unit of length in cm", units.length)?;
        positive("the unit of time in s", units.time)?;
        positive("the unit of energy in erg/cm^3", units.energy_density)?;
        Ok(units)
    }
}
