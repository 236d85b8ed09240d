//! Figure 1: `y = x + y` over strided elements, which start at index 0 or at index 1, which is not
//! aligned. As a product this is the identity, with an entry for each element.

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuError;
use sparsebatch_cuda::Executor;
use sparsebatch_formats::Scalar;
use sparsebatch_peers::PlainLoops;

use super::super::one_matrix::operand;
use super::cases::ThroughputCase;
use super::ffi::Axpy;
use crate::BenchError;
use crate::contender::{Contender, Operands};
use crate::host_clock::HostMultiply;
use crate::parallel;
use crate::session::{Bench, Label, Problem};
use crate::solves::Real;
use crate::timing::copies;

/// Names of the cases that start at index 0 and at index 1.
pub(super) const NAMES: [&str; 2] = ["axpy", "axpy unaligned"];

/// Bytes of the smallest memory access of a GPU.
const SECTOR: usize = 32;

/// Bytes of a cache line of a processor.
const LINE: usize = 64;

/// Fewest elements per thread.
const GRAIN: usize = 4_096;

/// Strided elements of a vector.
#[derive(Clone, Copy)]
struct Places {
    count: usize,
    stride: usize,
    /// Index of the first element.
    first: usize,
}

impl Places {
    /// Length of a vector that fits the elements with either start.
    fn len(self) -> usize {
        (self.count - 1) * self.stride + 2
    }

    /// The range from the first element to the last.
    fn span(self) -> std::ops::Range<usize> {
        self.first..self.first + (self.count - 1) * self.stride + 1
    }

    /// Bytes of three accesses per element. Where elements are far apart, an access takes at least
    /// `least` bytes.
    fn moved<T>(self, least: usize) -> u64 {
        let size = size_of::<T>();
        3 * (self.count * (self.stride * size).min(least.max(size))) as u64
    }

    /// Describes what is wrong with an answer, if anything: its elements must be those of x, with 0
    /// between them.
    fn wrong<T: Scalar>(self, x: &[T], y: &[f64]) -> Option<String> {
        if y.len() != self.len() {
            return Some(format!("{} places, expected {}", y.len(), self.len()));
        }
        let span = self.span();
        let expected = |place: usize| match place.checked_sub(self.first) {
            Some(offset) if span.contains(&place) && offset % self.stride == 0 => x[place].to_f64(),
            _ => 0.0,
        };
        let part = self.stride * GRAIN;
        let is_right = |(part_index, y): (usize, &[f64])| {
            let begin = span.start + part_index * part;
            y.chunks(self.stride)
                .zip(x[begin..].chunks(self.stride))
                .all(|(y, x)| y[0] == x[0].to_f64() && y[1..].iter().all(|&between| between == 0.0))
        };
        let outside = y[..span.start].iter().chain(&y[span.end..]);
        let parts = y[span.clone()].par_chunks(part).enumerate();
        if outside.into_iter().all(|&value| value == 0.0) && parts.clone().all(is_right) {
            return None;
        }
        let wrong = (0..y.len()).find(|&place| y[place] != expected(place))?;
        Some(format!("place {wrong}: {:e}, expected {:e}", y[wrong], expected(wrong)))
    }
}

/// `y += x` over strided elements on the processor.
struct HostAxpy {
    places: Places,
    threads: bool,
}

impl<T: PlainLoops> HostMultiply<T> for HostAxpy {
    fn multiply(&mut self, x: &[T], y: &mut [T]) -> Result<(), CpuError> {
        let span = self.places.span();
        let grain = self.threads.then_some(GRAIN);
        T::add_strided(&x[span.clone()], &mut y[span], self.places.stride, grain);
        Ok(())
    }
}

/// Measures both starts.
pub(super) fn measure<T: Real>(
    bench: &mut Bench<'_>,
    case: &ThroughputCase,
    count: usize,
    stride: usize,
) -> Result<(), BenchError> {
    let of = |first| Places { count, stride, first };
    let x = vector::<T>(of(0));
    let useful = (3 * size_of::<T>() * count) as f64;
    let touched = (2 * size_of::<T>() * x.len()) as f64;
    if let Some(session) = bench.gpu() {
        let device = session.device.clone();
        let copies = copies(touched, device.info().l2_bytes);
        let mut operands = Operands::new(&device, &x, x.len(), copies)?;
        for (first, name) in NAMES.into_iter().enumerate() {
            let oracle = |y: &[f64]| of(first).wrong(&x, y);
            let problem = problem(case, of(first), &oracle);
            let pace = session.pace(&problem);
            let contender =
                Contender::new(&mut operands, |_| Axpy::new::<T>(&device, count, stride, first));
            let label = Label::ours(name, false).in_precision::<T>(useful);
            let moved = of(first).moved::<T>(SECTOR);
            session.measure(&problem, &label, pace, contender, |_| moved)?;
        }
    }
    if let Some(mut session) = bench.host() {
        let mut operands = session.operands_of(&x, x.len(), touched);
        for (first, name) in NAMES.into_iter().enumerate() {
            let oracle = |y: &[f64]| of(first).wrong(&x, y);
            let problem = problem(case, of(first), &oracle);
            for (threads, end) in [(false, ", 1 thread"), (true, "")] {
                let label = Label::ours(format!("cpu-{name}{end}"), false);
                let label = label.in_precision::<T>(useful);
                let plan = |_| Ok(HostAxpy { places: of(first), threads });
                let moved = of(first).moved::<T>(LINE);
                session.measure(&problem, &label, &mut operands, plan, |_| moved.into())?;
            }
        }
    }
    Ok(())
}

fn problem<'a>(
    case: &'a ThroughputCase,
    places: Places,
    oracle: &'a dyn Fn(&[f64]) -> Option<String>,
) -> Problem<'a> {
    Problem {
        case: &case.name,
        experiment: Some(case.experiment.name()),
        batch: 1,
        nrows: places.len(),
        ncols: places.len(),
        nnz: places.count,
        oracle,
    }
}

/// A vector with elements for both starts, of opposite signs, and 0 between them.
fn vector<T: Scalar>(places: Places) -> Vec<T> {
    let values = operand::<T>(places.count);
    let mut x: Vec<T> = parallel::zeros(places.len());
    for (element, value) in values.into_iter().enumerate() {
        x[element * places.stride + 1] = -value;
        x[element * places.stride] = value;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 3 * GRAIN + 7;

    #[test]
    fn elements_are_added_and_what_is_between_stays() {
        for (stride, first, threads) in [(1, 0, true), (1, 1, false), (3, 0, false), (3, 1, true)] {
            let places = Places { count: COUNT, stride, first };
            let x = vector::<f64>(places);
            let mut y = vec![0.0; x.len()];

            HostAxpy { places, threads }.multiply(&x, &mut y).unwrap();

            assert_eq!(places.wrong(&x, &y), None, "{stride} {first}");
            for place in [0, 1, x.len() / 2, x.len() - 1] {
                let mut off = y.clone();
                off[place] += 1.0;
                let wrong = places.wrong(&x, &off).unwrap();
                assert!(wrong.starts_with(&format!("place {place}: ")), "{wrong}");
            }
        }
    }

    #[test]
    fn bytes_are_those_of_whole_sectors_where_elements_are_far_apart() {
        let places = |stride| Places { count: 10, stride, first: 0 };

        assert_eq!(places(1).moved::<f64>(SECTOR), 3 * 10 * 8);
        assert_eq!(places(3).moved::<f32>(SECTOR), 3 * 10 * 12);
        assert_eq!(places(33).moved::<f32>(SECTOR), 3 * 10 * 32);
        assert_eq!(places(33).moved::<f64>(LINE), 3 * 10 * 64);
    }
}
