//! Tells the crate which commit it is built from.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=BENCH_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    // The log of HEAD grows with every commit and checkout, in worktrees too.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rerun-if-changed={}", std::path::Path::new(&folder).join(log).display());
    }
    let commit = std::env::var("BENCH_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty())
        .or_else(|| git(&["rev-parse", "--short", "HEAD"]))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=BENCH_BUILT_COMMIT={commit}");
}

/// What git answers, or `None` where there is no git or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
