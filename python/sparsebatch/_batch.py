"""Batches of sparse matrices: `Batch`."""

from __future__ import annotations

import itertools
import operator
import os
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from . import _native
from ._arrays import (
    Numpy,
    check_float,
    floats,
    indices as integers,
    library_of,
    narrow,
)
from ._foreign import adopt
from ._warnings import caller_level
from .errors import FormatError, OptionError, SparsebatchWarning, Unsupported

Layout = Literal["item", "interleaved"]


class Batch:
    """Sparse matrices to be solved or multiplied together.

    Made by `Batch.uniform`, `Batch.ragged`, `Batch.from_scipy`, `Batch.from_block_diagonal`,
    `Batch.from_torch`, `Batch.from_jax` or `sparsebatch.load`. Values are not copied where their
    type and order allow it: do not change an array while a solve reads it.

    Attributes
    ----------
    nitems : int
        The number of matrices.
    dtype : str
        `"float64"` or `"float32"`.
    values : array
        The values as they were given: `(nitems, nnz)`, `(nnz, nitems)` if interleaved, `(nnz,)` if
        all items share them, concatenated for a ragged batch.
    layout : str
        `"item"`, `"interleaved"` or `"shared"`.
    is_uniform : bool
        Whether all items have one pattern.
    """

    __slots__ = (
        "__weakref__",
        "_col_sizes",
        "_is_reordered",
        "_is_single",
        "_key",
        "_nnz_sizes",
        "_patterns",
        "_row_sizes",
        "dtype",
        "is_uniform",
        "layout",
        "nitems",
        "values",
    )

    nitems: int
    dtype: str
    values: Any
    layout: str
    is_uniform: bool
    _patterns: Any
    _is_single: bool
    _is_reordered: bool
    #: Unlike that of every other batch of the process; see `_BY_KEY`.
    _key: str
    _row_sizes: Any
    _col_sizes: Any
    _nnz_sizes: Any

    def __init__(self, *_args: Any, **_kwargs: Any):
        raise TypeError(
            "Batch is made by Batch.uniform, Batch.ragged, Batch.from_scipy, "
            "Batch.from_block_diagonal, Batch.from_torch, Batch.from_jax or sparsebatch.load"
        )

    @classmethod
    def _new(cls, patterns: Any, sizes: tuple[Any, ...], values: Any, layout: str, single: bool) -> Batch:
        self = object.__new__(cls)
        self._patterns = patterns
        self._row_sizes, self._col_sizes, self._nnz_sizes = sizes
        self.values = values
        self.layout = layout
        self.nitems = patterns.nitems
        self.is_uniform = patterns.is_uniform
        self.dtype = library_of(values).dtype(values)
        self._is_single = single
        self._is_reordered = False
        self._key = f"batch {next(_KEYS)}"
        _BY_KEY[self._key] = self
        return self

    @classmethod
    def uniform(
        cls,
        indptr: Any,
        indices: Any,
        values: Any,
        *,
        shape: tuple[int, int] | None = None,
        layout: Layout = "item",
        nitems: int | None = None,
        index_base: Literal[0, 1] = 0,
    ) -> Batch:
        """Matrices of one pattern.

        Parameters
        ----------
        indptr : array of int, shape (n + 1,)
            Row pointers of the pattern, in CSR.
        indices : array of int, shape (nnz,)
            Columns, row by row.
        values : array of float64 or float32
            Of shape `(nitems, nnz)`; `(nnz, nitems)` if interleaved; `(nnz,)` for one matrix, or
            for `nitems` that all are the same. It may lie on a GPU. Any library's array with
            `__dlpack__` or `__cuda_array_interface__` is read where it lies.
        shape : (int, int), optional
            Rows and columns of a matrix. Default: square.
        layout : {"item", "interleaved"}
            The order of `values`.
        nitems : int, optional
            The number of items that share the values `(nnz,)`.
        index_base : {0, 1}
            What the first row and column is called.

        Raises
        ------
        FormatError
            For invalid indices.
        OptionError
            For arrays that do not fit each other.

        Examples
        --------
        >>> import sparsebatch
        >>> batch = sparsebatch.Batch.uniform([0, 2, 3], [0, 1, 1], [[2.0, 1.0, 4.0], [1.0, 0.0, 8.0]])
        >>> batch
        Batch of 2 matrices 2 x 2 with 3 entries each, float64
        >>> sparsebatch.solve(batch, [[3.0, 4.0], [1.0, 8.0]]).x
        array([[1., 1.],
               [1., 1.]])
        """
        if layout not in ("item", "interleaved"):
            raise OptionError(f"layout is {layout!r}, expected 'item' or 'interleaved'")
        base = _base(index_base)
        pointers = narrow("indptr", integers("indptr", indptr) - base)
        columns = narrow("indices", integers("indices", indices) - base)
        if pointers.ndim != 1 or columns.ndim != 1:
            raise FormatError("indptr and indices have one dimension each")
        nrows = max(len(pointers) - 1, 0)
        shape = (nrows, nrows) if shape is None else checked_shape(shape)
        if shape[0] != nrows:
            raise FormatError(f"indptr has {len(pointers)} entries, expected {shape[0] + 1}")
        values, kind, count, single = _uniform_values(values, len(columns), layout, nitems)
        nnz = len(columns)
        is_reordered = False
        try:
            patterns = _native.Patterns.uniform(nrows, int(shape[1]), pointers, columns, count)
        except FormatError as error:
            order = _canonical_order(pointers, columns, nrows, int(shape[1]))
            if order is None:
                raise error from None
            if library_of(values).device(values) is not None:
                raise FormatError(
                    f"{error}: values on a GPU need columns in ascending order, each once"
                ) from None
            is_reordered = True
            pointers, columns = order.pointers, order.columns
            values = order.apply(values, axis=0 if kind == "interleaved" else -1)
            nnz = len(columns)
            patterns = _native.Patterns.uniform(nrows, int(shape[1]), pointers, columns, count)
        sizes = (nrows, int(shape[1]), nnz)
        batch = cls._new(patterns, sizes, values, kind, single)
        batch._is_reordered = is_reordered
        return batch

    @classmethod
    def ragged(
        cls,
        matrices: Iterable[Any] | None = None,
        *,
        nrows: Any = None,
        indptr: Any = None,
        indices: Any = None,
        values: Any = None,
        index_base: Literal[0, 1] = 0,
    ) -> Batch:
        """Matrices each of its own size and pattern.

        Parameters
        ----------
        matrices : iterable of SciPy sparse arrays or matrices
            Or, instead of them, all of the following:
        nrows : array of int, shape (nitems,)
            Rows of each matrix; they are square.
        indptr : array of int
            Row pointers of all matrices, one after the other; they begin at 0 in each matrix.
        indices : array of int
            Columns of all matrices.
        values : array of float64 or float32
            Values of all matrices. They may lie on a GPU.
        index_base : {0, 1}
            What the first row and column is called.

        Raises
        ------
        FormatError
            For invalid indices.
        OptionError
            For arrays that do not fit each other.
        """
        if matrices is not None:
            return cls._of_scipy_list([_scipy_csr(matrix) for matrix in matrices])
        if any(part is None for part in (nrows, indptr, indices, values)):
            raise OptionError("Batch.ragged takes matrices, or nrows, indptr, indices and values")
        base = _base(index_base)
        rows = _sizes("nrows", nrows, OptionError)
        pointers = narrow("indptr", integers("indptr", indptr) - base)
        columns = narrow("indices", integers("indices", indices) - base)
        if len(pointers) != int(rows.sum()) + len(rows):
            raise FormatError(
                f"indptr has {len(pointers)} entries, expected {int(rows.sum()) + len(rows)}: "
                "one more than rows for each item"
            )
        ends = np.cumsum(rows + 1) - 1
        nnz = pointers[ends].astype(np.int64) if len(rows) else np.empty(0, np.int64)
        if (nnz >= 0).all() and len(columns) != int(nnz.sum()):
            raise FormatError(f"indices has {len(columns)} entries, expected {int(nnz.sum())}")
        values = adopt("values", values)
        is_on_host = library_of(values).device(values) is None
        is_reordered = False
        if is_on_host:
            values = floats("values", values)
        else:
            check_float("values", library_of(values).dtype(values))
            values = library_of(values).contiguous(values)
        if len(values.shape) != 1:
            raise OptionError(f"values has {len(values.shape)} dimensions, expected 1")
        if _size(values) != len(columns):
            raise OptionError(f"values has {_size(values)} entries, expected {len(columns)}")
        try:
            patterns = _native.Patterns.ragged(rows, rows, nnz, pointers, columns)
        except FormatError as error:
            if not is_on_host or (nnz < 0).any():
                raise
            is_reordered = True
            parts = _canonical_items(rows, nnz, pointers, columns, values, error)
            pointers, columns, values = parts
            nnz = pointers[ends].astype(np.int64)
            patterns = _native.Patterns.ragged(rows, rows, nnz, pointers, columns)
        batch = cls._new(patterns, (rows, rows, nnz), values, "item", False)
        batch._is_reordered = is_reordered
        return batch

    @classmethod
    def _of_scipy_list(cls, matrices: Sequence[Any]) -> Batch:
        rows = np.array([matrix.shape[0] for matrix in matrices], np.int64)
        cols = np.array([matrix.shape[1] for matrix in matrices], np.int64)
        nnz = np.array([matrix.nnz for matrix in matrices], np.int64)
        pointers = _joined("indptr", [matrix.indptr for matrix in matrices])
        columns = _joined("indices", [matrix.indices for matrix in matrices])
        data = [floats("the values of a matrix", matrix.data) for matrix in matrices]
        values = np.concatenate(data) if data else np.empty(0)
        patterns = _native.Patterns.ragged(rows, cols, nnz, pointers, columns)
        return cls._new(patterns, (rows, cols, nnz), values, "item", False)

    @classmethod
    def from_scipy(cls, matrices: Any) -> Batch:
        """One SciPy sparse array or matrix of any format, or a list of them.

        A list of matrices of one pattern becomes a uniform batch, other lists a ragged one. Entries
        that occur several times are summed. Index arrays and values of CSR in canonical format are
        not copied if they are one matrix.

        Parameters
        ----------
        matrices : sparse array or matrix, or a sequence of them
        """
        if _is_scipy(matrices):
            matrix = _scipy_csr(matrices)
            batch = cls.uniform(
                matrix.indptr, matrix.indices, floats("the values", matrix.data), shape=matrix.shape
            )
            # Values in the order of the caller's `data` would be taken for those in ours.
            is_csr = getattr(matrices, "format", None) == "csr"
            batch._is_reordered = is_csr and not matrices.has_canonical_format
            return batch
        matrices = [_scipy_csr(matrix) for matrix in matrices]
        first = matrices[0] if matrices else None
        if matrices and all(_same_pattern(first, other) for other in matrices[1:]):
            values = np.stack([floats("the values", matrix.data) for matrix in matrices])
            return cls.uniform(first.indptr, first.indices, values, shape=first.shape)
        return cls._of_scipy_list(matrices)

    @classmethod
    def from_block_diagonal(cls, matrix: Any, sizes: int | Sequence[int]) -> Batch:
        """The diagonal blocks of a SciPy sparse array or matrix.

        Parameters
        ----------
        matrix : sparse array or matrix
            Square. Entries outside of the blocks are refused.
        sizes : int or sequence of int
            Rows of all blocks, or of each.

        Raises
        ------
        FormatError
            For an entry outside of the blocks, and sizes that do not add up to the rows.
        """
        matrix = _scipy_csr(matrix)
        nrows = matrix.shape[0]
        if matrix.shape[1] != nrows:
            raise FormatError(f"the matrix is {nrows} x {matrix.shape[1]}, expected a square one")
        if isinstance(sizes, (int, np.integer)):
            if sizes <= 0 or nrows % sizes:
                raise FormatError(f"{nrows} rows are not blocks of {sizes}")
            sizes = [int(sizes)] * (nrows // int(sizes))
        rows = _sizes("sizes", sizes, FormatError)
        if rows.sum() != nrows:
            raise FormatError(f"sizes add up to {rows.sum()}, expected {nrows}")
        starts = np.concatenate([[0], np.cumsum(rows)])
        counts = np.diff(matrix.indptr)
        row_start = np.repeat(starts[:-1], rows)
        row_end = np.repeat(starts[1:], rows)
        columns = matrix.indices - np.repeat(row_start, counts)
        outside = (columns < 0) | (matrix.indices >= np.repeat(row_end, counts))
        if outside.any():
            entry = int(np.flatnonzero(outside)[0])
            row = int(np.searchsorted(matrix.indptr, entry, "right")) - 1
            raise FormatError(
                f"entry ({row}, {matrix.indices[entry]}) lies outside of the diagonal blocks"
            )
        starts_of_nnz = matrix.indptr[starts].astype(np.int64)
        nnz = np.diff(starts_of_nnz)
        pointers = np.concatenate(
            [
                matrix.indptr[first : last + 1] - matrix.indptr[first]
                for first, last in zip(starts[:-1], starts[1:], strict=True)
            ]
            or [np.empty(0, np.int32)]
        )
        columns, values = narrow("indices", columns), floats("the values", matrix.data)
        if len(rows) and _blocks_have_one_pattern(rows, nnz, pointers, columns):
            n, count = int(rows[0]), len(rows)
            return cls.uniform(
                pointers[: n + 1], columns[: nnz[0]], values.reshape(count, int(nnz[0]))
            )
        patterns = _native.Patterns.ragged(rows, rows, nnz, narrow("indptr", pointers), columns)
        return cls._new(patterns, (rows, rows, nnz), values, "item", False)

    @classmethod
    def from_torch(cls, tensor: Any) -> Batch:
        """A tensor of PyTorch with layout `sparse_csr`: one matrix, or a batch of one pattern.

        The values of a batch may lie on a GPU. Index arrays are copied to the host once.

        Parameters
        ----------
        tensor : torch.Tensor
            `sparse_csr` of shape `(n, n)` or `(nitems, n, n)`.

        Raises
        ------
        Unsupported
            For a batch whose items differ in their columns.
        """
        pointers = tensor.crow_indices().cpu().numpy()
        columns = tensor.col_indices().cpu().numpy()
        values = tensor.values().detach()
        shape = tuple(tensor.shape[-2:])
        if pointers.ndim == 1:
            return cls.uniform(pointers, columns, values, shape=shape)
        if (pointers != pointers[:1]).any() or (columns != columns[:1]).any():
            raise Unsupported(
                "the items of the tensor have different patterns: give matrices to Batch.ragged"
            )
        if len(pointers) == 0:
            raise FormatError("the tensor has no items, and no pattern")
        return cls.uniform(pointers[0], columns[0], values, shape=shape)

    @classmethod
    def from_jax(cls, matrix: Any) -> Batch:
        """A `jax.experimental.sparse.BCSR` or `BCOO` matrix, or a batch of one pattern.

        Parameters
        ----------
        matrix : BCSR or BCOO
            With at most one batch dimension. Index arrays are copied to the host once.

        Raises
        ------
        Unsupported
            For a batch whose items differ in their pattern, and for dense dimensions.
        """
        if matrix.n_dense or matrix.n_batch > 1:
            raise Unsupported("a matrix with dense or several batch dimensions: flatten them")
        if hasattr(matrix, "indptr"):
            pointers, columns = np.asarray(matrix.indptr), np.asarray(matrix.indices)
        else:
            return cls._of_bcoo(matrix)
        shape = tuple(int(size) for size in matrix.shape[-2:])
        if pointers.ndim == 2:
            if (pointers != pointers[:1]).any() or (columns != columns[:1]).any():
                raise Unsupported(
                    "the items of the matrix have different patterns: give matrices to Batch.ragged"
                )
            pointers, columns = pointers[0], columns[0]
        return cls.uniform(pointers, columns, matrix.data, shape=shape)

    @classmethod
    def _of_bcoo(cls, matrix: Any) -> Batch:
        indices = np.asarray(matrix.indices)
        if indices.ndim == 3:
            if (indices != indices[:1]).any():
                raise Unsupported(
                    "the items of the matrix have different patterns: give matrices to Batch.ragged"
                )
            indices = indices[0]
        nrows, ncols = (int(size) for size in matrix.shape[-2:])
        rows, columns = indices[:, 0].astype(np.int64), indices[:, 1]
        if rows.size and (rows.min() < 0 or rows.max() >= nrows):
            raise FormatError(f"a row is {rows.max()}, expected an index in 0..{nrows}")
        order = np.argsort(rows, kind="stable")
        pointers = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=nrows))])
        values = Numpy.host(matrix.data)[..., order]
        return cls.uniform(pointers, columns[order], values, shape=(nrows, ncols))

    def with_values(self, values: Any) -> Batch:
        """The batch with other values, of the same shape and layout.

        They are in the order of `indices`. Where that is not the order in which the batch was
        made, since columns were sorted, they are refused: `canonical()` says that they are.
        """
        self._check_order()
        values = adopt("values", values)
        given = library_of(values)
        if given.device(values) is None:
            values = floats("values", values)
        else:
            check_float("values", given.dtype(values))
            values = given.contiguous(values)
        if given.dtype(values) != self.dtype:
            raise OptionError(
                f"values have elements of {given.dtype(values)}, expected {self.dtype}"
            )
        if tuple(values.shape) != tuple(self.values.shape):
            raise OptionError(
                f"values have shape {tuple(values.shape)}, expected {tuple(self.values.shape)}"
            )
        sizes = (self._row_sizes, self._col_sizes, self._nnz_sizes)
        return Batch._new(self._patterns, sizes, values, self.layout, self._is_single)

    def canonical(self) -> Batch:
        """The batch, for which values are given in the order of `indices` from now on.

        Only needed for a batch whose columns were sorted, or summed, when it was made.
        """
        sizes = (self._row_sizes, self._col_sizes, self._nnz_sizes)
        return Batch._new(self._patterns, sizes, self.values, self.layout, self._is_single)

    def _check_order(self) -> None:
        """Refuses other values for a batch whose order the caller does not know."""
        if self._is_reordered:
            raise OptionError(
                "the columns of the batch were sorted when it was made: for values in the order "
                "of batch.indices take batch.canonical()"
            )

    @property
    def nrows(self) -> int | np.ndarray:
        """Rows of a matrix; of each matrix, for a ragged batch."""
        return self._row_sizes

    @property
    def ncols(self) -> int | np.ndarray:
        """Columns of a matrix; of each matrix, for a ragged batch."""
        return self._col_sizes

    @property
    def nnz(self) -> int | np.ndarray:
        """Entries of a matrix; of each matrix, for a ragged batch."""
        return self._nnz_sizes

    @property
    def row_offsets(self) -> np.ndarray:
        """Where the rows of each item begin in concatenated vectors; `nitems + 1` numbers."""
        if self.is_uniform:
            return np.arange(self.nitems + 1, dtype=np.int64) * self._row_sizes
        return np.concatenate([[0], np.cumsum(self._row_sizes)])

    @property
    def indptr(self) -> np.ndarray:
        """Row pointers: of the pattern, or of all items one after the other."""
        return np.frombuffer(self._patterns.arrays()[0], np.int32)

    @property
    def indices(self) -> np.ndarray:
        """Columns: of the pattern, or of all items one after the other."""
        return np.frombuffer(self._patterns.arrays()[1], np.int32)

    def item_values(self, item: int) -> np.ndarray:
        """The values of one matrix, in host memory."""
        values = library_of(self.values).host(self.values)
        if not self.is_uniform:
            start = int(self._nnz_sizes[:item].sum())
            return values[start : start + int(self._nnz_sizes[item])]
        if self.layout == "shared" or values.ndim == 1:
            return values
        return values[:, item] if self.layout == "interleaved" else values[item]

    def __getitem__(self, item: int) -> Any:
        """One matrix as a SciPy `csr_array`."""
        from scipy.sparse import csr_array

        if isinstance(item, bool) or not isinstance(item, int | np.integer):
            raise TypeError(f"an item is {item!r}, expected a number")
        if not -self.nitems <= item < self.nitems:
            raise IndexError(f"item {item} of a batch of {self.nitems}")
        item %= self.nitems
        pointers, columns = self.indptr, self.indices
        shape = (self._row_sizes, self._col_sizes)
        if not self.is_uniform:
            shape = (int(self._row_sizes[item]), int(self._col_sizes[item]))
            row = int(self._row_sizes[:item].sum()) + item
            start = int(self._nnz_sizes[:item].sum())
            pointers = pointers[row : row + shape[0] + 1]
            columns = columns[start : start + int(self._nnz_sizes[item])]
        return csr_array((self.item_values(item).copy(), columns.copy(), pointers.copy()), shape)

    def to_scipy(self) -> list[Any]:
        """All matrices as SciPy `csr_array`."""
        return [self[item] for item in range(self.nitems)]

    def to_block_diagonal(self) -> Any:
        """One SciPy `csr_array` with the matrices as its diagonal blocks."""
        from scipy.sparse import block_diag, csr_array

        if self.nitems == 0:
            return csr_array((0, 0), dtype=self.dtype)
        return block_diag(self.to_scipy(), format="csr")

    def transposed(self) -> Batch:
        """The batch of the transposed matrices; values are copied."""
        patterns, places = self._patterns.transposed()
        places = np.frombuffer(places, np.int64)
        values = library_of(self.values).host(self.values)
        values = values[places] if self.layout == "interleaved" else values[..., places]
        sizes = (self._col_sizes, self._row_sizes, self._nnz_sizes)
        return Batch._new(
            patterns, sizes, np.ascontiguousarray(values), self.layout, self._is_single
        )

    def __len__(self) -> int:
        return self.nitems

    def __repr__(self) -> str:
        if self.is_uniform:
            many = "matrix" if self.nitems == 1 else "matrices"
            each = "" if self.nitems == 1 else " each"
            shared = ", values shared" if self.layout == "shared" else ""
            text = (
                f"Batch of {self.nitems:,} {many} {self._row_sizes:,} x {self._col_sizes:,} "
                f"with {self._nnz_sizes:,} entries{each}{shared}"
            )
        else:
            rows = self._row_sizes
            span = f"{rows.min():,} to {rows.max():,} rows" if len(rows) else "no rows"
            total = int(np.sum(self._nnz_sizes))
            text = f"Batch of {self.nitems:,} matrices of {span}, {total:,} entries in all"
        place = library_of(self.values).device(self.values)
        return f"{text}, {self.dtype}" + ("" if place is None else f", on cuda:{place}")

    def __reduce__(self) -> tuple[Any, ...]:
        values = np.array(library_of(self.values).host(self.values))
        sizes = (self._row_sizes, self._col_sizes, self._nnz_sizes)
        arrays = (self.indptr, self.indices)
        flags = self._is_single, self._is_reordered
        return _restore, (arrays, sizes, values, self.layout, self.nitems, flags)


def _restore(
    arrays: tuple[Any, ...],
    sizes: tuple[Any, ...],
    values: np.ndarray,
    layout: str,
    nitems: int,
    flags: tuple[bool, bool],
) -> Batch:
    """A batch from its pickled parts."""
    pointers, columns = (np.ascontiguousarray(array) for array in arrays)
    if isinstance(sizes[0], int):
        patterns = _native.Patterns.uniform(sizes[0], sizes[1], pointers, columns, nitems)
    else:
        patterns = _native.Patterns.ragged(*sizes, pointers, columns)
    batch = Batch._new(patterns, sizes, values, layout, flags[0])
    batch._is_reordered = flags[1]
    return batch


def as_batch(a: Any) -> Batch:
    """What a caller gave as matrices, as a batch."""
    if isinstance(a, Batch):
        return a
    package = type(a).__module__.partition(".")[0]
    if package == "torch":
        if str(getattr(a, "layout", "")) != "torch.sparse_csr":
            raise OptionError(
                "A is a dense tensor, expected layout sparse_csr: A.to_sparse_csr(), or Batch.uniform"
            )
        return Batch.from_torch(a)
    if package == "jax" and hasattr(a, "n_batch"):
        return Batch.from_jax(a)
    if _is_scipy(a):
        return Batch.from_scipy(a)
    if isinstance(a, (list, tuple)):
        return Batch.from_scipy(a)
    raise OptionError(
        f"A is a {type(a).__name__}, expected a Batch, a SciPy sparse array or a list of them, "
        "a torch sparse_csr tensor or a JAX BCSR matrix"
    )


def load(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> tuple[Batch, np.ndarray | None]:
    """Read matrices from files and folders.

    Parameters
    ----------
    paths : path or sequence of paths
        Matrix Market (`.mtx`, `.mtx.gz`), SciPy `.npz` in CSR, `.batch` files, known by their
        content; or folders of them.

    Returns
    -------
    batch : Batch
        Uniform where all matrices have one pattern.
    b : ndarray or None
        The right-hand sides of the files: `(nitems, n)`, or concatenated for a ragged batch.

    Raises
    ------
    FormatError
        With file, line or array position, what was expected and what was found.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    patterns, sizes, values, rhs = _native.load([os.fspath(path) for path in paths])
    values = np.frombuffer(values, np.float64)
    rhs = None if rhs is None else np.frombuffer(rhs, np.float64)
    if not patterns.is_uniform:
        rows, cols, nnz = (np.frombuffer(size, np.int64) for size in sizes)
        return Batch._new(patterns, (rows, cols, nnz), values, "item", False), rhs
    rows, cols, nnz = (int(np.frombuffer(size, np.int64)[0]) for size in sizes)
    values = values.reshape(patterns.nitems, nnz)
    rhs = None if rhs is None else rhs.reshape(patterns.nitems, rows)
    return Batch._new(patterns, (rows, cols, nnz), values, "item", False), rhs


def save(path: str | os.PathLike[str], batch: Batch, b: Any = None) -> None:
    """Write a batch of square float64 matrices to a `.batch` file, whole or not at all.

    Parameters
    ----------
    path : path
    batch : Batch
    b : array, optional
        Right-hand sides, as for `sparsebatch.solve`. Default: ones.
    """
    from ._vectors import Frame

    rows = int(batch.row_offsets[-1])
    rhs = np.ones(rows) if b is None else Frame(batch, 1).host("b", b).reshape(-1)
    values = floats("values", batch.values)
    if values.dtype != np.float64 or rhs.dtype != np.float64:
        raise OptionError("a .batch file holds float64: convert values and b")
    _native.save(os.fspath(path), batch._patterns, values, batch.layout, rhs)


def _base(index_base: int) -> int:
    if index_base not in (0, 1):
        raise OptionError(f"index_base is {index_base!r}, expected 0 or 1")
    return int(index_base)


def checked_shape(shape: Any) -> tuple[int, int]:
    """Rows and columns."""
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        sizes = ()
    if len(sizes) != 2 or not all(0 <= size < 2**31 for size in sizes):
        raise OptionError(f"shape is {shape!r}, expected two numbers from 0 to 2**31 - 1")
    return sizes[0], sizes[1]


def _size(array: Any) -> int:
    size = array.numel() if hasattr(array, "numel") else array.size
    return int(size)


def _uniform_values(
    values: Any, nnz: int, layout: str, nitems: int | None
) -> tuple[Any, str, int, bool]:
    """The values as an array, their layout, the number of items, and whether it is one matrix."""
    is_count = isinstance(nitems, int | np.integer) and not isinstance(nitems, bool)
    if nitems is not None and not is_count:
        raise OptionError(f"nitems is {nitems!r}, expected a number of items")
    values = adopt("values", values)
    library = library_of(values)
    if library.device(values) is None:
        values = floats("values", values)
    else:
        check_float("values", library.dtype(values))
        values = library.contiguous(values)
    shape = tuple(values.shape)
    if len(shape) == 1:
        if shape[0] != nnz:
            raise OptionError(f"values has {shape[0]} entries, expected {nnz}")
        if nitems is None:
            return values, "item", 1, True
        if nitems < 0:
            raise OptionError(f"nitems is {nitems}, expected a number that is not negative")
        return values, ("shared" if nitems != 1 else "item"), int(nitems), False
    axis = 0 if layout == "interleaved" else 1
    if len(shape) != 2 or shape[axis] != nnz:
        expected = f"({nnz}, nitems)" if layout == "interleaved" else f"(nitems, {nnz})"
        raise OptionError(f"values has shape {shape}, expected {expected}")
    count = shape[1 - axis]
    if nitems is not None and int(nitems) != count:
        raise OptionError(f"nitems is {nitems}, the values have {count} items")
    return values, layout, count, False


#: The batches that are alive, by their keys: strings are constants where `torch.compile` traces.
_BY_KEY: weakref.WeakValueDictionary[str, Batch] = weakref.WeakValueDictionary()
_KEYS = itertools.count()


def _sizes(name: str, sizes: Any, error: type[FormatError | OptionError]) -> np.ndarray:
    """Numbers of rows, one for each item, as int64."""
    rows = np.ascontiguousarray(integers(name, sizes))
    if rows.ndim != 1:
        raise error(f"{name} has {rows.ndim} dimensions, expected 1")
    for wrong in (rows[rows < 0], rows[rows >= 2**31]):
        if len(wrong):
            raise error(f"{name} has {wrong[0]}, expected numbers from 0 to 2**31 - 1")
    return rows


def _canonical_items(
    rows: np.ndarray,
    nnz: np.ndarray,
    pointers: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    error: FormatError,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arrays of a ragged batch in canonical order, item by item; an item that cannot be brought
    into it is named."""
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    row, entry = 0, 0
    for item, (n, count) in enumerate(zip(rows, nnz, strict=True)):
        own = pointers[row : row + n + 1], columns[entry : entry + count]
        own_values = values[entry : entry + count]
        try:
            _native.Patterns.uniform(int(n), int(n), *map(np.ascontiguousarray, own), 1)
            parts.append((*own, own_values))
        except FormatError as of_item:
            order = _canonical_order(*own, int(n), int(n))
            if order is None:
                raise FormatError(f"item {item}: {of_item}") from error
            parts.append((order.pointers, order.columns, order.apply(own_values, axis=-1)))
        row, entry = row + n + 1, entry + count
    joined = [np.ascontiguousarray(np.concatenate(kind)) for kind in zip(*parts, strict=True)]
    return joined[0], joined[1], joined[2]


class _Order:
    """Brings entries into ascending columns and sums those that occur several times."""

    def __init__(self, order: np.ndarray, starts: np.ndarray, pointers: Any, columns: Any):
        self.order, self.starts = order, starts
        self.pointers, self.columns = pointers, columns

    def apply(self, values: np.ndarray, axis: int) -> np.ndarray:
        values = np.take(values, self.order, axis=axis)
        if len(self.starts) != len(self.order) and len(self.starts):
            values = np.add.reduceat(values, self.starts, axis=axis)
        return np.ascontiguousarray(values)


def _canonical_order(
    pointers: np.ndarray, columns: np.ndarray, nrows: int, ncols: int
) -> _Order | None:
    """How to make a pattern canonical whose rows are not sorted or have duplicates; `None` where
    something else is wrong with it."""
    counts = np.diff(pointers)
    valid = (
        len(pointers) > 0
        and pointers[0] == 0
        and (counts >= 0).all()
        and pointers[-1] == len(columns)
        and len(columns) > 0
        and columns.min() >= 0
        and columns.max() < ncols
    )
    if not valid:
        return None
    keys = np.repeat(np.arange(nrows, dtype=np.int64), counts) * ncols + columns
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    if len(starts) != len(keys):
        warnings.warn(
            f"{len(keys) - len(starts)} entries of the pattern occur several times and were summed",
            SparsebatchWarning,
            stacklevel=caller_level(),
        )
    keys = keys[starts]
    rows = keys // ncols
    pointers = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=nrows))])
    return _Order(order, starts, narrow("indptr", pointers), narrow("indices", keys % ncols))


def _is_scipy(a: Any) -> bool:
    return hasattr(a, "tocsr") and hasattr(a, "shape")


def _scipy_csr(matrix: Any) -> Any:
    """A SciPy matrix in canonical CSR; the caller's is not changed."""
    if not _is_scipy(matrix):
        raise OptionError(
            f"a matrix is a {type(matrix).__name__}, expected a SciPy sparse array or matrix"
        )
    csr = matrix.tocsr()
    if csr.ndim != 2:
        raise OptionError(f"a matrix has {csr.ndim} dimensions, expected 2")
    if not csr.has_canonical_format:
        csr = csr.copy() if csr is matrix else csr
        csr.sum_duplicates()
    return csr


def _same_pattern(one: Any, other: Any) -> bool:
    return (
        one.shape == other.shape
        and one.nnz == other.nnz
        and np.array_equal(one.indptr, other.indptr)
        and np.array_equal(one.indices, other.indices)
    )


def _joined(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    if not arrays:
        return np.empty(0, np.int32)
    return narrow(name, np.concatenate([integers(name, array) for array in arrays]))


def _blocks_have_one_pattern(
    rows: np.ndarray, nnz: np.ndarray, pointers: np.ndarray, columns: np.ndarray
) -> bool:
    if (rows != rows[0]).any() or (nnz != nnz[0]).any():
        return False
    pointers = pointers.reshape(len(rows), -1)
    columns = columns.reshape(len(rows), -1)
    return bool((pointers == pointers[0]).all() and (columns == columns[0]).all())
