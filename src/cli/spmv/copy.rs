//! The copy bandwidth of the processor.

use sparsebatch_bench::processor::measure_bandwidth;

use super::super::error::CliError;
use super::run::Copy;

/// The bandwidth of a copy on all threads.
pub(super) fn copy_bandwidth() -> Result<Copy, CliError> {
    let found = measure_bandwidth();
    let found =
        found.ok_or_else(|| CliError::Internal("no memory for measuring a copy".to_owned()))?;
    Ok(Copy { gb_s: found.copy_gb_per_s, bytes: found.bytes })
}
