//! What a block multiplies at a time.

use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_formats::Batch;

use super::PackedOptions;
use super::layout::{PADDING, PackedPattern};
use super::work::{Classes, Places};
use crate::GpuError;
use crate::error::check_len;
use crate::value::Value;

/// The most entries, rows and columns of systems that are grouped.
const MAX_GROUP_ENTRIES: usize = 4096;
const MAX_GROUP_ROWS: usize = 1024;

/// Shared memory of a block that has room for any group.
const GROUP_SHARED_BYTES: u32 = 96 << 10;

/// Groups that each multiprocessor shall get at least.
const GROUPS_PER_MULTIPROCESSOR: usize = 8;

/// The pieces of a batch: each a run of items.
pub(super) struct Pieces {
    pieces: Vec<Piece>,
    /// One per piece; of a uniform batch one for all pieces of as many items.
    patterns: Vec<PackedPattern>,
    nitems: usize,
    total_nnz: usize,
    uniform: bool,
    shared_values: bool,
}

struct Piece {
    items: Range<usize>,
    pattern: usize,
}

impl Pieces {
    /// Groups the items of a batch and packs them.
    pub(super) fn new<T: Value>(
        batch: &Batch<T>,
        options: &PackedOptions,
        classes: &Classes<'_>,
        value_bytes: usize,
    ) -> Result<Self, GpuError> {
        let nitems = batch.nitems();
        let entries = options.group_entries.unwrap_or_else(|| {
            let groups = classes.info.multiprocessors as usize * GROUPS_PER_MULTIPROCESSOR;
            (batch.total_nnz() / groups.max(1)).min(MAX_GROUP_ENTRIES)
        });
        let has_room = classes.info.shared_bytes_per_block >= GROUP_SHARED_BYTES;
        let entries = if options.nrhs == 1 && has_room { entries } else { 0 };
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut nnz, mut nrows, mut ncols) = (0, 0, 0);
        for item in 0..nitems {
            let pattern = batch.pattern(item);
            nnz += pattern.nnz();
            nrows += pattern.nrows();
            ncols += pattern.ncols();
            match pieces.last_mut() {
                Some(piece) if nnz <= entries && nrows.max(ncols) <= MAX_GROUP_ROWS => {
                    piece.items.end = item + 1;
                }
                _ => {
                    pieces.push(Piece { items: item..item + 1, pattern: pieces.len() });
                    (nnz, nrows, ncols) = (pattern.nnz(), pattern.nrows(), pattern.ncols());
                }
            }
        }
        let uniform = matches!(batch, Batch::Uniform(_));
        let mut distinct: Vec<Range<usize>> = pieces.iter().map(|p| p.items.clone()).collect();
        if uniform {
            // All pieces but the last have the same number of items.
            distinct.dedup_by_key(|items| items.len());
            let first = distinct.first().map_or(0, Range::len);
            pieces.iter_mut().for_each(|p| p.pattern = usize::from(p.items.len() != first));
        }
        let packed = distinct.into_par_iter().map(|items| {
            let patterns: Vec<_> = items.clone().map(|item| batch.pattern(item)).collect();
            let packed = PackedPattern::new(&patterns, value_bytes);
            packed.filter(|packed| classes.of(packed).is_some()).ok_or_else(|| {
                GpuError::InvalidArgument {
                    name: "batch",
                    expected: "systems whose x and row sums fit the shared memory of a block"
                        .to_owned(),
                    found: format!(
                        "item {} with {} rows and {} columns",
                        items.start,
                        patterns[0].nrows(),
                        patterns[0].ncols()
                    ),
                }
            })
        });
        Ok(Self {
            patterns: packed.collect::<Result<_, _>>()?,
            pieces,
            nitems,
            total_nnz: batch.total_nnz(),
            uniform,
            shared_values: matches!(batch, Batch::Uniform(batch) if batch.is_shared()),
        })
    }

    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// How piece i is packed.
    pub(super) fn pattern(&self, i: usize) -> &PackedPattern {
        &self.patterns[self.pieces[i].pattern]
    }

    /// The columns and the index of all patterns, one after the other.
    pub(super) fn indices(&self) -> (Vec<u16>, Vec<u16>) {
        let patterns = &self.patterns;
        let columns = patterns.par_iter().flat_map_iter(|p| p.columns.iter().copied()).collect();
        let index = patterns.par_iter().flat_map_iter(|p| p.index.iter().copied()).collect();
        (columns, index)
    }

    /// Where the parts of each piece lie.
    pub(super) fn places<T: Value>(&self, batch: &Batch<T>, nrhs: usize) -> Vec<Places> {
        let mut of_pattern = vec![Places::default(); self.patterns.len()];
        for i in 1..self.patterns.len() {
            let (before, pattern) = (of_pattern[i - 1], &self.patterns[i - 1]);
            of_pattern[i].columns = before.columns + pattern.columns.len() as u64;
            of_pattern[i].index = before.index + pattern.index.len() as u64;
            if self.shared_values {
                of_pattern[i].values = before.values + pattern.nslots() as u64;
            }
        }
        let mut values = 0;
        (self.pieces.iter())
            .map(|piece| {
                let mut places = of_pattern[piece.pattern];
                places.x = (batch.col_offset(piece.items.start) * nrhs) as u64;
                places.y = (batch.row_offset(piece.items.start) * nrhs) as u64;
                if !self.shared_values {
                    places.values = values;
                    values += self.patterns[piece.pattern].nslots() as u64;
                }
                places
            })
            .collect()
    }

    /// The values of all pieces in packed order, padding 0; those that are shared once a pattern.
    pub(super) fn packed_values<T: Value>(&self, batch: &Batch<T>) -> Vec<T> {
        let sources: Vec<(Range<usize>, &PackedPattern)> = if self.shared_values {
            self.patterns
                .iter()
                .map(|pattern| (0..pattern.nnz / self.item_nnz(), pattern))
                .collect()
        } else {
            let source = |p: &Piece| (p.items.clone(), &self.patterns[p.pattern]);
            self.pieces.iter().map(source).collect()
        };
        let total: usize = sources.iter().map(|(_, pattern)| pattern.nslots()).sum();
        let mut packed = vec![T::ZERO; total];
        let mut rest = packed.as_mut_slice();
        let mut parts = Vec::with_capacity(sources.len());
        for (items, pattern) in sources {
            let (part, after) = rest.split_at_mut(pattern.nslots());
            parts.push((items, pattern, part));
            rest = after;
        }
        parts.into_par_iter().for_each_init(Vec::new, |copy, (items, pattern, part)| {
            let mut values = Vec::new();
            for item in items {
                values.extend_from_slice(batch.values_in(item, copy));
            }
            for (slot, &source) in part.iter_mut().zip(&pattern.source) {
                if source != PADDING {
                    *slot = values[source as usize];
                }
            }
        });
        packed
    }

    /// Entries of an item of a uniform batch, at least 1.
    fn item_nnz(&self) -> usize {
        (self.total_nnz / self.nitems.max(1)).max(1)
    }

    /// Whether a batch is of the sizes that the pieces were made for.
    pub(super) fn check<T: Value>(&self, batch: &Batch<T>) -> Result<(), GpuError> {
        check_len("batch", self.nitems, batch.nitems())?;
        check_len("values", self.total_nnz, batch.total_nnz())?;
        let is_shared = matches!(batch, Batch::Uniform(batch) if batch.is_shared());
        if (is_shared, matches!(batch, Batch::Uniform(_))) == (self.shared_values, self.uniform) {
            return Ok(());
        }
        Err(GpuError::InvalidArgument {
            name: "batch",
            expected: "a batch that shares patterns and values as the one the plan was made for"
                .to_owned(),
            found: "one that shares otherwise".to_owned(),
        })
    }
}
