"""`sparsebatch.mpi.DistributedMatrix` on the ranks of a job: products, solves, files, faults."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from mpi4py import MPI

import sparsebatch
from sparsebatch import FormatError, NotConverged, NotConvergedWarning, OptionError
from sparsebatch.mpi import DistributedMatrix
from test_ranks import LAST, RANK, SIZE, on_rank, raises_everywhere

N = 143


def grid(dtype: Any = np.float64) -> sp.csr_array:
    """A Laplacian on a grid of 13 x 11 points, with another diagonal in each row."""
    one = [sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)) for n in (13, 11)]
    matrix = sp.kronsum(*one) + sp.diags_array(0.1 + np.arange(N) % 5)
    return sp.csr_array(matrix).astype(dtype)


def skewed(dtype: Any = np.float64) -> sp.csr_array:
    return sp.csr_array(grid(dtype) + sp.diags_array(np.full(N - 1, 0.4), offsets=1)).astype(dtype)


def part(rank: int = RANK, size: int = SIZE) -> slice:
    """The rows of a rank: unequal, and of the second of three ranks none."""
    bounds = {1: [0, N], 2: [0, 40, N], 3: [0, 40, 40, N]}[size]
    return slice(bounds[rank], bounds[rank + 1])


def made(matrix: sp.csr_array, comm: MPI.Intracomm, **options: Any) -> DistributedMatrix:
    return DistributedMatrix(matrix[part()], comm, **({"backend": "cpu"} | options))


def gathered(own: np.ndarray) -> np.ndarray:
    return np.concatenate(MPI.COMM_WORLD.allgather(own))


def vector(n: int, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(3).integers(-4, 5, n).astype(dtype)


class TestProducts:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_a_square_matrix(self, comm, dtype):
        whole = sp.csr_array(grid(dtype))
        whole.data = np.round(whole.data)
        matrix, x = made(whole, comm), vector(N, dtype)

        assert matrix.shape == (N, N) and matrix.nnz == whole.nnz and matrix.dtype == dtype
        assert matrix.rows == matrix.columns == range(part().start, part().stop)
        y = matrix @ x[part()]
        assert y.dtype == dtype and gathered(y).tolist() == (whole @ x).tolist()
        assert "rows" in matrix.explain() and f"{N} x {N}" in repr(matrix)

    def test_a_matrix_that_is_not_square(self, comm):
        whole = sp.random_array((N, 31), density=0.1, rng=np.random.default_rng(5), format="csr")
        whole.data = np.round(9 * whole.data)
        matrix, x = made(sp.csr_array(whole), comm, threads=1), vector(31)

        own = slice(matrix.columns.start, matrix.columns.stop)
        assert gathered(matrix.multiply(x[own])).tolist() == (whole @ x).tolist()
        text = raises_everywhere(OptionError, lambda: matrix.solve(np.ones(len(matrix.rows))))
        assert f"{N} x 31" in text and "square" in text


class TestSolves:
    @pytest.mark.parametrize("whole", [grid(), skewed()], ids=["symmetric", "skewed"])
    @pytest.mark.parametrize("precond", ["none", "jacobi", "ilu0"])
    def test_methods(self, comm, whole, precond):
        matrix, b = made(whole, comm), vector(N)

        x, report = matrix.solve(b[part()], precond=precond, rtol=1e-10)

        assert report.all_converged and len(report) == 1
        expected = "cg" if whole is not None and (whole != whole.T).nnz == 0 else "bicgstab"
        assert report.solver.startswith(expected)
        found = gathered(x)
        assert np.linalg.norm(b - whole @ found) <= 1.01e-10 * np.linalg.norm(b)
        assert matrix.products > 0
        # The same bits again, and from the solution no iterations.
        again = matrix.solve(b[part()], precond=precond, rtol=1e-10)
        assert again.x.tobytes() == x.tobytes()
        assert matrix.solve(b[part()], x, precond=precond, rtol=1e-9).report.iterations[0] == 0

    def test_pipelined_and_block_lu(self, comm):
        matrix, b = made(grid(), comm), vector(N)

        plain = matrix.solve(b[part()], method="cg", precond="jacobi")
        pipelined = matrix.solve(b[part()], method="cg", precond="jacobi", pipelined=True)
        by_blocks = matrix.solve(b[part()], method="cg", block_lu=True)

        for result in (plain, pipelined, by_blocks):
            assert result.report.all_converged
        assert by_blocks.report.iterations[0] < plain.report.iterations[0]
        if SIZE == 1:
            assert by_blocks.report.iterations[0] <= 2

    def test_single_precision(self, comm):
        whole = grid(np.float32)
        matrix, b = made(whole, comm), vector(N, np.float32)

        x, report = matrix.solve(b[part()], rtol=1e-5)

        assert report.all_converged and x.dtype == np.float32

    def test_what_does_not_converge(self, comm):
        matrix, b = made(grid(), comm), vector(N)
        options: dict[str, Any] = {"method": "cg", "maxiter": 2}

        result = matrix.solve(b[part()], on_failure="report", **options)
        assert list(result.report.status) == ["MaxIterations"]
        with pytest.raises(NotConverged, match="MaxIterations"):
            matrix.solve(b[part()], on_failure="raise", **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            matrix.solve(b[part()], **options)
        assert [one.category for one in caught] == [NotConvergedWarning] * (RANK == 0)


class TestFiles:
    def test_ranks_read_their_rows(self, comm, tmp_path_factory):
        path = None
        if RANK == 0:
            path = str(tmp_path_factory.mktemp("files") / "grid.mtx")
            scipy.io.mmwrite(path, grid())
        path = comm.bcast(path)
        matrix = DistributedMatrix.from_file(path, comm, backend="cpu")
        b = vector(N)
        own = slice(matrix.rows.start, matrix.rows.stop)

        x = matrix.solve(b[own]).x

        assert matrix.nnz == grid().nnz
        assert np.linalg.norm(b - grid() @ gathered(x)) <= 1.01e-10 * np.linalg.norm(b)
        single = DistributedMatrix.from_file(path, comm, backend="cpu", dtype="float32")
        assert single.dtype == np.float32

    def test_files_that_are_none(self, comm):
        text = raises_everywhere(
            FormatError, lambda: DistributedMatrix.from_file("none.mtx", comm, backend="cpu")
        )
        assert "none.mtx" in text
        text = raises_everywhere(
            OptionError, lambda: DistributedMatrix.from_file("none.mtx", comm, dtype="int32")
        )
        assert text == "dtype is int32, expected float64 or float32"


class TestErrors:
    def test_of_one_rank(self, comm):
        whole = grid()
        own = whole[part()] if RANK != LAST else "no matrix"
        text = raises_everywhere(OptionError, lambda: DistributedMatrix(own, comm, backend="cpu"))
        assert text.startswith(on_rank(LAST, "a matrix is a str"))

        matrix, b = made(whole, comm), vector(N)[part()]
        wrong = b if RANK != LAST else b[:-1]
        n = len(b) - 1
        text = raises_everywhere(OptionError, lambda: matrix @ wrong)
        assert text.startswith(on_rank(LAST, "x has shape")) or n < 0
        text = raises_everywhere(OptionError, lambda: matrix.solve(wrong))
        assert text.startswith(on_rank(LAST, "b has shape"))
        narrow = b.astype(np.float32)
        text = raises_everywhere(OptionError, lambda: matrix.solve(narrow))
        assert text.endswith("b is float32, expected float64, as the matrix is")

    def test_of_options(self, comm):
        matrix, b = made(grid(), comm), vector(N)[part()]
        for options, expected in [
            ({"method": "lu"}, "method is lu, expected cg or bicgstab over ranks"),
            ({"method": "bicgstab", "pipelined": True}, "pipelined is bicgstab, expected cg"),
            ({"precond": "ilu0", "block_lu": True}, "expected none beside LU of the blocks"),
            ({"fallback": False}, "fallback is no option of one matrix over ranks"),
            ({"on_failure": "stop"}, "on_failure is 'stop'"),
            ({"rtol": -1.0}, "rtol is -1, expected"),
            ({"rtol": [1e-8]}, "rtol is an array"),
            ({"method": "cgg"}, "cgg"),
        ]:
            text = raises_everywhere(OptionError, lambda o=options: matrix.solve(b, **o))
            assert expected in text, text
        for options, expected in [
            ({"backend": ["cuda:0", "cuda:1"]}, "expected one GPU for each rank"),
            ({"backend": "tpu"}, "backend is 'tpu'"),
            ({"threads": 0}, "threads is 0"),
            ({"format": "bsr"}, "bsr"),
        ]:
            text = raises_everywhere(OptionError, lambda o=options: made(grid(), comm, **o))
            assert expected in text, text

    @pytest.mark.skipif(SIZE == 1, reason="one rank has nothing to differ from")
    def test_ranks_that_differ(self, comm):
        columns = N if RANK == 0 else N + 1
        own = sp.csr_array((3, columns))
        text = raises_everywhere(OptionError, lambda: DistributedMatrix(own, comm, backend="cpu"))
        assert "the number of columns" in text
        matrix, b = made(grid(), comm), vector(N)[part()]
        maxiter = 10 if RANK == 0 else 11
        text = raises_everywhere(OptionError, lambda: matrix.solve(b, maxiter=maxiter))
        assert text.endswith("maxiter is 11, on rank 0 it is 10")
        method = "cgg" if RANK == LAST else "cg"
        text = raises_everywhere(OptionError, lambda: matrix.solve(b, method=method))
        assert text.endswith("method is 'cgg', on rank 0 it is 'cg'")

    def test_a_package_without_gpus(self, comm):
        if sparsebatch.gpu_unavailable() is None:
            pytest.skip("there is a GPU")
        text = raises_everywhere(sparsebatch.GpuError, lambda: made(grid(), comm, backend="gpu"))
        assert text
