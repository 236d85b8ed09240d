//! [`DividedSolver`]: a batch in parts, with a solver of its own for each.

use sparsebatch_cuda::{Executor, KernelBuffer, Value};
use sparsebatch_formats::{Batch, RaggedCsr};
use sparsebatch_solve_core::{Outcome, ProductCost, Scheme, SolveOptions, by_pattern, check_len};

use crate::GpuSolveError;
use crate::choose::{SolverTuning, TakenTogether, solver_for, solver_for_ragged, taken_together};
use crate::common::outcomes::{Limits, Outcomes};
use crate::common::task::{check_apart, count_systems, ragged_sizes};
use crate::common::{Confirmer, GpuSolver, Guess, ItemArray, ItemExtents, ItemList, PlanReport};

/// Streams on which parts run side by side, beside that of the batch.
const STREAMS: usize = 7;

/// Items of a batch, in ascending order, that a scheme solves.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemeItems {
    /// Method and preconditioner.
    pub scheme: Scheme,
    /// The items.
    pub items: Vec<usize>,
}

/// Items that no solver on the device takes.
#[derive(Debug)]
pub struct RefusedItems {
    /// Method and preconditioner that they were to be solved by.
    pub scheme: Scheme,
    /// The items, in ascending order.
    pub items: Vec<usize>,
    /// Why.
    pub error: GpuSolveError,
}

/// Solves a batch whose items have several patterns, or several schemes, in parts of one scheme.
///
/// The items of a part are those of one pattern, or all items of the scheme where its solver takes
/// several patterns. A solve packs the values and vectors of each part into arrays of its own, which
/// are as large as those of the batch, solves parts on several streams, and puts solutions and
/// outcomes where they belong. A system's result is that of the part's solver alone.
///
/// Arrays are item-major: the values of item 0 in CSR order, of item 1, and so on, or those of one
/// item if all items of a uniform batch share them; rows likewise, one right-hand side after the other
/// within an item.
pub struct DividedSolver<E: Executor, T: Value> {
    executor: E,
    branches: Vec<E>,
    parts: Vec<Part<E, T>>,
    extents: ItemExtents,
    nrhs: usize,
    limits: Limits<E>,
    outcomes: Outcomes<E>,
}

/// The items of one solver.
struct Part<E: Executor, T: Value> {
    /// That of its stream.
    executor: E,
    items: Vec<usize>,
    list: ItemList<E>,
    solver: Box<dyn GpuSolver<E, T>>,
    /// Whether the solver's solves wait, so that they come after those that do not.
    waits: bool,
    /// Packed values; none if those of one item are shared by all.
    values: E::Buffer<T>,
    b: E::Buffer<T>,
    x: E::Buffer<T>,
    /// Whether the packed values are those that were factorised.
    holds_factorised: bool,
    /// Whether the solver has factors.
    has_factors: bool,
}

/// The sub-batch of a part: of one pattern, with an item that has it, or of several.
enum Shape<'a, T> {
    One(usize),
    Several(&'a RaggedCsr<T>),
}

impl<E, T> DividedSolver<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    /// Makes the solvers of the items in `schemes`, which are different ones, allocates all memory and
    /// compiles all kernels. Only patterns of the batch matter, and whether its items share their
    /// values. Items that solvers refuse are returned; solves do not touch them.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square and for options out of range;
    /// [`GpuSolveError::Unsupported`] when every item is refused; [`GpuSolveError::Gpu`] when memory
    /// or compiler fail.
    pub fn new(
        executor: &E,
        batch: &Batch<T>,
        schemes: &[SchemeItems],
        options: &SolveOptions,
        tuning: &SolverTuning,
    ) -> Result<(Self, Vec<RefusedItems>), GpuSolveError> {
        let (nitems, nrhs) = (batch.nitems(), options.nrhs);
        let systems = count_systems(nitems, nrhs)?;
        if let Batch::Ragged(ragged) = batch {
            ragged_sizes(ragged, nrhs)?;
        }
        let criteria = options.criteria::<T>(systems)?;
        let mut branches = executor.branches(STREAMS)?;
        let mut making =
            Making { executor, branches: &branches, batch, options, tuning, parts: Vec::new() };
        let mut refused = Vec::new();
        for of_scheme in schemes.iter().filter(|of_scheme| !of_scheme.items.is_empty()) {
            making.add_scheme(of_scheme, &mut refused)?;
        }
        let parts = making.parts;
        if parts.is_empty() && nitems > 0 {
            let no_items = GpuSolveError::Unsupported {
                what: "a batch of which no item is to be solved",
                instead: "give schemes for its items",
            };
            return Err(refused.pop().map_or(no_items, |refused| refused.error));
        }
        branches.truncate(parts.len().saturating_sub(1));
        ItemList::prepare::<T>(executor)?;
        let solver = Self {
            limits: Limits::new(executor, criteria)?,
            outcomes: Outcomes::new(executor, systems)?,
            extents: ItemExtents::of(batch),
            executor: executor.clone(),
            branches,
            parts,
            nrhs,
        };
        Ok((solver, refused))
    }

    /// Refuses arrays of other lengths, and solutions that overlap them.
    fn check(
        &self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.check_values(values)?;
        let rows = self.extents.total_rows() * self.nrhs;
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        check_apart(values, x)?;
        check_apart(b, x)
    }

    /// Refuses another number of values; returns whether they are those of one item.
    fn check_values(&self, values: &E::Buffer<T>) -> Result<bool, GpuSolveError> {
        if let ItemExtents::Equal { nnz, .. } = self.extents
            && values.len() == nnz
        {
            return Ok(true);
        }
        check_len("values", self.extents.total_values(), values.len())?;
        Ok(false)
    }

    /// Starts a solve of every part on its stream, then puts the solutions back.
    fn start(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
        again: bool,
    ) -> Result<(), GpuSolveError> {
        self.check(values, b, x)?;
        let shared = self.check_values(values)?.then_some(values);
        self.executor.fork(&self.branches)?;
        let parts = &mut self.parts;
        let started = [false, true].into_iter().try_for_each(|waits| {
            let mut some = parts.iter_mut().filter(|part| part.waits == waits);
            some.try_for_each(|part| part.start((values, shared), b, guess, x, again))
        });
        // Nothing is put back unless all were started.
        let outcomes = &mut self.outcomes;
        let stored = started.and_then(|()| {
            parts.iter().try_for_each(|part| {
                part.list.unpack(ItemArray::Rows, &part.x, x)?;
                outcomes.take_part(&part.list, part.solver.outcome_arrays())
            })
        });
        let joined = self.executor.join(&self.branches);
        stored.and(joined.map_err(GpuSolveError::from))
    }
}

/// A divided solver as it is made.
struct Making<'a, E: Executor, T: Value> {
    executor: &'a E,
    branches: &'a [E],
    batch: &'a Batch<T>,
    options: &'a SolveOptions,
    tuning: &'a SolverTuning,
    parts: Vec<Part<E, T>>,
}

impl<E, T> Making<'_, E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    /// Makes the parts of a scheme.
    fn add_scheme(
        &mut self,
        of_scheme: &SchemeItems,
        refused: &mut Vec<RefusedItems>,
    ) -> Result<(), GpuSolveError> {
        let (scheme, items) = (of_scheme.scheme, &of_scheme.items);
        let Batch::Ragged(ragged) = self.batch else {
            return self.add(scheme, items.clone(), Shape::One(items[0]), refused);
        };
        let item = |place: u32| items[place as usize] as u32;
        let mut classes: Vec<Vec<u32>> =
            by_pattern(items.len(), |place| ragged.item(items[place]).pattern())
                .into_iter()
                .map(|class| class.into_iter().map(item).collect())
                .collect();
        if classes.len() > 1 {
            if self.add_together(scheme, items.clone(), ragged)? {
                return Ok(());
            }
            let (all, how) = ((ragged, classes), (self.options, self.tuning));
            let TakenTogether { groups, mut apart } =
                taken_together::<E, T>(self.executor.info(), scheme, all, how);
            for some in groups {
                let mut together: Vec<usize> =
                    some.iter().flatten().map(|&item| item as usize).collect();
                together.sort_unstable();
                if some.len() < 2 || !self.add_together(scheme, together, ragged)? {
                    apart.extend(some);
                }
            }
            classes = apart;
        }
        for class in classes {
            let items: Vec<usize> = class.into_iter().map(|item| item as usize).collect();
            let shape = Shape::One(items[0]);
            self.add(scheme, items, shape, refused)?;
        }
        Ok(())
    }

    /// Makes one part of items of several patterns. Returns whether a solver took them.
    fn add_together(
        &mut self,
        scheme: Scheme,
        items: Vec<usize>,
        batch: &RaggedCsr<T>,
    ) -> Result<bool, GpuSolveError> {
        let mut some = RaggedCsr::new();
        items.iter().for_each(|&item| some.push(batch.item(item)));
        let mut refused = Vec::new();
        self.add(scheme, items, Shape::Several(&some), &mut refused)?;
        Ok(refused.is_empty())
    }

    /// Makes a part, unless its solver refuses it.
    fn add(
        &mut self,
        scheme: Scheme,
        items: Vec<usize>,
        shape: Shape<'_, T>,
        refused: &mut Vec<RefusedItems>,
    ) -> Result<(), GpuSolveError> {
        let nrhs = self.options.nrhs;
        let systems: Vec<usize> =
            items.iter().flat_map(|&item| item * nrhs..(item + 1) * nrhs).collect();
        let options = self.options.for_systems(&systems);
        // The first part runs on the stream of the batch.
        let number = self.parts.len() % (self.branches.len() + 1);
        let executor = if number == 0 { self.executor } else { &self.branches[number - 1] };
        let solver = match shape {
            Shape::One(item) => {
                let systems = (self.batch.pattern(item), items.len());
                solver_for::<E, T>(executor, scheme, systems, &options, self.tuning)
            }
            Shape::Several(some) => {
                solver_for_ragged::<E, T>(executor, scheme, some, &options, self.tuning)
            }
        };
        let solver = match solver {
            Ok(solver) => solver,
            Err(error @ GpuSolveError::Unsupported { .. }) => {
                refused.push(RefusedItems { scheme, items, error });
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let extents = ItemExtents::of(self.batch);
        let list = ItemList::new(executor, &items, &extents, nrhs)?;
        let shared = matches!(self.batch, Batch::Uniform(uniform) if uniform.is_shared());
        let values = if shared { 0 } else { list.len(ItemArray::Values) };
        let rows = list.len(ItemArray::Rows);
        self.parts.push(Part {
            executor: executor.clone(),
            values: executor.alloc(values)?,
            b: executor.alloc(rows)?,
            x: executor.alloc(rows)?,
            items,
            list,
            waits: solver.explain().launches.iter().any(|launch| launch.composed().is_some()),
            solver,
            holds_factorised: false,
            has_factors: false,
        });
        Ok(())
    }
}

impl<E, T> Part<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    /// Packs values, unless they are shared by all items, in which case the solver takes them as they
    /// are.
    fn pack_values(
        &mut self,
        values: &E::Buffer<T>,
        shared: Option<&E::Buffer<T>>,
    ) -> Result<(), GpuSolveError> {
        match shared {
            Some(_) => Ok(()),
            None => {
                let len = self.list.len(ItemArray::Values);
                if self.values.len() != len {
                    // The items shared their values when the solver was made.
                    self.values = self.executor.alloc(len)?;
                }
                self.list.pack(ItemArray::Values, values, &mut self.values)
            }
        }
    }

    fn start(
        &mut self,
        (values, shared): (&E::Buffer<T>, Option<&E::Buffer<T>>),
        b: &E::Buffer<T>,
        guess: Guess,
        x: &E::Buffer<T>,
        again: bool,
    ) -> Result<(), GpuSolveError> {
        let again = again && self.has_factors;
        if !(again && self.holds_factorised) {
            self.holds_factorised = false;
            self.pack_values(values, shared)?;
        }
        self.list.pack(ItemArray::Rows, b, &mut self.b)?;
        if guess == Guess::InX {
            self.list.pack(ItemArray::Rows, x, &mut self.x)?;
        }
        let values = shared.unwrap_or(&self.values);
        match again {
            true => self.solver.solve_again(values, &self.b, guess, &mut self.x),
            false => self.solver.solve(values, &self.b, guess, &mut self.x),
        }
    }

    fn factor(
        &mut self,
        values: &E::Buffer<T>,
        shared: Option<&E::Buffer<T>>,
    ) -> Result<(), GpuSolveError> {
        (self.has_factors, self.holds_factorised) = (false, false);
        if !self.solver.keeps_factors() {
            return Ok(());
        }
        self.pack_values(values, shared)?;
        match self.solver.factor(shared.unwrap_or(&self.values)) {
            // The factors are too large to keep.
            Err(GpuSolveError::Unsupported { .. }) => Ok(()),
            made => {
                made?;
                (self.has_factors, self.holds_factorised) = (true, true);
                Ok(())
            }
        }
    }

    fn bytes(&self) -> u64 {
        let len = self.values.len() + self.b.len() + self.x.len();
        (len * size_of::<T>()) as u64 + self.list.bytes()
    }
}

impl<E, T> GpuSolver<E, T> for DividedSolver<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.start(values, b, guess, x, false)
    }

    fn keeps_factors(&self) -> bool {
        self.parts.iter().any(|part| part.solver.keeps_factors())
    }

    fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        let shared = self.check_values(values)?.then_some(values);
        self.executor.fork(&self.branches)?;
        let parts = &mut self.parts;
        let made = parts.iter_mut().try_for_each(|part| part.factor(values, shared));
        // All parts have the factors that their sizes allow, or none has any: what is kept does not
        // depend on the memory that is left for the last one.
        let made = made.and_then(|()| match parts.iter().any(|part| part.has_factors) {
            true => Ok(()),
            false => Err(GpuSolveError::Unsupported {
                what: "kept factors of a batch without a part whose factors fit",
                instead: "solve with factorisation",
            }),
        });
        if made.is_err() {
            self.forget_factors();
        }
        let joined = self.executor.join(&self.branches);
        made.and(joined.map_err(GpuSolveError::from))
    }

    fn forget_factors(&mut self) {
        for part in &mut self.parts {
            part.solver.forget_factors();
            (part.has_factors, part.holds_factorised) = (false, false);
        }
    }

    fn solve_again(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.start(values, b, guess, x, true)
    }

    fn prepare(&self, guess: Guess) -> Result<(), GpuSolveError> {
        self.parts.iter().try_for_each(|part| part.solver.prepare(guess))
    }

    fn confirm(
        &mut self,
        confirmer: &Confirmer<E, T>,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let systems = self.outcomes.systems();
        confirmer.confirm((&mut self.outcomes, systems), values, b, x)
    }

    fn outcomes(&self) -> Result<Vec<Outcome>, GpuSolveError> {
        let mut outcomes = self.outcomes.download(&self.executor)?;
        let each = outcomes.iter_mut().zip(self.histories());
        each.for_each(|(outcome, history)| outcome.history = history);
        Ok(outcomes)
    }

    fn histories(&self) -> Vec<Vec<f64>> {
        let (mut all, nrhs) = (Vec::new(), self.nrhs);
        for part in &self.parts {
            let own = part.solver.histories();
            if !own.is_empty() {
                all.resize(self.outcomes.systems(), Vec::new());
            }
            let systems = part.items.iter().flat_map(|&item| item * nrhs..(item + 1) * nrhs);
            systems.zip(own).for_each(|(system, history)| all[system] = history);
        }
        all
    }

    fn product_cost(&mut self) -> Result<Option<ProductCost>, GpuSolveError> {
        let costs = self.parts.iter_mut().map(|part| part.solver.product_cost());
        Ok(ProductCost::together(costs.collect::<Result<Vec<_>, _>>()?))
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

    fn replace_limits(
        &mut self,
        executor: &E,
        options: &SolveOptions,
    ) -> Result<(), GpuSolveError> {
        let criteria = options.criteria::<T>(self.outcomes.systems())?;
        self.limits.replace(executor, criteria)?;
        let nrhs = self.nrhs;
        self.parts.iter_mut().try_for_each(|part| {
            let items = part.items.iter();
            let systems: Vec<usize> =
                items.flat_map(|&item| item * nrhs..(item + 1) * nrhs).collect();
            part.solver.replace_limits(executor, &options.for_systems(&systems))
        })
    }

    fn explain(&self) -> PlanReport {
        let parts: Vec<PlanReport> = self.parts.iter().map(|part| part.solver.explain()).collect();
        let sum = |of: fn(&PlanReport) -> u64| parts.iter().map(of).sum::<u64>();
        let each = Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system();
        let own = (self.outcomes.systems() * each) as u64
            + self.parts.iter().map(Part::bytes).sum::<u64>();
        PlanReport {
            scheme: parts.first().map_or(Scheme::Lu, |part| part.scheme),
            pattern_bytes: sum(|part| part.pattern_bytes),
            workspace_bytes: own + sum(|part| part.workspace_bytes),
            kept_bytes: sum(|part| part.kept_bytes),
            launches: parts.into_iter().flat_map(|part| part.launches).collect(),
        }
    }
}
