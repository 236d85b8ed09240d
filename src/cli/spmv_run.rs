//! Timing and checking of products, and the copy bandwidth of the machine.

use std::time::{Duration, Instant};

use rayon::prelude::*;
use sparsebatch::cpu::{Explain, FormatChoice, KernelChoice, SpmvOptions, SpmvPlan};
use sparsebatch::{Batch, Csr, Scalar};

use super::error::CliError;
use super::output::bytes;
use super::replicate::available_memory;

/// Products are repeated for about this long.
const MEASURE_FOR: Duration = Duration::from_millis(300);
/// Fewest and most repetitions.
const REPETITIONS: (usize, usize) = (5, 1000);
/// The constant of the error bound: see [`check`].
const ERROR_FACTOR: f64 = 4.0;

/// The bandwidth of a copy.
#[derive(Clone, Copy)]
pub(crate) struct Copy {
    /// 10^9 bytes a second, those read and those written.
    pub(crate) gb_s: f64,
    /// Bytes of each of the two arrays.
    pub(crate) bytes: usize,
}

/// All that was measured.
pub(crate) struct Outcome {
    /// The machine's copy bandwidth.
    pub(crate) copy: Copy,
    /// One row per choice.
    pub(crate) rows: Vec<Row>,
    /// The products of the last choice that ran.
    pub(crate) y: Vec<f64>,
}

/// One format and kernel.
pub(crate) struct Row {
    /// The format asked for.
    pub(crate) format: FormatChoice,
    /// The kernel asked for.
    pub(crate) kernel: KernelChoice,
    /// What was measured, or why it was refused.
    pub(crate) measured: Result<Measured, String>,
}

/// The figures of one format and kernel.
pub(crate) struct Measured {
    /// The plan's own account.
    pub(crate) explain: Explain,
    /// Products timed.
    pub(crate) repetitions: usize,
    /// Median time of a product.
    pub(crate) median: Duration,
    /// Least time.
    pub(crate) min: Duration,
    /// Most time.
    pub(crate) max: Duration,
    /// Bytes of a product without padding.
    pub(crate) useful_bytes: usize,
    /// The largest error over its bound; at most 1 in a correct product.
    pub(crate) worst_error: f64,
    /// The first row that differs from the reference.
    pub(crate) wrong: Option<String>,
}

/// Measures every choice on one batch, between two measurements of the copy bandwidth.
///
/// # Errors
/// When the operands do not fit.
pub(crate) fn measure<T: Scalar>(
    batch: &Batch<T>,
    x: &[T],
    choices: &[(FormatChoice, KernelChoice)],
) -> Result<Outcome, CliError> {
    let single = (batch.nitems() == 1).then(|| single(batch));
    let mut y = vec![T::ZERO; batch.row_offset(batch.nitems())];
    let reference = reference(batch, x);
    let copy = copy_bandwidth()?;
    let mut rows = Vec::new();
    for &(format, kernel) in choices {
        let options = SpmvOptions { format, kernel, ..SpmvOptions::default() };
        let plan = match &single {
            Some(matrix) => SpmvPlan::new(matrix, &options),
            None => SpmvPlan::new(batch, &options),
        };
        let measured = match plan {
            Ok(plan) => Ok(run(&plan, x, &mut y, &reference)?),
            Err(refused) => Err(refused.to_string()),
        };
        rows.push(Row { format, kernel, measured });
    }
    Ok(Outcome { copy, rows, y: y.into_iter().map(T::to_f64).collect() })
}

/// The only matrix of a batch of one, for the kernels of single matrices.
pub(crate) fn single<T: Scalar>(batch: &Batch<T>) -> Csr<T> {
    match batch {
        Batch::Uniform(batch) => batch.to_matrix(0),
        Batch::Ragged(batch) => batch.item(0).to_csr(),
    }
}

fn run<T: Scalar>(
    plan: &SpmvPlan<T>,
    x: &[T],
    y: &mut [T],
    reference: &[Expected],
) -> Result<Measured, CliError> {
    // What stands in y must not matter when beta is 0.
    y.fill(T::from_f64(f64::NAN));
    plan.apply(T::ONE, x, T::ZERO, y)?;
    let (worst_error, wrong) = check::<T>(y, reference);
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < REPETITIONS.0
        || (times.len() < REPETITIONS.1 && start.elapsed() < MEASURE_FOR)
    {
        let start = Instant::now();
        plan.apply(T::ONE, x, T::ZERO, y)?;
        times.push(start.elapsed());
    }
    times.sort();
    let explain = plan.explain().clone();
    Ok(Measured {
        repetitions: times.len(),
        median: times[times.len() / 2],
        min: times[0],
        max: times[times.len() - 1],
        useful_bytes: useful_bytes::<T>(&explain),
        explain,
        worst_error,
        wrong,
    })
}

/// The bytes of a product less those of padding: a value, and where the format stores one per slot
/// a column index.
fn useful_bytes<T: Scalar>(explain: &Explain) -> usize {
    let index = match (explain.format, explain.kernel) {
        ("ell" | "hyb", _) | ("sellp", "rows") if explain.nitems == 1 => 4,
        _ => 0,
    };
    explain.product_bytes.saturating_sub(explain.padding * (size_of::<T>() + index))
}

/// One row of a product in f64, and the scale of its error.
struct Expected {
    value: f64,
    bound: f64,
    finite: bool,
}

/// The sequential products, row by row, in f64, with `c * nnz_row * eps * (|A| |x|)_row`, the
/// bound of two sums of the same terms in different orders and precisions.
fn reference<T: Scalar>(batch: &Batch<T>, x: &[T]) -> Vec<Expected> {
    let mut values = Vec::new();
    let mut rows = Vec::with_capacity(batch.row_offset(batch.nitems()));
    for item in 0..batch.nitems() {
        let pattern = batch.pattern(item);
        batch.copy_values(item, &mut values);
        let x = &x[batch.col_offset(item)..batch.col_offset(item + 1)];
        for row in 0..pattern.nrows() {
            let entries = pattern.row(row);
            let terms = entries
                .clone()
                .map(|k| values[k].to_f64() * x[pattern.col_idx()[k] as usize].to_f64());
            let (value, scale) = terms.fold((0.0, 0.0), |(sum, abs), t| (sum + t, abs + t.abs()));
            let rounded = T::from_f64(value).to_f64();
            rows.push(Expected {
                value,
                bound: ERROR_FACTOR * entries.len() as f64 * T::EPSILON.to_f64() * scale,
                finite: rounded.is_finite() && scale.is_finite(),
            });
        }
    }
    rows
}

/// The largest error over its bound, and the first row beyond it. Rows whose terms or sum are not
/// finite are left out: DIA spreads NaN and infinities over its fill.
fn check<T: Scalar>(y: &[T], reference: &[Expected]) -> (f64, Option<String>) {
    let (mut worst, mut wrong) = (0.0f64, None);
    for (row, (found, expected)) in y.iter().zip(reference).enumerate() {
        if !expected.finite {
            continue;
        }
        let found = found.to_f64();
        let error = (found - expected.value).abs();
        if error <= expected.bound {
            if error > 0.0 {
                worst = worst.max(error / expected.bound);
            }
        } else {
            worst = f64::INFINITY;
            wrong.get_or_insert_with(|| {
                let Expected { value, bound, .. } = expected;
                format!("row {row} is {found:e}, expected {value:e} within {bound:e}")
            });
        }
    }
    (worst, wrong)
}

/// The bandwidth of a copy on all threads, over two arrays that together are twice the last-level
/// cache, at most 512 MiB each and a quarter of the memory available: the median of five.
fn copy_bandwidth() -> Result<Copy, CliError> {
    let most = (512 << 20).min(available_memory().unwrap_or(1 << 30) / 8).max(1 << 20);
    let len = last_level_cache().unwrap_or(64 << 20).clamp((64 << 20).min(most), most) / 8;
    let source = filled(len, 1.0)?;
    let mut target = filled(len, 0.0)?;
    let mut times: Vec<Duration> = (0..6)
        .map(|_| {
            let start = Instant::now();
            target
                .par_chunks_mut(CHUNK)
                .zip(source.par_chunks(CHUNK))
                .for_each(|(to, from)| to.copy_from_slice(from));
            start.elapsed()
        })
        .collect();
    if std::hint::black_box(&target)[len - 1] != 1.0 {
        return Err(CliError::Internal("the copy did not copy".to_owned()));
    }
    // The first copy warms up.
    let times = &mut times[1..];
    times.sort();
    Ok(Copy {
        gb_s: (16 * len) as f64 / times[times.len() / 2].as_secs_f64() * 1e-9,
        bytes: 8 * len,
    })
}

/// Numbers per piece of a copy: 512 KiB.
const CHUNK: usize = 1 << 16;

fn filled(len: usize, value: f64) -> Result<Vec<f64>, CliError> {
    let mut array = Vec::new();
    array
        .try_reserve_exact(len)
        .map_err(|_| CliError::Internal(format!("no memory for an array of {}", bytes(8 * len))))?;
    array.resize(len, value);
    Ok(array)
}

/// Bytes of the largest cache, where the system says so.
fn last_level_cache() -> Option<usize> {
    let folder = "/sys/devices/system/cpu/cpu0/cache";
    let sizes = std::fs::read_dir(folder).ok()?.filter_map(|entry| {
        let text = std::fs::read_to_string(entry.ok()?.path().join("size")).ok()?;
        let kib: usize = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kib << 10)
    });
    sizes.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Vec<Expected> {
        let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 3.0]).unwrap();
        reference(&Batch::from(a), &[1.0, 10.0])
    }

    #[test]
    fn a_wrong_row_is_found() {
        let (worst, wrong) = check(&[2.0, 31.5], &expected());

        assert_eq!(worst, f64::INFINITY);
        assert!(wrong.unwrap().starts_with("row 1 is 3.15e1, expected 3.1e1"));
    }

    #[test]
    fn a_nan_in_the_product_is_wrong() {
        assert!(check(&[f64::NAN, 31.0], &expected()).1.is_some());
        assert!(check(&[2.0, 31.0], &expected()).1.is_none());
    }
}
