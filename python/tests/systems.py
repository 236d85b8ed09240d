"""Matrices, batches and reference solutions that the tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsebatch
from sparsebatch import Batch

#: The kinds of batches that `make_batch` makes.
KINDS = ("uniform", "interleaved", "shared", "single", "ragged")


def tridiagonal(n: int, diagonal: float = 2.5) -> sp.csr_array:
    """A symmetric positive definite matrix of `n` rows."""
    return sp.diags_array(
        [-1.0, diagonal, -1.0], offsets=[-1, 0, 1], shape=(n, n), format="csr"
    )


def nonsymmetric(n: int, rng: np.random.Generator, density: float = 0.3) -> sp.csr_array:
    """A diagonally dominant matrix of `n` rows with entries at random places."""
    matrix = sp.random_array((n, n), density=density, rng=rng, format="csr")
    matrix = matrix + sp.diags_array(1.5 + abs(matrix).sum(axis=1))
    return sp.csr_array(matrix)


def make_batch(kind: str, rng: np.random.Generator, dtype: Any = np.float64) -> Batch:
    """A batch of one of the `KINDS`, of five matrices of nine rows or near."""
    if kind == "ragged":
        matrices = [nonsymmetric(n, rng).astype(dtype) for n in (9, 1, 4, 12, 6)]
        return Batch.ragged(matrices)
    pattern = nonsymmetric(9, rng)
    values = pattern.data * (1 + 0.1 * rng.random((5, pattern.nnz)))
    values = values.astype(dtype)
    if kind == "uniform":
        return Batch.uniform(pattern.indptr, pattern.indices, values)
    if kind == "interleaved":
        values = np.ascontiguousarray(values.T)
        return Batch.uniform(pattern.indptr, pattern.indices, values, layout="interleaved")
    if kind == "shared":
        return Batch.uniform(pattern.indptr, pattern.indices, values[0], nitems=5)
    return Batch.uniform(pattern.indptr, pattern.indices, values[0])


def vector_shape(batch: Batch, nrhs: int = 1) -> tuple[int, ...]:
    """The shape of right-hand sides that users give."""
    many = () if nrhs == 1 else (nrhs,)
    if not batch.is_uniform:
        return (int(batch.row_offsets[-1]), *many)
    if batch.values.ndim == 1 and batch.layout == "item":
        return (batch.nrows, *many)
    if batch.layout == "interleaved":
        return (batch.nrows, batch.nitems)
    return (batch.nitems, batch.nrows, *many)


def items_of(batch: Batch, vectors: np.ndarray) -> list[np.ndarray]:
    """Views of the vectors of each item, of shape `(n,)` or `(n, nrhs)`."""
    if not batch.is_uniform:
        offsets = batch.row_offsets
        return [vectors[offsets[item] : offsets[item + 1]] for item in range(batch.nitems)]
    if batch.layout == "interleaved":
        return [vectors[:, item] for item in range(batch.nitems)]
    if batch.values.ndim == 1 and batch.layout == "item":
        return [vectors]
    return [vectors[item] for item in range(batch.nitems)]


def dense(batch: Batch) -> list[np.ndarray]:
    """The matrices as dense arrays."""
    return [matrix.toarray() for matrix in batch.to_scipy()]


def reference(batch: Batch, b: np.ndarray, transpose: bool = False) -> np.ndarray:
    """Solutions by NumPy."""
    x = np.empty(np.shape(b))
    parts = zip(dense(batch), items_of(batch, b), items_of(batch, x), strict=True)
    for matrix, of_b, of_x in parts:
        of_x[...] = np.linalg.solve(matrix.T if transpose else matrix, of_b)
    return x


def run_python(code: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Runs a program in a new interpreter that finds this package."""
    return run_module("-c", code, timeout=timeout)


def run_module(*arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Runs the interpreter with arguments, and the package within its reach."""
    place = str(Path(sparsebatch.__file__).parent.parent)
    known = os.environ.get("PYTHONPATH")
    path = place if not known else os.pathsep.join([place, known])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
