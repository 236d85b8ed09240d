"""Batches shared out over the ranks of an MPI program: not supported yet.

Every name of this module raises `sparsebatch.Unsupported`.
"""

from __future__ import annotations

from typing import NoReturn

from .errors import Unsupported

__all__: list[str] = []


def __getattr__(name: str) -> NoReturn:
    """Refuses every name; special names are those of the import system, and not there."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise Unsupported(
        f"sparsebatch.mpi.{name} is not supported yet: give each rank its own items, "
        "and call sparsebatch.solve on it"
    )
