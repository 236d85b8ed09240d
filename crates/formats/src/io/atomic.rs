//! Output files that appear whole or not at all.
//!
//! An output is written to a temporary file in its folder, which is renamed to the output at the
//! end. Temporary files are locked while they are written. A process that first writes to a folder
//! removes the temporary files there that no process has locked: their process was killed.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::regular::{open_in_place, still_named};
use super::source::io_error;
use crate::FormatError;

/// The suffix of the names of temporary files.
const ENDING: &str = ".sparsebatch-tmp";

/// The temporary files of this process, and the folders already swept of those of killed processes.
#[derive(Debug, Default)]
struct Unfinished {
    files: HashSet<PathBuf>,
    swept: HashSet<PathBuf>,
}

static UNFINISHED: LazyLock<Mutex<Unfinished>> = LazyLock::new(Mutex::default);

/// Waits for the lock. Poisoning is ignored: a panic under the lock leaves no change half made.
fn unfinished() -> MutexGuard<'static, Unfinished> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, this process neither begins nor finishes an output; see [`discard_unfinished`].
#[must_use = "outputs are kept from being written until this is dropped"]
#[derive(Debug)]
pub struct Discarded {
    _turn: MutexGuard<'static, Unfinished>,
}

/// Removes the temporary files of all outputs that this process is writing.
///
/// This is for a program that is about to end by a signal. While the result lives, writers wait
/// before they begin an output and before they rename it; when it is dropped, outputs whose
/// temporary file was removed end with [`FormatError::Io`]. So a process that exits while it holds
/// the result leaves every output either whole or as it was before, and no temporary file.
pub fn discard_unfinished() -> Discarded {
    let mut turn = unfinished();
    for path in turn.files.drain() {
        // The file may be gone with its folder.
        let _ = std::fs::remove_file(path);
    }
    Discarded { _turn: turn }
}

/// A temporary file of this process, locked while it is written; removed on drop unless it was
/// renamed to the output.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// Creates a new file beside `target`, under a name that no other writer uses, after removing
    /// the temporary files that killed processes left in the folder.
    fn beside(target: &Path) -> io::Result<(Self, File)> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let name = target.file_name().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the path does not name a file")
        })?;
        let mut turn = unfinished();
        let folder = folder_of(target);
        if turn.swept.insert(folder.to_owned()) {
            sweep(folder);
        }
        loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = target.with_file_name(temporary_name(name, number));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                // Another process swept the folder before the file was locked.
                Ok(file) if !is_ours(&file, &path) => {}
                Ok(file) => {
                    turn.files.insert(path.clone());
                    return Ok((Self { path }, file));
                }
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => {}
                Err(other) => return Err(other),
            }
        }
    }

    /// Renames the file to `target`.
    fn rename(self, target: &Path) -> io::Result<()> {
        let mut turn = unfinished();
        if !turn.files.remove(&self.path) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the program is being ended"));
        }
        let renamed = std::fs::rename(&self.path, target);
        if renamed.is_err() {
            turn.files.insert(self.path.clone());
        }
        renamed
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if unfinished().files.remove(&self.path) {
            // Nothing better can be done with a failure here.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The folder of a file; `.` if the path is a bare name.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// `.NAME.PROCESS-NUMBER.sparsebatch-tmp`; a long `NAME` is cut short to leave room for the rest.
fn temporary_name(name: &OsStr, number: u64) -> OsString {
    const ROOM: usize = 150;
    let mut temporary = OsString::from(".");
    if name.len() > ROOM {
        let text = name.to_string_lossy();
        let end = (0..=ROOM).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        temporary.push(&text[..end]);
    } else {
        temporary.push(name);
    }
    temporary.push(format!(".{}-{number}{ENDING}", std::process::id()));
    temporary
}

/// Whether a file name is that of a temporary file.
fn is_temporary(name: &OsStr) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = name.to_string_lossy();
    let numbers = name
        .strip_suffix(ENDING)
        .filter(|rest| rest.starts_with('.'))
        .and_then(|rest| rest.rsplit_once('.')?.1.split_once('-'));
    numbers.is_some_and(|(process, number)| digits(process) && digits(number))
}

/// Locks a file that was just created, and tells whether `path` still names it. Where the file
/// system has no locks, the file counts as locked: nothing is swept there either.
fn is_ours(file: &File, path: &Path) -> bool {
    match file.try_lock() {
        Ok(()) | Err(TryLockError::Error(_)) => {}
        Err(TryLockError::WouldBlock) => return false,
    }
    still_named(file, path)
}

/// Removes the temporary files in `folder` that no process has locked: their process was killed.
/// Files that cannot be opened, locked or removed stay.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if is_temporary(&entry.file_name())
            && let Ok(file) = open_in_place(entry.path(), OpenOptions::new().read(true))
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Refuses an output that could not be written, before any work is done. Nothing is changed.
///
/// # Errors
/// [`FormatError::Io`] for a folder, a read-only file, and a place where no file can be created.
pub fn check_writable(path: impl AsRef<Path>) -> Result<(), FormatError> {
    let path = path.as_ref();
    match target_of(path)? {
        Target::Device => Ok(()),
        Target::File(target, _) => Temporary::beside(&target).map(drop).map_err(io_error(path)),
    }
}

/// Where an output goes.
enum Target {
    /// To a device or pipe, which cannot be replaced.
    Device,
    /// To this file, which is replaced; with its metadata if it exists.
    File(PathBuf, Option<Metadata>),
}

/// Finds where an output to `path` goes; a link is followed to the file that is actually replaced.
fn target_of(path: &Path) -> Result<Target, FormatError> {
    let refuse = |kind, what| Err(io_error(path)(io::Error::new(kind, what)));
    match std::fs::metadata(path) {
        Err(_) => Ok(Target::File(path.to_owned(), None)),
        Ok(found) if found.is_dir() => {
            refuse(io::ErrorKind::IsADirectory, "is a folder, expected a file to write")
        }
        Ok(found) if !found.is_file() => Ok(Target::Device),
        Ok(found) if found.permissions().readonly() => {
            refuse(io::ErrorKind::PermissionDenied, "the file is read-only")
        }
        Ok(found) => {
            let target = std::fs::canonicalize(path).map_err(io_error(path))?;
            Ok(Target::File(target, Some(found)))
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
/// forced to disk. Temporary files that killed processes left in the folder are removed.
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
    let (target, existing) = match target_of(path)? {
        Target::File(target, existing) => (target, existing),
        Target::Device => {
            let file = OpenOptions::new().write(true).open(path).map_err(io_error(path))?;
            let mut writer = BufWriter::new(file);
            write(&mut writer)?;
            return writer.flush().map_err(io_error(path));
        }
    };
    let (temporary, file) = Temporary::beside(&target).map_err(io_error(path))?;
    let mut writer = BufWriter::with_capacity(128 * 1024, file);
    write(&mut writer)?;
    writer.flush().map_err(io_error(path))?;
    if let Some(existing) = existing {
        writer.get_ref().set_permissions(existing.permissions()).map_err(io_error(path))?;
    }
    // The file stays open, and so locked, until it is renamed.
    temporary.rename(&target).map_err(io_error(path))
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

    #[test]
    fn temporary_files_are_known_by_their_whole_name() {
        let own = temporary_name(OsStr::new("x.npz"), 7);
        let long = temporary_name(OsStr::new(&"\u{fc}".repeat(120)), 7);

        assert!(is_temporary(&own) && is_temporary(&long) && long.len() < 200, "{own:?} {long:?}");
        let foreign = [
            "x.npz",
            ".x.npz.12-3.tmp",
            ".x.npz.sparsebatch-tmp",
            "x.npz.12-3.sparsebatch-tmp",
            ".x.npz.12-.sparsebatch-tmp",
            ".x.npz.-3.sparsebatch-tmp",
            ".x.npz.a2-3.sparsebatch-tmp",
        ];
        assert!(foreign.iter().all(|name| !is_temporary(OsStr::new(name))));
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, b"half").unwrap();
            path
        };
        put(".y.npz.1-0.sparsebatch-tmp");
        put(".y.npz.2-17.sparsebatch-tmp");
        put(".y.npz.1-0.tmp");
        std::fs::create_dir(folder.path().join(".z.1-0.sparsebatch-tmp")).unwrap();
        let living = File::open(put(".y.npz.3-0.sparsebatch-tmp")).unwrap();
        living.lock().unwrap();

        atomic_write(folder.path().join("x"), |_| Ok(())).unwrap();

        let left = [".y.npz.1-0.tmp", ".y.npz.3-0.sparsebatch-tmp", ".z.1-0.sparsebatch-tmp", "x"];
        assert_eq!(names(folder.path()), left);
    }

    #[cfg(unix)]
    #[test]
    fn sweeping_does_not_follow_links() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, b"kept").unwrap();
        let link = folder.path().join(".x.1-0.sparsebatch-tmp");
        std::os::unix::fs::symlink(&other, &link).unwrap();

        sweep(folder.path());

        assert_eq!(names(folder.path()), [".x.1-0.sparsebatch-tmp", "other"]);
    }

    #[test]
    fn a_place_that_can_be_written_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");

        check_writable(&path).unwrap();
        assert!(names(folder.path()).is_empty());
        std::fs::write(&path, b"old").unwrap();
        check_writable(&path).unwrap();

        assert_eq!((std::fs::read(&path).unwrap(), names(folder.path()).len()), (b"old".into(), 1));
        assert!(check_writable(folder.path()).is_err());
        assert!(check_writable(folder.path().join("no/x")).is_err());
        assert!(check_writable(path.join("x")).is_err());
    }
}
