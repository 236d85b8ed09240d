"""`sparsebatch.mpi` with arrays on a GPU: by one process, and by the ranks of a job
(`mpirun -n 2 python -m pytest python/tests/gpu/test_gpu_ranks.py`), which divide GPUs or share one.
"""

from __future__ import annotations

import numpy as np
import pytest
from arrays import LIBRARIES, N, Problem

import sparsebatch
import sparsebatch.mpi

MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed")
COMM = MPI.COMM_WORLD
#: The items of this rank: of three ranks, rank 1 has none.
BOUNDS = [0, *([N // 3] * (COMM.size > 1)), *(N // 3 + rank for rank in range(COMM.size - 2)), N]
OWN = slice(*BOUNDS[COMM.rank : COMM.rank + 2])


@pytest.fixture(params=list(LIBRARIES))
def library(request):
    return LIBRARIES[request.param]()


@pytest.mark.parametrize("method", ["auto", "bicgstab", "lu"])
def test_arrays_stay_on_the_gpu(library, method):
    p = Problem()
    whole = sparsebatch.solve(p.batch(library.put(p.values)), library.put(p.b), method=method)
    expected = library.get(whole.x)[OWN]

    share = p.batch(library.put(p.values[OWN]))
    result = sparsebatch.mpi.solve(share, library.put(p.b[OWN]), COMM, method=method)

    assert library.is_on_gpu(result.x)
    assert np.ascontiguousarray(library.get(result.x)).tobytes() == expected.tobytes()
    report = result.gather_report()
    assert (report is None) == (COMM.rank != 0)
    if report is not None:
        assert report.status.tolist() == whole.report.status.tolist()
        assert report.iterations.tolist() == whole.report.iterations.tolist()
        assert report.backend == "gpu"


def test_repeated_solves(library):
    p = Problem()
    whole = sparsebatch.Solver(p.batch(library.put(p.values)), method="lu")
    with sparsebatch.mpi.Solver(p.batch(library.put(p.values[OWN])), COMM, method="lu") as solver:
        for factor in (1.0, 1.5):
            whole.update_values(library.put(p.values * factor))
            solver.update_values(library.put(p.values[OWN] * factor))
            whole.factor()
            solver.factor()
            expected = library.get(whole.solve(library.put(p.b)).x)[OWN]
            result = solver.solve(library.put(p.b[OWN]))
            assert np.array_equal(library.get(result.x), expected)
        shares = solver.shares_after(result)
        assert [item for share in shares for item in share] == list(range(N))


def test_arrays_in_host_memory_go_through_the_gpu_of_the_rank():
    p = Problem()
    whole = sparsebatch.solve(p.batch(p.values), p.b, backend="gpu")
    given = (p.batch(p.values), p.b) if COMM.rank == 0 else (None, None)
    for options in ({"backend": "gpu"}, {}):
        result = sparsebatch.mpi.solve(*given, COMM, root=0, **options)
        if COMM.rank == 0:
            assert np.array_equal(result.x, whole.x)
            assert result.report.backend == whole.report.backend


def test_a_root_with_arrays_on_a_gpu_is_refused(library):
    p = Problem()
    batch, b = p.batch(library.put(p.values)), library.put(p.b)
    given = (batch, b) if COMM.rank == 0 else (None, None)
    with pytest.raises(sparsebatch.Unsupported, match="root with values on a GPU"):
        sparsebatch.mpi.solve(*given, COMM, root=0)
    given = (p.batch(p.values), b) if COMM.rank == 0 else (None, None)
    with pytest.raises(sparsebatch.Unsupported, match="root with b on a GPU"):
        sparsebatch.mpi.solve(*given, COMM, root=0)
