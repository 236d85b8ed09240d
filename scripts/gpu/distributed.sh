#!/usr/bin/env bash
# One large matrix over the GPUs of one process, on a machine with at least two and no cargo: the command line on one
# and on all GPUs, and the bench.
#
# usage: scripts/gpu/distributed.sh BINARIES RESULTS [PART...]
#   BINARIES   folder with the program sparsebatch, built with --release elsewhere
#   RESULTS    folder for logs, and for rows in distributed-EDGE.jsonl
#   PART       cli; the edge of a cube to measure, such as 300; or timeline, what the GPUs do in products with a cube of
#              EDGE (default 300) points a side, by CUPTI [default: cli 300 400]
# CUDA's libraries must be on LD_LIBRARY_PATH. GPUS (default 0,1) is the list of GPUs, BACKEND (both or gpu; default
# gpu from an edge of 400 on, where solves of the processor take minutes) what the bench measures, and a part has
# PART_SECONDS (default 500). BENCH_COMMIT overrides the commit in the rows.
set -u -o pipefail
binaries=$1 results=$2
shift 2
[[ $# -gt 0 ]] || set -- cli 300 400
mkdir -p "$results"
{ nvidia-smi; nvidia-smi topo -m; lscpu | head -25; free -g; } >"$results/machine.txt" 2>&1
gpus=${GPUS:-0,1} seconds=${PART_SECONDS:-500} failed=0

source "$(dirname "$0")/commands.sh"

for part in "$@"; do
    case $part in
        cli)
            "$binaries/sparsebatch" generate laplace --stencil 7 --grid 64x64x64 "$results/grid.mtx" >/dev/null || failed=1
            solve=("$binaries/sparsebatch" solve "$results/grid.mtx" --distributed --rhs random:1 --json)
            for list in 0 "$gpus"; do
                for turn in first second; do
                    run "solve-$list-$turn" "${solve[@]}" --gpus "$list" --output "$results/x-$list-$turn.npz"
                done
                cmp "$results/x-$list-first.npz" "$results/x-$list-second.npz" &&
                    echo "== equal bits in two runs on $list" || failed=1
            done
            run "solve-jacobi" "${solve[@]}" --gpus "$gpus" --precond jacobi
            for turn in first second; do
                run "solve-bicgstab-$turn" "${solve[@]}" --gpus "$gpus" --solver bicgstab --precond jacobi \
                    --output "$results/x-bicgstab-$turn.npz"
                run "solve-pipelined-$turn" "${solve[@]}" --gpus "$gpus" --solver cg --pipelined \
                    --output "$results/x-pipelined-$turn.npz"
            done
            for method in bicgstab pipelined; do
                cmp "$results/x-$method-first.npz" "$results/x-$method-second.npz" &&
                    echo "== equal bits in two runs of $method on $gpus" || failed=1
            done
            run "solve-ic0" "${solve[@]}" --gpus "$gpus" --solver cg --precond ic0
            run "solve-ilu0" "${solve[@]}" --gpus "$gpus" --solver bicgstab --precond ilu0
            expect bicgstab-pipelined 2 "pipelined is bicgstab, expected cg" \
                "${solve[@]}" --gpus "$gpus" --solver bicgstab --pipelined
            expect no-gpu-97 2 "--gpus: no GPU number 97" "${solve[@]}" --gpus 0,97
            expect no-ranks 2 "expected --mpi, or --gpus" "${solve[@]}"
            rm -f "$results"/x-*.npz "$results/grid.mtx"
            ;;
        timeline)
            header=$(find -L /usr/local/cuda* /opt "$(dirname "$(dirname "$(command -v nvcc)")")" -name cupti.h 2>/dev/null | head -1)
            newest() { grep -oE "CUpti_Activity$1[0-9]*" "${header%.h}_activity.h" | sort -Vu | tail -1; }
            library=$(find -L "$(dirname "$header")/.." /usr/local/cuda* -name 'libcupti.so*' 2>/dev/null | head -1)
            gcc -shared -fPIC -O1 -o "$results/libtimeline.so" "$(dirname "$0")/timeline.c" -I"$(dirname "$header")" \
                -I"$(dirname "$(dirname "$(command -v nvcc)")")/include" "-DKERNEL=$(newest Kernel)" "-DCOPY=$(newest Memcpy)" \
                "-DPEER_COPY=$(newest MemcpyPtoP)" "$library" -Wl,-rpath,"$(dirname "$library")" || failed=1
            CUDA_INJECTION64_PATH=$results/libtimeline.so TIMELINE=$results/timeline.tsv run timeline "$binaries/sparsebatch" \
                bench distributed --edge "${EDGE:-300}" --gpus "$gpus" --backend gpu --iterations 20
            c++filt <"$results/timeline.tsv" >"$results/timeline.txt"
            python3 "$(dirname "$0")/timeline.py" "$results/timeline.txt" | tee "$results/timeline.md" || failed=1
            ;;
        *[!0-9]* | "")
            echo "unknown part $part" >&2
            exit 2
            ;;
        *)
            if [[ $part -ge 400 ]]; then usual=gpu; else usual=both; fi
            run "distributed-$part" "$binaries/sparsebatch" bench distributed --edge "$part" --gpus "$gpus" \
                --backend "${BACKEND:-$usual}" --output "$results/distributed-$part.jsonl"
            ;;
    esac
done
grep -h "times as fast\|of the time of a plan" "$results"/distributed-*.txt 2>/dev/null | tee "$results/ratios.txt"
exit $failed
