//! The CUDA sources, embedded.
//!
//! A source holds templates of kernels, each with a comment that states what it computes, how
//! threads map to data, its traffic and what it asks of its arguments. Sources include no headers.
//! [`PRELUDE`] is compiled in front of each.
//!
//! To add a module: write `<name>.cu`, list it in `SOURCES`, and list its instances in
//! `tests/nvrtc.rs`, which compiles them for all architectures and holds their registers.

/// Types and helpers that every source may use.
pub const PRELUDE: &str = include_str!("prelude.cuh");

/// Every module and its source.
const SOURCES: [(&str, &str); 17] = [
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
];

/// The names of all modules.
pub fn modules() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|&(name, _)| name)
}

/// The source of a module, without the prelude.
pub fn source(module: &str) -> Option<&'static str> {
    SOURCES.iter().find(|&&(name, _)| name == module).map(|&(_, source)| source)
}

/// What is compiled for a module: prelude and source, marked so that messages of the compiler name
/// real files and lines.
pub fn program(module: &str) -> Option<String> {
    let source = source(module)?;
    Some(format!("#line 1 \"prelude.cuh\"\n{PRELUDE}\n#line 1 \"{module}.cu\"\n{source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_by_name_and_need_no_headers() {
        for module in modules() {
            let program = program(module).unwrap();

            assert!(program.contains(source(module).unwrap()));
            assert!(!program.contains("#include"), "{module}");
        }
    }

    #[test]
    fn unknown_modules_have_no_source() {
        assert_eq!(source("none"), None);
        assert_eq!(program("none"), None);
    }
}
