//! Faults of an emulated GPU: [`Emulator::failing_after`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sparsebatch_cuda::GpuError;

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
    /// Copies to the GPU, from any memory.
    CopyFromHost,
}

/// How an emulator fails; by default it never does.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    own: Option<Arc<Fault>>,
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

// An executor type of its own would have every plan compiled once more in tests.
impl Emulator {
    /// After `left` calls of one kind that kind fails, and every call does where the error is a lost
    /// context.
    pub fn failing_after(self, left: u64, call: Call, error: GpuError) -> Self {
        self.with_fault(left, call, error, false)
    }

    /// After `left` calls of one kind the next panics.
    pub fn panicking_after(self, left: u64, call: Call) -> Self {
        self.with_fault(left, call, GpuError::OutOfMemory { needed: 1, free: 0 }, true)
    }

    fn with_fault(mut self, left: u64, call: Call, error: GpuError, panics: bool) -> Self {
        let (left, has_failed) = (AtomicU64::new(left), AtomicBool::new(false));
        self.faults.own = Some(Arc::new(Fault { call, left, error, panics, has_failed }));
        self
    }

    /// This one, whose launches wait until `other` has failed, so that `other` gets work.
    pub fn behind(mut self, other: &Self) -> Self {
        self.faults.behind.clone_from(&other.faults.own);
        self
    }

    /// This one without its faults.
    pub fn without_faults(mut self) -> Self {
        self.faults = Faults::default();
        self
    }

    /// Whether a call has failed.
    pub fn has_failed(&self) -> bool {
        self.faults.own.as_ref().is_some_and(|fault| fault.has_failed.load(Ordering::SeqCst))
    }
}

impl Faults {
    /// Fails where it is time to.
    pub(crate) fn check(&self, call: Option<Call>) -> Result<(), GpuError> {
        let Some(fault) = &self.own else { return Ok(()) };
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

    /// Waits for the fault of another emulator, if there is one to wait for.
    pub(crate) fn wait(&self) {
        let Some(other) = &self.behind else { return };
        let start = Instant::now();
        while !other.has_failed.load(Ordering::SeqCst) {
            assert!(start.elapsed() < Duration::from_secs(60), "the other GPU never fails");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
