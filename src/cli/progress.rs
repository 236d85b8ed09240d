//! A progress line on stderr, for work that takes more than a second, when stderr is a terminal.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sparsebatch::gpu::device::nvrtc;

use super::Global;
use super::output::{counted, one_line};

/// Work shorter than this shows no progress line.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two drawings.
const REDRAW: Duration = Duration::from_millis(100);

/// Bytes done and in total; the total is 0 if unknown.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    total: AtomicU64,
}

/// A progress line, shown from one second after its creation until it is dropped.
pub(crate) struct Progress {
    counts: Arc<Counts>,
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Starts the timer; `what` is shown with the time elapsed.
    pub(crate) fn start(global: Global, what: String) -> Self {
        let counts = Arc::new(Counts::default());
        let running = (!global.quiet && std::io::stderr().is_terminal()).then(|| {
            let (sender, receiver) = channel();
            let counts = Arc::clone(&counts);
            let what = one_line(&what).into_owned();
            (sender, std::thread::spawn(move || show(&receiver, &counts, what)))
        });
        Self { counts, running }
    }

    /// Sets the bytes done and the total.
    pub(crate) fn set(&self, done: u64, total: u64) {
        self.counts.done.store(done, Ordering::Relaxed);
        self.counts.total.store(total, Ordering::Relaxed);
    }
}

/// What the line says: `what`, or that the first solve of its kind on this machine still compiles.
fn message(what: &str, kernels: usize) -> String {
    match kernels {
        0 => what.to_owned(),
        _ => format!("{what}: compiling {}", counted(kernels, "kernel")),
    }
}

fn show(ended: &Receiver<()>, counts: &Counts, what: String) {
    if ended.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let bar = ProgressBar::new(0).with_elapsed(PATIENCE);
    let mut known = None;
    loop {
        let total = counts.total.load(Ordering::Relaxed);
        if known.replace(total > 0) != Some(total > 0) {
            let template = if total > 0 {
                "{msg} {wide_bar} {bytes} of {total_bytes} [{elapsed}]"
            } else {
                "{spinner} {msg} [{elapsed}]"
            };
            // The templates above are valid; if one were not, the default style would be shown.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
        }
        bar.set_message(message(&what, nvrtc::under_way()));
        bar.set_length(total);
        bar.set_position(counts.done.load(Ordering::Relaxed));
        bar.tick();
        if ended.recv_timeout(REDRAW) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    bar.finish_and_clear();
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.running.take() {
            drop(sender);
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_that_kernels_are_compiled() {
        assert_eq!(message("solving 80 systems", 0), "solving 80 systems");
        assert_eq!(message("solving 80 systems", 2), "solving 80 systems: compiling 2 kernels");
    }
}
