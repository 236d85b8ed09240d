//! The CUDA sources, embedded.
//!
//! A source holds templates of kernels, each with a comment that states what it computes, how
//! threads map to data, its traffic and what it asks of its arguments. [`PRELUDE`] is compiled in
//! front of each. What several modules share beyond it is in headers (`<name>.cuh`), which a module
//! includes by name, without folders.
//!
//! To add a module: write `<name>.cu`, list it in `SOURCES`, and list its instances in
//! `tests/nvrtc/instances.rs`, which compiles them for all architectures and holds their registers.

use crate::executor::Source;

/// Types and helpers that every source may use.
pub const PRELUDE: &str = include_str!("prelude.cuh");

/// Every module and its source.
const SOURCES: [(&str, &str); 27] = [
    ("pack", include_str!("pack.cu")),
    ("packed", include_str!("packed.cu")),
    ("vector", include_str!("vector.cu")),
    ("check", include_str!("check.cu")),
    ("csr", include_str!("csr.cu")),
    ("csr_balanced", include_str!("csr_balanced.cu")),
    ("csr_adaptive", include_str!("csr_adaptive.cu")),
    ("coo", include_str!("coo.cu")),
    ("ell", include_str!("ell.cu")),
    ("dia", include_str!("dia.cu")),
    ("sell", include_str!("sell.cu")),
    ("sellp", include_str!("sellp.cu")),
    ("batch_csr", include_str!("batch_csr.cu")),
    ("batch_coo", include_str!("batch_coo.cu")),
    ("batch_ell", include_str!("batch_ell.cu")),
    ("batch_sellp", include_str!("batch_sellp.cu")),
    ("cg", include_str!("cg.cu")),
    ("bicgstab", include_str!("bicgstab.cu")),
    ("lu", include_str!("lu.cu")),
    ("lu_kept", include_str!("lu_kept.cu")),
    ("lu_substitute", include_str!("lu_substitute.cu")),
    ("lu_verify", include_str!("lu_verify.cu")),
    ("krylov", include_str!("krylov.cu")),
    ("confirm", include_str!("confirm.cu")),
    ("factored", include_str!("factored.cu")),
    ("shift", include_str!("shift.cu")),
    ("diagonal", include_str!("diagonal.cu")),
];

/// Every header and its source.
const HEADERS: [(&str, &str); 16] = [
    ("evaluate.cuh", include_str!("evaluate.cuh")),
    ("solver.cuh", include_str!("solver.cuh")),
    ("fused_task.cuh", include_str!("fused_task.cuh")),
    ("fused_queue.cuh", include_str!("fused_queue.cuh")),
    ("fused_system.cuh", include_str!("fused_system.cuh")),
    ("fused.cuh", include_str!("fused.cuh")),
    ("factor.cuh", include_str!("factor.cuh")),
    ("programs.cuh", include_str!("programs.cuh")),
    ("lu_system.cuh", include_str!("lu_system.cuh")),
    ("lu_sums.cuh", include_str!("lu_sums.cuh")),
    ("lu_kept.cuh", include_str!("lu_kept.cuh")),
    ("krylov.cuh", include_str!("krylov.cuh")),
    ("factored_task.cuh", include_str!("factored_task.cuh")),
    ("invert.cuh", include_str!("invert.cuh")),
    ("factored_system.cuh", include_str!("factored_system.cuh")),
    ("factored.cuh", include_str!("factored.cuh")),
];

/// The names of all modules.
pub fn modules() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|&(name, _)| name)
}

/// The source of a module, without the prelude.
pub fn source(module: &str) -> Option<&'static str> {
    SOURCES.iter().find(|&&(name, _)| name == module).map(|&(_, source)| source)
}

/// What is compiled for a module: prelude, headers and source, marked so that messages of the
/// compiler name real files and lines.
pub fn program(module: &str) -> Option<String> {
    source(module).map(|source| Text::of(module, source, &[]))
}

/// What is compiled for a source of a caller, called `<name>.cu` in messages: as for a module.
pub fn program_of(name: &str, source: &Source) -> String {
    Text::of(name, source.text(), source.headers())
}

/// A program on its way.
struct Text {
    program: String,
    /// Headers of the caller, looked at before those of this crate.
    headers: &'static [(&'static str, &'static str)],
    /// Headers that stand in it.
    seen: Vec<&'static str>,
}

impl Text {
    /// Prelude and source.
    fn of(name: &str, source: &str, headers: &'static [(&'static str, &'static str)]) -> String {
        let program = format!("#line 1 \"prelude.cuh\"\n{PRELUDE}\n");
        let mut text = Self { program, headers, seen: Vec::new() };
        text.append(&format!("{name}.cu"), source);
        text.program
    }

    /// Appends a file with its headers in their places, each once.
    fn append(&mut self, name: &str, source: &str) {
        self.program += &format!("#line 1 \"{name}\"\n");
        for (number, line) in source.lines().enumerate() {
            let included = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
            match included.and_then(|name| self.header(name)) {
                Some((header, _)) if self.seen.contains(&header) => {}
                Some((header, text)) => {
                    self.seen.push(header);
                    self.append(header, text);
                    self.program += &format!("#line {} \"{name}\"\n", number + 2);
                    continue;
                }
                // What only tells compilers of files apart.
                None if line == "#pragma once" => {}
                None => self.program += line,
            }
            self.program += "\n";
        }
    }

    fn header(&self, name: &str) -> Option<(&'static str, &'static str)> {
        self.headers.iter().chain(&HEADERS).copied().find(|header| header.0 == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_by_name_and_hold_their_headers() {
        for module in modules() {
            let program = program(module).unwrap();

            let last = source(module).unwrap().lines().last().unwrap();
            assert!(program.trim_end().ends_with(last), "{module}");
            assert!(!program.contains("#include"), "{module}");
        }
    }

    #[test]
    fn headers_stand_once_and_lines_keep_their_numbers() {
        let source = "int a;\n#include \"solver.cuh\"\n#include \"solver.cuh\"\nint b;\n";

        let program = Text::of("m", source, &[]);

        assert!(program.contains("#line 1 \"m.cu\"\nint a;\n#line 1 \"solver.cuh\"\n"));
        assert!(program.ends_with("\n#line 3 \"m.cu\"\n\nint b;\n"));
        assert_eq!(program.matches("#line 1 \"solver.cuh\"").count(), 1);
    }

    static OWN_TEXT: &str = "#include \"a.cuh\"\n";

    #[test]
    fn a_caller_has_headers_of_its_own() {
        static OWN: Source = Source::with_headers(
            "#include \"b.cuh\"\n#include \"a.cuh\"\nint c;\n",
            &[("a.cuh", "#pragma once\nint a;\n"), ("b.cuh", "#include \"a.cuh\"\nint b;\n")],
        );

        let program = program_of("own", &OWN);

        let lines = program.split_once("#line 1 \"own.cu\"\n").unwrap().1;
        let plain: Vec<&str> = lines.lines().filter(|line| line.starts_with("int")).collect();
        assert_eq!(plain, ["int a;", "int b;", "int c;"]);
        assert!(!lines.contains("#include") && !lines.contains("#pragma"), "{lines}");
        // The same text with other headers is another source.
        static OTHER: Source = Source::with_headers(OWN_TEXT, &[("a.cuh", "int d;\n")]);
        static SAME_TEXT: Source = Source::new(OWN_TEXT);
        assert_ne!(OTHER, SAME_TEXT);
        assert_eq!(SAME_TEXT, Source::new(OWN_TEXT));
    }

    #[test]
    fn unknown_modules_have_no_source() {
        assert_eq!(source("none"), None);
        assert_eq!(program("none"), None);
    }
}
