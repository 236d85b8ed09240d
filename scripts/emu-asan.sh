#!/usr/bin/env bash
# Runs tests with their kernels under a sanitizer, on stable Rust: the test programs, the same as
# without, open a library of the kernels with AddressSanitizer in place of the plain one. The sanitizer's
# own library is loaded before the program, whose memory it then watches. So a kernel that leaves a Vec
# of a test is caught.
#
#   scripts/emu-asan.sh                          AddressSanitizer, all tests of programs that run kernels
#   scripts/emu-asan.sh -p some-crate [...]      the same with arguments of cargo test
#   SANITIZER=thread scripts/emu-asan.sh         ThreadSanitizer: data races between CUDA threads
#
# Programs that run no kernel are found out by scripts/emu-runner.sh and left out. Where KERNEL_EMU_LAUNCHING names
# what a run of all tests without has noted, tests are chosen that together launch every kernel KERNEL_EMU_TIMES
# times (default 1); otherwise all run, which is for changes of kernels, by hand. The kernels are compiled
# for AddressSanitizer already (crates/kernel-emu/build.rs), for ThreadSanitizer a second time. Needs g++
# and its libasan or libtsan, which come with it.
set -euo pipefail
cd "$(dirname "$0")/.."

[[ $# -gt 0 ]] || set -- --workspace --release
sanitizer=${SANITIZER:-address}
compiler=${CXX:-$(command -v g++ || echo c++)}

# The folder of outputs of kernel-emu is in what cargo says of each package.
out_dir() {
    sed -n 's/.*"out_dir":"\([^"]*kernel-emu[^"]*\)".*/\1/p' | tail -1
}
case $sanitizer in
    address)
        preload=libasan.so
        out=$(cargo test "$@" --no-run --message-format json-render-diagnostics | out_dir)
        KERNEL_EMU_LIBRARY=$out/libkernel_emu_address.so
        ;;
    thread)
        preload=libtsan.so
        # In a folder of its own, so that neither build undoes the other.
        out=$(KERNEL_EMU_SANITIZE=thread cargo build -p kernel-emu --release \
            --target-dir "${CARGO_TARGET_DIR:-target}/emu-thread" \
            --message-format json-render-diagnostics | out_dir)
        KERNEL_EMU_LIBRARY=$out/libkernel_emu.so
        export RUST_TEST_THREADS=1
        ;;
    *) echo "SANITIZER is address or thread, not $sanitizer" >&2; exit 2 ;;
esac
[[ -e $KERNEL_EMU_LIBRARY ]] || { echo "no library of kernels: $KERNEL_EMU_LIBRARY" >&2; exit 1; }
KERNEL_EMU_PRELOAD=$("$compiler" -print-file-name="$preload")
[[ -e $KERNEL_EMU_PRELOAD ]] || { echo "the C++ compiler has no $preload" >&2; exit 2; }
export KERNEL_EMU_LIBRARY KERNEL_EMU_PRELOAD KERNEL_EMU_EXPECTED_SANITIZER=$sanitizer

host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${host}_RUNNER=$PWD/scripts/emu-runner.sh"
# Abandoned fibers of launches that end with an error leak a few bytes.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/scripts/emu-tsan.supp:${TSAN_OPTIONS:-}"
# Documentation tests have no runner.
[[ " $* " =~ \ --(lib|bin|bins|test|tests)[\ =] ]] || set -- --lib --bins --tests "$@"
# Tests that read and write what others do, and compare what no sanitizer sees: bits with earlier versions and with
# systems alone, counts of systems and of bytes, the sharing of a batch among GPUs.
export KERNEL_EMU_SKIP="bits:: flawed_neighbours backends::several backends::watch backends::memory memory_is_at_most"
exec cargo test "$@"
