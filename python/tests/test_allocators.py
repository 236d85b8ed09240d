"""Allocators of GPU memory of the caller: what can be seen without a GPU."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import sparsebatch
from sparsebatch import Batch, GpuError, OptionError, OutOfMemory, Solver, _native
from sparsebatch._allocators import allocator_of
from systems import tridiagonal


class Recorder:
    """An allocator of addresses that nobody reads."""

    def __init__(self):
        self.calls, self.threads = [], set()

    def malloc(self, nbytes, stream):
        self.threads.add(threading.get_ident())
        self.calls.append(("malloc", nbytes, stream))
        return 0x1000

    def free(self, address, nbytes, stream):
        self.calls.append(("free", address, nbytes, stream))


def test_an_allocator_is_tried_out_when_a_solver_is_made():
    recorder = Recorder()
    assert isinstance(allocator_of(recorder, "cupy", 0, 77), _native.Allocator)
    assert recorder.calls == [("malloc", 256, 77), ("free", 0x1000, 256, 77)]


def test_it_may_be_called_from_any_thread():
    recorder = Recorder()
    allocator = _native.Allocator(recorder.malloc, recorder.free)
    threads = [threading.Thread(target=allocator.try_out, args=(512, 0)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorder.calls) == 8


class OutOfMemoryError(RuntimeError):
    """As PyTorch's."""


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (MemoryError("full\nof things"), OutOfMemory, "MemoryError: full"),
        (OutOfMemoryError("CUDA out of memory"), OutOfMemory, "OutOfMemoryError: CUDA out of memory"),
        (KeyError("x"), GpuError, "KeyError: 'x'"),
    ],
)
def test_what_malloc_raises_is_told(raised, expected, message):
    recorder = Recorder()

    def malloc(nbytes, stream):
        raise raised

    recorder.malloc = malloc
    with pytest.raises(GpuError) as caught:
        allocator_of(recorder, "cupy", 0, 0)
    assert type(caught.value) is expected
    assert str(caught.value) == f"the allocator of GPU memory raised {message}"
    assert caught.value.__cause__ is raised
    assert recorder.calls == []


def test_ctrl_c_in_malloc_passes_through():
    recorder = Recorder()

    def malloc(nbytes, stream):
        raise KeyboardInterrupt

    recorder.malloc = malloc
    with pytest.raises(KeyboardInterrupt):
        allocator_of(recorder, "cupy", 0, 0)


@pytest.mark.parametrize("answer", [0, 0x1001, -1, None, "address", 2**70])
def test_nonsense_from_malloc(answer):
    recorder = Recorder()
    recorder.malloc = lambda nbytes, stream: answer
    with pytest.raises(GpuError, match="^the allocator of GPU memory raised"):
        allocator_of(recorder, "cupy", 0, 0)


def test_what_free_raises_is_told_as_that_of_a_destructor(monkeypatch):
    recorder, seen = Recorder(), []
    recorder.free = lambda *_: 1 / 0
    monkeypatch.setattr("sys.unraisablehook", lambda told: seen.append(told.exc_type))
    allocator_of(recorder, "cupy", 0, 0)
    assert seen == [ZeroDivisionError]


def test_names_and_objects_that_are_no_allocators(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(OptionError, match="^allocator is 'rmm', expected 'torch', 'cupy', 'driver'"):
        allocator_of("rmm", "cupy", 0, 0)
    with pytest.raises(OptionError, match="^allocator is a int, expected an object with functions"):
        allocator_of(7, "cupy", 0, 0)
    with pytest.raises(OptionError, match="^allocator is 'cupy', which is not installed$"):
        allocator_of("cupy", "torch", 0, 0)
    assert allocator_of(None, "cupy", 0, 0) is None
    assert allocator_of("driver", "torch", 0, 0) is None


def test_values_in_host_memory_take_none():
    a = tridiagonal(4)
    batch = Batch.uniform(a.indptr, a.indices, a.data)
    for make in (Solver, lambda *args, **rest: sparsebatch.solve(*args, np.ones(4), **rest)):
        with pytest.raises(OptionError, match="^allocator is given, but the values lie in host"):
            make(batch, allocator="torch")


def test_out_of_memory_is_a_memory_error():
    assert issubclass(OutOfMemory, MemoryError) and issubclass(OutOfMemory, GpuError)
