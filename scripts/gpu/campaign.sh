#!/usr/bin/env bash
# The campaign against the solvers on a machine with a GPU and no cargo, and its set of solves beside that of another
# build of the program.
#
# usage: scripts/gpu/campaign.sh BINARIES RESULTS [BEFORE]
#   BINARIES   folder with `campaign` (the example) and `sparsebatch`, built with --release elsewhere
#   RESULTS    folder for what comes out: campaign-*.txt, and rows of `bench solvers` by turns
#   BEFORE     a program to measure beside this one, in turns A B B A
# CUDA's libraries must be on LD_LIBRARY_PATH. SYSTEMS [100000] are solved on the GPU by PROCESSES [8] at a time, of
# batches of BATCH [500], since most of the time goes into compiling kernels; SYSTEMS=0 leaves the campaign out. SUITE
# holds further arguments of `bench solvers`, and SETS, where it is set, a folder of sets for turns of their own. A
# process of the campaign has CAMPAIGN_SECONDS [400].
set -u
binaries=$1 results=$2 before=${3:-}
mkdir -p "$results"
nvidia-smi >"$results/nvidia-smi.txt" 2>&1
processes=${PROCESSES:-8} systems=${SYSTEMS:-100000}
if [[ $systems -gt 0 ]]; then
    for ((process = 1; process <= processes; ++process)); do
        timeout "${CAMPAIGN_SECONDS:-400}" "$binaries/campaign" --gpu --batch "${BATCH:-500}" \
            --systems $((systems / processes)) --seed $((process * 100000)) \
            >"$results/campaign-$process.txt" 2>&1 || echo "process $process: exit $?" &
    done
    wait
    grep -hE 'MISREPORTED|misreported|refused' "$results"/campaign-*.txt
fi
[[ -n $before ]] || exit 0
# turns NAME ARGUMENTS...: one suite by both programs.
turns() {
    local name=$1 turn=0
    shift
    for program in "$before" "$binaries/sparsebatch" "$binaries/sparsebatch" "$before"; do
        turn=$((turn + 1))
        "$program" bench solvers --backend gpu --no-peer "$@" --output "$results/$name-$turn.jsonl" -q
        echo "$name, turn $turn: exit $?"
    done
}
[[ -z ${SETS:-} ]] || turns sets --no-generated --sets "$SETS"
# shellcheck disable=SC2086
turns families ${SUITE:-}
