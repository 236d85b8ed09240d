//! [`MemoryMeter`]: how much device memory something takes, without a device.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::check_ranges;
use crate::error::check_len;
use crate::{
    Args, DeviceInfo, DeviceModel, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig,
    PinnedValues, Pod,
};

/// An executor that counts the bytes of device memory it is asked for. It has no memory, compiles
/// nothing and launches nothing, so that a plan made with it tells how much memory the same plan
/// takes on a device with these [limits](DeviceInfo).
///
/// A meter made by [`MemoryMeter::rehearsal`] also notes the kernels that it is asked for, and takes
/// launches that do nothing.
///
/// Memory that is read back is 0. Allocators round each buffer up, to 256 or 512 bytes as a rule.
#[derive(Clone, Debug)]
pub struct MemoryMeter {
    info: Arc<DeviceInfo>,
    count: Arc<Mutex<ByteCount>>,
    /// The kernels that were asked for, in a rehearsal.
    kernels: Option<Arc<Mutex<Vec<KernelKey>>>>,
}

#[derive(Debug, Default)]
struct ByteCount {
    in_use: u64,
    most: u64,
    /// Where the next buffer begins. Addresses are only to tell buffers apart.
    next_address: u64,
}

impl MemoryMeter {
    /// A meter that stands for a device.
    pub fn new(info: DeviceInfo) -> Self {
        Self { info: Arc::new(info), count: Arc::default(), kernels: None }
    }

    /// A meter on which launches succeed and do nothing, so that work with it asks for the
    /// [kernels](MemoryMeter::kernels) that the same work asks a device for, as far as these do not
    /// depend on what kernels compute.
    pub fn rehearsal(info: DeviceInfo) -> Self {
        Self { kernels: Some(Arc::default()), ..Self::new(info) }
    }

    /// The kernels that a rehearsal was asked for, each once, in the order of the first requests;
    /// none for a meter that only counts.
    pub fn kernels(&self) -> Vec<KernelKey> {
        let kernels = self.kernels.as_ref();
        kernels.map_or_else(Vec::new, |kernels| {
            kernels.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
    }

    /// Notes kernels, and returns whether this is a rehearsal.
    fn note(&self, keys: &[KernelKey]) -> bool {
        let Some(kernels) = &self.kernels else { return false };
        let mut known = kernels.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            if !known.contains(key) {
                known.push(key.clone());
            }
        }
        true
    }

    /// The bytes of the buffers that are alive.
    pub fn bytes_in_use(&self) -> u64 {
        self.count().in_use
    }

    /// The most bytes that were in use at a time.
    pub fn most_bytes(&self) -> u64 {
        self.count().most
    }

    fn count(&self) -> std::sync::MutexGuard<'_, ByteCount> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer of a [`MemoryMeter`]: an address and a length, without memory.
#[derive(Debug)]
pub struct MeteredBuffer<T: Pod> {
    address: u64,
    len: usize,
    meter: MemoryMeter,
    values: PhantomData<T>,
}

impl<T: Pod> MeteredBuffer<T> {
    fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }
}

impl<T: Pod> KernelBuffer<T> for MeteredBuffer<T> {
    fn raw(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl<T: Pod> Drop for MeteredBuffer<T> {
    fn drop(&mut self) {
        self.meter.count().in_use -= self.bytes();
    }
}

/// Host memory of a [`MemoryMeter`].
#[derive(Debug)]
pub struct MeteredPinned<T>(Vec<T>);

impl<T: Pod> PinnedValues<T> for MeteredPinned<T> {
    fn as_slice(&self) -> Result<&[T], GpuError> {
        Ok(&self.0)
    }

    fn as_mut_slice(&mut self) -> Result<&mut [T], GpuError> {
        Ok(&mut self.0)
    }
}

impl Executor for MemoryMeter {
    type Buffer<T: Pod> = MeteredBuffer<T>;
    type Pinned<T: Pod> = MeteredPinned<T>;
    type Mark = ();

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn planned_as(&self, model: &DeviceModel) -> Result<Self, GpuError> {
        Ok(Self { info: Arc::new(self.info.planned_as(model)?), ..self.clone() })
    }

    fn free_memory(&self) -> Result<u64, GpuError> {
        Ok(self.info.memory_bytes.saturating_sub(self.bytes_in_use()))
    }

    fn alloc<T: Pod>(&self, len: usize) -> Result<MeteredBuffer<T>, GpuError> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let free = self.free_memory()?;
        if bytes > free {
            return Err(GpuError::OutOfMemory { needed: bytes, free });
        }
        let mut count = self.count();
        count.in_use += bytes;
        count.most = count.most.max(count.in_use);
        count.next_address = count.next_address.max(256).next_multiple_of(256);
        let address = if len == 0 { 0 } else { count.next_address };
        count.next_address += bytes;
        Ok(MeteredBuffer { address, len, meter: self.clone(), values: PhantomData })
    }

    fn fill_zero<T: Pod>(&self, _: &mut MeteredBuffer<T>) -> Result<(), GpuError> {
        Ok(())
    }

    fn copy_from_host<T: Pod>(
        &self,
        host: &[T],
        buffer: &mut MeteredBuffer<T>,
    ) -> Result<(), GpuError> {
        check_len("host", buffer.len, host.len())
    }

    fn copy_to_host<T: Pod>(
        &self,
        buffer: &MeteredBuffer<T>,
        host: &mut [T],
    ) -> Result<(), GpuError> {
        check_len("host", buffer.len, host.len())?;
        host.fill(T::default());
        Ok(())
    }

    fn alloc_pinned<T: Pod>(&self, len: usize) -> Result<MeteredPinned<T>, GpuError> {
        Ok(MeteredPinned(vec![T::default(); len]))
    }

    fn copy_from_pinned<T: Pod>(
        &self,
        host: &MeteredPinned<T>,
        buffer: &mut MeteredBuffer<T>,
    ) -> Result<(), GpuError> {
        check_len("host", buffer.len, host.0.len())
    }

    fn copy_to_pinned<T: Pod>(
        &self,
        buffer: &MeteredBuffer<T>,
        host: &mut MeteredPinned<T>,
    ) -> Result<(), GpuError> {
        self.copy_to_host(buffer, &mut host.0)
    }

    fn prepare(&self, keys: &[KernelKey]) -> Result<(), GpuError> {
        self.note(keys);
        Ok(())
    }

    #[expect(unsafe_code, reason = "the signature of the trait; nothing is launched")]
    unsafe fn launch(
        &self,
        key: &KernelKey,
        config: LaunchConfig,
        _: &mut Args<'_>,
    ) -> Result<(), GpuError> {
        config.check(&self.info)?;
        if self.note(std::slice::from_ref(key)) {
            return Ok(());
        }
        Err(GpuError::InvalidArgument {
            name: "executor",
            expected: "a device, to launch kernels".to_owned(),
            found: format!("a memory meter, asked for {}", key),
        })
    }

    fn branches(&self, count: usize) -> Result<Vec<Self>, GpuError> {
        Ok(vec![self.clone(); count])
    }

    fn urgent_branch(&self) -> Result<Self, GpuError> {
        Ok(self.clone())
    }

    fn fork(&self, _: &[Self]) -> Result<(), GpuError> {
        Ok(())
    }

    fn join(&self, _: &[Self]) -> Result<(), GpuError> {
        Ok(())
    }

    fn new_mark(&self) -> Result<(), GpuError> {
        Ok(())
    }

    fn set_mark(&self, (): &()) -> Result<(), GpuError> {
        Ok(())
    }

    fn wait_for(&self, (): &()) -> Result<(), GpuError> {
        Ok(())
    }

    fn reaches(&self, _: &Self) -> Result<bool, GpuError> {
        Ok(true)
    }

    fn copy_from_other<T: Pod>(
        &self,
        _: &Self,
        (from, range): (&Self::Buffer<T>, Range<usize>),
        to: &mut Self::Buffer<T>,
        at: usize,
    ) -> Result<(), GpuError> {
        check_ranges(from.len(), &range, to.len(), at)
    }

    fn synchronize(&self) -> Result<(), GpuError> {
        Ok(())
    }
}
