//! The command line by the built program, and the two drivers of the examples, module by module. One
//! program, because each takes seconds to build.

mod cli_bad_input;
mod cli_bench;
mod cli_commands;
mod cli_corpus;
mod cli_data;
mod cli_faults;
mod cli_files;
mod cli_gpu;
mod cli_mpi;
mod cli_outputs;
mod cli_readme;
mod cli_report;
mod cli_report_browser;
mod cli_solve;
mod cli_terminal;
mod cli_warm;
mod common;
mod nuclear_burning;
mod radiation_diffusion;
mod server;
