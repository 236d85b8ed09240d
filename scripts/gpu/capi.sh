#!/usr/bin/env bash
# The C library's test of data on a GPU, on a machine with a GPU, gcc, and no cargo.
#
# usage: scripts/gpu/capi.sh PREFIX RESULTS
#   PREFIX    folder into which scripts/install-capi.sh has installed the library elsewhere; the static one is not needed
#   RESULTS   folder for the log
set -euo pipefail
[[ $# -eq 2 ]] || { sed -n '4p' "$0" >&2; exit 2; }
prefix=$(realpath "$1")
mkdir -p "$2"
results=$(realpath "$2")
cd "$(dirname "$0")/../.."
gcc -std=gnu11 -g -Wall -Wextra -I"$prefix/include" crates/capi/tests/c/device.c -o "$results/device" \
    -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -l:libsparsebatch.so.0 -lm -ldl
SPARSEBATCH_REQUIRE_GPU=1 "$results/device" 2>&1 | tee "$results/capi-device.txt"
