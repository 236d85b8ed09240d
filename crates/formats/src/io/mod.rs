//! Files: reading and writing matrices, batches and results.
//!
//! | content | read | write |
//! | --- | --- | --- |
//! | Matrix Market text, plain or gzip | [`read_matrix_market`], [`read_dense`], [`read_vector`]; some of its rows: [`MatrixIndex`] | [`write_matrix_market`], [`write_vector`] |
//! | SciPy `.npz` | [`read_npz`], [`read_npz_array`]; some rows of a CSR matrix: [`MatrixIndex`] | [`write_npz`], [`write_arrays`] |
//! | NumPy `.npy` | [`load`], [`load_array`] | |
//! | `.batch`, with right-hand sides | [`read_batch`]; some of its items: [`BatchIndex`] | [`write_batch`] |
//! | any of them, folders, standard input | [`load`], for vectors [`load_array`] | |
//!
//! Values are read as f64; [`Matrix::cast`](crate::Matrix::cast) and
//! [`Batch::cast`](crate::Batch::cast) give f32.
//!
//! Files are told apart by their content ([`detect`]), not by their names. Every reader treats its
//! input as hostile: sizes that a file declares are compared with the data present and with the
//! available memory before memory is taken for them, indices are checked, and any fault is one
//! [`FormatError`] that names the file and the position. Every file is opened by [`open_file`],
//! which refuses pipes and devices. Every writer goes through [`atomic_write`].
//!
//! # Matrix Market
//! Coordinate and array files of real, integer and pattern matrices that are general, symmetric or
//! skew-symmetric, as Boisvert, Pozo and Remington describe them (NISTIR 5935, 1996), and vectors.
//! Complex ones are refused by name; a real hermitian matrix is symmetric. Where that specification
//! leaves room, and where files depart from it:
//! - the words of the banner may be in upper or lower case, its first may have one `%` or two, and
//!   a byte-order mark, blanks and blank lines may stand before it; lines may end in CR LF; blank
//!   lines and comments (first character `%`, after any blanks) may stand anywhere after the
//!   banner; blanks may surround the numbers of a line; nothing else may follow them, nor may a
//!   value where the banner says `pattern`;
//! - entries with equal indices are summed in the order of the file; explicit zeros are kept;
//! - `nan`, `inf` and `infinity` (any case, with or without a sign) are values; an exponent may
//!   begin with Fortran's `D` or `Q` in the place of `E`, or, with a sign and three digits, without
//!   any letter; a decimal number whose magnitude exceeds the largest f64 is an error; integers
//!   beyond 2^53 are rounded;
//! - a pattern entry has the value 1;
//! - an entry of a symmetric or skew-symmetric file may stand on either side of the diagonal; an
//!   entry together with its mirror image is an error, since their sum is hardly meant. On the
//!   diagonal of a skew-symmetric matrix only zeros may stand; array files may have them (as MATLAB
//!   writes them) or not;
//! - a vector (`%%MatrixMarket vector …`) has a size line with its length and, in a coordinate
//!   file, its number of entries, each of which is a row and a value;
//! - a line has at most 1 MiB, and a text at most 64 MiB of comments and blanks, and 1 KiB more for
//!   each entry.
//!
//! # Limits
//! Readers take no more memory than a [`MemoryLimit`] allows: by default the available memory, less
//! a margin. A matrix of 2 entries may have as many rows as fit into that; only where systems are
//! to be solved ([`LoadOptions::systems`]) are more than 65,536 empty rows refused. Items without
//! rows, which take no bytes of the file, are limited to 65,536 plus 64 for each byte of the file.
//! Memory is in proportion to the entries and rows declared; gzip and deflate pack at most about
//! 1,000 to 1.
//!
//! [`FormatError`]: crate::FormatError

mod arrays;
mod assemble;
mod atomic;
mod batch_file;
mod batch_index;
mod detect;
mod input;
mod listing;
mod load;
mod market_entries;
mod market_header;
mod market_writer;
mod matrix_index;
mod matrix_market;
mod memory;
mod npy;
mod npz;
mod npz_writer;
mod number;
mod regular;
pub(crate) mod source;
mod text;

pub use arrays::{DenseArray, load_array};
pub use atomic::{Discarded, atomic_write, check_writable, discard_unfinished};
pub use batch_file::{BatchFile, read_batch, read_batch_from, write_batch};
pub use batch_index::BatchIndex;
pub use detect::{FileKind, detect};
pub use load::{LoadOptions, Loaded, load};
pub use market_writer::{write_matrix_market, write_vector};
pub use matrix_index::MatrixIndex;
pub use matrix_market::{
    Dense, read_dense, read_dense_from, read_matrix_market, read_matrix_market_from, read_vector,
};
pub use memory::{MemoryLimit, available_memory};
pub use npz::{read_npz, read_npz_array, read_npz_from, write_npz};
pub use npz_writer::{NpzWriter, Packing, write_arrays};
pub use regular::{open_in_place, still_named};
pub use source::{open_file, read_file};
pub use text::in_one_line;
