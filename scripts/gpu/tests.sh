#!/usr/bin/env bash
# Tests of the device layer, the products and the solves, plain and under the sanitizers, on a machine
# with a GPU and no cargo.
#
# usage: scripts/gpu/tests.sh BINARIES RESULTS
#   BINARIES   folder with test programs built with --release elsewhere, named by package and program:
#              cuda-it, cuda-device, cuda-context_lost, spmv-gpu-it, spmv-gpu-device, spmv-gpu-out_of_memory,
#              solvers-device, and sparsebatch-it with the program sparsebatch itself for the command line;
#              those that are not there are left out; and libkernel_emu.so of a build of kernel-emu, for
#              the tests among them that run kernels on the processor
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
for test in cuda-device cuda-context_lost cuda-it spmv-gpu-device spmv-gpu-it spmv-gpu-out_of_memory \
    sparsebatch-it solvers-device; do
    [[ -x $binaries/$test && ${PLAIN:-yes} == yes ]] || continue
    filter=
    # Of the command line what needs a GPU, and of the products what is not about NVRTC alone.
    [[ $test != sparsebatch-it ]] || filter=cli_gpu::
    "$binaries/$test" $filter --skip nvrtc:: >"$results/test-$test.txt" 2>&1
    echo "$test: exit $?"
    grep -E 'test result|FAILED|panicked' "$results/test-$test.txt"
done
# The tests of a program one by one, so that one which does not end takes none with it; of solves with few
# systems.
if command -v compute-sanitizer >/dev/null && [[ ${SANITIZERS:-} != none ]]; then
    export SPARSEBATCH_TEST_SYSTEMS=${SANITIZER_SYSTEMS:-12}
    for tool in ${SANITIZERS:-memcheck racecheck initcheck synccheck}; do
        for program in spmv-gpu-it solvers-device; do
            [[ -x $binaries/$program ]] || continue
            filter= skip=
            [[ $program != spmv-gpu-it ]] || filter=gpu skip="--skip nvrtc:: --skip trust:: --skip interop::"
            # Warps of the LU meet at barriers of several places in the code: see programs.cuh.
            [[ $tool/$program != synccheck/solvers-device ]] || skip="--skip lu:: --skip resident::the_device"
            "$binaries/$program" --list $filter $skip 2>/dev/null | sed -n 's/: test$//p' | while read -r test; do
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
