//! Ranks as threads of one process, which send each other messages through channels.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Late, Message, Shared, Transport};

/// How long a rank looks for a message, letting other threads run, before it sleeps: waking up takes
/// tens of microseconds, as long as an exchange between GPUs.
const AWAKE: Duration = Duration::from_micros(200);

/// What a message is for. Messages of one purpose arrive in the order in which they were sent, and
/// those of another purpose may be between them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Collective,
    Exchange,
    Sums,
}

/// The bytes of a message, and what it is for.
type Parcel = (Purpose, Vec<u8>);

/// What each rank of a group shares at the moment.
type Board = Mutex<Vec<Option<Shared>>>;

/// One rank among threads.
pub(crate) struct ThreadComm {
    rank: usize,
    /// To each rank, this one included.
    to: Vec<Sender<Parcel>>,
    /// From each rank.
    from: Vec<Receiver<Parcel>>,
    /// Parcels of each rank that have come before they were asked for.
    early: RefCell<Vec<VecDeque<Parcel>>>,
    board: Arc<Board>,
}

impl ThreadComm {
    /// The ranks of a group of `size` threads.
    pub(crate) fn group(size: usize) -> Vec<Self> {
        let mut to: Vec<Vec<Sender<Parcel>>> = (0..size).map(|_| Vec::new()).collect();
        let mut from: Vec<Vec<Receiver<Parcel>>> = Vec::new();
        for _ in 0..size {
            let (senders, receivers): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
            to.iter_mut().zip(senders).for_each(|(to, sender)| to.push(sender));
            from.push(receivers);
        }
        let ranks = to.into_iter().zip(from).enumerate();
        let early = || RefCell::new((0..size).map(|_| VecDeque::new()).collect());
        let board = Arc::<Board>::default();
        let of = |(rank, (to, from))| Self { rank, to, from, early: early(), board: board.clone() };
        ranks.map(of).collect()
    }

    /// # Panics
    /// When the thread of the other rank has ended, so that no rank waits for it for ever.
    fn send(&self, to: usize, purpose: Purpose, bytes: Vec<u8>) {
        assert!(self.to[to].send((purpose, bytes)).is_ok(), "rank {to} has ended");
    }

    /// # Panics
    /// As [`ThreadComm::send`].
    fn receive(&self, from: usize, purpose: Purpose) -> Vec<u8> {
        let early = &mut self.early.borrow_mut()[from];
        if let Some(at) = early.iter().position(|(found, _)| *found == purpose) {
            return early.remove(at).map(|(_, bytes)| bytes).unwrap_or_default();
        }
        loop {
            match self.next(from) {
                Ok((found, bytes)) if found == purpose => return bytes,
                Ok(parcel) => early.push_back(parcel),
                Err(_) => panic!("rank {from} has ended"),
            }
        }
    }

    /// The next message of a rank.
    fn next(&self, from: usize) -> Result<Parcel, RecvError> {
        let from = &self.from[from];
        let start = Instant::now();
        loop {
            match from.try_recv() {
                Ok(parcel) => return Ok(parcel),
                Err(TryRecvError::Disconnected) => return Err(RecvError),
                Err(TryRecvError::Empty) if start.elapsed() < AWAKE => std::thread::yield_now(),
                Err(TryRecvError::Empty) => return from.recv(),
            }
        }
    }

    fn ranks(&self) -> std::ops::Range<usize> {
        0..self.to.len()
    }
}

impl Transport for ThreadComm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn host(&self) -> String {
        "this host".to_owned()
    }

    fn join(&mut self, _: Duration) -> Result<(), Late> {
        Ok(())
    }

    fn local(&self) -> (usize, usize) {
        (self.rank, self.size())
    }

    fn any(&self, own: bool) -> bool {
        self.all_gather(&[u8::from(own)]).iter().any(|flag| flag == &[1])
    }

    fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        self.all_to_all(self.ranks().map(|_| own.to_vec()).collect())
    }

    fn gather_bytes(&self, own: &[u8]) -> Option<Vec<Vec<u8>>> {
        self.send(0, Purpose::Collective, own.to_vec());
        let all = || self.ranks().map(|from| self.receive(from, Purpose::Collective)).collect();
        (self.rank == 0).then(all)
    }

    fn gather_f64s(&self, own: &[f64]) -> Option<Vec<f64>> {
        let all = self.gather_bytes(&bytes_of(own))?;
        Some(all.iter().flat_map(|bytes| numbers_of(bytes)).collect())
    }

    fn broadcast(&self, own: Vec<u8>) -> Vec<u8> {
        if self.rank == 0 {
            self.ranks().for_each(|to| self.send(to, Purpose::Collective, own.clone()));
        }
        self.receive(0, Purpose::Collective)
    }

    fn all_to_all(&self, own: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let messages = own.into_iter().enumerate();
        messages.for_each(|(to, bytes)| self.send(to, Purpose::Collective, bytes));
        self.ranks().map(|from| self.receive(from, Purpose::Collective)).collect()
    }

    fn share(&self, own: Shared) -> Option<Vec<Shared>> {
        let board = || self.board.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut shared = board();
            shared.resize(self.size(), None);
            shared[self.rank] = Some(own);
        }
        self.barrier();
        let all = board().iter().flatten().cloned().collect();
        // Nobody replaces what another has not seen yet.
        self.barrier();
        board()[self.rank] = None;
        Some(all)
    }

    fn exchange(
        &self,
        to: &[Message],
        send: &[u8],
        from: &[Message],
        receive: &mut [u8],
        meanwhile: &mut dyn FnMut(),
    ) {
        for (rank, part) in to {
            self.send(*rank, Purpose::Exchange, send[part.clone()].to_vec());
        }
        meanwhile();
        for (rank, part) in from {
            receive[part.clone()].copy_from_slice(&self.receive(*rank, Purpose::Exchange));
        }
    }

    fn all_gather_f64s(&self, own: &[f64], all: &mut [f64], meanwhile: &mut dyn FnMut()) {
        self.ranks().for_each(|to| self.send(to, Purpose::Sums, bytes_of(own)));
        meanwhile();
        if own.is_empty() {
            self.ranks().for_each(|from| drop(self.receive(from, Purpose::Sums)));
            return;
        }
        for (from, part) in all.chunks_mut(own.len()).enumerate() {
            let bytes = self.receive(from, Purpose::Sums);
            part.iter_mut().zip(numbers_of(&bytes)).for_each(|(to, number)| *to = number);
        }
    }

    fn barrier(&self) {
        self.any(false);
    }

    fn abort(&self, code: u8) -> ! {
        std::process::exit(i32::from(code))
    }
}

fn bytes_of(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn numbers_of(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|&bytes| f64::from_le_bytes(bytes))
}
