//! Ranks of an MPI communicator, by the functions of `sparsebatch-mpi-transport`.
#![allow(unsafe_code, reason = "calls by the table of another library")]

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::time::Duration;

use sparsebatch_mpi_transport::{FINALISED, Joined, Part, Sink, Slice, Table, Work};

use super::{Late, Message, Transport};
use crate::MpiError;
use crate::places::launched_by;

/// A communicator of the MPI behind a table.
pub(crate) struct MpiComm {
    table: &'static Table,
    comm: *mut c_void,
}

impl MpiComm {
    /// Initialises MPI, if that was not done, and takes all ranks of the job.
    pub(crate) fn world(table: &'static Table) -> Result<Self, MpiError> {
        let mut comm = null_mut();
        // SAFETY: the place is this one.
        let made = unsafe { (table.world)(&mut comm) };
        let comm = Self::made(table, made, comm)?;
        if comm.size() == 1 {
            comm.check_launcher()?;
        }
        Ok(comm)
    }

    /// Takes the communicator of a Fortran handle.
    pub(crate) fn from_fortran(table: &'static Table, handle: i32) -> Result<Self, MpiError> {
        let mut comm = null_mut();
        // SAFETY: the place is this one; the handle is as `Ranks::from_fortran` demands.
        let made = unsafe { (table.from_fortran)(handle, &mut comm) };
        Self::made(table, made, comm)
    }

    fn made(table: &'static Table, made: i32, comm: *mut c_void) -> Result<Self, MpiError> {
        if made == FINALISED { Err(MpiError::Finalised) } else { Ok(Self { table, comm }) }
    }

    /// Refuses a launcher that has started several processes where MPI shows this one alone.
    fn check_launcher(&self) -> Result<(), MpiError> {
        match launched_by(|variable| std::env::var(variable).ok()) {
            Some((variable, launched)) if launched > 1 => {
                // SAFETY: the sink lives during the call.
                let library = text(|sink| unsafe { (self.table.library)(sink) });
                Err(MpiError::OtherMpi { launched, variable, library })
            }
            _ => Ok(()),
        }
    }
}

/// The pieces that a function gives.
fn pieces(give: impl FnOnce(Sink)) -> Vec<Vec<u8>> {
    unsafe extern "C" fn take(to: *mut c_void, data: *const u8, len: usize) {
        // SAFETY: `to` is the list below, and the table promises `len` bytes at `data`.
        let (all, piece) =
            unsafe { (&mut *to.cast::<Vec<Vec<u8>>>(), std::slice::from_raw_parts(data, len)) };
        all.push(piece.to_vec());
    }
    let mut all: Vec<Vec<u8>> = Vec::new();
    give(Sink { to: (&raw mut all).cast(), take });
    all
}

fn text(give: impl FnOnce(Sink)) -> String {
    String::from_utf8_lossy(&pieces(give).concat()).into_owned()
}

fn slice(bytes: &[u8]) -> Slice {
    Slice { data: bytes.as_ptr(), len: bytes.len() }
}

fn parts(messages: &[Message]) -> Vec<Part> {
    let part = |(rank, range): &Message| Part { rank: *rank, start: range.start, len: range.len() };
    messages.iter().map(part).collect()
}

/// Runs `call` with work that other functions call, and continues a panic of the work after it: none
/// may cross the other library.
fn while_it_works(meanwhile: &mut dyn FnMut(), call: impl FnOnce(Work)) {
    struct Own<'w> {
        meanwhile: &'w mut dyn FnMut(),
        panic: Option<Box<dyn Any + Send>>,
    }
    unsafe extern "C" fn run(of: *mut c_void) {
        // SAFETY: `of` is the value below.
        let own = unsafe { &mut *of.cast::<Own<'_>>() };
        own.panic = catch_unwind(AssertUnwindSafe(|| (own.meanwhile)())).err();
    }
    let mut own = Own { meanwhile, panic: None };
    call(Work { of: (&raw mut own).cast(), run });
    if let Some(panic) = own.panic {
        resume_unwind(panic);
    }
}

// SAFETY of all calls below: the communicator is that of this value, and lives; lists, buffers, sinks
// and work live during the call, and what is written is shared with nothing else.
impl Transport for MpiComm {
    fn rank(&self) -> usize {
        // SAFETY: as above.
        unsafe { (self.table.rank)(self.comm) }
    }

    fn size(&self) -> usize {
        // SAFETY: as above.
        unsafe { (self.table.size)(self.comm) }
    }

    fn host(&self) -> String {
        // SAFETY: as above.
        text(|sink| unsafe { (self.table.host)(self.comm, sink) })
    }

    fn join(&mut self, limit: Duration) -> Result<(), Late> {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX / 4);
        // SAFETY: as above.
        match unsafe { (self.table.join)(self.comm, limit.min(u64::MAX / 4)) } {
            Joined { end: 0, .. } => Ok(()),
            Joined { end: 1, came, first_missing } => Err(Late::Missing { came, first_missing }),
            _ => Err(Late::NoAnswer),
        }
    }

    fn local(&self) -> (usize, usize) {
        let (mut rank, mut size) = (0, 1);
        // SAFETY: as above.
        unsafe { (self.table.local)(self.comm, &mut rank, &mut size) };
        (rank, size)
    }

    fn any(&self, own: bool) -> bool {
        // SAFETY: as above.
        unsafe { (self.table.any)(self.comm, u8::from(own)) != 0 }
    }

    fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        // SAFETY: as above.
        pieces(|sink| unsafe { (self.table.all_gather)(self.comm, slice(own), sink) })
    }

    fn gather_bytes(&self, own: &[u8]) -> Option<Vec<Vec<u8>>> {
        // SAFETY: as above.
        let all = pieces(|sink| unsafe { (self.table.gather_bytes)(self.comm, slice(own), sink) });
        (self.rank() == 0).then_some(all)
    }

    fn gather_f64s(&self, own: &[f64]) -> Option<Vec<f64>> {
        let all = pieces(|sink| {
            // SAFETY: as above.
            unsafe { (self.table.gather_f64s)(self.comm, own.as_ptr(), own.len(), sink) }
        });
        let (numbers, _) = all.first()?.as_chunks();
        Some(numbers.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect())
    }

    fn broadcast(&self, own: Vec<u8>) -> Vec<u8> {
        // SAFETY: as above.
        pieces(|sink| unsafe { (self.table.broadcast)(self.comm, slice(&own), sink) }).concat()
    }

    fn all_to_all(&self, own: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let own: Vec<Slice> = own.iter().map(|bytes| slice(bytes)).collect();
        // SAFETY: as above; there are as many slices as ranks, as all transports ask for.
        pieces(|sink| unsafe { (self.table.all_to_all)(self.comm, own.as_ptr(), sink) })
    }

    fn exchange(
        &self,
        to: &[Message],
        send: &[u8],
        from: &[Message],
        receive: &mut [u8],
        meanwhile: &mut dyn FnMut(),
    ) {
        let (to, from) = (parts(to), parts(from));
        while_it_works(meanwhile, |work| {
            // SAFETY: as above.
            unsafe {
                (self.table.exchange)(
                    self.comm,
                    to.as_ptr(),
                    to.len(),
                    slice(send),
                    from.as_ptr(),
                    from.len(),
                    receive.as_mut_ptr(),
                    receive.len(),
                    work,
                );
            }
        });
    }

    fn all_gather_f64s(&self, own: &[f64], all: &mut [f64], meanwhile: &mut dyn FnMut()) {
        assert_eq!(all.len(), own.len() * self.size(), "numbers of all ranks");
        while_it_works(meanwhile, |work| {
            let (own, len) = (own.as_ptr(), own.len());
            // SAFETY: as above.
            unsafe { (self.table.all_gather_f64s)(self.comm, own, len, all.as_mut_ptr(), work) }
        });
    }

    fn barrier(&self) {
        // SAFETY: as above.
        unsafe { (self.table.barrier)(self.comm) }
    }

    fn abort(&self, code: u8) -> ! {
        // SAFETY: as above.
        unsafe { (self.table.abort)(self.comm, code) };
        std::process::exit(i32::from(code))
    }
}

impl Drop for MpiComm {
    fn drop(&mut self) {
        let leaves = u8::from(!std::thread::panicking());
        // SAFETY: the communicator is used no more.
        unsafe { (self.table.free)(self.comm, leaves) }
    }
}
