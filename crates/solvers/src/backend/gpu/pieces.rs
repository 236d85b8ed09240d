//! The pieces of an analysed batch, on one GPU or several: [`Pieces`].

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::Scheme;

use super::divide::May;
use super::part::{Part, PartResults};
use super::piece::{Piece, Wanted};
use super::several::{Queue, Window, cut, estimated_cost};
use super::size::Size;
use super::staging::Systems;
use super::{GpuBackend, OneGpu};
use crate::backend::{Chunks, Gpu};
use crate::report::GpuRun;
use crate::share::rows_of;
use crate::{SolveError, SolveOptions};

/// Bytes of values and vectors of a piece, at least: less is solved sooner by one GPU than shared
/// out.
const LEAST_PIECE_BYTES: u64 = 1 << 20;

/// ... and at least this part of a chunk, where chunks of some size are asked for.
const LEAST_PIECE_OF_CHUNK: u64 = 8;

/// The pieces of a batch, and the GPUs that have them; see [`several`](super::several).
pub(super) struct Pieces<E: Executor, T: Value> {
    backend: GpuBackend<E>,
    scheme: Scheme,
    is_pooled: bool,
    may: May,
    /// Ascending; those that draw from one queue have all items each.
    pieces: Vec<Piece<E, T>>,
    /// The items, where the pieces draw from one queue.
    drawn: Option<Vec<u32>>,
    /// What each GPU did in the last solve; which are lost.
    runs: Vec<GpuRun>,
    /// Items whose GPU was lost, for the next solve.
    missing: Vec<Vec<u32>>,
    /// Items of the pieces that the CPU solves, ascending.
    pub(super) on_cpu: Vec<u32>,
    /// Whether one GPU has all items: the choice of products that were asked for depends on the
    /// number of systems.
    on_one: bool,
    /// The error of the last GPU, once all are lost.
    all_lost: Option<GpuError>,
}

/// What the thread of a GPU does with a piece and the part of `b`, `x` and outcomes that belongs to
/// it.
type Work<'w, E, T> =
    dyn Fn(&mut Piece<E, T>, Systems<'_, T>, &[T], PartResults<'_, T>) -> Done + Sync + 'w;

type Done = Result<(), SolveError>;

impl<E, T> Pieces<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn none(backend: &GpuBackend<E>, scheme: Scheme, is_pooled: bool, may: May) -> Self {
        let name = |one: &OneGpu<E>| one.gpu.executor.info().name.clone();
        let runs = backend.gpus.iter().map(|one| GpuRun::new(name(one))).collect();
        Self {
            backend: backend.clone(),
            scheme,
            is_pooled,
            may,
            pieces: Vec::new(),
            drawn: None,
            runs,
            missing: Vec::new(),
            on_cpu: Vec::new(),
            on_one: false,
            all_lost: None,
        }
    }

    /// Analyses the items `only`, or all, for the GPUs of a backend.
    ///
    /// # Errors
    /// Those of [`Piece::new`]; of the last GPU where all are lost.
    pub(super) fn new(
        backend: &GpuBackend<E>,
        batch: &Batch<T>,
        scheme: Scheme,
        only: Option<&[usize]>,
        may: May,
    ) -> Result<Self, SolveError> {
        let mut this = Self::none(backend, scheme, only.is_none(), may);
        let items: Vec<u32> = match only {
            None => (0..batch.nitems() as u32).collect(),
            Some(only) => only.iter().map(|&item| item as u32).collect(),
        };
        if this.backend.gpus.len() == 1 || items.is_empty() {
            let wanted = this.wanted(&backend.options, this.backend.gpus[0].gpu.chunks, may);
            this.pieces = vec![Piece::new((0, &this.backend.gpus[0]), batch, items, wanted)?];
        } else if !this.share_a_queue(batch, &items)? {
            this.pieces = this.analysed(batch, vec![items], may)?;
        }
        Ok(this)
    }

    /// Analyses a batch for products that the options ask for: on one GPU, the first that can.
    ///
    /// # Errors
    /// Those of [`Piece::new`]; of the last GPU where all are lost.
    pub(super) fn of_products(
        backend: &GpuBackend<E>,
        batch: &Batch<T>,
        scheme: Scheme,
        may: May,
    ) -> Result<Self, SolveError> {
        let mut this = Self::none(backend, scheme, true, may);
        this.on_one = true;
        this.pieces = vec![this.whole_piece(batch)?];
        Ok(this)
    }

    /// All items on the first GPU that can.
    fn whole_piece(&mut self, batch: &Batch<T>) -> Result<Piece<E, T>, SolveError> {
        for gpu in self.usable() {
            let chunks = self.backend.gpus[gpu].gpu.chunks;
            let wanted = self.wanted(&self.backend.options, chunks, self.may);
            let place = (gpu, &self.backend.gpus[gpu]);
            let items = (0..batch.nitems() as u32).collect();
            match Piece::new(place, batch, items, wanted) {
                Err(SolveError::Gpu(error)) => self.lose(gpu, &error),
                made => return made,
            }
        }
        Err(self.lost_error())
    }

    fn wanted<'o>(&self, options: &'o SolveOptions, chunks: Chunks, may: May) -> Wanted<'o> {
        Wanted { scheme: self.scheme, options, chunks, is_pooled: self.is_pooled, may }
    }

    /// The GPUs that are not lost.
    fn usable(&self) -> Vec<usize> {
        (0..self.backend.gpus.len()).filter(|&gpu| self.runs[gpu].lost.is_none()).collect()
    }

    /// Takes a GPU out.
    fn lose(&mut self, gpu: usize, error: &GpuError) {
        self.runs[gpu].lost.get_or_insert_with(|| error.to_string());
        if self.usable().is_empty() {
            self.all_lost = Some(error.clone());
        }
    }

    /// The error where all GPUs are lost.
    fn lost_error(&self) -> SolveError {
        let never = GpuError::NoDevice { ordinal: 0, count: 0 };
        SolveError::Gpu(self.all_lost.clone().unwrap_or(never))
    }

    /// Analyses the items for each GPU, to draw chunks from one queue, if they have one pattern and
    /// more than a chunk for each. Returns whether it did.
    fn share_a_queue(&mut self, batch: &Batch<T>, items: &[u32]) -> Result<bool, SolveError> {
        let (Batch::Uniform(_), options) = (batch, &self.backend.options) else {
            return Ok(false);
        };
        let size = Size::of(batch.pattern(0), batch, options.nrhs);
        let each = size.data * items.len() as u64 / self.backend.gpus.len() as u64;
        let asked = self.backend.gpus[0].gpu.chunks;
        let bytes = asked.usual_bytes(each);
        if each <= bytes {
            return Ok(false);
        }
        if !self.may.divide {
            let budgets =
                self.backend.gpus.iter().map(OneGpu::budget).sum::<Result<u64, GpuError>>()?;
            let site = self.backend.gpus[0].site(&self.wanted(options, asked, self.may));
            let needed = Part::<E, T>::new(&site, batch, items.to_vec()).bytes_whole(&site, batch);
            if needed > budgets {
                return Err(GpuError::OutOfMemory { needed, free: budgets }.into());
            }
        }
        let may = May { divide: true, full_beyond: None, ..self.may };
        let wanted = self.wanted(options, asked.bytes(bytes), may);
        let usable = self.usable().into_iter().map(|gpu| (gpu, items.to_vec())).collect();
        let made = self.backend.teams.each(usable, |gpu, items| {
            (gpu, Piece::new((gpu, &self.backend.gpus[gpu]), batch, items, wanted))
        });
        let mut lost = Vec::new();
        for (gpu, made) in made {
            match made {
                Ok(piece) => self.pieces.push(piece),
                Err(SolveError::Gpu(error)) => lost.push((gpu, error)),
                Err(error) => return Err(error),
            }
        }
        if self.pieces.is_empty() || !self.pieces.iter().all(Piece::can_draw) {
            // The static pieces meet the same errors, under their own rules.
            self.pieces.clear();
            return Ok(false);
        }
        lost.into_iter().for_each(|(gpu, error)| self.lose(gpu, &error));
        self.drawn = Some(items.to_vec());
        Ok(true)
    }

    /// Cuts each of some lists of items into a piece for each GPU, and analyses the pieces there.
    /// What a GPU has no memory for goes to the others, and at last to the CPU where it may.
    fn analysed(
        &mut self,
        batch: &Batch<T>,
        mut waiting: Vec<Vec<u32>>,
        may: May,
    ) -> Result<Vec<Piece<E, T>>, SolveError> {
        let mut pieces = Vec::new();
        while !waiting.is_empty() {
            let usable = self.usable();
            if usable.is_empty() {
                return Err(self.lost_error());
            }
            let options = &self.backend.options;
            let chunks = self.backend.gpus[usable[0]].gpu.chunks;
            let of_chunk = chunks.bytes.map(|bytes| bytes / LEAST_PIECE_OF_CHUNK);
            let least = of_chunk.map_or(LEAST_PIECE_BYTES, |bytes| bytes.min(LEAST_PIECE_BYTES));
            let mut each: Vec<(usize, Vec<Vec<u32>>)> =
                usable.iter().map(|&gpu| (gpu, Vec::new())).collect();
            for items in waiting.drain(..) {
                let cost = |&item: &u32| estimated_cost(batch, item, options.nrhs);
                let costs: Vec<u64> = items.iter().map(cost).collect();
                let runs = cut(&costs, usable.len(), least / size_of::<T>() as u64);
                for (place, run) in runs.into_iter().enumerate() {
                    each[place].1.push(items[run].to_vec());
                }
            }
            each.retain(|(_, lists)| !lists.is_empty());
            let is_last = usable.len() == 1;
            let made = self.backend.teams.each(each, |gpu, lists| {
                let may = self.may_on(gpu, is_last, may);
                let wanted = self.wanted(options, chunks, may);
                let make = |items: Vec<u32>| {
                    let made =
                        Piece::new((gpu, &self.backend.gpus[gpu]), batch, items.clone(), wanted);
                    (gpu, items, made)
                };
                lists.into_iter().map(make).collect::<Vec<_>>()
            });
            let mut failed = Vec::new();
            for (gpu, items, made) in made.into_iter().flatten() {
                match made {
                    Ok(piece) => pieces.push(piece),
                    Err(SolveError::Gpu(error)) => {
                        failed.push((gpu, error));
                        waiting.push(items);
                    }
                    Err(error) => return Err(error),
                }
            }
            self.lose_failed(&usable, failed);
        }
        pieces.sort_by_key(|piece: &Piece<E, T>| piece.span().start);
        Ok(pieces)
    }

    /// Loses GPUs that failed. Where none would be left and memory was short, one stays: alone, it
    /// may leave to the CPU what it has no memory for.
    fn lose_failed(&mut self, usable: &[usize], failed: Vec<(usize, GpuError)>) {
        let is_short = |error: &GpuError| matches!(error, GpuError::OutOfMemory { .. });
        let all_failed = usable.iter().all(|gpu| failed.iter().any(|(other, _)| other == gpu));
        let spared = failed.iter().find(|(_, error)| is_short(error)).map(|(gpu, _)| *gpu);
        let spared = spared.filter(|_| all_failed && usable.len() > 1);
        for (gpu, error) in failed.iter().filter(|(gpu, _)| Some(*gpu) != spared) {
            self.lose(*gpu, error);
        }
    }

    /// What may go to the CPU for want of memory: while there is another GPU, systems that are too
    /// large for this one even when it is empty.
    fn may_on(&self, gpu: usize, is_last: bool, may: May) -> May {
        let Gpu { executor, memory_limit, .. } = &self.backend.gpus[gpu].gpu;
        let all = memory_limit.unwrap_or(u64::MAX).min(executor.info().memory_bytes);
        let full_beyond = may.full_beyond.map(|most| if is_last { most } else { most.max(all) });
        May { full_beyond, ..may }
    }

    /// The piece of all items, where there is one GPU.
    pub(super) fn alone(&mut self) -> Option<&mut Piece<E, T>> {
        match (&mut self.pieces[..], self.backend.gpus.len()) {
            ([piece], 1) => Some(piece),
            _ => None,
        }
    }

    /// The pieces, one of each where they have the same items.
    pub(super) fn distinct(&self) -> &[Piece<E, T>] {
        let count = if self.drawn.is_some() { 1 } else { self.pieces.len() };
        &self.pieces[..count.min(self.pieces.len())]
    }

    /// The GPUs that are not lost, each name with their number where that is not 1.
    pub(super) fn device(&self) -> String {
        let mut names: Vec<(&str, usize)> = Vec::new();
        let is_left = |run: &&GpuRun| run.lost.is_none() || self.all_lost.is_some();
        for run in self.runs.iter().filter(is_left) {
            match names.iter_mut().find(|(name, _)| *name == run.device) {
                Some((_, count)) => *count += 1,
                None => names.push((&run.device, 1)),
            }
        }
        let named = names.into_iter().map(|(name, count)| match count {
            1 => name.to_owned(),
            count => format!("{count} x {name}"),
        });
        named.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn all(&self) -> &[Piece<E, T>] {
        &self.pieces
    }

    pub(super) fn all_mut(&mut self) -> &mut [Piece<E, T>] {
        &mut self.pieces
    }

    /// What each of several GPUs did in the last solve.
    pub(super) fn runs(&self) -> &[GpuRun] {
        if self.backend.gpus.len() > 1 { &self.runs } else { &[] }
    }

    /// Solves all systems of the pieces, on several GPUs. `guesses` are the initial guesses, unless
    /// they are 0.
    pub(super) fn run(
        &mut self,
        systems: Systems<'_, T>,
        vectors: (&[T], Option<&[T]>),
        target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        if self.drawn.is_some() {
            return self.run_queue(systems, vectors.0, target);
        }
        let is_loss = |_: &GpuError| true;
        self.on_each(systems, vectors, target, is_loss, &|piece, systems, b, mut target| {
            piece.begin(systems, b, target.reborrow())?;
            piece.finish(systems, b, target)
        })
    }

    /// Solves by chunks that the GPUs draw from one queue.
    fn run_queue(
        &mut self,
        systems: Systems<'_, T>,
        b: &[T],
        target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        self.begin_count()?;
        let items = self.drawn.clone().unwrap_or_default();
        let PartResults { x, outcomes } = target;
        let window = Window::whole((items.len(), systems.batch.nitems()), b, x, outcomes);
        let queue = Queue::new(window, &items, systems);
        while !queue.is_empty() {
            if self.pieces.is_empty() {
                return Err(self.lost_error());
            }
            let pieces = self.pieces.iter_mut().map(|piece| (piece.gpu, piece)).collect();
            let draw = |gpu, piece: &mut Piece<E, T>| (gpu, piece.draw(systems, &queue));
            let drawn = self.backend.teams.each(pieces, draw);
            let mut other = None;
            for (gpu, (ended, result)) in drawn {
                self.runs[gpu].systems += ended;
                match result {
                    Ok(()) => {}
                    Err(SolveError::Gpu(error)) => {
                        self.lose(gpu, &error);
                        self.pieces.retain(|piece| piece.gpu != gpu);
                    }
                    Err(error) => other = other.or(Some(error)),
                }
            }
            if let Some(error) = other {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes the tolerances and iteration limits of other options.
    pub(super) fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        // Items of a GPU that is lost are analysed with these.
        self.backend.options = self.backend.options.with_limits_of(options);
        self.pieces.iter_mut().try_for_each(|piece| piece.replace_limits(options))
    }

    /// Forgets what the last solve counted.
    fn begin_count(&mut self) -> Result<(), SolveError> {
        self.runs.iter_mut().for_each(|run| run.systems = 0);
        match self.all_lost {
            Some(_) => Err(self.lost_error()),
            None => Ok(()),
        }
    }

    /// Does `work` on each piece, with the part of the vectors and outcomes that belongs to it, on
    /// all GPUs at once. The items of a GPU that fails, by an error that is a loss, are analysed
    /// for the others, which do the work. With `nrhs` 0 there are no vectors.
    pub(super) fn on_each(
        &mut self,
        systems: Systems<'_, T>,
        (b, guesses): (&[T], Option<&[T]>),
        mut target: PartResults<'_, T>,
        is_loss: impl Fn(&GpuError) -> bool,
        work: &Work<'_, E, T>,
    ) -> Result<(), SolveError> {
        if let Some(piece) = self.alone() {
            return work(piece, systems, b, target);
        }
        self.begin_count()?;
        let (mut waiting, mut done) = (std::mem::take(&mut self.pieces), Vec::new());
        let mut other = None;
        loop {
            match self.remade(systems.batch) {
                Ok(made) => waiting.extend(made),
                Err(error) => {
                    other = Some(error);
                    done.append(&mut waiting);
                    break;
                }
            }
            waiting.sort_by_key(|piece| piece.span().start);
            if waiting.is_empty() {
                break;
            }
            let pieces = std::mem::take(&mut waiting);
            let own = target.reborrow();
            let ended = match done.is_empty() {
                true => self.round(pieces, systems, b, own, work),
                false => self.later_round(pieces, systems, b, own, work),
            };
            for (piece, result) in ended {
                match result {
                    Ok(ended) => {
                        self.runs[piece.gpu].systems += ended;
                        done.push(piece);
                    }
                    Err(SolveError::Gpu(error)) if is_loss(&error) => {
                        self.lose(piece.gpu, &error);
                        restore(&piece.items, systems, guesses, target.reborrow());
                        let mut items = piece.items;
                        items.retain(|item| self.on_cpu.binary_search(item).is_err());
                        self.missing.push(items);
                    }
                    Err(error) => {
                        other = other.or(Some(error));
                        done.push(piece);
                    }
                }
            }
            if other.is_some() {
                break;
            }
        }
        done.sort_by_key(|piece| piece.span().start);
        self.pieces = done;
        // The caller may take another way, from the guesses.
        if let Some(
            SolveError::Unsupported { .. } | SolveError::Gpu(GpuError::OutOfMemory { .. }),
        ) = other
        {
            for piece in &self.pieces {
                restore(&piece.items, systems, guesses, target.reborrow());
            }
        }
        other.map_or(Ok(()), Err)
    }

    /// Analyses the items that were on lost GPUs for the others. No more than before goes to the
    /// CPU.
    fn remade(&mut self, batch: &Batch<T>) -> Result<Vec<Piece<E, T>>, SolveError> {
        self.missing.retain(|items| !items.is_empty());
        let may = May { full_beyond: None, divide: true, ..self.may };
        let made = match self.on_one && !self.missing.is_empty() {
            true => vec![self.whole_piece(batch)?],
            false => self.analysed(batch, self.missing.clone(), may)?,
        };
        self.missing.clear();
        Ok(made)
    }

    /// [`Pieces::round`] with pieces whose windows may hold others, whose outcomes are not theirs.
    fn later_round(
        &self,
        pieces: Vec<Piece<E, T>>,
        systems: Systems<'_, T>,
        b: &[T],
        target: PartResults<'_, T>,
        work: &Work<'_, E, T>,
    ) -> Vec<(Piece<E, T>, Result<usize, SolveError>)> {
        let mut outcomes = vec![None; target.outcomes.len()];
        let own = PartResults { x: target.x, outcomes: &mut outcomes };
        let ended = self.round(pieces, systems, b, own, work);
        let all = target.outcomes.iter_mut().zip(outcomes);
        all.filter(|(_, own)| own.is_some()).for_each(|(all, own)| *all = own);
        ended
    }

    /// Does `work` once on each of some pieces. A GPU stops at its first error, with which its
    /// other pieces come back too. Returns the pieces with the number of systems that ended.
    fn round(
        &self,
        pieces: Vec<Piece<E, T>>,
        systems: Systems<'_, T>,
        b: &[T],
        target: PartResults<'_, T>,
        work: &Work<'_, E, T>,
    ) -> Vec<(Piece<E, T>, Result<usize, SolveError>)> {
        let starts: Vec<u32> = pieces.iter().map(|piece| piece.span().start as u32).collect();
        let counts = (starts.len(), systems.batch.nitems());
        let PartResults { x, outcomes } = target;
        let mut rest = Window::whole(counts, b, x, outcomes);
        let mut each: Vec<(usize, Vec<_>)> = Vec::new();
        for piece in pieces {
            // The items between the pieces belong to the one ahead; those ahead of the first, to
            // it.
            let window = rest.split_off(1, &starts, systems);
            match each.iter_mut().find(|(gpu, _)| *gpu == piece.gpu) {
                Some((_, own)) => own.push((piece, window)),
                None => each.push((piece.gpu, vec![(piece, window)])),
            }
        }
        let ended = self.backend.teams.each(each, |_, own| {
            let mut failed: Option<GpuError> = None;
            let each = own.into_iter().map(|(mut piece, window)| {
                let Window { first, b, x, outcomes, .. } = window;
                let systems = Systems { first, ..systems };
                let target = PartResults { x, outcomes: &mut *outcomes };
                let done = match &failed {
                    Some(error) => Err(error.clone().into()),
                    None => work(&mut piece, systems, b, target),
                };
                if let Err(SolveError::Gpu(error)) = &done {
                    failed = Some(error.clone());
                }
                let ended = done.map(|()| outcomes.iter().flatten().count());
                (piece, ended)
            });
            each.collect::<Vec<_>>()
        });
        ended.into_iter().flatten().collect()
    }
}

/// Takes back what a failed solve may have stored for some items.
fn restore<T: CpuScalar>(
    items: &[u32],
    systems: Systems<'_, T>,
    guesses: Option<&[T]>,
    target: PartResults<'_, T>,
) {
    let nrhs = systems.nrhs;
    let mut ended = 0;
    for system in items.iter().flat_map(|&item| item as usize * nrhs..(item as usize + 1) * nrhs) {
        if systems.wants(system) {
            let rows = rows_of(systems.batch, nrhs, system);
            match guesses {
                Some(guesses) => target.x[rows.clone()].copy_from_slice(&guesses[rows]),
                None => target.x[rows].fill(T::ZERO),
            }
            ended += usize::from(target.outcomes[system].take().is_some());
        }
    }
    if let Some(watch) = systems.watch {
        watch.take_back(ended);
    }
}
