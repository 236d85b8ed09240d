//! Shapes of SELL-P.

use std::fmt;
use std::str::FromStr;

use sparsebatch_formats::convert::SellPOptions;
use sparsebatch_solve_core::{FormatChoice, KernelChoice, SpmvOptions};
use sparsebatch_spmv_gpu::{SingleKernel, SingleOptions};

use super::super::Size;
use crate::BenchError;

/// A shape of SELL-P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows per slice, b.
    pub slice_size: usize,
    /// Threads per row, t.
    pub threads_per_row: usize,
    /// Rows of the window within which rows are sorted by length, sigma.
    pub sort_window: Option<usize>,
}

impl Shape {
    /// The shape of the source: b = t = 8, not sorted.
    pub const SOURCE: Self = Self { slice_size: 8, threads_per_row: 8, sort_window: None };

    /// One thread per row in slices of a warp's 32 rows.
    pub const WARP: Self = Self { slice_size: 32, threads_per_row: 1, sort_window: None };

    /// All pairs of slice size and threads per row, not sorted, that make blocks of one to sixteen
    /// warps.
    fn grid(size: Size) -> Vec<Self> {
        let (slices, threads): (&[usize], &[usize]) = match size {
            Size::Small => (&[8, 32], &[1, 8]),
            Size::Paper => (&[8, 16, 32, 64, 128], &[1, 4, 8, 32]),
            Size::Full => (&[4, 8, 16, 32, 64, 128, 256], &[1, 2, 4, 8, 16, 32, 64]),
        };
        let mut shapes = vec![Self::SOURCE];
        for &slice_size in slices {
            for &threads_per_row in threads {
                let shape = Self { slice_size, threads_per_row, sort_window: None };
                if (32..=512).contains(&(slice_size * threads_per_row)) && shape != Self::SOURCE {
                    shapes.push(shape);
                }
            }
        }
        shapes
    }

    /// This shape with sort windows of growing size.
    fn windows(self, size: Size) -> Vec<Self> {
        let factors: &[usize] = match size {
            Size::Small => &[16],
            Size::Paper => &[16, 128, 1_024],
            Size::Full => &[2, 4, 16, 64, 128, 1_024, 16_384],
        };
        let sorted = |factor| Self { sort_window: Some(factor * self.slice_size), ..self };
        factors.iter().map(|&factor| sorted(factor)).collect()
    }

    /// The shapes of a size: the grid, then sort windows for [`Shape::SOURCE`] and [`Shape::WARP`].
    pub fn all(size: Size) -> Vec<Self> {
        let mut shapes = Self::grid(size);
        shapes.extend([Self::SOURCE, Self::WARP].into_iter().flat_map(|shape| shape.windows(size)));
        shapes
    }

    pub(super) fn options(self) -> SingleOptions {
        let Self { slice_size, threads_per_row, sort_window } = self;
        let base = SingleOptions::with_kernel(SingleKernel::SellP);
        base.slice_size(slice_size).threads_per_row(threads_per_row).sort_window(sort_window)
    }

    pub(super) fn slices(self) -> SellPOptions {
        let Self { slice_size, threads_per_row, sort_window } = self;
        SellPOptions::default()
            .slice_size(slice_size)
            .threads_per_row(threads_per_row)
            .sort_window(sort_window)
    }

    pub(super) fn on_host(self) -> SpmvOptions {
        SpmvOptions::default()
            .format(FormatChoice::SellP)
            .kernel(KernelChoice::Rows)
            .sellp(self.slices())
    }
}

/// `sell-p(b,t)` or `sell-p(b,t,sigma)`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slice_size: b, threads_per_row: t, sort_window } = self;
        match sort_window {
            None => f.pad(&format!("sell-p({b},{t})")),
            Some(sigma) => f.pad(&format!("sell-p({b},{t},{sigma})")),
        }
    }
}

impl FromStr for Shape {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let numbers = |text: &str| {
            let numbers: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
            match numbers.ok()?[..] {
                [b, t] if b > 0 && t > 0 => Some((b, t, None)),
                [b, t, sigma] if b > 0 && t > 0 && sigma > 0 => Some((b, t, Some(sigma))),
                _ => None,
            }
        };
        let found = numbers(text).map(|(slice_size, threads_per_row, sort_window)| Self {
            slice_size,
            threads_per_row,
            sort_window,
        });
        found.ok_or_else(|| BenchError::Option {
            option: "--shape",
            expected:
                "BxT or BxTxSIGMA like 8x8 or 32x1x512: rows of a slice, threads a row, rows \
                       of a window"
                    .to_owned(),
            found: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_and_shown() {
        let shape = |text: &str| text.parse::<Shape>();

        assert_eq!(shape("8x8").unwrap(), Shape::SOURCE);
        assert_eq!(shape("32x1x512").unwrap().to_string(), "sell-p(32,1,512)");
        for bad in ["8", "8x", "0x8", "8x8x0", "8x8x8x8", "x", "8,8"] {
            let error = shape(bad).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--shape is {bad}, expected BxT")), "{error}");
        }
    }

    #[test]
    fn shapes_differ_and_fit_into_a_block() {
        for size in [Size::Small, Size::Paper, Size::Full] {
            let all = Shape::all(size);

            assert_eq!(all[0], Shape::SOURCE);
            for (place, shape) in all.iter().enumerate() {
                assert!(!all[..place].contains(shape), "{shape} twice");
                assert!((32..=1_024).contains(&(shape.slice_size * shape.threads_per_row)));
                assert!(shape.sort_window.is_none_or(|sigma| sigma % shape.slice_size == 0));
            }
        }
    }
}
