#!/usr/bin/env bash
# Runs tests with their kernels under a sanitizer, on stable Rust: the C++ of kernel-emu, kernels
# included, is compiled with it into a second library, which the test programs, the same as without,
# open in place of the first. The sanitizer's own library is loaded before the program, whose memory it
# then watches. So a kernel that leaves a Vec of a test is caught.
#
#   scripts/emu-asan.sh                          AddressSanitizer, all tests that run kernels
#   scripts/emu-asan.sh -p some-crate [...]      the same with arguments of cargo test
#   SANITIZER=thread scripts/emu-asan.sh         ThreadSanitizer: data races between CUDA threads
#
# Needs g++ and its libasan or libtsan, which come with it.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=${SANITIZER:-address}
case $sanitizer in
    address) library=libasan.so ;;
    thread) library=libtsan.so ;;
    *) echo "SANITIZER is address or thread, not $sanitizer" >&2; exit 2 ;;
esac
# clang has other libraries. The variable is for this build alone: cargo would build again for it what
# the test programs depend on.
compiler=${CXX:-$(command -v g++ || echo c++)}
library=$("$compiler" -print-file-name="$library")
[[ -e $library ]] || { echo "the C++ compiler has no $library" >&2; exit 2; }

# In a folder of its own, so that neither build undoes the other. Its folder of outputs is in what cargo
# says of each package.
out=$(CXX=$compiler KERNEL_EMU_SANITIZE=$sanitizer cargo build -p kernel-emu --release \
    --target-dir "${CARGO_TARGET_DIR:-target}/emu-$sanitizer" \
    --message-format json-render-diagnostics |
    sed -n 's/.*"out_dir":"\([^"]*kernel-emu[^"]*\)".*/\1/p')
KERNEL_EMU_LIBRARY=$(realpath "$out")/libkernel_emu.so
[[ -e $KERNEL_EMU_LIBRARY ]] || { echo "no library of kernel-emu: $KERNEL_EMU_LIBRARY" >&2; exit 1; }
export KERNEL_EMU_LIBRARY

host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${host}_RUNNER=env LD_PRELOAD=$library KERNEL_EMU_EXPECTED_SANITIZER=$sanitizer"
# Abandoned fibers of launches that end with an error leak a few bytes.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/scripts/emu-tsan.supp:${TSAN_OPTIONS:-}"
[[ $sanitizer != thread ]] || export RUST_TEST_THREADS=1

if [[ $# -eq 0 ]]; then
    # The whole workspace, so that its crates are built with the features that they have there.
    set -- --workspace --release
    for test in faults kernels sanitizer vector single flexible packed interop trust gpu gpu_lu; do
        set -- "$@" --test "$test"
    done
fi
# Documentation tests have no runner.
[[ " $* " =~ \ --(lib|bin|bins|test|tests)[\ =] ]] || set -- --lib --bins --tests "$@"
exec cargo test "$@"
