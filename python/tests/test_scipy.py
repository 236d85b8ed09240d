"""`sparsebatch.scipy`: signatures and results of SciPy, for one matrix and for batches."""

import inspect

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as linalg
from numpy.testing import assert_allclose, assert_array_equal

import sparsebatch
import sparsebatch.scipy
from sparsebatch import Batch, OptionError, Unsupported
from systems import (
    KINDS,
    items_of,
    make_batch,
    nonsymmetric,
    reference,
    tridiagonal,
    vector_shape,
)

SOLVERS = ["cg", "bicgstab"]
CPU = {"backend": "cpu"}


def solver(name):
    return getattr(sparsebatch.scipy, name)


@pytest.mark.parametrize("name", [*SOLVERS, "spsolve"])
def test_signatures_are_those_of_scipy_and_more(name):
    own = inspect.signature(solver(name)).parameters
    peer = inspect.signature(getattr(linalg, name)).parameters
    for (own_name, mine), (peer_name, theirs) in zip(own.items(), peer.items(), strict=False):
        assert (own_name, mine.kind, mine.default) == (peer_name, theirs.kind, theirs.default)
    for parameter in list(own.values())[len(peer) :]:
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("shape", [(30,), (30, 1)])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dia", "dense", "list"])
@pytest.mark.parametrize("name", [*SOLVERS, "spsolve"])
def test_one_matrix(name, form, shape, rng):
    a = tridiagonal(30)
    b = rng.standard_normal(shape)
    given = a.toarray() if form == "dense" else a if form == "list" else a.asformat(form)
    right = b.tolist() if form == "list" else b
    if name == "spsolve":
        x = sparsebatch.scipy.spsolve(given, right, **CPU)
        assert_allclose(x, linalg.spsolve(a.tocsc(), b), rtol=1e-12)
    else:
        x, info = solver(name)(given, right, rtol=1e-10, **CPU)
        peer, peer_info = getattr(linalg, name)(a, b, rtol=1e-10)
        assert type(info) is int
        assert info == peer_info == 0
        assert x.shape == peer.shape
        assert_allclose(x, peer, rtol=1e-7, atol=1e-9)
    assert x.shape == (30,)


TYPES = [("f4", "f4"), ("f4", "f8"), ("f8", "f4"), ("i8", "i8"), ("f4", "i4")]


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", SOLVERS)
def test_types_of_results_are_those_of_scipy(name, types, rng):
    a, b = (4 * sp.eye_array(6, format="csr")).astype(types[0]), np.arange(6).astype(types[1])
    x, info = solver(name)(a, b, **CPU)
    peer, _ = getattr(linalg, name)(a, b)
    assert info == 0
    assert x.dtype == peer.dtype
    assert_allclose(x, np.arange(6) / 4, rtol=1e-5)


@pytest.mark.parametrize("name", SOLVERS)
class TestIterative:
    """What both methods do."""

    def test_tolerances(self, name, rng):
        a, b = tridiagonal(60), 1e3 * rng.standard_normal(60)
        norm = np.linalg.norm(b)
        tolerances = [0.0, 1e-9, 1e-4, 1.0, 1e2, np.inf]
        for rtol in tolerances:
            for atol in tolerances:
                if rtol or atol:
                    x, info = solver(name)(a, b, rtol=rtol, atol=atol, **CPU)
                    assert info == 0
                    if np.isfinite(rtol) and np.isfinite(atol):
                        assert np.linalg.norm(b - a @ x) <= 1.0001 * max(rtol * norm, atol)

    def test_the_limit_of_iterations(self, name):
        # Ten for each row, where no limit is given, are enough.
        a, b = tridiagonal(50), np.arange(50.0)
        for maxiter in (1, 2, 5):
            x, info = solver(name)(a, b, rtol=1e-12, maxiter=maxiter, **CPU)
            assert info == maxiter
            assert np.linalg.norm(b - a @ x) <= np.linalg.norm(b)
        assert solver(name)(a, b, rtol=1e-12, **CPU)[1] == 0
        assert solver(name)(a, b, maxiter=0, **CPU)[1] > 0

    def test_guesses(self, name, rng):
        a, b = tridiagonal(30), rng.standard_normal(30)
        exact = linalg.spsolve(a.tocsc(), b)
        for x0 in (exact, exact[:, None], exact.tolist()):
            x, info = solver(name)(a, b, x0, maxiter=1, rtol=1e-9, **CPU)
            assert info == 0
            assert_allclose(x, exact, rtol=1e-8)
        x, info = solver(name)(a, b, "Mb", **CPU)
        assert info == 0
        with pytest.raises(OptionError, match="x0 is 'b', expected an array or 'Mb'"):
            solver(name)(a, b, "b", **CPU)

    @pytest.mark.parametrize("precond", ["none", "auto", "jacobi", "block-jacobi", "ilu0", "ic0"])
    def test_preconditioners(self, name, precond, rng):
        a, b = tridiagonal(30), rng.standard_normal(30)
        x, info = solver(name)(a, b, rtol=1e-10, precond=precond, **CPU)
        assert info == 0
        assert_allclose(x, linalg.spsolve(a.tocsc(), b), rtol=1e-6, atol=1e-8)

    def test_what_is_not_supported_says_what_to_do(self, name):
        a, b = tridiagonal(5), np.ones(5)
        for options, message in [
            ({"M": sp.eye_array(5)}, "M is not supported: .* precond='jacobi'"),
            ({"callback": print}, "callback is not supported: .* progress"),
        ]:
            with pytest.raises(Unsupported, match=message):
                solver(name)(a, b, **options)
        with pytest.raises(Unsupported, match="LinearOperator is not supported: give its matrix"):
            solver(name)(linalg.aslinearoperator(a), b)
        for given, right in ((a.astype(complex), b), (a, 1j * b), (a.toarray() * 1j, b)):
            with pytest.raises(Unsupported, match="complex128 is not supported: solve the real"):
                solver(name)(given, right)
        with pytest.raises(Unsupported, match="complex128"):
            solver(name)(a, b, 1j * b)

    @pytest.mark.parametrize("value", [-1.0, None, "legacy", float("nan"), 1j, True, [1.0]])
    @pytest.mark.parametrize("option", ["rtol", "atol"])
    def test_tolerances_that_are_none(self, name, option, value):
        with pytest.raises(ValueError, match=f"^{option} is .*, expected a number"):
            solver(name)(tridiagonal(5), np.ones(5), **{option: value})

    @pytest.mark.parametrize(
        ("a", "b"),
        [
            (np.ones((2, 3)), np.ones(2)),
            (np.ones(4), np.ones(4)),
            (np.ones((2, 2, 2)), np.ones((2, 2))),
            (sp.csr_array((2, 3)), np.ones(2)),
            (np.eye(2), np.ones(3)),
            (np.eye(2), np.ones((2, 1, 1))),
            (np.eye(2), 1.0),
            (np.eye(2), ["a", "b"]),
        ],
    )
    def test_shapes(self, name, a, b):
        with pytest.raises(ValueError, match="expected"):
            solver(name)(a, b)

    @pytest.mark.parametrize("kind", KINDS)
    def test_batches(self, name, kind, rng):
        batch = make_batch(kind, rng)
        if name == "cg":
            # A symmetric positive definite one of the same kind.
            a = tridiagonal(9)
            options = {"layout": "interleaved"} if kind == "interleaved" else {}
            options |= {"nitems": 5} if kind == "shared" else {}
            many = np.tile(a.data, (5, 1))
            values = {"uniform": many, "interleaved": many.T}.get(kind, a.data)
            batch = Batch.uniform(a.indptr, a.indices, values, **options)
            batch = Batch.ragged([tridiagonal(n) for n in (2, 7)]) if kind == "ragged" else batch
        b = rng.standard_normal(vector_shape(batch))
        x, info = solver(name)(batch, b, rtol=1e-11, **CPU)
        assert_allclose(x, reference(batch, b), rtol=1e-7, atol=1e-9)
        if kind == "single":
            assert info == 0
        else:
            assert_array_equal(info, np.zeros(batch.nitems, np.int64))

    def test_every_system_has_its_info(self, name):
        a = tridiagonal(20)
        values = np.tile(a.data, (4, 1))
        values[1] = np.nan
        values[2] = 0.0
        batch = Batch.uniform(a.indptr, a.indices, values)
        x, info = solver(name)(batch, np.arange(80.0).reshape(4, 20), rtol=1e-12, maxiter=3, **CPU)
        assert list(info) == [3, -14, -13 if name == "cg" else -12, 3]
        assert x.shape == (4, 20)


def test_indefinite_matrices_are_a_breakdown_of_cg():
    _, info = sparsebatch.scipy.cg(-tridiagonal(5), np.ones(5), **CPU)
    assert info == -13
    assert sparsebatch.scipy.bicgstab(-tridiagonal(5), np.ones(5), **CPU)[1] == 0


def test_info_of_every_status():
    from sparsebatch.scipy import _INFO

    for name, info in zip(sparsebatch.STATUSES, _INFO, strict=True):
        assert (info == 0) == (name in ("Converged", "MaxIterations", "Stagnated"))
    assert len(set(_INFO[_INFO < 0])) == np.count_nonzero(_INFO)


class TestSpsolve:
    """`spsolve`."""

    def test_several_right_hand_sides(self, rng):
        a, b = nonsymmetric(20, rng), rng.standard_normal((20, 3))
        x = sparsebatch.scipy.spsolve(a, b, **CPU)
        assert_allclose(x, linalg.spsolve(a.tocsc(), b), rtol=1e-10)
        assert x.shape == (20, 3)

    def test_matrices_that_need_pivots(self, rng):
        a = rng.standard_normal((12, 12))
        np.fill_diagonal(a, 0.0)
        b = rng.standard_normal(12)
        assert_allclose(sparsebatch.scipy.spsolve(a, b, **CPU), np.linalg.solve(a, b), rtol=1e-8)

    def test_ill_conditioned_matrices_are_solved_as_well_as_elimination_can(self):
        n = 9
        hilbert = 1.0 / (1 + np.arange(n)[:, None] + np.arange(n))
        b = hilbert @ np.ones(n)
        x = sparsebatch.scipy.spsolve(hilbert, b, **CPU)
        assert np.linalg.norm(b - hilbert @ x) <= 1e-13 * np.linalg.norm(b)

    def test_singular_matrices_have_nan_and_a_warning(self):
        with pytest.warns(linalg.MatrixRankWarning, match="^Matrix is singular") as caught:
            x = sparsebatch.scipy.spsolve(np.ones((2, 2)), [1.0, 0.0], **CPU)
        assert_array_equal(x, np.nan)
        assert caught[0].filename == __file__

    @pytest.mark.parametrize("kind", ["uniform", "interleaved", "ragged"])
    def test_singular_items_of_a_batch(self, kind, rng):
        batch = make_batch(kind, rng)
        values = batch.values.copy()
        of_item = {"uniform": np.s_[2], "interleaved": np.s_[:, 2]}.get(kind)
        if of_item is None:
            start = int(batch.nnz[:2].sum())
            of_item = np.s_[start : start + int(batch.nnz[2])]
        values[of_item] = 0.0
        b = rng.standard_normal(vector_shape(batch))
        good = reference(batch, b)
        with pytest.warns(linalg.MatrixRankWarning, match="^1 of 5 systems are singular"):
            x = sparsebatch.scipy.spsolve(batch.with_values(values), b, **CPU)
        for item, (found, expected) in enumerate(
            zip(items_of(batch, x), items_of(batch, good), strict=True)
        ):
            if item == 2:
                assert np.isnan(found).all()
            else:
                assert_allclose(found, expected, rtol=1e-8)

    def test_right_hand_sides_of_singular_items(self, rng):
        for kind in ("uniform", "ragged", "single"):
            batch = make_batch(kind, rng)
            b = rng.standard_normal(vector_shape(batch, 2))
            with pytest.warns(linalg.MatrixRankWarning):
                x = sparsebatch.scipy.spsolve(batch.with_values(0 * batch.values), b, **CPU)
            assert x.shape == b.shape
            assert np.isnan(x).all()

    def test_what_is_not_supported_says_what_to_do(self):
        a, b = tridiagonal(4), np.ones(4)
        with pytest.raises(Unsupported, match="permc_spec is not supported: leave it out"):
            sparsebatch.scipy.spsolve(a, b, "NATURAL")
        with pytest.raises(Unsupported, match=r"sparse b is not supported: give b\.toarray\(\)"):
            sparsebatch.scipy.spsolve(a, a)
        with pytest.raises(Unsupported, match="complex128"):
            sparsebatch.scipy.spsolve(a.astype(complex), b)
