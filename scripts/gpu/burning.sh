#!/usr/bin/env bash
# The nuclear burning example on a machine with a GPU and no cargo: 4,096 zones to 1 s of each network on
# the GPU, of the largest with the dense LU of cuBLAS too, and on the CPU with all cores, there also with a dense LU
# of each zone; the same but for that with zones that heat themselves; ratios of times.
#
# usage: scripts/gpu/burning.sh BINARY NETWORKS RESULTS [PART...]
#   BINARY     the example nuclear_burning, built with --release elsewhere
#   NETWORKS   folder with reaclib_NAME.json and reference_NAME.json
#   RESULTS    folder for reports, and for the lines of all runs in burning.jsonl
#   PART       smoke, alpha13, mid57, sn156, dense (sn156), cpu (sn156), cpu-dense (sn156), heated-alpha13,
#              heated-mid57, heated-sn156, heated-dense, heated-cpu [default: all of them]
# ZONES (default 4096) is the size of the grids; a run that takes longer than RUN_SECONDS (default 570) is
# ended. CUDA's libraries must be on LD_LIBRARY_PATH. BENCH_COMMIT overrides the commit in the lines.
set -u -o pipefail
binary=$1 networks=$2 results=$3
shift 3
[[ $# -gt 0 ]] || set -- smoke alpha13 mid57 sn156 dense cpu cpu-dense \
    heated-alpha13 heated-mid57 heated-sn156 heated-dense heated-cpu
mkdir -p "$results"
nvidia-smi >"$results/nvidia-smi.txt" 2>&1
zones=${ZONES:-4096}
failed=0

# run NAME NETWORK ARGUMENTS...: one run, its report and its line.
run() {
    local name=$1 network=$2
    shift 2
    echo "== $name: $*"
    timeout "${RUN_SECONDS:-570}" "$binary" --network "$networks/reaclib_$network.json" --quiet \
        --no-plots --json "$results/burning.jsonl" "$@" 2>&1 | tee "$results/$name.txt"
    local code=$?
    echo "== $name: exit $code"
    [[ $code -eq 0 ]] || failed=1
}

# seconds NAME: what the report of a run says.
seconds() {
    sed -n 's/^zones .* finished in \([0-9.]*\) s.*/\1/p' "$results/$1.txt" 2>/dev/null | head -1
}

for part in "$@"; do
    case $part in
        smoke)
            run smoke alpha13 --backend gpu --zones 96
            run smoke-dense alpha13 --backend gpu --zones 96 --solver dense-lu
            ;;
        alpha13 | mid57)
            run "$part" "$part" --backend gpu --zones "$zones"
            ;;
        sn156)
            # The second run finds compiled kernels.
            run sn156-first sn156 --backend gpu --zones "$zones" --no-reference
            run sn156 sn156 --backend gpu --zones "$zones"
            ;;
        dense) run dense sn156 --backend gpu --zones "$zones" --solver dense-lu --no-reference ;;
        cpu) run cpu sn156 --backend cpu --zones "$zones" --no-reference ;;
        cpu-dense) run cpu-dense sn156 --backend cpu --zones "$zones" --solver dense-lu --no-reference ;;
        heated-alpha13 | heated-mid57 | heated-sn156)
            run "$part" "${part#heated-}" --backend gpu --zones "$zones" --self-heating --no-reference
            ;;
        heated-dense)
            run "$part" sn156 --backend gpu --zones "$zones" --self-heating --solver dense-lu --no-reference
            ;;
        heated-cpu) run "$part" sn156 --backend cpu --zones "$zones" --self-heating --no-reference ;;
        *)
            echo "unknown part $part" >&2
            exit 2
            ;;
    esac
done
# ratio OTHER OURS
ratio() {
    local theirs ours
    theirs=$(seconds "$1") ours=$(seconds "$2")
    [[ -n $ours && -n $theirs ]] || return 0
    awk -v a="$theirs" -v b="$ours" -v name="$1" -v than="$2" \
        'BEGIN { printf "%s %.2f s, %s %.2f s: %.1f x\n", name, a, than, b, a / b }'
}
{
    ratio dense sn156
    ratio cpu sn156
    ratio cpu-dense cpu
    ratio heated-dense heated-sn156
    ratio heated-cpu heated-sn156
} | tee "$results/ratios.txt"
exit $failed
