//! Systems that a method is not made for, or that f64 can hardly represent, among healthy ones.
//! They may fail, but must not claim a solution that they do not have. Their neighbours end as
//! without them, bit for bit.

use sparsebatch_formats::Csr;
use sparsebatch_solvers::{Method, Preconditioner, SolveOptions, Status};
use sparsebatch_testing::random_vector;

use crate::common::statuses::{chain, chain_of};
use crate::common::{METHODS, Solved, Systems, Trial, on_cpu, options};

const PRECONDITIONERS: [Preconditioner; 2] = [Preconditioner::None, Preconditioner::Jacobi];

fn healthy(n: usize) -> Csr<f64> {
    chain(n, &[])
}

/// `||b - A x||` and `||b||` of a system, computed without overflow.
fn norms(systems: &Systems<f64>, x: &[f64], system: usize) -> (f64, f64) {
    let n = systems.nrows();
    let (matrix, pattern) = (systems.batch.to_matrix(system), systems.pattern());
    let (x, b) = (&x[system * n..(system + 1) * n], &systems.b[system * n..(system + 1) * n]);
    let residual = |row: usize| {
        let products =
            pattern.row(row).map(|k| matrix.values()[k] * x[pattern.col_idx()[k] as usize]);
        b[row] - products.sum::<f64>()
    };
    let norm = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::hypot);
    (norm(&mut (0..n).map(residual)), norm(&mut b.iter().copied()))
}

/// Solves `flawed` systems between healthy ones, which have even numbers, and checks both.
fn among<S: Trial>(
    what: &str,
    flawed: &[(Csr<f64>, Vec<f64>)],
    options: &SolveOptions,
) -> Solved<f64> {
    let n = flawed[0].1.len();
    let (mut matrices, mut b) = (vec![healthy(n)], random_vector::<f64>(n, 1));
    for (item, (matrix, rhs)) in flawed.iter().enumerate() {
        matrices.extend([matrix.clone(), healthy(n)]);
        b.extend_from_slice(rhs);
        b.extend(random_vector::<f64>(n, item as u64 + 2));
    }
    let systems = Systems::new(&matrices, b);

    let solved = S::solve(&systems, options);

    for system in (0..matrices.len()).step_by(2) {
        let options = options.for_systems(&[system]);
        let alone = S::solve(&systems.select(&[system]), &options);
        assert_eq!(solved.bits(system), alone.bits(0), "{what}, system {system}");
        assert_eq!(alone.statuses(), [Status::Converged], "{what}, system {system}");
    }
    for (system, outcome) in solved.outcomes.iter().enumerate() {
        if outcome.status == Status::Converged {
            let (residual, rhs) = norms(&systems, &solved.x, system);
            assert!(
                residual <= 1.0001e-10 * rhs,
                "{what}, system {system}: {outcome:?}, {residual}"
            );
        }
    }
    // Own tolerances may be 0: then the last bits decide whether a residual becomes 0.
    if !options.has_own_limits() {
        let cpu = on_cpu(&systems, options);
        let converged = |solved: &Solved<f64>| -> Vec<bool> {
            solved.statuses().iter().map(|&status| status == Status::Converged).collect()
        };
        assert_eq!(converged(&solved), converged(&cpu), "{what}: {:?}", solved.outcomes);
    }
    solved
}

pub(crate) fn cg_claims_no_solution_of_nonsymmetric_systems_that_it_lacks<S: Trial>() {
    for n in [7, 24, 100] {
        let flawed: Vec<_> = [(-1.0, 1.0), (-4.0, 0.2), (3.0, -3.0), (0.0, -1.5)]
            .into_iter()
            .enumerate()
            .map(|(seed, (above, below))| {
                let entry = move |row: usize, col: usize| match row.cmp(&col) {
                    std::cmp::Ordering::Less => above,
                    std::cmp::Ordering::Equal => 2.5,
                    std::cmp::Ordering::Greater => below,
                };
                (chain_of(n, entry), random_vector::<f64>(n, 20 + seed as u64))
            })
            .collect();
        for preconditioner in PRECONDITIONERS {
            let options = options(Method::Cg, preconditioner).max_iters(200);
            let solved = among::<S>(&format!("n = {n} {preconditioner}"), &flawed, &options);
            let failed = solved.statuses().iter().any(|&status| status != Status::Converged);
            assert!(failed, "{:?}", solved.outcomes);
        }
    }
}

pub(crate) fn a_tolerance_of_zero_is_that_of_one_system_alone<S: Trial>() {
    for n in [7, 100] {
        for (method, preconditioner) in
            METHODS.into_iter().flat_map(|method| PRECONDITIONERS.map(|p| (method, p)))
        {
            let mut options = options(method, preconditioner);
            options.rel_tol = Some((vec![1e-10, 0.0, 1e-10, 0.0, 1e-10]).into());
            let exact = (healthy(n), random_vector::<f64>(n, 30));
            let what = format!("n = {n} {method} {preconditioner}");

            let solved = among::<S>(&what, &[exact.clone(), exact], &options);

            assert_eq!(solved.bits(1), solved.bits(3), "{what}");
            let outcome = &solved.outcomes[1];
            assert!(outcome.status != Status::Converged || outcome.residual_norm == 0.0, "{what}");
            assert!(outcome.residual_norm <= 1e-10 * outcome.rhs_norm, "{what}: {outcome:?}");
        }
    }
}

/// Rows and columns scaled from 1e-150 to 1e150, so that values range from 1e-300 to 1e300; the
/// solutions have a wide range, too.
pub(crate) fn values_of_all_sizes_in_one_matrix_are_solved_or_said_not_to_be<S: Trial>() {
    for n in [7, 24, 100] {
        let scale = |row: usize| 10f64.powi((row * 37 % 301) as i32 - 150);
        let graded =
            chain_of(n, |row, col| scale(row) * if row == col { 2.5 } else { -1.0 } * scale(col));
        let b: Vec<f64> =
            random_vector::<f64>(n, 40).iter().enumerate().map(|(row, b)| b * scale(row)).collect();
        for (method, preconditioner) in
            METHODS.into_iter().flat_map(|method| PRECONDITIONERS.map(|p| (method, p)))
        {
            let what = format!("n = {n} {method} {preconditioner}");
            let solved =
                among::<S>(&what, &[(graded.clone(), b.clone())], &options(method, preconditioner));
            let status = solved.outcomes[1].status;
            let is_scaled = preconditioner == Preconditioner::Jacobi;
            let expected =
                status == Status::Converged || (!is_scaled && status == Status::NonFinite);
            assert!(expected, "{what}: {:?}", solved.outcomes[1]);
        }
    }
}

/// The tests of this file for one solver.
macro_rules! honesty_tests {
    ($solver:ty) => {
        crate::common::honesty_tests! { $solver:
            cg_claims_no_solution_of_nonsymmetric_systems_that_it_lacks
            a_tolerance_of_zero_is_that_of_one_system_alone
            values_of_all_sizes_in_one_matrix_are_solved_or_said_not_to_be
        }
    };
    ($solver:ty: $($name:ident)*) => {$(
        #[test]
        fn $name() {
            crate::common::honesty::$name::<$solver>();
        }
    )*};
}
pub(crate) use honesty_tests;
