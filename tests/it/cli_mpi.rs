//! `solve --mpi` without MPI ranks; with them: `scripts/mpi-tests.sh`.

use std::path::Path;

use crate::common::{root, run, run_with};

/// A program that is linked to an MPI (feature `mpi`) looks for no library.
#[cfg(not(feature = "mpi"))]
#[test]
fn without_a_transport_the_line_says_how_to_build_one() {
    let none = [("SPARSEBATCH_MPI_TRANSPORT", Path::new(""))];

    let refused = run_with(&none, &["solve", "examples/data/alpha13_small.batch", "--mpi"]);

    refused.assert_bad_input(&["--mpi: no MPI", "scripts/install-mpi.sh"]);
}

/// A file that is not there, one that is no library, and a library of something else.
#[cfg(all(not(feature = "mpi"), target_os = "linux"))]
#[test]
fn a_transport_that_cannot_be_used_is_named() {
    let data = root().join("examples/data/alpha13_small.batch");
    let data = data.to_str().unwrap();
    for (file, reason) in [
        ("absent.so", "No such file"),
        (data, "cannot be used for MPI"),
        ("libm.so.6", "no transport of version 1: build it with scripts/install-mpi.sh"),
    ] {
        let variables = [("SPARSEBATCH_MPI_TRANSPORT", Path::new(file))];

        run_with(&variables, &["solve", data, "--mpi"]).assert_bad_input(&[file, reason]);
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn what_is_wrong_with_the_command_comes_first() {
    run(&["solve", "--mpi"]).assert_bad_input(&["INPUT"]);
    run(&["solve", "x", "--mpi", "--solver", "gmres"]).assert_bad_input(&["gmres"]);
    run(&["bench", "cpu", "--mpi"]).assert_bad_input(&["bench --mpi", "solve --mpi --json"]);
}

#[test]
fn a_limit_of_time_needs_ranks() {
    // One matrix without MPI needs GPUs, which are looked for before the file is.
    run(&["solve", "x", "--distributed"])
        .assert_bad_input(&["expected --mpi, or --gpus 0,1 for GPUs of this process"]);
    run(&["solve", "x", "--distributed", "--gpus", "0", "--backend", "cpu"])
        .assert_bad_input(&["--gpus asks for GPUs"]);
    run(&["solve", "x", "--mpi-timeout", "3"]).assert_bad_input(&["--mpi"]);
}
