//! Plots of a grid, as SVG: mass fractions against time, and maps of the end over the grid.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;
use sparsebatch::FormatError;
use sparsebatch::io::atomic_write;

use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::output::GridRun;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Mass fractions below this are not shown.
const LEAST: f64 = 1e-6;
/// Most curves of a plot.
const CURVES: usize = 14;
/// Number of nuclides with a map.
const PANELS: usize = 5;
const INK: RGBColor = RGBColor(40, 40, 45);
const FAINT: RGBColor = RGBColor(225, 225, 230);

/// Draws the curves of `chosen` zones (when empty, of the zone in the middle of each fuel's grid)
/// and the maps of every fuel into a folder; returns the files.
///
/// # Errors
/// [`BurningError::Setting`] for a zone that does not exist, [`BurningError::Write`] when a file
/// cannot be written.
pub fn draw(
    run: &GridRun<'_>,
    chosen: &[usize],
    folder: &Path,
) -> Result<Vec<PathBuf>, BurningError> {
    let nzones = run.zones.len();
    if let Some(zone) = chosen.iter().find(|zone| **zone >= nzones) {
        let problem = format!("--plot-zone: expected a zone below {nzones}, found {zone}");
        return Err(BurningError::Setting(problem));
    }
    let io = |source| FormatError::Io { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(io)?;
    let mut files = Vec::new();
    let fuels = &run.grid.fuels;
    let grids: Vec<Range<usize>> = (0..fuels.len()).map(|fuel| run.grid.of_fuel(fuel)).collect();
    let middle = |fuel: usize| {
        let (temperatures, densities) = run.grid.shape(fuel);
        let place = (densities / 2) * temperatures + temperatures / 2;
        grids[fuel].start + place.min(grids[fuel].len().saturating_sub(1))
    };
    let filled = (0..fuels.len()).filter(|&fuel| !grids[fuel].is_empty());
    let zones =
        if chosen.is_empty() { filled.clone().map(middle).collect() } else { chosen.to_vec() };
    for zone in zones {
        let path = folder.join(format!("abundances_zone{zone}.svg"));
        let size = (1000, if run.equations.gas().is_some() { 860 } else { 620 });
        files.push(write(path, size, |area| curves(area, run, zone))?);
    }
    for fuel in filled {
        let path = folder.join(format!("map_{}.svg", file_name(&fuels[fuel].name)));
        files.push(write(path, (1200, 760), |area| maps(area, run, fuel))?);
    }
    Ok(files)
}

/// A fuel's name made safe for a file name: nuclides have the names that a network file gives them.
fn file_name(fuel: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+');
    fuel.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}

fn write(
    path: PathBuf,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<PathBuf, BurningError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present());
        drawn.map_err(|error| BurningError::Plot(error.to_string()))?;
    }
    let io = |source| FormatError::Io { path: path.clone(), source };
    atomic_write(&path, |file| file.write_all(svg.as_bytes()).map_err(io))?;
    Ok(path)
}

/// Digits and minus as superscripts.
fn raised(number: &str) -> String {
    let raise = |c: char| match c {
        '-' => '\u{207b}',
        '1' => '\u{b9}',
        '2' => '\u{b2}',
        '3' => '\u{b3}',
        digit => char::from_u32(0x2070 + digit.to_digit(10).unwrap_or(0)).unwrap_or(digit),
    };
    number.chars().map(raise).collect()
}

/// The usual notation of a nuclide: ²⁸Si for `si28`.
fn written(name: &str) -> String {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let mass = &name[letters.len()..];
    if mass.is_empty() {
        return letters.to_owned();
    }
    let mut letters = letters.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    raised(mass).chars().chain(first).chain(letters).collect()
}

/// A power of ten as text, such as 10⁵.
fn power_of_ten(exponent: f64) -> String {
    format!("10{}", raised(&(exponent.round() as i64).to_string()))
}

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// The colour with index `k` of `count`, distinct from its neighbours'.
fn hue(k: usize, count: usize) -> RGBColor {
    let lightness = if k.is_multiple_of(2) { 0.42 } else { 0.56 };
    let (r, g, b) =
        HSLColor(0.92 * k as f64 / count.max(1) as f64, 0.72, lightness).to_backend_color().rgb;
    RGBColor(r, g, b)
}

/// Mass fractions against time in one zone, and below them the temperature of self-heating runs.
fn curves(area: &Area<'_>, run: &GridRun<'_>, zone: usize) -> Drawn {
    let network = run.equations.network();
    let fuel = run.fuels().nth(zone).map_or("", |fuel| &run.grid.fuels[fuel].name);
    let (t9, rho) = (run.zones.t9[zone], run.zones.rho[zone]);
    let title = format!("Burning of {fuel}, T = {t9:.2} GK, rho = {rho:.2e} g/cm\u{b3}");
    area.draw(&Text::new(title, (70, 14), text(22)))?;
    let below = format!("{}, {} nuclides; zone {zone}", network.name, network.nuclides.len());
    area.draw(&Text::new(below, (70, 42), text(14)))?;
    let (_, body) = area.split_vertically(60);
    let (_, height) = body.dim_in_pixel();
    let heated = run.equations.gas().is_some();
    let (upper, lower) = body.split_vertically(if heated { height - 240 } else { height });
    abundances(&upper, run, zone)?;
    if heated {
        temperature(&lower, run, zone)?;
    }
    Ok(())
}

/// The mass fraction of a nuclide in a state.
fn mass_fraction(run: &GridRun<'_>, nuclide: usize, state: &[f64]) -> f64 {
    f64::from(run.equations.network().nuclides[nuclide].a) * state[nuclide]
}

/// The nuclides that reach the largest mass fractions in some states, in the order of the network.
fn most_abundant(run: &GridRun<'_>, states: &[&[f64]]) -> Vec<usize> {
    let peak =
        |i: usize| states.iter().map(|state| mass_fraction(run, i, state)).fold(0.0, f64::max);
    let nuclides = 0..run.equations.network().nuclides.len();
    let mut most: Vec<usize> = nuclides.filter(|&i| peak(i) > 10.0 * LEAST).collect();
    most.sort_by(|&a, &b| peak(b).total_cmp(&peak(a)));
    most.truncate(CURVES);
    most.sort_unstable();
    most
}

/// The first and the last time of a zone.
fn span(times: &[f64]) -> Range<f64> {
    times[0]..times[times.len() - 1]
}

/// The mass fractions of the most abundant nuclides of a zone against time, with a legend.
fn abundances(area: &Area<'_>, run: &GridRun<'_>, zone: usize) -> Drawn {
    let times = &run.zones.times[zone];
    let states: Vec<&[f64]> = run.states(zone).collect();
    let shown = most_abundant(run, &states);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(110)
        .set_label_area_size(LabelAreaPosition::Left, 70)
        .set_label_area_size(LabelAreaPosition::Bottom, 52)
        .build_cartesian_2d(span(times).log_scale(), (LEAST..1.5).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(text(14))
        .axis_desc_style(text(16))
        .x_desc("time [s]")
        .y_desc("mass fraction")
        .x_label_formatter(&|t| power_of_ten(t.log10()))
        .y_label_formatter(&|x| power_of_ten(x.log10()))
        .draw()?;
    let (width, _) = area.dim_in_pixel();
    let x = width as i32 - 100;
    for (k, &i) in shown.iter().enumerate() {
        let style = hue(k, shown.len()).stroke_width(2);
        let values = states.iter().map(|state| mass_fraction(run, i, state));
        for piece in pieces(times, values, LEAST) {
            chart.draw_series(std::iter::once(PathElement::new(piece, style)))?;
        }
        let y = 20 + 26 * k as i32;
        area.draw(&PathElement::new(vec![(x, y + 8), (x + 26, y + 8)], style.stroke_width(3)))?;
        let name = written(&run.equations.network().nuclides[i].name);
        area.draw(&Text::new(name, (x + 34, y), text(16)))?;
    }
    Ok(())
}

/// The temperature of a zone of a self-heating run against time.
fn temperature(area: &Area<'_>, run: &GridRun<'_>, zone: usize) -> Drawn {
    let (times, t9) = (&run.zones.times[zone], run.zones.t9[zone]);
    let t9s: Vec<f64> = run.states(zone).filter_map(|state| state.last().copied()).collect();
    let (low, high) = t9s.iter().fold((t9, t9), |(l, h), &t| (l.min(t), h.max(t)));
    let slack = 0.05 * (high - low).max(0.1);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(110)
        .set_label_area_size(LabelAreaPosition::Left, 70)
        .set_label_area_size(LabelAreaPosition::Bottom, 52)
        .build_cartesian_2d(span(times).log_scale(), low - slack..high + slack)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(text(14))
        .axis_desc_style(text(16))
        .x_desc("time [s]")
        .y_desc("temperature [GK]")
        .x_label_formatter(&|t| power_of_ten(t.log10()))
        .y_label_formatter(&|t9| format!("{t9:.2}"))
        .draw()?;
    let path: Vec<(f64, f64)> = times.iter().copied().zip(t9s).collect();
    let style = RGBColor(190, 40, 40).stroke_width(2);
    chart.draw_series(std::iter::once(PathElement::new(path, style)))?;
    Ok(())
}

/// The parts of a curve that lie above `least`.
fn pieces(times: &[f64], values: impl Iterator<Item = f64>, least: f64) -> Vec<Vec<(f64, f64)>> {
    let mut pieces = vec![Vec::new()];
    for (&t, value) in times.iter().zip(values) {
        if value >= least {
            pieces.last_mut().expect("there is one").push((t, value));
        } else if pieces.last().is_some_and(|piece| !piece.is_empty()) {
            pieces.push(Vec::new());
        }
    }
    pieces.retain(|piece| piece.len() > 1);
    pieces
}

/// The state at the end over temperature and density: the most abundant nuclides, and the energy.
fn maps(area: &Area<'_>, run: &GridRun<'_>, fuel: usize) -> Drawn {
    let nuclides = &run.equations.network().nuclides;
    let zones = run.grid.of_fuel(fuel);
    let last = |zone: usize| run.states(zone).last();
    let mass =
        |i: usize, zone: usize| last(zone).map_or(f64::NAN, |state| mass_fraction(run, i, state));
    // Selects the nuclides with the most mass, summed over all zones.
    let sum =
        |i: usize| zones.clone().map(|zone| mass(i, zone)).filter(|x| x.is_finite()).sum::<f64>();
    let mut order: Vec<usize> = (0..nuclides.len()).collect();
    order.sort_by(|&a, &b| sum(b).total_cmp(&sum(a)));
    order.truncate(PANELS);
    order.sort_unstable();
    let end = run.zones.times[zones.start].last().copied().unwrap_or(0.0);
    let title = format!(
        "{} after {end} s: final mass fractions and energy released",
        run.grid.fuels[fuel].name
    );
    let mut title = title.chars();
    let title: String =
        title.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(title).collect();
    area.draw(&Text::new(title, (30, 14), text(22)))?;
    let (_, body) = area.split_vertically(48);
    let panels = body.split_evenly((2, 3));
    for (panel, &i) in panels.iter().zip(&order) {
        let values = zones.clone().map(|zone| mass(i, zone).max(LEAST).log10()).collect();
        let name = format!("mass fraction of {}", written(&nuclides[i].name));
        let scale = Scale { range: LEAST.log10()..0.0, label: &|v| power_of_ten(v), name };
        map(panel, run, fuel, values, &scale)?;
    }
    let energy: Vec<f64> = zones
        .clone()
        .map(|zone| last(zone).map_or(f64::NAN, |state| run.energy(zone, state) / 1e18))
        .collect();
    let finite = || energy.iter().copied().filter(|e| e.is_finite());
    let (low, high) =
        (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let range = if low < high { low..high } else { low - 0.5..low + 0.5 };
    let name = "energy released [10\u{b9}\u{2078} erg/g]".to_owned();
    let scale = Scale { range, label: &|v| format!("{v:.1}"), name };
    map(&panels[order.len()], run, fuel, energy, &scale)
}

/// The colour scale of a map.
struct Scale<'a> {
    name: String,
    range: Range<f64>,
    label: &'a dyn Fn(f64) -> String,
}

/// A value of every cell of a fuel's grid as a colour, over temperature and density.
fn map(
    area: &Area<'_>,
    run: &GridRun<'_>,
    fuel: usize,
    values: Vec<f64>,
    scale: &Scale<'_>,
) -> Drawn {
    let grid = run.grid;
    let (temperatures, densities) = grid.shape(fuel);
    let logs = grid.rho.0.log10()..grid.rho.1.log10();
    // Cells are centred on their values; a single cell has some width, too.
    let width = |range: &Range<f64>, cells: usize| {
        if cells > 1 && range.start < range.end {
            (range.end - range.start) / (cells - 1) as f64
        } else {
            (range.end - range.start).max(1.0)
        }
    };
    let t9 = grid.t9.0..grid.t9.1;
    let (dt, dr) = (width(&t9, temperatures) / 2.0, width(&logs, densities) / 2.0);
    let middle = |range: &Range<f64>, cells: usize| {
        if cells > 1 {
            range.clone()
        } else {
            let m = (range.start + range.end) / 2.0;
            m..m
        }
    };
    let (x, y) = (middle(&t9, temperatures), middle(&logs, densities));
    area.draw(&Text::new(scale.name.clone(), (62, 4), text(16)))?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(28)
        .margin_right(72)
        .set_label_area_size(LabelAreaPosition::Left, 60)
        .set_label_area_size(LabelAreaPosition::Bottom, 46)
        .build_cartesian_2d(x.start - dt..x.end + dt, y.start - dr..y.end + dr)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .axis_style(INK)
        .label_style(text(13))
        .axis_desc_style(text(14))
        .x_labels(6)
        .y_labels(5)
        .x_desc("T [GK]")
        .y_desc("density [g/cm\u{b3}]")
        .x_label_formatter(&|t9| format!("{t9:.0}"))
        .y_label_formatter(&|log| power_of_ten(*log))
        .draw()?;
    let part = |value: f64| (value - scale.range.start) / (scale.range.end - scale.range.start);
    for (place, &value) in values.iter().enumerate() {
        let (t9, rho) = grid.state(fuel, place);
        let log = rho.log10();
        let colour = if value.is_finite() { viridis(part(value)) } else { RGBColor(200, 200, 200) };
        let corners = [(t9 - dt, log - dr), (t9 + dt, log + dr)];
        chart.draw_series(std::iter::once(Rectangle::new(corners, colour.filled())))?;
    }
    colour_bar(area, scale)
}

/// The colours of a scale with their values, at the right edge of a map.
fn colour_bar(area: &Area<'_>, scale: &Scale<'_>) -> Drawn {
    let (width, height) = area.dim_in_pixel();
    let (x, top, bottom) = (width as i32 - 62, 30, height as i32 - 48);
    for y in top..bottom {
        let colour = viridis(f64::from(bottom - y) / f64::from(bottom - top));
        area.draw(&Rectangle::new([(x, y), (x + 14, y + 1)], colour.filled()))?;
    }
    for k in 0..=3 {
        let share = f64::from(k) / 3.0;
        let value = scale.range.start + share * (scale.range.end - scale.range.start);
        let y = bottom - (share * f64::from(bottom - top)) as i32;
        area.draw(&Text::new((scale.label)(value), (x + 19, y - 7), text(13)))?;
    }
    Ok(())
}

/// The colour map viridis (Smith and van der Walt 2015, CC0), given at eleven points.
fn viridis(part: f64) -> RGBColor {
    const TENTHS: [(u8, u8, u8); 11] = [
        (68, 1, 84),
        (72, 36, 117),
        (65, 68, 135),
        (53, 95, 141),
        (42, 120, 142),
        (33, 145, 140),
        (34, 168, 132),
        (68, 191, 112),
        (122, 209, 81),
        (189, 223, 38),
        (253, 231, 37),
    ];
    let place = 10.0 * part.clamp(0.0, 1.0);
    let low = (place as usize).min(9);
    let share = place - low as f64;
    let mix = |a: u8, b: u8| (f64::from(a) + share * (f64::from(b) - f64::from(a))).round() as u8;
    let (a, b) = (TENTHS[low], TENTHS[low + 1]);
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}
