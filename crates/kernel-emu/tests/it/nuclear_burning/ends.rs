//! Zones that end at different rounds: others move to their places, and no bit of theirs changes.

use std::sync::Arc;

use kernel_emu::{Emulator, Order};
use sparsebatch::{Method, Preconditioner};
use sparsebatch_drivers::nuclear_burning::equations::Equations;
use sparsebatch_drivers::nuclear_burning::error::BurningError;
use sparsebatch_drivers::nuclear_burning::gpu::linear::StageSolver;
use sparsebatch_drivers::nuclear_burning::gpu::timer::Clock;
use sparsebatch_drivers::nuclear_burning::gpu::{Groups, SparseStages};
use sparsebatch_drivers::nuclear_burning::integrator::{Burning, Outcome, Settings};
use sparsebatch_drivers::nuclear_burning::zones::{Zones, log_times};

use super::{equations, grid, heated_zones, options, settings};

const ZONES: usize = 23;
const STEP: f64 = 2e-10;

/// Steps of a zone: all numbers, in no order.
fn steps(zone: usize) -> usize {
    1 + (zone * 7) % ZONES
}

/// Burns all zones, then some of them alone.
fn check<S: StageSolver<Emulator>>(
    equations: &Equations,
    zones: &Zones,
    mut solver: impl FnMut(&Emulator, (usize, usize)) -> Result<S, BurningError>,
) {
    let settings = Settings { fixed_step: Some(STEP), ..settings() };
    let times = (0..ZONES).map(|zone| Arc::from([STEP * steps(zone) as f64])).collect();
    let zones = Zones { times, ..zones.clone() };
    let mut burn = |zones: &Zones, order| -> Burning {
        let make = |emulator: &Emulator, count: usize| {
            Ok((solver(emulator, (count, settings.method.stages()))?, Clock::new()))
        };
        let emulator = Emulator::new(order);
        let groups = Groups::new(&emulator, equations, zones, &settings, 1, make);
        groups.unwrap().run(|_| ()).unwrap()
    };

    let together = burn(&zones, Order::Random(3));

    for (zone, burned) in together.zones.iter().enumerate() {
        assert_eq!((burned.outcome, burned.steps as usize), (Outcome::Finished, steps(zone)));
        let alone = burn(&zones.every(ZONES, zone), Order::Forward);
        assert_eq!(burned.y, alone.zones[0].y, "zone {zone}");
        assert_eq!(burned.drift, alone.zones[0].drift, "zone {zone}");
    }
}

#[test]
fn systems_by_bicgstab_stay_with_their_zones() {
    let equations = equations();
    let zones = grid(ZONES).zones(equations.network(), &log_times(1.0, 1.0, 1)).unwrap();
    for preconditioner in [Preconditioner::ILU0, Preconditioner::Jacobi, Preconditioner::None] {
        let options =
            options().method(Method::BiCgStab).preconditioner(preconditioner).rel_tol(1e-12);
        check(&equations, &zones, |emulator, shape| {
            SparseStages::new(emulator, &equations, &options, shape)
        });
    }
}

#[test]
fn zones_that_heat_themselves_keep_their_rates() {
    let (equations, zones) = heated_zones(ZONES);
    check(&equations, &zones, |emulator, shape| {
        SparseStages::new(emulator, &equations, &options(), shape)
    });
}

#[test]
fn zones_of_constant_temperature_take_their_rates_along() {
    let equations = equations();
    let zones = grid(ZONES).zones(equations.network(), &log_times(1.0, 1.0, 1)).unwrap();
    check(&equations, &zones, |emulator, shape| {
        SparseStages::new(emulator, &equations, &options(), shape)
    });
}
