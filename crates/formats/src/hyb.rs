//! Hybrid format: the regular part of each row in ELL, the rest in COO.

use std::sync::Arc;

use crate::error::{check_i32, check_len};
use crate::{CooPattern, EllPattern, FormatError, Matrix, Pattern, Scalar};

/// The sparsity pattern of a HYB matrix: an ELL part and a COO part of the same shape. The value
/// array holds the slots of the ELL part first, then the entries of the COO part.
///
/// Invariants, all enforced by [`HybPattern::try_new`]:
/// 1. Both parts have the same dimensions.
/// 2. A row has entries in the COO part only if all its ELL slots are taken; they lie to the right
///    of its last ELL column.
///
/// Source: Bell and Garland 2009 (doi 10.1145/1654059.1654078), HYB.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HybPattern {
    ell: EllPattern,
    coo: CooPattern,
}

/// A matrix in hybrid format.
pub type Hyb<T> = Matrix<HybPattern, T>;

impl HybPattern {
    /// Joins two validated parts.
    ///
    /// # Errors
    /// [`FormatError::Length`] when the dimensions differ, [`FormatError::NotAscending`] when a
    /// COO entry does not follow a full ELL row, [`FormatError::TooLarge`] when the slots exceed
    /// `i32`.
    pub fn try_new(ell: EllPattern, coo: CooPattern) -> Result<Self, FormatError> {
        check_len("rows of the COO part", ell.nrows(), coo.nrows())?;
        check_len("columns of the COO part", ell.ncols(), coo.ncols())?;
        check_i32("stored_len", ell.stored_len() + coo.stored_len())?;
        for (position, (&row, &col)) in coo.row_idx().iter().zip(coo.col_idx()).enumerate() {
            let Some(last_slot) = ell.width().checked_sub(1) else {
                break;
            };
            let last = ell.col_idx()[last_slot * ell.nrows() + row as usize];
            if last < 0 || col <= last {
                return Err(FormatError::NotAscending {
                    what: "col_idx of the COO part",
                    position,
                    previous: i64::from(last),
                    found: i64::from(col),
                });
            }
        }
        Ok(Self { ell, coo })
    }

    /// Skips validation: the parts fit together by construction.
    pub(crate) fn new_unvalidated(ell: EllPattern, coo: CooPattern) -> Self {
        debug_assert!(Self::try_new(ell.clone(), coo.clone()).is_ok());
        Self { ell, coo }
    }

    /// The ELL part.
    pub fn ell(&self) -> &EllPattern {
        &self.ell
    }

    /// The COO part.
    pub fn coo(&self) -> &CooPattern {
        &self.coo
    }
}

impl Pattern for HybPattern {
    type Ref<'a> = &'a Self;
    const NAME: &'static str = "hyb";

    fn view(&self) -> &Self {
        self
    }
    fn nrows(&self) -> usize {
        self.ell.nrows()
    }
    fn ncols(&self) -> usize {
        self.ell.ncols()
    }
    fn nnz(&self) -> usize {
        self.ell.nnz() + self.coo.nnz()
    }
    fn stored_len(&self) -> usize {
        self.ell.stored_len() + self.coo.stored_len()
    }
    fn index_bytes(&self) -> usize {
        self.ell.index_bytes() + self.coo.index_bytes()
    }
}

impl<T: Scalar> Hyb<T> {
    /// Joins two validated parts and the values, those of the ELL slots first.
    ///
    /// # Errors
    /// Those of [`HybPattern::try_new`], and [`FormatError::Length`] when `values` does not hold
    /// one value per slot.
    pub fn try_new(ell: EllPattern, coo: CooPattern, values: Vec<T>) -> Result<Self, FormatError> {
        Self::from_parts(Arc::new(HybPattern::try_new(ell, coo)?), values)
    }
}
