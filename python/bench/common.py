"""Problems, timing and rows of the tables of speeds."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

import sparsebatch


class Problem:
    """Matrices of one pattern with right-hand sides, drawn anew in every run from one seed.

    Attributes
    ----------
    case : str
        The name of the family and the rows of a matrix.
    indptr, indices : ndarray of int32
        The pattern, in CSR with ascending columns.
    values : ndarray, shape (nitems, nnz)
    b : ndarray, shape (nitems, n)
    is_symmetric : bool
    """

    def __init__(
        self,
        case: str,
        indptr: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        b: np.ndarray,
        is_symmetric: bool = False,
    ):
        self.case, self.is_symmetric = case, is_symmetric
        self.indptr, self.indices = indptr.astype(np.int32), indices.astype(np.int32)
        self.values, self.b = np.ascontiguousarray(values), np.ascontiguousarray(b)
        self.nitems, self.n = b.shape
        self.rows = np.repeat(np.arange(self.n), np.diff(indptr))

    def batch(self) -> sparsebatch.Batch:
        return sparsebatch.Batch.uniform(self.indptr, self.indices, self.values)

    def csr(self, item: int) -> Any:
        """A matrix as a SciPy `csr_array`."""
        from scipy.sparse import csr_array

        shape = (self.n, self.n)
        return csr_array((self.values[item], self.indices, self.indptr), shape=shape)

    def block_diagonal(self, nitems: int | None = None) -> Any:
        """Matrices as the diagonal blocks of one SciPy `csr_array`, with indices of int32 where
        they fit: solvers of CuPy take no others."""
        from scipy.sparse import csr_array

        count = self.nitems if nitems is None else nitems
        nnz, items = len(self.indices), np.arange(count, dtype=np.int64)[:, None]
        indices = (self.indices[None, :] + items * self.n).reshape(-1)
        indptr = np.append((self.indptr[None, :-1] + items * nnz).reshape(-1), count * nnz)
        if count * max(nnz, self.n) < 2**31:
            indices, indptr = indices.astype(np.int32), indptr.astype(np.int32)
        values = self.values[:count].reshape(-1)
        return csr_array((values, indices, indptr), shape=(count * self.n, count * self.n))


def tri(n: int, nitems: int, seed: int = 1) -> Problem:
    """Symmetric positive definite matrices of a 3-point stencil."""
    rng = np.random.default_rng(seed)
    pointers = np.minimum(np.maximum(3 * np.arange(n + 1) - 1, 0), 3 * n - 2)
    columns = np.concatenate([np.arange(max(i - 1, 0), min(i + 2, n)) for i in range(n)])
    rows = np.repeat(np.arange(n), np.diff(pointers))
    off = -(1 - 0.05 * rng.random((nitems, n)))
    values = off[:, np.minimum(rows, columns)]
    shift = 0.1 + 0.4 * rng.random((nitems, 1))
    values[:, rows == columns] = 2 + shift + 0.1 * rng.random((nitems, n))
    b = rng.uniform(-1, 1, (nitems, n))
    return Problem(f"tri {n}", pointers, columns, values, b, is_symmetric=True)


def rand9(n: int, nitems: int, seed: int = 2) -> Problem:
    """Nonsymmetric matrices with 9 entries a row at random columns, diagonally dominant by 5 %,
    with rows scaled by 1 to 10."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(n), 9)
    others = [rng.choice(n - 1, 8, replace=False) for _ in range(n)]
    columns = np.sort([np.append(other + (other >= row), row) for row, other in enumerate(others)])
    columns = columns.reshape(-1)
    values = rng.uniform(-1, 1, (nitems, 9 * n))
    values[:, rows == columns] = 0
    values[:, rows == columns] = 1.05 * np.abs(values).reshape(nitems, n, 9).sum(2)
    values *= (1 + 9 * rng.random((nitems, n)))[:, rows]
    b = rng.uniform(-1, 1, (nitems, n))
    return Problem(f"rand9 {n}", 9 * np.arange(n + 1), columns, values, b)


def times(
    call: Callable[[], object],
    repetitions: int,
    *,
    warm: int = 1,
    limit_s: float = 60.0,
    synchronize: Callable[[], object] = lambda: None,
) -> list[float]:
    """Milliseconds of repeated calls, after warm ones; no further call begins after `limit_s`."""
    begun = time.perf_counter()
    for _ in range(warm):
        call()
    synchronize()
    measured: list[float] = []
    while len(measured) < repetitions:
        if measured and time.perf_counter() - begun > limit_s:
            break
        start = time.perf_counter()
        call()
        synchronize()
        measured.append((time.perf_counter() - start) * 1e3)
    return measured


def in_turn(calls: list[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Milliseconds of calls that take turns, so that other load of the machine meets all alike.

    Short calls are repeated within a round.
    """
    first = [statistics.median(times(call, 1)) for call in calls]
    repeats = [max(1, min(10, round(max(first) / max(one, 1e-3)))) for one in first]
    measured: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, repeat, into in zip(calls, repeats, measured, strict=True):
            into += times(call, repeat, warm=1)
    return measured


class Table:
    """Writes rows as JSON lines, and remembers what they are compared with.

    Parameters
    ----------
    machine : dict
        What every row says about the machine.
    file : text file, optional
        Default: standard output.
    """

    def __init__(self, machine: dict[str, Any], file: TextIO = sys.stdout):
        self.machine, self.file = machine, file
        self.medians: dict[tuple[str, str], float] = {}

    def row(
        self,
        problem: Problem,
        operation: str,
        library: str,
        measured: list[float],
        *,
        scale: float = 1.0,
        **fields: Any,
    ) -> float:
        """Write a row; its median in milliseconds is returned.

        Parameters
        ----------
        problem : Problem
        operation, library : str
            What was done, and by whom.
        measured : list of float
            Milliseconds.
        scale : float
            By which they are multiplied, where a sample of the systems was solved.
        **fields
            More of the row.
        """
        median = statistics.median(measured) * scale
        line = {
            "case": problem.case,
            "operation": operation,
            "library": library,
            "median_ms": round(median, 5),
            "min_ms": round(min(measured) * scale, 5),
            "repetitions": len(measured),
            "systems": problem.nitems,
            "n": problem.n,
            "nnz": len(problem.indices),
            **fields,
            "machine": self.machine,
        }
        print(json.dumps(line), file=self.file, flush=True)
        return median

    def skipped(self, problem: Problem, operation: str, library: str, reason: str) -> None:
        """Write a row of what was not measured."""
        line = {
            "case": problem.case,
            "operation": operation,
            "library": library,
            "skipped": reason,
            "systems": problem.nitems,
            "n": problem.n,
            "machine": self.machine,
        }
        print(json.dumps(line), file=self.file, flush=True)


def processor() -> dict[str, Any]:
    """What rows say about the processor and the versions."""
    import scipy

    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as lines:
            name = next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        pass
    return {
        "processor": name,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "sparsebatch": sparsebatch.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }
