"""Solves within JAX's transformations: `sparsebatch.jax`, `sparsebatch.lineax`."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import sparsebatch  # noqa: E402
import sparsebatch.jax as sj  # noqa: E402
from sparsebatch import OptionError, Unsupported, _native  # noqa: E402

jax.config.update("jax_enable_x64", True)

NITEMS, N = 5, 12


def _pattern(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A pattern that is not symmetric, with a whole diagonal: row pointers, columns, rows."""
    mask = np.random.default_rng(seed).random((n, n)) < 0.2
    np.fill_diagonal(mask, True)
    rows, columns = np.nonzero(mask)
    pointers = np.concatenate([[0], np.cumsum(mask.sum(1))])
    return pointers, columns, rows


INDPTR, INDICES, ROWS = _pattern(N, 0)
NNZ = len(INDICES)


def _values(*lead: int, seed: int = 1, dtype: type = np.float64) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((*lead, NNZ))
    values[..., ROWS == INDICES] += 6
    return values.astype(dtype)


def _vectors(*shape: int, seed: int = 2, dtype: type = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _batch(nitems: int = NITEMS, **options) -> sparsebatch.Batch:
    return sparsebatch.Batch.uniform(INDPTR, INDICES, np.zeros((nitems, NNZ)), **options)


def _dense(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    dense = np.zeros((*values.shape[:-1], N, N), values.dtype)
    dense[..., ROWS, INDICES] = values
    return dense


def _reference(values: np.ndarray, b: np.ndarray, transpose: bool = False) -> np.ndarray:
    """The solution with vectors in the last axis."""
    dense = _dense(values)
    dense = np.swapaxes(dense, -1, -2) if transpose else dense
    return np.linalg.solve(dense, np.asarray(b)[..., None])[..., 0]


def _close(found, expected, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=rtol, atol=rtol)


# Values


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("transpose", [False, True])
def test_solutions_are_those_of_numpy(wrap, transpose):
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    solve = wrap(lambda values, b: sj.solve(_batch(), values, b, transpose=transpose))
    x = solve(values, b)
    assert isinstance(x, jax.Array) and x.dtype == np.float64 and x.shape == b.shape
    _close(x, _reference(values, b, transpose))


@pytest.mark.parametrize("method", ["auto", "lu", "bicgstab", "pivoting-lu"])
def test_options_reach_the_solver(method):
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    _close(sj.solve(_batch(), values, b, method=method), _reference(values, b))


def test_tolerance_and_iteration_limit_reach_the_solver():
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    options = {"method": "bicgstab", "precond": "none", "fallback": False}
    _, status = sj.solve_with_status(_batch(), values, b, maxiter=1, **options)
    assert {sparsebatch.STATUSES[code] for code in status} == {"MaxIterations"}
    limits = np.array([1000, 1, 1000, 1, 1000])
    _, status = sj.solve_with_status(_batch(), values, b, maxiter=limits, **options)
    assert status.tolist() == [0, 1, 0, 1, 0]


def test_several_right_hand_sides():
    values, b = _values(NITEMS), _vectors(NITEMS, N, 3)
    x, status = sj.solve_with_status(_batch(), values, b)
    assert status.shape == (NITEMS, 3) and not status.any()
    _close(x, np.linalg.solve(_dense(values), b))
    x, status = sj.solve_with_status(_batch(), values, b[..., :1])
    assert x.shape == (NITEMS, N, 1) and status.shape == (NITEMS, 1)


def test_shared_values():
    values, b = _values(), _vectors(NITEMS, N)
    _close(sj.solve(_batch(), values, b), _reference(values, b))
    shared = sparsebatch.Batch.uniform(INDPTR, INDICES, np.zeros(NNZ), nitems=NITEMS)
    _close(sj.solve(shared, values, b), _reference(values, b))


def test_one_matrix():
    one = sparsebatch.Batch.uniform(INDPTR, INDICES, np.zeros(NNZ))
    values, b = _values(), _vectors(N)
    x, status = sj.solve_with_status(one, values, b)
    assert x.shape == (N,) and status.shape == ()
    _close(x, _reference(values, b))
    many = _vectors(N, 3)
    _close(sj.solve(one, values, many), np.linalg.solve(_dense(values), many))


def test_interleaved():
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    batch = sparsebatch.Batch.uniform(
        INDPTR, INDICES, np.zeros((NNZ, NITEMS)), layout="interleaved"
    )
    _close(sj.solve(batch, values.T, b.T), _reference(values, b).T)
    with pytest.raises(Unsupported, match="interleaved"):
        sj.solve(batch, values.T, b.T[..., None])


def _ragged() -> tuple[sparsebatch.Batch, np.ndarray, list[np.ndarray]]:
    import scipy.sparse as sp

    rng = np.random.default_rng(7)
    matrices = [
        sp.csr_array(6 * np.eye(n) + rng.random((n, n)) * (rng.random((n, n)) < 0.4))
        for n in (3, 7, 1, 4)
    ]
    batch = sparsebatch.Batch.ragged(matrices)
    return batch, np.array(batch.values), [matrix.toarray() for matrix in matrices]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("nrhs", [None, 2])
def test_ragged(nrhs, transpose):
    batch, values, matrices = _ragged()
    b = _vectors(15) if nrhs is None else _vectors(15, nrhs)
    starts = np.cumsum([0] + [len(matrix) for matrix in matrices])
    expected = np.concatenate(
        [
            np.linalg.solve(matrix.T if transpose else matrix, b[first : first + len(matrix)])
            for matrix, first in zip(matrices, starts[:-1], strict=True)
        ]
    )
    x, status = sj.solve_with_status(batch, values, b, transpose=transpose)
    assert status.shape == ((4,) if nrhs is None else (4, nrhs))
    _close(x, expected)
    solve = functools.partial(sj.solve, batch, transpose=transpose, rtol=1e-13)
    check_grads(solve, (values, b), order=1 if nrhs else 2, modes=("fwd", "rev"))
    several = np.stack([b, 2 * b])
    _close(jax.vmap(solve, (None, 0))(values, several), np.stack([expected, 2 * expected]))


def test_float32():
    values, b = _values(NITEMS, dtype=np.float32), _vectors(NITEMS, N, dtype=np.float32)
    x = jax.jit(lambda values, b: sj.solve(_batch(), values, b))(values, b)
    assert x.dtype == np.float32
    _close(x, _reference(values.astype(float), b), rtol=1e-4)
    loss = lambda values, b: (sj.solve(_batch(), values, b) ** 2).sum()  # noqa: E731
    found = jax.grad(loss, (0, 1))(values, b)
    expected = jax.grad(loss, (0, 1))(values.astype(float), b.astype(float))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == np.float32
        _close(one, other, rtol=1e-3)


def test_guesses():
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    x = _reference(values, b)
    options = {"method": "bicgstab", "precond": "none", "fallback": False, "maxiter": 0}
    solve = jax.jit(lambda x0: sj.solve_with_status(_batch(), values, b, x0=x0, **options))
    guess = jnp.asarray(x)
    found, status = solve(guess)
    assert not status.any()
    _close(found, x)
    # The guess is not what is written to.
    _close(guess, x)
    found, status = solve(jnp.zeros_like(guess))
    assert status.all()
    several = jnp.stack([guess, jnp.zeros_like(guess)])
    assert jax.vmap(solve)(several)[1].astype(bool).tolist() == [[False] * NITEMS, [True] * NITEMS]
    gradient = jax.grad(lambda x0: sj.solve(_batch(), values, b, x0=x0).sum())(guess)
    assert not gradient.any()


def test_a_batch_without_items():
    x, status = sj.solve_with_status(_batch(0), _values(0), _vectors(0, N))
    assert x.shape == (0, N) and status.shape == (0,)


# Derivatives


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("options", [{}, {"method": "bicgstab"}], ids=["auto", "bicgstab"])
def test_derivatives_are_finite_differences(options, transpose):
    solve = lambda values, b: sj.solve(  # noqa: E731
        _batch(), values, b, transpose=transpose, rtol=1e-13, **options
    )
    order = 1 if options else 2
    check_grads(solve, (_values(NITEMS), _vectors(NITEMS, N)), order=order, modes=("fwd", "rev"))
    check_grads(jax.jit(solve), (_values(), _vectors(NITEMS, N, 2)), order=1)


def test_gradients_are_the_adjoint_formula():
    values, b = _values(NITEMS), _vectors(NITEMS, N, 2)
    g = _vectors(NITEMS, N, 2, seed=3)
    loss = lambda values, b: (sj.solve(_batch(), values, b) * g).sum()  # noqa: E731
    by_values, by_b = jax.jit(jax.grad(loss, (0, 1)))(values, b)
    adjoint = np.linalg.solve(np.swapaxes(_dense(values), -1, -2), g)
    x = np.linalg.solve(_dense(values), b)
    _close(by_b, adjoint)
    _close(by_values, -(adjoint[:, ROWS] * x[:, INDICES]).sum(-1))
    shared = jax.grad(loss)(values[0], b)
    adjoint = np.linalg.solve(_dense(values[0]).T, g)
    x = np.linalg.solve(_dense(values[0]), b)
    _close(shared, -(adjoint[:, ROWS] * x[:, INDICES]).sum((0, -1)))


def test_interleaved_gradient():
    batch = sparsebatch.Batch.uniform(
        INDPTR, INDICES, np.zeros((NNZ, NITEMS)), layout="interleaved"
    )
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    found = jax.grad(lambda v: (sj.solve(batch, v, b.T) ** 2).sum())(values.T)
    expected = jax.grad(lambda v: (sj.solve(_batch(), v, b) ** 2).sum())(values)
    _close(found, np.asarray(expected).T)


def test_hessian():
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    loss = lambda b: (sj.solve(_batch(), values, b) ** 2).sum()  # noqa: E731
    inverse = np.linalg.inv(_dense(values))
    expected = np.zeros((NITEMS, N, NITEMS, N))
    for item in range(NITEMS):
        expected[item, :, item] = 2 * inverse[item].T @ inverse[item]
    _close(jax.hessian(loss)(b), expected, rtol=1e-8)


def test_gradients_take_kept_factors():
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    gradient = jax.jit(jax.grad(lambda values, b: (sj.solve(_batch(), values, b) ** 2).sum()))
    sj.clear_cache()
    before = _native.jax_counts()[2]
    first = gradient(values, b).block_until_ready()
    assert _native.jax_counts()[2] == before + 1
    # Those of other values are not taken.
    other = gradient(2 * values, b)
    _close(other, np.asarray(first) / 8, rtol=1e-8)
    with_cg = jax.grad(lambda v: sj.solve(_batch(), v, b, method="bicgstab").sum())
    before = _native.jax_counts()[2]
    with_cg(values).block_until_ready()
    assert _native.jax_counts()[2] == before


# Systems that fail


FAILED = 2


def _failing() -> np.ndarray:
    values = _values(NITEMS)
    values[FAILED, ROWS == 4] = 0
    return values


def test_a_singular_system_is_reported():
    x, status = sj.solve_with_status(_batch(), _failing(), _vectors(NITEMS, N))
    assert [sparsebatch.STATUSES[code] for code in status] == [
        "Singular" if item == FAILED else "Converged" for item in range(NITEMS)
    ]
    assert np.isfinite(x).all()


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_gradients_of_failed_systems_alone_are_nan(wrap):
    values, b = _failing(), _vectors(NITEMS, N)
    loss = lambda values, b: (sj.solve(_batch(), values, b) ** 2).sum()  # noqa: E731
    by_values, by_b = wrap(jax.grad(loss, (0, 1)))(values, b)
    good = [item for item in range(NITEMS) if item != FAILED]
    assert np.isnan(by_values[FAILED]).all() and np.isnan(by_b[FAILED]).all()
    expected = jax.grad(lambda v, b: (sj.solve(_batch(4), v, b) ** 2).sum(), (0, 1))(
        values[good], b[good]
    )
    _close(np.asarray(by_values)[good], expected[0])
    _close(np.asarray(by_b)[good], expected[1])
    assert np.isfinite(wrap(loss)(values, b))


def test_tangents_of_failed_systems_alone_are_nan():
    values, b = _failing(), _vectors(NITEMS, N)
    for tangents in [(values, np.zeros_like(b)), (np.zeros_like(values), b)]:
        x, tangent = jax.jvp(lambda v, b: sj.solve(_batch(), v, b), (values, b), tangents)
        assert np.isfinite(x).all()
        assert np.isnan(tangent).all(1).tolist() == [item == FAILED for item in range(NITEMS)]
        assert np.isnan(tangent).any(1).tolist() == [item == FAILED for item in range(NITEMS)]


def test_gradients_of_failed_systems_are_kept_if_asked_for():
    values, b = _failing(), _vectors(NITEMS, N)
    loss = lambda values, b: sj.solve(_batch(), values, b, on_failure="keep").sum()  # noqa: E731
    by_values, by_b = jax.grad(loss, (0, 1))(values, b)
    assert np.isfinite(by_values).all() and np.isfinite(by_b).all()


def test_the_gradient_by_shared_values_is_nan_if_an_item_fails():
    b = _vectors(NITEMS, N)
    b[1, 0] = np.nan
    loss = lambda values, b: sj.solve(_batch(), values, b).sum()  # noqa: E731
    by_values, by_b = jax.grad(loss, (0, 1))(_values(), b)
    assert np.isnan(by_values).all()
    assert np.isnan(by_b).any(1).tolist() == [item == 1 for item in range(NITEMS)]


def test_derivatives_whose_own_solves_fail_are_nan():
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    x0 = _reference(values, b)
    options = {"method": "bicgstab", "precond": "none", "fallback": False, "maxiter": 0}
    solve = functools.partial(sj.solve_with_status, _batch(), x0=x0, **options)
    # The guesses are solutions, and there are no iterations for anything else.
    assert not solve(values, b)[1].any()
    by_values, by_b = jax.grad(lambda v, b: solve(v, b)[0].sum(), (0, 1))(values, b)
    assert np.isnan(by_values).all() and np.isnan(by_b).all()
    tangent = jax.jvp(lambda b: solve(values, b)[0], (b,), (b,))[1]
    assert np.isnan(tangent).all()
    kept = jax.grad(lambda b: solve(values, b, on_failure="keep")[0].sum())(b)
    assert np.isfinite(kept).all()


# vmap


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None), (1, 2)], ids=str)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("nrhs", [None, 2])
def test_vmap(wrap, transpose, axes, shared, nrhs):
    size = 3
    tail = () if nrhs is None else (nrhs,)
    values = _values(size) if shared else _values(size, NITEMS)
    b = _vectors(size, NITEMS, N, *tail)
    every = values[:, None] if shared else values
    if axes[0] is None:
        values, every = values[0], every[:1]
    if axes[1] is None:
        b = b[0]
    matrices = _dense(every)
    matrices = np.swapaxes(matrices, -1, -2) if transpose else matrices
    sides = (b if axes[1] is not None else b[None]) if nrhs else np.expand_dims(b, -1)
    expected = np.linalg.solve(matrices, sides if sides.ndim == 4 else sides[None])
    expected = expected if nrhs else expected[..., 0]
    arguments = [
        array if axis is None else np.moveaxis(array, 0, axis)
        for array, axis in zip((values, b), axes, strict=True)
    ]
    solve = functools.partial(sj.solve_with_status, _batch(), transpose=transpose)
    x, status = wrap(jax.vmap(solve, axes))(*arguments)
    assert status.shape == (size, NITEMS, *tail) and not status.any()
    _close(x, np.broadcast_to(expected, x.shape))


@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None)], ids=str)
@pytest.mark.parametrize("shared", [False, True])
def test_gradients_of_vmap(axes, shared):
    values = _values(3) if shared else _values(3, NITEMS)
    b = _vectors(3, NITEMS, N)
    values, b = (
        array if axis == 0 else array[0] for array, axis in zip((values, b), axes, strict=True)
    )
    solve = jax.vmap(lambda values, b: sj.solve(_batch(), values, b, rtol=1e-13), axes)
    check_grads(solve, (values, b), order=1, modes=("fwd", "rev"))


def test_vmap_of_gradients_and_of_itself():
    values, b = _values(2, 3, NITEMS), _vectors(2, 3, NITEMS, N)
    gradient = jax.grad(lambda values, b: (sj.solve(_batch(), values, b) ** 2).sum())
    found = jax.jit(jax.vmap(jax.vmap(gradient)))(values, b)
    for place in np.ndindex(2, 3):
        _close(found[place], gradient(values[place], b[place]), rtol=1e-8)


def test_vmap_of_one_matrix_becomes_one_batch():
    one = sparsebatch.Batch.uniform(INDPTR, INDICES, np.zeros(NNZ))
    values, b = _values(40), _vectors(40, N)
    solve = jax.jit(jax.vmap(lambda values, b: sj.solve(one, values, b)))
    assert solve.lower(values, b).as_text().count("custom_call @sparsebatch_solve") == 1
    assert "while" not in solve.lower(values, b).as_text()
    _close(solve(values, b), _reference(values, b))
    # Values that are the same become shared ones.
    solve = jax.jit(jax.vmap(lambda b: sj.solve(one, values[0], b)))
    assert f"(tensor<{NNZ}xf64>, tensor<40x1x{N}xf64>)" in solve.lower(b).as_text()
    _close(solve(b), _reference(values[0], b))


def test_limits_of_each_system_follow_vmap():
    limits = np.array([1000, 1, 1000, 1, 1000])
    options = {"method": "bicgstab", "precond": "none", "fallback": False, "maxiter": limits}
    solve = lambda values, b: sj.solve_with_status(_batch(), values, b, **options)[1]  # noqa: E731
    values, b = _values(3, NITEMS), _vectors(3, NITEMS, N)
    expected = [[0, 1, 0, 1, 0]] * 3
    assert jax.vmap(solve)(values, b).tolist() == expected
    assert jax.vmap(solve, (None, 0))(values[0], b).tolist() == expected
    assert jax.vmap(solve, (0, None))(values[:, 0], b[0]).tolist() == expected
    assert jax.vmap(solve, (None, 0))(values[0, 0], b).tolist() == expected


def test_loops():
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    step = lambda x, _: (sj.solve(_batch(), values, x), None)  # noqa: E731
    x, _ = jax.jit(lambda b: jax.lax.scan(step, b, length=3))(b)
    expected = b
    for _ in range(3):
        expected = _reference(values, expected)
    _close(x, expected)
    gradient = jax.grad(lambda b: jax.lax.scan(step, b, length=2)[0].sum())(b)
    ones = np.ones_like(b)
    _close(gradient, _reference(values, _reference(values, ones, True), True))


# What bad input gets


@pytest.mark.parametrize(
    ("values", "b", "match"),
    [
        (_values(4), _vectors(NITEMS, N), r"values have shape \(4, \d+\), expected \(5, \d+\) or"),
        (_values(NITEMS)[:, 1:], _vectors(NITEMS, N), "values have shape"),
        (_values(NITEMS), _vectors(NITEMS, N + 1), r"b has shape \(5, 13\), expected \(5, 12\)"),
        (_values(NITEMS), _vectors(N), r"b has shape \(12,\), expected \(5, 12\)"),
        (_values(NITEMS), _vectors(NITEMS, N, 0), "b has shape .* expected a right-hand side"),
        (_values(NITEMS), _vectors(NITEMS, N, dtype=np.float32), "b has elements of float32"),
        (_values(NITEMS).astype(int), _vectors(NITEMS, N), "values has elements of int64"),
        (_values(NITEMS), _vectors(NITEMS, N).astype(np.float16), "b has elements of float16"),
        (_values(NITEMS), _vectors(NITEMS, N).astype(complex), "b has elements of complex128"),
        (_values(NITEMS), _vectors(NITEMS, N) > 0, "b has elements of bool"),
        (_values(NITEMS), _vectors(NITEMS, N).astype(object), "b is no array of numbers"),
    ],
    ids=range(11),
)
def test_arrays_that_do_not_fit(values, b, match):
    with pytest.raises(OptionError, match=match):
        sj.solve(_batch(), values, b)
    if np.asarray(b).dtype != object:
        with pytest.raises(OptionError, match=match):
            jax.jit(lambda values, b: sj.solve(_batch(), values, b))(values, b)


def test_options_that_do_not_fit():
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    with pytest.raises(OptionError, match="x0 has shape"):
        sj.solve(_batch(), values, b, x0=b[0])
    with pytest.raises(OptionError, match="x0 has elements of float32"):
        sj.solve(_batch(), values, b, x0=b.astype(np.float32))
    with pytest.raises(OptionError, match="on_failure is 'warn'"):
        sj.solve(_batch(), values, b, on_failure="warn")
    with pytest.raises(OptionError, match="batch is a ndarray"):
        sj.solve(values, values, b)
    with pytest.raises(OptionError, match="gauss"):
        sj.solve(_batch(), values, b, method="gauss")
    with pytest.raises(OptionError, match="maxiter has 3 numbers, expected 5"):
        sj.solve(_batch(), values, b, maxiter=np.array([1, 2, 3]))
    with pytest.raises(OptionError, match="history"):
        sj.solve(_batch(), values, b, history=True)
    with pytest.raises(TypeError, match="'backend' is no option"):
        sj.solve(_batch(), values, b, backend="cpu")
    wide = sparsebatch.Batch.uniform([0, 1], [1], [[1.0]], shape=(1, 2))
    with pytest.raises(OptionError, match="not square"):
        sj.solve(wide, np.ones((1, 1)), np.ones((1, 1)))


def test_errors_of_the_solver_reach_the_caller():
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    with pytest.raises(jax.errors.JaxRuntimeError, match="sparsebatch: solver is lu, expected cg"):
        sj.solve(_batch(), values, b, method="lu", format="csr").block_until_ready()
    # The process goes on.
    _close(sj.solve(_batch(), values, b), _reference(values, b))


def test_a_program_of_another_process_is_refused():
    results = (
        jax.ShapeDtypeStruct((1, 1, N), np.float64),
        jax.ShapeDtypeStruct((1, 1), np.int32),
    )
    call = jax.ffi.ffi_call("sparsebatch_solve", results)
    attributes = {"transpose": np.int32(0), "keep": np.int32(0)}
    with pytest.raises(jax.errors.JaxRuntimeError, match="are not known in this process"):
        jax.block_until_ready(call(_values(1), _vectors(1, 1, N), spec="0" * 32, **attributes))
    with pytest.raises(jax.errors.JaxRuntimeError, match="no attribute spec"):
        jax.block_until_ready(call(_values(1), _vectors(1, 1, N), **attributes))


def test_handlers_check_arrays_themselves():
    sj.solve(_batch(), _values(NITEMS), _vectors(NITEMS, N))
    spec = sj._spec_of(_batch(), {})
    attributes = {"spec": spec.key, "transpose": np.int32(0), "keep": np.int32(0)}

    def call(values, b, shape=(2, 1, N), status=(2, 1), dtype=np.float64):
        results = (jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct(status, np.int32))
        return jax.block_until_ready(
            jax.ffi.ffi_call("sparsebatch_solve", results)(values, b, **attributes)
        )

    values, b = _values(2), _vectors(2, 1, N)
    _close(call(values, b)[0][:, 0], _reference(values, b[:, 0]))
    for arguments in [
        {"values": values[:1], "b": b},
        {"values": values, "b": b[..., 1:]},
        {"values": values, "b": b.astype(np.float32)},
        {"values": values, "b": b, "shape": (2, 1, N - 1)},
        {"values": values, "b": b, "status": (3,)},
        {"values": values, "b": b, "dtype": np.float32},
        {"values": values.astype(int), "b": b},
    ]:
        with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: sparsebatch"):
            call(**arguments)


class _Version(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    ]


class _Metadata(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("version", _Version),
        ("traits", ctypes.c_uint32),
        ("state_type", ctypes.c_int64),
    ]


class _Question(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(_Metadata)),
    ]


class _Functions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("version", _Version),
        ("functions", ctypes.c_void_p * 20),
    ]


class _CallFrame(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("functions", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("rest", ctypes.c_char * 200),
    ]


def _handler(platform: str):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(_native.jax_handler(platform), b"xla._CUSTOM_CALL_TARGET")
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)


def _functions(major: int, minor: int, error_create: int = 0) -> _Functions:
    functions = _Functions(size=ctypes.sizeof(_Functions))
    functions.version = _Version(ctypes.sizeof(_Version), None, major, minor)
    functions.functions[1] = error_create
    return functions


@pytest.mark.parametrize("platform", ["cpu", "CUDA"])
@pytest.mark.parametrize(
    ("theirs", "told"),
    [((0, 1), (0, 1)), ((0, 3), (0, 3)), ((0, 9), (0, 3)), ((1, 0), (0, 3)), (None, (-1, 0))],
    ids=str,
)
def test_handlers_tell_a_version_that_xla_and_they_know(platform, theirs, told):
    metadata = _Metadata(size=ctypes.sizeof(_Metadata), traits=7)
    question = _Question(ctypes.sizeof(_Question), 1, None, ctypes.pointer(metadata))
    frame = _CallFrame(size=ctypes.sizeof(_CallFrame), extension=ctypes.addressof(question))
    if theirs is not None:
        functions = _functions(*theirs)
        frame.functions = ctypes.addressof(functions)
    assert _handler(platform)(ctypes.addressof(frame)) is None
    assert (metadata.version.major, metadata.version.minor) == told
    assert metadata.traits == 0


@pytest.mark.parametrize("platform", ["cpu", "CUDA"])
def test_handlers_refuse_calls_of_other_versions(platform):
    messages = []

    class Arguments(ctypes.Structure):
        _fields_ = [
            ("size", ctypes.c_size_t),
            ("extension", ctypes.c_void_p),
            ("message", ctypes.c_char_p),
            ("code", ctypes.c_int),
        ]

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Arguments))
    def create(arguments):
        assert arguments.contents.size == 28
        messages.append((arguments.contents.message.decode(), arguments.contents.code))
        return 1234

    functions = _functions(1, 0, ctypes.cast(create, ctypes.c_void_p).value)
    frame = _CallFrame(size=ctypes.sizeof(_CallFrame), functions=ctypes.addressof(functions))
    frame.stage = 3
    assert _handler(platform)(ctypes.addressof(frame)) == 1234
    assert messages == [
        (
            "sparsebatch: XLA has version 1.0, "
            "sparsebatch knows XLA's foreign functions 0.1 to 0.3",
            9,
        )
    ]
    # Arrays are missing.
    functions.version.major = 0
    assert _handler(platform)(ctypes.addressof(frame)) == 1234
    assert messages[1] == ("sparsebatch: the call has no array 0", 3)


def test_platforms_without_a_handler():
    with pytest.raises(OptionError, match="no handler for platform tpu"):
        _native.jax_handler("tpu")


# What is kept


def test_patterns_are_analysed_once():
    sj.clear_cache()
    values, b = _values(NITEMS), _vectors(NITEMS, N)
    before = _native.jax_counts()[0]
    solve = jax.jit(lambda values, b: sj.solve(_batch(), values, b))
    for scale in range(1, 4):
        solve(scale * values, b).block_until_ready()
    # Another program, and another batch of the same pattern.
    sj.solve(_batch(), values, b).block_until_ready()
    jax.grad(lambda b: sj.solve(_batch(), values, b).sum())(b).block_until_ready()
    assert _native.jax_counts()[:2] == (before + 1, 1)
    sj.solve(_batch(), values, b, method="lu").block_until_ready()
    assert _native.jax_counts()[:2] == (before + 2, 2)
    sj.clear_cache()
    assert _native.jax_counts()[:2] == (before + 2, 0)
    solve(values, b).block_until_ready()
    assert _native.jax_counts()[:2] == (before + 3, 1)


def test_solvers_that_are_kept_are_limited():
    sj.clear_cache()
    one = sparsebatch.Batch.uniform([0, 1], [0], [1.0])
    for nrhs in range(1, 35):
        x = sj.solve(one, np.array([2.0]), np.ones((1, nrhs)))
        assert (x == 0.5).all()
    assert _native.jax_counts()[1] == 32


def test_keys_are_made_of_content():
    base = sj._spec_of(_batch(), {})
    assert sj._spec_of(_batch(3), {}) == base
    others = [
        sj._spec_of(_batch(), {"rtol": 1e-3}),
        sj._spec_of(_batch(), {"maxiter": np.arange(5)}),
        sj._spec_of(_batch(), {"maxiter": np.arange(5) + 1}),
        sj._spec_of(sparsebatch.Batch.uniform([0, 1], [0], [[1.0]]), {}),
        sj._spec_of(sparsebatch.Batch.uniform([0, 1, 2], [0, 1], [[1.0, 1.0]]), {}),
        sj._spec_of(sparsebatch.Batch.uniform([0, 1, 2], [1, 0], [[1.0, 1.0]]), {}),
        sj._spec_of(_ragged()[0], {}),
    ]
    assert len({spec.key for spec in [base, *others]}) == len(others) + 1


def _resident() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_calls_do_not_leak():
    nitems = 200
    batch = _batch(nitems)
    values, b = jnp.asarray(_values(nitems)), jnp.asarray(_vectors(nitems, N))
    gradient = jax.jit(jax.grad(lambda v, b: (sj.solve(batch, v, b) ** 2).sum(), (0, 1)))
    bad = lambda: sj.solve(batch, values, b, method="lu", format="csr")  # noqa: E731

    def run(count: int) -> None:
        for _ in range(count):
            jax.block_until_ready(gradient(values, b))
            sj.solve(_batch(nitems), values, b).block_until_ready()
        for _ in range(count // 20):
            with pytest.raises(jax.errors.JaxRuntimeError):
                bad().block_until_ready()

    run(300)
    gc.collect()
    before = _resident()
    run(1500)
    gc.collect()
    # One array of values has 90 kB: 1,500 of them that were lost would be 130 MB.
    assert _resident() - before < 20 << 20


def test_threads_solve_at_the_same_time():
    values, b = _values(50, NITEMS), _vectors(NITEMS, N)
    solve = jax.jit(lambda values: sj.solve(_batch(), values, b))
    wrong: list[int] = []

    def work(first: int) -> None:
        for item in range(first, 50, 4):
            if not np.allclose(solve(values[item]), _reference(values[item], b)):
                wrong.append(item)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _run_alone(code: str) -> None:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_without_float64():
    """As most users have it: float64 arrays of NumPy are not rounded silently."""
    code = """
import numpy as np, sparsebatch, sparsebatch.jax
batch = sparsebatch.Batch.uniform([0, 2, 3], [0, 1, 1], np.ones((1, 3)))
values, b = np.array([[2.0, 1.0, 4.0]]), np.array([[3.0, 4.0]])
try:
    sparsebatch.jax.solve(batch, values, b)
except sparsebatch.OptionError as error:
    assert "jax_enable_x64" in str(error)
else:
    raise AssertionError("no error")
x = sparsebatch.jax.solve(batch, values.astype(np.float32), b.astype(np.float32))
assert x.dtype == np.float32 and np.allclose(x, 1), x
"""
    _run_alone(code)


@pytest.mark.parametrize("module", ["jax", "lineax"])
def test_doctests(module):
    """The examples of the documentation, which are for JAX without float64."""
    pytest.importorskip(module)
    code = f"""
import doctest, sys, sparsebatch.{module}
tests = doctest.testmod(sparsebatch.{module})
sys.exit(tests.failed or not tests.attempted)
"""
    _run_alone(code)


# lineax


@pytest.mark.parametrize("nrhs", [None, 2])
def test_lineax(nrhs):
    lineax = pytest.importorskip("lineax")
    from sparsebatch.lineax import BatchLinearOperator, Solver

    values = _values(NITEMS)
    b = _vectors(NITEMS, N) if nrhs is None else _vectors(NITEMS, N, nrhs)
    sides = b[..., None] if nrhs is None else b
    operator = BatchLinearOperator(_batch(), values, nrhs=nrhs)
    dense = _dense(values)
    _close(operator.mv(jnp.asarray(b)), (dense @ sides).reshape(b.shape))
    _close(operator.T.mv(jnp.asarray(b)), (np.swapaxes(dense, 1, 2) @ sides).reshape(b.shape))
    _close(operator.as_matrix() @ b.reshape(-1), (dense @ sides).reshape(-1))
    solve = jax.jit(lambda operator, b: lineax.linear_solve(operator, b, Solver(rtol=1e-13)))
    solution = solve(operator, b)
    expected = np.linalg.solve(dense, sides).reshape(b.shape)
    _close(solution.value, expected)
    assert solution.stats["status"].shape == ((NITEMS,) if nrhs is None else (NITEMS, nrhs))

    def of_arrays(values, b):
        operator = BatchLinearOperator(_batch(), values, nrhs=nrhs)
        return lineax.linear_solve(operator, b, Solver(rtol=1e-13)).value

    check_grads(of_arrays, (values, b), order=1, modes=("fwd", "rev"))
    _close(jax.vmap(of_arrays, (None, 0))(values, np.stack([b, 2 * b]))[1], 2 * expected)


def test_lineax_tells_failures():
    lineax = pytest.importorskip("lineax")
    from sparsebatch.lineax import BatchLinearOperator, Solver

    b = jnp.asarray(_vectors(NITEMS, N))
    operator = BatchLinearOperator(_batch(), _failing())
    solution = lineax.linear_solve(operator, b, Solver(), throw=False)
    assert solution.result == lineax.RESULTS.singular
    assert (solution.stats["status"] != 0).tolist() == [item == FAILED for item in range(NITEMS)]
    with pytest.raises(Exception, match="singular"):
        lineax.linear_solve(operator, b, Solver())
    limited = Solver(method="bicgstab", precond="none", maxiter=1, fallback=False)
    solution = lineax.linear_solve(
        BatchLinearOperator(_batch(), _values(NITEMS)), b, limited, throw=False
    )
    assert solution.result == lineax.RESULTS.max_steps_reached
    with pytest.raises(TypeError, match="'tolerance' is no option"):
        Solver(tolerance=1e-3)
    with pytest.raises(OptionError, match="maxiter is an array"):
        Solver(maxiter=np.arange(3))
    with pytest.raises(OptionError, match="values have shape"):
        BatchLinearOperator(_batch(), _values(3))
    with pytest.raises(Unsupported, match="MatrixLinearOperator"):
        lineax.linear_solve(lineax.MatrixLinearOperator(jnp.eye(N)), b[0], Solver())


# GPU


def _gpu():
    reason = _native.gpu_unavailable()
    if reason is not None:
        pytest.skip(f"no GPU: {reason}")
    try:
        return jax.devices("cuda")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX has no GPU: {error}")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("transpose", [False, True])
def test_gpu_solves_and_gradients_are_those_of_the_cpu(dtype, transpose):
    device = _gpu()
    rtol = 1e-8 if dtype is np.float64 else 1e-3
    values, b = _values(NITEMS, dtype=dtype), _vectors(NITEMS, N, 2, dtype=dtype)
    values[FAILED] = _failing()[FAILED]

    def loss(values, b):
        x, status = sj.solve_with_status(_batch(), values, b, transpose=transpose)
        return (x**2).sum(), (x, status)

    gradient = jax.jit(jax.grad(loss, (0, 1), has_aux=True))
    on_gpu = gradient(*jax.device_put((values, b), device))
    on_cpu = gradient(*jax.device_put((values, b), jax.devices("cpu")[0]))
    assert on_gpu[1][0].devices() == {device}
    assert (on_gpu[1][1] == np.asarray(on_cpu[1][1])).all()
    good = [item for item in range(NITEMS) if item != FAILED]
    _close(np.asarray(on_gpu[1][0])[good], np.asarray(on_cpu[1][0])[good], rtol)
    for found, expected in zip(on_gpu[0], on_cpu[0], strict=True):
        assert np.isnan(np.asarray(found)[FAILED]).all()
        _close(np.asarray(found)[good], np.asarray(expected)[good], rtol)


def test_gpu_guesses_vmap_and_ragged():
    device = _gpu()
    values, b = jax.device_put((_values(3, NITEMS), _vectors(3, NITEMS, N)), device)
    x = _reference(values, b)
    _close(jax.vmap(lambda v, b: sj.solve(_batch(), v, b))(values, b), x)
    options = {"method": "bicgstab", "precond": "jacobi"}
    solve = lambda v, b, x0: sj.solve(_batch(), v, b, x0=x0, **options)  # noqa: E731
    _close(jax.vmap(solve)(values, b, jax.device_put(x, device)), x)
    batch, values, _ = _ragged()
    b = _vectors(15, 2)
    expected = np.asarray(sj.solve(batch, values, b))
    _close(sj.solve(batch, *jax.device_put((values, b), device)), expected)
