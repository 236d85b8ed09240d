"""Threads, processes, signals, memory: what happens around a solve."""

import concurrent.futures
import gc
import json
import os
import signal
import subprocess
import threading
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sparsebatch
from sparsebatch import Batch, Solver
from systems import make_batch, nonsymmetric, reference, run_python, tridiagonal

CPU = {"backend": "cpu"}


def many(nitems=200, n=30):
    a = tridiagonal(n)
    values = a.data * (1 + 0.1 * np.random.default_rng(1).random((nitems, a.nnz)))
    return Batch.uniform(a.indptr, a.indices, values)


class TestThreads:
    """Several threads of one process."""

    def test_one_solver(self):
        batch = many()
        solver = Solver(batch, **CPU)
        rights = [np.random.default_rng(k).standard_normal((200, 30)) for k in range(8)]
        expected = [solver.solve(b).x for b in rights]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in range(5):
                results = list(pool.map(solver.solve, rights))
                for result, x in zip(results, expected, strict=True):
                    assert result.report.all_converged
                    assert_array_equal(result.x, x)

    def test_several_solvers(self, rng):
        batches = [make_batch(kind, rng) for kind in ("uniform", "shared", "single", "ragged")] * 3

        def run(batch):
            b = np.ones(len(batch.to_block_diagonal().indptr) - 1)
            shape = b.shape if not batch.is_uniform or batch.nitems == 1 else (5, 9)
            b = b.reshape(shape)
            solver = Solver(batch, **CPU)
            solver.factor()
            return [
                solver.solve(b).x,
                solver.solve(b, transpose=True).x,
                solver.value_gradient(b, b),
                sparsebatch.solve(batch, b, method="bicgstab", threads=2, **CPU).x,
            ]

        expected = [run(batch) for batch in batches]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for found, known in zip(pool.map(run, batches), expected, strict=True):
                for one, other in zip(found, known, strict=True):
                    assert_array_equal(one, other)

    def test_other_threads_run_during_a_solve(self):
        # A solve that held the interpreter's lock would end before the other thread counts.
        a = tridiagonal(300, 2.0001)
        batch = Batch.uniform(a.indptr, a.indices, np.tile(a.data, (3000, 1)))
        counted, ended = [], threading.Event()

        def count():
            while not ended.is_set():
                counted.append(1)
                ended.wait(0.001)

        solver = Solver(batch, method="cg", precond="none", threads=2, **CPU)
        b = np.random.default_rng(0).standard_normal((3000, 300))
        thread = threading.Thread(target=count)
        thread.start()
        before = len(counted)
        solver.solve(b)
        after = len(counted)
        ended.set()
        thread.join()
        assert after - before > 3

    def test_errors_of_other_threads_arrive_there(self):
        solver = Solver(tridiagonal(4), **CPU)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(solver.solve, np.ones(3 + k % 2)) for k in range(40)]
        for k, future in enumerate(futures):
            if k % 2:
                assert future.result().report.all_converged
            else:
                assert isinstance(future.exception(), sparsebatch.OptionError)


class TestProgress:
    """The progress callback."""

    def batch(self):
        a = tridiagonal(300, 2.0001)
        batch = Batch.uniform(a.indptr, a.indices, np.tile(a.data, (4000, 1)))
        return batch, np.random.default_rng(0).standard_normal((4000, 300))

    # Two threads, so that a solve takes some ticks of the clock on all machines.
    OPTIONS = {"method": "cg", "precond": "none", "threads": 2, **CPU}

    def test_is_called_with_numbers_of_systems(self):
        batch, b = self.batch()
        calls = []
        sparsebatch.solve(batch, b, progress=lambda *now: calls.append(now), **self.OPTIONS)
        assert len(calls) >= 2
        assert calls[-1] == (4000, 4000)
        ended = [now for now, systems in calls]
        assert ended == sorted(ended)
        assert {systems for _, systems in calls} == {4000}
        assert ended[0] < 4000

    def test_is_called_once_at_least(self):
        calls = []
        sparsebatch.solve(
            tridiagonal(3), np.ones(3), progress=lambda *now: calls.append(now), **CPU
        )
        assert calls == [(1, 1)]

    def test_fits_a_bar(self):
        # `tqdm.update` takes differences.
        class Bar:
            n = total = 0

            def update(self, step):
                self.n += step

        bar = Bar()

        def progress(ended, systems):
            bar.total = systems
            bar.update(ended - bar.n)

        batch, b = self.batch()
        sparsebatch.solve(batch, b, progress=progress, **self.OPTIONS)
        assert (bar.n, bar.total) == (4000, 4000)

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_what_it_raises_ends_the_solve(self, error):
        batch, b = self.batch()
        calls = []

        def progress(ended, systems):
            calls.append(ended)
            if len(calls) == 1:
                raise error("enough")

        solver = Solver(batch, progress=progress, **self.OPTIONS)
        with pytest.raises(error, match="enough"):
            solver.solve(b)
        # Another thread may have been about to call it, too.
        assert max(calls) < 4000
        # The next solve is a new one.
        assert solver.solve(b).report.all_converged
        assert calls[-1] == 4000

    def test_may_not_use_its_own_solver(self):
        code = (
            "import numpy as np, sparsebatch\n"
            "batch = sparsebatch.Batch.uniform(\n"
            "    [0, 2, 4], [0, 1, 0, 1], np.tile([2.0, 1.0, 1.0, 2.0], (400000, 1))\n"
            ")\n"
            "b = np.ones((400000, 2))\n"
            "def progress(ended, systems):\n"
            "    solver.solve(b)\n"
            "solver = sparsebatch.Solver(batch, backend='cpu', method='cg', progress=progress)\n"
            "try:\n"
            "    solver.solve(b)\n"
            "except sparsebatch.Error as error:\n"
            "    print(error)\n"
        )
        assert "progress" in run_python(code, timeout=5).stdout

    def test_sees_the_interpreter(self):
        batch, b = self.batch()
        names = set()

        def progress(ended, systems):
            names.add(threading.current_thread().name)
            gc.collect()

        assert sparsebatch.solve(batch, b, progress=progress, **self.OPTIONS).report.all_converged
        assert names


class TestBuffers:
    """Arrays that go away during a solve, or between two."""

    def values(self):
        a = nonsymmetric(9, np.random.default_rng(3))
        values = np.empty((5, a.nnz))
        values[...] = a.data
        return a, values

    def test_values_cannot_be_resized_while_a_solver_holds_them(self):
        a, values = self.values()
        solver = Solver(Batch.uniform(a.indptr, a.indices, values), **CPU)
        with pytest.raises(ValueError, match="resize"):
            values.resize((2, a.nnz))
        assert solver.solve(np.ones((5, 9))).report.all_converged
        # The native solver alone holds them, too: it reads them where they lie.
        native = solver._engine.native
        del solver
        gc.collect()
        with pytest.raises(ValueError, match="resize"):
            values.resize((2, a.nnz))
        del native
        gc.collect()
        values.resize((2, a.nnz))
        assert values.shape == (2, a.nnz)

    def test_values_that_were_replaced_are_free(self):
        a, values = self.values()
        solver = Solver(Batch.uniform(a.indptr, a.indices, values), **CPU)
        solver.update_values(values.copy())
        values.resize((2, a.nnz))
        assert solver.solve(np.ones((5, 9))).report.all_converged

    def test_closing_a_solver_frees_the_values(self):
        a, values = self.values()
        batch = Batch.uniform(a.indptr, a.indices, values)
        reference_to_values = weakref.ref(values)
        solver = Solver(batch, **CPU)
        solver.close()
        del batch, values
        solver._batch = solver._frame = None
        gc.collect()
        assert reference_to_values() is None

    def test_deleted_names_do_not_delete_values(self):
        a, values = self.values()
        b = np.ones((5, 9))
        batch = Batch.uniform(a.indptr, a.indices, values)
        expected = reference(batch, b)
        solver = Solver(batch, **CPU)
        del values, batch, a
        gc.collect()
        filler = [np.full((5, 40), np.nan) for _ in range(100)]
        assert_allclose(solver.solve(b).x, expected, rtol=1e-8)
        del filler


FORK = """
import json, os
import numpy as np
import sparsebatch

indptr, indices, row = [0, 2, 5, 7], [0, 1, 0, 1, 2, 1, 2], [4.0, 1, 1, 4, 1, 1, 4]
batch = sparsebatch.Batch.uniform(indptr, indices, np.tile(row, (500, 1)))
b = np.ones((500, 3))
options = {"backend": "cpu"}
solver = sparsebatch.Solver(batch, **options)
own = sparsebatch.Solver(batch, threads=1, **options)
expected = solver.solve(b).x
own.solve(b)

def attempt(call):
    try:
        return bool(np.array_equal(call().x, expected))
    except sparsebatch.Forked as error:
        return str(error)

reader, writer = os.pipe()
child = os.fork()
if child == 0:
    found = {
        "solve": attempt(lambda: sparsebatch.solve(batch, b, **options)),
        "solver": attempt(lambda: solver.solve(b)),
        "own": attempt(lambda: own.solve(b)),
        "threads": attempt(lambda: sparsebatch.solve(batch, b, threads=1, **options)),
        "two threads": attempt(lambda: sparsebatch.solve(batch, b, threads=2, **options)),
    }
    os.write(writer, json.dumps(found).encode())
    os._exit(0)
os.close(writer)
with os.fdopen(reader) as pipe:
    found = json.loads(pipe.read())
_, status = os.waitpid(child, 0)
found["status"] = status
found["parent"] = attempt(lambda: solver.solve(b))
print(json.dumps(found))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
class TestFork:
    """Processes that were forked after a solve."""

    def test_says_so_or_has_threads_of_its_own(self):
        child = run_python(FORK, timeout=60)
        assert child.returncode == 0, child.stderr
        found = json.loads(child.stdout)
        assert found["status"] == 0
        assert found["parent"] is True
        assert found["threads"] is True
        assert found["two threads"] is True
        assert "make the solver anew" in found["own"]
        for name in ("solve", "solver"):
            assert "was forked" in found[name]

    def test_the_message_names_the_option(self):
        found = json.loads(run_python(FORK, timeout=60).stdout)
        assert "threads=" in found["solve"]

    def test_a_pool_of_spawned_processes(self):
        code = (
            "import concurrent.futures, multiprocessing\n"
            "import numpy as np, sparsebatch\n"
            "def run(batch):\n"
            "    return sparsebatch.solve(batch, np.ones((4, 2)), backend='cpu').x\n"
            "if __name__ == '__main__':\n"
            "    batch = sparsebatch.Batch.uniform([0, 1, 2], [0, 1], np.full((4, 2), 2.0))\n"
            "    run(batch)\n"
            "    context = multiprocessing.get_context('spawn')\n"
            "    with context.Pool(1) as pool:\n"
            "        (x,) = pool.map(run, [batch])\n"
            "    print(x.sum())\n"
        )
        # Spawned processes import the main module, which has to be a file.
        child = run_python(
            "import pathlib, runpy, sys, tempfile\n"
            "folder = tempfile.TemporaryDirectory()\n"
            "path = pathlib.Path(folder.name) / 'program.py'\n"
            f"path.write_text({code!r})\n"
            "import subprocess\n"
            "sys.exit(subprocess.run([sys.executable, path]).returncode)\n",
            timeout=60,
        )
        assert child.returncode == 0, child.stderr
        assert child.stdout.strip() == "4.0"


INTERRUPT = """
import os, signal, threading
import numpy as np
import sparsebatch

def tridiagonal(n, nitems):
    indptr = np.concatenate([[0], np.cumsum([2] + [3] * (n - 2) + [2])])
    rows = np.repeat(np.arange(n), np.diff(indptr))
    first = np.maximum(np.arange(n) - 1, 0)
    indices = first[rows] + np.arange(len(rows)) - indptr[rows]
    values = np.where(indices == rows, 2.0, -1.0)
    return sparsebatch.Batch.uniform(indptr, indices, np.tile(values, (nitems, 1)))

n, nitems, maxiter = SIZES
batch = tridiagonal(n, nitems)
b = np.random.default_rng(0).random((nitems, n))
sent, ended = threading.Event(), [0]
solver = sparsebatch.Solver(
    batch, backend="cpu", method="bicgstab", precond="none", rtol=0.0, fallback=False,
    maxiter=maxiter, max_restarts=maxiter, on_failure="report", threads=2,
    progress=lambda now, systems: ended.append(now) if sent.is_set() else None,
)
def interrupt():
    sent.set()
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.1, interrupt).start()
try:
    solver.solve(b)
    print("not interrupted")
except KeyboardInterrupt:
    # What runs at the time may end; what has not begun does not begin.
    print("interrupted", "early" if ended[-1] < nitems and len(ended) < 8 else "after the end")
small = tridiagonal(4, 1)
assert sparsebatch.solve(small, np.ones((1, 4)), backend="cpu").report.all_converged
again = sparsebatch.Solver(batch, backend="cpu", method="lu", on_failure="report").solve(b)
print("alive", len(again.report))
"""


def interrupt(n, nitems, maxiter):
    """What a program says that gets Ctrl-C in a solve of some seconds."""
    child = run_python(INTERRUPT.replace("SIZES", repr((n, nitems, maxiter))))
    assert child.returncode == 0, child.stderr
    return child.stdout


@pytest.mark.skipif(os.name != "posix", reason="there are no signals")
class TestInterrupt:
    """Ctrl-C."""

    def test_of_many_systems(self):
        assert interrupt(128, 4000, 10_000) == "interrupted early\nalive 4000\n"

    def test_of_few_entries(self):
        assert interrupt(128, 600, 20_000) == "interrupted early\nalive 600\n"

    def test_of_one_large_system(self):
        assert interrupt(90_000, 1, 1_000_000) == "interrupted early\nalive 1\n"

    def test_handlers_of_the_program_run(self):
        received = []
        before = signal.signal(signal.SIGUSR1, lambda *_: received.append(1))
        a = tridiagonal(300, 2.0001)
        batch = Batch.uniform(a.indptr, a.indices, np.tile(a.data, (4000, 1)))
        b = np.random.default_rng(0).standard_normal((4000, 300))

        def progress(ended, systems):
            if not received and ended < systems:
                os.kill(os.getpid(), signal.SIGUSR1)

        try:
            result = sparsebatch.solve(
                batch, b, progress=progress, method="cg", precond="none", threads=2, **CPU
            )
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert received
        assert result.report.all_converged


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
class TestLeaks:
    """Memory stays flat over thousands of calls."""

    # A leak of one vector or one array of values in each call would be 20 to 60 MB.
    LIMIT = 8 << 20

    def grows(self, call, count=2000):
        for _ in range(200):
            call()
        gc.collect()
        before = resident_bytes()
        for _ in range(count):
            call()
        gc.collect()
        return resident_bytes() - before

    @pytest.fixture
    def batch(self):
        return many(nitems=40, n=30)

    def test_solvers(self, batch):
        b = np.ones((40, 30))

        def call():
            with Solver(batch, **CPU) as solver:
                solver.factor()
                solver.solve(b)

        assert self.grows(call) < self.LIMIT

    def test_solves_and_reports(self, batch):
        solver = Solver(batch, **CPU)
        b, out = np.ones((40, 30)), np.empty((40, 30))

        def call():
            solver.update_values(batch.values.copy())
            report = solver.solve(b, b, out=out).report
            assert report.residual_norm.size == report.status.size == 40
            solver.solve(b, transpose=True)
            solver.value_gradient(b, out)

        assert self.grows(call) < self.LIMIT

    def test_batches(self, batch):
        indptr, indices = batch.indptr, batch.indices

        def call():
            other = Batch.uniform(indptr, indices, batch.values.copy())
            other.transposed()

        assert self.grows(call) < self.LIMIT

    def test_errors(self, batch):
        solver = Solver(batch, on_failure="raise", maxiter=1, method="cg", fallback=False, **CPU)
        b = np.arange(1200.0).reshape(40, 30)

        def call():
            with pytest.raises(sparsebatch.NotConverged):
                solver.solve(b)
            with pytest.raises(sparsebatch.OptionError):
                solver.solve(b[:1])
            with pytest.raises(sparsebatch.FormatError):
                Batch.uniform([0, 1], [7], [1.0])

        assert self.grows(call, 1000) < self.LIMIT


def test_importing_takes_numpy_alone():
    code = (
        "import sys, sparsebatch\n"
        "packages = {name.partition('.')[0] for name in sys.modules}\n"
        "others = {'scipy', 'jax', 'jaxlib', 'torch', 'cupy', 'pandas', 'numpy'}\n"
        "print(*sorted(packages & others))\n"
    )
    child = run_python(code)
    assert child.stdout.split() == ["numpy"], child.stderr


def test_solving_arrays_takes_numpy_alone():
    code = (
        "import sys, numpy as np, sparsebatch\n"
        "batch = sparsebatch.Batch.uniform([0, 1, 2], [0, 1], np.ones((3, 2)))\n"
        "result = sparsebatch.solve(batch, np.ones((3, 2)))\n"
        "repr(result), result.report.status\n"
        "packages = {name.partition('.')[0] for name in sys.modules}\n"
        "others = {'scipy', 'jax', 'jaxlib', 'torch', 'cupy', 'pandas', 'numpy'}\n"
        "print(*sorted(packages & others))\n"
    )
    child = run_python(code)
    assert child.stdout.split() == ["numpy"], child.stderr
