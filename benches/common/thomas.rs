//! The Thomas algorithm for several tridiagonal systems side by side.
//!
//! With rows `l_r x_(r-1) + d_r x_r + u_r x_(r+1) = b_r`:
//!
//! 1. `c_0 = u_0 / d_0`, `g_0 = b_0 / d_0`
//! 2. `m = 1 / (d_r - l_r c_(r-1))`, `c_r = u_r m`, `g_r = (b_r - l_r g_(r-1)) m`
//! 3. `x_(n-1) = g_(n-1)`, then `x_r = g_r - c_r x_(r+1)`
//!
//! There is no pivoting, which the diagonally dominant family of the bench does not need.

/// Number of systems solved side by side.
pub(crate) const LANES: usize = 8;

/// `c` and `g`, row by row.
pub(crate) struct Workspace {
    c: Vec<[f64; LANES]>,
    g: Vec<[f64; LANES]>,
}

impl Workspace {
    pub(crate) fn new(nrows: usize) -> Self {
        Self { c: vec![[0.0; LANES]; nrows], g: vec![[0.0; LANES]; nrows] }
    }

    /// Solves up to [`LANES`] systems: values in CSR order, all item-major.
    pub(crate) fn solve(&mut self, values: &[f64], b: &[f64], x: &mut [f64]) {
        let n = self.c.len();
        let nnz = 3 * n - 2;
        let lanes = x.len() / n;
        let (mut c_before, mut g_before) = ([0.0; LANES], [0.0; LANES]);
        for row in 0..n {
            // Row 0 has no lower entry: its diagonal comes first.
            let diagonal = 3 * row;
            let (mut l, mut d, mut u) = ([0.0; LANES], [1.0; LANES], [0.0; LANES]);
            let mut g = [0.0; LANES];
            for lane in 0..lanes {
                let values = &values[lane * nnz..(lane + 1) * nnz];
                d[lane] = values[diagonal];
                if row > 0 {
                    l[lane] = values[diagonal - 1];
                }
                if row + 1 < n {
                    u[lane] = values[diagonal + 1];
                }
                g[lane] = b[lane * n + row];
            }
            for lane in 0..LANES {
                let m = 1.0 / (d[lane] - l[lane] * c_before[lane]);
                c_before[lane] = u[lane] * m;
                g_before[lane] = (g[lane] - l[lane] * g_before[lane]) * m;
            }
            self.c[row] = c_before;
            self.g[row] = g_before;
        }
        let mut after = [0.0; LANES];
        for row in (0..n).rev() {
            for ((after, g), c) in after.iter_mut().zip(&self.g[row]).zip(&self.c[row]) {
                *after = g - c * *after;
            }
            for (lane, &after) in after[..lanes].iter().enumerate() {
                x[lane * n + row] = after;
            }
        }
    }
}
