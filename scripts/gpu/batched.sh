#!/usr/bin/env bash
# Tests of the device layer and the batched products on a machine with a GPU and no cargo.
#
# usage: scripts/gpu/batched.sh BINARIES MATRICES RESULTS
#   BINARIES   folder with the test and bench programs of sparsebatch-spmv-gpu (device,
#              context_lost, packed, single, flexible, interop, trust, out_of_memory, batched), built
#              with --release elsewhere
#   MATRICES   folder with the small matrices
#   RESULTS    folder for logs and JSON lines
# BENCH_COMMIT names the commit in the rows. CUDA's libraries must be on LD_LIBRARY_PATH.
set -u
binaries=$1 matrices=$2 results=$3
mkdir -p "$results"
export SPARSEBATCH_REQUIRE_GPU=1
export BENCH_DATE=$(date -u +%FT%TZ)
nvidia-smi >"$results/nvidia-smi.txt" 2>&1
for test in device context_lost packed single flexible interop trust out_of_memory; do
    "$binaries/$test" >"$results/test-$test.txt" 2>&1
    echo "$test: exit $?"
    grep -E 'test result|FAILED|panicked' "$results/test-$test.txt"
done
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck synccheck; do
        for test in packed single flexible; do
            # What the driver refuses on purpose, such as a query past the last parameter, is no
            # error of a kernel.
            timeout 60 compute-sanitizer --tool $tool --report-api-errors no "$binaries/$test" gpu \
                >"$results/$tool-$test.txt" 2>&1
            echo "$tool $test: exit $? $(tail -1 "$results/$tool-$test.txt")"
        done
    done | tee "$results/sanitizers.txt"
    rm -f "$results"/*check-*.txt
fi
if command -v ncu >/dev/null; then
    timeout 120 ncu --clock-control none --set full -k regex:packed_spmv --launch-skip 2 -c 1 \
        "$binaries/batched" "$matrices" --case hetero_all --no-peer >"$results/ncu-hetero_all.txt" 2>&1
fi
timeout 300 "$binaries/batched" "$matrices" --json "$results/batched.jsonl" 2>&1 |
    tee "$results/batched.txt"
