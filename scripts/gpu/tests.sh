#!/usr/bin/env bash
# Tests of the device layer, the products and the solves, plain and under the sanitizers, on a machine
# with a GPU and no cargo.
#
# usage: scripts/gpu/tests.sh BINARIES RESULTS
#   BINARIES   folder with the test programs of sparsebatch-spmv-gpu (device, context_lost, packed,
#              single, flexible, interop, trust, out_of_memory) and of sparsebatch-solvers (fused_device,
#              factored_device, composed_device, lu_device, statuses_device), and cli_gpu with the program sparsebatch
#              itself, built with --release elsewhere; those that are not there are left out; and
#              libkernel_emu.so of a build of kernel-emu, for the tests among them that run kernels on the
#              processor
#   RESULTS    folder for logs
# CUDA's libraries must be on LD_LIBRARY_PATH. A test under a sanitizer has SANITIZER_SECONDS (default 60),
# and batches of at most SANITIZER_SYSTEMS (default 12); SANITIZERS are the tools [default: all four; none
# where it is "none"]. PLAIN=no leaves the plain tests out.
# Warnings of racecheck, which are no errors, are of threads of a warp: it does not see `__syncwarp`, which compiles to
# a branch for warps that have diverged and to nothing else, and sums by shuffles, which hold back what is written
# behind them until all that they depend on has been read.
# SPARSEBATCH_DATA is a folder with the sets that are not part of the repository.
set -u
binaries=$1 results=$2
mkdir -p "$results"
export SPARSEBATCH_REQUIRE_GPU=1
[[ ! -e $binaries/libkernel_emu.so ]] || export KERNEL_EMU_LIBRARY=$binaries/libkernel_emu.so
nvidia-smi >"$results/nvidia-smi.txt" 2>&1
[[ ! -e $binaries/sparsebatch ]] || export SPARSEBATCH_PROGRAM=$(realpath "$binaries/sparsebatch")
solves="fused_device factored_device composed_device lu_device statuses_device"
for test in device context_lost packed single flexible interop trust out_of_memory cli_gpu $solves; do
    [[ -x $binaries/$test && ${PLAIN:-yes} == yes ]] || continue
    "$binaries/$test" >"$results/test-$test.txt" 2>&1
    echo "$test: exit $?"
    grep -E 'test result|FAILED|panicked' "$results/test-$test.txt"
done
# The tests of a program one by one, so that one which does not end takes none with it; of solves with few
# systems.
if command -v compute-sanitizer >/dev/null && [[ ${SANITIZERS:-} != none ]]; then
    export SPARSEBATCH_TEST_SYSTEMS=${SANITIZER_SYSTEMS:-12}
    for tool in ${SANITIZERS:-memcheck racecheck initcheck synccheck}; do
        for program in packed single flexible $solves; do
            [[ -x $binaries/$program ]] || continue
            # Its warps meet at barriers of several places in the code: see programs.cuh.
            [[ $tool/$program == synccheck/lu_device ]] && continue
            filter=gpu
            [[ $solves == *$program* ]] && filter=
            "$binaries/$program" --list $filter 2>/dev/null | sed -n 's/: test$//p' | while read -r test; do
                # What the driver refuses on purpose, such as a query past the last parameter, is no
                # error of a kernel.
                timeout "${SANITIZER_SECONDS:-60}" compute-sanitizer --tool "$tool" \
                    --report-api-errors no "$binaries/$program" --exact "$test" \
                    >"$results/$tool.txt" 2>&1 </dev/null
                echo "$tool $program $test: exit $? $(tail -1 "$results/$tool.txt")"
            done
        done
    done | tee "$results/sanitizers.txt"
    rm -f "$results"/*check.txt
fi
