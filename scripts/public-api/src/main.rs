//! The public API of the published crates, an item a line, in `docs/api/`: what a change of the API changes is seen in
//! review, and CI fails where the lists are not those of the code.
//!
//! `cargo run --manifest-path scripts/public-api/Cargo.toml --target-dir target/public-api` compares, with `-- --write` it
//! writes the lists.
//! rustdoc's JSON needs `RUSTC_BOOTSTRAP=1`. Set for all of cargo it would have every crate checked once
//! more than for other documentation, so that this program stands in the place of rustdoc and sets it.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

/// The published libraries, those that a user sees first.
const CRATES: [&str; 9] = [
    "sparsebatch",
    "sparsebatch-formats",
    "sparsebatch-solve-core",
    "sparsebatch-cpu-ref",
    "sparsebatch-cuda",
    "sparsebatch-spmv-gpu",
    "sparsebatch-solvers-gpu",
    "sparsebatch-solvers",
    "sparsebatch-mpi",
];

/// The variable that has this program stand in the place of rustdoc.
const STAND_IN: &str = "PUBLIC_API_RUSTDOC";

/// Runs `cargo doc` for the JSON of every crate; returns the folder where it lies.
fn document(root: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let target = env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let packages = CRATES.iter().flat_map(|name| ["-p", name]);
    let mut command = Command::new(cargo);
    // What `cargo run` says of the package of this program. Build scripts that read such variables, as that of `ring`
    // does, would run again, here and in the next call of cargo, and all that depends on them would be compiled again.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    let status = command
        .args(["doc", "--quiet", "--release", "--no-deps", "--lib"])
        .args(packages)
        .env("RUSTDOC", env::current_exe()?)
        .env(STAND_IN, "1")
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow")
        .current_dir(root)
        .status()?;
    if !status.success() {
        return Err("cargo doc failed".into());
    }
    Ok(root.join(target).join("doc").to_string_lossy().into_owned())
}

/// Runs rustdoc with the arguments of this program.
fn rustdoc() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let status = Command::new("rustdoc")
        .args(env::args_os().skip(1))
        .env("RUSTC_BOOTSTRAP", "1")
        .status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    if env::var_os(STAND_IN).is_some() {
        return rustdoc();
    }
    let writes = env::args().any(|arg| arg == "--write");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let json = document(&root)?;
    let mut different = Vec::new();
    for name in CRATES {
        let path = Path::new(&json).join(name.replace('-', "_")).with_extension("json");
        let api = public_api::Builder::from_rustdoc_json(path)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build()?;
        let found = api.to_string();
        let list = root.join("docs/api").join(name).with_extension("txt");
        if writes {
            fs::write(&list, found)?;
            continue;
        }
        let expected = fs::read_to_string(&list).unwrap_or_default();
        for line in found.lines().filter(|line| !expected.lines().any(|other| other == *line)) {
            different.push(format!("+ {line}"));
        }
        for line in expected.lines().filter(|line| !found.lines().any(|other| other == *line)) {
            different.push(format!("- {line}"));
        }
    }
    if different.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("docs/api is not the public API:\n{}", different.join("\n"));
    eprintln!(
        "run: cargo run --manifest-path scripts/public-api/Cargo.toml --target-dir target/public-api -- --write"
    );
    Ok(ExitCode::FAILURE)
}
