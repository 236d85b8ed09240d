//! Elements that go from GPU to GPU of one process without the host: [`Mailbox`], [`Peers`].

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use sparsebatch_cuda::{Executor, GpuError, KernelBuffer};

/// Number of products whose elements are kept apart: those of a product are packed while another GPU
/// may still copy those of the product before.
const SLOTS: usize = 2;

/// What the other GPUs of a process see of a [`HaloPlan`](super::HaloPlan).
pub struct Mailbox<E: Executor> {
    executor: E,
    slots: [Slot<E>; SLOTS],
}

/// The elements of one product.
struct Slot<E: Executor> {
    packed: Mutex<E::Buffer<u8>>,
    /// Set when they have been packed.
    ready: E::Mark,
    /// Set when this GPU has copied those of the others.
    taken: E::Mark,
}

/// Bytes that another GPU packs for this one.
pub struct Incoming<E: Executor> {
    /// Where they are packed.
    pub from: Arc<Mailbox<E>>,
    /// Which of its bytes.
    pub bytes: Range<usize>,
    /// Where they begin among the bytes of the halo.
    pub at: usize,
}

/// The GPUs that a plan exchanges elements with.
pub(super) struct Peers<E: Executor> {
    own: Arc<Mailbox<E>>,
    /// Those that elements are sent to or come from.
    neighbours: Vec<Arc<Mailbox<E>>>,
    incoming: Vec<Incoming<E>>,
    /// Products started.
    products: usize,
    /// Of the copies.
    executor: E,
}

impl<E: Executor> Slot<E> {
    fn new(executor: &E, bytes: usize) -> Result<Self, GpuError> {
        Ok(Self {
            packed: Mutex::new(executor.alloc(bytes)?),
            ready: executor.new_mark()?,
            taken: executor.new_mark()?,
        })
    }
}

impl<E: Executor> Mailbox<E> {
    /// Memory for `bytes` packed bytes of each of two products.
    pub(super) fn new(executor: E, bytes: usize) -> Result<Self, GpuError> {
        let slots = [Slot::new(&executor, bytes)?, Slot::new(&executor, bytes)?];
        Ok(Self { executor, slots })
    }

    /// Whether another GPU can copy from here.
    ///
    /// # Errors
    /// What the device reports.
    pub fn is_reached_by(&self, other: &E) -> Result<bool, GpuError> {
        other.reaches(&self.executor)
    }
}

impl<E: Executor> Peers<E> {
    pub(super) fn new(
        executor: E,
        own: Arc<Mailbox<E>>,
        neighbours: Vec<Arc<Mailbox<E>>>,
        incoming: Vec<Incoming<E>>,
    ) -> Self {
        Self { own, neighbours, incoming, products: 0, executor }
    }

    /// Takes the next slot. To be called once for each product, whatever fails, since all GPUs count
    /// alike.
    pub(super) fn turn(&mut self) {
        self.products += 1;
    }

    fn slot(&self) -> usize {
        self.products % SLOTS
    }

    /// Packs by `pack`, on the stream of the copies, when the others have copied what was there.
    pub(super) fn pack(
        &self,
        pack: impl FnOnce(&E, &mut E::Buffer<u8>) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let number = self.slot();
        for neighbour in &self.neighbours {
            self.executor.wait_for(&neighbour.slots[number].taken)?;
        }
        let slot = &self.own.slots[number];
        let mut packed = slot.packed.lock().unwrap_or_else(PoisonError::into_inner);
        pack(&self.executor, &mut packed)?;
        self.executor.set_mark(&slot.ready)
    }

    /// Copies the elements that the others have packed, after all of them have said that they did;
    /// NaN in the place of those of `lost`, which have failed.
    pub(super) fn fetch(&self, into: &mut E::Buffer<u8>, lost: &[usize]) -> Result<(), GpuError> {
        let number = self.slot();
        if !lost.is_empty() {
            self.executor.copy_from_host(&vec![0xff; into.len()], into)?;
        }
        let others = self.incoming.iter().enumerate();
        for (_, Incoming { from, bytes, at }) in others.filter(|(place, _)| !lost.contains(place)) {
            let slot = &from.slots[number];
            self.executor.wait_for(&slot.ready)?;
            let packed = slot.packed.lock().unwrap_or_else(PoisonError::into_inner);
            self.executor.copy_from_other(&from.executor, (&packed, bytes.clone()), into, *at)?;
        }
        self.executor.set_mark(&self.own.slots[number].taken)
    }
}

impl<E: Executor> Drop for Peers<E> {
    /// Waits for the copies from memory that others may free.
    fn drop(&mut self) {
        self.executor.synchronize().ok();
    }
}
