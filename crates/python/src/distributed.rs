//! One matrix over the ranks of mpi4py: [`Distributed`]. Data travels by calls of a Python object, the
//! `Carrier` of `sparsebatch/_distributed.py`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::buffer::Element;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sparsebatch::{Csr, SolveScalar};
use sparsebatch_mpi::{
    DistributedMatrix, DistributedOptions, Failure, MatrixFile, MatrixOptions, Message, MpiError,
    Partition, Ranks, Transport,
};

use crate::backend::backend;
use crate::errors::{FormatError, OptionError, OrRaise, RankFailed, in_python};
use crate::ffi::{Carried, Input, LentBytes, Output};
use crate::interrupt::Control;
use crate::options::{Options, product_options};
use crate::precision::{each, locked};
use crate::report::Report;

/// mpi4py, by an object of Python.
struct Carrier {
    python: Py<PyAny>,
    rank: usize,
    size: usize,
    host: String,
    local: (usize, usize),
}

impl Carrier {
    fn new(python: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            rank: python.getattr("rank")?.extract()?,
            size: python.getattr("size")?.extract()?,
            host: python.getattr("host")?.extract()?,
            local: python.getattr("local")?.extract()?,
            python: python.clone().unbind(),
        })
    }

    /// A call, which no rank can go on without: an exception in it is printed and ends all ranks, as
    /// an error of MPI does.
    fn call<R>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>) -> R {
        Python::attach(|py| {
            call(self.python.bind(py)).unwrap_or_else(|error| {
                error.print(py);
                self.end(py, 1)
            })
        })
    }

    fn end(&self, py: Python<'_>, code: u8) -> ! {
        let ended = self.python.bind(py).call_method1("abort", (code,));
        if let Err(error) = ended {
            error.print(py);
        }
        std::process::exit(i32::from(code))
    }

    /// The bytes that a list of Python has.
    fn lists(found: Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
        found.extract()
    }

    /// Starts what `method` starts with views of two buffers, does work, and waits.
    fn during(
        &self,
        method: &str,
        send: &[u8],
        receive: &mut [u8],
        parts: Option<(&[Message], &[Message])>,
        meanwhile: &mut dyn FnMut(),
    ) {
        let (send, receive) = (LentBytes::of(send), LentBytes::of_mut(receive));
        let list = |messages: &[Message]| -> Vec<(usize, usize, usize)> {
            messages.iter().map(|(rank, part)| (*rank, part.start, part.end)).collect()
        };
        let started = self.call(|python| {
            let py = python.py();
            // SAFETY: `_Carrier` of the Python part, which alone gets them, keeps no view beyond the
            // call of `wait` below.
            #[expect(unsafe_code, reason = "views of buffers that outlive the messages")]
            let (send, receive) = unsafe { (send.view(py)?, receive.view(py)?) };
            let started = match parts {
                Some((to, from)) => {
                    python.call_method1(method, (send, list(to), receive, list(from)))?
                }
                None => python.call_method1(method, (send, receive))?,
            };
            Ok(started.unbind())
        });
        // The buffers are in use until the wait is over, whatever happens.
        let worked = catch_unwind(AssertUnwindSafe(meanwhile));
        self.call(|python| python.call_method1("wait", (started.bind(python.py()),)).map(drop));
        if let Err(panic) = worked {
            resume_unwind(panic);
        }
    }
}

impl Transport for Carrier {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn host(&self) -> String {
        self.host.clone()
    }

    fn local(&self) -> (usize, usize) {
        self.local
    }

    fn any(&self, own: bool) -> bool {
        self.call(|python| python.call_method1("any", (own,))?.extract())
    }

    fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        self.call(|python| {
            Self::lists(python.call_method1("all_gather", (PyBytes::new(python.py(), own),))?)
        })
    }

    fn gather_bytes(&self, own: &[u8]) -> Option<Vec<Vec<u8>>> {
        let all = self.all_gather(own);
        (self.rank == 0).then_some(all)
    }

    fn gather_f64s(&self, own: &[f64]) -> Option<Vec<f64>> {
        let mut all = vec![0.0; self.size * own.len()];
        self.all_gather_f64s(own, &mut all, &mut || ());
        (self.rank == 0).then_some(all)
    }

    fn broadcast(&self, own: Vec<u8>) -> Vec<u8> {
        self.call(|python| {
            python.call_method1("broadcast", (PyBytes::new(python.py(), &own),))?.extract()
        })
    }

    fn all_to_all(&self, own: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        self.call(|python| {
            let py = python.py();
            let lists: Vec<_> = own.iter().map(|bytes| PyBytes::new(py, bytes)).collect();
            Self::lists(python.call_method1("all_to_all", (lists,))?)
        })
    }

    fn exchange(
        &self,
        to: &[Message],
        send: &[u8],
        from: &[Message],
        receive: &mut [u8],
        meanwhile: &mut dyn FnMut(),
    ) {
        self.during("exchange", send, receive, Some((to, from)), meanwhile);
    }

    fn all_gather_f64s(&self, own: &[f64], all: &mut [f64], meanwhile: &mut dyn FnMut()) {
        let own: Vec<u8> = own.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let mut bytes = vec![0; 8 * all.len()];
        self.during("gather_numbers", &own, &mut bytes, None, meanwhile);
        for (number, bytes) in all.iter_mut().zip(bytes.as_chunks().0) {
            *number = f64::from_ne_bytes(*bytes);
        }
    }

    fn barrier(&self) {
        self.call(|python| python.call_method0("barrier").map(drop));
    }

    fn abort(&self, code: u8) -> ! {
        Python::attach(|py| self.end(py, code))
    }
}

/// What was wrong with the input of a rank.
fn in_words(py: Python<'_>, error: &PyErr) -> Failure {
    Failure { code: 2, message: error.value(py).to_string() }
}

/// The exception of all ranks: bad input, or what went wrong on a rank.
fn raised(error: MpiError) -> PyErr {
    match error.exit_code() {
        2 => OptionError::new_err(in_python(&error.to_string())),
        _ => RankFailed::new_err(error.to_string()),
    }
}

/// The part of a matrix that this rank has.
#[pyclass(frozen, module = "sparsebatch._native")]
pub(crate) struct Distributed {
    control: Control,
    matrix: Mutex<Carried<Matrix>>,
}

enum Matrix {
    F64(DistributedMatrix<'static, f64>),
    F32(DistributedMatrix<'static, f32>),
}

/// What is common to all ways to make a matrix.
struct Making {
    ranks: Arc<Ranks>,
    backend: sparsebatch::Backend,
    options: MatrixOptions,
    control: Control,
}

impl Making {
    fn new(
        py: Python<'_>,
        carrier: &Bound<'_, PyAny>,
        place: &(String, Vec<usize>),
        (format, kernel): (&str, &str),
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let carrier = Carried::new(Carrier::new(carrier)?);
        let ranks = py.detach(|| Carried::new(Ranks::by(Box::new(carrier.take()))));
        let ranks = ranks.take().shared();
        let own = || Ok((product_options(format, kernel)?, backend(place, None)?, threads));
        let own = own().and_then(|(spmv, backend, threads)| {
            Ok((MatrixOptions::new().spmv(spmv), backend, Control::new(threads)?))
        });
        // What fails on one rank is an exception of all.
        let own = own.map_err(|error| in_words(py, &error));
        let (options, backend, control) = ranks.agree(own).map_err(raised)?;
        Ok(Self { ranks, backend, options, control })
    }

    /// Runs work of all ranks without the interpreter's lock, on the threads of this rank.
    fn run<R>(
        py: Python<'_>,
        control: &Control,
        work: impl FnOnce() -> Result<R, MpiError>,
    ) -> PyResult<Result<R, MpiError>> {
        let work = Carried::new(work);
        let done = control.run(py, false, None, || Carried::new((work.take())()))?;
        Ok(done.take())
    }

    fn rows<T: SolveScalar>(
        &self,
        py: Python<'_>,
        own: PyResult<Csr<T>>,
        (rows, columns): (&Partition, &Partition),
    ) -> PyResult<DistributedMatrix<'static, T>> {
        let Self { ranks, backend, options, control } = self;
        let ranks = Arc::clone(ranks);
        let own = own.map_err(|error| in_words(py, &error));
        let made = Self::run(py, control, || {
            let own = ranks.agree(own)?;
            DistributedMatrix::from_rows_on(ranks, backend, own, rows, columns, options)
        });
        made?.map_err(raised)
    }

    fn file<T: SolveScalar>(
        &self,
        py: Python<'_>,
        path: PathBuf,
    ) -> PyResult<DistributedMatrix<'static, T>> {
        let Self { ranks, backend, options, control } = self;
        let ranks = Arc::clone(ranks);
        let made = Self::run(py, control, || {
            let file = MatrixFile::open(&ranks, path, options)?;
            file.read_on(ranks, backend, options)
        });
        made?.map_err(|error| match error.exit_code() {
            2 => FormatError::new_err(error.to_string()),
            _ => raised(error),
        })
    }
}

#[pymethods]
impl Distributed {
    /// The matrix whose rows `starts[rank]` to `starts[rank + 1]` this rank gives, as CSR with the
    /// columns of all ranks.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        carrier: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        ncols: usize,
        indptr: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        dtype: &str,
        place: (String, Vec<usize>),
        format: &str,
        kernel: &str,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let making = Making::new(py, carrier, &place, (format, kernel), threads)?;
        let rows = Partition::at(starts).or_raise()?;
        let columns = rows.of_columns(ncols);
        let pattern = (indptr, indices);
        let matrix = match dtype {
            "float64" => {
                Matrix::F64(making.rows(py, csr(ncols, pattern, values), (&rows, &columns))?)
            }
            "float32" => {
                Matrix::F32(making.rows(py, csr(ncols, pattern, values), (&rows, &columns))?)
            }
            _ => return Err(OptionError::new_err(format!("values are {dtype}"))),
        };
        Ok(Self { control: making.control, matrix: Mutex::new(Carried::new(matrix)) })
    }

    /// The matrix of a file, of which every rank reads its rows.
    #[staticmethod]
    #[allow(clippy::too_many_arguments)]
    fn from_file(
        py: Python<'_>,
        carrier: &Bound<'_, PyAny>,
        path: PathBuf,
        dtype: &str,
        place: (String, Vec<usize>),
        format: &str,
        kernel: &str,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let making = Making::new(py, carrier, &place, (format, kernel), threads)?;
        let matrix = match dtype {
            "float64" => Matrix::F64(making.file(py, path)?),
            "float32" => Matrix::F32(making.file(py, path)?),
            _ => return Err(OptionError::new_err(format!("values are {dtype}"))),
        };
        Ok(Self { control: making.control, matrix: Mutex::new(Carried::new(matrix)) })
    }

    /// The rows and columns of all ranks, and its entries.
    #[getter]
    fn sizes(&self, py: Python<'_>) -> PyResult<(usize, usize, u64)> {
        Ok(each!(Matrix, locked(py, &self.matrix)?.get(), matrix => {
            (matrix.rows().len(), matrix.columns().len(), matrix.nnz())
        }))
    }

    /// The first own row and the end, and the same of columns.
    #[getter]
    fn own(&self, py: Python<'_>) -> PyResult<((usize, usize), (usize, usize))> {
        Ok(each!(Matrix, locked(py, &self.matrix)?.get(), matrix => {
            let rank = matrix.ranks().rank();
            let (rows, columns) = (matrix.rows().range(rank), matrix.columns().range(rank));
            ((rows.start, rows.end), (columns.start, columns.end))
        }))
    }

    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(match locked(py, &self.matrix)?.get() {
            Matrix::F64(_) => "float64",
            Matrix::F32(_) => "float32",
        })
    }

    /// What this rank has, and how it multiplies.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        let matrix = locked(py, &self.matrix)?;
        Ok(each!(Matrix, matrix.get(), matrix => matrix.parts().to_string()))
    }

    /// `y = A x` of the own elements.
    fn multiply(&self, py: Python<'_>, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut matrix = locked(py, &self.matrix)?;
        each!(Matrix, matrix.get_mut(), matrix => multiply(py, &self.control, matrix, x, y))
    }

    /// Solves; `x` holds the guess and becomes the solution. The report, and the number of products.
    fn solve(
        &self,
        py: Python<'_>,
        b: &Bound<'_, PyAny>,
        x: &Bound<'_, PyAny>,
        options: Options<'_>,
        pipelined: bool,
        block_lu: bool,
    ) -> PyResult<(Report, u64)> {
        let solve = options.solve_options()?;
        let options =
            DistributedOptions::new().solve(solve).pipelined(pipelined).block_lu(block_lu);
        let (mut matrix, control) = (locked(py, &self.matrix)?, &self.control);
        each!(Matrix, matrix.get_mut(), matrix => solved(py, control, matrix, (b, x), &options))
    }
}

fn csr<T: SolveScalar + Element>(
    ncols: usize,
    (indptr, indices): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    values: &Bound<'_, PyAny>,
) -> PyResult<Csr<T>> {
    let indptr = Input::<i32>::of("indptr", indptr)?.as_ref().to_vec();
    let indices = Input::<i32>::of("indices", indices)?.as_ref().to_vec();
    let values = Input::<T>::of("data", values)?.as_ref().to_vec();
    let nrows = indptr.len().saturating_sub(1);
    Csr::try_new(nrows, ncols, indptr, indices, values).or_raise()
}

fn multiply<T: SolveScalar + Element>(
    py: Python<'_>,
    control: &Control,
    matrix: &mut DistributedMatrix<'static, T>,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (x, mut y) = (Input::<T>::of("x", x)?, Output::<T>::of("y", y)?);
    let (x, y) = (x.as_ref(), y.as_mut());
    let multiplied = Making::run(py, control, || {
        let multiplied = matrix.apply(T::ONE, x, T::ZERO, y);
        matrix.ranks().agree(multiplied)
    });
    multiplied?.map_err(raised)
}

fn solved<T: SolveScalar + Element>(
    py: Python<'_>,
    control: &Control,
    matrix: &mut DistributedMatrix<'static, T>,
    (b, x): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    options: &DistributedOptions,
) -> PyResult<(Report, u64)> {
    let (b, mut x) = (Input::<T>::of("b", b)?, Output::<T>::of("x", x)?);
    let (b, x) = (b.as_ref(), x.as_mut());
    let report = Making::run(py, control, || matrix.solve(b, x, options))?.map_err(raised)?;
    let products = report.products;
    let local = matrix.parts().local;
    let report = report.into_batch((local.format, local.kernel));
    Ok((report.into(), products))
}
