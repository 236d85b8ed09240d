//! Batched solves with one system per SIMD lane.

mod bicgstab;
mod cg;
mod direct;
mod factored;
mod job;
mod matrix;
mod precond;

use rayon::prelude::*;
use sparsebatch_formats::Batch;

use crate::outcome::{Criteria, Outcome};
use crate::simd::{CpuScalar, Isa, dispatch};
use job::{Job, Slot};
use matrix::LaneMatrix;

/// Bench entry.
pub fn cg_bench<T: CpuScalar>(
    batch: &Batch<T>,
    b: &[T],
    x: &mut [T],
    criteria: &Criteria,
    isa: Isa,
    lanes: usize,
    chunk: usize,
    jacobi: bool,
) -> Vec<Outcome> {
    let matrix = LaneMatrix::new(batch.pattern(0));
    let n = matrix.nrows();
    let mut outcomes: Vec<Option<Outcome>> = vec![None; batch.nitems()];
    let slots: Vec<Slot<'_, T>> = x
        .chunks_exact_mut(n)
        .zip(b.chunks_exact(n))
        .zip(&mut outcomes)
        .enumerate()
        .map(|(system, ((x, b), outcome))| Slot {
            system,
            b,
            x,
            outcome,
        })
        .collect();
    let mut jobs = Vec::new();
    let mut it = slots.into_iter().peekable();
    while it.peek().is_some() {
        let queue: Vec<_> = it.by_ref().take(chunk).collect();
        jobs.push(Job {
            batch,
            nrhs: 1,
            matrix: &matrix,
            criteria,
            queue,
        });
    }
    jobs.into_par_iter().for_each(|job| {
        if jacobi {
            dispatch(
                isa,
                lanes,
                cg::Cg {
                    job,
                    precond: precond::Jacobi {
                        matrix: &matrix,
                        lenient: false,
                    },
                },
            )
        } else {
            dispatch(
                isa,
                lanes,
                cg::Cg {
                    job,
                    precond: precond::Identity,
                },
            )
        }
    });
    outcomes
        .into_iter()
        .map(|o| o.expect("every system is settled"))
        .collect()
}
