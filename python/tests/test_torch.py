"""Solves of PyTorch tensors: values, gradients, transforms, and what bad input gets."""

from __future__ import annotations

import gc
import resource
import threading
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import sparsebatch  # noqa: E402
import sparsebatch.torch as sbt  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")

N, NROWS = 4, 6
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    ),
]


class Problem:
    """Matrices of one random pattern, diagonally dominant, with their dense copies."""

    def __init__(self, nitems=N, n=NROWS, dtype=torch.float64, device="cpu", seed=0):
        rng = np.random.default_rng(seed)
        mask = (rng.random((n, n)) < 0.5) | np.eye(n, dtype=bool)
        rows, columns = np.nonzero(mask)
        self.n, self.rows, self.columns = n, torch.from_numpy(rows), torch.from_numpy(columns)
        self.indptr = np.concatenate([[0], np.cumsum(mask.sum(1))])
        values = rng.standard_normal((nitems, len(rows)))
        values[:, rows == columns] += n
        self.values = torch.from_numpy(values).to(device, dtype)
        self.b = torch.from_numpy(rng.standard_normal((nitems, n))).to(device, dtype)
        self.batch = sparsebatch.Batch.uniform(self.indptr, columns, values)

    def dense(self, values):
        matrices = values.new_zeros(*values.shape[:-1], self.n, self.n)
        matrices[..., self.rows.to(values.device), self.columns.to(values.device)] = values
        return matrices

    def leaves(self):
        return (self.values.clone().requires_grad_(), self.b.clone().requires_grad_())


@pytest.fixture
def problem():
    return Problem()


def close(a, b, tol=1e-9):
    assert a.shape == b.shape
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


# Values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu", "pivoting-lu"])
def test_solutions_are_those_of_dense_matrices(device, dtype, transpose, method):
    p = Problem(dtype=dtype, device=device)
    x = sbt.solve(p.batch, p.values, p.b, transpose=transpose, method=method)
    dense = p.dense(p.values)
    expected = torch.linalg.solve(dense.mT if transpose else dense, p.b)
    assert x.dtype == dtype and x.device == p.b.device
    close(x, expected, 1e-8 if dtype == torch.float64 else 1e-4)


@pytest.mark.parametrize("nrhs", [1, 3])
def test_several_right_hand_sides_are_solved(problem, nrhs):
    b = torch.stack([problem.b * (k + 1) for k in range(nrhs)], -1)
    x = sbt.solve(problem.batch, problem.values, b)
    close(x, torch.linalg.solve(problem.dense(problem.values), b))


def test_shared_values_serve_all_items(problem):
    x = sbt.solve(problem.batch, problem.values[0], problem.b)
    dense = problem.dense(problem.values[0]).expand(N, NROWS, NROWS)
    close(x, torch.linalg.solve(dense, problem.b))


def test_one_matrix_has_no_dimension_of_items(problem):
    indices = problem.columns.numpy()
    batch = sparsebatch.Batch.uniform(problem.indptr, indices, problem.values[0].numpy())
    dense = problem.dense(problem.values[0])
    for b in (problem.b[0], problem.b[:3].T):
        close(sbt.solve(batch, problem.values[0], b), torch.linalg.solve(dense, b))


def test_number_of_items_may_change(problem):
    expected = torch.linalg.solve(problem.dense(problem.values), problem.b)
    for count in (1, 2, N):
        x = sbt.solve(problem.batch, problem.values[:count], problem.b[:count])
        close(x, expected[:count])
    empty = sbt.solve(problem.batch, problem.values[:0], problem.b[:0])
    assert empty.shape == (0, NROWS)


def test_orders_of_memory_do_not_matter(problem):
    expected = sbt.solve(problem.batch, problem.values, problem.b)
    values, b = problem.values.T.contiguous().T, problem.b.T.contiguous().T
    assert not values.is_contiguous() and not b.is_contiguous()
    close(sbt.solve(problem.batch, values, b), expected)
    close(sbt.solve(problem.batch, values, problem.b[:1].expand(N, NROWS))[0], expected[0])


def test_guesses_are_used(problem):
    x = sbt.solve(problem.batch, problem.values, problem.b, method="bicgstab")
    options = {"method": "bicgstab", "maxiter": 1, "fallback": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = sbt.solve(problem.batch, problem.values, problem.b, x0=x, **options)
    close(again, x)
    with pytest.warns(sparsebatch.NotConvergedWarning, match="did not converge"):
        sbt.solve(problem.batch, problem.values, problem.b, **options)


def test_tolerances_of_each_system_are_accepted(problem):
    limits = np.full(N, 1e-12)
    x, converged = sbt.solve(
        problem.batch, problem.values, problem.b, rtol=limits, return_converged=True
    )
    assert converged.all() and converged.shape == (N,)
    close(x, torch.linalg.solve(problem.dense(problem.values), problem.b))


# Gradients ----------------------------------------------------------------------------------------


# The tolerance is at the rounding floor, where some solves stop short of it.
@pytest.mark.filterwarnings("ignore::sparsebatch.NotConvergedWarning")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu"])
def test_gradients_are_those_of_finite_differences(device, transpose, method):
    p = Problem(device=device)
    options = {"transpose": transpose, "method": method, "rtol": 1e-14, "on_failure": "keep"}

    def solve(values, b):
        return sbt.solve(p.batch, values, b, **options)

    assert torch.autograd.gradcheck(solve, p.leaves())


def test_several_gradients_at_a_time(problem):
    values, b = problem.leaves()
    x = sbt.solve(problem.batch, values, b)
    seeds = torch.randn(3, *x.shape, dtype=x.dtype)

    together = torch.autograd.grad(
        x, (values, b), seeds, is_grads_batched=True, retain_graph=True
    )

    for at, seed in enumerate(seeds):
        alone = torch.autograd.grad(x, (values, b), seed, retain_graph=True)
        for several, one in zip(together, alone, strict=True):
            close(several[at], one)


@pytest.mark.parametrize("transpose", [False, True])
def test_second_derivatives_are_those_of_finite_differences(problem, transpose):
    def solve(values, b):
        return sbt.solve(problem.batch, values, b, transpose=transpose, method="lu", rtol=1e-13)

    assert torch.autograd.gradgradcheck(solve, problem.leaves())


def test_gradients_of_shared_values_are_summed(problem):
    def solve(values, b):
        return sbt.solve(problem.batch, values, b, method="lu", rtol=1e-13)

    values, b = problem.leaves()
    shared = values[0].detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(solve, (shared, b))
    assert torch.autograd.gradgradcheck(solve, (shared, b))


def test_gradients_of_several_right_hand_sides(problem):
    values, _ = problem.leaves()
    b = torch.randn(N, NROWS, 2, dtype=torch.float64, requires_grad=True)
    solve = lambda v, b: sbt.solve(problem.batch, v, b, method="lu", rtol=1e-13)  # noqa: E731
    assert torch.autograd.gradcheck(solve, (values, b))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_those_of_dense_solves(device):
    p = Problem(nitems=50, n=20, device=device)
    values, b = p.leaves()
    (sbt.solve(p.batch, values, b) ** 2).sum().backward()
    others, c = p.leaves()
    (torch.linalg.solve(p.dense(others), c) ** 2).sum().backward()
    close(values.grad, others.grad, 1e-8)
    close(b.grad, c.grad, 1e-8)


def test_only_asked_gradients_are_computed(problem):
    values, b = problem.leaves()
    sbt.solve(problem.batch, values.detach(), b).sum().backward()
    assert b.grad is not None and values.grad is None
    sbt.solve(problem.batch, values, b.detach()).sum().backward()
    assert values.grad is not None


def test_several_forward_solves_come_before_their_gradients(problem):
    values, b = problem.leaves()
    total = sum(
        (sbt.solve(problem.batch, values * (1 + k), b, method="lu") ** 2).sum() for k in range(4)
    )
    total.backward()
    others, c = problem.leaves()
    dense = [torch.linalg.solve(problem.dense(others * (1 + k)), c) for k in range(4)]
    sum((x**2).sum() for x in dense).backward()
    close(values.grad, others.grad, 1e-8)
    close(b.grad, c.grad, 1e-8)


def test_saved_tensors_may_be_copied(problem):
    # Factors are not taken for those of a copy at the address of another solve.
    values, b = problem.leaves()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t.clone()):
        first = sbt.solve(problem.batch, values * 2, b, method="lu").sum()
        second = sbt.solve(problem.batch, values * 3, b, method="lu").sum()
    (first + second).backward()
    others, c = problem.leaves()
    for factor in (2, 3):
        torch.linalg.solve(problem.dense(others * factor), c).sum().backward()
    close(values.grad, others.grad)


def test_backward_uses_the_factors_of_the_forward_solve(problem, monkeypatch):
    calls = []
    factor = sparsebatch.Solver.factor
    monkeypatch.setattr(
        sparsebatch.Solver, "factor", lambda self: (calls.append("factor"), factor(self))[1]
    )
    values, b = problem.leaves()
    x = sbt.solve(problem.batch, values, b, method="lu")
    assert calls == ["factor"]
    x.sum().backward(retain_graph=True)
    x.sum().backward()
    assert calls == ["factor"]
    with torch.no_grad():
        sbt.solve(problem.batch, values, b, method="lu")
    assert calls == ["factor"]
    first = sbt.solve(problem.batch, values, b, method="lu")
    sbt.solve(problem.batch, values * 2, b, method="lu")
    first.sum().backward()
    assert calls == ["factor"] * 4


def test_changed_values_are_refused_by_backward(problem):
    values, b = problem.leaves()
    inner = values * 1
    x = sbt.solve(problem.batch, inner, b)
    with torch.no_grad():
        inner.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        x.sum().backward()


# Failures -----------------------------------------------------------------------------------------


def with_a_singular_system(problem):
    values, b = problem.leaves()
    with torch.no_grad():
        values[1] = 0
    return values, b


def test_failed_systems_have_nan_gradients_for_themselves_alone(problem):
    values, b = with_a_singular_system(problem)
    with pytest.warns(sparsebatch.NotConvergedWarning, match=f"1 of {N} systems did not converge"):
        x, converged = sbt.solve(problem.batch, values, b, return_converged=True)
    assert converged.tolist() == [True, False, True, True]
    with pytest.warns(sparsebatch.NotConvergedWarning, match="in the gradient"):
        (x + x**2).sum().backward()
    others, c = problem.leaves()
    y = torch.linalg.solve(problem.dense(others), c)
    (y + y**2).sum().backward()
    sound = [0, 2, 3]
    assert values.grad[1].isnan().all() and b.grad[1].isnan().all()
    close(values.grad[sound], others.grad[sound], 1e-8)
    close(b.grad[sound], c.grad[sound], 1e-8)


def test_a_failed_forward_solve_alone_makes_gradients_nan(problem):
    # The adjoint system converges, whose right-hand side is 0.
    values, b = with_a_singular_system(problem)
    with pytest.warns(sparsebatch.NotConvergedWarning):
        x = sbt.solve(problem.batch, values, b)
    x[0].sum().backward()
    assert values.grad[1].isnan().all() and b.grad[1].isnan().all()
    assert not values.grad[[0, 2, 3]].isnan().any()


@pytest.mark.filterwarnings("ignore::sparsebatch.NotConvergedWarning")
def test_gradients_of_failed_systems_can_be_kept(problem):
    values, b = problem.leaves()
    options = {"method": "bicgstab", "maxiter": 1, "fallback": False, "precond": "none"}
    x = sbt.solve(problem.batch, values, b, on_failure="keep", **options)
    x.sum().backward()
    assert values.grad.isfinite().all() and b.grad.isfinite().all()
    values, b = problem.leaves()
    sbt.solve(problem.batch, values, b, **options).sum().backward()
    assert values.grad.isnan().all()


def test_a_failed_right_hand_side_leaves_the_others(problem):
    values, _ = problem.leaves()
    b = torch.randn(N, NROWS, 2, dtype=torch.float64)
    b[2, 0, 1] = torch.nan
    b.requires_grad_()
    with pytest.warns(sparsebatch.NotConvergedWarning):
        x, converged = sbt.solve(problem.batch, values, b, return_converged=True)
    assert converged.sum() == 2 * N - 1 and not converged[2, 1]
    x[..., 0].sum().backward()
    assert b.grad[2, :, 1].isnan().all() and b.grad[2, :, 0].isfinite().all()
    assert b.grad[[0, 1, 3]].isfinite().all()


# Operators ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_operators_pass_the_checks_of_pytorch(device):
    p = Problem(device=device)
    values, b = p.leaves()
    handle = sbt._prepare(p.batch, (("method", "lu"),), True)[0]
    check = torch.library.opcheck
    operators = torch.ops.sparsebatch
    for transpose in (False, True):
        check(operators.solve.default, (values, b, None, None, handle, transpose, True, True))
        check(operators.product.default, (values, b, handle, transpose))
    shared, guess = values[0].detach(), torch.zeros_like(b).detach()
    check(operators.solve.default, (shared, b, guess, None, handle, False, False, False))
    for shared in (False, True):
        check(operators.value_gradient.default, (b, b.detach() + 1, handle, shared))


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_functions_are_solved(device):
    p = Problem(device=device)

    def loss(values, b):
        x = sbt.solve(p.batch, values * 2, b.sin(), method="lu")
        return (x**2).sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        values, b = p.leaves()
        compiled(values, b).backward()
        others, c = p.leaves()
        loss(others, c).backward()
        close(values.grad, others.grad)
        close(b.grad, c.grad)


def test_compiled_functions_take_other_numbers_of_items(problem):
    compiled = torch.compile(
        lambda v, b: (sbt.solve(problem.batch, v, b) ** 2).sum(),
        backend="aot_eager",
        fullgraph=True,
        dynamic=True,
    )
    for count in (4, 3, 2):
        values = problem.values[:count].clone().requires_grad_()
        compiled(values, problem.b[:count]).backward()
        others = problem.values[:count].clone().requires_grad_()
        (torch.linalg.solve(problem.dense(others), problem.b[:count]) ** 2).sum().backward()
        close(values.grad, others.grad)


def test_compiled_functions_tell_batches_apart():
    one, other = Problem(seed=0), Problem(seed=3)
    count = min(len(one.columns), len(other.columns))
    assert not torch.equal(one.columns[:count], other.columns[:count])
    compiled = torch.compile(
        lambda batch, v, b: sbt.solve(batch, v, b), backend="aot_eager", fullgraph=True
    )
    for p in (one, other, one):
        close(compiled(p.batch, p.values, p.b), torch.linalg.solve(p.dense(p.values), p.b))


# Transforms ---------------------------------------------------------------------------------------


def dense_solve(problem):
    def solve(values, b):
        matrices = problem.dense(values)
        return torch.linalg.solve(matrices.expand(b.shape[0], NROWS, NROWS), b)

    return solve


@pytest.mark.parametrize("nrhs", [None, 1, 2])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("in_dims", [(0, 0), (None, 0), (0, None), (1, 1), (None, -1), (0, 1)])
def test_vmap_is_a_larger_batch(problem, nrhs, shared, in_dims):
    size = 3
    values = torch.stack([problem.values * (1 + k / 10) for k in range(size)])
    values = values[:, 0] if shared else values
    b = torch.stack([problem.b + k for k in range(size)])
    if nrhs is not None:
        b = torch.stack([b * (k + 1) for k in range(nrhs)], -1)
    values = values[0] if in_dims[0] is None else values.movedim(0, in_dims[0])
    b = b[0] if in_dims[1] is None else b.movedim(0, in_dims[1])

    def ours(values, b):
        return sbt.solve(problem.batch, values, b, method="lu", rtol=1e-13)

    dense = dense_solve(problem)
    close(torch.func.vmap(ours, in_dims)(values, b), torch.func.vmap(dense, in_dims)(values, b))

    def loss(solve):
        return lambda values, b: (solve(values, b) ** 2).sum()

    def inside(solve):
        return torch.func.vmap(torch.func.grad(loss(solve), (0, 1)), in_dims)(values, b)

    def outside(solve):
        mapped = torch.func.vmap(loss(solve), in_dims)
        return torch.func.grad(lambda v, b: mapped(v, b).sum(), (0, 1))(values, b)

    for way in (inside, outside):
        for one, other in zip(way(ours), way(dense), strict=True):
            close(one, other)


def test_jacobians_and_hessians_are_those_of_dense_solves(problem):
    def ours(values, b):
        return sbt.solve(problem.batch, values, b, method="lu", rtol=1e-13)

    dense = dense_solve(problem)
    for solve_values in (problem.values, problem.values[0]):
        one = torch.func.jacrev(ours, (0, 1))(solve_values, problem.b)
        other = torch.func.jacrev(dense, (0, 1))(solve_values, problem.b)
        for a, b in zip(one, other, strict=True):
            close(a, b)

    def hessian(solve):
        inner = torch.func.jacrev(lambda v: solve(v, problem.b).sin().sum())
        return torch.func.jacrev(inner)(problem.values)

    close(hessian(ours), hessian(dense))


# Sparse tensors -----------------------------------------------------------------------------------


def sparse(problem, values):
    count = values.shape[0]
    pointers = torch.from_numpy(np.tile(problem.indptr, (count, 1)))
    columns = problem.columns.expand(count, -1).contiguous()
    shape = (count, NROWS, NROWS)
    return torch.sparse_csr_tensor(pointers, columns, values, shape, check_invariants=True)


def test_sparse_tensors_have_sparse_gradients(problem):
    a = sparse(problem, problem.values.clone()).requires_grad_()
    x = sbt.solve_sparse(a, problem.b)
    close(x, torch.linalg.solve(problem.dense(problem.values), problem.b))
    (x**2).sum().backward()
    values, b = problem.leaves()
    (sbt.solve(problem.batch, values, b) ** 2).sum().backward()
    assert a.grad.layout == torch.sparse_csr
    assert torch.equal(a.grad.col_indices(), a.detach().col_indices())
    close(a.grad.values(), values.grad)


def test_one_sparse_matrix_is_solved(problem):
    a = problem.dense(problem.values[0]).to_sparse_csr().requires_grad_()
    x = sbt.solve_sparse(a, problem.b[0])
    close(x, torch.linalg.solve(problem.dense(problem.values[0]), problem.b[0]))
    x.sum().backward()
    assert a.grad.layout == torch.sparse_csr


def test_sparse_tensors_that_do_not_fit_are_refused(problem):
    with pytest.raises(sparsebatch.OptionError, match="layout sparse_csr"):
        sbt.solve_sparse(problem.dense(problem.values), problem.b)
    unsorted = torch.sparse_csr_tensor(
        torch.tensor([0, 2, 3]),
        torch.tensor([1, 0, 1]),
        torch.tensor([1.0, 2.0, 3.0]),
        (2, 2),
        check_invariants=False,
    )
    with pytest.raises(sparsebatch.FormatError, match="ascending"):
        sbt.solve_sparse(unsorted, torch.ones(2))


# Bad input ----------------------------------------------------------------------------------------


def test_bad_tensors_are_refused_in_one_sentence(problem):
    batch, values, b = problem.batch, problem.values, problem.b
    refused = [
        (values.half(), b.half(), "expected float64 or float32"),
        (values.to(torch.complex128), b, "expected float64 or float32"),
        (values, b.float(), "b has elements of torch.float32"),
        (values[:, 1:], b, "values have shape"),
        (values[None], b, "values have shape"),
        (values, b[:2], r"b has shape \(2, 6\), expected \(4, 6\)"),
        (values, b[:, 1:], "b has shape"),
        (values, b[0], "b has shape"),
        (values.numpy(), b, "values are no dense tensor"),
        (values, b.numpy(), "b is no dense tensor"),
        (values.to_sparse(), b, "values are no dense tensor"),
        (values.to("meta"), b.to("meta"), "expected cpu or cuda"),
        (values, b.to("meta"), "b lies on meta"),
    ]
    for bad_values, bad_b, message in refused:
        with pytest.raises(sparsebatch.OptionError, match=message):
            sbt.solve(batch, bad_values, bad_b)
    with pytest.raises(sparsebatch.OptionError, match="x0 has shape"):
        sbt.solve(batch, values, b, x0=b[:1])
    with pytest.raises(sparsebatch.OptionError, match="on_failure"):
        sbt.solve(batch, values, b, on_failure="warn")
    with pytest.raises(sparsebatch.OptionError, match="expected a Batch"):
        sbt.solve(values, values, b)
    with pytest.raises(TypeError, match="is no option"):
        sbt.solve(batch, values, b, tolerance=1)
    with pytest.raises(sparsebatch.OptionError):
        sbt.solve(batch, values, b, method="gauss")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_mixed_devices_are_refused(problem):
    with pytest.raises(sparsebatch.OptionError, match="b lies on cuda:0"):
        sbt.solve(problem.batch, problem.values, problem.b.cuda())
    with pytest.raises(sparsebatch.OptionError, match="b lies on cpu"):
        sbt.solve(problem.batch, problem.values.cuda(), problem.b)


def test_other_batches_are_refused(problem):
    columns = problem.columns.numpy()
    interleaved = sparsebatch.Batch.uniform(
        problem.indptr, columns, problem.values.T.contiguous().numpy(), layout="interleaved"
    )
    ragged = sparsebatch.Batch.ragged(
        nrows=[1, 2], indptr=[0, 1, 0, 1, 2], indices=[0, 0, 1], values=[1.0, 2.0, 3.0]
    )
    for batch, message in ((interleaved, "interleaved"), (ragged, "ragged")):
        with pytest.raises(sparsebatch.Unsupported, match=message):
            sbt.solve(batch, problem.values, problem.b)


def test_enqueue_takes_arrays_on_a_gpu(problem):
    batch = problem.batch.with_values(problem.values)
    solver = sparsebatch.Solver(batch, backend="cpu")
    with pytest.raises(sparsebatch.Unsupported, match="arrays on a GPU"):
        solver.enqueue(problem.b, torch.empty_like(problem.b))


def test_a_dropped_pattern_is_told(problem):
    with pytest.raises(sparsebatch.OptionError, match="was dropped"):
        torch.ops.sparsebatch.solve(
            problem.values, problem.b, None, None, 1 << 40, False, False, False
        )


# Memory -------------------------------------------------------------------------------------------


def test_values_are_read_in_place(problem):
    # A solver that had copied the values would not see that they have changed since.
    sbt.clear_cache()
    values = problem.values.clone()
    sbt.solve(problem.batch, values, problem.b, method="lu")
    (engine,) = sbt._ENGINES.values()
    assert engine.solver.batch.values.__array_interface__["data"][0] == values.data_ptr()
    values.mul_(2)
    x = engine.solver.solve(problem.b.numpy()).x
    close(torch.from_numpy(x), torch.linalg.solve(problem.dense(values), problem.b))


def count_tensors():
    return sum(type(item) is torch.Tensor for item in gc.get_objects())


def test_thousands_of_calls_do_not_leak(problem):
    def call(count):
        for k in range(count):
            values, b = problem.leaves()
            sbt.solve(problem.batch, values, b).sum().backward()
            if k % 10 == 0:
                # Batches of a pattern that is known share its analysis.
                batch = sparsebatch.Batch.uniform(
                    problem.indptr, problem.columns.numpy(), problem.values.numpy()
                )
                sbt.solve(batch, values, b)

    call(500)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tensors = count_tensors()
    call(3000)
    gc.collect()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 * 1024, f"{grown} KiB"
    assert count_tensors() <= tensors + 20


def test_patterns_and_solvers_are_bounded():
    sbt.clear_cache()
    for seed in range(sbt.MAX_PATTERNS + 20):
        p = Problem(n=9, seed=seed)
        sbt.solve(p.batch, p.values, p.b)
    gc.collect()
    assert len(sbt._ENGINES) <= sbt.MAX_SOLVERS
    assert len(sbt._RECENT) <= sbt.MAX_PATTERNS
    pinned = len(sbt._PINNED)
    assert len(sbt._PATTERNS) <= sbt.MAX_PATTERNS + pinned + 1
    sbt.clear_cache()
    gc.collect()
    assert len(sbt._ENGINES) == 0 and len(sbt._PATTERNS) <= pinned + 1


def test_gradients_survive_that_solvers_are_dropped(problem):
    values, b = problem.leaves()
    x = sbt.solve(problem.batch, values, b)
    sbt.clear_cache()
    gc.collect()
    x.sum().backward()
    others, c = problem.leaves()
    torch.linalg.solve(problem.dense(others), c).sum().backward()
    close(values.grad, others.grad)


def test_threads_solve_at_the_same_time(problem):
    expected = torch.linalg.solve(problem.dense(problem.values), problem.b)
    failures = []

    def work(factor):
        for _ in range(50):
            values, b = problem.leaves()
            x = sbt.solve(problem.batch, values * factor, b, method="lu")
            x.sum().backward()
            if not torch.allclose(x, expected / factor, atol=1e-9):
                failures.append(factor)

    threads = [threading.Thread(target=work, args=(k + 1,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
