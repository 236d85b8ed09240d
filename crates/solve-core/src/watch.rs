//! Following a solve from outside, and stopping it.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How far a solve has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Number of systems that have ended, whatever their status.
    pub ended: usize,
    /// Number of systems to solve: those of the batch, and after the first method those that the
    /// ladder tries again.
    pub systems: usize,
}

type Callback = dyn Fn(Progress) -> ControlFlow<()> + Send + Sync;

/// Follows solves from outside: counts the systems that have ended, and stops the solve on request.
///
/// Clones share one state, so that one thread may hold a clone and call [`Watch::stop`] or
/// [`Watch::progress`] while another thread solves with
/// [`SolveOptions::watch`](crate::SolveOptions::watch). A stopped solve starts no other systems and
/// returns an error. On the CPU, iterations and the sparse LU end within milliseconds, while a
/// factorisation with partial pivoting is completed; on a GPU, the launches that are queued are. A
/// request between solves stops the next one. One watch follows one solve at a time.
///
/// # Examples
/// ```
/// use sparsebatch_solve_core::{SolveOptions, Watch};
/// use std::ops::ControlFlow;
///
/// let watch = Watch::with_callback(|progress| {
///     eprintln!("{} of {}", progress.ended, progress.systems);
///     ControlFlow::Continue(())
/// });
/// let options = SolveOptions::new().watch(watch.clone());
/// assert_eq!(watch.progress().ended, 0);
/// # assert_eq!(options.watch, Some(watch));
/// ```
#[derive(Clone, Default)]
pub struct Watch(Arc<State>);

#[derive(Default)]
struct State {
    ended: AtomicUsize,
    systems: AtomicUsize,
    stop: AtomicBool,
    callback: Option<Box<Callback>>,
}

impl Watch {
    /// A watch without a callback.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A watch that calls `callback` whenever systems have ended, from the threads that solve, several
    /// at a time. `Break` stops the solve.
    #[must_use]
    pub fn with_callback(
        callback: impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(State { callback: Some(Box::new(callback)), ..State::default() }))
    }

    /// How far the solve has come.
    pub fn progress(&self) -> Progress {
        let systems = self.0.systems.load(Ordering::Relaxed);
        Progress { ended: self.0.ended.load(Ordering::Relaxed).min(systems), systems }
    }

    /// Asks the solve that runs, or else the next one, to stop.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the solve that runs was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    /// Begins to count a solve, or one more rung of the ladder, of `systems` systems, and forgets what
    /// was counted before.
    #[doc(hidden)]
    pub fn begin(&self, systems: usize) {
        self.0.ended.store(0, Ordering::Relaxed);
        self.0.systems.store(systems, Ordering::Relaxed);
    }

    /// Forgets a request to stop.
    #[doc(hidden)]
    pub fn clear(&self) {
        self.0.stop.store(false, Ordering::Relaxed);
    }

    /// Takes back systems that were counted and are solved again, since their device was lost.
    #[doc(hidden)]
    pub fn take_back(&self, ended: usize) {
        let less = |all: usize| Some(all.saturating_sub(ended));
        // The closure always returns a number, so that this does not fail.
        self.0.ended.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }

    /// Counts systems that have ended and calls the callback.
    #[doc(hidden)]
    pub fn add(&self, ended: usize) {
        let ended = self.0.ended.fetch_add(ended, Ordering::Relaxed) + ended;
        if let Some(callback) = &self.0.callback {
            let systems = self.0.systems.load(Ordering::Relaxed);
            if callback(Progress { ended: ended.min(systems), systems }).is_break() {
                self.stop();
            }
        }
    }
}

/// Whether the solve that this watch follows, if any, was asked to stop.
#[doc(hidden)]
pub fn is_stopped(watch: &Option<Watch>) -> bool {
    watch.as_ref().is_some_and(Watch::is_stopped)
}

/// Clones are equal, others are not.
impl PartialEq for Watch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_their_state_and_others_do_not() {
        let watch = Watch::new();
        let (clone, other) = (watch.clone(), Watch::new());

        watch.begin(10);
        watch.add(4);
        clone.add(2);
        clone.stop();

        assert_eq!(watch.progress(), Progress { ended: 6, systems: 10 });
        assert!(watch.is_stopped() && !other.is_stopped());
        assert_eq!(watch, clone);
        assert_ne!(watch, other);
    }

    #[test]
    fn a_callback_sees_each_step_and_stops() {
        let watch = Watch::with_callback(|progress| match progress.ended {
            0..5 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        watch.begin(8);

        watch.add(3);
        assert!(!watch.is_stopped());
        watch.add(3);

        assert!(watch.is_stopped());
        watch.clear();
        assert!(!watch.is_stopped());
    }
}
