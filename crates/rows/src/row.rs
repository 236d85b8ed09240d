//! A measurement, and what all measurements of a run share.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The number of the schema of [`Row`].
pub const SCHEMA: u32 = 2;

/// The oldest schema that is still read.
pub(crate) const OLDEST_SCHEMA: u32 = 1;

/// One measurement, ours or a peer's: a line of JSON.
///
/// Sizes of batches are totals. `share_of_copy` is useful bytes over time and over the bandwidth of
/// a copy measured at the start of the run. Useful bytes of `y = A x + y` in f64 are 10 for each
/// entry (8 value, 2 index), 2 for each row, 8 for each element of x, 16 for each of y: what a
/// format with 16-bit indices cannot go below. The suites of single matrices use the same measure,
/// although their indices have 32 bits, so that shares compare across suites; `share_moved` is the
/// same share for the bytes that the configuration itself has to move, padding included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The suite, such as `flexible-batch`.
    pub suite: String,
    /// The published experiment that is repeated, such as `fig3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// The matrix, or mix of matrices, that is computed on.
    pub case: String,
    /// `sparsebatch`, or the peer.
    pub library: String,
    /// Kernel and format.
    pub configuration: String,
    /// Whether this is what a user gets who chooses nothing.
    #[serde(default)]
    pub automatic: bool,
    /// For our solves, `gpu` or `cpu`; for products on the processor, ours and peers', `cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// `spmv`, or a method of solution.
    pub operation: String,
    /// For solves: the preconditioner.
    #[serde(default)]
    pub preconditioner: Option<String>,
    /// `f64` or `f32`.
    pub precision: String,
    /// Number of systems.
    pub batch: u64,
    /// Rows of all systems, as `rows`; for solves of a uniform batch, rows of one system.
    #[serde(default)]
    pub n: u64,
    /// Stored entries of all systems; for solves of a uniform batch, entries of one system.
    pub nnz: u64,
    /// Rows of all systems.
    pub rows: u64,
    /// Columns of all systems.
    #[serde(default)]
    pub columns: u64,
    /// Milliseconds of one product or solve: the median over the rounds.
    #[serde(deserialize_with = "or_nan")]
    pub median_ms: f64,
    /// The fastest round.
    #[serde(deserialize_with = "or_nan")]
    pub min_ms: f64,
    /// The slowest round.
    #[serde(deserialize_with = "or_nan")]
    pub max_ms: f64,
    /// Milliseconds of each round, in order, to six digits. Rows of older versions have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "all_or_nan")]
    pub round_ms: Vec<f64>,
    /// For solves on a device: milliseconds of one call between two synchronisations, launch and
    /// waiting included, the median of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<f64>,
    /// Number of rounds.
    #[serde(default)]
    pub rounds: u64,
    /// Products per round; `median_ms` is the time of one of them.
    #[serde(default)]
    pub products: u64,
    /// `events`: products or solves issued one by one between two events of the device; `graph`:
    /// recorded and started together; `wall`: by the host's clock; `recorded`: a figure of another
    /// library, taken elsewhere.
    #[serde(default)]
    pub timing: String,
    /// Copies of matrix, x and y that products take turns in, so that none is in the cache.
    #[serde(default)]
    pub copies: u64,
    /// Share of useful bytes; see above.
    pub share_of_copy: Option<f64>,
    /// Share of the bytes moved; see above.
    #[serde(default)]
    pub share_moved: Option<f64>,
    /// Bytes that one product moves at least, padding included.
    pub bytes_moved: Option<u64>,
    /// Milliseconds from CSR arrays on the device to the plan, with kernels already compiled:
    /// analysis, packing, memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_ms: Option<f64>,
    /// Two operations for each entry, over the median time.
    pub gflops: Option<f64>,
    /// For solves: the mean number of iterations.
    #[serde(default)]
    pub mean_iterations: Option<f64>,
    /// For solves: the largest `||b - A x|| / ||b||` over the systems that converged, recomputed on
    /// the host in f64.
    #[serde(default)]
    pub max_relative_residual: Option<f64>,
    /// For solves: number of systems that converged.
    #[serde(default)]
    pub converged: Option<u64>,
    /// For solves of data on the host: bytes of device memory that they took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<u64>,
    /// For solves of data on the host under a memory limit: their rate over the best rate for the
    /// same batch without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_of_fitting: Option<f64>,
    /// Joules of one product or solve, where measured: for the whole GPU, or for the processor's
    /// packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<f64>,
    /// The machine measured on.
    pub machine: Machine,
    /// The name of the run, shared by all its rows.
    #[serde(default)]
    pub run: String,
    /// When the run began, UTC.
    pub date: String,
    /// The commit that was built.
    pub commit: String,
}

impl Row {
    /// Library and configuration.
    pub fn contender(&self) -> String {
        format!("{} {}", self.library, self.configuration)
    }
}

/// Reads a number; null gives NaN, since NaN and the infinities are written as null.
fn or_nan<'de, D: serde::Deserializer<'de>>(number: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(number)?.unwrap_or(f64::NAN))
}

/// Reads numbers; each null gives NaN.
fn all_or_nan<'de, D: serde::Deserializer<'de>>(numbers: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Option::<Vec<Option<f64>>>::deserialize(numbers)?.unwrap_or_default();
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

/// Rounds times to six digits, more than a clock resolves.
pub fn short(times: &[f64]) -> Vec<f64> {
    times.iter().map(|time| format!("{time:.5e}").parse().unwrap_or(*time)).collect()
}

/// The machine measured on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// GPU or processor.
    #[serde(default, alias = "gpu")]
    pub device: Option<String>,
    /// The driver of the GPU.
    #[serde(default)]
    pub driver: Option<String>,
    /// The newest CUDA that the driver supports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// The version of cuSPARSE; absent where it was not found or not wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cusparse: Option<String>,
    /// The version of cuBLAS, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cublas: Option<String>,
    /// Processor cores.
    #[serde(default)]
    pub cores: u64,
    /// Bandwidth of a copy at the start of the run, bytes read and written, in 1e9 per second.
    #[serde(default)]
    pub copy_gb_per_s: f64,
    /// The same bandwidth at the end of the run; absent when the run did not get there.
    #[serde(default)]
    pub copy_gb_per_s_end: Option<f64>,
    /// Bandwidth of reading, in 1e9 bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_gb_per_s: Option<f64>,
    /// Bytes of the second-level cache of a GPU, or of the largest cache of a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_bytes: Option<u64>,
}

/// What all rows of a run share.
#[derive(Clone, Debug)]
pub struct Run {
    /// The suite.
    pub suite: &'static str,
    /// The run's name.
    pub id: String,
    /// When it began, UTC.
    pub date: String,
    /// The commit that was built: the variable `BENCH_COMMIT`, else the one that the build saw.
    pub commit: String,
    /// The machine measured on.
    pub machine: Machine,
}

impl Run {
    /// A run that begins now, of a program that was built from the commit `built`.
    pub fn new(suite: &'static str, built: &str, machine: Machine) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let date = utc(now.map_or(0, |time| time.as_secs()));
        let commit = std::env::var("BENCH_COMMIT").ok().filter(|commit| !commit.is_empty());
        Self {
            suite,
            id: format!("{suite}-{date}-{}", std::process::id()),
            date,
            commit: commit.unwrap_or_else(|| built.to_owned()),
            machine,
        }
    }
}

/// Seconds since 1970 as `YYYY-MM-DDTHH:MM:SSZ`.
fn utc(seconds: u64) -> String {
    // Days since the first of March of year 0, so that a leap day ends its year.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    let day = day - (153 * from_march + 2) / 5 + 1;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(utc(1_709_251_200), "2024-03-01T00:00:00Z");
        assert_eq!(utc(1_795_132_800), "2026-11-20T00:00:00Z");
    }

    #[test]
    fn times_have_six_digits() {
        assert_eq!(short(&[0.123_456_789, 12_345_678.0, 0.0]), [0.123_457, 12_345_700.0, 0.0]);
        assert!(short(&[f64::NAN])[0].is_nan());
    }

    #[test]
    fn rows_of_older_runs_are_read() {
        let line = r#"{"schema":1,"suite":"flexible-batch","case":"G2","library":"cuSPARSE",
            "configuration":"c","operation":"spmv","precision":"f64","batch":1,"nnz":2,"rows":1,
            "median_ms":1.0,"min_ms":0.5,"max_ms":2.0,"gflops":1.0,"bytes_moved":3,
            "share_of_copy":0.5,"machine":{"gpu":"a GPU","driver":"13.0","copy_gb_per_s":1.0},
            "date":"d","commit":"c"}"#;

        let row: Row = serde_json::from_str(line).unwrap();

        assert_eq!(row.machine.device.as_deref(), Some("a GPU"));
        assert_eq!((row.columns, row.run.as_str(), row.automatic), (0, "", false));
        assert!(row.round_ms.is_empty());
    }
}
