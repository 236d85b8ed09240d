"""Matrices in other formats than CSR: `to_coo`, `to_ell`, `to_dia`, `to_hyb`, `to_sellp`.

Conversions keep explicit zeros, except for DIA, and are undone by `FormatMatrix.to_batch` or
`FormatMatrix.to_scipy`. A conversion that would blow memory up is a `FormatError` which names the
size and the limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._arrays import floats, narrow
from ._arrays import indices as integers
from ._batch import Batch, as_batch, checked_shape
from .errors import OptionError, Unsupported

__all__ = ["FormatMatrix", "to_coo", "to_dia", "to_ell", "to_hyb", "to_sellp"]

#: The index arrays and numbers of each format.
PARTS: dict[str, tuple[str, ...]] = {
    "coo": ("row", "col"),
    "ell": ("width", "indices"),
    "dia": ("offsets",),
    "hyb": ("width", "indices", "row", "col"),
    "sellp": ("slice_size", "threads_per_row", "slice_ptr", "row_perm", "indices"),
}
_NUMBERS = ("width", "slice_size", "threads_per_row")


class FormatMatrix:
    """A matrix, or a batch of one pattern, in COO, ELL, DIA, HYB or SELL-P.

    Parameters
    ----------
    format : {"coo", "ell", "dia", "hyb", "sellp"}
    shape : (int, int)
        Rows and columns of a matrix.
    data : array of float64 or float32, shape (nslots,) or (nitems, nslots)
        Values by slot; padding holds 0.
    **parts
        The index arrays of the format: `row`, `col` (COO); `width`, `indices` with -1 as padding,
        slot `s` of row `r` at `s * nrows + r` (ELL); `offsets`, column minus row, slot of row `r`
        on diagonal `d` at `d * nrows + r` (DIA); those of ELL and of COO (HYB); `slice_size`,
        `threads_per_row`, `slice_ptr`, `row_perm`, `indices` (SELL-P).

    Raises
    ------
    FormatError
        For parts that are not valid.

    Notes
    -----
    Sources: Bell and Garland 2009 (ELL, DIA, HYB), Anzt, Tomov and Dongarra 2014 (SELL-P).
    """

    def __init__(self, format: str, shape: tuple[int, int], data: Any, **parts: Any):
        if format not in PARTS:
            raise OptionError(f"format is {format!r}, expected one of {', '.join(PARTS)}")
        if set(parts) != set(PARTS[format]):
            raise OptionError(f"{format} has the parts {', '.join(PARTS[format])}")
        self.format = format
        self.shape = checked_shape(shape)
        self.data = floats("data", data)
        if self.data.ndim not in (1, 2):
            raise OptionError(f"data has {self.data.ndim} dimensions, expected 1 or 2")
        self._parts = {
            name: int(part) if name in _NUMBERS else narrow(name, integers(name, part))
            for name, part in parts.items()
        }
        self.to_batch()

    def __getattr__(self, name: str) -> Any:
        parts = self.__dict__.get("_parts", {})
        if name in parts:
            return parts[name]
        raise AttributeError(f"{self.__dict__.get('format', 'a matrix')} has no {name}")

    @property
    def nslots(self) -> int:
        """Slots of a matrix, padding included."""
        return int(self.data.shape[-1])

    def _slots_of_parts(self) -> int:
        """The number of slots that the index arrays have."""
        parts = self._parts
        if self.format == "dia":
            return len(parts["offsets"]) * self.shape[0]
        padded = len(parts["indices"]) if "indices" in parts else 0
        return padded + (len(parts["row"]) if "row" in parts else 0)

    def to_batch(self) -> Batch:
        """As a `Batch` in CSR."""
        count = 1 if self.data.ndim == 1 else len(self.data)
        mask = None
        if self.format == "dia":
            filled = self.data != 0
            mask = np.ascontiguousarray(filled if filled.ndim == 1 else filled.any(axis=0))
            mask = mask.view(np.uint8)
        patterns, nnz, slots = _native.to_csr(self.format, self.shape, count, self._parts, mask)
        slots = np.frombuffer(slots, np.int64)
        if len(slots) and slots.max() >= self.nslots or self.nslots != self._slots_of_parts():
            raise OptionError(f"data has {self.nslots} slots, expected {self._slots_of_parts()}")
        values = np.ascontiguousarray(self.data[..., slots])
        sizes = (*self.shape, nnz)
        return Batch._new(patterns, sizes, values, "item", self.data.ndim == 1)

    def to_scipy(self) -> Any:
        """As a SciPy `csr_array`; a list of them for a batch."""
        batch = self.to_batch()
        return batch[0] if self.data.ndim == 1 else batch.to_scipy()

    def __repr__(self) -> str:
        count = "" if self.data.ndim == 1 else f"{len(self.data):,} x "
        return (
            f"{self.format} of {count}{self.shape[0]:,} x {self.shape[1]:,}, "
            f"{self.nslots:,} slots, {self.data.dtype}"
        )


def _convert(A: Any, format: str, **options: Any) -> FormatMatrix:
    batch = as_batch(A)
    if not batch.is_uniform:
        raise Unsupported("matrices of several patterns in one format: convert them one by one")
    for name, value in options.items():
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if value is not None and not (is_number and value > 0):
            raise OptionError(f"{name} is {value!r}, expected a number above 0")
    defaults = {
        "max_fill": None,
        "width": None,
        "slice_size": 8,
        "threads_per_row": 8,
        "sort_window": None,
    }
    arrays, nslots, slots = _native.convert(batch._patterns, format, defaults | options)
    parts = {
        name: part if name in _NUMBERS else np.frombuffer(part, np.int32)
        for name, part in arrays.items()
    }
    values = floats("values", batch.values)
    if batch.layout == "interleaved":
        values = values.T
    data = np.zeros((*values.shape[:-1], nslots), values.dtype)
    data[..., np.frombuffer(slots, np.int64)] = values
    result = object.__new__(FormatMatrix)
    result.format, result.data, result._parts = format, data, parts
    result.shape = (batch.nrows, batch.ncols)
    return result


def to_coo(A: Any) -> FormatMatrix:
    """Coordinates: `row`, `col`, sorted by row and column."""
    return _convert(A, "coo")


def to_ell(A: Any, *, max_fill: float | None = None) -> FormatMatrix:
    """ELLPACK: `width` slots in each row.

    Parameters
    ----------
    A : matrix or batch of one pattern
    max_fill : float, optional
        Slots per entry above which the conversion is refused. Default: 20.
    """
    return _convert(A, "ell", max_fill=max_fill)


def to_dia(A: Any, *, max_fill: float | None = None) -> FormatMatrix:
    """Diagonals: `offsets`, and a slot for every row on each of them. Explicit zeros are lost."""
    return _convert(A, "dia", max_fill=max_fill)


def to_hyb(A: Any, *, width: int | None = None, max_fill: float | None = None) -> FormatMatrix:
    """ELL for the first `width` entries of a row, COO for the others.

    Parameters
    ----------
    A : matrix or batch of one pattern
    width : int, optional
        Default: the histogram rule of Bell and Garland 2009.
    max_fill : float, optional
        Slots per entry above which the conversion is refused. Default: 20.
    """
    return _convert(A, "hyb", width=width, max_fill=max_fill)


def to_sellp(
    A: Any,
    *,
    slice_size: int = 8,
    threads_per_row: int = 8,
    sort_window: int | None = None,
    max_fill: float | None = None,
) -> FormatMatrix:
    """SELL-P(b, t): slices of rows, each of its own width.

    Parameters
    ----------
    A : matrix or batch of one pattern
    slice_size : int
        Rows of a slice, b.
    threads_per_row : int
        t, of which the width of every slice is a multiple.
    sort_window : int, optional
        Sort the rows by length within windows of so many rows (sigma of SELL-C-sigma).
    max_fill : float, optional
        Slots per entry above which the conversion is refused. Default: 20.
    """
    return _convert(
        A,
        "sellp",
        slice_size=slice_size,
        threads_per_row=threads_per_row,
        sort_window=sort_window,
        max_fill=max_fill,
    )
