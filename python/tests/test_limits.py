"""Tolerances, iteration limits and active systems of one call of a solver."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import sparsebatch
from sparsebatch import Batch, NotConverged, OptionError, Solver
from systems import KINDS, make_batch, tridiagonal, vector_shape

CPU = {"backend": "cpu"}


def some(nitems=6, n=40):
    a = tridiagonal(n, 2.1)
    values = a.data * (1 + 0.1 * np.random.default_rng(1).random((nitems, a.nnz)))
    return Batch.uniform(a.indptr, a.indices, values)


@pytest.mark.parametrize("method", ["cg", "bicgstab"])
def test_limits_are_those_of_a_solver_that_was_made_with_them(method):
    batch = some()
    b = np.random.default_rng(2).standard_normal((6, 40))
    options = {"method": method, "precond": "none", "fallback": False, "on_failure": "report"}
    solver = Solver(batch, **options, **CPU)
    plain = solver.solve(b)
    for limits in (
        {"rtol": 1e-2},
        {"rtol": np.logspace(-1, -6, 6)},
        {"atol": 1e-3, "rtol": 0.0},
        {"maxiter": 3},
        {"maxiter": [0, 1, 2, 3, 4, 1000], "rtol": 1e-12},
    ):
        for transpose in (False, True):
            found = solver.solve(b, transpose=transpose, **limits)
            expected = Solver(batch, **options, **limits, **CPU).solve(b, transpose=transpose)
            assert_array_equal(found.x, expected.x)
            assert_array_equal(found.report.iterations, expected.report.iterations)
            assert_array_equal(found.report.status, expected.report.status)
            # The solver's own hold again.
            assert_array_equal(solver.solve(b).x, plain.x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu", "pivoting-lu"])
def test_systems_that_are_not_active_keep_their_guess(kind, method, rng):
    batch = make_batch(kind, rng)
    b = rng.standard_normal(vector_shape(batch))
    x0 = rng.standard_normal(vector_shape(batch))
    solver = Solver(batch, method=method, **CPU)
    whole = solver.solve(b, x0)
    active = np.arange(batch.nitems) % 2 == 1
    if not batch.is_uniform:
        mask = np.repeat(active, batch.nrows)
    else:
        mask = active[0] if batch._is_single else active
        mask = mask if batch.layout == "interleaved" or batch._is_single else mask[:, None]

    found = solver.solve(b, x0, active=active)

    assert_array_equal(found.x, np.where(mask, whole.x, x0))
    report = found.report
    assert report.all_converged
    assert_array_equal(report.active, active)
    assert_array_equal(report.converged, active)
    assert set(report.status[~active]) <= {"Inactive"}
    assert (report.nactive, report.nconverged) == (active.sum(), active.sum())
    assert_array_equal(report.iterations[~active], 0)
    from_zero = solver.solve(b, active=active)
    assert_array_equal(from_zero.x, np.where(mask, solver.solve(b).x, 0))


def test_guesses_stay_where_a_solve_would_replace_them():
    batch = some(3, 5)
    b, x0 = np.ones((3, 5)), np.full((3, 5), 7.0)
    b[0] = 0
    x0[1] = np.nan
    for method in ("cg", "lu"):
        solver = Solver(batch, method=method, **CPU)
        found = solver.solve(b, x0, active=[False, False, True])
        assert_array_equal(found.x[:2], x0[:2])
        assert found.report.all_converged
        out = x0.copy()
        assert solver.solve(b, out, out=out, active=[False, False, True]).x is out
        assert_array_equal(out[:2], x0[:2])


def test_several_right_hand_sides_and_kept_factors(rng):
    batch = some(4, 9)
    b, x0 = rng.standard_normal((4, 9, 2)), rng.standard_normal((4, 9, 2))
    solver = Solver(batch, nrhs=2, method="lu", **CPU)
    solver.factor()
    active = np.array([[True, False], [False, False], [True, True], [False, True]])
    for transpose in (False, True):
        whole = solver.solve(b, x0, transpose=transpose)
        found = solver.solve(b, x0, transpose=transpose, active=active)
        assert_array_equal(found.x, np.where(active[:, None, :], whole.x, x0))
        assert_array_equal(found.report.active, active.ravel())
        of_items = solver.solve(b, x0, transpose=transpose, active=active[:, 0])
        assert_array_equal(of_items.x, np.where(active[:, 0, None, None], whole.x, x0))
    near = solver.solve(b, x0, near=True, active=active)
    assert_array_equal(near.report.active, active.ravel())


def test_nobody_is_active():
    solver = Solver(some(), **CPU)
    found = solver.solve(np.ones((6, 40)), active=np.zeros(6, bool))
    assert_array_equal(found.x, 0)
    assert found.report.all_converged and found.report.nactive == 0
    assert found.report.problem() is None


def test_the_report_counts_what_was_active():
    b = np.random.default_rng(3).standard_normal((6, 40))
    solver = Solver(some(), method="cg", precond="none", fallback=False, **CPU)
    active = np.array([True, True, False, False, True, False])
    with pytest.raises(NotConverged, match=r"^2 of 3 systems did not converge \(2 MaxIterations\)"):
        Solver(
            some(), method="cg", precond="none", fallback=False, on_failure="raise", **CPU
        ).solve(b, active=active, maxiter=[1000, 1, 1, 1, 1, 1])
    with pytest.warns(sparsebatch.NotConvergedWarning, match="2 of 3 systems"):
        found = solver.solve(b, active=active, maxiter=[1000, 1, 1, 1, 1, 1])
    report = found.report
    assert report.status_counts == {"Converged": 1, "MaxIterations": 2, "Inactive": 3}
    assert list(report.status_code) == [0, 1, 255, 255, 1, 255]
    assert report.advice(2) is None and report.advice(1) is not None
    assert "Inactive" in repr(report)
    assert repr(found).startswith("Result of 1 of 3 systems converged")
    again = pickle.loads(pickle.dumps(report))
    assert_array_equal(again.status, report.status)
    assert_array_equal(again.active, active)
    assert repr(again) == repr(report)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"active": [1, 0, 1, 0, 1, 0]}, "active has elements of int64, expected bool"),
        ({"active": [True] * 5}, r"active has shape \(5,\), expected \(6,\)"),
        ({"active": [[True] * 6] * 2}, r"active has shape \(2, 6\), expected \(6,\)"),
        ({"rtol": [1e-3] * 5}, "rtol has 5 entries, expected 6"),
        ({"rtol": "tight"}, "rtol is 'tight', expected numbers"),
        ({"atol": -1.0}, "atol is -1, expected a number that is not negative"),
        ({"atol": [0.0] * 5, "active": [True] * 6}, "active has 6 entries and atol 5, expected 6"),
        ({"maxiter": -1}, "maxiter is -1, expected 0 to 4294967295"),
        ({"maxiter": 2.5}, "maxiter is 2.5, expected numbers"),
    ],
)
def test_limits_that_do_not_fit_change_nothing(limits, message):
    solver = Solver(some(), **CPU)
    b = np.ones((6, 40))
    before = solver.solve(b).x
    with pytest.raises(OptionError, match=f"^{message}$"):
        solver.solve(b, **limits)
    assert_array_equal(solver.solve(b).x, before)
