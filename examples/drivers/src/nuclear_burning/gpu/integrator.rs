//! The integration of many zones on a device: the rounds of [`crate::nuclear_burning::integrator`],
//! without the host.
//!
//! Every kernel of a round is launched without waiting for the previous one. Every [`LOOK`] rounds
//! the host reads the number of zones left, from a copy that was started as many rounds ago. Zones
//! that have ended keep their places until then; zones from the last places then move there.
//! [`super::groups`] runs several burners in turn.

use sparsebatch::gpu::{Executor, PinnedValues};

use super::heating::Heating;
use super::launches::{self, At, KERNELS, MOST_BEFORE, Moves, Rules, Stage};
use super::linear::StageSolver;
use super::state::{Places, Results};
use super::tables::Tables;
use super::tally::DeviceTally;
use super::timer::{Part, Timer};
use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::outcome::Burning;
use crate::nuclear_burning::rates::{T9_MAX, T9_MIN};
use crate::nuclear_burning::stepping::{
    GROW, LEAST_FIRST_STEP, LEAST_STEP, LOST, SAFETY, SHRINK, Settings,
};
use crate::nuclear_burning::zones::Zones;

/// Rounds between two readings of the number of zones left.
const LOOK: u64 = 4;

/// Zones are compacted when more than one in this many has ended.
const WORTH: usize = 128;

/// One in this many rounds is timed.
const MEASURED: u64 = 16;

/// Zones on a device, with all data that their integration needs.
pub(crate) struct Burner<'a, E: Executor, S, T> {
    executor: E,
    zones: Zones,
    equations: &'a Equations,
    settings: &'a Settings,
    tables: Tables<E>,
    /// Additional data if zones are self-heating.
    heating: Option<Heating<E>>,
    /// The parameters of the kernel `judge`.
    numbers: E::Buffer<f64>,
    /// Weights of all stages, `2 (MOST_BEFORE + 1)` each: see `stage` of `kernels/stage.cuh`.
    weights: E::Buffer<f64>,
    solver: S,
    places: Places<E>,
    /// Number of places in use, which are the first ones.
    count: usize,
    results: Results<E>,
    moves: Moves<E>,
    tally: DeviceTally<E>,
    timer: T,
    rounds: u64,
    /// Numbers of active zones copied from the device: one copy is in flight while the other is
    /// read.
    counted: [E::Pinned<u32>; 2],
    /// The last number of active zones that was read.
    left: usize,
}

impl<'a, E: Executor + Clone, S: StageSolver<E>, T: Timer> Burner<'a, E, S, T> {
    /// Uploads everything and compiles the kernels. The solver must have room for all zones.
    ///
    /// # Errors
    /// [`BurningError::Setting`] for no zones or too large a size; an error of the device.
    pub(crate) fn new(
        executor: &E,
        equations: &'a Equations,
        zones: Zones,
        settings: &'a Settings,
        solver: S,
        timer: T,
    ) -> Result<Self, BurningError> {
        let (count, nvars) = (zones.len(), equations.nvars());
        let nrates = equations.network().rates.len();
        if count == 0 {
            return Err(BurningError::Setting("expected at least one zone, found 0".to_owned()));
        }
        if count.saturating_mul(nrates) >= u32::MAX as usize {
            return Err(BurningError::Setting(format!(
                "a GPU takes less than 4294967295 rates of all zones, found {nrates} in {count} zones"
            )));
        }
        executor.prepare(&KERNELS.map(launches::key))?;
        let heating = |heated| Heating::new(executor, equations, heated, &zones);
        Ok(Self {
            tables: Tables::new(executor, equations)?,
            heating: equations.heated().map(heating).transpose()?,
            numbers: executor.upload(&numbers(settings))?,
            weights: executor.upload(&weights(settings))?,
            solver,
            places: Places::new(executor, count, nvars, nrates)?,
            count,
            results: Results::new(executor, &zones, nvars)?,
            moves: Moves::new(executor, count)?,
            tally: DeviceTally::new(executor)?,
            timer,
            rounds: 0,
            counted: [executor.alloc_pinned(1)?, executor.alloc_pinned(1)?],
            left: count,
            executor: executor.clone(),
            equations,
            zones,
            settings,
        })
    }

    /// Number of active zones at the last reading; 0 when all have ended.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Starts one step in every active zone, and reads the number of active zones of some rounds
    /// ago.
    ///
    /// # Errors
    /// An error of the solver or the device. A zone that ends early is no error.
    pub(crate) fn advance(&mut self) -> Result<(), BurningError> {
        let measured = self.rounds.is_multiple_of(MEASURED);
        if measured {
            self.timer.begin()?;
        }
        self.round()?;
        if measured {
            self.timer.end();
        }
        self.rounds += 1;
        if !self.rounds.is_multiple_of(LOOK) {
            return Ok(());
        }
        self.executor.copy_to_pinned(&self.results.left, &mut self.counted[0])?;
        self.counted.swap(0, 1);
        if self.rounds == LOOK {
            return Ok(());
        }
        self.left = self.counted[0].as_slice()?[0] as usize;
        if self.left == 0 { Ok(()) } else { self.compact(self.left) }
    }

    /// The results of all zones. May be called once; waits for all work.
    ///
    /// # Errors
    /// An error of the device.
    pub(crate) fn finish(&mut self) -> Result<Burning, BurningError> {
        let (zones, rounds) = self.results.download(&self.executor, &self.zones)?;
        let mut tally = self.tally.read(&self.executor)?;
        tally.ran = self.solver.describe();
        tally.analyses = self.solver.analyses() as u64;
        Ok(Burning { zones, tally, shares: self.timer.shares()?, rounds })
    }

    /// Computes rates and first steps.
    ///
    /// # Errors
    /// [`BurningError::Zone`] for a rate that is not finite; an error of the device.
    pub(crate) fn start(&mut self) -> Result<(), BurningError> {
        let Self { executor, tables, zones, results, places, weights, tally, .. } = self;
        let count = zones.len();
        let (_, slopes) = self.solver.stage(0);
        let first = Stage::new(At::start(weights));
        if let Some(heating) = &mut self.heating {
            executor.copy_from_host(&zones.unknowns(), &mut places.y)?;
            executor.copy_from_host(&Places::<E>::course(count), &mut places.course)?;
            heating.begin(executor, tables, (count, &mut *places), weights)?;
            heating.stage(executor, tables, (count, &mut *places), first, tally, slopes)?;
        } else {
            let (t9, rho) = (executor.upload(&zones.t9)?, executor.upload(&zones.rho)?);
            let mut bad = executor.upload(&[u32::MAX])?;
            executor.copy_from_host(&zones.y, &mut places.y)?;
            launches::rates(executor, tables, (&t9, &rho), places, &mut bad)?;
            // The download also waits for the rates, which the next launch reads before its own
            // wait.
            let bad = executor.download(&bad)?[0];
            if bad != u32::MAX {
                let (zone, rate) = ((bad / tables.nrates) as usize, (bad % tables.nrates) as usize);
                let id = &self.equations.network().rates[rate].id;
                let problem = format!("the rate {id:?} is not finite at T9 = {}", zones.t9[zone]);
                return Err(BurningError::Zone { zone, problem });
            }
            launches::stage(executor, tables, (count, &mut *places), first, tally, slopes)?;
        }
        launches::begin(executor, tables, &self.numbers, slopes, places, results)?;
        Ok(())
    }

    /// Takes a step in every active zone.
    fn round(&mut self) -> Result<(), BurningError> {
        let Self { executor, tables, heating, weights, solver, places, count, tally, .. } = self;
        let count = *count;
        let method = self.settings.method;
        let values = solver.values()?;
        match heating {
            None => launches::matrix(executor, tables, places, count, method.gamma, values)?,
            Some(heating) => {
                let by = (&*weights, method.gamma);
                heating.matrix(executor, tables, (count, &mut *places), by, tally, values)?;
            }
        }
        self.timer.end_of(Part::Jacobian)?;
        solver.factor()?;
        self.timer.end_of(Part::Solve)?;
        for stage in 0..method.stages() {
            let ((u, ended), b) = solver.stage(stage);
            let at = At { weights, first_weight: first_weight(stage), u };
            let operands = Stage { ended, ..Stage::new(at) };
            let zones = (count, &mut *places);
            match heating {
                None => launches::stage(executor, tables, zones, operands, tally, b)?,
                Some(heating) => heating.stage(executor, tables, zones, operands, tally, b)?,
            }
            self.timer.end_of(Part::Rates)?;
            solver.solve(stage)?;
            tally.solves += 1;
            self.timer.end_of(Part::Solve)?;
        }
        solver.verify()?;
        self.timer.end_of(Part::Solve)?;
        let rules = Rules {
            settings: &self.numbers,
            weights,
            first_weight: first_weight(method.stages() - 1),
            max_steps: self.settings.max_steps,
            project: self.settings.project,
        };
        let results = &mut self.results;
        let solutions = solver.solutions();
        launches::judge(executor, tables, &rules, solutions, (count, places), results, tally)?;
        self.timer.end_of(Part::Control)
    }

    /// Moves zones from the last places to those of zones that have ended, if that is worth the
    /// launches; at most `left` zones are active.
    fn compact(&mut self, left: usize) -> Result<(), BurningError> {
        if self.count - left <= self.count / WORTH {
            return Ok(());
        }
        self.solver.set_active(left)?;
        let Self { executor, tables, places, moves, count, .. } = self;
        launches::compact(executor, tables, (*count, left), places, moves)?;
        *count = left;
        Ok(())
    }
}

/// Offset of the weights of a stage.
fn first_weight(stage: usize) -> usize {
    2 * (MOST_BEFORE + 1) * stage
}

fn weights(settings: &Settings) -> Vec<f64> {
    let method = settings.method;
    let mut weights = vec![0.0; first_weight(method.stages())];
    for stage in 0..method.stages() {
        let own = &mut weights[first_weight(stage)..first_weight(stage + 1)];
        let (a, c) = own.split_at_mut(MOST_BEFORE + 1);
        a.iter_mut().zip(method.a[stage]).for_each(|(weight, a)| *weight = *a);
        c.iter_mut().zip(method.c[stage]).for_each(|(weight, c)| *weight = *c);
    }
    weights
}

/// The array `settings` of `kernels/`.
fn numbers(settings: &Settings) -> [f64; 12] {
    [
        settings.rtol,
        settings.atol,
        f64::from(settings.method.order),
        settings.fixed_step.unwrap_or(0.0),
        SAFETY,
        SHRINK,
        GROW,
        LEAST_STEP,
        LEAST_FIRST_STEP,
        LOST,
        T9_MIN,
        T9_MAX,
    ]
}
