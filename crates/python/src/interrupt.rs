//! Solves without the interpreter's lock: progress, Ctrl-C, threads.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use rayon::ThreadPool;
use sparsebatch::{Progress, Watch};

use crate::errors::{Forked, OptionError};

/// How long a solve runs before signals are looked at, and progress is told, again.
const TICK: Duration = Duration::from_millis(20);

thread_local! {
    /// The solvers in whose solves this thread is, by the addresses of their controls: what it
    /// calls meanwhile, a progress callback or a handler of a signal, must not wait for them.
    static SOLVING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// How a solve is followed and stopped, and on which threads it runs.
pub(crate) struct Control {
    pub(crate) watch: Watch,
    pool: Option<ThreadPool>,
    /// The process that made it, which has the threads.
    process: u32,
}

impl Drop for Control {
    fn drop(&mut self) {
        // Threads of another process cannot be waited for.
        if self.process != std::process::id() {
            std::mem::forget(self.pool.take());
        }
    }
}

/// Takes a solver out of those of its thread.
struct Solving;

impl Drop for Solving {
    fn drop(&mut self) {
        SOLVING.with_borrow_mut(Vec::pop);
    }
}

impl Control {
    /// With threads of its own if a number is given.
    pub(crate) fn new(threads: Option<usize>) -> PyResult<Self> {
        let pool = threads.map(pool).transpose()?;
        Ok(Self { watch: Watch::new(), pool, process: std::process::id() })
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Refuses a call of a solver from within its own solve, which would wait for itself.
    pub(crate) fn refuse_own_callback(&self) -> PyResult<()> {
        match SOLVING.with_borrow(|solving| solving.contains(&self.address())) {
            true => Err(OptionError::new_err(
                "the solver is used within its own solve, by progress or a signal's handler",
            )),
            false => Ok(()),
        }
    }

    /// Runs a solve without the interpreter's lock. A `long` one ends at Ctrl-C, if the main thread
    /// waits for it, and tells its `progress(ended, systems)` fifty times a second.
    pub(crate) fn run<R: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        progress: Option<&Bound<'_, PyAny>>,
        solve: impl FnOnce() -> R + Send,
    ) -> PyResult<R> {
        if self.pool.is_some() && self.process != std::process::id() {
            return Err(Forked::new_err(
                "the threads of the solver are in the process that this one was forked from: \
                 make the solver anew",
            ));
        }
        self.watch.clear();
        let solve = || match &self.pool {
            Some(pool) => pool.install(solve),
            None => solve(),
        };
        if !long && progress.is_none() {
            return Ok(py.detach(solve));
        }
        SOLVING.with_borrow_mut(|solving| solving.push(self.address()));
        let _solving = Solving;
        match self.run_aside(py, progress, solve) {
            (_, Some(error)) => Err(error),
            (solved, None) => Ok(solved),
        }
    }

    /// Runs a solve on another thread, while this one looks for signals and tells the progress.
    fn run_aside<R: Send>(
        &self,
        py: Python<'_>,
        progress: Option<&Bound<'_, PyAny>>,
        solve: impl FnOnce() -> R + Send,
    ) -> (R, Option<PyErr>) {
        let (sender, ended) = mpsc::channel();
        let mut raised: Option<PyErr> = None;
        let solved = thread::scope(|scope| {
            let solving = scope.spawn(move || {
                let solved = solve();
                let _ = sender.send(());
                solved
            });
            let ended = Mutex::new(ended);
            let wait = || ended.lock().expect("one thread waits").recv_timeout(TICK);
            while py.detach(wait) == Err(RecvTimeoutError::Timeout) {
                let told = match (&raised, progress) {
                    (None, Some(progress)) => self.tell(progress),
                    _ => Ok(()),
                };
                if let Err(error) = py.check_signals().and(told) {
                    self.watch.stop();
                    raised.get_or_insert(error);
                }
            }
            py.detach(|| solving.join())
        });
        match solved {
            Ok(solved) => (solved, raised),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn tell(&self, progress: &Bound<'_, PyAny>) -> PyResult<()> {
        let Progress { ended, systems, .. } = self.watch.progress();
        progress.call1((ended, systems)).map(drop)
    }
}

fn pool(threads: usize) -> PyResult<ThreadPool> {
    if threads == 0 {
        return Err(OptionError::new_err("threads is 0, expected at least 1"));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| OptionError::new_err(format!("threads is {threads}: {error}")))
}
