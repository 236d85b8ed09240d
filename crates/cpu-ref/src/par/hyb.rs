//! HYB: the ELL part by blocks of rows, then the COO part by equal parts of its entries.

use sparsebatch_formats::{CooPattern, EllPattern, HybPattern, Pattern, Scalar, View};

use super::ell::EllRows;
use super::multi::apply_rows;
use super::split::BalancedSplit;
use super::{EllAnalysis, ParSpmv, Schedule, coo};
use crate::CpuError;

/// How the two parts of a HYB product are shared between threads.
#[derive(Clone, Debug)]
pub struct HybAnalysis {
    ell: EllAnalysis,
    coo: BalancedSplit,
}

impl ParSpmv for HybPattern {
    type Analysis = HybAnalysis;

    fn analyse(pattern: &Self, schedule: Schedule) -> Result<HybAnalysis, CpuError> {
        Ok(HybAnalysis {
            ell: EllPattern::analyse(pattern.ell(), schedule)?,
            coo: CooPattern::analyse(pattern.coo(), schedule)?,
        })
    }

    fn analysis_bytes(analysis: &HybAnalysis) -> usize {
        analysis.ell.0.bytes() + analysis.coo.bytes()
    }

    fn apply<T: Scalar, const R: usize>(
        analysis: &HybAnalysis,
        alpha: T,
        a: View<'_, Self, T>,
        xs: [&[T]; R],
        beta: T,
        mut ys: [&mut [T]; R],
    ) {
        let (ell, coo) = (a.pattern().ell(), a.pattern().coo());
        let (ell_values, coo_values) = a.values().split_at(ell.stored_len());
        let kernel = EllRows { pattern: ell, values: ell_values };
        let first = ys.each_mut().map(|y| &mut **y);
        apply_rows(&kernel, &analysis.ell.0, alpha, xs, beta, first);
        if coo.nnz() > 0 {
            coo::apply_entries(&analysis.coo, alpha, coo, coo_values, xs, T::ONE, ys);
        }
    }
}
