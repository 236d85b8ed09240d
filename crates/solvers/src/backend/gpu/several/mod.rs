//! Several GPUs in one process, for a batch in the memory of the host.
//!
//! **What lies where.** Every GPU has an executor, a thread and [`Piece`](super::piece::Piece)s:
//! plans and device memory for some items. There are two ways to divide a batch; `pieces.rs`
//! takes the first where it can.
//!
//! 1. *One queue.* A batch of one pattern that goes through the GPUs in chunks: one plan serves
//!    every chunk, so every GPU makes that plan and the memory of its pipeline, and draws the next
//!    chunk from a [`Queue`] whenever a slot of its pipeline is free. A fast GPU draws more, copies
//!    and solves overlap from the first chunk to the last, and nothing of the batch is copied on
//!    the host but to page-locked memory. Items of one pattern cost alike before their iterations
//!    are known, so the queue has the order of the items; chunks that a failed GPU gives back come
//!    first.
//! 2. *Static pieces.* A ragged batch needs a plan for each chunk, kept factors must stay where
//!    they are, and a small batch has one chunk: the items are [cut] into one run for each GPU, of
//!    equal [estimated cost](estimated_cost). Plans are made once, on the GPU that will solve.
//!
//! A queue of analysed pieces for ragged batches was not built: a piece that is drawn by another
//! GPU than in the solve before would have to be analysed there, which takes longer than the solve.
//!
//! **Results.** The thread of a GPU gets a [`Window`]: the part of `x` and of the outcomes that
//! belongs to consecutive items, cut apart beforehand. Plans confirm verdicts on their GPU.
//! Guesses, systems that did not converge and what the CPU solves belong to the whole batch and are
//! done by the calling thread, as for one GPU. The bits are those of one GPU, since plans depend
//! neither on the number of systems nor on chunks, and all GPUs plan for the same model
//! (`Backend::gpus`).
//!
//! **Faults.** An error of a GPU in the analysis or in a solve takes that GPU out of the analysed
//! batch. Its chunks go back to the queue; its pieces are cut again among the GPUs that are left,
//! and analysed there. The report names it with the reason. Where no GPU is left the error of the
//! last one is the error of the solve; the rules of one GPU on what the CPU may take hold
//! unchanged.
//!
//! **Threads.** A GPU's thread is the first of a rayon pool of its own, which copies to and from
//! page-locked memory; the pools share the threads of the caller's pool in equal parts. Pools, and
//! not tasks of the caller's pool: a thread that waits for others of its pool takes up other work,
//! which might be the whole work of another GPU.

mod cut;
mod queue;

use std::ops::Range;
use std::process;

use rayon::{ThreadPool, ThreadPoolBuilder};

pub(super) use cut::{cut, estimated_cost};
pub(super) use queue::{Queue, Window};

/// The threads of several GPUs.
pub(crate) struct Teams {
    /// A pool for each GPU; none where the system gives no threads.
    pools: Vec<ThreadPool>,
    /// The process that has these threads.
    process: u32,
}

impl Teams {
    /// Pools for `gpus` GPUs, which share the number of threads of the current pool.
    pub(crate) fn new(gpus: usize) -> Self {
        let threads = (rayon::current_num_threads() / gpus.max(1)).max(1);
        let pool = |gpu| {
            let name = move |thread| format!("gpu {gpu}, thread {thread}");
            ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build()
        };
        let pools = (0..gpus).map(pool).collect::<Result<_, _>>().unwrap_or_default();
        Self { pools, process: process::id() }
    }

    /// Does `work` on each value on the threads of its GPU, all at once, and returns the results in
    /// order. Each GPU has at most one value. Without threads of this process, one after the other.
    pub(crate) fn each<V: Send, R: Send>(
        &self,
        values: Vec<(usize, V)>,
        work: impl Fn(usize, V) -> R + Sync,
    ) -> Vec<R> {
        let has_pools = values.iter().all(|&(gpu, _)| gpu < self.pools.len());
        if values.len() < 2 || !has_pools || self.process != process::id() {
            return values.into_iter().map(|(gpu, value)| work(gpu, value)).collect();
        }
        let work = &work;
        std::thread::scope(|scope| {
            let begin = |(gpu, value)| {
                let pool: &ThreadPool = &self.pools[gpu];
                scope.spawn(move || pool.install(|| work(gpu, value)))
            };
            let threads: Vec<_> = values.into_iter().map(begin).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended
                .map(|ended| ended.unwrap_or_else(|fault| std::panic::resume_unwind(fault)))
                .collect()
        })
    }
}

/// The items from the first of a list to the last, which is not empty.
pub(super) fn span(items: &[u32]) -> Range<usize> {
    match (items.first(), items.last()) {
        (Some(&first), Some(&last)) => first as usize..last as usize + 1,
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn the_work_of_several_gpus_goes_on_at_once() {
        // Each waits until all have begun.
        let barrier = Barrier::new(3);

        let done = Teams::new(3).each(vec![(2, 'c'), (0, 'a'), (1, 'b')], |gpu, value| {
            barrier.wait();
            (gpu, value, rayon::current_num_threads())
        });

        let threads = (rayon::current_num_threads() / 3).max(1);
        assert_eq!(done, [(2, 'c', threads), (0, 'a', threads), (1, 'b', threads)]);
    }

    #[test]
    fn without_threads_of_this_process_the_work_is_done_in_turn() {
        let pools = Vec::new();
        let teams = Teams { pools, process: process::id() };
        assert_eq!(teams.each(vec![(0, 1), (1, 2)], |gpu, value| gpu + value), [1, 3]);
        // As in a child that was forked.
        let teams = Teams { process: 0, ..Teams::new(2) };
        assert_eq!(teams.each(vec![(0, 1), (1, 2)], |gpu, value| gpu + value), [1, 3]);
    }
}
