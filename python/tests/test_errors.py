"""Bad input: an exception of the right class, with one clear sentence."""

import re
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import sparsebatch
from sparsebatch import Batch, FormatError, OptionError, Solver, Unsupported
from systems import make_batch, run_python, tridiagonal

CPU = {"backend": "cpu"}
A = tridiagonal(4)
B = np.ones(4)


def check_sentence(error: BaseException) -> None:
    """One line, of some words, without what only a programmer of the library knows."""
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text.split()) >= 4
    for word in ("panicked", "unwrap", "Error(", "0x"):
        assert word not in text


REFUSED_TYPES = {
    "bool": bool,
    "float16": np.float16,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "object": object,
    "float128": np.longdouble,
    "<U1": "U1",
    "datetime64": "M8[s]",
}


class TestTypes:
    """Arrays of other types are refused by the name of the type."""

    @pytest.mark.parametrize("name", REFUSED_TYPES)
    @pytest.mark.parametrize("argument", ["values", "b", "x0"])
    def test_of_numbers(self, argument, name):
        array = np.ones(A.nnz if argument == "values" else 4).astype(REFUSED_TYPES[name])
        assert name in str(array.dtype)
        message = f"^{argument} has elements of {re.escape(str(array.dtype))}, expected float64"
        with pytest.raises(OptionError, match=message) as caught:
            if argument == "values":
                Batch.uniform(A.indptr, A.indices, array)
            elif argument == "b":
                sparsebatch.solve(A, array, **CPU)
            else:
                sparsebatch.solve(A, B, array, **CPU)
        check_sentence(caught.value)

    @pytest.mark.parametrize("dtype", [bool, complex])
    def test_of_a_scipy_matrix(self, dtype):
        with pytest.raises(OptionError, match=f"elements of {np.dtype(dtype)}"):
            sparsebatch.solve(A.astype(dtype), B, **CPU)

    @pytest.mark.parametrize("array", [[0.0, 1.0], [True, False], ["a", "b"], [1j, 0], [None, 1]])
    @pytest.mark.parametrize("argument", ["indptr", "indices"])
    def test_of_indices(self, argument, array):
        arrays = {"indptr": [0, 1, 2], "indices": [0, 1]} | {argument: array}
        with pytest.raises(OptionError, match=f"^{argument} has elements of .*, expected integers"):
            Batch.uniform(arrays["indptr"], arrays["indices"], [1.0, 1.0])

    def test_float64_vectors_of_float32_matrices(self):
        message = "b has elements of float64, the matrices have float32"
        with pytest.raises(OptionError, match=message):
            sparsebatch.solve(A.astype(np.float32), B, **CPU)

    def test_integer_vectors_of_float32_matrices(self):
        try:
            sparsebatch.solve(A.astype(np.float32), np.ones(4, np.int64), **CPU)
        except OptionError as error:
            assert "int64" in str(error)

    def test_other_values_of_the_other_precision(self):
        solver = Solver(A, **CPU)
        with pytest.raises(OptionError, match="values"):
            solver.update_values(A.data.astype(np.float32))
        assert solver.solve(B).report.all_converged

    def test_other_values_of_the_other_precision_are_named(self):
        with pytest.raises(OptionError, match="values.* float32, expected float64"):
            Solver(A, **CPU).update_values(A.data.astype(np.float32))


class TestIndices:
    """Patterns that are none."""

    @pytest.mark.parametrize(
        ("indptr", "indices", "error", "message"),
        [
            ([0, 1, 2], [0, -1], FormatError, r"\[1\] is -1, expected an index in 0\.\.2"),
            ([0, 1, 2], [0, 2], FormatError, r"\[1\] is 2, expected an index in 0\.\.2"),
            ([0, -1, 2], [0, 1], FormatError, r"\[1\] is -1, expected a value in 0"),
            ([0, 2, 1], [0, 1], FormatError, r"\[1\]|\[2\]"),
            ([1, 1, 2], [0, 1], FormatError, r"\[0\] is 1"),
            ([0, 1, 3], [0, 1], FormatError, "3"),
            ([], [], FormatError, "0 entries, expected 1"),
            ([0, 1, 2], [0, 2**31], OptionError, "2147483648, expected numbers below"),
            ([0, 1, 2], [0, -(2**31) - 1], OptionError, "-2147483649"),
            ([0, 1, 2**40], [0, 1], OptionError, "1099511627776"),
            ([0, 1, 2], np.array([0, 2**64 - 1], np.uint64), OptionError, "18446744073709551615"),
            ([0, 1, 2], [[0, 1]], FormatError, "one dimension"),
            ([[0, 1, 2]], [0, 1], FormatError, "one dimension"),
        ],
    )
    def test_of_one_pattern(self, indptr, indices, error, message):
        with pytest.raises(error, match=message) as caught:
            Batch.uniform(indptr, indices, np.ones(np.size(indices)))
        check_sentence(caught.value)
        assert isinstance(caught.value, ValueError)

    @pytest.mark.parametrize(
        ("arrays", "error", "message"),
        [
            ({"nrows": [-1, 2]}, OptionError, "nrows has -1"),
            ({"nrows": [3]}, FormatError, "indptr has 3 entries, expected 4"),
            ({"indptr": [0, 1]}, FormatError, "indptr has 2 entries, expected 3"),
            ({"indptr": [0, 1, 3]}, FormatError, "expected"),
            ({"indices": [0, 5]}, FormatError, "5"),
            ({"indices": [0, -1]}, FormatError, "-1"),
            ({"indices": [0]}, FormatError, "expected"),
            ({"values": [1.0]}, OptionError, "values has 1 entries, expected 2"),
            ({"values": None}, OptionError, "Batch.ragged takes matrices, or nrows"),
            ({"nrows": [2.0]}, OptionError, "nrows has elements of float64"),
        ],
    )
    def test_of_ragged_arrays(self, arrays, error, message):
        given = {"nrows": [2], "indptr": [0, 1, 2], "indices": [0, 1], "values": [1.0, 1.0]}
        with pytest.raises(error, match=message) as caught:
            Batch.ragged(**given | arrays)
        check_sentence(caught.value)

    @pytest.mark.parametrize("rows", [[1, 3, -2], [2**62] * 4])
    def test_numbers_of_rows_whose_sum_happens_to_fit(self, rows):
        indptr = np.zeros(5 if len(rows) == 3 else 4, int)
        with pytest.raises((OptionError, FormatError), match="nrows"):
            Batch.ragged(nrows=rows, indptr=indptr, indices=[], values=[])

    def test_an_item_of_a_ragged_batch_is_named(self):
        with pytest.raises(FormatError, match="item 1|system 1"):
            Batch.ragged(
                nrows=[1, 1], indptr=[0, 1, 0, 1], indices=[0, 3], values=[1.0, 1.0]
            )

    @pytest.mark.parametrize("base", [2, -1, "0", None, 0.5])
    def test_the_base(self, base):
        with pytest.raises(OptionError, match="index_base is .*, expected 0 or 1"):
            Batch.uniform([0, 1], [0], [1.0], index_base=base)

    def test_base_1_of_arrays_from_0(self):
        with pytest.raises(FormatError, match="-1"):
            Batch.uniform([0, 1, 2], [0, 1], [1.0, 1.0], index_base=1)


class TestShapes:
    """Arrays that do not fit."""

    @pytest.mark.parametrize(
        ("values", "options", "message"),
        [
            (np.ones(3), {}, "values has 3 entries, expected 2"),
            (np.ones((2, 3)), {}, r"shape \(2, 3\), expected \(nitems, 2\)"),
            (np.ones((5, 2)), {"layout": "interleaved"}, r"expected \(2, nitems\)"),
            (np.ones((1, 1, 2)), {}, r"shape \(1, 1, 2\)"),
            (1.0, {}, r"shape \(\)"),
            (np.ones((3, 2)), {"nitems": 2}, "nitems is 2, the values have 3 items"),
            (np.ones(2), {"nitems": -1}, "nitems is -1"),
            (np.ones(2), {"layout": "columns"}, "layout is 'columns', expected 'item'"),
            (np.ones(2), {"shape": (3, 3)}, "indptr has 3 entries, expected 4"),
        ],
    )
    def test_of_values(self, values, options, message):
        with pytest.raises((OptionError, FormatError), match=message) as caught:
            Batch.uniform([0, 1, 2], [0, 1], values, **options)
        check_sentence(caught.value)

    @pytest.mark.parametrize(
        ("kind", "shape"),
        [
            ("uniform", (5, 8)),
            ("uniform", (4, 9)),
            ("uniform", (9, 5)),
            ("uniform", (45,)),
            ("uniform", ()),
            ("interleaved", (5, 9)),
            ("single", (8,)),
            ("single", (1, 9)),
            ("ragged", (31,)),
            ("ragged", (33, 2)),
        ],
    )
    def test_of_right_hand_sides(self, kind, shape, rng):
        batch = make_batch(kind, rng)
        with pytest.raises(OptionError, match=r"^b has shape \(.*\), expected \(.*\)") as caught:
            sparsebatch.solve(batch, np.ones(shape), **CPU)
        check_sentence(caught.value)

    def test_of_guesses(self, rng):
        batch = make_batch("uniform", rng)
        with pytest.raises(OptionError, match=r"x0 has shape \(9,\), expected \(5, 9\)"):
            sparsebatch.solve(batch, np.ones((5, 9)), np.ones(9), **CPU)

    def test_of_gradients(self, rng):
        solver = Solver(make_batch("uniform", rng), **CPU)
        with pytest.raises(OptionError, match=r"adjoint has shape \(9,\)"):
            solver.value_gradient(np.ones(9), np.ones((5, 9)))
        with pytest.raises(OptionError, match=r"x has shape \(9,\)"):
            solver.value_gradient(np.ones((5, 9)), np.ones(9))

    def test_of_lists(self, rng):
        batch = make_batch("ragged", rng)
        with pytest.raises(OptionError, match="b has 2 vectors, expected 5"):
            sparsebatch.solve(batch, [np.ones(9), np.ones(1)], **CPU)
        vectors = [np.ones(n) for n in batch.nrows]
        vectors[2] = np.ones(7)
        with pytest.raises(OptionError, match=r"b\[2\] has shape \(7,\), expected \(4,\)"):
            sparsebatch.solve(batch, vectors, **CPU)

    def test_rectangular_matrices(self):
        for transpose in (False, True):
            with pytest.raises(OptionError, match="2 x 3, expected a square matrix"):
                rows = 3 if transpose else 2
                sparsebatch.solve(
                    sp.csr_array(np.ones((2, 3))), np.ones(rows), transpose=transpose, **CPU
                )

    def test_several_right_hand_sides_of_an_interleaved_batch(self, rng):
        batch = make_batch("interleaved", rng)
        with pytest.raises(Unsupported, match="give layout='item', or one at a time"):
            sparsebatch.solve(batch, np.ones((9, 5, 2)), **CPU)

    def test_shifts(self, rng):
        solver = Solver(make_batch("uniform", rng), **CPU)
        values = solver.batch.values
        with pytest.raises(OptionError, match=r"shift has shape \(4,\), expected \(5,\)"):
            solver.update_values(values, shift=np.ones(4))
        with pytest.raises(OptionError, match="shift has elements of complex128"):
            solver.update_values(values, shift=1j)
        hollow = Solver(Batch.uniform([0, 1, 2], [1, 0], [1.0, 1.0]), **CPU)
        with pytest.raises(OptionError, match="an entry on the diagonal in every row"):
            hollow.update_values(np.ones(2), shift=0.1)
        shared = Solver(make_batch("shared", rng), **CPU)
        with pytest.raises(Unsupported, match="a shift for each item"):
            shared.update_values(shared.batch.values, shift=np.ones(5))


class TestOut:
    """Arrays that cannot be written to."""

    @pytest.mark.parametrize(
        ("out", "message"),
        [
            ([0.0] * 4, "out is a list, expected an array"),
            (np.empty(3), r"out has shape \(3,\), expected \(4,\)"),
            (np.empty(4, np.float32), "out has elements of float32, expected float64"),
            (np.empty(4, ">f8"), "out has elements of >f8, expected float64"),
            (np.empty(4, np.int64), "out has elements of int64, expected float64"),
        ],
    )
    def test_of_other_kinds(self, out, message):
        with pytest.raises(OptionError, match=message) as caught:
            sparsebatch.solve(A, B, out=out, **CPU)
        check_sentence(caught.value)

    def test_read_only(self):
        out = np.full(4, 7.0)
        out.flags.writeable = False
        with pytest.raises(OptionError, match="out is read-only"):
            sparsebatch.solve(A, B, out=out, **CPU)
        assert (out == 7.0).all()


class TestMatrices:
    """What is no matrix."""

    @pytest.mark.parametrize("a", [np.eye(4), 3, None, "a.mtx", {}, object()], ids=repr)
    def test_of_other_kinds(self, a):
        with pytest.raises(OptionError, match=f"A is a {type(a).__name__}, expected a Batch"):
            sparsebatch.solve(a, B, **CPU)

    def test_in_a_list(self):
        with pytest.raises(OptionError, match="a matrix is a ndarray, expected a SciPy sparse"):
            sparsebatch.solve([A, np.eye(4)], np.ones(8), **CPU)

    def test_of_one_dimension(self):
        with pytest.raises(OptionError, match="1 dimensions, expected 2"):
            sparsebatch.solve(sp.coo_array(np.ones(4)), B, **CPU)


WRONG_VALUES = [
    ("method", "gmres"),
    ("precond", "amg"),
    ("order", "amd"),
    ("precond_precision", "f16"),
    ("inner_precision", "f16"),
    ("lu_form", "by-row"),
    ("format", "bsr"),
    ("kernel", "fast"),
    ("rtol", -1.0),
    ("rtol", float("nan")),
    ("rtol", "small"),
    ("rtol", True),
    ("rtol", 1j),
    ("rtol", [1e-3, 1e-3]),
    ("atol", -1.0),
    ("atol", [[1.0, 2.0]]),
    ("maxiter", -1),
    ("maxiter", 2**40),
    ("maxiter", 1.5),
    ("maxiter", None),
    ("maxiter", [1, 2]),
    ("floor", -1.0),
    ("floor", float("nan")),
    ("on_failure", "ignore"),
    ("on_failure", None),
    ("backend", "tpu"),
    ("backend", "cuda:"),
    ("backend", "cuda:-1"),
    ("backend", "cuda:one"),
    ("backend", 0),
    ("backend", None),
    ("stream", 0),
    ("threads", 0),
    ("pin", "none"),
]
#: Values that are refused by a `TypeError` or `OverflowError` of the native module.
UNCLEAR_VALUES = [
    ("method", None),
    ("method", 1),
    ("precond", 1),
    ("atol", None),
    ("floor", "a"),
    ("block_size", -1),
    ("block_size", 2.5),
    ("max_restarts", -1),
    ("max_restarts", 2.5),
    ("fallback", "yes"),
    ("history", 1),
    ("threads", -1),
    ("threads", "2"),
]


def named(values):
    return [f"{name}={value}" for name, value in values]


class TestOptions:
    """Names and values of options."""

    @pytest.mark.parametrize(("name", "value"), WRONG_VALUES, ids=named(WRONG_VALUES))
    def test_wrong_values(self, name, value):
        with pytest.raises(OptionError) as caught:
            sparsebatch.solve(A, B, **CPU | {name: value})
        check_sentence(caught.value)
        text = str(caught.value)
        said = {"rtol": "rel_tol|rtol", "atol": "abs_tol|atol", "maxiter": "max_iters|maxiter"}
        names = {"method": "method|solver", "pin": "plan"} | said
        assert any(other in text for other in names.get(name, name).split("|"))

    @pytest.mark.parametrize(
        ("name", "value"), [("rtol", -1.0), ("atol", -1.0), ("maxiter", [1, 2]), ("method", "x")]
    )
    def test_options_are_called_as_in_python(self, name, value):
        with pytest.raises(OptionError, match=name):
            sparsebatch.solve(A, B, **CPU, **{name: value})

    @pytest.mark.parametrize(("name", "value"), UNCLEAR_VALUES, ids=named(UNCLEAR_VALUES))
    def test_unclear_values(self, name, value):
        with pytest.raises((OptionError, TypeError), match=f"^{name} is "):
            sparsebatch.solve(A, B, **CPU | {name: value})

    def test_blocks_of_no_rows(self):
        with pytest.raises(OptionError, match="block_size"):
            sparsebatch.solve(A, B, block_size=0, **CPU)

    def test_a_progress_that_cannot_be_called(self):
        with pytest.raises((OptionError, TypeError), match="progress"):
            sparsebatch.solve(A, B, progress=5, **CPU)

    def test_a_number_of_items_that_is_none(self):
        with pytest.raises((OptionError, TypeError), match="nitems"):
            Batch.uniform([0, 1], [0], [1.0], nitems=1.5)

    @pytest.mark.parametrize("name", ["tol", "max_iter", "x", "rel_tol", "preconditioner"])
    def test_unknown_names(self, name):
        for call in (sparsebatch.solve, lambda a, b, **options: Solver(a, **options)):
            message = f"'{name}' is no option; there are method, precond"
            with pytest.raises(TypeError, match=message):
                call(A, B, **CPU, **{name: 1})

    @pytest.mark.parametrize("nrhs", [0, -1, 1.0, True, "1", None])
    def test_right_hand_sides(self, nrhs):
        with pytest.raises(OptionError, match="nrhs is .*, expected at least 1"):
            Solver(A, nrhs=nrhs, **CPU)

    def test_no_right_hand_sides(self):
        with pytest.raises(OptionError, match="nrhs is 0, expected at least 1"):
            sparsebatch.solve(A, np.ones((4, 0)), **CPU)

    def test_near_without_factors(self):
        solver = Solver(A, **CPU)
        with pytest.raises(OptionError, match="near is given, expected a call of factor before"):
            solver.solve(B, near=True)
        solver.factor()
        with pytest.raises(OptionError, match="no transpose"):
            solver.solve(B, near=True, transpose=True)


class TestNonFinite:
    """NaN and infinities are data: they end with a status."""

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("method", ["auto", "cg", "bicgstab", "lu", "pivoting-lu"])
    @pytest.mark.parametrize("place", ["values", "b"])
    def test_values(self, place, method, value):
        values, b = np.tile(A.data, (3, 1)), np.ones((3, 4))
        (values if place == "values" else b)[1, 2] = value
        batch = Batch.uniform(A.indptr, A.indices, values)
        report = sparsebatch.solve(batch, b, method=method, on_failure="report", **CPU).report
        assert list(report.status) == ["Converged", "NonFinite", "Converged"]

    def test_a_guess(self):
        x0 = np.array([0.0, np.nan, 0.0, 0.0])
        result = sparsebatch.solve(A, B, x0, method="cg", on_failure="report", **CPU)
        assert result.report.status[0] in ("Converged", "NonFinite")
        if result.report.all_converged:
            assert np.isfinite(result.x).all()


NO_GPU = sparsebatch.gpu_unavailable() is not None


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
class TestNoGpu:
    """Machines without a GPU."""

    @pytest.mark.parametrize("backend", ["gpu", "cuda:0", "cuda:1", ["cuda:0", "cuda:1"]])
    def test_asked_for(self, backend):
        with pytest.raises(sparsebatch.GpuError) as caught:
            sparsebatch.solve(A, B, backend=backend)
        check_sentence(caught.value)
        assert isinstance(caught.value, RuntimeError)
        assert str(caught.value) == sparsebatch.gpu_unavailable()

    def test_devices(self):
        with pytest.raises(sparsebatch.GpuError) as caught:
            sparsebatch.devices()
        check_sentence(caught.value)

    def test_auto_takes_the_cpu(self):
        assert sparsebatch.solve(A, B).report.backend == "cpu"

    def test_a_compiler_that_is_not_there(self, tmp_path):
        with pytest.raises(sparsebatch.GpuError, match="NVRTC") as caught:
            sparsebatch.use_nvrtc(tmp_path / "libnvrtc.so.13")
        check_sentence(caught.value)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([], r"backend is \[\], expected such as \['cuda:0', 'cuda:1'\]"),
        (["cpu", "cuda:1"], "expected such as"),
        (["gpu"], "expected such as"),
        (("cuda:0", 1), "expected such as"),
        (["cuda:1", "cuda:0", "cuda:1"], "expected each device once"),
    ],
)
def test_lists_that_are_no_devices(devices, expected):
    with pytest.raises(OptionError, match=expected) as caught:
        sparsebatch.solve(A, B, backend=devices)
    check_sentence(caught.value)


class TestRanks:
    """`sparsebatch.mpi` without a communicator; with one it is tested in `mpi/`."""

    def test_mpi4py_is_not_imported(self):
        code = "import sys, sparsebatch.mpi; print([m for m in sys.modules if 'mpi4py' in m])"
        assert run_python(code).stdout.strip() == "[]"

    def test_mpi4py_is_missing(self, monkeypatch):
        import importlib.util

        import sparsebatch.mpi

        # Another test may have imported it.
        monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        for call in (sparsebatch.mpi.solve, sparsebatch.mpi.Solver):
            with pytest.raises(Unsupported, match="needs mpi4py, which is not installed") as caught:
                call(A, B, None) if call is sparsebatch.mpi.solve else call(A, None)
            check_sentence(caught.value)

    def test_what_is_no_communicator(self, monkeypatch):
        import importlib.util

        import sparsebatch.mpi

        monkeypatch.setattr(importlib.util, "find_spec", lambda _: importlib.util)
        with pytest.raises(OptionError, match="comm is a int, expected a communicator") as caught:
            sparsebatch.mpi.solve(A, B, 3)
        check_sentence(caught.value)


def test_the_classes():
    bases = {
        sparsebatch.FormatError: ValueError,
        sparsebatch.OptionError: ValueError,
        sparsebatch.Unsupported: NotImplementedError,
        sparsebatch.GpuError: RuntimeError,
        sparsebatch.Broken: RuntimeError,
        sparsebatch.Forked: RuntimeError,
        sparsebatch.RankFailed: RuntimeError,
        sparsebatch.Stopped: RuntimeError,
        sparsebatch.NotConverged: RuntimeError,
    }
    for error, base in bases.items():
        assert issubclass(error, sparsebatch.Error)
        assert issubclass(error, base)
    assert issubclass(sparsebatch.NotConvergedWarning, sparsebatch.SparsebatchWarning)
    assert issubclass(sparsebatch.SparsebatchWarning, UserWarning)
    assert set(sparsebatch.errors.__all__) <= set(sparsebatch.__all__)


def test_all_names_are_there():
    for name in sparsebatch.__all__:
        assert hasattr(sparsebatch, name)
    assert len(set(sparsebatch.__all__)) == len(sparsebatch.__all__)
    assert sys.modules["sparsebatch"] is sparsebatch
