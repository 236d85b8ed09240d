"""SciPy's own tests of `cg` and `bicgstab`, with those of `sparsebatch.scipy` in their place."""

from __future__ import annotations

import importlib.util
import inspect
import re
from types import ModuleType
from typing import Any

import scipy.sparse.linalg._isolve as isolve

import sparsebatch.scipy

#: Where the installed SciPy has its tests.
TESTS = "scipy.sparse.linalg._isolve.tests.test_iterative"
#: Tests of solvers that we do not have.
OTHERS = ("test_show",)


def load() -> ModuleType | None:
    """The module of tests over our solvers alone; `None` where SciPy came without its tests."""
    spec = importlib.util.find_spec(TESTS)
    if spec is None or spec.origin is None:
        return None
    with open(spec.origin) as file:
        source = file.read()
    # Fixtures are made from this list when the module is imported.
    ours = "_SOLVERS = [cg, bicgstab]"
    source, count = re.subn(r"^_SOLVERS = \[.*?\]", ours, source, flags=re.M | re.S)
    if count != 1:
        raise AssertionError("SciPy's tests have no list _SOLVERS any more")
    module = ModuleType("scipy_test_iterative")
    module.__file__ = spec.origin
    own = {"cg": sparsebatch.scipy.cg, "bicgstab": sparsebatch.scipy.bicgstab}
    before = {name: getattr(isolve, name) for name in own}
    try:
        for name, solver in own.items():
            setattr(isolve, name, solver)
        exec(compile(source, spec.origin, "exec"), module.__dict__)
    finally:
        for name, solver in before.items():
            setattr(isolve, name, solver)
    return module


def tests(module: ModuleType) -> dict[str, Any]:
    """The tests and fixtures that are about the solvers of the list; other tests name their own."""
    taken = {name: getattr(module, name) for name in ("solver", "case")}
    for name, function in vars(module).items():
        if name.startswith("test_") and inspect.isfunction(function):
            if name not in OTHERS:
                taken[name] = function
    return taken
