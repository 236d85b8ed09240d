#!/usr/bin/env bash
# The sparse LU by fronts on a machine with a GPU and no cargo: tests, sanitizers over them, and times of
# grids beside CG, beside an older program, and beside cuDSS.
#
# usage: scripts/gpu/fronts.sh BINARIES RESULTS [PART...]
#   BINARIES   folder with programs built with --release elsewhere: solvers-device (the test `device` of
#              sparsebatch-solvers), sparsebatch, for the part old an older sparsebatch as old-sparsebatch,
#              and for the part cudss cudss_peer (scripts/gpu/cudss_peer.cu)
#   RESULTS    folder for logs, rows and reports
#   PART       tests, memcheck, racecheck, synccheck, initcheck; fronts, fronts-f32, few, old, cudss
#              [default: tests memcheck fronts]
# CUDA's libraries must be on LD_LIBRARY_PATH, for the part cudss libcudss.so.1, too. Sanitizers solve
# SANITIZER_SYSTEMS (default 8) systems of each pattern, within SANITIZER_SECONDS (default 200).
set -u -o pipefail
binaries=$1 results=$2
shift 2
[[ $# -gt 0 ]] || set -- tests memcheck fronts
mkdir -p "$results"
nvidia-smi >"$results/nvidia-smi.txt" 2>&1
export SPARSEBATCH_REQUIRE_GPU=1
failed=0

# part NAME PROGRAM ARGUMENTS...: one call of bench, its report and its rows.
part() {
    local name=$1 program=$2
    shift 2
    echo "== $name: bench solvers $*"
    timeout "${PART_SECONDS:-200}" "$binaries/$program" bench solvers --no-peer "$@" \
        --output "$results/$name.jsonl" 2>&1 | tee "$results/$name.txt"
    local code=$?
    echo "== $name: exit $code"
    [[ $code -eq 0 ]] || failed=1
}

grids=(--case "lap2d 1225" --case "lap2d 2500" --case "lap2d 4900" --case "lap2d 10000")
for name in "$@"; do
    case $name in
        tests)
            timeout 300 "$binaries/solvers-device" multifrontal:: factored:: >"$results/tests.txt" 2>&1 ||
                failed=1
            grep -E 'test result|FAILED|panicked' "$results/tests.txt"
            ;;
        memcheck | racecheck | synccheck | initcheck)
            SPARSEBATCH_TEST_SYSTEMS=${SANITIZER_SYSTEMS:-8} timeout "${SANITIZER_SECONDS:-200}" \
                compute-sanitizer --tool "$name" --report-api-errors no "$binaries/solvers-device" \
                multifrontal:: >"$results/$name.txt" 2>&1 || failed=1
            grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|test result' "$results/$name.txt"
            ;;
        fronts) part fronts sparsebatch "${grids[@]}" --case "lap2d 19600" --method lu,cg --batch 100,1000 ;;
        fronts-f32) part fronts-f32 sparsebatch "${grids[@]}" --method lu --precision f32 --batch 100,1000 ;;
        few) part few sparsebatch "${grids[@]}" --method lu --batch 1,10,200,300 ;;
        old) part old old-sparsebatch "${grids[@]}" --case "lap2d 19600" --method lu --batch 100,1000 ;;
        cudss)
            timeout 200 "$binaries/cudss_peer" 35:1000 50:1000 70:1000 100:1000 140:1000 \
                35:100 50:100 70:100 100:100 140:100 >"$results/cudss.jsonl" 2>"$results/cudss.txt" || failed=1
            cat "$results/cudss.jsonl"
            ;;
        *)
            echo "unknown part: $name" >&2
            exit 2
            ;;
    esac
done
exit $failed
