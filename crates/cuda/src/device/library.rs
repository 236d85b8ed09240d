//! Finds and loads NVRTC.
//!
//! The bindings open the library by name and panic when that fails, so nothing may call them before
//! [`nvrtc`] succeeded. A library that the loader would not find, such as that of a Python wheel,
//! is opened by its path first; the loader then knows it by name.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cudarc::nvrtc::sys;
use libloading::Library;

use crate::{CudaVersion, GpuError};

/// File names of NVRTC, newest first.
const NAMES: [&str; 2] = ["libnvrtc.so.13", "libnvrtc.so.12"];

/// The loaded NVRTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvrtcInfo {
    /// The version of NVRTC.
    pub version: CudaVersion,
    /// The file that was loaded; `None` if the system's loader found it by name.
    pub path: Option<PathBuf>,
}

/// Finds and loads NVRTC, once per process. Looks, in this order, at the variable
/// `SPARSEBATCH_NVRTC` (a place as for [`use_nvrtc`]), what the system's loader finds
/// (`LD_LIBRARY_PATH`), CUDA toolkits (`CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`), and
/// Python environments (`VIRTUAL_ENV`, `CONDA_PREFIX`, the user's and the system's packages).
///
/// A library with the unversioned name `libnvrtc.so` that the system's loader finds takes
/// precedence over all others, since the bindings ask for that name first.
///
/// # Errors
/// [`GpuError::NvrtcMissing`], with the places that were tried.
pub fn nvrtc() -> Result<NvrtcInfo, GpuError> {
    load(|| match env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) => Ok(Some(open_explicit(VARIABLE, Path::new(&value))?)),
        None if is_loadable() => Ok(None),
        None => Ok(Some(open_first(&candidates(&Surroundings::of_process()))?)),
    })
}

/// Loads NVRTC from a place that the caller knows, for embedding programs such as a Python
/// interpreter whose environment is not activated. `place` is the library, its folder, a folder of
/// Python packages (`site-packages`), or the root of an environment that has some.
///
/// To be called before the first use of a GPU: a process has one NVRTC. Where one is loaded already,
/// by this function or [`nvrtc`], it stays and is returned. As for [`nvrtc`], a `libnvrtc.so` that the
/// system's loader finds takes precedence: compare the version that is returned.
///
/// # Errors
/// [`GpuError::NvrtcMissing`] when it is not there, cannot be opened, or is older than version 12.
/// Where none could be opened, later calls may try another place.
pub fn use_nvrtc(place: impl AsRef<Path>) -> Result<NvrtcInfo, GpuError> {
    load(|| open_explicit("the place given for NVRTC", place.as_ref()).map(Some))
}

/// The variable that names the library or its folder.
const VARIABLE: &str = "SPARSEBATCH_NVRTC";

/// The library of this process, which `open` opens if there is none yet.
fn load(open: impl FnOnce() -> Result<Option<PathBuf>, GpuError>) -> Result<NvrtcInfo, GpuError> {
    static FOUND: Mutex<Option<NvrtcInfo>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(info) = &*found {
        return Ok(info.clone());
    }
    let path = open()?;
    let info = NvrtcInfo { version: version()?, path };
    *found = Some(info.clone());
    Ok(info)
}

fn missing(hint: String) -> GpuError {
    GpuError::NvrtcMissing { hint }
}

/// Whether the bindings can open the library by one of its names.
fn is_loadable() -> bool {
    // SAFETY: opens and closes libraries by NVRTC's names; their initialisers are NVIDIA's and
    // have no preconditions.
    unsafe { sys::is_culib_present() }
}

fn version() -> Result<CudaVersion, GpuError> {
    if !is_loadable() {
        return Err(missing("the library opens by its path, but not by its name".to_owned()));
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: (1) the library can be opened; (2) both pointers are to one integer.
    let result = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    match (result, u32::try_from(major), u32::try_from(minor)) {
        (sys::nvrtcResult::NVRTC_SUCCESS, Ok(major @ 12..), Ok(minor)) => {
            Ok(CudaVersion { major, minor })
        }
        _ => Err(missing(format!("found version {major}.{minor}, 12 or newer is needed"))),
    }
}

/// Opens the file that the user named, or NVRTC in the folder that the user named, in the Python
/// packages there, or in those of the environment there. `what` names the folder in errors.
fn open_explicit(what: &str, named: &Path) -> Result<PathBuf, GpuError> {
    open_first(&places(named)).map_err(|error| match error {
        GpuError::NvrtcMissing { hint } => {
            missing(format!("{what} is {}: {hint}", named.display()))
        }
        other => other,
    })
}

/// The files that a named file or folder stands for.
fn places(named: &Path) -> Vec<PathBuf> {
    if !named.is_dir() {
        return vec![named.to_path_buf()];
    }
    let mut folders = vec![named.to_path_buf()];
    folders.extend(in_packages(named));
    let environments = vec![named.to_path_buf()];
    let files = folders.iter().flat_map(|folder| NAMES.iter().map(|name| folder.join(name)));
    files.chain(candidates(&Surroundings { environments, ..Surroundings::default() })).collect()
}

/// The folders of NVRTC in a folder of Python packages.
fn in_packages(packages: &Path) -> [PathBuf; 2] {
    ["cu13/lib", "cuda_nvrtc/lib"].map(|folder| packages.join("nvidia").join(folder))
}

/// Opens the first file that exists and can be opened, and keeps it for the life of the process.
fn open_first(files: &[PathBuf]) -> Result<PathBuf, GpuError> {
    let mut refused = None;
    for file in files.iter().filter(|file| file.is_file()) {
        // NVRTC opens its built-in functions by name when it first compiles, and wheels do not say
        // where they are.
        for builtins in builtins_beside(file) {
            keep(&builtins).ok();
        }
        match keep(file) {
            Ok(()) => return Ok(file.clone()),
            Err(error) => refused = Some(format!("{}: {error}", file.display())),
        }
    }
    Err(missing(refused.unwrap_or_else(|| match files {
        [file] => format!("no file {}", file.display()),
        _ => format!("no {} in any known folder", NAMES[0]),
    })))
}

/// Opens a library and never closes it.
fn keep(file: &Path) -> Result<(), String> {
    // SAFETY: the file is NVRTC or its built-in functions by its name; their initialisers have no
    // preconditions.
    let library = unsafe { Library::new(file) }.map_err(|error| {
        // One line: the loader's text may end with a newline.
        error.to_string().lines().collect::<Vec<_>>().join(" ")
    })?;
    std::mem::forget(library);
    Ok(())
}

/// `libnvrtc-builtins.so.<version>` in the folder of `file`.
fn builtins_beside(file: &Path) -> Vec<PathBuf> {
    files_of(file.parent().unwrap_or(Path::new(".")), |name| {
        name.starts_with("libnvrtc-builtins.so.")
    })
}

/// The entries of a folder whose names satisfy `pass`, sorted; empty if the folder does not exist.
fn files_of(folder: &Path, pass: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(&pass))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The variables and folders that the search depends on.
#[derive(Default)]
struct Surroundings {
    toolkits: Vec<PathBuf>,
    environments: Vec<PathBuf>,
}

impl Surroundings {
    fn of_process() -> Self {
        let variable = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let mut toolkits: Vec<PathBuf> =
            ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).collect();
        toolkits.push("/usr/local/cuda".into());
        let mut environments: Vec<PathBuf> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).collect();
        environments.extend(variable("HOME").map(|home| home.join(".local")));
        environments.extend(["/usr/local".into(), "/usr".into()]);
        Self { toolkits, environments }
    }
}

/// Possible locations of NVRTC, best first.
fn candidates(surroundings: &Surroundings) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for toolkit in &surroundings.toolkits {
        folders.extend([toolkit.join("lib64"), toolkit.join("lib")]);
    }
    for environment in &surroundings.environments {
        folders.push(environment.join("lib"));
        for python in files_of(&environment.join("lib"), |name| name.starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                folders.extend(in_packages(&python.join(packages)));
            }
        }
    }
    folders.iter().flat_map(|folder| NAMES.iter().map(|name| folder.join(name))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn wheels_of_an_environment_are_candidates() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("lib/python3.12/site-packages/nvidia/cu13/lib");
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join(NAMES[0]), "").unwrap();
        let surroundings =
            Surroundings { environments: vec![root.path().into()], ..Surroundings::default() };

        let found: Vec<PathBuf> =
            candidates(&surroundings).into_iter().filter(|file| file.is_file()).collect();

        assert_eq!(found, [lib.join(NAMES[0])]);
    }

    #[test]
    fn builtins_are_found_beside_the_library() {
        let root = tempfile::tempdir().unwrap();
        for name in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.alt.so.13.0"]
        {
            fs::write(root.path().join(name), "").unwrap();
        }

        let found = builtins_beside(&root.path().join("libnvrtc.so.13"));

        assert_eq!(found, [root.path().join("libnvrtc-builtins.so.13.0")]);
    }

    #[test]
    fn a_named_file_that_is_no_library_is_an_error_in_one_line() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("libnvrtc.so.13");
        fs::write(&file, "not a library").unwrap();

        for named in [root.path(), &file, &root.path().join("absent")] {
            let text = open_explicit(VARIABLE, named).unwrap_err().to_string();

            assert!(text.contains("SPARSEBATCH_NVRTC is") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_place_may_be_a_folder_packages_or_an_environment() {
        let root = tempfile::tempdir().unwrap();
        let packages = root.path().join("lib/python3.12/site-packages");
        let lib = packages.join("nvidia/cuda_nvrtc/lib");
        fs::create_dir_all(&lib).unwrap();
        let file = lib.join(NAMES[1]);
        fs::write(&file, "not a library").unwrap();
        for place in [&file, &lib, &packages, root.path()] {
            let place: &Path = place;
            let found: Vec<PathBuf> = places(place).into_iter().filter(|f| f.is_file()).collect();
            assert_eq!(found, std::slice::from_ref(&file), "{}", place.display());
            // What is there cannot be opened; a process that has none may try another place.
            let text = match use_nvrtc(place) {
                Err(error) => error.to_string(),
                // Another test has loaded one.
                Ok(info) => info.version.to_string(),
            };
            assert!(!text.contains('\n'), "{text}");
        }
    }
}
