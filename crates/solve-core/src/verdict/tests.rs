use super::*;
use crate::outcome::PerSystem;
use sparsebatch_formats::Csr;

fn criteria() -> Criteria {
    Criteria {
        rel_tol: PerSystem::All(1e-2),
        abs_tol: PerSystem::Each(vec![0.0, 3.0]),
        max_iters: PerSystem::All(9),
        max_restarts: 2,
        floor: None,
        history: false,
        watch: None,
    }
}

/// [2 0; 1 4]
fn matrix() -> Csr<f64> {
    Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 4.0]).unwrap()
}

fn enter(criteria: &Criteria, number: usize, b: &[f64], x: &mut [f64]) -> (Entry, Vec<f64>) {
    let matrix = matrix();
    let (pattern, values) = (matrix.view().pattern(), matrix.values());
    let system = System::new(number, pattern, values, b, criteria);
    let mut r = vec![0.0; 2];
    let entry = system.enter(x, &mut r);
    (entry, r)
}

#[test]
fn the_threshold_is_the_larger_of_both() {
    let (relative, r) = enter(&criteria(), 0, &[30.0, 40.0], &mut [0.0; 2]);
    let (absolute, _) = enter(&criteria(), 1, &[30.0, 40.0], &mut [0.0; 2]);

    assert_eq!((relative.rhs_norm, relative.threshold), (50.0, 0.5));
    assert_eq!(absolute.threshold, 3.0);
    assert_eq!((relative.status, r), (None, vec![30.0, 40.0]));
}

#[test]
fn a_good_guess_needs_no_iterations() {
    let (entry, r) = enter(&criteria(), 1, &[3.0, 4.0], &mut [1.5, 0.0]);

    assert_eq!(entry.status, Some(Status::Converged));
    assert_eq!((entry.residual_norm, r), (2.5, vec![0.0, 2.5]));
}

#[test]
fn a_zero_right_hand_side_overwrites_the_guess() {
    let mut x = [5.0, f64::NAN];

    let (entry, _) = enter(&criteria(), 0, &[0.0, -0.0], &mut x);

    assert_eq!((entry.status, x), (Some(Status::Converged), [0.0; 2]));
}

#[test]
fn nothing_finite_is_never_entered() {
    let nan = enter(&criteria(), 0, &[1.0, f64::NAN], &mut [0.0; 2]).0;
    let infinite = enter(&criteria(), 0, &[1.0, f64::INFINITY], &mut [0.0; 2]).0;
    let guess = enter(&criteria(), 0, &[1.0, 1.0], &mut [f64::NAN, 0.0]).0;
    let product = enter(&criteria(), 0, &[1.0, 1.0], &mut [1e308, 0.0]).0;

    for entry in [nan, infinite, guess, product] {
        assert_eq!(entry.status, Some(Status::NonFinite));
        assert!(entry.residual_norm.is_nan());
    }
}

#[test]
fn scales_keep_squares_in_range_and_are_values_themselves() {
    let scale = |rhs_norm| {
        let entry = Entry { rhs_norm, threshold: 0.0, residual_norm: rhs_norm, status: None };
        (entry.scale::<f64>(), entry.scale::<f32>())
    };

    assert_eq!(scale(1.0), (0, 0));
    assert_eq!(scale(2f64.powi(-20)), (0, 0));
    assert_eq!(scale(2f64.powi(21)), (0, 21));
    assert_eq!(scale(2f64.powi(201)), (201, 120));
    assert_eq!(scale(2f64.powi(-149)), (0, -120));
    assert_eq!(scale(5e-324), (-1000, -120));
    assert_eq!(scale(f64::MAX), (1000, 120));
}

#[test]
fn every_stop_has_its_verdict() {
    let check = |residual_norm: f64, passed| Check {
        residual_norm,
        passed,
        floor_passed: false,
        is_accurate: true,
    };
    let (good, bad, lost) = (check(0.1, true), check(9.0, false), check(f64::NAN, false));
    let floor = Check { floor_passed: true, ..bad };
    let limit = Stop::Failed(Status::MaxIterations);
    let broken = Stop::Broken(Status::BreakdownRho);
    let singular = Stop::Failed(Status::Singular);
    let table = [
        // The true residual decides, whatever stopped the iterations.
        (good, Stop::Passed, 0, true, Some(Status::Converged)),
        (good, limit, 2, false, Some(Status::Converged)),
        (good, broken, 2, false, Some(Status::Converged)),
        (floor, Stop::Passed, 0, true, Some(Status::Converged)),
        // The system restarts as long as restarts are left.
        (bad, Stop::Passed, 0, true, None),
        (bad, Stop::Passed, 1, true, None),
        (bad, Stop::Passed, 2, true, Some(Status::Stagnated)),
        (bad, Stop::Passed, 0, false, Some(Status::MaxIterations)),
        (bad, broken, 1, true, None),
        (bad, broken, 2, true, Some(Status::BreakdownRho)),
        (bad, broken, 0, false, Some(Status::BreakdownRho)),
        (bad, limit, 0, true, Some(Status::MaxIterations)),
        (bad, singular, 0, true, Some(Status::Singular)),
        // NaN is neither a breakdown nor a missing pivot.
        (lost, Stop::Passed, 0, true, Some(Status::NonFinite)),
        (lost, broken, 0, true, Some(Status::NonFinite)),
        (lost, limit, 0, true, Some(Status::NonFinite)),
        (lost, singular, 0, true, Some(Status::NonFinite)),
    ];

    for (i, (check, stop, restarts, left, expected)) in table.into_iter().enumerate() {
        let status = check.status(stop, restarts, left, &criteria());
        assert_eq!(status, expected, "row {i}");
    }
}

#[test]
fn the_floor_is_relative_to_what_cancels() {
    // 3 x and b cancel to a rounding error that a tolerance of 0 does not accept.
    let matrix = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![3.0f64]).unwrap();
    let with_floor = |floor| Criteria {
        rel_tol: PerSystem::All(0.0),
        abs_tol: PerSystem::All(0.0),
        floor,
        ..criteria()
    };
    let check = |floor, x: f64| {
        let criteria = with_floor(floor);
        let (pattern, values) = (matrix.view().pattern(), matrix.values());
        let system = System::new(0, pattern, values, &[1.0], &criteria);
        let entry = Entry { rhs_norm: 1.0, threshold: 0.0, residual_norm: 1.0, status: None };
        system.check(&entry, &[x], &mut [0.0])
    };
    let near = 1.0 / 3.0 + f64::EPSILON;

    assert!(!check(None, near).floor_passed);
    assert!(check(Some(4.0), near).floor_passed);
    assert!(!check(Some(4.0), near).passed);
    assert!(!check(Some(4.0), 0.3333).floor_passed);
    assert!(!check(Some(4.0), f64::NAN).floor_passed);
}
