//! Solvers that are kept from call to call: [`Plans`].
//!
//! A call takes a solver out, and puts it back when it has ended: solvers that panicked are lost,
//! calls at the same time have one each, and no lock is held while one solves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{device, host};

/// The most solvers that are kept of each kind; those that were used last.
const MOST: usize = 32;

static ANALYSES: AtomicUsize = AtomicUsize::new(0);
static KEPT_SOLVES: AtomicUsize = AtomicUsize::new(0);

/// Solvers of one kind, in the order of their last use.
pub(super) struct Plans<P>(Mutex<Vec<P>>);

impl<P> Plans<P> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Takes out the solver that fits and was used last.
    pub(super) fn take(&self, fits: impl Fn(&P) -> bool) -> Option<P> {
        let mut plans = self.lock();
        let place = plans.iter().rposition(fits)?;
        Some(plans.remove(place))
    }

    pub(super) fn put(&self, plan: P) {
        let oldest = {
            let mut plans = self.lock();
            plans.push(plan);
            if plans.len() > MOST { Some(plans.remove(0)) } else { None }
        };
        // Its memory is released without the lock.
        drop(oldest);
    }

    pub(super) fn clear(&self) {
        // Their memory is released without the lock.
        drop(std::mem::take(&mut *self.lock()));
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts an analysis.
pub(super) fn analysed() {
    ANALYSES.fetch_add(1, Ordering::Relaxed);
}

/// Counts a solve by kept factors.
pub(super) fn solved_by_kept() {
    KEPT_SOLVES.fetch_add(1, Ordering::Relaxed);
}

/// Analyses since the start, solvers that are kept, and solves by kept factors.
pub(super) fn counts() -> (usize, usize, usize) {
    let kept = host::plans_len() + device::plans_len();
    (ANALYSES.load(Ordering::Relaxed), kept, KEPT_SOLVES.load(Ordering::Relaxed))
}

pub(super) fn clear() {
    host::clear();
    device::clear();
}
