//! Solves without the interpreter's lock: progress, Ctrl-C, threads.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rayon::ThreadPool;
use sparsebatch::{Progress, Watch};

use crate::errors::OptionError;

/// How long a solve runs before signals are looked at again.
const TICK: Duration = Duration::from_millis(20);

thread_local! {
    /// The solver whose callback this thread runs, by the address of its `raised`.
    static CALLING: Cell<usize> = const { Cell::new(0) };
}

/// How a solve is followed and stopped, and on which threads it runs.
pub(crate) struct Control {
    pub(crate) watch: Watch,
    /// What the progress callback raised.
    raised: Arc<Mutex<Option<PyErr>>>,
    pool: Option<ThreadPool>,
}

impl Control {
    /// With a callback `progress(ended, systems)`, called at most fifty times a second, and threads
    /// of its own if a number is given.
    pub(crate) fn new(progress: Option<Py<PyAny>>, threads: Option<usize>) -> PyResult<Self> {
        let raised = Arc::new(Mutex::new(None));
        let watch = match progress {
            None => Watch::new(),
            Some(progress) => {
                let (raised, last) = (Arc::clone(&raised), Mutex::new(Instant::now()));
                Watch::with_callback(move |now| {
                    let outer = CALLING.replace(Arc::as_ptr(&raised).addr());
                    let flow = report(&progress, now, &last, &raised);
                    CALLING.set(outer);
                    flow
                })
            }
        };
        let pool = threads.map(pool).transpose()?;
        Ok(Self { watch, raised, pool })
    }

    /// Refuses calls of a solver by its own progress callback, which would wait for themselves.
    pub(crate) fn refuse_own_callback(&self) -> PyResult<()> {
        match CALLING.get() == Arc::as_ptr(&self.raised).addr() {
            true => Err(OptionError::new_err("progress uses the solver that calls it")),
            false => Ok(()),
        }
    }

    /// Runs a solve without the interpreter's lock. A `long` one that the main thread waits for
    /// ends at Ctrl-C.
    pub(crate) fn run<R: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        solve: impl FnOnce() -> R + Send,
    ) -> PyResult<R> {
        self.watch.clear();
        let solve = || match &self.pool {
            Some(pool) => pool.install(solve),
            None => solve(),
        };
        let (solved, interrupt) = match long {
            true => self.run_aside(py, solve),
            false => (py.detach(solve), None),
        };
        let raised = self.raised.lock().ok().and_then(|mut raised| raised.take());
        match interrupt.or(raised) {
            Some(error) => Err(error),
            None => Ok(solved),
        }
    }

    /// Runs a solve on another thread, while this one looks for signals.
    fn run_aside<R: Send>(
        &self,
        py: Python<'_>,
        solve: impl FnOnce() -> R + Send,
    ) -> (R, Option<PyErr>) {
        let (sender, ended) = mpsc::channel();
        let mut interrupt = None;
        let solved = thread::scope(|scope| {
            let solving = scope.spawn(move || {
                let solved = solve();
                let _ = sender.send(());
                solved
            });
            let ended = Mutex::new(ended);
            let wait = || ended.lock().expect("one thread waits").recv_timeout(TICK);
            while py.detach(wait) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = py.check_signals() {
                    self.watch.stop();
                    interrupt.get_or_insert(error);
                }
            }
            py.detach(|| solving.join())
        });
        match solved {
            Ok(solved) => (solved, interrupt),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn pool(threads: usize) -> PyResult<ThreadPool> {
    if threads == 0 {
        return Err(OptionError::new_err("threads is 0, expected at least 1"));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| OptionError::new_err(format!("threads is {threads}: {error}")))
}

fn report(
    callback: &Py<PyAny>,
    now: Progress,
    last: &Mutex<Instant>,
    raised: &Mutex<Option<PyErr>>,
) -> ControlFlow<()> {
    // Another thread reports.
    let Ok(mut last) = last.try_lock() else { return ControlFlow::Continue(()) };
    if last.elapsed() < TICK {
        return ControlFlow::Continue(());
    }
    *last = Instant::now();
    let called = Python::attach(|py| callback.call1(py, (now.ended, now.systems)).map(drop));
    match called {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            if let Ok(mut raised) = raised.lock() {
                raised.get_or_insert(error);
            }
            ControlFlow::Break(())
        }
    }
}
