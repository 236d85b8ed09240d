//! Reaction networks: reading and checking their files.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use crate::nuclear_burning::error::BurningError;

/// Avogadro's number, 1/mole (SI 2019, exact).
pub(crate) const AVOGADRO: f64 = 6.022_140_76e23;
/// One MeV in erg (SI 2019, exact).
pub(crate) const ERG_PER_MEV: f64 = 1.602_176_634e-6;

/// A nuclide.
#[derive(Clone, Debug, PartialEq)]
pub struct Nuclide {
    pub name: String,
    /// Charge number.
    pub z: u32,
    /// Mass number.
    pub a: u32,
    /// Total binding energy, MeV.
    pub binding_mev: f64,
}

/// A rate: `prefactor * rho^rho_exponent * N_A<sigma v>(T9) * product of Y over the reactants`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// A readable name, for messages.
    pub id: String,
    /// Indices of nuclides, repeated when one enters more than once.
    pub reactants: Vec<usize>,
    /// Indices of nuclides, repeated when one is produced more than once.
    pub products: Vec<usize>,
    /// 1 / product of n_i! over identical reactants.
    pub prefactor: f64,
    /// Number of reactants less 1.
    pub rho_exponent: i32,
    /// Sets of coefficients a0 to a6 (REACLIB), whose exponentials are added.
    pub sets: Vec<[f64; 7]>,
    /// The rate with reactants and products exchanged.
    pub partner: Option<usize>,
}

/// A reaction network whose every rate conserves nucleons and charge.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub name: String,
    pub nuclides: Vec<Nuclide>,
    pub rates: Vec<Rate>,
}

/// The file; optional fields let the checks below distinguish missing from wrong ones.
#[derive(Deserialize)]
struct NetworkFile {
    network: Option<String>,
    nuclides: Option<Vec<NuclideEntry>>,
    rates: Option<Vec<RateEntry>>,
}

#[derive(Deserialize)]
#[expect(non_snake_case, reason = "as in the file")]
struct NuclideEntry {
    name: Option<String>,
    Z: Option<u32>,
    A: Option<u32>,
    binding_MeV: Option<f64>,
}

#[derive(Deserialize)]
struct RateEntry {
    id: Option<String>,
    reactants: Option<Vec<String>>,
    products: Option<Vec<String>>,
    prefactor: Option<f64>,
    rho_exponent: Option<i32>,
    sets: Option<Vec<Vec<f64>>>,
    partner: Option<usize>,
}

/// The most reactants or products of a rate (REACLIB chapters 1 to 11 have up to 4).
pub(crate) const MAX_PARTICLES: usize = 4;

impl Network {
    /// Reads a network from a JSON file.
    ///
    /// # Errors
    /// [`BurningError::File`] when the file cannot be read or is not JSON of this form, and the
    /// errors of [`Network::parse`].
    pub fn read(path: &Path) -> Result<Self, BurningError> {
        let file = |problem: String| BurningError::File { path: path.to_owned(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| file(error.to_string()))?;
        Self::parse(&text).map_err(|error| file(error.to_string()))
    }

    /// Reads a network from JSON text.
    ///
    /// # Errors
    /// [`BurningError::Network`] for the first nuclide or rate that is incomplete, unknown or
    /// unbalanced, named by its place.
    pub fn parse(text: &str) -> Result<Self, BurningError> {
        let file: NetworkFile =
            serde_json::from_str(text).map_err(|error| wrong("network", error.to_string()))?;
        let entries = file.nuclides.filter(|entries| !entries.is_empty());
        let entries =
            entries.ok_or_else(|| wrong("nuclides", "expected at least one, found none"))?;
        let mut nuclides = Vec::with_capacity(entries.len());
        let mut index = HashMap::new();
        for (i, entry) in entries.into_iter().enumerate() {
            let nuclide = entry.check(&format!("nuclides[{i}]"))?;
            if let Some(first) = index.insert(nuclide.name.clone(), i) {
                let problem = format!("{:?} stands at nuclides[{first}] already", nuclide.name);
                return Err(wrong(&format!("nuclides[{i}]"), problem));
            }
            nuclides.push(nuclide);
        }
        let entries = file.rates.ok_or_else(|| wrong("rates", "expected a list, found none"))?;
        let mut rates = Vec::with_capacity(entries.len());
        for (r, entry) in entries.into_iter().enumerate() {
            let place = match &entry.id {
                Some(id) => format!("rates[{r}] {id:?}"),
                None => format!("rates[{r}]"),
            };
            rates.push(entry.check(&place, &nuclides, &index)?);
        }
        check_partners(&rates)?;
        let name = file.network.unwrap_or_else(|| "unnamed".to_owned());
        Ok(Self { name, nuclides, rates })
    }

    /// The binding energy released per gram when abundances change, erg/g; `change(i)` is the
    /// change of `Y_i` in mole/g.
    pub(crate) fn energy(&self, change: impl Fn(usize) -> f64) -> f64 {
        let mev = |(i, nuclide): (usize, &Nuclide)| change(i) * nuclide.binding_mev;
        AVOGADRO * ERG_PER_MEV * self.nuclides.iter().enumerate().map(mev).sum::<f64>()
    }

    /// The index of a nuclide.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.nuclides.iter().position(|nuclide| nuclide.name == name)
    }
}

fn wrong(place: &str, problem: impl Into<String>) -> BurningError {
    BurningError::Network { place: place.to_owned(), problem: problem.into() }
}

impl NuclideEntry {
    fn check(self, place: &str) -> Result<Nuclide, BurningError> {
        let missing = |field: &str| wrong(place, format!("{field} is missing"));
        let name = self.name.ok_or_else(|| missing("name"))?;
        let z = self.Z.ok_or_else(|| missing("Z"))?;
        let a = self.A.ok_or_else(|| missing("A"))?;
        let binding_mev = self.binding_MeV.ok_or_else(|| missing("binding_MeV"))?;
        // No nuclide has a mass number above about 300, so larger numbers are faults of the file.
        if a == 0 || a > 400 || z > a {
            return Err(wrong(
                place,
                format!("expected 1 <= A <= 400 and Z <= A, found Z {z}, A {a}"),
            ));
        }
        Ok(Nuclide { name, z, a, binding_mev })
    }
}

impl RateEntry {
    fn check(
        self,
        place: &str,
        nuclides: &[Nuclide],
        index: &HashMap<String, usize>,
    ) -> Result<Rate, BurningError> {
        let missing = |field: &str| wrong(place, format!("{field} is missing"));
        let side = |names: Option<Vec<String>>, field: &str| -> Result<Vec<usize>, BurningError> {
            let names = names.ok_or_else(|| missing(field))?;
            if names.is_empty() || names.len() > MAX_PARTICLES {
                let found = names.len();
                let problem = format!("expected 1 to {MAX_PARTICLES} {field}, found {found}");
                return Err(wrong(place, problem));
            }
            let find = |name: &String| {
                index.get(name).copied().ok_or_else(|| {
                    wrong(place, format!("{field} hold {name:?}, which is none of the nuclides"))
                })
            };
            names.iter().map(find).collect()
        };
        let reactants = side(self.reactants, "reactants")?;
        let products = side(self.products, "products")?;
        let sum = |side: &[usize], of: fn(&Nuclide) -> u32| -> u32 {
            side.iter().map(|&i| of(&nuclides[i])).sum()
        };
        for (what, of) in [("A", (|n| n.a) as fn(&Nuclide) -> u32), ("Z", |n| n.z)] {
            let (left, right) = (sum(&reactants, of), sum(&products, of));
            if left != right {
                let problem =
                    format!("{what} is {left} in the reactants and {right} in the products");
                return Err(wrong(place, problem));
            }
        }
        let prefactor = self.prefactor.ok_or_else(|| missing("prefactor"))?;
        if !(prefactor > 0.0 && prefactor <= 1.0) {
            return Err(wrong(place, format!("expected a prefactor in (0, 1], found {prefactor}")));
        }
        let rho_exponent = self.rho_exponent.ok_or_else(|| missing("rho_exponent"))?;
        if rho_exponent != reactants.len() as i32 - 1 {
            let expected = reactants.len() - 1;
            let problem = format!("expected a rho_exponent of {expected}, found {rho_exponent}");
            return Err(wrong(place, problem));
        }
        let sets = self.sets.ok_or_else(|| missing("sets"))?;
        if sets.is_empty() {
            return Err(wrong(place, "expected at least one set of coefficients, found none"));
        }
        let coefficients = |set: Vec<f64>| {
            let found = set.len();
            set.try_into().map_err(|_| {
                wrong(place, format!("expected sets of 7 coefficients, found one of {found}"))
            })
        };
        let sets = sets.into_iter().map(coefficients).collect::<Result<_, _>>()?;
        let id = self.id.unwrap_or_else(|| place.to_owned());
        let partner = self.partner;
        Ok(Rate { id, reactants, products, prefactor, rho_exponent, sets, partner })
    }
}

/// Checks that partners refer to each other and have reactants and products exchanged.
fn check_partners(rates: &[Rate]) -> Result<(), BurningError> {
    let sorted = |side: &[usize]| {
        let mut side = side.to_vec();
        side.sort_unstable();
        side
    };
    for (r, rate) in rates.iter().enumerate() {
        let Some(partner) = rate.partner else { continue };
        let fits = rates.get(partner).is_some_and(|other| {
            other.partner == Some(r)
                && sorted(&other.reactants) == sorted(&rate.products)
                && sorted(&other.products) == sorted(&rate.reactants)
        });
        if !fits {
            let place = format!("rates[{r}] {:?}", rate.id);
            return Err(wrong(&place, format!("rates[{partner}] is not its reverse")));
        }
    }
    Ok(())
}
