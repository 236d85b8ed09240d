"""One matrix over the ranks of an MPI program: `DistributedMatrix`."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import numpy as np

from . import _native
from ._arrays import floats, narrow
from ._batch import _scipy_csr
from ._nvrtc import find_nvrtc
from ._ranks import Described, Ranks
from ._report import Report, Result
from ._solve import OnFailure, check_call, options_of, place_of
from ._warnings import caller_level
from .errors import NotConverged, NotConvergedWarning, OptionError


class DistributedMatrix:
    """A large sparse matrix of which each rank of a communicator has consecutive rows.

    Products and solves are made by all ranks together; elements of vectors travel while the part of
    the rows that needs none of them is multiplied. Vectors are NumPy arrays of the own elements.

    Parameters
    ----------
    A : sparse array or matrix of SciPy
        The rows of this rank, with the columns of the whole matrix: the rows of rank 0 come first,
        then those of rank 1, and so on. A rank may have none (`A.shape[0] == 0`). Values are
        float64 or float32, the same on all ranks.
    comm : mpi4py.MPI.Intracomm
        The ranks, all of which make the matrix and call its methods together.
    backend : {"auto", "cpu", "gpu", "cuda:N"}
        Where the rows of this rank are. With `"auto"` and `"gpu"` the ranks of a host that see the
        same GPUs divide them, and several may share one.
    threads : int, optional
        Threads of this rank, as for `sparsebatch.mpi.Solver`.
    format, kernel : str
        Of products on a CPU, as for `sparsebatch.Spmv`; each rank chooses by itself with `"auto"`.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns of all ranks.
    nnz : int
        Entries of all ranks.
    rows, columns : range
        Those of this rank. A square matrix has the same; else the columns are divided evenly.
    dtype : numpy.dtype
        Of values and vectors.
    products : int
        Products with the matrix in the last solve, each with an exchange.

    Raises
    ------
    OptionError, Unsupported, GpuError, RankFailed
        On all ranks, where one of them fails; `FormatError` for a file that cannot be read.

    Notes
    -----
    MPI is called by a thread of the pool where `threads` are fewer than all cores: mpi4py asks MPI
    for that by itself (`MPI_THREAD_MULTIPLE`). An error of MPI within a call ends all ranks, and Ctrl-C
    is seen when the call has ended. The first matrix over a communicator duplicates it, once.

    Examples
    --------
    >>> own = scipy.sparse.csr_array(whole[first:end])                       # doctest: +SKIP
    >>> matrix = sparsebatch.mpi.DistributedMatrix(own, MPI.COMM_WORLD)      # doctest: +SKIP
    >>> x, report = matrix.solve(b[first:end], method="cg", precond="ilu0")  # doctest: +SKIP
    """

    _ranks: Ranks
    products: int = 0

    def __init__(
        self,
        A: Any,
        comm: Any,
        *,
        backend: Any = "auto",
        threads: int | None = None,
        format: str = "auto",
        kernel: str = "auto",
    ):
        ranks, made = self._start(comm, backend, threads, format, kernel)

        def own() -> tuple[Any, tuple[int, int, str]]:
            rows = _scipy_csr(A)
            values = floats("A", rows.data)
            arrays = narrow("indptr", rows.indptr), narrow("indices", rows.indices), values
            return arrays, (rows.shape[0], rows.shape[1], values.dtype.name)

        call = {"the call": "DistributedMatrix", "format": format, "kernel": kernel}
        (indptr, indices, values), told = ranks.run(call, own)
        ranks.same(
            [
                {"the number of columns": str(ncols), "the type of the values": dtype}
                for _, ncols, dtype in told
            ]
        )
        counts = [count for count, _, _ in told]
        starts = np.cumsum([0, *counts]).tolist()
        _, ncols, dtype = told[ranks.rank]
        carrier, place, threads = made()
        self._native = _native.Distributed(
            carrier, starts, ncols, indptr, indices, values, dtype, place, format, kernel, threads
        )

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        comm: Any,
        *,
        dtype: Any = np.float64,
        backend: Any = "auto",
        threads: int | None = None,
        format: str = "auto",
        kernel: str = "auto",
    ) -> DistributedMatrix:
        """The matrix of a file that all ranks can read: each reads its rows.

        Parameters
        ----------
        path : path
            Matrix Market, or an `.npz` in the format `csr`, as `scipy.sparse.save_npz` writes it.
        dtype : dtype
            `float64` or `float32`.
        comm, backend, threads, format, kernel
            As for `DistributedMatrix`.

        Returns
        -------
        DistributedMatrix
            Rows are divided by their entries.
        """
        self = object.__new__(cls)
        ranks, made = self._start(comm, backend, threads, format, kernel)

        def checked() -> tuple[tuple[str, str], None]:
            name = np.dtype(dtype).name
            if name not in ("float64", "float32"):
                raise OptionError(f"dtype is {name}, expected float64 or float32")
            return (os.fspath(path), name), None

        call = {"the call": "from_file", "dtype": str(dtype), "format": format, "kernel": kernel}
        (file, name), _ = ranks.run(call, checked)
        carrier, place, threads = made()
        self._native = _native.Distributed.from_file(
            carrier, file, name, place, format, kernel, threads
        )
        return self

    def _start(
        self, comm: Any, backend: Any, threads: int | None, format: str, kernel: str
    ) -> tuple[Ranks, Any]:
        """The ranks, and what gives this one its carrier, its place and its threads."""
        ranks = Ranks(comm)
        self._ranks = ranks

        def asked() -> tuple[None, list[str]]:
            check_call(threads, None, "warn")
            if not isinstance(backend, str):
                raise OptionError(f"backend is {backend!r}, expected one GPU for each rank")
            place_of(backend, None)
            if not isinstance(format, str) or not isinstance(kernel, str):
                raise OptionError("format and kernel are names, such as 'auto'")
            return None, _native.seen_gpus() if backend in ("auto", "gpu") else []

        _, seen = ranks.run({"the call": "DistributedMatrix"}, asked)

        def placed() -> tuple[tuple[tuple[str, list[int]], int | None], None]:
            own = ranks.threads() if threads is None else threads
            mpi = sys.modules["mpi4py.MPI"]
            if own is not None and mpi.Query_thread() < mpi.THREAD_SERIALIZED:
                raise OptionError(
                    "MPI was initialised for one thread, and the pool of this rank has others: "
                    "leave mpi4py.rc.thread_level as it is, or set RAYON_NUM_THREADS"
                )
            place = place_of(backend, None)
            if place[0] != "cpu":
                find_nvrtc()
            if backend in ("auto", "gpu") and _native.gpu_unavailable() is None:
                gpus = _native.rank_gpus(ranks.rank, ranks.hosts, seen)
                place = place[0], (gpus or [0])[:1]
            # Says why there is no such GPU, on all ranks.
            _native.machine(place)
            return (place, own), None

        def made() -> tuple[_Carrier, tuple[str, list[int]], int | None]:
            (place, own), _ = ranks.run({"the call": "DistributedMatrix"}, placed)
            return _Carrier(ranks), place, own

        return ranks, made

    @property
    def shape(self) -> tuple[int, int]:
        nrows, ncols, _ = self._native.sizes
        return nrows, ncols

    @property
    def nnz(self) -> int:
        return self._native.sizes[2]

    @property
    def rows(self) -> range:
        return range(*self._native.own[0])

    @property
    def columns(self) -> range:
        return range(*self._native.own[1])

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self._native.dtype)

    def multiply(self, x: Any) -> np.ndarray:
        """`A x`; also `A @ x`.

        Parameters
        ----------
        x : array
            The elements of the own columns, of the type of the matrix.

        Returns
        -------
        ndarray
            The elements of the own rows.
        """

        def checked() -> tuple[tuple[np.ndarray, np.ndarray], None]:
            return (self._own("x", x), np.empty(len(self.rows), self.dtype)), None

        (own, y), _ = self._ranks.run({"the call": "multiply"}, checked)
        self._native.multiply(own, y)
        return y

    def __matmul__(self, x: Any) -> np.ndarray:
        return self.multiply(x)

    def solve(
        self,
        b: Any,
        x0: Any = None,
        *,
        pipelined: bool = False,
        block_lu: bool = False,
        on_failure: OnFailure = "warn",
        **options: Any,
    ) -> Result:
        """Solve `A x = b` by CG or BiCGStab.

        Parameters
        ----------
        b, x0 : array
            Right-hand side and initial guess (default 0): the elements of the own rows, of the type
            of the matrix.
        pipelined : bool
            CG with one sum over ranks for each iteration, which travels while the next product is
            computed.
        block_lu : bool
            Precondition with a sparse LU of the block of own rows and columns of each rank.
        on_failure : {"warn", "raise", "report"}
            Where the system does not converge: rank 0 warns; all ranks raise `NotConverged`; or
            nothing but the report.
        **options
            `method` (`"auto"` is CG for a symmetric matrix with a positive diagonal, else BiCGStab),
            `precond`, `order`, `block_size`, `precond_precision`, `rtol`, `atol`, `maxiter`,
            `max_restarts`, `floor`, `history` of `sparsebatch.solve`, equal on all ranks.
            `"block-jacobi"`, `"ilu0"` and `"ic0"` are those of the block of each rank. There is no
            ladder of further attempts.

        Returns
        -------
        Result
            `x`, the elements of the own rows, and `report`, of one system, the same on all ranks but
            for times.
        """

        def checked() -> tuple[Any, Described]:
            check_call(None, None, on_failure)
            refused = {"nrhs", "format", "kernel", "fallback", "inner_precision", "lu_form"} & options.keys()
            if refused:
                raise OptionError(f"{min(refused)} is no option of one matrix over ranks")
            own_b = self._own("b", b, rows=True)
            x = np.zeros(len(self.rows), self.dtype)
            if x0 is not None:
                x[:] = self._own("x0", x0, rows=True)
            chosen = options_of(options, 1)
            for name in ("rtol", "atol", "maxiter"):
                if isinstance(chosen[name], np.ndarray):
                    raise OptionError(f"{name} is an array, expected a number for the one system")
            return (own_b, x, chosen), {name: repr(value) for name, value in chosen.items()}

        call: Described = {
            "the call": "solve",
            "on_failure": repr(on_failure),
            "pipelined": repr(bool(pipelined)),
            "block_lu": repr(bool(block_lu)),
        }
        (own_b, x, all_options), told = self._ranks.run(call, checked)
        self._ranks.same(told)
        native, products = self._native.solve(
            own_b, x, all_options, bool(pipelined), bool(block_lu)
        )
        self.products = products
        result = Result(x, Report(native, True, None))
        self._judge(result, on_failure)
        return result

    def _judge(self, result: Result, on_failure: OnFailure) -> None:
        problem = result.report.problem()
        if problem is None or on_failure == "report":
            return
        if on_failure == "raise":
            raise NotConverged(problem, result)

        def warned() -> tuple[None, None]:
            # Where warnings are errors, all ranks raise this one.
            if self._ranks.rank == 0:
                warnings.warn(problem, NotConvergedWarning, stacklevel=caller_level())
            return None, None

        self._ranks.run({"the call": "solve"}, warned)

    def _own(self, name: str, vector: Any, rows: bool = False) -> np.ndarray:
        """A vector of the own elements, checked."""
        array = floats(name, vector)
        own = self.rows if rows else self.columns
        if array.shape != (len(own),):
            raise OptionError(f"{name} has shape {array.shape}, expected ({len(own)},)")
        if array.dtype != self.dtype:
            raise OptionError(f"{name} is {array.dtype}, expected {self.dtype}, as the matrix is")
        return array

    def explain(self) -> str:
        """What this rank has, how it multiplies, and what travels, in a line."""
        return self._native.explain()

    def __repr__(self) -> str:
        ranks, (nrows, ncols) = self._ranks, self.shape
        return (
            f"Rank {ranks.rank} of {ranks.size}, rows {self.rows.start} to {self.rows.stop} of a "
            f"{nrows} x {ncols} matrix of {self.nnz} entries, {self.dtype}"
        )


#: The key of the attribute of a communicator that is its duplicate.
_duplicates: int | None = None


def _own_communicator(comm: Any) -> Any:
    """A duplicate of a communicator, the same for all matrices over it: there are not many of them,
    and none is freed before MPI is finalised."""
    global _duplicates
    if _duplicates is None:
        _duplicates = type(comm).Create_keyval()
    own = comm.Get_attr(_duplicates)
    if own is None:
        own = comm.Dup()
        comm.Set_attr(_duplicates, own)
    return own


class _Carrier:
    """What the native part asks of mpi4py, on a communicator of its own, so that its messages meet
    none of the program."""

    def __init__(self, ranks: Ranks):
        self._mpi = sys.modules["mpi4py.MPI"]
        self._comm = _own_communicator(ranks.comm)
        self.rank, self.size, self.local = ranks.rank, ranks.size, ranks.local
        self.host = ranks.hosts[ranks.rank]

    def any(self, own: bool) -> bool:
        return bool(self._comm.allreduce(int(own), self._mpi.MAX))

    def all_gather(self, own: bytes) -> list[bytes]:
        return self._comm.allgather(own)

    def broadcast(self, own: bytes) -> bytes:
        return self._comm.bcast(own, 0)

    def all_to_all(self, lists: list[bytes]) -> list[bytes]:
        return self._comm.alltoall(lists)

    def barrier(self) -> None:
        self._comm.Barrier()

    def abort(self, code: int) -> None:
        self._comm.Abort(code)

    def exchange(
        self,
        send: memoryview,
        to: list[tuple[int, int, int]],
        receive: memoryview,
        source: list[tuple[int, int, int]],
    ) -> list[Any]:
        """Starts messages: ranks, and the bytes of the buffers that go to them or come from them."""
        byte = self._mpi.BYTE
        requests = [
            self._comm.Irecv([receive[first:end], byte], source=rank)
            for rank, first, end in source
        ]
        return requests + [
            self._comm.Isend([send[first:end], byte], dest=rank) for rank, first, end in to
        ]

    def gather_numbers(self, send: memoryview, receive: memoryview) -> list[Any]:
        byte = self._mpi.BYTE
        return [self._comm.Iallgather([send, byte], [receive, byte])]

    def wait(self, requests: list[Any]) -> None:
        self._mpi.Request.Waitall(requests)
