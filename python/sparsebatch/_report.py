"""How the systems of a batch ended: `Report`, `Result`."""

from __future__ import annotations

import html
from functools import cached_property
from typing import Any

import numpy as np

from . import _native

#: Names of the statuses, by number.
STATUSES: tuple[str, ...] = tuple(_native.status_names())
#: Names of the rungs of the ladder, by number.
RUNGS: tuple[str, ...] = tuple(_native.rung_names())

#: The code of a system that was not active in its solve.
INACTIVE = 255

_STATUS_ARRAY = np.full(256, "Inactive", dtype=f"<U{max(map(len, STATUSES))}")
_STATUS_ARRAY[: len(STATUSES)] = STATUSES
_RUNG_ARRAY = np.array(RUNGS)


class Report:
    """What came out of a solve, system by system.

    A system is an item and a right-hand side; those of an item follow each other. Arrays have one
    element for each system.

    Attributes
    ----------
    status : ndarray of str
        `"Converged"`, or why not; see `sparsebatch.STATUSES`. `"Inactive"` for systems that
        `active` left out.
    active : ndarray of bool
        Whether the system was to be solved.
    converged : ndarray of bool
        Whether the true residual `b - A x`, recomputed, passed the test; false where not active.
    iterations, restarts : ndarray of uint32
        Those of all rungs of the ladder together.
    residual_norm, rhs_norm : ndarray of float64
        `||b - A x||_2`, recomputed from the returned `x`, and `||b||_2`, in the units of b.
    relative_residual : ndarray of float64
        Their quotient; 0 where both are 0.
    rung : ndarray of str
        The rung of the ladder that solved the system: `"first"`, or what took over.
    singular : ndarray of bool
        Whether the ladder found the matrix singular.
    accepted_by_floor : ndarray of bool
        Whether the system converged by the rounding floor alone.
    history : list of list of float
        Residual norms of the iterations, with `history=True`.
    solver, reason : str
        What ran first, of most systems, and why `auto` took it.
    backend, device : str
        `"cpu"`, `"gpu"` or `"gpu+cpu"`, and its name.
    cpu_reason : str or None
        Why `backend="auto"` took the CPU for the whole batch.
    format, kernel : str
        Matrix format and kernel of the products.
    plan_time, solve_time : float
        Seconds of analysis and of the solve.
    """

    def __init__(
        self,
        native: Any,
        fallback: bool = True,
        cpu_reason: str | None = None,
        active: np.ndarray | None = None,
    ):
        self._native = native
        self._fallback = fallback
        self.cpu_reason = cpu_reason
        self._active = active

    def __len__(self) -> int:
        return len(self._native)

    @cached_property
    def status_code(self) -> np.ndarray:
        """Statuses as numbers: places in `sparsebatch.STATUSES`, or 255 where not active."""
        codes = np.frombuffer(self._native.status(), np.uint8)
        if self._active is None:
            return codes
        return np.where(self._active, codes, np.uint8(INACTIVE))

    @cached_property
    def active(self) -> np.ndarray:
        return np.ones(len(self), bool) if self._active is None else self._active

    @cached_property
    def status(self) -> np.ndarray:
        return _STATUS_ARRAY[self.status_code]

    @cached_property
    def converged(self) -> np.ndarray:
        return self.status_code == 0

    @property
    def nconverged(self) -> int:
        """The number of active systems that converged."""
        if self._active is None:
            return self._native.nconverged
        return int(np.count_nonzero(self.converged))

    @property
    def nactive(self) -> int:
        """The number of systems that were to be solved."""
        return len(self) if self._active is None else int(np.count_nonzero(self._active))

    @property
    def all_converged(self) -> bool:
        """Whether every active system converged; true for an empty batch."""
        return self.nconverged == self.nactive

    @cached_property
    def iterations(self) -> np.ndarray:
        return np.frombuffer(self._native.iterations(), np.uint32)

    @cached_property
    def restarts(self) -> np.ndarray:
        return np.frombuffer(self._native.restarts(), np.uint32)

    @cached_property
    def residual_norm(self) -> np.ndarray:
        return np.frombuffer(self._native.residual_norm(), np.float64)

    @cached_property
    def rhs_norm(self) -> np.ndarray:
        return np.frombuffer(self._native.rhs_norm(), np.float64)

    @cached_property
    def relative_residual(self) -> np.ndarray:
        return np.frombuffer(self._native.relative_residual(), np.float64)

    @cached_property
    def rung(self) -> np.ndarray:
        return _RUNG_ARRAY[np.frombuffer(self._native.rung(), np.uint8)]

    @cached_property
    def singular(self) -> np.ndarray:
        return np.frombuffer(self._native.singular(), np.bool_)

    @cached_property
    def accepted_by_floor(self) -> np.ndarray:
        return np.frombuffer(self._native.accepted_by_floor(), np.bool_)

    @cached_property
    def history(self) -> list[list[float]]:
        return self._native.history()

    @property
    def status_counts(self) -> dict[str, int]:
        """How many systems ended with each status."""
        if self._active is None:
            return self._native.status_counts()
        codes, counts = np.unique(self.status_code, return_counts=True)
        return {str(_STATUS_ARRAY[code]): int(n) for code, n in zip(codes, counts, strict=True)}

    @property
    def rung_counts(self) -> dict[str, int]:
        """How many systems each rung of the ladder is responsible for."""
        return self._native.rung_counts()

    @property
    def schemes(self) -> list[tuple[str, int, str, str]]:
        """What ran first: name, number of systems, why, kernel."""
        return self._native.schemes()

    @property
    def runs(self) -> list[tuple[str, int, str, str, str | None]]:
        """What ran: rung, number of systems, machine, kernel, why the CPU took systems of a GPU."""
        return self._native.runs()

    @property
    def gpus(self) -> list[tuple[str, int, str | None]]:
        """Each of several GPUs: name, number of systems that it solved, why it was lost if it was.

        The others solve the systems of one that was lost. Empty where there is one GPU or none.
        """
        return self._native.gpus()

    solver = property(lambda self: self._native.solver)
    reason = property(lambda self: self._native.reason)
    backend = property(lambda self: self._native.backend)
    device = property(lambda self: self._native.device)
    format = property(lambda self: self._native.format)
    kernel = property(lambda self: self._native.kernel)
    plan_time = property(lambda self: self._native.plan_time)
    solve_time = property(lambda self: self._native.solve_time)

    def advice(self, system: int) -> str | None:
        """What to try next for a system that did not converge; `None` for one that did."""
        if not 0 <= system < len(self):
            raise IndexError(f"system {system} of a report of {len(self)}")
        if self._active is not None and not self._active[system]:
            return None
        return self._native.advice(system, self._fallback)

    def first_failure(self) -> int:
        """The first active system that did not converge; an `IndexError` where all did."""
        return int(np.flatnonzero(self.active & ~self.converged)[0])

    def problem(self) -> str | None:
        """One line about the systems that did not converge: counts, and what to try next."""
        failed = self.nactive - self.nconverged
        if failed == 0:
            return None
        others = ("Converged", "Inactive")
        counts = {name: n for name, n in self.status_counts.items() if name not in others}
        ended = ", ".join(f"{n} {name}" for name, n in counts.items())
        advice = self.advice(self.first_failure())
        return f"{failed} of {self.nactive} systems did not converge ({ended}); try next: {advice}"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("systems", f"{len(self):,}"), ("converged", f"{self.nconverged:,}")]
        rows += [(name, f"{n:,}") for name, n in self.status_counts.items() if name != "Converged"]
        if len(self):
            least, most = int(self.iterations.min()), int(self.iterations.max())
            rows.append(("iterations", f"{least} to {most}, mean {self.iterations.mean():.1f}"))
            finite = self.relative_residual[np.isfinite(self.relative_residual)]
            if finite.size:
                rows.append(("largest relative residual", f"{finite.max():.2e}"))
        others = {name: n for name, n in self.rung_counts.items() if name != "first"}
        if others:
            rows.append(("solved by", ", ".join(f"{name} {n:,}" for name, n in others.items())))
        rows.append(("solver", f"{self.solver} ({self.reason})"))
        why = "" if self.cpu_reason is None else f" (no GPU: {self.cpu_reason})"
        rows.append(("device", f"{self.backend}: {self.device}{why}"))
        rows.append(("times", f"analysis {self.plan_time * 1e3:.3g} ms, solve {self.solve_time * 1e3:.3g} ms"))
        if not self.all_converged:
            rows.append(("next", self.problem().rpartition("try next: ")[2]))
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        return Report, (_StoredReport(self), self._fallback, self.cpu_reason, self._active)

    def __repr__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._rows()
        )
        return f"<table>{cells}</table>"


class _StoredReport:
    """A native report that came from another process."""

    _ARRAYS = (
        "status",
        "iterations",
        "restarts",
        "residual_norm",
        "rhs_norm",
        "relative_residual",
        "rung",
        "singular",
        "accepted_by_floor",
        "history",
        "status_counts",
        "rung_counts",
        "schemes",
        "runs",
        "gpus",
    )
    _NUMBERS = (
        "nconverged",
        "solver",
        "reason",
        "backend",
        "device",
        "format",
        "kernel",
        "plan_time",
        "solve_time",
    )

    def __init__(self, report: Report):
        # What the native part says, without the systems that were not active.
        native = report._native
        self._parts = {name: getattr(native, name)() for name in self._ARRAYS}
        self._parts |= {name: getattr(native, name) for name in self._NUMBERS}
        failed = np.flatnonzero(report.status_code != 0).tolist()
        self._advice = {
            (system, fallback): native.advice(system, fallback)
            for system in failed
            for fallback in (False, True)
        }
        self._len = len(native)

    def __len__(self) -> int:
        return self._len

    def __getattr__(self, name: str) -> Any:
        parts = self.__dict__.get("_parts", {})
        if name not in parts:
            raise AttributeError(name)
        part = parts[name]
        return (lambda: part) if name in self._ARRAYS else part

    def advice(self, system: int, fallback: bool) -> str | None:
        return self._advice.get((system, fallback))


class Result:
    """Solutions, and how each system ended.

    Attributes
    ----------
    x : array
        Solutions, of the shape and in the array library of `b`, on its device. A system that did
        not converge has the better of its guess and its last iterate.
    report : Report
        Status, iterations and residuals of each system.
    """

    __slots__ = ("report", "x")

    def __init__(self, x: Any, report: Report):
        self.x = x
        self.report = report

    def __iter__(self):
        return iter((self.x, self.report))

    def __repr__(self) -> str:
        report = self.report
        return f"Result of {report.nconverged} of {report.nactive} systems converged\n{report!r}"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()
