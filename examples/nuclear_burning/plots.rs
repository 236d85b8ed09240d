//! Plots.
use std::path::{Path, PathBuf};

use crate::error::BurningError;
use crate::output::GridRun;

pub(crate) fn draw(_run: &GridRun<'_>, _folder: &Path) -> Result<Vec<PathBuf>, BurningError> {
    Ok(Vec::new())
}
