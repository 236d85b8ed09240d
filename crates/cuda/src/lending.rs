//! Copies to a device from page-locked memory of the caller, without staging: [`lending`].

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use crate::{Executor, GpuError, Pod};

/// Starts copies from values that the caller lends for `'env`. [`lending`] makes one and waits for
/// the copies before it returns.
pub struct Lender<'env, E: Executor> {
    executor: &'env E,
    has_started: Cell<bool>,
    /// Takes values that live as long as `'env` or longer, never shorter.
    lives: PhantomData<fn(&'env ())>,
}

/// Calls `work` with a [`Lender`] whose copies run on `executor`, and waits until they are done;
/// after a panic of `work` too. Meanwhile no other thread may begin to record a graph on the stream
/// of `executor`: where the copies cannot be waited for, the process is aborted.
///
/// # Examples
/// ```no_run
/// use sparsebatch_cuda::{Device, Executor, PageLocked, lending};
/// let device = Device::new(0)?;
/// let locked = PageLocked::new(&device, vec![1.0; 1 << 20])?;
/// let mut buffer = device.alloc(locked.len())?;
/// lending(&device, |lender| {
///     assert!(lender.takes(&locked));
///     lender.copy(&locked, &mut buffer) // returns at once
/// })?;
/// # Ok::<(), sparsebatch_cuda::GpuError>(())
/// ```
pub fn lending<'env, E: Executor, R>(
    executor: &'env E,
    work: impl FnOnce(&Lender<'env, E>) -> R,
) -> R {
    // Nobody else owns it, so that it is dropped, and waits, however `work` ends.
    let lender = Lender { executor, has_started: Cell::new(false), lives: PhantomData };
    work(&lender)
}

impl<'env, E: Executor> Lender<'env, E> {
    /// Whether values can be copied: all lie in one piece of page-locked memory.
    pub fn takes<T: Pod>(&self, values: &[T]) -> bool {
        self.executor.is_page_locked(values)
    }

    /// Starts to overwrite a buffer with values that the lender [takes](Lender::takes), in the
    /// order of launches, and returns without waiting.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the lengths differ; [`GpuError::InvalidArgument`] for values that
    /// are not in page-locked memory; else what the device reports.
    pub fn copy<T: Pod>(
        &self,
        values: &'env [T],
        buffer: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        if !self.takes(values) {
            return Err(GpuError::InvalidArgument {
                name: "values",
                expected: "page-locked memory".to_owned(),
                found: "memory that is not".to_owned(),
            });
        }
        // A stream that records refuses the copy.
        if !self.executor.is_recording()? {
            self.has_started.set(true);
        }
        #[expect(unsafe_code, reason = "the executor is waited for when this is dropped")]
        // SAFETY: the values are borrowed for `'env`, which outlives the call of `lending`, at whose
        // end `drop` waits for the copies.
        unsafe {
            self.executor.start_from_page_locked(values, buffer)
        }
    }
}

impl<E: Executor> Drop for Lender<'_, E> {
    fn drop(&mut self) {
        if self.has_started.get() {
            match self.executor.synchronize() {
                // With a lost context no copy runs any more; the next call reports it.
                Ok(()) | Err(GpuError::ContextLost { .. }) => {}
                Err(error) => {
                    // A copy may still run, and the memory that it reads is about to go.
                    eprintln!("a copy from page-locked memory cannot be waited for: {error}");
                    std::process::abort();
                }
            }
        }
    }
}

impl<E: Executor> fmt::Debug for Lender<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lender").field("has_started", &self.has_started.get()).finish()
    }
}
