//! The [`Table`] and the types of its functions.

use std::ffi::c_void;

/// The version of [`Table`], which is part of the name that a library exports it by. It changes with
/// the layout of the table and with the meaning of a function.
pub const VERSION: u32 = 1;

/// A communicator was made.
pub const READY: i32 = 0;
/// MPI was finalised before, or, for a communicator of the caller, not initialised yet.
pub const FINALISED: i32 = 1;

/// Who takes bytes that a function returns: `take(to, data, len)` is called once for each piece, and
/// copies the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sink {
    /// The first argument of `take`.
    pub to: *mut c_void,
    /// Takes a piece.
    pub take: unsafe extern "C" fn(to: *mut c_void, data: *const u8, len: usize),
}

/// Work that is done while data travels: `run(of)`, which does not unwind.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The argument of `run`.
    pub of: *mut c_void,
    /// Does the work.
    pub run: unsafe extern "C" fn(of: *mut c_void),
}

/// A message to or from another rank: a part of a buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The other rank.
    pub rank: usize,
    /// The first byte.
    pub start: usize,
    /// Number of bytes.
    pub len: usize,
}

/// Bytes that a caller lends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// The first byte; not null.
    pub data: *const u8,
    /// Number of bytes.
    pub len: usize,
}

/// How a join ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// 0: all ranks have come. 1: not all came to rank 0, which is this one. 2: rank 0 did not answer.
    pub end: u32,
    /// With `end` 1, how many ranks came.
    pub came: usize,
    /// With `end` 1, the lowest rank that did not.
    pub first_missing: usize,
}

/// A communicator, as the functions name it.
type Comm = *mut c_void;

/// What carries data between the ranks of a communicator. All ranks call the same functions in the same
/// order, from one thread, but for `abort`. A communicator is what `world` or `from_fortran` gave, and
/// is not used after `free`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// [`VERSION`].
    pub version: u32,
    /// Name and version of the MPI.
    pub library: unsafe extern "C" fn(Sink),
    /// Initialises MPI, if that was not done, and takes all ranks of the job: [`READY`] or
    /// [`FINALISED`].
    pub world: unsafe extern "C" fn(*mut Comm) -> i32,
    /// Takes the communicator of a Fortran handle, which stays with the caller: [`READY`] or
    /// [`FINALISED`].
    pub from_fortran: unsafe extern "C" fn(handle: i32, *mut Comm) -> i32,
    /// Ends a communicator. With `leaves` != 0 it waits for the other ranks, and finalises MPI if
    /// `world` has initialised it; otherwise nothing is sent any more.
    pub free: unsafe extern "C" fn(Comm, leaves: u8),
    /// The number of this rank.
    pub rank: unsafe extern "C" fn(Comm) -> usize,
    /// Number of ranks.
    pub size: unsafe extern "C" fn(Comm) -> usize,
    /// The name of this host.
    pub host: unsafe extern "C" fn(Comm, Sink),
    /// Waits until all ranks have come, at most `nanoseconds`. Of all functions only `rank`, `size`,
    /// `host`, `abort` and `free` may be called before it.
    pub join: unsafe extern "C" fn(Comm, nanoseconds: u64) -> Joined,
    /// The number of this rank among those of its host, and their number.
    pub local: unsafe extern "C" fn(Comm, rank: *mut usize, size: *mut usize),
    /// Whether `own` is not 0 on any rank.
    pub any: unsafe extern "C" fn(Comm, own: u8) -> u8,
    /// The bytes of all ranks, on all ranks: a piece for each.
    pub all_gather: unsafe extern "C" fn(Comm, own: Slice, Sink),
    /// The bytes of all ranks on rank 0, a piece for each; nothing on the others.
    pub gather_bytes: unsafe extern "C" fn(Comm, own: Slice, Sink),
    /// The `f64` of all ranks on rank 0, one piece of bytes for all; nothing on the others.
    pub gather_f64s: unsafe extern "C" fn(Comm, own: *const f64, len: usize, Sink),
    /// The bytes of rank 0, on all ranks: one piece.
    pub broadcast: unsafe extern "C" fn(Comm, own: Slice, Sink),
    /// Sends the r-th of `own`, as many as ranks, to rank r; a piece of each rank to this one.
    pub all_to_all: unsafe extern "C" fn(Comm, own: *const Slice, Sink),
    /// Starts to send parts of `send` and to receive parts of `receive`, does the work, and waits for
    /// all of them. The parts of `receive` follow each other.
    pub exchange: unsafe extern "C" fn(
        Comm,
        to: *const Part,
        to_len: usize,
        send: Slice,
        from: *const Part,
        from_len: usize,
        receive: *mut u8,
        receive_len: usize,
        Work,
    ),
    /// Starts to gather `own` of all ranks, `len` numbers of each, into `all`, which has those of all
    /// ranks; does the work, and waits.
    pub all_gather_f64s:
        unsafe extern "C" fn(Comm, own: *const f64, len: usize, all: *mut f64, Work),
    /// Waits for all ranks.
    pub barrier: unsafe extern "C" fn(Comm),
    /// Ends the processes of all ranks.
    pub abort: unsafe extern "C" fn(Comm, code: u8),
}
