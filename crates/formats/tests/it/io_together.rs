//! Files that belong together: right-hand sides beside their matrices, and what else lies there.

use std::path::{Path, PathBuf};

use sparsebatch_formats::io::{LoadOptions, Loaded, MemoryLimit, load};
use sparsebatch_formats::{Batch, FormatError};

const HEADER: &str = "%%MatrixMarket matrix coordinate real general\n";
const ARRAY: &str = "%%MatrixMarket matrix array real general\n";

/// A folder with these files in it, made of names and contents.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

fn diagonal(values: &[f64]) -> String {
    let n = values.len();
    let mut text = format!("{HEADER}{n} {n} {n}\n");
    for (row, value) in values.iter().enumerate() {
        text += &format!("{0} {0} {value}\n", row + 1);
    }
    text
}

fn column(values: &[f64]) -> String {
    let lines: String = values.iter().map(|value| format!("{value}\n")).collect();
    format!("{ARRAY}{} 1\n{lines}", values.len())
}

fn systems(paths: &[PathBuf], skip_bad: bool) -> Result<Loaded, FormatError> {
    load(paths, LoadOptions { skip_bad, systems: true, ..LoadOptions::default() })
}

fn names(paths: impl IntoIterator<Item = impl AsRef<Path>>, folder: &Path) -> Vec<String> {
    let name = |path: &Path| path.strip_prefix(folder).unwrap().display().to_string();
    paths.into_iter().map(|path| name(path.as_ref())).collect()
}

#[test]
fn right_hand_sides_beside_matrices_are_theirs() {
    let row = format!("{ARRAY}1 2\n5\n6\n");
    let sparse = format!("{HEADER}3 1 1\n2 1 -4\n");
    let folder = folder(&[
        ("a.mtx", &diagonal(&[1.0, 2.0])),
        ("a_b.mtx", &row),
        ("c.mtx", &diagonal(&[1.0])),
        ("e.mtx", &diagonal(&[1.0, 2.0, 3.0])),
        ("e_rhs.vec", &sparse),
    ]);

    for paths in [
        vec![folder.path().to_owned()],
        ["a.mtx", "a_b.mtx", "c.mtx", "e_rhs.vec", "e.mtx"]
            .map(|name| folder.path().join(name))
            .to_vec(),
    ] {
        for is_systems in [true, false] {
            let options = LoadOptions { systems: is_systems, ..LoadOptions::default() };
            let loaded = load(&paths, options).unwrap();

            assert_eq!(names(&loaded.names, folder.path()), ["a.mtx", "c.mtx", "e.mtx"]);
            assert_eq!(loaded.rhs.unwrap(), [5.0, 6.0, 1.0, 0.0, -4.0, 0.0]);
            assert_eq!(loaded.has_rhs, [true, false, true]);
            assert!(loaded.skipped.is_empty() && loaded.ignored.is_empty());
        }
    }
}

#[test]
fn a_matrix_that_is_named_as_a_right_hand_side_is_a_matrix() {
    let folder = folder(&[
        ("a.mtx", &diagonal(&[1.0, 2.0])),
        ("a_b.mtx", &diagonal(&[3.0, 4.0])),
        ("lone_b.mtx", &diagonal(&[5.0, 6.0])),
    ]);

    let loaded = systems(&[folder.path().to_owned()], false).unwrap();

    assert_eq!(names(&loaded.names, folder.path()), ["a.mtx", "a_b.mtx", "lone_b.mtx"]);
    assert_eq!(loaded.rhs, None);
}

#[test]
fn folders_of_systems_are_trees() {
    let folder = folder(&[
        ("0/A.mtx", &diagonal(&[1.0, 2.0])),
        ("0/b.mtx", &column(&[7.0, 8.0])),
        ("0/x.mtx", &column(&[0.0, 0.0])),
        ("1/A.mtx", &diagonal(&[3.0, 4.0])),
        ("1/notes", "none"),
        ("group/sys/sys.mtx", &diagonal(&[5.0, 6.0])),
        ("group/sys/sys_b.mtx", &column(&[9.0, 10.0])),
        ("group/sys/sys_coord.mtx", "no matrix at all"),
        ("other/any.mtx", "bad"),
        ("deep/er/than/A.mtx", "bad"),
    ]);

    let loaded = systems(&[folder.path().to_owned()], false).unwrap();

    assert_eq!(names(&loaded.names, folder.path()), ["0/A.mtx", "1/A.mtx", "group/sys/sys.mtx"]);
    assert_eq!(loaded.rhs.unwrap(), [7.0, 8.0, 1.0, 1.0, 9.0, 10.0]);
    assert!(matches!(loaded.batch, Batch::Uniform(_)));
    assert_eq!(
        names(&loaded.ignored, folder.path()),
        ["0/x.mtx", "1/notes", "group/sys/sys_coord.mtx"]
    );
    let item = systems(&[folder.path().join("0")], false).unwrap();
    assert_eq!(item.rhs.unwrap(), [7.0, 8.0]);
    assert_eq!(names(&item.names, folder.path()), ["0/A.mtx"]);
}

#[test]
fn a_right_hand_side_that_does_not_fit_is_refused_or_skipped_with_its_matrix() {
    let good = diagonal(&[1.0]);
    let cases: [(&str, String, &str); 3] = [
        ("sys_b.mtx", column(&[1.0; 3]), "right-hand side: expected 2 values, one for each row of"),
        (
            "sys_b.mtx",
            format!("{ARRAY}2 3\n1\n2\n3\n4\n5\n6\n"),
            "one column or one row, found 2 x 3",
        ),
        (
            "sys_rhs.mtx",
            "%%MatrixMarket matrix".to_owned(),
            "sys_rhs.mtx:1:22: expected coordinate",
        ),
    ];
    for (name, content, expected) in cases {
        let folder =
            folder(&[("good.mtx", &good), ("sys.mtx", &diagonal(&[1.0, 2.0])), (name, &content)]);
        let path = [folder.path().to_owned()];

        let error = systems(&path, false).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(name), "{error}");
        let loaded = systems(&path, true).unwrap();
        assert_eq!(names(&loaded.names, folder.path()), ["good.mtx"]);
        let skipped = names(loaded.skipped.iter().map(|(path, _)| path), folder.path());
        assert_eq!(skipped, [name, "sys.mtx"]);
        let why = loaded.skipped[1].1.to_string();
        assert!(why.contains(&format!("{name}, which was left out")), "{why}");
    }
}

#[test]
fn two_right_hand_sides_of_one_matrix_are_too_many() {
    let folder = folder(&[
        ("s.mtx", &diagonal(&[1.0])),
        ("s_b.mtx", &column(&[2.0])),
        ("s_rhs.mtx", &column(&[3.0])),
    ]);

    let error = systems(&[folder.path().to_owned()], false).unwrap_err().to_string();

    assert!(error.contains("right-hand sides: expected one, found"), "{error}");
    assert!(error.contains("s_rhs.mtx beside") && error.contains("s_b.mtx"), "{error}");
}

#[test]
fn what_is_not_square_cannot_be_solved_and_is_skipped() {
    let rectangular = format!("{HEADER}3 2 3\n1 1 1\n2 2 1\n3 1 1\n");
    let folder = folder(&[("rect.mtx", &rectangular), ("square.mtx", &diagonal(&[1.0, 1.0]))]);
    let path = [folder.path().to_owned()];

    let error = systems(&path, false).unwrap_err().to_string();
    let loaded = systems(&path, true).unwrap();

    assert!(error.contains("rect.mtx: matrix: expected a square one"), "{error}");
    assert!(error.ends_with("found 3 x 2"), "{error}");
    assert_eq!(names(&loaded.names, folder.path()), ["square.mtx"]);
    assert_eq!(loaded.skipped.len(), 1);
    assert_eq!(load(&path, LoadOptions::default()).unwrap().batch.nitems(), 2);
}

#[test]
fn other_data_beside_a_matrix_is_ignored_where_systems_are_read() {
    let folder = folder(&[
        ("s.mtx", &diagonal(&[1.0, 2.0])),
        ("s_x.mtx", &column(&[0.5, 0.5])),
        ("s_coord.mtx", &format!("{ARRAY}2 3\n1\n2\n3\n4\n5\n6\n")),
    ]);

    let loaded = systems(&[folder.path().to_owned()], false).unwrap();

    assert_eq!(names(&loaded.names, folder.path()), ["s.mtx"]);
    assert_eq!(names(&loaded.ignored, folder.path()), ["s_coord.mtx", "s_x.mtx"]);
    // By its own name it is meant.
    let named = systems(&[folder.path().join("s.mtx"), folder.path().join("s_x.mtx")], false);
    assert!(named.unwrap_err().to_string().contains("s_x.mtx: matrix: expected a square one"));
}

#[test]
fn systems_with_many_empty_rows_are_refused_without_memory() {
    let text = format!("{HEADER}64000000 64000000 1\n1 1 1\n");
    let folder = folder(&[("a.mtx", &text)]);

    let error = systems(&[folder.path().to_owned()], false).unwrap_err().to_string();

    assert!(
        error.ends_with(
            "a.mtx: rows: expected at most 65537 in a system of 1 entries, since others are empty, \
             found 64000000"
        ),
        "{error}"
    );
    let few = format!("{HEADER}65537 65537 1\n1 1 1\n");
    std::fs::write(folder.path().join("a.mtx"), few).unwrap();
    assert_eq!(systems(&[folder.path().to_owned()], false).unwrap().batch.row_offset(1), 65_537);
}

#[test]
fn memory_is_that_of_all_files_and_of_the_caller() {
    let folder = folder(&[("a.mtx", &diagonal(&[1.0; 100])), ("b.mtx", &diagonal(&[1.0; 99]))]);
    let read = |memory: u64, bytes_per_row: u64, skip_bad: bool| {
        let memory = MemoryLimit::bytes(memory);
        let options = LoadOptions { memory, bytes_per_row, skip_bad, ..LoadOptions::default() };
        load(&[folder.path().to_owned()], options)
    };

    // 1,600 bytes of each, 2,800 while it is read; joined they are twice there.
    assert!(read(6500, 0, false).is_ok());
    for (memory, bytes_per_row) in [(3100, 0), (4000, 0), (5000, 0), (6500, 100)] {
        let error = read(memory, bytes_per_row, true).unwrap_err();
        assert!(matches!(error.innermost(), FormatError::MemoryLimit { .. }), "{error}");
    }
}
