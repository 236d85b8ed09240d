//! Kept factors, and solves of other values with them.

use kernel_emu::{Emulator, Order as Threads};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::{Csr, Pattern};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::{FactoredSolver, Guess, ShiftedValues};
use sparsebatch_solvers::{Method, Outcome, Preconditioner, Status};
use sparsebatch_testing::random_vector;

use crate::common::{Systems, options, residual_norm};
use crate::gpu_factored::support::{PRECISIONS, PRECONDITIONERS, SHAPES, matrix, pattern, tuning};

/// Symmetric positive definite items of one pattern, with `shift` added to their diagonals.
fn systems(n: usize, items: u64, shift: f64) -> Systems<f64> {
    let pattern = pattern(n, 3, true, 2);
    let matrices: Vec<Csr<f64>> =
        (0..items).map(|item| matrix(&pattern, 1.0 + shift, true, item)).collect();
    Systems::new(&matrices, random_vector(n * items as usize, 6))
}

type Plan = FactoredSolver<Emulator, f64>;

fn solved(
    executor: &Emulator,
    plan: &mut Plan,
    systems: &Systems<f64>,
) -> (Vec<f64>, Vec<Outcome>) {
    let values = executor.upload(systems.values()).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let mut x = executor.upload(&systems.x0).unwrap();
    let before = executor.bytes_in_use();
    plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
    assert_eq!(executor.bytes_in_use(), before, "a solve allocates nothing");
    (executor.download(&x).unwrap(), plan.outcomes().unwrap())
}

#[test]
fn kept_factors_precondition_values_that_changed() {
    let (n, items) = (90, 4);
    let (then, now) = (systems(n, items, 0.02), systems(n, items, 0.03));
    let mut all_kept_bytes = Vec::new();
    for (method, preconditioner) in [Method::Cg, Method::BiCgStab]
        .into_iter()
        .flat_map(|method| PRECONDITIONERS.map(|preconditioner| (method, preconditioner)))
    {
        // Factors in shared memory, in the workspace, in lists.
        for (shape, precond_precision) in [SHAPES[0], SHAPES[5], SHAPES[6]]
            .into_iter()
            .flat_map(|shape| PRECISIONS.map(|precision| (shape, precision)))
        {
            let options = options(method, preconditioner).precond_precision(precond_precision);
            let what = format!("{method} {preconditioner} {precond_precision} {shape:?}");
            let executor = Emulator::new(Threads::Random(3));
            let tuning = tuning(shape);
            let mut plan =
                Plan::with_tuning(&executor, then.pattern(), 4, &options, &tuning).unwrap();
            let fresh = [&then, &now].map(|systems| solved(&executor, &mut plan, systems));

            plan.factorise(&executor.upload(then.values()).unwrap()).unwrap();
            let kept_bytes = plan.explain().kept_bytes;
            let lagged = [&then, &now].map(|systems| solved(&executor, &mut plan, systems));

            assert!(kept_bytes >= 4 * items * n as u64, "{what}: {kept_bytes}");
            all_kept_bytes.push(kept_bytes);
            // With the values that were factorised, no bit differs.
            assert_eq!(lagged[0], fresh[0], "{what}");
            let (x, outcomes) = &lagged[1];
            for (system, outcome) in outcomes.iter().enumerate() {
                assert_eq!(outcome.status, Status::Converged, "{what}: {outcome:?}");
                let found = residual_norm(&now, x, system);
                assert!(found <= 1.001e-10 * outcome.rhs_norm, "{what}: {found}");
            }
            // Iteration counts within a factor of 2 of those with own factors.
            let count = |outcomes: &[Outcome]| outcomes.iter().map(|o| o.iterations).sum::<u32>();
            let (own, old) = (count(&fresh[1].1), count(outcomes));
            assert!(old <= 2 * own && own <= 2 * old, "{what}: {own}, {old}");
            assert_ne!(x, &fresh[1].0, "{what}");

            // The factors are computed again, then dropped.
            plan.factorise(&executor.upload(now.values()).unwrap()).unwrap();
            assert_eq!(plan.explain().kept_bytes, kept_bytes, "{what}");
            assert_eq!(solved(&executor, &mut plan, &now), fresh[1], "{what}");
            plan.forget_factors();
            assert_eq!(plan.explain().kept_bytes, 0, "{what}");
            assert_eq!(solved(&executor, &mut plan, &then), fresh[0], "{what}");
        }
    }
    // Factors in f32 take half as much, plus two exponents per row.
    for kept in all_kept_bytes.chunks(2) {
        let exponents = 4 * items * n as u64;
        assert!(kept[0] / 2 <= kept[1] && kept[1] <= kept[0] / 2 + exponents + 4, "{kept:?}");
    }
}

#[test]
fn items_without_factors_fail_alone() {
    let mut then = systems(40, 3, 0.1);
    let now = then.clone();
    let nnz = then.pattern().nnz();
    let mut values = then.values().to_vec();
    values[nnz..2 * nnz].fill(0.0);
    let matrices: Vec<Csr<f64>> = (0..3)
        .map(|item| {
            let own = values[item * nnz..(item + 1) * nnz].to_vec();
            Csr::from_parts(then.batch.pattern().clone(), own).unwrap()
        })
        .collect();
    then = Systems::new(&matrices, then.b);
    for (preconditioner, precond_precision) in PRECONDITIONERS
        .into_iter()
        .flat_map(|preconditioner| PRECISIONS.map(|precision| (preconditioner, precision)))
    {
        let executor = Emulator::new(Threads::Forward);
        let options = options(Method::Cg, preconditioner).precond_precision(precond_precision);
        let mut plan = Plan::new(&executor, now.pattern(), 3, &options).unwrap();
        let (_, fresh) = solved(&executor, &mut plan, &now);
        plan.factorise(&executor.upload(then.values()).unwrap()).unwrap();

        let (_, outcomes) = solved(&executor, &mut plan, &now);

        assert_eq!(outcomes[1].status, Status::SingularPreconditioner);
        assert_eq!((&outcomes[0], &outcomes[2]), (&fresh[0], &fresh[2]));
    }
}

/// Factors of one matrix serve a batch of other matrices with several right-hand sides.
#[test]
fn factors_of_one_item_serve_all() {
    let (n, nrhs) = (40, 2);
    let now = systems(n, 3, 0.1);
    let one = systems(n, 1, 0.1);
    let b = random_vector::<f64>(3 * n * nrhs, 9);
    let options = options(Method::Cg, Preconditioner::IC0).nrhs(nrhs);
    for precond_precision in PRECISIONS {
        let options = options.clone().precond_precision(precond_precision);
        let executor = Emulator::new(Threads::Forward);
        let mut plan = Plan::new(&executor, now.pattern(), 3, &options).unwrap();
        plan.factorise(&executor.upload(one.values()).unwrap()).unwrap();
        let values = executor.upload(now.values()).unwrap();
        let b = executor.upload(&b).unwrap();
        let mut x = executor.alloc(3 * n * nrhs).unwrap();

        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();

        let outcomes = plan.outcomes().unwrap();
        assert_eq!(outcomes.len(), 6);
        assert!(outcomes.iter().all(|o| o.status == Status::Converged), "{outcomes:?}");
        let wrong = executor.upload(&now.values()[1..]).unwrap();
        assert!(plan.factorise(&wrong).is_err());
        let one_item = plan.explain().kept_bytes;
        plan.factorise(&values).unwrap();
        assert_eq!(plan.explain().kept_bytes, 3 * one_item);
    }
}

#[test]
fn only_the_active_items_take_part() {
    let (n, items, active) = (40, 9, 4);
    let now = systems(n, items as u64, 0.1);
    let options = options(Method::Cg, Preconditioner::IC0);
    let executor = Emulator::new(Threads::Forward);
    let mut plan = Plan::new(&executor, now.pattern(), items, &options).unwrap();
    let values = executor.upload(now.values()).unwrap();
    let b = executor.upload(&now.b).unwrap();
    let untouched = vec![7.0; n * items];
    let mut x = executor.upload(&untouched).unwrap();
    plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
    let whole = executor.download(&x).unwrap();
    let outcomes = plan.outcomes().unwrap();

    for kept in [false, true] {
        let mut plan = Plan::new(&executor, now.pattern(), items, &options).unwrap();
        plan.set_active(active).unwrap();
        if kept {
            plan.factorise(&values).unwrap();
        }
        executor.copy_from_host(&untouched, &mut x).unwrap();
        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();

        let found = executor.download(&x).unwrap();
        assert_eq!(found[..n * active], whole[..n * active]);
        assert_eq!(found[n * active..], untouched[n * active..]);
        assert_eq!(plan.outcomes().unwrap()[..active], outcomes[..active]);
        let on_device = executor.download(plan.device_outcomes().iterations).unwrap();
        assert!(on_device[..active].iter().all(|&k| k > 0));
        assert!(on_device[active..].iter().all(|&k| k == 0));

        // More active items need factors of their own; with no active item nothing is done.
        plan.set_active(active + 1).unwrap();
        let more = plan.solve(&values, &b, Guess::Zero, &mut x);
        if kept {
            assert!(
                matches!(
                    more,
                    Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "factors", .. }))
                ),
                "{more:?}"
            );
        } else {
            more.unwrap();
        }
        plan.set_active(0).unwrap();
        plan.factorise(&values).unwrap();
        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        assert!(matches!(
            plan.set_active(items + 1),
            Err(GpuSolveError::Argument(ArgumentError::Length { .. }))
        ));
    }
}

/// The factors of one item shared by all are computed whatever the number of active items.
#[test]
fn shared_factors_need_no_active_items() {
    let (n, items) = (40, 9);
    let now = systems(n, items as u64, 0.1);
    let options = options(Method::Cg, Preconditioner::IC0);
    let executor = Emulator::new(Threads::Forward);
    let values = executor.upload(now.values()).unwrap();
    let b = executor.upload(&now.b).unwrap();
    let mut x = executor.alloc(n * items).unwrap();
    let one = executor.upload(&now.values()[..now.values().len() / items]).unwrap();
    let [none, all] = [0, items].map(|active| {
        let mut plan = Plan::new(&executor, now.pattern(), items, &options).unwrap();
        plan.set_active(active).unwrap();
        plan.factorise(&one).unwrap();
        plan.set_active(items).unwrap();
        executor.copy_from_host(&vec![7.0; n * items], &mut x).unwrap();
        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        assert!(plan.outcomes().unwrap().iter().all(|o| o.status == Status::Converged));
        executor.download(&x).unwrap()
    });
    assert_eq!(none, all);
}

/// Matrices `I/dt - J` formed on the device; time steps change while the factors stay.
#[test]
fn factors_of_a_time_step_serve_the_next_ones() {
    let (n, items) = (60, 3);
    // The negative of a dominant matrix, so that `I/dt - J` has factors for every dt.
    let pattern = pattern(n, 3, true, 8);
    let jacobian: Vec<f64> = (0..items as u64)
        .flat_map(|item| {
            let dominant = matrix::<f64>(&pattern, 1.1, true, item);
            dominant.values().iter().map(|v| -v).collect::<Vec<_>>()
        })
        .collect();
    let executor = Emulator::new(Threads::Forward);
    let up = |v: &[f64]| executor.upload(v).unwrap();
    let shift = ShiftedValues::<_, f64>::new(&executor, pattern.view(), items).unwrap();
    let options = options(Method::BiCgStab, Preconditioner::ILU0);
    let mut plan = Plan::new(&executor, pattern.view(), items, &options).unwrap();
    let mut values = executor.alloc(jacobian.len()).unwrap();
    let (jacobian, b) = (up(&jacobian), random_vector::<f64>(n * items, 4));
    let mut iterations = Vec::new();
    for (step, dt) in [0.5, 0.45, 0.4, 0.6].into_iter().enumerate() {
        let steps: Vec<f64> = (0..items).map(|item| dt * (1.0 + item as f64)).collect();
        shift.apply(&jacobian, &up(&steps), &mut values).unwrap();
        if step == 0 {
            plan.factorise(&values).unwrap();
        }
        let mut x = executor.alloc(b.len()).unwrap();
        plan.solve(&values, &up(&b), Guess::Zero, &mut x).unwrap();

        let outcomes = plan.outcomes().unwrap();
        let host = executor.download(&values).unwrap();
        let matrices: Vec<Csr<f64>> = host
            .chunks(pattern.view().nnz())
            .map(|own| Csr::from_parts(pattern.clone().into(), own.to_vec()).unwrap())
            .collect();
        let systems = Systems::new(&matrices, b.clone());
        let x = executor.download(&x).unwrap();
        for (system, outcome) in outcomes.iter().enumerate() {
            assert_eq!(outcome.status, Status::Converged, "{dt}: {outcome:?}");
            assert!(residual_norm(&systems, &x, system) <= 1.001e-10 * outcome.rhs_norm, "{dt}");
        }
        iterations.push(outcomes.iter().map(|o| o.iterations).sum::<u32>());
    }
    assert!(iterations.iter().all(|&later| later <= 3 * iterations[0]), "{iterations:?}");
}
