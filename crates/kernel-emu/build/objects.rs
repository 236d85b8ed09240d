//! Compiles what has changed. The modules take minutes together, and a change is to one or two.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The objects of `sources`. Those of an equal text, compiler and options are found in a folder that
/// all builds of the target folder share, whatever their profile.
pub(crate) fn compile(
    build: &cc::Build,
    sources: Vec<PathBuf>,
    out: &Path,
) -> Result<Vec<PathBuf>, String> {
    let compiler = build.try_get_compiler().map_err(|e| e.to_string())?;
    let options = format!("{:?} {:?}", compiler.path(), compiler.args());
    // OUT_DIR is <target>/<profile>/build/<package>/out.
    let shared = out.ancestors().nth(4).unwrap_or(out).join("kernel-emu-objects");
    fs::create_dir_all(&shared).map_err(|e| format!("{}: {e}", shared.display()))?;

    let mut found = Vec::new();
    let mut missing = Vec::new();
    for source in sources {
        let object = shared.join(format!("{:016x}.o", key(build, &source, &options, out)?));
        if !object.is_file() {
            missing.push((source, object.clone()));
        }
        found.push(object);
    }
    if !missing.is_empty() {
        let fresh = build
            .clone()
            .files(missing.iter().map(|(source, _)| source))
            .try_compile_intermediates()
            .map_err(|e| e.to_string())?;
        for ((_, object), fresh) in missing.iter().zip(fresh) {
            publish(&fresh, object).map_err(|e| format!("{}: {e}", object.display()))?;
        }
    }
    Ok(found)
}

/// Of the preprocessed text, in which every header is, without the paths of this build.
fn key(build: &cc::Build, source: &Path, options: &str, out: &Path) -> Result<u64, String> {
    let text = build.clone().file(source).try_expand().map_err(|e| e.to_string())?;
    let here = out.display().to_string();
    let mut hasher = DefaultHasher::new();
    String::from_utf8_lossy(&text).replace(&here, "").hash(&mut hasher);
    options.replace(&here, "").hash(&mut hasher);
    Ok(hasher.finish())
}

/// Whole or not at all: another build may read the folder.
fn publish(fresh: &Path, object: &Path) -> io::Result<()> {
    let partial = object.with_extension(format!("{}.partial", std::process::id()));
    fs::copy(fresh, &partial)?;
    fs::rename(partial, object)
}
