//! Output files that appear whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::source::io_error;
use crate::FormatError;

/// Removes the temporary file unless it was renamed.
struct Temporary {
    path: PathBuf,
    keep: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.keep {
            // Nothing better can be done with a failure here.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Creates a new file beside `target`, under a name that no other writer uses.
fn create_beside(target: &Path) -> io::Result<(Temporary, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = target.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "the path does not name a file")
    })?;
    loop {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}-{number}.tmp", std::process::id()));
        let path = target.with_file_name(temporary);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((Temporary { path, keep: false }, file)),
            Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => {}
            Err(other) => return Err(other),
        }
    }
}

/// Writes a file through `write`, so that `path` holds either the whole new content or what was
/// there before.
///
/// The content goes to a temporary file in the same folder, which is renamed to `path` at the end
/// and removed when `write` or the system fails (also on a panic). A symbolic link stays and its
/// target is replaced; permissions of a file that is replaced are kept, and a read-only one is not
/// replaced. Devices and pipes, which cannot be replaced, are written directly. The data is not
/// forced to disk.
///
/// # Errors
/// The error of `write`, or [`FormatError::Io`] with `path` when the system refuses.
///
/// # Examples
/// ```
/// use std::io::Write;
/// use sparsebatch_formats::{FormatError, io::atomic_write};
///
/// let path = std::env::temp_dir().join("sparsebatch_atomic_write_example.txt");
/// atomic_write(&path, |w| {
///     w.write_all(b"whole").map_err(|source| FormatError::Io { path: path.clone(), source })
/// })?;
/// assert_eq!(std::fs::read(&path).unwrap(), b"whole");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), FormatError>(())
/// ```
pub fn atomic_write(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let path = path.as_ref();
    let existing = std::fs::metadata(path).ok();
    if existing.as_ref().is_some_and(std::fs::Metadata::is_dir) {
        return Err(io_error(path)(io::Error::new(
            io::ErrorKind::IsADirectory,
            "is a folder, expected a file to write",
        )));
    }
    if existing.as_ref().is_some_and(|m| !m.is_file()) {
        let file = OpenOptions::new().write(true).open(path).map_err(io_error(path))?;
        let mut writer = BufWriter::new(file);
        write(&mut writer)?;
        return writer.flush().map_err(io_error(path));
    }
    if existing.as_ref().is_some_and(|m| m.permissions().readonly()) {
        return Err(io_error(path)(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the file is read-only",
        )));
    }
    // Follow a link to the file that is really replaced.
    let target = match &existing {
        Some(_) => std::fs::canonicalize(path).map_err(io_error(path))?,
        None => path.to_owned(),
    };
    let (mut temporary, file) = create_beside(&target).map_err(io_error(path))?;
    let mut writer = BufWriter::with_capacity(128 * 1024, file);
    write(&mut writer)?;
    writer.flush().map_err(io_error(path))?;
    drop(writer);
    if let Some(existing) = existing {
        std::fs::set_permissions(&temporary.path, existing.permissions())
            .map_err(io_error(path))?;
    }
    std::fs::rename(&temporary.path, &target).map_err(io_error(path))?;
    temporary.keep = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_error_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"old").unwrap();

        let failed = atomic_write(&path, |w| {
            w.write_all(&[0; 1 << 20]).unwrap();
            Err(FormatError::Parameter { name: "test", expected: "failure", found: String::new() })
        });

        assert!(matches!(failed, Err(FormatError::Parameter { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn a_panic_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");

        let panicked = std::panic::catch_unwind(|| atomic_write(&path, |_| panic!("on purpose")));

        assert!(panicked.is_err());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_missing_folder_and_a_folder_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("no/x");

        for path in [missing.as_path(), folder.path()] {
            match atomic_write(path, |_| Ok(())) {
                Err(FormatError::Io { path: named, .. }) => assert_eq!(named, path),
                other => panic!("{other:?}"),
            }
        }
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_read_only_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"old").unwrap();
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&path, permissions).unwrap();

        let refused = atomic_write(&path, |w| w.write_all(b"new").map_err(io_error(&path)));

        assert!(matches!(refused, Err(FormatError::Io { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::fs::write(&target, b"old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();

        atomic_write(&link, |w| w.write_all(b"new").map_err(io_error(&link))).unwrap();

        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_written_not_replaced() {
        use std::os::unix::fs::FileTypeExt;
        let null = Path::new("/dev/null");

        atomic_write(null, |w| w.write_all(b"gone").map_err(io_error(null))).unwrap();

        let kind = std::fs::metadata(null).unwrap().file_type();
        assert!(kind.is_char_device());
    }
}
