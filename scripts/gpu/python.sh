#!/usr/bin/env bash
# The Python package's tests and table of speeds on a machine with a GPU and no cargo.
#
# usage: scripts/gpu/python.sh WHEELS RESULTS
#   WHEELS    folder with the wheel, built with --release elsewhere, and with those of pytest where the
#             interpreter lacks it; nothing is downloaded
#   RESULTS   folder for logs, and the rows of the table in python.jsonl
# The interpreter (PYTHON, default python3) has NumPy, SciPy, pytest, and PyTorch, CuPy and JAX for a
# GPU; tests of a library that is missing are skipped, and say so. BENCH=no leaves the table out.
# BENCH_SECONDS (default 400) ends it; its rows so far stay.
set -u -o pipefail
[[ $# -eq 2 ]] || { sed -n '4p' "$0" >&2; exit 2; }
wheels=$(realpath "$1")
mkdir -p "$2"
results=$(realpath "$2")
cd "$(dirname "$0")/../.." || exit 2
nvidia-smi >"$results/nvidia-smi.txt" 2>&1
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
python=${PYTHON:-python3}
"$python" -m pip install --quiet --no-index --no-deps --root-user-action ignore --target "$packages" \
    "$wheels"/*.whl || exit 2
export PYTHONPATH=$packages
# The installed package is tested, not the sources: the working folder is not on the path.
export SPARSEBATCH_REQUIRE_GPU=1 PYTHONSAFEPATH=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
failed=0
# The tests beside these need packages that are not needed here: their conftest is left out.
{
    "$python" -m pytest -q -rs -p no:cacheprovider --confcutdir=python/tests/gpu python/tests/gpu
    [[ $? -eq 0 ]] || failed=1
    # Ranks poll, and run as root in a container.
    if command -v mpirun >/dev/null && "$python" -c 'import mpi4py' 2>/dev/null; then
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 \
            "$python" -m pytest -q -rs -p no:cacheprovider --confcutdir=python/tests/gpu \
            python/tests/gpu/test_gpu_ranks.py
        [[ $? -eq 0 ]] || failed=1
    fi
    "$python" -m pytest -q -rs -p no:cacheprovider --noconftest python/tests/test_torch.py
    [[ $? -eq 0 ]] || failed=1
    "$python" -m pytest -q -rs -p no:cacheprovider --noconftest python/tests/test_jax.py -k gpu
    [[ $? -eq 0 ]] || failed=1
    "$python" -m pytest -q -rs -p no:cacheprovider --noconftest python/tests/test_docs.py -k circuits
    [[ $? -eq 0 && $failed -eq 0 ]]
} 2>&1 | tee "$results/python-tests.txt" || failed=1
if [[ ${BENCH:-yes} == yes ]]; then
    timeout "${BENCH_SECONDS:-400}" env -u PYTHONSAFEPATH "$python" python/bench/gpu.py \
        --output "$results/python.jsonl" 2>&1 | tee "$results/python-bench.txt" || failed=1
fi
exit $failed
