"""Arrays of libraries that this package does not know, by the protocols that arrays have.

`adopt` turns such an array into one of NumPy, a view where the protocol allows it, or into a
`DeviceView` where it lies on a GPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import _native
from ._arrays import KNOWN_PACKAGES, DeviceView
from .errors import Error, OptionError, Unsupported

#: Devices of DLPack in host memory: CPU, pinned for CUDA, pinned for ROCm.
_HOST = (1, 3, 11)
#: CUDA, and its managed memory.
_CUDA = (2, 13)
_DEVICES = {4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 14: "oneAPI", 15: "WebGPU"}
#: Codes of elements of DLPack as kinds of NumPy.
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
#: The newest version of `__cuda_array_interface__`.
_NEWEST_INTERFACE = 3

#: Types that need no protocol.
_PLAIN: set[type] = {np.ndarray, list, tuple, int, float}


def adopt(name: str, array: Any, *, to_write: bool = False) -> Any:
    """An array of a library that is known, over the same memory where the array has a protocol.

    `to_write`: the caller writes to the array, so that copies of it would be lost.
    """
    kind = type(array)
    if kind in _PLAIN:
        return array
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__[:-1]}
    if kind is DeviceView or kind.__module__ == "builtins" or packages & KNOWN_PACKAGES:
        _PLAIN.add(kind)
        return array
    if _has(array, "__dlpack__") and _has(array, "__dlpack_device__"):
        return _by_dlpack(name, array, to_write)
    if _has(array, "__cuda_array_interface__"):
        return _by_cuda_interface(name, array)
    if _is_numpys(array, to_write):
        return _by_numpy(name, array)
    return array


def _is_numpys(array: Any, to_write: bool) -> bool:
    """Whether NumPy makes an array of this one. What `__array__` returns may be a copy."""
    return _has(array, "__array_interface__") or (_has(array, "__array__") and not to_write)


def _has(array: Any, protocol: str) -> bool:
    try:
        return hasattr(array, protocol)
    except Exception:
        # A property that raises something else than AttributeError is there.
        return True


def _asked(name: str, array: Any, protocol: str, ask: Callable[[], Any]) -> Any:
    """What a protocol of an array answers; what it raises is told in one sentence."""
    try:
        return ask()
    except (MemoryError, Error):
        raise
    except Exception as error:
        text = (str(error).splitlines() or [""])[0]
        raise OptionError(
            f"{name}: {protocol} of a {type(array).__name__} failed with "
            f"{type(error).__name__}: {text}"
        ) from error


def _by_dlpack(name: str, array: Any, to_write: bool) -> Any:
    device = _asked(name, array, "__dlpack_device__", lambda: _device_of(array))
    if device[0] in _CUDA:
        return _device_view(name, array, device)
    if device[0] not in _HOST:
        place = _DEVICES.get(device[0], f"a device of kind {device[0]}")
        raise Unsupported(f"{name} lies on {place}, expected host memory or a GPU of CUDA")
    try:
        host = _asked(name, array, "__dlpack__", lambda: np.from_dlpack(array))
    except OptionError as error:
        # The protocol's own refusal, as for elements that DLPack has not.
        if isinstance(error.__cause__, BufferError) and _is_numpys(array, to_write):
            return _by_numpy(name, array)
        raise
    if to_write and not host.flags.writeable and _has(array, "__array_interface__"):
        # Capsules without a version cannot say that they may be written to.
        return _by_numpy(name, array)
    return host


def _device_of(array: Any) -> tuple[int, int]:
    kind, ordinal = array.__dlpack_device__()
    return int(kind), int(ordinal)


def _device_view(name: str, array: Any, device: tuple[int, int]) -> Any:
    try:
        capsule = _asked(name, array, "__dlpack__", lambda: _capsule(array))
        managed = _asked(name, array, "__dlpack__", lambda: _native.ManagedArray(capsule))
    except OptionError as error:
        if isinstance(error.__cause__, BufferError) and _has(array, "__cuda_array_interface__"):
            return _by_cuda_interface(name, array)
        raise
    if managed.device[0] not in _CUDA or managed.device[1] != device[1]:
        raise OptionError(
            f"{name}: __dlpack_device__ says {device}, the tensor of __dlpack__ {managed.device}"
        )
    code, bits, lanes = managed.dtype
    if code not in _KINDS or lanes != 1 or bits % 8 or (_KINDS[code] == "f" and bits > 64):
        raise OptionError(
            f"{name} has elements of code {code} of DLPack with {bits} bits, "
            "expected float64 or float32"
        )
    dtype = np.dtype(bool if code == 6 else f"{_KINDS[code]}{bits // 8}")
    shape = _sizes(name, "shape", managed.shape, 0)
    strides = managed.strides
    if strides is not None:
        strides = tuple(stride * dtype.itemsize for stride in strides)
    # Stream 1 of the protocol, the legacy default stream, has the work of the producer before it.
    place = managed.address, shape, strides, dtype, device[1], 0
    return _checked(name, DeviceView(*place, managed.readonly, managed))


def _capsule(array: Any) -> Any:
    try:
        return array.__dlpack__(stream=1, max_version=(1, 0))
    except TypeError:
        # Of before DLPack 1.0.
        return array.__dlpack__(stream=1)


def _by_cuda_interface(name: str, array: Any) -> DeviceView:
    what = "__cuda_array_interface__"
    interface = _asked(name, array, what, lambda: array.__cuda_array_interface__)

    def refused(text: str) -> OptionError:
        return OptionError(f"{name}: {what} of a {type(array).__name__} {text}")

    if not isinstance(interface, Mapping):
        raise refused(f"is a {type(interface).__name__}, expected a dict")
    missing = [key for key in ("shape", "typestr", "data", "version") if key not in interface]
    if missing:
        raise refused(f"has no {missing[0]!r}")
    version = interface["version"]
    if not _is_int(version) or not 0 <= version <= _NEWEST_INTERFACE:
        raise refused(f"has version {version!r}, expected 0 to {_NEWEST_INTERFACE}")
    if interface.get("mask") is not None:
        raise refused("has a mask, which has no meaning here: fill the array")
    try:
        dtype = np.dtype(interface["typestr"])
    except TypeError:
        raise refused(f"has typestr {interface['typestr']!r}, expected such as '<f8'") from None
    if not dtype.isnative:
        raise refused(f"has typestr {interface['typestr']!r}, in the other order of bytes")
    shape = _sizes(name, "shape", interface["shape"], 0)
    strides = interface.get("strides")
    if strides is not None:
        strides = _sizes(name, "strides", strides, None)
    data = interface["data"]
    if not (isinstance(data, tuple) and len(data) == 2 and _is_int(data[0])):
        raise refused(f"has data {data!r}, expected an address and whether it is read-only")
    stream = interface.get("stream")
    if stream is not None and (not _is_int(stream) or stream <= 0):
        raise refused(f"has stream {stream!r}, expected None, or 1, 2 or an address")
    view = DeviceView(int(data[0]), shape, strides, dtype, 0, None, bool(data[1]), array)
    _checked(name, view)
    if view.size:
        view.device = _asked(name, array, what, lambda: _native.ordinal_of(view.address))
    # The protocol calls the legacy default stream 1, the driver 0.
    view.stream = 0 if stream == 1 else stream
    return view


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _sizes(name: str, what: str, sizes: Any, least: int | None) -> tuple[int, ...]:
    is_list = isinstance(sizes, list | tuple) and all(_is_int(size) for size in sizes)
    if not is_list or (least is not None and any(size < least for size in sizes)):
        raise OptionError(f"{name} has {what} {sizes!r}, expected a tuple of numbers")
    return tuple(int(size) for size in sizes)


def _checked(name: str, view: DeviceView) -> DeviceView:
    """Refuses what cannot be the place of an array."""
    if view.strides is not None and len(view.strides) != len(view.shape):
        raise OptionError(
            f"{name} has {len(view.strides)} strides, expected one for each of "
            f"{len(view.shape)} dimensions"
        )
    if view.size == 0:
        return view
    if view.address <= 0 or view.address >= 2**64:
        raise OptionError(f"{name} has address {view.address:#x}, expected memory of a GPU")
    if view.address % view.numpy_dtype.itemsize:
        raise OptionError(
            f"{name} has address {view.address:#x}, which is not aligned for {view.numpy_dtype}"
        )
    return view


def _by_numpy(name: str, array: Any) -> Any:
    protocol = "__array_interface__" if _has(array, "__array_interface__") else "__array__"
    if protocol == "__array_interface__":
        interface = _asked(name, array, protocol, lambda: array.__array_interface__)
        if isinstance(interface, Mapping) and interface.get("mask") is not None:
            raise OptionError(f"{name} has a mask, which has no meaning here: fill the array")
    return _asked(name, array, protocol, lambda: np.asarray(array))


def cupy_or_none() -> Any:
    """CuPy, if it is installed."""
    try:
        return importlib.import_module("cupy")
    except Exception:
        # Also one that was installed for another version of CUDA.
        return None
