//! Reading the inputs of a command.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use sparsebatch::io::{LoadOptions, MemoryLimit, load};
use sparsebatch::{Batch, Csr, Pattern, Scalar};

use super::error::CliError;
use super::output::{Skipped, counted, note};
use super::outputs::Named;
use super::progress::Progress;
use super::{Global, options};

/// Files to read.
#[derive(Args)]
pub(crate) struct InputArgs {
    /// Files and folders: Matrix Market (also gzip), SciPy .npz, NumPy .npy, .batch; the content
    /// decides the format; - is standard input. A right-hand side lies beside its matrix: NAME_b or
    /// NAME_rhs beside NAME, b or rhs beside A
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Skip files that cannot be read, or whose systems cannot be solved, and name them
    #[arg(long)]
    skip_bad: bool,
    #[command(flatten)]
    memory: MemoryArgs,
}

/// The limit of memory.
#[derive(Args, Clone, Copy)]
pub(crate) struct MemoryArgs {
    /// Largest amount of memory to use, such as 8GiB; a request that needs more is refused
    /// [default: the available memory minus a margin of a sixteenth, at least 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = options::size)]
    max_memory: Option<u64>,
}

impl MemoryArgs {
    /// The requested limit of memory, or the default.
    pub(crate) fn limit(self) -> MemoryLimit {
        self.max_memory.map_or_else(MemoryLimit::available, MemoryLimit::bytes)
    }
}

/// Most systems that a thread solves side by side in SIMD lanes.
const LANES: usize = 16;

/// The purpose for which systems are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To describe them, or to write them in another format.
    Look,
    /// To multiply them by vectors.
    Multiply,
    /// To solve them: matrices must be square.
    Solve,
}

impl Purpose {
    /// Bytes per row that a command needs besides the matrix: statistics, or vectors.
    pub(crate) fn bytes_per_row(self) -> u64 {
        match self {
            Self::Look => 16,
            Self::Multiply => 40,
            Self::Solve => 32,
        }
    }

    /// Bytes that a command needs for each row and for each entry of the systems in progress at one
    /// time: vectors, values in another layout, factors with some fill.
    fn bytes_at_once(self) -> (u128, u128) {
        match self {
            Self::Look => (0, 0),
            Self::Multiply => (0, 16),
            Self::Solve => (96, 32),
        }
    }
}

/// The systems of all inputs, in their order.
pub(crate) struct Systems {
    /// The matrices.
    pub(crate) batch: Batch<f64>,
    /// The right-hand sides of the files, with ones for a file without any; `None` if no file has
    /// one.
    pub(crate) rhs: Option<Vec<f64>>,
    /// For each system, whether its file held its right-hand side.
    pub(crate) has_rhs: Vec<bool>,
    /// One name per system.
    pub(crate) names: Vec<String>,
    /// Files that were skipped.
    pub(crate) skipped: Vec<Skipped>,
    /// Time to read.
    pub(crate) read_time: Duration,
    /// Limit of memory.
    limit: MemoryLimit,
    /// The purpose for which they were read.
    pub(crate) purpose: Purpose,
}

impl InputArgs {
    /// The arguments for one input, without `--skip-bad`.
    pub(crate) fn of(path: PathBuf, memory: MemoryArgs) -> Self {
        Self { inputs: vec![path], skip_bad: false, memory }
    }

    /// The files and folders, as inputs that no output may overwrite.
    pub(crate) fn named(&self) -> impl Iterator<Item = Named<'_>> {
        self.inputs.iter().map(|path| ("the input", path.as_path()))
    }

    /// Reads all inputs.
    ///
    /// # Errors
    /// When a file is missing or bad, when there is no system, or when the limit of memory is
    /// exceeded.
    pub(crate) fn read(&self, global: Global, purpose: Purpose) -> Result<Systems, CliError> {
        let start = Instant::now();
        let progress =
            Progress::start(global, format!("reading {}", counted(self.inputs.len(), "input")));
        let mut report = |done, total| progress.set(done, total);
        let options = LoadOptions {
            skip_bad: self.skip_bad,
            systems: purpose == Purpose::Solve,
            memory: self.memory.limit(),
            bytes_per_row: purpose.bytes_per_row(),
            progress: Some(&mut report),
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
        let is_data = |path: &&PathBuf| {
            let name = path.to_string_lossy();
            [".mtx", ".mtx.gz", ".npz", ".npy"].iter().any(|ending| name.ends_with(ending))
        };
        let ignored: Vec<&PathBuf> = loaded.ignored.iter().filter(is_data).collect();
        if let Some(first) = ignored.first() {
            let files = counted(ignored.len(), "file");
            note(global, &format!("ignored {files} beside matrices: {}", first.display()));
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
            limit: self.memory.limit(),
            purpose,
        })
    }

    /// The inputs in words: their names, or the first name and the number of further ones.
    pub(crate) fn described(&self) -> String {
        let name = |path: &PathBuf| {
            let is_file = path != Path::new("-");
            if is_file { path.display().to_string() } else { "standard input".to_owned() }
        };
        let first = self.inputs.first().map(name);
        let first = first.unwrap_or_default();
        match self.inputs.len() {
            0 | 1 => first,
            n => format!("{first} and {} more", n - 1),
        }
    }
}

impl Systems {
    /// Total rows of all systems.
    pub(crate) fn nrows(&self) -> usize {
        self.batch.row_offset(self.batch.nitems())
    }

    /// The limit of memory, less what these systems hold.
    pub(crate) fn memory(&self) -> MemoryLimit {
        let vectors = self.rhs.as_ref().map_or(0, Vec::len);
        let shared = match &self.batch {
            Batch::Uniform(batch) => batch.pattern().nnz() + batch.pattern().nrows(),
            Batch::Ragged(batch) => batch.total_nnz() + batch.row_ptr().len(),
        };
        let values = match &self.batch {
            Batch::Uniform(batch) => batch.values().into_array().len(),
            Batch::Ragged(batch) => batch.values().len(),
        };
        let names: usize = self.names.iter().map(String::len).sum();
        self.limit.with_held((4 * shared + 8 * (values + vectors) + names) as u64)
    }

    /// Refuses a plan, and work on `threads` threads, that would take too much memory besides the
    /// systems: vectors for all rows, and values and factors of the systems in progress at one
    /// time.
    ///
    /// # Errors
    /// When the limit of memory is exceeded.
    pub(crate) fn check_plan(&self, threads: usize) -> Result<(), CliError> {
        let nitems = self.batch.nitems();
        let at_once = match self.purpose {
            Purpose::Solve => nitems.min(threads * LANES),
            Purpose::Look | Purpose::Multiply => nitems,
        };
        let (of_row, of_entry) = self.purpose.bytes_at_once();
        let of_system = |item| {
            let pattern = self.batch.pattern(item);
            of_row * pattern.nrows() as u128 + of_entry * pattern.nnz() as u128
        };
        let largest = match &self.batch {
            Batch::Uniform(_) => (0..nitems).next().map_or(0, of_system),
            Batch::Ragged(_) => (0..nitems).map(of_system).max().unwrap_or(0),
        };
        let all = of_row * self.nrows() as u128 + of_entry * self.batch.total_nnz() as u128;
        let vectors = u128::from(self.purpose.bytes_per_row()) * self.nrows() as u128;
        let needed = vectors + all.min(largest * at_once as u128);
        Ok(self.memory().check(|| format!("a plan for {}", self.described()), needed)?)
    }

    /// The batch in words: the number and sizes of its systems.
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
