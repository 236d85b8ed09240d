//! The suites: cases, and what is measured on each.

mod cases;
mod chunks;
pub mod cpu;
pub mod energy;
mod families;
pub mod flexible_batch;
pub mod gpu_vs_cpu;
mod host_kernels;
mod matrices;
mod products;
pub mod scaling;
pub mod single;
pub(crate) mod solver_cases;
pub mod solvers;
mod stand_ins;

use std::fmt;
use std::path::{Path, PathBuf};

use sparsebatch_formats::{Csr, io};

use crate::BenchError;
use crate::session::Effort;

pub use host_kernels::HostKernel;

/// How much is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// Minutes less, to see that everything works.
    Small,
    /// What the sources measured.
    #[default]
    Paper,
    /// More than that.
    Full,
}

impl Size {
    /// What a contender on the processor gets.
    pub(crate) fn effort(self) -> Effort {
        match self {
            Self::Small => Effort { budget_ms: 120.0, copy_bytes: 96e6 },
            Self::Paper => Effort::default(),
            Self::Full => Effort { budget_ms: 2000.0, ..Effort::default() },
        }
    }
}

/// The Matrix Market files of a folder, plain or gzip, by name, in ASCII order of the names.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, BenchError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(BenchError::io(folder))? {
        let path = entry.map_err(BenchError::io(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = name.strip_suffix(".gz").unwrap_or(&name).strip_suffix(".mtx");
        if let Some(stem) = stem {
            found.push((stem.to_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

/// The matrices of a folder.
fn read_all(folder: &Path) -> Result<Vec<(String, Csr<f64>)>, BenchError> {
    let read = |(name, path)| Ok((name, io::read_matrix_market(path)?));
    files(folder)?.into_iter().map(read).collect()
}

/// Refuses names that nothing answers to.
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
