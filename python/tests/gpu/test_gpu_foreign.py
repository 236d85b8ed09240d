"""Arrays on a GPU of libraries that the package does not know, by one protocol each."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from arrays import LIBRARIES, N, ROWS, Problem, Ragged, close

import sparsebatch
from sparsebatch import _foreign, _native


@pytest.fixture
def cupy():
    return LIBRARIES["cupy"]().module


class ByDlpack:
    """Has nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class ByInterface:
    """Has nothing but `__cuda_array_interface__`."""

    def __init__(self, array, **changes):
        self.array, self.changes = array, changes

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, **self.changes}


WRAPPERS = [ByDlpack, ByInterface]


def on_cpu(p, **options):
    return sparsebatch.solve(p.batch(p.values), p.b, backend="cpu", **options).x


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_solves_use_the_memory_where_it_lies(cupy, wrap, dtype):
    p = Problem(dtype)
    values, b, x = (cupy.asarray(array) for array in (p.values, p.b, np.zeros_like(p.b)))
    batch = p.batch(wrap(values))
    assert batch.values.address == values.data.ptr
    out = wrap(x)
    result = sparsebatch.solve(batch, wrap(b), out=out)
    assert result.x is out
    assert result.report.backend == "gpu" and result.report.all_converged
    close(cupy.asnumpy(x), on_cpu(p))
    without = sparsebatch.solve(batch, wrap(b), wrap(b))
    assert isinstance(without.x, cupy.ndarray)
    close(without.x.get(), on_cpu(p))


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_without_cupy_only_out_is_needed(cupy, wrap, monkeypatch):
    p = Problem()
    values, b, x = (cupy.asarray(array) for array in (p.values, p.b, np.zeros_like(p.b)))
    monkeypatch.setattr(_foreign, "cupy_or_none", lambda: None)
    solver = sparsebatch.Solver(p.batch(wrap(values)))
    solver.solve(wrap(b), out=wrap(x))
    close(cupy.asnumpy(x), on_cpu(p))
    with pytest.raises(sparsebatch.Unsupported, match="needs CuPy, which is not installed"):
        solver.solve(wrap(b))
    with pytest.raises(sparsebatch.Unsupported, match="not in C order"):
        solver.solve(wrap(cupy.asfortranarray(b)), out=wrap(x))


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_other_orders_right_hand_sides_and_gradients(cupy, wrap):
    p = Problem()
    solver = sparsebatch.Solver(p.batch(wrap(cupy.asarray(p.values))))
    close(solver.solve(wrap(cupy.asfortranarray(cupy.asarray(p.b)))).x.get(), on_cpu(p))
    solver.factor()
    transposed = solver.solve(wrap(cupy.asarray(p.b)), transpose=True)
    close(transposed.x.get(), on_cpu(p, transpose=True))
    gradient = solver.value_gradient(wrap(cupy.asarray(p.b)), wrap(transposed.x))
    host = sparsebatch.Solver(p.batch(p.values), backend="cpu")
    close(cupy.asnumpy(gradient), host.value_gradient(p.b, transposed.x.get()))
    many = np.stack([p.b, 2 * p.b], -1)
    two = sparsebatch.Solver(p.batch(wrap(cupy.asarray(p.values))), nrhs=2)
    out = cupy.zeros_like(cupy.asarray(many))
    two.solve(wrap(cupy.asarray(many)), out=wrap(out))
    close(out.get()[..., 1], 2 * on_cpu(p))


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_index_arrays_ragged_batches_and_products(cupy, wrap):
    p = Ragged()
    batch = sparsebatch.Batch.ragged(
        nrows=wrap(cupy.asarray(p.nrows)), indptr=wrap(cupy.asarray(p.indptr)),
        indices=wrap(cupy.asarray(p.indices)), values=wrap(cupy.asarray(p.values)),
    )  # fmt: skip
    host = sparsebatch.solve(p.batch(p.values), p.b, backend="cpu").x
    close(sparsebatch.solve(batch, wrap(cupy.asarray(p.b))).x.get(), host)
    q = Problem()
    product = sparsebatch.Spmv(q.batch(wrap(cupy.asarray(q.values))))
    expected = sparsebatch.Spmv(q.batch(q.values))(q.b)
    close(cupy.asnumpy(product(wrap(cupy.asarray(q.b)))), expected)
    y = cupy.zeros_like(cupy.asarray(q.b))
    target = wrap(y)
    assert product(wrap(cupy.asarray(q.b)), y=target) is target
    close(y.get(), expected)


def test_a_read_only_out_is_refused(cupy):
    p = Problem()
    b = cupy.asarray(p.b)
    data = (b.data.ptr, True)
    with pytest.raises(sparsebatch.OptionError, match="^out is read-only"):
        sparsebatch.solve(p.batch(cupy.asarray(p.values)), b, out=ByInterface(b, data=data))


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_the_work_of_the_producer_comes_first(cupy, wrap):
    p = Problem(nitems=2000, n=60)
    values, b = cupy.asarray(p.values), cupy.asarray(p.b)
    cupy.cuda.Device().synchronize()
    own = cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros_like(b)
    solver = sparsebatch.Solver(p.batch(values), stream=cupy.cuda.Stream(non_blocking=True))
    with own:
        late = cupy.zeros_like(b)
        for _ in range(200):
            late += b / 200
        given = wrap(late)
        solver.solve(given, out=x)
    np.testing.assert_allclose(x.get(), on_cpu(p), rtol=1e-6, atol=1e-8)


def test_addresses_are_looked_up(cupy):
    array = cupy.zeros(4)
    assert _native.ordinal_of(array.data.ptr) == array.device.id
    with pytest.raises(sparsebatch.OptionError, match="memory of a GPU"):
        _native.ordinal_of(np.zeros(4).ctypes.data)


def test_arrays_of_numba(cupy):
    numba = pytest.importorskip("numba.cuda", reason="Numba is not installed")
    p = Problem()
    batch = p.batch(numba.to_device(p.values))
    close(sparsebatch.solve(batch, numba.to_device(p.b)).x.get(), on_cpu(p))


def test_nothing_leaks(cupy):
    p = Problem()
    b = cupy.asarray(p.b)
    solver = sparsebatch.Solver(p.batch(cupy.asarray(p.values)))
    out = cupy.zeros_like(b)
    before = sys.getrefcount(b)
    for _ in range(100):
        solver.solve(ByDlpack(b), out=ByDlpack(out))
    assert sys.getrefcount(b) == before
    assert (N, ROWS) == p.b.shape
