//! The equations of a zone, `dy/dt = f(y)`, and their sparse Jacobian on its structural pattern.
//!
//! The unknowns are the abundances `Y_i` in mole/g, and in self-heating runs T9 after them:
//!
//! ```text
//! R_r     = lambda_r(T9, rho) * product of Y over the reactants of r
//! dY_i/dt = sum over reactions of nu_i (R_forward - R_reverse)
//! dT9/dt  = see eos.rs
//! ```
//!
//! A rate and its reverse are subtracted before anything is summed: near equilibrium they cancel to
//! many digits. All nuclides of a reaction then get the same difference, so that nucleons and
//! charge are conserved to rounding.

use std::sync::Arc;

use sparsebatch::{CsrPattern, Pattern};

use crate::nuclear_burning::eos::Gas;
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::network::{MAX_PARTICLES, Network};
use crate::nuclear_burning::rates;

/// The equations of one network, shared by all zones.
#[derive(Clone, Debug)]
pub struct Equations {
    network: Arc<Network>,
    pub(crate) reactions: Vec<Reaction>,
    /// The nuclides that each reaction changes, with their stoichiometric number nu.
    pub(crate) changes: Vec<(u32, f64)>,
    /// Derivatives of rates, in the order of the reactions.
    pub(crate) partials: Vec<Partial>,
    /// The matrix entries to which each derivative contributes, with nu times sign and
    /// multiplicity.
    pub(crate) targets: Vec<(u32, f64)>,
    pattern: Arc<CsrPattern>,
    /// The diagonal entries, row after row.
    pub(crate) diagonal: Vec<u32>,
    heated: Option<Heated>,
}

/// A rate and its reverse.
#[derive(Clone, Debug)]
pub(crate) struct Reaction {
    pub(crate) forward: Flow,
    pub(crate) reverse: Option<Flow>,
    /// Range in `changes`.
    pub(crate) changes: std::ops::Range<usize>,
}

impl Reaction {
    /// The rate, and the reverse rate if there is one, each with its sign in the difference.
    fn flows(&self) -> impl Iterator<Item = (&Flow, f64)> {
        let reverse = self.reverse.as_ref().map(|flow| (flow, -1.0));
        std::iter::once((&self.forward, 1.0)).chain(reverse)
    }
}

/// A rate with its reactants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) rate: u32,
    pub(crate) factors: Factors,
}

/// A product of abundances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors {
    nuclides: [u32; MAX_PARTICLES],
    count: u32,
}

/// Number of zones evaluated side by side.
pub const LANES: usize = 8;

/// One number for each of `L` zones.
type Lanes<const L: usize> = [f64; L];

impl Factors {
    fn new(nuclides: &[usize]) -> Self {
        let mut factors = Self { nuclides: [0; MAX_PARTICLES], count: nuclides.len() as u32 };
        for (factor, &nuclide) in factors.nuclides.iter_mut().zip(nuclides) {
            *factor = nuclide as u32;
        }
        factors
    }

    /// The indices of the nuclides.
    pub(crate) fn nuclides(&self) -> &[u32] {
        &self.nuclides[..self.count as usize]
    }

    /// `scale` times the abundances.
    #[inline(always)]
    fn times<const L: usize>(&self, scale: Lanes<L>, y: &[Lanes<L>]) -> Lanes<L> {
        let mut product = scale;
        for &i in self.nuclides() {
            let y = &y[i as usize];
            for l in 0..L {
                product[l] *= y[l];
            }
        }
        product
    }
}

/// `dR/dY_j = multiplicity * lambda * product of the other factors`; the targets hold the
/// multiplicity.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    pub(crate) rate: u32,
    pub(crate) others: Factors,
    /// Range in `targets`.
    pub(crate) targets: std::ops::Range<usize>,
}

/// Additional data of a self-heating run.
#[derive(Clone, Debug)]
pub(crate) struct Heated {
    pub(crate) gas: Gas,
    /// Entries of the last row, one for each unknown.
    pub(crate) row: Vec<u32>,
    /// Entries of the last column, one for each nuclide.
    pub(crate) column: Vec<u32>,
}

/// The constants of up to [`LANES`] zones.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Density of each zone, g/cm^3.
    pub rho: &'a [f64],
    /// Rates of each zone, rate after rate ([`rates::evaluate`]), at constant temperature; empty in
    /// self-heating runs, which evaluate the rates themselves.
    pub lambda: &'a [Lanes<LANES>],
}

/// Memory for the evaluation of a group.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    y: Vec<Lanes<LANES>>,
    out: Vec<Lanes<LANES>>,
    lambda: Vec<f64>,
    dlambda: Vec<f64>,
    ydot: Vec<f64>,
    ydot_slope: Vec<f64>,
}

/// Interleaves consecutive zones into lanes; missing zones become zeros.
fn gather(zones: &[f64], len: usize, lanes: &mut Vec<Lanes<LANES>>) {
    lanes.clear();
    lanes.resize(len, [0.0; LANES]);
    for (l, zone) in zones.chunks_exact(len).enumerate() {
        for (lanes, value) in lanes.iter_mut().zip(zone) {
            lanes[l] = *value;
        }
    }
}

/// The reverse of [`gather`].
fn scatter(lanes: &[Lanes<LANES>], zones: &mut [f64]) {
    for (l, zone) in zones.chunks_exact_mut(lanes.len()).enumerate() {
        for (lanes, value) in lanes.iter().zip(zone) {
            *value = lanes[l];
        }
    }
}

/// A zone as lanes of width one.
fn singles(values: &[f64]) -> &[Lanes<1>] {
    values.as_chunks().0
}

fn singles_mut(values: &mut [f64]) -> &mut [Lanes<1>] {
    values.as_chunks_mut().0
}

impl Equations {
    /// The equations of a network; `self_heating` adds the temperature to the unknowns.
    ///
    /// # Errors
    /// [`BurningError::Setting`] when the pattern is too large.
    pub fn new(network: Arc<Network>, self_heating: bool) -> Result<Self, BurningError> {
        let nnuclides = network.nuclides.len();
        let nvars = nnuclides + usize::from(self_heating);
        let (reactions, changes) = reactions(&network);
        let places = places(&network, &reactions, &changes, self_heating);
        let pattern = pattern(nvars, &places)?;
        let view = pattern.view();
        let entry = |row: usize, column: usize| {
            view.position(row, column).expect("every place is in the pattern") as u32
        };
        let (partials, targets) = partials(&network, &reactions, &changes, entry);
        let heated = self_heating.then(|| Heated {
            gas: Gas::new(&network),
            row: (0..nvars).map(|j| entry(nnuclides, j)).collect(),
            column: (0..nnuclides).map(|i| entry(i, nnuclides)).collect(),
        });
        let diagonal = (0..nvars).map(|i| entry(i, i)).collect();
        let pattern = Arc::new(pattern);
        Ok(Self { network, reactions, changes, partials, targets, pattern, diagonal, heated })
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The pattern of J, the whole diagonal included.
    pub fn pattern(&self) -> &Arc<CsrPattern> {
        &self.pattern
    }

    /// Number of nuclides.
    pub(crate) fn nnuclides(&self) -> usize {
        self.network.nuclides.len()
    }

    /// Number of unknowns: nuclides, and the temperature in self-heating runs.
    pub fn nvars(&self) -> usize {
        self.diagonal.len()
    }

    /// Number of rates per zone that [`Equations::rhs`] takes: none in self-heating runs, which
    /// evaluate them themselves.
    pub(crate) fn fixed_rates(&self) -> usize {
        if self.heated.is_some() { 0 } else { self.network.rates.len() }
    }

    /// The additional data of self-heating runs.
    pub(crate) fn heated(&self) -> Option<&Heated> {
        self.heated.as_ref()
    }

    /// The gas of self-heating runs.
    pub fn gas(&self) -> Option<&Gas> {
        self.heated().map(|heated| &heated.gas)
    }

    /// Computes `f(y)` of up to [`LANES`] zones into `out`; `y` and `out` hold [`Equations::nvars`]
    /// entries per zone, zone after zone.
    pub fn rhs(&self, zones: Group<'_>, y: &[f64], scratch: &mut Scratch, out: &mut [f64]) {
        let nvars = self.nvars();
        match &self.heated {
            None => {
                let Scratch { y: lanes_y, out: lanes_out, .. } = scratch;
                gather(y, nvars, lanes_y);
                lanes_out.resize(nvars, [0.0; LANES]);
                self.ydot(lanes_y, zones.lambda, lanes_out);
                scatter(lanes_out, out);
            }
            Some(heated) => {
                let each = y.chunks_exact(nvars).zip(out.chunks_exact_mut(nvars)).zip(zones.rho);
                for ((y, out), &rho) in each {
                    self.heated_rhs(heated, y, rho, scratch, out);
                }
            }
        }
    }

    fn heated_rhs(
        &self,
        heated: &Heated,
        y: &[f64],
        rho: f64,
        scratch: &mut Scratch,
        out: &mut [f64],
    ) {
        let nnuclides = self.nnuclides();
        let t9 = y[nnuclides];
        scratch.lambda.resize(self.network.rates.len(), 0.0);
        rates::evaluate(&self.network, t9, rho, &mut scratch.lambda);
        let (ydot, t9dot) = out.split_at_mut(nnuclides);
        self.ydot(singles(y), singles(&scratch.lambda), singles_mut(ydot));
        t9dot[0] = heated.gas.heating(&y[..nnuclides], t9, rho, ydot);
    }

    /// Computes `dY/dt`.
    fn ydot<const L: usize>(&self, y: &[Lanes<L>], lambda: &[Lanes<L>], out: &mut [Lanes<L>]) {
        out.fill([0.0; L]);
        for reaction in &self.reactions {
            let flow = |flow: &Flow| flow.factors.times(lambda[flow.rate as usize], y);
            let mut net = flow(&reaction.forward);
            if let Some(reverse) = &reaction.reverse {
                let back = flow(reverse);
                for l in 0..L {
                    net[l] -= back[l];
                }
            }
            for &(i, nu) in &self.changes[reaction.changes.clone()] {
                let out = &mut out[i as usize];
                for l in 0..L {
                    out[l] += nu * net[l];
                }
            }
        }
    }

    /// Computes the values of `shift I - J` of up to [`LANES`] zones into `values`, zone after zone
    /// on [`Equations::pattern`], with a shift for each; arguments as for [`Equations::rhs`].
    pub fn shifted_jacobian(
        &self,
        zones: Group<'_>,
        y: &[f64],
        shifts: &[f64],
        scratch: &mut Scratch,
        values: &mut [f64],
    ) {
        let (nvars, nnz) = (self.nvars(), self.pattern.nnz());
        match &self.heated {
            None => {
                let Scratch { y: lanes_y, out: lanes_out, .. } = scratch;
                gather(y, nvars, lanes_y);
                lanes_out.resize(nnz, [0.0; LANES]);
                lanes_out.fill([0.0; LANES]);
                self.add_partials(lanes_y, zones.lambda, lanes_out);
                scatter(lanes_out, values);
            }
            Some(heated) => {
                let each = y.chunks_exact(nvars).zip(values.chunks_exact_mut(nnz)).zip(zones.rho);
                for ((y, values), &rho) in each {
                    self.heated_jacobian(heated, y, rho, scratch, values);
                }
            }
        }
        for (values, shift) in values.chunks_exact_mut(nnz).zip(shifts) {
            for value in &mut *values {
                *value = -*value;
            }
            for &entry in &self.diagonal {
                values[entry as usize] += shift;
            }
        }
    }

    fn heated_jacobian(
        &self,
        heated: &Heated,
        y: &[f64],
        rho: f64,
        scratch: &mut Scratch,
        values: &mut [f64],
    ) {
        values.fill(0.0);
        let nnuclides = self.nnuclides();
        let t9 = y[nnuclides];
        let Scratch { lambda, dlambda, ydot, ydot_slope, .. } = scratch;
        for array in [&mut *lambda, &mut *dlambda] {
            array.resize(self.network.rates.len(), 0.0);
        }
        for array in [&mut *ydot, &mut *ydot_slope] {
            array.resize(nnuclides, 0.0);
        }
        rates::evaluate_with_slopes(&self.network, t9, rho, lambda, dlambda);
        self.add_partials(singles(y), singles(lambda), singles_mut(values));
        self.ydot(singles(y), singles(lambda), singles_mut(ydot));
        // The last column has the same sums, with the slopes of the rates.
        self.ydot(singles(y), singles(dlambda), singles_mut(ydot_slope));
        for (&entry, &slope) in heated.column.iter().zip(&*ydot_slope) {
            values[entry as usize] = slope;
        }
        let slopes = heated.gas.slopes(&y[..nnuclides], t9, rho, ydot);
        for (j, &entry) in heated.row[..nnuclides].iter().enumerate() {
            values[entry as usize] = slopes.of_abundance(j);
        }
        values[heated.row[nnuclides] as usize] = slopes.of_temperature(ydot);
        // The last row is the weighted sum of the others, plus the terms already stored there.
        let pattern = self.pattern.view();
        for i in 0..nnuclides {
            let weight = slopes.weight(i);
            for k in pattern.row(i) {
                let column = pattern.col_idx()[k] as usize;
                values[heated.row[column] as usize] += weight * values[k];
            }
        }
    }

    fn add_partials<const L: usize>(
        &self,
        y: &[Lanes<L>],
        lambda: &[Lanes<L>],
        values: &mut [Lanes<L>],
    ) {
        for partial in &self.partials {
            let slope = partial.others.times(lambda[partial.rate as usize], y);
            for &(entry, nu) in &self.targets[partial.targets.clone()] {
                let value = &mut values[entry as usize];
                for l in 0..L {
                    value[l] += nu * slope[l];
                }
            }
        }
    }

    /// The values of the identity, for the empty places of a batch.
    pub(crate) fn identity(&self, values: &mut [f64]) {
        values.fill(0.0);
        self.diagonal.iter().for_each(|&entry| values[entry as usize] = 1.0);
    }
}

/// The reactions of a network, and the nuclides that each of them changes. A rate and its reverse
/// are one reaction.
fn reactions(network: &Network) -> (Vec<Reaction>, Vec<(u32, f64)>) {
    let (mut reactions, mut changes) = (Vec::new(), Vec::new());
    for (r, rate) in network.rates.iter().enumerate() {
        if rate.partner.is_some_and(|partner| partner < r) {
            continue;
        }
        let start = changes.len();
        for i in 0..network.nuclides.len() {
            let times = |side: &[usize]| side.iter().filter(|&&k| k == i).count() as f64;
            let nu = times(&rate.products) - times(&rate.reactants);
            if nu != 0.0 {
                changes.push((i as u32, nu));
            }
        }
        let flow = |rate: usize| Flow {
            rate: rate as u32,
            factors: Factors::new(&network.rates[rate].reactants),
        };
        // A reaction that is its own reverse changes nothing.
        let reverse = rate.partner.filter(|&partner| partner != r);
        reactions.push(Reaction {
            forward: flow(r),
            reverse: reverse.map(flow),
            changes: start..changes.len(),
        });
    }
    (reactions, changes)
}

/// The row and column of every derivative in the Jacobian, the whole diagonal included, in CSR
/// order.
fn places(
    network: &Network,
    reactions: &[Reaction],
    changes: &[(u32, f64)],
    self_heating: bool,
) -> Vec<(usize, usize)> {
    let nnuclides = network.nuclides.len();
    let nvars = nnuclides + usize::from(self_heating);
    let mut places: Vec<(usize, usize)> = (0..nvars).map(|i| (i, i)).collect();
    for reaction in reactions {
        let changed = &changes[reaction.changes.clone()];
        for (flow, _) in reaction.flows() {
            for &j in &network.rates[flow.rate as usize].reactants {
                places.extend(changed.iter().map(|&(i, _)| (i as usize, j)));
            }
        }
    }
    if self_heating {
        places.extend((0..nnuclides).flat_map(|i| [(i, nnuclides), (nnuclides, i)]));
    }
    places.sort_unstable();
    places.dedup();
    places
}

/// The derivative of every rate by each of its reactants, and the targets of the derivatives.
/// `entry` gives the position of a row and column in the pattern.
fn partials(
    network: &Network,
    reactions: &[Reaction],
    changes: &[(u32, f64)],
    entry: impl Fn(usize, usize) -> u32,
) -> (Vec<Partial>, Vec<(u32, f64)>) {
    let (mut partials, mut targets) = (Vec::new(), Vec::new());
    for reaction in reactions {
        for (flow, sign) in reaction.flows() {
            let reactants = &network.rates[flow.rate as usize].reactants;
            for (k, &j) in reactants.iter().enumerate() {
                if reactants[..k].contains(&j) {
                    continue;
                }
                let multiplicity = reactants.iter().filter(|&&i| i == j).count();
                let mut others = reactants.clone();
                others.remove(k);
                let start = targets.len();
                let changes = changes[reaction.changes.clone()].iter();
                let scale = sign * multiplicity as f64;
                targets.extend(changes.map(|&(i, nu)| (entry(i as usize, j), nu * scale)));
                partials.push(Partial {
                    rate: flow.rate,
                    others: Factors::new(&others),
                    targets: start..targets.len(),
                });
            }
        }
    }
    (partials, targets)
}

fn pattern(nvars: usize, places: &[(usize, usize)]) -> Result<CsrPattern, BurningError> {
    let mut row_ptr = vec![0i32; nvars + 1];
    for &(row, _) in places {
        row_ptr[row + 1] += 1;
    }
    for row in 0..nvars {
        row_ptr[row + 1] += row_ptr[row];
    }
    let col_idx = places.iter().map(|&(_, column)| column as i32).collect();
    CsrPattern::try_new(nvars, nvars, row_ptr, col_idx)
        .map_err(|error| BurningError::Setting(error.to_string()))
}
