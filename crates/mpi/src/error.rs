//! Why ranks did not solve: [`MpiError`].

use serde::{Deserialize, Serialize};
use sparsebatch_solvers::SolveError;

/// What went wrong on one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The exit code that the failure stands for, 1 to 255.
    pub code: u8,
    /// What went wrong, in one line.
    pub message: String,
}

impl Failure {
    /// A failure with the exit code 1.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }
}

impl From<SolveError> for Failure {
    fn from(error: SolveError) -> Self {
        Self::internal(error.to_string())
    }
}

/// Why the ranks of a job did not solve. But for errors of joining, all ranks get the same error
/// from the same call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// There is no MPI: the library that carries data between its ranks was not found.
    #[error(
        "no MPI: libsparsebatch_mpi_transport.so was not found beside the program, nor where the \
         system looks for libraries; scripts/install-mpi.sh FOLDER builds it, where mpicc and \
         libclang are installed, and SPARSEBATCH_MPI_TRANSPORT names it elsewhere"
    )]
    Unsupported,
    /// The library that carries data between ranks cannot be used.
    #[error("{path} cannot be used for MPI: {reason}")]
    Transport {
        /// The file.
        path: String,
        /// Why not.
        reason: String,
    },
    /// MPI was finalised before, or, for a communicator of the caller, not initialised yet.
    #[error(
        "MPI does not run in this process: it was finalised before, or a communicator was given \
         before MPI was initialised"
    )]
    Finalised,
    /// The launcher started several processes, and each is alone to the MPI that was found.
    #[error(
        "the launcher started {launched} processes ({variable}), but for {library} this process is \
         alone: start it with the mpirun, mpiexec or srun of that MPI, or take a transport of the other"
    )]
    OtherMpi {
        /// Number of processes.
        launched: usize,
        /// The variable of the environment that says so.
        variable: &'static str,
        /// Name and version of the MPI that was found.
        library: String,
    },
    /// Some ranks did not come within the time limit.
    #[error(
        "{came} of {size} ranks came within {seconds} s, rank {first_missing} did not: \
         look whether its process started, or allow more time"
    )]
    Missing {
        /// Ranks that came.
        came: usize,
        /// All ranks.
        size: usize,
        /// The lowest rank that did not come.
        first_missing: usize,
        /// The limit in seconds.
        seconds: u64,
    },
    /// Rank 0 did not answer within the time limit, so that this rank does not know who came.
    #[error(
        "rank 0 did not answer within {seconds} s: look whether all processes started, or allow \
         more time"
    )]
    NoAnswer {
        /// The limit in seconds.
        seconds: u64,
    },
    /// Ranks were asked for different things, or run on different machines.
    #[error("rank {rank} on {host}: {what} is {found}, on rank 0 it is {expected}")]
    Unequal {
        /// The lowest rank that differs from rank 0.
        rank: usize,
        /// Its host.
        host: String,
        /// What differs.
        what: String,
        /// What rank 0 has.
        expected: String,
        /// What this rank has.
        found: String,
    },
    /// A rank failed, the lowest where several did.
    #[error("rank {rank} on {host}: {}", failure.message)]
    Rank {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// What went wrong there.
        failure: Failure,
    },
    /// All ranks failed alike.
    #[error("{}", .0.message)]
    All(Failure),
    /// Ranks sent what cannot be read.
    #[error("a message of another rank cannot be read: {0}")]
    Message(String),
}

impl MpiError {
    /// The exit code of a program that ends with this error: that of the failure; 2 for what another
    /// call or build would avoid; else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Rank { failure, .. } | Self::All(failure) => failure.code,
            Self::Unsupported
            | Self::Transport { .. }
            | Self::OtherMpi { .. }
            | Self::Unequal { .. } => 2,
            Self::Finalised | Self::Missing { .. } | Self::NoAnswer { .. } | Self::Message(_) => 1,
        }
    }
}

impl From<postcard::Error> for MpiError {
    fn from(error: postcard::Error) -> Self {
        Self::Message(error.to_string())
    }
}
