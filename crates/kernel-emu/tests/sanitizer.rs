//! Faults that a sanitizer reports. It ends the process, so each runs in a child process.
//!
//! These tests do their work under `scripts/emu-asan.sh`; elsewhere they say that they are skipped.

mod common;

use common::run;
use kernel_emu::{Args, Order};
use std::process::Command;

/// The sanitizer that must be there, as the script says.
const EXPECTED: &str = "KERNEL_EMU_EXPECTED_SANITIZER";

/// Tells the child process which fault to commit.
const FAULT: &str = "KERNEL_EMU_FAULT";

/// Runs this test program again, for one fault alone; returns what it wrote to its error stream.
///
/// Reports name the kernel. For some kernels they also name the file and the line; for others the
/// library that GCC's sanitizers look lines up with finds none, though `addr2line` does.
fn report_of(fault: &str) -> String {
    let program = std::env::current_exe().expect("a test program has a path");
    let output = Command::new(program)
        .args(["--exact", "commit_the_fault", "--nocapture"])
        .env(FAULT, fault)
        .output()
        .expect("the test program runs again");
    assert!(!output.status.success(), "{fault}: the sanitizer has not seen the fault");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn commit_the_fault() {
    let Ok(fault) = std::env::var(FAULT) else { return };
    let order = Order::Forward;
    let x = vec![1.0f64; 64];
    let mut y = vec![0.0f64; 64];
    let mut counter = 0u32;
    // SAFETY: none; the sanitizer is there to stop these launches.
    let result = unsafe {
        match fault.as_str() {
            "dynamic" => run!("faulty_dynamic_bounds", 1, 1, 32, order; 4u32),
            "static" => run!("faulty_static_bounds", 1, 1, 32, order; 6u32),
            "global" => run!("faulty_global_bounds", 1, 1, 0, order; 64u32, y.as_mut_ptr()),
            "barrier" => {
                run!("faulty_missing_barrier", 1, 64, 0, order; x.as_ptr(), y.as_mut_ptr())
            }
            "syncwarp" => {
                run!("faulty_missing_syncwarp", 1, 32, 0, order; x.as_ptr(), y.as_mut_ptr())
            }
            "atomic" => run!("faulty_no_atomic", 1, 64, 0, order; &raw mut counter),
            "read after write" => {
                run!("faulty_reused_tile", 1, 64, 0, order; 3u32, x.as_ptr(), y.as_mut_ptr())
            }
            "cluster" => {
                let (fault, cluster, x, y) = (1u32, 2u32, x.as_ptr(), y.as_mut_ptr());
                let args = Args::new().arg(&fault).arg(&cluster).arg(&x).arg(&y);
                args.cluster(2).launch("faulty_cluster_sync", [2, 1, 1], [32, 1, 1], 0, order)
            }
            "end of a block" => {
                Args::new().cluster(2).launch("faulty_late_write", [2, 1, 1], [1, 1, 1], 0, order)
            }
            other => panic!("no such fault: {other}"),
        }
    };
    result.unwrap();
}

#[test]
fn the_sanitizer_of_the_script_is_there() {
    let expected = std::env::var(EXPECTED).ok();

    assert!(expected.is_none() || kernel_emu::sanitizer().unwrap() == expected.as_deref());
}

#[test]
fn address_sanitizer_sees_accesses_out_of_bounds() {
    if kernel_emu::sanitizer().unwrap() != Some("address") {
        eprintln!("skipped: the kernels are not compiled with AddressSanitizer");
        return;
    }
    for (fault, kind, kernel) in [
        ("dynamic", "use-after-poison", "faulty_dynamic_bounds"),
        ("static", "use-after-poison", "faulty_static_bounds"),
        ("global", "heap-buffer-overflow", "faulty_global_bounds"),
        ("end of a block", "use-after-poison", "faulty_late_write"),
    ] {
        let report = report_of(fault);
        assert!(report.contains("AddressSanitizer") && report.contains(kind), "{fault}: {report}");
        assert!(report.contains(kernel), "{fault}: {report}");
    }
}

#[test]
fn thread_sanitizer_sees_races_between_cuda_threads() {
    if kernel_emu::sanitizer().unwrap() != Some("thread") {
        eprintln!("skipped: the kernels are not compiled with ThreadSanitizer");
        return;
    }
    for (fault, kernel) in [
        ("barrier", "faulty_missing_barrier"),
        ("syncwarp", "faulty_missing_syncwarp"),
        ("atomic", "faulty_no_atomic"),
        ("read after write", "faulty_reused_tile"),
        ("cluster", "faulty_cluster_sync"),
    ] {
        let report = report_of(fault);
        assert!(report.contains("ThreadSanitizer: data race"), "{fault}: {report}");
        assert!(report.contains(kernel), "{fault}: {report}");
    }
}
