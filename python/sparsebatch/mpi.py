"""Batches over the ranks of an MPI program, by mpi4py: `solve`, `Solver`. One large matrix over them:
`DistributedMatrix`.

The names and options are those of `sparsebatch.solve` and `sparsebatch.Solver`, and a communicator.
The matrices are given in one of two ways:

- *Every rank gives its own items*, as a simulation has them. The whole batch is those of rank 0,
  of rank 1, and so on. Nothing but outcomes travels, and arrays may lie on a GPU.
- *Rank `root` gives everything*, with `root=0`, in host memory; the other ranks give `None`.
  Shares of about equal cost are sent to all ranks, and solutions and the report come back.

Solutions have the bits of a solve of the whole batch by one process, whatever the number of ranks.

All ranks of the communicator make each call together, with equal options. Where one rank fails all
raise the same exception, which names it and its host. A rank that does not make the call at all
lets the others wait for ever, as in every MPI program: there is no limit of time. Start programs by
`mpirun -n 4 python -m mpi4py program.py`, so that an exception that one rank does not catch ends
all ranks. The launcher ends a job of which a process was killed.

>>> from mpi4py import MPI                                              # doctest: +SKIP
>>> result = sparsebatch.mpi.solve(own_batch, own_b, MPI.COMM_WORLD)    # doctest: +SKIP
>>> result.x                                 # of the items of this rank  # doctest: +SKIP
>>> whole = result.gather_report()           # on rank 0 that of all      # doctest: +SKIP
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _native
from ._arrays import library_of
from ._batch import Batch, as_batch
from ._distributed import DistributedMatrix
from ._foreign import adopt
from ._nvrtc import find_nvrtc
from ._ranks import Described, Ranks
from ._report import Report
from ._report import Result as LocalResult
from ._shares import Division, entries_of, host_batch, host_vector
from ._solve import DEFAULTS, OnFailure, check_call, delivered, host_shifted, limits_of
from ._solve import Solver as LocalSolver
from ._solve import mask_of, options_of, place_of
from ._vectors import Frame, writable
from ._warnings import caller_level
from .errors import NotConverged, NotConvergedWarning, OptionError

__all__ = ["DistributedMatrix", "Result", "Solver", "solve"]

#: Limits that may have one value for each system.
_LIMITS = {"rtol": np.float64, "atol": np.float64, "maxiter": np.int64}


def solve(
    A: Any,
    b: Any,
    comm: Any,
    x0: Any = None,
    *,
    root: int | None = None,
    transpose: bool = False,
    out: Any = None,
    on_failure: OnFailure = "warn",
    backend: Any = "auto",
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    stream: Any = None,
    **options: Any,
) -> Result:
    """Solve `A_i x_i = b_i` for every matrix of a batch, by all ranks of a communicator.

    Parameters
    ----------
    A : Batch, or what `sparsebatch.solve` takes
        The matrices of this rank, which may be none (`Batch.ragged([])`). With `root`: on that rank
        all matrices, in host memory; on the others `None`.
    b : array of float64 or float32
        The right-hand sides of `A`, of the shapes of `sparsebatch.solve`; `None` where `A` is.
    comm : mpi4py.MPI.Intracomm
        The ranks, all of which make the call.
    x0, out : array, optional
        Initial guesses, and where solutions go, of the shape of `b`, where `A` is given.
    root : int, optional
        The rank that gives everything and gets all solutions. Default: every rank gives its own
        items.
    transpose : bool
        Solve with the transposed matrices.
    on_failure : {"warn", "raise", "report"}
        What happens where systems do not converge, on whatever rank: rank 0 (`root`) warns; all
        ranks raise `NotConverged`, each with its own result; or nothing but the report.
    backend, threads, progress, stream, **options
        As for `sparsebatch.solve`; see `Solver` for what ranks do with them.

    Returns
    -------
    Result
        Solutions and report of the items of this rank; with `root` on that rank of all items.

    Raises
    ------
    OptionError, FormatError, Unsupported, GpuError, RankFailed
        On all ranks, where nothing was solved on one of them. For a `comm` that is none, on the
        ranks that gave it.

    Examples
    --------
    >>> import numpy as np, sparsebatch.mpi
    >>> from mpi4py import MPI                                          # doctest: +SKIP
    >>> batch = sparsebatch.Batch.uniform([0, 2, 3], [0, 1, 1], [[2.0, 1.0, 4.0]])
    >>> b = np.array([[3.0, 4.0]])
    >>> sparsebatch.mpi.solve(batch, b, MPI.COMM_WORLD).x                # doctest: +SKIP
    array([[1., 1.]])
    """

    def given() -> tuple[Batch, int]:
        batch = as_batch(A)
        return batch, Frame.nrhs_of(batch, adopt("b", b))

    call = {
        "root": root,
        "backend": backend,
        "threads": threads,
        "progress": progress,
        "stream": stream,
        "on_failure": on_failure,
        "pin": options.pop("pin", None),
        "allocator": options.pop("allocator", None),
    }
    with Solver._made(Ranks(comm), A, given, call, {}, options) as solver:
        return solver.solve(b, x0, transpose=transpose, out=out)


class Solver:
    """The analysis of a batch over the ranks of a communicator, for repeated solves.

    Parameters
    ----------
    A : Batch, or what `sparsebatch.Solver` takes
        The matrices of this rank, or with `root` on that rank all of them; see `solve`.
    comm : mpi4py.MPI.Intracomm
        The ranks, all of which make the solver and call its methods together.
    root : int, optional
        The rank that gives everything. It tells the options, too: other ranks may leave them out.
    backend : str or list of str
        As for `sparsebatch.solve`. With `"auto"` and `"gpu"` the ranks of a host that see the same
        GPUs divide them: each has some of its own, which solve its items together, or neighbours
        share one. A list of GPUs is taken by every rank as it is.
    threads : int, optional
        Threads of this rank. Default: the cores that it may run on, which ranks of a host that may
        run on the same ones divide (`RAYON_NUM_THREADS` says otherwise).
    progress : callable, optional
        Called on this rank with the numbers of its systems. What it raises ends the solve of this
        rank, and then the call of all ranks.
    stream, allocator
        Of this rank, as for `sparsebatch.Solver`.
    on_failure : {"warn", "raise", "report"}
        As for `solve`.
    nrhs, pin, **options
        As for `sparsebatch.Solver`, equal on all ranks. Limits with one value for each system are
        those of the systems of this rank, with `root` on that rank those of all systems.

    Raises
    ------
    OptionError
        For options, types of values, versions of this package, instruction sets or models of GPUs
        that differ among ranks, on all of them.

    Notes
    -----
    Arrays of CuPy, PyTorch or JAX on a GPU stay there where ranks give their own items.

    Examples
    --------
    >>> with sparsebatch.mpi.Solver(own_batch, comm, method="lu") as solver:   # doctest: +SKIP
    ...     for step in range(10):
    ...         solver.update_values(jacobians(), shift=dt)
    ...         x = solver.solve(own_b()).x
    """

    _ranks: Ranks
    _root: int | None
    _local: LocalSolver
    #: The batch of the root, there.
    _whole: Any

    def __init__(
        self,
        A: Any,
        comm: Any,
        *,
        root: int | None = None,
        nrhs: int = 1,
        backend: Any = "auto",
        threads: int | None = None,
        progress: Callable[[int, int], object] | None = None,
        stream: Any = None,
        on_failure: OnFailure = "warn",
        pin: str | None = None,
        allocator: Any = None,
        **options: Any,
    ):
        call = {
            "root": root,
            "backend": backend,
            "threads": threads,
            "progress": progress,
            "stream": stream,
            "on_failure": on_failure,
            "pin": pin,
            "allocator": allocator,
        }
        is_given = {} if nrhs == 1 else {"nrhs": nrhs}
        self._start(Ranks(comm), A, lambda: (as_batch(A), nrhs), call, is_given, options)

    @classmethod
    def _made(cls, *arguments: Any) -> Solver:
        self = object.__new__(cls)
        self._start(*arguments)
        return self

    def _start(
        self,
        ranks: Ranks,
        A: Any,
        given: Callable[[], tuple[Batch, int]],
        call: dict[str, Any],
        of_root: dict[str, Any],
        options: dict[str, Any],
    ) -> None:
        """Agrees on options, divides the batch of a root, and analyses shares.

        `given` makes the batch and its number of right-hand sides; `of_root` are options that other
        ranks than a root may leave out beside `options`.
        """
        self._ranks, self._root, self._call = ranks, call["root"], call
        root = self._root
        self._is_divided = root is not None

        def agreed() -> tuple[Batch | None, tuple[Described, Any]]:
            if root is not None:
                ranks.check_rank("root", root)
            check_call(call["threads"], call["progress"], call["on_failure"])
            if self._is_divided and not self._is_root:
                self._refuse_data(A=A)
                described = self._said(options, of_root)
                return None, (described, None)
            batch, nrhs = given()
            self._options = options_of(options, nrhs)
            described = _described(self._options) | {
                "pin": repr(call["pin"]),
                "on_failure": repr(call["on_failure"]),
                "the type of the values": batch.dtype,
            }
            if not self._is_divided:
                return batch, (described | self._machine(batch), batch.nitems)
            _check_limits(self._options, host_batch(batch).nitems * nrhs)
            division = Division.of(batch, ranks.size)
            of_all = {name: call[name] for name in ("pin", "on_failure")}
            return batch, (described, (division, self._options, of_all))

        def seen() -> tuple[None, list[str]]:
            return None, _native.seen_gpus() if call["backend"] in ("auto", "gpu") else []

        named = {"the call": "Solver", "root": repr(root)}
        _, self._seen_gpus = ranks.run(named, seen)
        batch, told = ranks.run(named, agreed)
        described = [described for described, _ in told]
        ranks.same(described, of=root or 0, missing=self._is_divided)
        if batch is not None and not self._is_divided:
            self._items = np.cumsum([0] + [nitems for _, nitems in told])
            own = batch
            self._analyse(lambda: own)
            return
        division, self._options, of_all = told[self._place_of_root][1]
        call |= of_all

        def chosen() -> tuple[None, Described]:
            return None, self._machine(batch)

        # By the pin of the root, which other ranks have now.
        ranks.same(ranks.run({"the call": "Solver"}, chosen)[1], of=root or 0)
        self._whole = _kept(batch)
        self._divide(division)

    def _said(self, options: dict[str, Any], of_root: dict[str, Any]) -> Described:
        """The options that another rank than the root gave, in words."""
        described = _described(options_of(options, of_root.get("nrhs", 1)))
        said = {name: described[name] for name in [*options, *of_root]}
        defaults = {"pin": None, "on_failure": "warn"}
        given = {name: self._call[name] for name in defaults}
        return said | {
            name: repr(value) for name, value in given.items() if value != defaults[name]
        }

    def _divide(self, division: Division) -> None:
        """Sends the shares of the batch of the root, and analyses them."""
        self._division, self._items = division, division.items
        parts = division.share(self._ranks, self._place_of_root, self._whole)
        self._analyse(parts.batch)

    def _analyse(self, share: Callable[[], Batch]) -> None:
        """Makes the solver of this rank's share."""

        def made() -> tuple[LocalSolver, None]:
            threads = self._call["threads"]
            options = {name: self._options[name] for name in DEFAULTS}
            if self._is_divided:
                options |= self._own_limits({name: options[name] for name in _LIMITS})
            solver = LocalSolver(
                share(),
                nrhs=self._options["nrhs"],
                backend=self._backend,
                threads=self._ranks.threads() if threads is None else threads,
                progress=self._call["progress"],
                stream=self._call["stream"],
                on_failure="report",
                pin=self._call["pin"],
                allocator=self._call["allocator"],
                **options,
            )
            return solver, None

        self._local, _ = self._ranks.run({"the call": "Solver"}, made)

    def _own_backend(self, backend: Any, batch: Batch | None) -> Any:
        """The backend of this rank: its GPUs among those of its host."""
        on_gpu = batch is not None and library_of(batch.values).device(batch.values) is not None
        if on_gpu or not isinstance(backend, str) or backend not in ("auto", "gpu"):
            return backend
        find_nvrtc()
        if _native.gpu_unavailable() is not None:
            # The solver says why: `auto` in its report, `gpu` by an exception.
            return backend
        gpus = _native.rank_gpus(self._ranks.rank, self._ranks.hosts, self._seen_gpus)
        names = [f"cuda:{gpu}" for gpu in gpus]
        return names if len(names) > 1 else (names or [backend])[0]

    def _machine(self, batch: Batch | None) -> Described:
        """What the bits of this rank depend on beside options; chooses its backend."""
        self._backend = self._own_backend(self._call["backend"], batch)
        ordinal = None if batch is None else library_of(batch.values).device(batch.values)
        place = place_of(self._backend, ordinal)
        if ordinal is not None:
            place = "gpu", [ordinal]
        if place[0] != "cpu":
            find_nvrtc()
        return dict(_native.machine(place, self._call["pin"]))

    def _refuse_data(self, **arrays: Any) -> None:
        """Refuses what only the root gives."""
        for name, array in arrays.items():
            if array is not None:
                raise OptionError(
                    f"{name} is given, expected None: with root={self._root} only that rank "
                    "gives it"
                )

    @property
    def _place_of_root(self) -> int:
        """The rank that gives everything, in a solver that has one."""
        return 0 if self._root is None else self._root

    @property
    def _is_root(self) -> bool:
        return self._root == self._ranks.rank

    def _own_limits(self, limits: dict[str, Any]) -> dict[str, Any]:
        """Limits of all systems, for those of this rank."""
        own, nrhs = self.items, self._options["nrhs"]
        part = slice(own.start * nrhs, own.stop * nrhs)
        return {
            name: limit[part] if isinstance(limit, np.ndarray) else limit
            for name, limit in limits.items()
        }

    @property
    def local(self) -> LocalSolver:
        """The solver of this rank's share: for what concerns this rank alone, such as gradients."""
        return self._local

    @property
    def nrhs(self) -> int:
        """Right-hand sides of each matrix."""
        return self._options["nrhs"]

    @property
    def nitems(self) -> int:
        """The number of matrices of all ranks."""
        return int(self._items[-1])

    @property
    def items(self) -> range:
        """The items of the whole batch that this rank solves."""
        rank = self._ranks.rank
        return range(int(self._items[rank]), int(self._items[rank + 1]))

    def update_values(self, values: Any, *, shift: Any = None) -> None:
        """Take other values for the solves that follow.

        Parameters
        ----------
        values : array
            As for `sparsebatch.Solver.update_values`: of the items of this rank, or with `root` on
            that rank those of all items, on the others `None`. With `root` they are taken here:
            what is written to the array later is not seen.
        shift : float or array of float, optional
            Solve with `I / shift - values`; given where `values` is.
        """
        if not self._is_divided:
            self._together("update_values", lambda: self._local.update_values(values, shift=shift))
            return

        def checked() -> tuple[Batch | None, None]:
            if not self._is_root:
                self._refuse_data(values=values, shift=shift)
                return None, None
            batch = host_batch(self._whole.with_values(values))
            if shift is not None:
                batch = batch.with_values(host_shifted(batch, shift))
            return batch, None

        batch, _ = self._ranks.run({"the call": "update_values"}, checked)
        own = self._division.scatter_values(self._ranks, self._place_of_root, batch)
        self._together("update_values", lambda: self._local.update_values(own))
        self._whole = _kept(batch)

    def factor(self) -> None:
        """Keep the current matrices, and their factors where the method has some, on every rank."""
        self._together("factor", self._local.factor)

    def _together(self, name: str, work: Callable[[], None]) -> None:
        """A call without result."""

        def done() -> tuple[None, None]:
            work()
            return None, None

        self._ranks.run({"the call": name}, done)

    def solve(
        self,
        b: Any,
        x0: Any = None,
        *,
        transpose: bool = False,
        near: bool = False,
        out: Any = None,
        active: Any = None,
        rtol: Any = None,
        atol: Any = None,
        maxiter: Any = None,
    ) -> Result:
        """Solve every system, or those that are active.

        Parameters
        ----------
        b, x0, transpose, near, out, active, rtol, atol, maxiter
            As for `sparsebatch.Solver.solve`: those of the items of this rank, or with `root` on
            that rank those of all items, on the others `None`.

        Returns
        -------
        Result
        """
        call = {"the call": "solve", "transpose": repr(bool(transpose)), "near": repr(bool(near))}
        how = {"transpose": transpose, "near": near}
        limits = {"rtol": rtol, "atol": atol, "maxiter": maxiter}
        if not self._is_divided:
            solved = self._solved(call, lambda: self._local.solve(
                b, x0, out=out, active=active, **how, **limits
            ))  # fmt: skip
            result = Result._of(self._ranks, solved, solved.report, self.items)
        else:
            result = self._solve_divided(call, how, (b, x0, out, active), limits)
        self._judge(result)
        return result

    def _solved(self, call: Described, solve: Callable[[], LocalResult]) -> LocalResult:
        """Solves the share of this rank, and notes how the systems of all ranks ended."""

        def work() -> tuple[LocalResult, _Ended]:
            result = solve()
            return result, _ended(result.report)

        result, self._ended = self._ranks.run(call, work)
        return result

    def _solve_divided(
        self,
        call: Described,
        how: dict[str, bool],
        arrays: tuple[Any, ...],
        limits: dict[str, Any],
    ) -> Result:
        """Sends right-hand sides, solves shares, and gathers solutions and report on the root."""
        ranks, root, nrhs = self._ranks, self._place_of_root, self.nrhs

        def checked() -> tuple[Any, Any]:
            b, x0, out, active = arrays
            if not self._is_root:
                self._refuse_data(b=b, x0=x0, out=out, active=active, **limits)
                return None, None
            frame = Frame(self._whole, nrhs)
            if out is not None:
                writable(frame, adopt("out", out, to_write=True))
            own = {name: None if limit is None else limits_of(name, limit, _LIMITS[name])
                   for name, limit in limits.items()}  # fmt: skip
            _check_limits(own, self.nitems * nrhs)
            if active is not None:
                own["active"] = mask_of(active, self.nitems, nrhs)
            vectors = [host_vector(frame, "b", adopt("b", b))]
            if x0 is not None:
                vectors.append(host_vector(frame, "x0", adopt("x0", x0)))
            return vectors, (own, x0 is not None)

        vectors, told = ranks.run(call, checked)
        own_limits, has_x0 = told[root]
        offsets = self._division.rows * nrhs
        wholes = [None] * (1 + has_x0) if vectors is None else vectors
        dtype = self._division.dtype
        b_and_x0 = [ranks.scatter(root, whole, offsets, dtype) for whole in wholes]

        def share() -> LocalResult:
            outer = [self._local._frame.outer(vector) for vector in b_and_x0]
            own_b, own_x0 = outer[0], outer[1] if has_x0 else None
            return self._local.solve(own_b, own_x0, **how, **self._own_limits(own_limits))

        solved = self._solved(call, share)
        own_x = self._local._frame.inner(solved.x).reshape(-1)
        x = ranks.gather(root, own_x, offsets)
        report = _gathered(ranks, solved.report, root)

        def finished() -> tuple[Result, None]:
            if x is None or report is None:
                return Result._of(ranks, solved, solved.report, self.items), None
            b, _, out, _ = arrays
            given = None if out is None else adopt("out", out, to_write=True)
            b = adopt("b", b)
            whole = delivered(Frame(self._whole, nrhs), b, x, given)
            result = LocalResult(whole if out is None else out, report)
            return Result._of(ranks, result, solved.report, range(self.nitems)), None

        return ranks.run(call, finished)[0]

    def _judge(self, result: Result) -> None:
        """Does what was asked for where systems of any rank did not converge."""
        on_failure = self._call["on_failure"]
        problem = _problem(self._ranks, self._ended)
        if problem is None or on_failure == "report":
            return
        if on_failure == "raise":
            raise NotConverged(problem, result)

        def warned() -> tuple[None, None]:
            # Where warnings are errors, all ranks raise this one.
            if self._ranks.rank == self._place_of_root:
                warnings.warn(problem, NotConvergedWarning, stacklevel=caller_level())
            return None, None

        self._ranks.run({"the call": "solve"}, warned)

    def shares_after(self, result: Result) -> list[range]:
        """The items of each rank for the next solves, by what one took.

        Shares are of about equal cost, which is estimated by the entries and iterations of each
        item, and by the time that each rank took. A program whose ranks give their own items moves
        them accordingly and makes a new solver; with `root` call `rebalance`.

        Parameters
        ----------
        result : Result
            Of a solve by this solver.

        Returns
        -------
        list of range
            The items of every rank, numbered in the whole batch, on all ranks.
        """
        costs = self._costs(result)
        return [range(*share) for share in _native.shares(costs, self._ranks.size)]

    def _costs(self, result: Result) -> np.ndarray:
        """The costs of every item of the whole batch, on all ranks."""

        def work() -> tuple[None, np.ndarray]:
            batch, report = self._local.batch, result._own
            iterations = report.iterations.astype(np.int64)
            if len(iterations) != batch.nitems * self.nrhs:
                raise OptionError(
                    f"result has {len(iterations)} systems of this rank, expected one of this "
                    f"solver, with {batch.nitems * self.nrhs}"
                )
            iterations = iterations.reshape(batch.nitems, self.nrhs).sum(axis=1)
            costs = _native.costs(entries_of(batch), iterations, report.solve_time)
            return None, np.frombuffer(costs, np.uint64)

        return np.concatenate(self._ranks.run({"the call": "shares_after"}, work)[1])

    def rebalance(self, result: Result) -> bool:
        """Divide the batch of `root` anew, as `shares_after` says.

        Matrices travel again and are analysed again; factors that were kept are given up. Solutions
        have the same bits afterwards.

        Parameters
        ----------
        result : Result
            Of a solve by this solver.

        Returns
        -------
        bool
            Whether the shares have changed. Otherwise nothing was done.
        """

        def divided() -> tuple[None, None]:
            if not self._is_divided:
                raise OptionError(
                    "rebalance of items that ranks gave themselves: move them by shares_after"
                )
            return None, None

        call = {"the call": "rebalance"}
        self._ranks.run(call, divided)
        costs = self._costs(result)

        def division() -> tuple[None, Division | None]:
            if not self._is_root:
                return None, None
            return None, Division.of(self._whole, self._ranks.size, costs)

        new = self._ranks.run(call, division)[1][self._place_of_root]
        if np.array_equal(new.items, self._items):
            return False
        self._local.close()
        self._divide(new)
        return True

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release memory and factors of this rank; later calls fail. Waits for no other rank."""
        self._local.close()

    def __repr__(self) -> str:
        ranks = self._ranks
        return f"Rank {ranks.rank} of {ranks.size}, {self.nitems} items in all: {self._local!r}"


class Result(LocalResult):
    """Solutions and how systems ended, on one rank.

    Attributes
    ----------
    x : array
        Solutions of the items `items`, of the shape and in the array library of `b`, on its device.
    report : sparsebatch.Report
        Status, iterations and residuals of each of their systems.
    items : range
        The items of the whole batch that `x` and `report` are of: those of this rank; on the rank
        `root` of a solver that has one, all.
    """

    __slots__ = ("_own", "_ranks", "items")

    items: range
    _own: Report
    _ranks: Ranks

    @classmethod
    def _of(cls, ranks: Ranks, result: LocalResult, own: Report, items: range) -> Result:
        self = cls(result.x, result.report)
        self._ranks, self._own, self.items = ranks, own, items
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # The ranks stay in their job.
        return LocalResult, (self.x, self.report)

    def gather_report(self, root: int = 0) -> Report | None:
        """One report of the systems of all ranks, on rank `root`; `None` on the others.

        All ranks call it. Rank `root` then holds about seventy bytes for each system. Times are those
        of the slowest rank.
        """
        return _gathered(self._ranks, self._own, root)


def _gathered(ranks: Ranks, own: Report, root: int) -> Report | None:
    """One report of those of all ranks, on rank `root`."""

    call = {"the call": "gather_report", "root": repr(root)}

    def packed() -> tuple[np.ndarray, tuple[int, int, bool]]:
        ranks.check_rank("root", root)
        part = np.frombuffer(own._native.to_bytes(), np.uint8)
        return part, (len(part), len(own), own._active is not None)

    part, told = ranks.run(call, packed)
    offsets = np.cumsum([0] + [length for length, _, _ in told])
    parts = ranks.gather(root, part, offsets)
    active = None
    if any(is_partial for *_, is_partial in told):
        systems = np.cumsum([0] + [count for _, count, _ in told])
        active = ranks.gather(root, own.active, systems)

    def merged() -> tuple[Report | None, None]:
        if parts is None:
            return None, None
        bounds = zip(offsets[:-1], offsets[1:], strict=True)
        native = _native.Report.merged([parts[first:last].tobytes() for first, last in bounds])
        return Report(native, own._fallback, own.cpu_reason, active), None

    return ranks.run(call, merged)[0]


def _kept(batch: Batch | None) -> Batch | None:
    """A batch with values that the program does not write to: they may travel again."""
    return None if batch is None else batch.with_values(np.array(host_batch(batch).values))


#: How the systems of a rank ended: active ones, counts of those that did not converge, what to try.
_Ended = tuple[int, dict[str, int], str | None]


def _ended(report: Report) -> _Ended:
    if report.all_converged:
        return report.nactive, {}, None
    others = ("Converged", "Inactive")
    counts = {name: count for name, count in report.status_counts.items() if name not in others}
    return report.nactive, counts, report.advice(report.first_failure())


def _problem(ranks: Ranks, ended: list[_Ended]) -> str | None:
    """One line about the systems that did not converge; `None` where all did."""
    counts: dict[str, int] = {}
    for _, own, _ in ended:
        for name, count in own.items():
            counts[name] = counts.get(name, 0) + count
    if not counts:
        return None
    active = sum(count for count, _, _ in ended)
    first = next(rank for rank, (_, own, _) in enumerate(ended) if own)
    each = ", ".join(f"{count} {name}" for name, count in counts.items())
    return (
        f"{sum(counts.values())} of {active} systems did not converge ({each}; the first on "
        f"{ranks.name(first)}); try next: {ended[first][2]}"
    )


def _described(options: dict[str, Any]) -> Described:
    """Options in words. Of limits with one value for each system only that they are."""
    return {
        name: "one for each system" if isinstance(value, np.ndarray) else repr(value)
        for name, value in options.items()
    }


def _check_limits(limits: dict[str, Any], nsystems: int) -> None:
    """Refuses limits of another number of systems than there are."""
    for name in _LIMITS:
        limit = limits[name]
        if isinstance(limit, np.ndarray) and len(limit) != nsystems:
            raise OptionError(f"{name} has {len(limit)} numbers, expected {nsystems}")
