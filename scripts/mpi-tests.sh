#!/usr/bin/env bash
# Batches on MPI ranks: builds the program and the test of the Rust API with the feature mpi, once for
# each MPI that is installed (Debian's Open MPI and MPICH), and runs scripts/mpi-checks.py with both.
#
# One target folder serves all: mpi-sys is built again for the other MPI, with the crates above it. That
# takes a quarter of the time of a folder of its own, in which everything would be built.
#
# usage: scripts/mpi-tests.sh [openmpi|mpich]...    default: those that are installed
#        SPARSEBATCH_REQUIRE_MPI=1: one that is not installed is an error
set -euo pipefail
cd "$(dirname "$0")/.."

flavours=("$@")
[[ ${#flavours[@]} -gt 0 ]] || flavours=(openmpi mpich)
ran=0
for flavour in "${flavours[@]}"; do
    if ! command -v "mpicc.$flavour" >/dev/null || ! command -v "mpirun.$flavour" >/dev/null; then
        echo "$flavour: mpicc.$flavour or mpirun.$flavour is not installed" >&2
        [[ -z ${SPARSEBATCH_REQUIRE_MPI:-} ]] || exit 1
        continue
    fi
    programs=target/mpi-tests/$flavour
    mkdir -p "$programs"
    printf '\n%s: build\n' "$flavour"
    # Cargo does not see that MPICC has changed.
    cargo clean --quiet --release -p mpi-sys
    MPICC=mpicc.$flavour cargo build --quiet --release --workspace --features mpi \
        --bin sparsebatch --test ranks --message-format json-render-diagnostics \
        >target/mpi-tests/messages.json
    cp target/release/sparsebatch "$programs/sparsebatch"
    ranks=$(sed -n 's|.*"src_path":"[^"]*/crates/mpi/tests/ranks.rs".*"executable":"\([^"]*\)".*|\1|p' \
        target/mpi-tests/messages.json | tail -1)
    cp "$ranks" "$programs/ranks"
    # Ranks of the C library.
    MPICC=mpicc.$flavour scripts/install-capi.sh "$programs/prefix" --workspace --mpi >/dev/null
    OMPI_CC=gcc MPICH_CC=gcc "mpicc.$flavour" -std=gnu11 -Wall -Wextra -Werror -I"$programs/prefix/include" \
        crates/capi/tests/mpi/ranks.c -o "$programs/ranks-c" \
        -L"$programs/prefix/lib" -Wl,-rpath,"$PWD/$programs/prefix/lib" -lsparsebatch -lm
    # And of the Fortran module.
    rm -f "$programs/ranks-f"
    if command -v gfortran >/dev/null && command -v "mpifort.$flavour" >/dev/null; then
        OMPI_FC=gfortran MPICH_FC=gfortran "mpifort.$flavour" -std=f2018 -fall-intrinsics -Wall -Wextra -Werror \
            -fcheck=all -J "$programs" "$programs/prefix/include/sparsebatch.f90" crates/capi/tests/mpi/ranks.f90 \
            -o "$programs/ranks-f" -L"$programs/prefix/lib" -Wl,-rpath,"$PWD/$programs/prefix/lib" -lsparsebatch
    elif [[ -n ${SPARSEBATCH_REQUIRE_MPI:-} ]]; then
        echo "gfortran or mpifort.$flavour is not installed" >&2
        exit 1
    fi
    python3 scripts/mpi-checks.py "$flavour" "$programs"
    ran=$((ran + 1))
done
# The build without MPI, as other steps expect it, is made by the next cargo build.
[[ $ran -gt 0 ]] || echo "no MPI is installed: nothing was tested"
