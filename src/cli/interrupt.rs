//! Handles Ctrl-C and termination requests: no file is left half written.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::Exit;

/// Whether an interrupt ends the process without a line.
static IS_HUSHED: AtomicBool = AtomicBool::new(false);

/// The exit code of work that is done, or -1.
static DONE: AtomicI32 = AtomicI32::new(-1);

/// Leaves it to another process, rank 0 of the job, to say that the job was interrupted.
pub(crate) fn hush() {
    IS_HUSHED.store(true, Ordering::Relaxed);
}

/// From now on a signal ends the process with this exit code and without a line: all is done. A
/// launcher ends the other processes of a job when one has ended with an exit code that is not 0.
pub(crate) fn done(exit: Exit) {
    DONE.store(exit as i32, Ordering::Relaxed);
    hush();
}

/// Ends the process at the first SIGINT or SIGTERM, with exit code 128 plus the signal number as
/// usual in shells (130 for Ctrl-C), after removing temporary files and reporting which outputs
/// were written. A second Ctrl-C ends the process at once.
#[cfg(unix)]
pub(crate) fn watch() {
    use std::sync::Arc;

    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag;
    use signal_hook::iterator::Signals;

    let is_ending = Arc::new(AtomicBool::new(false));
    // The order matters: the first signal must find the flag not yet set.
    let watched = flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&is_ending))
        .and_then(|_| flag::register(SIGINT, is_ending))
        .and_then(|_| Signals::new([SIGINT, SIGTERM]));
    // If the system refuses the handlers, signals keep their default action.
    let Ok(mut signals) = watched else { return };
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            end(signal);
        }
    };
    // If no thread can be started, the second Ctrl-C ends the process.
    let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
}

/// Nothing to do: the system ends the process.
#[cfg(not(unix))]
pub(crate) fn watch() {}

#[cfg(unix)]
fn end(signal: i32) -> ! {
    use std::io::IsTerminal;

    // While this is held, until the process ends, no output is begun or gets its final name.
    let _held = sparsebatch::io::discard_unfinished();
    if IS_HUSHED.load(Ordering::Relaxed) {
        let done = DONE.load(Ordering::Relaxed);
        signal_hook::low_level::exit(if done < 0 { 128 + signal } else { done })
    }
    let mut line = "error: interrupted".to_owned();
    if let Some(written) = super::outputs::written_so_far() {
        line += &format!("; {written}");
    }
    if std::io::stderr().is_terminal() {
        // Starts a new line after ^C and the remains of a progress line.
        eprintln!();
    }
    eprintln!("{}", super::output::one_line(&line));
    signal_hook::low_level::exit(128 + signal)
}
