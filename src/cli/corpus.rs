//! `sparsebatch corpus`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use sparsebatch_corpus::{
    COLLECTION, CorpusError, List, Matrix, Observer, Origin, Outcome, Place, Status,
    default_folder, fetch, list, select,
};

use super::error::CliError;
use super::output::{self, SCHEMA, Table, bytes, counted};
use super::progress::Progress;
use super::{Exit, Global};

/// Options of `corpus`.
#[derive(Args)]
pub(crate) struct CorpusArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Download missing matrices, check them and record their hashes in the lock file
    Fetch(FetchArgs),
    /// List which matrices are present
    List(Common),
}

/// Options of both.
#[derive(Args)]
struct Common {
    /// Lists (flexible, bell-garland, sell-p, mazzucchi) and names of matrices, separated by commas
    /// [default: all 77 matrices, many GB]
    #[arg(long = "list", value_name = "LIST|NAME", value_delimiter = ',')]
    names: Vec<String>,
    /// Folder of the corpus [default: SPARSEBATCH_CORPUS, else sparsebatch/corpus below
    /// XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

#[derive(Args)]
struct FetchArgs {
    #[command(flatten)]
    common: Common,
    /// Base address of the archives MM/GROUP/NAME.tar.gz [default: SPARSEBATCH_CORPUS_URL, else the
    /// address of the SuiteSparse Matrix Collection]
    #[arg(long, value_name = "URL", conflicts_with = "from")]
    base: Option<String>,
    /// Take matrices from this folder and its subfolders, without network
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,
    /// Time limit for the download of each matrix; another run resumes an unfinished download
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    command: &'static str,
    version: &'static str,
    action: &'static str,
    folder: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    there: usize,
    matrices: Vec<Item<'a>>,
}

#[derive(Serialize)]
struct Item<'a> {
    name: &'static str,
    group: &'static str,
    lists: Vec<&'static str>,
    rows: usize,
    columns: usize,
    nonzeros: usize,
    explicit_zeros: usize,
    real_parts: bool,
    status: &'static str,
    file: Option<&'a Path>,
    bytes: Option<u64>,
    sha256: Option<&'a str>,
    archive_sha256: Option<&'a str>,
    error: Option<String>,
}

impl<'a> Item<'a> {
    fn of(outcome: &'a Outcome) -> Self {
        let Outcome { matrix, status, file, locked, error } = outcome;
        Self {
            name: matrix.name,
            group: matrix.group,
            lists: matrix.lists().map(List::name).collect(),
            rows: matrix.nrows,
            columns: matrix.ncols,
            nonzeros: matrix.nonzeros,
            explicit_zeros: matrix.explicit_zeros,
            real_parts: matrix.origin == Origin::RealParts,
            status: status.name(),
            file: file.as_deref(),
            bytes: locked.as_ref().map(|locked| locked.bytes),
            sha256: locked.as_ref().map(|locked| locked.sha256.as_str()),
            archive_sha256: locked.as_ref().and_then(|locked| locked.archive_sha256.as_deref()),
            error: error.as_ref().map(ToString::to_string),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Unknown names, folders and addresses that cannot be used. If some matrices failed, the first
/// failure, after the others were fetched and shown.
pub(crate) fn run(args: &CorpusArgs, global: Global) -> Result<Exit, CliError> {
    let (Action::Fetch(FetchArgs { common, .. }) | Action::List(common)) = &args.action;
    let matrices = select(&common.names)?;
    let folder = match &common.into {
        Some(folder) => folder.clone(),
        None => default_folder()?,
    };
    match &args.action {
        Action::Fetch(FetchArgs { base, from, timeout, .. }) => {
            let place = match from {
                Some(other) => Place::Folder(other.clone()),
                None => Place::Address(base.clone().unwrap_or_else(collection)),
            };
            let mut shown = Shown { global, progress: None };
            let timeout = Duration::from_secs(*timeout);
            let outcomes = fetch(&matrices, &folder, &place, timeout, &mut shown)?;
            let from = match place {
                Place::Folder(other) => other.display().to_string(),
                Place::Address(base) => base,
            };
            finish("fetch", global, &folder, Some(from), &outcomes)
        }
        Action::List(_) => finish("list", global, &folder, None, &list(&matrices, &folder)?),
    }
}

/// The address that the environment names, else that of the collection.
fn collection() -> String {
    let asked = std::env::var("SPARSEBATCH_CORPUS_URL").ok().filter(|url| !url.is_empty());
    asked.unwrap_or_else(|| COLLECTION.to_owned())
}

/// Prints the outcomes of the matrices; returns the error of those that failed.
fn finish(
    action: &'static str,
    global: Global,
    folder: &Path,
    from: Option<String>,
    outcomes: &[Outcome],
) -> Result<Exit, CliError> {
    let there = outcomes.iter().filter(|outcome| outcome.status.is_there()).count();
    let failed: Vec<&CorpusError> = outcomes.iter().filter_map(|o| o.error.as_ref()).collect();
    // If no matrix is there, the error alone is enough.
    if failed.is_empty() || there > 0 {
        let report = Report {
            schema: SCHEMA,
            command: "corpus",
            version: env!("CARGO_PKG_VERSION"),
            action,
            folder,
            from,
            there,
            matrices: outcomes.iter().map(Item::of).collect(),
        };
        output::result(global, &report, || text(action, folder, there, outcomes))?;
    }
    match failed[..] {
        [] => Ok(Exit::Done),
        [only] => Err(CliError::input(only.to_string())),
        [first, ..] => {
            let failed = counted(failed.len(), "matrix").replace("matrixs", "matrices");
            Err(CliError::input(format!("{failed} failed, the first: {first}")))
        }
    }
}

fn text(action: &str, folder: &Path, there: usize, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    if action == "list" {
        let mut table = Table::new(&["matrix", "rows", "columns", "nonzeros", "file", "lists"]);
        for Outcome { matrix, status, locked, .. } in outcomes {
            let size = match (status, locked) {
                (Status::There, Some(locked)) => bytes(locked.bytes as usize),
                (Status::There, None) => "not locked".to_owned(),
                (status, _) => status.name().to_owned(),
            };
            let lists: Vec<&str> = matrix.lists().map(List::name).collect();
            table.row(vec![
                matrix.key(),
                matrix.nrows.to_string(),
                matrix.ncols.to_string(),
                matrix.nonzeros.to_string(),
                size,
                lists.join(", "),
            ]);
        }
        text = table.render(true);
    }
    text + &format!("{there} of {} matrices in {}\n", outcomes.len(), folder.display())
}

/// Shows a progress bar while a matrix is fetched, and a line when it is there.
struct Shown {
    global: Global,
    progress: Option<Progress>,
}

impl Observer for Shown {
    fn begin(&mut self, matrix: &'static Matrix) {
        self.progress = Some(Progress::start(self.global, format!("fetching {}", matrix.name)));
    }

    fn bytes(&mut self, done: u64, total: u64) {
        if let Some(progress) = &self.progress {
            progress.set(done, total);
        }
    }

    fn end(&mut self, outcome: &Outcome) {
        self.progress = None;
        let Outcome { matrix, status, locked, .. } = outcome;
        if self.global.json || self.global.quiet || !status.is_there() {
            return;
        }
        let size = locked.as_ref().map_or(String::new(), |locked| bytes(locked.bytes as usize));
        let note = match matrix.origin {
            Origin::RealParts => "  real parts of a complex matrix",
            Origin::Collection | Origin::Dense => "",
        };
        let line = format!(
            "{:<32} {:>9} x {:<9} {:>11} nonzeros  {:<8} {size}",
            matrix.key(),
            matrix.nrows,
            matrix.ncols,
            matrix.nonzeros,
            status.name()
        );
        // An error of printing is ignored: the summary shows the outcome again.
        let _ = output::print(&format!("{}{note}\n", line.trim_end()));
    }
}

impl From<CorpusError> for CliError {
    fn from(error: CorpusError) -> Self {
        Self::Input(error.to_string())
    }
}
