"""Batches for lineax: `BatchLinearOperator` and its `Solver`.

>>> import jax.numpy as jnp, lineax, numpy as np, sparsebatch, sparsebatch.lineax
>>> batch = sparsebatch.Batch.uniform([0, 2, 3], [0, 1, 1], np.ones((2, 3), np.float32))
>>> values = jnp.array([[2.0, 1.0, 4.0], [1.0, 0.0, 8.0]], jnp.float32)
>>> operator = sparsebatch.lineax.BatchLinearOperator(batch, values)
>>> b = jnp.array([[3.0, 4.0], [1.0, 8.0]], jnp.float32)
>>> lineax.linear_solve(operator, b, solver=sparsebatch.lineax.Solver()).value
Array([[1., 1.],
       [1., 1.]], dtype=float32)
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
import numpy as np

from ._batch import Batch
from ._report import STATUSES
from ._solve import options_of
from .errors import OptionError, Unsupported
from .jax import _array, _Call, _Frame, _spec_of, solve_with_status

__all__ = ["BatchLinearOperator", "Solver"]


class BatchLinearOperator(lineax.AbstractLinearOperator):
    """The matrices of a batch as one linear operator: block-diagonal, on vectors of all items.

    Parameters
    ----------
    batch : Batch
        The patterns, the number of items and the layout; its own values are not used.
    values : array of float64 or float32
        As for `sparsebatch.jax.solve`.
    nrhs : int, optional
        Vectors have an axis for so many right-hand sides: `(nitems, n, nrhs)`.

    Attributes
    ----------
    batch, values, nrhs
        The parameters.
    is_transposed : bool
        Whether the matrices are transposed.

    Raises
    ------
    OptionError
        For values that do not fit.
    """

    batch: Batch = eqx.field(static=True)
    values: Any
    nrhs: int | None = eqx.field(static=True)
    is_transposed: bool = eqx.field(static=True)

    def __init__(
        self, batch: Batch, values: Any, *, nrhs: int | None = None, is_transposed: bool = False
    ):
        if not isinstance(batch, Batch):
            raise OptionError(f"batch is a {type(batch).__name__}, expected a sparsebatch.Batch")
        if np.any(np.asarray(batch.nrows) != np.asarray(batch.ncols)):
            raise OptionError("a matrix of the batch is not square")
        self.batch, self.nrhs, self.is_transposed = batch, nrhs, is_transposed
        self.values = _array("values", values)
        self._frame.check_values(self.values)

    @property
    def _frame(self) -> _Frame:
        return _Frame.with_sides(self.batch, self.nrhs)

    def mv(self, vector: Any) -> jax.Array:
        """`A x`, for vectors as `b` of `sparsebatch.jax.solve`."""
        frame = self._frame
        call = _Call(_spec_of(self.batch, {}), self.is_transposed, nan=True)
        return frame.outer(call.product(frame.inner_values(self.values), frame.inner(vector)))

    def as_matrix(self) -> jax.Array:
        """The dense matrix of all items, to look at small ones."""
        shape = self._frame.vector_shape
        size = int(np.prod(shape))
        columns = jax.vmap(self.mv)(jnp.eye(size, dtype=self.values.dtype).reshape(size, *shape))
        return columns.reshape(size, size).T

    def transpose(self) -> BatchLinearOperator:
        """The operator of the transposed matrices."""
        other = not self.is_transposed
        return BatchLinearOperator(self.batch, self.values, nrhs=self.nrhs, is_transposed=other)

    def in_structure(self) -> jax.ShapeDtypeStruct:
        """Shape and type of vectors."""
        return jax.ShapeDtypeStruct(self._frame.vector_shape, self.values.dtype)

    def out_structure(self) -> jax.ShapeDtypeStruct:
        """Shape and type of products, which are those of vectors."""
        return self.in_structure()


@lineax.linearise.register(BatchLinearOperator)
@lineax.materialise.register(BatchLinearOperator)
@lineax.conj.register(BatchLinearOperator)
def _same(operator: BatchLinearOperator) -> BatchLinearOperator:
    return operator


@lineax.diagonal.register(BatchLinearOperator)
def _diagonal(operator: BatchLinearOperator) -> jax.Array:
    return jnp.diagonal(operator.as_matrix())


@lineax.is_symmetric.register(BatchLinearOperator)
@lineax.is_diagonal.register(BatchLinearOperator)
@lineax.is_tridiagonal.register(BatchLinearOperator)
@lineax.has_unit_diagonal.register(BatchLinearOperator)
@lineax.is_lower_triangular.register(BatchLinearOperator)
@lineax.is_upper_triangular.register(BatchLinearOperator)
@lineax.is_positive_semidefinite.register(BatchLinearOperator)
@lineax.is_negative_semidefinite.register(BatchLinearOperator)
def _is_not_known(_operator: BatchLinearOperator) -> bool:
    return False


class Solver(lineax.AbstractLinearSolver):
    """Solves `BatchLinearOperator`s within `lineax.linear_solve`.

    A solution has `stats["status"]`, how each system ended: 0 or a place in `sparsebatch.STATUSES`.
    `result` is that of the worst system; with `throw=False` solutions of the others can be used.
    Solves of derivatives always throw, as lineax has it: where systems may fail, take derivatives
    of `sparsebatch.jax.solve`, which are NaN for these alone.

    Parameters
    ----------
    **options
        Those of `sparsebatch.Solver`: `method`, `precond`, `rtol`, `atol`, `maxiter`, ... Limits
        are numbers for all systems.
    """

    options: tuple[tuple[str, Any], ...] = eqx.field(static=True)

    def __init__(self, **options: Any):
        checked = options_of(options, 1)
        for name in options:
            if isinstance(checked[name], np.ndarray):
                raise OptionError(f"{name} is an array, expected a number for all systems")
        self.options = tuple(sorted(options.items()))

    def init(self, operator: Any, options: dict[str, Any]) -> BatchLinearOperator:
        """The operator, whose analysis is made by the first solve."""
        if options:
            raise OptionError(f"{next(iter(options))!r} is no option: give options to Solver")
        while isinstance(operator, lineax.TaggedLinearOperator):
            operator = operator.operator
        if not isinstance(operator, BatchLinearOperator):
            raise Unsupported(
                f"the operator is a {type(operator).__name__}, expected a BatchLinearOperator"
            )
        return operator

    def compute(
        self, state: BatchLinearOperator, vector: Any, options: dict[str, Any]
    ) -> tuple[jax.Array, Any, dict[str, Any]]:
        """Solutions, the result of the worst system, and statuses."""
        del options
        x, status = solve_with_status(
            state.batch,
            state.values,
            vector,
            transpose=state.is_transposed,
            **dict(self.options),
        )
        return x, _result_of(status), {"status": status}

    def transpose(
        self, state: BatchLinearOperator, options: dict[str, Any]
    ) -> tuple[BatchLinearOperator, dict[str, Any]]:
        """The state for the transposed matrices."""
        return state.transpose(), options

    def conj(
        self, state: BatchLinearOperator, options: dict[str, Any]
    ) -> tuple[BatchLinearOperator, dict[str, Any]]:
        """The same state: values are real."""
        return state, options

    def assume_full_rank(self) -> bool:
        """Yes: matrices that are not end with a status."""
        return True


def _result_of(status: jax.Array) -> Any:
    """The result that lineax knows and that says most about the systems that failed."""
    results = lineax.RESULTS
    result = results.where(jnp.any(status != 0), results.breakdown, results.successful)
    for name, found in (
        ("MaxIterations", results.max_steps_reached),
        ("NonFinite", results.nonfinite_input),
        ("Singular", results.singular),
    ):
        result = results.where(jnp.any(status == STATUSES.index(name)), found, result)
    return result
