#!/usr/bin/env bash
# The campaign against the solvers on a machine with a GPU and no cargo, and its set of solves beside that of another
# build of the program.
#
# usage: scripts/gpu/campaign.sh BINARIES RESULTS [BEFORE]
#   BINARIES   folder with `campaign` (the example) and `sparsebatch`, built with --release elsewhere
#   RESULTS    folder for what comes out: campaign.txt, and rows of `bench solvers` by turns
#   BEFORE     a program to measure beside this one, in turns A B B A
# CUDA's libraries must be on LD_LIBRARY_PATH. SYSTEMS [100000] are solved on the GPU, of which some are held against
# exact residuals; SUITE holds further arguments of `bench solvers`, and SPARSEBATCH_DATA the folder of sets.
set -u
binaries=$1 results=$2 before=${3:-}
mkdir -p "$results"
nvidia-smi >"$results/nvidia-smi.txt" 2>&1
"$binaries/campaign" --gpu --systems "${SYSTEMS:-100000}" >"$results/campaign.txt" 2>&1
echo "campaign: exit $?"
grep -E 'MISREPORTED|misreported|refused' "$results/campaign.txt"
[[ -n $before ]] || exit 0
turn=0
for program in "$before" "$binaries/sparsebatch" "$binaries/sparsebatch" "$before"; do
    turn=$((turn + 1))
    # shellcheck disable=SC2086
    "$program" bench solvers --backend gpu ${SUITE:-} --output "$results/solvers-$turn.jsonl" -q
    echo "turn $turn: exit $?"
done
