//! Substitution with kept factors for successive right-hand sides, verified together.

use sparsebatch_cuda::{Args, Executor, KernelBuffer, KernelKey, Value};
use sparsebatch_solve_core::Outcome;

use super::grid::LANES;
use super::kept::{Launch, resident_warps};
use super::kernels;
use super::plan::{GpuLu, factors};
use super::tables::{HALVES, KeptSizes};
use crate::GpuSolveError;
use crate::common::DeferredSolve;
use crate::common::outcomes::{DeviceOutcomes, Outcomes};
use sparsebatch_solve_core::ArgumentError;

/// Largest number of solves that are verified together.
const MOST_SOLVES: usize = 8;

/// Numbers of solves whose vectors a warp of `lu_verify.cu` may handle: fewer where there are warps
/// enough.
const VECTORS: [usize; 3] = [1, 2, 4];

/// Warps of `lu_verify` per multiprocessor, at its register limit.
const RESIDENT_VERIFIERS: u32 = 16;

/// The data of substitution and verification besides the factors.
pub(super) struct Deferred<E: Executor> {
    substitute: KernelKey,
    substitutes: Launch,
    /// One kernel for each of [`VECTORS`].
    verify: [KernelKey; 3],
    verifies: [Launch; 3],
    /// Outcomes of the last `solves` verified solves, followed by those of earlier ones.
    outcomes: Outcomes<E>,
    solves: usize,
}

impl<E: Executor> Deferred<E> {
    /// Compiles the kernels, and allocates the outcomes for `systems` systems.
    fn new<T: Value>(
        executor: &E,
        sizes: &KeptSizes,
        systems: usize,
    ) -> Result<Self, GpuSolveError> {
        let substitutes = substitution::<T>(sizes);
        let verifies = VECTORS.map(|vectors| verification::<T>(sizes, vectors));
        if ![&substitutes].into_iter().chain(&verifies).all(|launch| launch.fits(executor.info())) {
            return Err(GpuSolveError::Unsupported {
                what: "deferred substitution where eight vectors of a system exceed the shared memory \
                       of a block",
                instead: "take solve_again",
            });
        }
        let (value, ahead) = (T::CPP, sizes.ahead);
        let substitute =
            KernelKey::new(&kernels::LU_SUBSTITUTE, format!("lu_substitute<{value}, {ahead}>"));
        let verify = VECTORS.map(|vectors| {
            KernelKey::new(&kernels::LU_VERIFY, format!("lu_verify<{value}, {ahead}, {vectors}>"))
        });
        let [one, two, four] = verify.clone();
        executor.prepare(&[substitute.clone(), one, two, four])?;
        // Allocated for the largest number of solves: graphs hold the addresses.
        let outcomes = Outcomes::new(executor, MOST_SOLVES * systems)?;
        Ok(Self { substitute, substitutes, verify, verifies, outcomes, solves: 0 })
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        (self.outcomes.systems() * Outcomes::<E>::BYTES_A_SYSTEM) as u64
    }
}

/// The launch of `lu_substitute`.
fn substitution<T>(sizes: &KeptSizes) -> Launch {
    let &KeptSizes { nrows, ahead, slots, .. } = sizes;
    let chunks = sizes.end_of_u as usize;
    let words = (chunks + 1) * LANES as usize + (chunks + ahead) * HALVES;
    Launch {
        table_bytes: words * 4 + nrows.next_multiple_of(4) * 2,
        warp_bytes: ((2 * nrows + slots as usize) * size_of::<T>()).next_multiple_of(8),
        resident: resident_warps(ahead),
    }
}

/// The launch of `lu_verify` for `vectors` solves per warp.
fn verification<T>(sizes: &KeptSizes, vectors: usize) -> Launch {
    let &KeptSizes { nrows, words, parts, .. } = sizes;
    let words = words - sizes.end_of_u as usize * (LANES as usize + HALVES);
    Launch {
        table_bytes: words * 4 + nrows.next_multiple_of(4) * 2,
        warp_bytes: (vectors * (nrows + 1 + parts as usize) * size_of::<T>()).next_multiple_of(8),
        resident: RESIDENT_VERIFIERS,
    }
}

impl<E: Executor + Clone, T: Value> GpuLu<E, T> {
    /// Solves every system by substitution alone with the factors of the last [`GpuLu::factor`],
    /// and does not check the result: [`GpuLu::verify`] does, for several solves together, and then
    /// reads A once for all of them. Meant for right-hand sides that depend on earlier solutions,
    /// as in the stages of a Rosenbrock method. Launches one kernel and returns before it is done.
    /// The first call compiles kernels and allocates the outcomes of 8 solves, later ones allocate
    /// nothing. `b` and `x` as for [`GpuLu::solve`].
    ///
    /// x equals, bit for bit up to the signs of zeros, the result of [`GpuLu::solve_again`] from 0
    /// by one solve without refinement. It is 0 where a pivot is zero or NaN. Right-hand sides
    /// whose norm is beyond 2^200 or below 2^-200 (in f32 2^20 and 2^-20) are not scaled here.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when there are no factors; [`GpuSolveError::Unsupported`] when
    /// eight vectors of a system exceed the shared memory of a block; else those of
    /// [`GpuLu::solve`].
    #[expect(unsafe_code, reason = "a launch")]
    pub fn substitute(
        &mut self,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.check_vectors(b, x)?;
        let Some(kept) = factors(&self.kept, self.active, self.nitems)? else { return Ok(()) };
        let deferred = match &mut self.deferred {
            Some(deferred) => deferred,
            none => none.insert(Deferred::new::<T>(
                &self.executor,
                &kept.solve.sizes,
                self.nitems * self.nrhs,
            )?),
        };
        let sizes = &kept.solve.sizes;
        let mut args = Args::new();
        kept.solve.pass(&mut args, (self.active, self.nrhs), kept.is_shared());
        for count in [sizes.end_of_l, sizes.end_of_u, sizes.end_of_a, sizes.slots] {
            args.scalar(count);
        }
        args.input(&self.perm).scalar(u32::from(kept.is_settled())).input(b).output(x);
        let config = deferred.substitutes.config(self.active * self.nrhs, self.executor.info());
        // SAFETY: the arguments are those of `lu_substitute`; the lengths of b and x were checked
        // here, and those of the plan's own arrays are what they were made as; x does not overlap
        // b; where the launch may start early (`is_settled`), an earlier launch of the same kernel
        // lies between the factorisation and this one, and that launch let no other begin before
        // the factors were there.
        unsafe { self.executor.launch(&deferred.substitute, config, &mut args) }?;
        self.kept.iter_mut().try_for_each(|kept| kept.settle(&self.executor))
    }

    /// Finds how solves by [`GpuLu::substitute`] ended, from their residuals `b - A x` with the
    /// factors and matrices of the last [`GpuLu::factor`]. Each solve is a right-hand side and a
    /// solution for every system. A system is `Converged` within tolerance or at the rounding
    /// floor, `NonFinite`, or `Singular` where a pivot is zero or NaN. Where it would have to be
    /// refined, it is `Stagnated`, or `MaxIterations` with an iteration limit of 1. With a limit of
    /// 0 it is `MaxIterations` wherever 0 is no solution. Launches one kernel and returns before it
    /// is done; allocates nothing. Does nothing where no item takes part.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] unless there are 1 to 8 solves, and [`GpuLu::substitute`] was
    /// called before, with any factors; else those of [`GpuLu::substitute`].
    #[expect(unsafe_code, reason = "a launch")]
    pub fn verify(
        &mut self,
        solves: &[DeferredSolve<'_, E::Buffer<T>>],
    ) -> Result<(), GpuSolveError> {
        let refuse = |expected, found: String| {
            Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "solves",
                expected,
                found,
            }))
        };
        if !(1..=MOST_SOLVES).contains(&solves.len()) {
            return refuse("1 to 8", solves.len().to_string());
        }
        for (b, x) in solves {
            self.check_vectors(b, x)?;
        }
        let Some(kept) = factors(&self.kept, self.active, self.nitems)? else { return Ok(()) };
        let Some(deferred) = &mut self.deferred else {
            return refuse("a call of substitute before", "none".to_owned());
        };
        let systems = self.nitems * self.nrhs;
        let sizes = &kept.solve.sizes;
        let mut args = Args::new();
        kept.solve.pass(&mut args, (self.active, self.nrhs), kept.is_shared());
        args.scalar(sizes.words as u32);
        for count in [sizes.end_of_u, sizes.end_of_a, sizes.slots, sizes.parts] {
            args.scalar(count);
        }
        args.input(&self.perm).scalar(solves.len() as u32).scalar(systems as u64);
        for k in 0..MOST_SOLVES {
            args.raw(solves.get(k).map_or(0, |(b, _)| b.raw()));
        }
        for k in 0..MOST_SOLVES {
            args.raw(solves.get(k).map_or(0, |(_, x)| x.raw()));
        }
        self.limits.pass(&mut args);
        deferred.outcomes.pass(&mut args);
        let info = self.executor.info();
        let work = |vectors: usize| self.active * self.nrhs * solves.len().div_ceil(vectors);
        let room = (RESIDENT_VERIFIERS * info.multiprocessors) as usize;
        let which = VECTORS.iter().position(|&vectors| work(vectors) <= room);
        let which = which.unwrap_or(VECTORS.len() - 1);
        let config = deferred.verifies[which].config(work(VECTORS[which]), info);
        // SAFETY: the arguments are those of `lu_verify`; the lengths of all b and x were checked
        // here, and those of the plan's own arrays are what they were made as; there is an outcome
        // for each system of each solve.
        unsafe { self.executor.launch(&deferred.verify[which], config, &mut args) }?;
        deferred.solves = solves.len();
        Ok(())
    }

    /// The results of the last [`GpuLu::verify`], for kernels of the caller: solve by solve the
    /// outcomes of all systems, active or not. The arrays have room for 8 solves. `None` before a
    /// substitution.
    pub fn verified_on_device(&self) -> Option<DeviceOutcomes<'_, E>> {
        self.deferred.as_ref().map(|deferred| deferred.outcomes.on_device())
    }

    /// The outcomes of the last [`GpuLu::verify`] alone, on the host. Waits for it.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] with what the device reports.
    pub fn verified(&self) -> Result<Vec<Outcome>, GpuSolveError> {
        let Some(deferred) = &self.deferred else { return Ok(Vec::new()) };
        let mut outcomes = deferred.outcomes.download(&self.executor)?;
        outcomes.truncate(deferred.solves * self.nitems * self.nrhs);
        Ok(outcomes)
    }
}
