//! The nuclear burning example, module by module: derivatives and runs against reference files,
//! conservation, bad input, and how zones end.

mod bad_input;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sparsebatch::{Method, Pattern, Preconditioner, SolveOptions};
use sparsebatch_drivers::nuclear_burning::equations::{Equations, Group, Scratch};
use sparsebatch_drivers::nuclear_burning::integrator::{Burning, Outcome, Settings, integrate};
use sparsebatch_drivers::nuclear_burning::linear::Means;
use sparsebatch_drivers::nuclear_burning::network::Network;
use sparsebatch_drivers::nuclear_burning::output::GridRun;
use sparsebatch_drivers::nuclear_burning::reference::{Derivatives, Reference};
use sparsebatch_drivers::nuclear_burning::tableau::{RODAS4P2, RODAS5P};
use sparsebatch_drivers::nuclear_burning::zones::{Fuel, Grid, Zones, log_times};
use sparsebatch_drivers::nuclear_burning::{conservation, network, plots, rates, run_with};
use sparsebatch_testing::shared_dir;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data")
}

/// The networks at hand, with their references: one of the project's own, two beside the repository.
fn networks() -> Vec<(Arc<Network>, Reference)> {
    let mut folders = vec![(data(), "alpha13")];
    if let Some(shared) = shared_dir() {
        folders.extend(["mid57", "sn156"].map(|name| (shared.join("astro"), name)));
    }
    let read = |(folder, name): (PathBuf, &str)| {
        let network = Network::read(&folder.join(format!("reaclib_{name}.json"))).unwrap();
        let path = folder.join(format!("reference_{name}.json"));
        let reference = Reference::read(&path, &network).unwrap();
        (Arc::new(network), reference)
    };
    folders.into_iter().map(read).collect()
}

fn alpha13() -> Arc<Network> {
    Arc::new(Network::read(&data().join("reaclib_alpha13.json")).unwrap())
}

fn sparse(options: SolveOptions) -> Means {
    Means::Sparse(Box::new(options))
}

fn lu() -> Means {
    let options = SolveOptions::new().floor(4.0).fallback(true);
    sparse(options.method(Method::Lu))
}

fn bicgstab(rel_tol: f64) -> Means {
    sparse(
        SolveOptions::new()
            .method(Method::BiCgStab)
            .preconditioner(Preconditioner::Jacobi)
            .rel_tol(rel_tol)
            .floor(4.0)
            .fallback(true),
    )
}

fn settings() -> Settings {
    Settings::new(1e-5).unwrap()
}

fn burn(equations: &Equations, zones: &Zones, means: Means, settings: &Settings) -> Burning {
    integrate(equations, zones, means, settings, |_| ()).unwrap()
}

fn grid(nzones: usize) -> Grid {
    Grid { nzones, t9: (1.0, 6.0), rho: (1e5, 1e9), fuels: Fuel::defaults() }
}

#[test]
fn derivatives_are_those_of_the_references() {
    for (network, reference) in networks() {
        let equations = Equations::new(Arc::clone(&network), false).unwrap();

        let Derivatives { rhs, jacobian } = reference.compare_derivatives(&equations);

        assert!(rhs <= 2e-12 && jacobian <= 2e-12, "{}: {rhs:e} {jacobian:e}", network.name);
    }
}

/// The reference file of the alpha chain without its runs, one number changed; ended as the program says.
fn with_changed_reference(place: &str, factor: f64) -> (Derivatives, bool) {
    let text = std::fs::read_to_string(data().join("reference_alpha13.json")).unwrap();
    let mut file = serde_json::from_str::<serde_json::Value>(&text).unwrap();
    file["runs"] = serde_json::json!([]);
    let number = file.pointer_mut(place).unwrap();
    *number = serde_json::json!(number.as_f64().unwrap() * factor);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reference.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let found = Reference::read(&path, &network).unwrap().compare_derivatives(&equations);
    let path = path.to_str().unwrap();
    let arguments =
        ["--reference", path, "--zones", "1", "--t-end", "1e-9", "--no-plots", "--backend", "cpu"];
    let good = run_with(&[&arguments[..], &["--quiet"]].concat()).unwrap();
    (found, good)
}

#[test]
fn derivatives_that_differ_from_the_reference_are_said_to_and_fail_the_run() {
    let (found, good) = with_changed_reference("/states/0/jac_val/0", 1.0);
    assert!(good && found.hold() && found.to_string().ends_with("  agrees"), "{found}");

    let text = std::fs::read_to_string(data().join("reference_alpha13.json")).unwrap();
    let file = serde_json::from_str::<serde_json::Value>(&text).unwrap();
    // The entry that is largest beside the sum of its absolute values, so that a part of it shows.
    let largest = |values: &str, magnitudes: &str| {
        let of = |name: &str| file["states"][0][name].as_array().unwrap().clone();
        let part = |(value, magnitude): (&serde_json::Value, &serde_json::Value)| {
            let part = value.as_f64().unwrap().abs() / magnitude.as_f64().unwrap();
            if part.is_nan() { 0.0 } else { part }
        };
        let (values, magnitudes) = (of(values), of(magnitudes));
        let parts: Vec<f64> = values.iter().zip(&magnitudes).map(part).collect();
        (0..parts.len()).max_by(|&a, &b| parts[a].total_cmp(&parts[b])).unwrap()
    };
    for (values, magnitudes, change) in
        [("jac_val", "jac_magnitude", 1e-3), ("ydot", "ydot_magnitude", 1e-6)]
    {
        let place = format!("/states/0/{values}/{}", largest(values, magnitudes));
        let (found, good) = with_changed_reference(&place, 1.0 + change);
        assert!(!good && !found.hold(), "{values}: {found}");
        assert!(found.to_string().ends_with("  DIFFERS"), "{found}");
    }
}

#[test]
fn derivatives_of_other_lengths_or_nan_do_not_hold() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let read = || Reference::read(&data().join("reference_alpha13.json"), &network).unwrap();
    let changed = |change: &dyn Fn(&mut sparsebatch_drivers::nuclear_burning::reference::State)| {
        let mut reference = read();
        change(&mut reference.states[0]);
        reference.compare_derivatives(&equations)
    };

    assert!(read().compare_derivatives(&equations).hold());
    assert_eq!(changed(&|state| state.ydot.truncate(state.ydot.len() - 1)).rhs, f64::INFINITY);
    assert_eq!(changed(&|state| state.ydot[0] = f64::NAN).rhs, f64::INFINITY);
    assert_eq!(
        changed(&|state| state.jac_magnitude.truncate(state.jac_magnitude.len() - 1)).jacobian,
        f64::INFINITY
    );
    assert_eq!(changed(&|state| state.jac_val[0] = f64::NAN).jacobian, f64::INFINITY);
    assert_eq!(changed(&|state| state.jac_row[0] = usize::MAX).jacobian, f64::INFINITY);
}

#[test]
fn fuels_are_nuclides_of_the_network_and_their_mass_fractions() {
    let network = alpha13();
    let place = |name: &str| network.nuclides.iter().position(|n| n.name == name).unwrap();

    let fuel = Fuel::parse("c12=0.3, o16=0.7").unwrap();

    let y = fuel.abundances(&network).unwrap();
    assert_eq!((y[place("c12")], y[place("o16")]), (0.3 / 12.0, 0.7 / 16.0));
    assert_eq!(y.iter().filter(|y| **y != 0.0).count(), 2);
    for (text, message) in [
        ("", "expected NAME=FRACTION, found \"\""),
        ("c12", "expected NAME=FRACTION, found \"c12\""),
        ("=1", "expected the name of a nuclide before the = of \"=1\""),
        ("c12=x", "expected a mass fraction above 0 of \"c12\", found \"x\""),
        ("c12=inf", "expected a mass fraction above 0 of \"c12\", found \"inf\""),
        ("c12=-1,o16=2", "expected a mass fraction above 0 of \"c12\", found \"-1\""),
        ("c12=0.5,c12=0.5", "expected every nuclide once, found c12 twice"),
        ("c12=0.5,o16=0.4", "expected mass fractions that add up to 1, found 0.9"),
    ] {
        assert_eq!(Fuel::parse(text).unwrap_err(), message);
    }
}

#[test]
fn a_network_without_the_usual_fuels_burns_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reaclib_small.json");
    // he4 + a -> b, both made up.
    let file = serde_json::json!({
        "network": "small",
        "nuclides": [
            { "name": "he4", "Z": 2, "A": 4, "binding_MeV": 28.3 },
            { "name": "a8", "Z": 4, "A": 8, "binding_MeV": 56.0 },
            { "name": "b12", "Z": 6, "A": 12, "binding_MeV": 92.0 },
        ],
        "rates": [{
            "id": "he4 + a8 --> b12", "reactants": ["he4", "a8"], "products": ["b12"],
            "prefactor": 1.0, "rho_exponent": 1, "sets": [[-10.0, 0, 0, 0, 0, 0, 0]],
        }],
    });
    std::fs::write(&path, file.to_string()).unwrap();
    let output = folder.path().join("grid.npz");
    let arguments = [
        "--network",
        path.to_str().unwrap(),
        "--zones",
        "4",
        "--t-end",
        "1e-3",
        "--no-plots",
        "--backend",
        "cpu",
        "--quiet",
        "--output",
        output.to_str().unwrap(),
    ];

    let without = run_with(&arguments).unwrap_err().to_string();
    let fuels = ["--fuel", "he4=0.5,a8=0.5", "--fuel", "a8=1"];
    let with = run_with(&[&arguments[..], &fuels].concat()).unwrap();
    let unknown = run_with(&[&arguments[..], &["--fuel", "c12=1"]].concat()).unwrap_err();
    let wrong_sum = run_with(&[&arguments[..], &["--fuel", "he4=0.5"]].concat()).unwrap_err();

    assert!(with && output.is_file());
    let text = "the network \"small\" has no c12, which the fuel carbon-oxygen wants: \
                expected --fuel NAME=FRACTION,... of nuclides of the network";
    assert_eq!(without, text);
    assert!(
        unknown.to_string().starts_with("the network \"small\" has no c12, which the fuel c12")
    );
    assert!(wrong_sum.to_string().contains("add up to 1, found 0.5"), "{wrong_sum}");
}

#[test]
fn runs_agree_with_the_references() {
    for (network, reference) in networks() {
        let equations = Equations::new(Arc::clone(&network), false).unwrap();
        let zones = reference.zones(&network).unwrap();

        let burning = burn(&equations, &zones, lu(), &settings());

        assert_eq!(burning.tally.unsolved(), 0, "{:?}", burning.tally);
        for (agreement, burned) in reference.compare(&network, &burning).iter().zip(&burning.zones)
        {
            assert_eq!(burned.outcome, Outcome::Finished);
            assert!(agreement.holds(), "{}: {agreement:?}", network.name);
            assert!(burned.drift.iter().all(|drift| *drift <= 1e-12), "{:?}", burned.drift);
        }
    }
}

#[test]
fn every_zone_of_a_grid_finishes_and_every_system_converges() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let zones = grid(96).zones(&network, &log_times(1.0, 12.0, 3)).unwrap();

    let burning = burn(&equations, &zones, lu(), &settings());

    assert!(burning.zones.iter().all(|zone| zone.outcome == Outcome::Finished));
    assert!(burning.zones.iter().all(|zone| zone.y.len() == 3 * 13));
    assert_eq!(burning.tally.unsolved(), 0);
    assert_eq!(burning.tally.rungs.iter().sum::<u64>(), burning.tally.systems);
    // Each step, taken or rejected, has a system for every stage.
    let steps: u32 = burning.zones.iter().map(|z| z.steps + z.rejected + z.unsolved).sum();
    assert_eq!(burning.tally.systems, 8 * u64::from(steps));
    for burned in &burning.zones {
        assert!(burned.y.iter().all(|y| y.is_finite()));
        assert!(burned.drift.iter().all(|drift| *drift <= 1e-12), "{:?}", burned.drift);
        assert!(burned.lowest > -1e-12, "{:e}", burned.lowest);
    }
}

#[test]
fn a_zone_does_not_depend_on_the_others() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let times = log_times(1e-2, 6.0, 4);
    let all = grid(24).zones(&network, &times).unwrap();
    let together = burn(&equations, &all, lu(), &settings());

    for zone in [0, 11, 23] {
        let mut alone = Zones::default();
        let y = &all.y[zone * 13..][..13];
        alone.push(&network, (all.t9[zone], all.rho[zone]), y, Arc::clone(&times)).unwrap();
        let alone = burn(&equations, &alone, lu(), &settings());

        assert_eq!(alone.zones[0].y, together.zones[zone].y, "zone {zone}");
    }
}

#[test]
fn dense_and_sparse_factors_give_the_same_run() {
    for (network, reference) in networks().into_iter().take(2) {
        let equations = Equations::new(Arc::clone(&network), false).unwrap();
        let zones = reference.zones(&network).unwrap();

        let dense = burn(&equations, &zones, Means::DenseLu, &settings());

        assert_eq!(dense.tally.unsolved(), 0);
        for agreement in reference.compare(&network, &dense) {
            assert!(agreement.holds(), "{agreement:?}");
        }
    }
}

#[test]
fn the_projection_keeps_what_loose_solves_lose() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let reference = Reference::read(&data().join("reference_alpha13.json"), &network).unwrap();
    let zones = reference.zones(&network).unwrap();
    let drift =
        |burning: &Burning| burning.zones.iter().flat_map(|zone| zone.drift).fold(0.0f64, f64::max);

    let as_solved = Settings { project: false, ..settings() };
    let loose = burn(&equations, &zones, bicgstab(1e-8), &as_solved);
    let projected = burn(&equations, &zones, bicgstab(1e-8), &settings());

    assert!(drift(&loose) > 1e-12, "{:e}", drift(&loose));
    assert!(drift(&projected) <= 1e-12, "{:e}", drift(&projected));
    for agreement in reference.compare(&network, &projected) {
        assert!(agreement.holds(), "{agreement:?}");
    }
}

#[test]
fn the_projection_restores_nucleons_and_charge_apart() {
    // Protons, neutrons and helium: A and Z are independent.
    let nuclide = |name: &str, z, a| network::Nuclide { name: name.into(), z, a, binding_mev: 0.0 };
    let nuclides = vec![nuclide("n", 0, 1), nuclide("p", 1, 1), nuclide("he4", 2, 4)];
    let network = Network { name: "three".to_owned(), nuclides, rates: Vec::new() };
    let invariants = conservation::Invariants::new(&network);
    let start = [0.2, 0.3, 0.125];
    let mut y = [0.2 + 1e-6, 0.3 - 2e-6, 0.125 + 3e-7];
    assert!(invariants.drift(&start, &y).iter().all(|drift| *drift > 1e-8));

    invariants.project(&start, &mut y);

    assert!(invariants.drift(&start, &y).iter().all(|drift| *drift < 1e-15));
    assert!((y[0] - 0.2).abs() < 1e-5);
}

/// Three nuclides with rates of order 1 at T9 = 1, rho = 1: smooth and hardly stiff.
fn gentle() -> Arc<Network> {
    let text = r#"{"network": "gentle", "nuclides": [
        {"name": "he4", "Z": 2, "A": 4, "binding_MeV": 28.3},
        {"name": "c12", "Z": 6, "A": 12, "binding_MeV": 92.2},
        {"name": "o16", "Z": 8, "A": 16, "binding_MeV": 127.6}],
      "rates": [
        {"id": "forward", "reactants": ["he4", "c12"], "products": ["o16"], "prefactor": 1.0,
         "rho_exponent": 1, "sets": [[3.5, 0, 0, 0, 0, 0, 0]], "partner": 1},
        {"id": "reverse", "reactants": ["o16"], "products": ["he4", "c12"], "prefactor": 1.0,
         "rho_exponent": 0, "sets": [[0.1, 0, 0, 0, 0, 0, 0]], "partner": 0},
        {"id": "triple", "reactants": ["he4", "he4", "he4"], "products": ["c12"],
         "prefactor": 0.16666666666666666, "rho_exponent": 2,
         "sets": [[4.0, 0, 0, 0, 0, 0, 0]], "partner": null}]}"#;
    Arc::new(Network::parse(text).unwrap())
}

#[test]
fn methods_have_their_order() {
    let network = gentle();
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let mut zones = Zones::default();
    zones.push(&network, (1.0, 1.0), &[0.15, 0.4 / 12.0, 0.0], Arc::from([1.0])).unwrap();
    let run = |settings: &Settings| burn(&equations, &zones, lu(), settings).zones[0].y.clone();
    let exact = run(&Settings { fixed_step: Some(1.0 / 1024.0), ..settings() });

    for method in [&RODAS5P, &RODAS4P2] {
        let error = |step: f64| {
            let settings = Settings { method, fixed_step: Some(step), ..settings() };
            let y = run(&settings);
            y.iter().zip(&exact).map(|(y, exact)| (y - exact).abs()).fold(0.0, f64::max)
        };
        let (coarse, fine) = (error(1.0 / 32.0), error(1.0 / 64.0));

        let order = (coarse / fine).log2();
        assert!(fine > 1e-14, "{}: {fine:e} is rounding", method.name);
        let expected = f64::from(method.order);
        assert!((order - expected).abs() < 0.5, "{}: {order} ({coarse:e}, {fine:e})", method.name);
    }
}

#[test]
fn smaller_tolerances_give_smaller_errors() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let reference = Reference::read(&data().join("reference_alpha13.json"), &network).unwrap();
    let zones = reference.zones(&network).unwrap();
    let error = |tolerance: f64| {
        let burning = burn(&equations, &zones, lu(), &Settings::new(tolerance).unwrap());
        let agreements = reference.compare(&network, &burning);
        agreements.iter().map(|agreement| agreement.relative).fold(0.0, f64::max)
    };

    let errors = [1e-3, 1e-4, 1e-5, 1e-6].map(error);

    assert!(errors.windows(2).all(|pair| pair[1] < 0.5 * pair[0]), "{errors:?}");
}

#[test]
fn jacobians_with_a_temperature_are_derivatives() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), true).unwrap();
    let reference = Reference::read(&data().join("reference_alpha13.json"), &network).unwrap();
    let state = &reference.states[1];
    let mut y = state.Y.clone();
    y.push(state.T9);
    let nvars = equations.nvars();
    let group = Group { rho: &[state.rho], lambda: &[] };
    let mut scratch = Scratch::default();
    let mut rhs = |y: &[f64]| {
        let mut out = vec![0.0; nvars];
        equations.rhs(group, y, &mut scratch, &mut out);
        out
    };

    let differences: Vec<Vec<f64>> = (0..nvars)
        .map(|j| {
            let step = 1e-5 * y[j];
            let mut moved = [y.clone(), y.clone()];
            moved[0][j] += step;
            moved[1][j] -= step;
            let [above, below] = moved.map(|y| rhs(&y));
            above.iter().zip(&below).map(|(a, b)| (a - b) / (2.0 * step)).collect()
        })
        .collect();
    let pattern = equations.pattern().view();
    let mut values = vec![0.0; pattern.nnz()];
    equations.shifted_jacobian(group, &y, &[3.0], &mut Scratch::default(), &mut values);
    // 3 I - J.
    values.iter_mut().for_each(|value| *value = -*value);
    (0..nvars).for_each(|i| values[pattern.position(i, i).unwrap()] += 3.0);

    for row in 0..nvars {
        let expected: Vec<f64> = differences.iter().map(|column| column[row]).collect();
        let size = |(expected, y): (&f64, &f64)| (expected * y).abs();
        let most = expected.iter().zip(&y).map(size).fold(0.0, f64::max);
        for (j, expected) in expected.iter().enumerate() {
            let found = pattern.position(row, j).map_or(0.0, |k| values[k]);
            let difference = ((found - expected) * y[j]).abs();
            assert!(difference <= 1e-7 * most, "({row}, {j}): {found:e} {expected:e}");
        }
    }
}

#[test]
fn self_heating_zones_keep_their_energy() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), true).unwrap();
    let fuels = Fuel::defaults();
    let grid = Grid { nzones: 12, t9: (2.0, 4.0), rho: (1e6, 1e8), fuels };
    let zones = grid.zones(&network, &log_times(1e-2, 8.0, 5)).unwrap();

    let burning = burn(&equations, &zones, lu(), &settings());

    let gas = equations.gas().unwrap();
    let mut hottest = 0.0f64;
    for (zone, burned) in burning.zones.iter().enumerate() {
        assert_eq!(burned.outcome, Outcome::Finished);
        let energy = |state: &[f64]| gas.total_energy(&state[..13], state[13], zones.rho[zone]);
        let mut start = zones.y[zone * 13..][..13].to_vec();
        start.push(zones.t9[zone]);
        for state in burned.y.chunks_exact(14) {
            // Of the thermal energy; that of binding is some ten times as large.
            let thermal =
                gas.heat_capacity(&state[..13], state[13], zones.rho[zone]) * 1e9 * state[13];
            let lost = (energy(state) - energy(&start)).abs() / thermal;
            assert!(lost < 2e-5, "zone {zone}: {lost:e}");
            hottest = hottest.max(state[13] - zones.t9[zone]);
        }
    }
    assert!(hottest > 1.0, "{hottest}");
}

#[test]
fn rates_are_held_at_the_ends_of_their_fits() {
    let network = alpha13();
    let nrates = network.rates.len();
    let at = |t9: f64| {
        let (mut lambda, mut slopes) = (vec![0.0; nrates], vec![0.0; nrates]);
        rates::evaluate_with_slopes(&network, t9, 1e6, &mut lambda, &mut slopes);
        let mut plain = vec![0.0; nrates];
        rates::evaluate(&network, t9, 1e6, &mut plain);
        assert_eq!(plain, lambda);
        (lambda, slopes)
    };

    assert_eq!(at(12.0).0, at(10.0).0);
    assert_eq!(at(1e-3).0, at(0.01).0);
    assert!(at(12.0).1.iter().all(|slope| *slope == 0.0));
    assert!(at(10.0).1.iter().any(|slope| *slope != 0.0));
    assert!(at(0.01).0.iter().all(|lambda| lambda.is_finite()));
}

#[test]
fn systems_without_a_solution_shorten_steps_until_the_zone_is_given_up() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let zones = grid(3).zones(&network, &log_times(1.0, 1.0, 1)).unwrap();
    let nothing = SolveOptions::new().method(Method::BiCgStab).max_iters(0);

    let burning = burn(&equations, &zones, sparse(nothing), &settings());

    for burned in &burning.zones {
        assert!(matches!(burned.outcome, Outcome::StepUnderflow { t: 0.0, step } if step < 1e-39));
        assert!(burned.steps == 0 && burned.unsolved > 0 && burned.y.is_empty());
    }
    assert!(burning.tally.unsolved() > 0);
}

#[test]
fn zones_that_run_out_of_steps_say_so() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let zones = grid(3).zones(&network, &log_times(1.0, 1.0, 1)).unwrap();
    let settings = Settings { max_steps: 7, ..settings() };

    let burning = burn(&equations, &zones, lu(), &settings);

    for burned in &burning.zones {
        assert!(matches!(burned.outcome, Outcome::TooManySteps { t } if t > 0.0 && t < 1.0));
        assert_eq!(burned.steps + burned.rejected, 7);
    }
}

#[test]
fn results_are_written_and_drawn() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), true).unwrap();
    let grid = grid(12);
    let zones = grid.zones(&network, &log_times(1e-3, 6.0, 5)).unwrap();
    let burning = burn(&equations, &zones, lu(), &settings());
    let run = GridRun { equations: &equations, grid: &grid, zones: &zones, burning: &burning };
    let folder = tempfile::tempdir().unwrap();
    let npz = folder.path().join("grid.npz");

    run.write(&npz).unwrap();
    let files = plots::draw(&run, &[], &folder.path().join("plots")).unwrap();

    let array = |name: &str| sparsebatch::io::read_npz_array(&npz, name).unwrap();
    let y = array("Y");
    assert_eq!(y.len(), 12 * 5 * 13);
    assert_eq!(y[y.len() - 13..], burning.zones[11].y[4 * 14..][..13]);
    assert_eq!(array("energy").len(), 12 * 5);
    assert_eq!(array("T9_of_t")[4], burning.zones[0].y[4 * 14 + 13]);
    assert_eq!(files.len(), 6);
    for file in &files {
        let svg = std::fs::read_to_string(file).unwrap();
        assert!(svg.contains("</svg>") && !svg.contains("NaN"), "{}", file.display());
    }
    let curves = std::fs::read_to_string(&files[2]).unwrap();
    assert!(curves.contains("Burning of silicon") && curves.contains("\u{b2}\u{2078}Si"));
    assert!(curves.contains("temperature [GK]"));
    let refused = plots::draw(&run, &[12], folder.path()).unwrap_err().to_string();
    assert_eq!(refused, "--plot-zone: expected a zone below 12, found 12");
}
