//! Conversions, files and test problems, from outside of the crate. One program, because each takes
//! seconds to build.

mod convert_batches;
mod convert_round_trips;
mod generate_published;
mod interop_faer;
mod interop_nalgebra_sparse;
mod interop_sprs;
mod io_bad_binary;
mod io_bad_text;
mod io_load;
mod io_real_files;
mod io_round_trip;
mod io_scipy;
mod io_streams;
mod io_together;
mod io_world;
mod stats_properties;
