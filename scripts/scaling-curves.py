#!/usr/bin/env python3
"""Curves of one large matrix over several GPUs, from the rows of `bench distributed`.

usage: scripts/scaling-curves.py ROWS.jsonl... > docs/design/scaling.svg

A panel for products and one for the methods, which are compared by the time of an iteration: how many
times as fast several GPUs are as one of the same call, for each edge of the cube. Dashed: the model
a / P + s of docs/design/scale.md, made from one and two GPUs, at four.
"""

import json
import sys

WIDTH, HEIGHT, LEFT, TOP = 300, 300, 50, 40
COLOURS = ["#1f77b4", "#d95f02", "#2ca02c", "#9467bd", "#8c564b"]
PANELS = [
    ("products", "spmv", None),
    ("CG", "cg", "to 1e-8"),
    ("pipelined CG", "cg", "pipelined, to 1e-8"),
    ("BiCGStab", "bicgstab", "to 1e-8"),
]


def times(paths):
    """Milliseconds of a product or iteration by panel, edge and number of GPUs."""
    found = {}
    for path in paths:
        for line in open(path, encoding="utf-8"):
            row = json.loads(line)
            gpus, _, what = row["configuration"].partition(", ")
            if not gpus.endswith((" GPU", " GPUs")):
                continue
            edge = int(row["case"].split()[1])
            for title, operation, kind in PANELS:
                if row["operation"] == operation and what == (kind or ""):
                    each = row["median_ms"] / (row["mean_iterations"] or 1)
                    found.setdefault((title, edge), {})[int(gpus.split()[0])] = each
    return found


def panel(title, number, found, most):
    """The elements of a panel."""
    left = LEFT + number * (WIDTH + 40)
    x = lambda gpus: left + (gpus - 1) / (most - 1) * WIDTH
    y = lambda factor: TOP + HEIGHT - (factor - 1) / (most - 1) * HEIGHT
    line = lambda points: " ".join(f"{x(p):.1f},{y(f):.1f}" for p, f in points)
    yield f'<text x="{left}" y="{TOP - 14}" font-size="15">{title}</text>'
    for tick in range(1, most + 1):
        yield f'<path d="M{left} {y(tick):.1f}h{WIDTH}M{x(tick):.1f} {TOP}v{HEIGHT}" stroke="#ddd"/>'
        yield f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>'
        yield f'<text x="{x(tick):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{tick}</text>'
    yield f'<polyline points="{line([(1, 1), (most, most)])}" fill="none" stroke="#999" stroke-dasharray="2 4"/>'
    for colour, (edge, each) in zip(COLOURS, sorted(found.items())):
        points = [(gpus, each[1] / each[gpus]) for gpus in sorted(each)]
        yield f'<polyline points="{line(points)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        shared = 2 * each[2] - each[1]
        model = [(gpus, each[1] / ((each[1] - shared) / gpus + shared)) for gpus in range(2, most + 1)]
        yield f'<polyline points="{line(model)}" fill="none" stroke="{colour}" stroke-dasharray="6 4"/>'
        at = TOP + 18 + 16 * COLOURS.index(colour)
        yield f'<text x="{left + 12}" y="{at}" fill="{colour}">{edge}³: {points[-1][1]:.2f}</text>'


def main():
    found = times(sys.argv[1:])
    most = max(gpus for each in found.values() for gpus in each)
    width = LEFT + len(PANELS) * (WIDTH + 40)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 50}" font-family="sans-serif" font-size="12">')
    print('<rect width="100%" height="100%" fill="white"/>')
    for number, (title, *_) in enumerate(PANELS):
        edges = {edge: each for (name, edge), each in found.items() if name == title}
        print("\n".join(panel(title, number, edges, most)))
    print(f'<text x="{width / 2}" y="{TOP + HEIGHT + 40}" text-anchor="middle">')
    print("GPUs; times as fast as one, by the edge of the cube; dashed: the model; dotted: ideal</text>")
    print("</svg>")


main()
