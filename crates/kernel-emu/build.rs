//! Compiles the emulator and every kernel module of [`SOURCES`].

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

#[path = "build/objects.rs"]
mod objects;
#[path = "build/parts.rs"]
mod parts;
#[path = "build/rewrite.rs"]
mod rewrite;

use parts::Part;

/// A folder of kernel modules: each `*.cu` is a module, with `prelude.cuh` before it if there is
/// one.
struct Source {
    /// Relative to this crate. A folder that does not exist is left out.
    folder: &'static str,
    /// The folder with its prelude.
    prelude: &'static str,
    /// An earlier folder whose headers it includes beside its own.
    headers: Option<&'static str>,
    /// Put before the names of the modules, which are unique over all folders.
    prefix: &'static str,
}

/// Kernels of the library, behind its prelude.
const fn library(folder: &'static str) -> Source {
    Source { folder, prelude: PRELUDE, headers: None, prefix: "" }
}

/// Kernels of a solver, which include what all solvers share.
const fn solver(folder: &'static str) -> Source {
    Source { headers: Some(SOLVERS), ..library(folder) }
}

/// `<module>.inc` beside `<module>.cu` lists the instances of a module.
const SOURCES: &[Source] = &[
    Source { folder: "tests-kernels", prelude: "tests-kernels", headers: None, prefix: "test_" },
    library(PRELUDE),
    library("../spmv-gpu/src/kernels"),
    library("../spmv-gpu/src/packed/kernels"),
    library("../spmv-gpu/src/flexible/kernels"),
    library("../spmv-gpu/src/single/kernels"),
    library("../spmv-gpu/src/halo/kernels"),
    library(SOLVERS),
    solver("../solvers-gpu/src/fused/kernels"),
    solver("../solvers-gpu/src/factored/kernels"),
    solver("../solvers-gpu/src/lu/kernels"),
    solver("../solvers-gpu/src/lu_columns/kernels"),
    solver("../solvers-gpu/src/multifrontal/kernels"),
    solver("../solvers-gpu/src/dense/kernels"),
    solver("../solvers-gpu/src/banded/kernels"),
    solver("../solvers-gpu/src/composed/kernels"),
    library("../../examples/drivers/src/nuclear_burning/gpu/kernels"),
];

/// Kernels over vectors, and the prelude of all.
const PRELUDE: &str = "../cuda/src/kernels";

/// Kernels and headers that solvers share.
const SOLVERS: &str = "../solvers-gpu/src/common/kernels";

/// Checks for faults that a GPU has and a CPU has not; `runtime/checks.cpp` receives them.
const CHECKS: &str = "-fsanitize=alignment,bounds,integer-divide-by-zero,shift-exponent";

/// The variable that compiles the kernels with ThreadSanitizer: `thread`.
const SANITIZE: &str = "KERNEL_EMU_SANITIZE";

/// Kernels are compiled once for both libraries. Every access is a call, which AddressSanitizer
/// handles in `libkernel_emu_address.so` and which returns at once in `libkernel_emu.so`
/// (`runtime/unwatched.cpp`). Checks that would access the sanitizer's memory without such a call
/// are disabled; bounds of arrays on the stack are among [`CHECKS`].
const WATCHED: &[&str] = &[
    "-fsanitize=address",
    "--param=asan-instrumentation-with-call-threshold=0",
    "--param=asan-stack=0",
    "--param=asan-globals=0",
    "--param=asan-instrument-allocas=0",
];

/// Instances of a module that one call of the compiler has. It reads a module in as long as it
/// compiles one instance.
const INSTANCES_AT_ONCE: usize = 24;

fn main() {
    if let Err(reason) = build() {
        eprintln!("kernel-emu: {reason}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| format!("OUT_DIR: {e}"))?);
    println!("cargo:rerun-if-env-changed={SANITIZE}");
    for watched in ["build.rs", "build", "include", "runtime"] {
        println!("cargo:rerun-if-changed={watched}");
    }
    let threads = match env::var(SANITIZE).as_deref() {
        Err(_) | Ok("") => false,
        Ok("thread") => true,
        Ok(other) => return Err(format!("{SANITIZE} is thread, not {other}")),
    };

    let mut kernels = compiler("g")?;
    kernels.include("include").flag(CHECKS).flag("-fno-sanitize-recover=undefined");
    // clang spells the parameters in another way, and has no library with AddressSanitizer.
    let watched = !threads && kernels.is_flag_supported(WATCHED[1]).unwrap_or(false);
    if threads {
        kernels.flag("-fsanitize=thread");
    } else if watched {
        kernels.flags(WATCHED);
    }

    let mut modules = Vec::new();
    for source in SOURCES {
        modules.extend(modules_of(source, &out)?);
    }
    write(&out.join("lists.rs"), &lists_text(&modules)?)?;
    let parts = parts::cut(&kernels, &modules, INSTANCES_AT_ONCE, &out)?;
    let registry = out.join("registry_modules.cpp");
    write(&registry, &registry_text(&parts))?;
    let store = objects::Store::new(&out)?;
    let mut objects = store.compile(&kernels, &parts)?;

    // The scheduler's own memory is shared between fibers as within one thread: ThreadSanitizer
    // watches the kernels only.
    let mut runtime = compiler("2")?;
    runtime.warnings(true).extra_warnings(true);
    if threads {
        runtime.define("EMU_TSAN", "1");
    }
    runtime.file(&registry).files(runtime_files(&RUNTIME));
    let mut plain = runtime.clone();
    if watched {
        plain.files(runtime_files(&["unwatched"]));
        let mut address = runtime.clone();
        address.flag("-fsanitize=address").out_dir(out.join("address"));
        let mut all = objects.clone();
        all.extend(address.try_compile_intermediates().map_err(|e| e.to_string())?);
        link(&all, &out.join("libkernel_emu_address.so"))?;
    }
    objects.extend(plain.try_compile_intermediates().map_err(|e| e.to_string())?);
    link(&objects, &out.join("libkernel_emu.so"))
}

/// The sources of the emulator itself.
const RUNTIME: [&str; 7] = ["engine", "warps", "fiber", "shared", "copies", "checks", "registry"];

fn runtime_files<'a>(names: &'a [&'a str]) -> impl Iterator<Item = String> + 'a {
    names.iter().map(|name| format!("runtime/{name}.cpp"))
}

/// Links a library that is opened at run time, so that a library with a sanitizer can replace it
/// without linking any program again.
fn link(objects: &[PathBuf], library: &Path) -> Result<(), String> {
    let compiler = compiler("g")?.try_get_compiler().map_err(|e| e.to_string())?;
    // Nothing of another library, such as a sanitizer's, is taken for the functions of the runtime.
    let status = compiler
        .to_command()
        .args(["-shared", "-Wl,-Bsymbolic", "-o"])
        .arg(library)
        .args(objects)
        .status()
        .map_err(|e| format!("{}: {e}", compiler.path().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{}: not linked", library.display())) }
}

/// Compiler options of runtime and kernels. The many instances of kernels take minutes to compile;
/// -Og takes half the time of -O1.
fn compiler(optimisation: &str) -> Result<cc::Build, String> {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level_str(optimisation);
    build.debug(true).warnings(false);
    // Kernels look at the same bytes of shared memory through several types. A contraction to FMA
    // would depend on the machine.
    build.flag("-fno-strict-aliasing").flag("-ffp-contract=off").flag("-fno-omit-frame-pointer");
    // Lines for backtraces; what else a debugger wants takes a third of the time of large modules.
    build.flag("-g1");
    build.flag_if_supported("-ftls-model=initial-exec");
    Ok(build)
}

/// A kernel source with all that is included before it, and the file that lists its instances.
struct Module {
    name: String,
    /// What a generated source file begins with, inside of the unnamed namespace.
    includes: String,
    /// The folder of headers that it includes beside its own.
    headers: Option<PathBuf>,
    /// The list of instances of the emulation, if there is one.
    instances: Option<PathBuf>,
    /// Where the list of instances for GPUs would be.
    list: PathBuf,
}

/// Copies the folder's sources with shared memory rewritten.
fn modules_of(source: &Source, out: &Path) -> Result<Vec<Module>, String> {
    let folder = Path::new(source.folder);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    println!("cargo:rerun-if-changed={}", source.folder);
    let copies = copies(source.folder, out);
    // A copy of a file that is gone could still be included.
    if copies.is_dir() {
        fs::remove_dir_all(&copies).map_err(|e| format!("{}: {e}", copies.display()))?;
    }
    let mut modules = Vec::new();
    for path in files_below(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let extension = path.extension().and_then(|e| e.to_str());
        if !matches!(extension, Some("cu" | "cuh")) {
            continue;
        }
        let relative = path.strip_prefix(folder).map_err(|e| e.to_string())?;
        let text = read(&path)?;
        let shown = path.display().to_string().trim_start_matches("../").to_owned();
        let rewritten = rewrite::rewrite(&text).map_err(|e| format!("{shown}:{e}"))?;
        write(&copies.join(relative), &format!("#line 1 \"{shown}\"\n{rewritten}"))?;
        // Sources in subfolders are there to be included.
        if extension == Some("cu") && relative.components().count() == 1 {
            modules.push(module(source, relative, &copies, out)?);
        }
    }
    modules.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(modules)
}

/// Where the rewritten sources of a folder are.
fn copies(folder: &str, out: &Path) -> PathBuf {
    out.join(format!("sources_{}", folder.replace(['/', '.'], "_")))
}

fn module(source: &Source, file: &Path, copies: &Path, out: &Path) -> Result<Module, String> {
    let stem = file.file_stem().and_then(|s| s.to_str()).ok_or("a file name is not text")?;
    let name = format!("{}{stem}", source.prefix);
    let instances = Path::new(source.folder).join(format!("{stem}.inc"));
    if !instances.is_file() {
        println!("cargo:warning=kernel module {name} has no {}", instances.display());
    }
    let prelude = if Path::new(source.prelude).join("prelude.cuh").is_file() {
        format!("#include {:?}\n", self::copies(source.prelude, out).join("prelude.cuh"))
    } else {
        String::new()
    };
    let includes = format!("{prelude}#include {:?}\n", copies.join(file));
    let headers = source.headers.map(|folder| self::copies(folder, out));
    let instances = instances.is_file().then_some(instances);
    let list = Path::new(source.folder).join(format!("{stem}.nvrtc"));
    Ok(Module { name, includes, headers, instances, list })
}

/// The lists of instances that are compiled for GPUs, `<module>.nvrtc`, as a constant.
fn lists_text(modules: &[Module]) -> Result<String, String> {
    let mut text = String::from("const LISTS: &[(&str, &str)] = &[\n");
    for Module { name, list, .. } in modules.iter().filter(|module| module.list.is_file()) {
        let list = fs::canonicalize(list).map_err(|e| format!("{}: {e}", list.display()))?;
        let _ = writeln!(text, "    ({name:?}, include_str!({list:?})),");
    }
    text += "];\n";
    Ok(text)
}

fn registry_text(parts: &[Part]) -> String {
    let mut text = String::from("extern \"C\" {\n");
    let mut calls = String::new();
    for part in parts {
        let _ = writeln!(text, "void emu_register_{}();", part.name);
        let _ = writeln!(calls, "    emu_register_{}();", part.name);
    }
    let _ = write!(text, "void emu_register_modules() {{\n{calls}}}\n}}\n");
    text
}

fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let failed = |e: io::Error| format!("{}: {e}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}
