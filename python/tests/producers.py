"""Arrays of libraries that nobody knows: classes with one protocol each."""

from __future__ import annotations

import ctypes

import numpy as np


class ByDlpack:
    """Has nothing but DLPack, of version 1."""

    def __init__(self, array: np.ndarray):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class ByOldDlpack(ByDlpack):
    """Has DLPack of before version 1."""

    def __dlpack__(self, stream=None):
        return self._array.__dlpack__()


class ByInterface:
    """Has nothing but `__array_interface__`."""

    def __init__(self, array: np.ndarray):
        self._array = array

    @property
    def __array_interface__(self):
        return self._array.__array_interface__


class ByArray:
    """Has nothing but `__array__`."""

    def __init__(self, array: np.ndarray):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array


class OnGpu(ByDlpack):
    """Says that its array lies on a GPU, as a capsule made by hand does."""

    def __init__(self, array, says=(2, 0), has=(2, 0), **changes):
        super().__init__(array)
        self.says, self.has, self.changes = says, has, changes
        self.deleted = []

    def __dlpack_device__(self):
        return self.says

    def __dlpack__(self, *, stream, max_version=None):
        assert stream == 1
        return capsule(self._array, self.has, self.deleted, **self.changes)


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Plain(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor),
    ]  # fmt: skip


#: What capsules point to, for as long as the tests run.
ALIVE: list[object] = []


def capsule(array, device, deleted, version=(1, 0), code=2, bits=64, lanes=1, ndim=None, flags=0):
    """A capsule of DLPack; `deleted` gets an element when its deleter is called."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    steps = [stride // array.itemsize for stride in array.strides]
    strides = (ctypes.c_int64 * array.ndim)(*steps)
    tensor = Tensor(
        array.ctypes.data - 16, *device, array.ndim if ndim is None else ndim, code, bits, lanes,
        shape, strides, 16,
    )  # fmt: skip
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleted.append)
    address = ctypes.cast(deleter, ctypes.c_void_p)
    if version is None:
        managed, name = Plain(tensor, None, address), b"dltensor"
    else:
        managed = Versioned(*version, None, address, flags, tensor)
        name = b"dltensor_versioned"
    ALIVE.extend((shape, strides, deleter, managed, name, array))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(managed), name, None)


class OnGpuByInterface:
    """Says by `__cuda_array_interface__` that its array lies on a GPU."""

    def __init__(self, array: np.ndarray, **changes):
        self._array, self._changes = array, changes

    @property
    def __cuda_array_interface__(self):
        own = self._array.__array_interface__
        plain = {name: own[name] for name in ("shape", "typestr", "data", "strides")}
        return {**plain, "version": 3, **self._changes}
