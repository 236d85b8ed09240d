//! What a plan reports about itself.

use std::fmt;
use std::time::Duration;

/// What a [`SpmvPlan`](crate::SpmvPlan) chose, why, and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Explain {
    /// The format: `"csr"`, `"coo"`, `"ell"`, `"dia"`, `"hyb"`, `"sellp"`.
    pub format: &'static str,
    /// The kernel: `"rows"`, `"csr-i"`, `"entries"`, `"blocks"`, `"runs"`, or `"interleaved"`.
    pub kernel: &'static str,
    /// Reason for the choice.
    pub why: String,
    /// Number of systems.
    pub nitems: usize,
    /// Rows of all systems.
    pub nrows: usize,
    /// Columns of all systems.
    pub ncols: usize,
    /// Stored entries of all systems, without padding; shared values counted once per system.
    pub nnz: usize,
    /// Value slots held, padding included; shared values counted once.
    pub stored_len: usize,
    /// Value slots held that hold no stored entry: padding and fill.
    pub padding: usize,
    /// Bytes that the plan holds.
    pub plan_bytes: usize,
    /// Bytes of values and indices that one product reads, each counted once, padding included.
    pub matrix_bytes: usize,
    /// Bytes that one product with `beta == 0` moves, each array counted once: those of the
    /// matrix, of `x` and of `y`.
    pub product_bytes: usize,
    /// Time spent on statistics, conversion and start rows.
    pub cost: Duration,
}

impl Explain {
    /// Cost of the plan in products of duration `product`.
    pub fn cost_in_products(&self, product: Duration) -> f64 {
        self.cost.as_secs_f64() / product.as_secs_f64()
    }

    /// The number of products after which the plan has paid for itself, against products of
    /// duration `baseline` that need no plan; `None` when its products are no faster.
    pub fn break_even(&self, product: Duration, baseline: Duration) -> Option<u64> {
        let gain = baseline.as_secs_f64() - product.as_secs_f64();
        (gain > 0.0).then(|| (self.cost.as_secs_f64() / gain).ceil() as u64)
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} by {}: {}; {} systems, {} entries, {} slots of padding, {} bytes held, \
             {} bytes a product, made in {:.3} ms",
            self.format,
            self.kernel,
            self.why,
            self.nitems,
            self.nnz,
            self.padding,
            self.plan_bytes,
            self.product_bytes,
            self.cost.as_secs_f64() * 1e3
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain() -> Explain {
        Explain {
            format: "sellp",
            kernel: "runs",
            why: "runs".to_owned(),
            nitems: 1,
            nrows: 10,
            ncols: 10,
            nnz: 30,
            stored_len: 32,
            padding: 2,
            plan_bytes: 400,
            matrix_bytes: 300,
            product_bytes: 460,
            cost: Duration::from_millis(50),
        }
    }

    #[test]
    fn break_even_is_cost_over_gain_rounded_up() {
        let ms = Duration::from_millis;

        assert_eq!(explain().break_even(ms(6), ms(10)), Some(13));
        assert_eq!(explain().break_even(ms(10), ms(10)), None);
        assert_eq!(explain().cost_in_products(ms(10)), 5.0);
    }

    #[test]
    fn display_is_one_line() {
        assert_eq!(
            explain().to_string(),
            "sellp by runs: runs; 1 systems, 30 entries, 2 slots of padding, 400 bytes held, \
             460 bytes a product, made in 50.000 ms"
        );
    }
}
