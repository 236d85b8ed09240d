//! The problem: rays or planes, groups, opacities; and the conductances of its faces.
//!
//! ```text
//! eps dU_g/dtau = div(D_g grad U_g) + kappa_g (w_g V - U_g)         D_g = 3 lambda(R_g) / kappa_g
//! dV/dtau       = sum_g kappa_g (U_g - w_g V)
//! U_g - (2/sqrt 3) D_g dU_g/dx = w_g  at x = 0,  no flux through the other sides
//! ```
//!
//! in the units of Su and Olson 1996 (JQSRT 56, 337): lengths are `sqrt(3) kappa_0 z`, times
//! `eps c kappa_0 t`, opacities relative to `kappa_0`. Without a limiter `lambda = 1/3`; one group
//! with `w = 1` is their grey wave.

use super::error::{Error, positive};
use super::mesh::{Mesh, Topology};

/// Frequency groups.
#[derive(Clone, Debug)]
pub struct Groups {
    /// Opacity of each group, relative to the reference opacity.
    pub kappa: Vec<f64>,
    /// Share of each group in the emission of matter and in the incoming light.
    pub weight: Vec<f64>,
}

impl Groups {
    /// Makes groups with these opacities and shares.
    ///
    /// # Errors
    /// [`Error::Input`] without groups, when the two arrays differ in length or a value is not
    /// positive.
    pub(crate) fn try_new(kappa: Vec<f64>, weight: Vec<f64>) -> Result<Self, Error> {
        if kappa.is_empty() {
            return Err(Error::input("there are 0 groups, expected at least 1"));
        }
        if kappa.len() != weight.len() {
            return Err(Error::input(format!(
                "there are {} opacities and {} shares of groups, expected as many",
                kappa.len(),
                weight.len()
            )));
        }
        for (group, (&kappa, &weight)) in kappa.iter().zip(&weight).enumerate() {
            positive(&format!("the opacity of group {group}"), kappa)?;
            positive(&format!("the share of group {group}"), weight)?;
        }
        Ok(Self { kappa, weight })
    }

    /// The one group of a grey problem.
    pub(crate) fn grey() -> Self {
        Self { kappa: vec![1.0], weight: vec![1.0] }
    }

    /// `n` groups with opacities in geometric progression over two decades, and bell-shaped shares,
    /// scaled so that the shares sum to 1 and the mean emission opacity `sum kappa w` is 1.
    ///
    /// # Errors
    /// [`Error::Input`] without groups.
    pub fn spread(n: usize) -> Result<Self, Error> {
        // The midpoints of n equal parts of [-1, 1].
        let place = |g: usize| (2.0 * g as f64 + 1.0) / n as f64 - 1.0;
        let mut kappa: Vec<f64> = (0..n).map(|g| 10f64.powf(place(g))).collect();
        let mut weight: Vec<f64> = (0..n).map(|g| (-2.0 * place(g).powi(2)).exp()).collect();
        let sum: f64 = weight.iter().sum();
        weight.iter_mut().for_each(|w| *w /= sum);
        let mean: f64 = kappa.iter().zip(&weight).map(|(kappa, w)| kappa * w).sum();
        kappa.iter_mut().for_each(|kappa| *kappa /= mean);
        Self::try_new(kappa, weight)
    }

    /// Number of groups.
    pub(crate) fn len(&self) -> usize {
        self.kappa.len()
    }
}

/// The flux limiter, which bounds the flux where the gradient is steep against the energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Limiter {
    /// Diffusion, `lambda = 1/3`.
    None,
    /// Levermore and Pomraning's rational form (1981, ApJ 248, 321, eq. 28):
    /// `lambda = (2 + R) / (6 + 3 R + R^2)`, `R = |grad E| / (kappa E)`.
    LevermorePomraning,
}

impl Limiter {
    /// `3 lambda(R)`: 1 in the diffusion limit, `3 / R` in free streaming.
    pub fn factor(self, r: f64) -> f64 {
        match self {
            Self::None => 1.0,
            // Numerator and denominator are divided by R, so that no square overflows.
            Self::LevermorePomraning if r > 1.0 => 3.0 * (2.0 / r + 1.0) / (6.0 / r + 3.0 + r),
            Self::LevermorePomraning => 3.0 * (2.0 + r) / (6.0 + 3.0 * r + r * r),
        }
    }
}

/// One ray or plane.
#[derive(Clone, Debug)]
pub struct Domain {
    /// The cells of the domain.
    pub mesh: Mesh,
    /// `eps`, four times the ratio of the heat capacities of radiation and matter.
    pub epsilon: f64,
    /// Factor of the opacity of every group, cell by cell.
    pub opacity: Vec<f64>,
}

/// A batch: domains of one shape, with the same groups.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The topology that all meshes share.
    pub topology: Topology,
    /// The groups of each domain.
    pub groups: Groups,
    /// The domains.
    pub domains: Vec<Domain>,
    /// The limiter of each domain.
    pub limiter: Limiter,
}

impl Problem {
    /// Joins domains of one shape.
    ///
    /// # Errors
    /// [`Error::Input`] without domains, when shapes differ, or an opacity or `eps` is not
    /// positive.
    pub(crate) fn try_new(
        groups: Groups,
        domains: Vec<Domain>,
        limiter: Limiter,
    ) -> Result<Self, Error> {
        let Some(first) = domains.first() else {
            return Err(Error::input("there are 0 rays, expected at least 1"));
        };
        let shape = first.mesh.shape();
        for (index, domain) in domains.iter().enumerate() {
            positive(&format!("epsilon of ray {index}"), domain.epsilon)?;
            if domain.mesh.shape() != shape || domain.opacity.len() != domain.mesh.cells() {
                return Err(Error::input(format!(
                    "ray {index} has {:?} cells and {} opacities, expected {shape:?} and one a cell",
                    domain.mesh.shape(),
                    domain.opacity.len()
                )));
            }
            for &opacity in &domain.opacity {
                positive(&format!("an opacity of ray {index}"), opacity)?;
            }
        }
        Ok(Self { topology: Topology::new(shape)?, groups, domains, limiter })
    }

    /// Number of systems of a batch: domains times groups, a domain's groups side by side.
    pub fn items(&self) -> usize {
        self.domains.len() * self.groups.len()
    }

    /// Number of cells of a domain.
    pub fn cells(&self) -> usize {
        self.topology.cells()
    }

    /// The domain and the group of a system.
    pub(crate) fn of_item(&self, item: usize) -> (&Domain, usize) {
        (&self.domains[item / self.groups.len()], item % self.groups.len())
    }

    /// Computes the conductances of a system: of the faces between cells, and of the left boundary,
    /// limited by the radiation `u` if there is a limiter.
    ///
    /// A face of area `A` between centres at a distance `d`, `t` optical depths apart, has
    /// conductance `3 lambda A / t`: this amounts to harmonic means of `1/kappa`, and a limiter
    /// from the face's own mean and gradient. A limiter evaluated in the cells would close the
    /// faces of cells that are still empty.
    pub fn conductances(&self, item: usize, u: &[f64], through: &mut [f64], left: &mut [f64]) {
        let (domain, group) = self.of_item(item);
        let kappa = |cell: usize| self.groups.kappa[group] * domain.opacity[cell];
        let mesh = &domain.mesh;
        let gradients = match self.limiter {
            Limiter::None => Vec::new(),
            Limiter::LevermorePomraning => self.gradients(mesh, u),
        };
        for (face, through) in self.topology.faces.iter().zip(through) {
            let (a, b) = (mesh.widths(face.a), mesh.widths(face.b));
            let (ha, hb) = (a[face.axis] / 2.0, b[face.axis] / 2.0);
            let area = a[1 - face.axis];
            let depth = kappa(face.a) * ha + kappa(face.b) * hb;
            let factor = match self.limiter {
                Limiter::None => 1.0,
                Limiter::LevermorePomraning => {
                    let (ua, ub) = (u[face.a], u[face.b]);
                    let along = (ub - ua) / (ha + hb);
                    let across = 1 - face.axis;
                    let across = (gradients[face.a][across] + gradients[face.b][across]) / 2.0;
                    // Without radiation nothing flows, so any limiter will do.
                    let mean = ((ua + ub) / 2.0).abs().max(f64::MIN_POSITIVE);
                    let mean_kappa = depth / (ha + hb);
                    let r = 3f64.sqrt() * along.hypot(across) / (mean_kappa * mean);
                    self.limiter.factor(r.min(1e30))
                }
            };
            *through = area * factor / depth;
        }
        for (j, left) in left.iter_mut().enumerate() {
            let cell = j * self.topology.nx;
            let [dx, dy] = mesh.widths(cell);
            *left = dy / (kappa(cell) * dx / 2.0 + 2.0 / 3f64.sqrt());
        }
    }

    /// Gradients in cells: along each axis the mean over the cell's interior faces.
    fn gradients(&self, mesh: &Mesh, u: &[f64]) -> Vec<[f64; 2]> {
        let mut sums = vec![[(0.0, 0u32); 2]; u.len()];
        for face in &self.topology.faces {
            let distance = (mesh.widths(face.a)[face.axis] + mesh.widths(face.b)[face.axis]) / 2.0;
            let gradient = (u[face.b] - u[face.a]) / distance;
            for cell in [face.a, face.b] {
                let (sum, count) = &mut sums[cell][face.axis];
                *sum += gradient;
                *count += 1;
            }
        }
        let mean = |(sum, count): (f64, u32)| sum / f64::from(count.max(1));
        sums.into_iter().map(|axes| axes.map(mean)).collect()
    }
}
