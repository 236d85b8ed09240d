#!/usr/bin/env python3
"""Tests that together launch all kernels of a test program, each kernel in several of them.

usage: emu-cover.py LAUNCHING PROGRAM TIMES [SKIPPED...]

LAUNCHING is the file that a run of all tests has written (KERNEL_EMU_LAUNCHING): lines of a program, a
test and a kernel, or nothing and the milliseconds that the launches of the test took so far. Prints the
tests of PROGRAM that are chosen, one a line: every kernel is launched by TIMES of them, or by all that
launch it where these are fewer, in a short time. Tests whose names contain one of SKIPPED are not
chosen; of a kernel that they alone launch all tests are.
"""

import collections
import sys

# Milliseconds of a test beside those that are noted.
REST = 20


def main():
    path, program, times, skipped = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    kernels = collections.defaultdict(set)
    times_taken = collections.Counter()
    for line in open(path, encoding="utf-8"):
        name, test, kernel, *taken = line.rstrip("\n").split("\t")
        if name != program:
            continue
        if taken:
            times_taken[test] = max(times_taken[test], int(taken[0]))
        else:
            kernels[test].add(kernel)
    left_out = {test for test in kernels if any(part in test for part in skipped)}
    there = set().union(*(of for test, of in kernels.items() if test not in left_out))
    # A test that would be left out is a candidate where it alone launches a kernel.
    candidates = {test: of for test, of in kernels.items() if test not in left_out or of - there}
    launches = collections.Counter(kernel for of in candidates.values() for kernel in of)
    missing = {kernel: min(times, count) for kernel, count in launches.items()}
    chosen = []
    while missing:
        # The most missing kernels for its time.
        def gain(test):
            return sum(kernel in missing for kernel in candidates[test]) / (REST + times_taken[test])

        test = max(sorted(candidates), key=gain)
        chosen.append(test)
        for kernel in candidates.pop(test) & missing.keys():
            missing[kernel] -= 1
            if missing[kernel] == 0:
                del missing[kernel]
    print("\n".join(sorted(chosen)))


main()
