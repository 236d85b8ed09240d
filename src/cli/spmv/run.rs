//! Measures products through the trait [`Backend`], which separates the report from the backends.

use std::time::Duration;

use sparsebatch::{Batch, Scalar};

use super::super::error::CliError;
use super::check::{self, Expected};

/// Approximate time for which products are repeated.
pub(super) const MEASURE_FOR: Duration = Duration::from_millis(300);
/// Fewest and most repetitions.
pub(super) const REPETITIONS: (usize, usize) = (5, 1000);

/// The bandwidth of a copy.
#[derive(Clone, Copy)]
pub(super) struct Copy {
    /// Bandwidth in 10^9 bytes per second, counting bytes read and bytes written.
    pub(super) gb_s: f64,
    /// Bytes of each of the two arrays.
    pub(super) bytes: usize,
}

/// A format and a kernel, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// The format.
    pub(super) format: &'static str,
    /// The kernel.
    pub(super) kernel: &'static str,
}

/// The facts about a plan.
pub(super) struct Facts {
    /// Format and kernel that run.
    pub(super) label: Label,
    /// The reason for this choice.
    pub(super) why: String,
    /// The plan's own account, in one line.
    pub(super) explain: String,
    /// Whether repeated products give the same bits.
    pub(super) repeatable: bool,
    /// Bytes that the plan holds and that a product moves.
    pub(super) figures: Figures,
    /// Time to make the plan, without compiling kernels.
    pub(super) cost: Duration,
    /// Time to compile or load kernels, for a backend that does so.
    pub(super) compile: Option<Duration>,
}

/// Sizes of a plan and of its products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figures {
    /// Number of stored value slots that are padding.
    pub(super) padding: usize,
    /// Bytes that the plan holds.
    pub(super) plan_bytes: usize,
    /// Bytes of a product with `beta == 0`, padding included, each array counted once.
    pub(super) product_bytes: usize,
    /// `product_bytes` without the bytes of padding.
    pub(super) useful_bytes: usize,
}

/// The reason why there is no plan.
pub(super) enum Unplanned {
    /// The matrix or batch does not suit the format or kernel, in one line.
    Refused(String),
    /// A failure.
    Failed(CliError),
}

/// A backend that computes products of one matrix or batch with one operand.
pub(super) trait Backend<T> {
    /// A requested format and kernel.
    type Choice: std::marker::Copy;
    /// A plan that multiplies.
    type Plan;

    /// Measures the bandwidth of a copy.
    fn copy_bandwidth(&self) -> Result<Copy, CliError>;

    /// The names of the requested format and kernel.
    fn label(choice: Self::Choice) -> Label;

    /// Makes a plan.
    fn plan(&self, choice: Self::Choice) -> Result<(Self::Plan, Facts), Unplanned>;

    /// Computes `y = A x`; the previous content of `y` must not be read.
    fn multiply(&mut self, plan: &mut Self::Plan, y: &mut [T]) -> Result<(), CliError>;

    /// Times of products after a warm-up, in any order; `y` may be overwritten.
    fn time(&mut self, plan: &mut Self::Plan, y: &mut [T]) -> Result<Vec<Duration>, CliError>;
}

/// All measurements.
pub(super) struct Outcome {
    /// The copy bandwidth of the device that computed.
    pub(super) copy: Copy,
    /// One row per choice.
    pub(super) rows: Vec<Row>,
    /// The products of the last choice that ran.
    pub(super) y: Vec<f64>,
}

/// The row of one format and kernel.
pub(super) struct Row {
    /// The requested format and kernel.
    pub(super) label: Label,
    /// The measurement, or the reason for a refusal.
    pub(super) measured: Result<Measured, String>,
}

/// The figures of one format and kernel.
pub(super) struct Measured {
    /// The facts about the plan.
    pub(super) facts: Facts,
    /// The times of its products.
    pub(super) times: Times,
    /// The largest error over its bound; at most 1 in a correct product.
    pub(super) worst_error: f64,
    /// The first row that differs from the reference.
    pub(super) wrong: Option<String>,
}

/// Times of equal products.
pub(super) struct Times {
    /// Number of products.
    pub(super) repetitions: usize,
    /// The median.
    pub(super) median: Duration,
    /// The shortest time.
    pub(super) min: Duration,
    /// The longest time.
    pub(super) max: Duration,
}

impl Times {
    /// Summarises at least one time.
    pub(super) fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self {
            repetitions: times.len(),
            median: times[times.len() / 2],
            min: times[0],
            max: times[times.len() - 1],
        }
    }
}

/// Checks, then times every choice.
///
/// # Errors
/// Any failure; with `strict` also a choice that is refused.
pub(super) fn measure<T: Scalar, B: Backend<T>>(
    backend: &mut B,
    batch: &Batch<T>,
    x: &[T],
    choices: &[B::Choice],
    strict: bool,
) -> Result<Outcome, CliError> {
    let mut y = vec![T::ZERO; batch.row_offset(batch.nitems())];
    let reference = check::reference(batch, x);
    let copy = backend.copy_bandwidth()?;
    let mut rows = Vec::with_capacity(choices.len());
    for &choice in choices {
        let label = B::label(choice);
        let measured = match backend.plan(choice) {
            Ok((mut plan, facts)) => Ok(one(backend, &mut plan, facts, &mut y, &reference)?),
            Err(Unplanned::Failed(error)) => return Err(error),
            Err(Unplanned::Refused(refused)) if strict => {
                return Err(CliError::input(match label.kernel {
                    "auto" => refused,
                    kernel => format!("--kernel {kernel}: {refused}"),
                }));
            }
            Err(Unplanned::Refused(refused)) => Err(refused),
        };
        rows.push(Row { label, measured });
    }
    Ok(Outcome { copy, rows, y: y.into_iter().map(T::to_f64).collect() })
}

fn one<T: Scalar, B: Backend<T>>(
    backend: &mut B,
    plan: &mut B::Plan,
    facts: Facts,
    y: &mut [T],
    reference: &[Expected],
) -> Result<Measured, CliError> {
    // The content of y must not matter when beta is 0.
    y.fill(T::from_f64(f64::NAN));
    backend.multiply(plan, y)?;
    let (worst_error, wrong) = check::check(y, reference);
    let times = Times::of(backend.time(plan, y)?);
    Ok(Measured { facts, times, worst_error, wrong })
}
