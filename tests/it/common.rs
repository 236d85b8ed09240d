//! Runs the built program.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// What a run of the program gave.
#[derive(Debug)]
pub(crate) struct Run {
    /// The exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Run {
    /// The JSON object on stdout: exactly one line.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Asserts bad input: code 2, nothing on stdout, one line on stderr that holds each part.
    pub(crate) fn assert_bad_input(&self, parts: &[&str]) {
        assert_eq!(self.code, 2, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is missing: {self:?}");
        }
    }
}

/// Names the program where the tests have left the machine that built them. They are in the repository's root
/// then.
const PROGRAM: &str = "SPARSEBATCH_PROGRAM";

fn program() -> OsString {
    std::env::var_os(PROGRAM).unwrap_or_else(|| env!("CARGO_BIN_EXE_sparsebatch").into())
}

/// Runs the program in a folder.
pub(crate) fn run_in<S: AsRef<std::ffi::OsStr>>(folder: &Path, args: &[S]) -> Run {
    let output = Command::new(program())
        .args(args)
        .current_dir(folder)
        .output()
        .expect("the program starts");
    finished(output)
}

/// Runs the program in a folder with these bytes as its standard input.
pub(crate) fn run_on<S: AsRef<std::ffi::OsStr>>(folder: &Path, input: &[u8], args: &[S]) -> Run {
    let mut child = Command::new(program())
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // It need not read to the end.
    let _ = stdin.write_all(input);
    drop(stdin);
    finished(child.wait_with_output().expect("the program ends"))
}

/// Runs the program in the repository root with these variables.
pub(crate) fn run_with(variables: &[(&str, &Path)], args: &[&str]) -> Run {
    let output = Command::new(program())
        .args(args)
        .envs(variables.iter().copied())
        .current_dir(root())
        .output()
        .expect("the program starts");
    finished(output)
}

/// Runs the program in the repository root.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Run {
    run_in(root(), args)
}

/// What a finished process gave.
pub(crate) fn finished(output: Output) -> Run {
    Run {
        code: output.status.code().expect("no signal ended the program"),
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    }
}

/// The repository root.
pub(crate) fn root() -> &'static Path {
    let left = std::env::var_os(PROGRAM).is_some();
    Path::new(if left { "." } else { env!("CARGO_MANIFEST_DIR") })
}

/// The example batch.
pub(crate) const ALPHA13: &str = "examples/data/alpha13_small.batch";

/// A temporary folder with files in it.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    /// An empty folder.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file and gives its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).expect("a folder in the temporary folder");
        }
        std::fs::write(&path, content).expect("a file in the temporary folder");
        path
    }

    /// The names in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the temporary folder");
        let name = |e: std::io::Result<std::fs::DirEntry>| e.expect("an entry").file_name();
        let mut names: Vec<String> =
            entries.map(|e| name(e).into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    /// Runs the program in it.
    pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Run {
        run_in(self.path(), args)
    }
}

/// A 3 x 3 symmetric positive definite matrix.
pub(crate) const SPD: &str = "%%MatrixMarket matrix coordinate real general
3 3 7
1 1 4
1 2 -1
2 1 -1
2 2 4
2 3 -1
3 2 -1
3 3 4
";

/// A uniform `.batch` file of 2 x 2 systems [a 0; 0 b] with the right-hand sides given.
pub(crate) fn diagonal_batch(systems: &[([f64; 2], [f64; 2])]) -> Vec<u8> {
    let mut bytes = b"BATCH001".to_vec();
    for size in [systems.len() as u64, 2, 2] {
        bytes.extend(size.to_le_bytes());
    }
    for index in [0i32, 1, 2, 0, 1] {
        bytes.extend(index.to_le_bytes());
    }
    let values = systems.iter().flat_map(|(values, _)| values);
    let rhs = systems.iter().flat_map(|(_, rhs)| rhs);
    for number in values.chain(rhs) {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}
