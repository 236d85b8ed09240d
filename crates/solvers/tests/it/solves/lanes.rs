//! Solves in lanes: neither the number of lanes nor the choice among instruction sets with fused
//! multiply-add changes a bit.

use std::sync::Arc;

use sparsebatch_cpu_ref::lanes::{LaneOptions, LanePlan};
use sparsebatch_cpu_ref::{CpuScalar, Isa};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solve_core::{
    Criteria, Order, PerSystem, PrecondPrecision, Preconditioner, Scheme,
};
use sparsebatch_testing::random_vector;

use crate::solves::support::{Bits, Kind, matrix, pattern, ragged, tridiagonal};

/// Every scheme that lanes support; those with factors in both precisions.
fn schemes() -> Vec<Scheme> {
    let preconditioners = [
        Preconditioner::None,
        Preconditioner::Jacobi,
        Preconditioner::Auto,
        Preconditioner::BLOCK_JACOBI.with_block_size(Some(3)),
        Preconditioner::ILU0.with_order(Order::MinDegree),
        Preconditioner::IC0,
    ];
    let mut schemes = vec![Scheme::Lu];
    for preconditioner in preconditioners {
        schemes.extend([Scheme::Cg(preconditioner), Scheme::BiCgStab(preconditioner)]);
        if preconditioner.has_factors() {
            let single = preconditioner.with_precision(PrecondPrecision::Single);
            schemes.extend([Scheme::Cg(single), Scheme::BiCgStab(single)]);
        }
    }
    schemes
}

fn criteria(max_iters: u32) -> Criteria {
    Criteria {
        rel_tol: PerSystem::All(1e-9),
        abs_tol: PerSystem::All(0.0),
        max_iters: PerSystem::All(max_iters),
        max_restarts: 2,
        floor: Some(2.0),
        history: true,
        watch: None,
    }
}

/// 40 systems of three patterns and every kind, fast and slow ones mixed. One pattern is a band:
/// its symmetric systems store one triangle, the others both.
fn batch<T: CpuScalar>() -> (Batch<T>, Vec<T>) {
    let (first, second) = (pattern(11, 1), pattern(6, 2));
    let band = Arc::clone(tridiagonal(9, -1.0, 2.0, -1.0).pattern());
    let matrices: Vec<Csr<T>> = (0..40u64)
        .map(|i| {
            let kind = Kind::ALL[i as usize % Kind::ALL.len()];
            let pattern = match i % 3 {
                0 => &second,
                1 => &first,
                _ => &band,
            };
            matrix(pattern, kind, i).cast()
        })
        .collect();
    let rows = matrices.iter().map(Csr::nrows).sum();
    (ragged(&matrices), random_vector(rows, 3))
}

fn solved<T: CpuScalar>(
    (batch, b): &(Batch<T>, Vec<T>),
    method: Scheme,
    options: LaneOptions,
) -> Vec<Bits> {
    let plan = LanePlan::new(batch, method, options, None).unwrap();
    assert_eq!(plan.npatterns(), 3);
    let mut x = vec![T::ZERO; b.len()];
    let outcomes = plan.solve(batch, 1, b, &mut x, &criteria(60), None).unwrap();
    let items = outcomes.iter().enumerate();
    items.map(|(i, outcome)| Bits::new(outcome, &x[batch.rows(i)])).collect()
}

fn check<T: CpuScalar>() {
    let systems = batch::<T>();
    for scheme in schemes() {
        // Fused multiply-add or not is the only difference allowed.
        let (fused, plain): (Vec<Isa>, Vec<Isa>) =
            Isa::available().into_iter().partition(|&isa| isa != Isa::Baseline);
        for group in [fused, plain] {
            let mut first: Option<Vec<Bits>> = None;
            for isa in group {
                for lanes in [None, Some(1), Some(4), Some(8), Some(16)] {
                    let options = LaneOptions { isa: Some(isa), lanes };
                    let found = solved(&systems, scheme, options);

                    let what = format!("{} {scheme:?} {isa:?} {lanes:?}", T::NAME);
                    let first = first.get_or_insert_with(|| found.clone());
                    for (i, (found, first)) in found.iter().zip(first.iter()).enumerate() {
                        assert_eq!(found, first, "system {i}, {what}");
                    }
                }
            }
        }
    }
}

#[test]
fn neither_lanes_nor_their_number_change_a_bit() {
    check::<f64>();
    check::<f32>();
}

#[test]
fn systems_that_are_left_out_keep_their_x() {
    let (batch, b) = batch::<f64>();
    let only = [0, 3, 4, 11, 27, 39];
    for method in schemes() {
        let plan = LanePlan::new(&batch, method, LaneOptions::default(), None).unwrap();
        let of_those = LanePlan::new(&batch, method, LaneOptions::default(), Some(&only)).unwrap();
        let start: Vec<f64> = random_vector(b.len(), 4);
        let (mut all, mut some, mut few) = (start.clone(), start.clone(), start.clone());

        let outcomes = plan.solve(&batch, 1, &b, &mut all, &criteria(60), None).unwrap();
        let of_some = plan.solve(&batch, 1, &b, &mut some, &criteria(60), Some(&only)).unwrap();
        let of_few = of_those.solve(&batch, 1, &b, &mut few, &criteria(60), Some(&only)).unwrap();

        assert_eq!((of_some.len(), of_few.len()), (only.len(), only.len()));
        for (item, outcome) in outcomes.iter().enumerate() {
            let rows = batch.rows(item);
            match only.iter().position(|&o| o == item) {
                None => {
                    assert_eq!(some[rows.clone()], start[rows.clone()], "{method:?} {item}");
                    assert_eq!(few[rows.clone()], start[rows], "{method:?} {item}");
                }
                Some(k) => {
                    let expected = Bits::new(outcome, &all[rows.clone()]);
                    assert_eq!(Bits::new(&of_some[k], &some[rows.clone()]), expected);
                    assert_eq!(Bits::new(&of_few[k], &few[rows]), expected);
                }
            }
        }
    }
}

#[test]
fn lanes_are_refilled_until_the_queue_is_empty() {
    // Iteration counts from 1 to many in one queue, so that lanes end at different times.
    let a = tridiagonal(40, -1.0, 2.0, -1.0);
    let nrhs = 500;
    let batch = Batch::from(a.clone());
    let mut b: Vec<f64> = random_vector(40 * nrhs, 6);
    for (s, b) in b.chunks_mut(40).enumerate() {
        // Few nonzero elements of b lead to few iterations.
        b[1 + s % 39..].fill(0.0);
    }
    let limits = (0..nrhs as u32).map(|s| s * 7 % 45).collect();
    let criteria = Criteria { max_iters: PerSystem::Each(limits), ..criteria(0) };
    for precond in [Preconditioner::None, Preconditioner::Jacobi] {
        for method in [Scheme::Cg(precond), Scheme::BiCgStab(precond)] {
            let plan = LanePlan::new(&batch, method, LaneOptions::default(), None).unwrap();
            let mut x = vec![0.0; b.len()];
            let outcomes = plan.solve(&batch, nrhs, &b, &mut x, &criteria, None).unwrap();

            assert_eq!(outcomes.len(), nrhs);
            for (s, outcome) in outcomes.iter().enumerate() {
                assert!(outcome.iterations <= criteria.max_iters.get(s), "{method:?} {s}");
                let rows = s * 40..(s + 1) * 40;
                let norm = crate::solves::support::residual_norm(&a, &b[rows.clone()], &x[rows]);
                assert!((norm - outcome.residual_norm).abs() <= 1e-12, "{method:?} {s}");
                assert_eq!(outcome.history.len(), outcome.iterations as usize + 1);
            }
        }
    }
}
