#!/usr/bin/env bash
# Runs a test program with a sanitizer loaded before it, for scripts/emu-asan.sh. A program that does not
# open the library of kernels has none to watch and is left out.
set -euo pipefail
program=$1
if ! grep -q emu_kernel_count "$program"; then
    echo "runs no kernels: $(basename "$program")"
    exit 0
fi
exec env LD_PRELOAD="$KERNEL_EMU_PRELOAD" "$@"
