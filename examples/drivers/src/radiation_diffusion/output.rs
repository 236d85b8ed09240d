//! States as `.npz`.

use std::path::Path;

use sparsebatch::io::{Packing, write_arrays};

use super::error::Error;
use super::run::Run;
use super::units::Units;

/// Writes for each case `NAME`: `NAME_shape` (numbers of outputs, domains, groups, cells along y
/// and x) of `NAME_u` and `NAME_v` (without groups), `NAME_times`, `NAME_x` and `NAME_y` (centres,
/// domain by domain), and `NAME_kappa`, `NAME_w`, `NAME_opacity`; `cgs` has the units of length,
/// time and energy.
///
/// # Errors
/// [`Error::Input`] for an ending other than `.npz`, or when the file cannot be written.
pub(crate) fn write(path: &Path, runs: &[Run], units: &Units) -> Result<(), Error> {
    check(path)?;
    Ok(write_arrays(path, Packing::Stored, |npz| {
        npz.add_f64("cgs", &[units.length, units.time, units.energy_density])?;
        for run in runs {
            let (name, problem) = (run.name, &run.problem);
            let topology = &problem.topology;
            let shape = [
                run.times.len(),
                problem.domains.len(),
                problem.groups.len(),
                topology.ny,
                topology.nx,
            ];
            npz.add_i64(&format!("{name}_shape"), &shape.map(|n| n as i64))?;
            let states = &run.march.states;
            let u: Vec<f64> = states.iter().flat_map(|s| &s.u).copied().collect();
            let v: Vec<f64> = states.iter().flat_map(|s| &s.v).copied().collect();
            npz.add_f64(&format!("{name}_u"), &u)?;
            npz.add_f64(&format!("{name}_v"), &v)?;
            npz.add_f64(&format!("{name}_times"), &run.times)?;
            for (axis, letter) in ["x", "y"].into_iter().enumerate() {
                let centres: Vec<f64> =
                    problem.domains.iter().flat_map(|d| d.mesh.centres(axis)).collect();
                npz.add_f64(&format!("{name}_{letter}"), &centres)?;
            }
            npz.add_f64(&format!("{name}_kappa"), &problem.groups.kappa)?;
            npz.add_f64(&format!("{name}_w"), &problem.groups.weight)?;
            let opacity: Vec<f64> =
                problem.domains.iter().flat_map(|d| &d.opacity).copied().collect();
            npz.add_f64(&format!("{name}_opacity"), &opacity)?;
        }
        Ok(())
    })?)
}

/// Refuses endings other than `.npz`, before anything has run.
///
/// # Errors
/// [`Error::Input`].
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npz")) {
        return Ok(());
    }
    Err(Error::input(format!("--output {}: expected a name ending in .npz", path.display())))
}
