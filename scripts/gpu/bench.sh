#!/usr/bin/env bash
# The suites of `sparsebatch bench` on a machine with a GPU and no cargo.
#
# usage: scripts/gpu/bench.sh BINARY MATRICES RESULTS [PART...]
#   BINARY     the program sparsebatch, built with --release elsewhere
#   MATRICES   folder with the folders small and large of matrices; large may be missing
#   RESULTS    folder for reports and JSON lines
#   PART       smoke, batch, kernels, single, single-small, full, fig3, fig4, fig5, fig6, fig7, solvers,
#              solvers-f32, solvers-small, large, sets, sets-auto, throughput, sell-p, row-kernels, cpu, gpu-vs-cpu, scaling, energy, profile
#              [default: smoke batch single]
# Solves are shown beside REFERENCE, a file of recorded figures, where that is set; the part sets takes
# the folders in SETS [default: MATRICES/batch].
# CUDA's libraries must be on LD_LIBRARY_PATH. A part that takes longer than PART_SECONDS (default
# 570) is ended; its rows so far stay in RESULTS/PART.jsonl.part. BENCH_COMMIT overrides the commit
# in the rows.
set -u -o pipefail
binary=$1 matrices=$2 results=$3
shift 3
[[ $# -gt 0 ]] || set -- smoke batch single
mkdir -p "$results"
nvidia-smi >"$results/nvidia-smi.txt" 2>&1
large=()
[[ -d $matrices/large ]] && large=(--matrices "$matrices/large")
small=(--matrices "$matrices/small")
recorded=()
[[ -n ${REFERENCE:-} ]] && recorded=(--reference "$REFERENCE")
read -r -a sets <<<"${SETS:-$matrices/batch}"
failed=0

# part NAME ARGUMENTS...: one call of bench, its report and its rows.
part() {
    local name=$1
    shift
    echo "== $name: bench $*"
    timeout "${PART_SECONDS:-570}" "$binary" bench "$@" --output "$results/$name.jsonl" 2>&1 |
        tee "$results/$name.txt"
    local code=$?
    echo "== $name: exit $code"
    [[ $code -eq 0 ]] || failed=1
}

for name in "$@"; do
    case $name in
        smoke)
            part smoke-batch flexible-batch "${small[@]}" --size small --kernel all \
                --case hetero_all --case GD02_a
            part smoke-single single --size small
            ;;
        batch) part batch flexible-batch "${small[@]}" ;;
        kernels) part kernels flexible-batch "${small[@]}" --kernel all --no-peer ;;
        single) part single single "${large[@]}" ;;
        single-small) part single-small single --no-generated "${small[@]}" ;;
        full)
            part full single --size full --case "laplace 7-point 200x200x200" \
                --case "laplace 27-point 150x150x150" --case "laplace 7-point 300x300x300" \
                --case "laplace 27-point 195x195x195"
            ;;
        fig[3567]) part "$name" flexible-batch "${small[@]}" --experiment "$name" ;;
        fig4) part fig4 flexible-batch --experiment fig4 ;;
        solvers) part solvers solvers "${recorded[@]}" ;;
        solvers-f32) part solvers-f32 solvers --precision f32 "${recorded[@]}" ;;
        solvers-small) part solvers-small solvers --size small --backend both "${recorded[@]}" ;;
        large)
            part large solvers --no-peer --batch 100,1000 --case "tri 8192" --case "lap2d 10000" \
                --case "lap2d 19600" --case "rand9 20000" --method cg,bicgstab,lu
            ;;
        sets) part sets solvers --no-generated --sets "${sets[@]}" "${recorded[@]}" ;;
        sets-auto)
            part sets-auto solvers --no-generated --method auto --sets "${sets[@]}" "${recorded[@]}"
            ;;
        throughput) part throughput throughput "${large[@]}" ;;
        sell-p | row-kernels) part "$name" "$name" "${large[@]}" "${small[@]}" ;;
        cpu) part cpu cpu ;;
        gpu-vs-cpu) part gpu-vs-cpu gpu-vs-cpu ;;
        scaling) part scaling scaling --backend both ;;
        energy) part energy energy ;;
        profile)
            timeout 120 ncu --clock-control none --set full -k regex:packed_spmv --launch-skip 2 \
                -c 1 "$binary" bench flexible-batch "${small[@]}" --case hetero_all --no-peer \
                >"$results/ncu-hetero_all.txt" 2>&1 || failed=1
            ;;
        *)
            echo "unknown part $name" >&2
            exit 2
            ;;
    esac
done
exit $failed
