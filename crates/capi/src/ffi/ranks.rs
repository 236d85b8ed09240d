//! Ranks of MPI.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

use super::memory::{self, Input, Output, Place};
use super::options::count;
use super::report::sb_report;
use super::solver::sb_solver;
use super::{call, destroy, handle_of, make, on};
use crate::handle::{find, insert};
use crate::ranks::{Ranks, first_items};
use crate::sb_context;
use crate::status::{Failure, SB_OK, sb_status};

/// The ranks of an MPI communicator, of which this process is one. A library that finds no transport
/// of an MPI makes none (`SB_ERROR_UNSUPPORTED`).
///
/// Every rank solves items of its own by a solver of its own. Calls that are said to be collective
/// are made by all ranks in the same order, as those of MPI. An error that they find on one rank is
/// the error of all ranks, `SB_ERROR_RANKS`, whose message names the rank and its host. Calls come
/// from a thread that may call MPI: the one that has initialised it, or any with
/// `MPI_THREAD_SERIALIZED` and `MPI_THREAD_MULTIPLE`.
pub struct sb_ranks(());

/// Ranks in the table of objects, which all threads see.
pub(crate) struct MpiRanks(Arc<sparsebatch_mpi::Ranks>);

// SAFETY: a communicator is a handle of MPI, which any thread may hold. The header says that the
// calls come from the threads that MPI was initialised for; a lock lets in one at a time.
unsafe impl Send for MpiRanks {}

impl MpiRanks {
    /// The ranks, for something that uses them under the same lock.
    pub(crate) fn shared(&self) -> Arc<sparsebatch_mpi::Ranks> {
        Arc::clone(&self.0)
    }
}

impl std::ops::Deref for MpiRanks {
    type Target = sparsebatch_mpi::Ranks;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

handle_of!(sb_ranks => Ranks, "ranks", |ranks| &ranks.context);

/// Takes the ranks of a communicator, by its Fortran handle (`MPI_Comm_c2f`). The communicator is
/// duplicated, and may be freed afterwards. Waits at most `seconds` for the other ranks to come
/// here. MPI is initialised by the program, and finalised after `sb_ranks_destroy`.
///
/// Errors: `SB_ERROR_UNSUPPORTED` where no transport of an MPI is found, `SB_ERROR_ARGUMENT` where MPI
/// does not run, `SB_ERROR_RANKS` for ranks that do not come. Collective.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_ranks_create(
    context: *const sb_context,
    comm: i32,
    seconds: f64,
    ranks: *mut *mut sb_ranks,
) -> sb_status {
    // SAFETY: the caller says that this may be written to.
    unsafe {
        make(context, ranks, |context| {
            let limit = Ranks::limit(seconds)?;
            // The caller says that the handle is that of a living communicator.
            let ranks = sparsebatch_mpi::Ranks::from_fortran(comm, limit)?;
            Ok(Ranks::new(context.clone(), MpiRanks(ranks.shared())))
        })
    }
}

/// Destroys ranks, before MPI is finalised; NULL is nothing to destroy. Collective.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_ranks_destroy(ranks: *mut sb_ranks) -> sb_status {
    destroy(ranks)
}

/// Writes the number of this rank and that of all ranks; the number of this rank among those of its
/// host, and how many these are; and the number of threads that this rank should use: its part of
/// the cores that its affinity mask allows. Each place may be NULL. One call at a time.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_ranks_place(
    ranks: *const sb_ranks,
    rank: *mut i32,
    nranks: *mut i32,
    local_rank: *mut i32,
    nlocal: *mut i32,
    nthreads: *mut i32,
) -> sb_status {
    on(ranks, |ranks| {
        // SAFETY: the caller says that these may be written to.
        let places = unsafe {
            [
                Place::optional("rank", rank)?,
                Place::optional("nranks", nranks)?,
                Place::optional("local_rank", local_rank)?,
                Place::optional("nlocal", nlocal)?,
                Place::optional("nthreads", nthreads)?,
            ]
        };
        let ranks = ranks.get()?;
        let (local, of_host) = ranks.local();
        let values = [ranks.rank(), ranks.size(), local, of_host, ranks.threads()];
        for (place, value) in places.iter().zip(values) {
            place.iter().for_each(|place| place.write(i32::try_from(value).unwrap_or(i32::MAX)));
        }
        Ok(())
    })
}

/// Divides items into consecutive shares of about equal cost, one for each rank: rank `r` gets
/// the items from `first[r]` to before `first[r + 1]`, and `first` has `nranks + 1` elements. The
/// costs, `nitems` of them, may be entries times iterations of the last solve, or times. All ranks
/// that give the same costs get the same shares.
///
/// Errors: `SB_ERROR_ARGUMENT` for costs that are negative or not finite, and for no ranks. Any
/// thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_ranks_shares(
    costs: *const f64,
    nitems: i64,
    nranks: i32,
    first: *mut i64,
) -> sb_status {
    call(|| {
        let ranks = count("nranks", i64::from(nranks))?;
        // SAFETY: the caller says that the arrays have these numbers of elements.
        let (costs, first) = unsafe {
            (
                Input::new("costs", costs, nitems)?,
                Output::new("first", first, i64::from(nranks) + 1)?,
            )
        };
        let items = first_items(costs.slice::<f64>()?, ranks)?;
        // Below 2^63 the bits of `uint64_t` are those of `int64_t`.
        first.fill(items.len(), items.into_iter())
    })
}

/// Ends a step that may fail on one rank: each rank gives the status of its own part, and with it
/// `message`, one line, which may be NULL. Returns `SB_OK` on all ranks where all gave it; else
/// `SB_ERROR_RANKS` on all, with the status and the message of the lowest rank that failed.
/// So the ranks go on together or end together. Collective.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_ranks_agree(
    ranks: *const sb_ranks,
    status: sb_status,
    message: *const c_char,
) -> sb_status {
    on(ranks, |ranks| {
        if status == SB_OK {
            return ranks.together(Ok(()));
        }
        // SAFETY: the caller says that a string that is not NULL ends with a NUL.
        let message = unsafe { memory::text("message", message) };
        // What is no text on one rank is an error of all, which wait for this one.
        ranks.together(Err(match message {
            Ok(message) => Failure::new(status, message.unwrap_or_default()),
            Err(failure) => failure,
        }))
    })
}

/// Holds that the solvers of all ranks have the same options, but for limits per system, and that
/// the ranks have the same library, instruction set and GPU: then a system has the same bits on
/// any rank.
///
/// Errors: `SB_ERROR_RANKS` with the first difference. Collective.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_ranks_check_solver(
    ranks: *const sb_ranks,
    solver: *const sb_solver,
) -> sb_status {
    on(ranks, |ranks| ranks.check(find(solver)))
}

/// Makes one report of the reports of all ranks, whose systems follow each other in the order of
/// the ranks; a rank without items gives that of a solve without systems. `whole` gets it on
/// rank 0, NULL on the others. Times are those of the slowest rank.
///
/// Errors: `SB_ERROR_RANKS`. Collective.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sb_ranks_report(
    ranks: *const sb_ranks,
    report: *const sb_report,
    whole: *mut *mut sb_report,
) -> sb_status {
    // SAFETY: the caller says that this may be written to.
    let place = unsafe { Place::new("whole", whole) };
    let place = place.inspect(|place| place.write(ptr::null_mut()));
    on(ranks, |ranks| {
        // What is wrong on one rank is an error of all.
        let (place, report) = ranks.together(place.and_then(|place| Ok((place, find(report)?))))?;
        if let Some(whole) = ranks.gather(&report)? {
            place.write(insert::<sb_report>(whole));
        }
        Ok::<(), Failure>(())
    })
}
