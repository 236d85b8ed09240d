//! Reading the inputs of a command.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use sparsebatch::io::{LoadOptions, load};
use sparsebatch::{Batch, Csr, Pattern, Scalar};

use super::Global;
use super::error::CliError;
use super::output::{Skipped, counted, note};
use super::progress::Progress;

/// Files to read.
#[derive(Args)]
pub(crate) struct InputArgs {
    /// Files and folders: Matrix Market (also gzip), SciPy .npz, .batch, known by their content
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Leave out files that cannot be read, and name them
    #[arg(long)]
    skip_bad: bool,
}

/// The systems of all inputs, in their order.
pub(crate) struct Systems {
    /// The matrices.
    pub(crate) batch: Batch<f64>,
    /// The right-hand sides of the files, ones where a file has none; if any has.
    pub(crate) rhs: Option<Vec<f64>>,
    /// For each system, whether its file held its right-hand side.
    pub(crate) has_rhs: Vec<bool>,
    /// One name per system.
    pub(crate) names: Vec<String>,
    /// Files left out.
    pub(crate) skipped: Vec<Skipped>,
    /// Time to read.
    pub(crate) read_time: Duration,
}

impl InputArgs {
    /// One input, nothing skipped.
    pub(crate) fn of(path: PathBuf) -> Self {
        Self { inputs: vec![path], skip_bad: false }
    }

    /// Reads everything.
    ///
    /// # Errors
    /// When a file is missing or bad, and when there is no system.
    pub(crate) fn read(&self, global: Global) -> Result<Systems, CliError> {
        let start = Instant::now();
        let progress =
            Progress::start(global, format!("reading {}", counted(self.inputs.len(), "input")));
        let mut report = |done, total| progress.set(done, total);
        let options = LoadOptions {
            skip_bad: self.skip_bad,
            progress: Some(&mut report),
            ..LoadOptions::default()
        };
        let loaded = load(&self.inputs, options)?;
        drop(progress);
        let skipped: Vec<Skipped> = loaded
            .skipped
            .into_iter()
            .map(|(file, error)| Skipped { file, error: error.to_string() })
            .collect();
        for skip in &skipped {
            note(global, &format!("skipped {}", skip.error));
        }
        if loaded.batch.nitems() == 0 {
            return Err(CliError::input(format!(
                "{}: a batch of no systems, expected at least one",
                self.described()
            )));
        }
        Ok(Systems {
            batch: loaded.batch,
            rhs: loaded.rhs,
            has_rhs: loaded.has_rhs,
            names: loaded.names,
            skipped,
            read_time: start.elapsed(),
        })
    }

    /// The inputs in words: their names, or the first and how many more.
    pub(crate) fn described(&self) -> String {
        let first = self.inputs.first().map(|path| path.display().to_string());
        let first = first.unwrap_or_default();
        match self.inputs.len() {
            0 | 1 => first,
            n => format!("{first} and {} more", n - 1),
        }
    }
}

impl Systems {
    /// Rows of all systems.
    pub(crate) fn nrows(&self) -> usize {
        self.batch.row_offset(self.batch.nitems())
    }

    /// The batch in words: how many systems, of which sizes.
    pub(crate) fn described(&self) -> String {
        let nitems = self.batch.nitems();
        let systems = counted(nitems, "system");
        let each = if nitems == 1 { "" } else { " each" };
        match &self.batch {
            Batch::Uniform(batch) => {
                let pattern = batch.pattern();
                format!(
                    "{systems}, {} x {}, {} entries{each}",
                    pattern.nrows(),
                    pattern.ncols(),
                    pattern.nnz()
                )
            }
            Batch::Ragged(batch) => {
                let rows = batch.row_offsets().windows(2).map(|w| w[1] - w[0]);
                format!(
                    "{systems}, {} to {} rows, {} entries in all",
                    rows.clone().min().unwrap_or(0),
                    rows.max().unwrap_or(0),
                    batch.total_nnz()
                )
            }
        }
    }
}

/// The only matrix of a batch of one.
pub(crate) fn only_matrix<T: Scalar>(batch: &Batch<T>) -> Csr<T> {
    match batch {
        Batch::Uniform(batch) => batch.to_matrix(0),
        Batch::Ragged(batch) => batch.item(0).to_csr(),
    }
}
