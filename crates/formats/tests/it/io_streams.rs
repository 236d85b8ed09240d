//! Pipes, devices and folders are refused, without waiting for them.

use std::path::Path;

use sparsebatch_formats::io::{
    LoadOptions, MemoryLimit, detect, load, load_array, open_file, read_batch, read_file,
    read_matrix_market, read_npz, read_vector,
};

#[cfg(unix)]
#[test]
fn a_pipe_that_nobody_writes_to_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.mtx");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo");

    refused_by_all(&path, "is a pipe or a device, expected a regular file");
    let paths = [folder.path().to_owned()];
    let error = load(&paths, LoadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("pipe.mtx: is a pipe or a device"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn endless_devices_are_refused() {
    refused_by_all(Path::new("/dev/zero"), "is a pipe or a device");
}

#[test]
fn folders_are_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let error = open_file(folder.path()).unwrap_err();
    assert_eq!(error.to_string(), "is a folder, expected a file");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

fn refused_by_all(path: &Path, expected: &str) {
    let errors = [
        open_file(path).unwrap_err().to_string(),
        read_file(path).unwrap_err().to_string(),
        detect(path).unwrap_err().to_string(),
        load_array(path, "x", MemoryLimit::available()).unwrap_err().to_string(),
        read_matrix_market(path).unwrap_err().to_string(),
        read_vector(path).unwrap_err().to_string(),
        read_npz(path).unwrap_err().to_string(),
        read_batch(path).unwrap_err().to_string(),
        load(&[path.to_owned()], LoadOptions::default()).unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_whole_file_is_read_into_memory_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    std::fs::write(&path, b"whole").unwrap();
    assert_eq!(read_file(&path).unwrap(), b"whole");
    // A file of holes, far beyond any memory.
    let holes = std::fs::File::create(&path).unwrap();
    if holes.set_len(1 << 43).is_ok() {
        let error = read_file(&path).unwrap_err();
        let known = [std::io::ErrorKind::FileTooLarge, std::io::ErrorKind::OutOfMemory];
        assert!(known.contains(&error.kind()), "{error}");
    }
}
