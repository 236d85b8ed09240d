//! Panics as one line on stderr, or kept for the other ranks of a job to know.

use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::output;

/// Whether panics are kept instead of being printed.
static ARE_KEPT: AtomicBool = AtomicBool::new(false);

/// The first panic that was kept.
static KEPT: Mutex<Option<String>> = Mutex::new(None);

/// While it lives, the line of the first panic is kept for [`take`].
pub(super) struct Keeping(());

/// Keeps panics.
pub(super) fn kept() -> Keeping {
    ARE_KEPT.store(true, Ordering::Relaxed);
    Keeping(())
}

impl Drop for Keeping {
    fn drop(&mut self) {
        ARE_KEPT.store(false, Ordering::Relaxed);
    }
}

/// The line of the first panic since the last call.
pub(super) fn take() -> String {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).take();
    kept.unwrap_or_else(|| "internal failure".to_owned())
}

/// Keeps a panic, or prints the first one: `reported` says whether there was one.
pub(super) fn report(info: &PanicHookInfo<'_>, reported: &AtomicBool) {
    let is_kept = ARE_KEPT.load(Ordering::Relaxed);
    if !is_kept && reported.swap(true, Ordering::Relaxed) {
        return;
    }
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let message = message.replace('\n', " ");
    let line = format!("internal failure at {place}: {message}");
    if is_kept {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(line);
    } else {
        eprintln!("error: {}", output::one_line(&line));
    }
}
