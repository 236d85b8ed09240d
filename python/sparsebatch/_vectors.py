"""Shapes of right-hand sides and solutions, and how they lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._arrays import DeviceView, Numpy, floats, library_of
from ._batch import Batch
from ._foreign import adopt
from .errors import OptionError, Unsupported


class Frame:
    """The vectors of a batch with `nrhs` right-hand sides.

    Solvers take the rows of item 0, of item 1, ..., with the right-hand sides of an item one after
    the other. Users have, as in `numpy.linalg.solve`,

    - `(nitems, n)`, or `(nitems, n, nrhs)`; `(n,)` or `(n, nrhs)` for one matrix;
    - `(n, nitems)` for interleaved batches;
    - concatenated vectors for ragged batches: of length `total`, or `(total, nrhs)`.
    """

    __slots__ = ("_orders", "batch", "dtype", "interleaved", "nrhs", "rows", "shape")

    def __init__(self, batch: Batch, nrhs: int, rows: int | np.ndarray | None = None):
        self.batch = batch
        self.nrhs = nrhs
        self.dtype = batch.dtype
        self.rows = batch.nrows if rows is None else rows
        self.interleaved = batch.layout == "interleaved"
        if self.interleaved and nrhs != 1:
            raise Unsupported(
                "several right-hand sides of an interleaved batch: give layout='item', or one at a time"
            )
        self.shape = self._shape()
        self._orders: dict[tuple[str, bool], Any] = {}

    def _shape(self) -> tuple[int, ...]:
        many = () if self.nrhs == 1 else (self.nrhs,)
        if not self.batch.is_uniform:
            return (int(np.sum(self.rows)), *many)
        if self.batch._is_single:
            return (self.rows, *many)
        if self.interleaved:
            return (self.rows, self.batch.nitems)
        return (self.batch.nitems, self.rows, *many)

    @staticmethod
    def nrhs_of(batch: Batch, b: Any, rows: int | np.ndarray | None = None) -> int:
        """The number of right-hand sides that an array has."""
        if not batch.is_uniform and isinstance(b, list | tuple):
            shape = np.shape(b[0]) if b else (0,)
        else:
            shape = tuple(b.shape) if hasattr(b, "ndim") else np.shape(b)
        plain = 1 if batch._is_single or not batch.is_uniform else 2
        return int(shape[-1]) if len(shape) == plain + 1 else 1

    def check(self, name: str, array: Any) -> None:
        shape = tuple(array.shape)
        if shape != self.shape and not (self.nrhs == 1 and shape == (*self.shape, 1)):
            raise OptionError(f"{name} has shape {shape}, expected {self.shape}")

    def host(self, name: str, array: Any) -> np.ndarray:
        """An array of the user, in host memory, in the order of solvers: a view where it is."""
        array = given = adopt(name, self.joined(name, array))
        refuse_gradient(name, array)
        array = floats(name, array) if type(array) is not np.ndarray else self._floats(name, array)
        self.check(name, array)
        if array.dtype != self.dtype:
            if self.dtype == "float32":
                raise OptionError(
                    f"{name} has elements of {library_of(given).dtype(given)}, the matrices have "
                    "float32: convert one of them"
                )
            array = array.astype(np.float64)
        return self.inner(array)

    @staticmethod
    def _floats(name: str, array: np.ndarray) -> np.ndarray:
        # Other orders are brought into that of solvers below, in one copy.
        is_plain = array.dtype.kind == "f" and type(array) is np.ndarray
        if is_plain and array.dtype.byteorder == "=" and array.dtype.itemsize in (4, 8):
            return array
        return floats(name, array)

    def like(self, b: Any, x: Any) -> Any:
        """Solutions in the shape of right-hand sides, which may have a last axis of one column."""
        shape = (*self.shape, 1)
        return x.reshape(shape) if tuple(getattr(b, "shape", ())) == shape else x

    def inner(self, array: np.ndarray) -> np.ndarray:
        """From the shape of the user to the order of solvers."""
        if self.interleaved:
            array = array.reshape(self.shape).T
        elif self.nrhs != 1:
            array = self._swapped(array)
        return np.require(array, requirements=["C", "A"])

    def _swapped(self, array: np.ndarray) -> np.ndarray:
        if self.batch.is_uniform:
            return np.swapaxes(array, -1, -2)
        offsets = self.offsets
        parts = [
            array[first:last].T.ravel() for first, last in zip(offsets[:-1], offsets[1:], strict=True)
        ]
        return np.concatenate(parts) if parts else array.ravel()

    def outer(self, inner: np.ndarray) -> np.ndarray:
        """From the order of solvers to the shape of the user; a view for uniform batches."""
        if not self.batch.is_uniform:
            if self.nrhs == 1:
                return inner
            offsets = self.offsets * self.nrhs
            parts = [
                inner[first:last].reshape(self.nrhs, -1).T
                for first, last in zip(offsets[:-1], offsets[1:], strict=True)
            ]
            return np.concatenate(parts) if parts else inner.reshape(self.shape)
        if self.interleaved:
            return inner.reshape(self.batch.nitems, self.rows).T
        if self.nrhs != 1:
            lead = () if self.batch._is_single else (self.batch.nitems,)
            return np.swapaxes(inner.reshape(*lead, self.nrhs, self.rows), -1, -2)
        return inner.reshape(self.shape)

    @property
    def offsets(self) -> np.ndarray:
        """Where the rows of each item of a ragged batch begin."""
        return np.concatenate([[0], np.cumsum(self.rows)]).astype(np.int64)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def joined(self, name: str, array: Any) -> Any:
        """A list of vectors of a ragged batch as one array."""
        if self.batch.is_uniform or not isinstance(array, list | tuple):
            return array
        if len(array) != self.batch.nitems:
            raise OptionError(f"{name} has {len(array)} vectors, expected {self.batch.nitems}")
        parts = [floats(name, part) for part in array]
        for item, (part, rows) in enumerate(zip(parts, self.rows, strict=True)):
            if part.shape[:1] != (rows,):
                raise OptionError(f"{name}[{item}] has shape {part.shape}, expected ({rows},)")
        return np.concatenate(parts) if parts else np.empty(self.shape)

    def device(self, name: str, array: Any, ordinal: int) -> Any:
        """An array of the user on a GPU, checked, in the order of solvers."""
        library = library_of(array)
        place = library.device(array)
        if place != ordinal:
            found = "in host memory" if place is None else f"on cuda:{place}"
            raise OptionError(f"{name} lies {found}, the values of the matrices on cuda:{ordinal}")
        refuse_gradient(name, array)
        self.check(name, array)
        if library.dtype(array) != self.dtype:
            raise OptionError(
                f"{name} has elements of {library.dtype(array)}, the matrices have {self.dtype}"
            )
        if self.nrhs != 1:
            if self.batch.is_uniform:
                array = array.swapaxes(-1, -2)
            elif library.name == "foreign":
                raise Unsupported(
                    f"{name}: several right-hand sides of a ragged batch in an array of an unknown "
                    "library: give one of CuPy, PyTorch or JAX"
                )
            else:
                array = array.reshape(-1)[self._order(library, array, to_user=False)]
        return library.contiguous(array)

    def from_device(self, x: Any) -> Any:
        """Solutions on a GPU, in the order of solvers, in the shape of the user."""
        if self.nrhs == 1:
            return x
        if self.batch.is_uniform:
            return x.swapaxes(-1, -2)
        return x[self._order(library_of(x), x, to_user=True)].reshape(self.shape)

    def _order(self, library: Any, like: Any, *, to_user: bool) -> Any:
        """Where each element of the vectors of a ragged batch comes from, on the GPU of `like`."""
        key = library.name, to_user
        order = self._orders.get(key)
        if order is None:
            places = np.arange(self.size).reshape(self.shape)
            order = self._swapped(places)
            order = np.argsort(order) if to_user else order
            # JAX has no others unless it is told to.
            order = order.astype(np.int32) if self.size < 2**31 else order
            order = self._orders[key] = library.wrap(order, like)
        return order

    def device_shape(self) -> tuple[int, ...]:
        """The shape of an array on a GPU in the order of solvers."""
        if self.nrhs == 1:
            return self.shape
        if not self.batch.is_uniform:
            return (self.size,)
        return (*self.shape[:-2], self.nrhs, self.shape[-2])


def refuse_gradient(name: str, array: Any) -> None:
    """Refuses a tensor of PyTorch whose gradient would be lost."""
    if getattr(array, "requires_grad", False):
        raise OptionError(
            f"{name} requires a gradient: call sparsebatch.torch.solve, or give {name}.detach()"
        )


def writable(frame: Frame, out: Any) -> None:
    """Refuses an array for results that cannot be one."""
    library = library_of(out)
    if library.name == "jax":
        raise OptionError("out is an array of JAX, which cannot be written to")
    if library is Numpy:
        if not isinstance(out, np.ndarray):
            raise OptionError(f"out is a {type(out).__name__}, expected an array")
        if not out.flags.writeable:
            raise OptionError("out is read-only, expected an array to write to")
    if isinstance(out, DeviceView) and out.readonly:
        raise OptionError("out is read-only, expected an array to write to")
    frame.check("out", out)
    if library.dtype(out) != frame.dtype:
        raise OptionError(f"out has elements of {library.dtype(out)}, expected {frame.dtype}")
