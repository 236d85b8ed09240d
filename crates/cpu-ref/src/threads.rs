//! Whether the threads that a call would wait for are in this process.
//!
//! A forked process has the thread that forked alone, and rayon's pools of the parent without their
//! threads: work handed to them is never done. Which process a pool was used in is kept, and
//! compared on each call.

use std::cell::Cell;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::CpuError;

/// The process in which the global pool was first used by this library; 0 before.
static GLOBAL_POOL: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The process in which this thread of a pool first called this library; 0 before. A pool made
    /// after a fork has new threads.
    static OWN_POOL: Cell<u32> = const { Cell::new(0) };
}

/// Checks that the threads of the current pool are in this process, as far as that can be told: where
/// the pool was used by this library before the fork.
///
/// Costs a call of the system (some 50 ns).
///
/// # Errors
/// [`CpuError::Forked`] when they are in the process that this one was forked from.
pub fn check_threads() -> Result<(), CpuError> {
    let child = process::id();
    let parent = if rayon::current_thread_index().is_some() {
        OWN_POOL.with(|first| {
            if first.get() == 0 {
                first.set(child);
            }
            first.get()
        })
    } else {
        let first = GLOBAL_POOL.compare_exchange(0, child, Ordering::Relaxed, Ordering::Relaxed);
        first.map_or_else(|before| before, |_| child)
    };
    if parent == child { Ok(()) } else { Err(CpuError::Forked { parent, child }) }
}
