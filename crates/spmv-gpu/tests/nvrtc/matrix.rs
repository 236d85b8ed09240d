//! Every instance for every architecture.

use std::sync::Mutex;
use std::thread;

use sparsebatch_spmv_gpu::device::nvrtc::{Program, compile};
use sparsebatch_spmv_gpu::kernels;
use sparsebatch_spmv_gpu::testing::nvrtc_or_skip;

use crate::instances::{INSTANCES, MAY_SPILL};

const ARCHITECTURES: [&str; 4] = ["sm_80", "sm_90", "sm_100", "sm_120"];

/// Instances of a module that are compiled in one go.
const AT_ONCE: usize = 12;

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

/// Some instances of a module for an architecture, and the registers that each may have.
struct Job {
    architecture: &'static str,
    module: &'static str,
    expressions: &'static [&'static str],
    registers: u32,
}

#[test]
fn every_instance_compiles_within_its_limits() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let mut jobs = Vec::new();
    for architecture in ARCHITECTURES {
        // By length first: sm_90 is older than sm_100.
        let has = |oldest: &&str| (oldest.len(), *oldest) <= (architecture.len(), architecture);
        for (module, _, expressions, registers) in
            INSTANCES.iter().filter(|(_, oldest, ..)| has(oldest))
        {
            jobs.extend(expressions.chunks(AT_ONCE).map(|expressions| Job {
                architecture,
                module,
                expressions,
                registers: *registers,
            }));
        }
    }
    let jobs = Mutex::new(jobs);
    let next = || jobs.lock().expect("no job fails while it is taken").pop();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| std::iter::from_fn(next).for_each(|job| job.check()));
        }
    });
}

impl Job {
    fn check(&self) {
        let Self { architecture, module, expressions, registers } = *self;
        let program = Program {
            name: module,
            source: &kernels::program(module).unwrap(),
            expressions,
            architecture,
            options: &[],
        };

        let compiled = compile(&program).unwrap();

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
