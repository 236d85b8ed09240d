"""Values of batches whose columns were sorted when they were made."""

import numpy as np
import pickle
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import sparsebatch
from sparsebatch import Batch, FormatMatrix, OptionError, Solver, Spmv

CPU = {"backend": "cpu"}
INDPTR, INDICES = [0, 2, 4], [1, 0, 1, 0]
VALUES = np.array([[1.0, 4.0, 3.0, 2.0]])  # [4 1; 2 3]
B = np.array([[4.0, 2.0]])


def batches():
    unsorted = sp.csr_array((VALUES[0], INDICES, INDPTR), (2, 2))
    return [
        Batch.uniform(INDPTR, INDICES, VALUES),
        Batch.ragged(nrows=[2], indptr=INDPTR, indices=INDICES, values=VALUES[0]),
        Batch.from_scipy(unsorted),
    ]


@pytest.mark.parametrize("kind", range(3))
def test_other_values_are_refused_until_their_order_is_known(kind):
    batch = batches()[kind]
    b = B if batch.layout == "item" and batch.values.ndim == 2 else B[0]
    expected = np.linalg.solve([[4.0, 1.0], [2.0, 3.0]], B[0])
    solver = Solver(batch, **CPU)
    assert_allclose(solver.solve(b).x.ravel(), expected)
    other = VALUES if batch.values.ndim == 2 else VALUES[0]
    for refuse in (batch.with_values, solver.update_values, Spmv(batch).update_values):
        with pytest.raises(OptionError, match="columns of the batch were sorted"):
            refuse(other)
    with pytest.raises(OptionError, match="columns of the batch were sorted"):
        pickle.loads(pickle.dumps(batch)).with_values(other)
    known = batch.canonical()
    again = Solver(known, **CPU)
    again.update_values(2 * known.values)
    assert_allclose(again.solve(b).x.ravel(), expected / 2)


def test_jax_refuses_them_too():
    jax = pytest.importorskip("jax")
    sparsebatch_jax = pytest.importorskip("sparsebatch.jax")
    with jax.enable_x64(True), pytest.raises(OptionError, match="were sorted"):
        sparsebatch_jax.solve(batches()[0], VALUES, B)


def test_sorted_columns_need_nothing():
    a = sp.csr_array(np.array([[4.0, 1.0], [2.0, 3.0]]))
    batch = Batch.from_scipy(a).with_values(2 * a.data)
    assert_allclose(batch[0].toarray(), 2 * a.toarray())


def test_out_may_not_be_the_values():
    values = np.full((2, 2), 2.0)
    batch = Batch.uniform([0, 1, 2], [0, 1], values)
    with pytest.raises(OptionError, match="shares memory with the values"):
        sparsebatch.solve(batch, np.ones((2, 2)), out=values, **CPU)
    assert (values == 2.0).all()


@pytest.mark.parametrize(
    ("shape", "parts", "data", "message"),
    [
        ((7, 2), {"row_perm": [0, 1]}, np.ones(16), "2 rows, expected 7"),
        ((2, 2), {}, np.ones(17), "17 slots, expected 16"),
        ((-2, 2), {}, np.ones(16), "shape is"),
    ],
)
def test_parts_that_do_not_fit_their_shape(shape, parts, data, message):
    given = {
        "slice_size": 8,
        "threads_per_row": 2,
        "slice_ptr": [0, 16],
        "row_perm": [0, 1],
        "indices": [0, 1] + [-1] * 14,
    }
    with pytest.raises((OptionError, sparsebatch.FormatError), match=message):
        FormatMatrix("sellp", shape, data, **given | parts)


def test_the_report_says_why_there_is_no_gpu():
    reason = sparsebatch.gpu_unavailable()
    report = sparsebatch.solve(Batch.uniform([0, 1], [0], [[2.0]]), np.ones((1, 1))).report
    assert report.cpu_reason == reason
    assert reason is None or reason in repr(report)
    assert sparsebatch.solve(sp.eye_array(2), np.ones(2), **CPU).report.cpu_reason is None
