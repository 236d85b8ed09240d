"""Reports: statuses, counts, texts, and what happens where systems do not converge."""

import html
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import sparsebatch
from sparsebatch import RUNGS, STATUSES, Batch, Report, Solver
from systems import items_of, make_batch, tridiagonal, vector_shape

CPU = {"backend": "cpu"}
ALONE = {"fallback": False, "on_failure": "report", **CPU}


def matrix(*rows):
    return sp.csr_array(np.array(rows, float))


NAN = float("nan")
#: A system that ends with each status, and the options.
ENDS = {
    "Converged": (matrix([2, 1], [1, 2]), [1, 0], {}),
    "MaxIterations": (tridiagonal(50), np.arange(50.0), {"method": "cg", "maxiter": 2}),
    "BreakdownAlpha": (matrix([0, 1], [-1, 0]), [1, 0], {"method": "bicgstab", "precond": "none"}),
    "NonFinite": (matrix([NAN, 1], [1, 2]), [1, 0], {}),
    "Indefinite": (matrix([1, 0], [0, -1]), [1, 1], {"method": "cg", "precond": "none"}),
    "ZeroDiagonal": (matrix([0, 1], [1, 0]), [1, 0], {"method": "cg", "precond": "jacobi"}),
    "SingularPreconditioner": (
        matrix([1, 1], [1, 1]),
        [1, 0],
        {"method": "bicgstab", "precond": "ilu0"},
    ),
    "ZeroPivot": (matrix([1, 1], [1, 1]), [1, 0], {"method": "lu"}),
    "Singular": (matrix([1, 1], [1, 1]), [1, 0], {"method": "pivoting-lu"}),
    "Stagnated": (tridiagonal(30), np.arange(30.0), {"method": "lu", "rtol": 0.0}),
}


@pytest.mark.parametrize("status", ENDS)
def test_statuses(status):
    a, b, options = ENDS[status]
    b = np.array(b, float)
    result = sparsebatch.solve(a, b, **ALONE | options)
    report = result.report
    assert list(report.status) == [status]
    assert STATUSES[report.status_code[0]] == status
    assert report.status_counts == {status: 1}
    assert report.converged[0] == (status == "Converged") == report.all_converged
    # The solution is never worse than the guess.
    if status != "NonFinite":
        residual = np.linalg.norm(b - a @ result.x)
        assert residual <= np.linalg.norm(b)
        assert_allclose(report.residual_norm[0], residual, rtol=1e-6, atol=1e-12)
    if status == "Converged":
        assert report.advice(0) is None
        assert report.problem() is None
    else:
        assert report.advice(0)
        assert report.problem().startswith(f"1 of 1 systems did not converge (1 {status});")
        assert report.problem().endswith(f"try next: {report.advice(0)}")


def test_rare_breakdowns_of_bicgstab():
    # All matrices of three rows with entries -1, 0, 1.
    numbers = np.arange(3**9)
    values = np.stack([numbers // 3**k % 3 - 1.0 for k in range(9)], axis=1)
    batch = Batch.uniform(np.arange(0, 10, 3), np.tile(np.arange(3), 3), values)
    b = np.tile([-1.0, -1.0, 0.0], (len(values), 1))
    report = sparsebatch.solve(batch, b, method="bicgstab", precond="none", **ALONE).report
    found = report.status_counts
    assert found["BreakdownOmega"] > 0
    assert found["BreakdownRho"] > 0
    assert sum(found.values()) == len(values)
    assert {name for name, count in found.items() if count} <= set(STATUSES)


def test_every_status_is_produced():
    assert set(ENDS) | {"BreakdownOmega", "BreakdownRho"} == set(STATUSES)


def test_names():
    assert STATUSES[0] == "Converged"
    assert RUNGS[0] == "first"
    assert len(set(STATUSES)) == len(STATUSES)
    assert len(set(RUNGS)) == len(RUNGS)


def mixed():
    """Four systems, of which the second is singular and the third has a NaN."""
    a = tridiagonal(10)
    values = np.tile(a.data, (4, 1))
    values[1] = 0.0
    values[2, 3] = NAN
    return Batch.uniform(a.indptr, a.indices, values), np.ones((4, 10))


class TestArrays:
    """One element for each system."""

    def test_types_and_lengths(self, rng):
        batch = make_batch("uniform", rng)
        report = sparsebatch.solve(batch, rng.standard_normal((5, 9, 2)), **CPU).report
        assert isinstance(report, Report)
        kinds = {
            "status": "U",
            "status_code": "u",
            "converged": "b",
            "iterations": "u",
            "restarts": "u",
            "residual_norm": "f",
            "rhs_norm": "f",
            "relative_residual": "f",
            "rung": "U",
            "singular": "b",
            "accepted_by_floor": "b",
        }
        for name, kind in kinds.items():
            array = getattr(report, name)
            assert array.shape == (10,), name
            assert array.dtype.kind == kind, name
        assert len(report) == 10
        assert report.nconverged == 10

    @pytest.mark.parametrize("kind", ["uniform", "single", "ragged"])
    def test_systems_of_an_item_follow_each_other(self, kind, rng):
        batch = make_batch(kind, rng)
        b = rng.standard_normal(vector_shape(batch, 2))
        report = sparsebatch.solve(batch, b, **CPU).report
        norms = [np.linalg.norm(column) for item in items_of(batch, b) for column in item.T]
        assert_allclose(report.rhs_norm, norms, rtol=1e-12)

    def test_of_mixed_systems(self):
        batch, b = mixed()
        report = sparsebatch.solve(batch, b, on_failure="report", **CPU).report
        assert list(report.status) == ["Converged", "Singular", "NonFinite", "Converged"]
        assert list(report.converged) == [True, False, False, True]
        assert list(report.singular) == [False, True, False, False]
        assert report.status_counts == {"Converged": 2, "Singular": 1, "NonFinite": 1}
        assert report.nconverged == 2
        assert not report.all_converged
        assert (report.relative_residual[[0, 3]] < 1e-10).all()
        assert sum(report.rung_counts.values()) == 4

    def test_neighbours_of_a_failed_system_keep_their_bits(self):
        batch, b = mixed()
        x = sparsebatch.solve(batch, b, on_failure="report", **CPU).x
        values = batch.values.copy()
        values[1:3] = values[0]
        good = sparsebatch.solve(batch.with_values(values), b, **CPU).x
        assert_array_equal(x[[0, 3]], good[[0, 3]])

    def test_residuals_are_true(self, rng):
        batch = make_batch("uniform", rng)
        b = rng.standard_normal((5, 9))
        x, report = sparsebatch.solve(batch, b, method="bicgstab", rtol=1e-3, **CPU)
        parts = zip(batch, b, x, strict=True)
        residual = [np.linalg.norm(of_b - a @ of_x) for a, of_b, of_x in parts]
        assert_allclose(report.residual_norm, residual, rtol=1e-6)
        assert_allclose(report.relative_residual, residual / np.linalg.norm(b, axis=1), rtol=1e-6)

    def test_history(self, rng):
        a = tridiagonal(40)
        batch = Batch.uniform(a.indptr, a.indices, np.tile(a.data, (3, 1)))
        b = rng.standard_normal((3, 40))
        options = {"method": "cg", "fallback": False, **CPU}
        report = sparsebatch.solve(batch, b, history=True, **options).report
        assert len(report.history) == 3
        for norms, norm, iterations in zip(
            report.history, report.rhs_norm, report.iterations, strict=True
        ):
            assert len(norms) >= iterations
            assert_allclose(norms[0], norm, rtol=1e-12)
            assert norms[-1] < 1e-9 * norm
        assert sparsebatch.solve(batch, b, method="cg", **CPU).report.history == [[], [], []]

    def test_the_rounding_floor(self, rng):
        a = tridiagonal(40)
        b = rng.standard_normal(40)
        options = {"method": "lu", "rtol": 0.0, **ALONE}
        assert not sparsebatch.solve(a, b, **options).report.accepted_by_floor[0]
        report = sparsebatch.solve(a, b, floor=64.0, **options).report
        assert report.accepted_by_floor[0]
        assert report.all_converged

    def test_of_one_solve_stays_as_it_was(self, rng):
        batch = make_batch("uniform", rng)
        solver = Solver(batch, **CPU)
        first = solver.solve(rng.standard_normal((5, 9))).report
        before = first.residual_norm.copy(), first.rhs_norm.copy()
        solver.solve(100 * rng.standard_normal((5, 9)))
        assert_array_equal(first.residual_norm, before[0])
        assert_array_equal(first.rhs_norm, before[1])


class TestTexts:
    """What people read."""

    def test_what_ran(self, rng):
        batch = make_batch("uniform", rng)
        options = {"method": "bicgstab", "precond": "jacobi", **CPU}
        report = sparsebatch.solve(batch, np.ones((5, 9)), **options).report
        assert report.solver == "bicgstab + jacobi"
        assert report.reason == "asked for"
        assert report.backend == "cpu"
        assert "threads" in report.device
        assert report.format == "csr"
        assert report.kernel
        assert report.plan_time >= 0.0
        assert report.solve_time > 0.0
        ((name, systems, reason, kernel),) = report.schemes
        assert (name, systems, reason) == ("bicgstab + jacobi", 5, "asked for")
        assert kernel == report.kernel
        assert report.runs[0][:3] == ("first", 5, "cpu")

    def test_auto_says_why(self, rng):
        report = sparsebatch.solve(make_batch("uniform", rng), np.ones((5, 9)), **CPU).report
        assert report.reason
        assert report.reason != "asked for"

    def test_a_table(self):
        batch, b = mixed()
        result = sparsebatch.solve(batch, b, on_failure="report", **CPU)
        rows = dict(line.split("  ", 1) for line in repr(result.report).splitlines())
        rows = {name.strip(): value.strip() for name, value in rows.items()}
        assert rows["systems"] == "4"
        assert rows["converged"] == "2"
        assert rows["Singular"] == rows["NonFinite"] == "1"
        assert rows["next"] == result.report.advice(1)
        assert "analysis" in rows["times"]
        assert repr(result).startswith("Result of 2 of 4 systems converged\n")
        assert result._repr_html_() == result.report._repr_html_()
        for name, value in rows.items():
            assert html.escape(name) in result._repr_html_()
            assert html.escape(value) in result._repr_html_()

    def test_a_table_of_no_systems(self):
        text = repr(sparsebatch.solve([], np.zeros(0), **CPU))
        assert "0 of 0 systems converged" in text

    def test_html_is_escaped(self):
        report = Report.__new__(Report)
        report._rows = lambda: [("<a>", "b & c")]
        assert "<th style='text-align:left'>&lt;a&gt;</th>" in report._repr_html_()
        assert "b &amp; c" in report._repr_html_()


class TestFailures:
    """`on_failure`."""

    def test_warns_with_counts_and_the_next_step_at_the_callers_line(self):
        batch, b = mixed()
        solver = Solver(batch, **CPU)

        def solved_by_a_solver():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                solver.solve(b)
            return caught

        def solved_by_a_function():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                sparsebatch.solve(batch, b, **CPU)
            return caught

        for function in (solved_by_a_solver, solved_by_a_function):
            (warning,) = function()
            assert warning.category is sparsebatch.NotConvergedWarning
            assert warning.filename == __file__
            assert warning.lineno == function.__code__.co_firstlineno + 3
            text = str(warning.message)
            assert text.startswith("2 of 4 systems did not converge (")
            assert "1 Singular" in text
            assert "1 NonFinite" in text
            assert "; try next: " in text

    def test_raises_with_the_result(self):
        batch, b = mixed()
        out = np.empty_like(b)
        with pytest.raises(sparsebatch.NotConverged, match="^2 of 4 systems") as caught:
            sparsebatch.solve(batch, b, out=out, on_failure="raise", **CPU)
        result = caught.value.result
        assert result.report.nconverged == 2
        assert result.x is out
        assert isinstance(caught.value, RuntimeError)

    def test_reports_silently(self):
        batch, b = mixed()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = sparsebatch.solve(batch, b, on_failure="report", **CPU)
        assert result.report.nconverged == 2

    def test_nothing_happens_where_all_converge(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for choice in ("warn", "raise", "report"):
                sparsebatch.solve(tridiagonal(5), np.ones(5), on_failure=choice, **CPU)

    def test_a_solver_is_usable_afterwards(self):
        batch, b = mixed()
        solver = Solver(batch, on_failure="raise", **CPU)
        with pytest.raises(sparsebatch.NotConverged):
            solver.solve(b)
        solver.update_values(np.tile(batch.values[0], (4, 1)))
        assert solver.solve(b).report.all_converged

    def test_advice_follows_from_what_was_allowed(self):
        a = matrix([1, 0], [0, -1])
        b = np.array([1.0, 1.0])
        report = sparsebatch.solve(a, b, method="cg", precond="none", **ALONE).report
        assert "ladder" in report.advice(0)

    def test_failures_cross_processes(self):
        batch, b = mixed()
        with pytest.raises(sparsebatch.NotConverged) as caught:
            sparsebatch.solve(batch, b, on_failure="raise", **CPU)
        other = pickle.loads(pickle.dumps(caught.value))
        assert str(other) == str(caught.value)

    def test_results_cross_processes(self):
        batch, b = mixed()
        result = sparsebatch.solve(batch, b, on_failure="report", **CPU)
        other = pickle.loads(pickle.dumps(result))
        assert_array_equal(other.x, result.x)
        assert list(other.report.status) == list(result.report.status)

    @pytest.mark.parametrize("system", [-1, 4])
    def test_advice_about_systems_that_are_not_there(self, system):
        batch, b = mixed()
        report = sparsebatch.solve(batch, b, on_failure="report", **CPU).report
        with pytest.raises(IndexError):
            report.advice(system)
