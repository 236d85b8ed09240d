//! Compiles the emulator and every kernel module of [`SOURCES`].

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

#[path = "build/objects.rs"]
mod objects;
#[path = "build/rewrite.rs"]
mod rewrite;

/// A folder of kernel modules: each `*.cu` is a module, with `prelude.cuh` before it if there is
/// one.
struct Source {
    /// Relative to this crate. A folder that does not exist is left out.
    folder: &'static str,
    /// The folder whose prelude it takes, an earlier one where it has none of its own.
    prelude: &'static str,
    /// Where `<module>.inc` lists the instances of a module, relative to this crate.
    instances: &'static str,
    /// Put before the names of the modules, which are unique over all folders.
    prefix: &'static str,
}

const SOURCES: &[Source] = &[
    Source {
        folder: "tests-kernels",
        prelude: "tests-kernels",
        instances: "tests-kernels/instances",
        prefix: "test_",
    },
    Source { folder: KERNELS, prelude: KERNELS, instances: "instances", prefix: "" },
    Source {
        folder: "../../examples/nuclear_burning/gpu/kernels",
        prelude: KERNELS,
        instances: "instances",
        prefix: "",
    },
];

/// The kernels of the library.
const KERNELS: &str = "../spmv-gpu/src/kernels";

/// Checks for faults that a GPU has and a CPU has not; `runtime/checks.cpp` receives them.
const CHECKS: &str = "-fsanitize=alignment,bounds,integer-divide-by-zero,shift-exponent";

/// The variable that compiles all C++ with a sanitizer: `address` or `thread`.
const SANITIZE: &str = "KERNEL_EMU_SANITIZE";

fn main() {
    if let Err(reason) = build() {
        eprintln!("kernel-emu: {reason}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| format!("OUT_DIR: {e}"))?);
    println!("cargo:rerun-if-env-changed={SANITIZE}");
    for watched in ["build.rs", "build", "include", "runtime", "instances"] {
        println!("cargo:rerun-if-changed={watched}");
    }

    let mut modules = Vec::new();
    for source in SOURCES {
        modules.extend(generate_modules(source, &out)?);
    }
    let registry = out.join("registry_modules.cpp");
    write(&registry, &registry_text(&modules))?;

    let mut kernels = compiler(true)?;
    kernels.include("include").flag(CHECKS).flag("-fno-sanitize-recover=undefined");
    let sources = modules.iter().map(|m| m.generated.clone()).chain([registry]).collect();
    let mut runtime = compiler(false)?;
    runtime.warnings(true).extra_warnings(true);
    runtime.files(
        ["engine", "fiber", "shared", "copies", "checks", "registry"]
            .map(|f| format!("runtime/{f}.cpp")),
    );
    let mut objects = objects::compile(&kernels, sources, &out)?;
    objects.extend(runtime.try_compile_intermediates().map_err(|e| e.to_string())?);
    link(&objects, &out.join("libkernel_emu.so"))
}

/// A library that is opened at run time, so that another, with a sanitizer, can take its place and no
/// program is linked again.
fn link(objects: &[PathBuf], library: &Path) -> Result<(), String> {
    let compiler = compiler(true)?.try_get_compiler().map_err(|e| e.to_string())?;
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

/// The options that runtime and kernels share.
fn compiler(for_kernels: bool) -> Result<cc::Build, String> {
    let mut build = cc::Build::new();
    // The kernels' many instances take minutes; -Og compiles them in half the time of -O1.
    build.cpp(true).std("c++17").opt_level_str(if for_kernels { "g" } else { "2" });
    build.debug(true).warnings(false);
    // Kernels look at the same bytes of shared memory through several types. A contraction to FMA
    // would depend on the machine.
    build.flag("-fno-strict-aliasing").flag("-ffp-contract=off").flag("-fno-omit-frame-pointer");
    // Lines for backtraces; what else a debugger wants takes a third of the time of large modules.
    build.flag("-g1");
    build.flag_if_supported("-ftls-model=initial-exec");
    match env::var(SANITIZE).as_deref() {
        Err(_) | Ok("") => {}
        Ok("address") => {
            build.flag("-fsanitize=address");
            // Checks that are calls, not code in place, compile in two thirds of the time.
            build.flag_if_supported("--param=asan-instrumentation-with-call-threshold=0");
        }
        Ok("thread") => {
            // The scheduler shares its own memory between fibers as one thread does.
            build.define("EMU_TSAN", "1");
            if for_kernels {
                build.flag("-fsanitize=thread");
            }
        }
        Ok(other) => return Err(format!("{SANITIZE} is address or thread, not {other}")),
    }
    Ok(build)
}

struct Module {
    name: String,
    generated: PathBuf,
}

/// Copies the folder's sources with shared memory rewritten, and writes one source file per
/// module.
fn generate_modules(source: &Source, out: &Path) -> Result<Vec<Module>, String> {
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
    let instances = Path::new(source.instances).join(format!("{stem}.inc"));
    let registrations = if instances.is_file() {
        format!("#line 1 \"{}\"\n{}", instances.display(), read(&instances)?)
    } else {
        println!("cargo:warning=kernel module {name} has no {}", instances.display());
        String::new()
    };
    let prelude = if Path::new(source.prelude).join("prelude.cuh").is_file() {
        format!("#include {:?}\n", self::copies(source.prelude, out).join("prelude.cuh"))
    } else {
        String::new()
    };
    // The unnamed namespace keeps equal names of different modules apart.
    let text = format!(
        "#include \"cuda_emu.h\"\n#define EMU_MODULE \"{name}\"\nnamespace {{\n{prelude}\
         #include {:?}\nvoid emu_register_instances() {{\n{registrations}\n}}\n}} // namespace\n\
         extern \"C\" void emu_register_{name}() {{ emu_register_instances(); }}\n",
        copies.join(file)
    );
    let generated = out.join(format!("module_{name}.cpp"));
    write(&generated, &text)?;
    Ok(Module { name, generated })
}

fn registry_text(modules: &[Module]) -> String {
    let mut text = String::from("extern \"C\" {\n");
    let mut calls = String::new();
    for m in modules {
        let _ = writeln!(text, "void emu_register_{}();", m.name);
        let _ = writeln!(calls, "    emu_register_{}();", m.name);
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
