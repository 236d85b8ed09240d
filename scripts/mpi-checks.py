"""What `sparsebatch solve --mpi` and `spmv --mpi` promise, on the ranks of one MPI.

usage: mpi-checks.py openmpi|mpich FOLDER    a folder with the programs sparsebatch and ranks, the
transport of the MPI beside them, and c/ranks and c/ranks-f, which are linked to the C library

Each check is a function; its name and docstring say what is held. A check that fails ends the program
with the command, what it printed, and what was expected.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FLAVOUR = sys.argv[1]
PROGRAMS = Path(sys.argv[2]).resolve()
OTHER = {"openmpi": "mpich", "mpich": "openmpi"}[FLAVOUR]
RANKS = (1, 2, 3, 5)
LIMIT = 60

# Ranks poll while they wait, and there may be fewer cores than ranks.
ENVIRONMENT = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_mpi_yield_when_idle="1",
    RAYON_NUM_THREADS="1",
)


def launcher(flavour=FLAVOUR):
    """The launcher, and how it takes more ranks than cores."""
    more = ["--oversubscribe", "--bind-to", "none"] if flavour == "openmpi" else []
    return [f"mpirun.{flavour}", *more]


def run(command, **kwargs):
    """Runs a command to its end, at most LIMIT seconds: a hang is a failure."""
    kwargs = {"env": ENVIRONMENT, "timeout": LIMIT, "capture_output": True, "text": True} | kwargs
    return subprocess.run([str(part) for part in command], **kwargs)


def solve(ranks, *args, program=PROGRAMS / "sparsebatch", **kwargs):
    """`sparsebatch solve --mpi` on some ranks, or without MPI where `ranks` is None."""
    if ranks is None:
        return run([program, "solve", *args], **kwargs)
    return run([*launcher(), "-n", ranks, program, "solve", "--mpi", *args], **kwargs)


def each_its_own(*commands, **kwargs):
    """One rank for each command line of `sparsebatch`, in one job."""
    command = launcher()
    for at, args in enumerate(commands):
        command += [":"] * (at > 0) + ["-n", "1", PROGRAMS / "sparsebatch", *args]
    return run(command, **kwargs)


def expect(condition, result, what):
    if not condition:
        sys.exit(
            f"{FLAVOUR}: expected {what}\ncommand: {' '.join(map(str, result.args))}\n"
            f"exit code: {result.returncode}\nstdout: {result.stdout}\nstderr: {result.stderr}"
        )


def errors(result):
    """The lines of the program on stderr; launchers add their own."""
    return [line for line in result.stderr.splitlines() if line.startswith("error: ")]


def expect_error(result, code, *parts):
    """One line with these parts, and this exit code."""
    lines = errors(result)
    expect(len(lines) == 1, result, "one line of error")
    for part in parts:
        expect(part in lines[0], result, f"{part!r} in the line of error")
    expect(result.returncode == code, result, f"exit code {code}")
    expect_no_report(result)


def expect_no_report(result):
    # Launchers may print on stdout how a job ended.
    expect("converged" not in result.stdout, result, "no report")


def folder_is(folder, names):
    found = sorted(path.name for path in Path(folder).iterdir())
    if found != sorted(names):
        sys.exit(f"{FLAVOUR}: expected {sorted(names)} in {folder}, found {found}")


class Inputs:
    """Problems, made once."""

    def __init__(self, folder):
        def generate(*args):
            made = run([PROGRAMS / "sparsebatch", "generate", *args])
            expect(made.returncode == 0, made, "a problem")

        self.folder = folder
        self.uniform, self.ragged = folder / "tri.batch", folder / "mix.batch"
        self.two, self.matrices = folder / "two.batch", folder / "matrices"
        generate("tri", "--n", "32", "--batch", "101", self.uniform)
        generate("mix", "--batch", "58", self.ragged)
        generate("tri", "--n", "8", "--batch", "2", self.two)
        self.grid, self.wide = folder / "grid.mtx", folder / "wide.mtx"
        generate("laplace", "--stencil", "7", "--grid", "18x17x16", self.grid)
        self.long = folder / "long.mtx"
        generate("laplace", "--stencil", "3", "--grid", "200000", self.long)
        self.archive = folder / "grid.npz"
        converted = run([PROGRAMS / "sparsebatch", "convert", self.grid, self.archive])
        expect(converted.returncode == 0, converted, "an archive")
        entries = [(row, (7 * row + k * k) % 23, row + k + 1) for row in range(40) for k in range(4)]
        entries = sorted({(row, col): value for row, col, value in entries if row % 9}.items())
        lines = [f"{row + 1} {col + 1} {value}" for (row, col), value in entries]
        head = "%%MatrixMarket matrix coordinate real general"
        self.wide.write_text("\n".join([head, f"40 23 {len(lines)}", *lines]) + "\n")
        self.matrices.mkdir()
        for n in (5, 9, 9, 17):
            generate("tri", "--n", n, self.matrices / f"{n}.mtx")


def check_bits(inputs):
    """Solutions, histories and counts are those of a process without MPI, on any number of ranks."""
    cases = {
        "uniform": [inputs.uniform],
        "ragged": [inputs.ragged],
        "ragged in f32": [inputs.ragged, "--precision", "f32"],
        "random right-hand sides": [inputs.uniform, "--rhs", "random:7", "--solver", "cg"],
        "files": [inputs.matrices, "--rhs", "random:3"],
        "copies": [inputs.matrices / "9.mtx", "--replicate", "11", "--perturb", "1e-3:5"],
        "composed": [inputs.ragged, "--solver", "bicgstab", "--format", "ell", "--history", "h.csv"],
        "two systems": [inputs.two, "--verbose"],
    }
    for name, args in cases.items():
        alone = None
        for ranks in (None, *RANKS):
            with tempfile.TemporaryDirectory() as folder:
                args_of_file = [*args, "--output", "x.npz", "--report", "page.html", "--json"]
                result = solve(ranks, *args_of_file, cwd=folder)
                expect(result.returncode == 0, result, f"{name}: exit code 0")
                files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
                report = json.loads(result.stdout)
            page = files.pop("page.html")
            expect(b"<html" in page, result, f"{name}: a page")
            if ranks is None:
                alone = files, report
                expect(report["ranks"] is None, result, "no ranks")
                continue
            expect(files == alone[0], result, f"{name}: the files of a process without MPI")
            for key in (
                "systems rows nnz converged status max_relative_residual iterations rungs items "
                "solver preconditioner backend input rhs unconverged"
            ).split():
                expect(report[key] == alone[1][key], result, f"{name}: {key} {alone[1][key]}")
            expect(report["ranks"]["ranks"] == ranks, result, f"{ranks} ranks")
            expect(report["ranks"]["hosts"] == 1, result, "one host")


def check_exit_code_3(inputs):
    """Systems that do not converge are a result: files are written, all ranks end with 3."""
    with tempfile.TemporaryDirectory() as folder:
        few = ["--solver", "cg", "--max-iters", "1", "--no-fallback", "--output", "x.npz", "-q"]
        result = solve(3, inputs.uniform, *few, cwd=folder)
        expect(result.returncode == 3 and not errors(result), result, "exit code 3, no error")
        folder_is(folder, ["x.npz"])


def check_bad_input_of_all(inputs):
    """What is wrong on all ranks is one line, as without MPI."""
    expect_error(solve(3, inputs.folder / "absent.batch"), 2, "error: ", "absent.batch")
    expect_error(solve(3, inputs.uniform, "--solver", "gmres"), 2, "gmres")
    expect_error(solve(3, "-"), 2, "standard input")
    bench = [*launcher(), "-n", "3", PROGRAMS / "sparsebatch", "bench", "cpu", "--mpi"]
    expect_error(run(bench), 2, "bench --mpi", "solve --mpi --json")
    with tempfile.TemporaryDirectory() as folder:
        into = solve(2, inputs.uniform, "--output", "no/x.npz", cwd=folder)
        expect_error(into, 2, "rank 0 on ", "no/x.npz")


def check_bad_share(inputs):
    """A bad item is found by the rank that reads it, which is named; nothing is written."""
    bad = inputs.folder / "bad.batch"
    content = bytearray(inputs.ragged.read_bytes())
    items = int.from_bytes(content[8:16], "little")
    rows = int.from_bytes(content[16 + 8 * (items - 1) : 16 + 8 * items], "little")
    nnz = int.from_bytes(content[16 + 8 * (2 * items - 1) : 16 + 16 * items], "little")
    # The first column of the last item.
    at = len(content) - 8 * rows - 12 * nnz
    content[at : at + 4] = (2**31 - 1).to_bytes(4, "little")
    bad.write_bytes(content)
    with tempfile.TemporaryDirectory() as folder:
        result = solve(3, bad, "--output", "x.npz", cwd=folder)
        expect_error(result, 2, "rank 2 on ", f"item {items - 1}", "bad.batch")
        folder_is(folder, [])


def check_memory_of_one_rank(inputs):
    """A rank without memory ends all ranks."""
    usual = ["solve", "--mpi", inputs.ragged]
    result = each_its_own(usual, [*usual, "--max-memory", "3KiB"], usual)
    expect_error(result, 2, "rank 1 on ", "bytes of memory")


def check_unequal_options(inputs):
    """Ranks that were asked for different things are refused."""
    usual = ["solve", "--mpi", inputs.uniform]
    result = each_its_own(usual, usual, [*usual, "--rtol", "1e-3"])
    expect_error(result, 2, "rank 2 on ", "rel_tol is 0.001", "on rank 0 it is the default")
    result = each_its_own(usual, ["solve", "--mpi", inputs.two])
    expect_error(result, 2, "rank 1 on ", "the number of systems is 2, on rank 0 it is 101")
    result = each_its_own(usual, [*usual, "--solver", "gmres"])
    expect_error(result, 2, "rank 1 on ", "gmres")


def check_pins(inputs):
    """Rank 0 alone reads a pin; a pin that cannot be kept, and ranks that disagree, are refused."""
    with tempfile.TemporaryDirectory() as folder:
        pinned = ["solve", "--mpi", inputs.uniform, "--pin-plan"]
        own = solve(None, inputs.uniform, "--export-plan", "plan.txt", "--output", "x.npz", cwd=folder)
        expect(own.returncode == 0, own, "a pin")
        first, other = [*pinned, "plan.txt", "--output", "y.npz"], [*pinned, "absent.txt"]
        result = each_its_own(first, [*other, "--output", "y.npz"], cwd=folder)
        expect(result.returncode == 0, result, "exit code 0")
        x, y = (Path(folder, name).read_bytes() for name in ("x.npz", "y.npz"))
        expect(x == y, result, "the solutions of a process without MPI")
        expect_error(each_its_own(other, first, cwd=folder), 2, "rank 0 on ", "absent.txt")
        old = Path(folder, "plan.txt").read_text().splitlines()
        Path(folder, "old.txt").write_text("\n".join([old[0], "version 0.0.0", *old[2:]]))
        result = solve(2, inputs.uniform, "--pin-plan", "old.txt", cwd=folder)
        expect_error(result, 2, "rank 0 on ", "old.txt", "version 0.0.0")
    usual = ["solve", "--mpi", inputs.uniform]
    result = each_its_own([*usual, "--mpi-pin"], usual)
    expect_error(result, 2, "rank 1 on ", "--mpi-pin is false, on rank 0 it is true")
    result = solve(2, inputs.uniform, "--mpi-pin")
    expect(result.returncode == 0, result, "exit code 0")


def spmv(ranks, *args, **kwargs):
    """`sparsebatch spmv --mpi` on some ranks."""
    return run([*launcher(), "-n", ranks, PROGRAMS / "sparsebatch", "spmv", "--mpi", *args], **kwargs)


def check_distributed_solves(inputs):
    """One matrix over ranks: bits of three runs, iterations across numbers of ranks, and residuals."""
    distributed = ["--distributed", "--rhs", "random:5", "--json", "--output", "x.npz"]
    cases = {
        "cg": [inputs.grid, "--solver", "cg", "--precond", "none"],
        "pipelined": [inputs.grid, "--solver", "cg", "--precond", "none", "--pipelined"],
        "auto from an archive": [inputs.archive, "--history", "h.csv"],
        "bicgstab, ilu0 of blocks": [inputs.grid, "--solver", "bicgstab", "--precond", "ilu0"],
        "lu of blocks": [inputs.grid, "--block-lu"],
        "sellp in f32": [inputs.grid, "--format", "sellp", "--precision", "f32"],
    }
    for name, args in cases.items():
        first = None
        for ranks in RANKS if name == "cg" else (1, 3):
            bits = set()
            for _ in range(3 if name == "cg" or ranks == 3 else 1):
                with tempfile.TemporaryDirectory() as folder:
                    result = solve(ranks, *args, *distributed, cwd=folder)
                    expect(result.returncode == 0, result, f"{name}: exit code 0")
                    bits.add(Path(folder, "x.npz").read_bytes())
                    report = json.loads(result.stdout)
            expect(len(bits) == 1, result, f"{name}: equal bits in all runs")
            limit = 1e-5 if "f32" in name else 1e-10
            expect(report["max_relative_residual"] <= limit, result, f"{name}: a true residual")
            parts = report["distributed"]
            expect(parts["ranks"] == report["ranks"]["ranks"] == ranks, result, f"{ranks} ranks")
            expect(len(parts["local"]) == ranks, result, "a format of each rank")
            iterations = report["iterations"]["max"]
            first = first or iterations
            if "blocks" not in name:
                near = abs(iterations - first) <= 0.02 * first + ("cg" not in name)
                expect(near, result, f"{name}: {first} iterations within 2 %")


def check_distributed_products(inputs):
    """Products are checked against the sequential reference by the program itself; files agree."""
    for matrix in (inputs.grid, inputs.wide):
        alone = run([PROGRAMS / "sparsebatch", "spmv", matrix, "--backend", "cpu", "--output", "y.mtx"],
                    cwd=inputs.folder)
        expect(alone.returncode == 0, alone, "exit code 0")
        expected = numbers(inputs.folder / "y.mtx")
        for ranks in RANKS:
            result = spmv(ranks, matrix, "--json", "--output", "z.mtx", cwd=inputs.folder)
            expect(result.returncode == 0, result, "exit code 0")
            report = json.loads(result.stdout)
            expect(report["worst_error"] <= 1 and report["gflops"] > 0, result, "a checked product")
            found = numbers(inputs.folder / "z.mtx")
            size = max(map(abs, expected), default=0)
            near = len(found) == len(expected) and all(
                abs(a - b) <= 1e-12 * size for a, b in zip(found, expected)
            )
            expect(near, result, "the product of a process without MPI")


def numbers(path):
    """The elements of a vector file."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("%")]
    return [float(line) for line in lines[1:]]


def check_distributed_faults(inputs):
    """What cannot be done over ranks, and what is wrong with the matrix, is one line."""
    distributed = ["--distributed", inputs.grid]
    expect_error(solve(3, "--distributed", inputs.wide), 2, "40 x 23, expected a square matrix")
    expect_error(solve(3, "--distributed", inputs.matrices), 2, "expected one file")
    expect_error(solve(3, "--distributed", inputs.uniform), 2, "a batch or an array by rows")
    expect_error(solve(3, *distributed, "--solver", "lu"), 2, "method is lu")
    # Where there are GPUs: scripts/gpu/distributed.sh.
    expect_error(solve(3, *distributed, "--backend", "gpu"), 2, "--backend gpu: no NVIDIA driver")
    expect_error(spmv(3, inputs.grid, "--backend", "gpu"), 2, "not supported on GPUs yet")
    expect_error(solve(3, *distributed, "--replicate", "2"), 2, "expected no copies")
    expect_error(solve(3, *distributed, "--rhs", inputs.wide), 2, "expected one column or one row")
    expect_error(spmv(2, inputs.grid, "--kernel", "all"), 2, "--kernel all: expected one of")
    usual = ["solve", "--mpi", *distributed]
    expect_error(each_its_own(usual, [*usual, "--max-memory", "100KiB"], usual), 2, "rank 1 on ")
    expect_error(each_its_own(usual, [*usual, "--rtol", "1e-3"]), 2, "rank 1 on ", "rel_tol is 0.001")
    with tempfile.TemporaryDirectory() as folder:
        nan = Path(folder, "nan.mtx")
        nan.write_text("%%MatrixMarket matrix coordinate real general\n3 3 3\n1 1 1\n2 2 nan\n3 3 1\n")
        for ranks in RANKS:
            result = solve(ranks, "--distributed", nan, "--json", cwd=folder)
            expect(result.returncode == 3 and not errors(result), result, "exit code 3, no error")
            expect(json.loads(result.stdout)["status"] == {"NonFinite": 1}, result, "NonFinite")
        few = ["--max-iters", "2", "--output", "x.npz", "-q"]
        result = solve(3, *distributed, *few, cwd=folder)
        expect(result.returncode == 3 and not errors(result), result, "exit code 3, no error")
        folder_is(folder, ["nan.mtx", "x.npz"])


def children(pid):
    """All processes below one."""
    found = []
    for child in run(["pgrep", "-P", pid]).stdout.split():
        found += [int(child), *children(int(child))]
    return found


def check_killed_rank(inputs):
    """A rank that is killed in a solve ends the job soon, and nothing is half written."""
    kill_a_rank(inputs.uniform)


def check_killed_rank_of_one_matrix(inputs):
    """So does one whose elements the others wait for."""
    # CG takes about as many iterations as this matrix has rows.
    kill_a_rank(inputs.long, "--distributed", "--precond", "none")


def kill_a_rank(*args):
    with tempfile.TemporaryDirectory() as folder:
        endless = ["--solver", "cg", "--rtol", "0", "--max-iters", "4000000000", "--no-fallback"]
        program = PROGRAMS / "sparsebatch"
        command = [*launcher(), "-n", "3", program, "solve", "--mpi", *args, *endless]
        job = subprocess.Popen(
            [*map(str, command), "--output", "x.npz"],
            cwd=folder,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

        def is_rank(pid):
            try:
                return Path(f"/proc/{pid}/comm").read_text().strip() == "sparsebatch"
            except OSError:
                return False

        deadline = time.monotonic() + LIMIT
        ranks = []
        while len(ranks) < 3 and time.monotonic() < deadline:
            time.sleep(0.2)
            ranks = [pid for pid in children(job.pid) if is_rank(pid)]
        time.sleep(2)
        os.kill(ranks[1], signal.SIGKILL)
        stdout, stderr = job.communicate(timeout=LIMIT)
        result = subprocess.CompletedProcess(command, job.returncode, stdout, stderr)
        expect(job.returncode != 0, result, "an exit code")
        expect_no_report(result)
        folder_is(folder, [])


def check_ranks_that_do_not_come(inputs):
    """A process of the job that never starts MPI: the others end by their limit of time."""
    waits = [*launcher(), "-n", "2", PROGRAMS / "sparsebatch", "solve", "--mpi", inputs.uniform]
    began = time.monotonic()
    result = run([*waits, "--mpi-timeout", "1", ":", "-n", "1", "sleep", "50"])
    expect(time.monotonic() - began < 30, result, "an end soon after the limit")
    expect(result.returncode != 0, result, "an exit code")
    expect_no_report(result)
    expect(len(errors(result)) <= 1, result, "at most one line")
    waits, sleeps = [PROGRAMS / "ranks", "waits"], [PROGRAMS / "c" / "ranks", "sleeps"]
    result = run([*launcher(), "-n", "2", *waits, ":", "-n", "1", *sleeps])
    expect_error(result, 1, "2 of 3 ranks came within 1 s, rank 2 did not")
    result = run([*launcher(), "-n", "1", *sleeps, ":", "-n", "1", *waits])
    expect_error(result, 1, "rank 0 did not answer within 1 s")


def check_the_other_launcher(inputs):
    """Started by another MPI's launcher each process is alone, which is refused."""
    other = launcher(OTHER)
    if run(["which", other[0]]).returncode != 0:
        print(f"  {OTHER} is not installed: not checked")
        return
    command = [*other, "-n", "2", PROGRAMS / "sparsebatch", "solve", "--mpi", inputs.uniform]
    expect_error(run(command), 2, "the launcher started 2 processes", "alone")


def check_steps_of_slurm(inputs):
    """The innermost launcher counts: mpirun within a step of Slurm, and a script within its job."""
    step = ENVIRONMENT | {"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}
    result = solve(1, inputs.two, env=step)
    expect(result.returncode == 0, result, "exit code 0")
    alone = [PROGRAMS / "sparsebatch", "solve", "--mpi", inputs.two]
    result = run(alone, env=ENVIRONMENT | {"SLURM_NTASKS": "4"})
    expect(result.returncode == 0, result, "exit code 0")
    result = run(alone, env=step | {"SLURM_PROCID": "0"})
    expect_error(result, 2, "the launcher started 4 processes (SLURM_STEP_NUM_TASKS)")


def check_rust_api(_):
    """The Rust API: see crates/mpi/tests/ranks.rs."""
    # Ranks of MPICH poll without end: five of them on two cores take eight times as long as three.
    for ranks in RANKS if FLAVOUR == "openmpi" else RANKS[:3]:
        result = run([*launcher(), "-n", ranks, PROGRAMS / "ranks", "all"])
        expect(result.returncode == 0, result, "all checks to hold")
    result = run([*launcher(), "-n", 2, PROGRAMS / "ranks", "finalised"])
    expect(result.returncode == 0, result, "all checks to hold")


def check_c_api(_):
    """The C library: see crates/capi/tests/mpi/ranks.c."""
    for ranks, case in ((1, "all"), (3, "all"), (5, "all"), (3, "late"), (4, "halves")):
        result = run([*launcher(), "-n", ranks, PROGRAMS / "c" / "ranks", case])
        expect(result.returncode == 0, result, "all checks to hold")


def check_fortran_api(_):
    """The Fortran module: see crates/capi/tests/mpi/ranks.f90."""
    if not (PROGRAMS / "c" / "ranks-f").exists():
        print("  the compiler of Fortran is not installed: not checked")
        return
    for ranks in (1, 3, 5):
        result = run([*launcher(), "-n", ranks, PROGRAMS / "c" / "ranks-f"])
        expect(result.returncode == 0, result, "all checks to hold")


def check_one_process_without_launcher(inputs):
    """A process that no launcher started is one rank."""
    result = run([PROGRAMS / "sparsebatch", "solve", "--mpi", inputs.two, "--json"])
    expect(result.returncode == 0, result, "exit code 0")
    expect(json.loads(result.stdout)["ranks"]["ranks"] == 1, result, "one rank")


def main():
    checks = [(name, check) for name, check in globals().items() if name.startswith("check_")]
    # One large matrix takes as long as all else: with one MPI here, and in the Rust API with both.
    if FLAVOUR != "openmpi":
        checks = [(n, c) for n, c in checks if "distributed" not in n and "one_matrix" not in n]
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(Path(folder))
        for name, check in checks:
            began = time.monotonic()
            try:
                check(inputs)
            except subprocess.TimeoutExpired as hang:
                sys.exit(f"{FLAVOUR}: {name}: {' '.join(map(str, hang.cmd))} hangs")
            print(f"{FLAVOUR}: {name[6:]} ({time.monotonic() - began:.1f} s)", flush=True)


main()
