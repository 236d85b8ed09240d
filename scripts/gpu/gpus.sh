#!/usr/bin/env bash
# Several GPUs of one process, on a machine with at least two and no cargo: tests, the command line, and one GPU
# against all in turns.
#
# usage: scripts/gpu/gpus.sh BINARIES RESULTS [PART...]
#   BINARIES   folder with the test program solvers-device and the program sparsebatch, built with --release elsewhere
#   RESULTS    folder for logs, and for rows in gpus-CASE-LIST.jsonl
#   PART       tests, cli, tri, lap2d, rand9 [default: all of them]
# CUDA's libraries must be on LD_LIBRARY_PATH. SYSTEMS (default 100000) is the number of systems of a GPU, GPUS
# (default all) the list of GPUs, LISTS (default GPUS) those that the bench compares with the first GPU, such as
# «0,1 all», and a part has PART_SECONDS (default 150). BENCH_COMMIT overrides the commit in the
# rows.
set -u -o pipefail
binaries=$1 results=$2
shift 2
[[ $# -gt 0 ]] || set -- tests cli tri lap2d rand9
mkdir -p "$results"
{ nvidia-smi; nvidia-smi topo -m; lscpu | head -25; } >"$results/machine.txt" 2>&1
export SPARSEBATCH_REQUIRE_GPU=1 SPARSEBATCH_REQUIRE_GPUS=1
gpus=${GPUS:-all} seconds=${PART_SECONDS:-150} failed=0

source "$(dirname "$0")/commands.sh"

# bench FAMILY CASE
bench() {
    local list
    for list in ${LISTS:-$gpus}; do
        run "gpus-$1-$list" "$binaries/sparsebatch" bench solvers --experiment gpus --gpus "$list" --case "$2" \
            --batch "${SYSTEMS:-100000}" --output "$results/gpus-$1-$list.jsonl"
    done
}

for part in "$@"; do
    case $part in
        tests) run tests "$binaries/solvers-device" gpus:: --nocapture --test-threads 1 ;;
        cli)
            "$binaries/sparsebatch" generate tri --n 128 --batch 20000 "$results/tri.batch" >/dev/null || failed=1
            for list in 0 1 "$gpus"; do
                run "solve-$list" "$binaries/sparsebatch" solve "$results/tri.batch" --gpus "$list" --backend gpu \
                    --output "$results/x-$list.npz" --json
            done
            cmp "$results/x-0.npz" "$results/x-1.npz" && cmp "$results/x-0.npz" "$results/x-$gpus.npz" &&
                echo "== equal solutions on GPU 0, on GPU 1 and on $gpus" | tee "$results/bits.txt" || failed=1
            expect no-gpu-97 2 "--gpus: no GPU number 97" \
                "$binaries/sparsebatch" solve "$results/tri.batch" --gpus 0,97
            expect on-cpu 2 "--gpus asks for GPUs" \
                "$binaries/sparsebatch" solve "$results/tri.batch" --gpus 0,1 --backend cpu
            rm -f "$results"/x-*.npz "$results/tri.batch"
            ;;
        tri) bench tri "tri 128" ;;
        lap2d) bench lap2d "lap2d 900" ;;
        rand9) bench rand9 "rand9 512" ;;
        *)
            echo "unknown part $part" >&2
            exit 2
            ;;
    esac
done
grep -h "times as fast" "$results"/gpus-*.txt 2>/dev/null | tee "$results/ratios.txt"
exit $failed
