//! Page-locked memory of the caller: [`PageLocked`].

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUmemorytype, CUpointer_attribute};

use super::driver::{bind, check};
use super::{Device, DeviceBuffer};
use crate::error::check_len;
use crate::{GpuError, Pod};

/// A vector whose memory is page-locked until this is dropped, so that GPUs copy from it directly:
/// solves of large batches from the host then leave out the copy to memory of their own.
///
/// Locking takes about as long as some solves. Lock memory that is used again and again. As the
/// values of a batch it is another owner's array (`Values::of_owner`).
///
/// # Examples
/// ```no_run
/// use sparsebatch_cuda::{Device, PageLocked};
/// let device = Device::new(0)?;
/// let mut values = PageLocked::new(&device, vec![1.0; 1 << 20])?;
/// values[0] = 2.0;
/// assert_eq!(values.into_vec()[..2], [2.0, 1.0]);
/// # Ok::<(), sparsebatch_cuda::GpuError>(())
/// ```
pub struct PageLocked<T: Pod> {
    // A borrowed slice would not do: its owner might free it while the driver takes it for locked.
    values: Vec<T>,
    context: Arc<CudaContext>,
}

impl<T: Pod> PageLocked<T> {
    /// Locks the memory of `values` for all GPUs of the process.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the system locks no more memory.
    pub fn new(device: &Device, values: Vec<T>) -> Result<Self, GpuError> {
        let context = Arc::clone(&device.shared.context);
        bind(&context)?;
        if !values.is_empty() {
            let (start, bytes) = (values.as_ptr().cast_mut().cast(), size_of_val(&values[..]));
            let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
            // SAFETY: (1) the context is current; (2) the memory belongs to the vector, which is
            // neither moved nor freed before `unlock`.
            let result = unsafe { sys::cuMemHostRegister_v2(start, bytes, flags) };
            check("cuMemHostRegister", result)?;
        }
        Ok(Self { values, context })
    }

    /// The vector, in memory that is no longer locked.
    pub fn into_vec(mut self) -> Vec<T> {
        self.unlock()
    }

    /// Unlocks the memory and takes it out. Memory that cannot be unlocked is never freed: the
    /// driver would go on to take its addresses for locked; the vector is then a copy.
    fn unlock(&mut self) -> Vec<T> {
        let values = std::mem::take(&mut self.values);
        if values.is_empty() {
            return values;
        }
        let start = values.as_ptr().cast_mut().cast();
        let unlocked = bind(&self.context).and_then(|()| {
            // SAFETY: `new` registered the memory, once. Copies from it have ended: they borrow it,
            // and this is borrowed exclusively.
            check("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(start) })
        });
        match unlocked {
            Ok(()) => values,
            Err(_) => std::mem::ManuallyDrop::new(values).to_vec(),
        }
    }
}

impl<T: Pod> Deref for PageLocked<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T: Pod> DerefMut for PageLocked<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<T: Pod> AsRef<[T]> for PageLocked<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Pod> Drop for PageLocked<T> {
    fn drop(&mut self) {
        self.unlock();
    }
}

impl<T: Pod> fmt::Debug for PageLocked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageLocked")
            .field("type", &std::any::type_name::<T>())
            .field("len", &self.values.len())
            .finish()
    }
}

impl Device {
    /// See [`Executor::is_page_locked`](crate::Executor::is_page_locked).
    pub(super) fn locks<T: Pod>(&self, host: &[T]) -> bool {
        let bytes = size_of_val(host);
        if bytes == 0 || bind(&self.shared.context).is_err() {
            return false;
        }
        let first = host.as_ptr() as u64;
        // One allocation or registration has one number.
        let of_first = locked_memory(first);
        of_first.is_some() && of_first == locked_memory(first + bytes as u64 - 1)
    }

    /// See [`Executor::start_from_page_locked`](crate::Executor::start_from_page_locked).
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn start_from_locked<T: Pod>(
        &self,
        host: &[T],
        buffer: &mut DeviceBuffer<T>,
    ) -> Result<(), GpuError> {
        check_len("host", buffer.len(), host.len())?;
        if host.is_empty() {
            return Ok(());
        }
        if self.stream.records()? {
            return Err(GpuError::InvalidArgument {
                name: "stream",
                expected: "one that does not record: a graph would outlive the host memory".into(),
                found: "one that records".to_owned(),
            });
        }
        let from = host.as_ptr().cast();
        bind(&self.shared.context)?;
        // SAFETY: (1) the context is current; (2) both have that many bytes, checked above; (3) the
        // caller keeps the host memory until the copy is done.
        let result = unsafe {
            sys::cuMemcpyHtoDAsync_v2(buffer.raw(), from, buffer.bytes(), self.stream.raw())
        };
        check("cuMemcpyHtoDAsync", result)
    }
}

/// The number of the page-locked host memory in which an address lies; `None` for other memory.
fn locked_memory(address: u64) -> Option<u64> {
    let (mut kind, mut number) = (0u32, 0u64);
    let mut asked = [
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
    ];
    let mut into = [ptr::from_mut(&mut kind).cast(), ptr::from_mut(&mut number).cast()];
    // SAFETY: (1) two attributes and two places, an `unsigned int` and an `unsigned long long` as
    // the attributes are; (2) the driver accepts any number as an address: it leaves the values at
    // 0 for those that it does not know.
    let result =
        unsafe { sys::cuPointerGetAttributes(2, asked.as_mut_ptr(), into.as_mut_ptr(), address) };
    let is_host = kind == CUmemorytype::CU_MEMORYTYPE_HOST as u32;
    (check("cuPointerGetAttributes", result).is_ok() && is_host && number != 0).then_some(number)
}
