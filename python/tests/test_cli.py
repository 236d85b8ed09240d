"""The command line: `python -m sparsebatch`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import sparsebatch
import sparsebatch.__main__
from systems import run_module, tridiagonal


def command(*arguments):
    return run_module("-m", "sparsebatch", *map(str, arguments))


@pytest.fixture
def path(tmp_path) -> Path:
    """A file with one matrix."""
    path = tmp_path / "a.npz"
    sp.save_npz(path, tridiagonal(20))
    return path


def test_version():
    done = command("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"sparsebatch {sparsebatch.__version__}\n"


def test_help():
    done = command("--help")
    assert done.returncode == 0
    assert "Usage: sparsebatch" in done.stdout
    assert "solve" in done.stdout


def test_solve(path):
    done = command("solve", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 1" in done.stdout


def test_solve_writes_what_the_package_solves(path, tmp_path):
    out = tmp_path / "x.npz"
    done = command("solve", path, "--json", "--backend", "cpu", "--output", out)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["systems"], report["converged"], report["backend"]) == (1, 1, "cpu")
    with np.load(out) as found:
        x = found["x"]
        assert list(found["status"]) == ["Converged"]
    assert_allclose(x, sparsebatch.solve(tridiagonal(20), np.ones(20), backend="cpu").x, rtol=1e-9)


def test_a_file_of_the_package(tmp_path, rng):
    a = tridiagonal(20)
    values = a.data * (1 + 0.1 * rng.random((7, a.nnz)))
    batch = sparsebatch.Batch.uniform(a.indptr, a.indices, values)
    b = rng.standard_normal((7, 20))
    sparsebatch.save(tmp_path / "a.batch", batch, b)
    done = command("solve", tmp_path / "a.batch", "--json", "--output", tmp_path / "x.npz")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rhs"] == "file"
    with np.load(tmp_path / "x.npz") as found:
        x = found["x"].reshape(7, 20)
    assert_allclose(x, sparsebatch.solve(batch, b).x, rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["solve", "none.mtx"], 2),
        (["solve"], 2),
        (["unknown"], 2),
        ([], 2),
        (["solve", "PATH", "--rtol", "-1"], 2),
        (["solve", "PATH", "--max-iters", "1", "--solver", "cg", "--no-fallback"], 3),
    ],
)
def test_exit_codes(arguments, code, path):
    done = command(*(path if argument == "PATH" else argument for argument in arguments))
    assert done.returncode == code
    if code == 2:
        assert done.stdout == ""
        assert "sparsebatch" in done.stderr or done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_the_entry_point(monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/sparsebatch", "--version"])
    assert sparsebatch.__main__.main() == 0
    assert capfd.readouterr().out == f"sparsebatch {sparsebatch.__version__}\n"


@pytest.mark.skipif(os.name != "posix", reason="there are no signals")
def test_interrupts(tmp_path):
    # Would take half a minute.
    a = tridiagonal(600, 2.0)
    batch = sparsebatch.Batch.uniform(a.indptr, a.indices, np.tile(a.data, (6000, 1)))
    sparsebatch.save(tmp_path / "a.batch", batch)
    package = Path(sparsebatch.__file__).parent.parent
    program = subprocess.Popen(
        [sys.executable, "-m", "sparsebatch", "solve", str(tmp_path / "a.batch"), "--rtol", "0",
         "--solver", "bicgstab", "--precond", "none", "--no-fallback", "--max-iters", "100000",
         "--threads", "2", "--backend", "cpu", "--output", str(tmp_path / "x.npz")],
        env=os.environ | {"PYTHONPATH": str(package)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    with pytest.raises(subprocess.TimeoutExpired):
        program.communicate(timeout=1.0)
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=60)
    assert program.returncode == 130
    assert out == b""
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.batch"]
