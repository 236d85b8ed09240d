"""NVRTC, the compiler of the kernels, of the interpreter's own environment."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from . import _native
from .errors import GpuError

#: Places below the package `nvidia` of the wheels, newest first, with their versions of CUDA.
_PLACES = ((13, "cu13/lib/libnvrtc.so.13"), (12, "cuda_nvrtc/lib/libnvrtc.so.12"))


@cache
def find_nvrtc() -> None:
    """Loads NVRTC of an installed wheel, unless `SPARSEBATCH_NVRTC` names another.

    The library looks in activated environments and toolkits itself; an interpreter that is started
    by its path is not activated.
    """
    driver = _native.driver()
    if os.environ.get("SPARSEBATCH_NVRTC") or driver is None:
        return
    for folder in _nvidia_folders():
        for version, place in _PLACES:
            if version <= driver[0] and (folder / place).is_file():
                try:
                    _native.use_nvrtc(folder / place)
                except GpuError:
                    continue
                return


def _nvidia_folders() -> list[Path]:
    from importlib.util import find_spec

    spec = find_spec("nvidia")
    places = spec.submodule_search_locations if spec is not None else None
    return [Path(place) for place in places or []]
