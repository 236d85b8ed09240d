//! Operators and preconditioners of the caller, on the emulated GPU.

use kernel_emu::{Emulator, HostBuffer, Order};
use sparsebatch_cuda::{Executor, GpuError, KernelBuffer, Value};
use sparsebatch_formats::{Batch, Pattern};
use sparsebatch_solvers::gpu::{ComposedSolver, DeviceLinOp, GpuSolveError, Guess, ProductKernel};
use sparsebatch_solvers::{Method, Outcome, Preconditioner, SolveOptions, SolveScalar, Status};
use sparsebatch_spmv_gpu::{PackedOptions, PackedPlan};
use sparsebatch_testing::random_vector;

use crate::common::one_step;
use crate::gpu_composed::support::{METHODS, on_gpu, options, ragged, rhs};

/// Systems by 8 lanes, 32 lanes, a block, and several blocks.
const SIZES: [usize; 7] = [33, 0, 1, 7, 600, 8193, 20];

type Operator<T> = Box<dyn DeviceLinOp<Emulator, T>>;

/// `z = m r`, row by row.
fn scaling<T: Value>(m: Vec<T>) -> Operator<T> {
    Box::new(move |executor: &Emulator, r: &HostBuffer<T>, z: &mut HostBuffer<T>| {
        let scaled = executor.download(r)?.into_iter().zip(&m).map(|(r, &m)| m * r);
        executor.copy_from_host(&scaled.collect::<Vec<T>>(), z)
    })
}

/// The inverse of the diagonal of every system.
fn inverse_diagonal<T: SolveScalar>(batch: &Batch<T>, nrhs: usize) -> Vec<T> {
    let of_item = |item: usize| {
        let matrix = batch.to_csr(item);
        let pattern = matrix.pattern().view();
        let entry = |row: usize| T::ONE / matrix.values()[pattern.position(row, row).unwrap()];
        (0..pattern.nrows()).map(entry).collect::<Vec<T>>().repeat(nrhs)
    };
    (0..batch.nitems()).flat_map(of_item).collect()
}

/// The product of a plan.
fn product<T: SolveScalar>(executor: &Emulator, batch: &Batch<T>, nrhs: usize) -> Operator<T> {
    let options = PackedOptions::default().nrhs(nrhs);
    let plan = PackedPlan::new(executor.clone(), batch, options).unwrap();
    Box::new(move |_: &Emulator, x: &HostBuffer<T>, y: &mut HostBuffer<T>| {
        plan.apply(T::ONE, x, T::ZERO, y)
    })
}

fn run<T: SolveScalar>(
    solver: &mut ComposedSolver<Emulator, T>,
    executor: &Emulator,
    b: &[T],
    x0: Option<&[T]>,
) -> (Vec<T>, Vec<Outcome>) {
    let b = executor.upload(b).unwrap();
    let guess = if x0.is_some() { Guess::InX } else { Guess::Zero };
    let mut x = executor.alloc_zeroed(b.len()).unwrap();
    if let Some(x0) = x0 {
        executor.copy_from_host(x0, &mut x).unwrap();
    }
    solver.solve(&b, guess, &mut x).unwrap();
    (executor.download(&x).unwrap(), solver.outcomes().unwrap())
}

fn given(method: Method) -> SolveOptions {
    options(method, Preconditioner::None)
}

fn applied<T: SolveScalar>() {
    for (method, nrhs) in METHODS.into_iter().flat_map(|method| [(method, 1), (method, 2)]) {
        let batch = ragged::<T>(&SIZES, method);
        let b = rhs(&batch, nrhs);
        let x0 = random_vector::<T>(b.len(), 3);
        for (order, x0) in [(Order::Forward, None), (Order::Reverse, Some(&x0[..]))] {
            let executor = Emulator::new(order);
            let m = scaling(inverse_diagonal(&batch, nrhs));
            let kernel = ProductKernel::default();
            let options = given(method).nrhs(nrhs);
            let mut solver =
                ComposedSolver::preconditioned(&executor, (&batch, &kernel), m, &options).unwrap();

            let (_, outcomes) = run(&mut solver, &executor, &b, x0);

            let jacobi = options.preconditioner(Preconditioner::Jacobi);
            let built_in = on_gpu(&executor, &batch, (&b, x0), &kernel, &jacobi).outcomes;
            for (system, (found, expected)) in outcomes.iter().zip(&built_in).enumerate() {
                assert_eq!(found.status, Status::Converged, "{method} {system}");
                let difference = found.iterations.abs_diff(expected.iterations);
                assert!(difference <= 1, "{method} {system}: {found:?} {expected:?}");
            }
        }
    }
}

#[test]
fn a_preconditioner_of_the_caller_is_applied() {
    applied::<f64>();
}

#[test]
fn a_preconditioner_of_the_caller_is_applied_in_f32() {
    applied::<f32>();
}

#[test]
fn products_of_the_caller_give_the_bits_of_a_plan() {
    for (method, nrhs) in METHODS.into_iter().flat_map(|method| [(method, 1), (method, 3)]) {
        let batch = ragged::<f64>(&SIZES, method);
        let b = rhs(&batch, nrhs);
        let executor = Emulator::new(Order::Forward);
        let options = given(method).nrhs(nrhs);
        let a = product(&executor, &batch, nrhs);
        let mut solver = ComposedSolver::of_operator(&executor, &SIZES, a, None, &options).unwrap();

        let (x, outcomes) = run(&mut solver, &executor, &b, None);

        let kernel = ProductKernel::default();
        let expected = on_gpu(&executor, &batch, (&b, None), &kernel, &options);
        assert!(x == expected.x && outcomes == expected.outcomes, "{method} {nrhs}");
        assert!(solver.explain().to_string().contains("over operator"));
        assert_eq!(solver.product_cost().unwrap().plan_time, std::time::Duration::ZERO);
    }
}

#[test]
fn an_operator_and_a_preconditioner_of_the_caller_go_together() {
    for method in METHODS {
        let batch = ragged::<f64>(&SIZES, method);
        let b = rhs(&batch, 1);
        let executor = Emulator::new(Order::Forward);
        let (a, m) = (product(&executor, &batch, 1), scaling(inverse_diagonal(&batch, 1)));
        let options = given(method).history(true);
        let mut solver =
            ComposedSolver::of_operator(&executor, &SIZES, a, Some(m), &options).unwrap();

        let outcomes = run(&mut solver, &executor, &b, None).1;

        assert!(outcomes.iter().all(|outcome| outcome.status == Status::Converged));
        let recorded = |o: &Outcome| o.history.len() == o.iterations as usize + 1;
        assert!(outcomes.iter().all(recorded));
    }
}

#[test]
fn a_preconditioner_that_does_not_fit_has_a_status() {
    let batch = ragged::<f64>(&[5, 600, 9000], Method::Cg);
    let b = rhs(&batch, 1);
    let executor = Emulator::new(Order::Forward);
    let status = |value: f64| {
        let m = scaling(vec![value; b.len()]);
        let kernel = ProductKernel::default();
        let options = given(Method::Cg);
        let mut solver =
            ComposedSolver::preconditioned(&executor, (&batch, &kernel), m, &options).unwrap();
        let outcomes = run(&mut solver, &executor, &b, None).1;
        outcomes.iter().map(|outcome| outcome.status).collect::<Vec<Status>>()
    };

    assert_eq!(status(-1.0), [Status::Indefinite; 3]);
    assert_eq!(status(f64::NAN), [Status::NonFinite; 3]);
    assert_eq!(status(0.0), [Status::BreakdownRho; 3]);
}

#[test]
fn an_operator_that_fails_ends_the_solve() {
    let refusal = || GpuError::InvalidArgument {
        name: "operator",
        expected: "luck".to_owned(),
        found: "none".to_owned(),
    };
    let fails: Operator<f64> =
        Box::new(move |_: &Emulator, _: &HostBuffer<f64>, _: &mut HostBuffer<f64>| Err(refusal()));
    let executor = Emulator::new(Order::Forward);
    let options = one_step().method(Method::BiCgStab);
    let mut solver = ComposedSolver::of_operator(&executor, &[3], fails, None, &options).unwrap();
    let b = executor.upload(&[1.0; 3]).unwrap();
    let mut x = executor.alloc_zeroed(3).unwrap();

    let solved = solver.solve(&b, Guess::Zero, &mut x);

    assert!(matches!(solved, Err(GpuSolveError::Gpu(error)) if error == refusal()));
}

#[test]
fn what_does_not_fit_an_operator_is_refused() {
    let executor = Emulator::new(Order::Forward);
    let of = |rows: &[usize], options: &SolveOptions| {
        let a = scaling(vec![1.0; 3]);
        ComposedSolver::<_, f64>::of_operator(&executor, rows, a, None, options)
    };
    let floor = of(&[3], &one_step().floor(1.0)).map(drop);
    let jacobi = of(&[3], &one_step().preconditioner(Preconditioner::Jacobi)).map(drop);
    let lu = of(&[3], &one_step().method(Method::Lu)).map(drop);
    let rows = [&[usize::MAX, 2][..], &[1 << 60]].map(|rows| of(rows, &one_step()).map(drop));

    for refused in [floor, jacobi, lu] {
        assert!(matches!(refused, Err(GpuSolveError::Unsupported { .. })), "{refused:?}");
    }
    for refused in rows {
        let full = matches!(refused, Err(GpuSolveError::Gpu(GpuError::OutOfMemory { .. })));
        assert!(full, "{refused:?}");
    }
    let mut solver = of(&[3], &one_step()).unwrap();
    let values = executor.upload(&[1.0; 3]).unwrap();
    let refused = solver.update_from(&values);
    assert!(refused.unwrap_err().to_string().contains("values for an operator of the caller"));
    let batch = ragged::<f64>(&[3], Method::Cg);
    let refused = solver.update_values(&batch);
    assert!(refused.unwrap_err().to_string().contains("values for an operator of the caller"));
}
