"""Products: `Spmv`."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._arrays import Numpy, library_of
from ._batch import as_batch
from ._foreign import adopt
from ._nvrtc import find_nvrtc
from ._solve import wait_for
from ._vectors import Frame, writable
from .errors import OptionError, Unsupported


class Spmv:
    """A batch of matrices, analysed for repeated products `y = alpha A x + beta y`.

    Two products give the same bits, and those of an item depend on no other item.

    Parameters
    ----------
    A : Batch, SciPy sparse array, list of them, torch sparse_csr tensor or JAX BCSR
        The matrices, rectangular or square. Where their values lie on a GPU, products run there.
    nrhs : int
        Vectors of each matrix.
    format : {"auto", "csr", "coo", "ell", "dia", "hyb", "sellp"}
        The format in which the plan keeps the matrices.
    kernel : {"auto", "rows", "csr-i", "entries", "blocks", "runs"}
        How a product runs over it.
    transpose : bool
        Multiply with the transposed matrices.
    stream : int, optional
        Address of the CUDA stream, for arrays on a GPU.

    Attributes
    ----------
    format, kernel, reason : str
        What the plan chose, and why.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, sparsebatch
    >>> multiply = sparsebatch.Spmv(sp.csr_array(np.array([[2.0, 1.0], [0.0, 4.0]])))
    >>> multiply(np.array([1.0, 2.0]))
    array([4., 8.])
    """

    def __init__(
        self,
        A: Any,
        *,
        nrhs: int = 1,
        format: str = "auto",
        kernel: str = "auto",
        transpose: bool = False,
        stream: int | None = None,
    ):
        batch = as_batch(A)
        if isinstance(nrhs, bool) or not isinstance(nrhs, int | np.integer) or nrhs < 1:
            raise OptionError(f"nrhs is {nrhs!r}, expected at least 1")
        for name, value in (("format", format), ("kernel", kernel)):
            if not isinstance(value, str):
                raise OptionError(f"{name} is {value!r}, expected its name")
        ordinal = library_of(batch.values).device(batch.values)
        self._source = batch
        self._transpose = transpose
        if ordinal is None:
            batch = batch.transposed() if transpose else batch
            self._ordinal = None
            self._native: Any = _native.Spmv(
                batch._patterns, batch.values, batch.dtype, batch.layout, format, kernel, nrhs
            )
            self.format, self.kernel, self.reason, _, _ = self._native.explain()
        else:
            if transpose or (format, kernel) != ("auto", "auto") or batch.layout == "interleaved":
                raise Unsupported(
                    "products on a GPU with transposed matrices, a chosen format or kernel, or "
                    "interleaved values: give item-major values, or arrays in host memory"
                )
            find_nvrtc()
            library = library_of(batch.values)
            self._stream = library.stream(batch.values) if stream is None else int(stream)
            self._stream_owner = None if stream is not None else library.current(batch.values)
            wait_for([batch.values], self._stream)
            self._ordinal = ordinal
            self._native = _native.DeviceSpmv(
                batch._patterns,
                library.address(batch.values),
                batch.dtype,
                batch.layout,
                nrhs,
                ordinal,
                self._stream,
            )
            self.format, self.kernel, self.reason = "packed", "packed", "arrays on a GPU"
        self._inputs = Frame(batch, nrhs, batch.ncols)
        self._outputs = Frame(batch, nrhs)

    def update_values(self, values: Any) -> None:
        """Take other values of the same shape and layout."""
        batch = self._source.with_values(values)
        if self._ordinal is not None:
            library = library_of(batch.values)
            if library.device(batch.values) != self._ordinal:
                raise OptionError(f"values do not lie on cuda:{self._ordinal}")
            wait_for([batch.values], self._stream)
            self._native.update_values(library.address(batch.values))
            # The copy may wait on the stream when these values are replaced.
            library.hold(batch.values, self._stream)
            self._copied = self._source, batch
        else:
            own = batch.transposed() if self._transpose else batch
            self._native.update_values(own.values.reshape(-1))
        self._source = batch

    def __call__(self, x: Any, *, alpha: float = 1.0, beta: float = 0.0, y: Any = None) -> Any:
        """`alpha A x + beta y`.

        Parameters
        ----------
        x : array
            `(nitems, m)` for matrices of m columns, shaped as right-hand sides of
            `sparsebatch.solve`.
        alpha, beta : float
        y : array, optional
            Where the product is written, and what `beta` multiplies; with `beta=0` it is not read.

        Returns
        -------
        array
            `y`, or a new one in the library of `x`.
        """
        if y is None and beta != 0.0:
            raise OptionError("beta is given without y")
        x, given = adopt("x", x), y
        y = None if y is None else adopt("y", y, to_write=True)
        product = self._product(x, float(alpha), float(beta), y)
        return product if y is None else given

    def _product(self, x: Any, alpha: float, beta: float, y: Any) -> Any:
        if self._ordinal is not None:
            return self._on_device(x, alpha, beta, y)
        inner_x = self._inputs.host("x", x)
        if y is not None:
            writable(self._outputs, y)
        inner_y = (
            np.zeros(self._outputs.size, self._outputs.dtype)
            if y is None or beta == 0.0
            else self._outputs.host("y", y).reshape(-1).copy()
        )
        self._native.apply(alpha, inner_x, beta, inner_y)
        result = self._outputs.outer(inner_y)
        library = library_of(x if y is None else y)
        if y is None:
            return result if library is Numpy else library.wrap(result, x)
        if library is Numpy:
            np.copyto(y, result)
        else:
            library.copy(y, library.wrap(result, y))
        return y

    def _on_device(self, x: Any, alpha: float, beta: float, y: Any) -> Any:
        library = library_of(x)
        inner_x = self._inputs.device("x", x, self._ordinal)
        if self._outputs.nrhs != 1 and y is not None:
            raise Unsupported("y with several vectors on a GPU: leave it out")
        if y is None:
            shape = self._outputs.device_shape()
            y = library.empty(shape, self._outputs.dtype, x)
        else:
            writable(self._outputs, y)
            if library_of(y).device(y) != self._ordinal:
                raise OptionError(f"y is not an array on cuda:{self._ordinal}")
            if library_of(y).contiguous(y) is not y:
                raise OptionError("y is not contiguous, expected C order")
        wait_for([inner_x, y], self._stream)
        of_y = library_of(y)
        address = library_of(inner_x).address(inner_x)
        self._native.apply(alpha, address, beta, of_y.address(y))
        if of_y.name in ("jax", "foreign") or of_y.stream(y) != self._stream:
            # The library reads y on another stream.
            self._native.synchronize()
        return self._outputs.from_device(y)

    def __repr__(self) -> str:
        return f"Spmv of a {self._source!r}; {self.format} by {self.kernel}: {self.reason}"
