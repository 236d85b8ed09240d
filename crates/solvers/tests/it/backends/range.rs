//! A matrix and its multiples by powers of two end alike, as far as exponents reach.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::Csr;
use sparsebatch_solvers::{
    Machine, Method, Preconditioner, SolveOptions, SolveScalar, Status, solve_on_executor,
};

use super::common::{CPU, chain, gpu, rhs};
use super::device::{agree, uniform};

/// Powers of two by which squares of products leave the range of the precision.
fn exponents<T: SolveScalar>() -> [i32; 3] {
    if T::NAME == "f64" { [0, 600, -600] } else { [0, 80, -80] }
}

/// A matrix and its multiples by powers of two.
fn multiples<T: SolveScalar>() -> Vec<Csr<T>> {
    let times = |exponent: i32| {
        let plain = chain::<T>(9, 2.3);
        let scaled = |v: &T| T::from_f64(v.to_f64() * 2f64.powi(exponent));
        let values = plain.values().iter().map(scaled).collect();
        Csr::from_parts(plain.pattern().clone(), values).unwrap()
    };
    exponents::<T>().map(times).to_vec()
}

fn ends_alike<T: SolveScalar>(options: &SolveOptions) {
    let batch = uniform(&multiples::<T>());
    let one = rhs(&uniform(&[chain::<T>(9, 2.3)]), 1);
    let b: Vec<T> = [&one[..], &one, &one].concat();
    let executor = Emulator::new(Order::Forward);

    let on_gpu = solve_on_executor(&gpu(&executor), &batch, &b, None, options).unwrap();
    let on_cpu = solve_on_executor(&CPU, &batch, &b, None, options).unwrap();

    assert!(on_gpu.report.all_converged(), "{options:?}");
    for (place, exponent) in exponents::<T>().into_iter().enumerate().skip(1) {
        let rows = place * 9..(place + 1) * 9;
        let iterations = |s: usize| on_gpu.report.systems[s].outcome.iterations;
        assert!(iterations(place).abs_diff(iterations(0)) <= 1);
        for (x, plain) in on_gpu.x[rows.clone()].iter().zip(&on_cpu.x[..9]) {
            let scaled = x.to_f64() * 2f64.powi(exponent);
            let difference = (scaled - plain.to_f64()).abs();
            assert!(difference <= 1e3 * T::EPSILON.to_f64() * plain.to_f64().abs(), "{exponent}");
        }
    }
}

#[test]
fn multiples_by_powers_of_two_end_alike() {
    for method in [Method::Cg, Method::BiCgStab] {
        for preconditioner in [Preconditioner::None, Preconditioner::Jacobi] {
            let options = SolveOptions::new().method(method).preconditioner(preconditioner);
            ends_alike::<f64>(&options.clone().fallback(false));
            ends_alike::<f32>(&options.fallback(false));
        }
    }
}

#[test]
fn the_report_names_the_cpu_that_solved_what_left_the_range() {
    let batch = uniform(&multiples::<f64>());
    let options = SolveOptions::new().method(Method::BiCgStab).preconditioner(Preconditioner::None);
    let executor = Emulator::new(Order::Forward);
    let b = rhs(&batch, 1);

    let report = solve_on_executor(&gpu(&executor), &batch, &b, None, &options).unwrap().report;

    assert_eq!(report.backend, Machine::GpuAndCpu);
    let reason = report.runs[0].cpu_reason.as_deref().unwrap();
    assert!(reason.contains("2 systems of matrices whose squares"), "{reason}");
    assert!(report.systems.iter().all(|s| s.outcome.status == Status::Converged));
}

#[test]
fn the_device_gives_the_same_systems_to_the_cpu() {
    let options = SolveOptions::new().method(Method::BiCgStab).preconditioner(Preconditioner::None);
    let report = agree(&uniform(&multiples::<f64>()), false, &options.fallback(false));
    assert!(report.all_converged());
}
