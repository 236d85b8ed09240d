//! The suites: their cases, and the contenders measured on each.

mod cases;
mod chunks;
pub mod cpu;
pub mod distributed;
pub mod energy;
mod families;
pub mod flexible_batch;
pub mod gpu_vs_cpu;
mod gpus;
mod host_kernels;
mod matrices;
mod one_matrix;
mod products;
pub mod row_kernels;
pub mod scaling;
pub mod sell_p;
pub mod single;
pub(crate) mod solver_cases;
pub mod solvers;
mod stand_ins;
pub mod throughput;

use std::fmt;
use std::path::{Path, PathBuf};

use sparsebatch_formats::generate::Family;
use sparsebatch_formats::{Csr, io};

use self::matrices::MatrixSource;
use crate::BenchError;
use crate::session::{Backend, Effort};
use sparsebatch_rows::solves::families::family_name;

pub use host_kernels::HostKernel;

/// A precision of values and vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Double; systems are solved to a relative residual of 1e-10.
    #[default]
    F64,
    /// Single; systems are solved to a relative residual of 1e-5.
    F32,
}

/// Extent of a suite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// A short run of a few cases, to see that everything works.
    Small,
    /// The cases of the sources.
    #[default]
    Paper,
    /// More cases than those of the sources.
    Full,
}

impl Size {
    /// Time and memory for a contender on the processor.
    pub(crate) fn effort(self) -> Effort {
        match self {
            Self::Small => Effort { budget_ms: 120.0, copy_bytes: 96e6 },
            Self::Paper => Effort::default(),
            Self::Full => Effort { budget_ms: 2000.0, ..Effort::default() },
        }
    }
}

/// Options shared by the suites over batches on a GPU and on the processor.
#[derive(Clone, Debug, Default)]
pub struct OnMachines {
    /// Cases by name; all when empty.
    pub cases: Vec<String>,
    /// Systems of a batch; 10,000 when absent, in some suites fewer at small size and more at full
    /// size.
    pub items: Option<usize>,
    /// Extent of the suite.
    pub size: Size,
    /// The devices to measure; when absent both, if there is a GPU.
    pub backend: Option<Backend>,
    /// The file that the rows are written to.
    pub output: Option<PathBuf>,
}

impl OnMachines {
    /// The wanted families of a suite, which also has the matrices `sources`.
    ///
    /// # Errors
    /// Unknown names.
    fn wanted_of(
        &self,
        families: Vec<(Family, usize)>,
        sources: &[MatrixSource],
    ) -> Result<Vec<(Family, usize)>, BenchError> {
        let name = |&family: &(Family, usize)| family_name(family);
        let names = families.iter().map(name);
        let names = names.chain(sources.iter().map(|source| source.name.clone()));
        check_names("--case", &self.cases, names)?;
        Ok(families.into_iter().filter(|family| wanted(&self.cases, &name(family))).collect())
    }
}

/// Depth of nested folders that are searched for files.
const DEPTH: usize = 4;

/// Subfolder of a corpus, as `sparsebatch corpus fetch` makes it, with the small matrices of
/// batches.
const SMALL: &str = "flexible";

/// The Matrix Market files of a folder and its subfolders, plain or gzip, with their names, in
/// ASCII order. Hidden files, which may be unfinished, are left out.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, BenchError> {
    let mut found = Vec::new();
    collect(folder, DEPTH, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(
    folder: &Path,
    depth: usize,
    found: &mut Vec<(String, PathBuf)>,
) -> Result<(), BenchError> {
    for entry in std::fs::read_dir(folder).map_err(BenchError::io(folder))? {
        let path = entry.map_err(BenchError::io(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let stem = name.strip_suffix(".gz").unwrap_or(&name).strip_suffix(".mtx");
        if path.is_dir() {
            if depth > 0 {
                collect(&path, depth - 1, found)?;
            }
        } else if let Some(stem) = stem {
            found.push((stem.to_owned(), path));
        }
    }
    Ok(())
}

/// The matrices of a folder, without its subfolders; of a corpus, the small matrices.
fn read_all(folder: &Path) -> Result<Vec<(String, Csr<f64>)>, BenchError> {
    let small = folder.join(SMALL);
    let folder = if small.is_dir() { &small } else { folder };
    let mut found = Vec::new();
    collect(folder, 0, &mut found)?;
    found.sort();
    found.into_iter().map(|(name, path)| Ok((name, io::read_matrix_market(path)?))).collect()
}

/// Refuses unknown names.
fn check_names<T: fmt::Display>(
    option: &'static str,
    wanted: &[String],
    known: impl IntoIterator<Item = T>,
) -> Result<(), BenchError> {
    let known: Vec<String> = known.into_iter().map(|name| name.to_string()).collect();
    match wanted.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(BenchError::Option {
            option,
            expected: format!("one of {}", known.join(", ")),
            found: name.clone(),
        }),
    }
}

/// Whether a case is wanted: all are when none is named.
fn wanted(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|wanted| wanted == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_corpus_batches_take_the_small_matrices_and_others_all() {
        let corpus = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = corpus.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 2\n";
            std::fs::write(path, text).unwrap();
        };
        file("single/b.mtx");
        file("flexible/a.mtx");
        file("flexible/.a.7.mtx");
        file("flexible/c.mtx.gz.partial");
        let names = |found: Vec<(String, PathBuf)>| {
            found.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };

        assert_eq!(names(files(corpus.path()).unwrap()), ["a", "b"]);
        let small = read_all(corpus.path()).unwrap();
        assert_eq!(small.len(), 1);
        assert_eq!((small[0].0.as_str(), small[0].1.nnz()), ("a", 1));
        assert!(read_all(&corpus.path().join("single")).unwrap()[0].0 == "b");
    }
}
