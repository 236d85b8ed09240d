//! Compiled kernels on disk, so that a second run starts without compiling.
//!
//! One file per program, named by the hash of everything its code depends on. A file is written
//! under a temporary name and renamed, so that another process sees a whole file or none; a
//! checksum detects truncated or changed files. Nothing here fails a compilation: without a usable
//! folder or file the kernel is compiled again.
//!
//! Code read from the cache runs on the GPU with the rights of this process, and a checksum does
//! not keep others from writing a file of their own. So a file is only used if everyone who could
//! have written it could also change this program: file and folder, and every folder above them,
//! belong to the user or to root, and nobody else may write to them (`access.rs`). Folders of other
//! users are neither read nor written; a folder that root has filled and the user cannot write to
//! is read.

mod access;
mod entry;

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use super::nvrtc::{self, Compiled, Program};
use crate::{CudaVersion, GpuError, KernelKey};

/// Part of every key: raise it when the format of the files or the meaning of a key changes.
const FORMAT: u32 = 1;

/// Maximum size of the folder in bytes; beyond it the oldest files are removed.
const LIMIT_BYTES: u64 = 256 << 20;

/// Age beyond which a temporary file is taken to have no living writer.
const ABANDONED: Duration = Duration::from_secs(3600);

const ENDING: &str = "kernel";
const TEMPORARY: &str = "tmp";

/// The name of a compiled program: a hash of its source, options, name expressions, architecture,
/// the version of NVRTC and the format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// The key of a program compiled by a version of NVRTC.
    pub fn new(program: &Program<'_>, nvrtc: CudaVersion) -> Self {
        let mut hash = Sha256::new();
        // The length precedes every text, and the count every list, so that no two programs give
        // the same bytes.
        let mut add = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(&format!("{FORMAT} {nvrtc} {}", env!("CARGO_PKG_VERSION")));
        add(program.source);
        let options = program.all_options();
        add(&options.len().to_string());
        options.iter().for_each(|option| add(option));
        add(&program.expressions.len().to_string());
        program.expressions.iter().for_each(|expression| add(expression));
        Self(hash.finalize().into())
    }

    fn file_name(self) -> String {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hex}.{ENDING}")
    }
}

/// A folder of compiled programs, or none.
#[derive(Clone, Debug)]
pub struct DiskCache {
    folder: Result<PathBuf, String>,
    limit_bytes: u64,
}

impl DiskCache {
    /// The cache in the folder that the environment names: `SPARSEBATCH_CACHE`, else
    /// `XDG_CACHE_HOME/sparsebatch`, else `~/.cache/sparsebatch`. `SPARSEBATCH_CACHE=off` turns
    /// the cache off.
    pub fn from_env() -> Self {
        Self::from_variables(|name| env::var_os(name))
    }

    /// A cache in a folder, which is created when it is first written to.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Ok(folder.into()), limit_bytes: LIMIT_BYTES }
    }

    /// No cache: nothing is found and nothing is written.
    pub fn off(reason: impl Into<String>) -> Self {
        Self { folder: Err(reason.into()), limit_bytes: LIMIT_BYTES }
    }

    /// The folder, or why there is none.
    pub fn folder(&self) -> Result<&Path, &str> {
        self.folder.as_deref().map_err(String::as_str)
    }

    /// Why the folder is neither read nor written, as far as can be determined without writing: it,
    /// or a folder above it, belongs to another user or is writable by others. A folder that does
    /// not exist yet is accepted if it may be created.
    pub fn refusal(&self) -> Option<String> {
        access::folder(self.folder.as_ref().ok()?).err()
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        if let Some(value) = variable("SPARSEBATCH_CACHE") {
            if value == "off" {
                return Self::off("SPARSEBATCH_CACHE is off");
            }
            return Self::in_folder(value);
        }
        // The convention asks to ignore a relative path.
        let shared = variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
        match shared.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache"))) {
            Some(shared) => Self::in_folder(shared.join("sparsebatch")),
            None => Self::off("neither SPARSEBATCH_CACHE, XDG_CACHE_HOME nor HOME is set"),
        }
    }

    /// Loads the program from the folder; if it is absent, compiles it and stores it there.
    ///
    /// # Errors
    /// Those of [`nvrtc::compile`] only.
    pub fn compile(&self, program: &Program<'_>) -> Result<Compiled, GpuError> {
        let key = CacheKey::new(program, nvrtc::version()?);
        if let Some(compiled) = self.load(key) {
            return Ok(compiled);
        }
        let compiled = nvrtc::compile(program)?;
        self.store(key, &compiled);
        Ok(compiled)
    }

    /// As [`DiskCache::compile`], the program of one kernel as a [`Device`](crate::Device) of that
    /// architecture asks for it. So a kernel that this stored on a machine without a GPU is found by
    /// a device, given the same version of this library and of NVRTC.
    ///
    /// # Errors
    /// As [`DiskCache::compile`].
    pub fn compile_kernel(
        &self,
        key: &KernelKey,
        architecture: &str,
    ) -> Result<Compiled, GpuError> {
        with_program(key, architecture, |program| self.compile(program))
    }

    /// Whether [`DiskCache::compile_kernel`] would find the kernel in the folder.
    ///
    /// # Errors
    /// [`GpuError::NvrtcMissing`], since the version of NVRTC is part of a kernel's name.
    pub fn has_kernel(&self, key: &KernelKey, architecture: &str) -> Result<bool, GpuError> {
        let version = nvrtc::version()?;
        let name = with_program(key, architecture, |program| CacheKey::new(program, version));
        Ok(self.load(name).is_some())
    }

    /// Loads a stored program. A damaged file is removed and counts as absent. A file that another
    /// user could have written counts as absent too, but is not removed.
    pub fn load(&self, key: CacheKey) -> Option<Compiled> {
        let folder = self.folder.as_ref().ok().filter(|folder| access::folder(folder).is_ok())?;
        let path = folder.join(key.file_name());
        let mut content = Vec::new();
        access::open(&path)?.take(self.limit_bytes).read_to_end(&mut content).ok()?;
        let found = entry::decode(&content, key);
        if found.is_none() {
            fs::remove_file(&path).ok();
        }
        found
    }

    /// Stores a program, then removes the oldest ones beyond the size limit. Returns whether it
    /// was stored.
    pub fn store(&self, key: CacheKey, compiled: &Compiled) -> bool {
        let Ok(folder) = &self.folder else { return false };
        // Checked before, so that nothing is created in a folder of another user, and after.
        let stored = access::folder(folder).is_ok()
            && create_folder(folder).is_ok()
            && access::folder(folder).is_ok()
            && write_whole(folder, &key.file_name(), &entry::encode(compiled, key)).is_ok();
        if stored {
            self.evict(folder);
        }
        stored
    }

    /// Removes temporary files that a process left behind, and the oldest programs while their
    /// total size exceeds the limit. Other files of the user in this folder are not touched,
    /// whatever their extension.
    fn evict(&self, folder: &Path) {
        let Ok(files) = folder.read_dir() else { return };
        let mut programs = Vec::new();
        for file in files.flatten() {
            let path = file.path();
            let Some(kind) = file.file_name().to_str().and_then(Named::of) else { continue };
            // For a symbolic link this describes the link itself.
            let Ok(metadata) = file.metadata() else { continue };
            let Ok(modified) = metadata.modified() else { continue };
            match kind {
                _ if !metadata.is_file() => {}
                Named::Program => programs.push((modified, metadata.len(), path)),
                Named::Temporary if is_abandoned(modified) => {
                    fs::remove_file(&path).ok();
                }
                Named::Temporary => {}
            }
        }
        let mut bytes: u64 = programs.iter().map(|(_, len, _)| len).sum();
        programs.sort();
        for (_, len, path) in programs {
            if bytes <= self.limit_bytes {
                break;
            }
            // Another process may have been faster; the file is gone either way.
            fs::remove_file(&path).ok();
            bytes -= len;
        }
    }
}

/// Calls `work` with the program of one kernel for an architecture.
fn with_program<R>(key: &KernelKey, architecture: &str, work: impl FnOnce(&Program<'_>) -> R) -> R {
    work(&Program {
        name: &format!("{}.cu", key.module.name()),
        source: &key.module.program(),
        expressions: &[&key.expression],
        architecture,
        options: key.options,
    })
}

/// Kinds of files whose names the cache gives.
enum Named {
    /// `HASH.kernel`, the hash in 64 digits.
    Program,
    /// `HASH.kernel.PROCESS.COUNT.tmp`.
    Temporary,
}

impl Named {
    /// The kind of file with this name, if the cache gives such names.
    fn of(name: &str) -> Option<Self> {
        let is_hash = |text: &str| {
            text.len() == 64
                && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match name.split('.').collect::<Vec<_>>()[..] {
            [hash, ENDING] if is_hash(hash) => Some(Self::Program),
            [hash, ENDING, process, count, TEMPORARY]
                if is_hash(hash) && is_number(process) && is_number(count) =>
            {
                Some(Self::Temporary)
            }
            _ => None,
        }
    }
}

fn is_abandoned(modified: SystemTime) -> bool {
    modified.elapsed().is_ok_and(|age| age > ABANDONED)
}

/// Creates the folder for its owner alone.
fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Writes a file for its owner alone, first under a temporary name.
fn write_whole(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!("{name}.{}.{count}.{TEMPORARY}", process::id()));
    let written = create_private(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&temporary, folder.join(name)));
    if written.is_err() {
        fs::remove_file(&temporary).ok();
    }
    written
}

fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests;
