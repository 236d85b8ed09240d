//! Bad networks, zones and settings: one clear line each.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sparsebatch_drivers::nuclear_burning::equations::Equations;
use sparsebatch_drivers::nuclear_burning::integrator::{Settings, integrate};
use sparsebatch_drivers::nuclear_burning::network::Network;
use sparsebatch_drivers::nuclear_burning::reference::Reference;
use sparsebatch_drivers::nuclear_burning::zones::{Fuel, Grid, Zones, log_times};

use super::{alpha13, data, gentle, grid, lu, settings};

#[test]
fn no_zones_are_refused() {
    let network = alpha13();
    let equations = Equations::new(Arc::clone(&network), false).unwrap();
    let times = log_times(1.0, 1.0, 2);

    let message = grid(0).zones(&network, &times).unwrap_err().to_string();
    assert_eq!(message, "expected at least one zone, found 0");
    let refused = integrate(&equations, &Zones::default(), lu(), &settings(), |_| ());
    assert_eq!(refused.unwrap_err().to_string(), "expected at least one zone, found 0");
}

#[test]
fn rates_that_overflow_are_refused() {
    let mut network = (*gentle()).clone();
    network.rates[1].sets[0][0] = 800.0;
    let equations = Equations::new(Arc::new(network), false).unwrap();
    let mut zones = Zones::default();
    for _ in 0..2 {
        let y = [0.25, 0.0, 0.0];
        zones.push(equations.network(), (1.0, 1.0), &y, Arc::from([1.0])).unwrap();
    }

    let refused = integrate(&equations, &zones, lu(), &settings(), |_| ()).unwrap_err();

    assert_eq!(refused.to_string(), "zone 0: the rate \"reverse\" is not finite at T9 = 1");
}

#[test]
fn zones_out_of_range_are_refused() {
    let network = alpha13();
    let fresh = Fuel::defaults()[0].abundances(&network).unwrap();
    let refused = |t9: f64, rho: f64, y: &[f64], times: &[f64]| {
        let mut zones = Zones::default();
        zones.push(&network, (t9, rho), y, Arc::from(times)).unwrap_err().to_string()
    };
    let with = |place: usize, value: f64| {
        let mut y = fresh.clone();
        y[place] = value;
        y
    };

    for t9 in [0.0, 0.009, 10.1, -1.0, f64::NAN, f64::INFINITY] {
        assert!(refused(t9, 1e6, &fresh, &[1.0]).starts_with("zone 0: expected a temperature"));
    }
    for rho in [0.0, -1.0, 1e15, f64::NAN, f64::INFINITY] {
        assert!(refused(2.0, rho, &fresh, &[1.0]).starts_with("zone 0: expected a density"));
    }
    let message = refused(2.0, 1e6, &with(3, -1e-9), &[1.0]);
    assert_eq!(message, "zone 0: expected an abundance of at least 0, found -0.000000001 for ne20");
    assert!(refused(2.0, 1e6, &with(3, f64::NAN), &[1.0]).contains("found NaN for ne20"));
    assert!(refused(2.0, 1e6, &with(3, 0.1), &[1.0]).contains("mass fractions that add up to 1"));
    assert!(refused(2.0, 1e6, &fresh[1..], &[1.0]).contains("expected 13 abundances, found 12"));
    for times in [&[][..], &[0.0], &[1.0, 1.0], &[2.0, 1.0], &[1.0, f64::INFINITY]] {
        assert!(refused(2.0, 1e6, &fresh, times).contains("positive, ascending times"));
    }
    let upside_down = Grid { t9: (6.0, 1.0), ..grid(3) };
    let message = upside_down.zones(&network, &log_times(1.0, 1.0, 2)).unwrap_err().to_string();
    assert_eq!(message, "expected temperatures LOW:HIGH above 0, found 6:1");
    let none = Grid { fuels: Vec::new(), ..grid(3) };
    let message = none.zones(&network, &log_times(1.0, 1.0, 2)).unwrap_err().to_string();
    assert_eq!(message, "expected at least one fuel, found none");
    let message = Fuel::defaults()[2].abundances(&gentle()).unwrap_err().to_string();
    assert!(
        message.starts_with("the network \"gentle\" has no si28, which the fuel silicon wants")
    );
    assert!(Settings::new(0.0).unwrap_err().to_string().contains("expected a tolerance"));
}

/// What replaces a value of a network file, and the error that the file then is refused with.
type BadValue = (&'static str, serde_json::Value, String);

fn bad_rates() -> Vec<BadValue> {
    let rate = "rates[0] \"O16 --> He4 + C12 <reaclib_nac2>\"";
    vec![
        (
            "/rates/0/products/0",
            json!("x99"),
            format!("{rate}: products hold \"x99\", which is none of the nuclides"),
        ),
        (
            "/rates/0/sets",
            json!([]),
            format!("{rate}: expected at least one set of coefficients, found none"),
        ),
        ("/rates/0/sets", json!(null), format!("{rate}: sets is missing")),
        (
            "/rates/0/sets/0",
            json!([1.0, 2.0]),
            format!("{rate}: expected sets of 7 coefficients, found one of 2"),
        ),
        (
            "/rates/0/products",
            json!(["he4"]),
            format!("{rate}: A is 16 in the reactants and 4 in the products"),
        ),
        ("/rates/0/reactants", json!([]), format!("{rate}: expected 1 to 4 reactants, found 0")),
        (
            "/rates/0/prefactor",
            json!(0.0),
            format!("{rate}: expected a prefactor in (0, 1], found 0"),
        ),
        (
            "/rates/0/rho_exponent",
            json!(1),
            format!("{rate}: expected a rho_exponent of 0, found 1"),
        ),
        ("/rates/0/partner", json!(3), format!("{rate}: rates[3] is not its reverse")),
        ("/rates/0/partner", json!(999), format!("{rate}: rates[999] is not its reverse")),
        (
            "/nuclides/0/Z",
            json!(1),
            format!("{rate}: Z is 8 in the reactants and 7 in the products"),
        ),
        ("/rates", json!(null), "rates: expected a list, found none".to_owned()),
    ]
}

fn bad_nuclides() -> Vec<BadValue> {
    vec![
        (
            "/nuclides/0/Z",
            json!(5),
            "nuclides[0]: expected 1 <= A <= 400 and Z <= A, found Z 5, A 4".to_owned(),
        ),
        ("/nuclides/0/A", json!(null), "nuclides[0]: A is missing".to_owned()),
        ("/nuclides/0/binding_MeV", json!(null), "nuclides[0]: binding_MeV is missing".to_owned()),
        (
            "/nuclides/1/name",
            json!("he4"),
            "nuclides[1]: \"he4\" stands at nuclides[0] already".to_owned(),
        ),
        ("/nuclides", json!([]), "nuclides: expected at least one, found none".to_owned()),
    ]
}

#[test]
fn bad_network_files_are_refused_by_place() {
    let good = serde_json::from_str::<serde_json::Value>(
        &std::fs::read_to_string(data().join("reaclib_alpha13.json")).unwrap(),
    )
    .unwrap();
    let refused = |pointer: &str, value: serde_json::Value| {
        let mut bad = good.clone();
        let place = bad.pointer_mut(pointer).unwrap();
        *place = value;
        Network::parse(&bad.to_string()).unwrap_err().to_string()
    };
    for (pointer, value, expected) in bad_rates().into_iter().chain(bad_nuclides()) {
        assert_eq!(refused(pointer, value), expected, "{pointer}");
    }
    assert!(refused("/rates/0/sets/0/0", "one".into()).starts_with("network: invalid type"));
    assert!(Network::parse("{").unwrap_err().to_string().starts_with("network: EOF"));
    let missing = Network::read(Path::new("no/such/file.json")).unwrap_err().to_string();
    assert!(missing.starts_with("no/such/file.json: "), "{missing}");
    let other = Reference::read(&data().join("reference_alpha13.json"), &gentle()).unwrap_err();
    assert!(other.to_string().ends_with("expected 3 abundances, found 13"));
}
