//! Ranks of an MPI communicator.

use std::mem::ManuallyDrop;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::environment::{self, Universe};
use mpi::request::WaitGuard;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

use crate::{Joined, Part};

/// Tags of the messages by which ranks come together, on the communicator of the caller. Other
/// messages go over a communicator of our own.
const COME: i32 = 31_007;
const GO: i32 = 31_008;

/// Tags of messages between any two ranks, on the communicator of our own: lists of each other's
/// columns, and elements of vectors.
const LISTS: i32 = 1;
const HALO: i32 = 2;

/// Most elements of one message: MPI counts them in 32 bits.
const MOST: usize = 1 << 27;

/// How long the other ranks wait beyond the limit, so that rank 0 tells first who is missing.
const GRACE: Duration = Duration::from_secs(2);

/// A communicator, and MPI itself if this process initialised it for us.
pub(crate) struct MpiComm {
    /// A duplicate of the caller's communicator, once all ranks have come.
    comm: ManuallyDrop<SimpleCommunicator>,
    universe: ManuallyDrop<Option<Universe>>,
    is_own: bool,
}

impl MpiComm {
    /// All ranks of the job; `None` where MPI was finalised.
    pub(crate) fn world() -> Option<Self> {
        if environment::is_finalized() {
            return None;
        }
        let universe = mpi::initialize_with_threading(Threading::Funneled);
        let universe = universe.map(|(universe, _)| universe);
        Some(Self::new(SimpleCommunicator::world(), universe))
    }

    /// A duplicate of the communicator with this handle, made when all ranks have come; `None` where
    /// MPI does not run.
    pub(crate) fn from_fortran(handle: i32) -> Option<Self> {
        let runs = environment::is_initialized() && !environment::is_finalized();
        runs.then(|| Self::new(communicator_of(handle), None))
    }

    fn new(comm: SimpleCommunicator, universe: Option<Universe>) -> Self {
        let (comm, universe) = (ManuallyDrop::new(comm), ManuallyDrop::new(universe));
        Self { comm, universe, is_own: false }
    }

    fn wait_for_all(&self, end: Instant) -> Joined {
        let mut is_here = vec![false; self.size()];
        is_here[0] = true;
        loop {
            while let Some(status) = self.comm.any_process().immediate_probe_with_tag(COME) {
                let source = status.source_rank();
                let mut one = [0u8];
                self.comm.process_at_rank(source).receive_into_with_tag(&mut one[..], COME);
                is_here[source as usize] = true;
            }
            let Some(first_missing) = is_here.iter().position(|&is_here| !is_here) else { break };
            if Instant::now() >= end {
                let came = is_here.iter().filter(|&&is_here| is_here).count();
                return Joined { end: 1, came, first_missing };
            }
            sleep(Duration::from_millis(1));
        }
        for rank in 1..self.comm.size() {
            self.comm.process_at_rank(rank).send_with_tag(&[0u8][..], GO);
        }
        Joined::default()
    }

    fn wait_for_first(&self, end: Instant) -> Joined {
        let first = self.comm.process_at_rank(0);
        first.send_with_tag(&[0u8][..], COME);
        while first.immediate_probe_with_tag(GO).is_none() {
            if Instant::now() >= end {
                return Joined { end: 2, ..Joined::default() };
            }
            sleep(Duration::from_millis(1));
        }
        first.receive_into_with_tag(&mut [0u8][..], GO);
        Joined::default()
    }

    /// Sends numbers to rank 0: their count, then pieces.
    fn send<T: Equivalence>(&self, numbers: &[T]) {
        let first = self.comm.process_at_rank(0);
        first.send(&(numbers.len() as u64));
        numbers.chunks(MOST).for_each(|piece| first.send(piece));
    }

    /// Appends the numbers that a rank sends.
    fn receive<T: Equivalence + Clone + Default>(&self, rank: usize, all: &mut Vec<T>) {
        let from = self.comm.process_at_rank(rank as i32);
        let (count, _) = from.receive::<u64>();
        let start = all.len();
        all.resize(start + count as usize, T::default());
        all[start..].chunks_mut(MOST).for_each(|piece| {
            from.receive_into(piece);
        });
    }

    /// The bytes of a rank, on all ranks.
    fn broadcast_from(&self, root: usize, own: Vec<u8>) -> Vec<u8> {
        let process = self.comm.process_at_rank(root as i32);
        let mut length = own.len() as u64;
        process.broadcast_into(&mut length);
        let mut bytes = if self.rank() == root { own } else { vec![0; length as usize] };
        bytes.chunks_mut(MOST).for_each(|piece| process.broadcast_into(piece));
        bytes
    }

    pub(crate) fn rank(&self) -> usize {
        self.comm.rank() as usize
    }

    pub(crate) fn size(&self) -> usize {
        self.comm.size() as usize
    }

    pub(crate) fn host(&self) -> String {
        environment::processor_name().unwrap_or_else(|_| "a host without a name".to_owned())
    }

    /// Ranks tell rank 0 that they are there, which tells them to go on.
    pub(crate) fn join(&mut self, limit: Duration) -> Joined {
        let start = Instant::now();
        let joined = match self.rank() {
            0 => self.wait_for_all(start + limit),
            _ => self.wait_for_first(start + limit + GRACE),
        };
        if joined.end == 0 {
            // The communicator of the caller is left to the caller.
            self.comm = ManuallyDrop::new(self.comm.duplicate());
            self.is_own = true;
        }
        joined
    }

    pub(crate) fn local(&self) -> (usize, usize) {
        let local = self.comm.split_shared(self.comm.rank());
        (local.rank() as usize, local.size() as usize)
    }

    pub(crate) fn any(&self, own: bool) -> bool {
        let mut any = 0u8;
        self.comm.all_reduce_into(&u8::from(own), &mut any, SystemOperation::max());
        any != 0
    }

    pub(crate) fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        let mut lengths = vec![0u64; self.size()];
        self.comm.all_gather_into(&(own.len() as u64), &mut lengths[..]);
        let total: u64 = lengths.iter().sum();
        if total > MOST as u64 {
            // Too much for the counts of one collective: rank after rank.
            return (0..self.size()).map(|root| self.broadcast_from(root, own.to_vec())).collect();
        }
        let counts: Vec<i32> = lengths.iter().map(|&length| length as i32).collect();
        let starts: Vec<i32> = counts
            .iter()
            .scan(0, |end, &count| Some(std::mem::replace(end, *end + count)))
            .collect();
        let mut all = vec![0u8; total as usize];
        let mut parts = PartitionMut::new(&mut all[..], &counts[..], &starts[..]);
        self.comm.all_gather_varcount_into(own, &mut parts);
        let part =
            |(&start, &count): (&i32, &i32)| all[start as usize..(start + count) as usize].to_vec();
        starts.iter().zip(&counts).map(part).collect()
    }

    pub(crate) fn gather_bytes(&self, own: &[u8]) -> Option<Vec<Vec<u8>>> {
        if self.rank() != 0 {
            self.send(own);
            return None;
        }
        let mut all = vec![own.to_vec()];
        for rank in 1..self.size() {
            let mut bytes = Vec::new();
            self.receive(rank, &mut bytes);
            all.push(bytes);
        }
        Some(all)
    }

    pub(crate) fn gather_f64s(&self, own: &[f64]) -> Option<Vec<f64>> {
        if self.rank() != 0 {
            self.send(own);
            return None;
        }
        let mut all = own.to_vec();
        (1..self.size()).for_each(|rank| self.receive(rank, &mut all));
        Some(all)
    }

    pub(crate) fn broadcast(&self, own: Vec<u8>) -> Vec<u8> {
        self.broadcast_from(0, own)
    }

    /// The lengths of all messages by one collective, then the messages.
    pub(crate) fn all_to_all(&self, own: &[&[u8]]) -> Vec<Vec<u8>> {
        let lengths: Vec<u64> = own.iter().map(|bytes| bytes.len() as u64).collect();
        let mut others = vec![0u64; lengths.len()];
        self.comm.all_to_all_into(&lengths[..], &mut others[..]);
        let mut all: Vec<Vec<u8>> = others.iter().map(|&length| vec![0; length as usize]).collect();
        mpi::request::scope(|scope| {
            let mut waits = Vec::new();
            for (rank, bytes) in all.iter_mut().enumerate() {
                let from = self.comm.process_at_rank(rank as i32);
                for piece in bytes.chunks_mut(MOST) {
                    let request = from.immediate_receive_into_with_tag(scope, piece, LISTS);
                    waits.push(WaitGuard::from(request));
                }
            }
            let mut sent = Vec::new();
            for (rank, bytes) in own.iter().enumerate() {
                let to = self.comm.process_at_rank(rank as i32);
                for piece in bytes.chunks(MOST) {
                    let request = to.immediate_send_with_tag(scope, piece, LISTS);
                    sent.push(WaitGuard::from(request));
                }
            }
        });
        all
    }

    pub(crate) fn exchange(
        &self,
        to: &[Part],
        send: &[u8],
        from: &[Part],
        receive: &mut [u8],
        meanwhile: &mut dyn FnMut(),
    ) {
        mpi::request::scope(|scope| {
            // Guards wait when they are dropped, after a panic of `meanwhile` too.
            let mut received = Vec::with_capacity(from.len());
            let (mut rest, mut taken) = (receive, 0);
            for part in from {
                let (_, behind) = rest.split_at_mut(part.start - taken);
                let (own, behind) = behind.split_at_mut(part.len);
                (rest, taken) = (behind, part.start + part.len);
                let process = self.comm.process_at_rank(part.rank as i32);
                for piece in own.chunks_mut(MOST) {
                    let request = process.immediate_receive_into_with_tag(scope, piece, HALO);
                    received.push(WaitGuard::from(request));
                }
            }
            let mut sent = Vec::with_capacity(to.len());
            for part in to {
                let process = self.comm.process_at_rank(part.rank as i32);
                for piece in send[part.start..][..part.len].chunks(MOST) {
                    let request = process.immediate_send_with_tag(scope, piece, HALO);
                    sent.push(WaitGuard::from(request));
                }
            }
            meanwhile();
        });
    }

    pub(crate) fn all_gather_f64s(
        &self,
        own: &[f64],
        all: &mut [f64],
        meanwhile: &mut dyn FnMut(),
    ) {
        mpi::request::scope(|scope| {
            let request = self.comm.immediate_all_gather_into(scope, own, all);
            let _gathered = WaitGuard::from(request);
            meanwhile();
        });
    }

    pub(crate) fn barrier(&self) {
        self.comm.barrier();
    }

    pub(crate) fn abort(&self, code: u8) -> ! {
        // The launcher of MPICH drops lines that it has not yet read when a rank aborts.
        sleep(Duration::from_millis(200));
        self.comm.abort(i32::from(code))
    }
}

impl MpiComm {
    /// Frees the communicator and finalises MPI where this process initialised it for us. Both wait
    /// for the other ranks, and are left out unless this rank `leaves`, after a panic, and where not
    /// all ranks have come.
    #[allow(unsafe_code)]
    pub(crate) fn free(mut self, leaves: bool) {
        if !leaves || !self.is_own || environment::is_finalized() {
            return;
        }
        // A launcher ends all processes when one has ended with an exit code: none is ahead.
        self.barrier();
        // SAFETY: neither is used after this.
        unsafe {
            ManuallyDrop::drop(&mut self.comm);
            ManuallyDrop::drop(&mut self.universe);
        }
    }
}

/// The communicator of a Fortran handle, which stays with the caller.
#[allow(unsafe_code)]
fn communicator_of(handle: i32) -> SimpleCommunicator {
    // SAFETY: MPI is initialised. The handle is that of a living communicator, as
    // `Ranks::from_fortran` demands; it is not freed, since it is kept in `ManuallyDrop` and replaced
    // by a duplicate.
    unsafe { SimpleCommunicator::from_raw(mpi::ffi::RSMPI_Comm_f2c(handle)) }
}

/// Name and version of the MPI.
pub(crate) fn library_version() -> String {
    let library = environment::library_version().unwrap_or_default();
    // Some versions are several lines long.
    let library = library.trim_end_matches('\0').split([',', '\n']).next();
    let library = library.unwrap_or("this MPI").split_whitespace().collect::<Vec<_>>();
    library.join(" ")
}
