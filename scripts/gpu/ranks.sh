#!/usr/bin/env bash
# Ranks of MPI on a machine with one GPU or several, which they divide: the bits of a process on one GPU.
#
# usage: scripts/gpu/ranks.sh PROGRAM RESULTS
#   PROGRAM   a sparsebatch with the transport of Open MPI 4 beside it, built elsewhere
#   RESULTS   folder for reports and the log
# CUDA's libraries must be on LD_LIBRARY_PATH.
set -u -o pipefail
[[ $# -eq 2 ]] || { sed -n '4p' "$0" >&2; exit 2; }
program=$(realpath "$1")
mkdir -p "$2"
cd "$2" || exit 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failed=0

# ranks N NAME ARGUMENTS...: a solve by N ranks whose file of solutions is that of one process.
ranks() {
    local count=$1 name=$2
    shift 2
    if mpirun --oversubscribe --bind-to none -n "$count" "$program" solve --mpi "$@" --backend gpu \
        --output ranks.npz --json >"$name.json" && cmp alone.npz ranks.npz; then
        echo "$name: equal solutions"
    else
        echo "$name: failed"
        failed=1
    fi
}
{
    for family in "tri --n 128 --batch 20000" "mix --batch 3000"; do
        read -ra words <<<"$family"
        "$program" generate "${words[@]}" systems.batch -q || failed=1
        "$program" solve systems.batch --gpus 0 --backend gpu --output alone.npz --export-plan plan.txt -q || failed=1
        for count in 1 2 3; do
            ranks "$count" "${words[0]}-$count" systems.batch
        done
        ranks 2 "${words[0]}-mpi-pin" systems.batch --mpi-pin
        ranks 2 "${words[0]}-pin-plan" systems.batch --pin-plan plan.txt
    done
} 2>&1 | tee ranks.txt
grep -q failed ranks.txt && failed=1
rm -f systems.batch alone.npz ranks.npz
exit $failed
