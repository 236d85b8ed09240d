//! A forked process: rayon's threads stay in its parent. A program of its own, since a forked child
//! may meet locks held by other threads of its process.
#![cfg(unix)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use sparsebatch_cpu_ref::lanes::{LaneOptions, LanePlan};
use sparsebatch_cpu_ref::{CpuError, SpmvPlan, par};
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_solve_core::{Criteria, PerSystem, Scheme, SpmvOptions, Status};
use sparsebatch_solvers::{BatchSolver, Method, SolveError, SolveOptions};

/// Seconds after which a hanging child is killed.
const PATIENCE: u32 = 20;

/// Whether `holds` returns true in a forked process; `None` if that does not end by itself.
#[expect(unsafe_code, reason = "fork has no safe wrapper")]
fn in_child(holds: impl FnOnce() -> bool) -> Option<bool> {
    // SAFETY: (1) fork takes no arguments; the child calls what is safe in one thread, and ends by
    // _exit, without running what belongs to the parent; (2) waitpid gets a place for the status.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "fork failed");
        if child == 0 {
            libc::alarm(PATIENCE);
            let holds = catch_unwind(AssertUnwindSafe(holds)).unwrap_or(false);
            libc::_exit(if holds { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status) == 0)
    }
}

/// A tridiagonal matrix, large enough that its product is shared between threads.
fn large() -> Csr<f64> {
    let n = 40_000i32;
    let columns = |row: i32| (row - 1).max(0)..(row + 2).min(n);
    let mut row_ptr = vec![0];
    let (mut col_idx, mut values) = (Vec::new(), Vec::new());
    for row in 0..n {
        col_idx.extend(columns(row));
        values.extend(columns(row).map(|col| if col == row { 4.0 } else { -1.0 }));
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n as usize, n as usize, row_ptr, col_idx, values).unwrap()
}

fn is_forked<T>(result: Result<T, CpuError>) -> bool {
    matches!(result, Err(CpuError::Forked { parent, child })
        if child == std::process::id() && parent != child)
}

#[test]
fn a_forked_process_is_told_to_make_a_pool_of_its_own() {
    let a = large();
    let small = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![4.0, 1.0, 1.0, 3.0]);
    let batch = Batch::Uniform(UniformBatch::shared(small.unwrap(), 300));
    let criteria = Criteria {
        rel_tol: PerSystem::All(1e-10),
        abs_tol: PerSystem::All(0.0),
        max_iters: PerSystem::All(100),
        max_restarts: 4,
        floor: None,
        history: false,
        watch: None,
    };
    let make = || LanePlan::new(&batch, Scheme::Lu, LaneOptions::default(), None);
    let solve = |plan: &LanePlan| {
        let mut x = vec![0.0; 600];
        let solved = plan.solve(&batch, 1, &[1.0; 600], &mut x, &criteria, None);
        solved.map(|outcomes| outcomes.iter().all(|o| o.status == Status::Converged))
    };
    let product = |plan: &SpmvPlan<f64>| {
        let mut y = vec![0.0; a.nrows()];
        plan.apply(1.0, &vec![1.0; a.nrows()], 0.0, &mut y).map(|()| y[1] == 2.0)
    };

    // If no pool has been used before the fork, the child makes its own.
    assert_eq!(in_child(|| solve(&make().unwrap()).unwrap()), Some(true));

    let mut lanes = make().unwrap();
    let mut products = SpmvPlan::new(&a, &SpmvOptions::default()).unwrap();
    assert!(solve(&lanes).unwrap() && product(&products).unwrap());
    assert_eq!(in_child(|| is_forked(make())), Some(true));
    assert_eq!(in_child(|| is_forked(solve(&lanes))), Some(true));
    assert_eq!(in_child(|| is_forked(lanes.factor(&batch))), Some(true));
    assert_eq!(in_child(|| is_forked(product(&products))), Some(true));
    assert_eq!(in_child(|| is_forked(products.update_values(a.values()))), Some(true));
    let to_y = |y: &mut [f64]| par::spmv(1.0, a.view(), &vec![1.0; a.nrows()], 0.0, y);
    assert_eq!(in_child(|| is_forked(to_y(&mut vec![0.0; a.nrows()]))), Some(true));

    let options = SolveOptions::new().method(Method::Lu);
    let mut solver = BatchSolver::new(&batch, &options).unwrap();
    solver.factor(&batch).unwrap();
    let b = vec![1.0; 600];
    let refuses = |result: Result<(), SolveError>| match result {
        Err(SolveError::Cpu(error)) => is_forked::<()>(Err(error)),
        _ => false,
    };
    let mut x = vec![7.0; 600];
    let again = sparsebatch_solvers::solve(&batch, &b, None, &options).map(drop);
    assert!(again.is_ok());
    let at_once = || refuses(sparsebatch_solvers::solve(&batch, &b, None, &options).map(drop));
    assert_eq!(in_child(at_once), Some(true));
    assert_eq!(in_child(|| refuses(BatchSolver::new(&batch, &options).map(drop))), Some(true));
    assert_eq!(in_child(|| refuses(solver.solve(&batch, &b, &mut x).map(drop))), Some(true));
    assert_eq!(in_child(|| refuses(solver.factor(&batch))), Some(true));
    assert_eq!(in_child(|| refuses(solver.solve_again(&b, &mut x).map(drop))), Some(true));

    // A pool made by the child has its threads there.
    let own_pool = || rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let in_own_pool =
        || own_pool().install(|| solve(&lanes).unwrap() && product(&products).unwrap());
    assert_eq!(in_child(in_own_pool), Some(true));

    // A fork from within a pool keeps one of its threads, not the others.
    let from_within = own_pool().install(|| {
        assert!(solve(&lanes).unwrap());
        in_child(|| is_forked(solve(&lanes)))
    });
    assert_eq!(from_within, Some(true));
}
