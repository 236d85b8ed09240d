//! Divides the instances of a module into source files that are compiled separately: all processors
//! have work, and a changed list is compiled again only in part.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use crate::{Module, read, write};

/// A source file with some instances of a module.
pub(crate) struct Part {
    /// That of the module with a number.
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    /// The folder of headers that the module includes beside its own.
    pub(crate) headers: Option<PathBuf>,
    /// The preprocessed text of the module. The object depends only on it, the instances, the
    /// compiler and its options.
    pub(crate) before: Arc<str>,
    /// The instances, as `EMU_REGISTER(...)`, a line each.
    pub(crate) registrations: String,
}

/// Source files with at most `at_once` instances each.
pub(crate) fn cut(
    build: &cc::Build,
    modules: &[Module],
    at_once: usize,
    out: &Path,
) -> Result<Vec<Part>, String> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut parts = Vec::new();
    for modules in modules.chunks(threads) {
        let cut = thread::scope(|scope| {
            let cut = |module| scope.spawn(move || parts_of(build, module, at_once, out));
            let running: Vec<_> = modules.iter().map(cut).collect();
            running.into_iter().map(|one| one.join().expect("no part panics")).collect::<Vec<_>>()
        });
        for of_module in cut {
            parts.extend(of_module?);
        }
    }
    Ok(parts)
}

/// Separates the module's text from its instances where both are preprocessed together.
const INSTANCES_FROM_HERE: &str = "emu_instances_from_here";

fn parts_of(
    build: &cc::Build,
    module: &Module,
    at_once: usize,
    out: &Path,
) -> Result<Vec<Part>, String> {
    let Module { name, includes, headers, instances, .. } = module;
    let list = match instances {
        Some(list) => read(list)?,
        None => String::new(),
    };
    let head =
        format!("#include \"cuda_emu.h\"\n#define EMU_MODULE \"{name}\"\nnamespace {{\n{includes}");
    let whole = out.join(format!("whole_{name}.cpp"));
    write(&whole, &format!("{head}\n#undef EMU_REGISTER\n{INSTANCES_FROM_HERE}\n{list}\n}}\n"))?;
    // Nothing in the text depends on where the checkout is.
    let mut build = build.clone();
    build.includes(headers);
    let text = build.flag_if_supported("-fno-working-directory").file(&whole).try_expand();
    let text = text.map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&text);
    let (before, list) =
        text.split_once(INSTANCES_FROM_HERE).ok_or("the preprocessor has lost a word")?;
    // Line markers name files of this build.
    let before: Arc<str> = before.replace(&out.display().to_string(), "").into();

    registrations(list)?
        .chunks(at_once)
        .enumerate()
        .map(|(number, registrations)| {
            let name = format!("{name}_{number}");
            let registrations = registrations.join("\n    ");
            // The unnamed namespace keeps equal names of different modules apart.
            let text = format!(
                "{head}void emu_register_instances() {{\n    {registrations}\n}}\n}} // namespace\n\
                 extern \"C\" void emu_register_{name}() {{ emu_register_instances(); }}\n"
            );
            let file = out.join(format!("part_{name}.cpp"));
            write(&file, &text)?;
            let (headers, before) = (headers.clone(), Arc::clone(&before));
            Ok(Part { name, file, headers, before, registrations })
        })
        .collect()
}

/// The `EMU_REGISTER(...)` of a preprocessed list.
fn registrations(list: &str) -> Result<Vec<String>, String> {
    let starts = list.match_indices("EMU_REGISTER(").map(|(at, _)| at);
    let one = |at: usize| {
        let mut depth = 0;
        let end = list[at..].find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ')' && depth == 0
        });
        let end = end.ok_or_else(|| format!("no end: {}", &list[at..]))?;
        let words: Vec<&str> = list[at..=at + end].split_whitespace().collect();
        Ok(words.join(" "))
    };
    starts.map(one).collect()
}
