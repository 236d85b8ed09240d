//! An [`Executor`] on host memory: kernels run in the emulation of `kernel-emu`.
//!
//! Memory that no kernel or copy has set holds a pattern that is NaN as a float and -1 as an index.
//! Guards around every buffer detect writes outside it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sparsebatch_cuda::executor::check_ranges;
use sparsebatch_cuda::{
    Args, DeviceInfo, DeviceModel, Executor, GpuError, KernelKey, LaunchConfig, PinnedValues, Pod,
};

use crate::failing::{Call, Faults};
use crate::{HostBuffer, Order, Shape};

/// Runs kernels on the CPU. Clones share limits, order and memory.
#[derive(Clone)]
pub struct Emulator {
    info: Arc<DeviceInfo>,
    order: Order,
    launched: Arc<Mutex<BTreeSet<String>>>,
    in_use: Arc<AtomicU64>,
    most_in_use: Arc<AtomicU64>,
    allocations: Arc<AtomicU64>,
    only: Option<fn(u64) -> Vec<u64>>,
    locks_all: bool,
    lent: Arc<AtomicU64>,
    pub(crate) faults: Faults,
    /// The test that has made it: of kernels on other threads, too, it is known which test they are of.
    test: Arc<str>,
}

impl Emulator {
    /// An emulator with the limits of a small GPU, so that plans cut small matrices into several
    /// parts. Threads run in the given order.
    pub fn new(order: Order) -> Self {
        Self::with_info(
            DeviceInfo {
                name: "emulation".to_owned(),
                compute_capability: (9, 0),
                multiprocessors: 2,
                max_threads_per_block: 1024,
                max_threads_per_multiprocessor: 2048,
                shared_bytes_per_block: crate::MAX_SHARED_BYTES,
                shared_bytes_per_multiprocessor: 233_472,
                l2_bytes: 1 << 20,
                memory_bytes: 1 << 30,
                clock_khz: 1_000_000,
                ..DeviceInfo::default()
            },
            order,
        )
    }

    /// An emulator with the limits in `info`.
    pub fn with_info(info: DeviceInfo, order: Order) -> Self {
        Self {
            info: Arc::new(info),
            order,
            launched: Arc::default(),
            in_use: Arc::default(),
            most_in_use: Arc::default(),
            allocations: Arc::default(),
            only: None,
            locks_all: false,
            lent: Arc::default(),
            faults: Faults::default(),
            test: crate::test_of_this_thread(),
        }
    }

    /// An emulator with `bytes` bytes of memory.
    pub fn with_memory(bytes: u64) -> Self {
        let info = DeviceInfo { memory_bytes: bytes, ..Self::new(Order::Forward).info().clone() };
        Self::with_info(info, Order::Forward)
    }

    /// Runs only some blocks of every launch: those that `only` returns, given the number of
    /// blocks.
    pub fn with_blocks(mut self, only: fn(u64) -> Vec<u64>) -> Self {
        self.only = Some(only);
        self
    }

    /// Treats all memory of the host as page-locked.
    pub fn with_page_locked_memory(mut self) -> Self {
        self.locks_all = true;
        self
    }

    /// Number of values that were copied from page-locked memory of the caller.
    pub fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// A buffer of `len` zeros that may exceed the memory: only written pages occupy some. `None`,
    /// after printing that the test is skipped, if the system cannot provide it.
    pub fn sparse<T: Pod>(&self, len: usize) -> Option<HostBuffer<T>> {
        let buffer = HostBuffer::sparse(len);
        if buffer.is_none() {
            println!("skipped: the system reserves memory for {len} values that are not used");
        }
        buffer
    }

    /// Number of bytes allocated and not freed.
    pub fn bytes_in_use(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Maximum number of bytes that were allocated at the same time.
    pub fn most_bytes_in_use(&self) -> u64 {
        self.most_in_use.load(Ordering::Relaxed)
    }

    /// Number of allocations so far, pinned memory included.
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// The kernels launched so far, as `module.cu: expression options`, sorted.
    pub fn launched(&self) -> Vec<String> {
        self.launched.lock().unwrap().iter().cloned().collect()
    }

    /// Clears the list of launched kernels.
    pub fn forget_launched(&self) {
        self.launched.lock().unwrap().clear();
    }
}

/// The emulator's pinned host memory. Copies are synchronous, so access never waits.
pub struct Pinned<T>(Vec<T>);

impl<T: Pod> PinnedValues<T> for Pinned<T> {
    fn as_slice(&self) -> Result<&[T], GpuError> {
        Ok(&self.0)
    }

    fn as_mut_slice(&mut self) -> Result<&mut [T], GpuError> {
        Ok(&mut self.0)
    }
}

/// Emulators with twenty different orders of threads.
pub fn emulators() -> Vec<Emulator> {
    let random = (2..20).map(Order::Random);
    [Order::Forward, Order::Reverse].into_iter().chain(random).map(Emulator::new).collect()
}

fn check_len(name: &'static str, expected: usize, found: usize) -> Result<(), GpuError> {
    if expected == found { Ok(()) } else { Err(GpuError::Length { name, expected, found }) }
}

impl Executor for Emulator {
    type Buffer<T: Pod> = HostBuffer<T>;
    type Pinned<T: Pod> = Pinned<T>;
    type Mark = ();

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn planned_as(&self, model: &DeviceModel) -> Result<Self, GpuError> {
        Ok(Self { info: Arc::new(self.info.planned_as(model)?), ..self.clone() })
    }

    fn free_memory(&self) -> Result<u64, GpuError> {
        self.faults.check(None)?;
        Ok(self.info.memory_bytes - self.bytes_in_use())
    }

    fn alloc<T: Pod>(&self, len: usize) -> Result<HostBuffer<T>, GpuError> {
        self.faults.check(Some(Call::Alloc))?;
        let (needed, free) = ((len * size_of::<T>()) as u64, self.free_memory()?);
        if needed > free {
            return Err(GpuError::OutOfMemory { needed, free });
        }
        let buffer = HostBuffer::new(len, &self.in_use);
        self.allocations.fetch_add(1, Ordering::Relaxed);
        self.most_in_use.fetch_max(self.bytes_in_use(), Ordering::Relaxed);
        Ok(buffer)
    }

    fn fill_zero<T: Pod>(&self, buffer: &mut HostBuffer<T>) -> Result<(), GpuError> {
        self.faults.check(None)?;
        buffer.values_mut().fill(T::default());
        Ok(())
    }

    fn copy_from_host<T: Pod>(
        &self,
        host: &[T],
        buffer: &mut HostBuffer<T>,
    ) -> Result<(), GpuError> {
        self.faults.check(Some(Call::CopyFromHost))?;
        check_len("host", buffer.values().len(), host.len())?;
        buffer.values_mut().copy_from_slice(host);
        Ok(())
    }

    fn copy_to_host<T: Pod>(&self, buffer: &HostBuffer<T>, host: &mut [T]) -> Result<(), GpuError> {
        self.faults.check(Some(Call::CopyToHost))?;
        check_len("host", buffer.values().len(), host.len())?;
        buffer.assert_guards();
        host.copy_from_slice(buffer.values());
        Ok(())
    }

    fn alloc_pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>, GpuError> {
        self.faults.check(None)?;
        self.allocations.fetch_add(1, Ordering::Relaxed);
        Ok(Pinned(vec![T::default(); len]))
    }

    // Copies are synchronous.
    fn copy_from_pinned<T: Pod>(
        &self,
        host: &Pinned<T>,
        buffer: &mut HostBuffer<T>,
    ) -> Result<(), GpuError> {
        let len = buffer.values().len().min(host.0.len());
        self.copy_from_host(&host.0[..len], buffer)
    }

    fn copy_to_pinned<T: Pod>(
        &self,
        buffer: &HostBuffer<T>,
        host: &mut Pinned<T>,
    ) -> Result<(), GpuError> {
        let len = buffer.values().len().min(host.0.len());
        self.copy_to_host(buffer, &mut host.0[..len])
    }

    fn is_page_locked<T: Pod>(&self, _: &[T]) -> bool {
        self.locks_all
    }

    unsafe fn start_from_page_locked<T: Pod>(
        &self,
        host: &[T],
        buffer: &mut HostBuffer<T>,
    ) -> Result<(), GpuError> {
        self.lent.fetch_add(host.len() as u64, Ordering::Relaxed);
        self.copy_from_host(host, buffer)
    }

    fn prepare(&self, keys: &[KernelKey]) -> Result<(), GpuError> {
        self.faults.check(None)?;
        // Instances that no test launches are not compiled, whatever a plan prepares.
        keys.iter().try_for_each(|key| match crate::has_module(key.module.name()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(unknown(format!("no module {}", key.module.name()))),
            Err(reason) => Err(unknown(reason)),
        })
    }

    unsafe fn launch(
        &self,
        key: &KernelKey,
        config: LaunchConfig,
        args: &mut Args<'_>,
    ) -> Result<(), GpuError> {
        self.faults.wait();
        self.faults.check(Some(Call::Launch))?;
        config.check(&self.info)?;
        let expected = parameters(key)?;
        let found: Vec<usize> = args.kinds().iter().map(|kind| kind.bytes()).collect();
        if found != expected {
            return Err(GpuError::InvalidArgument {
                name: "args",
                expected: format!("parameters of {expected:?} bytes for {key}"),
                found: format!("{found:?}"),
            });
        }
        self.launched.lock().unwrap().insert(key.to_string());
        let LaunchConfig { grid, block, shared_bytes, cluster, .. } = config;
        let shape = Shape { grid, block, shared_bytes, cluster };
        let blocks = grid.iter().map(|&blocks| u64::from(blocks)).product();
        let only = self.only.map(|only| only(blocks));
        let pointers = args.pointers().as_mut_ptr();
        let name = name(key);
        // SAFETY: number and sizes of the parameters were compared; the rest is guaranteed by the
        // caller.
        let outcome = unsafe {
            crate::launch_for(Some(&self.test), &name, shape, pointers, self.order, only.as_deref())
        };
        outcome.unwrap_or_else(|fault| panic!("{key}: {fault}"));
        Ok(())
    }

    // Branches are clones: launches run one after the other.
    fn branches(&self, count: usize) -> Result<Vec<Self>, GpuError> {
        Ok(vec![self.clone(); count])
    }

    fn urgent_branch(&self) -> Result<Self, GpuError> {
        Ok(self.clone())
    }

    fn fork(&self, _: &[Self]) -> Result<(), GpuError> {
        self.faults.check(None)
    }

    fn join(&self, _: &[Self]) -> Result<(), GpuError> {
        self.faults.check(None)
    }

    // Work is done when it is issued.
    fn new_mark(&self) -> Result<(), GpuError> {
        self.faults.check(None)
    }

    fn set_mark(&self, (): &()) -> Result<(), GpuError> {
        self.faults.check(None)
    }

    fn wait_for(&self, (): &()) -> Result<(), GpuError> {
        self.faults.check(None)
    }

    fn reaches(&self, _: &Self) -> Result<bool, GpuError> {
        self.faults.check(None)?;
        Ok(true)
    }

    fn copy_from_other<T: Pod>(
        &self,
        _: &Self,
        (from, range): (&HostBuffer<T>, Range<usize>),
        to: &mut HostBuffer<T>,
        at: usize,
    ) -> Result<(), GpuError> {
        self.faults.check(None)?;
        check_ranges(from.values().len(), &range, to.values().len(), at)?;
        to.set(at, &from.values()[range]);
        Ok(())
    }

    fn synchronize(&self) -> Result<(), GpuError> {
        self.faults.check(None)
    }
}

fn name(key: &KernelKey) -> String {
    format!("{}:{}", key.module.name(), key.expression)
}

/// The sizes of a kernel's parameters.
fn parameters(key: &KernelKey) -> Result<&'static [usize], GpuError> {
    crate::parameter_bytes(&name(key)).map_err(unknown)
}

fn unknown(found: String) -> GpuError {
    GpuError::InvalidArgument {
        name: "key",
        expected: "a kernel that kernel-emu registers".to_owned(),
        found,
    }
}
