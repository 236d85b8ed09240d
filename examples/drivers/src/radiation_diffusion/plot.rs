//! Line plots with reference points and heat maps, as SVG.

use std::ops::Range;
use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use sparsebatch::FormatError;
use sparsebatch::io::atomic_write;
use std::io::Write;

use super::error::Error;

/// A curve, and the reference points that it should pass through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) line: Vec<(f64, f64)>,
    pub(crate) points: Vec<(f64, f64)>,
}

/// An axis. Values outside the range are cut off.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) range: Range<f64>,
    pub(crate) log: bool,
}

impl Axis {
    /// # Errors
    /// [`Error::Input`] for a range that is empty or not finite, or not positive on a log axis.
    fn check(&self) -> Result<(), Error> {
        let Range { start, end } = self.range;
        let sound = start.is_finite() && end.is_finite() && start < end;
        if sound && !(self.log && start <= 0.0) {
            return Ok(());
        }
        Err(Error::input(format!("the axis {:?} goes from {start} to {end}", self.label)))
    }

    /// The value clamped to the range, or `None` if it is not finite or a log axis cannot show it.
    fn clip(&self, value: f64) -> Option<f64> {
        let known = value.is_finite() && !(self.log && value <= 0.0);
        known.then(|| value.clamp(self.range.start, self.range.end))
    }
}

/// Distinct line colours, dark to light (viridis), without the palest.
fn colour(index: usize, of: usize) -> RGBColor {
    viridis(0.88 * index as f64 / (of.max(2) - 1) as f64)
}

/// The colour map viridis of matplotlib (CC0), given at ten points; `at` is in 0 to 1.
fn viridis(at: f64) -> RGBColor {
    map_colour(
        &[
            [68, 1, 84],
            [71, 40, 120],
            [62, 74, 137],
            [49, 104, 142],
            [38, 130, 142],
            [31, 158, 137],
            [53, 183, 121],
            [110, 206, 88],
            [181, 222, 43],
            [253, 231, 37],
        ],
        at,
    )
}

/// The colour map inferno of matplotlib (CC0), given at ten points; `at` is in 0 to 1.
fn inferno(at: f64) -> RGBColor {
    map_colour(
        &[
            [0, 0, 4],
            [27, 12, 65],
            [74, 12, 107],
            [120, 28, 109],
            [165, 44, 96],
            [207, 68, 70],
            [237, 105, 37],
            [251, 155, 6],
            [247, 209, 61],
            [252, 255, 164],
        ],
        at,
    )
}

fn map_colour(stops: &[[u8; 3]], at: f64) -> RGBColor {
    let at = at.clamp(0.0, 1.0) * (stops.len() - 1) as f64;
    let low = (at as usize).min(stops.len() - 2);
    let mix = |channel: usize| {
        let (a, b) = (f64::from(stops[low][channel]), f64::from(stops[low + 1][channel]));
        (a + (b - a) * (at - low as f64)).round() as u8
    };
    RGBColor(mix(0), mix(1), mix(2))
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn write(
    path: &Path,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<(), Error> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present());
        drawn.map_err(|error| Error::Internal(format!("{}: {error}", path.display())))?;
    }
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    Ok(atomic_write(path, |w| w.write_all(svg.as_bytes()).map_err(io))?)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws curves with their points, and a legend.
///
/// # Errors
/// [`Error::Input`] for an axis that is empty, or when the file cannot be written.
pub(crate) fn lines(
    path: &Path,
    title: &str,
    x: &Axis,
    y: &Axis,
    series: &[Series],
) -> Result<(), Error> {
    x.check()?;
    y.check()?;
    let (xr, yr) = (x.range.clone(), y.range.clone());
    write(path, (900, 620), |area| match (x.log, y.log) {
        (false, false) => draw_lines(area, title, (x, xr), (y, yr), series),
        (true, false) => draw_lines(area, title, (x, xr.log_scale()), (y, yr), series),
        (false, true) => draw_lines(area, title, (x, xr), (y, yr.log_scale()), series),
        (true, true) => draw_lines(area, title, (x, xr.log_scale()), (y, yr.log_scale()), series),
    })
}

fn draw_lines<X, Y>(
    area: &Area<'_>,
    title: &str,
    (x, x_range): (&Axis, X),
    (y, y_range): (&Axis, Y),
    series: &[Series],
) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(76)
        .build_cartesian_2d(x_range, y_range)?;
    let number = |axis: &Axis| {
        let log = axis.log;
        move |v: &f64| if log { format!("{v:e}") } else { format!("{}", (v * 1e6).round() / 1e6) }
    };
    chart
        .configure_mesh()
        .x_desc(x.label.as_str())
        .y_desc(y.label.as_str())
        .x_label_formatter(&number(x))
        .y_label_formatter(&number(y))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 17))
        .light_line_style(RGBColor(244, 244, 244))
        .bold_line_style(RGBColor(222, 222, 222))
        .draw()?;
    for (index, one) in series.iter().enumerate() {
        let colour = colour(index, series.len());
        let in_x = |&&(px, _): &&(f64, f64)| px >= x.range.start && px <= x.range.end;
        let curve: Vec<(f64, f64)> = one.line.iter().filter(in_x).copied().collect();
        let in_y = |at: usize| curve.get(at).is_some_and(|&(_, py)| y.range.contains(&py));
        // A curve is drawn up to the edge of the plot, not along it.
        let visible = |&at: &usize| in_y(at) || in_y(at + 1) || (at > 0 && in_y(at - 1));
        let line: Vec<(f64, f64)> = (0..curve.len())
            .filter(visible)
            .filter_map(|at| Some((curve[at].0, y.clip(curve[at].1)?)))
            .collect();
        let style = colour.stroke_width(2);
        chart
            .draw_series(std::iter::once(PathElement::new(line, style)))?
            .label(one.label.as_str())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 22, y)], style));
        let points = one.points.iter().filter(in_x).filter(|p| y.range.contains(&p.1));
        chart.draw_series(points.map(|&p| Circle::new(p, 4, style)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .margin(12)
        .label_font(("sans-serif", 14))
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(160, 160, 160))
        .draw()
}

/// A map over the cells of a rectangular mesh.
#[derive(Clone, Debug)]
pub(crate) struct Map<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a str,
    pub(crate) y_label: &'a str,
    pub(crate) value_label: &'a str,
    /// Positions of the faces along x and y, one more than cells.
    pub(crate) x: &'a [f64],
    pub(crate) y: &'a [f64],
    /// Value of cell `j * nx + i`; non-finite values stay white.
    pub(crate) values: &'a [f64],
    /// Whether colours follow the logarithm; values that are not positive have the lowest colour.
    pub(crate) log: bool,
    /// Lines over the map.
    pub(crate) outlines: &'a [Vec<(f64, f64)>],
}

/// Draws a map with its colour scale.
///
/// # Errors
/// [`Error::Input`] for a map without finite values, or when the file cannot be written.
pub(crate) fn heat_map(path: &Path, map: &Map<'_>) -> Result<(), Error> {
    let shown = |v: f64| if map.log { v.log10() } else { v };
    let usable = || map.values.iter().map(|&v| shown(v)).filter(|v| v.is_finite());
    let least = usable().reduce(f64::min);
    let (Some(low), Some(high)) = (least, usable().reduce(f64::max)) else {
        return Err(Error::input(format!("{}: nothing to draw", path.display())));
    };
    let high = if high > low { high } else { low + low.abs().max(1e-300) };
    let place = |v: f64| {
        if map.log && v <= 0.0 { Some(0.0) } else { Some((shown(v) - low) / (high - low)) }
            .filter(|at| at.is_finite())
    };
    let (nx, ny) = (map.x.len() - 1, map.y.len() - 1);
    write(path, (820, 700), |area| {
        let (left, right) = area.split_horizontally(690);
        let mut chart = ChartBuilder::on(&left)
            .caption(map.title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(60)
            .build_cartesian_2d(map.x[0]..map.x[nx], map.y[0]..map.y[ny])?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc(map.x_label)
            .y_desc(map.y_label)
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 17))
            .draw()?;
        let cells = (0..nx * ny).filter_map(|cell| {
            let (i, j) = (cell % nx, cell / nx);
            let colour = inferno(place(map.values[cell])?);
            let corners = [(map.x[i], map.y[j]), (map.x[i + 1], map.y[j + 1])];
            // The outline closes seams between neighbouring cells.
            Some([
                Rectangle::new(corners, colour.filled()),
                Rectangle::new(corners, colour.stroke_width(1)),
            ])
        });
        chart.draw_series(cells.flatten())?;
        let outline = |line: &Vec<(f64, f64)>| PathElement::new(line.clone(), WHITE.mix(0.6));
        chart.draw_series(map.outlines.iter().map(outline))?;

        let scale = if map.log { 10f64.powf(low)..10f64.powf(high) } else { low..high };
        let mut bar = ChartBuilder::on(&right);
        bar.margin(14).margin_top(48).margin_bottom(60).y_label_area_size(66);
        if map.log {
            draw_scale(&mut bar, map, scale.log_scale(), low..high)
        } else {
            draw_scale(&mut bar, map, scale, low..high)
        }
    })
}

fn draw_scale<Y>(
    bar: &mut ChartBuilder<'_, '_, SVGBackend<'_>>,
    map: &Map<'_>,
    scale: Y,
    Range { start, end }: Range<f64>,
) -> Drawn
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    const STEPS: usize = 128;
    let mut chart = bar.build_cartesian_2d(0.0..1.0, scale)?;
    let number = |v: &f64| if map.log { format!("{v:.0e}") } else { format!("{v:.3}") };
    chart
        .configure_mesh()
        .disable_mesh()
        .disable_x_axis()
        .y_desc(map.value_label)
        .y_label_formatter(&number)
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 16))
        .draw()?;
    let at = |step: usize| {
        let v = start + (end - start) * step as f64 / STEPS as f64;
        if map.log { 10f64.powf(v) } else { v }
    };
    chart.draw_series((0..STEPS).map(|step| {
        let colour = inferno((step as f64 + 0.5) / STEPS as f64);
        Rectangle::new([(0.0, at(step)), (1.0, at(step + 1))], colour.filled())
    }))?;
    Ok(())
}
