//! A system's result depends neither on its neighbours nor on the order of threads, also where a
//! cluster of blocks solves it.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::gpu::{FusedSolver, GpuTuning, Guess, ValuePlace};
use sparsebatch_solvers::{Method, Preconditioner, Status};
use sparsebatch_testing::random_vector;

use crate::common::{METHODS, Solved, Systems, on_gpu, options};
use crate::gpu_clusters::{SMALL, forced};

const PLACES: [ValuePlace; 2] = [ValuePlace::Shared, ValuePlace::Global];

/// Item `item` of a family; `flaw` replaces its first value.
fn matrix(family: Family, nrows: usize, item: u64, flaw: Option<f64>) -> Csr<f64> {
    let problem = Problem::new(family, nrows).unwrap();
    let (pattern, mut values) = (problem.pattern(), Vec::new());
    problem.push_values(item, &mut values);
    values[0] = flaw.unwrap_or(values[0]);
    let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
    Csr::try_new(nrows, nrows, row_ptr, col_idx, values).unwrap()
}

/// No bit changes with the order of threads, with a single cluster that takes all systems from the
/// queue, with the position in the batch, or where a system is alone.
#[test]
fn neighbours_and_threads_change_no_bit() {
    let flaws = [None, Some(f64::NAN), None, Some(0.0), Some(f64::INFINITY), None, Some(1e30)];
    let n = 90;
    let matrices: Vec<_> =
        (0..).zip(flaws).map(|(item, flaw)| matrix(Family::Tri, n, item, flaw)).collect();
    let mut systems = Systems::new(&matrices, random_vector(flaws.len() * n, 3));
    systems.x0 = random_vector(flaws.len() * n, 4);
    for (method, preconditioner) in METHODS
        .into_iter()
        .flat_map(|method| [Preconditioner::None, Preconditioner::Jacobi].map(|p| (method, p)))
    {
        let options = options(method, preconditioner);
        for values in PLACES {
            let tuning = forced(SMALL[0], values);
            let on = |order, systems: &Systems<f64>, tuning: &GpuTuning| {
                on_gpu(&Emulator::new(order), systems, &options, tuning)
            };
            let all = on(Order::Forward, &systems, &tuning);
            assert_eq!(all.statuses()[0], Status::Converged);
            let one = tuning.max_blocks(Some(2));
            let turned: Vec<usize> = (0..flaws.len()).rev().collect();
            let turned = on(Order::Reverse, &systems.select(&turned), &one);
            let again = [
                on(Order::Random(3), &systems, &one),
                on(Order::Random(9), &systems, &tuning),
                on(Order::Reverse, &systems, &tuning),
            ];
            for item in 0..flaws.len() {
                let what = format!("{} item {item}", all.kernel);
                for again in &again {
                    assert_eq!(again.bits(item), all.bits(item), "{what}");
                }
                assert_eq!(turned.bits(flaws.len() - 1 - item), all.bits(item), "{what}");
                let alone = on(Order::Forward, &systems.select(&[item]), &tuning);
                assert_eq!(alone.bits(0), all.bits(item), "{what} alone");
            }
        }
    }
}

/// Systems of many sizes and patterns, more than there are clusters, end as they do alone.
#[test]
fn ragged_systems_are_solved_as_alone() {
    use Family::{Lap2d, Rand9, Tri};
    let sizes = [
        (Tri, 300, None),
        (Lap2d, 100, None),
        (Tri, 13, Some(f64::NAN)),
        (Tri, 300, Some(f64::INFINITY)),
        (Rand9, 200, None),
        (Lap2d, 400, None),
        (Tri, 1, None),
        (Rand9, 512, None),
        (Lap2d, 100, None),
        (Tri, 512, None),
    ];
    for method in METHODS {
        let matrices: Vec<_> = (0..)
            .zip(&sizes)
            .filter(|(_, (family, ..))| method == Method::BiCgStab || *family != Rand9)
            .map(|(item, &(family, nrows, flaw))| matrix(family, nrows, item, flaw))
            .collect();
        let batch: Batch<f64> = matrices.iter().cloned().collect();
        let Batch::Ragged(ragged) = &batch else { unreachable!("collected") };
        let nrhs = 2;
        let rows = ragged.row_offsets()[matrices.len()] * nrhs;
        let (b, x0) = (random_vector::<f64>(rows, 3), random_vector::<f64>(rows, 4));
        let options = options(method, Preconditioner::Jacobi).nrhs(nrhs);
        for values in PLACES {
            // Two clusters; the other systems wait in the queue.
            let tuning = forced(SMALL[1], values).max_blocks(Some(9));
            let executor = Emulator::new(Order::Random(7));
            let mut plan = FusedSolver::ragged(&executor, ragged, &options, &tuning).unwrap();
            assert!(
                plan.explain().launches.iter().all(|bin| bin.blocks % 4 == 0 && bin.blocks <= 8)
            );
            let all = executor.upload(ragged.values()).unwrap();
            let b_buffer = executor.upload(&b).unwrap();
            let mut x_buffer = executor.upload(&x0).unwrap();
            // Twice: the queues must be reset after a solve.
            for _ in 0..2 {
                executor.copy_from_host(&x0, &mut x_buffer).unwrap();
                plan.solve(&all, &b_buffer, Guess::InX, &mut x_buffer).unwrap();
            }
            let (x, outcomes) = (executor.download(&x_buffer).unwrap(), plan.outcomes().unwrap());
            for (item, matrix) in matrices.iter().enumerate() {
                let (first, n) = (ragged.row_offsets()[item] * nrhs, matrix.nrows());
                for rhs in 0..nrhs {
                    let own = first + rhs * n..first + (rhs + 1) * n;
                    let mut alone =
                        Systems::new(std::slice::from_ref(matrix), b[own.clone()].to_vec());
                    alone.x0 = x0[own.clone()].to_vec();
                    let options = options.clone().nrhs(1);
                    let alone = on_gpu(&Emulator::new(Order::Forward), &alone, &options, &tuning);
                    let outcomes = vec![outcomes[item * nrhs + rhs].clone()];
                    let found = Solved { x: x[own].to_vec(), outcomes, kernel: String::new() };
                    let what = format!("item {item} of {n} rows by {}", alone.kernel);
                    assert_eq!(found.bits(0), alone.bits(0), "{what}");
                }
            }
            let converged = outcomes.iter().filter(|o| o.status == Status::Converged).count();
            assert_eq!(converged, 2 * (matrices.len() - 2));
        }
    }
}
