//! The equations of a network as flat tables on the device, in the order that `kernels/` read them.

use sparsebatch::Pattern;
use sparsebatch::gpu::{Executor, GpuError};

use crate::nuclear_burning::equations::{Equations, Factors};
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::network::{MAX_PARTICLES, Network};

/// Where a reaction has no reverse: its rate stands there again.
const NO_REVERSE: u32 = 1 << 31;

/// What the upper half of a span may have besides its count: it is of pieces, and not of terms; its sum is on the
/// diagonal.
const LONG: u32 = 1 << 31;
const ON_DIAGONAL: u32 = 1 << 30;

/// The most terms that one thread adds in a row.
const PIECE: usize = 16;

/// A network on the device.
pub(super) struct Tables<E: Executor> {
    pub(super) nnuclides: u32,
    /// Unknowns of a zone: nuclides, and T9 where zones heat themselves.
    pub(super) nvars: u32,
    pub(super) nrates: u32,
    pub(super) nreactions: u32,
    /// Of each reaction the rate, and in the upper half its reverse.
    pub(super) flow_rates: E::Buffer<u64>,
    /// Two for each reaction: those of the rate and of its reverse.
    pub(super) flow_factors: E::Buffer<u64>,
    /// dY/dt: sums over reactions, by the numbers of their rates, one for each nuclide.
    pub(super) changes: Sums<E>,
    pub(super) npartials: u32,
    /// A derivative of a rate: the rate, and its other factors.
    pub(super) partial_rates: E::Buffer<u32>,
    pub(super) partial_factors: E::Buffer<u64>,
    /// J: sums over derivatives, one for each entry, those of the diagonal marked.
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
    /// Of each sum the first term or piece, and in the upper half how many.
    pub(super) spans: E::Buffer<u64>,
    /// The number of what is added, times 256, and its factor as a signed byte.
    pub(super) terms: E::Buffer<u32>,
}

/// The fits of the rates.
pub(super) struct Fits<E: Executor> {
    pub(super) set_ptr: E::Buffer<u32>,
    /// Seven for each set.
    pub(super) sets: E::Buffer<f64>,
    pub(super) prefactors: E::Buffer<f64>,
    /// Of the density.
    pub(super) exponents: E::Buffer<u32>,
}

impl<E: Executor> Tables<E> {
    /// Uploads the equations of a network: all but what has to do with a temperature that changes.
    ///
    /// # Errors
    /// [`BurningError::Setting`] for a network too large for the numbers in the tables, and what the
    /// device reports.
    pub(super) fn new(executor: &E, equations: &Equations) -> Result<Self, BurningError> {
        let network = equations.network();
        let nnuclides = equations.nnuclides();
        // A term numbers rates and derivatives in 24 bits, a factor nuclides in 16.
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

    /// Whether zones heat themselves.
    pub(super) fn heats(&self) -> bool {
        self.nvars > self.nnuclides
    }

    /// Numbers of a zone in shared memory for a right-hand side.
    pub(super) fn stage_values(&self) -> u32 {
        self.nnuclides + self.nrates + self.changes.npieces.max(self.nnuclides + 1)
    }

    /// Numbers of a zone in shared memory for a matrix.
    pub(super) fn matrix_values(&self) -> u32 {
        self.nnuclides + 1 + self.npartials + self.entries.npieces
    }
}

fn halves(lower: u32, upper: u32) -> u64 {
    u64::from(lower) | u64::from(upper) << 32
}

/// Sixteen bits for each factor; `one` is the place of the number 1.
fn packed(factors: &Factors, one: u64) -> u64 {
    let own = factors.nuclides().iter().map(|&nuclide| u64::from(nuclide));
    let all = own.chain(std::iter::repeat(one)).take(MAX_PARTICLES);
    all.enumerate().map(|(k, nuclide)| nuclide << (16 * k)).sum()
}

/// What is added, with a factor: up to four particles change, each with up to four derivatives, so that a
/// signed byte holds it.
fn term(number: usize, factor: f64) -> u32 {
    (number as u32) << 8 | u32::from(factor as i8 as u8)
}

impl<E: Executor> Sums<E> {
    /// `marks` are for the spans of the sums.
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
        // Reactants less 1, of which there is at least one.
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
