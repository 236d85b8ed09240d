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
# Of tests that an earlier run has noted those that launched kernels, unless a thread without a test's name did.
if [[ -n ${KERNEL_EMU_LAUNCHING:-} && $# -eq 1 ]]; then
    [[ -s $KERNEL_EMU_LAUNCHING ]] || { echo "no test launched kernels: $KERNEL_EMU_LAUNCHING" >&2; exit 1; }
    mapfile -t tests < <(sed -n "s/^$name //p" "$KERNEL_EMU_LAUNCHING" | sort -u)
    all=$("$program" --list --format terse | sed -n 's/: test$//p' | sort)
    if [[ ${#tests[@]} -eq 0 ]]; then
        echo "launches no kernels: $name"
        exit 0
    elif [[ -z $(comm -23 <(printf '%s\n' "${tests[@]}") <(echo "$all")) ]]; then
        # With --exact names of tests to skip are exact, too.
        if [[ ${#skipped[@]} -gt 0 ]]; then
            mapfile -t tests < <(printf '%s\n' "${tests[@]}" | grep -vF "$(printf '%s\n' "${skipped[@]}")")
        fi
        [[ ${#tests[@]} -gt 0 ]] || { echo "all its tests are left out: $name"; exit 0; }
        set -- "$program" --exact "${tests[@]}"
        skipped=()
    fi
fi
for part in "${skipped[@]}"; do
    set -- "$@" --skip "$part"
done
unset KERNEL_EMU_LAUNCHING
exec env LD_PRELOAD="$KERNEL_EMU_PRELOAD" "$@"
