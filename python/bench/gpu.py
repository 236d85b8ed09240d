"""Speeds on a GPU against PyTorch, JAX and CuPy, as JSON lines.

usage: python python/bench/gpu.py [--systems N] [--output FILE] [--limit SECONDS]

Batches of float64 lie on the GPU before and after each solve. The dense matrices that PyTorch and
JAX solve are made before, and not counted; so is our analysis of the pattern, and that of none of
the peers. `speedup` is the median of the peer by ours, in the same run. A peer that fails, or does
not fit into memory, leaves a row with `skipped`. CuPy solves the block-diagonal matrix in a process
of its own, which is ended at the limit: a sample of the systems is tried then, whose number is
`scaled_from`. The rows `native solve` are of the call beneath `Solver.solve`, in turn with it:
`overhead_us` is what Python adds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import torch  # noqa: E402
from common import Problem, Table, in_turn, processor, rand9, times, tri  # noqa: E402

import sparsebatch  # noqa: E402
import sparsebatch.torch as sbt  # noqa: E402

CASES: dict[str, Callable[[int], Problem]] = {
    "tri 54": lambda nitems: tri(54, nitems),
    "tri 128": lambda nitems: tri(128, nitems),
    "rand9 54": lambda nitems: rand9(54, nitems),
    "rand9 128": lambda nitems: rand9(128, nitems),
}
SAMPLE = 500
REPETITIONS = 20


class Bench:
    """One problem on the GPU: ours first, then the peers."""

    def __init__(self, table: Table, problem: Problem, limit_s: float):
        self.table, self.problem, self.limit_s = table, problem, limit_s
        self.values = torch.from_numpy(problem.values).cuda()
        self.b = torch.from_numpy(problem.b).cuda()
        self.x = torch.empty_like(self.b)
        self.batch = problem.batch().with_values(problem.values)
        self.own_ms = float("nan")

    def times(self, call: Callable[[], object], repetitions: int = REPETITIONS) -> list[float]:
        return times(
            call,
            repetitions,
            warm=3,
            limit_s=self.limit_s,
            synchronize=torch.cuda.synchronize,
        )

    def run(self) -> None:
        ours = (self.ours, self.native, self.kept, self.gradient, self.own_jax)
        for part in (*ours, self.dense_torch, self.dense_jax):
            try:
                part()
            except Exception as error:  # noqa: BLE001  # Other rows are measured.
                torch.cuda.empty_cache()
                name = part.__name__.replace("_", " ")
                self.table.skipped(self.problem, "solve", name, f"{type(error).__name__}: {error}")
        self.block_diagonal()

    def ours(self) -> None:
        batch = sparsebatch.Batch.uniform(self.problem.indptr, self.problem.indices, self.values)
        solver = sparsebatch.Solver(batch, on_failure="raise")

        def call() -> None:
            solver.update_values(self.values)
            solver.solve(self.b, out=self.x)

        measured = self.times(call)
        report = solver.solve(self.b, out=self.x).report
        self.own_ms = self.table.row(
            self.problem,
            "solve",
            "sparsebatch",
            measured,
            solver=report.solver,
            iterations=round(float(report.iterations.mean()), 2),
            largest_relative_residual=float(f"{report.relative_residual.max():.2e}"),
            solve_time_ms=round(report.solve_time * 1e3, 5),
        )

    def native(self) -> None:
        """A solve by the native module, in turn with one by `Solver.solve`; both wait for it."""
        batch = sparsebatch.Batch.uniform(self.problem.indptr, self.problem.indices, self.values)
        solver = sparsebatch.Solver(batch, on_failure="raise")
        native, address = solver._engine.native, solver._engine.library.address
        arrays = address(self.values), address(self.b), address(self.x)
        calls: list[Callable[[], object]] = [
            lambda: solver.solve(self.b, out=self.x),
            lambda: native.solve("values", *arrays, False),
        ]
        whole, plain = in_turn(calls, 5 * REPETITIONS)
        medians = statistics.median(whole), statistics.median(plain)
        fields = {
            "solver_solve_ms": round(medians[0], 5),
            "overhead_us": round((medians[0] - medians[1]) * 1e3, 2),
            "overhead_of_minima_us": round((min(whole) - min(plain)) * 1e3, 2),
        }
        self.table.row(self.problem, "native solve", "sparsebatch", plain, **fields)

    def kept(self) -> None:
        batch = sparsebatch.Batch.uniform(self.problem.indptr, self.problem.indices, self.values)
        solver = sparsebatch.Solver(batch, on_failure="raise")
        solver.factor()
        measured = self.times(lambda: solver.solve(self.b, out=self.x))
        kept = {"keeps_factors": solver.keeps_factors}
        self.table.row(self.problem, "kept factors", "sparsebatch", measured, **kept)

    def gradient(self) -> None:
        """A solve that PyTorch differentiates, without gradient and with it."""
        values, b = self.values.clone().requires_grad_(), self.b.clone().requires_grad_()
        seed = torch.ones_like(self.x)

        def forward() -> None:
            with torch.no_grad():
                sbt.solve(self.batch, values, b)

        def both() -> None:
            values.grad = b.grad = None
            sbt.solve(self.batch, values, b).backward(seed)

        alone = self.times(forward)
        median = self.table.row(self.problem, "torch solve", "sparsebatch", alone)
        measured = self.times(both)
        ratio = round(statistics.median(measured) / median, 2)
        fields = {"by_forward": ratio, "parts_ms": self.parts()}
        self.table.row(self.problem, "torch solve and gradient", "sparsebatch", measured, **fields)
        sbt.clear_cache()

    def own_jax(self) -> None:
        """The same within JAX, compiled."""
        import jax

        import sparsebatch.jax as sbj

        jax.config.update("jax_enable_x64", True)
        values, b = jax.device_put((self.problem.values, self.problem.b), jax.devices("gpu")[0])
        solve = jax.jit(lambda values, b: sbj.solve(self.batch, values, b))

        @jax.jit
        def gradient(values: Any, b: Any) -> Any:
            return jax.grad(lambda v, b: sbj.solve(self.batch, v, b).sum(), (0, 1))(values, b)

        alone = self.times(lambda: solve(values, b).block_until_ready())
        median = self.table.row(self.problem, "jax solve", "sparsebatch", alone)
        both = self.times(lambda: jax.block_until_ready(gradient(values, b)))
        fields = {"by_forward": round(statistics.median(both) / median, 2)}
        self.table.row(self.problem, "jax solve and gradient", "sparsebatch", both, **fields)
        sbj.clear_cache()

    def parts(self) -> dict[str, float]:
        """What a gradient is made of, and what it could be made of."""
        batch = sparsebatch.Batch.uniform(self.problem.indptr, self.problem.indices, self.values)
        plain = sparsebatch.Solver(batch, on_failure="raise")
        kept = sparsebatch.Solver(batch, on_failure="raise")
        kept.factor()
        calls: dict[str, Callable[[], object]] = {
            "solve": lambda: plain.solve(self.b, out=self.x),
            "transposed": lambda: plain.solve(self.b, out=self.x, transpose=True),
            "factor": kept.factor,
            "kept": lambda: kept.solve(self.b, out=self.x),
            "kept transposed": lambda: kept.solve(self.b, out=self.x, transpose=True),
            "value gradient": lambda: plain.value_gradient(self.b, self.b),
        }
        medians = {name: statistics.median(self.times(call)) for name, call in calls.items()}
        plain.solve(self.b, out=self.x)
        return {name: round(median, 5) for name, median in medians.items()}

    def dense(self) -> torch.Tensor:
        """The matrices with their zeros, if several copies of them fit into memory."""
        p = self.problem
        needed = 5 * 8 * p.nitems * p.n * p.n
        free = torch.cuda.mem_get_info()[0]
        if needed > free:
            raise MemoryError(f"{needed / 1e9:.1f} GB for dense matrices, {free / 1e9:.1f} free")
        dense = torch.zeros(p.nitems, p.n, p.n, dtype=torch.float64, device="cuda")
        rows, columns = (torch.from_numpy(a).cuda().long() for a in (p.rows, p.indices))
        dense[:, rows, columns] = self.values
        return dense

    def peer(self, library: str, measured: list[float], x: torch.Tensor, **fields: Any) -> None:
        difference = float((x - self.x).norm() / self.x.norm())
        fields["speedup"] = round(statistics.median(measured) / self.own_ms, 2)
        fields["difference"] = float(f"{difference:.2e}")
        self.table.row(self.problem, "solve", library, measured, **fields)

    def dense_torch(self) -> None:
        dense, b = self.dense(), self.b.unsqueeze(-1)
        measured = self.times(lambda: torch.linalg.solve(dense, b))
        x = torch.linalg.solve(dense, b).squeeze(-1)
        self.peer("torch.linalg.solve, batched", measured, x)
        values = dense.requires_grad_()
        seed = torch.ones_like(b)

        def both() -> None:
            values.grad = None
            torch.linalg.solve(values, b).backward(seed)

        with_gradient = self.times(both, 5)
        library = "torch.linalg.solve, batched"
        self.table.row(self.problem, "torch solve and gradient", library, with_gradient)
        del dense, values
        torch.cuda.empty_cache()

    def dense_jax(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        if jax.default_backend() != "gpu":
            raise RuntimeError("JAX was installed without CUDA")
        dense = self.dense()
        torch.cuda.synchronize()
        matrices, b = (jax.dlpack.from_dlpack(tensor) for tensor in (dense, self.b))
        matrices, b = jax.numpy.array(matrices), jax.numpy.array(b)
        matrices.block_until_ready()
        del dense
        torch.cuda.empty_cache()
        solve = jax.jit(jax.vmap(jax.numpy.linalg.solve))
        measured = self.times(lambda: solve(matrices, b).block_until_ready())
        x = torch.from_dlpack(solve(matrices, b).block_until_ready()).clone()
        self.peer("jax.vmap(jax.numpy.linalg.solve)", measured, x)

    def block_diagonal(self) -> None:
        library = "cupyx spsolve, block-diagonal"
        reasons: list[str] = []
        for nitems in dict.fromkeys((self.problem.nitems, min(SAMPLE, self.problem.nitems))):
            torch.cuda.empty_cache()
            command = [sys.executable, __file__, "--peer", self.problem.case]
            command += ["--systems", str(nitems)]
            try:
                ended = subprocess.run(
                    command, capture_output=True, text=True, timeout=self.limit_s, check=False
                )
            except subprocess.TimeoutExpired:
                reasons.append(f"{nitems} systems took more than {self.limit_s:.0f} s")
                continue
            if ended.returncode != 0:
                lines = ended.stderr.strip().splitlines()
                reason = lines[-1] if lines else f"exit status {ended.returncode}"
                reasons.append(f"{nitems} systems: {reason}")
                continue
            measured = json.loads(ended.stdout.splitlines()[-1])
            scale = self.problem.nitems / nitems
            median = statistics.median(measured) * scale
            fields: dict[str, Any] = {"speedup": round(median / self.own_ms, 2)}
            if nitems != self.problem.nitems:
                fields |= {"scaled_from": nitems, "all_systems": reasons[0]}
            self.table.row(self.problem, "solve", library, measured, scale=scale, **fields)
            return
        self.table.skipped(self.problem, "solve", library, "; ".join(reasons))


def cupy_spsolve(problem: Problem) -> list[float]:
    """Times of CuPy for the block-diagonal matrix."""
    import cupy
    from cupyx.scipy.sparse import csr_matrix
    from cupyx.scipy.sparse.linalg import spsolve

    matrix = csr_matrix(problem.block_diagonal())
    b = cupy.asarray(problem.b.reshape(-1))
    return times(
        lambda: spsolve(matrix, b), 3, limit_s=20, synchronize=cupy.cuda.Device().synchronize
    )


def overhead(table: Table) -> None:
    """What a call costs beside the solve itself, for a batch so small that this can be seen."""
    problem = tri(8, 4)
    values, b = (torch.from_numpy(array).cuda() for array in (problem.values, problem.b))
    batch = sparsebatch.Batch.uniform(problem.indptr, problem.indices, values)
    solver = sparsebatch.Solver(batch, method="lu")
    x = torch.empty_like(b)
    solved: list[float] = []

    def call() -> None:
        solved.append(solver.solve(b, out=x).report.solve_time)

    measured = times(call, 2000, warm=100)
    inside = statistics.median(solved) * 1e6
    outside = statistics.median(measured) * 1e3 - inside
    fields = {"solve_us": round(inside, 2), "overhead_us": round(outside, 2)}
    table.row(problem, "overhead of a call", "sparsebatch", measured, **fields)


def machine() -> dict[str, Any]:
    """What rows say about the machine."""
    device = sparsebatch.devices()[0]
    said = {"gpu": device["name"], **processor(), "torch": torch.__version__}
    said["cuda"] = torch.version.cuda
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20)
        said["driver"] = found.stdout.split()[0]
    for name in ("jax", "cupy"):
        with contextlib.suppress(ImportError):
            said[name] = __import__(name).__version__
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--systems", type=int, default=10_000)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--limit", type=float, default=25.0, help="seconds for a peer")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--peer", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        print(json.dumps(cupy_spsolve(CASES[given.peer](given.systems))))
        return
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(given.output, "w")) if given.output else sys.stdout
        table = Table(machine(), file)
        overhead(table)
        for case in given.case or CASES:
            Bench(table, CASES[case](given.systems), given.limit).run()


if __name__ == "__main__":
    main()
