"""Numbers: solves of every kind against NumPy and SciPy."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.testing import assert_allclose, assert_array_equal

import sparsebatch
from sparsebatch import Batch, Solver
from systems import (
    KINDS,
    dense,
    items_of,
    make_batch,
    nonsymmetric,
    reference,
    tridiagonal,
    vector_shape,
)

CPU = {"backend": "cpu"}


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("nrhs", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_batch_agrees_with_numpy(kind, nrhs, transpose, rng):
    if kind == "interleaved" and nrhs != 1:
        pytest.skip("an interleaved batch has one right-hand side")
    batch = make_batch(kind, rng)
    b = rng.standard_normal(vector_shape(batch, nrhs))
    result = sparsebatch.solve(batch, b, transpose=transpose, **CPU)
    assert result.x.shape == b.shape
    assert result.x.dtype == np.float64
    assert result.report.all_converged
    assert len(result.report) == batch.nitems * nrhs
    assert_allclose(result.x, reference(batch, b, transpose), rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_stays_float32(kind, rng):
    batch = make_batch(kind, rng, np.float32)
    b = rng.standard_normal(vector_shape(batch)).astype(np.float32)
    result = sparsebatch.solve(batch, b, **CPU)
    assert result.x.dtype == np.float32
    assert result.report.all_converged
    assert_allclose(result.x, reference(batch, b), rtol=1e-3, atol=1e-4)


def test_float32_right_hand_sides_of_float64_matrices_are_widened(rng):
    a = tridiagonal(20)
    b = rng.standard_normal(20).astype(np.float32)
    x = sparsebatch.solve(a, b, **CPU).x
    assert x.dtype == np.float64
    assert_allclose(x, scipy.sparse.linalg.spsolve(a.tocsc(), b.astype(np.float64)), rtol=1e-9)


def test_integers_become_float64():
    a = sp.csr_array(np.array([[2, 1], [0, 4]]))
    assert_allclose(sparsebatch.solve(a, np.array([3, 4]), **CPU).x, [1.0, 1.0])
    assert_allclose(sparsebatch.solve(a, [3, 4], **CPU).x, [1.0, 1.0])


PRECONDITIONERS = ["none", "auto", "jacobi", "block-jacobi", "ilu0", "ic0"]
SCHEMES = [
    *(("cg", precond) for precond in PRECONDITIONERS),
    *(("bicgstab", precond) for precond in PRECONDITIONERS),
    ("lu", "auto"),
    ("pivoting-lu", "auto"),
    ("auto", "auto"),
]


@pytest.mark.parametrize("layout", ["item", "interleaved", "ragged"])
@pytest.mark.parametrize(("method", "precond"), SCHEMES)
def test_every_scheme(method, precond, layout, rng):
    a = tridiagonal(30)
    values = np.tile(a.data, (3, 1)) * np.array([[1.0], [2.0], [4.0]])
    if layout == "ragged":
        batch = Batch.ragged([tridiagonal(n) for n in (30, 7, 12)])
    elif layout == "interleaved":
        batch = Batch.uniform(a.indptr, a.indices, values.T, layout="interleaved")
    else:
        batch = Batch.uniform(a.indptr, a.indices, values)
    b = rng.standard_normal(vector_shape(batch))
    result = sparsebatch.solve(batch, b, method=method, precond=precond, fallback=False, **CPU)
    assert result.report.all_converged
    assert_array_equal(result.report.rung, "first")
    assert_allclose(result.x, reference(batch, b), rtol=1e-7, atol=1e-9)
    if method != "auto":
        assert result.report.solver.startswith(method)
    if precond != "auto" and precond != "none":
        assert precond in result.report.solver


@pytest.mark.parametrize(
    "options",
    [
        {"precond": "ilu0", "order": "min-degree"},
        {"precond": "ic0", "order": "multicolor"},
        {"precond": "block-jacobi", "block_size": 3},
        {"precond": "ilu0", "precond_precision": "f32"},
        {"inner_precision": "working"},
        {"lu_form": "by-system"},
        {"max_restarts": 0},
        {"atol": 1e-9, "rtol": 0},
        {"atol": np.full(3, 1e-9), "rtol": np.zeros(3, np.float32)},
        {"maxiter": np.full(3, 500, np.int16)},
        {"floor": 4.0},
        {"threads": 1},
        {"threads": 3},
        {"history": True},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_of_cg(options, rng):
    a = tridiagonal(40)
    batch = Batch.uniform(a.indptr, a.indices, np.tile(a.data, (3, 1)))
    b = rng.standard_normal((3, 40))
    result = sparsebatch.solve(batch, b, method="cg", fallback=False, **CPU, **options)
    assert result.report.all_converged
    assert_allclose(result.x, reference(batch, b), rtol=1e-6, atol=1e-8)


FORMATS = ["csr", "coo", "ell", "dia", "hyb", "sellp"]
KERNELS = ["rows", "csr-i", "entries", "blocks", "runs"]
#: The kernels that the CPU has for each format.
PRODUCTS = {format: ["rows"] for format in FORMATS} | {"csr": ["rows", "csr-i"], "coo": ["entries"]}


@pytest.mark.parametrize("method", ["cg", "bicgstab"])
@pytest.mark.parametrize("format", FORMATS)
def test_formats_and_kernels(format, method, rng):
    a = tridiagonal(25)
    b = rng.standard_normal(25)
    expected = scipy.sparse.linalg.spsolve(a.tocsc(), b)
    for kernel in [None, "auto", *PRODUCTS[format]]:
        result = sparsebatch.solve(a, b, method=method, format=format, kernel=kernel, **CPU)
        assert_allclose(result.x, expected, rtol=1e-7, atol=1e-9)
        assert result.report.format == format
        assert result.report.kernel == (kernel if kernel in KERNELS else PRODUCTS[format][0])


@pytest.mark.parametrize("format", FORMATS)
def test_kernels_that_a_format_lacks(format):
    for kernel in set(KERNELS) - set(PRODUCTS[format]):
        with pytest.raises(sparsebatch.OptionError, match="kernel is .*, expected .*format"):
            sparsebatch.solve(tridiagonal(5), np.ones(5), format=format, kernel=kernel, **CPU)


def test_a_kernel_is_called_by_the_name_of_its_option():
    with pytest.raises(sparsebatch.OptionError, match="kernel is csr-i, expected rows"):
        sparsebatch.solve(tridiagonal(5), np.ones(5), format="ell", kernel="csr-i", **CPU)


def test_an_exact_guess_needs_no_iteration(rng):
    batch = make_batch("uniform", rng)
    b = rng.standard_normal((5, 9))
    x0 = reference(batch, b)
    before = x0.copy()
    result = sparsebatch.solve(batch, b, x0, method="bicgstab", fallback=False, **CPU)
    assert_array_equal(result.report.iterations, 0)
    assert_allclose(result.x, x0, rtol=1e-9)
    assert_array_equal(x0, before)
    cold = sparsebatch.solve(batch, b, method="bicgstab", fallback=False, **CPU)
    assert (cold.report.iterations > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_guesses_have_the_order_of_right_hand_sides(kind, rng):
    batch = make_batch(kind, rng)
    b = rng.standard_normal(vector_shape(batch))
    exact = reference(batch, b)
    result = sparsebatch.solve(batch, b, exact, method="bicgstab", fallback=False, **CPU)
    assert_array_equal(result.report.iterations, 0)


def test_tolerances_and_limits_by_system(rng):
    a = tridiagonal(200, 2.1)
    batch = Batch.uniform(a.indptr, a.indices, np.tile(a.data, (3, 1)))
    b = np.tile(rng.standard_normal(200), (3, 1))
    options = {"method": "cg", "precond": "none", "fallback": False, "on_failure": "report"}
    report = sparsebatch.solve(batch, b, rtol=[1e-1, 1e-4, 1e-8], **options, **CPU).report
    assert report.all_converged
    assert (np.diff(report.iterations.astype(int)) > 0).all()
    assert (report.relative_residual <= [1e-1, 1e-4, 1e-8]).all()
    report = sparsebatch.solve(batch, b, maxiter=[1, 2, 1000], **options, **CPU).report
    assert list(report.status) == ["MaxIterations", "MaxIterations", "Converged"]
    assert list(report.iterations[:2]) == [1, 2]


def test_absolute_tolerance(rng):
    a = tridiagonal(50)
    b = rng.standard_normal(50)
    options = {"method": "cg", "fallback": False, **CPU}
    loose = sparsebatch.solve(a, b, rtol=0, atol=1e-2, **options).report
    tight = sparsebatch.solve(a, b, rtol=0, atol=1e-9, **options).report
    assert loose.residual_norm[0] <= 1e-2
    assert tight.residual_norm[0] <= 1e-9
    assert loose.iterations[0] < tight.iterations[0]


def test_an_item_does_not_depend_on_its_neighbours(rng):
    batch = make_batch("uniform", rng)
    b = rng.standard_normal((5, 9))
    order = np.array([3, 0, 4, 2, 1])
    one = sparsebatch.solve(batch, b, method="bicgstab", **CPU)
    other_batch = batch.with_values(batch.values[order])
    other = sparsebatch.solve(other_batch, b[order], method="bicgstab", **CPU)
    assert_array_equal(other.x, one.x[order])
    assert_array_equal(other.report.residual_norm, one.report.residual_norm[order])


class TestOut:
    """`out=`: results where the caller wants them."""

    @pytest.mark.parametrize("nrhs", [1, 2])
    @pytest.mark.parametrize("kind", KINDS)
    def test_is_written_and_returned(self, kind, nrhs, rng):
        if kind == "interleaved" and nrhs != 1:
            pytest.skip("an interleaved batch has one right-hand side")
        batch = make_batch(kind, rng)
        b = rng.standard_normal(vector_shape(batch, nrhs))
        plain = sparsebatch.solve(batch, b, **CPU).x
        out = np.full(b.shape, np.nan)
        result = sparsebatch.solve(batch, b, out=out, **CPU)
        assert result.x is out
        assert_array_equal(out, plain)

    def test_of_other_strides(self, rng):
        batch = make_batch("uniform", rng)
        b = rng.standard_normal((5, 9))
        plain = sparsebatch.solve(batch, b, **CPU).x
        wide = np.full((10, 18), 7.0)
        for out in (np.empty((9, 5)).T, wide[::2, ::2], wide[::-2, ::-2]):
            assert sparsebatch.solve(batch, b, out=out, **CPU).x is out
            assert_array_equal(out, plain)
        # The second view overwrote its places, and the third those between.
        assert (wide[::2, 1::2] == 7.0).all()

    def test_does_not_serve_as_a_guess(self, rng):
        batch = make_batch("uniform", rng)
        b = rng.standard_normal((5, 9))
        out = np.full((5, 9), np.nan)
        result = sparsebatch.solve(batch, b, out=out, method="bicgstab", **CPU)
        assert result.report.all_converged

    def test_may_be_the_guess(self, rng):
        batch = make_batch("uniform", rng)
        b = rng.standard_normal((5, 9))
        x = reference(batch, b)
        result = sparsebatch.solve(batch, b, x, out=x, method="bicgstab", **CPU)
        assert_array_equal(result.report.iterations, 0)

    def test_may_be_b(self, rng):
        batch = make_batch("uniform", rng)
        b = rng.standard_normal((5, 9))
        expected = reference(batch, b)
        sparsebatch.solve(batch, b, out=b, **CPU)
        assert_allclose(b, expected, rtol=1e-8)

    def test_may_overlap_b(self, rng):
        batch = make_batch("uniform", rng)
        both = rng.standard_normal((6, 9))
        expected = reference(batch, both[1:])
        sparsebatch.solve(batch, both[1:], out=both[:-1], **CPU)
        assert_allclose(both[:-1], expected, rtol=1e-8)


class TestShapes:
    """The shape of `b` is that of `x`."""

    @pytest.mark.parametrize("kind", ["uniform", "shared", "single", "ragged"])
    def test_one_column(self, kind, rng):
        batch = make_batch(kind, rng)
        b = rng.standard_normal((*vector_shape(batch), 1))
        x = sparsebatch.solve(batch, b, **CPU).x
        assert x.shape == b.shape
        assert_allclose(x[..., 0], reference(batch, b[..., 0]), rtol=1e-8)

    def test_a_list_of_vectors_of_a_ragged_batch(self, rng):
        batch = make_batch("ragged", rng)
        b = rng.standard_normal(vector_shape(batch))
        x = sparsebatch.solve(batch, items_of(batch, b), **CPU).x
        assert_array_equal(x, sparsebatch.solve(batch, b, **CPU).x)

    def test_batches_without_items_or_rows(self):
        a = tridiagonal(4)
        no_items = Batch.uniform(a.indptr, a.indices, np.zeros((0, a.nnz)))
        result = sparsebatch.solve(no_items, np.zeros((0, 4)), **CPU)
        assert result.x.shape == (0, 4)
        assert len(result.report) == 0
        assert result.report.all_converged
        assert result.report.relative_residual.shape == (0,)
        no_rows = Batch.uniform([0], [], np.zeros((3, 0)))
        result = sparsebatch.solve(no_rows, np.zeros((3, 0)), **CPU)
        assert result.x.shape == (3, 0)
        assert list(result.report.status) == ["Converged"] * 3
        assert sparsebatch.solve([], np.zeros(0), **CPU).x.shape == (0,)

    def test_a_ragged_batch_with_an_empty_matrix(self, rng):
        batch = Batch.ragged([tridiagonal(3), sp.csr_array((0, 0)), tridiagonal(2)])
        b = rng.standard_normal(5)
        result = sparsebatch.solve(batch, b, **CPU)
        assert list(result.report.status) == ["Converged"] * 3
        assert_allclose(result.x, reference(batch, b), rtol=1e-9)

    def test_zero_right_hand_sides(self):
        result = sparsebatch.solve(tridiagonal(6), np.zeros(6), np.ones(6), **CPU)
        assert_array_equal(result.x, 0.0)
        assert_array_equal(result.report.iterations, 0)
        assert_array_equal(result.report.relative_residual, 0.0)


class TestSolver:
    """Analysis and factors that are kept."""

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("method", ["lu", "bicgstab"])
    def test_kept_matrices(self, method, kind, rng):
        batch = make_batch(kind, rng)
        solver = Solver(batch, method=method, **CPU)
        assert solver.batch is batch
        assert solver.nrhs == 1
        solver.factor()
        for _ in range(2):
            b = rng.standard_normal(vector_shape(batch))
            assert_allclose(solver.solve(b).x, reference(batch, b), rtol=1e-8, atol=1e-10)
            transposed = solver.solve(b, transpose=True).x
            assert_allclose(transposed, reference(batch, b, True), rtol=1e-8, atol=1e-10)

    def test_lu_keeps_factors(self, rng):
        batch = make_batch("uniform", rng)
        assert Solver(batch, method="lu", **CPU).keeps_factors is True

    @pytest.mark.parametrize("kind", KINDS)
    def test_other_values(self, kind, rng):
        batch = make_batch(kind, rng)
        b = rng.standard_normal(vector_shape(batch))
        solver = Solver(batch, **CPU)
        solver.factor()
        solver.solve(b)
        values = batch.values * (1 + 0.05 * rng.random(batch.values.shape))
        solver.update_values(values)
        now = batch.with_values(values)
        assert_allclose(solver.solve(b).x, reference(now, b), rtol=1e-8)
        assert_allclose(solver.solve(b, transpose=True).x, reference(now, b, True), rtol=1e-8)
        assert_array_equal(solver.batch.values, values)

    @pytest.mark.parametrize("method", ["lu", "bicgstab"])
    def test_near_solves_with_the_current_values(self, method, rng):
        batch = make_batch("uniform", rng)
        b = rng.standard_normal((5, 9))
        solver = Solver(batch, method=method, **CPU)
        solver.factor()
        solver.update_values(batch.values * (1 + 1e-3 * rng.random(batch.values.shape)))
        result = solver.solve(b, near=True)
        assert result.report.all_converged
        assert_allclose(result.x, reference(solver.batch, b), rtol=1e-7, atol=1e-9)

    def test_near_of_far_values_still_solves(self, rng):
        batch = make_batch("uniform", rng)
        b = rng.standard_normal((5, 9))
        solver = Solver(batch, method="lu", **CPU)
        solver.factor()
        solver.update_values(-3.0 * batch.values)
        result = solver.solve(b, near=True)
        assert result.report.all_converged
        assert_allclose(result.x, reference(solver.batch, b), rtol=1e-7)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("shift", ["number", "array"])
    def test_shift(self, shift, kind, dtype, rng):
        batch = make_batch(kind, rng, dtype)
        count = batch.nitems
        step = 0.02 if shift == "number" or kind == "shared" else 0.01 + 0.01 * rng.random(count)
        solver = Solver(batch, **CPU)
        solver.update_values(batch.values, shift=step)
        b = rng.standard_normal(vector_shape(batch)).astype(dtype)
        x = solver.solve(b).x
        steps = np.broadcast_to(step, count)
        parts = zip(dense(batch), items_of(batch, b), items_of(batch, x), steps, strict=True)
        for matrix, of_b, of_x, dt in parts:
            expected = np.linalg.solve(np.eye(len(matrix)) / dt - matrix, of_b)
            tolerance = 1e-9 if dtype == np.float64 else 1e-3
            assert_allclose(of_x, expected, rtol=tolerance, atol=tolerance / 10)

    def test_a_shift_leaves_the_callers_values_alone(self, rng):
        batch = make_batch("uniform", rng)
        before = batch.values.copy()
        solver = Solver(batch, **CPU)
        solver.update_values(batch.values, shift=0.1)
        assert_array_equal(batch.values, before)

    def test_values_are_read_where_they_lie(self, rng):
        a = nonsymmetric(9, rng)
        values = np.tile(a.data, (5, 1))
        batch = Batch.uniform(a.indptr, a.indices, values)
        assert np.shares_memory(batch.values, values)
        b = rng.standard_normal((5, 9))
        solver = Solver(batch, **CPU)
        first = solver.solve(b).x
        values *= 2.0
        assert_allclose(solver.solve(b).x, first / 2.0, rtol=1e-9)
        assert_allclose(solver.solve(b, transpose=True).x, reference(batch, b, True), rtol=1e-8)
        assert_allclose(sparsebatch.solve(batch, b, **CPU).x, first / 2.0, rtol=1e-9)

    def test_factor_takes_the_values_of_its_time(self, rng):
        a = nonsymmetric(9, rng)
        values = np.tile(a.data, (5, 1))
        b = rng.standard_normal((5, 9))
        solver = Solver(Batch.uniform(a.indptr, a.indices, values), method="lu", **CPU)
        first = solver.solve(b).x
        solver.factor()
        values *= 2.0
        assert_allclose(solver.solve(b).x, first, rtol=1e-9)
        solver.factor()
        assert_allclose(solver.solve(b).x, first / 2.0, rtol=1e-9)

    def test_one_matrix_of_scipy_is_not_copied(self):
        a = tridiagonal(12)
        assert np.shares_memory(Batch.from_scipy(a).values, a.data)

    def test_closed(self, rng):
        batch = make_batch("uniform", rng)
        with Solver(batch, **CPU) as solver:
            solver.solve(np.ones((5, 9)))
        with pytest.raises(sparsebatch.OptionError, match="the solver was closed"):
            solver.solve(np.ones((5, 9)))
        solver.close()

    def test_repr_names_what_was_chosen(self, rng):
        batch = make_batch("uniform", rng)
        text = repr(Solver(batch, method="cg", rtol=1e-3, **CPU))
        assert "Batch of 5 matrices 9 x 9" in text
        assert "method='cg'" in text
        assert "rtol=0.001" in text

    def test_repr_leaves_defaults_out(self, rng):
        text = repr(Solver(make_batch("uniform", rng), **CPU))
        assert "maxiter" not in text
        assert "atol" not in text


class TestGradient:
    """`value_gradient` against finite differences."""

    @pytest.mark.parametrize("nrhs", [1, 2])
    @pytest.mark.parametrize("kind", KINDS)
    def test_finite_differences(self, kind, nrhs, rng):
        if kind == "interleaved" and nrhs != 1:
            pytest.skip("an interleaved batch has one right-hand side")
        batch = make_batch(kind, rng)
        b = rng.standard_normal(vector_shape(batch, nrhs))
        weights = rng.standard_normal(b.shape)
        solver = Solver(batch, nrhs=nrhs, method="lu", rtol=1e-13, floor=16.0, **CPU)
        solver.factor()
        x = solver.solve(b).x
        adjoint = solver.solve(weights, transpose=True).x
        gradient = solver.value_gradient(adjoint, x)
        assert gradient.shape == batch.values.shape
        assert gradient.dtype == batch.values.dtype
        direction = rng.standard_normal(batch.values.shape)
        step = 1e-5

        def loss(values):
            return np.sum(weights * reference(batch.with_values(values), b))

        forward = loss(batch.values + step * direction)
        backward = loss(batch.values - step * direction)
        difference = (forward - backward) / (2 * step)
        assert_allclose(np.sum(gradient * direction), difference, rtol=1e-6)

    def test_is_the_product_of_adjoint_and_solution(self, rng):
        a = nonsymmetric(6, rng)
        solver = Solver(a, **CPU)
        adjoint, x = rng.standard_normal(6), rng.standard_normal(6)
        rows = np.repeat(np.arange(6), np.diff(a.indptr))
        assert_allclose(solver.value_gradient(adjoint, x), -adjoint[rows] * x[a.indices])

    def test_nan_of_an_unsolved_system_stays_there(self, rng):
        batch = make_batch("uniform", rng)
        x = np.ones((5, 9))
        x[2] = np.nan
        gradient = Solver(batch, **CPU).value_gradient(np.ones((5, 9)), x)
        assert np.isnan(gradient[2]).all()
        assert np.isfinite(np.delete(gradient, 2, axis=0)).all()


def test_the_ladder_solves_what_the_first_method_cannot():
    matrix = sp.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    result = sparsebatch.solve(matrix, np.array([1.0, 2.0]), method="cg", **CPU)
    assert_allclose(result.x, [2.0, 1.0])
    assert result.report.rung[0] != "first"
    assert result.report.rung_counts == {result.report.rung[0]: 1}


def test_methods_of_the_whole_agree_with_a_block_diagonal_solve(rng):
    batch = make_batch("ragged", rng)
    b = rng.standard_normal(vector_shape(batch))
    whole = scipy.sparse.linalg.spsolve(batch.to_block_diagonal().tocsc(), b)
    assert_allclose(sparsebatch.solve(batch, b, **CPU).x, whole, rtol=1e-8)
    blocks = Batch.from_block_diagonal(batch.to_block_diagonal(), batch.nrows)
    assert_array_equal(sparsebatch.solve(blocks, b, **CPU).x, sparsebatch.solve(batch, b, **CPU).x)
