//! The equations of a network as flat tables on the device, in the order that `kernels/` read them.

use sparsebatch::Pattern;
use sparsebatch::gpu::{Executor, GpuError};

use crate::nuclear_burning::equations::{Equations, Factors};
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::network::{MAX_PARTICLES, Network};

/// Flag of a reaction without a reverse; its forward rate takes the reverse's position.
const NO_REVERSE: u32 = 1 << 31;

/// Flags in the upper half of a span, besides its count: the span is of pieces rather than of
/// terms; its sum is a diagonal entry.
const LONG: u32 = 1 << 31;
const ON_DIAGONAL: u32 = 1 << 30;

/// Most terms that one thread adds in sequence.
const PIECE: usize = 16;

/// A network on the device.
pub(super) struct Tables<E: Executor> {
    pub(super) nnuclides: u32,
    /// Unknowns of a zone: nuclides, and T9 if zones are self-heating.
    pub(super) nvars: u32,
    pub(super) nrates: u32,
    pub(super) nreactions: u32,
    /// For each reaction the rate, and in the upper half its reverse.
    pub(super) flow_rates: E::Buffer<u64>,
    /// Two sets of factors for each reaction: those of the rate and of its reverse.
    pub(super) flow_factors: E::Buffer<u64>,
    /// dY/dt: a sum over reactions for each nuclide; reactions are numbered by their rates.
    pub(super) changes: Sums<E>,
    pub(super) npartials: u32,
    /// For each derivative of a rate: the rate, and its other factors.
    pub(super) partial_rates: E::Buffer<u32>,
    pub(super) partial_factors: E::Buffer<u64>,
    /// J: a sum over derivatives for each entry, diagonal entries flagged.
    pub(super) entries: Sums<E>,
    pub(super) nnz: u32,
    pub(super) fits: Fits<E>,
    /// Nucleons of each nuclide.
    pub(super) a: E::Buffer<f64>,
    /// Charge of each nuclide.
    pub(super) z: E::Buffer<f64>,
}

/// Sums of many numbers with small integers as factors.
pub(super) struct Sums<E: Executor> {
    pub(super) npieces: u32,
    pub(super) piece_ptr: E::Buffer<u32>,
    /// For each sum its first term or piece, and in the upper half their number.
    pub(super) spans: E::Buffer<u64>,
    /// The index of the summand, times 256, and its factor as a signed byte.
    pub(super) terms: E::Buffer<u32>,
}

/// The fits of the rates.
pub(super) struct Fits<E: Executor> {
    pub(super) set_ptr: E::Buffer<u32>,
    /// Seven coefficients for each set.
    pub(super) sets: E::Buffer<f64>,
    pub(super) prefactors: E::Buffer<f64>,
    /// Exponents of the density.
    pub(super) exponents: E::Buffer<u32>,
}

impl<E: Executor> Tables<E> {
    /// Uploads the equations of a network, except those of a changing temperature.
    ///
    /// # Errors
    /// [`BurningError::Setting`] for a network too large for the numbers in the tables, or an error
    /// of the device.
    pub(super) fn new(executor: &E, equations: &Equations) -> Result<Self, BurningError> {
        let network = equations.network();
        let nnuclides = equations.nnuclides();
        // Terms index rates and derivatives by 24 bits; factors index nuclides by 16.
        let largest = network.rates.len().max(equations.partials.len());
        if nnuclides >= 1 << 16 || largest >= 1 << 24 {
            return Err(BurningError::Setting(format!(
                "a GPU takes networks of less than 65536 nuclides and 16777216 derivatives, found {nnuclides} and {largest}"
            )));
        }
        let pack = |factors: &Factors| packed(factors, nnuclides as u64);
        let (mut flow_rates, mut flow_factors) = (Vec::new(), Vec::new());
        let mut changes = vec![Vec::new(); nnuclides];
        for reaction in &equations.reactions {
            let forward = reaction.forward.rate;
            let reverse = reaction.reverse.map_or(NO_REVERSE | forward, |flow| flow.rate);
            flow_rates.push(halves(forward, reverse));
            flow_factors.push(pack(&reaction.forward.factors));
            flow_factors.push(reaction.reverse.map_or(0, |flow| pack(&flow.factors)));
            for &(nuclide, nu) in &equations.changes[reaction.changes.clone()] {
                changes[nuclide as usize].push(term(forward as usize, nu));
            }
        }
        let nnz = equations.pattern().nnz();
        let mut entries = vec![Vec::new(); nnz];
        for (p, partial) in equations.partials.iter().enumerate() {
            for &(entry, factor) in &equations.targets[partial.targets.clone()] {
                entries[entry as usize].push(term(p, factor));
            }
        }
        let partials = &equations.partials;
        let partial_rates: Vec<u32> = partials.iter().map(|partial| partial.rate).collect();
        let partial_factors: Vec<u64> =
            partials.iter().map(|partial| pack(&partial.others)).collect();
        let mut marks = vec![0; nnz];
        equations.diagonal.iter().for_each(|&entry| marks[entry as usize] = ON_DIAGONAL);
        let of = |number: fn(&crate::nuclear_burning::network::Nuclide) -> u32| -> Vec<f64> {
            network.nuclides.iter().map(|nuclide| f64::from(number(nuclide))).collect()
        };
        Ok(Self {
            nnuclides: nnuclides as u32,
            nvars: equations.nvars() as u32,
            nrates: network.rates.len() as u32,
            nreactions: equations.reactions.len() as u32,
            flow_rates: executor.upload(&flow_rates)?,
            flow_factors: executor.upload(&flow_factors)?,
            changes: Sums::new(executor, &changes, &vec![0; nnuclides])?,
            npartials: partials.len() as u32,
            partial_rates: executor.upload(&partial_rates)?,
            partial_factors: executor.upload(&partial_factors)?,
            entries: Sums::new(executor, &entries, &marks)?,
            nnz: nnz as u32,
            fits: Fits::new(executor, network)?,
            a: executor.upload(&of(|nuclide| nuclide.a))?,
            z: executor.upload(&of(|nuclide| nuclide.z))?,
        })
    }

    /// Whether zones are self-heating.
    pub(super) fn heats(&self) -> bool {
        self.nvars > self.nnuclides
    }

    /// Numbers per zone in shared memory for a right-hand side.
    pub(super) fn stage_values(&self) -> u32 {
        self.nnuclides + self.nrates + self.changes.npieces.max(self.nnuclides + 1)
    }

    /// Numbers per zone in shared memory for a matrix.
    pub(super) fn matrix_values(&self) -> u32 {
        self.nnuclides + 1 + self.npartials + self.entries.npieces
    }
}

fn halves(lower: u32, upper: u32) -> u64 {
    u64::from(lower) | u64::from(upper) << 32
}

/// Packs factors in sixteen bits each; `one` is the index of the number 1, which fills unused
/// factors.
fn packed(factors: &Factors, one: u64) -> u64 {
    let own = factors.nuclides().iter().map(|&nuclide| u64::from(nuclide));
    let all = own.chain(std::iter::repeat(one)).take(MAX_PARTICLES);
    all.enumerate().map(|(k, nuclide)| nuclide << (16 * k)).sum()
}

/// Packs the index of a summand and its factor: up to four particles change, each with up to four
/// derivatives, so that the factor fits in a signed byte.
fn term(number: usize, factor: f64) -> u32 {
    (number as u32) << 8 | u32::from(factor as i8 as u8)
}

impl<E: Executor> Sums<E> {
    /// Uploads sums; `marks` are the flags of their spans.
    fn new(executor: &E, sums: &[Vec<u32>], marks: &[u32]) -> Result<Self, GpuError> {
        let (mut piece_ptr, mut spans, mut terms) = (Vec::new(), Vec::new(), Vec::new());
        for sum in sums.iter().filter(|sum| sum.len() > PIECE) {
            for piece in sum.chunks(PIECE) {
                piece_ptr.push(terms.len() as u32);
                terms.extend_from_slice(piece);
            }
        }
        piece_ptr.push(terms.len() as u32);
        let mut pieces = 0;
        for (sum, mark) in sums.iter().zip(marks) {
            let (first, count) = if sum.len() > PIECE {
                let count = sum.len().div_ceil(PIECE) as u32;
                pieces += count;
                (pieces - count, count | LONG)
            } else {
                terms.extend_from_slice(sum);
                ((terms.len() - sum.len()) as u32, sum.len() as u32)
            };
            spans.push(halves(first, count | mark));
        }
        Ok(Self {
            npieces: piece_ptr.len() as u32 - 1,
            piece_ptr: executor.upload(&piece_ptr)?,
            spans: executor.upload(&spans)?,
            terms: executor.upload(&terms)?,
        })
    }
}

impl<E: Executor> Fits<E> {
    fn new(executor: &E, network: &Network) -> Result<Self, GpuError> {
        let mut set_ptr = vec![0u32];
        let mut sets = Vec::new();
        for rate in &network.rates {
            sets.extend(rate.sets.iter().flatten().copied());
            set_ptr.push((sets.len() / 7) as u32);
        }
        let prefactors: Vec<f64> = network.rates.iter().map(|rate| rate.prefactor).collect();
        // The exponent is the number of reactants less 1, and there is at least one reactant.
        let exponents: Vec<u32> =
            network.rates.iter().map(|rate| rate.rho_exponent.unsigned_abs()).collect();
        Ok(Self {
            set_ptr: executor.upload(&set_ptr)?,
            sets: executor.upload(&sets)?,
            prefactors: executor.upload(&prefactors)?,
            exponents: executor.upload(&exponents)?,
        })
    }
}
