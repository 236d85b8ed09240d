//! Right-hand sides and initial guesses.

use std::path::Path;

use sparsebatch::Batch;
use sparsebatch::generate::rng;
use sparsebatch::io::{DenseArray, MemoryLimit, load_array};

use super::error::CliError;
use super::input::Systems;
use super::options::VectorSource;

/// The right-hand sides of all systems, and their source in words.
///
/// Without a `source`: those of the files, else ones. `random:SEED` gives element j of system i the
/// value `2 u(SEED, i, j) - 1`, with `u` of [`rng::uniform`].
///
/// # Errors
/// When the files have none although they were requested, or the given file does not fit.
pub(crate) fn rhs(
    source: Option<&VectorSource>,
    systems: &mut Systems,
) -> Result<(Vec<f64>, String), CliError> {
    let ones = |rows: usize| Ok((repeated(&[1.0], rows)?, "ones".to_owned()));
    match (source, systems.rhs.take()) {
        (None, Some(rhs)) if systems.has_rhs.contains(&false) => {
            Ok((rhs, "file, ones where a file has none".to_owned()))
        }
        (None | Some(VectorSource::File), Some(rhs)) if !systems.has_rhs.contains(&false) => {
            Ok((rhs, "file".to_owned()))
        }
        (Some(VectorSource::File), _) => Err(CliError::input(
            "--rhs file: not every input holds right-hand sides, \
             expected .batch inputs, files NAME_b or NAME_rhs beside matrices, or --rhs ones|random:SEED|FILE",
        )),
        (None | Some(VectorSource::Ones), _) => ones(systems.nrows()),
        (Some(VectorSource::Random(seed)), _) => {
            let offsets = |i| systems.batch.row_offset(i);
            let values = random(*seed, systems.first, systems.batch.nitems(), offsets)?;
            Ok((values, format!("random:{seed}")))
        }
        (Some(VectorSource::Path(path)), _) => {
            let values = read(path, "b", "right-hand sides", systems, systems.nrows())?;
            Ok((values, path.display().to_string()))
        }
    }
}

/// The elements of a range of one vector of `len` elements, and their source in words. Without a
/// `source`: `default`. Elements by `random:SEED` are those of [`rhs`] and [`operands`] for a single
/// system; `array` is the name of the vector in an `.npz`.
///
/// # Errors
/// When the file cannot be read or does not fit, and for vectors in the input itself.
pub(crate) fn part(
    source: Option<&VectorSource>,
    default: &VectorSource,
    (array, len): (&str, usize),
    range: std::ops::Range<usize>,
    memory: MemoryLimit,
) -> Result<(Vec<f64>, String), CliError> {
    match source.unwrap_or(default) {
        VectorSource::Ones => Ok((repeated(&[1.0], range.len())?, "ones".to_owned())),
        VectorSource::Random(seed) => {
            let mut values = reserved(range.len())?;
            values.extend(range.map(|j| 2.0 * rng::uniform(*seed, 0, j as u64) - 1.0));
            Ok((values, format!("random:{seed}")))
        }
        VectorSource::Path(path) => {
            let name = path.display();
            let DenseArray { values, .. } = load_array(path, array, memory)?;
            if values.len() != len {
                let found = values.len();
                return Err(CliError::input(format!("{name}: {found} elements, expected {len}")));
            }
            Ok((values[range].to_vec(), name.to_string()))
        }
        VectorSource::File => Err(CliError::input(
            "ranks that share one matrix read no vectors in or beside it, expected ones, \
             random:SEED or a FILE",
        )),
    }
}

/// Initial guesses from a file: a Matrix Market vector, an `.npy`, or the array `x` of an `.npz`
/// that `solve --output` wrote.
///
/// # Errors
/// When the file cannot be read or does not fit.
pub(crate) fn x0(path: &Path, systems: &Systems) -> Result<Vec<f64>, CliError> {
    read(path, "x", "initial guesses", systems, systems.nrows())
}

/// Reads the numbers of all systems, item after item: a one-dimensional array, or one with a row
/// for each system.
fn read(
    path: &Path,
    array: &str,
    what: &str,
    systems: &Systems,
    expected: usize,
) -> Result<Vec<f64>, CliError> {
    let DenseArray { shape, values } = load_array(path, array, systems.memory())?;
    let name = if path == Path::new("-") { Path::new("standard input") } else { path };
    let name = name.display();
    let is_one_row = shape.iter().filter(|&&length| length != 1).count() <= 1;
    let rows = match &systems.batch {
        Batch::Uniform(batch) => batch.nitems(),
        // The vectors of a ragged batch differ in length.
        Batch::Ragged(_) => 1,
    };
    if !is_one_row && (shape.len() != 2 || shape[0] != rows) {
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        return Err(CliError::input(format!(
            "{name}: {what} of shape {}, expected one dimension, or {rows} x {}",
            shape.join(" x "),
            expected.checked_div(rows).unwrap_or(0)
        )));
    }
    if values.len() == expected {
        Ok(values)
    } else {
        Err(CliError::input(format!(
            "{name}: {} {what}, expected {expected}, one per row of every system",
            values.len()
        )))
    }
}

/// Repeats `numbers` `copies` times, one copy after the other; reports an error if memory is
/// refused.
///
/// # Errors
/// When the memory is refused.
pub(crate) fn repeated(numbers: &[f64], copies: usize) -> Result<Vec<f64>, CliError> {
    let mut all = reserved(numbers.len().saturating_mul(copies))?;
    if !numbers.is_empty() {
        (0..copies).for_each(|_| all.extend_from_slice(numbers));
    }
    Ok(all)
}

/// An empty array with room for `len` numbers.
///
/// # Errors
/// When the memory is refused.
pub(crate) fn reserved<T>(len: usize) -> Result<Vec<T>, CliError> {
    let mut array = Vec::new();
    array.try_reserve_exact(len).map_err(|_| {
        let bytes = len.saturating_mul(size_of::<T>());
        CliError::Internal(format!("{bytes} bytes of memory could not be allocated"))
    })?;
    Ok(array)
}

/// The operands of products, one number per column of every system.
///
/// Without a `source`: `random:96`, the stream of the benchmark problems.
///
/// # Errors
/// When the given file does not fit.
pub(crate) fn operands(
    source: Option<&VectorSource>,
    systems: &Systems,
) -> Result<Vec<f64>, CliError> {
    let batch = &systems.batch;
    let total = batch.col_offset(batch.nitems());
    let seed = match source {
        Some(VectorSource::Ones) => return repeated(&[1.0], total),
        Some(VectorSource::Path(path)) => return read(path, "x", "operands", systems, total),
        Some(VectorSource::File) => {
            return Err(CliError::input(
                "--x file: inputs hold no operands, expected ones, random:SEED or a FILE",
            ));
        }
        Some(VectorSource::Random(seed)) => *seed,
        None => 96,
    };
    random(seed, systems.first, batch.nitems(), |item| batch.col_offset(item))
}

/// Random vectors: element j of item i is `2 u(seed, first + i, j) - 1`; `offset(i)` is the start of
/// item i.
fn random(
    seed: u64,
    first: usize,
    nitems: usize,
    offset: impl Fn(usize) -> usize,
) -> Result<Vec<f64>, CliError> {
    let mut values = reserved(offset(nitems))?;
    for item in 0..nitems {
        let (len, number) = ((offset(item + 1) - offset(item)) as u64, (first + item) as u64);
        values.extend((0..len).map(|j| 2.0 * rng::uniform(seed, number, j) - 1.0));
    }
    Ok(values)
}
