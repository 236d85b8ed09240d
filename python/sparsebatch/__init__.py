"""Thousands of small sparse linear systems at once, on all cores or an NVIDIA GPU.

`solve` solves a batch, `Solver` keeps its analysis and factors for further solves, `Spmv`
multiplies. Every system has its own status, iterations and true residual: see `Report`.

>>> import numpy as np, scipy.sparse as sp, sparsebatch
>>> a = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(128, 128), format="csr")
>>> batch = sparsebatch.Batch.uniform(a.indptr, a.indices, np.tile(a.data, (1000, 1)))
>>> result = sparsebatch.solve(batch, np.ones((1000, 128)), backend="cpu")
>>> result.report.nconverged
1000
"""

import os
from typing import Any

from . import errors, formats
from ._batch import Batch, load, save
from ._native import VERSION as __version__
from ._nvrtc import find_nvrtc
from ._report import RUNGS, STATUSES, Report, Result
from ._solve import Solver, solve
from ._spmv import Spmv
from .errors import (
    Broken,
    Error,
    Forked,
    FormatError,
    GpuError,
    NotConverged,
    NotConvergedWarning,
    OptionError,
    OutOfMemory,
    RankFailed,
    SparsebatchWarning,
    Stopped,
    Unsupported,
)
from .formats import FormatMatrix, to_coo, to_dia, to_ell, to_hyb, to_sellp

__all__ = [
    "RUNGS",
    "STATUSES",
    "Batch",
    "Broken",
    "Error",
    "Forked",
    "FormatError",
    "FormatMatrix",
    "GpuError",
    "NotConverged",
    "NotConvergedWarning",
    "OptionError",
    "OutOfMemory",
    "RankFailed",
    "Report",
    "Result",
    "Solver",
    "SparsebatchWarning",
    "Spmv",
    "Stopped",
    "Unsupported",
    "__version__",
    "devices",
    "errors",
    "formats",
    "gpu_unavailable",
    "load",
    "save",
    "solve",
    "to_coo",
    "to_dia",
    "to_ell",
    "to_hyb",
    "to_sellp",
    "use_nvrtc",
]


def devices() -> list[dict[str, Any]]:
    """The GPUs that the driver shows: `device`, `name`, `compute_capability`, `total_bytes`.

    Raises
    ------
    GpuError
        Where there is no driver, naming what is missing; see `gpu_unavailable`.
    """
    from . import _native

    find_nvrtc()
    return _native.devices()


def gpu_unavailable() -> str | None:
    """Why there is no usable GPU; `None` where there is one."""
    from . import _native

    find_nvrtc()
    return _native.gpu_unavailable()


def use_nvrtc(place: str | os.PathLike[str]) -> tuple[str | None, str]:
    """Take NVRTC, the compiler of the kernels, from a file or folder.

    By default it is found in this interpreter's packages (`pip install nvidia-cuda-nvrtc`), where
    `SPARSEBATCH_NVRTC` says, or in a CUDA toolkit.

    Parameters
    ----------
    place : path
        `libnvrtc.so.13` (or 12), or its folder.

    Returns
    -------
    path : str or None
        The file that was loaded; `None` if the system's loader found it.
    version : str
        The version of NVRTC.
    """
    from . import _native

    return _native.use_nvrtc(place)
