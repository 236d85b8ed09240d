#!/usr/bin/env bash
# Banded solves on a machine with a GPU and no cargo: tests, memcheck over them, and times beside
# cuSPARSE's solvers of tridiagonal and pentadiagonal systems and the sparse LU.
#
# usage: scripts/gpu/banded.sh BINARIES RESULTS [PART...]
#   BINARIES   folder with programs built with --release elsewhere: solvers-device (the test `device` of
#              sparsebatch-solvers) and sparsebatch
#   RESULTS    folder for logs, rows and reports
#   PART       tests, memcheck, tri, tri-f32, few, large; penta, penta-f32, penta-few, penta-large: the same
#              for pentadiagonal systems; blocks, blocks-f32, blocks-few: systems that the blocks of a cluster
#              solve together; wide, wide-f32: three and four diagonals on each side, beside the sparse LU
#              [default: tests memcheck tri penta]
# CUDA's libraries must be on LD_LIBRARY_PATH. A part of rows that takes longer than PART_SECONDS (default
# 570) is ended; its rows so far stay in RESULTS/PART.jsonl.part. The part memcheck solves SANITIZER_SYSTEMS
# (default 12) systems of each size.
set -u -o pipefail
binaries=$1 results=$2
shift 2
[[ $# -gt 0 ]] || set -- tests memcheck tri penta
mkdir -p "$results"
nvidia-smi >"$results/nvidia-smi.txt" 2>&1
export SPARSEBATCH_REQUIRE_GPU=1
failed=0

# part NAME ARGUMENTS...: one call of bench, its report and its rows.
part() {
    local name=$1
    shift
    echo "== $name: bench $*"
    timeout "${PART_SECONDS:-570}" "$binaries/sparsebatch" bench "$@" --output "$results/$name.jsonl" 2>&1 |
        tee "$results/$name.txt"
    local code=$?
    echo "== $name: exit $code"
    [[ $code -eq 0 ]] || failed=1
}

methods=(--method "banded,lu")
# The sizes of the family tri.
penta=()
for rows in 32 64 128 256 512 1024; do
    penta+=(--case "penta $rows")
done
for name in "$@"; do
    case $name in
        tests)
            "$binaries/solvers-device" banded:: >"$results/tests.txt" 2>&1 || failed=1
            grep -E 'test result|FAILED|panicked' "$results/tests.txt"
            ;;
        memcheck)
            SPARSEBATCH_TEST_SYSTEMS=${SANITIZER_SYSTEMS:-12} compute-sanitizer --tool memcheck \
                --report-api-errors no "$binaries/solvers-device" banded:: \
                >"$results/memcheck.txt" 2>&1 || failed=1
            tail -1 "$results/memcheck.txt"
            ;;
        tri) part tri solvers --case tri "${methods[@]}" --batch 1000,10000,65536 ;;
        tri-f32) part tri-f32 solvers --case tri "${methods[@]}" --precision f32 ;;
        few) part few solvers --case tri "${methods[@]}" --batch 1,10,100 ;;
        large)
            part large solvers --batch 100,1000,10000 --case "tri 2048" --case "tri 4096" \
                --case "tri 6656" "${methods[@]}"
            ;;
        penta) part penta solvers "${penta[@]}" "${methods[@]}" --batch 1000,10000,65536 ;;
        penta-f32)
            part penta-f32 solvers "${penta[@]}" "${methods[@]}" --batch 1000,10000,65536 --precision f32
            ;;
        penta-few) part penta-few solvers "${penta[@]}" "${methods[@]}" --batch 1,10,100 ;;
        penta-large)
            part penta-large solvers --batch 100,1000,10000 --case "penta 2048" --case "penta 3584" \
                "${methods[@]}"
            ;;
        blocks | blocks-f32)
            precision=f64
            [[ $name == blocks ]] || precision=f32
            part "$name" solvers --batch 100,1000,10000 --case "tri 8192" --case "tri 10000" \
                --case "penta 4096" --case "penta 8192" --method banded --precision $precision
            ;;
        blocks-few)
            part blocks-few solvers --batch 1,10,100,1000 --case "tri 16384" --case "tri 32768" \
                --case "penta 16384" --case "penta 28672" --method banded
            ;;
        wide | wide-f32)
            precision=f64
            [[ $name == wide ]] || precision=f32
            bands=$results/bands
            [[ -d $bands ]] || python3 "$(dirname "$0")/bands.py" "$bands"
            part "$name" solvers --sets "$bands" --no-generated --batch 1000,10000 "${methods[@]}" \
                --no-peer --precision $precision
            ;;
        *)
            echo "unknown part $name" >&2
            exit 2
            ;;
    esac
done
exit $failed
