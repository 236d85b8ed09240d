//! A plan's choices and the cost of its products: [`ComposedExplain`], [`Amortisation`].

use std::fmt;
use std::time::Duration;

/// A plan's choices and its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComposedExplain {
    /// `cg` or `bicgstab`.
    pub method: &'static str,
    /// The storage format of the matrices: `packed`, or that of a flexible kernel.
    pub format: &'static str,
    /// The kernel of the products.
    pub product: &'static str,
    /// Why the fused solver does not take the systems, where [`solver_for`](crate::solver_for)
    /// asked it first.
    pub reason: Option<String>,
    /// Number of systems whose vectors are handled by 8 lanes, 32 lanes, a block, and several
    /// blocks.
    pub systems: [usize; 4],
    /// Number of products, and of other launches, in an iteration.
    pub launches: (usize, usize),
    /// Bytes on the device of the plan of the products.
    pub product_bytes: u64,
    /// Bytes of vectors, scalars, outcomes and limits on the device.
    pub workspace_bytes: u64,
}

impl ComposedExplain {
    /// A short name for the kernels of a solve.
    pub fn kernels(&self) -> String {
        format!("composed {} over {}", self.method, self.product)
    }
}

impl fmt::Display for ComposedExplain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [few, some, block, parts] = self.systems;
        let (products, others) = self.launches;
        write!(
            f,
            "{}: {products} products and {others} other launches an iteration; systems by 8 lanes {few}, \
             32 lanes {some}, a block {block}, several blocks {parts}; on the device {} bytes of the \
             plan of the products, {} of vectors, scalars, outcomes and limits",
            self.kernels(),
            self.product_bytes,
            self.workspace_bytes
        )
    }
}

/// Whether the plan of the products has paid for itself, against the baseline: a plan without
/// analysis, `batch-csr-scalar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amortisation {
    /// Time of analysis, conversion and packing, without compiling kernels.
    pub plan: Duration,
    /// Time of a product of all systems, measured now.
    pub product: Duration,
    /// Number of products done so far.
    pub products: u64,
    /// Time of the last solve.
    pub solve: Duration,
    /// Time of making the baseline plan.
    pub baseline_plan: Duration,
    /// Time of a product of the baseline.
    pub baseline_product: Duration,
}

impl Amortisation {
    /// Number of products after which the plan costs less than the baseline, its own cost included;
    /// `None` where its products are no faster.
    pub fn break_even_products(&self) -> Option<u64> {
        let gain =
            self.baseline_product.checked_sub(self.product).filter(|gain| !gain.is_zero())?;
        let cost = self.plan.saturating_sub(self.baseline_plan);
        Some(cost.as_nanos().div_ceil(gain.as_nanos()) as u64)
    }

    /// The plan's share of the time of plan and last solve, 0 to 1.
    pub fn share_of_plan(&self) -> f64 {
        let plan = self.plan.as_secs_f64();
        plan / (plan + self.solve.as_secs_f64()).max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_pays_by_what_each_product_gains() {
        let ms = Duration::from_millis;
        let amortisation = |product, baseline_product| Amortisation {
            plan: ms(50),
            product: ms(product),
            products: 9,
            solve: ms(150),
            baseline_plan: ms(8),
            baseline_product: ms(baseline_product),
        };

        assert_eq!(amortisation(6, 10).break_even_products(), Some(11));
        assert_eq!(amortisation(10, 10).break_even_products(), None);
        assert_eq!(amortisation(11, 10).break_even_products(), None);
        assert_eq!(amortisation(6, 10).share_of_plan(), 0.25);
    }
}
