//! Every instance for one architecture, every kernel for every architecture; on demand, every instance
//! for every architecture.
//!
//! Compiled kernels are kept by content beside those of the program, so that what has not changed since
//! the last run is not compiled again: in `nvrtc-matrix` of the folder of [`DiskCache::from_env`].

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread;

use sparsebatch_spmv_gpu::device::cache::DiskCache;
use sparsebatch_spmv_gpu::device::nvrtc::Program;
use sparsebatch_spmv_gpu::kernels;
use sparsebatch_spmv_gpu::testing::nvrtc_or_skip;

use crate::nvrtc::instances::{INSTANCES, MAY_SPILL};

const ARCHITECTURES: [&str; 4] = ["sm_80", "sm_90", "sm_100", "sm_120"];

/// The architecture for which tests compile every instance: that of the GPUs we measure on.
const WHOLE: &str = "sm_90";

/// Instances of a module that are compiled in one go. An instance takes up to four seconds, what they
/// share a twentieth of one.
const AT_ONCE: usize = 4;

#[test]
fn every_module_has_instances() {
    let mut listed: Vec<&str> = INSTANCES.iter().map(|&(module, ..)| module).collect();
    listed.dedup();

    assert_eq!(listed, kernels::modules().collect::<Vec<_>>());
}

/// So that no kernel of the device goes without a test against the oracle. The instances of the
/// packed products differ in how much is under way at once, of which some are enough.
#[test]
fn every_instance_runs_in_the_emulation() {
    let registered = kernel_emu::registered().unwrap();
    for (module, _, expressions, _) in INSTANCES.iter().filter(|(module, ..)| *module != "packed") {
        for expression in *expressions {
            let name = format!("{module}:{}", expression.replace(", ", ","));
            assert!(registered.contains(&name), "{name}");
        }
    }
}

/// The file to which [`kernel_emu`] adds the kernels that tests launch.
const LAUNCHED: &str = "KERNEL_EMU_LAUNCHED";

/// Instances that random systems choose, not in every run.
const DRAWN: &str = include_str!("../../../../kernel-emu/instances/drawn.txt");

/// The converse: an instance that is compiled for the emulation, but that no test launches and no row of
/// [`INSTANCES`] names, only takes time. Run by `.ci/run` behind all tests, with the names of what they have
/// launched in the file `KERNEL_EMU_LAUNCHED`.
#[test]
#[ignore = "needs the launches of all tests: see .ci/run"]
fn every_instance_of_the_emulation_is_launched_or_compiled_for_a_gpu() {
    let file = std::env::var_os(LAUNCHED).expect("KERNEL_EMU_LAUNCHED names a file");
    let launched = std::fs::read_to_string(file).unwrap();
    let known: HashSet<&str> = launched.lines().chain(DRAWN.lines()).collect();
    let listed: HashSet<String> = INSTANCES
        .iter()
        .flat_map(|(module, _, expressions, _)| {
            expressions.iter().map(move |e| format!("{module}:{}", e.replace(", ", ",")))
        })
        .collect();

    let mut idle = kernel_emu::registered().unwrap();
    // The emulator's own kernels are also there for its example, those of the drivers are listed with the
    // test that compiles them.
    let elsewhere = |name: &str| name.starts_with("test_") || name.starts_with("burning:");
    idle.retain(|name| {
        !elsewhere(name) && !known.contains(name.as_str()) && !listed.contains(name)
    });

    assert!(idle.is_empty(), "{} instances that nothing needs: {idle:#?}", idle.len());
}

/// Some instances of a module for an architecture, and the registers that each may have.
struct Job {
    architecture: &'static str,
    module: &'static str,
    expressions: Vec<&'static str>,
    registers: u32,
}

#[test]
fn every_instance_compiles_for_one_architecture_and_every_kernel_for_all() {
    check_all(|architecture, instances| {
        if architecture == WHOLE { instances.to_vec() } else { first_of_each_kernel(instances) }
    });
}

/// Takes some 20 minutes of a processor: `cargo test -p sparsebatch-spmv-gpu --release --test it --
/// --ignored every_instance_compiles_for_every_architecture`.
#[test]
#[ignore = "20 minutes of a processor"]
fn every_instance_compiles_for_every_architecture() {
    check_all(|_, instances| instances.to_vec());
}

fn cache() -> DiskCache {
    match DiskCache::from_env().folder() {
        Ok(folder) => DiskCache::in_folder(folder.join("nvrtc-matrix")),
        Err(reason) => DiskCache::off(reason),
    }
}

/// The first instance of each kernel among those of a module.
fn first_of_each_kernel(instances: &[&'static str]) -> Vec<&'static str> {
    let mut kernels = HashSet::new();
    let kernel = |instance: &'static str| instance.split('<').next();
    instances.iter().copied().filter(|instance| kernels.insert(kernel(instance))).collect()
}

/// Compiles what is chosen of each module for each architecture that has its kernels, and holds it to
/// its limits.
fn check_all(chosen: impl Fn(&str, &[&'static str]) -> Vec<&'static str>) {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let mut jobs = Vec::new();
    for architecture in ARCHITECTURES {
        // By length first: sm_90 is older than sm_100.
        let has = |oldest: &&str| (oldest.len(), *oldest) <= (architecture.len(), architecture);
        for (module, _, instances, registers) in
            INSTANCES.iter().filter(|(_, oldest, ..)| has(oldest))
        {
            jobs.extend(chosen(architecture, instances).chunks(AT_ONCE).map(|expressions| Job {
                architecture,
                module,
                expressions: expressions.to_vec(),
                registers: *registers,
            }));
        }
    }
    let cache = cache();
    let jobs = Mutex::new(jobs);
    let next = || jobs.lock().expect("no job fails while it is taken").pop();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| std::iter::from_fn(next).for_each(|job| job.check(&cache)));
        }
    });
}

impl Job {
    fn check(&self, cache: &DiskCache) {
        let Self { architecture, module, ref expressions, registers } = *self;
        let program = Program {
            name: module,
            source: &kernels::program(module).unwrap(),
            expressions,
            architecture,
            options: &[],
        };

        let compiled = cache.compile(&program).unwrap();

        assert!(compiled.image.starts_with(b"\x7fELF"));
        assert_eq!(compiled.kernels.len(), expressions.len());
        for kernel in &compiled.kernels {
            let used = kernel.resources.expect("the log holds every kernel");
            println!("{architecture} {}: {used:?}", kernel.expression);
            let spilled = used.spill_store_bytes.max(used.spill_load_bytes);
            let most = MAY_SPILL.iter().find(|&&(name, _)| name == module).map_or(0, |&(_, n)| n);
            assert!(spilled <= most, "{architecture} {kernel:?}");
            assert!(used.registers > 0 && used.registers <= registers, "{architecture} {kernel:?}");
        }
    }
}
