//! Files.

mod assemble;
mod atomic;
mod batch_file;
mod detect;
mod market_entries;
mod market_header;
mod market_writer;
mod matrix_market;
mod number;
pub(crate) mod source;
mod text;

pub use atomic::atomic_write;
pub use batch_file::{BatchFile, read_batch, read_batch_from, write_batch};
pub use detect::{FileKind, detect};
pub use market_writer::{write_matrix_market, write_vector};
pub use matrix_market::{
    Dense, read_dense, read_dense_from, read_matrix_market, read_matrix_market_from, read_vector,
};
