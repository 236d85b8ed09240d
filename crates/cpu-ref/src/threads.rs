//! Checks that the threads that a call would wait for are in this process.
//!
//! A forked process has only the thread that forked. It inherits the parent's rayon pools without
//! their threads, so work handed to those pools is never done. The process in which a pool was
//! first used is stored and compared with the current one on each call.

use std::cell::Cell;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::CpuError;

/// Id of the process in which this library first used the global pool; 0 before the first use.
static GLOBAL_POOL: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Id of the process in which this pool thread first called this library; 0 before the first
    /// call. A pool made after a fork has new threads.
    static OWN_POOL: Cell<u32> = const { Cell::new(0) };
}

/// Checks that the threads of the current pool are in this process. A fork is detected only if this
/// library used the pool before the fork.
///
/// Cost: one system call (some 50 ns).
///
/// # Errors
/// [`CpuError::Forked`] when the threads are in the process that this one was forked from.
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
