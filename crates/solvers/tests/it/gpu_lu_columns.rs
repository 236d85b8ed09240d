//! The sparse LU of ragged batches: ends, residuals and bits as they should be.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Csr, RaggedCsr, Scalar};
use sparsebatch_solvers::gpu::{GpuSolveError, GpuSolver, Guess, RaggedLu};
use sparsebatch_solvers::{Method, SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::backends::common::{chain, dense};
use crate::common::{Solved, Systems, compare, on_cpu};
use crate::gpu_lu::independence::{Flaw, batch, flaw};
use crate::gpu_lu::statuses::{
    a_failure_keeps_the_guess, cases, end_as_expected, pattern_of_cases, systems,
};
use crate::gpu_lu::support::{matrix, options, pattern};

/// The items of several uniform batches as one ragged batch: first those with the number 0 of each,
/// and so on.
fn interleave<T: Scalar>(all: &[Systems<T>]) -> (RaggedCsr<T>, Vec<T>, Vec<T>, Vec<[usize; 2]>) {
    let (mut ragged, mut b, mut x0, mut places) =
        (RaggedCsr::new(), Vec::new(), Vec::new(), Vec::new());
    let most = all.iter().map(|systems| systems.batch.nitems()).max().unwrap_or(0);
    for item in 0..most {
        for (of, systems) in all.iter().enumerate() {
            if item < systems.batch.nitems() {
                let rows = item * systems.nrows()..(item + 1) * systems.nrows();
                ragged.push(systems.batch.to_matrix(item).view());
                b.extend_from_slice(&systems.b[rows.clone()]);
                x0.extend_from_slice(&systems.x0[rows]);
                places.push([of, item]);
            }
        }
    }
    (ragged, b, x0, places)
}

/// Solves all as one batch, and gives each its part. Solves by kept factors give the same bits.
fn solve_all<T: Value>(
    executor: &Emulator,
    all: &[Systems<T>],
    options: &SolveOptions,
) -> Vec<Solved<T>> {
    solve_by(executor, all, |ragged| RaggedLu::<_, T>::new(executor, ragged, options).unwrap())
}

/// As [`solve_all`], by the plan that is made of the ragged batch.
pub(crate) fn solve_by<T: Value, P: GpuSolver<Emulator, T>>(
    executor: &Emulator,
    all: &[Systems<T>],
    make: impl FnOnce(&RaggedCsr<T>) -> P,
) -> Vec<Solved<T>> {
    let (ragged, b, x0, places) = interleave(all);
    let mut plan = make(&ragged);
    let values = executor.upload(ragged.values()).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.upload(&x0).unwrap();
    let before = executor.bytes_in_use();
    plan.solve(&values, &on_b, Guess::InX, &mut x).unwrap();
    assert_eq!(executor.bytes_in_use(), before, "a solve allocates nothing");
    let (outcomes, found) = (plan.outcomes().unwrap(), executor.download(&x).unwrap());

    assert_eq!(plan.explain().kept_bytes, 0);
    plan.factor(&values).unwrap();
    assert!(plan.explain().kept_bytes as usize >= size_of::<f32>() * ragged.total_nnz() / 3);
    executor.copy_from_host(&x0, &mut x).unwrap();
    plan.solve_again(&values, &on_b, Guess::InX, &mut x).unwrap();
    let again = executor.download(&x).unwrap();
    let bits = |x: &[T]| x.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<u64>>();
    assert_eq!(bits(&again), bits(&found));
    assert_eq!(format!("{:?}", plan.outcomes().unwrap()), format!("{outcomes:?}"));

    let kernel = plan.explain().launches[0].kernel.clone();
    let nothing = || Solved { x: Vec::new(), outcomes: Vec::new(), kernel: kernel.clone() };
    let mut parts: Vec<Solved<T>> = all.iter().map(|_| nothing()).collect();
    for (item, [of, _]) in places.into_iter().enumerate() {
        let rows = ragged.row_offsets()[item]..ragged.row_offsets()[item + 1];
        parts[of].x.extend_from_slice(&found[rows]);
        parts[of].outcomes.push(outcomes[item].clone());
    }
    parts
}

/// Every status of the LU, among systems of other sizes.
fn table<T: SolveScalar>() {
    let sizes = [4, 9, 40, 130];
    let all: Vec<Systems<T>> =
        sizes.iter().map(|&n| systems::<T>(&pattern_of_cases(n), &cases(n))).collect();
    let solved = solve_all(&Emulator::new(Order::Random(5)), &all, &options());
    for ((n, systems), gpu) in sizes.into_iter().zip(&all).zip(&solved) {
        let (cases, cpu) = (cases(n), on_cpu(systems, &options()));
        let what = format!("{} n = {n}", T::CPP);
        end_as_expected(&what, &cases, gpu, &cpu);
        let sure: Vec<usize> = (0..cases.len()).filter(|&i| cases[i].is_comparable()).collect();
        let part = |solved: &Solved<T>| Solved {
            x: sure.iter().flat_map(|&i| solved.x[i * n..(i + 1) * n].to_vec()).collect(),
            outcomes: sure.iter().map(|&i| solved.outcomes[i].clone()).collect(),
            kernel: solved.kernel.clone(),
        };
        let rel_tol = SolveOptions::default_rel_tol::<T>();
        compare(&what, &systems.select(&sure), &part(gpu), &part(&cpu), rel_tol);
        a_failure_keeps_the_guess(&cases, &gpu.x);
    }
}

#[test]
fn bad_systems_end_as_on_the_cpu_in_f64() {
    table::<f64>();
}

#[test]
fn bad_systems_end_as_on_the_cpu_in_f32() {
    table::<f32>();
}

#[test]
fn systems_stagnate_or_are_refined_as_their_tolerances_say() {
    let healthy = matrix::<f64>(&pattern(24, 3, 1), 1.2, 2);
    let two = Systems::new(&[healthy.clone(), healthy], random_vector::<f64>(48, 7));
    let other = Systems::new(&[chain::<f64>(31, 2.5)], random_vector(31, 3));
    let tolerances = vec![0.0, 1e-3, 1e-3];
    let options = options().rel_tol(tolerances);
    // The first system of the first batch, that of the second, the second of the first.
    let solved = solve_all(&Emulator::new(Order::Forward), &[two, other], &options);
    assert_eq!(solved[0].statuses(), [Status::Stagnated, Status::Converged]);
    assert_eq!((solved[0].outcomes[0].restarts, solved[0].outcomes[0].iterations), (4, 5));
    assert_eq!(solved[0].outcomes[1].iterations, 1);
    assert_eq!(solved[1].statuses(), [Status::Converged]);
    // A floor accepts what the tolerance does not.
    let healthy = matrix::<f64>(&pattern(24, 3, 1), 1.2, 2);
    let one = Systems::new(&[healthy], random_vector::<f64>(24, 7));
    let with_floor = crate::gpu_lu::support::options().rel_tol(0.0).floor(10.0);
    let solved = solve_all(&Emulator::new(Order::Forward), &[one], &with_floor);
    assert_eq!(solved[0].statuses(), [Status::Converged]);
    assert!(solved[0].outcomes[0].accepted_by_floor);
}

#[test]
fn iterations_are_limited() {
    let healthy = matrix::<f64>(&pattern(24, 3, 1), 1.2, 2);
    let all = [Systems::new(&[healthy], random_vector::<f64>(24, 7))];
    for most in [0, 1] {
        let options = options().rel_tol(0.0).max_iters(most);
        let solved = solve_all(&Emulator::new(Order::Forward), &all, &options);
        assert_eq!(solved[0].statuses(), [Status::MaxIterations]);
        assert_eq!(solved[0].outcomes[0].iterations, most);
    }
}

/// Numbers whose squares over- or underflow, and pivots without a normal reciprocal.
#[test]
fn extreme_numbers_are_solved() {
    for scale in [1e-300, 1e-160, 1e150, 1e300] {
        let scaled = |by: f64| {
            let mut matrix = chain::<f64>(6, 4.0);
            matrix.values_mut().iter_mut().for_each(|value| *value *= by);
            matrix
        };
        let of_a = Systems::new(&[scaled(scale)], vec![1.0; 6]);
        let of_b = Systems::new(&[scaled(1.0)], vec![scale; 6]);
        let of_both = Systems::new(&[scaled(scale)], vec![scale; 6]);
        for systems in [of_b, of_both] {
            let solved = solve_all(&Emulator::new(Order::Forward), &[systems], &options());
            assert_eq!(solved[0].statuses(), [Status::Converged], "{scale}");
        }
        let cpu = on_cpu(&of_a, &options());
        let solved = solve_all(&Emulator::new(Order::Forward), &[of_a], &options());
        assert_eq!(solved[0].statuses(), cpu.statuses(), "{scale}");
    }
}

#[test]
fn several_right_hand_sides_are_those_of_solves_one_by_one() {
    let executor = Emulator::new(Order::Random(3));
    let mut ragged = RaggedCsr::<f64>::new();
    [chain(5, 2.5), dense(40, 25.0), chain(1, 3.0)].iter().for_each(|m| ragged.push(m.view()));
    let (nrhs, rows) = (3, 46);
    let b = random_vector::<f64>(rows * nrhs, 5);
    let solve = |nrhs: usize, b: &[f64]| {
        let mut plan = RaggedLu::<_, f64>::new(&executor, &ragged, &options().nrhs(nrhs)).unwrap();
        let values = executor.upload(ragged.values()).unwrap();
        let on_b = executor.upload(b).unwrap();
        let mut x = executor.alloc(b.len()).unwrap();
        plan.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
        assert!(plan.outcomes().unwrap().iter().all(|o| o.status == Status::Converged));
        executor.download(&x).unwrap()
    };
    let together = solve(nrhs, &b);
    let offsets = ragged.row_offsets();
    for rhs in 0..nrhs {
        let of_item = |item: usize| {
            let n = offsets[item + 1] - offsets[item];
            let first = offsets[item] * nrhs + rhs * n;
            first..first + n
        };
        let own: Vec<f64> = (0..3).flat_map(|item| b[of_item(item)].to_vec()).collect();
        let expected: Vec<f64> = (0..3).flat_map(|item| together[of_item(item)].to_vec()).collect();
        assert_eq!(solve(1, &own), expected);
    }
}

#[test]
fn what_the_solver_does_not_take_is_refused() {
    let executor = Emulator::new(Order::Forward);
    let mut ragged = RaggedCsr::<f64>::new();
    [chain(5, 2.5), dense(3, 2.5)].iter().for_each(|m| ragged.push(m.view()));
    let new = |batch: &RaggedCsr<f64>, options: &SolveOptions| {
        RaggedLu::<_, f64>::new(&executor, batch, options)
    };
    let unsupported = |error: Option<GpuSolveError>| {
        assert!(matches!(error, Some(GpuSolveError::Unsupported { .. })), "{error:?}");
    };
    unsupported(new(&ragged, &options().method(Method::Cg)).err());
    unsupported(new(&ragged, &options().history(true)).err());
    // 300 full rows are 720 kB.
    let mut large = ragged.clone();
    large.push(dense::<f64>(300, 200.0).view());
    unsupported(new(&large, &options()).err());
    let tall = Csr::try_new(2, 1, vec![0, 1, 2], vec![0, 0], vec![1.0, 1.0]).unwrap();
    let mut with_tall = ragged.clone();
    with_tall.push(tall.view());
    let error = new(&with_tall, &options()).err().unwrap();
    assert!(matches!(error, GpuSolveError::Argument(_)), "{error}");

    let mut plan = new(&ragged, &options()).unwrap();
    let values = executor.upload(ragged.values()).unwrap();
    let b = executor.upload(&[1.0; 8]).unwrap();
    let mut x = executor.upload(&[0.5; 8]).unwrap();
    let short = executor.upload(&[1.0; 7]).unwrap();
    let mut small = executor.upload(&[1.0; 7]).unwrap();
    let errors = [
        plan.solve_again(&values, &b, Guess::Zero, &mut x).unwrap_err(),
        plan.solve(&short, &b, Guess::Zero, &mut x).unwrap_err(),
        plan.solve(&values, &short, Guess::Zero, &mut x).unwrap_err(),
        plan.solve(&values, &b, Guess::Zero, &mut small).unwrap_err(),
        plan.factor(&short).unwrap_err(),
    ];
    let words = ["call of factor", "values has 7", "b has 7", "x has 7", "values has 7"];
    for (error, words) in errors.iter().zip(words) {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(executor.download(&x).unwrap(), [0.5; 8]);
    // Factors are forgotten.
    plan.factor(&values).unwrap();
    assert!(plan.explain().kept_bytes > 0);
    plan.forget_factors();
    assert_eq!(plan.explain().kept_bytes, 0);
    assert!(plan.solve_again(&values, &b, Guess::Zero, &mut x).is_err());
}

#[test]
fn a_batch_of_nothing_and_systems_without_rows() {
    let executor = Emulator::new(Order::Forward);
    let empty = Csr::<f64>::try_new(0, 0, vec![0], vec![], vec![]).unwrap();
    for items in 0..3 {
        let mut ragged = RaggedCsr::<f64>::new();
        (0..items).for_each(|_| ragged.push(empty.view()));
        let mut plan = RaggedLu::<_, f64>::new(&executor, &ragged, &options()).unwrap();
        let nothing = executor.upload::<f64>(&[]).unwrap();
        let mut x = executor.upload::<f64>(&[]).unwrap();
        plan.solve(&nothing, &nothing, Guess::Zero, &mut x).unwrap();
        let outcomes = plan.outcomes().unwrap();
        assert!(outcomes.len() == items && outcomes.iter().all(|o| o.status == Status::Converged));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Neighbours, positions and the order of threads change no bit; ends are those of the CPU.
    #[test]
    fn systems_are_alone_among_others(
        n in 1usize..50, most in 0usize..6, seed in 0u64..1000, flaws in prop::collection::vec(flaw(), 1..6)
    ) {
        let own = batch::<f64>(n, most, &flaws, seed);
        let others = [batch::<f64>(n + 3, 2, &flaws, seed + 1), batch::<f64>(7, 3, &flaws, seed + 2)];
        let options = options();
        let alone = solve_all(&Emulator::new(Order::Forward), std::slice::from_ref(&own), &options);
        let all = [others[0].clone(), own.clone(), others[1].clone()];
        let among = solve_all(&Emulator::new(Order::Random(seed)), &all, &options);
        for system in 0..flaws.len() {
            prop_assert_eq!(alone[0].bits(system), among[1].bits(system));
        }
        let finite: Vec<usize> = (0..flaws.len())
            .filter(|&i| among[1].outcomes[i].status == Status::Converged)
            .collect();
        let cpu = on_cpu(&own, &options);
        for &system in &finite {
            prop_assert_eq!(cpu.outcomes[system].status, Status::Converged);
        }
        // Teams of two to eight warps, whose sums of norms alone have another order.
        for kib in [3, 6, 12] {
            let alone = solve_all(&teams(kib, Order::Forward), std::slice::from_ref(&own), &options);
            let teams = solve_all(&teams(kib, Order::Random(seed)), &all, &options);
            for system in 0..flaws.len() {
                prop_assert_eq!(alone[0].bits(system), teams[1].bits(system));
            }
            for &system in &finite {
                let rows = system * n..(system + 1) * n;
                let (by_warp, by_team) = (&among[1].outcomes[system], &teams[1].outcomes[system]);
                prop_assert_eq!(by_team.status, Status::Converged);
                if by_warp.iterations == by_team.iterations {
                    prop_assert_eq!(&among[1].x[rows.clone()], &teams[1].x[rows]);
                }
            }
        }
    }
}

/// An emulation whose multiprocessors have room for few systems at a time.
fn teams(kib: u32, order: Order) -> Emulator {
    let mut info = Emulator::new(order).info().clone();
    info.shared_bytes_per_multiprocessor = kib << 10;
    Emulator::with_info(info, order)
}

/// The number of warps of a team follows from the size of a system, up to eight where few fit.
#[test]
fn large_systems_have_teams_of_warps() {
    fn solve<T: Value>() {
        let flaws = [Flaw::None; 3];
        let all = [batch::<T>(9, 2, &flaws, 1), batch::<T>(40, 4, &flaws, 2)];
        let mut seen = Vec::new();
        for kib in [3, 6, 12, 228] {
            let executor = teams(kib, Order::Reverse);
            let solved = solve_all(&executor, &all, &options());
            assert!(
                solved.iter().flat_map(|of| &of.outcomes).all(|o| o.status == Status::Converged)
            );
            seen.extend(executor.launched());
        }
        for warps in [1, 2, 4, 8] {
            let kernel = format!("lu_columns.cu: lu_columns<{}, {warps}>", T::CPP);
            assert!(seen.contains(&kernel), "{kernel} of {seen:?}");
        }
    }
    solve::<f64>();
    solve::<f32>();
}
