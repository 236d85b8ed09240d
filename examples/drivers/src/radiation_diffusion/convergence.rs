//! Convergence of errors with the numbers of cells and of steps.

use sparsebatch::Backend;

use super::args::Args;
use super::cases::{self, Plane, Rays};
use super::error::Error;
use super::march::{Settings, march};
use super::problem::Problem;
use super::reference::{Multigroup, SuOlson, interpolate};
use super::run::References;

/// Errors at doubling resolutions.
#[derive(Clone, Debug)]
pub struct Table {
    pub title: String,
    /// The meaning of the resolutions.
    pub what: &'static str,
    /// Resolutions and errors.
    pub rows: Vec<(usize, f64)>,
}

impl Table {
    /// The observed order between a row and the previous one.
    pub fn order(&self, row: usize) -> Option<f64> {
        let (coarse, before) = self.rows.get(row.checked_sub(1)?)?;
        let (fine, after) = self.rows[row];
        Some((before / after).ln() / (fine as f64 / *coarse as f64).ln())
    }
}

/// Steps per decade for the study of errors in space.
const FINE_STEPS: f64 = 240.0;

fn last(
    problem: &Problem,
    tau: f64,
    steps_per_decade: f64,
    args: &Args,
    backend: &Backend,
) -> Result<super::operator::State, Error> {
    let settings = Settings {
        times: vec![tau],
        steps_per_decade,
        tolerance: args.tolerance,
        solve: args.solve_options()?,
    };
    let mut marched = march(problem, &settings, backend, &mut |_, _| {})?;
    marched.states.pop().ok_or_else(|| Error::Internal("a march without a state".to_owned()))
}

/// The largest error of U and V of the grey wave at the [typical](SuOlson::typical) time of its
/// reference, at the points of the reference, with steps so short that only the cells matter.
///
/// # Errors
/// [`Error`] for bad input, or an unsolved system.
pub fn grey(
    reference: &SuOlson,
    zones: &[usize],
    args: &Args,
    backend: &Backend,
) -> Result<Table, Error> {
    let case = reference.typical().ok_or_else(|| Error::input("the reference has no cases"))?;
    let mut rows = Vec::new();
    for &zones in zones {
        let rays = Rays { number: 1, zones, length: None, end: case.tau };
        let problem = cases::grey(reference, &rays)?;
        let state = last(&problem, case.tau, FINE_STEPS, args, backend)?;
        let ray = problem.domains.iter().position(|domain| domain.epsilon == case.epsilon);
        let start = ray.unwrap_or(0) * zones;
        let centres = problem.domains[0].mesh.centres(0);
        let mut error = 0.0f64;
        for (values, expected) in [(&state.u, &case.u), (&state.v, &case.v)] {
            for (&x, expected) in case.x.iter().zip(expected) {
                let found = interpolate(&centres, &values[start..start + zones], x)?;
                error = error.max((found - expected).abs());
            }
        }
        rows.push((zones, error));
    }
    let (eps, tau) = (case.epsilon, case.tau);
    let title =
        format!("grey wave, eps {eps}, tau {tau}, {FINE_STEPS} steps per decade: errors in space");
    Ok(Table { title, what: "cells", rows })
}

/// The same for the multigroup wave.
///
/// # Errors
/// As [`grey`].
pub fn multigroup(
    reference: &Multigroup,
    zones: &[usize],
    args: &Args,
    backend: &Backend,
) -> Result<Table, Error> {
    let case = reference.typical().ok_or_else(|| Error::input("the reference has no cases"))?;
    let mut rows = Vec::new();
    for &zones in zones {
        let rays = Rays { number: 1, zones, length: None, end: case.tau };
        let problem = cases::multigroup(reference, &rays)?;
        let state = last(&problem, case.tau, FINE_STEPS, args, backend)?;
        let centres = problem.domains[0].mesh.centres(0);
        let groups = state.u.chunks(zones).enumerate().map(|(g, u)| (u, case.group(g)));
        let mut error = 0.0f64;
        for (values, expected) in groups.chain([(&state.v[..], case.v.clone())]) {
            for (&x, expected) in case.x.iter().zip(expected) {
                error = error.max((interpolate(&centres, values, x)? - expected).abs());
            }
        }
        rows.push((zones, error));
    }
    let tau = case.tau;
    let title =
        format!("multigroup wave, tau {tau}, {FINE_STEPS} steps per decade: errors in space");
    Ok(Table { title, what: "cells", rows })
}

/// The plane at `tau = 1`: the largest difference of U and V from the same plane with four times as
/// many steps as the last row, relative to the largest U and V.
///
/// # Errors
/// As [`grey`].
pub fn plane(
    plane: &Plane,
    steps: &[usize],
    args: &Args,
    backend: &Backend,
) -> Result<Table, Error> {
    let problem = cases::plane(plane)?;
    let finest = steps.iter().copied().max().unwrap_or(1) * 4;
    let truth = last(&problem, 1.0, finest as f64, args, backend)?;
    let mut rows = Vec::new();
    for &steps in steps {
        let state = last(&problem, 1.0, steps as f64, args, backend)?;
        let worst = |a: &[f64], b: &[f64]| {
            let largest = b.iter().fold(0.0f64, |m, b| m.max(b.abs()));
            a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max((a - b).abs())) / largest
        };
        rows.push((steps, worst(&state.u, &truth.u).max(worst(&state.v, &truth.v))));
    }
    let title = format!("plane, limiter {:?}, tau 1: errors in time", plane.limiter);
    Ok(Table { title, what: "steps per decade", rows })
}

/// All three tables.
///
/// # Errors
/// As [`grey`].
pub(crate) fn tables(
    args: &Args,
    references: &References,
    backend: &Backend,
) -> Result<Vec<Table>, Error> {
    let mut tables = Vec::new();
    if let Some(reference) = &references.grey {
        tables.push(grey(reference, &[64, 128, 256, 512], args, backend)?);
    }
    if let Some(reference) = &references.multigroup {
        tables.push(multigroup(reference, &[64, 128, 256, 512], args, backend)?);
    }
    let small = Plane { cells: [16, 16], groups: 4, ..args.plane() };
    tables.push(plane(&small, &[10, 20, 40, 80], args, backend)?);
    Ok(tables)
}
