"""Array libraries on a GPU, and problems with their solutions on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsebatch


class Cupy:
    name = "cupy"
    can_be_written = True

    def __init__(self) -> None:
        self.module = pytest.importorskip("cupy", reason="CuPy is not installed")

    def put(self, array: np.ndarray) -> Any:
        return self.module.asarray(array)

    def get(self, array: Any) -> np.ndarray:
        assert isinstance(array, self.module.ndarray)
        return self.module.asnumpy(array)

    def address(self, array: Any) -> int:
        return array.data.ptr

    def is_on_gpu(self, array: Any) -> bool:
        return isinstance(array, self.module.ndarray)


class Torch:
    name = "torch"
    can_be_written = True

    def __init__(self) -> None:
        self.module = pytest.importorskip("torch", reason="PyTorch is not installed")
        if not self.module.cuda.is_available():
            pytest.skip("PyTorch was built without CUDA")

    def put(self, array: np.ndarray) -> Any:
        return self.module.from_numpy(np.ascontiguousarray(array)).cuda()

    def get(self, array: Any) -> np.ndarray:
        assert isinstance(array, self.module.Tensor)
        return array.cpu().numpy()

    def address(self, array: Any) -> int:
        return array.data_ptr()

    def is_on_gpu(self, array: Any) -> bool:
        return isinstance(array, self.module.Tensor) and array.is_cuda


class Jax:
    name = "jax"
    can_be_written = False

    def __init__(self) -> None:
        self.module = pytest.importorskip("jax", reason="JAX is not installed")
        self.module.config.update("jax_enable_x64", True)
        if self.module.default_backend() != "gpu":
            pytest.skip("JAX was installed without CUDA")

    def put(self, array: np.ndarray) -> Any:
        return self.module.device_put(array)

    def get(self, array: Any) -> np.ndarray:
        assert isinstance(array, self.module.Array)
        return np.asarray(array)

    def address(self, array: Any) -> int:
        return array.unsafe_buffer_pointer()

    def is_on_gpu(self, array: Any) -> bool:
        (device,) = array.devices()
        return device.platform == "gpu"


LIBRARIES = {"cupy": Cupy, "torch": Torch, "jax": Jax}
N, ROWS = 33, 20


class Problem:
    """Matrices of one random pattern, diagonally dominant."""

    def __init__(self, dtype: Any = np.float64, nitems: int = N, n: int = ROWS, seed: int = 0):
        rng = np.random.default_rng(seed)
        mask = (rng.random((n, n)) < 0.3) | np.eye(n, dtype=bool)
        rows, columns = np.nonzero(mask)
        self.indptr = np.concatenate([[0], np.cumsum(mask.sum(1))])
        self.indices, self.rows = columns, rows
        values = rng.standard_normal((nitems, len(rows)))
        values[:, rows == columns] += n
        self.values = values.astype(dtype)
        self.b = rng.standard_normal((nitems, n)).astype(dtype)

    def batch(self, values: Any, **options: Any) -> sparsebatch.Batch:
        return sparsebatch.Batch.uniform(self.indptr, self.indices, values, **options)

    def symmetric(self) -> Problem:
        """Positive definite matrices of a tridiagonal pattern, instead."""
        nitems, n = self.b.shape
        rng = np.random.default_rng(7)
        rows = np.repeat(np.arange(n), 3)[1:-1]
        self.rows, self.indices = rows, (rows + np.tile([-1, 0, 1], n)[1:-1])
        self.indptr = np.searchsorted(rows, np.arange(n + 1))
        values = np.full((nitems, len(rows)), -1.0)
        values[:, rows == self.indices] = 2.2 + rng.random((nitems, n))
        self.values = values.astype(self.b.dtype)
        return self


class Ragged:
    """Matrices of 3 to 40 rows, each of its own pattern."""

    def __init__(self, dtype: Any = np.float64, nitems: int = 25):
        parts = [Problem(dtype, 1, 3 + (17 * item) % 38, seed=item) for item in range(nitems)]
        self.nrows = np.array([len(part.indptr) - 1 for part in parts])
        self.indptr = np.concatenate([part.indptr for part in parts])
        self.indices = np.concatenate([part.indices for part in parts])
        self.values = np.concatenate([part.values[0] for part in parts])
        self.b = np.concatenate([part.b[0] for part in parts])

    def batch(self, values: Any) -> sparsebatch.Batch:
        return sparsebatch.Batch.ragged(
            nrows=self.nrows, indptr=self.indptr, indices=self.indices, values=values
        )


def tolerance(dtype: Any) -> float:
    return 1e-8 if np.dtype(dtype) == np.float64 else 2e-4


def close(one: np.ndarray, other: np.ndarray) -> None:
    assert one.shape == other.shape and one.dtype == other.dtype
    np.testing.assert_allclose(one, other, rtol=0, atol=tolerance(one.dtype) * abs(other).max())
