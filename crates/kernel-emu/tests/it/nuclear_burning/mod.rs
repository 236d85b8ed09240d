//! The kernels of the nuclear burning example in the emulation: integrated zones compared with the
//! CPU path of the example and with reference runs.

mod device;
mod ends;
mod nvrtc;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel_emu::{Emulator, Order};
use sparsebatch::{Method, Preconditioner, SolveOptions, Status};
use sparsebatch_cuda::{DeviceInfo, Executor, MemoryMeter};
use sparsebatch_drivers::nuclear_burning::equations::Equations;
use sparsebatch_drivers::nuclear_burning::gpu::timer::Clock;
use sparsebatch_drivers::nuclear_burning::gpu::{Groups, SparseStages};
use sparsebatch_drivers::nuclear_burning::integrator::{Burning, Outcome, Settings, integrate};
use sparsebatch_drivers::nuclear_burning::linear::Means;
use sparsebatch_drivers::nuclear_burning::network::Network;
use sparsebatch_drivers::nuclear_burning::reference::Reference;
use sparsebatch_drivers::nuclear_burning::tableau::RODAS4P2;
use sparsebatch_drivers::nuclear_burning::zones::{Fuel, Grid, Zones, log_times};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data")
}

fn equations() -> Equations {
    let network = Network::read(&data().join("reaclib_alpha13.json")).unwrap();
    Equations::new(Arc::new(network), false).unwrap()
}

fn settings() -> Settings {
    Settings::new(1e-5).unwrap()
}

fn options() -> SolveOptions {
    SolveOptions::new().method(Method::Lu).floor(4.0)
}

fn grid(nzones: usize) -> Grid {
    Grid { nzones, t9: (1.0, 6.0), rho: (1e5, 1e9), fuels: Fuel::defaults() }
}

/// By the kernels, whose threads run in this order.
fn by_kernels(
    order: Order,
    equations: &Equations,
    zones: &Zones,
    settings: &Settings,
    options: &SolveOptions,
) -> Burning {
    on(&Emulator::new(order), equations, zones, settings, options)
}

fn on(
    emulator: &Emulator,
    equations: &Equations,
    zones: &Zones,
    settings: &Settings,
    options: &SolveOptions,
) -> Burning {
    groups(emulator, equations, zones, settings, options, 1).run(|_| ()).unwrap()
}

fn groups<'a>(
    emulator: &Emulator,
    equations: &'a Equations,
    zones: &Zones,
    settings: &'a Settings,
    options: &SolveOptions,
    count: usize,
) -> Groups<'a, Emulator, SparseStages<Emulator>, Clock> {
    let make = |emulator: &Emulator, zones: usize| {
        let shape = (zones, settings.method.stages());
        Ok((SparseStages::new(emulator, equations, options, shape)?, Clock::new()))
    };
    Groups::new(emulator, equations, zones, settings, count, make).unwrap()
}

fn by_host(equations: &Equations, zones: &Zones, settings: &Settings) -> Burning {
    let means = Means::Sparse(Box::new(options().fallback(true)));
    integrate(equations, zones, means, settings, |_| ()).unwrap()
}

/// Largest difference of an abundance at any time, mole/g.
fn difference(a: &Burning, b: &Burning) -> f64 {
    let mut most = 0.0f64;
    for (a, b) in a.zones.iter().zip(&b.zones) {
        assert_eq!(a.y.len(), b.y.len());
        let parts = a.y.iter().zip(&b.y).map(|(a, b)| (a - b).abs());
        most = parts.fold(most, f64::max);
    }
    most
}

/// Plans that are made without a device ask for the kernels of solves that a run launches, so that
/// a first run compiles them side by side.
#[test]
fn the_kernels_of_a_run_are_known_ahead() {
    let (equations, settings) = (equations(), settings());
    let zones = grid(4).zones(equations.network(), &log_times(1e-6, 9.0, 2)).unwrap();
    let emulator = Emulator::new(Order::Forward);
    on(&emulator, &equations, &zones, &settings, &options());

    let meter = MemoryMeter::rehearsal(emulator.info().clone());
    SparseStages::new(&meter, &equations, &options(), (4, settings.method.stages())).unwrap();

    let ahead: Vec<String> = meter.kernels().iter().map(ToString::to_string).collect();
    let launched = emulator.launched();
    let of_solves: Vec<&String> =
        launched.iter().filter(|kernel| !kernel.starts_with("burning.cu")).collect();
    assert!(!of_solves.is_empty());
    assert!(of_solves.iter().all(|kernel| ahead.contains(kernel)), "{of_solves:?} {ahead:?}");
}

#[test]
fn a_grid_burns_as_on_the_host() {
    let equations = equations();
    let zones = grid(12).zones(equations.network(), &log_times(1e-3, 9.0, 4)).unwrap();

    let burning = by_kernels(Order::Forward, &equations, &zones, &settings(), &options());
    let host = by_host(&equations, &zones, &settings());

    for (burned, host) in burning.zones.iter().zip(&host.zones) {
        assert_eq!(burned.outcome, Outcome::Finished);
        // Steps are chosen by errors, which rounding moves a little.
        assert!(burned.steps.abs_diff(host.steps) <= 2, "{} {}", burned.steps, host.steps);
        assert!(burned.drift.iter().all(|drift| *drift <= 1e-12), "{:?}", burned.drift);
        assert!(burned.lowest > -1e-12 && burned.unsolved == 0);
    }
    let most = difference(&burning, &host);
    assert!(most <= 1e-8, "{most:e}");
    // Every step has a system for each stage, and every one was solved at once.
    let tries: u32 = burning.zones.iter().map(|zone| zone.steps + zone.rejected).sum();
    assert_eq!(burning.tally.systems, 8 * u64::from(tries));
    assert_eq!(burning.tally.rungs[0], burning.tally.systems);
    assert_eq!(burning.tally.unsolved(), 0);
    assert!(burning.tally.worst_residual <= 1e-9, "{:e}", burning.tally.worst_residual);
    assert_eq!(burning.tally.iterations.iter().sum::<u64>(), burning.tally.systems);
    let most_tries = burning.zones.iter().map(|zone| zone.steps + zone.rejected).max().unwrap();
    assert_eq!(burning.rounds, u64::from(most_tries));
    // Zones ended at different times, so that others moved together.
    let least_tries = burning.zones.iter().map(|zone| zone.steps + zone.rejected).min().unwrap();
    assert!(least_tries + 20 < most_tries, "{least_tries} {most_tries}");
}

#[test]
fn runs_agree_with_the_references() {
    let equations = equations();
    let network = equations.network();
    let reference = Reference::read(&data().join("reference_alpha13.json"), network).unwrap();
    let zones = reference.zones(network).unwrap();

    let burning = by_kernels(Order::Reverse, &equations, &zones, &settings(), &options());

    for (agreement, burned) in reference.compare(network, &burning).iter().zip(&burning.zones) {
        assert_eq!(burned.outcome, Outcome::Finished);
        assert!(agreement.holds(), "{agreement:?}");
    }
}

#[test]
fn a_zone_depends_neither_on_others_nor_on_the_order_of_threads() {
    let equations = equations();
    let times = log_times(1e-4, 6.0, 3);
    let zones = grid(9).zones(equations.network(), &times).unwrap();
    let together = by_kernels(Order::Forward, &equations, &zones, &settings(), &options());
    let again = by_kernels(Order::Random(7), &equations, &zones, &settings(), &options());

    for zone in 0..zones.len() {
        assert_eq!(together.zones[zone].y, again.zones[zone].y, "zone {zone}");
        assert_eq!(together.zones[zone].drift, again.zones[zone].drift, "zone {zone}");
    }
    // One multiprocessor, so that blocks have as many zones as they can.
    let few = Emulator::new(Order::Forward);
    let few = DeviceInfo { multiprocessors: 1, ..few.info().clone() };
    let few = Emulator::with_info(few, Order::Reverse);
    let few = on(&few, &equations, &zones, &settings(), &options());
    for (zone, few) in together.zones.iter().zip(&few.zones) {
        assert_eq!((&zone.y, zone.steps), (&few.y, few.steps));
    }
    for zone in [0, 8] {
        let mut alone = Zones::default();
        let y = &zones.y[zone * 13..][..13];
        let state = (zones.t9[zone], zones.rho[zone]);
        alone.push(equations.network(), state, y, Arc::clone(&times)).unwrap();
        let alone = by_kernels(Order::Forward, &equations, &alone, &settings(), &options());

        assert_eq!(alone.zones[0].y, together.zones[zone].y, "zone {zone}");
        assert_eq!(alone.zones[0].steps, together.zones[zone].steps, "zone {zone}");
    }
}

#[test]
fn groups_of_zones_burn_as_all_together() {
    let equations = equations();
    let zones = grid(11).zones(equations.network(), &log_times(1e-4, 6.0, 3)).unwrap();
    let (settings, options) = (settings(), options());
    let emulator = Emulator::new(Order::Forward);
    let burn = |count: usize| {
        let mut groups = groups(&emulator, &equations, &zones, &settings, &options, count);
        let mut heard = Vec::new();
        (groups.run(|left| heard.push(left)).unwrap(), heard)
    };

    let (together, _) = burn(1);
    for count in [3, 64] {
        let (apart, heard) = burn(count);

        assert_eq!(apart.zones.len(), 11);
        for (zone, (apart, together)) in apart.zones.iter().zip(&together.zones).enumerate() {
            assert_eq!((&apart.y, apart.steps), (&together.y, together.steps), "zone {zone}");
        }
        assert_eq!((apart.rounds, apart.tally.systems), (together.rounds, together.tally.systems));
        assert_eq!(apart.tally.rungs, together.tally.rungs);
        assert_eq!(apart.tally.iterations, together.tally.iterations);
        assert_eq!(apart.tally.worst_residual, together.tally.worst_residual);
        assert!(heard.windows(2).all(|pair| pair[0] > pair[1]) && heard.last() == Some(&0));
    }
}

/// Zones that heat themselves, hot enough to burn and cool enough to heat by much.
fn heated_zones(nzones: usize) -> (Equations, Zones) {
    let network = Network::read(&data().join("reaclib_alpha13.json")).unwrap();
    let equations = Equations::new(Arc::new(network), true).unwrap();
    let grid = Grid { nzones, t9: (2.0, 4.0), rho: (1e6, 1e8), fuels: Fuel::defaults() };
    let zones = grid.zones(equations.network(), &log_times(1e-2, 8.0, 5)).unwrap();
    (equations, zones)
}

#[test]
fn zones_that_heat_themselves_burn_as_on_the_host() {
    let (equations, zones) = heated_zones(12);

    let burning = by_kernels(Order::Reverse, &equations, &zones, &settings(), &options());
    let host = by_host(&equations, &zones, &settings());

    let mut hottest = 0.0f64;
    for (zone, (burned, host)) in burning.zones.iter().zip(&host.zones).enumerate() {
        assert_eq!(burned.outcome, Outcome::Finished);
        // A wrong derivative would cost steps.
        assert!(burned.steps.abs_diff(host.steps) <= 2, "{} {}", burned.steps, host.steps);
        assert!(burned.rejected.abs_diff(host.rejected) <= 2);
        assert!(burned.drift.iter().all(|drift| *drift <= 1e-12), "{:?}", burned.drift);
        assert_eq!((burned.clamped, burned.y.len()), (host.clamped, 5 * 14));
        for (a, b) in burned.y.chunks_exact(14).zip(host.y.chunks_exact(14)) {
            hottest = hottest.max(a[13] - zones.t9[zone]);
            // An abundance moves by the error of a step where their number differs.
            assert!((a[13] - b[13]).abs() <= 1e-5 * b[13], "zone {zone}: {} {}", a[13], b[13]);
        }
    }
    assert!(hottest > 1.0, "{hottest}");
    let most = difference(&burning, &host);
    assert!(most <= 1e-5, "{most:e}");
    assert_eq!(burning.tally.rungs[0], burning.tally.systems);
}

#[test]
fn a_zone_that_heats_itself_depends_neither_on_others_nor_on_the_order_of_threads() {
    let (equations, zones) = heated_zones(9);
    let settings = Settings { fixed_step: Some(0.2e-8), ..settings() };
    let zones = Zones { times: vec![Arc::from([1e-8, 2e-8]); 9], ..zones };
    let together = by_kernels(Order::Forward, &equations, &zones, &settings, &options());
    let again = by_kernels(Order::Random(7), &equations, &zones, &settings, &options());
    let few = Emulator::new(Order::Forward);
    let few = DeviceInfo { multiprocessors: 1, ..few.info().clone() };
    let few = Emulator::with_info(few, Order::Reverse);
    let few = on(&few, &equations, &zones, &settings, &options());
    let host = by_host(&equations, &zones, &settings);

    for zone in 0..zones.len() {
        let own = &together.zones[zone];
        assert_eq!(own.y, again.zones[zone].y, "zone {zone}");
        assert_eq!(own.y, few.zones[zone].y, "zone {zone}");
        assert_eq!((own.steps, own.outcome), (10, Outcome::Finished));
        // With the same steps rounding is all that differs.
        for (a, b) in own.y.iter().zip(&host.zones[zone].y) {
            assert!((a - b).abs() <= 1e-12 * b.abs().max(1e-3), "zone {zone}: {a:e} {b:e}");
        }
    }
    let mut groups =
        groups(&Emulator::new(Order::Forward), &equations, &zones, &settings, &options(), 4);
    let apart = groups.run(|_| ()).unwrap();
    for (apart, together) in apart.zones.iter().zip(&together.zones) {
        assert_eq!(apart.y, together.y);
    }
}

#[test]
fn zones_that_leave_the_range_of_the_fits_say_so() {
    let (equations, zones) = heated_zones(3);
    let zones = Zones { t9: vec![9.9; 3], rho: vec![1e9; 3], ..zones };

    let burning = by_kernels(Order::Forward, &equations, &zones, &settings(), &options());
    let host = by_host(&equations, &zones, &settings());

    let clamped = |burning: &Burning| -> Vec<bool> {
        burning.zones.iter().map(|zone| zone.clamped).collect()
    };
    assert_eq!(clamped(&burning), clamped(&host));
    assert!(clamped(&burning).contains(&true));
}

#[test]
fn other_methods_and_fixed_steps_are_those_of_the_host() {
    let equations = equations();
    let zones = grid(3).zones(equations.network(), &log_times(1e-9, 2.0, 2)).unwrap();
    for settings in [
        Settings { method: &RODAS4P2, project: false, ..settings() },
        Settings { fixed_step: Some(0.24e-9), ..settings() },
    ] {
        let burning = by_kernels(Order::Random(3), &equations, &zones, &settings, &options());
        let host = by_host(&equations, &zones, &settings);

        for (burned, host) in burning.zones.iter().zip(&host.zones) {
            assert_eq!((burned.outcome, burned.steps), (host.outcome, host.steps));
        }
        let most = difference(&burning, &host);
        assert!(most <= 1e-10, "{most:e}");
    }
}

#[test]
fn iterative_solvers_burn_as_on_the_host() {
    let equations = equations();
    let zones = grid(6).zones(equations.network(), &log_times(1e-9, 2.0, 2)).unwrap();
    let settings = Settings { fixed_step: Some(0.24e-9), ..settings() };
    for preconditioner in [Preconditioner::ILU0, Preconditioner::Jacobi, Preconditioner::None] {
        let options = options()
            .method(Method::BiCgStab)
            .preconditioner(preconditioner)
            .order(sparsebatch::Order::MinDegree)
            .rel_tol(1e-12);
        let means = Means::Sparse(Box::new(options.clone()));
        let host = integrate(&equations, &zones, means, &settings, |_| ()).unwrap();
        let emulator = Emulator::new(Order::Forward);
        let burn = |count: usize| {
            let make = |emulator: &Emulator, zones: usize| {
                let shape = (zones, settings.method.stages());
                Ok((SparseStages::new(emulator, &equations, &options, shape)?, Clock::new()))
            };
            Groups::new(&emulator, &equations, &zones, &settings, count, make)
                .unwrap()
                .run(|_| ())
                .unwrap()
        };

        let together = burn(1);
        let apart = burn(4);

        for (zone, own) in together.zones.iter().enumerate() {
            assert_eq!((own.outcome, own.steps), (Outcome::Finished, host.zones[zone].steps));
            assert_eq!(own.y, apart.zones[zone].y, "zone {zone}");
        }
        let most = difference(&together, &host);
        assert!(most <= 1e-10, "{preconditioner:?}: {most:e}");
        assert_eq!(together.tally.unsolved(), 0);
        assert!(together.tally.ran.contains(preconditioner.name()), "{}", together.tally.ran);
    }
}

#[test]
fn systems_without_a_solution_shorten_steps_until_the_zone_is_given_up() {
    let equations = equations();
    let zones = grid(3).zones(equations.network(), &log_times(1.0, 1.0, 1)).unwrap();
    // Looked at stage by stage, and all stages together.
    for floor in [None, Some(4.0)] {
        let nothing = options().max_iters(0).floor(floor);

        let burning = by_kernels(Order::Forward, &equations, &zones, &settings(), &nothing);

        for burned in &burning.zones {
            let outcome = burned.outcome;
            assert!(matches!(outcome, Outcome::StepUnderflow { t: 0.0, step } if step < 1e-39));
            assert!(burned.steps == 0 && burned.unsolved > 0 && burned.y.is_empty());
        }
        let failures = &burning.tally.failures;
        assert!(failures.iter().any(|(status, _)| *status == Status::MaxIterations));
        assert!(burning.tally.unsolved() > 0);
        let together = burning.tally.ran.contains("residuals of all stages together");
        assert_eq!(together, floor.is_some(), "{}", burning.tally.ran);
    }
}

#[test]
fn residuals_of_a_step_together_are_those_of_its_stages() {
    let equations = equations();
    let zones = grid(24).zones(equations.network(), &log_times(1e-3, 9.0, 4)).unwrap();
    let burn = |rel_tol: Option<f64>| {
        let mut options = options();
        options.rel_tol = rel_tol.map(Into::into);
        by_kernels(Order::Random(2), &equations, &zones, &settings(), &options)
    };

    // A little below what substitution is trusted with.
    let (together, apart) = (burn(Some(1e-10)), burn(Some(0.99e-10)));

    assert!(together.tally.ran.contains("residuals of all stages together"));
    assert!(apart.tally.ran.contains("residuals stage by stage"));
    for (one, other) in together.zones.iter().zip(&apart.zones) {
        assert_eq!((one.outcome, one.steps), (other.outcome, other.steps));
        assert_eq!(one.y, other.y);
    }
    assert_eq!(together.tally.systems, apart.tally.systems);
    assert_eq!(together.tally.iterations, apart.tally.iterations);
    assert_eq!(together.tally.unsolved(), 0);
}

#[test]
fn zones_that_run_out_of_steps_say_so() {
    let equations = equations();
    let zones = grid(3).zones(equations.network(), &log_times(1.0, 1.0, 1)).unwrap();
    let settings = Settings { max_steps: 7, ..settings() };

    let burning = by_kernels(Order::Forward, &equations, &zones, &settings, &options());

    for burned in &burning.zones {
        assert!(matches!(burned.outcome, Outcome::TooManySteps { t } if t > 0.0 && t < 1.0));
        assert_eq!(burned.steps + burned.rejected, 7);
    }
}

#[test]
fn rates_that_are_not_finite_are_refused_with_their_zone() {
    let text = r#"{"network": "wild", "nuclides": [
        {"name": "he4", "Z": 2, "A": 4, "binding_MeV": 28.3},
        {"name": "c12", "Z": 6, "A": 12, "binding_MeV": 92.2}],
      "rates": [{"id": "triple", "reactants": ["he4", "he4", "he4"], "products": ["c12"],
         "prefactor": 0.16666666666666666, "rho_exponent": 2,
         "sets": [[0, 0, 0, 0, 300, 0, 0]], "partner": null}]}"#;
    let network = Arc::new(Network::parse(text).unwrap());
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let mut zones = Zones::default();
    for t9 in [1.0, 3.0] {
        zones.push(&network, (t9, 1e6), &[0.25, 0.0], Arc::from([1.0])).unwrap();
    }
    let emulator = Emulator::new(Order::Forward);
    let settings = settings();
    // The second group has the wild zone as its first.
    let mut groups = groups(&emulator, &equations, &zones, &settings, &options(), 2);

    let error = groups.run(|_| ()).unwrap_err().to_string();

    assert_eq!(error, r#"zone 1: the rate "triple" is not finite at T9 = 3"#);
}
