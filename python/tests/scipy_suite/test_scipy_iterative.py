"""SciPy's tests of `cg` and `bicgstab` run against `sparsebatch.scipy`."""

import pytest

import facade

_module = facade.load()
if _module is None:
    pytest.skip("SciPy came without its tests", allow_module_level=True)
globals().update(facade.tests(_module))
