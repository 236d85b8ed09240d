//! Where tests find the real matrices, which are no part of the repository.

use std::path::{Path, PathBuf};

/// The folder of test data: the environment variable `SPARSEBATCH_DATA`, else `shared` beside the
/// repository. `None`, with a line on stderr that says so, when there is no such folder: tests
/// that need it are skipped then.
pub fn shared_dir() -> Option<PathBuf> {
    let dir = match std::env::var_os("SPARSEBATCH_DATA") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!(
        "skipped: no test data at {}; set SPARSEBATCH_DATA to its folder",
        dir.display()
    );
    None
}
