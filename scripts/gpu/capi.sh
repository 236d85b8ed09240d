#!/usr/bin/env bash
# The C library's test of data on a GPU, and the example with tiles on streams, on a machine with a GPU, gcc, g++, and no
# cargo.
#
# usage: scripts/gpu/capi.sh PREFIX RESULTS [OVERHEAD]
#   PREFIX    folder into which scripts/install-capi.sh has installed the library elsewhere; the static one is not needed
#   RESULTS   folder for the logs
#   OVERHEAD  the bench of the C library, built elsewhere by cargo bench -p sparsebatch-capi --no-run
set -euo pipefail
[[ $# -eq 2 || $# -eq 3 ]] || { sed -n '5p' "$0" >&2; exit 2; }
prefix=$(realpath "$1")
mkdir -p "$2"
results=$(realpath "$2")
overhead=${3:+$(realpath "$3")}
cd "$(dirname "$0")/../.."
gcc -std=gnu11 -g -Wall -Wextra -I"$prefix/include" crates/capi/tests/c/device.c -o "$results/device" \
    -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -l:libsparsebatch.so.0 -lm -ldl
SPARSEBATCH_REQUIRE_GPU=1 "$results/device" 2>&1 | tee "$results/capi-device.txt"
g++ -std=c++17 -I"$prefix/include" examples/c/tiles.cpp -o "$results/tiles" \
    -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -l:libsparsebatch.so.0 -ldl
"$results/tiles" --gpu 2>&1 | tee "$results/capi-tiles.txt"
[[ -z $overhead ]] || "$overhead" --device 2>&1 | tee "$results/capi-overhead.txt"
