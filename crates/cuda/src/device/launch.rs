//! A GPU as an [`Executor`].

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys;
use rayon::prelude::*;

use super::Device;
use super::buffer::DeviceBuffer;
use super::driver::{bind, check};
use super::kernel::Attributes;
use super::pinned::PinnedBuffer;
use super::staging::{STAGED_BYTES, STAGINGS, Staging};
use super::stream::{Mark, Stream};
use crate::error::check_len;
use crate::{Args, DeviceInfo, DeviceModel, Executor, GpuError, KernelKey, LaunchConfig, Pod};

impl Executor for Device {
    type Buffer<T: Pod> = DeviceBuffer<T>;
    type Pinned<T: Pod> = PinnedBuffer<T>;
    type Mark = Mark;

    fn info(&self) -> &DeviceInfo {
        self.planned.as_deref().unwrap_or(&self.shared.info)
    }

    fn planned_as(&self, model: &DeviceModel) -> Result<Self, GpuError> {
        let planned = Some(Arc::new(self.shared.info.planned_as(model)?));
        Ok(Self { planned, ..self.clone() })
    }

    fn free_memory(&self) -> Result<u64, GpuError> {
        Ok(self.memory()?.free_bytes.saturating_add(self.memory.kept_bytes()))
    }

    fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>, GpuError> {
        DeviceBuffer::new(self, len)
    }

    fn fill_zero<T: Pod>(&self, buffer: &mut DeviceBuffer<T>) -> Result<(), GpuError> {
        if buffer.is_empty() {
            return Ok(());
        }
        bind(&self.shared.context)?;
        // SAFETY: (1) the context is current; (2) the buffer has that many bytes, and zero bytes
        // are values of every `Pod`.
        let result =
            unsafe { sys::cuMemsetD8Async(buffer.raw(), 0, buffer.bytes(), self.stream.raw()) };
        check("cuMemsetD8Async", result)
    }

    fn copy_from_host<T: Pod>(
        &self,
        host: &[T],
        buffer: &mut DeviceBuffer<T>,
    ) -> Result<(), GpuError> {
        check_len("host", buffer.len(), host.len())?;
        if host.is_empty() {
            return Ok(());
        }
        if buffer.bytes() >= STAGED_BYTES {
            // SAFETY: every `Pod` is bytes without padding; the borrow is that of `host`.
            let bytes = unsafe { std::slice::from_raw_parts(host.as_ptr().cast(), buffer.bytes()) };
            return self.staged(|staging| {
                // SAFETY: the buffer has as many bytes as `host`, checked above.
                unsafe { staging.upload(self, bytes, buffer.raw()) }
            });
        }
        bind(&self.shared.context)?;
        let from = host.as_ptr().cast();
        // SAFETY: (1) the context is current; (2) both have that many bytes, checked above; (3) the
        // copy is done before `host` can go, since the stream is waited for below.
        let result = unsafe {
            sys::cuMemcpyHtoDAsync_v2(buffer.raw(), from, buffer.bytes(), self.stream.raw())
        };
        check("cuMemcpyHtoDAsync", result)?;
        self.wait()
    }

    fn copy_to_host<T: Pod>(
        &self,
        buffer: &DeviceBuffer<T>,
        host: &mut [T],
    ) -> Result<(), GpuError> {
        check_len("host", buffer.len(), host.len())?;
        if host.is_empty() {
            return Ok(());
        }
        let to = host.as_mut_ptr();
        if buffer.bytes() >= STAGED_BYTES {
            // SAFETY: every `Pod` is bytes without padding and takes every bit pattern; the
            // exclusive borrow is that of `host`.
            let bytes = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), buffer.bytes()) };
            return self.staged(|staging| {
                // SAFETY: the buffer has as many bytes as `host`, checked above.
                unsafe { staging.download(self, buffer.raw(), bytes) }
            });
        }
        bind(&self.shared.context)?;
        // SAFETY: (1) the context is current; (2) both have that many bytes, checked above; (3)
        // `host` is not read before the copy is done, since the stream is waited for below.
        let result = unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.cast(), buffer.raw(), buffer.bytes(), self.stream.raw())
        };
        check("cuMemcpyDtoHAsync", result)?;
        self.wait()
    }

    fn alloc_pinned<T: Pod>(&self, len: usize) -> Result<PinnedBuffer<T>, GpuError> {
        PinnedBuffer::new(self, len)
    }

    fn is_page_locked<T: Pod>(&self, host: &[T]) -> bool {
        self.locks(host)
    }

    unsafe fn start_from_page_locked<T: Pod>(
        &self,
        host: &[T],
        buffer: &mut DeviceBuffer<T>,
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.start_from_locked(host, buffer) }
    }

    fn copy_from_pinned<T: Pod>(
        &self,
        host: &PinnedBuffer<T>,
        buffer: &mut DeviceBuffer<T>,
    ) -> Result<(), GpuError> {
        self.start_from_pinned(host, buffer)
    }

    fn copy_to_pinned<T: Pod>(
        &self,
        buffer: &DeviceBuffer<T>,
        host: &mut PinnedBuffer<T>,
    ) -> Result<(), GpuError> {
        self.start_to_pinned(buffer, host)
    }

    fn prepare(&self, keys: &[KernelKey]) -> Result<(), GpuError> {
        match keys {
            [key] => self.kernel(key).map(|_| ()),
            keys => keys.par_iter().try_for_each(|key| self.kernel(key).map(|_| ())),
        }
    }

    fn is_unused(&self) -> bool {
        self.shared.kernels.is_empty()
    }

    unsafe fn launch(
        &self,
        key: &KernelKey,
        config: LaunchConfig,
        args: &mut Args<'_>,
    ) -> Result<(), GpuError> {
        config.check(&self.shared.info)?;
        let kernel = self.kernel(key)?;
        kernel.check_args(args.kinds())?;
        kernel.allow_shared(config, &self.shared.info)?;
        bind(&self.shared.context)?;
        let mut attributes = Attributes::of(config, &self.shared.info);
        let launch = attributes.launch(config, self.stream.raw());
        // SAFETY: (1) the context is current, function and stream are alive; (2) the pointers are
        // to one value per parameter, of its size, and to the attributes, read before the call
        // returns; (3) the rest is the contract of this function.
        let result = unsafe {
            sys::cuLaunchKernelEx(
                &raw const launch,
                kernel.function(),
                args.pointers().as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check("cuLaunchKernelEx", result)
    }

    fn resident_blocks(&self, key: &KernelKey, config: LaunchConfig) -> Result<u32, GpuError> {
        config.check(&self.shared.info)?;
        let kernel = self.kernel(key)?;
        kernel.allow_shared(config, &self.shared.info)?;
        kernel.resident_blocks(config)
    }

    fn resident_clusters(&self, key: &KernelKey, config: LaunchConfig) -> Result<u32, GpuError> {
        if config.cluster <= 1 {
            let blocks = self.resident_blocks(key, config)?;
            return Ok(blocks * self.shared.info.multiprocessors);
        }
        config.check(&self.shared.info)?;
        let kernel = self.kernel(key)?;
        kernel.allow_shared(config, &self.shared.info)?;
        kernel.resident_clusters(config, &self.shared.info)
    }

    fn is_recording(&self) -> Result<bool, GpuError> {
        self.records()
    }

    fn branches(&self, count: usize) -> Result<Vec<Self>, GpuError> {
        if count > 0 {
            self.stream.mark()?;
        }
        let branch = |_| {
            let stream = Stream::new(&self.shared.context)?;
            stream.mark()?;
            Ok(Self { stream: Arc::new(stream), ..self.clone() })
        };
        (0..count).map(branch).collect()
    }

    fn urgent_branch(&self) -> Result<Self, GpuError> {
        self.stream.mark()?;
        let stream = Stream::urgent(&self.shared.context)?;
        stream.mark()?;
        Ok(Self { stream: Arc::new(stream), ..self.clone() })
    }

    fn fork(&self, branches: &[Self]) -> Result<(), GpuError> {
        if branches.is_empty() {
            return Ok(());
        }
        let mark = self.stream.mark()?;
        mark.record(&self.stream)?;
        branches.iter().try_for_each(|branch| mark.hold(&branch.stream))
    }

    fn join(&self, branches: &[Self]) -> Result<(), GpuError> {
        branches.iter().try_for_each(|branch| {
            let mark = branch.stream.mark()?;
            mark.record(&branch.stream)?;
            mark.hold(&self.stream)
        })
    }

    fn new_mark(&self) -> Result<Mark, GpuError> {
        Mark::new(&self.shared.context)
    }

    fn set_mark(&self, mark: &Mark) -> Result<(), GpuError> {
        mark.record(&self.stream)
    }

    fn wait_for(&self, mark: &Mark) -> Result<(), GpuError> {
        mark.hold(&self.stream)
    }

    fn reaches(&self, other: &Self) -> Result<bool, GpuError> {
        self.open_way_to(other)
    }

    fn copy_from_other<T: Pod>(
        &self,
        other: &Self,
        from: (&DeviceBuffer<T>, Range<usize>),
        to: &mut DeviceBuffer<T>,
        at: usize,
    ) -> Result<(), GpuError> {
        self.copy_from_gpu(other, from, to, at)
    }

    fn synchronize(&self) -> Result<(), GpuError> {
        self.wait()
    }
}

impl Device {
    /// Runs a large copy through pinned memory that all clones of the device share. If all of it is
    /// in use, more is allocated instead of waiting: a thread in a copy may take up other work that
    /// copies too.
    fn staged(&self, copy: impl FnOnce(&Staging) -> Result<(), GpuError>) -> Result<(), GpuError> {
        let lock = || self.shared.staging.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let kept = lock().pop();
        let staging = kept.map_or_else(|| Staging::new(self), Ok)?;
        let outcome = copy(&staging);
        let mut kept = lock();
        if kept.len() < STAGINGS {
            kept.push(staging);
        }
        outcome
    }
}
