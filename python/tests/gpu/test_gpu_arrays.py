"""Solves of CuPy, PyTorch and JAX arrays on a GPU, against solves of the same on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import LIBRARIES, N, ROWS, Problem, Ragged, close

import sparsebatch

pytestmark = pytest.mark.filterwarnings("error::sparsebatch.NotConvergedWarning")


@pytest.fixture(params=list(LIBRARIES))
def library(request):
    return LIBRARIES[request.param]()


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    return np.dtype(request.param)


def on_cpu(batch, b, **options):
    return sparsebatch.solve(batch, b, backend="cpu", **options).x


def check(library, result, expected):
    assert library.is_on_gpu(result.x)
    assert result.report.all_converged and result.report.backend.startswith("gpu")
    close(library.get(result.x), expected)


# Layouts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu", "pivoting-lu"])
def test_uniform(library, dtype, method, transpose):
    p = Problem(dtype)
    options = {"method": method, "transpose": transpose}
    batch = p.batch(library.put(p.values))
    result = sparsebatch.solve(batch, library.put(p.b), **options)
    check(library, result, on_cpu(p.batch(p.values), p.b, **options))


def test_symmetric_matrices_by_cg(library, dtype):
    p = Problem(dtype).symmetric()
    for precond in ("auto", "none", "jacobi", "ic0"):
        options = {"method": "cg", "precond": precond}
        result = sparsebatch.solve(p.batch(library.put(p.values)), library.put(p.b), **options)
        check(library, result, on_cpu(p.batch(p.values), p.b, **options))


@pytest.mark.parametrize("transpose", [False, True])
def test_shared(library, dtype, transpose):
    p = Problem(dtype)
    batch = p.batch(library.put(p.values[0]), nitems=N)
    expected = on_cpu(p.batch(p.values[0], nitems=N), p.b, transpose=transpose)
    check(library, sparsebatch.solve(batch, library.put(p.b), transpose=transpose), expected)


@pytest.mark.parametrize("transpose", [False, True])
def test_interleaved(library, dtype, transpose):
    p = Problem(dtype)
    batch = p.batch(library.put(np.ascontiguousarray(p.values.T)), layout="interleaved")
    b = library.put(np.ascontiguousarray(p.b.T))
    result = sparsebatch.solve(batch, b, transpose=transpose)
    check(library, result, on_cpu(p.batch(p.values), p.b, transpose=transpose).T)


def test_one_matrix(library, dtype):
    p = Problem(dtype)
    result = sparsebatch.solve(p.batch(library.put(p.values[0])), library.put(p.b[0]))
    check(library, result, on_cpu(p.batch(p.values[0]), p.b[0]))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu"])
def test_several_right_hand_sides(library, dtype, method, transpose):
    p = Problem(dtype)
    b = np.stack([p.b, 2 * p.b[::-1], p.b**2], -1)
    options = {"method": method, "transpose": transpose}
    result = sparsebatch.solve(p.batch(library.put(p.values)), library.put(b), **options)
    check(library, result, on_cpu(p.batch(p.values), b, **options))
    assert len(result.report) == 3 * N


@pytest.mark.parametrize("transpose", [False, True])
def test_ragged(library, dtype, transpose):
    p = Ragged(dtype)
    result = sparsebatch.solve(
        p.batch(library.put(p.values)), library.put(p.b), transpose=transpose
    )
    check(library, result, on_cpu(p.batch(p.values), p.b, transpose=transpose))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu"])
def test_several_right_hand_sides_of_a_ragged_batch(library, dtype, method, transpose):
    p = Ragged(dtype)
    b = np.stack([p.b, 2 * p.b[::-1], p.b**2], -1)
    options = {"method": method, "transpose": transpose}
    expected = on_cpu(p.batch(p.values), b, **options)
    batch = p.batch(library.put(p.values))
    check(library, sparsebatch.solve(batch, library.put(b), **options), expected)
    guessed = sparsebatch.solve(batch, library.put(b), library.put(expected), **options)
    check(library, guessed, expected)
    if library.name != "jax":
        out = library.put(np.zeros_like(b))
        result = sparsebatch.solve(batch, library.put(b), out=out, **options)
        assert result.x is out
        check(library, result, expected)


def test_vectors_with_a_last_axis_of_one(library):
    p = Problem()
    b = library.put(p.b[..., None].copy())
    expected = on_cpu(p.batch(p.values), p.b)[..., None]
    solver = sparsebatch.Solver(p.batch(library.put(p.values)))
    check(library, solver.solve(b), expected)
    check(library, solver.solve(b, library.put(0.9 * expected)), expected)
    # A system that is not active keeps its guess, though its right-hand side is 0.
    active = np.arange(N) != 2
    zeroed = np.where(active[:, None, None], p.b[..., None], 0)
    out = None if library.name == "jax" else library.put(np.zeros_like(expected))
    guess = library.put(np.ones_like(expected))
    x = solver.solve(library.put(zeroed), guess, active=active, out=out).x
    close(library.get(x)[active], expected[active])
    assert (library.get(x)[2] == 1).all()


def test_products_of_a_ragged_batch_with_several_vectors(library):
    p = Ragged()
    x = np.stack([p.b, 2 * p.b[::-1], p.b**2], -1)
    expected = sparsebatch.Spmv(p.batch(p.values), nrhs=3)(x)
    product = sparsebatch.Spmv(p.batch(library.put(p.values)), nrhs=3)
    close(library.get(product(library.put(x))), expected)


@pytest.mark.parametrize("nrhs", [1, 3])
def test_gradients_of_a_ragged_batch(library, dtype, nrhs):
    p = Ragged(dtype)
    b = p.b if nrhs == 1 else np.stack([p.b, 2 * p.b[::-1], p.b**2], -1)
    on_host = sparsebatch.Solver(p.batch(p.values), nrhs=nrhs, backend="cpu")
    solver = sparsebatch.Solver(p.batch(library.put(p.values)), nrhs=nrhs)
    expected = on_host.value_gradient(b, b[::-1].copy())
    found = solver.value_gradient(library.put(b), library.put(b[::-1].copy()))
    close(library.get(found), expected)


@pytest.mark.parametrize("kind", ["uniform", "ragged"])
def test_arrays_in_host_memory_are_solved_on_the_gpu(dtype, kind):
    p = Problem(dtype) if kind == "uniform" else Ragged(dtype)
    result = sparsebatch.solve(p.batch(p.values), p.b, backend="gpu")
    assert isinstance(result.x, np.ndarray) and result.report.backend.startswith("gpu")
    close(result.x, on_cpu(p.batch(p.values), p.b))


def test_orders_of_memory(library):
    if library.name == "jax":
        pytest.skip("arrays of JAX have one order")
    p = Problem()
    expected = on_cpu(p.batch(p.values), p.b)
    values, b = library.put(p.values.T.copy()).T, library.put(p.b.T.copy()).T
    check(library, sparsebatch.solve(p.batch(values), b), expected)


def test_an_empty_batch(library):
    p = Problem()
    result = sparsebatch.solve(p.batch(library.put(p.values[:0])), library.put(p.b[:0]))
    assert tuple(result.x.shape) == (0, ROWS) and len(result.report) == 0


# Solvers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu"])
def test_factors_are_kept(library, dtype, method):
    p = Problem(dtype)
    solver = sparsebatch.Solver(p.batch(library.put(p.values)), method=method)
    solver.factor()
    cpu = p.batch(p.values)
    for b in (p.b, p.b[::-1].copy()):
        for transpose in (False, True):
            result = solver.solve(library.put(b), transpose=transpose)
            check(library, result, on_cpu(cpu, b, transpose=transpose))


def test_near_factors_serve_other_values(library, dtype):
    p = Problem(dtype)
    solver = sparsebatch.Solver(p.batch(library.put(p.values)), method="lu")
    with pytest.raises(sparsebatch.OptionError, match="a call of factor before"):
        solver.solve(library.put(p.b), near=True)
    solver.factor()
    values = (p.values * (1 + 0.01 * np.sin(np.arange(p.values.size)).reshape(p.values.shape)))
    values = values.astype(dtype)
    solver.update_values(library.put(values))
    check(library, solver.solve(library.put(p.b), near=True), on_cpu(p.batch(values), p.b))
    check(library, solver.solve(library.put(p.b)), on_cpu(p.batch(values), p.b))


@pytest.mark.parametrize("shape", ["one", "each"])
def test_values_are_updated_with_a_shift(library, dtype, shape):
    p = Problem(dtype)
    shift = 0.01 if shape == "one" else np.linspace(0.005, 0.02, N).astype(dtype)
    other = (p.values * 0.5).astype(dtype)
    solver = sparsebatch.Solver(p.batch(library.put(p.values)))
    solver.update_values(library.put(other), shift=shift)
    host = sparsebatch.Solver(p.batch(p.values), backend="cpu")
    host.update_values(other, shift=shift)
    check(library, solver.solve(library.put(p.b)), host.solve(p.b).x)
    if shape == "each":
        solver.update_values(library.put(other), shift=library.put(shift))
        check(library, solver.solve(library.put(p.b)), host.solve(p.b).x)


def test_values_are_read_where_they_lie(library):
    if not library.can_be_written:
        pytest.skip("arrays of JAX do not change")
    p = Problem()
    values, b = library.put(p.values), library.put(p.b)
    solver = sparsebatch.Solver(p.batch(values))
    check(library, solver.solve(b), on_cpu(p.batch(p.values), p.b))
    values *= 2
    check(library, solver.solve(b), on_cpu(p.batch(2 * p.values), p.b))


def test_guesses(library):
    p = Problem()
    b = library.put(p.b)
    solver = sparsebatch.Solver(p.batch(library.put(p.values)), method="bicgstab")
    first = solver.solve(b)
    assert first.report.iterations.min() > 0
    again = solver.solve(b, first.x)
    assert again.report.iterations.max() == 0
    close(library.get(again.x), library.get(first.x))
    # The guess was not written to.
    third = solver.solve(b, library.put(np.ones_like(p.b)))
    check(library, third, on_cpu(p.batch(p.values), p.b))


@pytest.mark.parametrize("nrhs", [1, 2])
def test_solutions_are_written_to_out(library, nrhs):
    p = Problem()
    b = p.b if nrhs == 1 else np.stack([p.b, -p.b], -1)
    solver = sparsebatch.Solver(p.batch(library.put(p.values)), nrhs=nrhs)
    out = library.put(np.zeros_like(b))
    if not library.can_be_written:
        with pytest.raises(sparsebatch.OptionError, match="cannot be written to"):
            solver.solve(library.put(b), out=out)
        return
    address = library.address(out)
    result = solver.solve(library.put(b), out=out)
    assert result.x is out and library.address(result.x) == address
    check(library, result, on_cpu(p.batch(p.values), b))


def test_right_hand_sides_are_not_changed(library):
    p = Problem()
    values, b = library.put(p.values), library.put(p.b)
    solver = sparsebatch.Solver(p.batch(values))
    for transpose in (False, True):
        solver.solve(b, transpose=transpose)
    assert np.array_equal(library.get(b), p.b) and np.array_equal(library.get(values), p.values)


@pytest.mark.parametrize("nrhs", [1, 2])
@pytest.mark.parametrize("shared", [False, True])
def test_gradients_by_values(library, dtype, nrhs, shared):
    p = Problem(dtype)
    x, adjoint = p.b, p.b[::-1].copy()
    if nrhs == 2:
        x, adjoint = np.stack([x, 2 * adjoint], -1), np.stack([adjoint, x], -1)
    values, options = (p.values[0], {"nitems": N}) if shared else (p.values, {})
    host = sparsebatch.Solver(p.batch(values, **options), nrhs=nrhs, backend="cpu")
    solver = sparsebatch.Solver(p.batch(library.put(values), **options), nrhs=nrhs)
    gradient = solver.value_gradient(library.put(adjoint), library.put(x))
    assert library.is_on_gpu(gradient)
    close(library.get(gradient), host.value_gradient(adjoint, x))


# Failures -----------------------------------------------------------------------------------------


def test_failures_are_told_for_each_system(library):
    p = Problem()
    p.values[5] = 0
    batch, b = p.batch(library.put(p.values)), library.put(p.b)
    result = sparsebatch.solve(batch, b, on_failure="report")
    assert np.flatnonzero(~result.report.converged).tolist() == [5]
    with pytest.warns(sparsebatch.NotConvergedWarning, match=f"1 of {N} systems"):
        sparsebatch.solve(batch, b)
    with pytest.raises(sparsebatch.NotConverged) as caught:
        sparsebatch.solve(batch, b, on_failure="raise")
    assert library.is_on_gpu(caught.value.result.x)


# Bad input ----------------------------------------------------------------------------------------


def test_arrays_of_other_devices_and_types_are_refused(library):
    p = Problem()
    values, b = library.put(p.values), library.put(p.b)
    batch = p.batch(values)
    refused = [
        (batch, p.b, {}, "b lies in host memory"),
        (batch, library.put(p.b.astype(np.float32)), {}, "b has elements of float32"),
        (batch, library.put(p.b[:, 1:].copy()), {}, "b has shape"),
        (batch, b, {"x0": p.b}, "x0 lies in host memory"),
        (batch, b, {"backend": "cpu"}, "the values lie on cuda:0"),
        (batch, b, {"backend": "cuda:7"}, "the values lie on cuda:0"),
    ]
    if library.can_be_written:
        refused.append((batch, b, {"out": np.empty_like(p.b)}, "out"))
        refused.append((batch, b, {"out": library.put(p.b.astype(np.float32))}, "out"))
    for bad_batch, bad_b, options, message in refused:
        with pytest.raises(sparsebatch.OptionError, match=message):
            sparsebatch.solve(bad_batch, bad_b, **options)
    for bad in (p.values.astype(np.float16), p.values.astype(np.int32)):
        with pytest.raises(sparsebatch.OptionError, match="expected float64 or float32"):
            p.batch(library.put(bad))
    with pytest.raises(sparsebatch.OptionError, match="shape"):
        p.batch(library.put(p.values[:, 1:].copy()))


def test_what_is_not_supported_is_told(library):
    p = Problem()
    interleaved = p.batch(library.put(np.ascontiguousarray(p.values.T)), layout="interleaved")
    solver = sparsebatch.Solver(interleaved)
    b = library.put(np.ascontiguousarray(p.b.T))
    with pytest.raises(sparsebatch.Unsupported, match="layout='item'"):
        solver.value_gradient(b, b)
    with pytest.raises(sparsebatch.Unsupported, match="shift"):
        solver.update_values(interleaved.values, shift=0.1)
    ragged = Ragged()
    solver = sparsebatch.Solver(ragged.batch(library.put(ragged.values)))
    with pytest.raises(sparsebatch.Unsupported, match="shift of a ragged batch"):
        solver.update_values(library.put(ragged.values), shift=np.ones(len(ragged.nrows)))


# Streams ------------------------------------------------------------------------------------------


def test_the_current_stream_is_honoured(library):
    if library.name == "jax":
        pytest.skip("JAX has no current stream")
    p = Problem(nitems=500, n=30)
    expected = on_cpu(p.batch(p.values * 3), p.b)
    values, b = library.put(p.values), library.put(p.b)
    if library.name == "torch":
        own = library.module.cuda.Stream()
        own.wait_stream(library.module.cuda.current_stream())
        context = library.module.cuda.stream(own)
    else:
        library.module.cuda.get_current_stream().synchronize()
        own = library.module.cuda.Stream(non_blocking=True)
        context = own
    with context:
        # Work that the solve has to wait for.
        tripled = values * 3
        result = sparsebatch.solve(p.batch(tripled), b)
        check(library, result, expected)
        solver = sparsebatch.Solver(p.batch(values))
    # A solver of another stream waits for the current one.
    tripled = values * 3
    solver.update_values(tripled)
    check(library, solver.solve(b), expected)


def test_a_stream_can_be_given(library):
    if library.name == "jax":
        pytest.skip("JAX has no streams of the user")
    p = Problem()
    values, b = library.put(p.values), library.put(p.b)
    if library.name == "torch":
        own = library.module.cuda.Stream()
        address = own.cuda_stream
        library.module.cuda.synchronize()
    else:
        own = library.module.cuda.Stream(non_blocking=True)
        address = own.ptr
        library.module.cuda.get_current_stream().synchronize()
    result = sparsebatch.solve(p.batch(values), b, stream=address)
    check(library, result, on_cpu(p.batch(p.values), p.b))


def test_libraries_meet_in_one_solver():
    torch, cupy = LIBRARIES["torch"](), LIBRARIES["cupy"]()
    p = Problem()
    solver = sparsebatch.Solver(p.batch(torch.put(p.values)))
    check(cupy, solver.solve(cupy.put(p.b)), on_cpu(p.batch(p.values), p.b))
    solver.update_values(cupy.put(p.values * 2))
    check(torch, solver.solve(torch.put(p.b)), on_cpu(p.batch(p.values * 2), p.b))


# Several GPUs --------------------------------------------------------------------------------------


def test_several_gpus_make_the_bits_of_one():
    count = len(sparsebatch.devices())
    if count < 2:
        pytest.skip(f"needs two GPUs, there is {count}")
    nitems, n = 20_000, 128
    indptr = np.arange(n + 1)
    values = 1.0 + np.random.default_rng(1).random((nitems, n))
    batch = sparsebatch.Batch.uniform(indptr, np.arange(n), values)
    b = np.random.default_rng(2).random((nitems, n))
    names = [f"cuda:{ordinal}" for ordinal in range(count)]
    one = sparsebatch.solve(batch, b, method="cg", backend="cuda:0")
    all_ = sparsebatch.solve(batch, b, method="cg", backend=names)
    assert np.array_equal(one.x, all_.x)
    assert len(all_.report.gpus) == count and one.report.gpus == []
    assert sum(systems for _, systems, _ in all_.report.gpus) == nitems
    assert all(lost is None for _, _, lost in all_.report.gpus)


def test_arrays_on_a_gpu_are_solved_by_one(library, dtype):
    p = Problem(dtype)
    with pytest.raises(sparsebatch.Unsupported, match="several devices for values on cuda:"):
        sparsebatch.solve(p.batch(library.put(p.values)), library.put(p.b), backend=["cuda:0"])
