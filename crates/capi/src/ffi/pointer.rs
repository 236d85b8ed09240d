//! Where an address lies, as far as the driver of the GPU tells.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute, CUresult, cuPointerGetAttribute};

/// The memory of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Unknown to the driver: plain host memory.
    Host,
    /// That of a GPU alone.
    Device,
    /// Both can reach it, or nobody knows.
    Either,
}

/// The memory of an address. The driver has been loaded: the caller has a device.
pub(crate) fn memory_of(address: *const c_void) -> Memory {
    let attribute = |attribute| -> (CUresult, u32) {
        let mut value = 0u32;
        // SAFETY: both attributes are a number of 32 bits (`CUmemorytype`, and a boolean that is
        // written as an `int`); any address may be asked for.
        let result = unsafe {
            cuPointerGetAttribute(
                ptr::from_mut(&mut value).cast(),
                attribute,
                address.addr() as u64,
            )
        };
        (result, value)
    };
    let (result, kind) = attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    match result {
        CUresult::CUDA_ERROR_INVALID_VALUE => Memory::Host,
        CUresult::CUDA_SUCCESS if kind == CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 => {
            match attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED) {
                (CUresult::CUDA_SUCCESS, 0) => Memory::Device,
                _ => Memory::Either,
            }
        }
        _ => Memory::Either,
    }
}
