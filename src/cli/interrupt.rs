//! Ctrl-C, and requests to end: nothing is left half written.

/// Ends the process at the first SIGINT or SIGTERM, with 128 and the number of the signal as usual in
/// shells (130 for Ctrl-C), after temporary files were removed and it was said what stands. A second
/// Ctrl-C ends it at once.
#[cfg(unix)]
pub(crate) fn watch() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag;
    use signal_hook::iterator::Signals;

    let is_ending = Arc::new(AtomicBool::new(false));
    // In this order: the first signal finds the flag down.
    let watched = flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&is_ending))
        .and_then(|_| flag::register(SIGINT, is_ending))
        .and_then(|_| Signals::new([SIGINT, SIGTERM]));
    // Where the system refuses, signals do what they do by default.
    let Ok(mut signals) = watched else { return };
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            end(signal);
        }
    };
    // Where there is no thread to be had, the second Ctrl-C ends the process.
    let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
}

/// Nothing to do: the system ends the process.
#[cfg(not(unix))]
pub(crate) fn watch() {}

#[cfg(unix)]
fn end(signal: i32) -> ! {
    use std::io::IsTerminal;

    // Until the process has ended nothing is begun and nothing gets its name.
    let _held = sparsebatch::io::discard_unfinished();
    let mut line = "error: interrupted".to_owned();
    if let Some(written) = super::outputs::written_so_far() {
        line += &format!("; {written}");
    }
    if std::io::stderr().is_terminal() {
        // Behind ^C and what is left of a progress line.
        eprintln!();
    }
    eprintln!("{}", super::output::one_line(&line));
    signal_hook::low_level::exit(128 + signal)
}
