//! Files that are written in place, such as locks: symbolic links are not followed.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use super::source::check_regular;

/// Opens a regular file with `options`, which may create it; refuses a symbolic link.
///
/// # Errors
/// What the system reports; [`io::ErrorKind::InvalidInput`] for links, folders, pipes and devices.
pub fn open_in_place(path: impl AsRef<Path>, options: &mut OpenOptions) -> io::Result<File> {
    let path = path.as_ref();
    match std::fs::symlink_metadata(path) {
        Ok(found) => check_regular(&found)?,
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => {}
        Err(other) => return Err(other),
    }
    // A link or pipe that has replaced the file since then is neither followed nor waited for.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Whether `path` still names the open file, and not another one that has replaced it. Where the
/// system does not tell files apart, one of the same length counts as the same.
pub fn still_named(file: &File, path: impl AsRef<Path>) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), std::fs::symlink_metadata(path)) else {
        return false;
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        (open.dev(), open.ino()) == (named.dev(), named.ino())
    }
    #[cfg(not(unix))]
    {
        open.len() == named.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::open_file;
    use super::*;

    #[cfg(unix)]
    #[test]
    fn links_are_followed_by_readers_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, b"kept").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut options = OpenOptions::new();
        options.write(true).create(true);

        assert!(open_file(&link).is_ok());
        let refused = open_in_place(&link, &mut options).unwrap_err();
        assert!(refused.to_string().contains("symbolic link"), "{refused}");
        assert!(open_in_place(&file, &mut options).is_ok());
        assert!(open_in_place(folder.path().join("new"), &mut options).is_ok());
        assert_eq!(std::fs::read(&file).unwrap(), b"kept");
    }

    #[test]
    fn a_file_is_named_until_it_is_renamed_or_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        std::fs::write(&path, b"kept").unwrap();
        let file = File::open(&path).unwrap();

        assert!(still_named(&file, &path));
        std::fs::rename(&path, &other).unwrap();
        assert!(!still_named(&file, &path) && still_named(&file, &other));
        std::fs::write(&path, b"another").unwrap();
        assert!(!still_named(&file, &path));
    }

    #[cfg(unix)]
    #[test]
    fn devices_and_folders_are_refused() {
        for path in ["/dev/zero", "/"] {
            let refused = open_file(path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path}");
            let refused = open_in_place(path, OpenOptions::new().read(true)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}
