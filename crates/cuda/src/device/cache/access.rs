//! Checks that nobody but the user and root could have written a cache file.

use std::fs::{self, File, Metadata};
use std::path::Path;

/// Checks that a folder, and every folder above it, belongs to the user or root and is writable by
/// nobody else. A folder above it may be sticky (as `/tmp`): writable by all, but only owners may
/// rename or remove files. Of a path that does not exist yet, the existing part is checked.
///
/// # Errors
/// The folder that fails the check, and why.
pub(super) fn folder(path: &Path) -> Result<(), String> {
    let there = path.ancestors().find(|part| part.symlink_metadata().is_ok());
    let there = there.filter(|part| !part.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let refuse = |part: &Path, why: &str| Err(format!("{} {why}", part.display()));
    // Links are resolved, so that the real folders of the path are checked.
    let Ok(real) = fs::canonicalize(there) else {
        return refuse(there, "cannot be looked at");
    };
    let is_whole = there == path;
    for (above, part) in real.ancestors().enumerate() {
        let Ok(found) = fs::metadata(part) else {
            return refuse(part, "cannot be looked at");
        };
        if !found.is_dir() {
            return refuse(part, "is no folder");
        }
        let may_be_sticky = above > 0 || !is_whole;
        if let Some(why) = fault(&Access::of(&found), may_be_sticky) {
            return refuse(part, why);
        }
    }
    Ok(())
}

/// Opens a regular file that belongs to the user or root and is writable by nobody else.
pub(super) fn open(path: &Path) -> Option<File> {
    use sparsebatch_formats::io::open_in_place;

    let file = open_in_place(path, fs::OpenOptions::new().read(true)).ok()?;
    // Metadata of the open file, whatever its name refers to by now.
    let found = file.metadata().ok()?;
    fault(&Access::of(&found), false).is_none().then_some(file)
}

/// Owner and permissions of a file or folder.
struct Access {
    owner: u32,
    user: u32,
    mode: u32,
}

impl Access {
    #[cfg(unix)]
    fn of(found: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let user = rustix::process::geteuid().as_raw();
        Self { owner: found.uid(), user, mode: found.mode() }
    }

    /// Other systems protect the folders of users by access lists, which are not checked here.
    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Self {
        Self { owner: 0, user: 0, mode: 0o700 }
    }
}

/// Why another user could write to the file or folder; `None` if nobody could.
fn fault(&Access { owner, user, mode }: &Access, may_be_sticky: bool) -> Option<&'static str> {
    const WRITABLE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    if owner != user && owner != 0 {
        Some("belongs to somebody else")
    } else if mode & WRITABLE != 0 && !(may_be_sticky && mode & STICKY != 0) {
        Some("may be written to by others")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_or_root_alone_can_write_is_taken() {
        let is_fine = |owner, mode, may_be_sticky| {
            fault(&Access { owner, user: 1000, mode }, may_be_sticky).is_none()
        };

        for mode in [0o700, 0o755, 0o555, 0o644, 0o600] {
            assert!(is_fine(1000, mode, false) && is_fine(0, mode, false), "{mode:o}");
            assert!(!is_fine(1001, mode, true), "{mode:o}");
        }
        for mode in [0o775, 0o757, 0o664, 0o1777] {
            assert!(!is_fine(1000, mode, false) && !is_fine(0, mode, false), "{mode:o}");
        }
        assert!(is_fine(0, 0o1777, true) && is_fine(1000, 0o1770, true));
        assert!(!is_fine(0, 0o777, true) && !is_fine(1001, 0o1777, true));
    }

    #[cfg(unix)]
    #[test]
    fn every_folder_above_is_looked_at() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let (above, below) = (root.path().join("above"), root.path().join("above/below"));
        fs::create_dir_all(&below).unwrap();
        let change = |mode| fs::set_permissions(&above, fs::Permissions::from_mode(mode)).unwrap();

        change(0o755);
        assert_eq!(folder(&below), Ok(()));
        assert_eq!(folder(&below.join("not/yet")), Ok(()));
        change(0o775);
        for path in [&below, &below.join("not/yet")] {
            let why = folder(path).unwrap_err();
            assert!(why.ends_with("above may be written to by others"), "{why}");
        }
        change(0o1777);
        assert_eq!(folder(&below), Ok(()));
        // In a sticky folder another user may have created it first.
        assert!(folder(&above).is_err());
        assert_eq!(folder(&above.join("new")), Ok(()));
        change(0o755);
        std::os::unix::fs::symlink(&below, root.path().join("link")).unwrap();
        assert_eq!(folder(&root.path().join("link")), Ok(()));
    }
}
