"""Solves: `solve`, `Solver`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np

from . import _native
from ._arrays import Numpy, floats, library_of
from ._allocators import allocator_of
from ._batch import Batch, as_batch
from ._foreign import adopt
from ._nvrtc import find_nvrtc
from ._report import Report, Result
from ._vectors import Frame, writable
from ._warnings import caller_level
from .errors import NotConverged, NotConvergedWarning, OptionError, Unsupported

OnFailure = Literal["warn", "raise", "report"]

#: Options of `Solver` and `solve` with their defaults.
DEFAULTS: dict[str, Any] = {
    "method": "auto",
    "precond": "auto",
    "order": "natural",
    "block_size": None,
    "precond_precision": "working",
    "inner_precision": "auto",
    "lu_form": "by-pattern",
    "rtol": None,
    "atol": 0.0,
    "maxiter": 1000,
    "max_restarts": 4,
    "floor": None,
    "fallback": True,
    "history": False,
    "format": None,
    "kernel": None,
}


def solve(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    transpose: bool = False,
    out: Any = None,
    on_failure: OnFailure = "warn",
    backend: Any = "auto",
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    stream: Any = None,
    **options: Any,
) -> Result:
    """Solve `A_i x_i = b_i` for every matrix of a batch.

    Parameters
    ----------
    A : Batch, SciPy sparse array, list of them, torch sparse_csr tensor or JAX BCSR
        The matrices. See `Batch`.
    b : array of float64 or float32
        Right-hand sides: `(nitems, n)`, or `(nitems, n, nrhs)`; `(n,)` or `(n, nrhs)` for one
        matrix; `(n, nitems)` for an interleaved batch; for a ragged batch concatenated, or a list
        of vectors. Where the values of A lie on a GPU, b lies there, too.
    x0 : array, optional
        Initial guesses, of the shape of `b`. Default: 0.
    transpose : bool
        Solve with the transposed matrices.
    out : array, optional
        Where the solutions go, of the shape of `b`.
    on_failure : {"warn", "raise", "report"}
        What happens where systems do not converge: a `NotConvergedWarning`, a `NotConverged`, or
        nothing but the report.
    backend : str or list of str
        `"auto"`: a GPU if there is one, else the CPU; `"cpu"`, `"gpu"`, `"cuda:1"`. Arrays on a GPU
        are solved there. `["cuda:0", "cuda:1"]`: arrays in host memory on these GPUs together, with
        the same bits as on one.
    threads : int, optional
        Threads of the CPU for this call. Default: all cores (`RAYON_NUM_THREADS`).
    progress : callable, optional
        Called with the numbers of systems that have ended and of all systems, at most fifty times a
        second. What it raises ends the solve.
    stream : object or int, optional
        The CUDA stream: an object of CuPy or PyTorch, one with `__cuda_stream__`, or its address. An
        object is kept while the solver is; what an address belongs to has to live as long. Default:
        the current stream of the library of the arrays.
    **options
        Those of `Solver`, `allocator` among them.

    Returns
    -------
    Result
        Solutions `x` in the array library of `b`, on its device, and the `report`. Where `b` comes
        from a library that this package does not know, by `__dlpack__`,
        `__cuda_array_interface__` or `__array_interface__`, they are in NumPy, on a GPU in CuPy,
        or in `out`.

    Raises
    ------
    OptionError, FormatError, Unsupported, GpuError
        When nothing was solved. Systems that do not converge are no error unless asked for.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, sparsebatch
    >>> a = sp.csr_array(np.array([[4.0, 1.0], [1.0, 3.0]]))
    >>> result = sparsebatch.solve(a, np.array([1.0, 2.0]))
    >>> result.x
    array([0.09090909, 0.63636364])
    >>> result.report.all_converged
    True
    """
    batch = as_batch(A)
    b = adopt("b", b)
    rows = batch.ncols if transpose else None
    nrhs = Frame.nrhs_of(batch, b, rows)
    solver = Solver(
        batch,
        nrhs=nrhs,
        backend=backend,
        threads=threads,
        progress=progress,
        stream=stream,
        on_failure=on_failure,
        **options,
    )
    return solver.solve(b, x0, transpose=transpose, out=out)


class Solver:
    """The analysis of a batch, for repeated solves with other values and right-hand sides.

    Parameters
    ----------
    A : Batch, SciPy sparse array, list of them, torch sparse_csr tensor or JAX BCSR
        The matrices. Their patterns are kept; values may change.
    nrhs : int
        Right-hand sides of each matrix.
    method : {"auto", "cg", "bicgstab", "lu", "pivoting-lu", "banded"}
        `auto` decides for each system; the report says what and why.
    precond : {"auto", "none", "jacobi", "block-jacobi", "ilu0", "ic0"}
        The preconditioner of CG and BiCGStab.
    order : {"natural", "min-degree", "multicolor"}
        The order of elimination of `ilu0` and `ic0`; `multicolor` takes more iterations, each of
        which is much quicker on a GPU.
    block_size : int, optional
        Rows of a block of `block-jacobi`; found from the pattern by default.
    precond_precision : {"working", "f32"}
        The precision in which factors of preconditioners are stored.
    inner_precision : {"auto", "working"}
        Whether a GPU may iterate in float32 within float64.
    lu_form : {"by-pattern", "by-system"}
        How a GPU makes the sparse LU of systems with several patterns: a plan and a launch for each
        pattern, or one for all, which takes less time where few systems share a pattern.
    rtol, atol : float or array of float, shape (nsystems,)
        A system has converged when `||b - A x||_2 <= max(atol, rtol * ||b||_2)`, recomputed.
        Default: 1e-10 (float32: 1e-5) and 0.
    maxiter : int or array of int
        The most iterations of a system.
    max_restarts : int
        The most restarts from the true residual, and steps of refinement.
    floor : float, optional
        Accept also `||b - A x||_2 <= floor * eps * || |A||x| + |b| ||_2`, the rounding floor.
    fallback : bool
        Whether systems that do not converge climb the ladder of stronger methods.
    history : bool
        Whether the report holds the residual norms of the iterations.
    format, kernel : str, optional
        Solve over products in this matrix format (`csr`, `coo`, `ell`, `dia`, `hyb`, `sellp`) and
        by this kernel (`csr-i`, ...), to study formats. Default: fused kernels, which are faster.
    backend, threads, progress, stream, on_failure
        As for `sparsebatch.solve`.
    allocator : {"torch", "cupy", "driver"} or object, optional
        Where the solver takes memory of its own on a GPU: PyTorch's caching allocator, CuPy's pool,
        the driver (`cuMemAlloc`), or an object with `malloc(nbytes, stream) -> address`, aligned to
        256 bytes, and `free(address, nbytes, stream)`, which any thread may call. Default: PyTorch
        where the values are its tensors, else the driver. Values in host memory go through memory
        of the driver.
    pin : str, optional
        The text that `sparsebatch solve --export-plan FILE` wrote, possibly on another machine: the
        solver makes the same choices, or refuses.

    Notes
    -----
    A solver may be used from several threads, one solve at a time; solves in different solvers run
    at the same time. The interpreter's lock is released.

    Examples
    --------
    >>> import numpy as np, sparsebatch
    >>> batch = sparsebatch.Batch.uniform([0, 2, 3], [0, 1, 1], [[2.0, 1.0, 4.0]])
    >>> with sparsebatch.Solver(batch, method="lu") as solver:
    ...     solver.factor()
    ...     for b in ([[3.0, 4.0]], [[2.0, 0.0]]):
    ...         print(solver.solve(np.array(b)).x)
    [[1. 1.]]
    [[1. 0.]]
    """

    def __init__(
        self,
        A: Any,
        *,
        nrhs: int = 1,
        backend: Any = "auto",
        threads: int | None = None,
        progress: Callable[[int, int], object] | None = None,
        stream: Any = None,
        on_failure: OnFailure = "warn",
        pin: str | None = None,
        allocator: Any = None,
        **options: Any,
    ):
        batch = as_batch(A)
        check_call(threads, progress, on_failure)
        self._on_failure = on_failure
        self._options = options_of(options, nrhs)
        self._progress = progress
        self._batch = batch
        self._frame = Frame(batch, self._options["nrhs"])
        self._is_factored = False
        self._stale = False
        self._pending_out: Any = None
        ordinal = library_of(batch.values).device(batch.values)
        place = place_of(backend, ordinal)
        if place[0] != "cpu":
            find_nvrtc()
        self._cpu_reason = _no_gpu() if place[0] == "auto" and ordinal is None else None
        if ordinal is None:
            if stream is not None:
                raise OptionError("stream is given, but the values lie in host memory")
            if allocator is not None:
                raise OptionError("allocator is given, but the values lie in host memory")
            self._engine: _Host | _Device = _Host(self, place, threads, pin)
        else:
            if pin is not None:
                raise Unsupported("pin with values on a GPU: give the values in host memory")
            self._engine = _Device(self, ordinal, stream, allocator)

    @property
    def batch(self) -> Batch:
        """The batch with the current values."""
        return self._batch

    @property
    def nrhs(self) -> int:
        """Right-hand sides of each matrix."""
        return self._frame.nrhs

    @property
    def keeps_factors(self) -> bool:
        """Whether `factor` keeps factors, and not the matrices alone."""
        return self._engine.native.keeps_factors()

    def update_values(self, values: Any, *, shift: Any = None) -> None:
        """Take other values of the same shape and layout for the solves that follow.

        Parameters
        ----------
        values : array
            As those that the batch was made with, read where they lie by each solve.
        shift : float or array of float, shape (nitems,), optional
            Solve with `I / shift - values`: the matrices of an implicit step of length `shift` with
            the Jacobians `values`. Every diagonal entry must be in the pattern.
        """
        if shift is not None:
            values = self._engine.shifted(self._batch.with_values(values), shift)
        batch = self._batch.with_values(values)
        self._engine.update(batch)
        self._batch = batch
        self._frame.batch = batch
        self._stale = True

    def factor(self) -> None:
        """Keep the current matrices, and their factors where the method has some.

        `solve` uses them until the next `update_values`; `solve(near=True)` afterwards, too. Where
        factors cannot be kept (`keeps_factors`), each solve prepares the matrices again.
        """
        self._is_factored = False
        self._engine.factor()
        self._is_factored, self._stale = True, False

    def solve(
        self,
        b: Any,
        x0: Any = None,
        *,
        transpose: bool = False,
        near: bool = False,
        out: Any = None,
        active: Any = None,
        rtol: Any = None,
        atol: Any = None,
        maxiter: Any = None,
    ) -> Result:
        """Solve every system, or those that are active.

        Parameters
        ----------
        b : array
            Right-hand sides, as for `sparsebatch.solve`.
        x0 : array, optional
            Initial guesses, of the shape of `b`. Default: 0.
        transpose : bool
            Solve with the transposed matrices, by kept factors after `factor`.
        near : bool
            Solve with the current values by the factors of the last `factor`, which were made of
            values that are near: they refine, or precondition. Systems that do not converge so get
            factors of their own.
        out : array, optional
            Where the solutions go, of the shape of `b`.
        active : array of bool, shape (nitems,) or (nsystems,), optional
            The systems to solve. Others keep their guess, or 0; the report calls them `"Inactive"`,
            and they are no failures. Default: all.
        rtol, atol, maxiter : as for `Solver`, optional
            Limits of this call. Afterwards those of the solver hold again. Nothing is analysed or
            compiled for them; on a GPU they wait for the stream.

        Returns
        -------
        Result
        """
        b, x0 = adopt("b", b), None if x0 is None else adopt("x0", x0)
        given, out = out, None if out is None else adopt("out", out, to_write=True)
        limits, mask = None, None
        if not (active is None and rtol is None and atol is None and maxiter is None):
            mask = None if active is None else mask_of(active, self._batch.nitems, self.nrhs)
            limits = _call_limits(mask, rtol, atol, maxiter)
        if near and (transpose or not self._is_factored):
            raise OptionError("near is given, expected a call of factor before, and no transpose")
        kept = self._is_factored and not self._stale
        if transpose:
            by = "kept-transposed" if kept else "transposed"
        else:
            by = "near" if near else "kept" if kept else "values"
        x, native = self._engine.solve(by, b, x0, out, limits)
        report = Report(native, self._options["fallback"], self._cpu_reason, mask)
        result = Result(x if out is None else given, report)
        if self._progress is not None:
            self._progress(len(report), len(report))
        if not report.all_converged:
            _fail(result, self._on_failure)
        return result

    def enqueue(self, b: Any, out: Any, *, from_out: bool = False) -> None:
        """Start the first method for every system on the stream of the solver, and return.

        Allocates nothing and does not wait, so that it may be recorded in a CUDA graph on that
        stream; `finish` completes the solve. Arrays on a GPU alone.

        Parameters
        ----------
        b : array
            Right-hand sides on the GPU, in C order.
        out : array
            Where the solutions go.
        from_out : bool
            Whether `out` holds initial guesses. Call `prepare_guesses` before a graph is recorded.
        """
        by = "kept" if self._is_factored and not self._stale else "values"
        self._pending_out = out
        self._engine.enqueue(by, adopt("b", b), adopt("out", out, to_write=True), from_out)

    def prepare_guesses(self) -> None:
        """Compile the kernels of solves from guesses on a GPU, and allocate their memory."""
        self._engine.prepare_guesses()

    def finish(self) -> Result:
        """Wait for the last `enqueue`, or the last launch of the graph that recorded it, confirm
        its verdicts and solve what failed.

        Returns
        -------
        Result
        """
        native = self._engine.finish()
        result = Result(self._pending_out, Report(native, self._options["fallback"], None))
        if not result.report.all_converged:
            _fail(result, self._on_failure)
        return result

    def outcomes_on_device(self) -> dict[str, DeviceArray]:
        """Outcomes as arrays on the GPU, one element a system: `status` (uint8, a place in
        `sparsebatch.STATUSES`), `iterations` (uint32), `residual_norm` and `rhs_norm` (float64).

        After `enqueue` they are those of the first method, not confirmed; after `finish` and
        `solve` those of the report. They have `__cuda_array_interface__`, so that
        `cupy.asarray(outcomes["status"])` views them; the next solve overwrites them.
        """
        return self._engine.outcomes()

    def value_gradient(self, adjoint: Any, x: Any) -> Any:
        """The gradient by the values of a loss of the solutions.

        For `lambda = A^-T dL/dx` it is `-lambda[row] * x[column]` for each entry, summed over
        right-hand sides, and over items that share their values. Sums are added up in one order:
        bitwise repeatable.

        Parameters
        ----------
        adjoint, x : array
            Adjoint solutions and solutions, of the shape of `b`. NaN where a system was not solved
            makes its gradient NaN.

        Returns
        -------
        array
            Of the shape of the values of the batch.
        """
        return self._engine.value_gradient(adopt("adjoint", adjoint), adopt("x", x))

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release memory and factors; later calls fail."""
        self._engine = _Closed()

    def __repr__(self) -> str:
        chosen = {
            name: value
            for name, value in self._options.items()
            if name == "nrhs" or isinstance(value, np.ndarray) or value != DEFAULTS[name]
        }
        options = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
        return f"Solver of a {self._batch!r}; {options}"


class DeviceArray:
    """An array of a solver on a GPU; its memory is that of the solver, which it keeps alive."""

    def __init__(self, address: int, size: int, typestr: str, owner: Any):
        self._owner = owner
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": typestr,
            "data": (address, True),
            "version": 3,
        }


class _Closed:
    """The engine of a solver that was closed."""

    def __getattr__(self, _name: str) -> Any:
        raise OptionError("the solver was closed")


class _Host:
    """Solves of batches in host memory, on the CPU or through a GPU."""

    def __init__(self, solver: Solver, place: tuple[Any, ...], threads: int | None, pin: str | None):
        batch = solver._batch
        self.frame = solver._frame
        self.progress = solver._progress
        self.native = _native.Solver(
            batch._patterns,
            batch.values,
            batch.dtype,
            batch.layout,
            solver._options,
            place,
            threads,
            pin,
        )

    def update(self, batch: Batch) -> None:
        self.native.update_values(batch._patterns, batch.values)

    def factor(self) -> None:
        self.native.factor()

    @staticmethod
    def shifted(batch: Batch, dt: Any) -> np.ndarray:
        return host_shifted(batch, dt)

    def enqueue(self, by: str, b: Any, out: Any, from_out: bool) -> None:
        raise Unsupported("enqueue with arrays in host memory: use solve, or arrays on a GPU")

    def prepare_guesses(self) -> None:
        """Nothing is compiled for arrays in host memory."""

    def finish(self) -> Any:
        raise OptionError("finish without enqueue before")

    def outcomes(self) -> dict[str, DeviceArray]:
        raise Unsupported("outcomes on a GPU of a solver of host memory: read the report")

    def solve(
        self, by: str, b: Any, x0: Any, out: Any, limits: dict[str, Any] | None
    ) -> tuple[Any, Any]:
        frame, like = self.frame, b
        inner_b = frame.host("b", b)
        if out is not None:
            writable(frame, out)
        inner_x = self._target(frame, out)
        if inner_x is out and np.may_share_memory(inner_x, frame.batch.values):
            raise OptionError("out shares memory with the values of the matrices")
        if inner_x is out and np.shares_memory(inner_x, inner_b):
            inner_b = inner_b.copy()
        if x0 is not None:
            inner_x[...] = frame.host("x0", x0).reshape(inner_x.shape)
        elif inner_x is out:
            inner_x[...] = 0
        native = self.native.solve(by, inner_b, inner_x, self.progress, limits)
        return delivered(frame, like, inner_x, out), native

    @staticmethod
    def _target(frame: Frame, out: Any) -> np.ndarray:
        """An array for solutions in the order of solvers: the caller's, if it has that order."""
        direct = frame.nrhs == 1 and not frame.interleaved and isinstance(out, np.ndarray)
        if direct and out.flags.carray and out.dtype.byteorder == "=":
            return out
        # The system's own zeros: threads of the solver are the first to touch the memory.
        return np.zeros(frame.size, frame.dtype)

    def value_gradient(self, adjoint: Any, x: Any) -> Any:
        frame = self.frame
        gradient = np.empty(frame.batch.values.shape, frame.dtype)
        inner = frame.host("adjoint", adjoint), frame.host("x", x)
        self.native.value_gradient(*inner, gradient)
        library = library_of(x)
        return gradient if library is Numpy else library.wrap(gradient, x)


class _Device:
    """Solves of batches whose arrays lie on a GPU, on a stream of their library."""

    def __init__(self, solver: Solver, ordinal: int, stream: Any, allocator: Any):
        # Attributes are released in this order: the native solver waits for its stream.
        self.native: Any = None
        self.adjoint: Any = None
        batch = solver._batch
        self.frame, self.ordinal = solver._frame, ordinal
        self.options, self.progress = solver._options, solver._progress
        self.library = library_of(batch.values)
        # A stream lives as long as its object.
        self.stream_owner = self.library.current(batch.values) if stream is None else stream
        given = None if stream is None else _stream_address(stream)
        self.stream = self.library.stream(batch.values) if given is None else given
        self.values = batch.values
        self.allocator = allocator_of(allocator, self.library.name, ordinal, self.stream)
        # What was enqueued on other streams comes before our work.
        self._wait(batch.values)
        self.native = self._make(batch, transposed=False)
        self.factorised: Any = None
        self.pending: Any = None

    def _make(self, batch: Batch, transposed: bool) -> Any:
        vectors = "interleaved" if batch.layout == "interleaved" else "item"
        return _native.DeviceSolver(
            batch._patterns,
            self.library.address(batch.values),
            batch.dtype,
            batch.layout,
            vectors,
            transposed,
            self.options,
            self.ordinal,
            self.stream,
            self.allocator,
        )

    def update(self, batch: Batch) -> None:
        if library_of(batch.values).device(batch.values) != self.ordinal:
            raise OptionError(f"values do not lie on cuda:{self.ordinal}")
        self.library = library_of(batch.values)
        self.values = self.library.contiguous(batch.values)

    def factor(self) -> None:
        self._wait(self.values)
        self.native.factor(self.library.address(self.values))
        # The launches may read them when they are replaced, or their memory is given away.
        self.library.hold(self.values, self.stream)
        self.factorised = self.values

    def _wait(self, *arrays: Any) -> None:
        """Orders what the libraries of these arrays have enqueued on other streams before our
        work."""
        wait_for(arrays, self.stream)

    def shifted(self, batch: Batch, dt: Any) -> Any:
        dt = adopt("shift", dt)
        library = library_of(batch.values)
        place = library_of(dt).device(dt)
        if place is not None:
            if place != self.ordinal or library_of(dt).dtype(dt) != batch.dtype:
                raise OptionError(f"shift is not of {batch.dtype} on cuda:{self.ordinal}")
            if tuple(dt.shape) != (batch.nitems,):
                raise OptionError(f"shift has shape {tuple(dt.shape)}, expected ({batch.nitems},)")
            dt = library_of(dt).contiguous(dt)
        else:
            count = np.broadcast_to(floats("shift", dt).astype(batch.dtype), batch.nitems)
            dt = library.wrap(np.ascontiguousarray(count), batch.values)
        values = library.empty(tuple(batch.values.shape), batch.dtype, batch.values)
        if batch.layout == "interleaved":
            raise Unsupported("a shift of interleaved values on a GPU: add it to the values")
        jacobian = library.contiguous(batch.values)
        self._wait(jacobian, dt, values)
        self.native.shift(batch._patterns, *map(_address, (jacobian, dt, values)))
        self.native.synchronize()
        return values

    def solve(
        self, by: str, b: Any, x0: Any, out: Any, limits: dict[str, Any] | None
    ) -> tuple[Any, Any]:
        frame = self.frame
        inner_b = frame.device("b", b, self.ordinal)
        x = self._target(b, out)
        kept: Any = None
        if x0 is not None:
            guess = frame.device("x0", x0, self.ordinal)
            if limits is not None and limits["active"] is not None:
                is_written = _address(guess)[0] == _address(x)[0]
                kept = library_of(guess).host(guess) if is_written else guess
            if tuple(guess.shape) != tuple(x.shape):
                guess = guess.reshape(tuple(x.shape))
            x = self._with_guess(x, guess)
        self._wait(self.values, inner_b, x)
        native = self.native
        if by == "transposed":
            if self.adjoint is None:
                self.adjoint = self._make(frame.batch, transposed=True)
            native = self.adjoint
        arrays = map(_address, (self.values, inner_b, x))
        report = native.solve(by, *arrays, x0 is not None, self.progress, limits)
        if kept is not None and limits is not None:
            x = self._with_inactive(x, kept, limits["active"].view(np.bool_), report)
        x = frame.from_device(x)
        if out is None:
            x = frame.like(b, x)
        elif x is not out:
            library_of(out).copy(out, x.reshape(out.shape))
            x = out
        return x, report

    def _with_inactive(self, x: Any, kept: Any, active: np.ndarray, report: Any) -> Any:
        """x with the guesses of systems that were not active and lost them: a solve sets x to 0
        for a right-hand side of zeros, and where a guess is not finite."""
        is_zero = np.frombuffer(report.rhs_norm(), np.float64) == 0
        has_failed = np.frombuffer(report.status(), np.uint8) != 0
        if not (~active & (is_zero | has_failed)).any():
            return x
        library, shape = library_of(x), self.frame.device_shape()
        solved = library.host(x).reshape(shape)
        kept = library_of(kept).host(kept).reshape(shape)
        if not self.frame.batch.is_uniform:
            where = np.repeat(active, np.repeat(np.asarray(self.frame.rows), self.frame.nrhs))
        elif self.frame.interleaved:
            where = active
        else:
            where = active.reshape(*solved.shape[:-1], 1)
        mended = library.wrap(np.where(where, solved, kept).reshape(tuple(x.shape)), x)
        if library.name == "jax":
            return mended
        library.copy(x, mended)
        library.synchronize(x)
        return x

    def enqueue(self, by: str, b: Any, out: Any, from_out: bool) -> None:
        frame = self.frame
        inner_b = frame.device("b", b, self.ordinal)
        if frame.nrhs != 1 or inner_b is not b or self._target(b, out) is not out:
            raise OptionError("enqueue takes one right-hand side, and b and out in C order")
        arrays = self.values, inner_b, out
        self.native.enqueue(by, *map(_address, arrays), from_out)
        for array in arrays:
            # Their memory is not given to anybody before our work is done.
            library_of(array).hold(array, self.stream)
        self.pending = by, *arrays

    def prepare_guesses(self) -> None:
        self.native.prepare_guesses()

    def finish(self) -> Any:
        if self.pending is None:
            raise OptionError("finish without enqueue before")
        by, *arrays = self.pending
        return self.native.finish(by, *map(_address, arrays))

    def outcomes(self) -> dict[str, DeviceArray]:
        kinds = {
            "status": "|u1",
            "iterations": "<u4",
            "residual_norm": "<f8",
            "rhs_norm": "<f8",
        }
        arrays = zip(kinds.items(), self.native.outcomes(), strict=True)
        return {
            name: DeviceArray(address, size, kind, self.native)
            for (name, kind), (address, size) in arrays
        }

    def _target(self, b: Any, out: Any) -> Any:
        frame = self.frame
        if out is None:
            return library_of(b).empty(frame.device_shape(), frame.dtype, b)
        writable(frame, out)
        library = library_of(out)
        if library.device(out) != self.ordinal:
            raise OptionError(f"out is not an array on cuda:{self.ordinal}")
        if frame.nrhs == 1 and library.in_order(out):
            return out
        return library.empty(frame.device_shape(), frame.dtype, out)

    def _with_guess(self, x: Any, guess: Any) -> Any:
        library = library_of(x)
        if library.name == "jax":
            return (guess + 0).block_until_ready()
        if library_of(guess) is not library:
            self._wait(guess)
        library.copy(x, guess)
        return x

    def value_gradient(self, adjoint: Any, x: Any) -> Any:
        frame = self.frame
        library = library_of(x)
        gradient = library.empty(tuple(frame.batch.values.shape), frame.dtype, x)
        inner = frame.device("adjoint", adjoint, self.ordinal), frame.device("x", x, self.ordinal)
        if frame.interleaved:
            raise Unsupported("gradients of interleaved values on a GPU: give layout='item'")
        self._wait(*inner, gradient)
        addresses = map(_address, (*inner, gradient))
        self.native.value_gradient(*addresses)
        self.native.synchronize()
        return gradient


def delivered(frame: Frame, b: Any, inner_x: np.ndarray, out: Any) -> Any:
    """Solutions, in host memory and the order of solvers, as an array like `b`, or in `out`."""
    if out is None:
        library = library_of(b)
        x = frame.like(b, frame.outer(inner_x))
        return x if library is Numpy else library.wrap(x, b)
    library = library_of(out)
    if not np.shares_memory(inner_x, library.host(out)):
        x = frame.outer(inner_x).reshape(out.shape)
        if library is Numpy:
            np.copyto(out, x)
        else:
            library.copy(out, library.wrap(x, out))
    return out


def wait_for(arrays: Any, stream: int) -> None:
    """Waits for the current streams of the libraries of some arrays, unless they are `stream`."""
    waited: list[Any] = []
    for array in arrays:
        library = library_of(array)
        # Each array of an unknown library has a stream of its own.
        if library not in waited or library.name == "foreign":
            waited.append(library)
            if library.stream(array) != stream:
                library.synchronize(array)


def _stream_address(stream: Any) -> int:
    """The address of a CUDA stream of some library."""
    if isinstance(stream, int | np.integer) and not isinstance(stream, bool):
        return int(stream)
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("ptr", "cuda_stream"):
        address = getattr(stream, name, None)
        if isinstance(address, int) and not isinstance(address, bool):
            return address
    raise OptionError(f"stream is {stream!r}, expected a stream of CuPy or PyTorch, or its address")


def _address(array: Any) -> tuple[int, int]:
    return library_of(array).address(array)


def mask_of(active: Any, nitems: int, nrhs: int) -> np.ndarray:
    """Which systems are active, one element for each."""
    active = adopt("active", active)
    mask = np.asarray(library_of(active).host(active))
    if mask.dtype != np.bool_:
        raise OptionError(f"active has elements of {mask.dtype}, expected bool")
    if mask.shape == (nitems,):
        mask = np.repeat(mask, nrhs)
    if mask.shape not in ((nitems * nrhs,), (nitems, nrhs)):
        raise OptionError(f"active has shape {mask.shape}, expected ({nitems * nrhs},)")
    return np.ascontiguousarray(mask.reshape(-1))


def _call_limits(
    mask: np.ndarray | None, rtol: Any, atol: Any, maxiter: Any
) -> dict[str, Any]:
    """The limits of one call, as the native part takes them."""
    return {
        "rtol": None if rtol is None else limits_of("rtol", rtol, np.float64),
        "atol": None if atol is None else limits_of("atol", atol, np.float64),
        "maxiter": None if maxiter is None else limits_of("maxiter", maxiter, np.int64),
        "active": None if mask is None else mask.view(np.uint8),
    }


@cache
def _no_gpu() -> str | None:
    """Why `auto` takes the CPU."""
    return _native.gpu_unavailable()


def options_of(given: dict[str, Any], nrhs: int) -> dict[str, Any]:
    """All options, checked by their names."""
    unknown = [name for name in given if name not in DEFAULTS]
    if unknown:
        raise TypeError(
            f"{unknown[0]!r} is no option; there are {', '.join(DEFAULTS)}"
        )
    options = DEFAULTS | given
    if isinstance(nrhs, bool) or not isinstance(nrhs, (int, np.integer)) or nrhs < 1:
        raise OptionError(f"nrhs is {nrhs!r}, expected at least 1")
    options["nrhs"] = int(nrhs)
    for name, is_valid, expected in _CHECKS:
        if not is_valid(options[name]):
            raise OptionError(f"{name} is {options[name]!r}, expected {expected}")
    for name in ("rtol", "atol"):
        if options[name] is not None:
            options[name] = limits_of(name, options[name], np.float64)
    options["maxiter"] = limits_of("maxiter", options["maxiter"], np.int64)
    return options


def _is_int(value: Any, least: int) -> bool:
    is_int = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_int and least <= value < 2**31


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool)


#: Options, what they have to be, in a function and in words. Their values are checked further on.
_CHECKS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    *((name, _is_text, "its name") for name in ("method", "precond", "order")),
    *((name, _is_text, "its name") for name in ("precond_precision", "inner_precision")),
    ("lu_form", _is_text, "its name"),
    *((name, lambda v: v is None or _is_text(v), "its name") for name in ("format", "kernel")),
    ("block_size", lambda v: v is None or _is_int(v, 1), "at least 1, or None"),
    ("max_restarts", lambda v: _is_int(v, 0), "a number that is not negative"),
    ("fallback", _is_bool, "True or False"),
    ("history", _is_bool, "True or False"),
    ("floor", lambda v: v is None or _is_number(v), "a number, or None"),
    ("atol", lambda v: v is not None, "a number, or one for each system"),
    ("maxiter", lambda v: v is not None, "a number, or one for each system"),
)


def check_call(threads: Any, progress: Any, on_failure: Any) -> None:
    """Refuses a number of threads, a callback, or a name of what failures do, that is none."""
    if on_failure not in ("warn", "raise", "report"):
        raise OptionError(f"on_failure is {on_failure!r}, expected 'warn', 'raise' or 'report'")
    if threads is not None and not (_is_int(threads, 1) and threads <= _MOST_THREADS):
        raise OptionError(f"threads is {threads!r}, expected 1 to {_MOST_THREADS}")
    if progress is not None and not callable(progress):
        raise OptionError(f"progress is {progress!r}, expected a function")


#: As `--threads` of the command line takes.
_MOST_THREADS = 1024


def limits_of(name: str, value: Any, dtype: type) -> Any:
    """A limit as a number, or as an array of one for each system."""
    value = adopt(name, value)
    array = np.asarray(library_of(value).host(value))
    if array.dtype.kind not in ("iuf" if dtype is np.float64 else "iu"):
        raise OptionError(f"{name} is {value!r}, expected numbers")
    if array.ndim == 0:
        return array.astype(dtype).item()
    return np.ascontiguousarray(array.reshape(-1), dtype)


def place_of(backend: Any, ordinal: int | None) -> tuple[str, list[int]]:
    """Where to solve, for values on this GPU, or in host memory."""
    if isinstance(backend, list | tuple):
        return "gpu", _gpus(backend, ordinal)
    if not isinstance(backend, str):
        raise OptionError(f"backend is {backend!r}, expected 'auto', 'cpu', 'gpu' or 'cuda:N'")
    name, _, number = backend.partition(":")
    known = backend in ("auto", "cpu", "gpu") or (name == "cuda" and number.isdecimal())
    if not known:
        raise OptionError(f"backend is {backend!r}, expected 'auto', 'cpu', 'gpu' or 'cuda:N'")
    asked = int(number) if name == "cuda" else 0
    if ordinal is not None and (backend == "cpu" or (name == "cuda" and asked != ordinal)):
        raise OptionError(
            f"backend is {backend!r}, but the values lie on cuda:{ordinal}: copy them, or leave it out"
        )
    return ("gpu" if name == "cuda" else name), [asked]


def _gpus(backend: list | tuple, ordinal: int | None) -> list[int]:
    """The numbers of several GPUs, for values on this GPU, or in host memory."""
    if ordinal is not None:
        raise Unsupported(
            f"several devices for values on cuda:{ordinal}: make a solver for each device"
        )
    names = [str(name).partition(":") for name in backend]
    if not names or not all(name == "cuda" and number.isdecimal() for name, _, number in names):
        raise OptionError(f"backend is {backend!r}, expected such as ['cuda:0', 'cuda:1']")
    numbers = [int(number) for _, _, number in names]
    if len(set(numbers)) < len(numbers):
        raise OptionError(f"backend is {backend!r}, expected each device once")
    return numbers


def host_shifted(batch: Batch, dt: Any) -> np.ndarray:
    """`I / dt - values`, for values in host memory."""
    diagonal = _diagonal(batch)
    dt = floats("shift", dt)
    if dt.ndim > 1 or (dt.ndim == 1 and len(dt) != batch.nitems):
        raise OptionError(f"shift has shape {dt.shape}, expected ({batch.nitems},)")
    values = -batch.values
    with np.errstate(divide="ignore"):
        inverse = np.reciprocal(dt.astype(values.dtype))
    if not batch.is_uniform:
        values[diagonal] += np.repeat(np.broadcast_to(inverse, batch.nitems), batch.nrows)
    elif batch.layout == "interleaved":
        values[diagonal] += inverse
    else:
        if dt.ndim == 1 and values.ndim == 2:
            inverse = inverse[:, None]
        elif dt.ndim == 1 and batch.nitems != 1:
            raise Unsupported("a shift for each item of values that all items share")
        values[..., diagonal] += inverse
    return values


def _diagonal(batch: Batch) -> np.ndarray:
    """The places of the diagonal entries among the values of a batch, or of one item."""
    pointers, columns = batch.indptr, batch.indices
    if batch.is_uniform:
        rows = np.repeat(np.arange(batch.nrows), np.diff(pointers))
    else:
        each = np.concatenate([np.arange(n) for n in batch.nrows] or [np.empty(0, int)])
        ends = np.cumsum(np.asarray(batch.nrows) + 1) - 1
        counts = np.delete(np.diff(pointers), ends[:-1]) if len(ends) else np.empty(0, int)
        rows = np.repeat(each, counts)
    places = np.flatnonzero(rows == columns)
    if len(places) != int(np.sum(batch.nrows)):
        raise OptionError("shift needs an entry on the diagonal in every row of the pattern")
    return places


def _fail(result: Result, on_failure: OnFailure) -> None:
    if on_failure == "report":
        return
    problem = result.report.problem() or ""
    if on_failure == "raise":
        raise NotConverged(problem, result)
    warnings.warn(problem, NotConvergedWarning, stacklevel=caller_level())
