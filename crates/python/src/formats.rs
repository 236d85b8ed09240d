//! Patterns in other formats than CSR, from and to CSR.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sparsebatch::convert::{
    DEFAULT_MAX_FILL, DiaOptions, EllOptions, FromCsr, HybOptions, HybWidth, SellPOptions, SlotMap,
    ToCsr,
};
use sparsebatch::{
    CooPattern, CsrPattern, DiaPattern, EllPattern, FormatChoice, HybPattern, Pattern, SellPPattern,
};

use crate::errors::{FormatError, OptionError, OrRaise};
use crate::ffi::Input;
use crate::patterns::{Patterns, i32_bytes, i64_bytes};

/// The choices of a conversion; the Python part fills in all of them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Conversion {
    max_fill: Option<f64>,
    width: Option<usize>,
    slice_size: usize,
    threads_per_row: usize,
    sort_window: Option<usize>,
}

impl Conversion {
    fn max_fill(&self) -> f64 {
        self.max_fill.unwrap_or(DEFAULT_MAX_FILL)
    }

    fn hyb(&self) -> HybOptions {
        let options = HybOptions::default().max_fill(self.max_fill());
        match self.width {
            Some(width) => options.width(HybWidth::Fixed(width)),
            None => options,
        }
    }

    fn sellp(&self) -> SellPOptions {
        SellPOptions::default()
            .slice_size(self.slice_size)
            .threads_per_row(self.threads_per_row)
            .sort_window(self.sort_window)
            .max_fill(self.max_fill())
    }
}

/// The index arrays of a pattern in another format (bytes of int32, and numbers), the number of its
/// slots, and the slot of each CSR entry (bytes of int64).
type Converted<'py> = (Bound<'py, PyDict>, usize, Bound<'py, PyBytes>);

/// Converts the pattern of a uniform batch.
#[pyfunction]
pub(crate) fn convert<'py>(
    py: Python<'py>,
    patterns: &Bound<'_, Patterns>,
    format: &str,
    options: Conversion,
) -> PyResult<Converted<'py>> {
    let patterns = patterns.get();
    let Some((pattern, _)) = patterns.one() else {
        return Err(OptionError::new_err("the matrices have several patterns: convert one by one"));
    };
    let arrays = PyDict::new(py);
    let set = |name: &str, numbers: &[i32]| arrays.set_item(name, i32_bytes(py, numbers));
    let (len, slots) = match format.parse::<FormatChoice>().or_raise()? {
        FormatChoice::Coo => {
            let (coo, slots) = from_csr::<CooPattern>(pattern, &())?;
            set("row", coo.row_idx())?;
            set("col", coo.col_idx())?;
            (coo.stored_len(), slots)
        }
        FormatChoice::Ell => {
            let options = EllOptions { max_fill: options.max_fill() };
            let (ell, slots) = from_csr::<EllPattern>(pattern, &options)?;
            arrays.set_item("width", ell.width())?;
            set("indices", ell.col_idx())?;
            (ell.stored_len(), slots)
        }
        FormatChoice::Dia => {
            let options = DiaOptions { max_fill: options.max_fill() };
            let (dia, slots) = from_csr::<DiaPattern>(pattern, &options)?;
            set("offsets", dia.diag_offsets())?;
            (dia.stored_len(), slots)
        }
        FormatChoice::Hyb => {
            let (hyb, slots) = from_csr::<HybPattern>(pattern, &options.hyb())?;
            arrays.set_item("width", hyb.ell().width())?;
            set("indices", hyb.ell().col_idx())?;
            set("row", hyb.coo().row_idx())?;
            set("col", hyb.coo().col_idx())?;
            (hyb.stored_len(), slots)
        }
        FormatChoice::SellP => {
            let (sellp, slots) = from_csr::<SellPPattern>(pattern, &options.sellp())?;
            arrays.set_item("slice_size", sellp.slice_size())?;
            arrays.set_item("threads_per_row", sellp.threads_per_row())?;
            set("slice_ptr", sellp.slice_ptr())?;
            set("row_perm", sellp.row_perm())?;
            set("indices", sellp.col_idx())?;
            (sellp.stored_len(), slots)
        }
        FormatChoice::Auto | FormatChoice::Csr => {
            return Err(OptionError::new_err(format!(
                "format is {format}, expected coo, ell, dia, hyb or sellp"
            )));
        }
    };
    let slots = i64_bytes(py, (0..pattern.nnz()).map(|entry| slots.slot(entry)));
    Ok((arrays, len, slots))
}

fn from_csr<P: FromCsr>(pattern: &CsrPattern, options: &P::Options) -> PyResult<(P, SlotMap)> {
    P::from_csr(pattern.view(), options).or_raise()
}

/// The CSR pattern of index arrays in another format, validated, for `nitems` items, and the slot
/// of each of its entries (bytes of int64). `is_entry` has a byte for each slot of DIA: whether it
/// holds an entry.
#[pyfunction]
pub(crate) fn to_csr<'py>(
    py: Python<'py>,
    format: &str,
    shape: (usize, usize),
    nitems: usize,
    arrays: &Bound<'_, PyDict>,
    is_entry: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Patterns, usize, Bound<'py, PyBytes>)> {
    let (nrows, ncols) = shape;
    let numbers = |name: &str| -> PyResult<Vec<i32>> {
        Ok(Input::<i32>::of(name, &arrays.as_any().get_item(name)?)?.as_ref().to_vec())
    };
    let number = |name: &str| -> PyResult<usize> { arrays.as_any().get_item(name)?.extract() };
    let ell =
        || EllPattern::try_new(nrows, ncols, number("width")?, numbers("indices")?).or_raise();
    let coo = || CooPattern::try_new(nrows, ncols, numbers("row")?, numbers("col")?).or_raise();
    let (pattern, slots) = match format.parse::<FormatChoice>().or_raise()? {
        FormatChoice::Coo => coo()?.to_csr(|_| true),
        FormatChoice::Ell => ell()?.to_csr(|_| true),
        FormatChoice::Hyb => HybPattern::try_new(ell()?, coo()?).or_raise()?.to_csr(|_| true),
        FormatChoice::Dia => {
            let dia = DiaPattern::try_new(nrows, ncols, numbers("offsets")?).or_raise()?;
            let mask = is_entry.map(|mask| Input::<u8>::of("is_entry", mask)).transpose()?;
            let mask = mask.as_ref().map(AsRef::as_ref);
            if mask.is_some_and(|mask: &[u8]| mask.len() != dia.stored_len()) {
                return Err(OptionError::new_err("values do not fit the diagonals"));
            }
            dia.to_csr(|slot| mask.is_none_or(|mask| mask[slot] != 0))
        }
        FormatChoice::SellP => {
            let (size, threads) = (number("slice_size")?, number("threads_per_row")?);
            let (slices, rows) = (numbers("slice_ptr")?, numbers("row_perm")?);
            let pattern =
                SellPPattern::try_new(ncols, size, threads, slices, rows, numbers("indices")?);
            pattern.or_raise()?.to_csr(|_| true)
        }
        FormatChoice::Auto | FormatChoice::Csr => {
            return Err(OptionError::new_err(format!("format is {format}, expected another")));
        }
    };
    if pattern.nrows() != nrows {
        return Err(FormatError::new_err(format!(
            "the parts are of {} rows, expected {nrows}",
            pattern.nrows()
        )));
    }
    let nnz = pattern.nnz();
    let slots = i64_bytes(py, (0..nnz).map(|entry| slots.slot(entry)));
    Ok((Patterns::of_one(pattern, nitems), nnz, slots))
}
