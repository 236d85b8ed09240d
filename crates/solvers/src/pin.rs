//! What results depend on beside systems and options, as a text that travels: [`PlanPin`].

use std::fmt;
use std::str::FromStr;

use sparsebatch_cpu_ref::Isa;
use sparsebatch_cuda::DeviceModel;
use sparsebatch_solve_core::ArgumentError;

use crate::{Backend, Gpu, GpuExecutor, SolveError};

/// The first line of the text.
const HEADER: &str = "sparsebatch plan 1";

/// The most bytes of a text that is read.
const MOST_BYTES: usize = 4096;

/// What the plans of a backend depend on, beside the systems and the options: the version of this
/// library, the instruction set of the CPU, and the model of the GPU. Plans are made as for 10,000
/// systems, whatever their number, so that a process which solves a part of a batch with an equal
/// pin makes the bits of one that solves the whole.
///
/// Take it from a backend with [`PlanPin::of`], send its text along, and give it to the backend of
/// another process by [`Backend::pinned`]. The text has a line for each part:
///
/// ```text
/// sparsebatch plan 1
/// version 0.1.0
/// cpu avx512
/// gpu capability=9.0 multiprocessors=132 …
/// ```
///
/// # Examples
/// ```
/// use sparsebatch_solvers::{Backend, PlanPin};
///
/// let backend: Backend = Backend::Cpu;
/// let text = PlanPin::of(&backend).to_string();
/// // Elsewhere.
/// let pin: PlanPin = text.parse()?;
/// let backend = backend.pinned(&pin)?;
/// # let _ = backend;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanPin {
    version: String,
    instructions: String,
    device: Option<DeviceModel>,
}

impl PlanPin {
    /// The pin of solves on a backend.
    pub fn of<E: GpuExecutor>(backend: &Backend<E>) -> Self {
        let device = match backend {
            Backend::Cpu => None,
            Backend::Gpu(gpu) => Some(gpu.executor.info().model()),
            Backend::Gpus(gpus) => gpus.each().first().map(|gpu| gpu.executor.info().model()),
        };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: Isa::best().name().to_owned(),
            device,
        }
    }

    /// The model of the GPU that plans are made for; `None` on the CPU.
    pub fn device(&self) -> Option<&DeviceModel> {
        self.device.as_ref()
    }

    /// Holds that the pin is of this version of the library: the kernels of another one differ.
    ///
    /// # Errors
    /// [`SolveError::OtherPlan`] for another version.
    pub fn check_version(&self) -> Result<(), SolveError> {
        match env!("CARGO_PKG_VERSION") {
            own if self.version == own => Ok(()),
            own => Err(differs("version", &self.version, own)),
        }
    }
}

/// The error of a pin with another value than here.
fn differs(what: &'static str, pinned: &str, found: &str) -> SolveError {
    SolveError::OtherPlan { what, pinned: pinned.to_owned(), found: found.to_owned() }
}

impl<E: GpuExecutor> Backend<E> {
    /// This backend with plans as the pin says: on a GPU they are made for the pinned model, which
    /// this GPU must contain. Solves then have the bits that they have where the pin was taken.
    ///
    /// # Errors
    /// [`SolveError::OtherPlan`] where this machine or library cannot make these bits: another
    /// version, another instruction set of the CPU, which solves some systems for a GPU too, a pin
    /// of a GPU for the CPU or the reverse. [`SolveError::Gpu`] for a model of which this GPU falls
    /// short.
    pub fn pinned(&self, pin: &PlanPin) -> Result<Self, SolveError> {
        let own = PlanPin::of(self);
        pin.check_version()?;
        if pin.instructions != own.instructions {
            return Err(differs("instructions", &pin.instructions, &own.instructions));
        }
        match (self, &pin.device) {
            (Self::Cpu, None) => Ok(Self::Cpu),
            (Self::Gpu(gpu), Some(model)) => {
                let executor = gpu.executor.planned_as(model)?;
                Ok(Self::Gpu(Gpu { executor, ..gpu.clone() }))
            }
            (Self::Gpus(gpus), Some(model)) => Ok(Self::Gpus(gpus.planned_as(model)?)),
            (Self::Cpu, Some(_)) => Err(differs("backend", "GPU", "CPU")),
            (Self::Gpu(_) | Self::Gpus(_), None) => Err(differs("backend", "CPU", "GPU")),
        }
    }
}

impl fmt::Display for PlanPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}\nversion {}\ncpu {}", self.version, self.instructions)?;
        match &self.device {
            Some(model) => writeln!(f, "gpu {model}"),
            None => Ok(()),
        }
    }
}

impl FromStr for PlanPin {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        let refused = |expected, found: &str| ArgumentError::OutOfRange {
            name: "plan",
            expected,
            found: format!("{:?}", found.chars().take(80).collect::<String>()),
        };
        if text.len() > MOST_BYTES {
            return Err(refused("a text of at most 4096 bytes", text));
        }
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        if first != HEADER {
            return Err(refused("a text whose first line is `sparsebatch plan 1`", first));
        }
        let mut named = |name: &str, expected| {
            let line = lines.next().unwrap_or_default();
            let value = line.strip_prefix(name).and_then(|value| value.strip_prefix(' '));
            let word = value.filter(|value| !value.is_empty() && !value.contains(' '));
            word.map(str::to_owned).ok_or_else(|| refused(expected, line))
        };
        let version = named("version", "`version N` in the second line")?;
        let instructions = named("cpu", "`cpu NAME` in the third line")?;
        let device = match lines.next() {
            None => None,
            Some(line) => {
                let model = line.strip_prefix("gpu ").and_then(|model| model.parse().ok());
                Some(model.ok_or_else(|| refused("`gpu` and its model in the fourth line", line))?)
            }
        };
        match lines.next() {
            None => Ok(Self { version, instructions, device }),
            Some(line) => Err(refused("no fifth line", line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_cuda::{DeviceInfo, MemoryMeter};

    use super::*;

    fn gpu(shared_bytes_per_block: u32) -> Backend<MemoryMeter> {
        let info = DeviceInfo {
            name: "GPU".to_owned(),
            compute_capability: (9, 0),
            multiprocessors: 132,
            shared_bytes_per_block,
            ..DeviceInfo::default()
        };
        Backend::Gpu(Gpu::new(MemoryMeter::new(info)))
    }

    #[test]
    fn pins_are_read_as_they_are_written() {
        let cpu: Backend = Backend::Cpu;
        for pin in [PlanPin::of(&cpu), PlanPin::of(&gpu(1 << 17))] {
            assert_eq!(pin.to_string().parse(), Ok(pin));
        }
    }

    #[test]
    fn texts_that_are_no_pins_are_refused() {
        let text = PlanPin::of(&gpu(1 << 17)).to_string();
        for (from, to, expected) in [
            ("plan 1", "plan 2", "first line"),
            ("version ", "version", "`version N`"),
            ("cpu ", "cpu a ", "`cpu NAME`"),
            ("capability=9.0", "capability=nine", "`gpu` and its model"),
            ("gpu ", "gpu", "`gpu` and its model"),
        ] {
            let error = text.replacen(from, to, 1).parse::<PlanPin>().unwrap_err().to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
        let longer = format!("{text}more").parse::<PlanPin>().unwrap_err().to_string();
        assert!(longer.contains("no fifth line"), "{longer}");
        let long = "x".repeat(MOST_BYTES + 1).parse::<PlanPin>().unwrap_err().to_string();
        assert!(long.contains("4096 bytes") && long.len() < 300, "{long}");
        assert!("".parse::<PlanPin>().is_err());
    }

    #[test]
    fn a_backend_takes_the_model_of_its_pin() {
        let small = PlanPin::of(&gpu(1 << 16));

        let pinned = gpu(1 << 17).pinned(&small).unwrap();

        assert_eq!(PlanPin::of(&pinned), small);
        let cpu: Backend = Backend::Cpu;
        assert!(matches!(cpu.pinned(&PlanPin::of(&cpu)), Ok(Backend::Cpu)));
        let short = gpu(1 << 16).pinned(&PlanPin::of(&gpu(1 << 17))).unwrap_err();
        assert!(matches!(short, SolveError::Gpu(_)), "{short}");
    }

    #[test]
    fn pins_that_cannot_be_kept_are_refused() {
        let cpu: Backend = Backend::Cpu;
        let own = PlanPin::of(&cpu);
        let older = PlanPin { version: "0.0.1".to_owned(), ..own.clone() };
        let other = PlanPin { instructions: "avx1024".to_owned(), ..own.clone() };

        let of_cpu = |pin| cpu.pinned(pin).unwrap_err().to_string();
        let of_gpu = gpu(0).pinned(&own).unwrap_err().to_string();

        assert!(of_cpu(&older).contains("version 0.0.1"), "{}", of_cpu(&older));
        assert!(of_cpu(&other).contains("instructions avx1024"), "{}", of_cpu(&other));
        assert!(of_cpu(&PlanPin::of(&gpu(0))).contains("backend GPU, here it is CPU"));
        assert!(of_gpu.contains("backend CPU, here it is GPU"), "{of_gpu}");
    }
}
