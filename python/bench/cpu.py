"""Speeds on the CPU against loops over SciPy, as JSON lines.

usage: python python/bench/cpu.py [--systems N] [--sample N] [--data FOLDER] [--output FILE]

The peers solve a sample of the systems in a loop; their times are scaled to all systems, which the
field `scaled_from` of their rows says. Solves by kept factors are not sampled: the factors of all
systems do not fit into a cache, those of a sample do. `speedup` is the median of the peer by ours.
With a folder that has `batch_mid57.bin`, matrices of a nuclear network with 57 nuclides, they are
solved, too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import Problem, Table, in_turn, processor, times, tri
from scipy.sparse import csc_array
from scipy.sparse.linalg import cg, splu, spsolve

import sparsebatch

RTOL = 1e-10
ROUNDS = 7


class Ours:
    """Solves by a solver that keeps its analysis, or its factors; called, it solves all systems."""

    def __init__(self, problem: Problem, method: str, *, kept: bool = False, **options: Any):
        self.solver = sparsebatch.Solver(
            problem.batch(), method=method, backend="cpu", on_failure="raise", **options
        )
        if kept:
            self.solver.factor()
        self.b, self.out = problem.b, np.empty_like(problem.b)
        self.report: Any = None

    def __call__(self) -> None:
        self.report = self.solver.solve(self.b, out=self.out).report


def cg_loop(problem: Problem, sample: int) -> Callable[[], None]:
    matrices = [problem.csr(item) for item in range(sample)]

    def loop() -> None:
        for item, matrix in enumerate(matrices):
            assert cg(matrix, problem.b[item], rtol=RTOL, atol=0.0)[1] == 0

    return loop


def splu_loop(problem: Problem) -> Callable[[], None]:
    factors = [splu(csc_array(problem.csr(item))) for item in range(problem.nitems)]

    def loop() -> None:
        for item, factor in enumerate(factors):
            factor.solve(problem.b[item])

    return loop


def spsolve_loop(problem: Problem, sample: int) -> Callable[[], None]:
    columns = [csc_array(problem.csr(item)) for item in range(sample)]

    def loop() -> None:
        for item, matrix in enumerate(columns):
            spsolve(matrix, problem.b[item])

    return loop


def compare(
    table: Table,
    problem: Problem,
    operation: str,
    own: Ours,
    peer: tuple[str, Callable[[], None], int],
) -> float:
    """Rows of ours and of a loop over SciPy, measured in turn; the median of ours."""
    name, loop, sample = peer
    ours, theirs = in_turn([own, loop], ROUNDS)
    report = own.report
    median = table.row(
        problem,
        operation,
        "sparsebatch",
        ours,
        solver=report.solver,
        iterations=round(float(report.iterations.mean()), 2),
        largest_relative_residual=float(f"{report.relative_residual.max():.2e}"),
    )
    each = statistics.median(theirs) / sample
    fields: dict[str, Any] = {"us_a_system": round(each * 1e3, 3)}
    fields["speedup"] = round(each * problem.nitems / median, 2)
    if sample != problem.nitems:
        fields["scaled_from"] = sample
    scale = problem.nitems / sample
    table.row(problem, operation, f"scipy {name}", theirs, scale=scale, **fields)
    return median


def block_diagonal(table: Table, problem: Problem, own_ms: float) -> None:
    matrix = csc_array(problem.block_diagonal())
    b = problem.b.reshape(-1)
    measured = times(lambda: spsolve(matrix, b), 2, warm=0, limit_s=30)
    speedup = round(statistics.median(measured) / own_ms, 2)
    table.row(problem, "lu", "scipy spsolve, block-diagonal", measured, speedup=speedup)


def overhead(table: Table) -> None:
    """What a call costs beside the solve itself, for a batch so small that this can be seen."""
    problem = tri(8, 4)
    solver = sparsebatch.Solver(problem.batch(), method="lu", backend="cpu")
    out = np.empty_like(problem.b)
    solved: list[float] = []

    def call() -> None:
        solved.append(solver.solve(problem.b, out=out).report.solve_time)

    measured = times(call, 2000, warm=100)
    inside = statistics.median(solved) * 1e6
    outside = statistics.median(measured) * 1e3 - inside
    fields = {"solve_us": round(inside, 2), "overhead_us": round(outside, 2)}
    table.row(problem, "overhead of a call", "sparsebatch", measured, **fields)


def network(folder: Path, nitems: int) -> Problem | None:
    """Matrices of the nuclear network in turn, until there are enough."""
    file = folder / "batch_mid57.bin"
    if not file.exists():
        return None
    batch, b = sparsebatch.load(file)
    items = np.arange(nitems) % batch.nitems
    return Problem("mid57", batch.indptr, batch.indices, batch.values[items], b[items])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--systems", type=int, default=10_000)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--data", type=Path, default=os.environ.get("SPARSEBATCH_DATA"))
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(given.output, "w")) if given.output else sys.stdout
        table = Table(processor(), file)
        problem = tri(128, given.systems)
        compare_tri(table, problem, given.sample)
        overhead(table)
        found = network(Path(given.data), given.systems) if given.data else None
        if found is not None:
            # Solves end at the rounding floor where `rtol` cannot be reached.
            own = Ours(found, "auto", floor=4.0)
            peer = ("spsolve", spsolve_loop(found, given.sample), given.sample)
            compare(table, found, "auto, rounding floor", own, peer)


def compare_tri(table: Table, problem: Problem, sample: int) -> None:
    own = Ours(problem, "cg", rtol=RTOL)
    compare(table, problem, "cg", own, ("cg", cg_loop(problem, sample), sample))
    peer = ("spsolve", spsolve_loop(problem, sample), sample)
    median = compare(table, problem, "lu", Ours(problem, "lu", rtol=RTOL), peer)
    compare(table, problem, "auto", Ours(problem, "auto", rtol=RTOL), peer)
    kept = Ours(problem, "lu", kept=True, rtol=RTOL)
    compare(table, problem, "kept factors", kept, ("kept splu", splu_loop(problem), problem.nitems))
    block_diagonal(table, problem, median)


if __name__ == "__main__":
    main()
