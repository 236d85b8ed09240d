//! The equations of a network as flat tables on the device, in the order that `burning.cu` reads them.

use sparsebatch::Pattern;
use sparsebatch::spmv_gpu::{Executor, GpuError};

use crate::equations::{Equations, Factors};
use crate::error::BurningError;
use crate::network::{MAX_PARTICLES, Network};

/// Where a reaction has no reverse: its rate stands there again.
const NO_REVERSE: u32 = 1 << 31;

/// A span of pieces, and not of terms.
const LONG: u32 = 1 << 31;

/// The most terms that one thread adds in a row.
const PIECE: usize = 16;

/// A network on the device.
pub(super) struct Tables<E: Executor> {
    /// Nuclides, the unknowns of a zone.
    pub(super) nnuclides: u32,
    pub(super) nrates: u32,
    pub(super) nreactions: u32,
    /// Two for each reaction: the rate and its reverse.
    pub(super) flow_rates: E::Buffer<u32>,
    pub(super) flow_factors: E::Buffer<u64>,
    /// dY/dt: sums over reactions, one for each nuclide.
    pub(super) changes: Sums<E>,
    pub(super) npartials: u32,
    /// A derivative of a rate: the rate, and its other factors.
    pub(super) partial_rates: E::Buffer<u32>,
    pub(super) partial_factors: E::Buffer<u64>,
    /// J: sums over derivatives, one for each entry.
    pub(super) entries: Sums<E>,
    pub(super) nnz: u32,
    /// 1 for the entries of the diagonal.
    pub(super) is_diagonal: E::Buffer<u8>,
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
    /// Two for each sum: the first term or piece, and how many.
    pub(super) spans: E::Buffer<u32>,
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
    /// Uploads the equations of a network at constant temperature.
    ///
    /// # Errors
    /// [`BurningError::Setting`] for a network too large for the numbers in the tables, and what the
    /// device reports.
    pub(super) fn new(executor: &E, equations: &Equations) -> Result<Self, BurningError> {
        let network = equations.network();
        let nnuclides = equations.nnuclides();
        // A term numbers reactions and derivatives in 24 bits, a factor nuclides in 16.
        let largest = equations.reactions.len().max(equations.partials.len());
        if nnuclides >= 1 << 16 || largest >= 1 << 24 {
            return Err(BurningError::Setting(format!(
                "a GPU takes networks of less than 65536 nuclides and 16777216 derivatives, found {nnuclides} and {largest}"
            )));
        }
        let pack = |factors: &Factors| packed(factors, nnuclides as u64);
        let (mut flow_rates, mut flow_factors) = (Vec::new(), Vec::new());
        let mut changes = vec![Vec::new(); nnuclides];
        for (r, reaction) in equations.reactions.iter().enumerate() {
            flow_rates.push(reaction.forward.rate);
            flow_factors.push(pack(&reaction.forward.factors));
            let again = NO_REVERSE | reaction.forward.rate;
            flow_rates.push(reaction.reverse.map_or(again, |flow| flow.rate));
            flow_factors.push(reaction.reverse.map_or(0, |flow| pack(&flow.factors)));
            for &(nuclide, nu) in &equations.changes[reaction.changes.clone()] {
                changes[nuclide as usize].push(term(r, nu));
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
        let mut is_diagonal = vec![0u8; nnz];
        equations.diagonal.iter().for_each(|&entry| is_diagonal[entry as usize] = 1);
        let of = |number: fn(&crate::network::Nuclide) -> u32| -> Vec<f64> {
            network.nuclides.iter().map(|nuclide| f64::from(number(nuclide))).collect()
        };
        Ok(Self {
            nnuclides: nnuclides as u32,
            nrates: network.rates.len() as u32,
            nreactions: equations.reactions.len() as u32,
            flow_rates: executor.upload(&flow_rates)?,
            flow_factors: executor.upload(&flow_factors)?,
            changes: Sums::new(executor, &changes)?,
            npartials: partials.len() as u32,
            partial_rates: executor.upload(&partial_rates)?,
            partial_factors: executor.upload(&partial_factors)?,
            entries: Sums::new(executor, &entries)?,
            nnz: nnz as u32,
            is_diagonal: executor.upload(&is_diagonal)?,
            fits: Fits::new(executor, network)?,
            a: executor.upload(&of(|nuclide| nuclide.a))?,
            z: executor.upload(&of(|nuclide| nuclide.z))?,
        })
    }

    /// Numbers of a zone in shared memory for a right-hand side.
    pub(super) fn stage_values(&self) -> u32 {
        2 * self.nnuclides + 1 + self.nreactions + self.changes.npieces
    }

    /// Numbers of a zone in shared memory for a matrix.
    pub(super) fn matrix_values(&self) -> u32 {
        self.nnuclides + 1 + self.npartials + self.entries.npieces
    }
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
    fn new(executor: &E, sums: &[Vec<u32>]) -> Result<Self, GpuError> {
        let (mut piece_ptr, mut spans, mut terms) = (Vec::new(), Vec::new(), Vec::new());
        for sum in sums.iter().filter(|sum| sum.len() > PIECE) {
            for piece in sum.chunks(PIECE) {
                piece_ptr.push(terms.len() as u32);
                terms.extend_from_slice(piece);
            }
        }
        piece_ptr.push(terms.len() as u32);
        let mut pieces = 0;
        for sum in sums {
            if sum.len() > PIECE {
                let count = sum.len().div_ceil(PIECE) as u32;
                spans.extend([pieces, count | LONG]);
                pieces += count;
            } else {
                spans.extend([terms.len() as u32, sum.len() as u32]);
                terms.extend_from_slice(sum);
            }
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
