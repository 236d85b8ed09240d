//! An emulated GPU that fails: [`Failing`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sparsebatch_cuda::{
    Args, DeviceInfo, DeviceModel, Executor, GpuError, KernelKey, LaunchConfig, Pod,
};

use crate::Emulator;

/// The calls that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Allocation of memory.
    Alloc,
    /// Launches of kernels.
    Launch,
    /// Copies from the GPU, to any memory.
    CopyToHost,
}

/// An emulated GPU. After some calls of one kind that kind fails, and every call does where the
/// error is a lost context.
#[derive(Clone)]
pub struct Failing {
    /// What runs the calls that succeed.
    pub inner: Emulator,
    fault: Option<Arc<Fault>>,
    /// Launches wait until this one has failed.
    behind: Option<Arc<Fault>>,
}

struct Fault {
    call: Call,
    /// Calls of that kind that still succeed.
    left: AtomicU64,
    error: GpuError,
    /// Whether the call that fails panics.
    panics: bool,
    has_failed: AtomicBool,
}

impl Failing {
    /// One that never fails.
    pub fn never(inner: Emulator) -> Self {
        Self { inner, fault: None, behind: None }
    }

    /// One that fails after `left` calls.
    pub fn after(left: u64, call: Call, error: GpuError, inner: Emulator) -> Self {
        Self::with(left, call, error, false, inner)
    }

    /// One whose call panics after `left` calls.
    pub fn panicking_after(left: u64, call: Call, inner: Emulator) -> Self {
        Self::with(left, call, GpuError::OutOfMemory { needed: 1, free: 0 }, true, inner)
    }

    fn with(left: u64, call: Call, error: GpuError, panics: bool, inner: Emulator) -> Self {
        let (left, has_failed) = (AtomicU64::new(left), AtomicBool::new(false));
        let fault = Fault { call, left, error, panics, has_failed };
        Self { inner, fault: Some(Arc::new(fault)), behind: None }
    }

    /// This one, whose launches wait until `other` has failed, so that `other` gets work.
    pub fn behind(self, other: &Self) -> Self {
        Self { behind: other.fault.clone(), ..self }
    }

    /// Whether a call has failed.
    pub fn has_failed(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.has_failed.load(Ordering::SeqCst))
    }

    fn check(&self, call: Option<Call>) -> Result<(), GpuError> {
        let Some(fault) = &self.fault else { return Ok(()) };
        let is_lost = matches!(fault.error, GpuError::ContextLost { .. });
        let ends = call == Some(fault.call) && {
            let one_less = |left: u64| left.checked_sub(1);
            fault.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err()
        };
        if ends || (is_lost && fault.has_failed.load(Ordering::SeqCst)) {
            fault.has_failed.store(true, Ordering::SeqCst);
            assert!(!fault.panics, "the GPU's driver panics on purpose");
            return Err(fault.error.clone());
        }
        Ok(())
    }
}

impl Executor for Failing {
    type Buffer<T: Pod> = <Emulator as Executor>::Buffer<T>;
    type Pinned<T: Pod> = <Emulator as Executor>::Pinned<T>;

    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn planned_as(&self, model: &DeviceModel) -> Result<Self, GpuError> {
        Ok(Self { inner: self.inner.planned_as(model)?, ..self.clone() })
    }

    fn free_memory(&self) -> Result<u64, GpuError> {
        self.check(None)?;
        self.inner.free_memory()
    }

    fn alloc<T: Pod>(&self, len: usize) -> Result<Self::Buffer<T>, GpuError> {
        self.check(Some(Call::Alloc))?;
        self.inner.alloc(len)
    }

    fn fill_zero<T: Pod>(&self, buffer: &mut Self::Buffer<T>) -> Result<(), GpuError> {
        self.check(None)?;
        self.inner.fill_zero(buffer)
    }

    fn copy_from_host<T: Pod>(
        &self,
        host: &[T],
        buffer: &mut Self::Buffer<T>,
    ) -> Result<(), GpuError> {
        self.check(None)?;
        self.inner.copy_from_host(host, buffer)
    }

    fn copy_to_host<T: Pod>(
        &self,
        buffer: &Self::Buffer<T>,
        host: &mut [T],
    ) -> Result<(), GpuError> {
        self.check(Some(Call::CopyToHost))?;
        self.inner.copy_to_host(buffer, host)
    }

    fn alloc_pinned<T: Pod>(&self, len: usize) -> Result<Self::Pinned<T>, GpuError> {
        self.check(None)?;
        self.inner.alloc_pinned(len)
    }

    fn copy_from_pinned<T: Pod>(
        &self,
        host: &Self::Pinned<T>,
        buffer: &mut Self::Buffer<T>,
    ) -> Result<(), GpuError> {
        self.check(None)?;
        self.inner.copy_from_pinned(host, buffer)
    }

    fn copy_to_pinned<T: Pod>(
        &self,
        buffer: &Self::Buffer<T>,
        host: &mut Self::Pinned<T>,
    ) -> Result<(), GpuError> {
        self.check(Some(Call::CopyToHost))?;
        self.inner.copy_to_pinned(buffer, host)
    }

    fn prepare(&self, keys: &[KernelKey]) -> Result<(), GpuError> {
        self.check(None)?;
        self.inner.prepare(keys)
    }

    unsafe fn launch(
        &self,
        key: &KernelKey,
        config: LaunchConfig,
        args: &mut Args<'_>,
    ) -> Result<(), GpuError> {
        if let Some(other) = &self.behind {
            let start = Instant::now();
            while !other.has_failed.load(Ordering::SeqCst) {
                assert!(start.elapsed() < Duration::from_secs(60), "the other GPU never fails");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.check(Some(Call::Launch))?;
        // SAFETY: the caller guarantees what the emulator asks for.
        unsafe { self.inner.launch(key, config, args) }
    }

    fn branches(&self, count: usize) -> Result<Vec<Self>, GpuError> {
        Ok(vec![self.clone(); count])
    }

    fn fork(&self, _: &[Self]) -> Result<(), GpuError> {
        self.check(None)
    }

    fn join(&self, _: &[Self]) -> Result<(), GpuError> {
        self.check(None)
    }

    fn synchronize(&self) -> Result<(), GpuError> {
        self.check(None)
    }
}
