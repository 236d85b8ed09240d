//! How bytes go from rank to rank: [`Transport`], one process alone or MPI.

#[cfg(feature = "mpi")]
mod mpi;

use std::time::Duration;

use crate::MpiError;

/// Why not all ranks have come in time.
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "a single rank waits for no other"))]
pub(crate) enum Late {
    /// Rank 0 knows who came.
    Missing { came: usize, first_missing: usize },
    /// The others know that rank 0 has not told them to go on.
    NoAnswer,
}

/// What carries data between ranks.
pub(crate) enum Transport {
    /// This process is the only rank.
    Alone,
    /// A communicator.
    #[cfg(feature = "mpi")]
    Mpi(self::mpi::MpiComm),
}

/// Calls a method of the communicator, or does what a single rank does.
macro_rules! on {
    ($transport:expr, alone: $alone:expr, $name:ident($($arg:expr),*)) => {
        match $transport {
            Self::Alone => $alone,
            #[cfg(feature = "mpi")]
            Self::Mpi(communicator) => communicator.$name($($arg),*),
        }
    };
}

impl Transport {
    /// Initialises MPI, if that was not done, and takes all ranks of the job.
    #[cfg(feature = "mpi")]
    pub(crate) fn world() -> Result<Self, MpiError> {
        self::mpi::MpiComm::world().map(Self::Mpi)
    }

    /// Without MPI there is no world.
    #[cfg(not(feature = "mpi"))]
    pub(crate) fn world() -> Result<Self, MpiError> {
        Err(MpiError::Unsupported)
    }

    /// Takes the communicator of a Fortran handle.
    #[cfg(feature = "mpi")]
    pub(crate) fn from_fortran(handle: i32) -> Result<Self, MpiError> {
        self::mpi::MpiComm::from_fortran(handle).map(Self::Mpi)
    }

    /// Without MPI there are no handles.
    #[cfg(not(feature = "mpi"))]
    pub(crate) fn from_fortran(_handle: i32) -> Result<Self, MpiError> {
        Err(MpiError::Unsupported)
    }

    /// The number of this rank.
    pub(crate) fn rank(&self) -> usize {
        on!(self, alone: 0, rank())
    }

    /// Number of ranks.
    pub(crate) fn size(&self) -> usize {
        on!(self, alone: 1, size())
    }

    /// The name of this host.
    pub(crate) fn host(&self) -> String {
        on!(self, alone: "this host".to_owned(), host())
    }

    /// Waits until all ranks have come, at most `limit`.
    pub(crate) fn join(&mut self, limit: Duration) -> Result<(), Late> {
        let _ = limit;
        on!(self, alone: Ok(()), join(limit))
    }

    /// The number of this rank among those of its host, and their number.
    pub(crate) fn local(&self) -> (usize, usize) {
        on!(self, alone: (0, 1), local())
    }

    /// Whether it is true on any rank.
    pub(crate) fn any(&self, own: bool) -> bool {
        on!(self, alone: own, any(own))
    }

    /// The bytes of all ranks, on all ranks.
    pub(crate) fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        on!(self, alone: vec![own.to_vec()], all_gather(own))
    }

    /// The bytes of all ranks on rank 0, nothing on the others.
    pub(crate) fn gather_bytes(&self, own: &[u8]) -> Option<Vec<Vec<u8>>> {
        on!(self, alone: Some(vec![own.to_vec()]), gather(own))
    }

    /// The numbers of all ranks on rank 0, rank after rank; nothing on the others.
    pub(crate) fn gather_f64s(&self, own: &[f64]) -> Option<Vec<f64>> {
        on!(self, alone: Some(own.to_vec()), gather_joined(own))
    }

    /// The bytes of rank 0, on all ranks.
    pub(crate) fn broadcast(&self, own: Vec<u8>) -> Vec<u8> {
        on!(self, alone: own, broadcast(own))
    }

    /// Waits for all ranks.
    pub(crate) fn barrier(&self) {
        on!(self, alone: (), barrier());
    }

    /// Ends the processes of all ranks.
    pub(crate) fn abort(&self, code: u8) -> ! {
        on!(self, alone: std::process::exit(i32::from(code)), abort(code))
    }
}
