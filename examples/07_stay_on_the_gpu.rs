//! Two implicit steps and their adjoint, without leaving the GPU: matrices are factorised once, and
//! the factors solve often, transposed systems too, and a loss is differentiated by right-hand
//! sides and matrix values. The gradients are checked against finite differences. Where there is no
//! GPU the same runs on the CPU.
//!
//! x1 = A^-1 b, x2 = A^-1 x1, L = |x2|^2 / 2; then A^T l2 = x2, A^T l1 = l2, and dL/db = l1,
//! dL/dA = -(l2 x2^T + l1 x1^T) on the pattern of A.
//!
//! `cargo run --release --example 07_stay_on_the_gpu`

use sparsebatch::generate::{Family, Problem};
use sparsebatch::gpu::{Device, DeviceSolver, Executor, Guess};
use sparsebatch::{Batch, BatchReport, BatchSolver, Method, SolveOptions, solve, value_gradient};

type Error = Box<dyn std::error::Error>;

const ITEMS: usize = 500;

/// The loss, its gradients by right-hand sides and values, and the report of the last solve.
struct Differentiated {
    loss: f64,
    by_rhs: Vec<f64>,
    by_values: Vec<f64>,
    report: BatchReport,
}

fn values_of(batch: &Batch<f64>) -> Result<Vec<f64>, Error> {
    let mut copy = Vec::new();
    let mut values = Vec::new();
    for item in 0..batch.nitems() {
        values.extend_from_slice(batch.values_in(item, &mut copy));
    }
    Ok(values)
}

fn half_square(x: &[f64]) -> f64 {
    x.iter().map(|x| 0.5 * x * x).sum()
}

fn sum(a: Vec<f64>, b: Vec<f64>) -> Vec<f64> {
    a.into_iter().zip(b).map(|(a, b)| a + b).collect()
}

fn on_gpu(device: &Device, batch: &Batch<f64>, b: &[f64]) -> Result<Differentiated, Error> {
    let options = SolveOptions::new().method(Method::Lu);
    let values = device.upload(&values_of(batch)?)?;
    let b = device.upload(b)?;
    let zeros = || device.alloc_zeroed::<f64>(b.len());
    let (mut x1, mut x2, mut l1, mut l2) = (zeros()?, zeros()?, zeros()?, zeros()?);

    let mut solver = DeviceSolver::new(device, batch, &options)?;
    solver.factor(&values)?;
    solver.solve_again(&b, Guess::Zero, &mut x1)?;
    let report = solver.solve_again(&x1, Guess::Zero, &mut x2)?;

    solver.solve_transposed_again(&x2, Guess::Zero, &mut l2)?;
    solver.solve_transposed_again(&l2, Guess::Zero, &mut l1)?;

    let mut gradient = solver.value_gradient()?;
    let mut of_step = device.alloc(values.len())?;
    gradient.apply(&l2, &x2, &mut of_step)?;
    let second = device.download(&of_step)?;
    gradient.apply(&l1, &x1, &mut of_step)?;
    Ok(Differentiated {
        loss: half_square(&device.download(&x2)?),
        by_rhs: device.download(&l1)?,
        by_values: sum(second, device.download(&of_step)?),
        report: report.into_report(),
    })
}

fn on_cpu(batch: &Batch<f64>, b: &[f64]) -> Result<Differentiated, Error> {
    let options = SolveOptions::new().method(Method::Lu);
    let zeros = || vec![0.0; b.len()];
    let (mut x1, mut x2, mut l1, mut l2) = (zeros(), zeros(), zeros(), zeros());

    let mut solver = BatchSolver::new(batch, &options)?;
    solver.factor(batch)?;
    solver.solve_again(b, &mut x1)?;
    let report = solver.solve_again(&x1, &mut x2)?;

    solver.solve_transposed_again(&x2, &mut l2)?;
    solver.solve_transposed_again(&l2, &mut l1)?;

    let mut second = values_of(batch)?;
    let mut first = second.clone();
    value_gradient(batch, 1, &l2, &x2, &mut second)?;
    value_gradient(batch, 1, &l1, &x1, &mut first)?;
    let loss = half_square(&x2);
    Ok(Differentiated { loss, by_rhs: l1, by_values: sum(second, first), report })
}

/// The loss alone, from scratch on the CPU.
fn loss(batch: &Batch<f64>, b: &[f64]) -> Result<f64, Error> {
    let options = SolveOptions::new().method(Method::Lu).rel_tol(1e-13).floor(Some(4.0));
    let x1 = solve(batch, b, None, &options)?.x;
    Ok(half_square(&solve(batch, &x1, None, &options)?.x))
}

/// The largest difference of the gradients of item 0 from central differences, relative to them.
fn check(batch: &Batch<f64>, b: &[f64], found: &Differentiated) -> Result<f64, Error> {
    let one = Batch::from(batch.to_csr(0));
    let (nrows, nnz) = (one.pattern(0).nrows(), one.pattern(0).nnz());
    let h = 1e-5;
    let mut worst: f64 = 0.0;
    let mut see = |gradient: f64, up: f64, down: f64| {
        let difference = (up - down) / (2.0 * h);
        worst = worst.max((gradient - difference).abs() / (1e-6 + difference.abs()));
    };
    for row in [0, nrows / 2] {
        let at = |step: f64| {
            let mut b = b[..nrows].to_vec();
            b[row] += step;
            loss(&one, &b)
        };
        see(found.by_rhs[row], at(h)?, at(-h)?);
    }
    for entry in [0, 1, nnz / 2] {
        let at = |step: f64| {
            let mut matrix = batch.to_csr(0);
            matrix.values_mut()[entry] += step;
            loss(&Batch::from(matrix), &b[..nrows])
        };
        see(found.by_values[entry], at(h)?, at(-h)?);
    }
    Ok(worst)
}

fn main() -> Result<(), Error> {
    let systems = Problem::new(Family::Rand9, 54)?.batch(ITEMS)?;
    let (batch, b) = (&systems.batch, &systems.rhs);
    let found = match Device::new(0) {
        Ok(device) => on_gpu(&device, batch, b)?,
        Err(error) => {
            println!("on the CPU: {error}");
            on_cpu(batch, b)?
        }
    };

    let report = &found.report;
    println!("{} systems on {} ({})", report.systems.len(), report.backend, report.device);
    println!("{}: {}", report.scheme, report.reason);
    println!("loss {:.6e}", found.loss);
    let worst = check(batch, b, &found)?;
    println!("largest difference of gradients from finite differences: {worst:.1e}");
    if report.all_converged() && worst < 1e-5 { Ok(()) } else { Err("not solved".into()) }
}
