//! Files: reading and writing matrices, batches and results.
//!
//! | content | read | write |
//! | --- | --- | --- |
//! | Matrix Market text, plain or gzip | [`read_matrix_market`], [`read_dense`], [`read_vector`] | [`write_matrix_market`], [`write_vector`] |
//! | SciPy `.npz` | [`read_npz`], [`read_npz_array`] | [`write_npz`], [`write_arrays`] |
//! | `.batch`, with right-hand sides | [`read_batch`] | [`write_batch`] |
//! | any of them, and folders | [`load`] | |
//!
//! Values are read as f64; [`Matrix::cast`](crate::Matrix::cast) and
//! [`Batch::cast`](crate::Batch::cast) give f32.
//!
//! Files are told apart by their content ([`detect`]), not by their names. Every reader treats its
//! input as hostile: sizes that a file declares are compared with the data that is there before
//! memory is taken for them, indices are checked, and whatever is wrong is one [`FormatError`] that
//! names the file and the place. Every writer goes through [`atomic_write`].
//!
//! # Matrix Market
//! Coordinate and array files of real, integer and pattern matrices that are general, symmetric or
//! skew-symmetric, as Boisvert, Pozo and Remington describe them (NISTIR 5935, 1996). Complex and
//! hermitian ones are refused by name. Where that text leaves room:
//! - the words of the banner may be in upper or lower case; lines may end in CR LF; blank lines and
//!   comments (first character `%`) may stand anywhere after the banner; blanks may surround the
//!   numbers of a line; nothing else may follow them;
//! - entries with equal indices are summed in the order of the file; explicit zeros are kept;
//! - `nan`, `inf` and `infinity` (any case, with or without a sign) are values; a decimal number
//!   whose magnitude exceeds the largest f64 is an error; integers beyond 2^53 are rounded;
//! - a pattern entry has the value 1;
//! - symmetric and skew-symmetric files hold the lower triangle only: an entry above the diagonal,
//!   or on it in a skew-symmetric file, is an error;
//! - a line has at most 1 MiB.
//!
//! # Limits
//! Rows, columns and items that no data stands for are limited to 65,536 and 64 more for each byte
//! of the (unpacked) file, so that a header of a few bytes cannot make the library take memory.
//! Memory is in proportion to the unpacked data; gzip and deflate pack at most about 1,000 to 1.
//!
//! [`FormatError`]: crate::FormatError

mod assemble;
mod atomic;
mod batch_file;
mod detect;
mod load;
mod market_entries;
mod market_header;
mod market_writer;
mod matrix_market;
mod npy;
mod npz;
mod npz_writer;
mod number;
pub(crate) mod source;
mod text;

pub use atomic::atomic_write;
pub use batch_file::{BatchFile, read_batch, read_batch_from, write_batch};
pub use detect::{FileKind, detect};
pub use load::{LoadOptions, Loaded, load};
pub use market_writer::{write_matrix_market, write_vector};
pub use matrix_market::{
    Dense, read_dense, read_dense_from, read_matrix_market, read_matrix_market_from, read_vector,
};
pub use npz::{read_npz, read_npz_array, read_npz_from, write_npz};
pub use npz_writer::{NpzWriter, Packing, write_arrays};
