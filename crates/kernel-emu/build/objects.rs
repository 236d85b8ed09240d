//! Compiles what has changed. The kernels take minutes together, and a change is to one or two.
//!
//! Objects are kept by content outside of the target folder, so that a fresh clone, another profile
//! or `cargo clean` compiles no kernel again: in the folder that `KERNEL_EMU_CACHE` names, else in
//! `sparsebatch/kernel-emu` of `XDG_CACHE_HOME` or `~/.cache`, else beside the build.

use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use crate::parts::Part;

/// The variable that names the folder of objects.
const FOLDER: &str = "KERNEL_EMU_CACHE";

/// An object that no build has used for so long is removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

const ENDING: &str = "o";

/// The folder of objects.
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(crate) fn new(out: &Path) -> Result<Self, String> {
        println!("cargo:rerun-if-env-changed={FOLDER}");
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let caches =
            || absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        let folder = absolute(FOLDER)
            .or_else(|| Some(caches()?.join("sparsebatch/kernel-emu")))
            .filter(|folder| fs::create_dir_all(folder).is_ok())
            .unwrap_or_else(|| out.join("objects"));
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let store = Self { folder };
        store.remove_unused();
        Ok(store)
    }

    /// The objects of `parts`, compiled where none of equal content, compiler and options is kept.
    pub(crate) fn compile(
        &self,
        build: &cc::Build,
        parts: &[Part],
    ) -> Result<Vec<PathBuf>, String> {
        let compiler = build.try_get_compiler().map_err(|e| e.to_string())?;
        let version = compiler.to_command().arg("--version").output();
        let version = version.map_err(|e| format!("{}: {e}", compiler.path().display()))?;
        let options = format!("{:?} {:?}", compiler.args(), version.stdout);

        let mut found = Vec::new();
        let mut missing = Vec::new();
        for part in parts {
            let object = self.folder.join(format!("{:016x}.{ENDING}", key(part, &options)));
            if object.is_file() {
                // A read-only folder keeps the time, and its objects are removed by its owner.
                let _ = fs::File::options()
                    .append(true)
                    .open(&object)
                    .and_then(|file| file.set_modified(SystemTime::now()));
            } else {
                missing.push((part, object.clone()));
            }
            found.push(object);
        }
        // The larger modules are the first in the list that threads take from.
        missing.sort_by_key(|(part, _)| std::cmp::Reverse(part.registrations.len()));
        let missing = Mutex::new(missing.into_iter());
        let next = || missing.lock().expect("no thread panics").next();
        let work = || -> Result<(), String> {
            while let Some((part, object)) = next() {
                let mut build = build.clone();
                build.includes(&part.headers);
                let fresh = build.file(&part.file).try_compile_intermediates();
                let fresh = fresh.map_err(|e| format!("{}: {e}", part.name))?;
                publish(&fresh[0], &object).map_err(|e| format!("{}: {e}", object.display()))?;
            }
            Ok(())
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            running.into_iter().try_for_each(|one| one.join().expect("no thread panics"))
        })?;
        Ok(found)
    }

    fn remove_unused(&self) {
        let is_unused = |path: &Path| {
            let modified = fs::metadata(path).and_then(|data| data.modified());
            let age = modified.ok().and_then(|time| time.elapsed().ok());
            path.extension().is_some_and(|ending| ending == ENDING)
                && age.is_some_and(|age| age > UNUSED)
        };
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for file in files.map(|file| file.path()).filter(|path| is_unused(path)) {
            // Another build may be quicker.
            let _ = fs::remove_file(file);
        }
    }
}

/// Of the preprocessed text, in which every header is, without the paths of this build.
fn key(part: &Part, options: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&part.name, &part.before, &part.registrations, options).hash(&mut hasher);
    hasher.finish()
}

/// Whole or not at all: another build may read the folder.
fn publish(fresh: &Path, object: &Path) -> io::Result<()> {
    let partial = object.with_extension(format!("{}.partial", std::process::id()));
    fs::copy(fresh, &partial)?;
    fs::rename(partial, object)?;
    // The copy of the build would stand in the target folder a second time.
    fs::remove_file(fresh)
}
