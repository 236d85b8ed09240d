//! The plan: checked options, arrays on the device, launches, outcomes.

use std::collections::HashSet;

use sparsebatch_cuda::{Args, Executor, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::{Batch, CsrPatternRef, Pattern};
use sparsebatch_solve_core::symbolic::Band;
use sparsebatch_solve_core::{ArgumentError, Method, Outcome, Scheme, SolveOptions, check_len};

use super::kernels;
use super::shape::{BandedShape, BandedTuning, BlockLimits, MOST_HALF_WIDTH};
use crate::GpuSolveError;
use crate::common::outcomes::{DeviceOutcomes, Limits, Outcomes};
use crate::common::task::{
    Guess, check_active, check_apart, check_common, check_square, count_systems, item_major,
    shares_values,
};
use crate::common::{Confirmer, GpuSolver, LaunchReport, LaunchShape, PlanReport};

/// A bit of the kernel's `flags`.
const FROM_GUESS: u32 = 1;

/// Elimination without pivoting within the [`Band`] of the pattern of a uniform batch, which has at
/// most four diagonals on each side of the main one, in the order of its rows or in reverse
/// Cuthill-McKee order. A group of 4 to 512 threads solves each system, or a cluster of 2, 4 or 8
/// blocks where the system exceeds the shared memory of one; one launch covers all systems.
///
/// Each thread eliminates among rows of its own, and cyclic reduction solves for what the rows of
/// neighbouring threads have in common. Values, right-hand sides and solutions go through device
/// memory once; the residual is formed from what is still on chip. So nothing would be gained by
/// factors that are kept, which are longer than the values: [`GpuSolver::factor`] keeps nothing but
/// that it was called, and [`GpuSolver::solve_again`] eliminates again, with any values.
///
/// While the true residual does not pass, the solution is refined, up to
/// [`SolveOptions::max_restarts`] times. An iteration is one elimination. Statuses: `ZeroPivot` where
/// a pivot is zero or less than 1e-290 (f32: 1e-36), `NonFinite` where values became NaN or infinite,
/// `Converged` only after `b - A x` was recomputed in the same launch; `Stagnated` and
/// `MaxIterations` as for other solvers. The rows of a thread are eliminated before those of its
/// neighbours, so that pivots are other ones than in an elimination from top to bottom: both exist
/// where the matrix is diagonally dominant or positive definite. A system's result is a function of
/// that system and of the kernel, bit for bit: not of its neighbours, its position in the batch, or
/// the order of threads.
///
/// `Converged` rests on the residual as the kernel computes it, without a bound of its rounding
/// errors; [`GpuSolver::confirm`] includes that bound.
///
/// # Source
/// H. H. Wang, A parallel method for tridiagonal equations, 1981, doi 10.1145/355945.355947; cyclic
/// reduction in parallel: R. W. Hockney, C. R. Jesshope, Parallel Computers, 1981, section 5.4; both
/// on GPUs: Y. Zhang, J. Cohen, J. D. Owens, Fast tridiagonal solvers on the GPU, 2010, doi
/// 10.1145/1693453.1693472; refinement: Higham, Accuracy and Stability of Numerical Algorithms, 2nd
/// ed. 2002, chapter 12.
pub struct BandedSolver<E: Executor, T: Value> {
    executor: E,
    nrows: usize,
    nnz: usize,
    nitems: usize,
    /// Number of participating items, the first ones.
    active: usize,
    nrhs: usize,
    /// Whether there are values that `solve_again` is to eliminate again.
    is_factored: bool,
    key: KernelKey,
    shape: BandedShape,
    config: LaunchConfig,
    /// The rows in the order of the band, where that is not the one of the matrix.
    order: Option<E::Buffer<u16>>,
    /// Where each entry lies in the band, for all but whole tridiagonal patterns.
    places: Option<E::Buffer<u16>>,
    /// For clusters with `places`: where the entries of each block begin, and which they are.
    entries: Option<E::Buffer<u32>>,
    limits: Limits<E>,
    outcomes: Outcomes<E>,
    value: std::marker::PhantomData<T>,
}

impl<E: Executor + Clone, T: Value> BandedSolver<E, T> {
    /// Prepares `nitems` systems of `options.nrhs` right-hand sides each: allocates all device memory
    /// and compiles the kernel. Preconditioner and order of the options are ignored.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square and for options out of range;
    /// [`GpuSolveError::Symbolic`] for a pattern that is no band; [`GpuSolveError::Unsupported`]
    /// for options that the GPU does not support, for more than four diagonals on a side of the
    /// main one, for systems with three or four for whose number of rows the sparse LU is quicker,
    /// and for systems that are too long: on an H200 more than 34,816 rows with one diagonal on a
    /// side, 28,672 with two, 9,216 with three or four. Before compute capability 9.0 there are no
    /// clusters of blocks, and a system has to fit in the shared memory of one block (163 KiB:
    /// 4,352, 2,304, 1,152 and 1,152 rows with one to four diagonals on a side; f32: 8,704, 5,632,
    /// 2,304 and 2,304); [`GpuSolveError::Gpu`] when an allocation or the compiler fails.
    pub fn new(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        Self::with_tuning(executor, pattern, nitems, options, &BandedTuning::default())
    }

    /// As [`BandedSolver::new`], for the pattern of a batch.
    ///
    /// # Errors
    /// Those of [`BandedSolver::new`]; [`GpuSolveError::Unsupported`] for ragged batches and
    /// interleaved values.
    pub fn for_batch(
        executor: &E,
        batch: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let uniform = item_major(batch)?;
        Self::new(executor, uniform.pattern().view(), uniform.nitems(), options)
    }

    /// As [`BandedSolver::new`], with the choices in `tuning` fixed.
    ///
    /// # Errors
    /// Those of [`BandedSolver::new`]; [`GpuSolveError::Argument`] for threads without a kernel.
    pub fn with_tuning(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
        tuning: &BandedTuning,
    ) -> Result<Self, GpuSolveError> {
        let nrows = pattern.nrows();
        check_square(0, pattern)?;
        check_supported(options)?;
        let systems = count_systems(nitems, options.nrhs)?;
        let criteria = options.criteria::<T>(systems)?;
        let band = Band::of(pattern)?;
        let info = executor.info();
        let limits = BlockLimits {
            shared_bytes: info.shared_bytes_per_block,
            cluster: info.most_blocks_of_cluster(),
        };
        let size = size_of::<T>();
        let shape = BandedShape::choose((nrows, band.half_width()), size, limits, tuning)?;
        let (width, rows, threads) = (shape.half_width, shape.rows_per_thread, shape.threads);
        let cluster = match shape.cluster {
            1 => String::new(),
            blocks => format!(", {blocks}"),
        };
        let expression = format!("banded<{}, {width}, {rows}, {threads}{cluster}>", T::CPP);
        let key = KernelKey::new(&kernels::BANDED, expression);
        executor.prepare(std::slice::from_ref(&key))?;
        let order: Option<Vec<u16>> =
            band.order().map(|order| order.iter().map(|&row| row as u16).collect());
        let (places, entries) = places(pattern, &band, &shape).unzip();
        let upload = |array: Option<Vec<u16>>| array.map(|array| executor.upload(&array));
        let entries = entries.filter(|_| shape.cluster > 1);
        let mut config = LaunchConfig {
            shared_bytes: shape.shared_bytes(size),
            cluster: shape.cluster,
            ..LaunchConfig::linear(shape.blocks(nitems, tuning), shape.block)
        };
        if shape.cluster > 1 {
            // To begin a cluster takes longer than to go on with another system.
            let most = executor.resident_clusters(&key, config)? * shape.cluster;
            config.grid[0] = config.grid[0].min(most);
        }
        Ok(Self {
            executor: executor.clone(),
            nrows,
            nnz: pattern.nnz(),
            nitems,
            active: nitems,
            nrhs: options.nrhs,
            is_factored: false,
            key,
            shape,
            config,
            order: upload(order).transpose()?,
            places: upload(places).transpose()?,
            entries: entries.map(|entries| executor.upload(&entries)).transpose()?,
            limits: Limits::new(executor, criteria)?,
            outcomes: Outcomes::new(executor, systems)?,
            value: std::marker::PhantomData,
        })
    }

    /// Solves every system. Allocates nothing, launches one kernel and returns before it is done.
    ///
    /// `values` holds the entries of item 0 in CSR order, of item 1, ...; or those of one item,
    /// shared by all. `b` and `x` are item-major, one right-hand side after the other within an
    /// item. A system that does not converge is no error: see [`GpuSolver::outcomes`]; one that ends
    /// `ZeroPivot` keeps its guess.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, when `x` overlaps another array,
    /// [`GpuSolveError::Gpu`] when the launch is refused; `x` is untouched then.
    #[expect(unsafe_code, reason = "a launch")]
    pub fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let shared = shares_values(values.len(), self.nnz, self.nitems)?;
        let rows = self.nrows * self.nitems * self.nrhs;
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        check_apart(b, x)?;
        check_apart(values, x)?;
        if self.active == 0 {
            return Ok(());
        }
        let mut args = Args::new();
        args.scalar(self.active as u32)
            .scalar(self.nrows as u32)
            .scalar(self.nrhs as u32)
            .scalar(self.nnz as u32)
            .raw(self.order.as_ref().map_or(0, KernelBuffer::raw))
            .raw(self.places.as_ref().map_or(0, KernelBuffer::raw))
            .raw(self.entries.as_ref().map_or(0, KernelBuffer::raw))
            .input(values)
            .scalar(if shared { 0 } else { self.nnz as u64 })
            .input(b)
            .output(x)
            .scalar(if guess == Guess::InX { FROM_GUESS } else { 0 });
        self.limits.pass(&mut args);
        self.outcomes.pass(&mut args);
        // SAFETY: the arguments are those of `banded`; lengths were checked here; `with_tuning`
        // made `order` a permutation of the rows, `places` of the pattern, within the band of a
        // block, and `entries` a permutation of the entries, took a kernel with room for the rows,
        // and the shared memory of that; x overlaps neither values nor b, and everything else
        // belongs to the plan.
        unsafe { self.executor.launch(&self.key, self.config, &mut args) }?;
        Ok(())
    }

    /// From now on only the first `items` items take part in solves. The arrays keep their lengths;
    /// their elements for the other items are not touched, outcomes included.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when `items` exceeds the plan's.
    pub fn set_active(&mut self, items: usize) -> Result<(), GpuSolveError> {
        check_active(items, self.nitems)?;
        self.active = items;
        Ok(())
    }

    /// The outcomes of the last solve in device memory, for kernels of the caller.
    pub fn device_outcomes(&self) -> DeviceOutcomes<'_, E> {
        self.outcomes.on_device()
    }
}

/// The shape that [`BandedSolver`] takes by default for a pattern, in the order of its [`Band`];
/// `None` where it refuses the pattern. `value_bytes`: bytes of a value; `shared_bytes`: shared
/// memory of a block; `cluster`: the most blocks of a cluster.
pub fn banded_shape(
    pattern: CsrPatternRef<'_>,
    value_bytes: usize,
    (shared_bytes, cluster): (u32, u32),
) -> Option<BandedShape> {
    let nrows = pattern.nrows();
    let limits = BlockLimits { shared_bytes, cluster };
    let shape = |half_width: usize| {
        let tuning = BandedTuning::default();
        BandedShape::choose((nrows, half_width), value_bytes, limits, &tuning).ok()
    };
    // No order is looked for where none would do.
    let has_room = pattern.nnz() <= (2 * MOST_HALF_WIDTH + 1) * nrows;
    if !(has_room && shape(0).is_some()) || is_surely_wide(pattern) {
        return None;
    }
    shape(Band::of(pattern).ok()?.half_width())
}

/// Whether no order makes a pattern a band of [`MOST_HALF_WIDTH`] diagonals on a side: in such an
/// order `k` steps from a row lead at most `k` times as far, to one of `2 k MOST_HALF_WIDTH + 1`
/// rows. Looks at the surroundings of the row in the middle, as far as there are fewer rows.
fn is_surely_wide(pattern: CsrPatternRef<'_>) -> bool {
    const MOST_STEPS: usize = 16;
    let mut seen = HashSet::from([pattern.nrows() / 2]);
    let mut last: Vec<usize> = seen.iter().copied().filter(|&row| row < pattern.nrows()).collect();
    for steps in 1..=MOST_STEPS {
        let next = last.iter().flat_map(|&row| &pattern.col_idx()[pattern.row(row)]);
        last = next.map(|&col| col as usize).filter(|&col| seen.insert(col)).collect();
        if seen.len() > 2 * steps * MOST_HALF_WIDTH + 1 {
            return true;
        }
    }
    false
}

/// Where the entries lie in the bands of their blocks, block by block and row by row; and, for all
/// blocks, where their entries begin, the end of the last, and the numbers of the entries in that
/// order. `None` where entry `k` lies at `k + 1` of the band of all rows, as those of a whole
/// tridiagonal pattern do.
fn places(
    pattern: CsrPatternRef<'_>,
    band: &Band,
    shape: &BandedShape,
) -> Option<(Vec<u16>, Vec<u32>)> {
    let nrows = pattern.nrows();
    let is_whole = pattern.nnz() + 2 == 3 * nrows;
    if band.order().is_none() && band.half_width() <= 1 && is_whole {
        return None;
    }
    let mut inverse: Vec<usize> = (0..nrows).collect();
    for (place, &row) in band.order().into_iter().flatten().enumerate() {
        inverse[row as usize] = place;
    }
    let (width, diagonals) = (shape.half_width as usize, shape.diagonals());
    let of_block = shape.rows_of_block();
    let (mut places, mut begins, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for block in 0..shape.cluster as usize {
        begins.push(places.len() as u32);
        for row in (0..nrows).filter(|&row| inverse[row] / of_block == block) {
            let at = inverse[row];
            for k in pattern.row(row) {
                let col = inverse[pattern.col_idx()[k] as usize];
                places.push((at % of_block * diagonals + col + width - at) as u16);
                numbers.push(k as u32);
            }
        }
    }
    begins.push(places.len() as u32);
    begins.append(&mut numbers);
    Some((places, begins))
}

fn check_supported(options: &SolveOptions) -> Result<(), GpuSolveError> {
    match options.method {
        Method::Auto | Method::Banded => check_common(options),
        Method::Cg | Method::BiCgStab | Method::Lu | Method::PivotingLu => {
            Err(GpuSolveError::Unsupported {
                what: "a solver other than banded",
                instead: "take banded",
            })
        }
    }
}

impl<E, T> GpuSolver<E, T> for BandedSolver<E, T>
where
    E: Executor + Clone + Send + Sync,
    T: Value,
{
    fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        Self::solve(self, values, b, guess, x)
    }

    fn keeps_factors(&self) -> bool {
        true
    }

    fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        shares_values(values.len(), self.nnz, self.nitems)?;
        self.is_factored = true;
        Ok(())
    }

    fn forget_factors(&mut self) {
        self.is_factored = false;
    }

    fn solve_again(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        if !self.is_factored {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "factors",
                expected: "a call of factor before",
                found: "none".to_owned(),
            }));
        }
        Self::solve(self, values, b, guess, x)
    }

    fn solves_near(&self) -> bool {
        true
    }

    fn set_active(&mut self, items: usize) -> Result<(), GpuSolveError> {
        Self::set_active(self, items)
    }

    fn confirm(
        &mut self,
        confirmer: &Confirmer<E, T>,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let systems = self.active * self.nrhs;
        confirmer.confirm((&mut self.outcomes, systems), values, b, x)
    }

    fn outcomes(&self) -> Result<Vec<Outcome>, GpuSolveError> {
        Ok(self.outcomes.download(&self.executor)?)
    }

    fn outcome_arrays(&self) -> &Outcomes<E> {
        &self.outcomes
    }

    fn outcome_arrays_mut(&mut self) -> &mut Outcomes<E> {
        &mut self.outcomes
    }

    fn limits_mut(&mut self) -> &mut Limits<E> {
        &mut self.limits
    }

    fn explain(&self) -> PlanReport {
        let systems = self.nitems * self.nrhs;
        let launch = LaunchReport {
            scheme: Scheme::Banded,
            kernel: self.key.expression.clone(),
            systems,
            patterns: 1,
            nrows: self.nrows,
            nnz: self.nnz,
            threads_per_system: self.shape.threads * self.shape.cluster,
            systems_per_block: self.shape.systems_per_block(),
            threads_per_block: self.shape.block,
            blocks: self.config.grid[0],
            shared_bytes: self.config.shared_bytes,
            shape: LaunchShape::Banded(self.shape),
        };
        let words = |array: &Option<E::Buffer<u16>>| array.as_ref().map_or(0, KernelBuffer::len);
        let entries = self.entries.as_ref().map_or(0, KernelBuffer::len);
        PlanReport {
            scheme: Scheme::Banded,
            launches: vec![launch],
            pattern_bytes: (2 * (words(&self.order) + words(&self.places)) + 4 * entries) as u64,
            workspace_bytes: (systems
                * (Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system()))
                as u64,
            kept_bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::CsrPattern;

    use super::*;

    /// A pattern of `n` rows with an entry wherever `has` says so.
    fn pattern(n: usize, has: impl Fn(usize, usize) -> bool) -> CsrPattern {
        let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
        for row in 0..n {
            col_idx.extend((0..n).filter(|&col| has(row, col)).map(|col| col as i32));
            row_ptr.push(col_idx.len() as i32);
        }
        CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
    }

    #[test]
    fn grids_are_surely_wide_and_no_band_is() {
        let near = |(a, b): (usize, usize), distance| a.abs_diff(b) <= distance;
        for n in [0, 1, 7, 300] {
            for half in 0..=MOST_HALF_WIDTH {
                let band = pattern(n, |row, col| near((row, col), half));
                assert!(!is_surely_wide(band.view()), "{n} {half}");
                // Rows lie 7 apart.
                let shuffled = pattern(n, |row, col| near((row * 7 % n, col * 7 % n), half));
                assert!(n % 7 == 0 || !is_surely_wide(shuffled.view()), "{n} {half}");
            }
        }
        let grid = pattern(900, |row, col| {
            let (x, y) = ((row % 30).abs_diff(col % 30), (row / 30).abs_diff(col / 30));
            x + y <= 1
        });
        assert!(is_surely_wide(grid.view()));
        assert!(is_surely_wide(pattern(40, |row, col| row == col || row == 0 || col == 0).view()));
        assert_eq!(banded_shape(grid.view(), 8, (232_448, 8)), None);
    }
}
