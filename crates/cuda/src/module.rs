//! CUDA sources: [`Module`].
//!
//! A source holds kernel templates. The comment of each states what it computes, how threads map to
//! data, its memory traffic and the requirements on its arguments. [`PRELUDE`] is compiled in front
//! of each source. Other code that modules share is in headers (`<name>.cuh`), which a source
//! includes by name, without folders.

use std::hash::{Hash, Hasher};

/// Types and helpers that every source may use.
pub const PRELUDE: &str = include_str!("kernels/prelude.cuh");

/// The name and the text of a header.
pub type Header = (&'static str, &'static str);

/// A CUDA source with the headers that it includes. Kernels are compiled from it at run time, with
/// [`PRELUDE`] in front.
///
/// Two modules are equal if they have the same name and refer to the same texts in memory.
///
/// # Examples
/// ```
/// use sparsebatch_cuda::{KernelKey, Module};
/// static SQUARES: Module = Module::new(
///     "squares",
///     "template <typename V> __global__ void squares(u32 len, V* values) {
///          const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
///          if (i < len) values[i] *= values[i];
///      }",
///     &[],
/// );
/// let key = KernelKey::new(&SQUARES, "squares<double>");
/// assert_eq!(key.to_string(), "squares.cu: squares<double>");
/// ```
#[derive(Debug)]
pub struct Module {
    name: &'static str,
    text: &'static str,
    headers: &'static [Header],
}

impl Module {
    /// A module called `<name>.cu` in messages. `headers` are those that the source, or another of
    /// these headers, includes by a line `#include "name"`; each is compiled once. A header that is
    /// not among them is left to the compiler, which knows no headers.
    pub const fn new(name: &'static str, text: &'static str, headers: &'static [Header]) -> Self {
        Self { name, text, headers }
    }

    /// The name, without `.cu`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The text to compile: prelude, headers and source, with `#line` marks so that compiler
    /// messages name the real files and lines.
    pub fn program(&self) -> String {
        let program = format!("#line 1 \"prelude.cuh\"\n{PRELUDE}\n");
        let mut text = Text { program, headers: self.headers, seen: Vec::new() };
        text.append(&format!("{}.cu", self.name), self.text);
        text.program
    }
}

impl PartialEq for Module {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && std::ptr::eq(self.text, other.text)
            && std::ptr::eq(self.headers, other.headers)
    }
}

impl Eq for Module {}

impl Hash for Module {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.text.as_ptr().hash(state);
    }
}

/// A program text under construction.
struct Text {
    program: String,
    headers: &'static [Header],
    /// Headers that the program contains already.
    seen: Vec<&'static str>,
}

impl Text {
    /// Appends a file, with each header inserted at its first `#include`.
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
                // Has no meaning in a single program text.
                None if line == "#pragma once" => {}
                None => self.program += line,
            }
            self.program += "\n";
        }
    }

    fn header(&self, name: &str) -> Option<Header> {
        self.headers.iter().copied().find(|header| header.0 == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stand_once_and_lines_keep_their_numbers() {
        static M: Module = Module::new(
            "m",
            "int a;\n#include \"h.cuh\"\n#include \"h.cuh\"\nint b;\n",
            &[("h.cuh", "int h;\n")],
        );

        let program = M.program();

        assert!(program.contains("#line 1 \"m.cu\"\nint a;\n#line 1 \"h.cuh\"\nint h;\n"));
        assert!(program.ends_with("\n#line 3 \"m.cu\"\n\nint b;\n"));
        assert_eq!(program.matches("#line 1 \"h.cuh\"").count(), 1);
    }

    #[test]
    fn headers_have_headers() {
        static M: Module = Module::new(
            "m",
            "#include \"b.cuh\"\n#include \"a.cuh\"\nint c;\n",
            &[("a.cuh", "#pragma once\nint a;\n"), ("b.cuh", "#include \"a.cuh\"\nint b;\n")],
        );

        let program = M.program();

        let lines = program.split_once("#line 1 \"m.cu\"\n").unwrap().1;
        let plain: Vec<&str> = lines.lines().filter(|line| line.starts_with("int")).collect();
        assert_eq!(plain, ["int a;", "int b;", "int c;"]);
        assert!(!lines.contains("#include") && !lines.contains("#pragma"), "{lines}");
    }

    #[test]
    fn the_same_text_with_other_headers_is_another_module() {
        const TEXT: &str = "#include \"a.cuh\"\n";
        static WITH: Module = Module::new("m", TEXT, &[("a.cuh", "int d;\n")]);
        static WITHOUT: Module = Module::new("m", TEXT, &[]);

        assert_ne!(WITH, WITHOUT);
        assert_eq!(WITHOUT, WITHOUT);
    }
}
