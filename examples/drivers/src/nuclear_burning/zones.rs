//! Zones: temperature, density, composition and output times.

use std::sync::Arc;

use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::network::Network;
use crate::nuclear_burning::rates::{T9_MAX, T9_MIN};

/// The highest density, g/cm^3; nuclei dissolve near 2.7e14.
const RHO_MAX: f64 = 1e14;

/// Largest deviation of the sum of the mass fractions from 1.
const NORM_SLACK: f64 = 1e-6;

/// Zones, as arrays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Zones {
    /// Temperature, GK; in self-heating runs that at t = 0.
    pub t9: Vec<f64>,
    /// Density, g/cm^3.
    pub rho: Vec<f64>,
    /// Abundances at t = 0, mole/g, zone after zone.
    pub y: Vec<f64>,
    /// Output times of each zone, s, ascending; the last one is the end.
    pub times: Vec<Arc<[f64]>>,
}

impl Zones {
    /// Number of zones.
    pub fn len(&self) -> usize {
        self.t9.len()
    }

    /// Whether there are no zones.
    pub fn is_empty(&self) -> bool {
        self.t9.is_empty()
    }

    /// The unknowns of self-heating zones at t = 0: abundances, then T9, zone after zone.
    pub(crate) fn unknowns(&self) -> Vec<f64> {
        let nnuclides = self.y.len() / self.len().max(1);
        let mut unknowns = Vec::with_capacity(self.y.len() + self.len());
        for (y, t9) in self.y.chunks_exact(nnuclides.max(1)).zip(&self.t9) {
            unknowns.extend_from_slice(y);
            unknowns.push(*t9);
        }
        unknowns
    }

    /// Every `count`-th zone, from `first` on.
    pub fn every(&self, count: usize, first: usize) -> Self {
        let nnuclides = self.y.len() / self.len().max(1);
        let own = || (first..self.len()).step_by(count);
        Self {
            t9: own().map(|zone| self.t9[zone]).collect(),
            rho: own().map(|zone| self.rho[zone]).collect(),
            y: own().flat_map(|zone| &self.y[zone * nnuclides..][..nnuclides]).copied().collect(),
            times: own().map(|zone| Arc::clone(&self.times[zone])).collect(),
        }
    }

    /// Adds a zone.
    ///
    /// # Errors
    /// [`BurningError::Zone`] for a temperature beyond the fits of the rates, a density that is not
    /// positive or is that of nuclear matter, abundances that are negative, not finite or not
    /// normalised, and times that are not positive and ascending.
    pub fn push(
        &mut self,
        network: &Network,
        (t9, rho): (f64, f64),
        y: &[f64],
        times: Arc<[f64]>,
    ) -> Result<(), BurningError> {
        let zone = self.len();
        let refused = |problem: String| Err(BurningError::Zone { zone, problem });
        if !(T9_MIN..=T9_MAX).contains(&t9) {
            return refused(format!(
                "expected a temperature of {T9_MIN} to {T9_MAX} GK, where the rates are fitted, found {t9}"
            ));
        }
        if !(rho > 0.0 && rho <= RHO_MAX) {
            return refused(format!("expected a density in (0, {RHO_MAX:e}] g/cm^3, found {rho}"));
        }
        let nnuclides = network.nuclides.len();
        if y.len() != nnuclides {
            return refused(format!("expected {nnuclides} abundances, found {}", y.len()));
        }
        if let Some(i) = y.iter().position(|y| !(y.is_finite() && *y >= 0.0)) {
            let name = &network.nuclides[i].name;
            return refused(format!(
                "expected an abundance of at least 0, found {} for {name}",
                y[i]
            ));
        }
        let sum: f64 = y.iter().zip(&network.nuclides).map(|(y, n)| y * f64::from(n.a)).sum();
        let is_normalised = (sum - 1.0).abs() <= NORM_SLACK;
        if !is_normalised {
            return refused(format!("expected mass fractions that add up to 1, found {sum}"));
        }
        let positive = times.first().is_some_and(|t| *t > 0.0);
        let ascending = times.windows(2).all(|pair| pair[0] < pair[1]);
        if !(positive && ascending && times.iter().all(|t| t.is_finite())) {
            return refused("expected positive, ascending times".to_owned());
        }
        self.t9.push(t9);
        self.rho.push(rho);
        self.y.extend_from_slice(y);
        self.times.push(times);
        Ok(())
    }
}

/// A fuel of the grid: a name and mass fractions.
#[derive(Clone, Debug, PartialEq)]
pub struct Fuel {
    pub(crate) name: String,
    pub(crate) mass_fractions: Vec<(String, f64)>,
}

impl Fuel {
    /// The default fuels: helium, carbon with oxygen, silicon.
    pub fn defaults() -> Vec<Self> {
        let fuel = |name: &str, mass_fractions: &[(&str, f64)]| Self {
            name: name.to_owned(),
            mass_fractions: mass_fractions.iter().map(|&(n, x)| (n.to_owned(), x)).collect(),
        };
        vec![
            fuel("helium", &[("he4", 1.0)]),
            fuel("carbon-oxygen", &[("c12", 0.5), ("o16", 0.5)]),
            fuel("silicon", &[("si28", 1.0)]),
        ]
    }

    /// Parses a fuel from `NAME=FRACTION,...`, nuclides and their mass fractions; its name is made
    /// of these nuclides.
    ///
    /// # Errors
    /// The fault of the text: no fraction, one that is not above 0 or finite, a nuclide that occurs
    /// twice, fractions that do not add up to 1 within 1e-6.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut mass_fractions: Vec<(String, f64)> = Vec::new();
        for part in text.split(',') {
            let (name, fraction) = part
                .split_once('=')
                .ok_or_else(|| format!("expected NAME=FRACTION, found {part:?}"))?;
            let name = name.trim();
            let fraction = fraction.trim();
            let number = fraction.parse::<f64>().ok().filter(|x| *x > 0.0 && x.is_finite());
            let number = number.ok_or_else(|| {
                format!("expected a mass fraction above 0 of {name:?}, found {fraction:?}")
            })?;
            if name.is_empty() {
                return Err(format!("expected the name of a nuclide before the = of {part:?}"));
            }
            if mass_fractions.iter().any(|(other, _)| other == name) {
                return Err(format!("expected every nuclide once, found {name} twice"));
            }
            mass_fractions.push((name.to_owned(), number));
        }
        let sum: f64 = mass_fractions.iter().map(|(_, fraction)| fraction).sum();
        if (sum - 1.0).abs() > NORM_SLACK {
            return Err(format!("expected mass fractions that add up to 1, found {sum}"));
        }
        let names: Vec<&str> = mass_fractions.iter().map(|(name, _)| name.as_str()).collect();
        Ok(Self { name: names.join("-"), mass_fractions })
    }

    /// Makes the names of fuels distinct: a repeated name gets the number of the fuel.
    pub(crate) fn distinct(mut fuels: Vec<Self>) -> Vec<Self> {
        for k in 1..fuels.len() {
            let name = &fuels[k].name;
            if fuels[..k].iter().any(|fuel| fuel.name == *name) {
                fuels[k].name = format!("{name}-{}", k + 1);
            }
        }
        fuels
    }

    /// The abundances of the fuel, mole/g.
    ///
    /// # Errors
    /// [`BurningError::Setting`] when the network lacks a nuclide of the fuel.
    pub fn abundances(&self, network: &Network) -> Result<Vec<f64>, BurningError> {
        let mut y = vec![0.0; network.nuclides.len()];
        for (name, fraction) in &self.mass_fractions {
            let place = network.position(name).ok_or_else(|| {
                let network = &network.name;
                BurningError::Setting(format!(
                    "the network {network:?} has no {name}, which the fuel {} wants: expected \
                     --fuel NAME=FRACTION,... of nuclides of the network",
                    self.name
                ))
            })?;
            y[place] = fraction / f64::from(network.nuclides[place].a);
        }
        Ok(y)
    }
}

/// A grid over temperature (evenly spaced) and density (logarithmically spaced), one for each fuel.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Total number of zones.
    pub nzones: usize,
    /// Lowest and highest temperature, GK.
    pub t9: (f64, f64),
    /// Lowest and highest density, g/cm^3.
    pub rho: (f64, f64),
    /// The fuels; zones are divided evenly among them.
    pub fuels: Vec<Fuel>,
}

impl Grid {
    /// The range of the zones of a fuel.
    pub(crate) fn of_fuel(&self, fuel: usize) -> std::ops::Range<usize> {
        let share = |fuel: usize| {
            (fuel as u128 * self.nzones as u128 / self.fuels.len().max(1) as u128) as usize
        };
        share(fuel)..share(fuel + 1)
    }

    /// Numbers of temperatures and of densities of a fuel's grid, whose last row may be incomplete.
    pub(crate) fn shape(&self, fuel: usize) -> (usize, usize) {
        let zones = self.of_fuel(fuel).len();
        let temperatures = (zones as f64).sqrt().ceil() as usize;
        (temperatures, zones.div_ceil(temperatures.max(1)))
    }

    /// Temperature and density of a position in a fuel's grid.
    pub(crate) fn state(&self, fuel: usize, place: usize) -> (f64, f64) {
        let (temperatures, densities) = self.shape(fuel);
        // A single value is in the middle of its range.
        let part = |k: usize, of: usize| if of > 1 { k as f64 / (of - 1) as f64 } else { 0.5 };
        let between = |(low, high): (f64, f64), part: f64| low + (high - low) * part;
        let t9 = between(self.t9, part(place % temperatures, temperatures));
        let logs = (self.rho.0.ln(), self.rho.1.ln());
        let rho = between(logs, part(place / temperatures, densities)).exp();
        // Clamping keeps rounding from taking a zone beyond the range.
        (t9.clamp(self.t9.0, self.t9.1), rho.clamp(self.rho.0, self.rho.1))
    }

    /// Makes the zones of the grid.
    ///
    /// # Errors
    /// [`BurningError::Setting`] for no zones, no fuel, a fuel with a nuclide that the network
    /// lacks, or an empty range, and the errors of [`Zones::push`].
    pub fn zones(&self, network: &Network, times: &Arc<[f64]>) -> Result<Zones, BurningError> {
        if self.nzones == 0 {
            return Err(BurningError::Setting("expected at least one zone, found 0".to_owned()));
        }
        if self.fuels.is_empty() {
            return Err(BurningError::Setting("expected at least one fuel, found none".to_owned()));
        }
        for (what, (low, high)) in [("temperatures", self.t9), ("densities", self.rho)] {
            let is_range = low > 0.0 && low <= high;
            if !is_range {
                let problem = format!("expected {what} LOW:HIGH above 0, found {low}:{high}");
                return Err(BurningError::Setting(problem));
            }
        }
        let mut zones = Zones::default();
        for (k, fuel) in self.fuels.iter().enumerate() {
            let of_fuel = self.of_fuel(k);
            if of_fuel.is_empty() {
                continue;
            }
            let y = fuel.abundances(network)?;
            for place in 0..of_fuel.len() {
                zones.push(network, self.state(k, place), &y, Arc::clone(times))?;
            }
        }
        Ok(zones)
    }
}

/// `count` times from `decades` decades before `end` to `end`, logarithmically spaced.
pub fn log_times(end: f64, decades: f64, count: usize) -> Arc<[f64]> {
    let last = count.saturating_sub(1);
    let time = |k: usize| {
        if k == last { end } else { end * 10f64.powf(decades * (k as f64 / last as f64 - 1.0)) }
    };
    (0..count).map(time).collect()
}
