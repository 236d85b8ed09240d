"""Tests on the ranks of an MPI job, all of which run every test (scripts/python-mpi-tests.sh)."""

from __future__ import annotations

import sys

import pytest
from mpi4py import MPI


@pytest.fixture
def comm() -> MPI.Intracomm:
    """All ranks."""
    return MPI.COMM_WORLD


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Other ranks may wait for this one: the job ends at the first failure.
    if report.failed:
        print(f"rank {MPI.COMM_WORLD.rank}: {report.nodeid}", file=sys.__stderr__)
        print(report.longreprtext, file=sys.__stderr__, flush=True)
        MPI.COMM_WORLD.Abort(1)
