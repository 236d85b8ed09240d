"""What the package makes of arrays on a GPU, over a native part that reads host memory as a GPU's."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import sparsebatch
from producers import OnGpu, OnGpuByInterface
from sparsebatch import Batch, OptionError, Solver, Unsupported, _foreign, _native
from systems import tridiagonal

A = tridiagonal(6)
VALUES = A.data * np.array([[1.0], [1.5], [2.0]])
B = np.arange(18.0).reshape(3, 6) + 1
ON_HOST = Batch.uniform(A.indptr, A.indices, VALUES)
EXPECTED = sparsebatch.solve(ON_HOST, B, backend="cpu").x


def memory(array: tuple[int, int]) -> np.ndarray:
    """Numbers at an address."""
    address, size = array
    return np.frombuffer((ctypes.c_double * size).from_address(address))


class Gpu:
    """Stands for the native part: what it was asked for, in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []


@pytest.fixture
def gpu(monkeypatch):
    found = Gpu()

    class DeviceSolver:
        def __init__(self, _patterns, values, *rest):
            found.calls.append(("made", values[0]))
            found.made_with = rest
            self.pending = None

        def keeps_factors(self):
            return False

        def factor(self, values):
            found.calls.append(("factor", values[0]))

        def solve(self, by, values, b, x, from_x, progress, limits):
            found.calls.append((by, values[0], b[0], x[0], from_x))
            found.limits = limits
            batch = Batch.uniform(A.indptr, A.indices, memory(values).reshape(3, -1))
            solver = _native_solver(batch)
            x = memory(x)
            if not from_x:
                x[:] = 0
            report = solver.solve("values", memory(b), x, None, limits)
            if limits is not None and limits["active"] is not None:
                # As kernels do, where the native solver of host memory keeps the guess.
                x.reshape(3, 6)[memory(b).reshape(3, 6).any(1) == 0] = 0
            return report

        def enqueue(self, by, values, b, x, from_x):
            self.pending = by, values, b, x, from_x
            found.calls.append(("enqueue", b[0], x[0]))

        def finish(self, by, values, b, x):
            assert self.pending[:4] == (by, values, b, x)
            return self.solve(*self.pending, None, None)

    monkeypatch.setattr(_native, "DeviceSolver", DeviceSolver)
    monkeypatch.setattr(_native, "ordinal_of", lambda address: 0)
    monkeypatch.setattr(
        _native, "synchronize", lambda ordinal, stream: found.calls.append(("wait", stream))
    )
    monkeypatch.setattr(
        _native, "to_host", lambda ordinal, stream, address, size: ctypes.string_at(address, size)
    )
    monkeypatch.setattr(sparsebatch._solve, "find_nvrtc", lambda: None)
    monkeypatch.setattr(_foreign, "cupy_or_none", lambda: None)
    return found


def _native_solver(batch):
    return Solver(batch, backend="cpu", method="lu")._engine.native


WRAPPERS = [OnGpu, OnGpuByInterface]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_memory_is_used_where_it_lies(gpu, wrap):
    values, b, x = VALUES.copy(), B.copy(), np.zeros_like(B)
    solver = Solver(Batch.uniform(A.indptr, A.indices, wrap(values)))
    out = wrap(x)
    result = solver.solve(wrap(b), out=out)
    assert result.x is out
    np.testing.assert_allclose(x, EXPECTED, rtol=1e-12)
    places = [array.ctypes.data for array in (values, b, x)]
    assert gpu.calls == [("made", places[0]), ("values", *places, False)]
    # Ordinal, stream and allocator.
    assert gpu.made_with[-3:] == (0, 0, None)
    solver.enqueue(wrap(b), out)
    assert solver.finish().x is out


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_what_needs_cupy_says_so(gpu, wrap):
    solver = Solver(Batch.uniform(A.indptr, A.indices, wrap(VALUES)))
    b, out = wrap(B), wrap(np.zeros_like(B))
    with pytest.raises(Unsupported, match="^a result without out, .* needs CuPy, which is not inst"):
        solver.solve(b)
    with pytest.raises(Unsupported, match="^an array that is not in C order, .* needs CuPy"):
        solver.solve(wrap(np.asfortranarray(B)), out=out)
    with pytest.raises(Unsupported, match="^a copy to an array of an unknown library needs CuPy"):
        solver.solve(b, b, out=out)


def test_streams_are_objects_of_any_library_or_addresses(gpu):
    class Cuda:
        def __cuda_stream__(self):
            return 0, 64

    class Cupy:
        ptr = 64

    class Torch:
        cuda_stream = 64

    for stream in (64, np.uint64(64), Cuda(), Cupy(), Torch()):
        values = OnGpuByInterface(VALUES)
        solver = Solver(Batch.uniform(A.indptr, A.indices, values), stream=stream)
        assert solver._engine.stream == 64 and solver._engine.stream_owner is stream
    for stream in (True, "64", object(), 6.4):
        values = OnGpuByInterface(VALUES)
        with pytest.raises(sparsebatch.OptionError, match="^stream is .*, expected a stream of"):
            Solver(Batch.uniform(A.indptr, A.indices, values), stream=stream)


def test_streams_of_producers_come_first(gpu):
    values = OnGpuByInterface(VALUES)
    solver = Solver(Batch.uniform(A.indptr, A.indices, values), stream=64)
    out = OnGpuByInterface(np.zeros_like(B))
    gpu.calls.clear()
    solver.solve(OnGpuByInterface(B, stream=128), out=out)
    solver.solve(OnGpuByInterface(B, stream=64), out=out)
    solver.solve(OnGpuByInterface(B, stream=1), out=out)
    solver.solve(OnGpu(B), out=out)
    solver.solve(OnGpuByInterface(B), out=out)
    waits = [call[1] if call[0] == "wait" else "solve" for call in gpu.calls]
    assert waits == [128, "solve", "solve", 0, "solve", 0, "solve", "solve"]
    # Without stream=, that of the values.
    gpu.calls.clear()
    values = OnGpuByInterface(VALUES, stream=96)
    solver = Solver(Batch.uniform(A.indptr, A.indices, values))
    assert gpu.made_with[-2] == 96


def test_outputs_that_do_not_fit(gpu):
    solver = Solver(Batch.uniform(A.indptr, A.indices, OnGpu(VALUES)))
    b = OnGpu(B)
    for out, message in (
        (np.zeros_like(B), "out is not an array on cuda:0"),
        (OnGpu(B, flags=1), "out is read-only, expected an array to write to"),
        (OnGpu(B[:2]), r"out has shape \(2, 6\), expected \(3, 6\)"),
        (OnGpu(B, says=(2, 1), has=(2, 1)), "out is not an array on cuda:0"),
    ):
        with pytest.raises(OptionError, match=f"^{message}$"):
            solver.solve(b, out=out)
    with pytest.raises(OptionError, match="^b lies on cuda:1, the values of the matrices on cuda:0"):
        solver.solve(OnGpu(B, says=(2, 1), has=(2, 1)), out=b)


def test_index_arrays_are_copied_to_the_host(gpu):
    indptr, indices = A.indptr.astype(np.int32), A.indices.astype(np.int64)
    batch = Batch.uniform(
        OnGpu(indptr, code=0, bits=32), OnGpuByInterface(indices), OnGpuByInterface(VALUES)
    )
    assert_array_equal(batch.indptr, indptr)
    assert_array_equal(batch.indices, indices)
    assert_array_equal(batch.item_values(1), VALUES[1])


def test_limits_of_a_call_are_passed_on(gpu):
    solver = Solver(Batch.uniform(A.indptr, A.indices, OnGpu(VALUES)))
    x = np.zeros_like(B)
    result = solver.solve(OnGpu(B), out=OnGpu(x), active=[True, False, True], maxiter=7)
    assert gpu.limits["active"].tolist() == [1, 0, 1]
    assert (gpu.limits["maxiter"], gpu.limits["rtol"]) == (7, None)
    assert list(result.report.status) == ["Converged", "Inactive", "Converged"]
    assert_array_equal(x[1], 0)
    solver.solve(OnGpu(B), out=OnGpu(x))
    assert gpu.limits is None


class Cuda:
    """PyTorch's `torch.cuda`, as far as an allocator needs it."""

    def __init__(self) -> None:
        self.alive: dict[int, Any] = {}

    def caching_allocator_alloc(self, size, device, stream):
        assert (device, stream) == (0, 64)
        address = 512 * (1 + len(self.alive))
        self.alive[address] = size
        return address

    def caching_allocator_delete(self, address):
        del self.alive[address]


def test_memory_of_torch(gpu, monkeypatch):
    import sys
    import types

    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    batch = Batch.uniform(A.indptr, A.indices, OnGpu(VALUES))
    Solver(batch, stream=64, allocator="torch")
    assert isinstance(gpu.made_with[-1], _native.Allocator)
    # That of the trial was given back.
    assert cuda.alive == {}
    gpu.made_with[-1].try_out(4096, 64)
    assert cuda.alive == {}
