//! Solves as the stages of an integrator take them: matrices formed in place, the first items
//! alone, substitutions whose verdicts are found together.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError, KernelBuffer};
use sparsebatch_formats::{Batch, Csr, Layout};
use sparsebatch_solvers::gpu::{GpuSolveError, Guess};
use sparsebatch_solvers::{
    DeviceData, DeviceSolver, LuForm, Method, Rung, SolveError, SolveOptions, SolveScalar, Status,
};

use super::device::{methods, uniform, values_of};
use crate::backends::common::{chain, ragged, rhs};

const ITEMS: usize = 9;

fn chains<T: SolveScalar>() -> Batch<T> {
    uniform(&(0..ITEMS).map(|item| chain(8, 2.4 + 0.1 * item as f64)).collect::<Vec<Csr<T>>>())
}

fn lu() -> SolveOptions {
    SolveOptions::new().method(Method::Lu)
}

/// A solver of the batch with its values on the device.
fn made<T: SolveScalar>(
    executor: &Emulator,
    batch: &Batch<T>,
    options: &SolveOptions,
) -> (DeviceSolver<Emulator, T>, <Emulator as Executor>::Buffer<T>) {
    let solver = DeviceSolver::new(executor, batch, options).unwrap();
    (solver, executor.upload(&values_of(batch)).unwrap())
}

/// The first items alone have the bits that they have among all; the others are not touched, and
/// reports do not list them.
fn check_first_items<T: SolveScalar>(options: &SolveOptions) {
    let (executor, batch) = (Emulator::new(Order::Forward), chains::<T>());
    let nrhs = options.nrhs;
    let (mut solver, values) = made(&executor, &batch, options);
    let b = executor.upload(&rhs(&batch, nrhs)).unwrap();
    let mut all = executor.alloc(b.len()).unwrap();
    let of_all = solver.solve(&values, &b, Guess::Zero, &mut all).unwrap();
    let all = executor.download(&all).unwrap();
    let seven = vec![T::from_f64(7.0); b.len()];

    for active in [5, 0, ITEMS, 1] {
        let end = active * nrhs * 8;
        let check = |what: &str, x: &[T], systems: usize| {
            assert!(x[..end] == all[..end], "{what}: {active} items, {options:?}");
            assert!(x[end..] == seven[end..], "{what}: {active} items, {options:?}");
            assert_eq!(systems, active * nrhs, "{what}");
        };
        solver.set_active(active).unwrap();

        let mut x = executor.upload(&seven).unwrap();
        let report = solver.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        assert!(report.all_converged());
        check("solve", &executor.download(&x).unwrap(), report.nsystems());
        let list = report.into_report();
        assert_eq!(list.runs[0].systems, active * nrhs);
        assert_eq!(list.schemes.iter().map(|run| run.systems).sum::<usize>(), active * nrhs);
        for (system, (found, expected)) in list.systems.iter().zip(&of_all.systems).enumerate() {
            assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{system}");
        }

        let mut x = executor.upload(&seven).unwrap();
        solver.factor(&values).unwrap();
        let report = solver.solve_transposed_again(&b, Guess::Zero, &mut x).unwrap();
        let x = executor.download(&x).unwrap();
        assert!(report.all_converged() && report.nsystems() == active * nrhs);
        assert!(x[end..] == seven[end..], "{active} items of transposed systems, {options:?}");
    }
    let refused = solver.set_active(ITEMS + 1).unwrap_err();
    assert!(matches!(refused, SolveError::Argument(_)), "{refused:?}");
}

#[test]
fn the_first_items_are_solved_alone() {
    for options in methods().into_iter().filter(|options| options.lu_form != LuForm::BySystem) {
        check_first_items::<f64>(&options);
        check_first_items::<f32>(&options.nrhs(2));
    }
}

/// Also where vectors are copied to another order and back.
#[test]
fn interleaved_vectors_of_other_items_are_not_touched() {
    let (executor, batch) = (Emulator::new(Order::Forward), chains::<f64>());
    let data = DeviceData::new().vectors(Layout::Interleaved);
    let mut solver = DeviceSolver::with_data(&executor, &batch, &lu(), data).unwrap();
    let values = executor.upload(&values_of(&batch)).unwrap();
    let b = executor.upload(&rhs(&batch, 1)).unwrap();
    let mut x = executor.upload(&[7.0; 8 * ITEMS]).unwrap();
    solver.set_active(5).unwrap();

    assert!(solver.solve(&values, &b, Guess::Zero, &mut x).unwrap().all_converged());

    let x = executor.download(&x).unwrap();
    for (at, &x) in x.iter().enumerate() {
        assert_eq!(x == 7.0, at % ITEMS >= 5, "{at}");
    }
}

/// Factors of fewer items serve no solve of more.
#[test]
fn more_items_than_have_factors_are_solved_without_them() {
    let (executor, batch) = (Emulator::new(Order::Forward), chains::<f64>());
    let (mut solver, values) = made(&executor, &batch, &lu());
    let b = executor.upload(&rhs(&batch, 1)).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    solver.set_active(4).unwrap();
    solver.factor(&values).unwrap();
    assert!(solver.solve_transposed_again(&b, Guess::Zero, &mut x).unwrap().all_converged());

    solver.set_active(ITEMS).unwrap();

    assert!(!solver.keeps_factors());
    assert!(matches!(solver.substitute(&b, &mut x), Err(SolveError::NotFactored)));
    for _ in 0..2 {
        let report = solver.solve_again(&b, Guess::Zero, &mut x).unwrap();
        assert!(report.all_converged() && report.nsystems() == ITEMS);
        let report = solver.solve_transposed_again(&b, Guess::Zero, &mut x).unwrap();
        assert!(report.all_converged() && report.nsystems() == ITEMS);
        solver.factor(&values).unwrap();
        assert!(solver.keeps_factors());
    }
}

/// Failing systems climb where they take part, and are not looked at where they do not.
#[test]
fn items_that_do_not_take_part_do_not_climb() {
    let executor = Emulator::new(Order::Forward);
    let mut matrices: Vec<Csr<f64>> = (0..6).map(|_| chain(8, 2.5)).collect();
    // Not definite.
    matrices[1] = chain(8, -0.3);
    matrices[4] = chain(8, -0.3);
    let batch = uniform(&matrices);
    let options = SolveOptions::new().method(Method::Cg).max_iters(20);
    let (mut solver, values) = made(&executor, &batch, &options);
    let b = executor.upload(&rhs(&batch, 1)).unwrap();

    for (active, climbed) in [(6, vec![1, 4]), (3, vec![1]), (1, vec![])] {
        solver.set_active(active).unwrap();
        let mut x = executor.upload(&[7.0; 48]).unwrap();
        let report = solver.solve(&values, &b, Guess::Zero, &mut x).unwrap().into_report();

        assert!(report.all_converged() && report.systems.len() == active);
        let has_climbed = |system: &usize| report.systems[*system].rung != Rung::First;
        assert_eq!((0..active).filter(has_climbed).collect::<Vec<_>>(), climbed);
        let x = executor.download(&x).unwrap();
        assert!(x[8 * active..].iter().all(|&x| x == 7.0), "{active}");
    }
}

#[test]
fn several_patterns_and_methods_are_solved_whole() {
    let executor = Emulator::new(Order::Forward);
    let by_system = lu().lu_form(LuForm::BySystem);
    let mut solver = DeviceSolver::new(&executor, &chains::<f64>(), &by_system).unwrap();
    assert!(matches!(solver.set_active(1), Err(SolveError::Unsupported { .. })));
    let batch = ragged([chain::<f64>(8, 2.5), chain(9, 2.5)]);
    let mut solver = DeviceSolver::new(&executor, &batch, &lu()).unwrap();

    let refused = solver.set_active(1).unwrap_err();

    assert_eq!(
        refused.to_string(),
        "the first items alone by this solver is not supported on the GPU yet: make a solver of \
         these items"
    );
    // All of them may be.
    solver.set_active(2).unwrap();
}

/// Matrices that are formed in the solver's own array are solved as those that are given.
#[test]
fn matrices_are_formed_in_place() {
    for options in methods() {
        let (executor, batch) = (Emulator::new(Order::Forward), chains::<f64>());
        let (mut solver, values) = made(&executor, &batch, &options);
        let b = executor.upload(&rhs(&batch, options.nrhs)).unwrap();
        let (mut expected, mut x) =
            (executor.alloc(b.len()).unwrap(), executor.alloc(b.len()).unwrap());
        assert!(matches!(solver.factor_in_place(), Err(SolveError::NotFactored)));
        solver.factor(&values).unwrap();
        let keeps = solver.keeps_factors();
        solver.solve_again(&b, Guess::Zero, &mut expected).unwrap();

        let doubled: Vec<f64> = values_of(&batch).iter().map(|value| 2.0 * value).collect();
        executor.copy_from_host(&doubled, solver.kept_values().unwrap()).unwrap();
        // They have no factors yet, and are solved all the same.
        assert!(!solver.keeps_factors());
        assert!(solver.solve_again(&b, Guess::Zero, &mut x).unwrap().all_converged());
        solver.factor_in_place().unwrap();
        assert_eq!(solver.keeps_factors(), keeps);
        let report = solver.solve_again(&b, Guess::Zero, &mut x).unwrap();

        assert!(report.all_converged());
        let (x, expected) = (executor.download(&x).unwrap(), executor.download(&expected).unwrap());
        assert!(x.iter().zip(&expected).all(|(x, y)| (2.0 * x - y).abs() <= 1e-6), "{options:?}");
        if options.method == Method::Lu {
            assert!(x.iter().zip(&expected).all(|(x, y)| 2.0 * x == *y), "{options:?}");
        }
    }
}

#[test]
fn matrices_in_another_order_are_not_formed_in_place() {
    let (executor, batch) = (Emulator::new(Order::Forward), chains::<f64>());
    let interleaved = DeviceData::new().values(Layout::Interleaved);
    for data in [DeviceData::new().transposed(true), interleaved] {
        let mut solver = DeviceSolver::with_data(&executor, &batch, &lu(), data).unwrap();
        let refused = solver.kept_values().map(drop).unwrap_err();
        assert!(refused.to_string().starts_with("matrices formed in place in another order"));
    }
    // The memory that is left is too little.
    let small = Emulator::with_memory(1 << 24);
    let mut solver = DeviceSolver::new(&small, &batch, &lu()).unwrap();
    let _filler = small.alloc::<u8>(small.free_memory().unwrap() as usize - 64).unwrap();
    let refused = solver.kept_values().map(drop).unwrap_err();
    assert!(matches!(refused, SolveError::Gpu(GpuError::OutOfMemory { .. })), "{refused:?}");
    assert!(matches!(solver.factor_in_place(), Err(SolveError::NotFactored)));
}

#[test]
fn substitutions_are_verified_together() {
    let (executor, batch) = (Emulator::new(Order::Forward), chains::<f64>());
    let (mut solver, values) = made(&executor, &batch, &lu());
    assert!(solver.substitutes() && solver.verified_outcomes().is_none());
    let b = executor.upload(&rhs(&batch, 1)).unwrap();
    let vector = || executor.alloc::<f64>(b.len()).unwrap();
    let (mut x, mut y, mut expected) = (vector(), vector(), vector());
    assert!(matches!(solver.substitute(&b, &mut x), Err(SolveError::NotFactored)));
    solver.factor(&values).unwrap();
    solver.solve_again(&b, Guess::Zero, &mut expected).unwrap();
    let before = solver.verify(&[(&b, &x)]).unwrap_err();
    assert!(matches!(before, SolveError::Argument(_)), "{before:?}");

    // The second right-hand side is the first solution.
    solver.substitute(&b, &mut x).unwrap();
    solver.substitute(&x, &mut y).unwrap();
    solver.verify(&[(&b, &x), (&x, &y)]).unwrap();

    assert_eq!(executor.download(&x).unwrap(), executor.download(&expected).unwrap());
    let statuses = executor.download(solver.verified_outcomes().unwrap().statuses).unwrap();
    assert!(statuses[..2 * ITEMS].iter().all(|&status| status == Status::Converged as u8));
    // A wrong solution is found.
    executor.copy_from_host(&vec![1.0; b.len()], &mut y).unwrap();
    solver.verify(&[(&b, &x), (&x, &y)]).unwrap();
    let statuses = executor.download(solver.verified_outcomes().unwrap().statuses).unwrap();
    assert!(statuses[..ITEMS].iter().all(|&status| status == Status::Converged as u8));
    assert!(statuses[ITEMS..2 * ITEMS].iter().all(|&status| status != Status::Converged as u8));
    assert!(matches!(solver.verify(&[]), Err(SolveError::Argument(_))));
}

#[test]
fn other_solvers_do_not_substitute() {
    let (executor, batch) = (Emulator::new(Order::Forward), chains::<f64>());
    let vectors = DeviceData::new().vectors(Layout::Interleaved);
    let pivoting = SolveOptions::new().method(Method::PivotingLu);
    for (options, data) in [(pivoting, DeviceData::new()), (lu(), vectors)] {
        let mut solver = DeviceSolver::with_data(&executor, &batch, &options, data).unwrap();
        let b = executor.upload(&rhs(&batch, 1)).unwrap();
        let mut x = executor.alloc(b.len()).unwrap();
        assert!(!solver.substitutes());

        let refused = solver.substitute(&b, &mut x).unwrap_err();

        assert_eq!(
            refused.to_string(),
            "substitution without verdicts by this solver is not supported on the GPU yet: take \
             solve_again"
        );
        assert!(matches!(solver.verify(&[(&b, &x)]), Err(SolveError::Unsupported { .. })));
        assert!(solver.verified_outcomes().is_none());
    }
}

/// What the plans themselves say, which a solver asks first.
#[test]
fn plans_without_substitution_say_so() {
    use sparsebatch_solvers::gpu::{DenseSolver, GpuSolver};

    let (executor, batch) = (Emulator::new(Order::Forward), chains::<f64>());
    let Batch::Uniform(uniform) = &batch else { unreachable!("a uniform batch") };
    let options = SolveOptions::new().method(Method::PivotingLu);
    let pattern = sparsebatch_formats::Pattern::view(&**uniform.pattern());
    let mut plan = DenseSolver::new(&executor, pattern, ITEMS, &options).unwrap();
    let b = executor.upload(&rhs(&batch, 1)).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();

    let of = |result: Result<(), GpuSolveError>| {
        assert!(matches!(result, Err(GpuSolveError::Unsupported { .. })), "{result:?}");
    };
    of(GpuSolver::substitute(&mut plan, &b, &mut x));
    of(GpuSolver::<Emulator, f64>::verify(&mut plan, &[(&b, &x)]));
    assert!(GpuSolver::<Emulator, f64>::verified_on_device(&plan).is_none());
}
