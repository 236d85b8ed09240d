//! `crates/capi/include/sparsebatch.h` from the exported functions of `crates/capi`.
//!
//! `cargo run --manifest-path scripts/c-header/Cargo.toml --target-dir target/c-header` compares,
//! with `-- --write` it writes the header.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

/// How the sources say that a function is exported, but for unit tests, which would compile all of
/// them; and the attribute that cbindgen knows.
const EXPORTED: [&str; 2] = ["#[cfg_attr(not(test), unsafe(no_mangle))]", "#[unsafe(no_mangle)]"];

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let writes = env::args().any(|arg| arg == "--write");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/capi");
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    let sources = env::temp_dir().join(format!("c-header-{}", std::process::id()));
    copy(&folder.join("src"), &sources)?;
    let bindings =
        cbindgen::Builder::new().with_src(sources.join("lib.rs")).with_config(config).generate()?;
    fs::remove_dir_all(&sources)?;
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

/// Copies sources, with exported functions as cbindgen knows them.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (path, to) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() {
            copy(&path, &to)?;
        } else {
            fs::write(to, fs::read_to_string(path)?.replace(EXPORTED[0], EXPORTED[1]))?;
        }
    }
    Ok(())
}
