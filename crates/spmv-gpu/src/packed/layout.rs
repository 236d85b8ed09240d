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

/// The batch that a layout is made for.
struct LayoutSource<'a> {
    shape: &'a ItemSizes,
    pieces: &'a Pieces,
    measured: &'a [Measured],
    kinds: &'a [(Mode, usize)],
}

impl LayoutSource<'_> {
    /// Whether values are stored per piece and not per pattern.
    fn by_pieces(&self) -> bool {
        self.shape.uniform && !self.shape.shared_values
    }

    /// Bytes of the values and of the columns of a pattern.
    fn bytes<T: Value>(&self, pattern: usize) -> (u64, u64) {
        self.kinds[pattern].0.bytes::<T>(self.measured[pattern].nsteps as usize)
    }

    fn has_rows(&self, pattern: usize) -> bool {
        self.measured[pattern].nrows > 0
    }
}

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
        let batch = LayoutSource { shape, pieces, measured, kinds };
        let mut layout = Self {
            patterns: Vec::with_capacity(measured.len()),
            jobs: Vec::new(),
            shared_entries: 0,
            piece_values: None,
            value_bytes: 0,
            column_bytes: 0,
            index_len: 0,
        };
        layout.place_patterns::<T>(&batch);
        layout.jobs = layout.jobs_of_patterns(&batch);
        if batch.by_pieces() {
            let places = layout.place_pieces::<T>(&batch);
            let jobs = layout.jobs_of_pieces(&batch, &places);
            layout.jobs.extend(jobs);
            layout.piece_values = Some(places);
        }
        layout
    }

    /// Places the arrays of all patterns one after the other.
    fn place_patterns<T: Value>(&mut self, batch: &LayoutSource<'_>) {
        let by_pieces = batch.by_pieces();
        for (pattern, measured) in batch.measured.iter().enumerate() {
            let (values, columns) = batch.bytes::<T>(pattern);
            let to_columns =
                if batch.kinds[pattern].0.joint { self.value_bytes } else { self.column_bytes };
            self.patterns.push([self.value_bytes, to_columns, self.index_len]);
            self.value_bytes += if by_pieces { 0 } else { values };
            self.column_bytes += columns;
            self.index_len += measured.index_len() as u64;
            let entries = 2 * measured.nsegments as usize + measured.nrows as usize + 1;
            self.shared_entries = self.shared_entries.max(entries);
        }
    }

    /// Places the values of all pieces, behind those of the patterns. Returns their byte offsets.
    fn place_pieces<T: Value>(&mut self, batch: &LayoutSource<'_>) -> Vec<u64> {
        let mut places = Vec::with_capacity(batch.pieces.pieces.len());
        for piece in &batch.pieces.pieces {
            places.push(self.value_bytes);
            self.value_bytes += batch.bytes::<T>(piece.pattern).0;
        }
        places
    }

    /// The jobs that write the index and the columns of each pattern, and its values if these are
    /// stored per pattern.
    fn jobs_of_patterns(&self, batch: &LayoutSource<'_>) -> Vec<[u64; JOB_WORDS]> {
        let what = WRITE_INDICES | if batch.by_pieces() { 0 } else { WRITE_VALUES };
        ((0..batch.measured.len()).into_par_iter().filter(|&pattern| batch.has_rows(pattern)))
            .map(|pattern| self.job(batch, pattern, what, (0, self.patterns[pattern][0])))
            .collect()
    }

    /// The jobs that write the values of each piece to these byte offsets.
    fn jobs_of_pieces(&self, batch: &LayoutSource<'_>, places: &[u64]) -> Vec<[u64; JOB_WORDS]> {
        (batch.pieces.pieces.par_iter().zip(places))
            .filter(|(piece, _)| batch.has_rows(piece.pattern))
            .map(|(piece, &to_values)| {
                let [_, _, nnz] = batch.shape.before(piece.item);
                self.job(batch, piece.pattern, WRITE_VALUES, (nnz, to_values))
            })
            .collect()
    }

    /// The job that writes arrays of a pattern. The values come from the offset `values` of the
    /// batch and go to the byte offset `to_values`.
    fn job(
        &self,
        batch: &LayoutSource<'_>,
        pattern: usize,
        what: u32,
        (values, to_values): (usize, u64),
    ) -> [u64; JOB_WORDS] {
        let (mode, of) = (batch.kinds[pattern].0, &batch.measured[pattern]);
        let source = &batch.pieces.patterns[pattern];
        let wide = if mode.wide { WIDE_COLUMNS } else { 0 };
        let joint = if mode.joint { JOINT_STEPS } else { 0 };
        let job = Job {
            values,
            set_values: if batch.by_pieces() { source.nnz } else { 0 },
            to_values,
            to_columns: self.patterns[pattern][1],
            to_index: self.patterns[pattern][2],
            nsegments: of.nsegments,
            first_column: of.columns.start,
            padding: of.columns.end - of.columns.start,
            flags: of.flags,
            what: what | wide | joint,
        };
        job.words(source)
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
