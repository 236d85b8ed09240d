//! How a solve ended: [`Report`].

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use sparsebatch::gpu::DeviceReport;
use sparsebatch::{BatchReport, Outcome, Rung, Status, SystemReport};

use crate::errors::OptionError;

/// The report of a solve. Arrays are bytes for `numpy.frombuffer`.
#[pyclass(frozen, module = "sparsebatch._native")]
pub(crate) struct Report(DeviceReport);

impl<R: Into<DeviceReport>> From<R> for Report {
    fn from(report: R) -> Self {
        Self(report.into())
    }
}

impl Report {
    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.0.systems.iter().map(|system| &system.outcome)
    }

    fn bytes<'py, const N: usize>(
        &self,
        py: Python<'py>,
        of: impl Fn(&SystemReport) -> [u8; N],
    ) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self.0.systems.iter().flat_map(of).collect();
        PyBytes::new(py, &bytes)
    }
}

#[pymethods]
impl Report {
    /// The report as bytes, for another process of this version.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let report: &BatchReport = &self.0;
        let bytes = postcard::to_stdvec(report).map_err(unreadable)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// One report of those of consecutive parts of a batch, each as `to_bytes` gives it.
    #[staticmethod]
    fn merged(parts: Vec<Bound<'_, PyBytes>>) -> PyResult<Self> {
        let read = |part: &Bound<'_, PyBytes>| {
            postcard::from_bytes::<BatchReport>(part.as_bytes()).map_err(unreadable)
        };
        let reports = parts.iter().map(read).collect::<PyResult<Vec<_>>>()?;
        let merged = BatchReport::merged(reports);
        merged.map(Self::from).ok_or_else(|| OptionError::new_err("there are no reports to merge"))
    }

    fn __len__(&self) -> usize {
        self.0.nsystems()
    }

    /// The number of systems that converged.
    #[getter]
    fn nconverged(&self) -> usize {
        self.0.converged()
    }

    /// Statuses as bytes of uint8: places in `status_names()`.
    fn status<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let statuses = (0..self.0.nsystems()).map(|system| self.0.status(system) as u8);
        PyBytes::new(py, &statuses.collect::<Vec<u8>>())
    }

    /// Rungs as bytes of uint8: places in `rung_names()`.
    fn rung<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let place = |rung| Rung::ALL.iter().position(|&other| other == rung).unwrap_or(0) as u8;
        self.bytes(py, |system| [place(system.rung)])
    }

    /// Iterations as bytes of uint32.
    fn iterations<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.bytes(py, |system| system.outcome.iterations.to_ne_bytes())
    }

    /// Restarts as bytes of uint32.
    fn restarts<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.bytes(py, |system| system.outcome.restarts.to_ne_bytes())
    }

    /// `||b - A x||_2` as bytes of float64.
    fn residual_norm<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.bytes(py, |system| system.outcome.residual_norm.to_ne_bytes())
    }

    /// `||b||_2` as bytes of float64.
    fn rhs_norm<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.bytes(py, |system| system.outcome.rhs_norm.to_ne_bytes())
    }

    /// `||b - A x||_2 / ||b||_2` as bytes of float64.
    fn relative_residual<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.bytes(py, |system| system.outcome.relative_residual().to_ne_bytes())
    }

    /// Whether the rounding floor accepted a system, as bytes of bool.
    fn accepted_by_floor<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.bytes(py, |system| [u8::from(system.outcome.accepted_by_floor)])
    }

    /// Whether the ladder found the matrix of a system singular, as bytes of bool.
    fn singular<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.bytes(py, |system| [u8::from(system.singular)])
    }

    /// The residual norms of the iterations, one list a system; empty unless asked for.
    fn history<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.outcomes().map(|outcome| outcome.history.clone()))
    }

    /// What to try next for a system that did not converge.
    fn advice(&self, system: usize, fallback: bool) -> Option<&'static str> {
        self.0.systems.get(system)?.advice(fallback)
    }

    /// How many systems ended with each status.
    fn status_counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        for (status, count) in self.0.status_counts() {
            counts.set_item(status.name(), count)?;
        }
        Ok(counts)
    }

    /// How many systems each rung solved.
    fn rung_counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        for (rung, count) in self.0.rung_counts() {
            counts.set_item(rung.name(), count)?;
        }
        Ok(counts)
    }

    /// The schemes that ran first: name, number of systems, reason, kernel.
    fn schemes(&self) -> Vec<(String, usize, String, String)> {
        let schemes = self.0.schemes.iter();
        schemes
            .map(|run| {
                (run.scheme.to_string(), run.systems, run.reason.clone(), run.kernel.clone())
            })
            .collect()
    }

    /// What ran: rung, number of systems, machine, kernel, why the CPU solved systems of a GPU.
    fn runs(&self) -> Vec<(&'static str, usize, &'static str, String, Option<String>)> {
        let runs = self.0.runs.iter();
        runs.map(|run| {
            let (rung, machine) = (run.rung.name(), run.backend.name());
            (rung, run.systems, machine, run.kernel.clone(), run.cpu_reason.clone())
        })
        .collect()
    }

    /// Each of several GPUs: name, number of systems that it solved, why it was lost.
    fn gpus(&self) -> Vec<(String, usize, Option<String>)> {
        let gpus = self.0.gpus().iter();
        gpus.map(|gpu| (gpu.device.clone(), gpu.systems, gpu.lost.clone())).collect()
    }

    #[getter]
    fn solver(&self) -> String {
        self.0.scheme.to_string()
    }

    #[getter]
    fn reason(&self) -> &str {
        &self.0.reason
    }

    #[getter]
    fn backend(&self) -> &'static str {
        self.0.backend.name()
    }

    #[getter]
    fn device(&self) -> &str {
        &self.0.device
    }

    #[getter]
    fn format(&self) -> &'static str {
        self.0.format
    }

    #[getter]
    fn kernel(&self) -> &str {
        &self.0.kernel
    }

    /// Seconds of analysis.
    #[getter]
    fn plan_time(&self) -> f64 {
        self.0.plan_time.as_secs_f64()
    }

    /// Seconds of the solve.
    #[getter]
    fn solve_time(&self) -> f64 {
        self.0.solve_time.as_secs_f64()
    }
}

fn unreadable(error: postcard::Error) -> PyErr {
    OptionError::new_err(format!("a report of another process cannot be read: {error}"))
}

/// The names of the statuses, by number.
#[pyfunction]
pub(crate) fn status_names() -> Vec<&'static str> {
    Status::ALL.iter().map(|status| status.name()).collect()
}

/// The names of the rungs, by number.
#[pyfunction]
pub(crate) fn rung_names() -> Vec<&'static str> {
    Rung::ALL.iter().map(|rung| rung.name()).collect()
}
