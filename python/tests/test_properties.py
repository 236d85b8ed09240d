"""Properties that hold for all batches, by hypothesis."""

import warnings

import numpy as np
import scipy.sparse as sp
from hypothesis import assume, given, strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_allclose, assert_array_equal

import sparsebatch
from sparsebatch import Batch, Solver

CPU = {"backend": "cpu"}
INDEX_TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i2", ">u4", ">i8"]
VALUE_TYPES = ["<f8", ">f8", "<f4", ">f4"]


@st.composite
def entries(draw, square=True):
    """Rows, columns and values of a matrix, in any order, and each as often as it likes."""
    nrows = draw(st.integers(1, 8))
    ncols = nrows if square else draw(st.integers(1, 8))
    count = draw(st.integers(0, 24))
    rows = draw(arrays.arrays(np.int64, count, elements=st.integers(0, nrows - 1)))
    cols = draw(arrays.arrays(np.int64, count, elements=st.integers(0, ncols - 1)))
    # Small whole numbers: sums have no rounding, in whatever order.
    values = draw(arrays.arrays(np.float64, count, elements=st.integers(-8, 8).map(float)))
    return (nrows, ncols), rows, cols, values


def in_csr(shape, rows, cols, values):
    """Row pointers, columns and values, in the given order within each row."""
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
    return indptr, cols[order], values[order]


@st.composite
def lying(draw, array):
    """The same array, lying somehow in memory."""
    turned = draw(st.sampled_from(["plain", "fortran", "strided", "backwards", "misaligned"]))
    if turned == "fortran":
        array = np.asfortranarray(array)
    elif turned == "strided":
        room = np.zeros(tuple(3 * size for size in array.shape), array.dtype)
        view = room[tuple(slice(1, None, 3) for _ in array.shape)]
        view[...] = array
        array = view
    elif turned == "backwards":
        mirror = tuple(slice(None, None, -1) for _ in array.shape)
        array = array[mirror].copy()[mirror]
    elif turned == "misaligned":
        room = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        room[...] = array
        array = room
    else:
        array = array.copy()
    array.flags.writeable = draw(st.booleans())
    return array


@given(st.data())
def test_arrays_of_any_kind_are_the_matrix_that_scipy_makes_of_them(data):
    shape, rows, cols, values = data.draw(entries(square=False))
    base = data.draw(st.sampled_from([0, 1]))
    indptr, indices, values = in_csr(shape, rows, cols, values)
    index_type = data.draw(st.sampled_from(INDEX_TYPES))
    value_type = data.draw(st.sampled_from(VALUE_TYPES))
    layout = data.draw(st.sampled_from(["item", "interleaved"]))
    scales = np.array([1.0, -2.0, 4.0])
    many = (scales[:, None] * values).astype(value_type)
    many = many if layout == "item" else many.T
    before = many.copy()
    with warnings.catch_warnings():
        # Duplicates are summed, which is said; another test looks at it.
        warnings.simplefilter("ignore", sparsebatch.SparsebatchWarning)
        batch = Batch.uniform(
            data.draw(lying((indptr + base).astype(index_type))),
            data.draw(lying((indices + base).astype(index_type))),
            many,
            shape=shape,
            layout=layout,
            index_base=base,
        )
    expected = sp.coo_array((values, (np.sort(rows, kind="stable"), indices)), shape).toarray()
    assert batch.nitems == 3
    for item, scale in enumerate(scales):
        assert_array_equal(batch[item].toarray(), scale * expected)
    assert_array_equal(many, before)
    assert (np.diff(batch.indptr) >= 0).all()
    for first, last in zip(batch.indptr[:-1], batch.indptr[1:], strict=True):
        assert (np.diff(batch.indices[first:last]) > 0).all()


@given(entries(), st.sampled_from(["csr", "csc", "coo", "bsr", "dia", "lil", "dok"]))
def test_scipy_formats_are_one_matrix(parts, format):
    shape, rows, cols, values = parts
    matrix = sp.coo_array((values, (rows, cols)), shape)
    batch = Batch.from_scipy(matrix.asformat(format))
    assert_array_equal(batch[0].toarray(), matrix.toarray())
    assert_array_equal(batch.transposed()[0].toarray(), matrix.toarray().T)


@st.composite
def systems(draw):
    """A batch of diagonally dominant matrices, and right-hand sides."""
    shape, rows, cols, values = draw(entries())
    n = shape[0]
    diagonal = np.arange(n)
    rows, cols = np.concatenate([rows, diagonal]), np.concatenate([cols, diagonal])
    values = np.concatenate([values, np.full(n, 8.0 * (len(values) + 1))])
    matrix = sp.coo_array((values, (rows, cols)), shape).tocsr()
    nitems = draw(st.integers(1, 20))
    scales = draw(arrays.arrays(np.float64, nitems, elements=st.integers(1, 9).map(float)))
    batch = Batch.uniform(matrix.indptr, matrix.indices, scales[:, None] * matrix.data)
    numbers = st.integers(-100, 100).map(float)
    return batch, draw(arrays.arrays(np.float64, (nitems, n), elements=numbers))


METHODS = st.sampled_from(["auto", "lu", "pivoting-lu", "bicgstab"])


@given(systems(), METHODS, st.booleans())
def test_solutions_solve(system, method, transpose):
    batch, b = system
    result = sparsebatch.solve(batch, b, method=method, transpose=transpose, **CPU)
    assert result.report.all_converged
    for matrix, of_b, of_x in zip(batch, b, result.x, strict=True):
        matrix = matrix.T if transpose else matrix
        residual = np.linalg.norm(of_b - matrix @ of_x)
        assert residual <= 1.01e-10 * np.linalg.norm(of_b)


@given(st.data())
def test_how_vectors_lie_in_memory_changes_no_bit(data):
    batch, b = data.draw(systems())
    x0 = data.draw(arrays.arrays(np.float64, b.shape, elements=st.floats(-1, 1)))
    order = data.draw(st.sampled_from(["<f8", ">f8"]))
    plain = sparsebatch.solve(batch, b, x0, method="bicgstab", **CPU)
    result = sparsebatch.solve(
        batch,
        data.draw(lying(b.astype(order))),
        data.draw(lying(x0.astype(order))),
        method="bicgstab",
        **CPU,
    )
    assert_array_equal(result.x, plain.x)
    assert_array_equal(result.report.residual_norm, plain.report.residual_norm)
    assert_array_equal(result.report.iterations, plain.report.iterations)


@given(systems(), METHODS)
def test_layouts_agree(system, method):
    batch, b = system
    options = {"method": method, "rtol": 1e-12, "floor": 64.0, **CPU}
    x = sparsebatch.solve(batch, b, **options).x
    interleaved = Batch.uniform(batch.indptr, batch.indices, batch.values.T, layout="interleaved")
    turned = sparsebatch.solve(interleaved, b.T, **options).x
    assert_allclose(turned.T, x, rtol=1e-9, atol=1e-12)
    ragged = Batch.ragged(batch.to_scipy())
    joined = sparsebatch.solve(ragged, b.ravel(), **options).x
    assert_allclose(joined, x.ravel(), rtol=1e-9, atol=1e-12)
    blocks = Batch.from_block_diagonal(batch.to_block_diagonal(), batch.nrows)
    assert_array_equal(blocks.values, batch.values)


@given(systems(), st.randoms(use_true_random=False), METHODS)
def test_the_order_of_items_changes_no_bit(system, random, method):
    batch, b = system
    order = list(range(batch.nitems))
    random.shuffle(order)
    one = sparsebatch.solve(batch, b, method=method, **CPU)
    turned = batch.with_values(batch.values[order])
    other = sparsebatch.solve(turned, b[order], method=method, **CPU)
    assert_array_equal(other.x, one.x[order])
    assert_array_equal(other.report.iterations, one.report.iterations[order])


@given(systems(), METHODS)
def test_a_solver_solves_as_the_function_does(system, method):
    batch, b = system
    solver = Solver(batch, method=method, **CPU)
    assert_array_equal(solver.solve(b).x, sparsebatch.solve(batch, b, method=method, **CPU).x)
    again = solver.solve(b)
    assert_array_equal(again.x, solver.solve(b).x)


@given(systems(), st.integers(0, 10_000))
def test_adjoints(system, seed):
    # <y, A^-1 b> = <A^-T y, b>.
    batch, b = system
    y = np.random.default_rng(seed).integers(-9, 9, b.shape).astype(float)
    solver = Solver(batch, rtol=1e-13, floor=64.0, **CPU)
    left = np.sum(y * solver.solve(b).x)
    right = np.sum(solver.solve(y, transpose=True).x * b)
    scale = np.linalg.norm(y) * np.linalg.norm(b)
    assert abs(left - right) <= 1e-12 * scale


@given(
    st.lists(st.integers(-3, 6), max_size=6),
    st.lists(st.integers(-3, 6), max_size=6),
    st.integers(0, 6),
)
def test_any_integers_are_a_pattern_or_an_error(indptr, indices, count):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sparsebatch.SparsebatchWarning)
        try:
            batch = Batch.uniform(
                np.array(indptr, int), np.array(indices, int), np.ones(count)
            )
        except (sparsebatch.FormatError, sparsebatch.OptionError) as error:
            assert "\n" not in str(error)
            return
        assume(batch.nrows)
        n = batch.nrows
        assert batch[0].shape == (n, n)
        report = sparsebatch.solve(batch, np.ones(n), on_failure="report", **CPU).report
        assert len(report) == 1


@given(
    # Negative numbers of rows have a test in `test_errors.py`.
    st.lists(st.integers(0, 3), max_size=3),
    st.lists(st.integers(-2, 6), max_size=8),
    st.lists(st.integers(-2, 4), max_size=6),
    st.integers(0, 6),
)
def test_any_integers_are_ragged_patterns_or_an_error(nrows, indptr, indices, count):
    given_arrays = {
        "nrows": np.array(nrows, int),
        "indptr": np.array(indptr, int),
        "indices": np.array(indices, int),
        "values": np.ones(count),
    }
    try:
        batch = Batch.ragged(**given_arrays)
    except (sparsebatch.FormatError, sparsebatch.OptionError) as error:
        assert "\n" not in str(error)
        return
    assert [matrix.shape for matrix in batch] == [(n, n) for n in nrows]


@given(st.data())
def test_options_of_any_kind_are_taken_or_refused(data):
    names = ["rtol", "atol", "maxiter", "method", "backend", "on_failure"]
    name = data.draw(st.sampled_from(names))
    value = data.draw(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-3, 2**70),
            st.floats(),
            st.text(max_size=3),
            st.lists(st.floats(), max_size=2),
            st.complex_numbers(),
        )
    )
    a = sp.csr_array(np.array([[4.0, 1.0], [1.0, 3.0]]))
    options = {"on_failure": "report", **CPU} | {name: value}
    try:
        result = sparsebatch.solve(a, np.array([1.0, 2.0]), **options)
    except (sparsebatch.Error, TypeError) as error:
        assert str(error)
    else:
        assert result.x.shape == (2,)


def test_the_strategy_of_systems_makes_systems():
    # Were they all of one row, the properties would say little.
    found = set()

    @given(systems())
    def collect(system):
        found.add(system[0].nrows)

    collect()
    assert len(found) > 4
