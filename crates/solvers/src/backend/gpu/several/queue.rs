//! The queue from which several GPUs draw the chunks of a batch: [`Queue`].

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use sparsebatch_formats::Scalar;
use sparsebatch_solve_core::Outcome;

use super::super::staging::Systems;

/// Vectors and outcomes of consecutive items, apart from those of all others, so that a thread can
/// store results there.
pub(in crate::backend::gpu) struct Window<'a, T> {
    /// The places of the items in the list of items that are solved.
    pub(in crate::backend::gpu) places: Range<usize>,
    /// The item with which the vectors begin.
    pub(in crate::backend::gpu) first: usize,
    /// The item after their last one.
    end: usize,
    pub(in crate::backend::gpu) b: &'a [T],
    /// Initial guesses, then solutions.
    pub(in crate::backend::gpu) x: &'a mut [T],
    pub(in crate::backend::gpu) outcomes: &'a mut [Option<Outcome>],
}

impl<'a, T: Scalar> Window<'a, T> {
    /// The window of some ascending items, `count` of them; vectors and outcomes are those of the
    /// whole batch, which has `nitems` items.
    pub(in crate::backend::gpu) fn whole(
        (count, nitems): (usize, usize),
        b: &'a [T],
        x: &'a mut [T],
        outcomes: &'a mut [Option<Outcome>],
    ) -> Self {
        Self { places: 0..count, first: 0, end: nitems, b, x, outcomes }
    }

    /// Cuts off the first `count` of its items, and all rows ahead of the next one. `items` are
    /// those that are solved, `systems` those of the whole batch.
    pub(in crate::backend::gpu) fn split_off(
        &mut self,
        count: usize,
        items: &[u32],
        systems: Systems<'_, T>,
    ) -> Self {
        let systems = Systems { first: self.first, ..systems };
        let end = (self.places.start + count).min(self.places.end);
        let next = if end == self.places.end { self.end } else { items[end] as usize };
        let (rows, place) = (systems.offset(next), systems.place(next * systems.nrhs));
        let (b, b_left) = self.b.split_at(rows);
        let (x, x_left) = std::mem::take(&mut self.x).split_at_mut(rows);
        let (outcomes, left) = std::mem::take(&mut self.outcomes).split_at_mut(place);
        let places = self.places.start..end;
        let own = Self { places, first: self.first, end: next, b, x, outcomes };
        (self.b, self.x, self.outcomes) = (b_left, x_left, left);
        (self.places.start, self.first) = (end, next);
        own
    }
}

/// The chunks of a batch that no GPU has taken yet, in the order of the items: items of one pattern
/// cost alike as far as one knows before the solve. What a GPU that fails gives back comes first.
pub(in crate::backend::gpu) struct Queue<'a, T> {
    windows: Mutex<Vec<Window<'a, T>>>,
    items: &'a [u32],
    systems: Systems<'a, T>,
}

impl<'a, T: Scalar> Queue<'a, T> {
    /// A queue of the items of a window.
    pub(in crate::backend::gpu) fn new(
        window: Window<'a, T>,
        items: &'a [u32],
        systems: Systems<'a, T>,
    ) -> Self {
        Self { windows: Mutex::new(vec![window]), items, systems }
    }

    /// Takes up to `most` items that follow each other; `None` where none are left.
    pub(in crate::backend::gpu) fn take(&self, most: usize) -> Option<Window<'a, T>> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let last = windows.last_mut()?;
        if last.places.len() > most.max(1) {
            return Some(last.split_off(most.max(1), self.items, self.systems));
        }
        windows.pop().filter(|window| !window.places.is_empty())
    }

    /// Puts a window back whose systems were not solved.
    pub(in crate::backend::gpu) fn give_back(&self, window: Window<'a, T>) {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner).push(window);
    }

    /// Whether nothing is left.
    pub(in crate::backend::gpu) fn is_empty(&self) -> bool {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::{Batch, Csr, UniformBatch};

    use super::*;

    /// Takes chunks of `most` items by turns, gives the second one back, and returns the rows that
    /// each item got.
    fn drawn(
        items: &[u32],
        nitems: usize,
        nrhs: usize,
        most: &[usize],
    ) -> Vec<(Range<usize>, usize)> {
        let matrix = Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], vec![1.0, 1.0]).unwrap();
        let batch = Batch::Uniform(UniformBatch::shared(matrix, nitems));
        let systems = Systems { nrhs, ..Systems::new(&batch) };
        let b: Vec<f64> = (0..2 * nitems * nrhs).map(|row| row as f64).collect();
        let (mut x, mut outcomes) = (b.clone(), vec![None; nitems * nrhs]);
        let window = Window::whole((items.len(), nitems), &b, &mut x, &mut outcomes);
        let queue = Queue::new(window, items, systems);
        let mut all = Vec::new();
        for turn in 0.. {
            let Some(window) = queue.take(most[turn % most.len()]) else { break };
            assert_eq!(window.x, window.b);
            assert_eq!(window.x.len(), 2 * window.outcomes.len());
            let first = systems.offset(window.first) as f64;
            assert!(window.b.first().is_none_or(|&row| row == first));
            if turn == 1 {
                queue.give_back(window);
            } else {
                all.push((window.places.clone(), window.outcomes.len()));
            }
        }
        assert!(queue.is_empty());
        all.sort_by_key(|(places, _)| places.start);
        all
    }

    #[test]
    fn every_item_is_drawn_once_whatever_comes_back() {
        let all: Vec<u32> = (0..7).collect();
        assert_eq!(drawn(&all, 7, 2, &[3]), [(0..3, 6), (3..6, 6), (6..7, 2)]);
        // What comes back is cut for a GPU with smaller chunks.
        assert_eq!(
            drawn(&all, 7, 1, &[2, 4, 1]),
            [(0..2, 2), (2..3, 1), (3..5, 2), (5..6, 1), (6..7, 1)]
        );
        assert_eq!(drawn(&all, 7, 1, &[9]), [(0..7, 7)]);
        assert_eq!(drawn(&[], 7, 1, &[1]), []);
    }

    #[test]
    fn windows_hold_the_rows_ahead_of_the_next_item() {
        assert_eq!(drawn(&[1, 4, 5], 8, 1, &[1]), [(0..1, 4), (1..2, 1), (2..3, 3)]);
    }
}
