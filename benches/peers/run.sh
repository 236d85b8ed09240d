#!/bin/sh
# Measures our products beside SciPy, MKL and Eigen on the same matrices and thread counts and
# prints one table. Needs cargo and python3; makes a virtual environment with numpy, scipy and mkl,
# and compiles the Eigen program where g++ and Eigen's headers are found. What is missing is named
# below the table.
#
# usage: benches/peers/run.sh [WORK_FOLDER]     (default: target/peers; JSON lines stay in it)
#   THREADS="1 2 4"   thread counts (default: 1 and all cores)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${1:-$root/target/peers}
threads=${THREADS:-$(printf '1\n%s\n' "$(nproc)" | sort -nu | tr '\n' ' ')}
mkdir -p "$work/data"

python=$work/venv/bin/python
[ -x "$python" ] || python3 -m venv "$work/venv" || python=python3
"$python" -c 'import numpy, scipy' 2>/dev/null && ls "$work"/venv/lib/libmkl_rt.so* >/dev/null 2>&1 ||
    "$python" -m pip install --quiet numpy scipy mkl || echo "pip could not install all peers" >&2

eigen=
for include in "${EIGEN_INCLUDE:-}" /usr/include/eigen3 /usr/local/include/eigen3; do
    if [ -n "$include" ] && [ -d "$include/Eigen" ]; then
        g++ -O3 -march=native -fopenmp -DNDEBUG -I"$include" "$here/eigen_spmv.cpp" \
            -o "$work/eigen_spmv" && eigen=$work/eigen_spmv
        break
    fi
done

cd "$root"
cargo bench --quiet --bench peers -- write "$work/data"
: >"$work/peers.jsonl"
for count in $threads; do
    cargo bench --quiet --bench peers -- measure "$work/data" "$count" >>"$work/peers.jsonl"
    "$python" "$here/measure.py" "$work/data" "$count" "$eigen" >>"$work/peers.jsonl"
done
"$python" "$here/table.py" <"$work/peers.jsonl"
