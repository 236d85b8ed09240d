"""SciPy, MKL and Eigen on the matrices that our side has written; one JSON object per line.

usage: measure.py DIR THREADS [EIGEN_BINARY]

MKL is the `mkl` wheel, called through ctypes: mkl_sparse_d_mv after mkl_sparse_set_mv_hint and
mkl_sparse_optimize (inspector-executor). A peer that is missing is reported as a row with "gap".
"""

import ctypes
import glob
import json
import os
import subprocess
import sys
import time

REPEATS = 15
GENERAL = 20  # SPARSE_MATRIX_TYPE_GENERAL
NO_TRANSPOSE = 10  # SPARSE_OPERATION_NON_TRANSPOSE


def emit(case, library, configuration, threads, shape, times, prepare_ms=0.0):
    times = sorted(times)
    median = times[len(times) // 2]
    print(
        json.dumps(
            {
                "schema": 1, "suite": "peers", "case": case, "library": library,
                "configuration": configuration, "operation": "spmv", "precision": "f64",
                "batch": 1, "n": shape[0], "rows": shape[0], "columns": shape[1], "nnz": shape[2],
                "threads": threads, "median_ms": median * 1e3, "min_ms": times[0] * 1e3,
                "max_ms": times[-1] * 1e3, "gflops": 2e-9 * shape[2] / median,
                "plan_ms": prepare_ms,
            }
        ),
        flush=True,
    )


def gap(library, threads, reason):
    row = {"schema": 1, "suite": "peers", "library": library, "threads": threads, "gap": reason}
    print(json.dumps(row), flush=True)


def timed(call):
    call()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def close(found, expected):
    """Against the rounding of long sums; a wrong kernel is off by far more."""
    import numpy as np

    error = np.max(np.abs(found - expected))
    if not error <= 1e-10 * max(1.0, np.max(np.abs(expected))):
        raise ArithmeticError(f"wrong product, off by {error:.3e}")


class MatrixDescr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("type", "mode", "diag")]


def load_mkl():
    names = glob.glob(os.path.join(sys.prefix, "lib", "libmkl_rt.so*"))
    return ctypes.CDLL((names or ["libmkl_rt.so"])[0])


def measure_mkl(mkl, case, threads, arrays):
    """Once on the CSR arrays as given, once after mkl_sparse_optimize, which makes a copy in a
    private format (its resident memory grows by more than the matrix)."""
    import numpy as np

    row_ptr, col_idx, values, x, expected = arrays
    nrows, ncols = len(row_ptr) - 1, len(x)
    pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)
    mkl.MKL_Set_Num_Threads(threads)
    row_end = ctypes.c_void_p(row_ptr.ctypes.data + 4)
    descr = MatrixDescr(GENERAL, 0, 0)
    y = np.zeros(nrows)
    for configuration in ("csr", "optimized copy"):
        handle = ctypes.c_void_p()
        status = mkl.mkl_sparse_d_create_csr(
            ctypes.byref(handle), 0, nrows, ncols, pointer(row_ptr), row_end, pointer(col_idx),
            pointer(values),
        )
        start = time.perf_counter()
        if configuration != "csr":
            status = status or mkl.mkl_sparse_set_mv_hint(handle, NO_TRANSPOSE, descr, 1000)
            status = status or mkl.mkl_sparse_optimize(handle)
        prepare = time.perf_counter() - start

        def product():
            return mkl.mkl_sparse_d_mv(
                NO_TRANSPOSE, ctypes.c_double(1.0), handle, descr, pointer(x),
                ctypes.c_double(0.0), pointer(y),
            )

        status = status or product()
        if status:
            gap("MKL", threads, f"status {status} on {case}, {configuration}")
            continue
        close(y, expected)
        shape = (nrows, ncols, len(values))
        emit(case, "MKL", configuration, threads, shape, timed(product), prepare * 1e3)
        mkl.mkl_sparse_destroy(handle)


def measure_scipy(case, arrays):
    import scipy.sparse

    row_ptr, col_idx, values, x, expected = arrays
    shape = (len(row_ptr) - 1, len(x))
    matrix = scipy.sparse.csr_array((values, col_idx, row_ptr), shape=shape)
    close(matrix @ x, expected)
    emit(case, "SciPy", "csr", 1, (*shape, len(values)), timed(lambda: matrix @ x))


def main():
    directory, threads = sys.argv[1], int(sys.argv[2])
    eigen = sys.argv[3] if len(sys.argv) > 3 else ""
    try:
        import numpy as np
    except ImportError as error:
        gap("SciPy", threads, str(error))
        gap("MKL", threads, str(error))
        np = None
    try:
        mkl = load_mkl()
    except OSError as error:
        gap("MKL", threads, str(error))
        mkl = None
    for name in sorted(os.listdir(directory)):
        folder = os.path.join(directory, name)
        if not os.path.exists(os.path.join(folder, "case")):
            continue
        with open(os.path.join(folder, "case"), encoding="utf-8") as file:
            case = file.read().strip()
        if np is not None:
            kinds = [("row_ptr", "<i4"), ("col_idx", "<i4")]
            kinds += [("values", "<f8"), ("x", "<f8"), ("y", "<f8")]
            arrays = [np.fromfile(os.path.join(folder, part), kind) for part, kind in kinds]
            if mkl is not None:
                measure_mkl(mkl, case, threads, arrays)
            if threads == 1:
                try:
                    measure_scipy(case, arrays)
                except ImportError as error:
                    gap("SciPy", threads, str(error))
        if eigen:
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
            run = subprocess.run(
                [eigen, folder, case], env=environment, stdout=subprocess.PIPE, text=True
            )
            if run.returncode:
                gap("Eigen", threads, f"exit code {run.returncode} on {case}")
            print(run.stdout, end="", flush=True)
    if not eigen:
        gap("Eigen", threads, "not compiled: no compiler or no Eigen headers")


main()
