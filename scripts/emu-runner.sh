#!/usr/bin/env bash
# Runs a test program with a sanitizer loaded before it, for scripts/emu-asan.sh. A program that does not
# open the library of kernels has none to watch and is left out.
set -euo pipefail
# KERNEL_EMU_SKIP has parts of names of tests that are left out.
program=$1
read -ra skipped <<<"${KERNEL_EMU_SKIP:-}"
name=$(basename "$program")
if ! grep -q emu_kernel_count "$program"; then
    echo "runs no kernels: $name"
    exit 0
fi
# Of tests that an earlier run has noted those that together launch every kernel KERNEL_EMU_TIMES times.
if [[ -n ${KERNEL_EMU_LAUNCHING:-} && $# -eq 1 ]]; then
    [[ -s $KERNEL_EMU_LAUNCHING ]] || { echo "no test launched kernels: $KERNEL_EMU_LAUNCHING" >&2; exit 1; }
    if ! grep -q "^$name"$'\t' "$KERNEL_EMU_LAUNCHING"; then
        echo "launches no kernels: $name"
        exit 0
    fi
    chosen=$("$(dirname "$0")/emu-cover.py" "$KERNEL_EMU_LAUNCHING" "$name" "${KERNEL_EMU_TIMES:-1}" "${skipped[@]}")
    mapfile -t tests <<<"$chosen"
    all=$("$program" --list --format terse | sed -n 's/: test$//p' | sort)
    # Kernels of a thread that is of no known test: all tests are watched.
    unknown=$(comm -23 <(sort <<<"$chosen") <(echo "$all"))
    if [[ -z $unknown ]]; then
        set -- "$program" --exact "${tests[@]}"
        skipped=()
    else
        echo "$name: threads that are of no test launch kernels: $unknown" >&2
    fi
fi
for part in "${skipped[@]}"; do
    set -- "$@" --skip "$part"
done
unset KERNEL_EMU_LAUNCHING
exec env LD_PRELOAD="$KERNEL_EMU_PRELOAD" "$@"
