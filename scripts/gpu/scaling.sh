#!/usr/bin/env bash
# All that several GPUs of one host do, on 1, 2, 4, 8, ... of them, as many as there are: batches in device memory and
# from the host, one process and one rank for each GPU, the nuclear burning example, one large matrix, and a GPU that
# has no memory. For a machine with at least two GPUs and no cargo. Keep NVLink multicast off (NCCL_NVLS_ENABLE=0).
#
# usage: scripts/gpu/scaling.sh BINARIES DATA RESULTS [PART...]
#   BINARIES   folder with sparsebatch (for ranks: libsparsebatch_mpi_transport.so of Open MPI 4 beside it) and
#              nuclear_burning, built with --release elsewhere; what a missing one is for is left out, and said
#   DATA       folder with batch_mid57.bin and batch_sn156.bin with their .meta.json, reaclib_sn156.json and
#              reference_sn156.json
#   RESULTS    folder for logs and rows
#   PART       tri, lap2d, rand9, mid57, sn156 (batches); ranks; burning; matrix (strong, edges 300 and 400); weak
#              (rows in proportion to GPUs); memory [default: all of them]
# SYSTEMS (default 100000) is the number of systems of a GPU, ZONES (default 4096) that of zones, SHARED (default 200000)
# that of all ranks together, EDGES (default "300 400") and EDGE (default 300, of one GPU) are edges of the large matrix,
# strong and weak, GPUS (default all) is the largest number of GPUs; a command has PART_SECONDS (default 300).
# BENCH_COMMIT overrides the commit in the rows.
set -u -o pipefail
[[ $# -ge 3 ]] || { sed -n '6p' "$0" >&2; exit 2; }
binaries=$(realpath "$1") data=$(realpath "$2")
mkdir -p "$3"
results=$(realpath "$3")
shift 3
[[ $# -gt 0 ]] || set -- tri lap2d rand9 mid57 sn156 ranks burning matrix weak memory
{ nvidia-smi; nvidia-smi topo -m; lscpu | head -25; free -g; } >"$results/machine.txt" 2>&1
there=$(nvidia-smi -L | grep -c '^GPU ')
most=${GPUS:-$there} seconds=${PART_SECONDS:-300} failed=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export SPARSEBATCH_REQUIRE_GPU=1 NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}

# The numbers of GPUs: 1, 2, 4, ... and all.
counts=()
for ((count = 1; count < most; count *= 2)); do counts+=("$count"); done
counts+=("$most")
# list COUNT: the first GPUs, such as 0,1.
list() { seq -s, 0 $(($1 - 1)); }

source "$(dirname "$0")/commands.sh"

# batches NAME ARGUMENTS...: one GPU in turns with each larger number of them.
batches() {
    local name=$1 count
    shift
    for count in "${counts[@]:1}"; do
        run "batch-$name-$count" "$binaries/sparsebatch" bench solvers --experiment gpus --gpus "$(list "$count")" \
            --batch "${SYSTEMS:-100000}" "$@" --output "$results/batch-$name-$count.jsonl"
    done
}

# One process with all GPUs, and a rank for each: times of the solve, and equal bits.
ranks() {
    [[ -e $binaries/libsparsebatch_mpi_transport.so ]] && command -v mpirun >/dev/null || { echo "ranks: left out, no MPI"; return; }
    local program=$binaries/sparsebatch batch=$results/ranks.batch count
    "$program" generate tri --n 128 --batch "${SHARED:-200000}" "$batch" -q || failed=1
    for count in "${counts[@]}"; do
        run "ranks-process-$count" "$program" solve "$batch" --backend gpu --gpus "$(list "$count")" \
            --output "$results/process.npz" --json
        run "ranks-mpi-$count" mpirun --oversubscribe --bind-to none -n "$count" "$program" solve --mpi "$batch" \
            --backend gpu --output "$results/ranks.npz" --json
        cmp "$results/process.npz" "$results/ranks.npz" && echo "== $count ranks: equal solutions" ||
            { echo "== $count ranks: other solutions"; failed=1; }
    done
    rm -f "$batch" "$results"/{process,ranks}.npz
}

# A process for each GPU with zones of its own: the time is to stay that of one.
burning() {
    [[ -x $binaries/nuclear_burning ]] || { echo "burning: left out, no nuclear_burning"; return; }
    local count gpu jobs job
    for count in "${counts[@]}"; do
        jobs=()
        for ((gpu = 0; gpu < count; ++gpu)); do
            CUDA_VISIBLE_DEVICES=$gpu timeout "$seconds" "$binaries/nuclear_burning" \
                --network "$data/reaclib_sn156.json" --backend gpu --zones "${ZONES:-4096}" --no-reference --quiet \
                --no-plots --json "$results/burning-$count.jsonl" >"$results/burning-$count-of-gpu-$gpu.txt" 2>&1 &
            jobs+=($!)
        done
        for job in "${jobs[@]}"; do wait "$job" || failed=1; done
        sed -n 's/^zones .* finished in \([0-9.]*\) s.*/\1/p' "$results/burning-$count"-of-gpu-*.txt |
            sort -n | tail -1 | sed "s/.*/burning: $count GPUs, the slowest & s/" | tee -a "$results/burning.txt"
    done
}

# Rows in proportion to the number of GPUs.
weak() {
    local count edge
    for count in "${counts[@]}"; do
        edge=$(awk -v n="$count" -v e="${EDGE:-300}" 'BEGIN { printf "%d", e * n ^ (1 / 3) + 0.5 }')
        run "weak-$count" "$binaries/sparsebatch" bench distributed --edge "$edge" --gpus "$(list "$count")" \
            --backend gpu --output "$results/weak-$count.jsonl"
    done
}

# Another program takes the memory of the last GPU: the batch ends whole on the others, and the report says so.
memory() {
    python3 -c 'import torch' 2>/dev/null || { echo "memory: left out, no PyTorch"; return; }
    local batch=$results/memory.batch last=$((most - 1))
    "$binaries/sparsebatch" generate tri --n 128 --batch 200000 "$batch" -q || failed=1
    python3 - "$last" <<'PY' >"$results/memory-taker.txt" 2>&1 &
import sys, time, torch
device = torch.device("cuda", int(sys.argv[1]))
torch.zeros(1, device=device)
free, _ = torch.cuda.mem_get_info(device)
# A context takes some 550 MiB, and the batch needs more than the rest.
taken = torch.empty(max(free - (640 << 20), 0), dtype=torch.uint8, device=device)
print("taken", taken.numel(), flush=True)
time.sleep(600)
PY
    local taker=$!
    for _ in $(seq 60); do grep -q taken "$results/memory-taker.txt" && break; sleep 1; done
    grep -q taken "$results/memory-taker.txt" || { echo "memory: nothing was taken"; failed=1; }
    run memory "$binaries/sparsebatch" solve "$batch" --backend gpu --gpus "$(list "$most")" --json
    grep -q '"converged": *200000' "$results/memory.txt" || { echo "== memory: not all systems converged"; failed=1; }
    kill "$taker"
    wait "$taker" 2>/dev/null
    rm -f "$batch"
}

for part in "$@"; do
    case $part in
        tri) batches tri --case "tri 128" ;;
        lap2d) batches lap2d --case "lap2d 900" ;;
        rand9) batches rand9 --case "rand9 512" ;;
        mid57 | sn156) batches "$part" --sets "$data" --no-generated --case "$part" --method lu ;;
        ranks) ranks ;;
        burning) burning ;;
        matrix)
            for edge in ${EDGES:-300 400}; do
                run "matrix-$edge" "$binaries/sparsebatch" bench distributed --edge "$edge" --gpus "$(list "$most")" \
                    --backend gpu --output "$results/matrix-$edge.jsonl"
            done
            ;;
        weak) weak ;;
        memory) memory ;;
        *)
            echo "unknown part $part" >&2
            exit 2
            ;;
    esac
done
grep -h "times as fast\|of the time of a plan" "$results"/*.txt 2>/dev/null | sort -u | tee "$results/ratios.txt"
exit $failed
