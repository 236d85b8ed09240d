//! Batches over MPI ranks: every rank solves a share of the items, and there is one report. And one
//! large matrix over ranks: each has some of its rows.
//!
//! | task | start from |
//! | --- | --- |
//! | divide a batch | [`shares`] by the [`cost`] of each item |
//! | divide it anew after a solve | [`MpiSolver::shares_after`], or [`timed`] costs |
//! | join the ranks of a job | [`Ranks::world`], or [`Ranks::from_fortran`] for a communicator of the caller |
//! | solve | [`MpiSolver`], or any solve of one's own and [`Ranks::gather_report`] |
//! | end all ranks when one fails | [`Ranks::run`], [`Ranks::agree`] |
//! | hold that all ranks were asked the same | [`Ranks::same`] with [`described`] options |
//! | GPUs and threads of a rank | [`Ranks::gpus`], [`Ranks::threads`] |
//! | plans as on rank 0, where models of GPUs differ | [`Ranks::planned_as_first`] |
//! | multiply by one large matrix, or solve with it, on CPUs or GPUs | [`DistributedMatrix`], of a [`Partition`] or a [`MatrixFile`] |
//! | ranks without MPI, for tests | [`Ranks::on_threads`] |
//! | another way to carry data | [`Ranks::by`] a [`Transport`] |
//!
//! A share is solved as a batch of its own. Solutions have the bits of a solve of the whole batch
//! by one process, whatever the number of ranks: how an item is solved depends on no other item, and
//! plans are made for the same number of systems everywhere. Ranks whose CPUs or GPUs differ are
//! refused ([`MpiError::Unequal`]) unless their backends are
//! [pinned](sparsebatch_solvers::Backend::pinned) alike.
//!
//! MPI itself is behind a library that is loaded when ranks are asked for: `scripts/install-mpi.sh`
//! builds it with the MPI of a machine. Where it is not found, joining returns
//! [`MpiError::Unsupported`]. With the feature `mpi` a program is linked to one MPI instead.
//!
//! # Examples
//! ```
//! use sparsebatch_formats::{Batch, Csr};
//! use sparsebatch_mpi::{MpiSolver, Ranks, cost, shares};
//! use sparsebatch_solvers::{Backend, SolveOptions};
//!
//! // In a job: Ranks::world(Duration::from_secs(60)).
//! let ranks = Ranks::alone();
//! let matrix = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![2.0])?;
//! let whole = vec![matrix; 10];
//! let costs: Vec<u64> = whole.iter().map(|matrix| cost(matrix.nnz(), 0)).collect();
//! let own = shares(&costs, ranks.size())[ranks.rank()].clone();
//!
//! let batch: Batch<f64> = whole[own].iter().cloned().collect();
//! let (b, mut x) = (vec![4.0; batch.nitems()], vec![0.0; batch.nitems()]);
//! let mut solver = MpiSolver::new(&ranks, &Backend::Cpu, &batch, &SolveOptions::new())?;
//! let solved = solver.solve(&batch, &b, &mut x)?;
//!
//! assert!(solved.whole.is_some_and(|report| report.converged() == 10));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod distributed;
mod error;
mod options;
mod places;
mod ranks;
mod shares;
mod solver;
mod transport;

pub use distributed::{
    DistributedMatrix, DistributedOptions, DistributedReport, MatrixFile, MatrixOptions, Partition,
    Parts, solve_distributed_operator,
};
pub use error::{Failure, MpiError};
pub use options::{Described, GPU_MODEL, described, fingerprint, machine};
pub use places::{Place, gpus_of, gpus_seen, threads_among, threads_of};
pub use ranks::{Gathered, RankTimes, Ranks, RanksRef};
pub use shares::{cost, shares, timed};
pub use solver::{MpiSolver, Solved};
pub use transport::{Late, Message, Shared, Transport};
