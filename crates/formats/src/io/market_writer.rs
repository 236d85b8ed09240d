//! Matrix Market files: writing.

use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::atomic_write;
use super::source::io_error;
use crate::{Csr, FormatError, Scalar};

/// Writes a matrix as Matrix Market coordinate real general, gzip when the name ends in `.gz`.
///
/// Entries are written row by row, each value in the fewest digits that read back as the same
/// number; NaN and the infinities are written `NaN`, `inf`, `-inf`. The file appears whole or not
/// at all, see [`atomic_write`].
///
/// # Errors
/// [`FormatError::Io`] when the system refuses.
pub fn write_matrix_market<T: Scalar>(
    path: impl AsRef<Path>,
    matrix: &Csr<T>,
) -> Result<(), FormatError> {
    write_text(path.as_ref(), |w| {
        w.write_all(b"%%MatrixMarket matrix coordinate real general\n")?;
        writeln!(w, "{} {} {}", matrix.nrows(), matrix.ncols(), matrix.nnz())?;
        for (row, ends) in matrix.row_ptr().windows(2).enumerate() {
            let entries = ends[0] as usize..ends[1] as usize;
            let columns = &matrix.col_idx()[entries.clone()];
            for (col, value) in columns.iter().zip(&matrix.values()[entries]) {
                writeln!(w, "{} {} {value:?}", row + 1, col + 1)?;
            }
        }
        Ok(())
    })
}

/// Writes a vector as Matrix Market array real general with one column, gzip when the name ends in
/// `.gz`; values and file are written as by [`write_matrix_market`].
///
/// # Errors
/// [`FormatError::Io`] when the system refuses.
pub fn write_vector<T: Scalar>(path: impl AsRef<Path>, vector: &[T]) -> Result<(), FormatError> {
    write_text(path.as_ref(), |w| {
        w.write_all(b"%%MatrixMarket matrix array real general\n")?;
        writeln!(w, "{} 1", vector.len())?;
        vector.iter().try_for_each(|value| writeln!(w, "{value:?}"))
    })
}

fn write_text(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FormatError> {
    atomic_write(path, |writer| {
        let written = if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz")) {
            let encoder = GzEncoder::new(writer, Compression::default());
            let mut buffered = io::BufWriter::new(encoder);
            content(&mut buffered)
                .and_then(|()| buffered.into_inner().map_err(io::IntoInnerError::into_error))
                .and_then(|encoder| encoder.finish().map(drop))
        } else {
            content(writer)
        };
        written.map_err(io_error(path))
    })
}
