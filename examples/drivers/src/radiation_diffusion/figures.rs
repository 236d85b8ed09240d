//! The plots of the cases.

use std::path::{Path, PathBuf};

use super::args::Case;
use super::cases::outlines;
use super::error::Error;
use super::plot::{Axis, Map, Series, heat_map, lines};
use super::reference::same;
use super::run::{References, Run};

/// Draws every case into a folder, which is created; returns the files.
///
/// # Errors
/// [`Error::Input`] when a file cannot be written.
pub(crate) fn draw(
    folder: &Path,
    runs: &[Run],
    references: &References,
) -> Result<Vec<PathBuf>, Error> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Error::input(format!("--plots {}: {error}", folder.display())))?;
    let mut files = Vec::new();
    let mut file = |name: String| {
        files.push(folder.join(name));
        files[files.len() - 1].clone()
    };
    for run in runs {
        match run.case {
            Case::Grey => grey(run, references, &mut file)?,
            Case::Multigroup => multigroup(run, references, &mut file)?,
            Case::Plane | Case::Convergence | Case::All => plane(run, &mut file)?,
        }
    }
    Ok(files)
}

fn axis(label: &str, range: std::ops::Range<f64>) -> Axis {
    Axis { label: label.to_owned(), range, log: true }
}

fn pairs(x: &[f64], y: &[f64]) -> Vec<(f64, f64)> {
    x.iter().copied().zip(y.iter().copied()).collect()
}

/// Draws U and V of the ray of opacity 1 at every time, for each `eps`.
fn grey(
    run: &Run,
    references: &References,
    file: &mut dyn FnMut(String) -> PathBuf,
) -> Result<(), Error> {
    let cases = references.grey.as_ref().map_or(&[][..], |reference| &reference.cases);
    for (ray, domain) in run.problem.domains.iter().enumerate() {
        // The first ray of each eps has opacity 1.
        if ray > 0 && run.problem.domains[ray - 1].epsilon == domain.epsilon {
            continue;
        }
        let x = run.depths(ray);
        for (name, what) in [("u", "radiation U"), ("v", "matter V")] {
            let mut series = Vec::new();
            for (output, &tau) in run.times.iter().enumerate() {
                let values = if name == "u" { run.u(output, ray, 0) } else { run.v(output, ray) };
                let case = cases.iter().find(|c| c.epsilon == domain.epsilon && same(tau, c.tau));
                let points = case.map(|c| pairs(&c.x, if name == "u" { &c.u } else { &c.v }));
                series.push(Series {
                    label: format!("tau = {tau}"),
                    line: pairs(&x, values),
                    points: points.unwrap_or_default(),
                });
            }
            series.reverse();
            let epsilon = domain.epsilon;
            lines(
                &file(format!("grey_{name}_eps{epsilon}.svg")),
                &format!("Marshak wave, eps = {epsilon}: lines computed, circles Su and Olson"),
                &axis("optical depth x", 0.05..60.0),
                &axis(what, 1e-5..1.5),
                &series,
            )?;
        }
    }
    Ok(())
}

/// Draws every group of the ray of opacity 1 at each time.
fn multigroup(
    run: &Run,
    references: &References,
    file: &mut dyn FnMut(String) -> PathBuf,
) -> Result<(), Error> {
    let cases = references.multigroup.as_ref().map_or(&[][..], |reference| &reference.cases);
    let x = run.depths(0);
    for (output, &tau) in run.times.iter().enumerate() {
        let case = cases.iter().find(|c| same(tau, c.tau));
        let mut series: Vec<Series> = run
            .problem
            .groups
            .kappa
            .iter()
            .enumerate()
            .map(|(g, kappa)| Series {
                label: format!("kappa = {kappa:.3}"),
                line: pairs(&x, run.u(output, 0, g)),
                points: case.map(|c| pairs(&c.x, &c.group(g))).unwrap_or_default(),
            })
            .collect();
        series.push(Series {
            label: "matter V".to_owned(),
            line: pairs(&x, run.v(output, 0)),
            points: case.map(|c| pairs(&c.x, &c.v)).unwrap_or_default(),
        });
        lines(
            &file(format!("multigroup_tau{tau}.svg")),
            &format!("Multigroup wave at tau = {tau}: lines computed, circles reference"),
            &axis("x, in mean free paths of the mean emission opacity / sqrt 3", 0.05..60.0),
            &axis("radiation U of each group", 1e-6..1.0),
            &series,
        )?;
    }
    Ok(())
}

/// Draws the temperatures of radiation and matter at the last time, and the opacities.
fn plane(run: &Run, file: &mut dyn FnMut(String) -> PathBuf) -> Result<(), Error> {
    let domain = &run.problem.domains[0];
    let (x, y) = (domain.mesh.faces(0), domain.mesh.faces(1));
    let quarter = |value: f64| value.max(0.0).powf(0.25);
    let contrast = domain.opacity.iter().any(|&chi| chi != domain.opacity[0]);
    let outlines = if contrast { outlines(y[y.len() - 1]) } else { Vec::new() };
    let mut map = |name: String, title: &str, value_label: &str, values: Vec<f64>, log: bool| {
        let map = Map {
            title,
            x_label: "x",
            y_label: "y",
            value_label,
            x: &x,
            y: &y,
            values: &values,
            log,
            outlines: &outlines,
        };
        heat_map(&file(name), &map)
    };
    map("2d_opacity.svg".to_owned(), "Clouds", "opacity", domain.opacity.clone(), true)?;
    for (output, &tau) in run.times.iter().enumerate() {
        let matter: Vec<f64> = run.v(output, 0).iter().map(|&v| quarter(v)).collect();
        map(
            format!("2d_matter_tau{tau}.svg"),
            &format!("Temperature of matter at tau = {tau}"),
            "T / T of the source",
            matter,
            false,
        )?;
    }
    let Some(last) = run.times.len().checked_sub(1) else { return Ok(()) };
    let all = (0..run.problem.cells())
        .map(|cell| quarter((0..run.problem.groups.len()).map(|g| run.u(last, 0, g)[cell]).sum()));
    let title = format!("Temperature of radiation at tau = {}", run.times[last]);
    map("2d_radiation.svg".to_owned(), &title, "T / T of the source", all.collect(), false)
}
