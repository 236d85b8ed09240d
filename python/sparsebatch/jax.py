"""Solves within JAX's transformations: `solve`, `solve_with_status`.

They work inside of `jax.jit`, `jax.vmap`, `jax.grad`, `jax.jvp`, `jax.linearize` and their
combinations, in float64 and float32, on the CPU and on NVIDIA GPUs, without copies: XLA calls the
solver with its own arrays.

>>> import jax, jax.numpy as jnp, numpy as np, sparsebatch, sparsebatch.jax
>>> batch = sparsebatch.Batch.uniform([0, 2, 3], [0, 1, 1], np.ones((2, 3), np.float32))
>>> values = jnp.array([[2.0, 1.0, 4.0], [1.0, 0.0, 8.0]], jnp.float32)
>>> b = jnp.array([[3.0, 4.0], [1.0, 8.0]], jnp.float32)
>>> jax.jit(lambda values, b: sparsebatch.jax.solve(batch, values, b))(values, b)
Array([[1., 1.],
       [1., 1.]], dtype=float32)
>>> jax.grad(lambda b: sparsebatch.jax.solve(batch, values, b).sum())(b)
Array([[0.5  , 0.125],
       [1.   , 0.125]], dtype=float32)
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from . import _native
from ._batch import Batch
from ._nvrtc import find_nvrtc
from ._solve import options_of
from .errors import OptionError, Unsupported

__all__ = ["clear_cache", "solve", "solve_with_status"]

OnFailure = Literal["nan", "keep"]

_TARGET = "sparsebatch_solve"
for _platform in ("cpu", "CUDA"):
    jax.ffi.register_ffi_target(_TARGET, _native.jax_handler(_platform), platform=_platform)

#: Options with one number for each system, or one for all.
_LIMITS = ("rtol", "atol", "maxiter")


def solve(
    batch: Batch,
    values: Any,
    b: Any,
    *,
    x0: Any = None,
    transpose: bool = False,
    on_failure: OnFailure = "nan",
    **options: Any,
) -> jax.Array:
    """Solve `A_i x_i = b_i` for every matrix of a batch, differentiably.

    Parameters
    ----------
    batch : Batch
        The patterns, the number of items and the layout; its own values are not used. It is not
        traced: close over it, or give it as a static argument.
    values : array of float64 or float32
        `(nitems, nnz)`, or `(nnz,)` for items that share their values; `(nnz, nitems)` for an
        interleaved batch; concatenated for a ragged batch.
    b : array
        Right-hand sides, of the type of `values`: `(nitems, n)`, or `(nitems, n, nrhs)`; `(n,)` or
        `(n, nrhs)` for a batch that was made of one matrix; `(n, nitems)` for an interleaved batch;
        `(total,)` or `(total, nrhs)` for a ragged one.
    x0 : array, optional
        Initial guesses, of the shape of `b`. Default: 0. Solutions have no derivative by them.
    transpose : bool
        Solve with the transposed matrices.
    on_failure : {"nan", "keep"}
        Derivatives of systems that did not converge: NaN, or what the last iterates give. The
        gradient by values that items share is a sum over the items, and NaN if one failed.
    **options
        Those of `sparsebatch.Solver`: `method`, `precond`, `rtol`, `atol`, `maxiter`, ... Arrays of
        limits have one number for each system of a call, in the order of `status`.

    Returns
    -------
    jax.Array
        Solutions, of the shape of `b`. A system that did not converge has the better of its guess
        and its last iterate: `solve_with_status` tells which these are.

    Raises
    ------
    OptionError
        While the call is traced: for shapes, types and options that do not fit.
    jax.errors.JaxRuntimeError
        While the program runs: for combinations of options that the analysis of the patterns
        refuses, and for errors of a GPU, with the message of the solver.

    Notes
    -----
    Derivatives have any order, forward and reverse: `dx = A^-1 (db - dA x)`, and for a gradient `g`
    by x `lambda = A^-T g` is that by b and `-lambda[row] * x[column]` that by the values. On the
    CPU the sparse LU keeps its factors for them.

    `jax.vmap` over `values`, `b` or both becomes one larger batch; that of a ragged batch, a loop.

    The analysis of a pattern is made once, by the first call that runs, with its values, and found
    again by the content of pattern and options. `clear_cache` drops analyses; patterns stay in
    memory as long as the process lives, as compiled programs refer to them.

    On a GPU, memory is taken beside JAX's: set `XLA_PYTHON_CLIENT_MEM_FRACTION` where it has all.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpy as np, sparsebatch, sparsebatch.jax
    >>> one = sparsebatch.Batch.uniform([0, 2, 3], [0, 1, 1], np.ones(3))
    >>> values = jnp.array([2.0, 1.0, 4.0], jnp.float32)
    >>> bs = jnp.array([[3.0, 4.0], [2.0, 0.0]], jnp.float32)
    >>> jax.vmap(lambda b: sparsebatch.jax.solve(one, values, b))(bs)
    Array([[1., 1.],
           [1., 0.]], dtype=float32)
    """
    return solve_with_status(
        batch, values, b, x0=x0, transpose=transpose, on_failure=on_failure, **options
    )[0]


def solve_with_status(
    batch: Batch,
    values: Any,
    b: Any,
    *,
    x0: Any = None,
    transpose: bool = False,
    on_failure: OnFailure = "nan",
    **options: Any,
) -> tuple[jax.Array, jax.Array]:
    """As `solve`, with how each system ended.

    Returns
    -------
    x : jax.Array
        Solutions, of the shape of `b`.
    status : jax.Array of int32
        `(nitems,)`, or `(nitems, nrhs)`; `()` or `(nrhs,)` for a batch that was made of one matrix.
        0 for systems that converged, else a place in `sparsebatch.STATUSES`.
    """
    if not isinstance(batch, Batch):
        raise OptionError(f"batch is a {type(batch).__name__}, expected a sparsebatch.Batch")
    batch._check_order()
    if on_failure not in ("nan", "keep"):
        raise OptionError(f"on_failure is {on_failure!r}, expected 'nan' or 'keep'")
    if options.get("history"):
        raise OptionError("history is given, but there is no report: call sparsebatch.solve")
    if np.any(np.asarray(batch.nrows) != np.asarray(batch.ncols)):
        raise OptionError("a matrix of the batch is not square")
    values, b = _array("values", values), _array("b", b)
    frame = _Frame.of(batch, b)
    frame.check_values(values)
    guess = () if x0 is None else (_array("x0", x0),)
    for name, array in (("b", b), *(("x0", array) for array in guess)):
        frame.check_vectors(name, array)
        if array.dtype != values.dtype:
            raise OptionError(
                f"{name} has elements of {array.dtype}, the values have {values.dtype}: "
                "convert one of them"
            )
    spec = _spec_of(batch, options)
    spec.check_limits(frame.nitems * frame.nrhs)
    if b.size == 0:
        return b, jnp.zeros(frame.status_shape, jnp.int32)
    call = _Call(spec, bool(transpose), nan=on_failure == "nan")
    return _solve_in_frame(call, frame, values, b, guess)


def clear_cache() -> None:
    """Release the analyses and factors that are kept for further calls.

    Calls that follow analyse their patterns again.
    """
    _native.jax_clear()


def _array(name: str, array: Any) -> jax.Array:
    """An array of the caller, or what is traced for one."""
    if isinstance(array, np.ndarray) and array.dtype == np.float64 and not jax.config.jax_enable_x64:
        raise OptionError(f"{name} has elements of float64: set jax_enable_x64, or give float32")
    try:
        array = jnp.asarray(array)
    except TypeError as error:
        raise OptionError(f"{name} is no array of numbers: {error}") from None
    if array.dtype not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise OptionError(f"{name} has elements of {array.dtype}, expected float64 or float32")
    return array


class _Spec:
    """The patterns of a batch and options, which programs find by their content."""

    def __init__(self, patterns: Any, sizes: tuple[Any, Any], options: dict[str, Any]):
        self.options = options
        self.patterns = patterns
        self.is_uniform: bool = patterns.is_uniform
        self.nrows, self.nnz = sizes
        pointers, columns = self.patterns.arrays()
        content = hashlib.blake2b(digest_size=16)
        for part in (
            repr(("sparsebatch 1", self.is_uniform, _frozen(options))).encode(),
            np.asarray(self.nrows, np.int64).tobytes(),
            pointers,
            columns,
        ):
            content.update(len(part).to_bytes(8, "little"))
            content.update(part)
        self.key = content.hexdigest()
        self._arrays = np.frombuffer(pointers, np.int32), np.frombuffer(columns, np.int32)
        _native.jax_register(self.key, self.patterns, options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Spec) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    @functools.cached_property
    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """The row and the column of each entry; for a ragged batch, in concatenated vectors."""
        pointers, columns = self._arrays
        if self.is_uniform:
            return np.repeat(np.arange(self.nrows, dtype=np.int32), np.diff(pointers)), columns
        nrows = np.asarray(self.nrows)
        is_first = np.zeros(len(pointers), bool)
        is_first[np.cumsum(nrows + 1) - nrows - 1] = True
        counts = np.diff(pointers)[~is_first[1:]]
        rows = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        starts = np.cumsum(nrows) - nrows
        return rows, (columns + np.repeat(starts, self.nnz)).astype(np.int32)

    @functools.cached_property
    def item_of_row(self) -> np.ndarray:
        """The item of each row of concatenated vectors."""
        return np.repeat(np.arange(np.size(self.nrows)), self.nrows)

    @functools.lru_cache(maxsize=8)  # noqa: B019
    def order(self, nrhs: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the elements of vectors `(nrhs, total)` are in the order of solvers, and back.

        Solvers take all right-hand sides of item 0, of item 1, ...
        """
        rhs = np.repeat(np.arange(nrhs), len(self.item_of_row))
        order = np.lexsort((rhs, np.tile(self.item_of_row, nrhs)))
        return order, np.argsort(order)

    def check_limits(self, nsystems: int) -> None:
        for name in _LIMITS:
            limits = self.options[name]
            if isinstance(limits, np.ndarray) and len(limits) != nsystems:
                raise OptionError(f"{name} has {len(limits)} numbers, expected {nsystems}")

    def with_limits(self, repeated: Callable[[np.ndarray], np.ndarray]) -> _Spec:
        """The same with limits for other systems, where there is one for each."""
        arrays = {
            name: np.ascontiguousarray(repeated(self.options[name]))
            for name in _LIMITS
            if isinstance(self.options[name], np.ndarray)
        }
        if not arrays:
            return self
        return _Spec(self.patterns, (self.nrows, self.nnz), self.options | arrays)


#: Specs by the identity of their patterns and by options; they hold the patterns.
_SPECS: OrderedDict[tuple[Any, ...], _Spec] = OrderedDict()
_MOST_SPECS = 256
_SPECS_LOCK = threading.Lock()


def _spec_of(batch: Batch, options: dict[str, Any]) -> _Spec:
    checked = options_of(options, 1)
    key = (id(batch._patterns), _frozen(checked))
    with _SPECS_LOCK:
        spec = _SPECS.get(key)
        if spec is not None:
            _SPECS.move_to_end(key)
            return spec
    spec = _Spec(batch._patterns, (batch.nrows, batch.nnz), checked)
    with _SPECS_LOCK:
        _SPECS[key] = spec
        if len(_SPECS) > _MOST_SPECS:
            _SPECS.popitem(last=False)
    return spec


def _frozen(options: dict[str, Any]) -> tuple[Any, ...]:
    """Options that can be hashed, and whose `repr` tells them."""
    return tuple(
        (name, (str(value.dtype), value.tobytes()) if isinstance(value, np.ndarray) else value)
        for name, value in sorted(options.items())
    )


@dataclasses.dataclass(frozen=True)
class _Frame:
    """The shapes of a call: those of the user, and those of solvers.

    Inside, vectors are `(nitems, nrhs, n)`, or `(nrhs, total)` for a ragged batch, and statuses
    `(nitems, nrhs)`.
    """

    kind: Literal["one", "item", "interleaved", "ragged"]
    nitems: int
    rows: int
    nnz: int
    nrhs: int
    #: Whether vectors have an axis for right-hand sides.
    has_axis: bool

    @staticmethod
    def of(batch: Batch, b: jax.Array) -> _Frame:
        """The shapes for these right-hand sides."""
        axes = 1 if batch._is_single or not batch.is_uniform else 2
        return _Frame.with_sides(batch, int(b.shape[-1]) if b.ndim == axes + 1 else None)

    @staticmethod
    def with_sides(batch: Batch, nrhs: int | None) -> _Frame:
        """The shapes for so many right-hand sides; `None`: for vectors without an axis for them."""
        rows, nnz = int(np.sum(batch.nrows)), int(np.sum(batch.nnz))
        kind: Any = "interleaved" if batch.layout == "interleaved" else "item"
        if batch._is_single:
            kind = "one"
        elif not batch.is_uniform:
            kind = "ragged"
        if nrhs is not None and kind == "interleaved":
            raise Unsupported(
                "several right-hand sides of an interleaved batch: give layout='item', or jax.vmap"
            )
        return _Frame(kind, batch.nitems, rows, nnz, 1 if nrhs is None else nrhs, nrhs is not None)

    @property
    def vector_shape(self) -> tuple[int, ...]:
        axis = (self.nrhs,) if self.has_axis else ()
        if self.kind in ("one", "ragged"):
            return (self.rows, *axis)
        if self.kind == "interleaved":
            return (self.rows, self.nitems)
        return (self.nitems, self.rows, *axis)

    @property
    def status_shape(self) -> tuple[int, ...]:
        items = () if self.kind == "one" else (self.nitems,)
        return (*items, self.nrhs) if self.has_axis else items

    def check_vectors(self, name: str, array: jax.Array) -> None:
        if array.shape != self.vector_shape:
            raise OptionError(f"{name} has shape {array.shape}, expected {self.vector_shape}")
        if self.nrhs == 0:
            raise OptionError(f"{name} has shape {array.shape}, expected a right-hand side")

    def check_values(self, values: jax.Array) -> None:
        shapes: list[tuple[int, ...]] = [(self.nnz,)]
        if self.kind == "item":
            shapes.insert(0, (self.nitems, self.nnz))
        elif self.kind == "interleaved":
            shapes.insert(0, (self.nnz, self.nitems))
        if values.shape not in shapes:
            expected = " or ".join(str(shape) for shape in shapes)
            raise OptionError(f"values have shape {values.shape}, expected {expected}")

    def inner_values(self, values: jax.Array) -> jax.Array:
        return values.T if self.kind == "interleaved" and values.ndim == 2 else values

    def inner(self, array: jax.Array) -> jax.Array:
        """Vectors of the user as those inside."""
        if self.kind == "interleaved":
            return array.T[:, None, :]
        if not self.has_axis:
            array = array[..., None]
        array = jnp.swapaxes(array, -1, -2)
        return array[None] if self.kind == "one" else array

    def outer(self, array: jax.Array) -> jax.Array:
        """Vectors from inside as those of the user."""
        if self.kind == "interleaved":
            return array[:, 0, :].T
        array = jnp.swapaxes(array[0] if self.kind == "one" else array, -1, -2)
        return array if self.has_axis else array[..., 0]


@dataclasses.dataclass(frozen=True)
class _Call:
    """What is solved, apart from arrays."""

    spec: _Spec
    transpose: bool
    #: Whether derivatives of systems that did not converge are NaN.
    nan: bool
    #: Whether factors are kept for further solves with these values.
    keep: bool = False

    def weights(self, status: jax.Array, dtype: Any) -> jax.Array:
        """Factors of vectors: 1, or NaN for systems that did not converge."""
        weights = jnp.where(status == 0, 1.0, jnp.nan).astype(dtype)
        if self.spec.is_uniform:
            return weights[:, :, None]
        return weights.T[:, self.spec.item_of_row]

    def weigh(self, array: jax.Array, status: jax.Array) -> jax.Array:
        return array * self.weights(status, array.dtype) if self.nan else array

    def product(self, values: jax.Array, x: jax.Array) -> jax.Array:
        """`A x`, or `A^T x` for transposed systems."""
        rows, columns = self.spec.entries
        if self.transpose:
            rows, columns = columns, rows
        entries = values[..., None, :] * x[..., columns]
        sums = jnp.zeros(entries.shape[:-1] + x.shape[-1:], x.dtype)
        return sums.at[..., rows].add(entries, indices_are_sorted=not self.transpose)

    def transposed(self) -> _Call:
        return dataclasses.replace(self, transpose=not self.transpose)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _solve_in_frame(
    call: _Call, frame: _Frame, values: jax.Array, b: jax.Array, guess: tuple[Any, ...]
) -> tuple[jax.Array, jax.Array]:
    """A solve of arrays of the user; compiled for callers who do not compile themselves."""
    guess = tuple(frame.inner(array) for array in guess)
    x, status = _solve(call, frame.inner_values(values), frame.inner(b), guess)
    return frame.outer(x), status.reshape(frame.status_shape)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve(
    call: _Call, values: jax.Array, b: jax.Array, guess: tuple[Any, ...]
) -> tuple[jax.Array, jax.Array]:
    return _run(call, values, b, guess)


def _solve_jvp(call: _Call, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
    values, b, guess = primals
    values_dot, b_dot, _ = tangents
    x, status = _solve(dataclasses.replace(call, keep=True), values, b, guess)
    # A derivative that is 0 costs nothing: not even the product of its zeros.
    right = None if _is_zero(b_dot) else b_dot
    if not _is_zero(values_dot):
        change = call.product(values_dot, x)
        right = -change if right is None else right - change
    if right is None:
        x_dot = jnp.zeros_like(x)
    else:
        # Both sides, as a gradient comes from the other one.
        x_dot = call.weigh(_solve_linear(call, values, call.weigh(right, status)), status)
    return (x, status), (x_dot, np.zeros(status.shape, jax.dtypes.float0))


_solve.defjvp(_solve_jvp, symbolic_zeros=True)


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, jax.custom_derivatives.SymbolicZero)


def _solve_linear(call: _Call, values: jax.Array, right: jax.Array) -> jax.Array:
    """A solve that JAX knows to be linear in `right`, and how to transpose."""

    def by(call: _Call) -> Callable[[Any, jax.Array], jax.Array]:
        def run(_product: Any, right: jax.Array) -> jax.Array:
            x, status = _run(call, values, right, ())
            return call.weigh(x, status)

        return run

    return jax.lax.custom_linear_solve(
        functools.partial(call.product, values), right, by(call), by(call.transposed())
    )


def _run(
    call: _Call, values: jax.Array, b: jax.Array, guess: tuple[Any, ...]
) -> tuple[jax.Array, jax.Array]:
    """The solve itself, without derivatives; under `jax.vmap`, that of a larger batch."""

    @jax.custom_batching.custom_vmap
    def run(values: jax.Array, b: jax.Array, *guess: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _ffi_call(call, values, b, guess)

    @run.def_vmap
    def _(size: int, is_batched: list[Any], *arrays: jax.Array) -> tuple[Any, ...]:
        batched = _run_batched if call.spec.is_uniform else _run_one_by_one
        return batched(call, size, is_batched, *arrays), (True, True)

    return run(values, b, *guess)


def _ffi_call(
    call: _Call, values: jax.Array, b: jax.Array, guess: tuple[Any, ...]
) -> tuple[jax.Array, jax.Array]:
    spec = call.spec
    if spec.is_uniform:
        arrays, status_shape = [b, *guess], b.shape[:2]
    else:
        nrhs = b.shape[0]
        order, back = spec.order(nrhs)
        arrays = [array.reshape(-1)[order] for array in (b, *guess)]
        status_shape = (np.size(spec.nrows), nrhs)
    results = (
        jax.ShapeDtypeStruct(arrays[0].shape, b.dtype),
        jax.ShapeDtypeStruct(status_shape, np.int32),
    )
    solver = jax.ffi.ffi_call(_TARGET, results, input_output_aliases={2: 0} if guess else None)
    x, status = solver(
        values,
        *arrays,
        spec=spec.key,
        transpose=np.int32(call.transpose),
        keep=np.int32(call.keep),
    )
    return (x if spec.is_uniform else x[back].reshape(b.shape)), status


def _run_batched(
    call: _Call, size: int, is_batched: list[Any], values: jax.Array, *vectors: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`size` calls as one, of more items or of more right-hand sides."""
    vectors = tuple(
        array if batched else jnp.broadcast_to(array, (size, *array.shape))
        for array, batched in zip(vectors, is_batched[1:], strict=True)
    )
    _, nitems, nrhs, rows = vectors[0].shape
    # Limits are in the order of the calls, unless these become right-hand sides.
    spec = call.spec.with_limits(lambda limits: np.tile(limits, size))
    if is_batched[0] and values.ndim == 2:
        # Items that share the values of a call are right-hand sides.
        shape = (size, nitems * nrhs, rows)
    elif is_batched[0]:
        values = values.reshape(-1, values.shape[-1])
        shape = (size * nitems, nrhs, rows)
    elif values.ndim == 1 or nitems == 1:
        values = values.reshape(-1)
        shape = (size * nitems, nrhs, rows)
    else:
        return _run_of_more_sides(call, size, values, *vectors)
    vectors = tuple(array.reshape(shape) for array in vectors)
    x, status = _run(dataclasses.replace(call, spec=spec), values, vectors[0], vectors[1:])
    return x.reshape(size, nitems, nrhs, rows), status.reshape(size, nitems, nrhs)


def _run_of_more_sides(
    call: _Call, size: int, values: jax.Array, *vectors: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Calls of the same matrices as one of more right-hand sides."""
    _, nitems, nrhs, rows = vectors[0].shape

    def repeated(limits: np.ndarray) -> np.ndarray:
        limits = limits.reshape(nitems, 1, nrhs)
        return np.broadcast_to(limits, (nitems, size, nrhs)).reshape(-1)

    call = dataclasses.replace(call, spec=call.spec.with_limits(repeated))
    vectors = tuple(
        jnp.moveaxis(array, 0, 1).reshape(nitems, size * nrhs, rows) for array in vectors
    )
    x, status = _run(call, values, vectors[0], vectors[1:])
    x = jnp.moveaxis(x.reshape(nitems, size, nrhs, rows), 1, 0)
    return x, jnp.moveaxis(status.reshape(nitems, size, nrhs), 1, 0)


def _run_one_by_one(
    call: _Call, size: int, is_batched: list[Any], *arrays: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Calls of a ragged batch, one after the other."""

    def one(mapped: list[Any]) -> tuple[jax.Array, jax.Array]:
        rest = iter(mapped)
        own = [
            next(rest) if batched else array
            for array, batched in zip(arrays, is_batched, strict=True)
        ]
        return _run(call, own[0], own[1], tuple(own[2:]))

    mapped = [array for array, batched in zip(arrays, is_batched, strict=True) if batched]
    return jax.lax.map(one, mapped)


# Kernels are compiled where programs run, which is too late to look for their compiler.
find_nvrtc()
