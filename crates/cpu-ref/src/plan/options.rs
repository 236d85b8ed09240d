//! Checks the format and kernel that a user names, and makes the automatic choice.

use sparsebatch_formats::convert::occupied_diagonals;
use sparsebatch_formats::{CsrPatternRef, DiaPattern, Pattern};

use sparsebatch_solve_core::{ArgumentError, FormatChoice, KernelChoice};

use crate::CpuError;
use crate::par::{RunStats, WHOLE};

/// A format, one of its kernels, and the reason for the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) format: FormatChoice,
    pub(super) kernel: KernelChoice,
    pub(super) why: String,
}

/// Properties of a matrix that the automatic choice uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) nrows: usize,
    pub(super) nnz: usize,
    /// Entries of the longest row.
    pub(super) longest: usize,
    /// Number of diagonals, if storing them needs no fill.
    pub(super) full_diagonals: Option<usize>,
    /// Slots and column runs in slices of 8 rows.
    pub(super) runs: RunStats,
    /// Bytes of a value.
    pub(super) value_bytes: usize,
}

impl Facts {
    pub(super) fn of(csr: CsrPatternRef<'_>, value_bytes: usize) -> Self {
        Self {
            nrows: csr.nrows(),
            nnz: csr.nnz(),
            longest: longest_row(csr),
            full_diagonals: full_diagonals(csr),
            runs: RunStats::of(csr),
            value_bytes,
        }
    }
}

pub(super) fn longest_row(csr: CsrPatternRef<'_>) -> usize {
    let lengths = csr.row_ptr().windows(2).map(|row| row[1] - row[0]);
    lengths.max().unwrap_or(0) as usize
}

fn full_diagonals(csr: CsrPatternRef<'_>) -> Option<usize> {
    // More diagonals than twice the mean row length imply fill (beside slots outside the matrix).
    let diagonals = occupied_diagonals(csr);
    if diagonals.len().saturating_mul(csr.nrows()) > csr.nnz().saturating_mul(2) {
        return None;
    }
    if diagonals.len().saturating_mul(SHORT_DIAGONAL) > csr.nnz() {
        return None;
    }
    let pattern = DiaPattern::try_new(csr.nrows(), csr.ncols(), diagonals).ok()?;
    (pattern.nnz() == csr.nnz()).then(|| pattern.diag_offsets().len())
}

/// Entries of a diagonal, on average, below which its loop ends before it pays: 4 dense rows of
/// 65,536 columns take ten times as long by diagonals as by rows.
const SHORT_DIAGONAL: usize = 512;

/// Another format is taken when it moves less than this fraction of CSR's bytes.
const WORTH: f64 = 0.95;

/// The automatic choice for a single matrix: the format that moves the fewest bytes per product,
/// unless CSR comes within 5 % or the matrix is one chunk of work.
pub(super) fn choose(facts: Facts) -> Choice {
    let Facts { nrows, nnz, longest, runs, value_bytes, .. } = facts;
    if nrows + nnz <= WHOLE {
        return Choice {
            format: FormatChoice::Csr,
            kernel: KernelChoice::Rows,
            why: format!("{nnz} entries are a single chunk of work"),
        };
    }
    let csr_bytes = (value_bytes + 4) * nnz + 4 * nrows;
    let runs_bytes = (8 * value_bytes + 4) * runs.slots + 32 * (runs.slots - runs.runs) + nrows / 2;
    let dia_bytes = facts.full_diagonals.map_or(usize::MAX, |ndiags| value_bytes * ndiags * nrows);
    let share = |bytes: usize| bytes as f64 / csr_bytes as f64;
    if dia_bytes <= runs_bytes && share(dia_bytes) < WORTH {
        return Choice {
            format: FormatChoice::Dia,
            kernel: KernelChoice::Blocks,
            why: format!("its diagonals are full: {:.2} of CSR's bytes", share(dia_bytes)),
        };
    }
    if share(runs_bytes) < WORTH {
        return Choice {
            format: FormatChoice::SellP,
            kernel: KernelChoice::Runs,
            why: format!(
                "{} of {} slots of 8 rows are runs of columns: {:.2} of CSR's bytes",
                runs.runs,
                runs.slots,
                share(runs_bytes)
            ),
        };
    }
    csr_by_rows_or_parts(longest, nnz)
}

/// CSR by rows, or CSR-I when one row holds more than two chunks of work.
pub(super) fn csr_by_rows_or_parts(longest: usize, nnz: usize) -> Choice {
    let (kernel, why) = if longest > 2 * WHOLE {
        let why = format!("the longest row holds {longest} of {nnz} entries, more than two chunks");
        (KernelChoice::CsrI, why)
    } else {
        let why = format!("the longest row, {longest} entries, fits a chunk");
        (KernelChoice::Rows, why)
    };
    Choice { format: FormatChoice::Csr, kernel, why }
}

/// Checks that `kernel` belongs to `format`; `Auto` becomes the format's first kernel.
///
/// # Errors
/// [`CpuError::Argument`] for a kernel of another format.
pub(super) fn kernel_of(
    format: FormatChoice,
    kernel: KernelChoice,
    single: bool,
) -> Result<KernelChoice, CpuError> {
    use KernelChoice::{Auto, Blocks, CsrI, Entries, Rows, Runs};
    let (allowed, expected): (&[KernelChoice], _) = match (format, single) {
        (FormatChoice::Auto, _) => unreachable!("the format has been chosen"),
        (FormatChoice::Csr, _) => (&[Rows, CsrI], "rows or csr-i with the format csr"),
        (FormatChoice::Coo, _) => (&[Entries], "entries with the format coo"),
        (FormatChoice::Ell, _) => (&[Rows], "rows with the format ell"),
        (FormatChoice::Hyb, _) => (&[Rows], "rows with the format hyb"),
        (FormatChoice::Dia, true) => (&[Blocks, Rows], "blocks or rows with the format dia"),
        (FormatChoice::Dia, false) => (&[Rows], "rows with the format dia of a batch"),
        (FormatChoice::SellP, true) => (&[Runs, Rows], "runs or rows with the format sellp"),
        (FormatChoice::SellP, false) => (&[Rows], "rows with the format sellp of a batch"),
    };
    if kernel == Auto {
        Ok(allowed[0])
    } else if allowed.contains(&kernel) {
        Ok(kernel)
    } else {
        Err(CpuError::Argument(ArgumentError::OutOfRange {
            name: "kernel",
            expected,
            found: kernel.name().to_owned(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::CsrPattern;

    use super::*;

    fn facts() -> Facts {
        Facts {
            nrows: 1_000_000,
            nnz: 7_000_000,
            longest: 7,
            full_diagonals: None,
            runs: RunStats { slots: 875_000, runs: 0 },
            value_bytes: 8,
        }
    }

    #[test]
    fn the_choice_follows_the_bytes() {
        let stencil = Facts { runs: RunStats { slots: 880_000, runs: 800_000 }, ..facts() };
        let banded = Facts { full_diagonals: Some(7), ..stencil };
        let scattered = facts();
        let hub = Facts { longest: 3_000_000, ..facts() };
        let small = Facts { nrows: 100, nnz: 700, ..stencil };

        let table = [
            (stencil, FormatChoice::SellP, KernelChoice::Runs),
            (banded, FormatChoice::Dia, KernelChoice::Blocks),
            (scattered, FormatChoice::Csr, KernelChoice::Rows),
            (hub, FormatChoice::Csr, KernelChoice::CsrI),
            (small, FormatChoice::Csr, KernelChoice::Rows),
        ];
        for (facts, format, kernel) in table {
            let choice = choose(facts);
            assert_eq!((choice.format, choice.kernel), (format, kernel));
        }
    }

    #[test]
    fn short_diagonals_are_no_reason_for_another_format() {
        let dense = |nrows, ncols| {
            let cols = (0..nrows).flat_map(|_| 0..ncols as i32).collect();
            let ptr = (0..=nrows).map(|row| (row * ncols) as i32).collect();
            CsrPattern::try_new(nrows, ncols, ptr, cols).unwrap()
        };
        let tridiagonal = (0..20_000i32).flat_map(|row| (row - 1).max(0)..(row + 2).min(20_000));
        let mut ptr = vec![0];
        ptr.extend((0..20_000).map(|row| (3 * row + 2).min(59_998)));

        let cases = [
            (dense(4, 65_536), FormatChoice::Csr),
            (
                CsrPattern::try_new(20_000, 20_000, ptr, tridiagonal.collect()).unwrap(),
                FormatChoice::Dia,
            ),
        ];

        for (pattern, format) in cases {
            assert_eq!(choose(Facts::of(pattern.view(), 8)).format, format);
        }
    }

    #[test]
    fn a_kernel_of_another_format_is_refused() {
        let error = kernel_of(FormatChoice::Ell, KernelChoice::CsrI, true).unwrap_err();

        assert_eq!(error.to_string(), "kernel is csr-i, expected rows with the format ell");
    }
}
