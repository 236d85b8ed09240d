#!/usr/bin/env bash
# Ranks of MPI: scripts/mpi-checks.py with the program, the Rust API, the C library and the Fortran module, once for
# each MPI that is installed (Debian's Open MPI and MPICH). All are built once, without MPI; each MPI has a transport
# of its own (scripts/install-mpi.sh).
#
# usage: scripts/mpi-tests.sh [openmpi|mpich]...    default: those that are installed
#        SPARSEBATCH_REQUIRE_MPI=1: one that is not installed is an error
set -euo pipefail
cd "$(dirname "$0")/.."

built=target/mpi-tests
mkdir -p "$built"
cargo build --quiet --release --workspace --bin sparsebatch --test ranks --message-format json-render-diagnostics \
    >"$built/messages.json"
ranks=$(sed -n 's|.*"src_path":"[^"]*/crates/mpi/tests/ranks.rs".*"executable":"\([^"]*\)".*|\1|p' \
    "$built/messages.json" | tail -1)
scripts/install-capi.sh "$built/prefix" --workspace >/dev/null

flavours=("$@")
[[ ${#flavours[@]} -gt 0 ]] || flavours=(openmpi mpich)
# The flavours by the processes that check them.
checks=()
for flavour in "${flavours[@]}"; do
    if ! command -v "mpicc.$flavour" >/dev/null || ! command -v "mpirun.$flavour" >/dev/null; then
        echo "$flavour: mpicc.$flavour or mpirun.$flavour is not installed" >&2
        [[ -z ${SPARSEBATCH_REQUIRE_MPI:-} ]] || exit 1
        continue
    fi
    programs=$built/$flavour
    printf '\n%s: build\n' "$flavour"
    rm -rf "$programs"
    mkdir -p "$programs/c"
    cp target/release/sparsebatch "$programs/sparsebatch"
    cp "$ranks" "$programs/ranks"
    # The transport is beside the programs; programs in C and Fortran find it beside the library.
    MPICC=mpicc.$flavour scripts/install-mpi.sh "$programs"
    cp -a "$built/prefix" "$programs/prefix"
    cp "$programs/libsparsebatch_mpi_transport.so" "$programs/prefix/lib"
    library=(-L"$programs/prefix/lib" -Wl,-rpath,"$PWD/$programs/prefix/lib" -lsparsebatch)
    OMPI_CC=gcc MPICH_CC=gcc "mpicc.$flavour" -std=gnu11 -Wall -Wextra -Werror -I"$programs/prefix/include" \
        crates/capi/tests/mpi/ranks.c -o "$programs/c/ranks" "${library[@]}" -lm
    if command -v gfortran >/dev/null && command -v "mpifort.$flavour" >/dev/null; then
        OMPI_FC=gfortran MPICH_FC=gfortran "mpifort.$flavour" -std=f2018 -fall-intrinsics -Wall -Wextra -Werror \
            -fcheck=all -J "$programs/c" "$programs/prefix/include/sparsebatch.f90" crates/capi/tests/mpi/ranks.f90 \
            -o "$programs/c/ranks-f" "${library[@]}"
    elif [[ -n ${SPARSEBATCH_REQUIRE_MPI:-} ]]; then
        echo "gfortran or mpifort.$flavour is not installed" >&2
        exit 1
    fi
    # Ranks wait for each other most of the time, so that one MPI is checked while the next is built and checked.
    python3 scripts/mpi-checks.py "$flavour" "$programs" >"$built/$flavour.log" 2>&1 &
    checks[$!]=$flavour
done
failed=0
for check in "${!checks[@]}"; do
    wait "$check" || failed=1
    cat "$built/${checks[$check]}.log"
done
[[ ${#checks[@]} -gt 0 ]] || echo "no MPI is installed: nothing was tested"
exit $failed
