//! Extracts the Matrix Market file from an archive of the collection.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use sparsebatch_formats::io::{in_one_line, open_file};

use crate::{CorpusError, Matrix, Origin};

/// Most bytes of a Matrix Market file per entry, and for its comments.
const BYTES_PER_ENTRY: u64 = 128;
const COMMENT_BYTES: u64 = 1 << 20;

/// Bound on the bytes of all files in an archive, right-hand sides and coordinates too, as a
/// multiple of the matrix file's bound.
const OTHER_FILES: u64 = 16;

/// Most bytes of the file of a matrix, and of the compressed archive.
pub(crate) fn limit(matrix: &Matrix) -> u64 {
    COMMENT_BYTES + BYTES_PER_ENTRY * matrix.entries() as u64
}

/// Writes the matrix of an archive, compressed again, and reads the archive to its end, where its
/// checksum is. `name` is the archive's name in errors.
///
/// # Errors
/// [`CorpusError::Archive`] when the archive is incomplete or has no such file, [`CorpusError::Io`]
/// when `out`, called `path`, cannot be written.
pub(crate) fn unpack(
    archive: &Path,
    name: &str,
    matrix: &Matrix,
    out: &File,
    path: &Path,
) -> Result<(), CorpusError> {
    let member = format!("{}.mtx", matrix.name);
    let broken = |reason: String| CorpusError::Archive {
        archive: name.to_owned(),
        member: member.clone(),
        reason: in_one_line(&reason),
    };
    let limit = limit(matrix);
    let (file, _) = open_file(archive).map_err(CorpusError::io(archive))?;
    let packed = GzDecoder::new(BufReader::with_capacity(1 << 17, file));
    let mut packed = Limited { reader: packed, left: OTHER_FILES.saturating_mul(limit) };
    let mut tar = tar::Archive::new(&mut packed);
    let mut found = false;
    let entries = tar.entries().map_err(|error| broken(error.to_string()))?;
    // Raw iteration skips entries that hold long names and attributes, which would otherwise be
    // read into memory whatever their size. The names of the collection are short.
    for entry in entries.raw(true) {
        let entry = entry.map_err(|error| broken(error.to_string()))?;
        let is_member = entry.path().is_ok_and(|path| path.ends_with(&member));
        if found || !is_member || !entry.header().entry_type().is_file() {
            continue;
        }
        found = true;
        if entry.size() > limit {
            return Err(broken(format!("{} bytes of it, above {limit}", entry.size())));
        }
        let whole = entry.size();
        let mut counted = Counted { reader: entry, bytes: 0, failed: None };
        let mut writer = GzEncoder::new(BufWriter::new(out), Compression::fast());
        let copied = match matrix.origin {
            Origin::RealParts => real_parts(BufReader::new(&mut counted), &mut writer),
            _ => io::copy(&mut counted, &mut writer).map(drop),
        };
        if let Some(reason) = counted.failed {
            return Err(broken(reason));
        }
        copied
            .and_then(|()| writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error))
            .map_err(CorpusError::io(path))?;
        if counted.bytes < whole {
            return Err(broken(format!("{} of its {whole} bytes", counted.bytes)));
        }
    }
    if !found {
        return Err(broken("no such file in it".to_owned()));
    }
    io::copy(&mut packed, &mut io::sink()).map_err(|error| broken(error.to_string()))?;
    Ok(())
}

/// A reader that fails after more than `left` bytes.
struct Limited<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "far more than a matrix of its size")
        })?;
        Ok(read)
    }
}

/// A reader that stores its error, to distinguish it from one of the writer.
struct Counted<R> {
    reader: R,
    bytes: u64,
    failed: Option<String>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer);
        match &read {
            Ok(read) => self.bytes += *read as u64,
            Err(error) => self.failed = Some(error.to_string()),
        }
        read
    }
}

/// Writes a complex Matrix Market file as a real one of the same pattern with the real part of each
/// entry. Other files, and lines that are no entries, are copied unchanged, for the reader to
/// judge.
fn real_parts(mut reader: impl BufRead, writer: &mut impl Write) -> io::Result<()> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    let banner = String::from_utf8_lossy(&line).into_owned();
    let is_complex = banner.to_ascii_lowercase().contains(" complex ");
    match is_complex {
        true => {
            writer.write_all(
                banner
                    .to_ascii_lowercase()
                    .replace(" complex ", " real ")
                    .replacen("%%matrixmarket", "%%MatrixMarket", 1)
                    .as_bytes(),
            )?;
            writer.write_all(b"% real parts of a complex matrix\n")?;
        }
        false => writer.write_all(&line)?,
    }
    let mut has_size = false;
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let is_entry = is_complex && has_size && !line.starts_with(b"%");
        has_size |= !line.starts_with(b"%") && !line.trim_ascii().is_empty();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        match (is_entry, words.next(), words.next(), words.next(), words.next()) {
            (true, Some(row), Some(column), Some(real), Some(_)) => {
                for word in [row, b" ", column, b" ", real, b"\n"] {
                    writer.write_all(word)?;
                }
            }
            _ => writer.write_all(&line)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_archive_has_in_its_headers_is_told_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let (archive, out) = (folder.path().join("a.tar.gz"), folder.path().join("out"));
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..4].copy_from_slice(b"a\nb\x1b");
        header.as_mut_bytes()[148..156].fill(b'x');
        let mut packed = GzEncoder::new(File::create(&archive).unwrap(), Compression::fast());
        packed.write_all(header.as_bytes()).unwrap();
        packed.finish().unwrap();

        let file = File::create(&out).unwrap();
        let error = unpack(&archive, "a.tar.gz", &crate::MATRICES[0], &file, &out).unwrap_err();

        let message = error.to_string();
        assert!(message.contains("cksum for a\\nb\\u{1b}"), "{message:?}");
        assert!(!message.contains(char::is_control), "{message:?}");
    }

    fn converted(text: &str) -> String {
        let mut out = Vec::new();
        real_parts(text.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn of_complex_entries_the_real_parts_are_kept() {
        let text = "%%MatrixMarket matrix coordinate complex general\n% by someone\n2 2 2\n\
                    1 1 1.5 -2\n2 1 0 3e-1\n";

        assert_eq!(
            converted(text),
            "%%MatrixMarket matrix coordinate real general\n% real parts of a complex matrix\n\
             % by someone\n2 2 2\n1 1 1.5\n2 1 0\n"
        );
        let real = "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1 1\n";
        assert_eq!(converted(real), real);
    }
}
