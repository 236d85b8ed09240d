//! The example data, and real sets of matrices where they are at hand.

use std::path::PathBuf;

use crate::common::{ALPHA13, Folder, root, run};
use sparsebatch_testing::shared_dir;

#[test]
fn the_ragged_example_folder_is_what_its_readme_generates() {
    let readme = std::fs::read_to_string(root().join("examples/data/README.md")).unwrap();
    let commands: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.trim().strip_prefix("sparsebatch generate "))
        .collect();
    assert_eq!(commands.len(), 6);
    let folder = Folder::new();
    for command in commands {
        let args: Vec<&str> = ["generate", "-q"].into_iter().chain(command.split(' ')).collect();
        assert_eq!(folder.run(&args).code, 0, "{command}");
    }
    for name in folder.names() {
        let ours = std::fs::read(root().join("examples/data/ragged").join(&name)).unwrap();
        assert!(ours == std::fs::read(folder.path().join(&name)).unwrap(), "{name}");
    }
    assert_eq!(folder.names().len(), 6);
}

/// A file among the sets that are not part of the repository.
fn shared(name: &str) -> Option<PathBuf> {
    shared_dir().map(|folder| folder.join(name))
}

#[test]
fn the_small_batch_is_every_fifth_system_of_the_whole() {
    let Some(whole) = shared("astro/batch_alpha13.bin") else {
        return;
    };
    let folder = Folder::new();

    let run =
        folder.run(&["convert", whole.to_str().unwrap(), "small.batch", "--items", "0..240:5"]);

    assert_eq!(run.code, 0, "{run:?}");
    let small = std::fs::read(folder.path().join("small.batch")).unwrap();
    assert!(small == std::fs::read(root().join(ALPHA13)).unwrap());
}

#[test]
fn a_combustion_batch_converges() {
    let Some(gri30) = shared("matrices/batch/gri30.batch") else {
        return;
    };
    let args =
        ["solve", gri30.to_str().unwrap(), "--solver", "bicgstab", "--precond", "jacobi", "--json"];

    let run = run(&args);

    assert_eq!(run.code, 0, "{run:?}");
    let json = run.json();
    assert_eq!(json["converged"], json["systems"]);
    assert!(json["max_relative_residual"].as_f64().unwrap() <= 1e-10);
}

/// Those of the small matrices that are singular.
const SINGULAR: [&str; 7] =
    ["GD02_a", "USAir97", "dwt_607", "dwt_918", "dwt_992", "jgl011", "mbeacxc"];

#[test]
fn the_ladder_solves_every_small_matrix_that_is_not_singular() {
    let Some(small) = shared("matrices/small") else {
        return;
    };
    let args = ["solve", small.to_str().unwrap(), "--fallback", "--rtol", "1e-8", "--json", "-v"];

    let run = run(&args);

    assert!([0, 3].contains(&run.code), "{run:?}");
    let json = run.json();
    let items = json["items"].as_array().unwrap();
    assert_eq!(items.len(), 24);
    for item in items {
        let name = item["name"].as_str().unwrap();
        let converged = item["status"] == "Converged";
        let singular = SINGULAR.iter().any(|s| name.ends_with(&format!("{s}.mtx")));
        assert!(converged || singular, "{item}");
        let residual = item["relative_residual"].as_f64();
        assert!(!converged || residual.unwrap() <= 1e-8, "{item}");
    }
}

#[test]
fn a_complex_matrix_among_the_large_ones_is_refused_by_name() {
    let Some(complex) = shared("matrices/large/conf5_0-4x4-18.mtx.gz") else {
        return;
    };
    run(&["info", complex.to_str().unwrap()]).assert_bad_input(&["complex"]);
}
