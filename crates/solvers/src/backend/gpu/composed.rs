//! The items that the composed solver solves: [`ComposedItems`].

use std::borrow::Cow;
use std::ops::Range;

use sparsebatch_cuda::{Executor, GpuError, KernelBuffer, Value};
use sparsebatch_formats::{Batch, CsrPattern, Pattern, RaggedCsr};
use sparsebatch_solve_core::{Outcome, ProductCost};

use super::divide::is_full;
use super::part::Site;
use super::plan::options_of;
use super::staging::Systems;
use crate::SolveError;
use crate::gpu::{ComposedSolver, Guess, ProductKernel};
use crate::share::shares_values;

/// Whether the composed solver supports the scheme.
pub(super) fn composes<E>(site: &Site<E>) -> bool {
    site.scheme.krylov().is_some() && !site.scheme.preconditioner().has_factors()
}

/// Items of any patterns, solved at once or in chunks that are on the GPU one after the other.
pub(super) struct ComposedItems<E: Executor, T: Value> {
    /// The items of each chunk, ascending; one chunk if all are solved at once.
    chunks: Vec<Vec<u32>>,
    /// One pattern for all items, or one per item.
    patterns: Vec<CsrPattern>,
    products: ProductKernel,
    /// The solver of all items, if all are solved at once.
    loaded: Option<ComposedPart<E, T>>,
    /// The kernels, for reports.
    kernel: String,
    /// The matrix format of the products.
    format: &'static str,
    cost: Option<ProductCost>,
    /// Bytes on the device of the first chunk.
    device_bytes: u64,
}

/// Device memory available to items, and how they may use it.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Bytes on the device.
    pub(super) budget: u64,
    /// Whether the items may be divided into chunks.
    pub(super) may_divide: bool,
    /// Whether the device memory is released between solves.
    pub(super) in_turns: bool,
}

impl<E, T> ComposedItems<E, T>
where
    E: Executor + Clone,
    T: Value,
{
    /// Makes the solver of these items (at least one, ascending).
    ///
    /// # Errors
    /// Those of [`ComposedSolver::new`]; [`GpuError::OutOfMemory`] when the items, or one of them,
    /// do not fit.
    pub(super) fn new(
        site: &Site<E>,
        batch: &Batch<T>,
        items: Vec<u32>,
        products: ProductKernel,
        room: Room,
    ) -> Result<Self, SolveError> {
        let mut this = Self {
            patterns: match batch {
                Batch::Uniform(uniform) => vec![uniform.pattern().as_ref().clone()],
                Batch::Ragged(ragged) => {
                    let pattern = |&item: &u32| ragged.item(item as usize).pattern().to_pattern();
                    items.iter().map(pattern).collect()
                }
            },
            chunks: vec![items],
            products,
            loaded: None,
            kernel: String::new(),
            format: "",
            cost: None,
            device_bytes: 0,
        };
        let of_item = |&item: &u32| bytes(batch, item, site.options.nrhs);
        let needed = this.chunks[0].iter().map(of_item).sum();
        let out_of_memory = |needed| GpuError::OutOfMemory { needed, free: room.budget };
        if needed > room.budget && !room.may_divide {
            return Err(out_of_memory(needed).into());
        }
        let mut most = room.budget;
        let first = loop {
            let items = this.chunks.concat();
            if let Some(large) = items.iter().map(of_item).find(|&bytes| bytes > room.budget) {
                return Err(out_of_memory(large).into());
            }
            this.chunks = runs(&items, most, of_item);
            match ComposedPart::new(site, batch, &this.chunks[0], &this.products) {
                Err(error) if is_full(&error) && room.may_divide && this.chunks[0].len() > 1 => {
                    most = this.chunks[0].iter().map(of_item).sum::<u64>() / 2;
                }
                part => break part?,
            }
        };
        let explain = first.solver.explain();
        (this.kernel, this.format) = (explain.kernels(), explain.format);
        let vectors = (first.b.len() + first.x.len()) * size_of::<T>();
        this.device_bytes = explain.product_bytes + explain.workspace_bytes + vectors as u64;
        if this.chunks.len() == 1 && !room.in_turns {
            this.loaded = Some(first);
        }
        Ok(this)
    }

    /// The items, ascending.
    pub(super) fn items(&self) -> impl Iterator<Item = u32> + '_ {
        self.chunks.iter().flatten().copied()
    }

    pub(super) fn nitems(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    /// Bytes that stay on the device between solves.
    pub(super) fn held(&self) -> u64 {
        if self.loaded.is_some() { self.device_bytes } else { 0 }
    }

    /// Bytes that it takes on the device.
    pub(super) fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    pub(super) fn kernel(&self) -> &str {
        &self.kernel
    }

    pub(super) fn format(&self) -> &'static str {
        self.format
    }

    /// What the products of the last solve have cost, all chunks together.
    pub(super) fn product_cost(&mut self) -> Result<Option<ProductCost>, SolveError> {
        match &mut self.loaded {
            Some(part) => Ok(Some(part.solver.product_cost()?)),
            None => Ok(self.cost.clone()),
        }
    }

    /// The first of the items that has another pattern in a batch.
    pub(super) fn first_difference(&self, batch: &Batch<T>) -> Option<u32> {
        let uniform = self.patterns.len() == 1;
        // For two uniform batches the first item decides.
        let some = if uniform && matches!(batch, Batch::Uniform(_)) { 1 } else { usize::MAX };
        let mut items = self.chunks.iter().flatten().copied().enumerate().take(some);
        let other = items.find(|&(place, item)| {
            self.patterns[if uniform { 0 } else { place }].view() != batch.pattern(item as usize)
        });
        other.map(|(_, item)| item)
    }

    /// Solves all items and stores the results of wanted systems. With `tells_cost` it records the
    /// cost of the products of all chunks.
    pub(super) fn solve(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        (b, x, outcomes): (&[T], &mut [T], &mut [Option<Outcome>]),
        tells_cost: bool,
    ) -> Result<(), SolveError> {
        if let Some(part) = &mut self.loaded {
            part.take_values(site, systems.batch, &self.products)?;
            return part.solve(site, systems, (b, x, outcomes));
        }
        self.cost = None;
        let mut waiting: Vec<Vec<u32>> = self.chunks.iter().rev().cloned().collect();
        while let Some(items) = waiting.pop() {
            match ComposedPart::new(site, systems.batch, &items, &self.products) {
                Err(error) if is_full(&error) && items.len() > 1 => {
                    let (first, second) = items.split_at(items.len().div_ceil(2));
                    waiting.extend([second.to_vec(), first.to_vec()]);
                }
                part => {
                    let mut part = part?;
                    part.solve(site, systems, (b, &mut *x, &mut *outcomes))?;
                    if tells_cost {
                        let cost = part.solver.product_cost()?;
                        self.cost = Some(match &self.cost {
                            Some(before) => before.beside(&cost),
                            None => cost,
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

/// Divides items into runs of at most `most` bytes each, at least one item per run.
fn runs(items: &[u32], most: u64, bytes: impl Fn(&u32) -> u64) -> Vec<Vec<u32>> {
    let mut runs: Vec<Vec<u32>> = vec![Vec::new()];
    let mut left = most;
    for item in items {
        let needed = bytes(item);
        match runs.last_mut() {
            Some(run) if needed <= left || run.is_empty() => run.push(*item),
            _ => {
                runs.push(vec![*item]);
                left = most;
            }
        }
        left = left.saturating_sub(needed);
    }
    runs
}

/// Approximate bytes of an item on the GPU: its matrix, held twice while the plan is made, and the
/// vectors of its systems.
fn bytes<T: Value>(batch: &Batch<T>, item: u32, nrhs: usize) -> u64 {
    const SYSTEM_BYTES: u64 = 200;
    const VECTORS: u64 = 9;
    let pattern = batch.pattern(item as usize);
    let (nrows, nnz, value) = (pattern.nrows() as u64, pattern.nnz() as u64, size_of::<T>() as u64);
    let matrix = nnz * (2 * value + 8) + 16 * nrows;
    matrix + nrhs as u64 * (VECTORS * nrows * value + SYSTEM_BYTES)
}

/// Items on the GPU that iterate together.
struct ComposedPart<E: Executor, T: Value> {
    items: Vec<u32>,
    shares_values: bool,
    solver: ComposedSolver<E, T>,
    b: E::Buffer<T>,
    x: E::Buffer<T>,
}

impl<E, T> ComposedPart<E, T>
where
    E: Executor + Clone,
    T: Value,
{
    /// The solver of these items with their values, and memory for their vectors.
    fn new(
        site: &Site<E>,
        batch: &Batch<T>,
        items: &[u32],
        products: &ProductKernel,
    ) -> Result<Self, SolveError> {
        let own = batch_of(batch, items);
        let rows = own.row_offset(own.nitems()) * site.options.nrhs;
        Ok(Self {
            solver: solver(site, &own, items, products)?,
            shares_values: shares_values(&own),
            b: site.executor.alloc(rows)?,
            x: site.executor.alloc(rows)?,
            items: items.to_vec(),
        })
    }

    /// Uploads the values of a batch of the same patterns.
    fn take_values(
        &mut self,
        site: &Site<E>,
        batch: &Batch<T>,
        products: &ProductKernel,
    ) -> Result<(), SolveError> {
        let batch = batch_of(batch, &self.items);
        if self.shares_values == shares_values(&batch) {
            return Ok(self.solver.update_values(&batch)?);
        }
        self.solver = solver(site, &batch, &self.items, products)?;
        self.shares_values = shares_values(&batch);
        Ok(())
    }

    /// Solves all items and stores the results of wanted systems.
    fn solve(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        (b, x, outcomes): (&[T], &mut [T], &mut [Option<Outcome>]),
    ) -> Result<(), SolveError> {
        let executor = &site.executor;
        // Systems that are not wanted get right-hand side 0 and end at once.
        let mut host = self.gather(systems, b);
        executor.copy_from_host(&host, &mut self.b)?;
        host = self.gather(systems, x);
        let guess = match host.iter().all(|&x| x == T::ZERO) {
            true => Guess::Zero,
            false => Guess::InX,
        };
        if guess == Guess::InX {
            executor.copy_from_host(&host, &mut self.x)?;
        }
        self.solver.solve(&self.b, guess, &mut self.x)?;
        executor.copy_to_host(&self.x, &mut host)?;
        let solved = self.solver.outcomes()?;
        let mut rest = host.as_slice();
        for ((system, rows), outcome) in self.systems(systems).zip(solved) {
            let (own, others) = rest.split_at(rows.len());
            rest = others;
            if systems.wants(system) {
                x[rows].copy_from_slice(own);
                outcomes[systems.place(system)] = Some(outcome);
            }
        }
        Ok(())
    }

    /// The systems with their places in item-major vectors.
    fn systems<'a>(
        &'a self,
        systems: Systems<'a, T>,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + 'a {
        let Systems { batch, nrhs, .. } = systems;
        self.items.iter().flat_map(move |&item| {
            let item = item as usize;
            let nrows = batch.pattern(item).nrows();
            let first = move |rhs| systems.offset(item) + rhs * nrows;
            (0..nrhs).map(move |rhs| (item * nrhs + rhs, first(rhs)..first(rhs) + nrows))
        })
    }

    /// The rows of the items, with 0 in systems that are not wanted.
    fn gather(&self, systems: Systems<'_, T>, vector: &[T]) -> Vec<T> {
        let mut copy = Vec::with_capacity(self.b.len());
        for (system, rows) in self.systems(systems) {
            match systems.wants(system) {
                true => copy.extend_from_slice(&vector[rows]),
                false => copy.resize(copy.len() + rows.len(), T::ZERO),
            }
        }
        copy
    }
}

fn solver<E: Executor + Clone, T: Value>(
    site: &Site<E>,
    batch: &Batch<T>,
    items: &[u32],
    products: &ProductKernel,
) -> Result<ComposedSolver<E, T>, SolveError> {
    let options = options_of(&site.options, items).for_scheme(site.scheme);
    Ok(ComposedSolver::new(&site.executor, batch, products, &options)?)
}

/// The batch of some items.
fn batch_of<'a, T: Value>(batch: &'a Batch<T>, items: &[u32]) -> Cow<'a, Batch<T>> {
    if items.len() == batch.nitems() {
        return Cow::Borrowed(batch);
    }
    let mut own = RaggedCsr::new();
    for &item in items {
        match batch {
            Batch::Uniform(uniform) => own.push(uniform.to_matrix(item as usize).view()),
            Batch::Ragged(ragged) => own.push(ragged.item(item as usize)),
        }
    }
    Cow::Owned(Batch::Ragged(own))
}
