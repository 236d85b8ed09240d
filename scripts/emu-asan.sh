#!/usr/bin/env bash
# Runs tests with their kernels under a sanitizer, on stable Rust: the C++ of kernel-emu, kernels
# included, is compiled with it, and its library is loaded before the test program, whose memory it
# then watches. So a kernel that leaves a Vec of a test is caught.
#
#   scripts/emu-asan.sh                          AddressSanitizer, all tests that run kernels
#   scripts/emu-asan.sh -p some-crate [...]      the same with arguments of cargo test
#   SANITIZER=thread scripts/emu-asan.sh         ThreadSanitizer: data races between CUDA threads
#   EMU_TARGET_DIR=target scripts/emu-asan.sh    in the folder of other builds: what does not depend
#                                                on kernel-emu is not built again, but kernel-emu is,
#                                                now and when it is next used without
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
# clang has other libraries.
[[ -n ${CXX:-} ]] || ! command -v g++ >/dev/null || export CXX=g++
library=$("${CXX:-c++}" -print-file-name="$library")
[[ -e $library ]] || { echo "the C++ compiler has no $library" >&2; exit 2; }

host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export KERNEL_EMU_SANITIZE=$sanitizer
export "CARGO_TARGET_${host}_RUNNER=env LD_PRELOAD=$library"
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
# By default a folder of its own, so that neither build undoes the other.
exec cargo test --target-dir "${EMU_TARGET_DIR:-target/emu-$sanitizer}" "$@"
