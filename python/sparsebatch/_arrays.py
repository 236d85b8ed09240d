"""Arrays of NumPy, CuPy, PyTorch and JAX: where they lie, their addresses, results of their kind.

A *library* here is one of the classes below: it knows the arrays of one package. Packages are
never imported for this; an array that is given shows that its package is there.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .errors import OptionError, Unsupported

#: Address and number of elements of an array on a GPU.
Address = tuple[int, int]

_FLOATS = ("float64", "float32")

#: Names of the types of elements that were seen; to make one from a type takes a microsecond.
_NAMES: dict[Any, str] = {}


def _dtype_name(dtype: Any) -> str:
    name = _NAMES.get(dtype)
    if name is None:
        name = _NAMES[dtype] = str(dtype).removeprefix("torch.")
    return name


class Numpy:
    """Arrays in host memory, and everything that NumPy makes an array of."""

    name = "numpy"

    @staticmethod
    def device(_array: Any) -> int | None:
        return None

    @staticmethod
    def dtype(array: Any) -> str:
        return _dtype_name(np.asarray(array).dtype)

    @staticmethod
    def host(array: Any) -> np.ndarray:
        return np.asarray(array)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: str, _like: Any) -> np.ndarray:
        return np.empty(shape, dtype)

    @staticmethod
    def wrap(array: np.ndarray, _like: Any) -> Any:
        """A NumPy array as an array of this library."""
        return array


class Cupy:
    """Arrays of CuPy."""

    name = "cupy"

    @staticmethod
    def device(array: Any) -> int | None:
        return int(array.data.device_id)

    @staticmethod
    def dtype(array: Any) -> str:
        return _dtype_name(array.dtype)

    @staticmethod
    def host(array: Any) -> np.ndarray:
        return array.get()

    @staticmethod
    def address(array: Any) -> Address:
        return array.data.ptr, array.size

    @staticmethod
    def contiguous(array: Any) -> Any:
        if array.flags.c_contiguous:
            return array
        return sys.modules["cupy"].ascontiguousarray(array)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        with like.device:
            return sys.modules["cupy"].empty(shape, dtype)

    @staticmethod
    def copy(target: Any, source: Any) -> None:
        target[...] = source

    @staticmethod
    def wrap(array: np.ndarray, like: Any) -> Any:
        with like.device:
            return sys.modules["cupy"].asarray(array)

    @staticmethod
    def stream(like: Any) -> int:
        return int(Cupy.current(like).ptr)

    @staticmethod
    def current(like: Any) -> Any:
        """The current stream, as an object that keeps it alive."""
        return sys.modules["cupy"].cuda.get_current_stream(like.data.device_id)

    @staticmethod
    def synchronize(like: Any) -> None:
        """Waits for the current stream."""
        Cupy.current(like).synchronize()


class Torch:
    """Tensors of PyTorch, on the CPU or a GPU."""

    name = "torch"

    @staticmethod
    def device(array: Any) -> int | None:
        if array.is_cuda:
            return array.get_device()
        if array.is_cpu:
            return None
        raise OptionError(f"a tensor lies on {array.device}, expected cpu or cuda")

    @staticmethod
    def dtype(array: Any) -> str:
        return _dtype_name(array.dtype)

    @staticmethod
    def host(array: Any) -> np.ndarray:
        return array.detach().cpu().numpy()

    @staticmethod
    def address(array: Any) -> Address:
        return array.data_ptr(), array.numel()

    @staticmethod
    def contiguous(array: Any) -> Any:
        return array if array.is_contiguous() else array.detach().contiguous()

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)

    @staticmethod
    def copy(target: Any, source: Any) -> None:
        target.copy_(source)

    @staticmethod
    def wrap(array: np.ndarray, like: Any) -> Any:
        array = np.ascontiguousarray(array)
        # PyTorch warns of arrays that cannot be written to.
        tensor = sys.modules["torch"].from_numpy(array if array.flags.writeable else array.copy())
        return tensor if like.device.type == "cpu" else tensor.to(like.device)

    @staticmethod
    def stream(like: Any) -> int:
        return int(Torch.current(like).cuda_stream)

    @staticmethod
    def current(like: Any) -> Any:
        """The current stream, as an object that keeps it alive."""
        return sys.modules["torch"].cuda.current_stream(like.device)

    @staticmethod
    def synchronize(like: Any) -> None:
        """Waits for the current stream."""
        Torch.current(like).synchronize()


class Jax:
    """Arrays of JAX, outside of its transformations."""

    name = "jax"

    @staticmethod
    def device(array: Any) -> int | None:
        device = Jax.device_object(array)
        return None if device.platform == "cpu" else int(device.local_hardware_id or 0)

    @staticmethod
    def device_object(array: Any) -> Any:
        """The one device of an array."""
        devices = array.devices()
        if len(devices) != 1:
            raise Unsupported(
                "an array of JAX is spread over several devices: gather it, or call "
                "sparsebatch.jax.solve"
            )
        return next(iter(devices))

    @staticmethod
    def dtype(array: Any) -> str:
        return _dtype_name(array.dtype)

    @staticmethod
    def host(array: Any) -> np.ndarray:
        return np.asarray(array)

    @staticmethod
    def address(array: Any) -> Address:
        return int(array.block_until_ready().unsafe_buffer_pointer()), int(array.size)

    @staticmethod
    def contiguous(array: Any) -> Any:
        return array

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        # Its memory is written to before anybody else has seen the array.
        jax = sys.modules["jax"]
        empty = jax.device_put(jax.numpy.empty(shape, dtype), Jax.device_object(like))
        if str(empty.dtype) != dtype:
            raise OptionError(f"JAX makes no arrays of {dtype}: set jax_enable_x64")
        return empty.block_until_ready()

    @staticmethod
    def wrap(array: np.ndarray, like: Any) -> Any:
        wrapped = sys.modules["jax"].device_put(array, Jax.device_object(like))
        if wrapped.dtype != array.dtype:
            raise OptionError(f"JAX makes no arrays of {array.dtype}: set jax_enable_x64")
        return wrapped

    @staticmethod
    def stream(_like: Any) -> int:
        # Arrays are ready before their address is taken.
        return 0

    @staticmethod
    def current(_like: Any) -> Any:
        return None

    @staticmethod
    def synchronize(_like: Any) -> None:
        """Nothing to wait for."""


Library = type[Numpy] | type[Cupy] | type[Torch] | type[Jax]


#: The library of each type that was seen.
_LIBRARIES: dict[type, Library] = {np.ndarray: Numpy}


def library_of(array: Any) -> Library:
    """The library whose array this is; NumPy's for lists and numbers."""
    kind = type(array)
    library = _LIBRARIES.get(kind)
    if library is None:
        library = _LIBRARIES[kind] = _library_of_type(kind)
    return library


def _library_of_type(kind: type) -> Library:
    # Subclasses, such as the parameters of a torch module, belong to the library of their base.
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if package == "numpy":
            return Numpy
        if package == "cupy":
            return Cupy
        if package == "torch":
            return Torch
        if package in ("jaxlib", "jax"):
            jax = sys.modules.get("jax")
            if jax is not None and issubclass(kind, jax.core.Tracer):
                raise OptionError(
                    "an array is traced by jax: expected a call of sparsebatch.jax.solve within "
                    "jit, grad and vmap"
                )
            return Jax
    return Numpy


def floats(name: str, array: Any) -> np.ndarray:
    """An array in host memory of float64 or float32, in C order; a view where it is one already.

    Integers become float64. Other kinds of numbers are refused by their name.
    """
    host = library_of(array).host(array)
    if isinstance(host, np.ma.MaskedArray):
        raise OptionError(f"{name} is a masked array, which has no meaning here: fill it")
    kind, dtype = host.dtype.kind, host.dtype
    if kind in "iu":
        host = host.astype(np.float64)
    elif kind != "f" or dtype.itemsize not in (4, 8):
        raise OptionError(f"{name} has elements of {dtype}, expected float64 or float32")
    elif not dtype.isnative:
        host = host.astype(dtype.newbyteorder("="))
    return np.require(host, requirements=["C", "A"])


def indices(name: str, array: Any) -> np.ndarray:
    """Indices of any integer type as int64, in host memory."""
    host = library_of(array).host(array)
    if host.dtype.kind not in "iu":
        if host.size == 0 and host.dtype.kind == "f":
            return host.astype(np.int64)
        raise OptionError(f"{name} has elements of {host.dtype}, expected integers")
    if host.dtype == np.uint64 and host.size and host.max() > np.iinfo(np.int64).max:
        raise OptionError(f"{name} has an element of {host.max()}, more than 2**63 - 1")
    return host.astype(np.int64, copy=False)


def narrow(name: str, array: np.ndarray) -> np.ndarray:
    """Indices as int32, checked, in C order."""
    if array.dtype != np.int32:
        limits = np.iinfo(np.int32)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            found = array.max() if array.max() > limits.max else array.min()
            raise OptionError(f"{name} has an element of {found}, expected numbers below 2**31")
        array = array.astype(np.int32)
    return np.ascontiguousarray(array)


def check_float(name: str, dtype: str) -> None:
    """Refuses arrays on a GPU that are not of float64 or float32."""
    if dtype not in _FLOATS:
        raise OptionError(f"{name} has elements of {dtype}, expected float64 or float32")
