//! How every piece is stored, and where its parts lie in the arrays of a plan.

use rayon::prelude::*;

use super::options::Mode;
use super::pack::{JOB_WORDS, JOINT_STEPS, Job, WIDE_COLUMNS, WRITE_INDICES, WRITE_VALUES};
use super::pieces::{Piece, Pieces};
use super::source::ItemSizes;
use super::work::{Classes, Measured, Places};
use sparsebatch_cuda::{GpuError, Value};

/// The mode in which each pattern is read, and the class of blocks that reads it.
pub(super) fn kinds(
    shape: &ItemSizes,
    pieces: &Pieces,
    measured: &[Measured],
    classes: &Classes<'_>,
) -> Result<Vec<(Mode, usize)>, GpuError> {
    let few = pieces.pieces.len() <= FEW_PIECES * classes.info.multiprocessors as usize;
    let kind = |(pattern, measured): (usize, &Measured)| {
        classes.of(measured, !shape.uniform, few).ok_or_else(|| {
            let piece = pieces.pieces.iter().find(|piece| piece.pattern == pattern);
            let item = piece.map_or(0, |piece| piece.item);
            let size = shape.size(item);
            GpuError::InvalidArgument {
                name: "batch",
                expected: "systems whose rows fit the shared memory of a block, some at a time"
                    .to_owned(),
                found: format!("item {item} with {} rows, {} entries", size.nrows, size.nnz),
            }
        })
    };
    measured.par_iter().enumerate().map(kind).collect()
}

/// Pieces per multiprocessor up to which all pieces are processed at about the same time.
const FEW_PIECES: usize = 12;

/// Where everything lies in the arrays of a plan, and the jobs that write it.
pub(super) struct Layout {
    /// For each pattern: byte offsets of its values and columns, entry offset of its index.
    patterns: Vec<[u64; 3]>,
    pub(super) jobs: Vec<[u64; JOB_WORDS]>,
    /// The largest shared memory that a job needs, in entries of 16 bits.
    pub(super) shared_entries: usize,
    /// Byte offset of the values of each piece, if values are stored per piece and not per pattern.
    piece_values: Option<Vec<u64>>,
    pub(super) value_bytes: u64,
    pub(super) column_bytes: u64,
    pub(super) index_len: u64,
}

impl Layout {
    /// Columns and index are stored once per pattern. So are values, unless the batch is uniform
    /// without shared values: then they are stored once per piece.
    pub(super) fn new<T: Value>(
        shape: &ItemSizes,
        pieces: &Pieces,
        measured: &[Measured],
        kinds: &[(Mode, usize)],
    ) -> Self {
        let by_pieces = shape.uniform && !shape.shared_values;
        let bytes = |pattern: usize| kinds[pattern].0.bytes::<T>(measured[pattern].nsteps as usize);
        let mut layout = Self {
            patterns: Vec::with_capacity(measured.len()),
            jobs: Vec::new(),
            shared_entries: 0,
            piece_values: None,
            value_bytes: 0,
            column_bytes: 0,
            index_len: 0,
        };
        for (pattern, measured) in measured.iter().enumerate() {
            let (values, columns) = bytes(pattern);
            let to_columns =
                if kinds[pattern].0.joint { layout.value_bytes } else { layout.column_bytes };
            layout.patterns.push([layout.value_bytes, to_columns, layout.index_len]);
            layout.value_bytes += if by_pieces { 0 } else { values };
            layout.column_bytes += columns;
            layout.index_len += measured.index_len() as u64;
            let entries = 2 * measured.nsegments as usize + measured.nrows as usize + 1;
            layout.shared_entries = layout.shared_entries.max(entries);
        }
        let job = |pattern: usize, what: u32, values: usize, to_values: u64| {
            let (mode, of) = (kinds[pattern].0, &measured[pattern]);
            let source = &pieces.patterns[pattern];
            let wide = if mode.wide { WIDE_COLUMNS } else { 0 };
            let joint = if mode.joint { JOINT_STEPS } else { 0 };
            let job = Job {
                values,
                set_values: if by_pieces { source.nnz } else { 0 },
                to_values,
                to_columns: layout.patterns[pattern][1],
                to_index: layout.patterns[pattern][2],
                nsegments: of.nsegments,
                first_column: of.columns.start,
                padding: of.columns.end - of.columns.start,
                flags: of.flags,
                what: what | wide | joint,
            };
            job.words(source)
        };
        let has_rows = |pattern: &usize| measured[*pattern].nrows > 0;
        let what = WRITE_INDICES | if by_pieces { 0 } else { WRITE_VALUES };
        let mut jobs: Vec<_> = ((0..measured.len()).into_par_iter().filter(has_rows))
            .map(|pattern| job(pattern, what, 0, layout.patterns[pattern][0]))
            .collect();
        if by_pieces {
            let mut places = Vec::with_capacity(pieces.pieces.len());
            for piece in &pieces.pieces {
                places.push(layout.value_bytes);
                layout.value_bytes += bytes(piece.pattern).0;
            }
            let of_values = (pieces.pieces.par_iter().zip(&places))
                .filter(|(piece, _)| has_rows(&piece.pattern))
                .map(|(piece, &to_values)| {
                    let [_, _, nnz] = shape.before(piece.item);
                    job(piece.pattern, WRITE_VALUES, nnz, to_values)
                });
            jobs.par_extend(of_values);
            layout.piece_values = Some(places);
        }
        layout.jobs = jobs;
        layout
    }

    /// Offsets of piece `i` in the arrays.
    pub(super) fn places(
        &self,
        shape: &ItemSizes,
        piece: &Piece,
        measured: &Measured,
        i: usize,
        nrhs: usize,
    ) -> Places {
        let [values, columns, index] = self.patterns[piece.pattern];
        let [rows, cols, _] = shape.before(piece.item);
        let size = shape.size(piece.item);
        Places {
            values: self.piece_values.as_ref().map_or(values, |places| places[i]),
            columns,
            index,
            x: (cols * nrhs) as u64 + u64::from(measured.columns.start),
            y: (rows * nrhs + piece.row) as u64,
            x_stride: size.ncols as u64,
            y_stride: size.nrows as u64,
        }
    }
}
