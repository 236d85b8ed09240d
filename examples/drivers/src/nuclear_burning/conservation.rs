//! Conservation of nucleons and charge: the drift of a run from them, and the projection back.

use crate::nuclear_burning::network::Network;

/// The conserved sums `sum A_i Y_i` and `sum Z_i Y_i` of a network: the vectors A and Z are left
/// null vectors of every Jacobian.
#[derive(Clone, Debug)]
pub struct Invariants {
    a: Vec<f64>,
    z: Vec<f64>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `sum_i p_i q_i w_i`.
fn dot3(p: &[f64], q: &[f64], w: &[f64]) -> f64 {
    p.iter().zip(q).zip(w).map(|((p, q), w)| p * q * w).sum()
}

impl Invariants {
    pub fn new(network: &Network) -> Self {
        let of = |number: fn(&crate::nuclear_burning::network::Nuclide) -> u32| {
            network.nuclides.iter().map(|nuclide| f64::from(number(nuclide))).collect()
        };
        Self { a: of(|nuclide| nuclide.a), z: of(|nuclide| nuclide.z) }
    }

    /// Relative changes of the sums of A Y and Z Y.
    pub fn drift(&self, start: &[f64], y: &[f64]) -> [f64; 2] {
        [&self.a, &self.z].map(|weights| {
            let (first, now) = (dot(weights, start), dot(weights, y));
            // A zone of neutrons only has zero charge: the change is absolute.
            if first == 0.0 { (now - first).abs() } else { ((now - first) / first).abs() }
        })
    }

    /// Restores the sums of `start` by changes proportional to the abundances: the result is, of
    /// all `y` with these sums, the one nearest in `sum (dY_i)^2 / |Y_i|`.
    pub fn project(&self, start: &[f64], y: &mut [f64]) {
        let lacking = |weights: &[f64]| {
            weights.iter().zip(start).zip(&*y).map(|((w, start), y)| w * (start - y)).sum::<f64>()
        };
        let size: Vec<f64> = y.iter().map(|y| y.abs()).collect();
        let (aa, az, zz) = (
            dot3(&self.a, &self.a, &size),
            dot3(&self.a, &self.z, &size),
            dot3(&self.z, &self.z, &size),
        );
        let (lack_a, lack_z) = (lacking(&self.a), lacking(&self.z));
        let determinant = aa * zz - az * az;
        // If Z is proportional to A, as in an alpha chain, both sums give the same condition.
        let (alpha, zeta) = if determinant > 1e-10 * aa * zz {
            ((zz * lack_a - az * lack_z) / determinant, (aa * lack_z - az * lack_a) / determinant)
        } else if aa > 0.0 {
            (lack_a / aa, 0.0)
        } else {
            return;
        };
        for ((y, size), (a, z)) in y.iter_mut().zip(&size).zip(self.a.iter().zip(&self.z)) {
            *y += size * (alpha * a + zeta * z);
        }
    }
}
