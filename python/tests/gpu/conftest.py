"""Tests on a GPU: skipped where there is none, failed there if SPARSEBATCH_REQUIRE_GPU is set."""

from __future__ import annotations

import os

# JAX would take most of the memory that the other libraries need.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import pytest  # noqa: E402

import sparsebatch  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    reason = sparsebatch.gpu_unavailable()
    if reason is None:
        return
    if os.environ.get("SPARSEBATCH_REQUIRE_GPU"):
        pytest.fail(f"there is no GPU: {reason}")
    pytest.skip(f"there is no GPU: {reason}")
