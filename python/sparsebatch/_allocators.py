"""Memory of a GPU from PyTorch, CuPy or the caller, for `Solver(allocator=)`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from . import _native
from .errors import OptionError

#: Bytes of the allocation that shows whether an allocator works.
_TRIAL = 256


def allocator_of(asked: Any, library: str, ordinal: int, stream: int) -> Any:
    """The native allocator of a solver on GPU `ordinal` and `stream`, whose values are of `library`;
    `None` for memory of the driver."""
    if asked is None:
        asked = "torch" if library == "torch" else "driver"
    if isinstance(asked, str):
        if asked == "driver":
            return None
        if asked not in _BY_NAME:
            raise OptionError(
                f"allocator is {asked!r}, expected 'torch', 'cupy', 'driver' or an object with "
                "malloc and free"
            )
        malloc, free = _BY_NAME[asked](ordinal)
    else:
        malloc, free = getattr(asked, "malloc", None), getattr(asked, "free", None)
        if not (callable(malloc) and callable(free)):
            raise OptionError(
                f"allocator is a {type(asked).__name__}, expected an object with functions "
                "malloc(nbytes, stream) and free(address, nbytes, stream)"
            )
    allocator = _native.Allocator(malloc, free)
    allocator.try_out(_TRIAL, stream)
    return allocator


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise OptionError(f"allocator is {name!r}, which is not installed") from error


def _torch(ordinal: int) -> tuple[Any, Any]:
    """PyTorch's caching allocator."""
    cuda = _package("torch").cuda

    def malloc(nbytes: int, stream: int) -> int:
        return int(cuda.caching_allocator_alloc(nbytes, ordinal, stream))

    def free(address: int, _nbytes: int, _stream: int, is_ending: Any = sys.is_finalizing) -> None:
        # Solvers that live to the end of the program may outlive PyTorch.
        if not is_ending():
            cuda.caching_allocator_delete(address)

    return malloc, free


def _cupy(ordinal: int) -> tuple[Any, Any]:
    """CuPy's current allocator, by default its pool."""
    cuda = _package("cupy").cuda
    #: The pointers that keep what was given out.
    given: dict[int, Any] = {}

    def malloc(nbytes: int, stream: int) -> int:
        on = cuda.ExternalStream(stream, ordinal) if stream else cuda.Stream.null
        with cuda.Device(ordinal), on:
            pointer = cuda.alloc(nbytes)
        given[pointer.ptr] = pointer
        return int(pointer.ptr)

    def free(address: int, _nbytes: int, _stream: int) -> None:
        del given[address]

    return malloc, free


_BY_NAME = {"torch": _torch, "cupy": _cupy}
