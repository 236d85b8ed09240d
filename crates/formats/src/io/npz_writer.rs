//! `.npz` archives of named arrays, as NumPy's `savez` writes them.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::atomic_write;
use super::npy::write_header;
use super::source::io_error;
use crate::{FormatError, Scalar};

/// Whether the arrays of an archive are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Uncompressed, as by NumPy's `savez`: fast, and compression hardly shrinks solutions.
    #[default]
    Stored,
    /// Compressed, as by NumPy's `savez_compressed`.
    Deflated,
}

/// Adds arrays to an `.npz` archive, see [`write_arrays`].
pub struct NpzWriter<'w> {
    zip: ZipWriter<UntilFailure<'w>>,
    options: SimpleFileOptions,
    path: PathBuf,
}

/// A writer that after its first failure accepts all bytes and writes none. The `ZipWriter` of an
/// abandoned archive finishes it on drop, and would print on standard error that it cannot.
struct UntilFailure<'w> {
    writer: &'w mut BufWriter<File>,
    has_failed: bool,
    position: u64,
}

impl UntilFailure<'_> {
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.has_failed |=
            result.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        result
    }
}

impl Write for UntilFailure<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self.has_failed {
            true => Ok(bytes.len()),
            false => self.writer.write(bytes),
        };
        let written = self.note(written)?;
        self.position += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = if self.has_failed { Ok(()) } else { self.writer.flush() };
        self.note(flushed)
    }
}

impl Seek for UntilFailure<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match (self.has_failed, to) {
            (false, to) => self.writer.seek(to),
            (true, SeekFrom::Start(position)) => Ok(position),
            (true, SeekFrom::Current(by) | SeekFrom::End(by)) => {
                Ok(self.position.saturating_add_signed(by))
            }
        };
        self.position = self.note(position)?;
        Ok(self.position)
    }
}

/// The error of the system, without the archive error around it.
fn system(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        other => other.into(),
    }
}

/// Writes an `.npz` archive: `content` adds the arrays. NumPy's `load` reads it, without pickle.
/// The file appears whole or not at all, see [`atomic_write`]. Equal content gives equal bytes.
///
/// # Errors
/// [`FormatError::Io`] when the system refuses, and the errors of `content`.
///
/// # Examples
/// ```
/// use sparsebatch_formats::io::{Packing, read_npz_array, write_arrays};
///
/// let path = std::env::temp_dir().join("sparsebatch_write_arrays_example.npz");
/// write_arrays(&path, Packing::Stored, |npz| {
///     npz.add_i64("offsets", &[0, 2])?;
///     npz.add_f64("x", &[1.0, -2.0])?;
///     npz.add_strings("status", &["Converged"])
/// })?;
/// assert_eq!(read_npz_array(&path, "x")?, [1.0, -2.0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), sparsebatch_formats::FormatError>(())
/// ```
pub fn write_arrays(
    path: impl AsRef<Path>,
    packing: Packing,
    content: impl FnOnce(&mut NpzWriter<'_>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let path = path.as_ref();
    atomic_write(path, |writer| {
        let method = match packing {
            Packing::Stored => CompressionMethod::Stored,
            Packing::Deflated => CompressionMethod::Deflated,
        };
        let mut npz = NpzWriter {
            zip: ZipWriter::new(UntilFailure { writer, has_failed: false, position: 0 }),
            options: SimpleFileOptions::default().compression_method(method),
            path: path.to_owned(),
        };
        content(&mut npz)?;
        npz.zip.finish().map(drop).map_err(|error| io_error(path)(system(error)))
    })
}

impl NpzWriter<'_> {
    /// Adds a one-dimensional array of `float64`.
    ///
    /// # Errors
    /// [`FormatError::Io`] when the system refuses or the archive holds that name already.
    pub fn add_f64(&mut self, name: &str, values: &[f64]) -> Result<(), FormatError> {
        self.add_numbers(name, "<f8", values, |value| value.to_le_bytes())
    }

    /// Adds a one-dimensional array of `float32`.
    ///
    /// # Errors
    /// As [`NpzWriter::add_f64`].
    pub fn add_f32(&mut self, name: &str, values: &[f32]) -> Result<(), FormatError> {
        self.add_numbers(name, "<f4", values, |value| value.to_le_bytes())
    }

    /// Adds a one-dimensional array of `float64` or `float32`.
    ///
    /// # Errors
    /// As [`NpzWriter::add_f64`].
    pub fn add_values<T: Scalar>(&mut self, name: &str, values: &[T]) -> Result<(), FormatError> {
        if T::NAME == f32::NAME {
            let narrow = |value: T| (value.to_f64() as f32).to_le_bytes();
            self.add_numbers(name, "<f4", values, narrow)
        } else {
            self.add_numbers(name, "<f8", values, |value| value.to_f64().to_le_bytes())
        }
    }

    /// Adds a one-dimensional array of `int64`.
    ///
    /// # Errors
    /// As [`NpzWriter::add_f64`].
    pub fn add_i64(&mut self, name: &str, values: &[i64]) -> Result<(), FormatError> {
        self.add_numbers(name, "<i8", values, i64::to_le_bytes)
    }

    /// Adds a one-dimensional array of `int32`.
    ///
    /// # Errors
    /// As [`NpzWriter::add_f64`].
    pub fn add_i32(&mut self, name: &str, values: &[i32]) -> Result<(), FormatError> {
        self.add_numbers(name, "<i4", values, i32::to_le_bytes)
    }

    /// Adds a one-dimensional array of strings, `<U` with the length of the longest.
    ///
    /// # Errors
    /// As [`NpzWriter::add_f64`].
    pub fn add_strings(
        &mut self,
        name: &str,
        values: &[impl AsRef<str>],
    ) -> Result<(), FormatError> {
        let lengths = values.iter().map(|value| value.as_ref().chars().count());
        // NumPy has no strings of length 0 in files.
        let width = lengths.max().unwrap_or(0).max(1);
        let descr = format!("<U{width}");
        let bytes = 4 * width * values.len();
        self.add(name, &descr, &[values.len()], bytes, |zip| {
            for value in values {
                let points = value.as_ref().chars().map(u32::from);
                for point in points.chain(std::iter::repeat(0)).take(width) {
                    zip.write_all(&point.to_le_bytes())?;
                }
            }
            Ok(())
        })
    }

    /// Adds a scalar byte string, such as the `format` of a SciPy matrix.
    ///
    /// # Errors
    /// As [`NpzWriter::add_f64`].
    pub fn add_bytes(&mut self, name: &str, value: &[u8]) -> Result<(), FormatError> {
        let descr = format!("|S{}", value.len().max(1));
        self.add(name, &descr, &[], value.len().max(1), |zip| {
            zip.write_all(if value.is_empty() { b"\0" } else { value })
        })
    }

    fn add_numbers<const N: usize, T: Copy>(
        &mut self,
        name: &str,
        descr: &str,
        values: &[T],
        encode: impl Fn(T) -> [u8; N],
    ) -> Result<(), FormatError> {
        self.add(name, descr, &[values.len()], N * values.len(), |zip| {
            let mut buffer = Vec::with_capacity(64 * 1024);
            for piece in values.chunks(64 * 1024 / N) {
                buffer.clear();
                buffer.extend(piece.iter().flat_map(|&value| encode(value)));
                zip.write_all(&buffer)?;
            }
            Ok(())
        })
    }

    fn add(
        &mut self,
        name: &str,
        descr: &str,
        shape: &[usize],
        bytes: usize,
        data: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), FormatError> {
        // Uses the larger headers of ZIP64 only where they are needed; deflating may add to
        // `bytes`.
        let options = self.options.large_file(bytes > 1 << 31);
        let written = self
            .zip
            .start_file(format!("{name}.npy"), options)
            .map_err(system)
            .and_then(|()| write_header(&mut self.zip, descr, shape))
            .and_then(|()| data(&mut self.zip));
        written.map_err(io_error(&self.path))
    }
}
