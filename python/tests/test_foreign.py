"""Arrays of libraries that the package does not know, by the protocols that arrays have."""

from __future__ import annotations

import array as standard_array
import ctypes

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import sparsebatch
from sparsebatch import Batch, OptionError, Solver, Spmv, Unsupported, _native
from sparsebatch._arrays import DeviceView, Foreign, floats, indices
from sparsebatch._foreign import adopt
from producers import ByArray, ByDlpack, ByInterface, ByOldDlpack, OnGpu, capsule
from systems import tridiagonal

CPU = {"backend": "cpu"}
A = tridiagonal(6)
VALUES = A.data * np.array([[1.0], [1.5], [2.0]])
B = np.arange(18.0).reshape(3, 6) + 1


WRAPPERS = [ByDlpack, ByOldDlpack, ByInterface, ByArray]
EXPECTED = sparsebatch.solve(Batch.uniform(A.indptr, A.indices, VALUES), B, **CPU).x


@pytest.mark.parametrize("wrap", WRAPPERS)
class TestHost:
    """Arrays in host memory."""

    def test_all_arrays_of_a_solve(self, wrap):
        batch = Batch.uniform(wrap(A.indptr), wrap(A.indices), wrap(VALUES))
        assert np.shares_memory(batch.values, VALUES)
        result = sparsebatch.solve(batch, wrap(B), wrap(0.5 * B), rtol=wrap(np.full(3, 1e-12)), **CPU)
        assert type(result.x) is np.ndarray
        assert result.report.all_converged
        np.testing.assert_allclose(result.x, EXPECTED, rtol=1e-9)

    def test_values_and_shifts_of_a_solver(self, wrap):
        batch = Batch.uniform(A.indptr, A.indices, 2 * VALUES)
        with Solver(batch, **CPU) as solver:
            solver.update_values(wrap(VALUES))
            assert_array_equal(solver.solve(wrap(B)).x, EXPECTED)
            gradient = solver.value_gradient(wrap(B), wrap(EXPECTED))
            assert_array_equal(gradient, solver.value_gradient(B, EXPECTED))
            solver.update_values(wrap(VALUES), shift=wrap(np.array([0.1, 0.2, 0.3])))
            assert solver.solve(B).report.all_converged

    def test_the_functions_of_scipy(self, wrap):
        import sparsebatch.scipy as like_scipy

        x, info = like_scipy.cg(A, wrap(B[0]), wrap(B[0]), rtol=1e-12, **CPU)
        assert info == 0
        np.testing.assert_allclose(x, EXPECTED[0] * VALUES[0, 0] / A.data[0], rtol=1e-9)

    def test_ragged_lists_and_products(self, wrap):
        batch = Batch.ragged(
            nrows=wrap(np.array([6, 6])), indptr=wrap(np.tile(A.indptr, 2)),
            indices=wrap(np.tile(A.indices, 2)), values=wrap(VALUES[:2].ravel()),
        )  # fmt: skip
        x = sparsebatch.solve(batch, [wrap(B[0]), wrap(B[1])], **CPU).x
        np.testing.assert_allclose(x, EXPECTED[:2].ravel(), rtol=1e-9)
        product = Spmv(batch)(wrap(x))
        np.testing.assert_allclose(product, B[:2].ravel(), rtol=1e-9)


@pytest.mark.parametrize("wrap", [ByDlpack, ByOldDlpack, ByInterface])
class TestOutputs:
    """`out=` and `y=` of a library that is not known."""

    def outputs(self, wrap):
        many = np.zeros((3, 12))
        if wrap is ByOldDlpack:
            pytest.skip("its capsules do not say that they may be written to")
        return np.zeros((3, 6)), many[:, ::2]

    def test_solutions_are_written_there(self, wrap):
        batch = Batch.uniform(A.indptr, A.indices, VALUES)
        for memory in self.outputs(wrap):
            out = wrap(memory)
            result = sparsebatch.solve(batch, B, out=out, **CPU)
            assert result.x is out
            assert_array_equal(memory, EXPECTED)

    def test_products_are_written_there(self, wrap):
        product = Spmv(Batch.uniform(A.indptr, A.indices, VALUES))
        for memory in self.outputs(wrap):
            y = wrap(memory)
            assert product(B, y=y) is y
            assert_array_equal(memory, product(B))


def test_what_cannot_be_written_to_is_refused():
    batch = Batch.uniform(A.indptr, A.indices, VALUES)
    memory = np.zeros((3, 6))
    memory.flags.writeable = False
    for out in (ByDlpack(memory), ByInterface(memory), ByOldDlpack(np.zeros((3, 6)))):
        with pytest.raises(OptionError, match="^out is read-only, expected an array to write to$"):
            sparsebatch.solve(batch, B, out=out, **CPU)
    # What `__array__` returns may be a copy.
    with pytest.raises(OptionError, match="^out is a ByArray, expected an array$"):
        sparsebatch.solve(batch, B, out=ByArray(np.zeros((3, 6))), **CPU)


def test_capsules_without_a_version_are_written_to_by_another_protocol():
    class Both(ByOldDlpack, ByInterface):
        pass

    memory = np.zeros((3, 6))
    sparsebatch.solve(Batch.uniform(A.indptr, A.indices, VALUES), B, out=Both(memory), **CPU)
    assert_array_equal(memory, EXPECTED)


def test_what_dlpack_refuses_goes_by_another_protocol():
    class Both(ByDlpack, ByArray):
        pass

    swapped = B.astype(">f8")
    batch = Batch.uniform(A.indptr, A.indices, VALUES)
    assert_array_equal(sparsebatch.solve(batch, Both(swapped), **CPU).x, EXPECTED)


def test_views_that_are_not_plain():
    batch = Batch.uniform(A.indptr, A.indices, VALUES)
    strided, reverse = np.zeros((3, 12)), B[:, ::-1].copy()
    strided[:, ::2] = B
    for b in (strided[:, ::2], reverse[:, ::-1], np.asfortranarray(B)):
        assert_array_equal(sparsebatch.solve(batch, ByDlpack(b), **CPU).x, EXPECTED)
    swapped = B.astype(">f8")
    assert_array_equal(sparsebatch.solve(batch, ByInterface(swapped), **CPU).x, EXPECTED)
    with pytest.raises(OptionError, match=r"^b: __dlpack__ of a ByDlpack failed with BufferError"):
        sparsebatch.solve(batch, ByDlpack(swapped), **CPU)
    empty = Batch.uniform(A.indptr, A.indices, ByDlpack(VALUES[:0]))
    assert sparsebatch.solve(empty, ByDlpack(B[:0]), **CPU).x.shape == (0, 6)


def test_elements_are_told_by_their_name():
    for dtype in ("float16", "complex128", "bool"):
        for wrap in (ByDlpack, ByInterface, ByArray):
            with pytest.raises(OptionError, match=f"^b has elements of {dtype}"):
                floats("b", wrap(np.zeros(3, dtype)))
    assert floats("b", ByDlpack(np.arange(3))).dtype == np.float64
    assert indices("indptr", ByDlpack(np.arange(3, dtype=np.uint8))).dtype == np.int64


def test_types_that_spell_out_their_order():
    # Those of ctypes do.
    def from_ctypes(array):
        kind = np.ctypeslib.as_ctypes_type(array.dtype)
        return np.ctypeslib.as_array((kind * array.size)(*array.ravel())).reshape(array.shape)

    batch = Batch.uniform(from_ctypes(A.indptr), from_ctypes(A.indices), from_ctypes(VALUES))
    out = from_ctypes(np.zeros((3, 6)))
    assert out.dtype.byteorder == "<"
    assert sparsebatch.solve(batch, from_ctypes(B), from_ctypes(B), out=out, **CPU).x is out
    np.testing.assert_allclose(out, EXPECTED, rtol=1e-9)


def test_the_standard_librarys_arrays():
    assert_array_equal(floats("b", standard_array.array("d", [1.0, 2.0])), [1.0, 2.0])
    assert_array_equal(floats("b", memoryview(np.arange(2.0))), [0.0, 1.0])


# Hostile producers --------------------------------------------------------------------------------


def hostile(**members):
    return type("Hostile", (), members)()


def raising(error):
    def method(*_args, **_options):
        raise error

    return method


DEVICE_OF_HOST = {"__dlpack_device__": lambda self: (1, 0)}


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            hostile(__dlpack__=raising(ZeroDivisionError("a\nb")), **DEVICE_OF_HOST),
            "b: __dlpack__ of a Hostile failed with ZeroDivisionError: a",
        ),
        (
            hostile(__dlpack__=raising(RuntimeError()), **DEVICE_OF_HOST),
            "b: __dlpack__ of a Hostile failed with RuntimeError: ",
        ),
        (
            hostile(__dlpack__=lambda self, **_: B.__dlpack__(), __dlpack_device__=lambda self: 7),
            "b: __dlpack_device__ of a Hostile failed with TypeError: "
            "cannot unpack non-iterable int object",
        ),
        (
            hostile(__array_interface__=property(raising(KeyError("x")))),
            "b: __array_interface__ of a Hostile failed with KeyError: 'x'",
        ),
        (
            hostile(__array_interface__={**B.__array_interface__, "mask": ByInterface(B)}),
            "b has a mask, which has no meaning here: fill the array",
        ),
        (
            hostile(__array__=raising(OSError("gone"))),
            "b: __array__ of a Hostile failed with OSError: gone",
        ),
    ],
)
def test_what_producers_raise_is_one_sentence(array, message):
    with pytest.raises(OptionError) as caught:
        floats("b", array)
    assert str(caught.value) == message


@pytest.mark.parametrize("nonsense", [None, 3, "capsule", ctypes.py_object()])
def test_nonsense_instead_of_a_capsule(nonsense):
    with pytest.raises(OptionError, match="^b: __dlpack__ of a Hostile failed with"):
        floats("b", hostile(__dlpack__=lambda self, **_: nonsense, **DEVICE_OF_HOST))


def test_ctrl_c_and_memory_errors_pass_through():
    for error in (KeyboardInterrupt, MemoryError):
        with pytest.raises(error):
            floats("b", hostile(__dlpack__=raising(error), **DEVICE_OF_HOST))


def test_other_devices_are_refused_by_their_name():
    for kind, name in ((10, "ROCm"), (14, "oneAPI"), (77, "a device of kind 77")):
        array = hostile(__dlpack__=raising(AssertionError), __dlpack_device__=lambda self, k=kind: (k, 0))
        with pytest.raises(Unsupported) as caught:
            floats("b", array)
        assert str(caught.value) == f"b lies on {name}, expected host memory or a GPU of CUDA"


# Arrays on a GPU, as far as they go without one ---------------------------------------------------


def interface(**changes):
    plain = {"shape": (3, 6), "typestr": "<f8", "data": (4096, False), "version": 3}
    return hostile(__cuda_array_interface__={**plain, **changes})


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (hostile(__cuda_array_interface__=7), "is a int, expected a dict"),
        (hostile(__cuda_array_interface__={"shape": (1,)}), "has no 'typestr'"),
        (interface(version=4), "has version 4, expected 0 to 3"),
        (interface(version="3"), "has version '3', expected 0 to 3"),
        (interface(mask=B), "has a mask, which has no meaning here: fill the array"),
        (interface(typestr="nonsense"), "has typestr 'nonsense', expected such as '<f8'"),
        (interface(typestr=">f8"), "has typestr '>f8', in the other order of bytes"),
        (interface(data=4096), "has data 4096, expected an address and whether it is read-only"),
        (interface(stream=0), "has stream 0, expected None, or 1, 2 or an address"),
        (interface(stream="s"), "has stream 's', expected None, or 1, 2 or an address"),
    ],
)
def test_interfaces_that_say_nonsense(array, message):
    with pytest.raises(OptionError) as caught:
        adopt("b", array)
    assert str(caught.value) == f"b: __cuda_array_interface__ of a Hostile {message}"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (interface(shape=(3, -6)), r"b has shape \(3, -6\), expected a tuple of numbers"),
        (interface(shape=6), "b has shape 6, expected a tuple of numbers"),
        (interface(strides=(8,)), "b has 1 strides, expected one for each of 2 dimensions"),
        (interface(strides=("x", 8)), r"b has strides \('x', 8\), expected a tuple of numbers"),
        (interface(data=(0, False)), "b has address 0x0, expected memory of a GPU"),
        (interface(data=(4100, False)), "b has address 0x1004, which is not aligned for float64"),
        (hostile(__cuda_array_interface__=property(raising(ValueError("nulls")))),
         "b: __cuda_array_interface__ of a Hostile failed with ValueError: nulls"),
    ],
)  # fmt: skip
def test_places_that_cannot_be(array, message):
    with pytest.raises(OptionError, match=f"^{message}$"):
        adopt("b", array)


def test_an_address_needs_a_gpu_that_has_it():
    with pytest.raises((sparsebatch.GpuError, OptionError)) as caught:
        adopt("b", interface())
    assert "driver" in str(caught.value) or "memory of a GPU" in str(caught.value)


def test_arrays_of_no_elements_need_no_gpu():
    view = adopt("b", interface(shape=(0, 6), data=(0, False), typestr="<f4"))
    assert isinstance(view, DeviceView)
    assert (view.size, Foreign.dtype(view), view.stream) == (0, "float32", None)
    assert Foreign.host(view).shape == (0, 6)


@pytest.mark.parametrize("version", [None, (1, 0), (1, 3)])
def test_a_tensor_on_a_gpu_is_taken_out_of_its_capsule(version):
    producer = OnGpu(B.T, version=version, flags=1)
    view = adopt("b", producer)
    assert isinstance(view, DeviceView)
    assert (view.address, view.shape, view.device) == (B.ctypes.data, (6, 3), 0)
    assert view.strides == (8, 48)
    assert not view.is_contiguous
    assert view.readonly == (version is not None)
    assert view.swapaxes(0, 1).is_contiguous
    assert view.__cuda_array_interface__["stream"] == 1
    assert producer.deleted == []
    del view
    assert len(producer.deleted) == 1


def test_a_capsule_is_consumed_once():
    made = capsule(B, (2, 0), [])
    managed = _native.ManagedArray(made)
    assert (managed.device, managed.dtype, managed.shape) == ((2, 0), (2, 64, 1), [3, 6])
    with pytest.raises(BufferError, match="or one that was used$"):
        _native.ManagedArray(made)


@pytest.mark.parametrize(
    ("producer", "message"),
    [
        (OnGpu(B, has=(1, 0)), r"b: __dlpack_device__ says \(2, 0\), the tensor of __dlpack__ \(1, 0\)"),
        (OnGpu(B, has=(2, 1)), r"b: __dlpack_device__ says \(2, 0\), the tensor of __dlpack__ \(2, 1\)"),
        (OnGpu(B, version=(2, 0)), "b: __dlpack__ of a OnGpu failed with BufferError: "
         "the capsule has DLPack version 2.0, expected 1"),
        (OnGpu(B, ndim=-1), "b: .* the tensor has -1 dimensions and no shape for them"),
        (OnGpu(B, ndim=1 << 30), "b: .* the tensor has 1073741824 dimensions and no shape for them"),
        (OnGpu(B, code=4, bits=16), "b has elements of code 4 of DLPack with 16 bits, expected .*"),
        (OnGpu(B, bits=4), "b has elements of code 2 of DLPack with 4 bits, expected .*"),
        (OnGpu(B, lanes=4), "b has elements of code 2 of DLPack with 64 bits, expected .*"),
    ],
)  # fmt: skip
def test_tensors_that_cannot_be(producer, message):
    with pytest.raises(OptionError, match=f"^{message}$"):
        adopt("b", producer)
    if "version" not in producer.changes:
        assert len(producer.deleted) == 1


def test_elements_of_a_tensor_on_a_gpu_have_names():
    view = adopt("values", OnGpu(np.zeros((3, len(A.data)), np.int32), code=0, bits=32))
    with pytest.raises(OptionError, match="^values has elements of int32, expected float64 or"):
        Batch.uniform(A.indptr, A.indices, view)


def test_values_on_a_gpu_do_not_meet_vectors_on_the_host():
    batch = Batch.uniform(A.indptr, A.indices, OnGpu(VALUES))
    assert repr(batch).endswith("float64, on cuda:0")
    if sparsebatch.gpu_unavailable() is not None:
        # Elsewhere a GPU would read the memory that it is told it has.
        with pytest.raises(sparsebatch.GpuError):
            sparsebatch.solve(batch, B)
    with pytest.raises(OptionError, match="^backend is 'cpu', but the values lie on cuda:0"):
        sparsebatch.solve(batch, B, backend="cpu")


def test_out_on_a_gpu_that_is_read_only():
    from sparsebatch._vectors import Frame, writable

    frame = Frame(Batch.uniform(A.indptr, A.indices, VALUES), 1)
    with pytest.raises(OptionError, match="^out is read-only"):
        writable(frame, adopt("out", OnGpu(B, flags=1), to_write=True))
