//! The functions of the [`Table`]: [`MpiComm`] with the calling convention of C.
#![allow(unsafe_code, reason = "pointers of a caller, as the table describes them")]

use std::ffi::c_void;
use std::slice;
use std::time::Duration;

use crate::comm::{MpiComm, library_version};
use crate::{FINALISED, Joined, Part, READY, Sink, Slice, Table, VERSION, Work};

static TABLE: Table = Table {
    version: VERSION,
    library,
    world,
    from_fortran,
    free,
    rank,
    size,
    host,
    join,
    local,
    any,
    all_gather,
    gather_bytes,
    gather_f64s,
    broadcast,
    all_to_all,
    exchange,
    all_gather_f64s,
    barrier,
    abort,
};

/// The functions for the MPI that this crate was built with.
pub fn table() -> &'static Table {
    &TABLE
}

impl Sink {
    /// # Safety
    /// `take` may be called with `to`.
    unsafe fn give(self, bytes: &[u8]) {
        // SAFETY: the bytes live during the call; else as the caller promises.
        unsafe { (self.take)(self.to, bytes.as_ptr(), bytes.len()) }
    }
}

impl Work {
    /// # Safety
    /// `run` may be called with `of`.
    unsafe fn run(self) {
        // SAFETY: as the caller promises.
        unsafe { (self.run)(self.of) }
    }
}

impl Slice {
    /// # Safety
    /// There are `len` bytes at `data`, which is not null, while the result is used.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: as the caller promises.
        unsafe { slice::from_raw_parts(self.data, self.len) }
    }
}

/// # Safety
/// `comm` is what [`hand_out`] gave, not freed, and used by this thread alone.
unsafe fn of<'a>(comm: *mut c_void) -> &'a mut MpiComm {
    // SAFETY: as the caller promises.
    unsafe { &mut *comm.cast() }
}

/// # Safety
/// `to` may be written.
unsafe fn hand_out(comm: Option<MpiComm>, to: *mut *mut c_void) -> i32 {
    let Some(comm) = comm else { return FINALISED };
    // SAFETY: as the caller promises.
    unsafe { to.write(Box::into_raw(Box::new(comm)).cast()) };
    READY
}

unsafe extern "C" fn library(sink: Sink) {
    // SAFETY: a sink of the caller.
    unsafe { sink.give(library_version().as_bytes()) }
}

unsafe extern "C" fn world(to: *mut *mut c_void) -> i32 {
    // SAFETY: a place of the caller.
    unsafe { hand_out(MpiComm::world(), to) }
}

unsafe extern "C" fn from_fortran(handle: i32, to: *mut *mut c_void) -> i32 {
    // SAFETY: a place of the caller.
    unsafe { hand_out(MpiComm::from_fortran(handle), to) }
}

unsafe extern "C" fn free(comm: *mut c_void, leaves: u8) {
    // SAFETY: a communicator of `hand_out`, which the caller uses no more.
    let comm = unsafe { Box::from_raw(comm.cast::<MpiComm>()) };
    comm.free(leaves != 0);
}

unsafe extern "C" fn rank(comm: *mut c_void) -> usize {
    // SAFETY: a communicator of the caller.
    unsafe { of(comm) }.rank()
}

unsafe extern "C" fn size(comm: *mut c_void) -> usize {
    // SAFETY: a communicator of the caller.
    unsafe { of(comm) }.size()
}

unsafe extern "C" fn host(comm: *mut c_void, sink: Sink) {
    // SAFETY: a communicator and a sink of the caller.
    unsafe { sink.give(of(comm).host().as_bytes()) }
}

unsafe extern "C" fn join(comm: *mut c_void, nanoseconds: u64) -> Joined {
    // SAFETY: a communicator of the caller.
    unsafe { of(comm) }.join(Duration::from_nanos(nanoseconds))
}

unsafe extern "C" fn local(comm: *mut c_void, rank: *mut usize, size: *mut usize) {
    // SAFETY: a communicator and two places of the caller.
    unsafe {
        let (own, all) = of(comm).local();
        rank.write(own);
        size.write(all);
    }
}

unsafe extern "C" fn any(comm: *mut c_void, own: u8) -> u8 {
    // SAFETY: a communicator of the caller.
    u8::from(unsafe { of(comm) }.any(own != 0))
}

unsafe extern "C" fn all_gather(comm: *mut c_void, own: Slice, sink: Sink) {
    // SAFETY: a communicator, bytes and a sink of the caller.
    unsafe { of(comm).all_gather(own.bytes()).iter().for_each(|bytes| sink.give(bytes)) }
}

unsafe extern "C" fn gather_bytes(comm: *mut c_void, own: Slice, sink: Sink) {
    // SAFETY: a communicator, bytes and a sink of the caller.
    unsafe {
        let all = of(comm).gather_bytes(own.bytes());
        all.iter().flatten().for_each(|bytes| sink.give(bytes));
    }
}

unsafe extern "C" fn gather_f64s(comm: *mut c_void, own: *const f64, len: usize, sink: Sink) {
    // SAFETY: a communicator, numbers and a sink of the caller. Numbers have no padding.
    unsafe {
        if let Some(all) = of(comm).gather_f64s(slice::from_raw_parts(own, len)) {
            sink.give(slice::from_raw_parts(all.as_ptr().cast(), size_of_val(&all[..])));
        }
    }
}

unsafe extern "C" fn broadcast(comm: *mut c_void, own: Slice, sink: Sink) {
    // SAFETY: a communicator, bytes and a sink of the caller.
    unsafe { sink.give(&of(comm).broadcast(own.bytes().to_vec())) }
}

unsafe extern "C" fn all_to_all(comm: *mut c_void, own: *const Slice, sink: Sink) {
    // SAFETY: a communicator, as many slices as ranks, and a sink of the caller.
    unsafe {
        let comm = of(comm);
        let own = slice::from_raw_parts(own, comm.size());
        let own: Vec<&[u8]> = own.iter().map(|slice| slice.bytes()).collect();
        comm.all_to_all(&own).iter().for_each(|bytes| sink.give(bytes));
    }
}

unsafe extern "C" fn exchange(
    comm: *mut c_void,
    to: *const Part,
    to_len: usize,
    send: Slice,
    from: *const Part,
    from_len: usize,
    receive: *mut u8,
    receive_len: usize,
    work: Work,
) {
    // SAFETY: a communicator, lists, buffers and work of the caller, which share no memory that is
    // written.
    unsafe {
        let (to, from) = (slice::from_raw_parts(to, to_len), slice::from_raw_parts(from, from_len));
        let receive = slice::from_raw_parts_mut(receive, receive_len);
        of(comm).exchange(to, send.bytes(), from, receive, &mut || work.run());
    }
}

unsafe extern "C" fn all_gather_f64s(
    comm: *mut c_void,
    own: *const f64,
    len: usize,
    all: *mut f64,
    work: Work,
) {
    // SAFETY: a communicator, numbers, a place for those of all ranks, and work of the caller.
    unsafe {
        let comm = of(comm);
        let (own, ranks) = (slice::from_raw_parts(own, len), comm.size());
        let all = slice::from_raw_parts_mut(all, len * ranks);
        comm.all_gather_f64s(own, all, &mut || work.run());
    }
}

unsafe extern "C" fn barrier(comm: *mut c_void) {
    // SAFETY: a communicator of the caller.
    unsafe { of(comm) }.barrier();
}

unsafe extern "C" fn abort(comm: *mut c_void, code: u8) {
    // SAFETY: a communicator of the caller.
    unsafe { of(comm) }.abort(code)
}
