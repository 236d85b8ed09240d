"""Files: what is written is read again, and what is no matrix is refused."""

import gzip
import io

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from numpy.testing import assert_array_equal

import sparsebatch
from sparsebatch import Batch
from systems import KINDS, dense, items_of, make_batch, nonsymmetric, tridiagonal, vector_shape

CPU = {"backend": "cpu"}


@pytest.mark.parametrize("with_b", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind, with_b, rng, tmp_path):
    if kind == "interleaved" and with_b:
        pytest.skip("has a test of its own")
    batch = make_batch(kind, rng)
    b = rng.standard_normal(vector_shape(batch)) if with_b else None
    path = tmp_path / "some.batch"
    sparsebatch.save(path, batch, b)
    loaded, rhs = sparsebatch.load(path)
    for found, expected in zip(dense(loaded), dense(batch), strict=True):
        assert_array_equal(found, expected)
    assert loaded.is_uniform == batch.is_uniform
    assert_array_equal(rhs.ravel(), 1.0 if b is None else b.ravel())
    result = sparsebatch.solve(loaded, rhs, **CPU)
    assert result.report.all_converged
    assert rhs.shape == vector_shape(loaded)


def test_right_hand_sides_of_an_interleaved_batch(rng, tmp_path):
    batch = make_batch("interleaved", rng)
    b = rng.standard_normal(vector_shape(batch))
    sparsebatch.save(tmp_path / "some.batch", batch, b)
    _, rhs = sparsebatch.load(tmp_path / "some.batch")
    assert_array_equal(rhs, b.T)


def test_a_list_of_right_hand_sides(rng, tmp_path):
    batch = make_batch("ragged", rng)
    b = rng.standard_normal(vector_shape(batch))
    sparsebatch.save(tmp_path / "some.batch", batch, items_of(batch, b))
    assert_array_equal(sparsebatch.load(tmp_path / "some.batch")[1], b)


def test_right_hand_sides_of_another_shape(rng, tmp_path):
    batch = make_batch("uniform", rng)
    with pytest.raises(sparsebatch.OptionError, match=r"b has shape \(9, 5\), expected \(5, 9\)"):
        sparsebatch.save(tmp_path / "some.batch", batch, np.ones((9, 5)))


def test_another_number_of_right_hand_sides(rng, tmp_path):
    batch = make_batch("uniform", rng)
    with pytest.raises((sparsebatch.OptionError, sparsebatch.FormatError), match="44|45"):
        sparsebatch.save(tmp_path / "some.batch", batch, np.ones(44))
    assert not list(tmp_path.iterdir())


def test_float32_is_refused(rng, tmp_path):
    batch = make_batch("uniform", rng, np.float32)
    with pytest.raises(sparsebatch.OptionError, match="holds float64: convert values"):
        sparsebatch.save(tmp_path / "some.batch", batch)
    assert not list(tmp_path.iterdir())


def test_a_file_is_written_whole_or_not_at_all(rng, tmp_path):
    path = tmp_path / "some.batch"
    batch = make_batch("uniform", rng)
    sparsebatch.save(path, batch)
    before = path.read_bytes()
    rectangular = Batch.uniform([0, 1], [1], [[1.0]], shape=(1, 2))
    with pytest.raises(sparsebatch.Error):
        sparsebatch.save(path, rectangular)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["some.batch"]


class TestFormats:
    """Matrix Market and SciPy's `.npz`."""

    def test_matrix_market(self, rng, tmp_path):
        matrix = nonsymmetric(6, rng)
        text = io.BytesIO()
        scipy.io.mmwrite(text, matrix, precision=17)
        (tmp_path / "a.mtx").write_bytes(text.getvalue())
        (tmp_path / "a.mtx.gz").write_bytes(gzip.compress(text.getvalue()))
        # Files are known by their content.
        (tmp_path / "b.txt").write_bytes(text.getvalue())
        for name in ("a.mtx", "a.mtx.gz", "b.txt"):
            batch, b = sparsebatch.load(tmp_path / name)
            assert b is None
            assert batch.nitems == 1
            assert_array_equal(dense(batch)[0], matrix.toarray())

    def test_a_symmetric_file_has_both_triangles(self, tmp_path):
        scipy.io.mmwrite(tmp_path / "a.mtx", tridiagonal(5), symmetry="symmetric")
        batch, _ = sparsebatch.load(str(tmp_path / "a.mtx"))
        assert_array_equal(dense(batch)[0], tridiagonal(5).toarray())

    @pytest.mark.parametrize("compressed", [False, True])
    def test_npz(self, compressed, rng, tmp_path):
        matrix = nonsymmetric(6, rng)
        sp.save_npz(tmp_path / "a.npz", matrix, compressed=compressed)
        batch, _ = sparsebatch.load(tmp_path / "a.npz")
        assert_array_equal(dense(batch)[0], matrix.toarray())

    def test_several_files_and_folders(self, rng, tmp_path):
        for name, scale in (("a", 1.0), ("b", 2.0)):
            sp.save_npz(tmp_path / f"{name}.npz", sp.csr_array(tridiagonal(4) * scale))
        for paths in (tmp_path, [tmp_path / "a.npz", tmp_path / "b.npz"]):
            batch, _ = sparsebatch.load(paths)
            assert batch.is_uniform
            assert batch.values.shape == (2, 10)
            assert_array_equal(batch[1].toarray(), 2 * tridiagonal(4).toarray())
        sp.save_npz(tmp_path / "c.npz", tridiagonal(3))
        batch, _ = sparsebatch.load(tmp_path)
        assert not batch.is_uniform
        assert_array_equal(batch.nrows, [4, 4, 3])


class TestBadFiles:
    """The exception names the file, and what was expected."""

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("empty", b""),
            ("noise", bytes(range(256)) * 4),
            ("text", b"hello\n"),
            ("short.batch", b"BATCH001" + b"\x01" * 5),
            ("huge.batch", b"BATCH001" + b"\xff" * 24),
            ("huge.batch", b"RAGGED01" + b"\xff" * 24),
            ("short.mtx", b"%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 1.0\n"),
            ("range.mtx", b"%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1.0\n"),
            ("complex.mtx", b"%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 1\n"),
            ("word.mtx", b"%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 one\n"),
            ("large.mtx", b"%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1e400\n"),
            ("zip.npz", b"PK\x03\x04" + b"\x00" * 60),
        ],
    )
    def test_of_content(self, name, content, tmp_path):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(sparsebatch.FormatError, match=name) as caught:
            sparsebatch.load(path)
        assert "\n" not in str(caught.value)

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"none\.mtx"):
            sparsebatch.load(tmp_path / "none.mtx")

    def test_of_an_empty_folder(self, tmp_path):
        with pytest.raises(sparsebatch.FormatError):
            sparsebatch.load(tmp_path)

    def test_no_paths(self):
        with pytest.raises(sparsebatch.FormatError, match="at least one file"):
            sparsebatch.load([])

    def test_no_folder_to_write_to(self, tmp_path):
        with pytest.raises(OSError, match="nowhere"):
            sparsebatch.save(tmp_path / "nowhere" / "a.batch", Batch.from_scipy(tridiagonal(3)))

    @pytest.mark.parametrize("path", [3, None, object()])
    def test_of_paths(self, path):
        with pytest.raises(TypeError):
            sparsebatch.load(path)
