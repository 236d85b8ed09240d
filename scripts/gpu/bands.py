#!/usr/bin/env python3
"""Writes batches of diagonally dominant bands as .batch files, for `bench solvers --sets`.

usage: bands.py FOLDER [HALF_WIDTH...]

HALF_WIDTH: diagonals on each side of the main one [default: 3 4]. A file band-W-N.batch for each
width W and number of rows N holds 100 systems with random values, whose diagonal is 1.1 times the
sum of the magnitudes of the other entries of its row, and right-hand sides.
"""

import random
import struct
import sys
from array import array
from pathlib import Path

ROWS = [25, 32, 64, 128, 256, 512, 1024, 2048, 4096]
SYSTEMS = 100


def write(path, rows, half):
    """Writes the systems of one width and size."""
    random.seed(rows * 10 + half)
    offsets, columns, diagonals = array("i", [0]), array("i"), []
    for row in range(rows):
        of_row = range(max(0, row - half), min(rows, row + half + 1))
        diagonals.append(len(columns) + row - of_row.start)
        columns.extend(of_row)
        offsets.append(len(columns))
    values = array("d")
    for _ in range(SYSTEMS):
        some = array("d", (random.uniform(-1, 1) for _ in columns))
        for row in range(rows):
            some[diagonals[row]] = 0.0
            some[diagonals[row]] = 1.1 * sum(map(abs, some[offsets[row] : offsets[row + 1]]))
        values.extend(some)
    rhs = array("d", (random.uniform(-1, 1) for _ in range(SYSTEMS * rows)))
    with open(path, "wb") as file:
        file.write(b"BATCH001" + struct.pack("<3Q", SYSTEMS, rows, len(columns)))
        for numbers in (offsets, columns, values, rhs):
            file.write(numbers.tobytes())


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for half in [int(width) for width in sys.argv[2:]] or [3, 4]:
        for rows in ROWS:
            write(folder / f"band-{half}-{rows}.batch", rows, half)


main()
