//! `doctor --warm`: kernels compiled for a GPU that is not there.

use std::path::Path;

use sparsebatch::gpu::testing::nvrtc_or_skip;
use sparsebatch::gpu::{DeviceInfo, MemoryMeter};
use sparsebatch::{Backend, Gpu, PlanPin};

use crate::common::{ALPHA13, Folder, run, run_with};

#[test]
fn a_second_run_finds_what_the_first_compiled() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let folder = Folder::new();
    let cache = folder.path().join("kernels");
    let warm = ["doctor", "--warm", "--arch", "sm_90", ALPHA13, "--solver", "cg", "--json"];
    let compiled = || {
        let json = run_with(&[("SPARSEBATCH_CACHE", &cache)], &warm).json();
        assert_eq!((&json["architecture"], &json["command"]), (&"sm_90".into(), &"doctor".into()));
        let kernels = json["kernels"].as_array().unwrap().clone();
        assert!(kernels.iter().any(|kernel| kernel["kernel"].as_str().unwrap().starts_with("cg")));
        kernels.iter().map(|kernel| kernel["compiled"].as_bool().unwrap()).collect::<Vec<_>>()
    };

    let (first, second) = (compiled(), compiled());

    assert!(first.iter().all(|&compiled| compiled));
    assert_eq!(second, vec![false; first.len()]);
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), first.len());
}

#[test]
fn what_cannot_be_warmed_is_one_line() {
    let warm = |args: &[&str]| run(&[&["doctor", "--warm"], args].concat());

    warm(&[ALPHA13]).assert_bad_input(&["--arch"]);
    warm(&["--arch", "sm_90"]).assert_bad_input(&["<INPUT>"]);
    warm(&["--arch", "sm_91", ALPHA13]).assert_bad_input(&[
        "sm_91",
        "sm_80 or sm_90",
        "--pin-plan",
    ]);
    warm(&["--arch", "sm_90", ALPHA13, "--solver", "gmres"]).assert_bad_input(&["gmres"]);
    warm(&["--arch", "sm_90", ALPHA13, "--backend", "cpu"]).assert_bad_input(&["--backend cpu"]);
    warm(&["--arch", "sm_90", ALPHA13, "--output", "x.npz"]).assert_bad_input(&["--output"]);
    run(&["doctor", "--arch", "sm_90"]).assert_bad_input(&["--warm"]);
    let folder = Folder::new();
    let meter = MemoryMeter::new(DeviceInfo::known("sm_90").unwrap());
    let pin = folder.path().join("plan.txt");
    std::fs::write(&pin, PlanPin::of(&Backend::Gpu(Gpu::new(meter))).to_string()).unwrap();
    warm(&["--arch", "sm_80", ALPHA13, "--pin-plan", pin.to_str().unwrap()])
        .assert_bad_input(&["--arch sm_80: expected sm_90", "or a newer one"]);
    let text = std::fs::read_to_string(&pin).unwrap();
    let version = format!("version {}", env!("CARGO_PKG_VERSION"));
    std::fs::write(&pin, text.replace(&version, "version 0.0.9")).unwrap();
    warm(&["--arch", "sm_90", ALPHA13, "--pin-plan", pin.to_str().unwrap()]).assert_bad_input(&[
        "--pin-plan",
        "plan.txt",
        "version 0.0.9",
        env!("CARGO_PKG_VERSION"),
    ]);
    let without = [("SPARSEBATCH_NVRTC", Path::new("/no/libnvrtc.so"))];
    run_with(&without, &["doctor", "--warm", "--arch", "sm_90", ALPHA13])
        .assert_bad_input(&["--warm: NVRTC", "/no/libnvrtc.so"]);
}
