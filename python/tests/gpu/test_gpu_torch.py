"""Gradients through solves of PyTorch tensors on a GPU, and solves in CUDA graphs."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from arrays import N, ROWS, Problem, close

import sparsebatch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no GPU", allow_module_level=True)

import sparsebatch.torch as sbt  # noqa: E402


def tensors(p, nitems=None):
    """Values and right-hand sides on the GPU, as leaves."""
    arrays = (p.values[:nitems], p.b[:nitems])
    return tuple(torch.from_numpy(array).cuda().requires_grad_() for array in arrays)


def gradients(p, device, **options):
    """Gradients of a loss, computed on a device."""
    values, b = (torch.from_numpy(array).to(device).requires_grad_() for array in (p.values, p.b))
    x = sbt.solve(p.batch(p.values), values, b, **options)
    (x.sin() * torch.arange(ROWS, device=device)).sum().backward()
    return [tensor.detach().cpu().numpy() for tensor in (x, values.grad, b.grad)]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu", "pivoting-lu"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradients_are_those_of_the_cpu(dtype, method, transpose):
    p = Problem(np.dtype(dtype))
    options = {"method": method, "transpose": transpose}
    found, expected = gradients(p, "cuda", **options), gradients(p, "cpu", **options)
    for one, other in zip(found, expected, strict=True):
        close(one, other)


# The tolerance is at the rounding floor, where some solves stop short of it.
@pytest.mark.filterwarnings("ignore::sparsebatch.NotConvergedWarning")
@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu"])
def test_gradients_are_those_of_finite_differences(method):
    p = Problem(nitems=3, n=6)
    batch = p.batch(p.values)

    def solve(values, b):
        return sbt.solve(batch, values, b, method=method, rtol=1e-14, on_failure="keep")

    assert torch.autograd.gradcheck(solve, tensors(p))
    values, b = tensors(p)
    shared = values[0].detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(solve, (shared, b))


def test_second_derivatives_are_those_of_finite_differences():
    p = Problem(nitems=3, n=6)
    batch = p.batch(p.values)

    def solve(values, b):
        return sbt.solve(batch, values, b, method="lu", rtol=1e-13)

    assert torch.autograd.gradgradcheck(solve, tensors(p))


def test_vmap_and_jacobians():
    p = Problem(nitems=3, n=6)
    batch = p.batch(p.values)
    values, b = (tensor.detach() for tensor in tensors(p))
    places = (torch.from_numpy(p.rows).cuda(), torch.from_numpy(p.indices).cuda())

    def dense(values, b):
        matrices = values.new_zeros(3, 6, 6)
        matrices[:, places[0], places[1]] = values
        return torch.linalg.solve(matrices, b)

    def ours(values, b):
        return sbt.solve(batch, values, b, method="lu", rtol=1e-13)

    for one, other in zip(
        torch.func.jacrev(ours, (0, 1))(values, b),
        torch.func.jacrev(dense, (0, 1))(values, b),
        strict=True,
    ):
        close(one.cpu().numpy(), other.cpu().numpy())


def test_failed_systems_have_nan_gradients_for_themselves_alone():
    p = Problem()
    p.values[5] = 0
    values, b = tensors(p)
    with pytest.warns(sparsebatch.NotConvergedWarning):
        x, converged = sbt.solve(p.batch(p.values), values, b, return_converged=True)
        x.sum().backward()
    assert converged.is_cuda and not converged[5] and converged.sum() == N - 1
    sound = torch.arange(N, device="cuda") != 5
    assert values.grad[5].isnan().all() and b.grad[5].isnan().all()
    assert values.grad[sound].isfinite().all() and b.grad[sound].isfinite().all()


def test_gradients_on_another_stream():
    p = Problem()
    expected = gradients(p, "cpu")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = gradients(p, "cuda")
    for one, other in zip(found, expected, strict=True):
        close(one, other)


def test_backward_uses_the_factors_of_the_forward_solve(monkeypatch):
    calls = []
    factor = sparsebatch.Solver.factor
    monkeypatch.setattr(
        sparsebatch.Solver, "factor", lambda self: (calls.append("factor"), factor(self))[1]
    )
    p = Problem()
    values, b = tensors(p)
    sbt.solve(p.batch(p.values), values, b, method="lu").sum().backward()
    assert calls == ["factor"]


def test_compiled_functions():
    p = Problem()
    batch = p.batch(p.values)

    def loss(values, b):
        return (sbt.solve(batch, values * 2, b.sin(), method="lu") ** 2).sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    found, expected = tensors(p), tensors(p)
    compiled(*found).backward()
    loss(*expected).backward()
    for one, other in zip(found, expected, strict=True):
        close(one.grad.cpu().numpy(), other.grad.cpu().numpy())


def test_sparse_tensors():
    p = Problem()
    pointers = torch.from_numpy(np.tile(p.indptr, (N, 1))).cuda()
    columns = torch.from_numpy(np.tile(p.indices, (N, 1))).cuda()
    values = torch.from_numpy(p.values).cuda()
    a = torch.sparse_csr_tensor(pointers, columns, values, (N, ROWS, ROWS)).requires_grad_()
    b = torch.from_numpy(p.b).cuda()
    x = sbt.solve_sparse(a, b)
    x.sum().backward()
    assert a.grad.layout == torch.sparse_csr and a.grad.is_cuda
    others, c = tensors(p)
    sbt.solve(p.batch(p.values), others, c).sum().backward()
    close(a.grad.values().cpu().numpy(), others.grad.cpu().numpy())


def test_mixed_devices_are_refused():
    p = Problem()
    values, b = (tensor.detach() for tensor in tensors(p))
    for one, other in ((values.cpu(), b), (values, b.cpu())):
        with pytest.raises(sparsebatch.OptionError, match="b lies on"):
            sbt.solve(p.batch(p.values), one, other)
    with pytest.raises(sparsebatch.OptionError, match="the values lie on cuda:0"):
        sbt.solve(p.batch(p.values), values, b, backend="cpu")


def test_tensors_in_host_memory_are_solved_on_the_gpu_when_asked():
    p = Problem()
    values, b = torch.from_numpy(p.values), torch.from_numpy(p.b)
    x = sbt.solve(p.batch(p.values), values, b, backend="gpu")
    assert x.device.type == "cpu"
    close(x.numpy(), sparsebatch.solve(p.batch(p.values), p.b, backend="cpu").x)


def test_memory_of_the_gpu_is_given_back():
    p = Problem(nitems=200, n=30)
    batch = p.batch(p.values)

    def call():
        values, b = tensors(p)
        sbt.solve(batch, values, b).sum().backward()

    for _ in range(20):
        call()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(500):
        call()
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + (1 << 20)
    assert torch.cuda.mem_get_info()[0] >= free - (32 << 20)


@pytest.mark.parametrize("method", ["lu", "bicgstab"])
def test_solves_are_recorded_in_a_graph(method):
    p = Problem()
    values, b = (tensor.detach().clone() for tensor in tensors(p))
    x = torch.zeros_like(b)
    stream = torch.cuda.Stream()
    batch = p.batch(values)
    solver = sparsebatch.Solver(batch, stream=stream.cuda_stream, method=method)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        solver.enqueue(b, x)
    for factor in (1.0, 2.0):
        values.copy_(torch.from_numpy(p.values * factor))
        b.copy_(torch.from_numpy(p.b + factor))
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            graph.replay()
        result = solver.finish()
        assert result.report.all_converged and result.x is x
        expected = sparsebatch.solve(p.batch(p.values * factor), p.b + factor, backend="cpu").x
        close(x.cpu().numpy(), expected)
    with pytest.raises(sparsebatch.OptionError, match="b has shape"):
        solver.enqueue(b[1:], x)
