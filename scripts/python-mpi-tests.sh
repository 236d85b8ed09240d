#!/usr/bin/env bash
# Tests of sparsebatch.mpi on 1, 2 and 3 ranks, by Debian's Open MPI and the Python that comes first in PATH,
# which has the package, mpi4py, SciPy, pytest and hypothesis.
#
# usage: scripts/python-mpi-tests.sh
#        SPARSEBATCH_REQUIRE_MPI=1: an MPI that is not installed is an error
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v mpirun.openmpi >/dev/null || ! python -c 'import mpi4py' 2>/dev/null; then
    echo "mpirun.openmpi or mpi4py is not installed: nothing was tested" >&2
    [[ -z ${SPARSEBATCH_REQUIRE_MPI:-} ]] || exit 1
    exit 0
fi
# Ranks poll while they wait, and there may be fewer cores than ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export MPI4PY_MPIABI=openmpi SPARSEBATCH_TEST_RANKS=1
# A hang is a failure.
job() {
    local ranks=$1
    shift
    timeout --kill-after 5 120 mpirun.openmpi --oversubscribe --bind-to none -n "$ranks" python -m "$@"
}
for ranks in 1 2 3; do
    printf '\n%s ranks\n' "$ranks"
    job "$ranks" pytest -q -p no:cacheprovider python/tests/mpi
done
for how in raise killed; do
    printf '\none rank ends: %s\n' "$how"
    status=0 began=$SECONDS
    said=$(job 3 mpi4py python/tests/mpi/one_rank_ends.py "$how" 2>&1) || status=$?
    took=$((SECONDS - began))
    [[ $status -ne 0 && $took -lt 60 && $said == *"ready to end"* ]] || {
        echo "expected that a rank ends on purpose, soon and with an exit code; found $status after $took s: $said" >&2
        exit 1
    }
done
