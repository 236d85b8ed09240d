//! Shared memory declarations in kernel source, before and after the build's rewriting.

#[path = "../../build/rewrite.rs"]
mod build;

use build::rewrite;

/// Rewrites the body of a kernel.
fn body(text: &str) -> Result<String, String> {
    let out = rewrite(&format!("__global__ void k() {{{text}}}"))?;
    Ok(out.trim_start_matches("__global__ void k() {").trim_end_matches('}').to_owned())
}

/// What a static variable becomes.
fn object(base: &str, declarator: &str, name: &str, alignment: &str) -> String {
    format!(
        "static char emu_tag_{name}; typedef {base} {declarator}; emu_type_{name}& {name} = \
         ::emu::static_shared<emu_type_{name}>(&emu_tag_{name}, {alignment});"
    )
}

#[test]
fn static_variables_become_references() {
    let sums = object("V", "emu_type_sums[BLOCK / 32]", "sums", "1");

    assert_eq!(
        body(" __shared__ V sums[BLOCK / 32]; use(sums);"),
        Ok(format!(" {sums} use(sums);"))
    );
    assert_eq!(body("__shared__ bool done;"), Ok(object("bool", "emu_type_done", "done", "1")));
    assert_eq!(
        body("__shared__ __align__(16) Pair<int, 4> tile[(A > 2)][8];"),
        Ok(object("Pair<int, 4>", "emu_type_tile[(A > 2)][8]", "tile", "16"))
    );
}

#[test]
fn one_declaration_may_have_several_variables() {
    let expected = [
        object("unsigned int", "emu_type_a", "a", "1"),
        object("unsigned int", "*emu_type_b", "b", "1"),
        object("unsigned int", "emu_type_c[N]", "c", "1"),
    ];

    assert_eq!(body("__shared__ unsigned int a, *b, c[N];"), Ok(expected.join(" ")));
}

#[test]
fn dynamic_memory_becomes_a_pointer() {
    let raw = "unsigned char* const raw = ::emu::dynamic_shared<unsigned char>();";

    for text in [
        "extern __shared__ unsigned char raw[];",
        "extern __shared__ __align__(16) unsigned char raw[ ];",
        "extern __align__(128) __shared__ unsigned char raw[];",
    ] {
        assert_eq!(body(text).as_deref(), Ok(raw));
    }
}

#[test]
fn lines_keep_their_numbers() {
    let text = "{ int a;\n  // note\n  __shared__\n    double // why\n  x[4];\n  int b; }\n";

    let out = rewrite(text).unwrap();

    assert_eq!(out.lines().count(), text.lines().count());
    assert_eq!(out.lines().nth(5), Some("  int b; }"));
}

#[test]
fn comments_text_and_other_code_stay() {
    let text = "// __shared__ int a;\n/* __shared__ */ #define A 1\nauto s = \"__shared__ x\\\"\"; \
                int n = 1'000; char c = '\"';\n#define B 2 \\\n  3\n";

    assert_eq!(rewrite(text).as_deref(), Ok(text));
}

#[test]
fn what_is_not_understood_is_an_error_with_its_line() {
    for (text, reason) in [
        ("\n#define S __shared__ int s;\n", "2: __shared__ inside a macro"),
        ("namespace a {\n__shared__ int s;\n}", "2: __shared__ outside of a function"),
        ("extern \"C\" {\n\nextern __shared__ int s[];\n}", "3: __shared__ outside of a function"),
        ("void k() { __shared__ int s = 3; }", "1: unexpected ="),
        ("void k() { __shared__ int s[]; }", "1: __shared__ s has no size"),
        ("void k() { extern __shared__ int s[3]; }", "1: extern __shared__ s is not an array"),
        ("void k() { __shared__ s; }", "1: no type"),
        ("void k() { __shared__ int s }", "1: no ; after __shared__"),
    ] {
        let error = rewrite(text).unwrap_err();
        assert!(error.starts_with(reason), "{text}: {error}");
    }
}
