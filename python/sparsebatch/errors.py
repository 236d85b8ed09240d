"""The exceptions of the package, all of them subclasses of `Error`."""

__all__ = [
    "Broken",
    "Error",
    "Forked",
    "FormatError",
    "GpuError",
    "NotConverged",
    "OptionError",
    "OutOfMemory",
    "RankFailed",
    "SparsebatchWarning",
    "NotConvergedWarning",
    "Stopped",
    "Unsupported",
]


class Error(Exception):
    """Base class of the exceptions of this package."""


class FormatError(Error, ValueError):
    """A matrix is not valid: indices, lengths, or a file."""


class OptionError(Error, ValueError):
    """An option is out of range, or an array does not fit."""


class Unsupported(Error, NotImplementedError):
    """What was asked for is not supported; the message says what can be done instead."""


class GpuError(Error, RuntimeError):
    """There is no usable GPU, or it refused a call. The message names driver, compiler or memory."""


class OutOfMemory(GpuError, MemoryError):
    """There is not enough memory on the GPU, or the allocator in use refused it."""


class Broken(Error, RuntimeError):
    """A solver was lost in a failure of the library, which is a fault of it. Make it anew."""


class Forked(Error, RuntimeError):
    """The process was forked from one whose threads it lacks.

    Give `threads=` to solve with threads of its own, or start processes by `spawn`.
    """


class RankFailed(Error, RuntimeError):
    """A rank failed in `sparsebatch.mpi` by an exception of the caller's own code, or was interrupted.

    The message names rank and host, the class of the exception and its message. Exceptions of this
    package, and Python's own of bad input, memory and files, reach all ranks in their own class.
    """


class Stopped(Error, RuntimeError):
    """A solve was stopped by its progress callback."""


class NotConverged(Error, RuntimeError):
    """Some systems did not converge, and `on_failure="raise"` was given.

    Attributes
    ----------
    result : sparsebatch.Result
        Solutions and report of all systems.
    """

    def __init__(self, message, result):
        super().__init__(message)
        self.result = result

    def __reduce__(self):
        return NotConverged, (str(self), self.result)


class SparsebatchWarning(UserWarning):
    """Base class of the warnings of this package."""


class NotConvergedWarning(SparsebatchWarning, RuntimeWarning):
    """Some systems did not converge, and `on_failure="warn"` was given."""
