//! Large copies between host and device through pinned memory.
//!
//! The GPU reads and writes pinned memory directly. Two chunks alternate: while one is transferred,
//! the host copies the other, with several threads since one thread is far slower than the bus.

use cudarc::driver::sys::{self, CUdeviceptr};

use rayon::prelude::*;

use super::driver::{bind, check};
use super::pinned::PinnedMemory;
use super::{Device, Event};
use crate::GpuError;

/// Copies below this size, in bytes, are not staged.
pub(super) const STAGED_BYTES: usize = 4 << 20;

/// Maximum number of chunk pairs that are kept for later copies.
pub(super) const STAGINGS: usize = 4;

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 8 << 20;

/// Bytes that a thread copies at a time.
const PART_BYTES: usize = 512 << 10;

/// The two chunks of a device.
pub(super) struct Staging([Chunk; 2]);

impl Staging {
    pub(super) fn new(device: &Device) -> Result<Self, GpuError> {
        Ok(Self([Chunk::new(device)?, Chunk::new(device)?]))
    }

    /// Copies to the device and waits.
    ///
    /// # Safety
    /// `to` is the address of at least `from.len()` bytes of the device.
    pub(super) unsafe fn upload(
        &self,
        device: &Device,
        from: &[u8],
        to: CUdeviceptr,
    ) -> Result<(), GpuError> {
        let mut outcome = Ok(());
        for (i, part) in from.chunks(CHUNK_BYTES).enumerate() {
            let chunk = &self.0[i % 2];
            let target = to + (i * CHUNK_BYTES) as u64;
            // SAFETY: (1) `part` is at most a chunk; (2) `target` has at least its length behind
            // it, by the contract of this function.
            outcome = unsafe { chunk.send(device, part, target) };
            if outcome.is_err() {
                break;
            }
        }
        // No copy uses the chunks after this call.
        device.wait().and(outcome)
    }

    /// Copies from the device and waits.
    ///
    /// # Safety
    /// `from` is the address of at least `to.len()` bytes of the device.
    pub(super) unsafe fn download(
        &self,
        device: &Device,
        from: CUdeviceptr,
        to: &mut [u8],
    ) -> Result<(), GpuError> {
        let mut outcome = Ok(());
        // The part requested in the previous iteration, and its chunk.
        let mut arriving: Option<(&Chunk, &mut [u8])> = None;
        for (i, part) in to.chunks_mut(CHUNK_BYTES).enumerate() {
            let chunk = &self.0[i % 2];
            // SAFETY: (1) `part` is at most a chunk; (2) `from` has that many bytes behind it, by
            // the contract of this function; (3) the chunk was emptied two parts ago.
            outcome = unsafe { chunk.request(device, from + (i * CHUNK_BYTES) as u64, part.len()) };
            if outcome.is_err() {
                break;
            }
            if let Some((chunk, part)) = arriving.replace((chunk, part)) {
                outcome = chunk.receive(part);
                if outcome.is_err() {
                    break;
                }
            }
        }
        if let (Ok(()), Some((chunk, part))) = (&outcome, arriving) {
            outcome = chunk.receive(part);
        }
        // No copy uses the chunks after this call.
        device.wait().and(outcome)
    }
}

/// Pinned memory, and the event after the last copy that used it.
struct Chunk {
    memory: PinnedMemory,
    done: Event,
}

impl Chunk {
    fn new(device: &Device) -> Result<Self, GpuError> {
        let memory = PinnedMemory::new(device, CHUNK_BYTES)?;
        // SAFETY: the memory has that many bytes.
        unsafe { memory.start().write_bytes(0, CHUNK_BYTES) };
        Ok(Self { memory, done: Event::new(device)? })
    }

    /// The first `len` bytes of the chunk.
    ///
    /// # Safety
    /// 1. `len` is at most a chunk.
    /// 2. While the bytes are borrowed, no copy of the device uses the chunk, and its bytes have no
    ///    other borrow.
    #[expect(clippy::mut_from_ref, reason = "the memory is behind a pointer; see the contract")]
    unsafe fn bytes(&self, len: usize) -> &mut [u8] {
        // SAFETY: the memory has a chunk of bytes, which were set when it was made; the rest is the
        // contract of this function.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().as_ptr().cast(), len) }
    }

    /// Starts the copy of `part` to the device, after the last copy out of this chunk.
    ///
    /// # Safety
    /// `part` is at most a chunk, and `target` is the address of as many bytes of the device.
    unsafe fn send(
        &self,
        device: &Device,
        part: &[u8],
        target: CUdeviceptr,
    ) -> Result<(), GpuError> {
        self.done.wait()?;
        // SAFETY: (1) `part` is at most a chunk; (2) the event has passed, so that no copy reads
        // the chunk, and a staging is used by one copy at a time.
        copy(part, unsafe { self.bytes(part.len()) });
        let from = self.memory.start().as_ptr().cast();
        // SAFETY: (1) the context is bound by `wait`; (2) source and target have that many bytes;
        // (3) the chunk stays as it is until `done` has passed.
        let result =
            unsafe { sys::cuMemcpyHtoDAsync_v2(target, from, part.len(), device.stream.raw()) };
        check("cuMemcpyHtoDAsync", result)?;
        self.done.record(device)
    }

    /// Starts the copy of `len` bytes of the device into this chunk.
    ///
    /// # Safety
    /// `len` is at most a chunk, `from` is the address of as many bytes of the device, and what the
    /// chunk held was [received](Chunk::receive).
    unsafe fn request(
        &self,
        device: &Device,
        from: CUdeviceptr,
        len: usize,
    ) -> Result<(), GpuError> {
        bind(&device.shared.context)?;
        let to = self.memory.start().as_ptr().cast();
        // SAFETY: (1) the context is current; (2) source and target have that many bytes; (3) the
        // chunk is not read until `done` has passed.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, len, device.stream.raw()) };
        check("cuMemcpyDtoHAsync", result)?;
        self.done.record(device)
    }

    /// Waits for the copy into this chunk, which had `part.len()` bytes, and copies it to `part`.
    fn receive(&self, part: &mut [u8]) -> Result<(), GpuError> {
        self.done.wait()?;
        assert!(part.len() <= CHUNK_BYTES);
        // SAFETY: (1) checked above; (2) the event has passed, so that no copy writes to the chunk,
        // and a staging is used by one copy at a time.
        copy(unsafe { self.bytes(part.len()) }, part);
        Ok(())
    }
}

/// Copies on all threads.
fn copy(from: &[u8], to: &mut [u8]) {
    let parts = to.par_chunks_mut(PART_BYTES).zip(from.par_chunks(PART_BYTES));
    parts.for_each(|(to, from)| to.copy_from_slice(from));
}
