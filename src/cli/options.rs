//! Values of options that several commands share, and how they are parsed.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::error::CliError;

/// A parser that accepts one of the names, and lists them for any other text.
pub(crate) fn named<T>(choices: &'static [(&'static str, T)]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(choices.iter().map(|(name, _)| *name)).map(|found| {
        let choice = choices.iter().find(|(name, _)| *name == found);
        choice.expect("clap has checked the name").1
    })
}

/// The name of a choice.
pub(crate) fn name_of<T: PartialEq>(choices: &[(&'static str, T)], value: &T) -> &'static str {
    let found = choices.iter().find(|(_, choice)| choice == value);
    found.map_or("?", |(name, _)| name)
}

/// The type of the values in the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// 64 bits.
    F64,
    /// 32 bits.
    F32,
}

/// Precisions by name.
pub(crate) const PRECISIONS: &[(&str, Precision)] =
    &[("f64", Precision::F64), ("f32", Precision::F32)];

/// The device that does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// A GPU if there is one, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU.
    Gpu,
}

/// Backends by name.
pub(crate) const BACKENDS: &[(&str, Backend)] =
    &[("auto", Backend::Auto), ("cpu", Backend::Cpu), ("gpu", Backend::Gpu)];

/// Most threads that are started, whatever was requested.
pub(super) const MOST_THREADS: usize = 1024;

/// Options on where and how wide the work runs.
#[derive(Args)]
pub(crate) struct MachineArgs {
    /// Where to compute; `auto` takes a GPU if there is one and the command can use it
    #[arg(long, value_name = "BACKEND", value_parser = named(BACKENDS), default_value = "auto")]
    pub(crate) backend: Backend,
    /// Threads, at most 1024 [default: RAYON_NUM_THREADS, else all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS as i64))]
    threads: Option<u16>,
    /// Type of the values in the computation
    #[arg(long, value_name = "TYPE", value_parser = named(PRECISIONS), default_value = "f64")]
    pub(crate) precision: Precision,
}

impl MachineArgs {
    /// The pool of threads that the work runs in.
    pub(crate) fn pool(&self) -> Result<rayon::ThreadPool, CliError> {
        self.pool_or(0)
    }

    /// The same, of `usual` threads where neither `--threads` nor `RAYON_NUM_THREADS` says how many;
    /// 0 stands for all cores.
    pub(crate) fn pool_or(&self, usual: usize) -> Result<rayon::ThreadPool, CliError> {
        self.pool_builder(usual)
            .build()
            .map_err(|error| CliError::Internal(format!("threads: {error}")))
    }

    /// The same pool with this thread in it, which works in it from then on without being told: for
    /// work that calls MPI, as this thread alone may, between products of all threads.
    pub(crate) fn pool_here(&self, usual: usize) -> Result<rayon::ThreadPool, CliError> {
        self.pool_builder(usual)
            .use_current_thread()
            .build()
            .map_err(|error| CliError::Internal(format!("threads: {error}")))
    }

    fn pool_builder(&self, usual: usize) -> rayon::ThreadPoolBuilder {
        let usual = if std::env::var_os("RAYON_NUM_THREADS").is_some() { 0 } else { usual };
        let threads = self.threads.map_or(usual, usize::from);
        rayon::ThreadPoolBuilder::new().num_threads(threads)
    }
}

/// The source of a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VectorSource {
    /// The right-hand side in the input file.
    File,
    /// Ones.
    Ones,
    /// Uniform in [-1, 1), from a seed.
    Random(u64),
    /// A separate file.
    Path(PathBuf),
}

impl VectorSource {
    /// The path, if the source is a separate file.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::File | Self::Ones | Self::Random(_) => None,
        }
    }
}

impl FromStr for VectorSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "file" => Ok(Self::File),
            "ones" => Ok(Self::Ones),
            _ => match text.strip_prefix("random:") {
                Some(seed) => seed.parse().map(Self::Random).map_err(|_| {
                    format!("expected random:SEED with a whole number, found random:{seed}")
                }),
                None => Ok(Self::Path(PathBuf::from(text))),
            },
        }
    }
}

/// A relative perturbation of the values of copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Perturbation {
    /// Relative size: values become `v * (1 + epsilon * u)`, u uniform in [0, 1).
    pub(crate) epsilon: f64,
    /// The seed of u.
    pub(crate) seed: u64,
}

impl FromStr for Perturbation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected EPS:SEED, such as 1e-6:1, found {text}");
        let (epsilon, seed) = text.split_once(':').ok_or_else(expected)?;
        let epsilon: f64 = epsilon.parse().map_err(|_| expected())?;
        let seed = seed.parse().map_err(|_| expected())?;
        if epsilon.is_finite() { Ok(Self { epsilon, seed }) } else { Err(expected()) }
    }
}

/// Sizes of a grid, written `100x100x100`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grid(pub(crate) Vec<usize>);

impl FromStr for Grid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
        sizes.map(Self).map_err(|_| format!("expected sizes such as 100x100, found {text}"))
    }
}

/// Some of the systems of a batch: `START..END` or `START..END:STEP`, or one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Items {
    start: usize,
    end: usize,
    step: usize,
}

impl Items {
    /// The indices of the selected systems.
    ///
    /// # Errors
    /// When no system is selected, or the batch has fewer systems.
    pub(crate) fn of(self, nitems: usize) -> Result<Vec<usize>, CliError> {
        if self.end > nitems {
            return Err(CliError::input(format!(
                "--items ends at {}, expected at most {nitems}, the number of systems",
                self.end
            )));
        }
        Ok((self.start..self.end).step_by(self.step).collect())
    }
}

impl FromStr for Items {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("expected START..END, START..END:STEP or one number (from 0), found {text}");
        let number = |text: &str| text.parse::<usize>().map_err(|_| expected());
        let (range, step) = match text.split_once(':') {
            Some((range, step)) => (range, number(step)?),
            None => (text, 1),
        };
        let (start, end) = match range.split_once("..") {
            Some((start, end)) => (number(start)?, number(end)?),
            None => {
                let start = number(range)?;
                (start, start.checked_add(1).ok_or_else(expected)?)
            }
        };
        if step == 0 || start >= end {
            return Err(expected());
        }
        Ok(Self { start, end, step })
    }
}

/// Parses a number that is not negative and not NaN; infinity is allowed.
pub(crate) fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 => Ok(value),
        _ => Err("expected a number that is not negative".to_owned()),
    }
}

/// Parses a number of bytes, plain or in KiB, MiB, GiB or TiB.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];
    let found = UNITS.iter().find_map(|&(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = found.unwrap_or((text, 0));
    let bytes =
        number.trim_end().parse::<f64>().ok().map(|number| number * 2f64.powi(shift as i32));
    // The largest size exact in f64, far above any memory.
    match bytes {
        Some(bytes) if (1.0..=2f64.powi(53)).contains(&bytes) => Ok(bytes as u64),
        _ => Err("expected a size such as 8GiB or 512MiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_sources_are_told_apart() {
        assert_eq!("file".parse(), Ok(VectorSource::File));
        assert_eq!("random:7".parse(), Ok(VectorSource::Random(7)));
        assert_eq!("b.mtx".parse(), Ok(VectorSource::Path("b.mtx".into())));
        assert!("random:x".parse::<VectorSource>().is_err());
    }

    #[test]
    fn items_are_ranges_with_steps() {
        let items = |text: &str| text.parse::<Items>().unwrap().of(10);

        assert_eq!(items("0..10:4").unwrap(), [0, 4, 8]);
        assert_eq!(items("3").unwrap(), [3]);
        assert!(items("8..11").is_err());
        for bad in ["", "3..3", "..", "1..2:0", "a", "-1"] {
            assert!(bad.parse::<Items>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        let sizes = [("8GiB", 8 << 30), ("1.5 MiB", 3 << 19), ("4096", 4096), ("1 B", 1)];
        for (text, bytes) in sizes {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "0", "-1GiB", "8GB", "nan", "inf", "1e300TiB", "0.1"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn perturbations_and_grids_are_checked() {
        let parsed: Perturbation = "1e-3:9".parse().unwrap();
        assert_eq!((parsed.epsilon, parsed.seed), (1e-3, 9));
        assert!("inf:1".parse::<Perturbation>().is_err());
        assert!("1e-3".parse::<Perturbation>().is_err());
        assert_eq!("3x4".parse(), Ok(Grid(vec![3, 4])));
        assert!("3x".parse::<Grid>().is_err());
    }
}
