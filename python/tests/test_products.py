"""Products `Spmv`, and matrices in other formats than CSR."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import sparsebatch
from sparsebatch import Batch, FormatError, FormatMatrix, OptionError, Spmv
from systems import KINDS, dense, items_of, make_batch, nonsymmetric, tridiagonal, vector_shape

FORMATS = ["coo", "ell", "dia", "hyb", "sellp"]


def product(batch, x, transpose=False):
    """Products by NumPy, for square matrices."""
    y = np.empty(x.shape)
    for a, of_x, of_y in zip(dense(batch), items_of(batch, x), items_of(batch, y), strict=True):
        of_y[...] = (a.T if transpose else a) @ of_x
    return y


class TestSpmv:
    """`y = alpha A x + beta y`."""

    @pytest.mark.parametrize("transpose", [False, True])
    @pytest.mark.parametrize("nrhs", [1, 2])
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind_of_batch(self, kind, nrhs, transpose, rng):
        # An interleaved batch has one vector.
        nrhs = 1 if kind == "interleaved" else nrhs
        batch = make_batch(kind, rng)
        multiply = Spmv(batch, nrhs=nrhs, transpose=transpose)
        x = rng.standard_normal(vector_shape(batch, nrhs))
        y = multiply(x)
        assert y.shape == x.shape
        assert_allclose(y, product(batch, x, transpose), rtol=1e-12, atol=1e-13)
        assert_array_equal(multiply(x), y)
        start = rng.standard_normal(x.shape)
        out = start.copy()
        assert multiply(x, alpha=2.0, beta=-1.0, y=out) is out
        assert_allclose(out, 2 * product(batch, x, transpose) - start, rtol=1e-11, atol=1e-12)

    @pytest.mark.parametrize("kind", KINDS)
    def test_float32(self, kind, rng):
        batch = make_batch(kind, rng, np.float32)
        x = rng.standard_normal(vector_shape(batch)).astype(np.float32)
        y = Spmv(batch)(x)
        assert y.dtype == np.float32
        assert_allclose(y, product(batch, x), rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("format", ["csr", *FORMATS])
    def test_formats(self, format, rng):
        a = tridiagonal(30)
        multiply = Spmv(a, format=format)
        assert multiply.format == format
        assert multiply.reason
        x = rng.standard_normal(30)
        assert_allclose(multiply(x), a @ x, rtol=1e-12, atol=1e-13)

    def test_rectangular_matrices(self, rng):
        a = sp.random_array((4, 7), density=0.5, rng=rng, format="csr")
        assert_allclose(Spmv(a)(np.ones(7)), a @ np.ones(7))
        assert_allclose(Spmv(a, transpose=True)(np.ones(4)), a.T @ np.ones(4))
        with pytest.raises(OptionError, match=r"x has shape \(4,\), expected \(7,\)"):
            Spmv(a)(np.ones(4))

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("transpose", [False, True])
    def test_other_values(self, kind, transpose, rng):
        batch = make_batch(kind, rng)
        multiply = Spmv(batch, transpose=transpose)
        values = rng.standard_normal(batch.values.shape)
        multiply.update_values(values)
        x = rng.standard_normal(vector_shape(batch))
        expected = product(batch.with_values(values), x, transpose)
        assert_allclose(multiply(x), expected, rtol=1e-11, atol=1e-12)

    def test_beta_0_does_not_read_y(self):
        y = np.full(5, np.nan)
        Spmv(tridiagonal(5))(np.ones(5), y=y)
        assert np.isfinite(y).all()

    def test_nan_reaches_the_rows_that_store_its_column(self):
        x = np.ones(6)
        x[2] = np.nan
        assert list(np.isnan(Spmv(tridiagonal(6))(x))) == [False, True, True, True, False, False]

    def test_x_and_y_may_be_one_array(self, rng):
        a, x = tridiagonal(9), rng.standard_normal(9)
        expected = a @ x
        Spmv(a)(x, y=x)
        assert_allclose(x, expected, rtol=1e-12)

    def test_bad_input(self):
        a = tridiagonal(4)
        with pytest.raises(OptionError, match="beta is given without y"):
            Spmv(a)(np.ones(4), beta=1.0)
        with pytest.raises(OptionError, match="nrhs is 0"):
            Spmv(a, nrhs=0)
        with pytest.raises(OptionError, match="format is x"):
            Spmv(a, format="x")
        with pytest.raises(OptionError, match="kernel is x"):
            Spmv(a, kernel="x")
        for dtype in (bool, np.float16, complex, object):
            with pytest.raises(OptionError, match=f"x has elements of {np.dtype(dtype)}"):
                Spmv(a)(np.ones(4).astype(dtype))
        y = np.empty(4)
        y.flags.writeable = False
        with pytest.raises(OptionError, match="read-only"):
            Spmv(a)(np.ones(4), y=y)

    def test_repr(self):
        assert "Batch of 1 matrix 4 x 4" in repr(Spmv(tridiagonal(4)))


def to(format):
    return getattr(sparsebatch, f"to_{format}")


class TestFormats:
    """Conversions and back."""

    @pytest.mark.parametrize("format", FORMATS)
    def test_one_matrix(self, format, rng):
        a = nonsymmetric(12, rng)
        matrix = to(format)(a)
        assert matrix.format == format
        assert matrix.shape == (12, 12)
        assert matrix.nslots >= a.nnz
        back = matrix.to_scipy()
        assert_array_equal(back.toarray(), a.toarray())
        b = rng.standard_normal(12)
        x = sparsebatch.solve(matrix.to_batch(), b, backend="cpu").x
        assert_allclose(x, np.linalg.solve(a.toarray(), b), rtol=1e-9)

    @pytest.mark.parametrize("layout", ["item", "interleaved"])
    @pytest.mark.parametrize("format", FORMATS)
    def test_batches(self, format, layout, rng):
        batch = make_batch("interleaved" if layout == "interleaved" else "uniform", rng)
        matrix = to(format)(batch)
        assert matrix.data.shape == (5, matrix.nslots)
        for found, expected in zip(matrix.to_scipy(), dense(batch), strict=True):
            assert_array_equal(found.toarray(), expected)

    @pytest.mark.parametrize("format", FORMATS)
    def test_explicit_zeros_are_kept_but_in_dia(self, format):
        a = sp.csr_array((np.array([1.0, 0.0, 2.0]), [0, 1, 1], [0, 2, 3]), (2, 2))
        assert to(format)(a).to_batch().nnz == (2 if format == "dia" else 3)

    @pytest.mark.parametrize("format", FORMATS)
    def test_parts_make_the_matrix_again(self, format, rng):
        a = nonsymmetric(12, rng)
        matrix = to(format)(a)
        parts = {name: getattr(matrix, name) for name in sparsebatch.formats.PARTS[format]}
        again = FormatMatrix(format, matrix.shape, matrix.data, **parts)
        assert_array_equal(again.to_scipy().toarray(), a.toarray())
        assert repr(again) == repr(matrix)
        with pytest.raises(AttributeError):
            again.nothing

    @pytest.mark.parametrize("format", ["ell", "hyb"])
    def test_padding_that_would_blow_memory_up(self, format):
        # One full row among many short ones.
        a = sp.eye_array(2000, format="lil")
        a[0, :] = 1.0
        options = {"width": 2000} if format == "hyb" else {}
        with pytest.raises(FormatError, match="would hold 4000000 slots .* the limit is"):
            to(format)(a, max_fill=2.0, **options)

    def test_bad_parts(self):
        with pytest.raises(OptionError, match="format is 'csr'"):
            FormatMatrix("csr", (2, 2), np.ones(2))
        with pytest.raises(OptionError, match="coo has the parts row, col"):
            FormatMatrix("coo", (2, 2), np.ones(2), row=[0, 1])
        with pytest.raises(FormatError):
            FormatMatrix("coo", (2, 2), np.ones(2), row=[0, 5], col=[0, 1])
        with pytest.raises(OptionError, match="data has 1 slots"):
            FormatMatrix("coo", (2, 2), np.ones(1), row=[0, 1], col=[0, 1])
        with pytest.raises(sparsebatch.Unsupported, match="several patterns"):
            sparsebatch.to_ell(Batch.ragged([tridiagonal(2), tridiagonal(3)]))
