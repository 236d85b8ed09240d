//! Measuring products: the seam between a report and what computes.

use std::time::Duration;

use sparsebatch::{Batch, Scalar};

use super::super::error::CliError;
use super::check::{self, Expected};

/// Products are repeated for about this long.
pub(super) const MEASURE_FOR: Duration = Duration::from_millis(300);
/// Fewest and most repetitions.
pub(super) const REPETITIONS: (usize, usize) = (5, 1000);

/// The bandwidth of a copy.
#[derive(Clone, Copy)]
pub(super) struct Copy {
    /// 10^9 bytes a second, those read and those written.
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

/// What a plan tells about itself.
pub(super) struct Facts {
    /// What runs.
    pub(super) label: Label,
    /// Why.
    pub(super) why: String,
    /// The plan's own account, in one line.
    pub(super) explain: String,
    /// Whether two products give the same bits.
    pub(super) repeatable: bool,
    /// What it holds and moves.
    pub(super) figures: Figures,
    /// Time spent on the plan, kernels compiled already.
    pub(super) cost: Duration,
    /// Time spent on compiling kernels or loading them, where that is done.
    pub(super) compile: Option<Duration>,
}

/// What a plan holds and what a product moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figures {
    /// Value slots held that are no entry.
    pub(super) padding: usize,
    /// Bytes that the plan holds.
    pub(super) plan_bytes: usize,
    /// Bytes of a product with `beta == 0`, padding included, each array counted once.
    pub(super) product_bytes: usize,
    /// Those less the bytes of padding.
    pub(super) useful_bytes: usize,
}

/// Why there is no plan.
pub(super) enum Unplanned {
    /// The matrix or batch does not suit the format or kernel, in one line.
    Refused(String),
    /// Something failed.
    Failed(CliError),
}

/// What computes products of one matrix or batch and one operand.
pub(super) trait Backend<T> {
    /// A format and kernel asked for.
    type Choice: std::marker::Copy;
    /// What multiplies.
    type Plan;

    /// Measures the bandwidth of a copy.
    fn copy_bandwidth(&self) -> Result<Copy, CliError>;

    /// What was asked for, by name.
    fn label(choice: Self::Choice) -> Label;

    /// Makes a plan.
    fn plan(&self, choice: Self::Choice) -> Result<(Self::Plan, Facts), Unplanned>;

    /// `y = A x`, on top of a `y` that must not be read.
    fn multiply(&mut self, plan: &mut Self::Plan, y: &mut [T]) -> Result<(), CliError>;

    /// Times of products after a warm-up, in any order; `y` may be used.
    fn time(&mut self, plan: &mut Self::Plan, y: &mut [T]) -> Result<Vec<Duration>, CliError>;
}

/// All that was measured.
pub(super) struct Outcome {
    /// The copy bandwidth of what computed.
    pub(super) copy: Copy,
    /// One row per choice.
    pub(super) rows: Vec<Row>,
    /// The products of the last choice that ran.
    pub(super) y: Vec<f64>,
}

/// One format and kernel.
pub(super) struct Row {
    /// What was asked for.
    pub(super) label: Label,
    /// What was measured, or why it was refused.
    pub(super) measured: Result<Measured, String>,
}

/// The figures of one format and kernel.
pub(super) struct Measured {
    /// The plan's own account.
    pub(super) facts: Facts,
    /// The products timed.
    pub(super) times: Times,
    /// The largest error over its bound; at most 1 in a correct product.
    pub(super) worst_error: f64,
    /// The first row that differs from the reference.
    pub(super) wrong: Option<String>,
}

/// Times of equal products.
pub(super) struct Times {
    /// How many.
    pub(super) repetitions: usize,
    /// The median.
    pub(super) median: Duration,
    /// The least.
    pub(super) min: Duration,
    /// The most.
    pub(super) max: Duration,
}

impl Times {
    /// Of at least one time.
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
/// What fails on the way; with `strict` also a choice that is refused.
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
    // What stands in y must not matter when beta is 0.
    y.fill(T::from_f64(f64::NAN));
    backend.multiply(plan, y)?;
    let (worst_error, wrong) = check::check(y, reference);
    let times = Times::of(backend.time(plan, y)?);
    Ok(Measured { facts, times, worst_error, wrong })
}
