//! Compiles kernels for GPUs by NVRTC, without a GPU, and checks their limits of registers and
//! spills.
//!
//! `<module>.nvrtc` beside `<module>.cu` lists the instances to compile. A line
//! `since sm_90, registers 128, spilled 0` gives the limits of the instances that follow it: the
//! oldest architecture that supports them, and the maximum numbers of registers and of spilled
//! bytes per thread. Lines that begin with `#` are comments.

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread;

use sparsebatch_cuda::Module;
use sparsebatch_cuda::device::cache::DiskCache;
use sparsebatch_cuda::device::nvrtc::Program;
use sparsebatch_cuda::testing::nvrtc_or_skip;

// LISTS: name and text of each `<module>.nvrtc`.
include!(concat!(env!("OUT_DIR"), "/lists.rs"));

const ARCHITECTURES: [&str; 4] = ["sm_80", "sm_90", "sm_100", "sm_120"];

/// The architecture for which tests compile every instance: that of the GPUs we measure on.
const WHOLE: &str = "sm_90";

/// Number of instances of a module that are compiled together. An instance takes up to four
/// seconds, the part shared by all instances a twentieth of a second.
const AT_ONCE: usize = 4;

/// Instances of a module with common limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The oldest architecture that supports the instances, such as `sm_90`.
    pub since: &'static str,
    /// Maximum number of registers per thread.
    pub registers: u32,
    /// Maximum number of spilled bytes per thread.
    pub spilled: u32,
    /// The name expressions.
    pub expressions: Vec<&'static str>,
}

/// The instances of a module that are compiled for GPUs; empty if the module has no list.
///
/// # Panics
/// When the list does not have the format described for this module.
pub fn listed(module: &str) -> Vec<Listed> {
    LISTS.iter().find(|(name, _)| *name == module).map_or_else(Vec::new, |(_, text)| parse(text))
}

/// The name expressions of all modules, as `module:expression`, without spaces after commas.
pub fn all_listed() -> HashSet<String> {
    let names = LISTS.iter().flat_map(|(module, text)| {
        let expressions = parse(text).into_iter().flat_map(|listed| listed.expressions);
        expressions.map(move |e| format!("{module}:{}", e.replace(", ", ",")))
    });
    names.collect()
}

/// The modules that have a list.
pub fn listed_modules() -> Vec<&'static str> {
    LISTS.iter().map(|(module, _)| *module).collect()
}

fn parse(text: &'static str) -> Vec<Listed> {
    let mut all: Vec<Listed> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("since "), all.last_mut()) {
            (Some(limits), _) => all.push(limits_of(limits)),
            (None, Some(last)) => last.expressions.push(line),
            (None, None) => panic!("{line:?} stands before its limits"),
        }
    }
    all
}

fn limits_of(line: &'static str) -> Listed {
    let [since, registers, spilled] = line.split(", ").collect::<Vec<_>>()[..] else {
        panic!("{line:?}: not an architecture, registers and bytes");
    };
    let number = |text: &str, name| -> u32 {
        let number = text.strip_prefix(name).and_then(|number| number.trim().parse().ok());
        number.unwrap_or_else(|| panic!("{line:?}: not {name} and a number"))
    };
    let (registers, spilled) = (number(registers, "registers"), number(spilled, "spilled"));
    Listed { since, registers, spilled, expressions: Vec::new() }
}

/// The instances that are compiled for each architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every instance for the architecture that we measure on; one instance of each kernel for the
    /// other architectures.
    Usual,
    /// Every instance for every architecture.
    Every,
}

/// Some instances of a module for an architecture, and their limits.
struct Job {
    architecture: &'static str,
    module: &'static Module,
    limits: Listed,
}

/// Compiles the listed instances of modules and checks the limits of each. Skipped with a printed
/// line if there is no NVRTC.
///
/// Compiled kernels are cached by content in `nvrtc-matrix` in the folder of
/// [`DiskCache::from_env`], so that unchanged kernels are not compiled again.
///
/// # Panics
/// When a module has no list or does not compile, or when an instance exceeds a limit.
pub fn check(modules: &[&'static Module], extent: Extent) {
    for module in modules {
        assert!(!listed(module.name()).is_empty(), "{}.nvrtc lists no instance", module.name());
    }
    if nvrtc_or_skip().is_none() {
        return;
    }
    let cache = match DiskCache::from_env().folder() {
        Ok(folder) => DiskCache::in_folder(folder.join("nvrtc-matrix")),
        Err(reason) => DiskCache::off(reason),
    };
    let jobs = Mutex::new(jobs(modules, extent));
    let next = || jobs.lock().expect("no job fails while it is taken").pop();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| std::iter::from_fn(next).for_each(|job| job.check(&cache)));
        }
    });
}

fn jobs(modules: &[&'static Module], extent: Extent) -> Vec<Job> {
    let mut jobs = Vec::new();
    for architecture in ARCHITECTURES {
        // Compare by length first: sm_90 is older than sm_100.
        let has = |oldest: &str| (oldest.len(), oldest) <= (architecture.len(), architecture);
        for &module in modules {
            for limits in listed(module.name()).into_iter().filter(|listed| has(listed.since)) {
                let whole = extent == Extent::Every || architecture == WHOLE;
                let expressions = match whole {
                    true => limits.expressions.clone(),
                    false => first_of_each_kernel(&limits.expressions),
                };
                jobs.extend(expressions.chunks(AT_ONCE).map(|expressions| {
                    let expressions = expressions.to_vec();
                    let limits = Listed { expressions, ..limits.clone() };
                    Job { architecture, module, limits }
                }));
            }
        }
    }
    jobs
}

/// The first instance of each kernel among those of a module.
fn first_of_each_kernel(instances: &[&'static str]) -> Vec<&'static str> {
    let mut kernels = HashSet::new();
    let kernel = |instance: &'static str| instance.split('<').next();
    instances.iter().copied().filter(|instance| kernels.insert(kernel(instance))).collect()
}

impl Job {
    fn check(&self, cache: &DiskCache) {
        let Self { architecture, module, limits } = self;
        let program = Program {
            name: module.name(),
            source: &module.program(),
            expressions: &limits.expressions,
            architecture,
            options: &[],
        };

        let compiled = cache.compile(&program).unwrap();

        assert!(compiled.image.starts_with(b"\x7fELF"));
        assert_eq!(compiled.kernels.len(), limits.expressions.len());
        for kernel in &compiled.kernels {
            let used = kernel.resources.expect("the log holds every kernel");
            println!("{architecture} {}: {used:?}", kernel.expression);
            let spilled = used.spill_store_bytes.max(used.spill_load_bytes);
            assert!(spilled <= limits.spilled, "{architecture} {kernel:?}");
            let registers = used.registers;
            assert!(0 < registers && registers <= limits.registers, "{architecture} {kernel:?}");
        }
    }
}

/// Checks that every listed instance of the modules is compiled for the emulation too, so that
/// every device kernel can be tested against the oracle.
///
/// # Panics
/// When an instance is not compiled for the emulation.
pub fn check_emulated(modules: &[&'static Module]) {
    let registered = crate::registered().unwrap();
    for module in modules {
        for listed in listed(module.name()) {
            for expression in listed.expressions {
                let name = format!("{}:{}", module.name(), expression.replace(", ", ","));
                assert!(registered.contains(&name), "{name}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_limits_and_instances() {
        let text = "# why\nsince sm_90, registers 128, spilled 8\nf<1>\nf<2>\n\n\
                    since sm_80, registers 40, spilled 0\ng\n";

        let lists = parse(text);

        assert_eq!(lists.len(), 2);
        let Listed { since, registers, spilled, expressions } = &lists[0];
        assert_eq!((*since, *registers, *spilled), ("sm_90", 128, 8));
        assert_eq!(*expressions, ["f<1>", "f<2>"]);
        assert_eq!(first_of_each_kernel(expressions), ["f<1>"]);
        assert_eq!((lists[1].since, &lists[1].expressions[..]), ("sm_80", &["g"][..]));
    }

    #[test]
    #[should_panic(expected = "stands before its limits")]
    fn instances_have_limits() {
        parse("f<1>\n");
    }
}
