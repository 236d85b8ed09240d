//! Conversions between the six formats, by way of CSR; one file per target format.
//!
//! A pattern is converted once and yields a [`SlotMap`], which gives the slot of each CSR entry in
//! the other format; values, of one matrix or of a whole uniform batch, are then moved by the map.
//! All conversions keep every entry, explicit zeros included, bit for bit (NaN payloads too), with
//! one exception: a DIA pattern built by hand stores its fill like its entries, so converting a
//! [`Dia`] to any other format drops the slots whose value is zero.
//!
//! A target that would hold far more slots than entries is refused with
//! [`FormatError::Blowup`] before anything is allocated; see [`DEFAULT_MAX_FILL`].

mod batch;
mod coo;
mod csr;
mod dia;
mod ell;
mod hyb;
mod sellp;

pub use dia::{DiaOptions, dia_pattern, occupied_diagonals};
pub use ell::EllOptions;
pub use hyb::{HybOptions, HybWidth};
pub use sellp::SellPOptions;

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::check_i32;
use crate::{
    Coo, CooPattern, Csr, CsrPattern, CsrPatternRef, Dia, Ell, FormatError, Hyb, Matrix, Pattern,
    Scalar, SellP, View,
};

/// Slots per entry above which a conversion is refused: a target of ELL, DIA, HYB or SELL-P may
/// hold `max(MIN_SLOT_LIMIT, max_fill * nnz)` slots.
///
/// At 20 slots per entry, one f64 product reads more than ten times the bytes of CSR: beyond that
/// no kernel gains from the padded format.
pub const DEFAULT_MAX_FILL: f64 = 20.0;

/// Slots that every conversion may use whatever its fill: 1 Mi, at most 12 MiB in f64. This lets
/// small matrices convert into every format.
pub const MIN_SLOT_LIMIT: u128 = 1 << 20;

/// What a matrix would take in a format, known before anything is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageSize {
    /// Slots of the value array, padding included.
    pub stored_len: usize,
    /// Bytes of the index arrays.
    pub index_bytes: usize,
}

impl StorageSize {
    /// Bytes of indices and values of type `T`.
    pub fn bytes<T: Scalar>(self) -> usize {
        self.index_bytes + self.stored_len * size_of::<T>()
    }
}

/// The slot of each entry of a CSR matrix in the value array of another format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotMap {
    /// CSR entry `k` is in slot `k`.
    Identity,
    /// CSR entry `k` is in slot `slots[k]`; no slot occurs twice.
    Slots(Vec<u32>),
}

impl SlotMap {
    /// The slot of CSR entry `entry`.
    ///
    /// # Panics
    /// When there is no such entry.
    pub fn slot(&self, entry: usize) -> usize {
        match self {
            Self::Identity => entry,
            Self::Slots(slots) => slots[entry] as usize,
        }
    }

    /// Copies values in CSR order to their slots: `out[slot(k)] = entries[k]`, for blocks of
    /// `block` consecutive values each (1 for a matrix, `nitems` for an interleaved batch). Other
    /// slots of `out` are left as they are.
    ///
    /// # Panics
    /// When `out` lacks a slot or `block` is 0.
    pub fn scatter<T: Scalar>(&self, entries: &[T], block: usize, out: &mut [T]) {
        match self {
            Self::Identity => out.copy_from_slice(entries),
            Self::Slots(slots) if block == 1 => {
                for (&slot, &value) in slots.iter().zip(entries) {
                    out[slot as usize] = value;
                }
            }
            Self::Slots(slots) => {
                for (&slot, values) in slots.iter().zip(entries.chunks_exact(block)) {
                    let start = slot as usize * block;
                    out[start..start + block].copy_from_slice(values);
                }
            }
        }
    }

    /// Appends the values of the slots in CSR order: the inverse of [`SlotMap::scatter`].
    ///
    /// # Panics
    /// When `values` lacks a slot.
    pub fn gather<T: Scalar>(&self, values: &[T], block: usize, out: &mut Vec<T>) {
        match self {
            Self::Identity => out.extend_from_slice(values),
            Self::Slots(slots) if block == 1 => {
                out.extend(slots.iter().map(|&slot| values[slot as usize]));
            }
            Self::Slots(slots) => {
                for &slot in slots {
                    let start = slot as usize * block;
                    out.extend_from_slice(&values[start..start + block]);
                }
            }
        }
    }
}

/// A pattern that can be made from a CSR pattern.
pub trait FromCsr: Pattern {
    /// The choices the format leaves; `()` where there are none.
    type Options: Clone + Debug + Default + PartialEq + Send + Sync;

    /// What the conversion would store. Cost: at most one pass over the pattern; allocates no
    /// slots.
    ///
    /// # Errors
    /// [`FormatError::Blowup`] above the limit of the options, [`FormatError::TooLarge`] when the
    /// slots exceed `i32`, [`FormatError::Parameter`] for options outside their range.
    fn size_from_csr(
        pattern: CsrPatternRef<'_>,
        options: &Self::Options,
    ) -> Result<StorageSize, FormatError>;

    /// Converts a pattern; the map tells the slot of each CSR entry. Cost: O(nnz + slots).
    ///
    /// # Errors
    /// Those of [`FromCsr::size_from_csr`], before anything is allocated.
    fn from_csr(
        pattern: CsrPatternRef<'_>,
        options: &Self::Options,
    ) -> Result<(Self, SlotMap), FormatError>;
}

/// A pattern that can be turned into a CSR pattern.
pub trait ToCsr: Pattern {
    /// Converts the pattern; the map tells the slot of each CSR entry. `is_entry(slot)` says
    /// whether a slot holds an entry or fill; only DIA calls it, for the slots that its masks
    /// admit. Cost: O(slots).
    fn to_csr(&self, is_entry: impl Fn(usize) -> bool) -> (CsrPattern, SlotMap);
}

impl<P: FromCsr, T: Scalar> Matrix<P, T> {
    /// Converts a CSR matrix to format `P`. Padding slots hold 0.
    ///
    /// # Errors
    /// Those of [`FromCsr::size_from_csr`].
    ///
    /// # Examples
    /// ```
    /// use sparsebatch_formats::convert::EllOptions;
    /// use sparsebatch_formats::{Csr, Ell};
    /// // [2 0; 1 3]
    /// let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 3.0])?;
    /// let ell = Ell::from_csr(&a, &EllOptions::default())?;
    /// assert_eq!(ell.values(), [2.0, 1.0, 0.0, 3.0]);
    /// assert_eq!(ell.to_csr(), a);
    /// # Ok::<(), sparsebatch_formats::FormatError>(())
    /// ```
    pub fn from_csr(csr: &Csr<T>, options: &P::Options) -> Result<Self, FormatError> {
        Self::from_csr_view(csr.view(), options)
    }

    /// Converts a borrowed CSR matrix, for instance one item of a batch, to format `P`.
    ///
    /// # Errors
    /// Those of [`FromCsr::size_from_csr`].
    pub fn from_csr_view(
        csr: View<'_, CsrPattern, T>,
        options: &P::Options,
    ) -> Result<Self, FormatError> {
        let (pattern, map) = P::from_csr(csr.pattern(), options)?;
        let mut values = vec![T::ZERO; pattern.stored_len()];
        map.scatter(csr.values(), 1, &mut values);
        Self::from_parts(Arc::new(pattern), values)
    }
}

impl<P: ToCsr, T: Scalar> Matrix<P, T> {
    /// Converts the matrix to CSR. From DIA, slots of value zero are dropped.
    pub fn to_csr(&self) -> Csr<T> {
        let slots = self.values();
        let (pattern, map) = self.pattern().to_csr(|slot| slots[slot] != T::ZERO);
        let mut values = Vec::with_capacity(pattern.nnz());
        map.gather(slots, 1, &mut values);
        Matrix::from_parts(Arc::new(pattern), values).expect("the map has one slot per entry")
    }

    /// Converts the matrix to format `Q`, by way of CSR. From DIA, slots of value zero are
    /// dropped.
    ///
    /// # Errors
    /// Those of [`FromCsr::size_from_csr`].
    pub fn convert<Q: FromCsr>(&self, options: &Q::Options) -> Result<Matrix<Q, T>, FormatError> {
        Matrix::from_csr(&self.to_csr(), options)
    }
}

impl<T: Scalar> From<Csr<T>> for Coo<T> {
    fn from(csr: Csr<T>) -> Self {
        let (pattern, values) = csr.into_parts();
        let coo = coo::expand_rows(pattern.view());
        Matrix::from_parts(Arc::new(coo), values).expect("COO has CSR's entries in CSR's order")
    }
}

impl<T: Scalar> From<Coo<T>> for Csr<T> {
    fn from(coo: Coo<T>) -> Self {
        let (pattern, values) = coo.into_parts();
        let (csr, _) = ToCsr::to_csr(CooPattern::view(&pattern), |_| true);
        Matrix::from_parts(Arc::new(csr), values).expect("CSR has COO's entries in COO's order")
    }
}

macro_rules! csr_from {
    ($($format:ident),*) => {$(
        impl<T: Scalar> From<$format<T>> for Csr<T> {
            fn from(matrix: $format<T>) -> Self {
                matrix.to_csr()
            }
        }
    )*};
}
csr_from!(Ell, Dia, Hyb, SellP);

/// Refuses a target of `slots` slots and `index_bytes` bytes of indices (values counted as f64)
/// above `max(MIN_SLOT_LIMIT, max_fill * nnz)`.
fn check_fill(
    format: &'static str,
    slots: u128,
    index_bytes: u128,
    nnz: usize,
    max_fill: f64,
) -> Result<usize, FormatError> {
    if max_fill.is_nan() || max_fill < 0.0 {
        return Err(FormatError::Parameter {
            name: "max_fill",
            expected: "a number of slots per entry, at least 0",
            found: max_fill.to_string(),
        });
    }
    let limit = MIN_SLOT_LIMIT.max((max_fill * nnz as f64) as u128);
    if slots > limit {
        return Err(FormatError::Blowup {
            format,
            slots,
            bytes: index_bytes + slots * 8,
            nnz,
            limit,
        });
    }
    let slots = usize::try_from(slots).unwrap_or(usize::MAX);
    check_i32("stored_len", slots)?;
    Ok(slots)
}

/// The number of entries of each row.
fn row_lengths(pattern: CsrPatternRef<'_>) -> impl Iterator<Item = usize> {
    pattern.row_ptr().windows(2).map(|row| (row[1] - row[0]) as usize)
}
