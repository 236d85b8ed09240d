//! Repeated products: how one is computed ([`SpmvOptions`]), and its cost ([`ProductCost`]).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sparsebatch_formats::Layout;
use sparsebatch_formats::convert::{
    DEFAULT_MAX_FILL, DiaOptions, EllOptions, HybOptions, SellPOptions,
};

use crate::ArgumentError;
use crate::named::named;

/// The format in which a plan keeps the matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FormatChoice {
    /// Chosen by the documented rule of a plan.
    #[default]
    Auto,
    /// Compressed sparse rows.
    Csr,
    /// Coordinates.
    Coo,
    /// ELLPACK.
    Ell,
    /// Diagonals. A diagonal with fill has a bit mask over its rows, which products read as well.
    Dia,
    /// ELLPACK and coordinates.
    Hyb,
    /// Slices of rows.
    SellP,
}
named!(FormatChoice, "format", Auto => "auto", Csr => "csr", Coo => "coo", Ell => "ell",
       Dia => "dia", Hyb => "hyb", SellP => "sellp");

/// The kernel by which a plan multiplies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelChoice {
    /// The fastest of the format.
    #[default]
    Auto,
    /// Whole rows, in the format's own layout (CSR, ELL, DIA, SELL-P; HYB's ELL part).
    Rows,
    /// CSR only: equal parts of the entries, with carried sums
    /// (`BalancedSplit`). Wins where single rows hold a good part of
    /// all entries.
    CsrI,
    /// COO only: as `CsrI`, over coordinates.
    Entries,
    /// DIA of a single matrix: values in blocks of 512 rows, diagonal after diagonal.
    Blocks,
    /// SELL-P of a single matrix: slices of 8 rows, one column per run of 8 consecutive ones.
    Runs,
}
named!(KernelChoice, "kernel", Auto => "auto", Rows => "rows", CsrI => "csr-i",
       Entries => "entries", Blocks => "blocks", Runs => "runs");

/// The choices of a plan of products.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SpmvOptions {
    /// The format.
    pub format: FormatChoice,
    /// The kernel; it has to belong to the format.
    pub kernel: KernelChoice,
    /// Right-hand sides per system, at least 1.
    pub nrhs: usize,
    /// Layout of the vectors of a batch; `Interleaved` for uniform batches only.
    pub layout: Layout,
    /// Parts of CSR-I and COO, 1 to 256; one per 32,768 entries and rows by default. The order of
    /// the sums of rows that straddle parts depends on it.
    pub parts: Option<usize>,
    /// Stored slots per entry above which a format is refused.
    pub max_fill: f64,
    /// The split of HYB.
    pub hyb: HybOptions,
    /// The slices of SELL-P under the kernel `Rows`.
    pub sellp: SellPOptions,
}

sparsebatch_formats::option_setters! {
    SpmvOptions {
        format: FormatChoice,
        kernel: KernelChoice,
        nrhs: usize,
        layout: Layout,
        parts: Option<usize>,
        max_fill: f64,
        hyb: HybOptions,
        sellp: SellPOptions,
    }
}

impl Default for SpmvOptions {
    fn default() -> Self {
        Self {
            format: FormatChoice::Auto,
            kernel: KernelChoice::Auto,
            nrhs: 1,
            layout: Layout::ItemMajor,
            parts: None,
            max_fill: DEFAULT_MAX_FILL,
            hyb: HybOptions::default(),
            sellp: SellPOptions::default().threads_per_row(1),
        }
    }
}

impl SpmvOptions {
    /// The options of a conversion to ELL.
    pub fn ell_options(&self) -> EllOptions {
        EllOptions { max_fill: self.max_fill }
    }

    /// The options of a conversion to DIA.
    pub fn dia_options(&self) -> DiaOptions {
        DiaOptions { max_fill: self.max_fill }
    }

    /// The options of a conversion to HYB.
    pub fn hyb_options(&self) -> HybOptions {
        self.hyb.clone().max_fill(self.max_fill)
    }

    /// The options of a conversion to SELL-P.
    pub fn sellp_options(&self) -> SellPOptions {
        self.sellp.clone().max_fill(self.max_fill)
    }
}

/// The cost of the products of a composed solve, which shows whether its plan was worth making.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProductCost {
    /// Batched products done.
    pub products: u64,
    /// Time in products, in total.
    pub product_time: Duration,
    /// Time of the SpMV plan's analysis and conversion.
    pub plan_time: Duration,
    /// Products after which the plan's cost is below one per cent of the time spent in products.
    pub break_even_products: u64,
    /// Share of the whole solve spent in products, 0 to 1.
    pub share_of_solve: f64,
}

impl ProductCost {
    /// The cost of `products` products of a plan; the share of the solve is set later.
    pub fn new(products: u64, product_time: Duration, plan_time: Duration) -> Self {
        let per_product = product_time.as_secs_f64() / products.max(1) as f64;
        let break_even = 100.0 * plan_time.as_secs_f64() / per_product;
        Self {
            products,
            product_time,
            plan_time,
            break_even_products: if per_product > 0.0 { break_even.ceil() as u64 } else { 0 },
            share_of_solve: 0.0,
        }
    }

    /// The cost of the parts of a batch together, where some have one.
    pub fn together(parts: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        parts.into_iter().flatten().reduce(|one, other| one.beside(&other))
    }

    /// The cost as a share of the time of a solve.
    #[must_use]
    pub fn within(self, solve_time: Duration) -> Self {
        let share_of_solve = self.product_time.as_secs_f64() / solve_time.as_secs_f64();
        Self { share_of_solve, ..self }
    }

    /// The cost of two parts of a batch together; a product of both parts counts once.
    pub fn beside(&self, other: &Self) -> Self {
        Self::new(
            self.products.max(other.products),
            self.product_time + other.product_time,
            self.plan_time + other.plan_time,
        )
    }
}
