"""`sparsebatch.mpi` on the ranks of a job: bits, shares, reports, faults."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from mpi4py import MPI

import sparsebatch
import sparsebatch.mpi
from sparsebatch import (
    Batch,
    FormatError,
    NotConverged,
    NotConvergedWarning,
    OptionError,
    RankFailed,
    Stopped,
    Unsupported,
    _ranks,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from systems import KINDS, make_batch, nonsymmetric, tridiagonal, vector_shape  # noqa: E402

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
LAST = SIZE - 1
HERE = MPI.Get_processor_name()
CPU: dict[str, Any] = {"backend": "cpu"}

#: Items of the batch whose ranks give their own.
ITEMS = 23


def matrix(item: int) -> sp.csr_array:
    """A matrix of a size of its own, which CG solves in a number of iterations of its own."""
    return tridiagonal(3 + item, 2.1)


def bounds(ranks: int = SIZE) -> list[int]:
    """Where the items of each rank begin: all ranks but the last have unequal numbers, and where
    there are several, rank 1 has none."""
    cuts = [0, *([5] * (ranks > 1)), *(5 + rank for rank in range(ranks - 2)), ITEMS]
    return cuts


def own_items() -> range:
    return range(*bounds()[RANK : RANK + 2])


def uniform(items: range, dtype: Any = np.float64) -> Batch:
    """Items of a uniform batch."""
    pattern = nonsymmetric(9, np.random.default_rng(7))
    values = pattern.data * (1 + 0.1 * np.random.default_rng(8).random((ITEMS, pattern.nnz)))
    own = values[items.start : items.stop].astype(dtype)
    return Batch.uniform(pattern.indptr, pattern.indices, own)


def right_hand_sides(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(9).standard_normal(shape).astype(dtype)


def same_bits(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def raises_everywhere(error: type[Exception], call: Any) -> str:
    """The message of an exception that all ranks raise."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    messages = MPI.COMM_WORLD.allgather(str(caught.value))
    assert len(set(messages)) == 1, messages
    return messages[0]


def on_rank(rank: int, text: str) -> str:
    """A message that names the rank, or none where it is all ranks."""
    return text if SIZE == 1 else f"rank {rank} on {HERE}: {text}"


def outcomes(report: sparsebatch.Report) -> tuple[Any, ...]:
    names = ("status", "iterations", "restarts", "residual_norm", "rhs_norm", "rung", "active")
    return tuple(getattr(report, name).tolist() for name in names)


class TestOwnItems:
    """Every rank gives its own items."""

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("method", ["auto", "cg", "bicgstab", "lu"])
    def test_bits_of_a_uniform_batch(self, comm, dtype, method):
        whole, own = uniform(range(ITEMS), dtype), own_items()
        b = right_hand_sides((ITEMS, 9), dtype)
        options = CPU | {"method": method, "fallback": True, "on_failure": "report"}
        expected = sparsebatch.solve(whole, b, **options)

        part = b[own.start : own.stop]
        result = sparsebatch.mpi.solve(uniform(own, dtype), part, comm, **options)

        assert result.items == own and len(result.report) == len(own)
        assert same_bits(result.x, expected.x[own.start : own.stop])
        report = result.gather_report()
        assert (report is None) == (RANK != 0)
        if report is not None:
            assert outcomes(report) == outcomes(expected.report)
            assert report.schemes[0][:2] == expected.report.schemes[0][:2]

    def test_bits_of_a_ragged_batch(self, comm):
        matrices, own = [matrix(item) for item in range(ITEMS)], own_items()
        whole = Batch.ragged(matrices)
        b = right_hand_sides((int(whole.row_offsets[-1]), 2))
        rows = slice(*whole.row_offsets[[own.start, own.stop]])
        expected = sparsebatch.solve(whole, b, method="cg", **CPU)

        share = Batch.ragged(matrices[own.start : own.stop])
        result = sparsebatch.mpi.solve(share, b[rows], comm, method="cg", **CPU)

        assert same_bits(result.x, expected.x[rows])
        report = result.gather_report(root=LAST)
        assert (report is None) == (RANK != LAST)
        if report is not None:
            assert outcomes(report) == outcomes(expected.report)

    def test_one_system_on_the_first_rank(self, comm):
        share = Batch.ragged([matrix(4)] if RANK == 0 else [])
        result = sparsebatch.mpi.solve(share, np.ones(7 if RANK == 0 else 0), comm, **CPU)

        assert result.x.shape == ((7,) if RANK == 0 else (0,))
        assert result.report.all_converged
        assert comm.bcast(result.gather_report() and 1) == 1

    def test_no_systems_at_all(self, comm):
        result = sparsebatch.mpi.solve(Batch.ragged([]), np.empty(0), comm, **CPU)
        assert result.x.shape == (0,) and list(result.items) == []
        report = result.gather_report()
        assert report is None or (len(report) == 0 and report.all_converged)

    def test_a_pin_and_an_allocator(self, comm):
        pin = "sparsebatch plan 1\nversion 0\ncpu avx2\n"
        message = raises_everywhere(
            OptionError,
            lambda: sparsebatch.mpi.solve(uniform(range(1)), np.ones((1, 9)), comm, pin=pin, **CPU),
        )
        assert "version" in message
        message = raises_everywhere(
            OptionError,
            lambda: sparsebatch.mpi.solve(
                uniform(range(1)), np.ones((1, 9)), comm, allocator="driver", **CPU
            ),
        )
        assert message == "allocator is given, but the values lie in host memory"

    def test_repeated_solves(self, comm):
        own, whole = own_items(), uniform(range(ITEMS))
        share = uniform(own)
        b = right_hand_sides((ITEMS, 9, 2))
        part = b[own.start : own.stop]
        local = sparsebatch.Solver(whole, nrhs=2, method="lu", **CPU)
        with sparsebatch.mpi.Solver(share, comm, nrhs=2, method="lu", **CPU) as solver:
            assert (solver.nitems, solver.items, solver.nrhs) == (ITEMS, own, 2)
            assert f"Rank {RANK} of {SIZE}" in repr(solver)
            for step in range(2):
                values = whole.values * (1 + 0.01 * step)
                local.update_values(values, shift=0.5)
                solver.update_values(values[own.start : own.stop], shift=0.5)
                local.factor()
                solver.factor()
                for transpose in (False, True):
                    expected = local.solve(b, transpose=transpose).x
                    x = solver.solve(part, transpose=transpose).x
                    assert same_bits(x, expected[own.start : own.stop])
            assert solver.local.keeps_factors
            local.update_values(whole.values * 1.001)
            solver.update_values(share.values * 1.001)
            expected = local.solve(b, near=True).x
            assert same_bits(solver.solve(part, near=True).x, expected[own.start : own.stop])
        with pytest.raises(OptionError, match="closed"):
            solver.local.factor()

    def test_limits_and_inactive_systems(self, comm):
        own, whole = own_items(), uniform(range(ITEMS))
        b = right_hand_sides((ITEMS, 9))
        active = np.arange(ITEMS) % 3 != 0
        rtol = np.logspace(-10, -2, ITEMS)
        part = slice(own.start, own.stop)
        options = CPU | {"method": "bicgstab"}
        expected = sparsebatch.Solver(whole, rtol=rtol, **options).solve(b, active=active)

        solver = sparsebatch.mpi.Solver(uniform(own), comm, rtol=rtol[part], **options)
        out = np.empty((len(own), 9))
        result = solver.solve(b[part], active=active[part], out=out)

        assert result.x is out and same_bits(out, expected.x[part])
        report = result.gather_report()
        if report is not None:
            assert outcomes(report) == outcomes(expected.report)
            assert report.nactive == int(active.sum())


class TestRoot:
    """Rank `root` gives everything."""

    @pytest.mark.parametrize("nrhs", [1, 2])
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("root", sorted({0, LAST}))
    def test_bits(self, comm, kind, nrhs, root, monkeypatch):
        if kind == "interleaved" and nrhs != 1:
            pytest.skip("several right-hand sides of an interleaved batch")
        # Several windows for each array.
        monkeypatch.setattr(_ranks, "WINDOW", 7)
        batch = make_batch(kind, np.random.default_rng(5))
        b = right_hand_sides(vector_shape(batch, nrhs))
        x0 = right_hand_sides(vector_shape(batch, nrhs)) / 2
        expected = sparsebatch.solve(batch, b, x0, method="bicgstab", **CPU)

        given = (batch, b) if RANK == root else (None, None)
        guess = x0 if RANK == root else None
        options = CPU | {"method": "bicgstab", "root": root}
        result = sparsebatch.mpi.solve(*given, comm, guess, **options)

        report = result.gather_report(root=0)
        assert (report is None) == (RANK != 0)
        if report is not None:
            assert outcomes(report) == outcomes(expected.report)
        if RANK == root:
            assert result.items == range(batch.nitems)
            assert same_bits(np.ascontiguousarray(result.x), np.ascontiguousarray(expected.x))
            assert outcomes(result.report) == outcomes(expected.report)
        else:
            assert len(result.report) == len(result.items) * nrhs
        counts = comm.allgather(len(result.items) if RANK != root else 0)
        assert sum(counts) <= batch.nitems

    def test_repeated_solves(self, comm):
        whole = Batch.ragged([matrix(item) for item in range(ITEMS)])
        b = right_hand_sides((int(whole.row_offsets[-1]),))
        active = np.arange(ITEMS) % 4 != 0
        rtol = np.logspace(-9, -3, ITEMS)
        local = sparsebatch.Solver(whole, method="cg", rtol=rtol, **CPU)

        def of_root(value):
            return value if RANK == 0 else None

        options = {"rtol": rtol} if RANK == 0 else {}
        with sparsebatch.mpi.Solver(
            of_root(whole), comm, root=0, method="cg", **options, **CPU
        ) as solver:
            assert solver.nitems == ITEMS
            for step in (1, 2):
                values = whole.values * step
                local.update_values(values, shift=-0.1)
                solver.update_values(of_root(values), shift=of_root(-0.1))
                expected = local.solve(b, active=active, maxiter=np.full(ITEMS, 40))
                out = of_root(np.empty(len(b)))
                result = solver.solve(
                    of_root(b),
                    out=out,
                    active=of_root(active),
                    maxiter=of_root(np.full(ITEMS, 40)),
                )
                if RANK == 0:
                    assert result.x is out and same_bits(out, expected.x)
                    assert outcomes(result.report) == outcomes(expected.report)
            solver.factor()

    def test_options_are_those_of_the_root(self, comm):
        batch = uniform(range(ITEMS))
        b = right_hand_sides((ITEMS, 9))
        options = {"method": "bicgstab", "maxiter": 1, "fallback": False, "on_failure": "raise"}
        with pytest.raises(NotConverged) as caught:
            if RANK == 0:
                sparsebatch.mpi.solve(batch, b, comm, root=0, **options, **CPU)
            else:
                sparsebatch.mpi.solve(None, None, comm, root=0, **CPU)
        report = caught.value.result.report
        assert report.solver.startswith("bicgstab") or len(report) == 0
        assert len(set(comm.allgather(str(caught.value)))) == 1
        if SIZE > 1:
            message = raises_everywhere(
                OptionError,
                lambda: sparsebatch.mpi.Solver(
                    batch if RANK == 0 else None,
                    comm,
                    root=0,
                    nrhs=2 + (RANK == LAST),
                    **CPU,
                ),
            )
            assert message == f"rank {LAST} on {HERE}: nrhs is 3, on rank 0 it is 2"

    def test_the_pin_of_the_root_alone_makes_machines_alike(self, comm, monkeypatch):
        def machine(_: Any, pin: str | None) -> list[tuple[str, str]]:
            return [("the model of the GPU", f"model {RANK}" if pin is None else pin)]

        monkeypatch.setattr(sparsebatch.mpi._native, "machine", machine)
        batch, taken = uniform(range(ITEMS)) if RANK == 0 else None, []
        local = sparsebatch.mpi.LocalSolver

        def without_pin(*args: Any, pin: Any = None, **options: Any) -> Any:
            taken.append(pin)
            return local(*args, **options)

        monkeypatch.setattr(sparsebatch.mpi, "LocalSolver", without_pin)
        pin = "of the root" if RANK == 0 else None
        sparsebatch.mpi.Solver(batch, comm, root=0, pin=pin, **CPU)
        assert taken == ["of the root"]
        if SIZE > 1:
            raises_everywhere(
                OptionError, lambda: sparsebatch.mpi.Solver(batch, comm, root=0, **CPU)
            )

    def test_values_are_taken_at_the_call(self, comm):
        batch, b = uniform(range(ITEMS)), right_hand_sides((ITEMS, 9))
        values = np.array(batch.values) if RANK == 0 else None
        solver = sparsebatch.mpi.Solver(batch if RANK == 0 else None, comm, root=0, **CPU)
        solver.update_values(values)
        expected = solver.solve(b if RANK == 0 else None)
        if values is not None:
            values[:] = np.nan
        # As a rebalance does where shares change.
        solver._divide(solver._division)
        found = solver.solve(b if RANK == 0 else None)
        assert same_bits(found.x, expected.x)

    def test_rebalance(self, comm, monkeypatch):
        # The time of a machine that does nothing else: entries grow with iterations here.
        time = property(lambda report: 1e-6 * float((report.iterations.astype(float) ** 2).sum()))
        monkeypatch.setattr(sparsebatch.Report, "solve_time", time)
        whole = Batch.ragged([matrix(item) for item in range(ITEMS)])
        b = np.ones(int(whole.row_offsets[-1]))
        expected = sparsebatch.solve(whole, b, method="cg", **CPU)
        iterations = expected.report.iterations.astype(np.int64)

        def of_root(value):
            return value if RANK == 0 else None

        with sparsebatch.mpi.Solver(of_root(whole), comm, root=0, method="cg", **CPU) as solver:
            before = comm.allgather(solver.items)
            result = solver.solve(of_root(b))
            after = solver.shares_after(result)
            assert solver.rebalance(result) == (after != before)
            assert comm.allgather(solver.items) == after
            # Later items take most iterations, so that the last rank gets fewer.
            assert SIZE == 1 or len(after[LAST]) < len(before[LAST])
            times = iterations.astype(float) ** 2
            dearest = max(times[items.start : items.stop].sum() for items in after)
            assert dearest <= times.sum() / SIZE + times.max()
            result = solver.solve(of_root(b))
            if RANK == 0:
                assert same_bits(result.x, expected.x)
                assert outcomes(result.report) == outcomes(expected.report)
            assert solver.shares_after(result) != before or SIZE == 1

    def test_tensors_in_host_memory(self, comm):
        torch = pytest.importorskip("torch")
        batch = uniform(range(ITEMS))
        b = torch.ones(ITEMS, 9, dtype=torch.float64) if RANK == 0 else None
        result = sparsebatch.mpi.solve(batch if RANK == 0 else None, b, comm, root=0, **CPU)
        assert RANK != 0 or isinstance(result.x, torch.Tensor)


def test_shares_after_own_items(comm):
    own = own_items()
    share = Batch.ragged([matrix(item) for item in own])
    rows = int(share.row_offsets[-1])
    solver = sparsebatch.mpi.Solver(share, comm, nrhs=2, method="cg", **CPU)
    result = solver.solve(np.ones((rows, 2)))
    shares = solver.shares_after(result)
    assert [item for share in shares for item in share] == list(range(ITEMS))
    assert len(set(comm.allgather(tuple(shares)))) == 1
    message = raises_everywhere(OptionError, lambda: solver.rebalance(result))
    assert "shares_after" in message
    other = sparsebatch.mpi.solve(Batch.ragged([matrix(1)]), np.ones(4), comm, **CPU)
    message = raises_everywhere(OptionError, lambda: solver.shares_after(other))
    assert "result has 1 systems of this rank" in message


class TestFailures:
    """What fails on one rank is one exception on all."""

    def test_a_matrix_of_the_last_rank(self, comm):
        def call():
            columns = [0, 7 if RANK == LAST else 1]
            sparsebatch.mpi.solve(
                [sp.csr_array((np.ones(2), columns, [0, 1, 2]), shape=(2, 2))], np.ones(2), comm
            )

        message = raises_everywhere(FormatError, call)
        assert message == on_rank(LAST, "col_idx[1] is 7, expected an index in 0..2")

    def test_right_hand_sides_of_another_shape(self, comm):
        def call():
            b = np.ones((1, 3 if RANK == LAST else 2))
            sparsebatch.mpi.solve(Batch.uniform([0, 1, 2], [0, 1], [[1.0, 2.0]]), b, comm, **CPU)

        message = raises_everywhere(OptionError, call)
        assert message == on_rank(LAST, "b has shape (1, 3), expected (1, 2)")

    def test_no_batch(self, comm):
        batch = uniform(range(1)) if RANK != LAST else 5
        message = raises_everywhere(
            OptionError, lambda: sparsebatch.mpi.solve(batch, np.ones((1, 9)), comm, **CPU)
        )
        assert message.startswith(on_rank(LAST, "A is a int, expected a Batch"))

    def test_an_option_of_all_ranks(self, comm):
        batch, b = uniform(range(1)), np.ones((1, 9))
        message = raises_everywhere(
            OptionError, lambda: sparsebatch.mpi.solve(batch, b, comm, method="gmres", **CPU)
        )
        assert "gmres" in message and "rank" not in message
        unknown = raises_everywhere(
            TypeError, lambda: sparsebatch.mpi.solve(batch, b, comm, tolerance=1.0, **CPU)
        )
        assert "'tolerance' is no option" in unknown

    def test_own_code_on_one_rank(self, comm):
        def progress(ended, systems):
            if RANK == LAST:
                raise ZeroDivisionError("on purpose")

        solver = sparsebatch.mpi.Solver(uniform(range(2)), comm, progress=progress, **CPU)
        message = raises_everywhere(RankFailed, lambda: solver.solve(np.ones((2, 9))))
        assert message == on_rank(LAST, "ZeroDivisionError: on purpose")

    def test_an_interrupt_of_one_rank(self, comm):
        def progress(ended, systems):
            if RANK == LAST:
                raise KeyboardInterrupt

        solver = sparsebatch.mpi.Solver(uniform(range(2)), comm, progress=progress, **CPU)
        with pytest.raises(KeyboardInterrupt if RANK == LAST else RankFailed) as caught:
            solver.solve(np.ones((2, 9)))
        if RANK != LAST:
            assert str(caught.value) == on_rank(LAST, "KeyboardInterrupt")

    def test_warnings_that_are_errors_are_raised_on_all_ranks(self, comm):
        options = {"method": "bicgstab", "maxiter": 1, "fallback": False}
        solver = sparsebatch.mpi.Solver(uniform(own_items()), comm, **options, **CPU)
        b = right_hand_sides((len(own_items()), 9))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            raises_everywhere(NotConvergedWarning, lambda: solver.solve(b))

    def test_solves_go_on_after_a_failure(self, comm):
        solver = sparsebatch.mpi.Solver(uniform(range(2)), comm, **CPU)
        b = np.ones((2, 9))
        raises_everywhere(OptionError, lambda: solver.solve(b if RANK != 0 else b[:1]))
        assert solver.solve(b).report.all_converged

    @pytest.mark.parametrize(
        ("option", "usual", "other"),
        [
            ("rtol", None, 1e-3),
            ("method", "auto", "lu"),
            ("maxiter", 1000, 7),
            ("on_failure", "warn", "raise"),
        ],
    )
    def test_unequal_options(self, comm, option, usual, other):
        if SIZE == 1:
            pytest.skip("one rank")
        given = {option: other if RANK == LAST else usual} | CPU
        message = raises_everywhere(
            OptionError,
            lambda: sparsebatch.mpi.solve(uniform(range(1)), np.ones((1, 9)), comm, **given),
        )
        assert message == (
            f"rank {LAST} on {HERE}: {option} is {other!r}, on rank 0 it is {usual!r}"
        )

    def test_unequal_data(self, comm):
        if SIZE == 1:
            pytest.skip("one rank")
        dtype = np.float32 if RANK == 1 else np.float64
        message = raises_everywhere(
            OptionError,
            lambda: sparsebatch.mpi.solve(
                uniform(range(1), dtype), np.ones((1, 9), dtype), comm, **CPU
            ),
        )
        expected = "the type of the values is float32, on rank 0 it is float64"
        assert message == f"rank 1 on {HERE}: {expected}"
        b = np.ones((1, 9, 2) if RANK == 1 else (1, 9))
        message = raises_everywhere(
            OptionError, lambda: sparsebatch.mpi.solve(uniform(range(1)), b, comm, **CPU)
        )
        assert message == f"rank 1 on {HERE}: nrhs is 2, on rank 0 it is 1"

    def test_another_machine(self, comm, monkeypatch):
        if SIZE == 1:
            pytest.skip("one rank")
        described = [("the instruction set", "avx2" if RANK == LAST else "avx512")]
        monkeypatch.setattr(sparsebatch._native, "machine", lambda *_: described)
        message = raises_everywhere(
            OptionError,
            lambda: sparsebatch.mpi.Solver(uniform(range(1)), comm, **CPU),
        )
        expected = "the instruction set is avx2, on rank 0 it is avx512"
        assert message == f"rank {LAST} on {HERE}: {expected}"

    def test_calls_that_differ(self, comm):
        if SIZE == 1:
            pytest.skip("one rank")
        solver = sparsebatch.mpi.Solver(uniform(range(1)), comm, method="lu", **CPU)
        b = np.ones((1, 9))
        call = solver.factor if RANK == LAST else lambda: solver.solve(b)
        message = raises_everywhere(OptionError, call)
        assert message == f"rank {LAST} on {HERE}: the call is factor, on rank 0 it is solve"
        message = raises_everywhere(
            OptionError, lambda: solver.solve(b, transpose=RANK == LAST)
        )
        assert message == f"rank {LAST} on {HERE}: transpose is True, on rank 0 it is False"

    def test_data_of_another_rank_than_the_root(self, comm):
        if SIZE == 1:
            pytest.skip("one rank")
        batch, b = uniform(range(2)), np.ones((2, 9))
        message = raises_everywhere(
            OptionError,
            lambda: sparsebatch.mpi.solve(
                batch if RANK in (0, LAST) else None, b if RANK == 0 else None, comm, root=0
            ),
        )
        expected = "A is given, expected None: with root=0 only that rank gives it"
        assert message == f"rank {LAST} on {HERE}: {expected}"
        of_root = (batch, b) if RANK == 0 else (None, None)
        message = raises_everywhere(
            OptionError,
            lambda: sparsebatch.mpi.solve(*of_root, comm, root=0, maxiter=5 + (RANK == LAST)),
        )
        assert message == f"rank {LAST} on {HERE}: maxiter is 6, on rank 0 it is 5"

    def test_roots_that_are_none(self, comm):
        for root in (-1, SIZE, 0.0, True):
            message = raises_everywhere(
                OptionError,
                lambda root=root: sparsebatch.mpi.Solver(uniform(range(1)), comm, root=root),
            )
            assert message == f"root is {root!r}, expected a rank from 0 to {LAST}"
        result = sparsebatch.mpi.solve(uniform(range(1)), np.ones((1, 9)), comm, **CPU)
        raises_everywhere(OptionError, lambda: result.gather_report(root=SIZE))

    def test_unequal_roots(self, comm):
        if SIZE == 1:
            pytest.skip("one rank")
        root = 0 if RANK == 0 else 1
        given = uniform(range(1)) if RANK in (0, 1) else None
        message = raises_everywhere(
            OptionError, lambda: sparsebatch.mpi.Solver(given, comm, root=root, **CPU)
        )
        assert message == f"rank 1 on {HERE}: root is 1, on rank 0 it is 0"

    def test_limits_of_another_number_of_systems(self, comm):
        given = uniform(range(2)) if RANK == 0 else None
        message = raises_everywhere(
            OptionError,
            lambda: sparsebatch.mpi.Solver(
                given, comm, root=0, **({"rtol": [1e-3] * 3} if RANK == 0 else {})
            ),
        )
        assert message == on_rank(0, "rtol has 3 numbers, expected 2")

    def test_a_report_that_cannot_be_read(self):
        with pytest.raises(OptionError, match="a report of another process cannot be read"):
            sparsebatch._native.Report.merged([b"\xff"])
        with pytest.raises(OptionError, match="no reports"):
            sparsebatch._native.Report.merged([])


class TestNotConverged:
    """Systems that do not converge, on the last rank alone."""

    B = np.ones((2, 2))

    def solve(self, comm, **options):
        values = [[1.0, 1.0], [1.0, 0.0 if RANK == LAST else 1.0]]
        batch = Batch.uniform([0, 1, 2], [0, 1], values)
        return sparsebatch.mpi.solve(batch, self.B, comm, fallback=False, **options, **CPU)

    def message(self) -> str:
        return (
            f"1 of {2 * SIZE} systems did not converge (1 Singular; the first on rank {LAST} on "
            f"{HERE}); try next: "
        )

    def test_raise(self, comm):
        with pytest.raises(NotConverged) as caught:
            self.solve(comm, method="pivoting-lu", on_failure="raise")
        assert str(caught.value).startswith(self.message())
        assert len(set(comm.allgather(str(caught.value)))) == 1
        assert caught.value.result.report.nconverged == 2 - (RANK == LAST)
        stored = pickle.loads(pickle.dumps(caught.value))
        assert outcomes(stored.result.report) == outcomes(caught.value.result.report)

    def test_warn(self, comm):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = self.solve(comm, method="pivoting-lu")
        assert result.report.all_converged == (RANK != LAST)
        found = [one for one in caught if issubclass(one.category, NotConvergedWarning)]
        assert len(found) == (RANK == 0)
        assert all(str(one.message).startswith(self.message()) for one in found)
        assert all(one.filename == __file__ for one in found)

    def test_report(self, comm):
        result = self.solve(comm, method="pivoting-lu", on_failure="report")
        report = result.gather_report()
        if report is not None:
            assert report.status_counts == {"Converged": 2 * SIZE - 1, "Singular": 1}
            assert report.advice(2 * SIZE - 1)


class TestCommunicators:
    """What is no communicator is refused on the rank that gave it."""

    @pytest.mark.parametrize("comm", [None, 0, "world", MPI.GROUP_EMPTY])
    def test_other_things(self, comm):
        with pytest.raises(OptionError, match="expected a communicator of mpi4py") as caught:
            sparsebatch.mpi.solve(uniform(range(1)), np.ones((1, 9)), comm)
        assert type(comm).__name__ in str(caught.value)

    def test_the_null_communicator(self):
        with pytest.raises(OptionError, match="COMM_NULL"):
            sparsebatch.mpi.Solver(uniform(range(1)), MPI.COMM_NULL)

    def test_an_intercommunicator(self, comm):
        if SIZE == 1:
            pytest.skip("one rank")
        own = comm.Split(RANK % 2)
        between = own.Create_intercomm(0, comm, 1 - RANK % 2)
        with pytest.raises(OptionError, match="intercommunicator"):
            sparsebatch.mpi.Solver(uniform(range(1)), between)
        between.Free()
        own.Free()

    def test_a_communicator_of_some_ranks(self, comm):
        own = comm.Split(RANK % 2)
        result = sparsebatch.mpi.solve(uniform(range(2)), np.ones((2, 9)), own, **CPU)
        report = result.gather_report()
        assert report is None or len(report) == 2 * own.size
        own.Free()


def test_threads_of_ranks_on_the_same_cores(comm, monkeypatch):
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    ranks = _ranks.Ranks(comm)
    assert ranks.local == (RANK, SIZE)
    cores = [sparsebatch._native.own_cores()] * SIZE == [place[1] for place in ranks._places]
    assert cores, "the launcher binds no rank: see scripts/python-mpi-tests.sh"
    threads = comm.allgather(ranks.threads())
    count = len(os.sched_getaffinity(0))
    assert threads == ([None] if SIZE == 1 else [
        max(1, count // SIZE + (rank < count % SIZE)) for rank in range(SIZE)
    ])  # fmt: skip
    monkeypatch.setenv("RAYON_NUM_THREADS", "3")
    assert ranks.threads() is None


def test_gpus_of_ranks(monkeypatch):
    native = sparsebatch._native
    if native.gpu_unavailable() is not None:
        assert native.seen_gpus() == []
    assert native.rank_gpus(1, ["x", "x", "y"], [["a", "b", "c"]] * 3) == [1, 2]
    assert native.rank_gpus(2, ["x", "x", "y"], [["a", "b", "c"]] * 3) == [0, 1, 2]
    assert native.rank_gpus(0, ["x"], [[]]) == []
    for rank, seen in ((2, [[], []]), (0, [[]])):
        with pytest.raises(OptionError, match=f"rank {rank} of 2 hosts and {len(seen)} lists"):
            native.rank_gpus(rank, ["x", "x"], seen)
    with pytest.raises(OptionError, match="rank 1 of 1 ranks"):
        native.rank_threads(1, [("a", "0")])
    with pytest.raises(OptionError, match="shares"):
        native.shares(np.ones(2, np.uint64), 0)
    with pytest.raises(OptionError, match="of other items"):
        native.costs(np.ones(2, np.int64), np.ones(1, np.int64))
    with pytest.raises(OptionError, match="negative"):
        native.costs(np.ones(2, np.int64), None, -1.0)
    costs = native.costs(np.array([1, 5]), None, 8e-9)
    assert np.frombuffer(costs, np.uint64).tolist() == [2000, 6000]


def test_the_gpu_of_a_rank_is_taken(comm, monkeypatch):
    native = sparsebatch._native
    monkeypatch.setattr(native, "gpu_unavailable", lambda: None)
    # Three GPUs a rank, which all ranks see.
    monkeypatch.setattr(native, "seen_gpus", lambda: [f"GPU {k}" for k in range(3 * SIZE)])
    taken = []
    monkeypatch.setattr(native, "machine", lambda place, pin=None: taken.append(place) or [])
    for backend in ("auto", "gpu", "cpu"):
        with pytest.raises(Exception) if backend != "cpu" else warnings.catch_warnings():
            sparsebatch.mpi.Solver(uniform(range(1)), comm, backend=backend)
    own = "gpu", [3 * RANK, 3 * RANK + 1, 3 * RANK + 2]
    assert taken == [own, own, ("cpu", [0])]


def test_values_on_a_gpu_of_a_root():
    from sparsebatch._arrays import DeviceView
    from sparsebatch._shares import host_vector
    from sparsebatch._vectors import Frame

    view = DeviceView(1, (2, 9), None, np.dtype(np.float64), 0, None, True, None)
    with pytest.raises(Unsupported, match="root with b on a GPU"):
        host_vector(Frame(uniform(range(2)), 1), "b", view)


def test_classes_of_exceptions_travel(comm):
    ranks = _ranks.Ranks(comm)
    for error in (
        FormatError("bad"),
        Stopped("by progress"),
        sparsebatch.GpuError("lost"),
        sparsebatch.OutOfMemory("full"),
        MemoryError("full"),
        FileNotFoundError("no file"),
    ):

        def work(error=error):
            if RANK == LAST:
                raise error
            return None, None

        message = raises_everywhere(type(error), lambda work=work: ranks.run({}, work))
        assert message == on_rank(LAST, str(error))
