//! Data between the ranks of an MPI, as a [`Table`] of functions with the calling convention of C.
//!
//! The crate `sparsebatch-mpi` knows no MPI: two MPIs have different types under the same names, and
//! a program that is linked to one runs with no other. It loads `libsparsebatch_mpi_transport.so`, the
//! library that `scripts/install-mpi.sh` builds of this crate with the MPI of a machine, or is linked
//! to this crate (feature `mpi`). So one program, one C library and one wheel serve every MPI.
//!
//! No memory changes hands: what a function returns beyond numbers goes to a [`Sink`].
#![deny(unsafe_code)]

#[cfg(feature = "mpi")]
mod comm;
#[cfg(feature = "mpi")]
mod functions;
mod table;

#[cfg(feature = "mpi")]
pub use functions::table;
pub use table::{FINALISED, Joined, Part, READY, Sink, Slice, Table, VERSION, Work};

/// The table, by the name under which libraries export it: that of its version.
#[cfg(feature = "library")]
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
pub extern "C" fn sparsebatch_mpi_transport_1() -> *const Table {
    table()
}
