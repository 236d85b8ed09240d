"""Solves of PyTorch tensors that gradients go through: `solve`, `solve_sparse`.

The solve is an operator of `torch.library` with its own rules for fake tensors, autograd and
`vmap`, so that it takes part in `torch.compile`, `torch.func` and derivatives of any order.

>>> import torch, sparsebatch, sparsebatch.torch
>>> batch = sparsebatch.Batch.uniform([0, 2, 3], [0, 1, 1], [[2.0, 1.0, 4.0]])
>>> values = torch.tensor([[2.0, 1.0, 4.0]], dtype=torch.float64, requires_grad=True)
>>> x = sparsebatch.torch.solve(batch, values, torch.tensor([[3.0, 4.0]], dtype=torch.float64))
>>> x.sum().backward()
>>> values.grad
tensor([[-0.5000, -0.5000, -0.1250]], dtype=torch.float64)
"""

from __future__ import annotations

import hashlib
import sys
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

try:
    import torch
except ImportError as error:
    raise ImportError(
        "sparsebatch.torch needs PyTorch: pip install 'sparsebatch[torch]'"
    ) from error

from ._arrays import Torch
from ._batch import _BY_KEY, Batch
from ._report import Report
from ._solve import DEFAULTS, Solver
from .errors import FormatError, NotConvergedWarning, OptionError, Unsupported

__all__ = ["clear_cache", "solve", "solve_sparse"]

OnFailure = Literal["nan", "keep"]

#: Solvers that are kept, with their factors and the values of their last solve.
MAX_SOLVERS = 16
#: Patterns, each with its options, that are kept.
MAX_PATTERNS = 64
#: Solves by the same factors that are remembered, for derivatives of derivatives.
MAX_TOKENS = 8

_NAMES = frozenset(DEFAULTS) | {"backend", "threads"}


def solve(
    batch: Batch,
    values: torch.Tensor,
    b: torch.Tensor,
    *,
    x0: torch.Tensor | None = None,
    transpose: bool = False,
    on_failure: OnFailure = "nan",
    return_converged: bool = False,
    **options: Any,
) -> Any:
    """Solve `A_i x_i = b_i` for every matrix, differentiable in `values` and `b`.

    Analysis and factors are kept between calls: a further call with the same pattern, options,
    shapes, type and device computes only what depends on the values, and `backward` solves with the
    transposed matrices by the factors of its forward solve, if no other solve came between.

    Parameters
    ----------
    batch : Batch
        Square and uniform, with `layout="item"`. Its pattern is used, not its values.
    values : Tensor of float64 or float32, shape (nitems, nnz) or (nnz,)
        The entries of the matrices in the order of `batch.indices`; `(nnz,)` if all items share
        them. The number of items may differ from that of `batch`.
    b : Tensor, shape (nitems, n) or (nitems, n, nrhs)
        Right-hand sides, of the type and on the device of `values`. For a batch that was made of
        one matrix and `values` of shape `(nnz,)`: `(n,)` or `(n, nrhs)`.
    x0 : Tensor, optional
        Initial guesses, of the shape of `b`. No gradient goes through them. Default: 0.
    transpose : bool
        Solve with the transposed matrices.
    on_failure : {"nan", "keep"}
        The gradients of systems that did not converge: NaN, or what the last iterates give. A
        system is meant that failed in the forward solve or in the adjoint one. Gradients of the
        others are not touched, except where they are summed over items that share values.
    return_converged : bool
        Return also which systems converged.
    **options
        Those of `sparsebatch.Solver`; `threads`; and `backend`, which by default is the device of
        the tensors (with `"gpu"`, tensors in host memory are solved on a GPU).

    Returns
    -------
    x : Tensor
        Solutions, of the shape of `b`. A system that did not converge has the better of its guess
        and its last iterate, and a `NotConvergedWarning` is given.
    converged : Tensor of bool, shape (nitems,) or (nitems, nrhs)
        With `return_converged`: `()` or `(nrhs,)` for one matrix.

    Raises
    ------
    OptionError
        For tensors that do not fit each other or the pattern, and options out of range.
    Unsupported
        For ragged and interleaved batches.
    GpuError
        When the GPU refuses a call.

    Notes
    -----
    Tensors in host memory are read where they lie. `torch.func.vmap` becomes one larger batch, or
    further right-hand sides where the values are not mapped. Derivatives in reverse mode, of any
    order, are exact up to the tolerance of the solves: a gradient is as accurate as `rtol` lets
    the solutions be. There are no rules for forward mode (`torch.func.jvp`, `jacfwd`).

    Examples
    --------
    >>> import torch, sparsebatch, sparsebatch.torch
    >>> batch = sparsebatch.Batch.uniform([0, 2, 3], [0, 1, 1], [2.0, 1.0, 4.0])
    >>> values = torch.tensor([2.0, 1.0, 4.0], dtype=torch.float64)
    >>> sparsebatch.torch.solve(batch, values, torch.tensor([3.0, 4.0], dtype=torch.float64))
    tensor([1., 1.], dtype=torch.float64)
    """
    handle, nrows, nnz, is_single = _prepare(
        batch, tuple(options.items()), torch.compiler.is_compiling()
    )
    if on_failure not in ("nan", "keep"):
        raise OptionError(f"on_failure is {on_failure!r}, expected 'nan' or 'keep'")
    _check_tensors(values, b, x0)
    is_one = _check_shapes(values, b, nrows, nnz, is_single)
    if x0 is not None:
        if x0.shape != b.shape:
            raise OptionError(f"x0 has shape {tuple(x0.shape)}, expected {tuple(b.shape)}")
        x0 = x0.detach()
    if is_one:
        b = b.unsqueeze(0)
        x0 = None if x0 is None else x0.unsqueeze(0)
    factor = torch.is_grad_enabled() and (values.requires_grad or b.requires_grad)
    arguments = (values, b, x0, None, handle, bool(transpose), factor, on_failure == "nan")
    x, converged = _apply(_solve, *arguments)
    if is_one:
        x, converged = x.squeeze(0), converged.squeeze(0)
    return (x, converged) if return_converged else x


def solve_sparse(
    A: torch.Tensor,
    b: torch.Tensor,
    *,
    x0: torch.Tensor | None = None,
    transpose: bool = False,
    on_failure: OnFailure = "nan",
    return_converged: bool = False,
    **options: Any,
) -> Any:
    """Solve with a tensor of layout `sparse_csr`, differentiable in `A` and `b`.

    Parameters
    ----------
    A : Tensor of layout sparse_csr, shape (n, n) or (nitems, n, n)
        Items have one pattern, with ascending columns. The gradient is a `sparse_csr` tensor with
        the same pattern. Index arrays are copied to the host when they are seen first.
    b : Tensor, shape (n,), (n, nrhs); or (nitems, n), (nitems, n, nrhs)
        Right-hand sides.
    x0, transpose, on_failure, return_converged, **options
        As for `solve`.

    Returns
    -------
    x : Tensor
        As for `solve`.

    Raises
    ------
    OptionError
        If `A` has another layout, and as for `solve`.
    FormatError
        For indices that are not valid, or not in ascending order.
    Unsupported
        For items of different patterns.
    """
    if not isinstance(A, torch.Tensor) or A.layout != torch.sparse_csr:
        found = A.layout if isinstance(A, torch.Tensor) else type(A).__name__
        raise OptionError(f"A is {found}, expected layout sparse_csr: A.to_sparse_csr()")
    batch = _batch_of_sparse(A.detach())
    return solve(
        batch,
        A.values(),
        b,
        x0=x0,
        transpose=transpose,
        on_failure=on_failure,
        return_converged=return_converged,
        **options,
    )


def clear_cache() -> None:
    """Drop the kept solvers with their factors, and the values that they refer to.

    At most `MAX_SOLVERS` of them are kept. Later calls, and gradients of earlier ones, analyse and
    factor again.
    """
    with _LOCK:
        _ENGINES.clear()
        _RECENT.clear()
        _SPARSE.clear()


def _check_tensors(values: Any, b: Any, x0: Any) -> None:
    if not isinstance(values, torch.Tensor) or values.layout != torch.strided:
        raise OptionError("values are no dense tensor; for a sparse_csr tensor: solve_sparse")
    if values.dtype not in (torch.float64, torch.float32):
        raise OptionError(f"values have elements of {values.dtype}, expected float64 or float32")
    if values.device.type not in ("cpu", "cuda"):
        raise OptionError(f"values lie on {values.device}, expected cpu or cuda")
    _check_like("b", b, values)
    if x0 is not None:
        _check_like("x0", x0, values)


def _check_like(name: str, tensor: Any, values: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        raise OptionError(f"{name} is no dense tensor")
    if tensor.device != values.device:
        raise OptionError(
            f"{name} lies on {tensor.device}, the values of the matrices on {values.device}"
        )
    if tensor.dtype != values.dtype:
        raise OptionError(
            f"{name} has elements of {tensor.dtype}, the matrices have {values.dtype}"
        )


def _check_shapes(
    values: torch.Tensor, b: torch.Tensor, nrows: int, nnz: int, is_single: bool
) -> bool:
    """Refuses shapes that do not fit; whether `b` has no dimension of items."""
    if values.dim() not in (1, 2) or values.shape[-1] != nnz:
        raise OptionError(
            f"values have shape {tuple(values.shape)}, expected (nitems, {nnz}) or ({nnz},)"
        )
    is_one = values.dim() == 1 and (b.dim() == 1 or (b.dim() == 2 and is_single))
    if is_one:
        fits = b.shape[0] == nrows
    else:
        fits = b.dim() in (2, 3) and b.shape[1] == nrows
        fits = fits and (values.dim() == 1 or b.shape[0] == values.shape[0])
    if not fits:
        lead = "" if is_one else "nitems, " if values.dim() == 1 else f"{values.shape[0]}, "
        raise OptionError(
            f"b has shape {tuple(b.shape)}, expected ({lead}{nrows}) or ({lead}{nrows}, nrhs)"
        )
    return is_one


# Kept analyses ------------------------------------------------------------------------------------


class _Pattern:
    """A pattern with the options of its solves, which operators name by a number."""

    def __init__(self, handle: int, nrows: int, indptr: Any, indices: Any, options: dict[str, Any]):
        self.handle, self.nrows = handle, nrows
        self.indptr, self.indices, self.options = indptr, indices, options
        self._places: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def places(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and columns of the entries, on a device."""
        if device not in self._places:
            rows = np.repeat(np.arange(self.nrows), np.diff(self.indptr))
            columns = self.indices.astype(np.int64)
            places = (torch.from_numpy(rows).to(device), torch.from_numpy(columns).to(device))
            self._places[device] = places
        return self._places[device]

    def batch(self, values: Any, nitems: int) -> Batch:
        count = nitems if values.ndim == 1 else None
        shape = (self.nrows, self.nrows)
        return Batch.uniform(self.indptr, self.indices, values, shape=shape, nitems=count)


class _Engine:
    """A solver, and of which forward solve the factors are that it keeps."""

    def __init__(self, pattern: _Pattern, values: torch.Tensor, b: torch.Tensor):
        self.lock = threading.RLock()
        options = dict(pattern.options)
        if values.device.type == "cpu":
            options.setdefault("backend", "cpu")
        self.solver = Solver(
            pattern.batch(_array(values), b.shape[0]),
            nrhs=1 if b.dim() == 2 else b.shape[2],
            on_failure="report",
            **options,
        )
        # Outcomes of the solves by the kept factors, and whether all systems converged. They are
        # held, so that no other tensor can have their addresses.
        self._tokens: OrderedDict[int, tuple[torch.Tensor, bool]] = OrderedDict()

    def solve(
        self,
        values: torch.Tensor,
        b: torch.Tensor,
        x0: torch.Tensor | None,
        kept: torch.Tensor | None,
        transpose: bool,
        factor: bool,
        nan: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Solutions, and which systems converged; see `_solve`."""
        solver = self.solver
        known = None if kept is None else self._of(kept)
        if known is None:
            self._tokens.clear()
            solver.update_values(_array(values))
            if (factor or kept is not None) and solver.keeps_factors:
                solver.factor()
        shape = b.shape[:1] + b.shape[2:]
        x = torch.empty(b.shape, dtype=b.dtype, device=b.device)
        guess = None if x0 is None else _array(x0)
        out = x.squeeze(2) if x.dim() == 3 and x.shape[2] == 1 else x
        report = solver.solve(_array(b), guess, transpose=transpose, out=_array(out)).report
        are_all = report.all_converged
        if are_all:
            converged = torch.ones(shape, dtype=torch.bool, device=b.device)
        else:
            converged = torch.from_numpy(report.converged.copy()).reshape(shape).to(b.device)
        if not are_all:
            _warn(report, "" if kept is None else "in the gradient, ")
        if kept is not None and nan:
            if known is False or (known is None and not bool(kept.all())):
                converged, are_all = converged & kept, False
            if not are_all:
                x.masked_fill_(~converged.unsqueeze(1), torch.nan)
        if solver.keeps_factors and (factor or kept is not None) and converged.numel():
            self._tokens[converged.data_ptr()] = (converged, are_all)
            if len(self._tokens) > MAX_TOKENS:
                self._tokens.popitem(last=False)
        return x, converged

    def _of(self, kept: torch.Tensor) -> bool | None:
        """Whether all systems converged in the solve that this came from; `None` if it was solved
        by other matrices than those that are kept."""
        token = self._tokens.get(kept.data_ptr())
        if token is None or token[0].numel() != kept.numel():
            return None
        return token[1]


_LOCK = threading.RLock()
#: Patterns that are in use, or recent.
_PATTERNS: weakref.WeakValueDictionary[int, _Pattern] = weakref.WeakValueDictionary()
_BY_CONTENT: weakref.WeakValueDictionary[Any, _Pattern] = weakref.WeakValueDictionary()
#: By the identity of a batch's pattern, which is held, and options.
_RECENT: OrderedDict[Any, tuple[Any, _Pattern]] = OrderedDict()
_ENGINES: OrderedDict[Any, _Engine] = OrderedDict()
#: Batches of sparse tensors by the addresses of their indices, which are held.
_SPARSE: OrderedDict[Any, tuple[Any, Batch]] = OrderedDict()
#: Patterns that compiled functions refer to.
_PINNED: dict[int, _Pattern] = {}


def _prepare(
    batch: Batch, options: tuple[tuple[str, Any], ...], pin: bool
) -> tuple[int, int, int, bool]:
    """The number of a pattern with options, rows and entries, and whether it is of one matrix."""
    if not isinstance(batch, Batch):
        raise OptionError(f"batch is a {type(batch).__name__}, expected a Batch")
    batch._check_order()
    # Compiled functions are guarded by the key, which no other batch has.
    return _prepare_by_key(batch._key, options, pin)


@torch.compiler.assume_constant_result
def _prepare_by_key(
    name: str, options: tuple[tuple[str, Any], ...], pin: bool
) -> tuple[int, int, int, bool]:
    """As `_prepare`, of constants alone: PyTorch 2.11 takes no other objects here."""
    batch = _BY_KEY[name]
    key = (id(batch._patterns), _frozen(options))
    with _LOCK:
        known = _RECENT.get(key)
        if known is None:
            known = _RECENT[key] = (batch._patterns, _pattern_of(batch, dict(options), key[1]))
        _RECENT.move_to_end(key)
        while len(_RECENT) > MAX_PATTERNS:
            _RECENT.popitem(last=False)
        pattern = known[1]
        if pin:
            _PINNED[pattern.handle] = pattern
    return pattern.handle, pattern.nrows, len(pattern.indices), batch._is_single


def _frozen(options: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """Options as something that can be a key."""
    frozen = []
    for name, value in options:
        if name not in _NAMES:
            raise TypeError(f"{name!r} is no option; there are {', '.join(sorted(_NAMES))}")
        if not isinstance(value, (str, int, float, bool, type(None))):
            array = np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value)
            value = (str(array.dtype), array.shape, array.tobytes())
        frozen.append((name, type(value).__name__, value))
    return tuple(sorted(frozen))


def _pattern_of(batch: Batch, options: dict[str, Any], frozen: tuple[Any, ...]) -> _Pattern:
    if not batch.is_uniform:
        raise Unsupported("a ragged batch: make one of each pattern, or use sparsebatch.solve")
    if batch.layout == "interleaved":
        raise Unsupported("an interleaved batch: give layout='item'")
    nrows = int(batch.nrows)
    if nrows != batch.ncols:
        raise OptionError(f"matrices are {nrows} x {batch.ncols}, expected square ones")
    indptr, indices = np.array(batch.indptr), np.array(batch.indices)
    content = hashlib.sha256(indptr.tobytes())
    content.update(indices.tobytes())
    key = (nrows, content.digest(), frozen)
    pattern = _BY_CONTENT.get(key)
    if pattern is None:
        # By content: a saved program finds the same pattern in another process, or none.
        content.update(repr((nrows, frozen)).encode())
        handle = int.from_bytes(content.digest()[:7], "little")
        pattern = _Pattern(handle, nrows, indptr, indices, options)
        _BY_CONTENT[key] = _PATTERNS[pattern.handle] = pattern
        weakref.finalize(pattern, _forget, pattern.handle)
    return pattern


def _forget(handle: int) -> None:
    """Drops the solvers of a pattern that nobody refers to."""
    with _LOCK:
        for key in [key for key in _ENGINES if key[0] == handle]:
            del _ENGINES[key]


def _pattern(handle: int) -> _Pattern:
    pattern = _PATTERNS.get(handle)
    if pattern is None:
        raise OptionError(
            f"no pattern has the number {handle}: it was dropped, or is of another process"
        )
    return pattern


def _engine(pattern: _Pattern, values: torch.Tensor, b: torch.Tensor) -> _Engine:
    """The solver for tensors like these; made where there is none."""
    key = _engine_key(pattern.handle, values.dim() == 1, b)
    with _LOCK:
        engine = _ENGINES.get(key)
        if engine is None:
            engine = _ENGINES[key] = _Engine(pattern, values, b)
        _ENGINES.move_to_end(key)
        while len(_ENGINES) > MAX_SOLVERS:
            _ENGINES.popitem(last=False)
        return engine


def _engine_key(handle: int, shared: bool, b: torch.Tensor) -> tuple[Any, ...]:
    nrhs = 1 if b.dim() == 2 else b.shape[2]
    # Work of two streams of PyTorch is not mixed in one solver.
    stream = Torch.stream(b) if b.is_cuda else None
    return handle, b.shape[0], nrhs, shared, b.dtype, b.device, stream


def _batch_of_sparse(tensor: torch.Tensor) -> Batch:
    """A batch of the pattern of a tensor, known again while its index tensors are the same."""
    parts = (tensor.crow_indices(), tensor.col_indices())
    state = tuple((part.data_ptr(), part._version) for part in parts)
    key = (tuple(tensor.shape), tensor.dtype, tensor.device, state)
    with _LOCK:
        if key in _SPARSE:
            _SPARSE.move_to_end(key)
            return _SPARSE[key][1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batch = Batch.from_torch(tensor)
        columns = parts[1].reshape(-1, parts[1].shape[-1])[0].cpu().numpy()
        if not np.array_equal(batch.indices, columns):
            raise FormatError("the columns of a row are not in ascending order, each once")
        _SPARSE[key] = (parts, batch)
        while len(_SPARSE) > MAX_SOLVERS:
            _SPARSE.popitem(last=False)
        return batch


def _array(tensor: torch.Tensor) -> Any:
    """A tensor as solvers take it: an array of NumPy over its memory if that is of the host."""
    tensor = tensor.detach().contiguous()
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def _warn(report: Report, what: str) -> None:
    level, frame = 1, sys._getframe()
    own = (__name__, "torch")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(own):
        frame = frame.f_back
        level += 1
    warnings.warn(f"{what}{report.problem()}", NotConvergedWarning, stacklevel=level)


# Operators ----------------------------------------------------------------------------------------
#
# Right-hand sides are (nitems, n) or (nitems, n, nrhs), values (nitems, nnz), or (nnz,) if shared.
# Three operators are closed under derivatives: the solve, the products of the entries of two
# vectors on the pattern, and the product of matrix and vector.


def _apply(op: Any, *arguments: Any) -> Any:
    """Calls an operator.

    PyTorch's dispatcher takes part where somebody looks on: compilers, modes, tensors of other
    kinds. Else the operator is called as a function of autograd, which costs less.
    The transforms of `torch.func` see its derivatives as a function, too.
    """
    if torch.compiler.is_compiling():
        return op(*arguments)
    functions = _FUNCTIONS[op]
    if torch._C._are_functorch_transforms_active():
        return functions[0].apply(*arguments)
    return functions[1].apply(*arguments) if _is_plain(arguments) else op(*arguments)


def _is_plain(arguments: tuple[Any, ...]) -> bool:
    """Whether nothing but autograd takes part in a call."""
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and torch._C._get_tracing_state() is None
        and all(
            type(argument) in _PLAIN_TYPES
            # Of `torch.autograd.grad(is_grads_batched=True)`.
            and not torch._C._functorch.is_legacy_batchedtensor(argument)
            for argument in arguments
            if isinstance(argument, torch.Tensor)
        )
    )


_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


@torch.library.custom_op(
    "sparsebatch::solve",
    mutates_args=(),
    schema="(Tensor values, Tensor b, Tensor? x0, Tensor? kept, int handle, bool transpose, "
    "bool factor, bool nan) -> (Tensor, Tensor)",
)
def _solve(values, b, x0, kept, handle, transpose, factor, nan):
    """Solutions and which systems converged.

    `kept`, for gradients, is the second result of a solve with these values whose factors may
    serve: `None` in forward solves. `factor` announces a gradient. With `nan` the solutions of
    gradients are NaN where `kept` says so, and where this solve failed.
    """
    engine = _engine(_pattern(handle), values, b)
    with engine.lock:
        return engine.solve(values, b, x0, kept, transpose, factor, nan)


@torch.library.custom_op(
    "sparsebatch::value_gradient",
    mutates_args=(),
    schema="(Tensor adjoint, Tensor x, int handle, bool shared) -> Tensor",
)
def _value_gradient(adjoint, x, handle, shared):
    """`-adjoint[row] * x[column]` for each entry, summed over right-hand sides, and over items if
    they share values."""
    with _LOCK:
        engine = _ENGINES.get(_engine_key(handle, shared, x))
    if engine is not None:
        with engine.lock:
            gradient = engine.solver.value_gradient(_array(adjoint), _array(x))
        return gradient if isinstance(gradient, torch.Tensor) else torch.from_numpy(gradient)
    rows, columns = _pattern(handle).places(x.device)
    gradient = -adjoint.index_select(1, rows) * x.index_select(1, columns)
    gradient = gradient.sum(2) if x.dim() == 3 else gradient
    return gradient.sum(0) if shared else gradient


@torch.library.custom_op(
    "sparsebatch::product",
    mutates_args=(),
    schema="(Tensor values, Tensor x, int handle, bool transpose) -> Tensor",
)
def _product(values, x, handle, transpose):
    """`A x`, or `A^T x`."""
    rows, columns = _pattern(handle).places(x.device)
    if transpose:
        rows, columns = columns, rows
    terms = values.unsqueeze(-1) if x.dim() == 3 else values
    return torch.zeros_like(x).index_add_(1, rows, terms * x.index_select(1, columns))


@_solve.register_fake
def _(values, b, x0, kept, handle, transpose, factor, nan):
    return b.new_empty(b.shape), b.new_empty(b.shape[:1] + b.shape[2:], dtype=torch.bool)


@_value_gradient.register_fake
def _(adjoint, x, handle, shared):
    nnz = len(_pattern(handle).indices)
    return x.new_empty((nnz,) if shared else (x.shape[0], nnz))


@_product.register_fake
def _(values, x, handle, transpose):
    return x.new_empty(x.shape)


def _solve_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    values, _b, _x0, _kept, handle, transpose, _factor, nan = inputs
    x, converged = output
    ctx.save_for_backward(values, x, converged)
    # No zeros are made for the outcomes.
    ctx.set_materialize_grads(False)
    # The pattern is held by the graph.
    ctx.pattern, ctx.handle = _PATTERNS.get(handle), handle
    ctx.transpose, ctx.nan, ctx.shared = transpose, nan, values.dim() == 1


def _solve_backward(ctx: Any, gradient: torch.Tensor | None, _: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 8
    values, x, converged = ctx.saved_tensors
    arguments = (values, gradient, None, converged, ctx.handle, not ctx.transpose, False, ctx.nan)
    adjoint, _ = _apply(_solve, *arguments)
    by_values = None
    if ctx.needs_input_grad[0]:
        row, column = (x, adjoint) if ctx.transpose else (adjoint, x)
        by_values = _apply(_value_gradient, row, column, ctx.handle, ctx.shared)
    return by_values, adjoint if ctx.needs_input_grad[1] else None, *(None,) * 6


def _value_gradient_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    adjoint, x, ctx.handle, _shared = inputs
    ctx.pattern = _PATTERNS.get(ctx.handle)
    ctx.save_for_backward(adjoint, x)


def _value_gradient_backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    adjoint, x = ctx.saved_tensors
    by_adjoint = by_x = None
    if ctx.needs_input_grad[0]:
        by_adjoint = -_apply(_product, gradient, x, ctx.handle, False)
    if ctx.needs_input_grad[1]:
        by_x = -_apply(_product, gradient, adjoint, ctx.handle, True)
    return by_adjoint, by_x, None, None


def _product_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    values, x, ctx.handle, ctx.transpose = inputs
    ctx.pattern, ctx.shared = _PATTERNS.get(ctx.handle), values.dim() == 1
    ctx.save_for_backward(values, x)


def _product_backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    values, x = ctx.saved_tensors
    by_values = by_x = None
    if ctx.needs_input_grad[0]:
        row, column = (x, gradient) if ctx.transpose else (gradient, x)
        by_values = -_apply(_value_gradient, row, column, ctx.handle, ctx.shared)
    if ctx.needs_input_grad[1]:
        by_x = _apply(_product, values, gradient, ctx.handle, not ctx.transpose)
    return by_values, by_x, None, None


# vmap ---------------------------------------------------------------------------------------------


class _Folding:
    """How a mapped dimension of `size` joins the items, or the right-hand sides.

    Values that are not mapped, or that items share, are solved with more right-hand sides. Other
    values join the items.
    """

    def __init__(self, size: int, values_dim: int, is_mapped: bool):
        self.size = size
        # Logical dimensions of the values, and what becomes of vectors (size, nitems, n[, nrhs]).
        if not is_mapped:
            self.way = "items" if values_dim == 1 else "rhs"
        else:
            self.way = "swap" if values_dim == 1 else "items"

    def values(self, values: torch.Tensor, dim: int | None) -> torch.Tensor:
        if dim is None:
            return values
        values = values.movedim(dim, 0)
        return values if self.way == "swap" else values.reshape(-1, values.shape[-1])

    def vectors(self, x: torch.Tensor | None, dim: int | None) -> torch.Tensor | None:
        """From logical `(nitems, n[, nrhs])` to the folded shape."""
        if x is None:
            return None
        x = x.unsqueeze(0).expand(self.size, *x.shape) if dim is None else x.movedim(dim, 0)
        if self.way == "items":
            return x.reshape(-1, *x.shape[2:])
        moved = 0 if self.way == "rhs" else 1
        x = x.movedim(moved, 2)
        if self.way == "swap" and x.shape[2] == 1 and x.dim() == 3:
            return x.squeeze(2)
        return x.flatten(2)

    def outcomes(self, kept: torch.Tensor | None, dim: int | None) -> torch.Tensor | None:
        """As `vectors`, of one value a system: logical `(nitems[, nrhs])`."""
        if kept is None:
            return None
        # A dimension of one row is put in, and taken away.
        rows = kept.unsqueeze(2 if dim == 0 else 1)
        folded = self.vectors(rows, None if dim is None else dim + (dim > 0))
        return None if folded is None else folded.squeeze(1)

    def unfold(self, x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """Back to `(size, *shape)`, for the logical shape of one mapped call."""
        if self.way == "items":
            return x.reshape(self.size, *shape)
        nitems, rest = shape[0], tuple(shape[1:])
        if self.way == "rhs":
            x = x.reshape(nitems, rest[0], self.size, *rest[1:])
            return x.movedim(2, 0)
        x = x.reshape(self.size, rest[0], nitems, *rest[1:])
        return x.movedim(2, 1)


def _logical(x: torch.Tensor, dim: int | None) -> list[int]:
    return [size for axis, size in enumerate(x.shape) if axis != dim]


def _solve_vmap(info, in_dims, values, b, x0, kept, handle, transpose, factor, nan):
    values_dim = values.dim() - (in_dims[0] is not None)
    fold = _Folding(info.batch_size, values_dim, in_dims[0] is not None)
    shape = _logical(b, in_dims[1])
    x, converged = _apply(
        _solve,
        fold.values(values, in_dims[0]),
        fold.vectors(b, in_dims[1]),
        fold.vectors(x0, in_dims[2]),
        fold.outcomes(kept, in_dims[3]),
        handle,
        transpose,
        factor,
        nan,
    )
    outcomes = fold.unfold(converged.unsqueeze(1), [shape[0], 1, *shape[2:]]).squeeze(2)
    return (fold.unfold(x, shape), outcomes), (0, 0)


def _value_gradient_vmap(info, in_dims, adjoint, x, handle, shared):
    size = info.batch_size
    vectors = []
    for vector, dim in zip((adjoint, x), in_dims[:2], strict=True):
        vector = vector.movedim(dim, 0) if dim is not None else vector.expand(size, *vector.shape)
        vectors.append(vector.transpose(1, 2) if shared else vector)
    if shared:
        # The sum over items is one over right-hand sides of `size` items.
        vectors = [vector.flatten(2) for vector in vectors]
        return _apply(_value_gradient, *vectors, handle, False), 0
    nitems = vectors[0].shape[1]
    vectors = [vector.flatten(0, 1) for vector in vectors]
    gradient = _apply(_value_gradient, *vectors, handle, False)
    return gradient.reshape(size, nitems, -1), 0


def _product_vmap(info, in_dims, values, x, handle, transpose):
    values_dim = values.dim() - (in_dims[0] is not None)
    fold = _Folding(info.batch_size, values_dim, in_dims[0] is not None)
    shape = _logical(x, in_dims[1])
    vectors = fold.vectors(x, in_dims[1])
    y = _apply(_product, fold.values(values, in_dims[0]), vectors, handle, transpose)
    return fold.unfold(y, shape), 0


def _registered(
    op: Any, context: Any, backward: Any, vmap: Any
) -> tuple[type[torch.autograd.Function], type[torch.autograd.Function]]:
    """Registers the rules of an operator, and makes two functions of it: one for `torch.func`, which
    does not know the autograd rules of operators, and one that goes around the dispatcher."""
    op.register_autograd(backward, setup_context=context)
    op.register_vmap(vmap)

    def function(rules: dict[str, Any]) -> type[torch.autograd.Function]:
        body = {name: staticmethod(rule) for name, rule in rules.items()}
        return type(op._qualname.replace("::", "_"), (torch.autograd.Function,), body)

    plain = op._init_fn

    # PyTorch inspects the signature at each call of a function with `setup_context`.
    def forward(ctx: Any, *inputs: Any) -> Any:
        output = plain(*inputs)
        context(ctx, inputs, output)
        return output

    rules = {"forward": op.__call__, "setup_context": context, "backward": backward, "vmap": vmap}
    return function(rules), function({"forward": forward, "backward": backward})


_FUNCTIONS = {
    _solve: _registered(_solve, _solve_context, _solve_backward, _solve_vmap),
    _value_gradient: _registered(
        _value_gradient,
        _value_gradient_context,
        _value_gradient_backward,
        _value_gradient_vmap,
    ),
    _product: _registered(_product, _product_context, _product_backward, _product_vmap),
}
