//! Files of matrices.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sparsebatch::batch::Values;
use sparsebatch::io::{self, LoadOptions};

use crate::errors::OrRaise;
use crate::ffi::Input;
use crate::patterns::{Patterns, Place, f64_bytes, i64_bytes};

type Bytes<'py> = Bound<'py, PyBytes>;

/// Reads matrices: patterns, sizes (rows, columns, entries; bytes of int64), values and right-hand
/// sides (bytes of float64).
#[pyfunction]
pub(crate) fn load<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
) -> PyResult<(Patterns, [Bytes<'py>; 3], Bytes<'py>, Option<Bytes<'py>>)> {
    let loaded = py.detach(|| io::load(&paths, LoadOptions::default())).or_raise()?;
    let patterns = Patterns::of(&loaded.batch);
    let sizes = patterns.sizes().map(|sizes| i64_bytes(py, sizes.into_iter()));
    let (mut values, mut item_values) = (Vec::with_capacity(loaded.batch.total_nnz()), Vec::new());
    for item in 0..loaded.batch.nitems() {
        loaded.batch.copy_values(item, &mut item_values);
        values.extend_from_slice(&item_values);
    }
    let rhs = loaded.rhs.as_deref().map(|rhs| f64_bytes(py, rhs));
    Ok((patterns, sizes, f64_bytes(py, &values), rhs))
}

/// Writes a `.batch` file.
#[pyfunction]
pub(crate) fn save(
    py: Python<'_>,
    path: PathBuf,
    patterns: &Bound<'_, Patterns>,
    values: &Bound<'_, PyAny>,
    layout: &str,
    rhs: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let values = Values::of_owner(Input::<f64>::of("values", values)?);
    let batch = patterns.get().batch(values, Place::named(layout)?).or_raise()?;
    let rhs = Input::<f64>::of("b", rhs)?;
    py.detach(|| io::write_batch(path, &batch, rhs.as_ref())).or_raise()
}
