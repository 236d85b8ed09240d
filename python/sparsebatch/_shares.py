"""The shares of a batch that one rank holds: how it is divided, and how they travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native
from ._arrays import library_of
from ._batch import Batch
from ._ranks import Ranks
from ._vectors import Frame
from .errors import Unsupported


@dataclass
class Division:
    """How a batch is divided into consecutive shares, as all ranks know it.

    Offsets have one element for each rank and one more.
    """

    dtype: str
    #: Where the items, rows, row pointers and values of each rank begin.
    items: np.ndarray
    rows: np.ndarray
    pointers: np.ndarray
    values: np.ndarray
    #: Shape, row pointers and columns of a uniform batch, and values that all items share.
    uniform: tuple[tuple[int, int], np.ndarray, np.ndarray, np.ndarray | None] | None

    @classmethod
    def of(cls, batch: Batch, ranks: int, costs: np.ndarray | None = None) -> Division:
        """Shares of about equal cost, by default by the entries of each item."""
        nnz = entries_of(batch)
        costs = np.frombuffer(_native.costs(nnz), np.uint64) if costs is None else costs
        shares = _native.shares(costs, ranks)
        items = np.array([0] + [end for _, end in shares], np.int64)
        rows = batch.row_offsets[items]
        values = np.concatenate([[0], np.cumsum(nnz)])[items]
        uniform = None
        if batch.is_uniform:
            shared = _host_values(batch) if batch.layout == "shared" else None
            shape = int(batch.nrows), int(batch.ncols)
            uniform = shape, batch.indptr, batch.indices, shared
        return cls(batch.dtype, items, rows, rows + items, values, uniform)

    def share(self, ranks: Ranks, root: int, batch: Batch | None) -> Parts:
        """Sends each rank the arrays of its share; `batch` is the whole on rank `root`."""
        if self.uniform is not None:
            return Parts(self, ranks.rank, values=self.scatter_values(ranks, root, batch))

        def scatter(array: Any, offsets: np.ndarray, dtype: Any) -> np.ndarray:
            def found() -> tuple[Any, None]:
                return None if batch is None else array(batch), None

            return ranks.scatter(root, ranks.run({}, found)[0], offsets, dtype)

        sizes = tuple(
            scatter(size, self.items, np.int64)
            for size in (lambda b: b.nrows, lambda b: b.ncols, lambda b: b.nnz)
        )
        pointers = scatter(lambda b: b.indptr, self.pointers, np.int32)
        columns = scatter(lambda b: b.indices, self.values, np.int32)
        values = self.scatter_values(ranks, root, batch)
        return Parts(self, ranks.rank, (sizes, pointers, columns), values)

    def scatter_values(self, ranks: Ranks, root: int, batch: Batch | None) -> np.ndarray:
        """Sends each rank the values of its share, of the shape of a batch in host memory."""
        if self.uniform is not None and self.uniform[3] is not None:
            return ranks.comm.bcast(None if batch is None else _host_values(batch), root)

        def contiguous() -> tuple[np.ndarray | None, None]:
            if batch is None:
                return None, None
            whole = _host_values(batch)
            whole = np.ascontiguousarray(whole.T if batch.layout == "interleaved" else whole)
            return whole.reshape(-1), None

        values = ranks.scatter(root, ranks.run({}, contiguous)[0], self.values, self.dtype)
        if self.uniform is None:
            return values
        return values.reshape(int(np.diff(self.items)[ranks.rank]), len(self.uniform[2]))

    def own_items(self, rank: int) -> range:
        """The items of a rank."""
        return range(int(self.items[rank]), int(self.items[rank + 1]))


@dataclass
class Parts:
    """The arrays of a rank's share, which `batch` checks."""

    division: Division
    rank: int
    patterns: tuple[tuple[Any, ...], np.ndarray, np.ndarray] | None = None
    values: Any = None

    def batch(self) -> Batch:
        """The share as a batch."""
        uniform = self.division.uniform
        if uniform is not None:
            shape, pointers, columns, shared = uniform
            nitems = len(self.division.own_items(self.rank)) if shared is not None else None
            return Batch.uniform(pointers, columns, self.values, shape=shape, nitems=nitems)
        if self.patterns is None:
            raise AssertionError("a ragged share without patterns")
        sizes, pointers, columns = self.patterns
        patterns = _native.Patterns.ragged(*sizes, pointers, columns)
        return Batch._new(patterns, sizes, self.values, "item", False)


def entries_of(batch: Batch) -> np.ndarray:
    """The number of entries of each item, as int64."""
    return np.ascontiguousarray(np.broadcast_to(batch.nnz, batch.nitems), np.int64)


def host_batch(batch: Batch) -> Batch:
    """The batch, refused where its values lie on a GPU."""
    if library_of(batch.values).device(batch.values) is not None:
        raise Unsupported(
            "root with values on a GPU: give them in host memory, or let each rank give its items"
        )
    return batch


def host_vector(frame: Frame, name: str, array: Any) -> np.ndarray:
    """An array of the user, in host memory, flat, in the order of solvers."""
    if library_of(array).device(array) is not None:
        raise Unsupported(f"root with {name} on a GPU: give it in host memory")
    return frame.host(name, array).reshape(-1)


def _host_values(batch: Batch) -> np.ndarray:
    return library_of(batch.values).host(batch.values)
