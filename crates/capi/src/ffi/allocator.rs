//! Memory of a GPU from functions of the caller: [`CallerMemory`].

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use sparsebatch::gpu::{DeviceAllocator, GpuError};

use crate::status::{Failure, SB_ERROR_OUT_OF_MEMORY};

/// Allocates `bytes` bytes, at least 1, of memory of the GPU, and returns their address, a multiple
/// of 256; NULL where there are not as many. Work that is issued to `stream` after the call may use
/// them. `data` is what the options have.
///
/// It is called by threads of the library, too, several at a time, and does not throw, jump, or call
/// the library.
pub type sb_allocate = Option<
    unsafe extern "C" fn(bytes: usize, stream: *mut c_void, data: *mut c_void) -> *mut c_void,
>;

/// Takes back memory of an `sb_allocate`, with the bytes and the stream of that call. All work on
/// the stream that uses it is done. As for `sb_allocate`, it does not throw, jump, or call the
/// library.
pub type sb_release = Option<
    unsafe extern "C" fn(
        address: *mut c_void,
        bytes: usize,
        stream: *mut c_void,
        data: *mut c_void,
    ),
>;

/// Two functions of the caller that allocate and free memory of a GPU.
pub(crate) struct CallerMemory {
    allocate: unsafe extern "C" fn(usize, *mut c_void, *mut c_void) -> *mut c_void,
    release: unsafe extern "C" fn(*mut c_void, usize, *mut c_void, *mut c_void),
    data: *mut c_void,
    /// Bytes that were refused since `told`; 0 for none.
    refused: AtomicUsize,
}

// SAFETY: option structs, of which alone the functions come, ask for functions that any thread may
// call with `data`.
unsafe impl Send for CallerMemory {}
// SAFETY: as above.
unsafe impl Sync for CallerMemory {}

impl CallerMemory {
    /// From the fields of option structs; `None` where there are no functions.
    ///
    /// # Safety
    /// The functions are what the documentation of their types says, with `data`, for as long as
    /// anything that was made with this value lives.
    pub(super) unsafe fn new(
        allocate: sb_allocate,
        release: sb_release,
        data: *mut c_void,
    ) -> Result<Option<Self>, Failure> {
        match (allocate, release) {
            (None, None) => Ok(None),
            (Some(allocate), Some(release)) => {
                Ok(Some(Self { allocate, release, data, refused: AtomicUsize::new(0) }))
            }
            (Some(_), None) => {
                Err(Failure::argument("release is NULL, expected a function where allocate is one"))
            }
            (None, Some(_)) => {
                Err(Failure::argument("allocate is NULL, expected a function where release is one"))
            }
        }
    }

    /// The result of a call, with the cause of memory that was missing.
    pub(crate) fn told<R>(&self, result: Result<R, Failure>) -> Result<R, Failure> {
        let refused = self.refused.swap(0, Ordering::Relaxed);
        result.map_err(|failure| match (failure.status, refused) {
            (SB_ERROR_OUT_OF_MEMORY, 1..) => Failure::new(
                SB_ERROR_OUT_OF_MEMORY,
                format!("allocate, a function of the program, returned NULL for {refused} bytes"),
            ),
            _ => failure,
        })
    }
}

// SAFETY: the contract of the trait is that of the functions; alignment is checked.
unsafe impl DeviceAllocator for CallerMemory {
    fn allocate(&self, bytes: usize, stream: *mut c_void) -> Result<u64, GpuError> {
        // SAFETY: the contract of the constructor.
        let address = unsafe { (self.allocate)(bytes, stream, self.data) };
        let place = address.addr() as u64;
        if place == 0 {
            self.refused.store(bytes, Ordering::Relaxed);
            return Err(GpuError::OutOfMemory { needed: bytes as u64, free: 0 });
        }
        if !place.is_multiple_of(256) {
            // SAFETY: it is of `allocate`, and nobody has it.
            unsafe { (self.release)(address, bytes, stream, self.data) };
            return Err(GpuError::InvalidArgument {
                name: "the address of allocate",
                expected: "a multiple of 256".to_owned(),
                found: format!("{place:#x}"),
            });
        }
        Ok(place)
    }

    unsafe fn free(&self, address: u64, bytes: usize, stream: *mut c_void) {
        let address = ptr::without_provenance_mut(address as usize);
        // SAFETY: the contract of this function, and that of the constructor.
        unsafe { (self.release)(address, bytes, stream, self.data) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::SB_ERROR_ARGUMENT;

    /// What the functions below return, and what they were given.
    #[derive(Default)]
    struct Calls {
        address: usize,
        allocated: AtomicUsize,
        released: AtomicUsize,
    }

    unsafe extern "C" fn allocate(bytes: usize, _: *mut c_void, data: *mut c_void) -> *mut c_void {
        // SAFETY: the tests give the address of a `Calls`.
        let calls = unsafe { &*data.cast::<Calls>() };
        calls.allocated.fetch_add(bytes, Ordering::Relaxed);
        ptr::without_provenance_mut(calls.address)
    }

    unsafe extern "C" fn release(
        address: *mut c_void,
        bytes: usize,
        _: *mut c_void,
        data: *mut c_void,
    ) {
        // SAFETY: the tests give the address of a `Calls`.
        let calls = unsafe { &*data.cast::<Calls>() };
        assert_eq!(address.addr(), calls.address);
        calls.released.fetch_add(bytes, Ordering::Relaxed);
    }

    fn memory(calls: &Calls) -> CallerMemory {
        let data = ptr::from_ref(calls).cast_mut().cast();
        // SAFETY: the functions take the address of a `Calls`, which outlives the value.
        unsafe { CallerMemory::new(Some(allocate), Some(release), data) }.unwrap().unwrap()
    }

    #[test]
    fn memory_comes_from_the_functions_and_goes_back() {
        let calls = Calls { address: 512, ..Calls::default() };
        let memory = memory(&calls);
        assert_eq!(memory.allocate(100, ptr::null_mut()), Ok(512));
        // SAFETY: the memory of the line before.
        unsafe { memory.free(512, 100, ptr::null_mut()) };
        let bytes = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        assert_eq!((bytes(&calls.allocated), bytes(&calls.released)), (100, 100));
    }

    #[test]
    fn null_is_out_of_memory_and_the_message_says_of_whom() {
        let calls = Calls::default();
        let memory = memory(&calls);
        let error = memory.allocate(100, ptr::null_mut()).unwrap_err();
        let failure = memory.told::<()>(Err(error.into())).unwrap_err();
        assert_eq!(failure.status, SB_ERROR_OUT_OF_MEMORY);
        assert!(failure.message.ends_with("returned NULL for 100 bytes"), "{}", failure.message);
        // Of the driver, later.
        let later = GpuError::OutOfMemory { needed: 3, free: 2 };
        let failure = memory.told::<()>(Err(later.clone().into())).unwrap_err();
        assert_eq!(failure, later.into());
    }

    #[test]
    fn an_address_that_is_not_aligned_is_refused_and_goes_back() {
        let calls = Calls { address: 520, ..Calls::default() };
        let error = memory(&calls).allocate(8, ptr::null_mut()).unwrap_err();
        assert_eq!(Failure::from(error).status, SB_ERROR_ARGUMENT);
        assert_eq!(calls.released.load(Ordering::Relaxed), 8);
    }
}
