//! The GPUs of a command, or the reason why none is used.

use std::str::FromStr;

use sparsebatch::gpu::device::availability;
use sparsebatch::gpu::{Device, GpuError};

use super::error::CliError;
use super::options::Backend;

/// Ordinal of the GPU that commands use.
pub(crate) const ORDINAL: usize = 0;

/// A GPU with the reason why it is used, or the reason why none is.
pub(crate) type Found<D = Device> = Result<(D, &'static str), String>;

/// Opens the GPU if `--backend` allows it.
///
/// # Errors
/// When a GPU was requested and none is usable.
pub(crate) fn open(backend: Backend) -> Result<Found, CliError> {
    open_at(backend, ORDINAL)
}

/// As [`open`], another GPU.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_at(backend: Backend, ordinal: usize) -> Result<Found, CliError> {
    if backend == Backend::Cpu {
        return Ok(Err("asked for".to_owned()));
    }
    match (Device::new(ordinal), backend) {
        (Ok(device), Backend::Gpu) => Ok(Ok((device, "asked for"))),
        (Ok(device), _) => Ok(Ok((device, "there is a GPU"))),
        (Err(error), Backend::Gpu) => Err(refused(error)),
        (Err(error), _) => Ok(Err(format!("no GPU: {error}"))),
    }
}

/// The error that ends a command with `--backend gpu`.
pub(crate) fn refused(error: impl Into<CliError>) -> CliError {
    refused_for("--backend gpu", error)
}

/// The error that ends a command with an option that asks for GPUs.
fn refused_for(option: &str, error: impl Into<CliError>) -> CliError {
    match error.into() {
        CliError::Input(text) => CliError::Input(format!("{option}: {text}")),
        CliError::Internal(text) => CliError::Internal(format!("{option}: {text}")),
    }
}

/// The GPUs of `--gpus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gpus {
    /// Every GPU that the driver shows.
    All,
    /// Those with these numbers, at least one and each once.
    Numbers(Vec<usize>),
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let mut numbers = Vec::new();
        for part in text.split(',') {
            let number = part.parse().map_err(|_| {
                format!("expected all, or numbers of GPUs such as 0,1, found {text:?}")
            })?;
            if numbers.contains(&number) {
                return Err(format!("expected each GPU once, found {number} twice in {text}"));
            }
            numbers.push(number);
        }
        Ok(Self::Numbers(numbers))
    }
}

impl Gpus {
    /// Opens the GPUs, in their order.
    ///
    /// # Errors
    /// Where `--backend` is cpu, and where one of them is not usable.
    pub(crate) fn open(&self, backend: Backend) -> Result<Vec<Device>, CliError> {
        if backend == Backend::Cpu {
            return Err(CliError::input("--gpus asks for GPUs, expected --backend gpu, found cpu"));
        }
        let count = || Ok(availability::driver()?.1);
        self.open_by(count, Device::new).map_err(|error| refused_for("--gpus", error))
    }

    /// Opens the GPUs by `new`, given the number of GPUs; none before all are known to be there.
    fn open_by<D>(
        &self,
        count: impl FnOnce() -> Result<usize, GpuError>,
        new: impl Fn(usize) -> Result<D, GpuError>,
    ) -> Result<Vec<D>, GpuError> {
        let count = count()?;
        let numbers = match self {
            Self::All => (0..count.max(1)).collect(),
            Self::Numbers(numbers) => numbers.clone(),
        };
        match numbers.iter().find(|&&ordinal| ordinal >= count) {
            Some(&ordinal) => Err(GpuError::NoDevice { ordinal, count }),
            None => numbers.into_iter().map(new).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_gpus() {
        let opened = |text: &str| text.parse::<Gpus>().unwrap().open_by(|| Ok(2), Ok);
        assert_eq!(opened("all"), Ok(vec![0, 1]));
        assert_eq!(opened("1,0"), Ok(vec![1, 0]));
        assert_eq!(opened("1"), Ok(vec![1]));
        let missing = opened("0,7").unwrap_err().to_string();
        assert!(missing.starts_with("no GPU number 7, the driver shows 2"), "{missing}");
        let none = Gpus::All.open_by(|| Ok(0), Ok);
        assert_eq!(none, Err(GpuError::NoDevice { ordinal: 0, count: 0 }));
        for (text, expected) in [
            ("", "found \"\""),
            ("0,", "numbers of GPUs such as 0,1"),
            ("-1", "numbers of GPUs"),
            ("0,1,0", "found 0 twice in 0,1,0"),
        ] {
            let error = text.parse::<Gpus>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_missing_gpu_is_bad_usage_and_a_failing_one_a_fault() {
        let fails = GpuError::Driver { call: "cuInit", code: 999, message: "unknown".to_owned() };

        let missing = refused(GpuError::NoDevice { ordinal: 0, count: 0 });
        assert!(matches!(missing, CliError::Input(_)));
        assert!(missing.to_string().starts_with("--backend gpu: no GPU number 0"));
        assert!(matches!(refused(fails), CliError::Internal(_)));
    }

    #[test]
    fn the_cpu_is_taken_where_it_is_asked_for() {
        assert_eq!(open(Backend::Cpu).unwrap().err().as_deref(), Some("asked for"));
    }
}
