//! Where and on which threads a program solves: [`Context`].

use std::sync::{Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};
use sparsebatch::gpu::Device;
use sparsebatch::{Backend, Gpu};

use crate::ffi::{BackendChoice, ContextSettings, Input, Memory, memory_of};
use crate::status::{Failure, SB_ERROR_FORKED};

/// A backend, threads, and the message of the last error.
pub(crate) struct Context {
    pub(crate) backend: Backend,
    device: Option<Device>,
    pool: Option<ThreadPool>,
    /// The process that made it, which has the threads.
    process: u32,
    message: Mutex<String>,
}

impl Drop for Context {
    fn drop(&mut self) {
        // Threads of another process cannot be waited for.
        if self.process != std::process::id() {
            std::mem::forget(self.pool.take());
        }
    }
}

impl Context {
    pub(crate) fn new(settings: &ContextSettings) -> Result<Self, Failure> {
        let device = match settings.backend {
            BackendChoice::Cpu => None,
            BackendChoice::Gpu => Some(Device::of_process(settings.ordinal)?),
            BackendChoice::Auto => Device::of_process(settings.ordinal).ok(),
        };
        let backend = device.clone().map_or(Backend::Cpu, |device| {
            Backend::Gpu(Gpu::new(device).or_cpu(true).in_chunks(true))
        });
        let pool = settings.threads.map(|threads| {
            ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .map_err(|error| Failure::argument(format!("threads is {threads}: {error}")))
        });
        let (pool, process) = (pool.transpose()?, std::process::id());
        Ok(Self { backend, device, pool, process, message: Mutex::default() })
    }

    /// The GPU, for data that lies there.
    pub(crate) fn device(&self) -> Result<&Device, Failure> {
        self.device.as_ref().ok_or_else(|| {
            Failure::unsupported(
                "data on a device needs a context on a GPU: \
                 create it with backend \"gpu\", which says why there is none",
            )
        })
    }

    /// Refuses arrays that do not lie where they are said to, where there is a driver that tells.
    pub(crate) fn check_arrays(&self, on_device: bool, arrays: &[Input]) -> Result<(), Failure> {
        if self.device.is_none() {
            return Ok(());
        }
        for array in arrays.iter().filter(|array| array.len() > 0 && !array.address().is_null()) {
            let (wrong, found, expected) = match on_device {
                true => (Memory::Host, "in host memory", "an array on the GPU (SB_DEVICE)"),
                false => (Memory::Device, "on the GPU", "an array in host memory (SB_HOST)"),
            };
            if memory_of(array.address()) == wrong {
                let name = array.name();
                return Err(Failure::argument(format!("{name} lies {found}, expected {expected}")));
            }
        }
        Ok(())
    }

    /// Runs work on the threads of this context.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, Failure> {
        match &self.pool {
            None => Ok(work()),
            Some(_) if self.process != std::process::id() => Err(Failure::new(
                SB_ERROR_FORKED,
                "the threads of the context are in the process that this one was forked from: \
                 create a context in this process",
            )),
            Some(pool) => Ok(pool.install(work)),
        }
    }

    /// Keeps the message of an error.
    pub(crate) fn note(&self, failure: &Failure) {
        let mut message = self.message.lock().unwrap_or_else(PoisonError::into_inner);
        message.clone_from(&failure.message);
    }

    /// The message of the last error.
    pub(crate) fn message(&self) -> String {
        self.message.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
