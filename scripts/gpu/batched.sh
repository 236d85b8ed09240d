#!/usr/bin/env bash
# Tests of the device layer and the batched products on a machine with a GPU and no cargo.
#
# usage: scripts/gpu/batched.sh BINARIES MATRICES RESULTS
#   BINARIES   folder with the test and bench programs of sparsebatch-spmv-gpu (device, nvrtc,
#              context_lost, packed, batched), built with --release elsewhere
#   MATRICES   folder with the small matrices
#   RESULTS    folder for logs and JSON lines
# BENCH_COMMIT names the commit in the rows. CUDA's libraries must be on LD_LIBRARY_PATH.
set -u
binaries=$1 matrices=$2 results=$3
mkdir -p "$results"
export SPARSEBATCH_REQUIRE_GPU=1 SPARSEBATCH_REQUIRE_NVRTC=1
export BENCH_DATE=$(date -u +%FT%TZ)
nvidia-smi >"$results/nvidia-smi.txt" 2>&1
for test in device nvrtc context_lost packed; do
    "$binaries/$test" >"$results/test-$test.txt" 2>&1
    echo "$test: exit $?"
    grep -E 'test result|FAILED|panicked' "$results/test-$test.txt"
done
for case in hetero_all hetero_800_1024; do
    timeout 150 "$binaries/batched" "$matrices" --case $case --sweep --no-peer 2>&1 |
        tee "$results/sweep-$case.txt"
done
if command -v ncu >/dev/null; then
    timeout 120 ncu --clock-control none --set full -k regex:packed_spmv --launch-skip 2 -c 1 \
        "$binaries/batched" "$matrices" --case hetero_all --no-peer >"$results/ncu-hetero_all.txt" 2>&1
fi
timeout 400 "$binaries/batched" "$matrices" --json "$results/batched.jsonl" 2>&1 |
    tee "$results/batched.txt"
