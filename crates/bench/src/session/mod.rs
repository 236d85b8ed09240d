//! A run of products: contenders are checked, timed and become rows.
//!
//! | file | holds |
//! | --- | --- |
//! | `gpu.rs` | [`Session`]: a GPU, and cuSPARSE on it |
//! | `transfers.rs` | products of data on the host by a GPU |
//! | `host.rs` | [`HostSession`]: the processor, and crates in process |
//! | `target.rs` | the devices that are measured, and why there is no GPU |
//! | `bench.rs` | [`Bench`]: a run on either or both |

mod bench;
mod gpu;
mod host;
mod target;
mod transfers;

pub(crate) use bench::{Bench, Parts};
pub use gpu::machine_of;
pub(crate) use gpu::{Session, is_refusal, machine};
pub(crate) use host::{Effort, Host, HostSession, Turn};
pub use target::Backend;
pub(crate) use target::Target;

use sparsebatch_formats::Scalar;

use crate::timing::Timing;
use sparsebatch_rows::summary::OURS;
use sparsebatch_rows::{self, Machine, Row, Run, SCHEMA};

/// The name of the peer on GPUs in rows.
pub(crate) const CUSPARSE: &str = "cuSPARSE";

/// A matrix or batch to multiply, with its name and sizes.
pub(crate) struct Problem<'a> {
    pub(crate) case: &'a str,
    pub(crate) experiment: Option<&'a str>,
    pub(crate) batch: usize,
    pub(crate) nrows: usize,
    pub(crate) ncols: usize,
    pub(crate) nnz: usize,
    /// Describes what is wrong with an answer, if anything.
    pub(crate) oracle: &'a dyn Fn(&[f64]) -> Option<String>,
}

impl Problem<'_> {
    /// The useful bytes of a product in f64, as defined in [`Row`].
    pub(crate) fn useful_bytes(&self) -> f64 {
        self.useful_bytes_in::<f64>()
    }

    /// The useful bytes of [`Row`] for values of type `T`: 2 bytes of index per entry and per row.
    pub(crate) fn useful_bytes_in<T>(&self) -> f64 {
        let values = self.nnz + 2 * self.nrows + self.ncols;
        (size_of::<T>() * values + 2 * (self.nnz + self.nrows)) as f64
    }
}

/// The costs of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Fewest bytes that a product moves.
    pub(crate) bytes_moved: u64,
    /// Milliseconds from arrays on the device to the plan, if known.
    pub(crate) plan_ms: Option<f64>,
}

impl From<u64> for Costs {
    fn from(bytes_moved: u64) -> Self {
        Self { bytes_moved, plan_ms: None }
    }
}

/// The label of a contender: library, configuration and precision.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) library: &'static str,
    pub(crate) configuration: String,
    pub(crate) automatic: bool,
    pub(crate) precision: &'static str,
    /// Useful bytes, if they differ from those of a product in f64.
    pub(crate) useful_bytes: Option<f64>,
}

impl Label {
    /// A label of our library.
    pub(crate) fn ours(configuration: impl Into<String>, automatic: bool) -> Self {
        Self { automatic, ..Self::of(OURS, configuration) }
    }

    /// The label in precision `T`, with the useful bytes of a product in it.
    pub(crate) fn in_precision<T: Scalar>(self, useful_bytes: f64) -> Self {
        Self { precision: T::NAME, useful_bytes: Some(useful_bytes), ..self }
    }

    /// A label of cuSPARSE.
    pub(crate) fn peer(configuration: impl Into<String>) -> Self {
        Self::of(CUSPARSE, configuration)
    }

    /// A label of any library.
    pub(crate) fn of(library: &'static str, configuration: impl Into<String>) -> Self {
        Self {
            library,
            configuration: configuration.into(),
            automatic: false,
            precision: "f64",
            useful_bytes: None,
        }
    }
}

/// The measurement of a contender.
pub(crate) struct Measured<'a> {
    pub(crate) timing: &'a Timing,
    /// Number of copies that products alternated between.
    pub(crate) copies: usize,
    pub(crate) costs: Costs,
    /// `cpu` on the processor.
    pub(crate) backend: Option<&'static str>,
}

impl Problem<'_> {
    /// The row of a contender on a machine.
    pub(crate) fn row(
        &self,
        run: &Run,
        machine: &Machine,
        label: &Label,
        &Measured { timing, copies, costs, backend }: &Measured<'_>,
    ) -> Row {
        let Costs { bytes_moved, plan_ms } = costs;
        let seconds = timing.median_ms * 1e-3;
        let share = |bytes: f64| Some(bytes / seconds / 1e9 / machine.copy_gb_per_s);
        let clock = match (backend, timing.recorded) {
            (Some(_), _) => "wall",
            (None, true) => "graph",
            (None, false) => "events",
        };
        Row {
            schema: SCHEMA,
            suite: run.suite.to_owned(),
            experiment: self.experiment.map(str::to_owned),
            case: self.case.to_owned(),
            library: label.library.to_owned(),
            configuration: label.configuration.clone(),
            automatic: label.automatic,
            backend: backend.map(str::to_owned),
            operation: "spmv".to_owned(),
            preconditioner: None,
            precision: label.precision.to_owned(),
            batch: self.batch as u64,
            n: self.nrows as u64,
            nnz: self.nnz as u64,
            rows: self.nrows as u64,
            columns: self.ncols as u64,
            median_ms: timing.median_ms,
            min_ms: timing.min_ms,
            max_ms: timing.max_ms,
            round_ms: sparsebatch_rows::short(&timing.round_ms),
            wall_ms: None,
            rounds: timing.round_ms.len() as u64,
            products: timing.products as u64,
            timing: clock.to_owned(),
            copies: copies as u64,
            share_of_copy: share(label.useful_bytes.unwrap_or(self.useful_bytes())),
            share_moved: share(bytes_moved as f64),
            bytes_moved: Some(bytes_moved),
            plan_ms,
            gflops: Some(2.0 * self.nnz as f64 / seconds / 1e9),
            mean_iterations: None,
            max_relative_residual: None,
            converged: None,
            device_bytes: None,
            share_of_fitting: None,
            energy_j: None,
            machine: machine.clone(),
            run: run.id.clone(),
            date: run.date.clone(),
            commit: run.commit.clone(),
        }
    }
}

/// Number of processor cores.
pub(crate) fn host_cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useful_bytes_are_those_of_the_row() {
        let problem = Problem {
            case: "",
            experiment: None,
            batch: 1,
            nrows: 10,
            ncols: 5,
            nnz: 100,
            oracle: &|_| None,
        };

        assert_eq!(problem.useful_bytes(), 1000.0 + 180.0 + 40.0);
        assert_eq!(problem.useful_bytes_in::<f32>(), 600.0 + 100.0 + 20.0);
    }
}
