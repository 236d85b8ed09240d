//! Memory of the emulator.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use sparsebatch_cuda::{KernelBuffer, Pod};

/// Alignment of a buffer, as of `cudaMalloc`.
const ALIGNMENT: usize = 256;
/// Byte that fills memory not yet set.
const UNSET: u8 = 0xff;
const GUARD: u8 = 0xa5;
/// Alignment of sparse memory and size of its guards, which are inaccessible pages.
const PAGE: usize = 1 << 16;

/// Size of a guard in bytes; 0 with a sanitizer, which watches the edges of an allocation better
/// than a guard does, reads included.
fn guard_bytes() -> usize {
    static BYTES: LazyLock<usize> = LazyLock::new(|| match crate::sanitizer() {
        Ok(None) => ALIGNMENT,
        Ok(Some(_)) => 0,
        Err(reason) => panic!("{reason}"),
    });
    *BYTES
}

/// Host memory with a guard on either side.
pub struct HostBuffer<T> {
    memory: NonNull<u8>,
    len: usize,
    kind: Memory,
    values: PhantomData<T>,
}

enum Memory {
    /// Heap memory, counted in the emulator's bytes in use.
    Heap(Arc<AtomicU64>),
    /// Reserved address space; only written pages occupy memory, the others read as 0.
    Sparse,
}

// SAFETY: the memory is the buffer's own and belongs to no thread; values are reached through
// borrows of the buffer, and launches order what kernels write.
unsafe impl<T: Send> Send for HostBuffer<T> {}
// SAFETY: as above; a shared buffer is only read.
unsafe impl<T: Sync> Sync for HostBuffer<T> {}

impl<T: Pod> HostBuffer<T> {
    /// Allocates `len` unset values; their bytes are counted in `in_use`.
    pub(crate) fn new(len: usize, in_use: &Arc<AtomicU64>) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        let bytes = len * size_of::<T>();
        // SAFETY: the memory holds a guard, the values and another guard.
        unsafe {
            memory.write_bytes(GUARD, layout.size());
            memory.add(guard_bytes()).write_bytes(UNSET, bytes);
        }
        in_use.fetch_add(bytes as u64, Ordering::Relaxed);
        Self { memory, len, kind: Memory::Heap(Arc::clone(in_use)), values: PhantomData }
    }

    /// `len` zeros, however many: a page occupies memory once it is written. `None` if the system
    /// does not reserve address space without memory behind it.
    pub(crate) fn sparse(len: usize) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let bytes = Self::mapped_bytes(len);
        // SAFETY: new memory, at an address of the system's choice.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return None;
        }
        let memory = NonNull::new(memory.cast::<u8>())?;
        let buffer = Self { memory, len, kind: Memory::Sparse, values: PhantomData };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the inner pages of the memory just mapped.
        let opened =
            unsafe { libc::mprotect(memory.add(PAGE).as_ptr().cast(), bytes - 2 * PAGE, access) };
        (opened == 0).then_some(buffer)
    }

    /// Overwrites the values from index `first` on.
    pub fn set(&mut self, first: usize, values: &[T]) {
        self.values_mut()[first..first + values.len()].copy_from_slice(values);
    }

    /// Returns `len` values from index `first` on.
    pub fn get(&self, first: usize, len: usize) -> Vec<T> {
        self.values()[first..first + len].to_vec()
    }

    pub(crate) fn values(&self) -> &[T] {
        // SAFETY: `len` values follow the guard; every bit pattern is a value; kernels write only
        // during a launch, which borrows the buffer or runs between calls of this function.
        unsafe { std::slice::from_raw_parts(self.address(), self.len) }
    }

    pub(crate) fn values_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `values`, and the buffer is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.len) }
    }
}

impl<T> HostBuffer<T> {
    fn layout(len: usize) -> Layout {
        let bytes = (len * size_of::<T>() + 2 * guard_bytes()).max(1);
        Layout::from_size_align(bytes, ALIGNMENT).expect("tests use little memory")
    }

    /// Size of the address space of sparse values and their guards.
    fn mapped_bytes(len: usize) -> usize {
        (len * size_of::<T>()).max(1).next_multiple_of(PAGE) + 2 * PAGE
    }

    fn address(&self) -> *mut T {
        let offset = match self.kind {
            Memory::Heap(_) => guard_bytes(),
            // The values end at the beginning of the guard, as closely as their alignment allows.
            Memory::Sparse => {
                let end = Self::mapped_bytes(self.len) - PAGE;
                (end - self.len * size_of::<T>()) / ALIGNMENT * ALIGNMENT
            }
        };
        // SAFETY: within the memory.
        unsafe { self.memory.add(offset).as_ptr().cast() }
    }

    pub(crate) fn assert_guards(&self) {
        if matches!(self.kind, Memory::Sparse) {
            return;
        }
        let end = guard_bytes() + self.len * size_of::<T>();
        for first in [0, end] {
            // SAFETY: both guards are part of the memory and were written in `new`.
            let guard = unsafe {
                std::slice::from_raw_parts(self.memory.add(first).as_ptr(), guard_bytes())
            };
            let whole = guard.iter().all(|&byte| byte == GUARD);
            assert!(whole, "a kernel wrote beside a buffer of {} values", self.len);
        }
    }
}

impl<T> Drop for HostBuffer<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_guards();
        }
        match &self.kind {
            Memory::Heap(in_use) => {
                in_use.fetch_sub((self.len * size_of::<T>()) as u64, Ordering::Relaxed);
                // SAFETY: the memory was allocated with this layout.
                unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.len)) };
            }
            // SAFETY: the memory was mapped with this size.
            Memory::Sparse => unsafe {
                libc::munmap(self.memory.as_ptr().cast(), Self::mapped_bytes(self.len));
            },
        }
    }
}

impl<T: Pod> KernelBuffer<T> for HostBuffer<T> {
    fn raw(&self) -> u64 {
        self.address() as u64
    }
    fn len(&self) -> usize {
        self.len
    }
}
