//! How data goes from rank to rank: the trait [`Transport`], and who implements it.
//!
//! | implementation | ranks |
//! | --- | --- |
//! | [`Alone`] | this process |
//! | [`ThreadComm`](threads::ThreadComm) | threads of this process |
//! | [`MpiComm`](mpi::MpiComm) | the processes of an MPI communicator |

mod library;
mod mpi;
pub(crate) mod threads;

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::MpiError;

/// Why not all ranks have come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Rank 0 knows who came.
    Missing {
        /// The number of ranks that came.
        came: usize,
        /// The lowest rank that did not.
        first_missing: usize,
    },
    /// The others know that rank 0 has not told them to go on.
    NoAnswer,
}

/// Another rank, and the bytes of a buffer that go to it or come from it.
pub type Message = (usize, Range<usize>);

/// What a rank shares with other threads of its process.
pub type Shared = Arc<dyn Any + Send + Sync>;

/// What carries data between ranks. All ranks call the same methods in the same order, but for
/// [`Transport::abort`]. What fails ends the processes of all ranks: no method returns an error.
pub trait Transport {
    /// The number of this rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// The name of this host.
    fn host(&self) -> String;

    /// Waits until all ranks have come, at most `limit`; by default they have.
    ///
    /// # Errors
    /// [`Late`], where some have not.
    fn join(&mut self, limit: Duration) -> Result<(), Late> {
        let _ = limit;
        Ok(())
    }

    /// The number of this rank among those of its host, and their number.
    fn local(&self) -> (usize, usize);

    /// Whether it is true on any rank.
    fn any(&self, own: bool) -> bool;

    /// The bytes of all ranks, on all ranks.
    fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>>;

    /// The bytes of all ranks on rank 0, nothing on the others.
    fn gather_bytes(&self, own: &[u8]) -> Option<Vec<Vec<u8>>>;

    /// The numbers of all ranks on rank 0, rank after rank; nothing on the others.
    fn gather_f64s(&self, own: &[f64]) -> Option<Vec<f64>>;

    /// The bytes of rank 0, on all ranks.
    fn broadcast(&self, own: Vec<u8>) -> Vec<u8>;

    /// Sends `own[r]` to each rank r, and returns what each rank has sent to this one.
    fn all_to_all(&self, own: Vec<Vec<u8>>) -> Vec<Vec<u8>>;

    /// What each rank shares with the others, where all are threads of one process; else nothing.
    fn share(&self, own: Shared) -> Option<Vec<Shared>> {
        let _ = own;
        None
    }

    /// Starts to send parts of `send` and to receive parts of `receive`, runs `meanwhile`, and waits
    /// for all of them. The parts of `receive` follow each other in the order of `from`. Every
    /// message that a rank expects is sent by the other with the same length.
    fn exchange(
        &self,
        to: &[Message],
        send: &[u8],
        from: &[Message],
        receive: &mut [u8],
        meanwhile: &mut dyn FnMut(),
    );

    /// Starts to gather `own` of all ranks, as many numbers on each, runs `meanwhile`, and waits.
    /// `all` then holds the numbers of rank 0, of rank 1 and so on. `meanwhile` may call
    /// [`Transport::exchange`].
    fn all_gather_f64s(&self, own: &[f64], all: &mut [f64], meanwhile: &mut dyn FnMut());

    /// Waits for all ranks.
    fn barrier(&self);

    /// Ends the processes of all ranks.
    fn abort(&self, code: u8) -> !;
}

/// Initialises MPI, if that was not done, and takes all ranks of the job.
pub(crate) fn world() -> Result<Box<dyn Transport>, MpiError> {
    Ok(Box::new(self::mpi::MpiComm::world(library::table()?)?))
}

/// Takes the communicator of a Fortran handle.
pub(crate) fn from_fortran(handle: i32) -> Result<Box<dyn Transport>, MpiError> {
    Ok(Box::new(self::mpi::MpiComm::from_fortran(library::table()?, handle)?))
}

/// This process is the only rank.
pub(crate) struct Alone;

impl Transport for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn host(&self) -> String {
        "this host".to_owned()
    }

    fn local(&self) -> (usize, usize) {
        (0, 1)
    }

    fn any(&self, own: bool) -> bool {
        own
    }

    fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        vec![own.to_vec()]
    }

    fn gather_bytes(&self, own: &[u8]) -> Option<Vec<Vec<u8>>> {
        Some(vec![own.to_vec()])
    }

    fn gather_f64s(&self, own: &[f64]) -> Option<Vec<f64>> {
        Some(own.to_vec())
    }

    fn broadcast(&self, own: Vec<u8>) -> Vec<u8> {
        own
    }

    fn all_to_all(&self, own: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        own
    }

    fn exchange(
        &self,
        _: &[Message],
        _: &[u8],
        _: &[Message],
        _: &mut [u8],
        meanwhile: &mut dyn FnMut(),
    ) {
        meanwhile();
    }

    fn all_gather_f64s(&self, own: &[f64], all: &mut [f64], meanwhile: &mut dyn FnMut()) {
        all.copy_from_slice(own);
        meanwhile();
    }

    fn barrier(&self) {}

    fn abort(&self, code: u8) -> ! {
        std::process::exit(i32::from(code))
    }
}
