#!/usr/bin/env bash
# Builds the library by which programs reach the MPI of this machine, and installs it into a folder:
# libsparsebatch_mpi_transport.so. It is found beside the program sparsebatch, beside libsparsebatch.so, where the
# system looks for libraries, and by the variable SPARSEBATCH_MPI_TRANSPORT.
#
#   scripts/install-mpi.sh ~/.cargo/bin
#   MPICC=mpicc.mpich scripts/install-mpi.sh /usr/local/lib     MPICC names the compiler of the MPI, default mpicc
#
# Needs Rust, the headers of an MPI and libclang; some ten seconds, half a minute for the first time.
set -euo pipefail
[[ $# -eq 1 ]] || { echo "expected a folder: scripts/install-mpi.sh ~/.cargo/bin" >&2; exit 2; }
compiler=${MPICC:-mpicc}
command -v "$compiler" >/dev/null || { echo "$compiler was not found: MPICC names the compiler of an MPI" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

# Cargo does not see that MPICC has changed.
cargo clean --quiet --release -p mpi-sys
MPICC=$compiler cargo rustc --quiet --release -p sparsebatch-mpi-transport --features library --crate-type cdylib
built=${CARGO_TARGET_DIR:-target}/release
install -m 755 "$built/libsparsebatch_mpi_transport.so" "$folder"
# A program of this folder would find it beside itself, whatever MPI starts it.
rm -f "$built"/{,deps/}libsparsebatch_mpi_transport.so
echo "libsparsebatch_mpi_transport.so for the MPI of $compiler is in $folder"
