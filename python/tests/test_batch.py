"""Batches: every way to make one, and what they keep of their arrays."""

import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import sparsebatch
from sparsebatch import Batch
from systems import KINDS, dense, make_batch, nonsymmetric, tridiagonal, vector_shape

CPU = {"backend": "cpu"}
FORMATS = ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"]


def same(batch: Batch, matrices) -> None:
    """The batch holds these dense matrices."""
    assert batch.nitems == len(batch) == len(matrices)
    for found, expected in zip(dense(batch), matrices, strict=True):
        assert_array_equal(found, expected)


class TestScipy:
    """SciPy's sparse arrays and matrices."""

    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize("old", [False, True])
    def test_every_format(self, format, old, rng):
        plain = nonsymmetric(8, rng)
        matrix = (sp.csr_matrix(plain) if old else plain).asformat(format)
        before = matrix.copy()
        batch = Batch.from_scipy(matrix)
        same(batch, [plain.toarray()])
        assert (batch.nrows, batch.ncols, batch.nnz) == (8, 8, plain.nnz)
        assert (before != matrix).nnz == 0
        b = rng.standard_normal(8)
        expected = np.linalg.solve(plain.toarray(), b)
        assert_allclose(sparsebatch.solve(matrix, b, **CPU).x, expected, rtol=1e-9)

    @pytest.mark.parametrize("format", FORMATS)
    def test_a_list_of_one_pattern_is_uniform(self, format):
        matrices = [(tridiagonal(6) * scale).asformat(format) for scale in (1.0, 2.0, 3.0)]
        batch = Batch.from_scipy(matrices)
        assert batch.is_uniform
        assert batch.layout == "item"
        assert batch.values.shape == (3, 16)
        same(batch, [matrix.toarray() for matrix in matrices])

    def test_a_list_of_one_matrix_is_uniform(self):
        batch = Batch.from_scipy([tridiagonal(6)])
        assert batch.is_uniform
        assert sparsebatch.solve([tridiagonal(6)], np.ones((1, 6)), **CPU).x.shape == (1, 6)

    def test_other_lists_are_ragged(self, rng):
        matrices = [tridiagonal(6), nonsymmetric(6, rng), tridiagonal(3).tocoo()]
        batch = Batch.from_scipy(matrices)
        assert not batch.is_uniform
        same(batch, [matrix.toarray() for matrix in matrices])
        assert_array_equal(batch.row_offsets, [0, 6, 12, 15])
        assert_array_equal(batch.nrows, [6, 6, 3])
        assert_array_equal(batch.nnz, [matrix.nnz for matrix in matrices])
        assert_array_equal(batch.values, np.concatenate([m.tocsr().data for m in matrices]))
        generator = Batch.ragged(matrix for matrix in matrices)
        same(generator, [matrix.toarray() for matrix in matrices])

    def test_an_empty_list(self):
        batch = Batch.from_scipy([])
        assert len(batch) == 0
        assert batch.to_scipy() == []
        assert "0 matrices" in repr(batch)

    def test_an_empty_batch_as_a_block_diagonal(self):
        assert Batch.from_scipy([]).to_block_diagonal().shape == (0, 0)

    def test_duplicates_and_order_of_the_caller_stay(self):
        indptr, indices = np.array([0, 3, 4]), np.array([1, 0, 1, 1])
        matrix = sp.csr_array((np.array([2.0, 1.0, 3.0, 4.0]), indices, indptr), (2, 2))
        same(Batch.from_scipy(matrix), [np.array([[1.0, 5.0], [0.0, 4.0]])])
        assert_array_equal(matrix.indices, [1, 0, 1, 1])
        assert_array_equal(matrix.data, [2.0, 1.0, 3.0, 4.0])

    def test_explicit_zeros_are_kept(self):
        matrix = sp.csr_array((np.array([1.0, 0.0, 2.0]), [0, 1, 1], [0, 2, 3]), (2, 2))
        assert Batch.from_scipy(matrix).nnz == 3

    @pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float32, np.float64])
    def test_types_of_values(self, dtype):
        matrix = tridiagonal(5, 3.0).astype(np.int8).astype(dtype) if dtype != np.uint16 else (
            sp.eye_array(5, format="csr", dtype=dtype)
        )
        batch = Batch.from_scipy(matrix)
        assert batch.dtype == ("float32" if dtype == np.float32 else "float64")
        same(batch, [matrix.toarray().astype(np.float64)])

    def test_64_bit_indices(self):
        matrix = tridiagonal(5)
        matrix.indptr, matrix.indices = matrix.indptr.astype(np.int64), matrix.indices.astype("i8")
        same(Batch.from_scipy(matrix), [matrix.toarray()])


class TestBlockDiagonal:
    """The diagonal blocks of one matrix."""

    def test_blocks_of_one_pattern_are_uniform(self):
        blocks = [tridiagonal(4) * scale for scale in (1.0, 2.0, 3.0)]
        for matrix in (sp.block_diag(blocks), sp.block_diag(blocks, format="csc")):
            batch = Batch.from_block_diagonal(matrix, 4)
            assert batch.is_uniform
            same(batch, [block.toarray() for block in blocks])

    def test_blocks_of_several_sizes_are_ragged(self, rng):
        blocks = [tridiagonal(4), nonsymmetric(2, rng), nonsymmetric(5, rng)]
        batch = Batch.from_block_diagonal(sp.block_diag(blocks, format="csr"), [4, 2, 5])
        assert not batch.is_uniform
        same(batch, [block.toarray() for block in blocks])
        assert_array_equal(
            batch.to_block_diagonal().toarray(), sp.block_diag(blocks).toarray()
        )

    @pytest.mark.parametrize(
        ("sizes", "message"),
        [
            (3, "8 rows are not blocks of 3"),
            (0, "8 rows are not blocks of 0"),
            (-4, "8 rows are not blocks of -4"),
            (4, r"entry \(3, 4\) lies outside of the diagonal blocks"),
            ([3, 5], r"entry \(2, 3\) lies outside of the diagonal blocks"),
            ([4, 5], "sizes add up to 9, expected 8"),
            ([], "sizes add up to 0, expected 8"),
        ],
    )
    def test_wrong_sizes(self, sizes, message):
        with pytest.raises(sparsebatch.FormatError, match=message):
            Batch.from_block_diagonal(tridiagonal(8), sizes)

    def test_a_negative_size_is_named(self):
        with pytest.raises(sparsebatch.FormatError, match="-1"):
            Batch.from_block_diagonal(tridiagonal(8), [-1, 9])

    def test_a_rectangular_matrix(self):
        with pytest.raises(sparsebatch.FormatError, match="3 x 4, expected a square one"):
            Batch.from_block_diagonal(sp.csr_array((3, 4)), 1)


INDEX_TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">i8"]


class TestArrays:
    """Plain arrays."""

    @pytest.mark.parametrize("dtype", INDEX_TYPES)
    @pytest.mark.parametrize("base", [0, 1])
    def test_every_type_of_index(self, dtype, base, rng):
        a = nonsymmetric(7, rng)
        indptr, indices = (a.indptr + base).astype(dtype), (a.indices + base).astype(dtype)
        values = np.stack([a.data, 2 * a.data])
        batch = Batch.uniform(indptr, indices, values, index_base=base)
        same(batch, [a.toarray(), 2 * a.toarray()])
        assert batch.indptr.dtype == batch.indices.dtype == np.int32
        assert_array_equal(batch.indptr, a.indptr)
        assert_array_equal(batch.indices, a.indices)
        ragged = Batch.ragged(
            nrows=np.array([7, 7], dtype.replace(">", "")),
            indptr=np.tile(indptr, 2),
            indices=np.tile(indices, 2),
            values=values.ravel(),
            index_base=base,
        )
        same(ragged, [a.toarray(), 2 * a.toarray()])

    def test_lists(self):
        batch = Batch.uniform([0, 2, 3], [0, 1, 1], [[2, 1, 4], [1, 0, 8]])
        same(batch, [np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 8.0]])])

    def test_layouts_hold_the_same_matrices(self, rng):
        a = nonsymmetric(7, rng)
        values = a.data * rng.random((4, a.nnz))
        item = Batch.uniform(a.indptr, a.indices, values)
        interleaved = Batch.uniform(a.indptr, a.indices, values.T, layout="interleaved")
        assert (item.layout, interleaved.layout) == ("item", "interleaved")
        same(interleaved, dense(item))
        for k in range(4):
            assert_array_equal(interleaved.item_values(k), values[k])

    def test_shared_values(self, rng):
        a = nonsymmetric(7, rng)
        batch = Batch.uniform(a.indptr, a.indices, a.data, nitems=3)
        assert batch.layout == "shared"
        assert "values shared" in repr(batch)
        same(batch, [a.toarray()] * 3)
        one = Batch.uniform(a.indptr, a.indices, a.data, nitems=1)
        assert sparsebatch.solve(one, np.ones((1, 7)), **CPU).x.shape == (1, 7)
        none = Batch.uniform(a.indptr, a.indices, a.data, nitems=0)
        assert sparsebatch.solve(none, np.ones((0, 7)), **CPU).x.shape == (0, 7)

    def test_rectangular_patterns(self):
        batch = Batch.uniform([0, 1, 2], [2, 0], [[1.0, 2.0]], shape=(2, 3))
        same(batch, [np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]])])
        same(batch.transposed(), [np.array([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0]])])

    @pytest.mark.parametrize("layout", ["item", "interleaved", "one"])
    def test_unsorted_columns_are_sorted(self, layout):
        values = np.array([[2.0, 1.0, 4.0], [20.0, 10.0, 40.0]])
        given = {"item": values, "interleaved": values.T, "one": values[0]}[layout]
        before = given.copy()
        options = {"layout": "interleaved"} if layout == "interleaved" else {}
        batch = Batch.uniform([0, 2, 3], [1, 0, 1], given, **options)
        matrix = np.array([[1.0, 2.0], [0.0, 4.0]])
        same(batch, [matrix] if layout == "one" else [matrix, 10 * matrix])
        assert_array_equal(given, before)

    @pytest.mark.parametrize("layout", ["item", "interleaved", "one"])
    def test_duplicates_are_summed_with_a_warning(self, layout):
        values = np.array([[2.0, 1.0, 5.0, 4.0], [20.0, 10.0, 50.0, 40.0]])
        given = {"item": values, "interleaved": values.T, "one": values[0]}[layout]
        options = {"layout": "interleaved"} if layout == "interleaved" else {}
        with pytest.warns(sparsebatch.SparsebatchWarning, match="^1 entries .* were summed$"):
            batch = Batch.uniform([0, 3, 4], [1, 0, 1, 1], given, **options)
        matrix = np.array([[1.0, 7.0], [0.0, 4.0]])
        same(batch, [matrix] if layout == "one" else [matrix, 10 * matrix])

    def test_the_warning_about_duplicates_points_at_the_caller(self):
        def of_the_caller():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                Batch.uniform([0, 3, 4], [1, 0, 1, 1], [2.0, 1.0, 5.0, 4.0])
            return caught

        (warning,) = of_the_caller()
        line = of_the_caller.__code__.co_firstlineno + 3
        assert (warning.filename, warning.lineno) == (__file__, line)

    def test_unsorted_columns_of_a_ragged_batch_are_sorted(self):
        batch = Batch.ragged(nrows=[2], indptr=[0, 2, 3], indices=[1, 0, 1], values=[2.0, 1.0, 4.0])
        same(batch, [np.array([[1.0, 2.0], [0.0, 4.0]])])

    def test_no_constructor(self):
        with pytest.raises(TypeError, match=r"Batch is made by Batch\.uniform"):
            Batch(np.eye(2))


class TestKinds:
    """What all batches have."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_transposed(self, kind, rng):
        batch = make_batch(kind, rng)
        transposed = batch.transposed()
        same(transposed, [matrix.T for matrix in dense(batch)])
        assert transposed.layout == batch.layout
        same(transposed.transposed(), dense(batch))

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("kind", KINDS)
    def test_pickling_and_copies(self, kind, dtype, rng):
        batch = make_batch(kind, rng, dtype)
        b = rng.standard_normal(vector_shape(batch)).astype(dtype)
        expected = sparsebatch.solve(batch, b, **CPU).x
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            other = pickle.loads(pickle.dumps(batch, protocol))
            same(other, dense(batch))
            assert (other.layout, other.dtype) == (batch.layout, batch.dtype)
            assert repr(other) == repr(batch)
            assert_array_equal(sparsebatch.solve(other, b, **CPU).x, expected)
        for other in (copy.copy(batch), copy.deepcopy(batch)):
            same(other, dense(batch))
            assert not np.shares_memory(other.values, batch.values)

    @pytest.mark.parametrize("kind", KINDS)
    def test_items(self, kind, rng):
        batch = make_batch(kind, rng)
        matrices = list(batch)
        assert len(matrices) == batch.nitems
        for item, matrix in enumerate(matrices):
            assert isinstance(matrix, sp.csr_array)
            assert_array_equal(matrix.data, batch.item_values(item))
            matrix.sum_duplicates()
            assert_array_equal(batch[item - batch.nitems].toarray(), matrix.toarray())
            assert not np.shares_memory(matrix.data, batch.values)
        for item in (batch.nitems, -batch.nitems - 1):
            with pytest.raises(IndexError, match=f"item {item} of a batch of {batch.nitems}"):
                batch[item]
        assert batch.row_offsets[-1] == sum(matrix.shape[0] for matrix in matrices)

    @pytest.mark.parametrize("kind", KINDS)
    def test_with_values(self, kind, rng):
        batch = make_batch(kind, rng)
        values = rng.standard_normal(batch.values.shape)
        other = batch.with_values(values)
        assert np.shares_memory(other.values, values)
        assert_array_equal(other.indices, batch.indices)
        assert other.layout == batch.layout
        with pytest.raises(sparsebatch.OptionError, match="values have shape"):
            batch.with_values(values[:-1])

    def test_repr(self, rng):
        a = tridiagonal(1000)
        batch = Batch.uniform(a.indptr, a.indices, np.tile(a.data, (2000, 1)))
        text = "Batch of 2,000 matrices 1,000 x 1,000 with 2,998 entries each, float64"
        assert repr(batch) == text
        assert repr(Batch.from_scipy(a)).startswith("Batch of 1 matrix 1,000 x 1,000")
        assert "1 to 12 rows" in repr(make_batch("ragged", rng))


def byte_swapped(array):
    return array.astype(array.dtype.newbyteorder())


def misaligned(array):
    room = np.empty(array.nbytes + 1, np.uint8)
    view = room[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned
    return view


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def strided(array):
    room = np.zeros(tuple(2 * size for size in array.shape), array.dtype)
    view = room[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def reversed_in_memory(array):
    turned = tuple(slice(None, None, -1) for _ in array.shape)
    return array[turned].copy()[turned]


def of_a_subclass(array):
    return np.ma.masked_array(array)


FORMS = [byte_swapped, misaligned, read_only, strided, reversed_in_memory, np.asfortranarray,
         of_a_subclass, list]  # fmt: skip


class TestForms:
    """Arrays that lie differently in memory give the same bits."""

    @pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("kind", KINDS)
    def test_values_and_vectors(self, kind, dtype, form, rng):
        if form is list and (dtype == np.float32 or kind == "ragged"):
            pytest.skip("a list has float64 numbers, and is a list of vectors for a ragged batch")
        batch = make_batch(kind, rng, dtype)
        b = rng.standard_normal(vector_shape(batch)).astype(dtype)
        x0 = rng.standard_normal(b.shape).astype(dtype)
        given_values, given_b = batch.values.copy(), b.copy()
        options = {"method": "bicgstab", **CPU}
        plain = sparsebatch.solve(batch, b, x0, **options)
        values = batch.values if form is misaligned else form(batch.values)
        other = batch.with_values(values)
        result = sparsebatch.solve(other, form(b), form(x0), **options)
        assert_array_equal(result.x, plain.x)
        assert_array_equal(result.report.residual_norm, plain.report.residual_norm)
        assert result.x.dtype == dtype
        assert_array_equal(batch.values, given_values)
        assert_array_equal(b, given_b)

    @pytest.mark.parametrize("kind", KINDS)
    def test_misaligned_values(self, kind, rng):
        batch = make_batch(kind, rng)
        b = rng.standard_normal(vector_shape(batch))
        other = batch.with_values(misaligned(batch.values))
        plain = sparsebatch.solve(batch, b, **CPU).x
        assert_array_equal(sparsebatch.solve(other, b, **CPU).x, plain)

    @pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
    def test_indices(self, form, rng):
        a = nonsymmetric(7, rng)
        batch = Batch.uniform(form(a.indptr), form(a.indices), a.data)
        same(batch, [a.toarray()])

    @pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
    def test_several_right_hand_sides(self, form, rng):
        batch = make_batch("uniform", rng)
        b = rng.standard_normal((5, 9, 3))
        plain = sparsebatch.solve(batch, b, **CPU).x
        assert_array_equal(sparsebatch.solve(batch, form(b), **CPU).x, plain)

    def test_the_pattern_is_copied(self, rng):
        a = nonsymmetric(7, rng)
        indptr, indices = a.indptr.copy(), a.indices.copy()
        batch = Batch.uniform(indptr, indices, a.data)
        indptr[:], indices[:] = 0, 0
        same(batch, [a.toarray()])


class TestJax:
    """Matrices of `jax.experimental.sparse`."""

    @pytest.fixture(autouse=True)
    def jax(self):
        return pytest.importorskip("jax")

    def matrices(self, count=3):
        a = tridiagonal(5).toarray().astype(np.float32)
        return np.stack([a * (1 + k) for k in range(count)])

    def test_bcsr(self):
        from jax.experimental.sparse import BCSR

        many = self.matrices()
        one = Batch.from_jax(BCSR.fromdense(many[0]))
        same(one, many[:1])
        batch = Batch.from_jax(BCSR.fromdense(many, n_batch=1))
        assert batch.is_uniform
        assert batch.dtype == "float32"
        same(batch, many)

    def test_bcoo(self):
        from jax.experimental.sparse import BCOO

        many = self.matrices()
        same(Batch.from_jax(BCOO.fromdense(many[0])), many[:1])
        same(Batch.from_jax(BCOO.fromdense(many, n_batch=1)), many)
        unsorted = BCOO.fromdense(many[0])
        order = np.arange(unsorted.nse)[::-1]
        unsorted = BCOO((unsorted.data[order], unsorted.indices[order]), shape=unsorted.shape)
        same(Batch.from_jax(unsorted), many[:1])

    def test_solutions_are_arrays_of_jax(self):
        import jax.numpy as jnp
        from jax.experimental.sparse import BCSR

        many = self.matrices()
        b = np.ones((3, 5), np.float32)
        expected = np.linalg.solve(many, b[..., None])[..., 0]
        bcsr = BCSR.fromdense(many, n_batch=1)
        for given in (bcsr, Batch.from_scipy([*map(sp.csr_array, many)])):
            x = sparsebatch.solve(given, jnp.asarray(b), **CPU).x
            assert isinstance(x, type(jnp.ones(1)))
            assert_allclose(np.asarray(x), expected, rtol=1e-4)
        assert isinstance(sparsebatch.solve(bcsr, b, **CPU).x, np.ndarray)

    def test_other_patterns_and_dimensions(self):
        from jax.experimental.sparse import BCOO, BCSR

        many = self.matrices(2)
        many[0, 0, 1], many[0, 0, 4] = 0.0, 1.0
        for kind in (BCSR, BCOO):
            with pytest.raises(sparsebatch.Unsupported, match="different patterns"):
                Batch.from_jax(kind.fromdense(many, n_batch=1))
        with pytest.raises(sparsebatch.Unsupported, match="dense or several batch dimensions"):
            Batch.from_jax(BCOO.fromdense(np.stack([many, many]), n_batch=2))

    def test_a_traced_vector_is_refused(self, jax):
        message = r"traced by jax.*sparsebatch\.jax\.solve"
        with pytest.raises(sparsebatch.OptionError, match=message):
            jax.jit(lambda b: sparsebatch.solve(tridiagonal(5), b, **CPU).x)(np.ones(5))

    def test_out_of_jax_is_refused(self, jax):
        a = tridiagonal(5).astype(np.float32)
        out = jax.numpy.zeros(5, "float32")
        with pytest.raises(sparsebatch.OptionError, match="out"):
            sparsebatch.solve(a, np.ones(5, np.float32), out=out, **CPU)


def test_every_pair_of_item_counts_and_layouts_has_its_shape():
    a = tridiagonal(3)
    for count, layout in itertools.product((1, 2, 7), ("item", "interleaved")):
        shape = (count, a.nnz) if layout == "item" else (a.nnz, count)
        batch = Batch.uniform(a.indptr, a.indices, np.ones(shape), layout=layout)
        assert (batch.nitems, batch.values.shape) == (count, shape)
