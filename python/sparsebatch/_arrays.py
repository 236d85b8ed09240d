"""Arrays of NumPy, CuPy, PyTorch and JAX: where they lie, their addresses, results of their kind.

A *library* here is one of the classes below: it knows the arrays of one package. Packages are
never imported for this; an array that is given shows that its package is there.
"""

from __future__ import annotations

import math
import sys
from typing import Any, ClassVar

import numpy as np

from . import _native
from .errors import OptionError, Unsupported

#: Address and number of elements of an array on a GPU.
Address = tuple[int, int]

_FLOATS = ("float64", "float32")

#: Packages whose arrays have a class below.
KNOWN_PACKAGES = frozenset(("numpy", "cupy", "torch", "jax", "jaxlib"))

#: Names of the types of elements that were seen; to make one from a type takes a microsecond.
_NAMES: dict[Any, str] = {}


def _dtype_name(dtype: Any) -> str:
    name = _NAMES.get(dtype)
    if name is None:
        name = _NAMES[dtype] = str(dtype).removeprefix("torch.")
    return name


class Library:
    """What the package asks of an array library. Its classes are used as they are."""

    name: ClassVar[str]

    @staticmethod
    def device(_array: Any) -> int | None:
        """The number of the GPU that an array lies on; `None` for host memory."""
        raise NotImplementedError

    @staticmethod
    def dtype(_array: Any) -> str:
        """The name of the type of elements."""
        raise NotImplementedError

    @staticmethod
    def host(_array: Any) -> np.ndarray:
        """The array in host memory."""
        raise NotImplementedError

    @staticmethod
    def empty(_shape: tuple[int, ...], _dtype: str, _like: Any) -> Any:
        """A new array beside another one."""
        raise NotImplementedError

    @staticmethod
    def wrap(_array: np.ndarray, _like: Any) -> Any:
        """A NumPy array as an array of this library beside another one."""
        raise NotImplementedError

    @staticmethod
    def copy(_target: Any, _source: Any) -> None:
        """Overwrites an array."""
        raise NotImplementedError

    @staticmethod
    def contiguous(array: Any) -> Any:
        """The array in C order; itself if it is."""
        return array

    # On a GPU:

    @staticmethod
    def address(_array: Any) -> Address:
        """Where an array lies."""
        raise NotImplementedError

    @staticmethod
    def in_order(_array: Any) -> bool:
        """Whether an array is in C order."""
        return True

    @staticmethod
    def hold(_array: Any, _stream: int) -> None:
        """Keeps memory from others that work on a stream uses. What is enqueued holds the array,
        which suffices for most libraries."""

    @staticmethod
    def stream(_array: Any) -> int:
        """The address of the current stream."""
        return 0

    @staticmethod
    def current(_array: Any) -> Any:
        """The current stream, as an object that keeps it alive."""
        return None

    @staticmethod
    def synchronize(_array: Any) -> None:
        """Waits for the current stream."""


class Numpy(Library):
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
        return array


class Cupy(Library):
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
    def in_order(array: Any) -> bool:
        return bool(array.flags.c_contiguous)

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
        return sys.modules["cupy"].cuda.get_current_stream(like.data.device_id)

    @staticmethod
    def synchronize(like: Any) -> None:
        Cupy.current(like).synchronize()


class Torch(Library):
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
    def in_order(array: Any) -> bool:
        return bool(array.is_contiguous())

    @staticmethod
    def hold(array: Any, stream: int) -> None:
        """Tells the allocator that another stream than that of the tensor uses its memory."""
        if Torch.stream(array) != stream:
            cuda = sys.modules["torch"].cuda
            array.record_stream(cuda.ExternalStream(stream, device=array.device))

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
        # To make an object of the stream takes most of a call.
        raw = getattr(sys.modules["torch"]._C, "_cuda_getCurrentRawStream", None)
        return int(Torch.current(like).cuda_stream if raw is None else raw(like.get_device()))

    @staticmethod
    def current(like: Any) -> Any:
        return sys.modules["torch"].cuda.current_stream(like.device)

    @staticmethod
    def synchronize(like: Any) -> None:
        Torch.current(like).synchronize()


class Jax(Library):
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

    # Arrays are ready before their address is taken: no stream is waited for.


class DeviceView:
    """An array on a GPU of a library that is not known: where it lies, and who keeps it.

    `stream`: the stream after whose work it may be read; `None` if at once.
    """

    __slots__ = (
        "address", "device", "numpy_dtype", "owner", "readonly", "shape", "stream", "strides",
    )  # fmt: skip

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        dtype: np.dtype[Any],
        device: int,
        stream: int | None,
        readonly: bool,
        owner: Any,
    ):
        self.address, self.shape, self.numpy_dtype = address, shape, dtype
        # Those of arrays in C order say nothing.
        self.strides = None if strides == _c_strides(shape, dtype.itemsize) else strides
        self.device, self.stream, self.readonly, self.owner = device, stream, readonly, owner

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def _c_strides(self) -> tuple[int, ...]:
        return _c_strides(self.shape, self.numpy_dtype.itemsize)

    @property
    def is_contiguous(self) -> bool:
        if self.strides is None or self.size == 0:
            return True
        # The stride of a dimension of length 1 has no meaning.
        plain = zip(self.shape, self.strides, self._c_strides, strict=True)
        return all(length == 1 or stride == c for length, stride, c in plain)

    def swapaxes(self, one: int, other: int) -> DeviceView:
        strides = list(self.strides or self._c_strides)
        shape = list(self.shape)
        for axes in (shape, strides):
            axes[one], axes[other] = axes[other], axes[one]
        return self._like(tuple(shape), tuple(strides))

    def reshape(self, *shape: Any) -> DeviceView:
        if len(shape) == 1 and isinstance(shape[0], tuple):
            shape = shape[0]
        return self._like(tuple(shape), None)

    def _like(self, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> DeviceView:
        rest = self.numpy_dtype, self.device, self.stream, self.readonly, self
        return DeviceView(self.address, shape, strides, *rest)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.numpy_dtype.str,
            "data": (self.address, self.readonly),
            "stream": 1 if self.stream == 0 else self.stream,
            "version": 3,
        }


def _c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


class Foreign(Library):
    """Arrays on a GPU of libraries that are not known, as `DeviceView`. New arrays are CuPy's."""

    name = "foreign"

    @staticmethod
    def cupy(what: str) -> Any:
        from ._foreign import cupy_or_none

        cupy = cupy_or_none()
        if cupy is None:
            raise Unsupported(f"{what} needs CuPy, which is not installed")
        return cupy

    @staticmethod
    def device(array: DeviceView) -> int:
        return array.device

    @staticmethod
    def dtype(array: DeviceView) -> str:
        return _dtype_name(array.numpy_dtype)

    @staticmethod
    def host(array: DeviceView) -> np.ndarray:
        if not array.is_contiguous:
            return Foreign.contiguous(array).get()
        if array.size == 0:
            return np.empty(array.shape, array.numpy_dtype)
        bytes_ = array.size * array.numpy_dtype.itemsize
        data = _native.to_host(array.device, array.stream or 0, array.address, bytes_)
        return np.frombuffer(data, array.numpy_dtype).reshape(array.shape).copy()

    @staticmethod
    def address(array: DeviceView) -> Address:
        return array.address, array.size

    @staticmethod
    def in_order(array: DeviceView) -> bool:
        return array.is_contiguous

    @staticmethod
    def contiguous(array: DeviceView) -> Any:
        if array.is_contiguous:
            return array
        cupy = Foreign.cupy("an array that is not in C order, of an unknown library,")
        with cupy.cuda.Device(array.device):
            return cupy.ascontiguousarray(cupy.asarray(array))

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: str, like: DeviceView) -> Any:
        cupy = Foreign.cupy("a result without out, on a GPU, for arrays of an unknown library,")
        with cupy.cuda.Device(like.device):
            return cupy.empty(shape, dtype)

    @staticmethod
    def copy(target: DeviceView, source: Any) -> None:
        cupy = Foreign.cupy("a copy to an array of an unknown library")
        with cupy.cuda.Device(target.device):
            cupy.asarray(target)[...] = cupy.asarray(source)
            cupy.cuda.get_current_stream().synchronize()

    @staticmethod
    def wrap(array: np.ndarray, like: DeviceView) -> Any:
        cupy = Foreign.cupy("an array on a GPU, beside arrays of an unknown library,")
        with cupy.cuda.Device(like.device):
            return cupy.asarray(array)

    @staticmethod
    def stream(array: DeviceView) -> int:
        return array.stream or 0

    @staticmethod
    def current(array: DeviceView) -> Any:
        return array.owner

    @staticmethod
    def synchronize(array: DeviceView) -> None:
        """Waits for the stream of the producer."""
        if array.stream is not None and array.size:
            _native.synchronize(array.device, array.stream)


#: The library of each type that was seen.
_LIBRARIES: dict[type, type[Library]] = {np.ndarray: Numpy, DeviceView: Foreign}


def library_of(array: Any) -> type[Library]:
    """The library whose array this is; NumPy's for lists and numbers."""
    kind = type(array)
    library = _LIBRARIES.get(kind)
    if library is None:
        library = _LIBRARIES[kind] = _library_of_type(kind)
    return library


def _library_of_type(kind: type) -> type[Library]:
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
    array = _adopted(name, array)
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
    return in_own_order(np.require(host, requirements=["C", "A"]))


def in_own_order(array: np.ndarray) -> np.ndarray:
    """The array under a type that does not spell out the machine's own order of bytes, as those of
    ctypes do: the native part would not know it."""
    if array.dtype.byteorder in "=|":
        return array
    return array.view(array.dtype.newbyteorder("="))


def indices(name: str, array: Any) -> np.ndarray:
    """Indices of any integer type as int64, in host memory."""
    array = _adopted(name, array)
    host = library_of(array).host(array)
    if host.dtype.kind not in "iu":
        if host.size == 0 and host.dtype.kind == "f":
            return host.astype(np.int64)
        raise OptionError(f"{name} has elements of {host.dtype}, expected integers")
    if host.dtype == np.uint64 and host.size and host.max() > np.iinfo(np.int64).max:
        raise OptionError(f"{name} has an element of {host.max()}, more than 2**63 - 1")
    return in_own_order(host.astype(np.int64, copy=False))


def _adopted(name: str, array: Any) -> Any:
    if type(array) is np.ndarray:
        return array
    from ._foreign import adopt

    return adopt(name, array)


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
