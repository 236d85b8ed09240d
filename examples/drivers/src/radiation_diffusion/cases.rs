//! The three cases: batches of rays for the two waves with references, and a plane with clouds.

use super::error::{Error, positive};
use super::mesh::Mesh;
use super::problem::{Domain, Groups, Limiter, Problem};
use super::reference::{Multigroup, SuOlson};

/// Ratio of the widths of the last and the first cell of a ray: layers at the boundary are thin
/// enough for the start of the wave, and the domain long enough that the wave does not leave it.
const RATIO: f64 = 300.0;
/// The same ratio for multigroup rays, whose groups differ in opacity by a factor of 160.
const GROUPS_RATIO: f64 = 3000.0;

/// Opacities of rays that reproduce the reference in units of their own depth: a ray of opacity
/// `chi` at `(x, tau)` equals one of opacity 1 at `(chi x, chi tau)`.
const OPACITIES: [f64; 5] = [1.0, 0.1, 10.0, 0.3, 3.0];

/// The opacity of a ray: first those of [`OPACITIES`], then values in geometric progression from
/// 0.1 to 10.
pub(crate) fn opacity_of_ray(ray: usize, rays: usize) -> f64 {
    OPACITIES.get(ray).copied().unwrap_or_else(|| {
        let place = (ray - OPACITIES.len()) as f64 + 0.5;
        10f64.powf(2.0 * place / (rays - OPACITIES.len()) as f64 - 1.0)
    })
}

/// Most unknowns of a batch: 16 GiB for each vector of them.
const MAX_UNKNOWNS: usize = 1 << 31;

/// Refuses batches too large for memory, before any of it is allocated.
///
/// # Errors
/// [`Error::Input`], which states the numbers.
fn check_size(domains: usize, groups: usize, cells: [usize; 2]) -> Result<(), Error> {
    let unknowns = [groups, cells[0], cells[1]]
        .into_iter()
        .try_fold(domains, |product, factor| product.checked_mul(factor.max(1)));
    match unknowns {
        Some(unknowns) if unknowns <= MAX_UNKNOWNS => Ok(()),
        _ => Err(Error::input(format!(
            "the batch has {domains} x {groups} systems of {} x {} cells, expected at most \
             {MAX_UNKNOWNS} unknowns",
            cells[0], cells[1]
        ))),
    }
}

/// The description of rays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rays {
    /// Number of rays for each `eps`.
    pub(crate) number: usize,
    /// Number of cells of each ray.
    pub(crate) zones: usize,
    /// Length of each ray in its own optical depth; by default beyond the wave at the last time.
    pub(crate) length: Option<f64>,
    /// The last time.
    pub(crate) end: f64,
}

impl Rays {
    fn domain(&self, epsilon: f64, opacity: f64, depth: f64, ratio: f64) -> Result<Domain, Error> {
        positive("the opacity of a ray", opacity)?;
        let mesh = Mesh::ray(self.zones, self.length.unwrap_or(depth) / opacity, ratio)?;
        Ok(Domain { opacity: vec![opacity; mesh.cells()], mesh, epsilon })
    }
}

/// The grey wave: rays of several opacities for each `eps` of the reference.
///
/// # Errors
/// [`Error::Input`] without rays or cells, or for a domain that is not positive.
pub(crate) fn grey(reference: &SuOlson, rays: &Rays) -> Result<Problem, Error> {
    positive("the last time", rays.end)?;
    let epsilons = reference.epsilons();
    check_size(rays.number.saturating_mul(epsilons.len()), 1, [rays.zones, 1])?;
    let mut domains = Vec::new();
    for epsilon in epsilons {
        for ray in 0..rays.number {
            let opacity = opacity_of_ray(ray, rays.number);
            // At late times the wave spreads as sqrt(4 tau / (1 + eps)); it falls to 1e-8 at a
            // distance of 8 sqrt(tau). The references reach to a depth of 20.
            let depth = 25.0 + 8.0 * (opacity * rays.end).sqrt();
            domains.push(rays.domain(epsilon, opacity, depth, RATIO)?);
        }
    }
    Problem::try_new(Groups::grey(), domains, Limiter::None)
}

/// The multigroup wave: rays that equal the reference in its units, or in units scaled by 1 /
/// opacity.
///
/// # Errors
/// As [`grey`], and for groups that are not positive.
pub(crate) fn multigroup(reference: &Multigroup, rays: &Rays) -> Result<Problem, Error> {
    positive("the last time", rays.end)?;
    let groups = Groups::try_new(reference.kappa.clone(), reference.w.clone())?;
    check_size(rays.number, groups.len(), [rays.zones, 1])?;
    let thinnest = groups.kappa.iter().copied().fold(f64::INFINITY, f64::min);
    let domain = |ray: usize| {
        let opacity = opacity_of_ray(ray, rays.number);
        // The thinnest group spreads as sqrt(4 tau / (eps kappa)).
        let depth = 25.0 + 8.0 * (opacity * rays.end / (reference.epsilon * thinnest)).sqrt();
        rays.domain(reference.epsilon, opacity, depth, GROUPS_RATIO)
    };
    let domains = (0..rays.number).map(domain).collect::<Result<Vec<_>, _>>()?;
    Problem::try_new(groups, domains, Limiter::None)
}

/// The description of the plane.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// Cells along x and y.
    pub(crate) cells: [usize; 2],
    /// Lengths along x and y.
    pub(crate) lengths: [f64; 2],
    /// Frequency groups.
    pub(crate) groups: usize,
    /// `eps`.
    pub(crate) epsilon: f64,
    /// Ratio of the opacity of clouds to that between them; 1 for no clouds.
    pub(crate) contrast: f64,
    /// The limiter.
    pub(crate) limiter: Limiter,
}

/// Clouds: centre along x and y, and radius, as fractions of the width.
const CLOUDS: [[f64; 3]; 4] =
    [[0.35, 0.5, 0.14], [0.62, 0.22, 0.1], [0.65, 0.78, 0.12], [0.2, 0.12, 0.06]];

/// A plane lit from the left, with round clouds.
///
/// # Errors
/// [`Error::Input`] without cells or groups, or for a parameter that is not positive.
pub fn plane(plane: &Plane) -> Result<Problem, Error> {
    positive("the contrast of clouds", plane.contrast)?;
    check_size(1, plane.groups, plane.cells)?;
    let mesh = Mesh::rectangle(plane.cells, plane.lengths, 4.0)?;
    let width = plane.lengths[1];
    let mut opacity = Vec::with_capacity(mesh.cells());
    for y in mesh.centres(1) {
        for x in mesh.centres(0) {
            let depth: f64 = CLOUDS
                .iter()
                .map(|[cx, cy, radius]| {
                    let r = (x / width - cx).hypot(y / width - cy) / radius;
                    (-r.powi(6)).exp()
                })
                .sum();
            opacity.push(plane.contrast.powf(depth.min(1.0)));
        }
    }
    let domain = Domain { mesh, epsilon: plane.epsilon, opacity };
    Problem::try_new(Groups::spread(plane.groups)?, vec![domain], plane.limiter)
}

/// The outlines of the clouds as circles, in a plane of this width.
pub(crate) fn outlines(width: f64) -> Vec<Vec<(f64, f64)>> {
    let circle = |[cx, cy, radius]: &[f64; 3]| {
        let at = |k: usize| std::f64::consts::TAU * k as f64 / 72.0;
        let point = |k| (width * (cx + radius * at(k).cos()), width * (cy + radius * at(k).sin()));
        (0..=72).map(point).collect()
    };
    CLOUDS.iter().map(circle).collect()
}
