//! `crates/capi/include/sparsebatch.h` from the exported functions of `crates/capi`.
//!
//! `cargo run --manifest-path scripts/c-header/Cargo.toml --target-dir target/c-header` compares,
//! with `-- --write` it writes the header.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let writes = env::args().any(|arg| arg == "--write");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/capi");
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    let bindings = cbindgen::Builder::new()
        .with_src(folder.join("src/lib.rs"))
        .with_config(config)
        .generate()?;
    let mut found = Vec::new();
    bindings.write(&mut found);
    let header = folder.join("include/sparsebatch.h");
    if writes {
        fs::write(&header, found)?;
        return Ok(ExitCode::SUCCESS);
    }
    if fs::read(&header).unwrap_or_default() == found {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{} is not that of the code: run this again with -- --write", header.display());
    Ok(ExitCode::FAILURE)
}
