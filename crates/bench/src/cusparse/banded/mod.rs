//! The peers of banded solves: cuSPARSE's solvers of batches of tridiagonal and pentadiagonal
//! systems.
//!
//! Diagonals are made and uploaded before the timing, interleaved where a solver wants that, and
//! restored before every solve, since solvers overwrite them: neither is timed, in the peer's
//! favour. `ffi.rs` has the calls and all the unsafe code.

mod ffi;

use std::ops::Range;
use std::rc::Rc;

use rayon::prelude::*;
use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError, Value, copy_values};
use sparsebatch_formats::{Batch, CsrPatternRef, Pattern};
use sparsebatch_solvers::SolveError;

use super::CusparseLibrary;
use crate::solves::systems::Systems;
use crate::solves::{Answer, Real, Solve};
pub(crate) use ffi::Diagonals;
use ffi::Work;

/// A solver of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BandedCall {
    /// Tridiagonal systems, one after the other, by cyclic reduction without pivoting.
    Strided,
    /// Interleaved tridiagonal systems, by algorithm 0 (Thomas), 1 (LU with pivoting) or 2 (QR).
    Interleaved(i32),
    /// Interleaved pentadiagonal systems, by QR.
    Pentadiagonal,
}

impl BandedCall {
    /// The solvers of systems with `half_width` diagonals on each side.
    pub(crate) fn of(half_width: usize) -> &'static [Self] {
        match half_width {
            0 | 1 => {
                &[Self::Strided, Self::Interleaved(0), Self::Interleaved(1), Self::Interleaved(2)]
            }
            2 => &[Self::Pentadiagonal],
            _ => &[],
        }
    }

    /// The name in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Strided => "gtsv2StridedBatch",
            Self::Interleaved(0) => "gtsvInterleavedBatch Thomas",
            Self::Interleaved(1) => "gtsvInterleavedBatch LU",
            Self::Interleaved(_) => "gtsvInterleavedBatch QR",
            Self::Pentadiagonal => "gpsvInterleavedBatch",
        }
    }

    /// Number of diagonals.
    fn diagonals(self) -> usize {
        if self == Self::Pentadiagonal { 5 } else { 3 }
    }

    fn is_interleaved(self) -> bool {
        self != Self::Strided
    }
}

/// The largest distance of an entry from the diagonal.
pub(crate) fn half_width(pattern: CsrPatternRef<'_>) -> usize {
    let of_row = |row: usize| {
        let columns = &pattern.col_idx()[pattern.row(row)];
        columns.iter().map(move |&col| row.abs_diff(col as usize)).max().unwrap_or(0)
    };
    (0..pattern.nrows()).map(of_row).max().unwrap_or(0)
}

/// A batch on the device, with the arrays of its solve.
pub(crate) struct BandedPeer<T: Diagonals> {
    device: Device,
    call: BandedCall,
    /// Rows of a system.
    rows: usize,
    /// Diagonals and right-hand sides, to restore them.
    kept: Vec<DeviceBuffer<T>>,
    work: Work<T>,
}

impl<T: Diagonals + Real + Value> BandedPeer<T> {
    /// Takes the diagonals out of the matrices and uploads them.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for ragged batches and for more values than 32 bits number;
    /// [`GpuError::OutOfMemory`]; an error of the library.
    pub(crate) fn new(
        device: &Device,
        library: &CusparseLibrary,
        call: BandedCall,
        systems: &Systems<T>,
    ) -> Result<Self, GpuError> {
        let Batch::Uniform(batch) = &systems.batch else {
            return Err(GpuError::InvalidArgument {
                name: "batch",
                expected: "systems of one size".to_owned(),
                found: "a ragged one".to_owned(),
            });
        };
        let (rows, nitems) = (batch.pattern().nrows(), batch.nitems());
        let work = Work::new(device, Rc::clone(&library.handle), call, rows, nitems)?;
        let width = call.diagonals() / 2;
        let mut kept = Vec::new();
        for diagonal in 0..call.diagonals() {
            kept.push(device.upload(&of_diagonal(systems, diagonal, width, call))?);
        }
        let b = match call.is_interleaved() {
            true => interleaved(&systems.b, rows),
            false => systems.b.to_vec(),
        };
        kept.push(device.upload(&b)?);
        Ok(Self { device: device.clone(), call, rows, kept, work })
    }
}

/// A diagonal of all systems, counted from the lowest; 0 outside of the matrices.
fn of_diagonal<T: Real>(
    systems: &Systems<T>,
    diagonal: usize,
    width: usize,
    call: BandedCall,
) -> Vec<T> {
    let batch = &systems.batch;
    let rows = batch.pattern(0).nrows();
    let mut found = vec![T::ZERO; rows * batch.nitems()];
    found.par_chunks_mut(rows.max(1)).enumerate().for_each(|(item, found)| {
        let (pattern, mut copy) = (batch.pattern(item), Vec::new());
        let values = batch.values_in(item, &mut copy);
        for (row, found) in found.iter_mut().enumerate() {
            let Some(col) = (row + diagonal).checked_sub(width) else { continue };
            *found = pattern.position(row, col).map_or(T::ZERO, |k| values[k]);
        }
    });
    if call.is_interleaved() { interleaved(&found, rows) } else { found }
}

/// Vectors of `rows` elements one after the other, element by element.
fn interleaved<T: Real>(vectors: &[T], rows: usize) -> Vec<T> {
    turned(vectors, vectors.len() / rows.max(1), rows)
}

/// The transpose of an array of `count` times `each` elements.
fn turned<T: Real>(from: &[T], count: usize, each: usize) -> Vec<T> {
    let mut to = vec![T::ZERO; from.len()];
    to.par_chunks_mut(count.max(1)).enumerate().for_each(|(k, to)| {
        let all: Range<usize> = 0..count;
        to.iter_mut().zip(all).for_each(|(to, i)| *to = from[i * each + k]);
    });
    to
}

impl<T: Diagonals + Real + Value> Solve<T> for BandedPeer<T> {
    fn copies(&self) -> usize {
        1
    }

    fn restore(&mut self, _copy: usize) -> Result<(), SolveError> {
        let Some((b, diagonals)) = self.kept.split_last() else { return Ok(()) };
        let (into, x) = self.work.arrays_mut();
        for (from, to) in diagonals.iter().zip(into) {
            copy_values(&self.device, from, to)?;
        }
        Ok(copy_values(&self.device, b, x)?)
    }

    fn wants_restoring(&self) -> bool {
        true
    }

    fn solve(&mut self, _copy: usize) -> Result<(), SolveError> {
        Ok(self.work.solve()?)
    }

    fn answer(&mut self, _copy: usize) -> Result<Answer<T>, SolveError> {
        let x = self.device.download(self.work.solutions())?;
        let x = match self.call.is_interleaved() {
            true => turned(&x, self.rows, x.len() / self.rows.max(1)),
            false => x,
        };
        Ok(Answer { x, outcomes: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::Csr;
    use sparsebatch_formats::generate::{Family, Problem};

    #[test]
    fn diagonals_are_taken_in_the_layout_of_the_call() {
        // [1 2; 3 4] and [5 6; 7 8]
        let pattern = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![1.0; 4]).unwrap();
        let (pattern, _) = pattern.into_parts();
        let values = (1..9).map(f64::from).collect();
        let systems = Systems::uniform(pattern, 2, values, vec![0.0; 4]).unwrap();

        let strided = |diagonal| of_diagonal(&systems, diagonal, 1, BandedCall::Strided);
        assert_eq!(strided(0), [0.0, 3.0, 0.0, 7.0]);
        assert_eq!(strided(1), [1.0, 4.0, 5.0, 8.0]);
        assert_eq!(strided(2), [2.0, 0.0, 6.0, 0.0]);
        let found = of_diagonal(&systems, 0, 1, BandedCall::Interleaved(0));
        assert_eq!(found, [0.0, 0.0, 3.0, 7.0]);
        assert_eq!(of_diagonal(&systems, 4, 2, BandedCall::Pentadiagonal), [0.0; 4]);
        assert_eq!(turned(&interleaved(&[1.0, 2.0, 3.0, 4.0], 2), 2, 2), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(half_width(systems.batch.pattern(0)), 1);
    }

    /// Element `row * systems + item` of diagonal d is the entry of that row in column
    /// `row + d - 2`.
    #[test]
    fn pentadiagonal_systems_have_one_call_that_takes_five_diagonals() {
        let made = Problem::new(Family::Penta, 5).unwrap().batch(3).unwrap();
        let systems = Systems { batch: made.batch, b: made.rhs.into() };
        let call = match BandedCall::of(half_width(systems.batch.pattern(0))) {
            [call] => *call,
            other => panic!("{other:?}"),
        };
        assert_eq!((call.name(), call.diagonals()), ("gpsvInterleavedBatch", 5));

        for diagonal in 0..5 {
            let found = of_diagonal(&systems, diagonal, 2, call);
            assert_eq!(found.len(), 15);
            for (place, &found) in found.iter().enumerate() {
                let (row, item) = (place / 3, place % 3);
                let matrix = systems.batch.to_csr(item);
                let col = (row + diagonal).checked_sub(2).filter(|&col| col < 5);
                let position = col.and_then(|col| matrix.view().pattern().position(row, col));
                let expected = position.map_or(0.0, |k| matrix.values()[k]);
                assert_eq!(found, expected, "{diagonal} {row} {item}");
                assert_eq!(found == 0.0, col.is_none());
            }
        }
        // Solutions come back item by item.
        assert_eq!(turned(&interleaved(&systems.b, 5), 5, 3), *systems.b);
    }
}
