//! `I/dt - J` formed on the device.

use kernel_emu::{Emulator, Order, emulators};
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Csr, CsrPattern, Pattern, Scalar};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::ShiftedValues;
use sparsebatch_testing::random_vector;

use crate::backends::common::{chain, dense};

/// The same values on the host: a division and a subtraction, each rounded once.
fn expected<T: Value>(a: &Csr<T>, jacobian: &[T], dt: &[T]) -> Vec<T> {
    let (pattern, nnz) = (a.view().pattern(), a.values().len());
    let mut values = Vec::new();
    for (item, &dt) in dt.iter().enumerate() {
        let own = if jacobian.len() == nnz { jacobian } else { &jacobian[item * nnz..] };
        for row in 0..pattern.nrows() {
            for k in pattern.row(row) {
                let diagonal = pattern.col_idx()[k] as usize == row;
                values.push(if diagonal { T::ONE / dt - own[k] } else { -own[k] });
            }
        }
    }
    values
}

fn bits<T: Scalar>(values: &[T]) -> Vec<u64> {
    let bits = |v: f64| if v.is_nan() { f64::NAN } else { v }.to_bits();
    values.iter().map(|v| bits(v.to_f64())).collect()
}

fn check<T: Value>(executor: &Emulator, a: &Csr<T>, nitems: usize) {
    let nnz = a.values().len();
    let mut jacobian: Vec<T> = random_vector(nnz * nitems, 4);
    let mut dt: Vec<T> = random_vector(nitems, 5);
    for (item, special) in [0.0, f64::INFINITY, f64::NAN, -0.0, 1e-30].into_iter().enumerate() {
        if 2 * item < nitems {
            dt[2 * item] = T::from_f64(special);
        }
    }
    for (k, special) in [f64::NAN, f64::INFINITY, 1e30, -1e-30, 0.0].into_iter().enumerate() {
        if 3 * k < jacobian.len() {
            jacobian[3 * k] = T::from_f64(special);
        }
    }
    let plan = ShiftedValues::new(executor, a.view().pattern(), nitems).unwrap();
    let steps = executor.upload(&dt).unwrap();
    for jacobian in [&jacobian[..], &jacobian[..nnz.min(jacobian.len())]] {
        let on_device = executor.upload(jacobian).unwrap();
        let mut values = executor.alloc::<T>(nnz * nitems).unwrap();
        let in_use = executor.bytes_in_use();

        plan.apply(&on_device, &steps, &mut values).unwrap();

        assert_eq!(executor.bytes_in_use(), in_use, "applying allocates nothing");
        let found = executor.download(&values).unwrap();
        assert_eq!(bits(&found), bits(&expected(a, jacobian, &dt)), "{} {nitems}", a.nrows());
    }
}

#[test]
fn values_are_those_of_the_host() {
    for executor in emulators().iter().take(4) {
        for nitems in [1, 2, 7, 8, 9, 70, 300] {
            check::<f64>(executor, &chain(5, 2.5), nitems);
            check::<f32>(executor, &chain(12, 2.5), nitems);
        }
        check::<f64>(executor, &dense(40, 9.0), 3);
        check::<f64>(executor, &chain(1, 2.5), 100);
        check::<f64>(executor, &chain(5, 2.5), 0);
        check::<f64>(executor, &Csr::zeros(0, 0).unwrap(), 4);
    }
}

#[test]
fn patterns_and_arrays_that_do_not_fit_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let refused = |pattern: CsrPattern| {
        ShiftedValues::<_, f64>::new(&executor, pattern.view(), 2).map(drop).unwrap_err()
    };
    let hole = CsrPattern::try_new(2, 2, vec![0, 1, 2], vec![0, 0]).unwrap();
    assert!(refused(hole).to_string().contains("none in row 1"));
    let wide = CsrPattern::try_new(1, 2, vec![0, 1], vec![0]).unwrap();
    assert!(matches!(refused(wide), GpuSolveError::Argument(ArgumentError::NotSquare { .. })));

    let a = chain::<f64>(5, 2.5);
    let plan = ShiftedValues::new(&executor, a.view().pattern(), 3).unwrap();
    let zeros = |len: usize| executor.upload(&vec![0.0; len]).unwrap();
    let length =
        |jacobian, dt, values| match plan.apply(&zeros(jacobian), &zeros(dt), &mut zeros(values)) {
            Err(GpuSolveError::Argument(ArgumentError::Length { what, .. })) => what,
            other => panic!("{other:?}"),
        };
    assert_eq!(length(38, 3, 39), "jacobian");
    assert_eq!(length(39, 2, 39), "dt");
    assert_eq!(length(13, 3, 38), "values");
    assert!(executor.launched().is_empty());
}
