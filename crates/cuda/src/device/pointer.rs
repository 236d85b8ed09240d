//! Where a pointer of another library lies.

use std::ptr;

use cudarc::driver::sys::{self, CUpointer_attribute};

use super::availability;
use super::driver::check;
use crate::GpuError;

/// The index of the GPU on which memory of another library lies, by its address.
///
/// # Errors
/// Those of [`availability::driver`]; [`GpuError::InvalidArgument`] for an address that is none of
/// a GPU.
pub fn ordinal_of(address: u64) -> Result<usize, GpuError> {
    availability::driver()?;
    let mut ordinal = -1i32;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: (1) the driver is initialised; (2) the attribute is one `int`, which `ordinal` is; (3)
    // the driver accepts any number as an address and refuses those that it does not know.
    let result = unsafe {
        sys::cuPointerGetAttribute(ptr::from_mut(&mut ordinal).cast(), attribute, address)
    };
    check("cuPointerGetAttribute", result).ok().and_then(|()| usize::try_from(ordinal).ok()).ok_or(
        GpuError::InvalidArgument {
            name: "address",
            expected: "memory of a GPU".to_owned(),
            found: format!("{address:#x}"),
        },
    )
}
