//! `solve --mpi` without MPI ranks; with them: `scripts/mpi-tests.sh`.

use crate::common::run;

/// The tests run a program without MPI, unless they are built with the feature.
#[cfg(not(feature = "mpi"))]
#[test]
fn a_build_without_mpi_says_how_to_build_one_with_it() {
    let refused = run(&["solve", "examples/data/alpha13_small.batch", "--mpi"]);

    refused.assert_bad_input(&["--mpi: built without MPI", "--features mpi"]);
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
