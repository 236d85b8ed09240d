//! Right-hand sides and initial guesses.

use std::path::Path;

use sparsebatch::generate::rng;
use sparsebatch::io::{FileKind, detect, read_npz_array, read_vector};

use super::error::CliError;
use super::input::Systems;
use super::options::VectorSource;

/// The right-hand sides of all systems, and where they came from, in words.
///
/// Without a wish: those of the files, else ones. `random:SEED` gives element j of system i the
/// value `2 u(SEED, i, j) - 1`, `u` of [`rng::uniform`].
///
/// # Errors
/// When the files have none although asked for, or the file given does not fit.
pub(crate) fn rhs(
    source: Option<&VectorSource>,
    systems: &mut Systems,
) -> Result<(Vec<f64>, String), CliError> {
    let ones = |rows: usize| (vec![1.0; rows], "ones".to_owned());
    match (source, systems.rhs.take()) {
        (None, Some(rhs)) if systems.has_rhs.contains(&false) => {
            Ok((rhs, "file, ones where a file has none".to_owned()))
        }
        (None | Some(VectorSource::File), Some(rhs)) if !systems.has_rhs.contains(&false) => {
            Ok((rhs, "file".to_owned()))
        }
        (Some(VectorSource::File), _) => Err(CliError::input(
            "--rhs file: not every input holds right-hand sides, \
             expected .batch inputs or --rhs ones|random:SEED|FILE",
        )),
        (None | Some(VectorSource::Ones), _) => Ok(ones(systems.nrows())),
        (Some(VectorSource::Random(seed)), _) => {
            let offsets = |i| systems.batch.row_offset(i);
            let values = random(*seed, systems.batch.nitems(), offsets);
            Ok((values, format!("random:{seed}")))
        }
        (Some(VectorSource::Path(path)), _) => {
            let values = read(path, "b", "right-hand sides", systems.nrows())?;
            Ok((values, path.display().to_string()))
        }
    }
}

/// Initial guesses from a file: a Matrix Market vector, or the array `x` of an `.npz` that
/// `solve --output` wrote.
///
/// # Errors
/// When the file cannot be read or does not fit.
pub(crate) fn x0(path: &Path, systems: &Systems) -> Result<Vec<f64>, CliError> {
    read(path, "x", "initial guesses", systems.nrows())
}

fn read(path: &Path, array: &str, what: &str, expected: usize) -> Result<Vec<f64>, CliError> {
    let values = match detect(path)? {
        FileKind::Npz => read_npz_array(path, array)?,
        FileKind::MatrixMarket | FileKind::MatrixMarketGzip => read_vector(path)?,
        _ => {
            return Err(CliError::input(format!(
                "{}: a batch of matrices, expected a Matrix Market vector or an .npz with the array {array}",
                path.display()
            )));
        }
    };
    if values.len() == expected {
        Ok(values)
    } else {
        Err(CliError::input(format!(
            "{}: {} {what}, expected {expected}, one per row of every system",
            path.display(),
            values.len()
        )))
    }
}

/// The operands of products, one number per column of every system.
///
/// Without a wish `random:96`, the stream of the benchmark problems.
///
/// # Errors
/// When the file given does not fit.
pub(crate) fn operands(
    source: Option<&VectorSource>,
    systems: &Systems,
) -> Result<Vec<f64>, CliError> {
    let batch = &systems.batch;
    let total = batch.col_offset(batch.nitems());
    let seed = match source {
        Some(VectorSource::Ones) => return Ok(vec![1.0; total]),
        Some(VectorSource::Path(path)) => return read(path, "x", "operands", total),
        Some(VectorSource::File) => {
            return Err(CliError::input(
                "--x file: inputs hold no operands, expected ones, random:SEED or a FILE",
            ));
        }
        Some(VectorSource::Random(seed)) => *seed,
        None => 96,
    };
    Ok(random(seed, batch.nitems(), |item| batch.col_offset(item)))
}

/// Element j of item i is `2 u(seed, i, j) - 1`; `offset(i)` tells where item i starts.
fn random(seed: u64, nitems: usize, offset: impl Fn(usize) -> usize) -> Vec<f64> {
    let mut values = Vec::with_capacity(offset(nitems));
    for item in 0..nitems {
        let len = (offset(item + 1) - offset(item)) as u64;
        values.extend((0..len).map(|j| 2.0 * rng::uniform(seed, item as u64, j) - 1.0));
    }
    values
}
