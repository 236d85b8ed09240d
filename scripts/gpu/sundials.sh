#!/usr/bin/env bash
# The linear solver for SUNDIALS with data on a GPU: its test, and CVODE over burning zones with it beside SUNDIALS' own
# batched QR of cuSolverSp, on a machine with a GPU, nvcc, gcc and cmake, and no cargo.
#
# usage: scripts/gpu/sundials.sh PREFIX SUNDIALS NETWORKS RESULTS [PART...]
#   PREFIX    folder into which scripts/install-capi.sh has installed the library elsewhere, without the static one; it may
#             have jansson, too
#   SUNDIALS  sources of SUNDIALS 7, of which what is needed is built into RESULTS/sundials; or a folder into which
#             SUNDIALS is installed with ENABLE_CUDA=ON and SUNDIALS_INDEX_SIZE=32
#   NETWORKS  folder with reaclib_NAME.json and reference_NAME.json
#   RESULTS   folder for builds, logs, and the rows of all runs in sundials.jsonl
#   PART      build, test, alpha13, mid57, iterative (alpha13 and mid57) [default: all of them]
# ZONES (default 10000) and ROUNDS (default 3) are those of the runs, END_alpha13 (default 1e-2) and END_mid57 (default
# 1e-5) where they end, in s. CUDA's libraries must be on LD_LIBRARY_PATH. BENCH_COMMIT is the commit in the rows.
set -euo pipefail
[[ $# -ge 4 ]] || { sed -n '5p' "$0" >&2; exit 2; }
prefix=$(realpath "$1") sundials=$(realpath "$2") networks=$(realpath "$3")
mkdir -p "$4"
results=$(realpath "$4")
shift 4
[[ $# -gt 0 ]] || set -- build test alpha13 mid57 iterative
cd "$(dirname "$0")/../.."
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
architecture=${CUDA_ARCHITECTURE:-90}
zones=${ZONES:-10000} rounds=${ROUNDS:-3}

# The parts of SUNDIALS that the programs need; the sources may lack the examples.
build_sundials() {
    cmake -S "$sundials" -B "$results/sundials-build" -DCMAKE_INSTALL_PREFIX="$results/sundials" \
        -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DENABLE_CUDA=ON -DSUNDIALS_INDEX_SIZE=32 \
        -DCMAKE_CUDA_ARCHITECTURES="$architecture" -DBUILD_ARKODE=OFF -DBUILD_CVODES=OFF -DBUILD_IDA=OFF \
        -DBUILD_IDAS=OFF -DBUILD_KINSOL=OFF -DEXAMPLES_ENABLE_C=OFF -DEXAMPLES_ENABLE_CXX=OFF \
        -DEXAMPLES_ENABLE_CUDA=OFF -DEXAMPLES_INSTALL=OFF
    cmake --build "$results/sundials-build" -j "$(nproc)"
    cmake --install "$results/sundials-build"
}

build() {
    if [[ -e $sundials/CMakeLists.txt ]]; then
        build_sundials >"$results/sundials.log" 2>&1 || { tail -30 "$results/sundials.log"; exit 1; }
    fi
    cmake -S examples/sundials -B "$results/example" -DCUDA=ON -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_CUDA_ARCHITECTURES="$architecture" -DCMAKE_PREFIX_PATH="$prefix;$installed" >"$results/example.log" &&
        cmake --build "$results/example" -j "$(nproc)" >>"$results/example.log" 2>&1 ||
        { tail -30 "$results/example.log"; exit 1; }
    cp "$prefix/include/sunlinsol_sparsebatch.c" "$results/sunlinsol_sparsebatch.cu"
    nvcc -std=c++17 -O2 "-arch=sm_$architecture" -DSUNLINSOL_SPARSEBATCH_CUDA -I"$prefix/include" -I"$installed/include" \
        integrations/sundials/tests/device.cu "$results/sunlinsol_sparsebatch.cu" -o "$results/device" \
        -L"$prefix/lib" -Xlinker -rpath="$prefix/lib" -L"$installed/lib" -l:libsparsebatch.so.0 -lsundials_cvode \
        -lsundials_nveccuda -lsundials_nvecserial -lsundials_sunmatrixcusparse -lsundials_core -lcusparse -lm
}

# run NAME NETWORK ARGUMENTS...: one table, and its rows with the machine, the command, the date and the commit.
run() {
    local name=$1 network=$2 end=END_$2 code=0
    shift 2
    local command=("reaclib_$network.json" "reference_$network.json" --zones "$zones" --end "${!end}" "$@")
    rm -f "$results/rows.jsonl"
    echo "== $name: cvode_zones_cuda ${command[*]}"
    (cd "$networks" && "$results/example/cvode_zones_cuda" "${command[@]}" --json "$results/rows.jsonl") 2>&1 |
        tee "$results/$name.txt" || code=$?
    python3 - "$results/rows.jsonl" "cvode_zones_cuda ${command[*]}" "${BENCH_COMMIT:-$(git rev-parse --short HEAD)}" \
        >>"$results/sundials.jsonl" <<'PY'
import datetime, json, os, subprocess, sys

path, command, commit = sys.argv[1:]
query = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                       capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
cuda = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
machine = {"device": query[0], "driver": query[1], "cores": os.cpu_count(),
           "cuda": cuda.split("release ")[1].split(",")[0]}
for line in open(path):
    row = json.loads(line) | {"machine": machine, "command": command,
                              "date": datetime.date.today().isoformat(), "commit": commit}
    row["case"] = row["case"].removeprefix("reaclib_").removesuffix(".json")
    print(json.dumps(row))
PY
    return $code
}

installed=$sundials
[[ ! -e $sundials/CMakeLists.txt ]] || installed=$results/sundials
END_alpha13=${END_alpha13:-1e-2}
END_mid57=${END_mid57:-1e-5}
nvidia-smi >"$results/nvidia-smi.txt" 2>&1 || true
failed=0
for part in "$@"; do
    case $part in
        build) build ;;
        test) "$results/device" 2>&1 | tee "$results/device.txt" || failed=1 ;;
        alpha13 | mid57) run "$part" "$part" --rounds "$rounds" || failed=1 ;;
        iterative)
            for network in alpha13 mid57; do
                run "iterative-$network" "$network" --solvers sparsebatch,iterative || failed=1
            done
            ;;
        *)
            echo "unknown part $part" >&2
            exit 2
            ;;
    esac
done
exit $failed
