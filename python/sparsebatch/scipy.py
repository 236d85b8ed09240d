"""Solvers with the signatures of `scipy.sparse.linalg`: `cg`, `bicgstab`, `spsolve`.

A program that solves one system after the other changes one import, and then gives all its
matrices at once as a `sparsebatch.Batch`.

>>> import numpy as np, scipy.sparse as sp
>>> from sparsebatch.scipy import cg
>>> a = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
>>> x, info = cg(a, np.ones(50), backend="cpu")
>>> info
0
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ._arrays import library_of
from ._batch import Batch, as_batch
from ._foreign import adopt
from ._report import STATUSES, Report
from ._solve import solve
from .errors import NotConvergedWarning, OptionError, Unsupported

__all__ = ["bicgstab", "cg", "spsolve"]

#: `info` of systems that ended in a breakdown; SciPy has the first two.
_BREAKDOWNS = {
    "BreakdownRho": -10,
    "BreakdownOmega": -11,
    "BreakdownAlpha": -12,
    "Indefinite": -13,
    "NonFinite": -14,
    "ZeroDiagonal": -15,
    "SingularPreconditioner": -16,
    "ZeroPivot": -17,
    "Singular": -18,
}
#: `info` by the number of a status; 0 stands for the number of iterations.
_INFO = np.array([_BREAKDOWNS.get(name, 0) for name in STATUSES], np.int64)

#: Statuses of matrices that `spsolve` found no solution with.
_UNSOLVED = ("Singular", "ZeroPivot", "NonFinite")


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Any = None,
    precond: str = "none",
    backend: str = "auto",
) -> tuple[Any, Any]:
    """Solve `A x = b` by the method of conjugate gradients.

    Parameters
    ----------
    A : sparse array or matrix, ndarray of shape (n, n), or Batch
        Symmetric and positive definite. An ndarray is converted: its zeros are not stored. Also
        the other kinds of matrices that `sparsebatch.solve` takes.
    b : array, shape (n,) or (n, 1)
        Right-hand side; for a batch, as for `sparsebatch.solve`.
    x0 : array or "Mb", optional
        Initial guess, of the shape of `b`; `"Mb"` is `b` itself. Default: 0.
    rtol, atol : float
        A system has converged when `||b - A x||_2 <= max(rtol * ||b||_2, atol)`, recomputed.
    maxiter : int, optional
        The most iterations. Default: 10 for each row.
    M, callback
        Not supported: see `precond`, and the `progress` of `sparsebatch.solve`.
    precond : {"none", "auto", "jacobi", "block-jacobi", "ilu0", "ic0"}
        The preconditioner.
    backend : {"auto", "cpu", "gpu", "cuda:N"}
        As for `sparsebatch.solve`.

    Returns
    -------
    x : array
        The solution, of shape (n,); for a batch, as of `sparsebatch.solve`. Where a system did not
        converge it is the better of the guess and the last iterate.
    info : int
        0: converged. Above 0: the iterations after which it had not. Below 0: a breakdown, -10 for
        `rho`, -11 for `omega`, -12 for `alpha`, -13 for a matrix that is not positive definite, -14
        for NaN and infinities, -15 for a zero on the diagonal, -16 for a preconditioner that does
        not exist. For a batch, an array of int64 with one number for each system.

    Raises
    ------
    Unsupported
        For `M`, `callback`, a `LinearOperator`, and complex numbers.
    OptionError
        For shapes that do not fit, and tolerances that are not numbers from 0.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, sparsebatch.scipy
    >>> a = sp.csr_array(np.array([[4.0, 1.0], [1.0, 3.0]]))
    >>> x, info = sparsebatch.scipy.cg(a, np.array([1.0, 2.0]), rtol=1e-12)
    >>> np.round(x, 6), info
    (array([0.090909, 0.636364]), 0)
    """
    return _iterate("cg", A, b, x0, rtol, atol, maxiter, M, callback, precond, backend)


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Any = None,
    precond: str = "none",
    backend: str = "auto",
) -> tuple[Any, Any]:
    """Solve `A x = b` by the stabilised method of biconjugate gradients.

    Parameters, results and errors are those of `cg`; `A` need not be symmetric.

    Examples
    --------
    >>> import numpy as np, sparsebatch.scipy
    >>> x, info = sparsebatch.scipy.bicgstab(np.array([[2.0, 1.0], [0.0, 4.0]]), [3.0, 4.0])
    >>> np.round(x, 3), info
    (array([1., 1.]), 0)
    """
    return _iterate("bicgstab", A, b, x0, rtol, atol, maxiter, M, callback, precond, backend)


def spsolve(
    A: Any,
    b: Any,
    permc_spec: str | None = None,
    use_umfpack: bool = True,
    *,
    backend: str = "auto",
) -> Any:
    """Solve `A x = b` by a sparse LU factorisation.

    Parameters
    ----------
    A : sparse array or matrix, ndarray of shape (n, n), or Batch
        The matrix. An ndarray is converted: its zeros are not stored.
    b : array, shape (n,), (n, 1) or (n, nrhs)
        Right-hand sides; for a batch, as for `sparsebatch.solve`.
    permc_spec
        Not supported: the analysis chooses the order.
    use_umfpack : bool
        Ignored, as SciPy does without UMFPACK.
    backend : {"auto", "cpu", "gpu", "cuda:N"}
        As for `sparsebatch.solve`.

    Returns
    -------
    array
        Solutions, of shape (n,) or (n, nrhs); for a batch, as of `sparsebatch.solve`. NaN where a
        matrix is singular, with a `scipy.sparse.linalg.MatrixRankWarning`.

    Raises
    ------
    Unsupported
        For `permc_spec`, a sparse `b`, a `LinearOperator`, and complex numbers.
    OptionError
        For shapes that do not fit.

    Examples
    --------
    >>> import numpy as np, sparsebatch.scipy
    >>> sparsebatch.scipy.spsolve(np.array([[0.0, 2.0], [4.0, 0.0]]), [2.0, 4.0])
    array([1., 1.])
    """
    if permc_spec is not None:
        raise Unsupported(
            "permc_spec is not supported: leave it out, the analysis chooses the order"
        )
    if hasattr(b, "tocsr"):
        raise Unsupported("a sparse b is not supported: give b.toarray()")
    A, b, is_single = _system(A, b)
    # As accurate as elimination is: no factorisation reaches every tolerance.
    result = solve(A, b, method="lu", floor=64.0, on_failure="report", backend=backend)
    x, report = result.x, result.report
    if report.all_converged:
        return x
    unsolved = np.isin(report.status, _UNSOLVED)
    if unsolved.any():
        x = _with_nan(x, unsolved, A)
        _warn_singular(int(unsolved.sum()), len(report), is_single)
    if int(unsolved.sum()) < len(report) - report.nconverged:
        warnings.warn(report.problem() or "", NotConvergedWarning, stacklevel=2)
    return x


def _iterate(
    method: str,
    A: Any,
    b: Any,
    x0: Any,
    rtol: Any,
    atol: Any,
    maxiter: int | None,
    M: Any,
    callback: Any,
    precond: str,
    backend: str,
) -> tuple[Any, Any]:
    if M is not None:
        raise Unsupported(
            "M is not supported: leave it out and give precond='jacobi', 'block-jacobi', 'ilu0' or "
            "'ic0'"
        )
    if callback is not None:
        raise Unsupported(
            "callback is not supported: leave it out, and give history=True or progress to "
            "sparsebatch.solve"
        )
    rtol, atol = _tolerance("rtol", rtol), _tolerance("atol", atol)
    A, b, is_single = _system(A, b)
    if maxiter is None:
        # Every system has the limit of the largest.
        maxiter = 10 * int(np.max(A.nrows, initial=1))
    result = solve(
        A,
        b,
        _guess(x0, b, A, is_single),
        method=method,
        precond=precond,
        rtol=rtol,
        atol=atol,
        maxiter=maxiter,
        fallback=False,
        on_failure="report",
        backend=backend,
    )
    info = _info(result.report)
    return result.x, int(info[0]) if is_single else info


def _info(report: Report) -> np.ndarray:
    """`info` of every system."""
    info = _INFO[report.status_code]
    # A limit of 0 iterations is no convergence either.
    iterations = np.maximum(report.iterations.astype(np.int64), 1)
    return np.where(report.converged, 0, np.where(info == 0, iterations, info))


def _tolerance(name: str, value: Any) -> float:
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not (
        isinstance(value, bool)
    )
    # Not a number compares false.
    if not is_number or not value >= 0:
        raise OptionError(f"{name} is {value!r}, expected a number that is not negative")
    # The largest tolerance accepts every finite vector, as infinity does.
    return min(float(value), float(np.finfo(np.float64).max))


def _system(A: Any, b: Any) -> tuple[Batch, Any, bool]:
    """Matrices as a batch, right-hand sides of a type with them, and whether it is one matrix."""
    from scipy.sparse import csr_array, issparse

    if issparse(A) or isinstance(A, np.ndarray):
        if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
            raise OptionError(f"A has shape {A.shape}, expected a square matrix")
        b = np.asarray(adopt("b", b))
        if b.shape[:1] != A.shape[:1] or b.ndim > 2:
            raise OptionError(
                f"A has shape {A.shape} and b has shape {b.shape}, expected as many rows"
            )
        if b.ndim == 2 and b.shape[1] == 1:
            b = b.ravel()
        dtype = _common_type(A.dtype, b.dtype)
        A = csr_array(np.asarray(A)) if isinstance(A, np.ndarray) else A
        return Batch.from_scipy(A.astype(dtype)), b.astype(dtype), True
    if hasattr(A, "matvec"):
        raise Unsupported("a LinearOperator is not supported: give its matrix as a sparse array")
    batch = as_batch(A)
    return batch, b, batch._is_single


def _common_type(*dtypes: np.dtype) -> np.dtype:
    """float32 where all are, else float64; refuses complex numbers, and what is no number."""
    for dtype in dtypes:
        if dtype.kind == "c":
            raise Unsupported(
                f"{dtype} is not supported: solve the real system [[Re, -Im], [Im, Re]] of twice "
                "the size"
            )
        if dtype.kind not in "biuf":
            raise OptionError(f"{dtype} is not supported, expected real numbers")
    is_single = all(dtype == np.float32 for dtype in dtypes)
    return np.dtype(np.float32 if is_single else np.float64)


def _guess(x0: Any, b: Any, batch: Batch, is_single: bool) -> Any:
    """The initial guess as `solve` takes it."""
    if isinstance(x0, str):
        if x0 != "Mb":
            raise OptionError(f"x0 is {x0!r}, expected an array or 'Mb'")
        return b
    if x0 is None or not is_single or not isinstance(b, np.ndarray):
        return x0
    guess = np.asarray(adopt("x0", x0))
    _common_type(guess.dtype)
    if guess.ndim == 2 and guess.shape[1] == 1:
        guess = guess.ravel()
    return guess.astype(batch.dtype)


def _with_nan(x: Any, unsolved: np.ndarray, batch: Batch) -> Any:
    """Solutions with NaN in the systems that have none."""
    library = library_of(x)
    many = library.host(x)
    if batch._is_single:
        where = unsolved
    elif not batch.is_uniform:
        rows = np.asarray(batch.nrows)
        each = unsolved.reshape(batch.nitems, -1)
        where = np.repeat(each, rows, axis=0).reshape(many.shape)
    elif batch.layout == "interleaved":
        where = unsolved[None, :]
    else:
        where = unsolved.reshape(batch.nitems, 1, *many.shape[2:])
        where = where if many.ndim == 3 else where[:, 0, None]
    return library.wrap(np.where(where, np.nan, many).astype(many.dtype), x)


def _warn_singular(count: int, systems: int, is_single: bool) -> None:
    from scipy.sparse.linalg import MatrixRankWarning

    if is_single:
        text = "Matrix is singular: its solution is NaN"
    else:
        text = f"{count} of {systems} systems are singular: their solutions are NaN"
    warnings.warn(text, MatrixRankWarning, stacklevel=3)
