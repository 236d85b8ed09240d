"""What all tests have: random numbers, settings of hypothesis, warnings as errors."""

import os

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile(
    "sparsebatch",
    deadline=None,
    max_examples=50,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("sparsebatch")

# Tests for ranks are run by scripts/python-mpi-tests.sh.
collect_ignore = [] if "SPARSEBATCH_TEST_RANKS" in os.environ else ["mpi"]


@pytest.fixture
def rng() -> np.random.Generator:
    """The same random numbers in every run."""
    return np.random.default_rng(20240917)


def pytest_configure(config: pytest.Config) -> None:
    # A warning that no test expects is a failure.
    config.addinivalue_line("filterwarnings", "error::sparsebatch.SparsebatchWarning")
