//! Chooses a system's shape: the first in order of measured speed that holds the system.

use sparsebatch_cuda::DeviceInfo;
use sparsebatch_formats::CsrPatternRef;

use super::tables::{
    CLUSTERS, KERNELS, Kernel, LONG, Load, MANY_NEIGHBOURS, MIXED_OF_FEW, MIXED_OF_MANY,
    MOST_PADDING, THREADS_IN_CLUSTER, Work,
};
use super::tuning::check_tuning;
use super::{
    GpuTuning, GroupShape, MAX_ROWS, ValuePlace, group_bytes, most_rows, reserved_bytes, stored,
};
use crate::GpuSolveError;
use crate::fused::pattern::{has_empty_column, places_a_row, share_of_neighbours, widths};
use sparsebatch_solve_core::{ArgumentError, Krylov};

/// Number of vectors that a method keeps in shared memory. BiCGStab keeps its least used vectors
/// there too where threads have many rows or rows are long.
fn vectors(
    method: Krylov,
    (threads, rows): (u32, u32),
    width: u32,
    mixed: bool,
    load: Load,
    tuning: &GpuTuning,
) -> u32 {
    match method {
        Krylov::Cg => 1,
        Krylov::BiCgStab => {
            let fit = match width {
                3 if mixed => true,
                9 if mixed => false,
                3 => load == Load::Few && rows <= 4,
                5 => rows <= 2,
                9 => threads >= 32 && rows == 4,
                _ => false,
            };
            tuning.vectors.unwrap_or(if fit { 1 } else { 3 })
        }
    }
}

/// Chooses the shape for the systems of a pattern, given how many there are of all patterns.
pub(crate) fn choose(
    pattern: CsrPatternRef<'_>,
    (method, jacobi, wants_mixed): (Krylov, bool, bool),
    value_bytes: usize,
    load: Load,
    info: &DeviceInfo,
    tuning: &GpuTuning,
) -> Result<GroupShape, GpuSolveError> {
    let nrows = pattern.nrows();
    if nrows > most_rows(info) {
        let what = match info.most_blocks_of_cluster() {
            1 => "systems of more than 4096 rows",
            _ => "systems of more than 32768 rows",
        };
        return Err(GpuSolveError::Unsupported { what, instead: "take the composed solver" });
    }
    let usual = if nrows > MAX_ROWS { 2 } else { 1 };
    if tuning.cluster.unwrap_or(usual) > 1 {
        return choose_cluster(pattern, method, value_bytes, info, tuning);
    }
    check_tuning(nrows, info, tuning)?;
    let quicker = pattern.nnz() >= if load == Load::Few { MIXED_OF_FEW } else { MIXED_OF_MANY };
    let wants_mixed = wants_mixed && tuning.mixed.unwrap_or(quicker);
    let system = System::new(pattern, (load, method, jacobi), value_bytes, info, tuning);
    let shape = |kernel: &Kernel| {
        let mixed = wants_mixed && kernel.place == ValuePlace::Registers;
        mixed.then(|| system.shape(kernel, true)).flatten().or_else(|| system.shape(kernel, false))
    };
    KERNELS.iter().find_map(shape).ok_or_else(|| no_place(pattern, tuning))
}

/// A system that one block solves, and all that its shape depends on.
struct System<'a> {
    pattern: CsrPatternRef<'a>,
    work: Work,
    value_bytes: usize,
    info: &'a DeviceInfo,
    tuning: &'a GpuTuning,
    /// The most and the mean number of entries of a row.
    longest: usize,
    mean: usize,
    /// The most places of a row in registers, where the diagonal has a place of its own.
    plain: usize,
    /// The same, where the diagonal and its two neighbours have places of their own.
    beside: usize,
    /// Whether most rows have both neighbours of the diagonal.
    is_chain: bool,
    /// Whether every column has an entry.
    is_whole: bool,
}

impl<'a> System<'a> {
    fn new(
        pattern: CsrPatternRef<'a>,
        work: Work,
        value_bytes: usize,
        info: &'a DeviceInfo,
        tuning: &'a GpuTuning,
    ) -> Self {
        Self {
            pattern,
            work,
            value_bytes,
            info,
            tuning,
            longest: widths(pattern, 1).0,
            mean: pattern.nnz() / pattern.nrows().max(1),
            plain: places_a_row(pattern, 1),
            beside: places_a_row(pattern, 3),
            is_chain: share_of_neighbours(pattern) >= MANY_NEIGHBOURS,
            is_whole: !has_empty_column(pattern),
        }
    }

    /// The shape in which a kernel solves the system, if the kernel suits it and a block has room.
    fn shape(&self, kernel: &Kernel, mixed: bool) -> Option<GroupShape> {
        if !self.is_suited(kernel) {
            return None;
        }
        let (tuning, (load, method, _)) = (self.tuning, self.work);
        let &Kernel { place, width, near, parts: usual, .. } = kernel;
        let usual_group = || kernel.group(self.pattern.nrows(), mixed, self.work);
        let (threads, rows) = tuning.group.or_else(usual_group)?;
        let parts = if usual > 1 { tuning.parts.unwrap_or(usual) } else { 1 };
        // Threads that share rows keep the other vectors in registers.
        let vectors = if parts > 1 {
            1
        } else {
            vectors(method, (threads, rows), width, mixed, load, tuning)
        };
        let shape =
            GroupShape { threads, parts, rows, width, place, near, vectors, mixed, cluster: 1 };
        if shape.team() > self.info.max_threads_per_block
            || (parts == 1 && tuning.parts.is_some_and(|n| n > 1))
        {
            return None;
        }
        self.has_room(&shape).then_some(shape)
    }

    /// Whether a kernel is made for such a system and for the choices in the tuning.
    fn is_suited(&self, kernel: &Kernel) -> bool {
        let &Kernel { place, width, near, parts, .. } = kernel;
        let tuning = self.tuning;
        // Columns in registers with values in shared memory suit rows of about `width` entries
        // only.
        let suits = match place {
            ValuePlace::Registers if near => {
                self.beside <= width as usize && tuning.near.unwrap_or(self.is_chain)
            }
            ValuePlace::Registers => self.plain <= width as usize,
            _ if parts > 1 => tuning.parts.map_or(self.mean >= LONG, |parts| parts > 1),
            _ => width == 0 || (self.longest >= 6 && self.plain <= width as usize),
        };
        // Padding multiplies an element of the vector by 0: a non-finite element of a column that
        // no row stores must not reach the product.
        suits && (width == 0 || self.is_whole) && tuning.values.is_none_or(|only| only == place)
    }

    /// Whether the shared memory of a block holds the system.
    fn has_room(&self, shape: &GroupShape) -> bool {
        let (pattern, value_bytes) = (self.pattern, self.value_bytes);
        let stored = stored(shape, places(pattern, shape), pattern.nnz(), value_bytes);
        // Groups of a block, which has at least one warp.
        let groups = u64::from(32 / shape.team().min(32));
        // The systems that iterations in f32 leave are solved in the same shape, with vectors in
        // f64.
        let bytes = group_bytes(shape, stored, value_bytes);
        let bytes = bytes.max(group_bytes(&shape.unmixed(), stored, value_bytes));
        let bytes = groups * bytes + reserved_bytes(shape);
        // Columns in registers are 16-bit offsets in shared memory.
        let reached = shape.width == 0 || groups == 1 || bytes <= 1 << 16;
        reached && bytes <= u64::from(self.info.shared_bytes_per_block)
    }
}

/// Why no shape fits: an error about the tuning if a choice in it constrains the shape.
fn no_place(pattern: CsrPatternRef<'_>, tuning: &GpuTuning) -> GpuSolveError {
    let asked = GpuTuning { few: None, mixed: None, max_blocks: None, resident: None, ..*tuning };
    if asked == GpuTuning::default() {
        return GpuSolveError::Unsupported {
            what: "a system that does not fit into shared memory, or has one row of very many \
                   entries among short ones",
            instead: "take the composed solver",
        };
    }
    let (nrows, (longest, _)) = (pattern.nrows(), widths(pattern, 1));
    GpuSolveError::Argument(ArgumentError::OutOfRange {
        name: "tuning",
        expected: "a place that holds the values of a system",
        found: format!("{tuning:?} for {nrows} rows of up to {longest} entries"),
    })
}

/// Chooses the shape for systems that the blocks of a cluster solve together: the fewest blocks
/// whose shared memory holds values and vectors or, failing that, the vectors alone.
fn choose_cluster(
    pattern: CsrPatternRef<'_>,
    method: Krylov,
    value_bytes: usize,
    info: &DeviceInfo,
    tuning: &GpuTuning,
) -> Result<GroupShape, GpuSolveError> {
    check_tuning(pattern.nrows(), info, tuning)?;
    let only = tuning.group.map(|group| [group]);
    let groups = only.as_ref().map_or(CLUSTERS, |only| &only[..]);
    let most = info.most_blocks_of_cluster();
    let fits = |&(place, (threads, rows)): &(ValuePlace, (u32, u32))| {
        let cluster = (threads / THREADS_IN_CLUSTER.min(threads / 2)).min(most);
        let cluster = tuning.cluster.unwrap_or(cluster);
        let (parts, width, near, mixed) = (1, 0, false, false);
        let vectors = vectors(method, (threads, rows), width, mixed, Load::Many, tuning);
        let shape =
            GroupShape { threads, parts, rows, width, place, near, vectors, mixed, cluster };
        let places = places(pattern, &shape);
        let stored = stored(&shape, places, pattern.nnz(), value_bytes);
        let bytes = group_bytes(&shape, stored, value_bytes) + reserved_bytes(&shape);
        let is_chosen = tuning.group.is_some() || tuning.cluster.is_some();
        let is_right = (is_chosen || places <= MOST_PADDING * pattern.nnz().max(pattern.nrows()))
            && tuning.values.is_none_or(|only| only == place)
            && tuning.parts.is_none_or(|parts| parts == 1)
            && (threads * rows) as usize >= pattern.nrows()
            && (tuning.group.is_some() || threads == cluster * THREADS_IN_CLUSTER)
            && shape.team_of_block() <= info.max_threads_per_block
            && bytes <= u64::from(info.shared_bytes_per_block);
        is_right.then_some(shape)
    };
    [ValuePlace::Shared, ValuePlace::Global]
        .into_iter()
        .flat_map(|place| groups.iter().map(move |&group| (place, group)))
        .find_map(|choice| fits(&choice))
        .ok_or_else(|| no_place(pattern, tuning))
}

/// Number of places in the slices of a pattern.
fn places(pattern: CsrPatternRef<'_>, shape: &GroupShape) -> usize {
    let threads = shape.threads as usize;
    let nrows = pattern.nrows();
    match shape.width {
        0 if shape.cluster > 1 => {
            let len = |slot: usize| match shape.row_in(slot, nrows) {
                row if row < nrows => pattern.row(row).len(),
                _ => 0,
            };
            let width = |slice: usize| (slice * threads..(slice + 1) * threads).map(len).max();
            (0..shape.rows as usize).filter_map(width).sum::<usize>() * threads
        }
        0 => widths(pattern, threads).1,
        width => (shape.threads * shape.rows * width) as usize,
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::{CsrPattern, Pattern};

    use super::*;

    fn info(shared_bytes_per_block: u32) -> DeviceInfo {
        DeviceInfo {
            compute_capability: (12, 0),
            multiprocessors: 132,
            max_threads_per_block: 1024,
            shared_bytes_per_block,
            ..DeviceInfo::default()
        }
    }

    /// A diagonal matrix whose first row has `first` entries.
    fn arrow(n: usize, first: usize) -> CsrPattern {
        let row_ptr = (0..=n).map(|row| if row == 0 { 0 } else { (first + row - 1) as i32 });
        let col_idx = (0..first as i32).chain(1..n as i32);
        CsrPattern::try_new(n, n, row_ptr.collect(), col_idx.collect()).unwrap()
    }

    fn chosen(
        pattern: &CsrPattern,
        method: Krylov,
        info: &DeviceInfo,
        tuning: &GpuTuning,
    ) -> Result<GroupShape, GpuSolveError> {
        choose(pattern.view(), (method, false, false), 8, Load::Many, info, tuning)
    }

    #[test]
    fn what_has_no_room_on_a_device_is_for_another_solver() {
        let (pattern, usual) = (arrow(20_000, 1), GpuTuning::default());
        for (shared_bytes, method, is_taken) in [
            (101_376, Krylov::Cg, true),
            (101_376, Krylov::BiCgStab, false),
            (232_448, Krylov::BiCgStab, true),
        ] {
            let found = chosen(&pattern, method, &info(shared_bytes), &usual);
            let is_refused = matches!(found, Err(GpuSolveError::Unsupported { .. }));
            assert_eq!((found.is_ok(), is_refused), (is_taken, !is_taken), "{found:?}");
        }
        let asked = GpuTuning { values: Some(ValuePlace::Shared), ..usual };
        let found = chosen(&pattern, Krylov::BiCgStab, &info(101_376), &asked);
        assert!(
            matches!(
                found,
                Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "tuning", .. }))
            ),
            "{found:?}"
        );
    }

    #[test]
    fn one_long_row_is_not_for_a_cluster() {
        for (first, is_taken) in [(1, true), (5, true), (6000, false)] {
            let pattern = arrow(6000, first);
            let found = chosen(&pattern, Krylov::Cg, &info(232_448), &GpuTuning::default());
            let is_refused = matches!(found, Err(GpuSolveError::Unsupported { .. }));
            assert_eq!((found.is_ok(), is_refused), (is_taken, !is_taken), "{first}: {found:?}");
        }
    }

    #[test]
    fn no_cluster_has_more_blocks_than_there_may_be() {
        let tuning = GpuTuning { group: Some((8192, 4)), ..GpuTuning::default() };
        let found = chosen(&arrow(20_000, 1), Krylov::Cg, &info(232_448), &tuning).unwrap();
        assert_eq!((found.cluster, found.team_of_block()), (8, 1024));
    }
}
