//! Copies of the input systems, with small perturbations.

use clap::Args;
use sparsebatch::generate::{replicate as copies_of, rng};
use sparsebatch::{Batch, BatchValues, CsrPatternRef, RaggedCsr, UniformBatch};

use super::error::CliError;
use super::input::Systems;
use super::options::Perturbation;
use super::vectors::{repeated, reserved};

/// Bytes of a system besides its numbers: its name, its place in the batch, its outcome.
const BYTES_PER_SYSTEM: usize = 160;

/// Copies of the inputs.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// Use N copies of every input system
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    replicate: Option<u64>,
    /// Multiply the values of the copies by 1 + EPS u, u uniform in [0, 1)
    #[arg(long, value_name = "EPS:SEED")]
    perturb: Option<Perturbation>,
}

impl CopyArgs {
    /// Whether there is nothing to do.
    pub(crate) fn are_none(&self) -> bool {
        self.replicate.is_none() && self.perturb.is_none()
    }

    /// Replaces systems and their vectors by the requested copies.
    ///
    /// # Errors
    /// When the copies need more memory than there is.
    pub(crate) fn apply(
        &self,
        systems: &mut Systems,
        vectors: &mut [&mut Vec<f64>],
    ) -> Result<(), CliError> {
        let copies = usize::try_from(self.replicate.unwrap_or(1)).unwrap_or(usize::MAX);
        replicate(systems, vectors, copies, self.perturb)
    }
}

/// Repeats the whole list of systems `copies` times: system i of copy c has number
/// `c * nitems + i`. With a perturbation its values are `v_k (1 + epsilon u)`, with u from the
/// perturbation's seed, the system's number and k. A single matrix without perturbation is stored
/// once.
fn replicate(
    systems: &mut Systems,
    vectors: &mut [&mut Vec<f64>],
    copies: usize,
    perturbation: Option<Perturbation>,
) -> Result<(), CliError> {
    if copies == 1 && perturbation.is_none() {
        return Ok(());
    }
    let (nitems, rows) = (systems.batch.nitems(), systems.nrows());
    let stored_once = nitems == 1 && perturbation.is_none();
    let values = if stored_once { 0 } else { systems.batch.total_nnz() };
    let names: usize = systems.names.iter().map(String::len).sum();
    // Bytes of a copy: values and, in a ragged batch, columns; its rows; its systems and their
    // names.
    let of_a_copy = 12 * values as u128
        + (4 + u128::from(systems.purpose.bytes_per_row())) * rows as u128
        + (BYTES_PER_SYSTEM * nitems + names) as u128;
    systems
        .memory()
        .check(|| format!("--replicate {copies}"), of_a_copy.saturating_mul(copies as u128))?;
    systems.batch = match &systems.batch {
        Batch::Uniform(batch) if nitems == 1 => {
            let perturbation = perturbation.map(|p| (p.epsilon, p.seed));
            Batch::Uniform(copies_of(&batch.to_matrix(0), copies, perturbation)?)
        }
        Batch::Uniform(batch) => {
            let mut values = reserved(copies.saturating_mul(systems.batch.total_nnz()))?;
            for_each_copy(&systems.batch, copies, perturbation, |_, v| values.extend_from_slice(v));
            let nitems = copies * nitems;
            let values = BatchValues::ItemMajor(values);
            Batch::Uniform(UniformBatch::try_new(batch.pattern().clone(), nitems, values)?)
        }
        Batch::Ragged(_) => Batch::Ragged(ragged(&systems.batch, copies, perturbation)?),
    };
    for vector in vectors {
        **vector = repeated(vector, copies)?;
    }
    let names = std::mem::take(&mut systems.names);
    systems.names = reserved(copies.saturating_mul(names.len()))?;
    let copy = |c: usize| names.iter().map(move |name| format!("{name} copy {c}"));
    systems.names.extend((0..copies).flat_map(copy));
    Ok(())
}

/// Calls `take` with the pattern and the perturbed values of every copy of every system, in order.
fn for_each_copy(
    batch: &Batch<f64>,
    copies: usize,
    perturbation: Option<Perturbation>,
    mut take: impl FnMut(CsrPatternRef<'_>, &[f64]),
) {
    let mut values = Vec::new();
    for copy in 0..copies {
        for item in 0..batch.nitems() {
            batch.copy_values(item, &mut values);
            if let Some(Perturbation { epsilon, seed }) = perturbation {
                let number = (copy * batch.nitems() + item) as u64;
                for (k, value) in (0u64..).zip(&mut values) {
                    *value *= 1.0 + epsilon * rng::uniform(rng::mix(seed), number, k);
                }
            }
            take(batch.pattern(item), &values);
        }
    }
}

fn ragged(
    batch: &Batch<f64>,
    copies: usize,
    perturbation: Option<Perturbation>,
) -> Result<RaggedCsr<f64>, CliError> {
    let mut shapes: [Vec<usize>; 3] = Default::default();
    for shape in &mut shapes {
        *shape = reserved(copies.saturating_mul(batch.nitems()))?;
    }
    let pointers = batch.row_offset(batch.nitems()) + batch.nitems();
    let entries = copies.saturating_mul(batch.total_nnz());
    let (mut row_ptr, mut col_idx, mut all) =
        (reserved(copies.saturating_mul(pointers))?, reserved(entries)?, reserved(entries)?);
    for_each_copy(batch, copies, perturbation, |pattern, values| {
        shapes[0].push(pattern.nrows());
        shapes[1].push(pattern.ncols());
        shapes[2].push(pattern.nnz());
        row_ptr.extend_from_slice(pattern.row_ptr());
        col_idx.extend_from_slice(pattern.col_idx());
        all.extend_from_slice(values);
    });
    let [nrows, ncols, nnz] = &shapes;
    Ok(RaggedCsr::try_new(nrows, ncols, nnz, row_ptr, col_idx, all)?)
}
