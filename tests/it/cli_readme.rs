//! The README and the CI script promise what is there.

use crate::common::{ALPHA13, Folder, SPD, root, run};

fn text(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// The lines of shell blocks that start with `start`.
fn commands(text: &str, start: &str) -> Vec<String> {
    let mut shell = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            shell = language == "sh";
        } else if shell && line.starts_with(start) {
            found.push(line.split(" #").next().unwrap_or(line).trim().to_owned());
        }
    }
    found
}

#[test]
fn the_first_command_solves_the_example_batch_and_the_second_runs_the_tests() {
    let cargo = commands(&text("README.md"), "cargo ");

    assert_eq!(cargo[0], format!("cargo run --release -- solve {ALPHA13}"));
    assert_eq!(cargo[1], "cargo test --workspace --release");
    let solved = run(&["solve", ALPHA13]);
    assert_eq!(solved.code, 0, "{solved:?}");
}

#[test]
fn every_command_of_the_readme_is_understood() {
    let folder = Folder::new();
    folder.file("m.mtx", SPD);
    folder.file("b.mtx", "%%MatrixMarket matrix array real general\n3 1\n3\n2\n3\n");
    std::fs::create_dir_all(folder.path().join("examples/data/ragged")).unwrap();
    for entry in std::fs::read_dir(root().join("examples/data/ragged")).unwrap() {
        let from = entry.unwrap().path();
        let to = folder.path().join("examples/data/ragged").join(from.file_name().unwrap());
        std::fs::copy(from, to).unwrap();
    }

    let found = commands(&text("README.md"), "sparsebatch ");

    assert!(found.len() >= 5, "{found:?}");
    for command in found {
        let args: Vec<&str> = command.split_whitespace().skip(1).collect();
        let run = folder.run(&args);
        assert_eq!(run.code, 0, "{command}: {run:?}");
    }
}

#[test]
fn the_ci_script_takes_its_commands_from_the_readme() {
    let script = text(".ci/run");

    assert!(script.contains("set -euo pipefail"));
    assert!(script.contains("readme_command 1") && script.contains("readme_command 2"));
    let steps = [
        "cargo fmt --all --check",
        "-D warnings",
        "eval \"$tests\"",
        "eval \"$first\"",
        "target/release/examples/$name",
        "broken_intra_doc_links",
        "scripts/emu-asan.sh",
    ];
    for step in steps {
        assert!(script.contains(step), "{step}");
    }
}

#[test]
fn json_fields_are_documented() {
    let documented = text("docs/json.md");
    let outputs = [
        run(&["solve", ALPHA13, "--json", "-v", "--kernel", "rows"]),
        run(&["spmv", ALPHA13, "--json"]),
        run(&["info", ALPHA13, "--json"]),
        run(&["doctor", "--json"]),
        run(&["corpus", "list", "--into", "examples", "--json"]),
    ];
    for output in outputs {
        let serde_json::Value::Object(object) = output.json() else {
            panic!("an object: {output:?}")
        };
        let inner = ["times_ms", "product_cost", "choice", "gpu_device", "driver", "nvrtc"]
            .map(|key| object.get(key).cloned());
        let first =
            ["items", "kernels", "tests", "matrices"].map(|key| object.get(key)?.get(0).cloned());
        let objects = inner.into_iter().chain(first).flatten();
        let nested = objects.filter_map(|value| value.as_object().cloned());
        for (key, _) in nested.flatten().chain(object) {
            assert!(documented.contains(&format!("`{key}`")), "{key}");
        }
    }
}

#[test]
fn the_documents_exist_and_name_each_other() {
    let readme = text("README.md");
    for name in [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/json.md",
        "examples/data/README.md",
    ] {
        assert!(readme.contains(&format!("]({name})")), "{name}");
        assert!(!text(name).is_empty(), "{name}");
    }
}
