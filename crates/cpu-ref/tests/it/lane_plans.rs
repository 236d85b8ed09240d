//! Inputs that plans of batched solves refuse: patterns, items, systems, criteria and lengths other
//! than those they were made for. Nothing is written then.

use std::sync::Arc;

use sparsebatch_cpu_ref::lanes::{LaneOptions, LanePlan};
use sparsebatch_cpu_ref::{CpuError, Isa};
use sparsebatch_formats::{Batch, BatchValues, Csr, FormatError, RaggedCsr, UniformBatch};
use sparsebatch_solve_core::{
    ArgumentError, Criteria, Order, Outcome, PerSystem, Preconditioner, Scheme, Status,
};

const METHODS: [Scheme; 5] = [
    Scheme::Lu,
    Scheme::Cg(Preconditioner::None),
    Scheme::BiCgStab(Preconditioner::None),
    Scheme::BiCgStab(Preconditioner::BLOCK_JACOBI.with_block_size(Some(2))),
    Scheme::BiCgStab(Preconditioner::ILU0.with_order(Order::MinDegree)),
];

fn criteria() -> Criteria {
    Criteria {
        rel_tol: PerSystem::All(1e-10),
        abs_tol: PerSystem::All(0.0),
        max_iters: PerSystem::All(100),
        max_restarts: 4,
        floor: None,
        history: false,
        watch: None,
    }
}

fn plan(batch: &Batch<f64>, method: Scheme, only: Option<&[usize]>) -> LanePlan {
    LanePlan::new(batch, method, LaneOptions::default(), only).unwrap()
}

/// [4 1; 1 3]
fn two_rows() -> Csr<f64> {
    Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![4.0, 1.0, 1.0, 3.0]).unwrap()
}

/// [4 . 1; . 3 .; 1 . 5]
fn three_rows() -> Csr<f64> {
    let values = vec![4.0, 1.0, 3.0, 1.0, 5.0];
    Csr::try_new(3, 3, vec![0, 2, 3, 5], vec![0, 2, 1, 0, 2], values).unwrap()
}

/// A matrix with as many rows and entries as [`three_rows`].
fn three_other_rows() -> Csr<f64> {
    let values = vec![4.0, 1.0, 3.0, 1.0, 5.0];
    Csr::try_new(3, 3, vec![0, 1, 3, 5], vec![0, 0, 1, 1, 2], values).unwrap()
}

fn ragged(items: &[&Csr<f64>]) -> Batch<f64> {
    let mut batch = RaggedCsr::new();
    items.iter().for_each(|item| batch.push(item.view()));
    Batch::Ragged(batch)
}

/// Solves with b = 1 from x = 7; checks that x is unchanged if the solve is refused.
fn solve(
    plan: &LanePlan,
    batch: &Batch<f64>,
    criteria: &Criteria,
    only: Option<&[usize]>,
) -> Result<(Vec<Outcome>, Vec<f64>), CpuError> {
    let rows = batch.row_offset(batch.nitems());
    let mut x = vec![7.0; rows];
    let solved = plan.solve(batch, 1, &vec![1.0; rows], &mut x, criteria, only);
    assert!(solved.is_ok() || x.iter().all(|&x| x == 7.0));
    Ok((solved?, x))
}

#[test]
fn a_plan_of_one_item_does_not_solve_another_that_has_another_pattern() {
    let six = Csr::try_new(6, 6, (0..7).collect(), (0..6).collect(), vec![2.0; 6]).unwrap();
    for other in [three_other_rows(), six] {
        for method in METHODS {
            let batch = ragged(&[&three_rows(), &other]);
            let of_first = plan(&batch, method, Some(&[0]));

            let all = solve(&of_first, &batch, &criteria(), None).unwrap_err();
            let second = solve(&of_first, &batch, &criteria(), Some(&[1])).unwrap_err();
            let (first, x) = solve(&of_first, &batch, &criteria(), Some(&[0])).unwrap();

            assert!(matches!(all, CpuError::NotPlanned { item: 1 }), "{method:?}: {all}");
            assert!(matches!(second, CpuError::NotPlanned { item: 1 }), "{method:?}: {second}");
            assert_eq!(all.to_string(), "item 1 is not among the items that the plan was made for");
            assert_eq!((first.len(), first[0].status), (1, Status::Converged), "{method:?}");
            assert!(x[3..].iter().all(|&x| x == 7.0));
        }
    }
}

#[test]
fn a_plan_refuses_other_patterns_of_the_same_sizes() {
    let (a, other) = (three_rows(), three_other_rows());
    let shared = |a: &Csr<f64>| Batch::Uniform(UniformBatch::shared(a.clone(), 2));
    for method in METHODS {
        for (made_for, solved, item) in [
            (ragged(&[&a, &a]), ragged(&[&a, &other]), 1),
            (ragged(&[&a, &other]), ragged(&[&other, &a]), 0),
            (shared(&a), shared(&other), 0),
            (shared(&a), ragged(&[&a, &other]), 1),
            (ragged(&[&a, &other]), shared(&a), 1),
        ] {
            let mut plan = plan(&made_for, method, None);

            let error = solve(&plan, &solved, &criteria(), None).unwrap_err();
            let preconditioner = plan.preconditioner(&solved, item).map(drop).unwrap_err();

            for error in [error, preconditioner] {
                let is_other = matches!(error, CpuError::OtherPattern { item: i } if i == item);
                assert!(is_other, "{method:?}: {error}");
            }
            if method == Scheme::Lu {
                let error = plan.factor(&solved).unwrap_err();
                assert!(matches!(error, CpuError::OtherPattern { .. }), "{error}");
            }
            assert!(solve(&plan, &made_for, &criteria(), None).is_ok());
        }
    }
}

#[test]
fn preconditioners_of_items_that_are_not_there_are_refused() {
    let batch = ragged(&[&three_rows(), &two_rows()]);
    let of_second = plan(&batch, METHODS[4], Some(&[1]));
    for item in [0, 2, usize::MAX] {
        let error = of_second.preconditioner(&batch, item).map(drop).unwrap_err();
        assert!(matches!(error, CpuError::NotPlanned { item: i } if i == item), "{error}");
    }
    let one = ragged(&[&two_rows()]);
    let error = of_second.preconditioner(&one, 0).map(drop).unwrap_err();
    assert!(
        matches!(error, CpuError::Argument(ArgumentError::Length { what: "batch", .. })),
        "{error}"
    );
    assert!(of_second.preconditioner(&batch, 1).unwrap().is_ok());
}

#[test]
fn lists_of_items_and_systems_ascend_and_name_what_there_is() {
    let a = two_rows();
    let uniform = UniformBatch::try_new(
        Arc::clone(a.pattern()),
        4,
        BatchValues::ItemMajor(a.values().repeat(4)),
    );
    let texts: [(&[usize], &str); 5] = [
        (&[1, 0], "only[1] is 0, expected strictly ascending numbers"),
        (&[0, 0], "only[1] is 0, expected strictly ascending numbers"),
        (&[9], "only[0] is 9, expected a number below 4"),
        (&[0, 4], "only[1] is 4, expected a number below 4"),
        (&[usize::MAX], "only[0] is 18446744073709551615, expected a number below 4"),
    ];
    for batch in [ragged(&[&a, &a, &a, &a]), Batch::Uniform(uniform.unwrap())] {
        for method in METHODS {
            for (only, text) in texts {
                let whole = plan(&batch, method, None);
                let options = LaneOptions::default();

                let of_items = LanePlan::new(&batch, method, options, Some(only)).err().unwrap();
                let of_systems = solve(&whole, &batch, &criteria(), Some(only)).unwrap_err();

                assert_eq!(of_items.to_string(), text);
                assert_eq!(of_systems.to_string(), text);
            }
            let none = plan(&batch, method, Some(&[]));
            assert!(solve(&none, &batch, &criteria(), Some(&[])).unwrap().0.is_empty());
            let error = solve(&none, &batch, &criteria(), None).unwrap_err();
            assert!(matches!(error, CpuError::NotPlanned { item: 0 }), "{error}");
            // A plan of all items accepts the same list.
            let some = solve(&plan(&batch, method, None), &batch, &criteria(), Some(&[1, 3]));
            assert_eq!(some.unwrap().0.len(), 2);
        }
    }
}

#[test]
fn criteria_have_a_number_for_each_system_or_one_for_all() {
    let batch = ragged(&[&two_rows(), &two_rows()]);
    for method in METHODS {
        let mut plan = plan(&batch, method, None);
        for len in [0, 1, 3] {
            let each = |change: &dyn Fn(&mut Criteria)| {
                let mut criteria = criteria();
                change(&mut criteria);
                criteria
            };
            let all = [
                ("rel_tol", each(&|c| c.rel_tol = PerSystem::Each(vec![0.1; len]))),
                ("abs_tol", each(&|c| c.abs_tol = PerSystem::Each(vec![0.1; len]))),
                ("max_iters", each(&|c| c.max_iters = PerSystem::Each(vec![5; len]))),
            ];
            for (what, criteria) in all {
                let text = format!("{what} has {len} entries, expected 2");
                let refused = solve(&plan, &batch, &criteria, None).unwrap_err();
                assert_eq!(refused.to_string(), text, "{method:?}");
                if method == Scheme::Lu {
                    plan.factor(&batch).unwrap();
                    let mut x = [7.0; 4];
                    let refused = plan.solve_again(1, &[1.0; 4], &mut x, &criteria).unwrap_err();
                    assert_eq!((refused.to_string(), x), (text, [7.0; 4]));
                }
            }
        }
    }
}

#[test]
fn products_of_items_and_right_hand_sides_do_not_wrap() {
    // Products 2 * 2^63, 4 * 2^62, ..., which wrap to small numbers in 64 bits.
    for (items, nrhs) in
        [(2usize, 1usize << 63), (4, 1 << 62), (4, 1 << 63), (3, usize::MAX / 3 + 1)]
    {
        let batch = Batch::Uniform(UniformBatch::shared(two_rows(), items));
        for method in METHODS {
            let mut plan = plan(&batch, method, None);
            let error = plan.solve(&batch, nrhs, &[], &mut [], &criteria(), None).unwrap_err();
            let is_too_large =
                |error: &CpuError| matches!(error, CpuError::Format(FormatError::TooLarge { .. }));
            assert!(is_too_large(&error), "{error}");
            if method == Scheme::Lu {
                plan.factor(&batch).unwrap();
                let error = plan.solve_again::<f64>(nrhs, &[], &mut [], &criteria()).unwrap_err();
                assert!(is_too_large(&error), "{error}");
            }
        }
    }
    // Systems without rows have empty vectors, however many they are.
    let none = Batch::Uniform(UniformBatch::shared(Csr::zeros(0, 0).unwrap(), 2));
    let plan = plan(&none, Scheme::Lu, None);
    let error = plan.solve(&none, 1 << 40, &[], &mut [], &criteria(), None).unwrap_err();
    let text = "number of systems is 2199023255552, the largest supported is 4000000000";
    assert_eq!(error.to_string(), text);
}

#[test]
fn more_items_than_can_be_numbered_are_refused_before_they_take_memory() {
    for nitems in [5_000_000_000, 1 << 62, usize::MAX] {
        let batch = Batch::Uniform(UniformBatch::shared(two_rows(), nitems));
        let error = LanePlan::new(&batch, Scheme::Lu, LaneOptions::default(), None);
        let text = format!("number of systems is {nitems}, the largest supported is 4000000000");
        assert_eq!(error.err().unwrap().to_string(), text);
    }
}

#[test]
fn rectangular_matrices_are_refused_by_every_method() {
    let wide = Csr::try_new(1, 2, vec![0, 2], vec![0, 1], vec![1.0; 2]).unwrap();
    for method in METHODS {
        let error = LanePlan::new(&ragged(&[&wide]), method, LaneOptions::default(), None);
        let text = "the matrix is 1 x 2, expected a square matrix";
        assert_eq!(error.err().unwrap().to_string(), text, "{method:?}");
    }
}

#[test]
fn any_number_of_lanes_solves_and_missing_instruction_sets_are_refused() {
    let batch = ragged(&[&two_rows(), &two_rows(), &two_rows()]);
    for method in METHODS {
        for lanes in [0, 1, 3, 17, 1000, usize::MAX] {
            let options = LaneOptions { lanes: Some(lanes), ..LaneOptions::default() };
            let plan = LanePlan::new(&batch, method, options, None).unwrap();
            let (outcomes, _) = solve(&plan, &batch, &criteria(), None).unwrap();
            assert!(outcomes.iter().all(|o| o.status == Status::Converged), "{method:?} {lanes}");
        }
        for isa in [Isa::Baseline, Isa::Avx2, Isa::Avx512] {
            let options = LaneOptions { isa: Some(isa), ..LaneOptions::default() };
            let made = LanePlan::new(&batch, method, options, None);
            assert_eq!(made.is_ok(), Isa::available().contains(&isa), "{isa:?}");
            if let Err(error) = made {
                assert!(
                    matches!(
                        error,
                        CpuError::Argument(ArgumentError::OutOfRange { name: "isa", .. })
                    ),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn lanes_do_not_pivot() {
    let batch = Batch::from(Csr::try_new(1, 1, vec![0, 1], vec![0], vec![2.0f64]).unwrap());

    let error = LanePlan::new(&batch, Scheme::PivotingLu, LaneOptions::default(), None);

    let expected = "scheme is pivoting-lu, expected cg, bicgstab, lu or banded: lanes do not pivot";
    assert_eq!(error.err().unwrap().to_string(), expected);
}
