//! The meaning of `--kernel` and `--format` on either backend, and the choice of the backend.

use std::str::FromStr;

use sparsebatch::gpu::flexible::Storage;
use sparsebatch::gpu::{FlexibleKernel, SingleKernel};
use sparsebatch::{FormatChoice, KernelChoice};

use super::super::gpu::Found;
use super::cpu;

/// The name of the packed product, the default for batches.
pub(super) const PACKED: &str = "packed";

/// Every name that `--kernel` accepts.
pub(super) fn names() -> Vec<&'static str> {
    let mut names = vec!["auto", "all"];
    names.extend(KernelChoice::NAMES.iter().map(|(name, _)| *name).filter(|&name| name != "auto"));
    names.extend(gpu_names(1));
    names
}

/// Names of the GPU kernels for `nitems` systems: those of batches also multiply one matrix.
fn gpu_names(nitems: usize) -> Vec<&'static str> {
    let single = SingleKernel::ALL.iter().filter(|_| nitems == 1).map(|kernel| kernel.name());
    let mut names: Vec<&str> = single.filter(|&name| name != PACKED).collect();
    names.push(PACKED);
    names.extend(FlexibleKernel::ALL.iter().copied().map(FlexibleKernel::name));
    names
}

/// The requested kernels and format.
pub(super) struct Wanted<'a> {
    /// Kernel names, out of [`names`].
    pub(super) kernels: &'a [String],
    /// The requested format.
    pub(super) format: FormatChoice,
    /// Number of systems of the input.
    pub(super) nitems: usize,
}

/// A kernel of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GpuChoice {
    /// The library's choice.
    Auto,
    /// A kernel of single matrices.
    Single(SingleKernel),
    /// The packed product.
    Packed,
    /// A flexible batched kernel.
    Flexible(FlexibleKernel),
}

/// The backend that computes, with its kernels.
#[derive(Debug, PartialEq)]
pub(super) enum Target<D> {
    /// The CPU, with the reason.
    Cpu(Vec<cpu::Choice>, String),
    /// A GPU, with the reason.
    Gpu(D, Vec<GpuChoice>, String),
}

/// Chooses the backend. A GPU that was not requested gives way to the CPU if only the CPU has the
/// wanted kernels.
///
/// # Errors
/// A reason in one line, when neither backend has the kernels, or only one that is not allowed.
pub(super) fn target<D>(
    wanted: &Wanted<'_>,
    found: Found<D>,
    gpu_asked_for: bool,
) -> Result<Target<D>, String> {
    let (on_cpu, on_gpu) = (wanted.on_cpu(), wanted.on_gpu());
    match (found, on_cpu, on_gpu) {
        (Ok((device, reason)), _, Ok(choices)) => {
            Ok(Target::Gpu(device, choices, reason.to_owned()))
        }
        (Ok(_), Ok(choices), Err(refused)) if !gpu_asked_for => {
            Ok(Target::Cpu(choices, format!("on the GPU {refused}")))
        }
        (Ok(_), _, Err(refused)) => Err(format!("on the GPU {refused}")),
        (Err(reason), Ok(choices), _) => Ok(Target::Cpu(choices, reason)),
        (Err(reason), Err(_), Ok(_)) => {
            let what = wanted.described();
            Err(format!("{what} runs on a GPU only, but the CPU is used: {reason}"))
        }
        (Err(_), Err(refused), Err(_)) => Err(format!("on the CPU {refused}")),
    }
}

impl Wanted<'_> {
    /// Whether `--kernel all` was given.
    pub(super) fn is_all(&self) -> bool {
        self.kernels.iter().any(|kernel| kernel == "all")
    }

    fn described(&self) -> String {
        let mut text = format!("--kernel {}", self.kernels.join(","));
        if self.format != FormatChoice::Auto {
            text.push_str(&format!(" --format {}", self.format.name()));
        }
        text
    }

    fn on_cpu(&self) -> Result<Vec<cpu::Choice>, String> {
        if self.is_all() {
            return Ok(self.all_on_cpu());
        }
        let named = self.kernels.iter().map(|name| {
            let found = KernelChoice::NAMES.iter().find(|(known, _)| known == name);
            found.map(|&(_, kernel)| (self.format, kernel)).ok_or_else(|| {
                let known: Vec<&str> = KernelChoice::NAMES.iter().map(|(name, _)| *name).collect();
                format!("there is no kernel {name}, expected all, {}", known.join(", "))
            })
        });
        named.collect()
    }

    /// All CPU kernels of the format, without kernels of single matrices for a batch.
    fn all_on_cpu(&self) -> Vec<cpu::Choice> {
        const ALL: [cpu::Choice; 9] = [
            (FormatChoice::Csr, KernelChoice::Rows),
            (FormatChoice::Csr, KernelChoice::CsrI),
            (FormatChoice::Coo, KernelChoice::Entries),
            (FormatChoice::Ell, KernelChoice::Rows),
            (FormatChoice::Dia, KernelChoice::Rows),
            (FormatChoice::Dia, KernelChoice::Blocks),
            (FormatChoice::Hyb, KernelChoice::Rows),
            (FormatChoice::SellP, KernelChoice::Rows),
            (FormatChoice::SellP, KernelChoice::Runs),
        ];
        let single = |kernel| matches!(kernel, KernelChoice::Blocks | KernelChoice::Runs);
        let fits = |&(format, kernel): &cpu::Choice| {
            self.takes(format) && (self.nitems == 1 || !single(kernel))
        };
        ALL.into_iter().filter(fits).collect()
    }

    fn on_gpu(&self) -> Result<Vec<GpuChoice>, String> {
        if self.is_all() {
            let all = self.all_on_gpu();
            return if all.is_empty() { Err(self.no_kernel()) } else { Ok(all) };
        }
        self.kernels.iter().map(|name| self.one_on_gpu(name)).collect()
    }

    fn all_on_gpu(&self) -> Vec<GpuChoice> {
        let fits = |choice: &GpuChoice| self.takes(choice.format());
        if self.nitems == 1 {
            return SingleKernel::ALL.iter().copied().map(GpuChoice::Single).filter(fits).collect();
        }
        let packed = (self.format == FormatChoice::Auto).then_some(GpuChoice::Packed);
        let flexible = FlexibleKernel::ALL.iter().copied().map(GpuChoice::Flexible).filter(fits);
        packed.into_iter().chain(flexible).collect()
    }

    fn one_on_gpu(&self, name: &str) -> Result<GpuChoice, String> {
        let choice = if name == "auto" {
            self.auto_on_gpu()?
        } else if name == PACKED {
            GpuChoice::Packed
        } else if let Ok(kernel) = FlexibleKernel::from_str(name) {
            GpuChoice::Flexible(kernel)
        } else {
            let kernel = SingleKernel::from_str(name).map_err(|_| {
                format!("there is no kernel {name}, expected {}", self.names_on_gpu())
            })?;
            if self.nitems != 1 {
                return Err(format!(
                    "{name} multiplies one matrix, found {} systems, expected {}",
                    self.nitems,
                    self.names_on_gpu()
                ));
            }
            GpuChoice::Single(kernel)
        };
        if choice != GpuChoice::Auto && !self.takes(choice.format()) {
            return Err(format!(
                "{name} does not go with --format {}, expected auto or {}",
                self.format.name(),
                choice.format().name()
            ));
        }
        Ok(choice)
    }

    /// The default kernel of the format on a GPU.
    fn auto_on_gpu(&self) -> Result<GpuChoice, String> {
        let single = self.nitems == 1;
        let kernel = match self.format {
            FormatChoice::Csr if single => SingleKernel::CsrSmart,
            FormatChoice::Coo if single => SingleKernel::Coo,
            FormatChoice::Ell if single => SingleKernel::Ell,
            FormatChoice::Dia if single => SingleKernel::Dia,
            FormatChoice::Hyb if single => SingleKernel::Hyb,
            FormatChoice::SellP if single => SingleKernel::SellP,
            FormatChoice::Csr => return Ok(GpuChoice::Flexible(FlexibleKernel::CsrSmart)),
            FormatChoice::Ell => return Ok(GpuChoice::Flexible(FlexibleKernel::Ell)),
            FormatChoice::SellP => return Ok(GpuChoice::Flexible(FlexibleKernel::SellP)),
            // Kernels that are not repeatable run only when requested by name.
            FormatChoice::Coo => {
                return Err(format!(
                    "sums of a batch in coo vary from run to run, expected --kernel {}",
                    FlexibleKernel::Coo
                ));
            }
            FormatChoice::Auto => return Ok(GpuChoice::Auto),
            _ => return Err(self.no_kernel()),
        };
        Ok(GpuChoice::Single(kernel))
    }

    fn names_on_gpu(&self) -> String {
        format!("auto, all, {}", gpu_names(self.nitems).join(", "))
    }

    fn no_kernel(&self) -> String {
        format!(
            "no kernel multiplies batches in {}, expected --format auto, csr, coo, ell or sellp",
            self.format.name()
        )
    }

    fn takes(&self, format: FormatChoice) -> bool {
        self.format == FormatChoice::Auto || self.format == format
    }
}

impl GpuChoice {
    /// The format that the kernel reads; `Auto` for a layout of its own.
    fn format(self) -> FormatChoice {
        use SingleKernel as S;
        match self {
            Self::Auto | Self::Packed | Self::Single(S::Packed | S::Auto) => FormatChoice::Auto,
            Self::Single(S::Coo) => FormatChoice::Coo,
            Self::Single(S::Ell) => FormatChoice::Ell,
            Self::Single(S::Dia) => FormatChoice::Dia,
            Self::Single(S::Hyb) => FormatChoice::Hyb,
            Self::Single(S::Sell | S::SellP) => FormatChoice::SellP,
            Self::Single(_) => FormatChoice::Csr,
            Self::Flexible(kernel) => match kernel.storage(1) {
                Storage::Csr => FormatChoice::Csr,
                Storage::Coo => FormatChoice::Coo,
                Storage::Ell => FormatChoice::Ell,
                Storage::SellP { .. } => FormatChoice::SellP,
            },
        }
    }

    /// Whether repeated products give the same bits.
    pub(super) fn is_repeatable(self) -> bool {
        match self {
            Self::Flexible(kernel) => kernel.is_repeatable(),
            _ => true,
        }
    }

    /// The names of format and kernel.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        let format = self.format().name();
        match self {
            Self::Auto => (format, "auto"),
            Self::Packed | Self::Single(SingleKernel::Packed) => (PACKED, PACKED),
            Self::Single(kernel) => (format, kernel.name()),
            Self::Flexible(kernel) => (format, kernel.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(
        kernels: &str,
        format: FormatChoice,
        nitems: usize,
        found: Found<()>,
        asked: bool,
    ) -> Result<Target<()>, String> {
        let kernels: Vec<String> = kernels.split(',').map(str::to_owned).collect();
        target(&Wanted { kernels: &kernels, format, nitems }, found, asked)
    }

    fn on_gpu(
        kernels: &str,
        format: FormatChoice,
        nitems: usize,
    ) -> Result<Vec<GpuChoice>, String> {
        match decide(kernels, format, nitems, Ok(((), "asked for")), true)? {
            Target::Gpu((), choices, _) => Ok(choices),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_are_distinct() {
        let mut names = names();
        let count = names.len();
        names.sort_unstable();
        names.dedup();

        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_gpu_gets_kernels_for_one_matrix_or_for_batches() {
        use FormatChoice::{Auto, Csr, Ell};
        let smart = GpuChoice::Single(SingleKernel::CsrSmart);

        assert_eq!(on_gpu("auto", Auto, 1), Ok(vec![GpuChoice::Auto]));
        assert_eq!(on_gpu("auto", Csr, 1), Ok(vec![smart]));
        assert_eq!(on_gpu("all", Auto, 1).unwrap().len(), 14);
        assert_eq!(on_gpu("all", Csr, 1).unwrap().len(), 7);
        assert_eq!(on_gpu("all", Auto, 2).unwrap().len(), 8);
        assert_eq!(
            on_gpu("packed,batch-ell", Auto, 2),
            Ok(vec![GpuChoice::Packed, GpuChoice::Flexible(FlexibleKernel::Ell)])
        );
        assert_eq!(on_gpu("csr-smart,packed", Auto, 1), Ok(vec![smart, GpuChoice::Packed]));
        assert_eq!(on_gpu("auto", Ell, 2), Ok(vec![GpuChoice::Flexible(FlexibleKernel::Ell)]));
    }

    #[test]
    fn what_a_gpu_has_not_is_refused_with_what_it_has() {
        use FormatChoice::{Auto, Coo, Dia, Ell};
        let refused = |kernels, format, nitems| on_gpu(kernels, format, nitems).unwrap_err();

        assert!(
            refused("csr-smart", Auto, 2).contains("found 2 systems, expected auto, all, packed")
        );
        assert!(
            refused("rows", Auto, 1).contains("no kernel rows, expected auto, all, csr-scalar")
        );
        assert!(refused("csr-smart", Ell, 1).contains("does not go with --format ell"));
        assert!(refused("packed", Ell, 2).contains("does not go with --format ell"));
        assert!(refused("auto", Dia, 2).contains("batches in dia"));
        assert!(refused("all", Dia, 2).contains("batches in dia"));
        assert!(refused("auto", Coo, 2).contains("--kernel batch-coo"));
    }

    #[test]
    fn auto_takes_the_backend_that_has_the_kernels() {
        let auto = FormatChoice::Auto;
        let there = || Ok(((), "found"));
        let cpu = |kernel, why: &str| Ok(Target::Cpu(vec![(auto, kernel)], why.to_owned()));

        let gpu = decide("auto", auto, 1, there(), false).unwrap();
        assert_eq!(gpu, Target::Gpu((), vec![GpuChoice::Auto], "found".to_owned()));
        let absent = || Err("no GPU: x".to_owned());
        assert_eq!(decide("auto", auto, 1, absent(), false), cpu(KernelChoice::Auto, "no GPU: x"));
        match decide("rows", auto, 1, there(), false).unwrap() {
            Target::Cpu(choices, why) => {
                assert_eq!(choices, [(auto, KernelChoice::Rows)]);
                assert!(why.starts_with("on the GPU there is no kernel rows"), "{why}");
            }
            other => panic!("{other:?}"),
        }
        assert!(decide("rows", auto, 1, there(), true).is_err());
        assert_eq!(
            decide("csr-smart", auto, 1, absent(), false).unwrap_err(),
            "--kernel csr-smart runs on a GPU only, but the CPU is used: no GPU: x"
        );
        assert!(decide("rows,packed", auto, 1, there(), false).is_err());
    }
}
