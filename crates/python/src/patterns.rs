//! The patterns of a batch: [`Patterns`].

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sparsebatch::batch::Values;
use sparsebatch::gpu::BatchPatterns;
use sparsebatch::{
    Batch, BatchValues, CsrPattern, FormatError, Layout, Pattern, RaggedCsr, Scalar, UniformBatch,
};

use crate::errors::{OptionError, OrRaise};
use crate::ffi::Input;

/// The patterns of the items of a batch, valid: one for all items, or one for each.
#[pyclass(frozen, module = "sparsebatch._native")]
pub(crate) struct Patterns(Kind);

enum Kind {
    Uniform { pattern: Arc<CsrPattern>, nitems: usize },
    Ragged(Ragged),
}

/// Concatenated arrays of the items, as `RaggedCsr` takes them.
struct Ragged {
    nrows: Vec<usize>,
    ncols: Vec<usize>,
    nnz: Vec<usize>,
    row_ptr: Vec<i32>,
    col_idx: Vec<i32>,
}

impl Ragged {
    fn batch<T: Scalar>(&self, values: Values<T>) -> Result<RaggedCsr<T>, FormatError> {
        let (row_ptr, col_idx) = (self.row_ptr.clone(), self.col_idx.clone());
        RaggedCsr::from_values(&self.nrows, &self.ncols, &self.nnz, row_ptr, col_idx, values)
    }

    /// The patterns one by one; they have been checked with the batch.
    fn items(&self) -> Result<Vec<CsrPattern>, FormatError> {
        let (mut row_ptr, mut col_idx) = (&self.row_ptr[..], &self.col_idx[..]);
        let sizes = self.nrows.iter().zip(&self.ncols).zip(&self.nnz);
        let mut take = |nrows: usize, nnz: usize| {
            let (own_rows, rest_rows) = row_ptr.split_at(nrows + 1);
            let (own, rest) = col_idx.split_at(nnz);
            (row_ptr, col_idx) = (rest_rows, rest);
            (own_rows.to_vec(), own.to_vec())
        };
        sizes
            .map(|((&nrows, &ncols), &nnz)| {
                let (row_ptr, col_idx) = take(nrows, nnz);
                CsrPattern::try_new(nrows, ncols, row_ptr, col_idx)
            })
            .collect()
    }
}

/// How the values of a batch lie in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    ItemMajor,
    Interleaved,
    Shared,
}

impl Place {
    pub(crate) fn named(name: &str) -> PyResult<Self> {
        match name {
            "item" => Ok(Self::ItemMajor),
            "interleaved" => Ok(Self::Interleaved),
            "shared" => Ok(Self::Shared),
            _ => Err(OptionError::new_err(format!(
                "layout is {name}, expected item, interleaved or shared"
            ))),
        }
    }

    pub(crate) fn layout(self) -> Layout {
        match self {
            Self::Interleaved => Layout::Interleaved,
            Self::ItemMajor | Self::Shared => Layout::ItemMajor,
        }
    }
}

fn sizes(name: &str, array: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let array = Input::<i64>::of(name, array)?;
    let size = |&size: &i64| {
        usize::try_from(size).map_err(|_| {
            OptionError::new_err(format!(
                "{name} has {size}, expected numbers that are not negative"
            ))
        })
    };
    array.as_ref().iter().map(size).collect()
}

/// Numbers as bytes, for `numpy.frombuffer`.
pub(crate) fn i64_bytes<'py>(
    py: Python<'py>,
    numbers: impl Iterator<Item = usize>,
) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = numbers.flat_map(|number| (number as i64).to_ne_bytes()).collect();
    PyBytes::new(py, &bytes)
}

pub(crate) fn f64_bytes<'py>(py: Python<'py>, numbers: &[f64]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    PyBytes::new(py, &bytes)
}

pub(crate) fn i32_bytes<'py>(py: Python<'py>, numbers: &[i32]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    PyBytes::new(py, &bytes)
}

#[pymethods]
impl Patterns {
    /// One pattern of `nitems` items.
    #[staticmethod]
    fn uniform(
        nrows: usize,
        ncols: usize,
        indptr: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        nitems: usize,
    ) -> PyResult<Self> {
        let indptr = Input::<i32>::of("indptr", indptr)?.as_ref().to_vec();
        let indices = Input::<i32>::of("indices", indices)?.as_ref().to_vec();
        let pattern = CsrPattern::try_new(nrows, ncols, indptr, indices).or_raise()?;
        Ok(Self(Kind::Uniform { pattern: Arc::new(pattern), nitems }))
    }

    /// A pattern for each item, in concatenated arrays; row pointers begin at 0 in each item.
    #[staticmethod]
    fn ragged(
        nrows: &Bound<'_, PyAny>,
        ncols: &Bound<'_, PyAny>,
        nnz: &Bound<'_, PyAny>,
        indptr: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let ragged = Ragged {
            nrows: sizes("nrows", nrows)?,
            ncols: sizes("ncols", ncols)?,
            nnz: sizes("nnz", nnz)?,
            row_ptr: Input::<i32>::of("indptr", indptr)?.as_ref().to_vec(),
            col_idx: Input::<i32>::of("indices", indices)?.as_ref().to_vec(),
        };
        let nnz = ragged.nnz.iter().sum();
        ragged.batch(Values::from(vec![0.0f32; nnz])).or_raise()?;
        Ok(Self(Kind::Ragged(ragged)))
    }

    #[getter]
    fn is_uniform(&self) -> bool {
        matches!(self.0, Kind::Uniform { .. })
    }

    #[getter]
    pub(crate) fn nitems(&self) -> usize {
        match &self.0 {
            Kind::Uniform { nitems, .. } => *nitems,
            Kind::Ragged(ragged) => ragged.nrows.len(),
        }
    }

    /// The transposed patterns, and for each of their entries its place among those of this batch,
    /// as bytes of int64: within an item, or in the concatenated array of a ragged batch.
    fn transposed<'py>(&self, py: Python<'py>) -> PyResult<(Self, Bound<'py, PyBytes>)> {
        match &self.0 {
            Kind::Uniform { pattern, nitems } => {
                let (transposed, places) = transposed(pattern);
                let pattern = Arc::new(transposed);
                let places = i64_bytes(py, places.into_iter());
                Ok((Self(Kind::Uniform { pattern, nitems: *nitems }), places))
            }
            Kind::Ragged(ragged) => {
                let (mut row_ptr, mut col_idx, mut places) = (Vec::new(), Vec::new(), Vec::new());
                for pattern in ragged.items().or_raise()? {
                    let start = places.len();
                    let (transposed, own) = transposed(&pattern);
                    row_ptr.extend_from_slice(transposed.row_ptr());
                    col_idx.extend_from_slice(transposed.col_idx());
                    places.extend(own.into_iter().map(|place| start + place));
                }
                let (nrows, ncols) = (ragged.ncols.clone(), ragged.nrows.clone());
                let nnz = ragged.nnz.clone();
                let ragged = Ragged { nrows, ncols, nnz, row_ptr, col_idx };
                Ok((Self(Kind::Ragged(ragged)), i64_bytes(py, places.into_iter())))
            }
        }
    }

    /// Row pointers and columns, as bytes of int32.
    fn arrays<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let (row_ptr, col_idx) = match &self.0 {
            Kind::Uniform { pattern, .. } => (pattern.row_ptr(), pattern.col_idx()),
            Kind::Ragged(ragged) => (&ragged.row_ptr[..], &ragged.col_idx[..]),
        };
        (i32_bytes(py, row_ptr), i32_bytes(py, col_idx))
    }
}

/// The transposed pattern, and the place of each of its entries in `pattern`.
fn transposed(pattern: &CsrPattern) -> (CsrPattern, Vec<usize>) {
    let (transposed, slots) = pattern.transpose();
    let mut places = vec![0; pattern.nnz()];
    (0..pattern.nnz()).for_each(|entry| places[slots.slot(entry)] = entry);
    (transposed, places)
}

impl Patterns {
    /// One pattern of several items.
    pub(crate) fn of_one(pattern: CsrPattern, nitems: usize) -> Self {
        Self(Kind::Uniform { pattern: Arc::new(pattern), nitems })
    }

    /// The patterns of a batch.
    pub(crate) fn of<T: Scalar>(batch: &Batch<T>) -> Self {
        Self(match batch {
            Batch::Uniform(uniform) => {
                let pattern = Arc::clone(uniform.pattern());
                Kind::Uniform { pattern, nitems: uniform.nitems() }
            }
            Batch::Ragged(ragged) => {
                let sizes = |offsets: &[usize]| -> Vec<usize> {
                    offsets.windows(2).map(|pair| pair[1] - pair[0]).collect()
                };
                Kind::Ragged(Ragged {
                    nrows: sizes(ragged.row_offsets()),
                    ncols: sizes(ragged.col_offsets()),
                    nnz: sizes(ragged.nnz_offsets()),
                    row_ptr: ragged.row_ptr().to_vec(),
                    col_idx: ragged.col_idx().to_vec(),
                })
            }
        })
    }

    /// The batch of these patterns and values; `values` is borrowed where it lies.
    pub(crate) fn batch<T: Scalar>(
        &self,
        values: Values<T>,
        place: Place,
    ) -> Result<Batch<T>, FormatError> {
        match &self.0 {
            Kind::Uniform { pattern, nitems } => {
                let values = match place {
                    Place::ItemMajor => BatchValues::ItemMajor(values),
                    Place::Interleaved => BatchValues::Interleaved(values),
                    Place::Shared => BatchValues::Shared(values),
                };
                let batch = UniformBatch::from_values(Arc::clone(pattern), *nitems, values)?;
                Ok(Batch::Uniform(batch))
            }
            Kind::Ragged(ragged) => Ok(Batch::Ragged(ragged.batch(values)?)),
        }
    }

    /// Rows, columns and entries: of each item, or of one where all are alike.
    pub(crate) fn sizes(&self) -> [Vec<usize>; 3] {
        match &self.0 {
            Kind::Uniform { pattern, .. } => {
                [vec![pattern.nrows()], vec![pattern.ncols()], vec![pattern.nnz()]]
            }
            Kind::Ragged(ragged) => {
                [ragged.nrows.clone(), ragged.ncols.clone(), ragged.nnz.clone()]
            }
        }
    }

    /// Calls `f` with the patterns as solvers of device data take them.
    pub(crate) fn with_items<R>(&self, f: impl FnOnce(BatchPatterns<'_>) -> R) -> PyResult<R> {
        Ok(match &self.0 {
            Kind::Uniform { pattern, nitems } => f(BatchPatterns::from((&**pattern, *nitems))),
            Kind::Ragged(ragged) => f(BatchPatterns::from(&ragged.items().or_raise()?[..])),
        })
    }

    /// The one pattern of all items, where they have one.
    pub(crate) fn one(&self) -> Option<(&CsrPattern, usize)> {
        match &self.0 {
            Kind::Uniform { pattern, nitems } => Some((pattern, *nitems)),
            Kind::Ragged(_) => None,
        }
    }
}
