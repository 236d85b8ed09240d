"""Limits and active systems of one call, and allocators, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import LIBRARIES, N, Problem, Ragged, close

import sparsebatch


@pytest.fixture(params=list(LIBRARIES))
def library(request):
    return LIBRARIES[request.param]()


# Limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cg", "bicgstab"])
def test_limits_are_those_of_a_solver_that_was_made_with_them(library, method):
    p = Problem().symmetric()
    values, b = library.put(p.values), library.put(p.b)
    options = {"method": method, "precond": "none", "fallback": False, "on_failure": "report"}
    solver = sparsebatch.Solver(p.batch(values), **options)
    plain = library.get(solver.solve(b).x)
    for limits in ({"rtol": 1e-2}, {"rtol": np.logspace(-1, -9, N)}, {"maxiter": 2}):
        found = solver.solve(b, **limits)
        expected = sparsebatch.Solver(p.batch(values), **options, **limits).solve(b)
        assert np.array_equal(library.get(found.x), library.get(expected.x))
        assert np.array_equal(found.report.iterations, expected.report.iterations)
        assert np.array_equal(found.report.status, expected.report.status)
        assert np.array_equal(library.get(solver.solve(b).x), plain)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu", "pivoting-lu"])
def test_systems_that_are_not_active_keep_their_guess(library, method, transpose):
    p = Problem()
    p.b[0] = 0
    x0 = np.random.default_rng(5).standard_normal(p.b.shape)
    active = np.arange(N) % 3 == 1
    solver = sparsebatch.Solver(p.batch(library.put(p.values)), method=method)
    b, guess = library.put(p.b), library.put(x0)
    whole = library.get(solver.solve(b, guess, transpose=transpose).x)
    found = solver.solve(b, guess, transpose=transpose, active=active)
    assert np.array_equal(library.get(found.x), np.where(active[:, None], whole, x0))
    assert found.report.all_converged and found.report.nactive == active.sum()
    assert np.array_equal(library.get(guess), x0)
    if library.can_be_written:
        solver.solve(b, guess, transpose=transpose, active=active, out=guess)
        assert np.array_equal(library.get(guess), np.where(active[:, None], whole, x0))


def test_ragged_interleaved_and_several_right_hand_sides(library):
    p, r = Problem(), Ragged()
    active = np.arange(len(r.nrows)) % 2 == 0
    solver = sparsebatch.Solver(r.batch(library.put(r.values)))
    where = np.repeat(active, r.nrows)
    whole = library.get(solver.solve(library.put(r.b)).x)
    found = library.get(solver.solve(library.put(r.b), active=active).x)
    assert np.array_equal(found, np.where(where, whole, 0))
    half = np.arange(N) % 2 == 0
    values = library.put(np.ascontiguousarray(p.values.T))
    solver = sparsebatch.Solver(p.batch(values, layout="interleaved"))
    b = library.put(np.ascontiguousarray(p.b.T))
    whole = library.get(solver.solve(b).x)
    assert np.array_equal(library.get(solver.solve(b, active=half).x), np.where(half, whole, 0))
    two = sparsebatch.Solver(p.batch(library.put(p.values)), nrhs=2)
    b = library.put(np.stack([p.b, 2 * p.b], -1))
    mask = np.stack([half, ~half], -1)
    whole = library.get(two.solve(b).x)
    found = library.get(two.solve(b, active=mask).x)
    assert np.array_equal(found, np.where(mask[:, None, :], whole, 0))


def test_host_arrays_through_the_gpu():
    p = Problem()
    solver = sparsebatch.Solver(p.batch(p.values), backend="gpu")
    active = np.arange(N) < 5
    whole = solver.solve(p.b).x
    found = solver.solve(p.b, active=active, rtol=1e-10)
    assert np.array_equal(found.x, np.where(active[:, None], whole, 0))
    assert np.array_equal(solver.solve(p.b).x, whole)


# Allocators ---------------------------------------------------------------------------------------


class Recorder:
    """Memory of CuPy, counted; the `limit`-th allocation is refused."""

    def __init__(self, cupy, limit=None):
        self.cupy, self.limit = cupy, limit
        self.count, self.held = 0, {}

    def malloc(self, nbytes, stream):
        self.count += 1
        if self.limit is not None and self.count > self.limit:
            raise MemoryError("no more")
        pointer = self.cupy.cuda.alloc(nbytes)
        self.held[pointer.ptr] = pointer
        return pointer.ptr

    def free(self, address, nbytes, stream):
        assert self.held.pop(address).mem.size >= nbytes


@pytest.mark.parametrize("allocator", ["torch", "cupy", "driver"])
def test_allocators_by_name(library, allocator):
    if allocator != "driver":
        LIBRARIES[allocator]()
    p = Problem()
    expected = sparsebatch.solve(p.batch(p.values), p.b, backend="cpu").x
    with sparsebatch.Solver(p.batch(library.put(p.values)), allocator=allocator) as solver:
        solver.factor()
        close(library.get(solver.solve(library.put(p.b), library.put(p.b)).x), expected)


def test_memory_of_torch_is_counted_and_given_back():
    torch = LIBRARIES["torch"]()
    p = Problem(nitems=2000, n=40)
    values, b = torch.put(p.values), torch.put(p.b)
    allocated = torch.module.cuda.memory_allocated
    before = allocated()
    solver = sparsebatch.Solver(p.batch(values))
    assert allocated() > before
    x = solver.solve(b).x
    solver.close()
    del x
    assert allocated() == before
    solver = sparsebatch.Solver(p.batch(values), allocator="driver")
    assert allocated() == before


def test_an_object_with_malloc_and_free():
    cupy = LIBRARIES["cupy"]()
    p = Problem()
    recorder = Recorder(cupy.module)
    solver = sparsebatch.Solver(p.batch(cupy.put(p.values)), allocator=recorder)
    made = recorder.count
    assert made > 1
    b, out = cupy.put(p.b), cupy.put(np.zeros_like(p.b))
    solver.enqueue(b, out)
    # Nothing is allocated.
    assert recorder.count == made
    solver.finish()
    close(cupy.get(out), sparsebatch.solve(p.batch(p.values), p.b, backend="cpu").x)
    solver.close()
    assert not recorder.held


def test_memory_that_is_refused():
    cupy = LIBRARIES["cupy"]()
    p = Problem()
    # The first allocation is the trial.
    recorder = Recorder(cupy.module, limit=1)
    with pytest.raises(sparsebatch.OutOfMemory) as caught:
        sparsebatch.Solver(p.batch(cupy.put(p.values)), allocator=recorder)
    assert str(caught.value) == "the allocator of GPU memory raised MemoryError: no more"
    assert not recorder.held


def test_graphs_are_captured_with_the_memory_of_torch():
    torch = LIBRARIES["torch"]()
    p = Problem()
    values, b, out = torch.put(p.values), torch.put(p.b), torch.put(np.zeros_like(p.b))
    cuda = torch.module.cuda
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        solver = sparsebatch.Solver(p.batch(values), allocator="torch")
        solver.enqueue(b, out)
        solver.finish()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=stream):
            solver.enqueue(b, out)
        b.mul_(2)
        graph.replay()
        assert solver.finish().report.all_converged
    expected = sparsebatch.solve(p.batch(p.values), 2 * p.b, backend="cpu").x
    close(torch.get(out), expected)


def test_tensors_outlive_work_on_other_streams():
    torch = LIBRARIES["torch"]()
    p = Problem(nitems=3000, n=60)
    values = torch.put(p.values)
    other = torch.module.cuda.Stream()
    torch.module.cuda.synchronize()
    solver = sparsebatch.Solver(p.batch(values), stream=other.cuda_stream)
    out = torch.put(np.zeros_like(p.b))
    b = torch.put(p.b)
    torch.module.cuda.synchronize()
    solver.enqueue(b, out)
    # Without record_stream this memory would be that of b.
    solver._engine.pending = (*solver._engine.pending[:2], out, out)
    del b
    noise = [torch.module.full((3000, 60), 7.0, dtype=torch.module.float64, device="cuda") for _ in range(8)]
    torch.module.cuda.synchronize()
    assert len(noise) == 8
    close(torch.get(out), sparsebatch.solve(p.batch(p.values), p.b, backend="cpu").x)
