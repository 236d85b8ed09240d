//! Ranks of an MPI communicator: [`Ranks`].

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use sparsebatch_mpi::{MpiError, described};

use crate::batch::DType;
use crate::context::Context;
use crate::ffi::MpiRanks;
use crate::report::Report;
use crate::solver::Solver;
use crate::status::{Failure, SB_ERROR_BUSY, SB_ERROR_INTERNAL, SB_ERROR_RANKS, in_c, name_of};

/// The most seconds that ranks wait for each other to join.
const MOST_SECONDS: f64 = 1e6;

/// The ranks of a communicator, of which this process is one.
pub(crate) struct Ranks {
    pub(crate) context: Arc<Context>,
    ranks: Mutex<MpiRanks>,
}

impl Ranks {
    pub(crate) fn new(context: Arc<Context>, ranks: MpiRanks) -> Self {
        Self { context, ranks: Mutex::new(ranks) }
    }

    /// How long ranks wait for each other.
    pub(crate) fn limit(seconds: f64) -> Result<Duration, Failure> {
        if !(0.0..=MOST_SECONDS).contains(&seconds) {
            return Err(Failure::argument(format!(
                "seconds is {seconds}, expected a number from 0 to {MOST_SECONDS}"
            )));
        }
        Ok(Duration::from_secs_f64(seconds))
    }

    /// MPI takes one call at a time.
    pub(crate) fn get(&self) -> Result<MutexGuard<'_, MpiRanks>, Failure> {
        self.ranks.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                Failure::new(SB_ERROR_BUSY, "another call uses the ranks at this moment")
            }
            TryLockError::Poisoned(_) => Failure::new(
                SB_ERROR_INTERNAL,
                "a call with the ranks ended by a fault of the library before",
            ),
        })
    }

    /// The result of this rank, or the failure of the lowest rank that failed.
    pub(crate) fn together<R>(&self, own: Result<R, Failure>) -> Result<R, Failure> {
        let told = |Failure { status, message }: Failure| {
            let code = u8::try_from(status).unwrap_or(u8::MAX);
            let name = name_of(status).map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_else(|| status.to_string());
            let message = if message.is_empty() { name } else { format!("{name}, {message}") };
            sparsebatch_mpi::Failure { code, message }
        };
        Ok(self.get()?.agree(own.map_err(told))?)
    }

    /// Holds that all ranks have solvers with the same options, and the same library and machine.
    /// A solver that is none, or that another call uses, is an error of all ranks.
    pub(crate) fn check(&self, solver: Result<Arc<Solver>, Failure>) -> Result<(), Failure> {
        let own = solver.and_then(|solver| {
            let options = solver.options()?;
            let backend = &solver.context.backend;
            Ok(match solver.dtype {
                DType::F64 => described::<f64>(&options, backend),
                DType::F32 => described::<f32>(&options, backend),
            })
        });
        let own = self.together(own)?;
        Ok(self.get()?.same(&own)?)
    }

    /// One report of the reports of all ranks, on rank 0.
    pub(crate) fn gather(&self, own: &Report) -> Result<Option<Report>, Failure> {
        let ranks = self.get()?;
        let gathered = ranks.gather_report(own.get())?;
        let inactive = ranks.all_gather(&own.inactive().to_vec())?;
        let Some(report) = gathered.report else { return Ok(None) };
        let mut first = 0;
        let mut left_out = Vec::new();
        for (times, inactive) in gathered.ranks.iter().zip(inactive) {
            left_out.extend(inactive.into_iter().map(|system| first + system));
            first += times.systems;
        }
        let context = Arc::clone(&self.context);
        let report = Arc::new(report.into());
        Ok(Some(Report::new(context, report, left_out.into(), own.fallback)))
    }
}

impl From<MpiError> for Failure {
    fn from(error: MpiError) -> Self {
        match error {
            MpiError::Unsupported | MpiError::Transport { .. } => {
                Self::unsupported(error.to_string())
            }
            MpiError::Finalised => Self::argument(error.to_string()),
            MpiError::Unequal { rank, host, what, expected, found } => {
                let what = in_c(&what).to_owned();
                let error = MpiError::Unequal { rank, host, what, expected, found };
                Self::new(SB_ERROR_RANKS, error.to_string())
            }
            _ => Self::new(SB_ERROR_RANKS, error.to_string()),
        }
    }
}

/// The first item of each of `nranks` shares of about equal cost, and the number of items.
pub(crate) fn first_items(costs: &[f64], nranks: usize) -> Result<Vec<u64>, Failure> {
    if nranks == 0 {
        return Err(Failure::argument("nranks is 0, expected at least 1"));
    }
    let wrong = costs.iter().position(|cost| !cost.is_finite() || *cost < 0.0);
    if let Some(item) = wrong {
        let cost = costs[item];
        return Err(Failure::argument(format!(
            "costs has {cost} for item {item}, expected a finite number that is not negative"
        )));
    }
    // Integers, so that all machines divide alike: the largest cost gets 2^40 parts.
    let largest = costs.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let parts = |&cost: &f64| (cost / largest * (1u64 << 40) as f64) as u64;
    let costs: Vec<u64> = costs.iter().map(parts).collect();
    let shares = sparsebatch_mpi::shares(&costs, nranks);
    Ok(shares.iter().map(|share| share.start as u64).chain([costs.len() as u64]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{SB_ERROR_ARGUMENT, SB_ERROR_UNSUPPORTED};

    #[test]
    fn shares_are_of_equal_cost() {
        assert_eq!(first_items(&[1.0, 1.0, 1.0, 1.0, 4.0], 2), Ok(vec![0, 4, 5]));
        assert_eq!(first_items(&[0.0; 4], 2), Ok(vec![0, 2, 4]));
        assert_eq!(first_items(&[1e-300, 1e-300], 2), Ok(vec![0, 1, 2]));
        assert_eq!(first_items(&[], 3), Ok(vec![0; 4]));
        for (costs, nranks, text) in [
            (vec![1.0, f64::NAN], 2, "NaN for item 1"),
            (vec![-1.0], 1, "-1 for item 0"),
            (vec![], 0, "nranks is 0"),
        ] {
            let failure = first_items(&costs, nranks).unwrap_err();
            assert!(
                failure.status == SB_ERROR_ARGUMENT && failure.message.contains(text),
                "{failure:?}"
            );
        }
    }

    #[test]
    fn errors_of_ranks_have_codes() {
        let status = |error: MpiError| Failure::from(error).status;
        assert_eq!(status(MpiError::Unsupported), SB_ERROR_UNSUPPORTED);
        let transport =
            MpiError::Transport { path: "a.so".to_owned(), reason: "of 1998".to_owned() };
        assert_eq!(status(transport), SB_ERROR_UNSUPPORTED);
        assert_eq!(status(MpiError::Finalised), SB_ERROR_ARGUMENT);
        assert_eq!(status(MpiError::NoAnswer { seconds: 1 }), SB_ERROR_RANKS);
        let failure = Ranks::limit(-1.0).unwrap_err();
        assert!(failure.message.starts_with("seconds is -1, expected"), "{}", failure.message);
        assert!(Ranks::limit(f64::NAN).is_err());
        assert_eq!(Ranks::limit(0.5), Ok(Duration::from_millis(500)));
    }
}
