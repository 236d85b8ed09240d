"""The examples of the docstrings."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name", ["sparsebatch", "sparsebatch._batch", "sparsebatch._solve", "sparsebatch.scipy"]
)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
