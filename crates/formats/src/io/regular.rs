//! Files that are looked at before they are opened: regular ones, since pipes may keep a reader waiting for
//! ever and devices may never end.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a regular file to read it. Symbolic links are followed.
///
/// # Errors
/// What the system reports; [`io::ErrorKind::InvalidInput`] for folders, pipes and devices.
pub fn open_regular(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    // Opening a pipe would wait for its writer.
    check(&std::fs::metadata(path)?)?;
    let file = File::open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file with `options`, which may create it, and refuses to follow a symbolic link that
/// stands in its place.
///
/// # Errors
/// What the system reports; [`io::ErrorKind::InvalidInput`] for links, folders, pipes and devices.
pub fn open_in_place(path: impl AsRef<Path>, options: &mut OpenOptions) -> io::Result<File> {
    let path = path.as_ref();
    match std::fs::symlink_metadata(path) {
        Ok(found) => check(&found)?,
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => {}
        Err(other) => return Err(other),
    }
    // What has taken its place since then is neither followed nor waited for.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(found: &Metadata) -> io::Result<()> {
    let kind = found.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "is a folder, expected a file",
        () if kind.is_symlink() => "is a symbolic link, expected a file",
        () => "is no regular file",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

#[cfg(test)]
mod tests {
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

        assert!(open_regular(&link).is_ok());
        let refused = open_in_place(&link, &mut options).unwrap_err();
        assert!(refused.to_string().contains("symbolic link"), "{refused}");
        assert!(open_in_place(&file, &mut options).is_ok());
        assert!(open_in_place(folder.path().join("new"), &mut options).is_ok());
        assert_eq!(std::fs::read(&file).unwrap(), b"kept");
    }

    #[cfg(unix)]
    #[test]
    fn devices_and_folders_are_refused() {
        for path in ["/dev/zero", "/"] {
            let refused = open_regular(path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path}");
            let refused = open_in_place(path, OpenOptions::new().read(true)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}
