//! Reading the inputs of a command.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use sparsebatch::io::{BatchFile, BatchIndex, FileKind, LoadOptions, MemoryLimit, detect, load};
use sparsebatch::{Batch, BatchCsr, BatchValues, Csr, Pattern, RaggedCsr, Scalar};

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
    pub(super) memory: MemoryArgs,
}

/// The limit of memory.
#[derive(Args, Clone, Copy)]
pub(crate) struct MemoryArgs {
    /// Largest amount of memory to use, such as 8GiB; a request that needs more is refused
    /// [default: the available memory minus a margin of a sixteenth, at least 64MiB; with --mpi each
    /// rank takes at most its part of that of its host]
    #[arg(long, value_name = "SIZE", value_parser = options::size)]
    max_memory: Option<u64>,
}

impl MemoryArgs {
    /// Takes this limit where none was requested.
    pub(crate) fn limit_to(&mut self, bytes: Option<u64>) {
        self.max_memory = self.max_memory.or(bytes);
    }

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
    /// The number of the first of them in the whole batch, of which a rank has a share.
    pub(crate) first: usize,
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
            return Err(self.no_system());
        }
        Ok(Systems {
            batch: loaded.batch,
            rhs: loaded.rhs,
            has_rhs: loaded.has_rhs,
            names: loaded.names,
            first: 0,
            skipped,
            read_time: start.elapsed(),
            limit: self.memory.limit(),
            purpose,
        })
    }

    /// Opens the only input if it is a `.batch` file, of which items can be read; `None` for all
    /// other inputs, and where bad files are to be left out.
    ///
    /// # Errors
    /// When the file is missing or its sizes are bad.
    pub(crate) fn index(&self) -> Result<Option<BatchIndex>, CliError> {
        let [path] = &self.inputs[..] else { return Ok(None) };
        let is_batch = !self.skip_bad
            && path.is_file()
            && matches!(detect(path), Ok(FileKind::UniformBatch | FileKind::RaggedBatch));
        if !is_batch {
            return Ok(None);
        }
        let index = BatchIndex::open(path, self.memory.limit())?;
        match index.nitems() {
            0 => Err(self.no_system()),
            _ => Ok(Some(index)),
        }
    }

    /// Reads the systems of a range from the only input.
    ///
    /// # Errors
    /// When an item is bad, or when the limit of memory is exceeded.
    pub(crate) fn read_items(
        &self,
        index: &mut BatchIndex,
        items: Range<usize>,
    ) -> Result<Systems, CliError> {
        let start = Instant::now();
        let BatchFile { batch, rhs } = index.read_items(items.clone())?;
        Ok(Systems {
            has_rhs: vec![true; batch.nitems()],
            batch,
            rhs: Some(rhs),
            names: Vec::new(),
            first: items.start,
            skipped: Vec::new(),
            read_time: start.elapsed(),
            limit: self.memory.limit(),
            purpose: Purpose::Solve,
        })
    }

    /// The names of the systems of the only input, as [`Self::read`] gives them.
    pub(crate) fn names(&self, nitems: usize) -> Vec<String> {
        let name = self.described();
        match nitems {
            1 => vec![name],
            _ => (0..nitems).map(|item| format!("{name}[{item}]")).collect(),
        }
    }

    /// The one input, a file that every rank can read.
    ///
    /// # Errors
    /// For several inputs, folders and standard input.
    pub(crate) fn one_file(&self) -> Result<&Path, CliError> {
        match &*self.inputs {
            [path] if path != Path::new("-") && !path.is_dir() => Ok(path),
            _ => Err(CliError::input(format!(
                "{}: expected one file that all ranks can read, Matrix Market or .npz",
                self.described()
            ))),
        }
    }

    /// Whether an input is standard input.
    pub(crate) fn reads_standard_input(&self) -> bool {
        self.inputs.iter().any(|path| path == Path::new("-"))
    }

    fn no_system(&self) -> CliError {
        CliError::input(format!(
            "{}: a batch of no systems, expected at least one",
            self.described()
        ))
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
        let batch = &self.batch;
        let size = |item| {
            let pattern = batch.pattern(item);
            (pattern.nrows(), pattern.nnz())
        };
        match batch {
            Batch::Uniform(uniform) => {
                let pattern = uniform.pattern();
                let shape = (pattern.nrows(), pattern.ncols(), pattern.nnz());
                described_uniform(batch.nitems(), shape)
            }
            Batch::Ragged(_) => described_ragged(batch.nitems(), size),
        }
    }

    /// What reports tell of the systems.
    pub(crate) fn listing(&self) -> Listing<'_> {
        Listing {
            names: &self.names,
            nrows: self.nrows(),
            nnz: self.batch.total_nnz(),
            described: self.described(),
            skipped: &self.skipped,
            read_time: self.read_time,
            size: Box::new(|item| {
                let pattern = self.batch.pattern(item);
                (pattern.nrows(), pattern.nnz())
            }),
        }
    }

    /// The systems of a range, without names.
    ///
    /// # Errors
    /// When the memory is refused.
    pub(crate) fn share(&self, items: Range<usize>) -> Result<Self, CliError> {
        let bytes: u128 = items.clone().map(|i| 12 * self.batch.pattern(i).nnz() as u128).sum();
        self.memory().check(|| format!("systems {items:?}"), bytes)?;
        let batch = match &self.batch {
            Batch::Uniform(batch) if batch.is_shared() => {
                Batch::Uniform(BatchCsr::shared(batch.to_matrix(0), items.len()))
            }
            Batch::Uniform(batch) => {
                let mut values = Vec::new();
                items.clone().for_each(|item| batch.append_values(item, &mut values));
                let values = BatchValues::ItemMajor(values);
                let pattern = batch.pattern().clone();
                Batch::Uniform(BatchCsr::try_new(pattern, items.len(), values)?)
            }
            Batch::Ragged(batch) => {
                let mut share = RaggedCsr::new();
                items.clone().for_each(|item| share.push(batch.item(item)));
                Batch::Ragged(share)
            }
        };
        Ok(Self {
            batch,
            rhs: None,
            has_rhs: Vec::new(),
            names: Vec::new(),
            first: items.start,
            skipped: Vec::new(),
            read_time: self.read_time,
            limit: self.limit,
            purpose: self.purpose,
        })
    }
}

/// What reports tell of the systems of a batch: names and sizes, without the matrices, which no
/// process may hold all.
pub(crate) struct Listing<'a> {
    /// One name per system.
    pub(crate) names: &'a [String],
    /// Total rows.
    pub(crate) nrows: usize,
    /// Total entries.
    pub(crate) nnz: usize,
    /// The batch in words.
    pub(crate) described: String,
    /// Files that were skipped.
    pub(crate) skipped: &'a [Skipped],
    /// Time to read.
    pub(crate) read_time: Duration,
    size: Box<dyn Fn(usize) -> (usize, usize) + 'a>,
}

impl<'a> Listing<'a> {
    /// The systems of a file of which no process reads all.
    pub(crate) fn of(index: &'a BatchIndex, names: &'a [String], read_time: Duration) -> Self {
        let nitems = index.nitems();
        let size = |item: usize| (index.nrows(item), index.nnz(item));
        let described = match index.is_uniform() {
            true => described_uniform(nitems, (index.nrows(0), index.nrows(0), index.nnz(0))),
            false => described_ragged(nitems, size),
        };
        Self {
            names,
            nrows: (0..nitems).map(|item| index.nrows(item)).sum(),
            nnz: (0..nitems).map(|item| index.nnz(item)).sum(),
            described,
            skipped: &[],
            read_time,
            size: Box::new(size),
        }
    }

    /// One square system of which each process has some rows.
    pub(crate) fn of_one(
        names: &'a [String],
        (nrows, nnz): (usize, usize),
        read_time: Duration,
    ) -> Self {
        let described = described_uniform(1, (nrows, nrows, nnz));
        let size = Box::new(move |_| (nrows, nnz));
        Self { names, nrows, nnz, described, skipped: &[], read_time, size }
    }

    /// Rows and entries of a system.
    pub(crate) fn size(&self, item: usize) -> (usize, usize) {
        (self.size)(item)
    }

    /// The first row of each system, and the total number of rows.
    pub(crate) fn offsets(&self) -> Vec<usize> {
        let ends = (0..self.names.len()).scan(0, |end, item| {
            *end += self.size(item).0;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }
}

/// A uniform batch in words, by rows, columns and entries of each system.
fn described_uniform(nitems: usize, (nrows, ncols, nnz): (usize, usize, usize)) -> String {
    let each = if nitems == 1 { "" } else { " each" };
    format!("{}, {nrows} x {ncols}, {nnz} entries{each}", counted(nitems, "system"))
}

/// A ragged batch in words, by rows and entries of a system.
fn described_ragged(nitems: usize, size: impl Fn(usize) -> (usize, usize)) -> String {
    let rows = || (0..nitems).map(|item| size(item).0);
    let (least, most) = (rows().min().unwrap_or(0), rows().max().unwrap_or(0));
    let entries: usize = (0..nitems).map(|item| size(item).1).sum();
    format!("{}, {least} to {most} rows, {entries} entries in all", counted(nitems, "system"))
}

/// The only matrix of a batch of one.
pub(crate) fn only_matrix<T: Scalar>(batch: &Batch<T>) -> Csr<T> {
    match batch {
        Batch::Uniform(batch) => batch.to_matrix(0),
        Batch::Ragged(batch) => batch.item(0).to_csr(),
    }
}
