"""The ranks of a communicator of mpi4py, and what they send each other: `Ranks`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from . import _native, errors
from .errors import OptionError, RankFailed, Unsupported

T = TypeVar("T")

#: Names and values that ranks must have in common.
Described = dict[str, str]

#: The most elements of one collective call: MPI counts them in 32 bits.
WINDOW = 1 << 30

#: The classes of exceptions that all ranks raise where one rank did, by their names.
_CLASSES: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        errors.Broken,
        errors.Forked,
        errors.FormatError,
        errors.GpuError,
        errors.NotConvergedWarning,
        errors.OptionError,
        errors.OutOfMemory,
        errors.RankFailed,
        errors.Stopped,
        errors.Unsupported,
        FileNotFoundError,
        MemoryError,
        OSError,
        TypeError,
        ValueError,
    )
}


class Ranks:
    """The ranks of a communicator, of which this process is one.

    All ranks call the same methods in the same order. A step that may fail on one rank goes through
    `run`, so that ranks go on together or fail together.
    """

    def __init__(self, comm: Any):
        check_communicator(comm)
        mpi = sys.modules["mpi4py.MPI"]
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        shared = comm.Split_type(mpi.COMM_TYPE_SHARED)
        #: The number of this rank among those that share its memory, and how many these are.
        self.local = shared.Get_rank(), shared.Get_size()
        shared.Free()
        places = comm.allgather((mpi.Get_processor_name(), _native.own_cores()))
        self.hosts = [host for host, _ in places]
        self._places = places

    def threads(self) -> int | None:
        """The threads that this rank should use, or `None` for all that it may run on: ranks of one
        host that may run on the same cores divide them."""
        if os.environ.get("RAYON_NUM_THREADS"):
            return None
        return _native.rank_threads(self.rank, self._places)

    def name(self, rank: int) -> str:
        """A rank in words."""
        return f"rank {rank} on {self.hosts[rank]}"

    def run(
        self, call: Described, work: Callable[[], tuple[T, Any]]
    ) -> tuple[T, list[Any]]:
        """Runs work of this rank alone, in which it must not wait for other ranks.

        `work` returns its result, and what it tells all ranks. Returns the result of this rank, and
        what all ranks told. Where ranks failed, all raise the exception of the lowest one that did.
        `call` names the call and what ranks must have in common in it.
        """
        result: Any = None
        told, failure, own = None, None, None
        try:
            result, told = work()
        except BaseException as error:  # Also an interrupt: other ranks wait for this one.
            own, failure = error, _failure(error)
        records = self.comm.allgather((call, failure, told))
        if own is not None and not isinstance(own, Exception):
            raise own
        self.same([call for call, _, _ in records])
        failures = [failure for _, failure, _ in records]
        if any(failures):
            self._raise_first(failures, own)
        return result, [told for _, _, told in records]

    def _raise_first(self, failures: list[tuple[str, str] | None], own: Any) -> NoReturn:
        rank, failure = next((at, one) for at, one in enumerate(failures) if one is not None)
        kind, text = failure
        if any(other != failure for other in failures):
            text = f"{self.name(rank)}: {text}"
        raise _CLASSES[kind](text) from own

    def same(self, described: Sequence[Described], of: int = 0, missing: bool = False) -> None:
        """Holds that all ranks told the same as rank `of`. With `missing` a rank may leave names
        out. No messages: `described` is what all ranks told.
        """
        first = described[of]
        for rank, own in enumerate(described):
            names = own if missing else first | own
            for name in names:
                expected, found = first.get(name, "absent"), own.get(name, "absent")
                if found != expected:
                    raise OptionError(
                        f"{self.name(rank)}: {name} is {found}, on rank {of} it is {expected}"
                    )

    def check_rank(self, name: str, rank: Any) -> None:
        """Refuses a number that is no rank's."""
        is_number = isinstance(rank, int | np.integer) and not isinstance(rank, bool)
        if not is_number or not 0 <= rank < self.size:
            raise OptionError(f"{name} is {rank!r}, expected a rank from 0 to {self.size - 1}")

    def scatter(
        self, root: int, array: np.ndarray | None, offsets: np.ndarray, dtype: Any
    ) -> np.ndarray:
        """Elements `offsets[rank]` to `offsets[rank + 1]` of the array of rank `root`, flat."""
        length = int(offsets[self.rank + 1] - offsets[self.rank])
        own = self._allocated(length, dtype)
        for window, counts, starts, part in self._windows(offsets):
            whole = None if array is None else [array[window], (counts, starts)]
            self.comm.Scatterv(whole, own[part], root=root)
        return own

    def gather(self, root: int, own: np.ndarray, offsets: np.ndarray) -> np.ndarray | None:
        """The flat arrays of all ranks one after the other, on rank `root`; else `None`."""
        array = self._allocated(int(offsets[-1]) if self.rank == root else None, own.dtype)
        for window, counts, starts, part in self._windows(offsets):
            whole = None if array is None else [array[window], (counts, starts)]
            self.comm.Gatherv(own[part], whole, root=root)
        return array

    def _allocated(self, length: int | None, dtype: Any) -> np.ndarray | None:
        """Memory of this rank to receive in, if it is to receive; where one has none, none sends."""

        def made() -> tuple[np.ndarray | None, None]:
            return None if length is None else np.empty(length, dtype), None

        return self.run({}, made)[0]

    def _windows(self, offsets: np.ndarray) -> Any:
        """Parts of an array that one call can send: the slice of the whole, the counts of all ranks
        and where they begin within it, and the slice of the elements of this rank."""
        begin = offsets[self.rank]
        for first in range(0, int(offsets[-1]), WINDOW):
            last = min(first + WINDOW, int(offsets[-1]))
            bounds = np.clip(offsets, first, last)
            part = slice(int(bounds[self.rank] - begin), int(bounds[self.rank + 1] - begin))
            yield slice(first, last), np.diff(bounds), bounds[:-1] - first, part


def _failure(error: BaseException) -> tuple[str, str]:
    """An exception as the name of a class that all ranks know, and a message."""
    kind = type(error).__name__
    if _CLASSES.get(kind) is type(error):
        return kind, str(error)
    return RankFailed.__name__, f"{kind}: {error}" if str(error) else kind


def check_communicator(comm: Any) -> None:
    """Refuses what is no communicator of mpi4py whose ranks can work together."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None and importlib.util.find_spec("mpi4py") is None:
        raise Unsupported(
            "sparsebatch.mpi needs mpi4py, which is not installed: pip install mpi4py"
        )
    if mpi is None or not isinstance(comm, mpi.Comm):
        raise OptionError(
            f"comm is a {type(comm).__name__}, expected a communicator of mpi4py, such as "
            "mpi4py.MPI.COMM_WORLD"
        )
    if mpi.Is_finalized():
        raise OptionError("comm is used after MPI was finalised")
    if comm == mpi.COMM_NULL:
        raise OptionError("comm is MPI.COMM_NULL, expected a communicator of which this is a rank")
    if not isinstance(comm, mpi.Intracomm):
        raise OptionError("comm is an intercommunicator, expected the ranks of one group")
