//! The matrices that the sources of sparsebatch measured with, on the user's disk.
//!
//! | start from | for |
//! | --- | --- |
//! | [`MATRICES`], [`List`], [`select`] | the catalogue of matrices |
//! | [`fetch`] | getting matrices from the SuiteSparse Matrix Collection, or from a folder |
//! | [`list`] | the matrices on the disk |
//! | [`default_folder`] | the default folder of the corpus |
//!
//! A corpus is a folder: `flexible/NAME.mtx.gz` has the small matrices of which batches are made,
//! `single/NAME.mtx.gz` the others, and `corpus.lock` the SHA-256 of each fetched file. A matrix
//! gets its final name after its rows, columns and nonzeros agree with the collection's index; a
//! download that ended early is kept as `NAME.tar.gz.partial` and can be resumed.
//!
//! Limitations: a matrix is read whole to be checked, in some 30 bytes of memory for each entry
//! (`Cube_Coup_dt0` has 127 million); `conf5_4-8x8-05`, which Bell and Garland call qcd5_4, is
//! complex in the collection, and its real parts are kept.

mod catalogue;
mod download;
mod error;
mod fetch;
mod folder;
mod lock;
mod unpack;

pub use catalogue::{List, MATRICES, Matrix, Origin, select};
pub use error::CorpusError;
pub use fetch::{COLLECTION, Observer, Outcome, Place, Status, fetch, list};
pub use folder::{LOCK_FILE, default_folder};
pub use lock::Locked;
