//! CG and BiCGStab composed of primitives: all systems in step, each with scalars of its own.
//!
//! This is the reference that the fused solvers are compared with, and the path on which the
//! products run through an SpMV plan, so that a format's or kernel's preprocessing is amortised
//! over the iterations and measured. Algorithms, order of sums and tests are those of
//! [`sparsebatch_cpu_ref::lanes`], where they are cited; without fused multiply-add the two agree
//! bit for bit as long as the products add each row's entries in ascending order.

mod judge;

use sparsebatch_formats::Scalar;
use sparsebatch_solve_core::verdict::{Entry, Stop, by_power_of_two};
use sparsebatch_solve_core::{Criteria, Outcome, Status};

use crate::SolveError;
use crate::backend::Primitives;
use crate::error::go_on;

use judge::JudgedSystem;
pub(crate) use judge::{Judge, offsets_of};

/// The state of every system of a composed solve.
pub(crate) struct Composed<'a, T> {
    judge: Judge<'a, T>,
    nrhs: usize,
    b: &'a [T],
    criteria: &'a Criteria,
    offsets: Vec<usize>,
    /// Systems that still iterate.
    active: Vec<bool>,
    entries: Vec<Entry>,
    /// Initial guesses; `None` when all are 0.
    guesses: Vec<Option<Vec<T>>>,
    /// The stored `x` and `r` of an active system are scaled by `2^-scale`; see [`Entry::scale`].
    scales: Vec<i32>,
    /// The iterations of a system work on `A * 2^-matrix_scale`, and `x` is scaled accordingly.
    matrix_scales: Vec<i32>,
    /// Squared thresholds, scaled.
    squares: Vec<T>,
    iterations: Vec<u32>,
    restarts: Vec<u32>,
    histories: Vec<Vec<f64>>,
    outcomes: Vec<Option<Outcome>>,
    r: Vec<T>,
}

impl<'a, T: Scalar> Composed<'a, T> {
    /// Tests every system on entry. `failed` holds the status of each item whose preconditioner
    /// failed, or is empty.
    pub(crate) fn new(
        judge: Judge<'a, T>,
        nrhs: usize,
        b: &'a [T],
        x: &mut [T],
        criteria: &'a Criteria,
        failed: &[Option<Status>],
    ) -> Self {
        let offsets = judge.offsets(nrhs);
        let systems = offsets.len() - 1;
        let mut this = Self {
            judge,
            nrhs,
            b,
            criteria,
            offsets,
            active: vec![false; systems],
            entries: Vec::with_capacity(systems),
            guesses: Vec::with_capacity(systems),
            scales: vec![0; systems],
            matrix_scales: vec![0; systems],
            squares: vec![T::ZERO; systems],
            iterations: vec![0; systems],
            restarts: vec![0; systems],
            histories: vec![Vec::new(); systems],
            outcomes: vec![None; systems],
            r: vec![T::ZERO; b.len()],
        };
        for system in 0..systems {
            let failed = failed.get(system / nrhs).copied().flatten();
            this.enter(system, failed, x);
        }
        this
    }

    /// Tests one system on entry. A system that goes on to the iterations is scaled for them;
    /// `failed` is the status of a preconditioner that failed.
    fn enter(&mut self, system: usize, failed: Option<Status>, x: &mut [T]) {
        let range = self.range(system);
        let mut r = vec![T::ZERO; range.len()];
        let entry = self.with_system(system, |s| s.enter(&mut x[range.clone()], &mut r));
        self.r[range.clone()].copy_from_slice(&r);
        self.entries.push(entry);
        let guess = &x[range.clone()];
        let is_zero = guess.iter().all(|&v| v == T::ZERO);
        self.guesses.push(if is_zero { None } else { Some(guess.to_vec()) });
        if let Some(status) = entry.status {
            self.outcomes[system] = Some(entry.outcome(status, self.criteria.history));
            if let Some(watch) = &self.criteria.watch {
                watch.add(1);
            }
            return;
        }
        if self.criteria.history {
            self.histories[system].push(entry.residual_norm);
        }
        self.active[system] = true;
        if let Some(status) = failed {
            self.settle(system, Stop::Failed(status), x);
            return;
        }
        let scale = entry.scale::<T>();
        self.scales[system] = scale;
        let threshold = T::from_f64(entry.threshold * 2f64.powi(-scale));
        self.squares[system] = threshold * threshold;
        let matrix_scale = self.judge.matrix_scale(system / self.nrhs);
        self.matrix_scales[system] = matrix_scale;
        rescale(matrix_scale - scale, &mut x[range.clone()]);
        rescale(-scale, &mut self.r[range]);
    }

    /// The outcomes, once no system is active.
    pub(crate) fn finish(self) -> Vec<Outcome> {
        let outcomes = self.outcomes.into_iter();
        outcomes.map(|o| o.expect("the iterations end when no system is active")).collect()
    }

    fn systems(&self) -> usize {
        self.active.len()
    }

    fn any_active(&self) -> bool {
        self.active.contains(&true)
    }

    fn range(&self, system: usize) -> std::ops::Range<usize> {
        self.offsets[system]..self.offsets[system + 1]
    }

    fn with_system<R>(&self, number: usize, f: impl FnOnce(&JudgedSystem<'_, T>) -> R) -> R {
        let rows = self.range(number);
        self.judge.with_system((number, number / self.nrhs), rows, self.b, self.criteria, f)
    }

    fn iterations_left(&self, system: usize) -> bool {
        self.iterations[system] < self.criteria.max_iters.get(system)
    }

    /// Counts an iteration of every active system and records its residual, given its square.
    fn count(&mut self, squares: &[T]) {
        for (system, square) in squares.iter().enumerate() {
            if self.active[system] {
                self.iterations[system] += 1;
                if self.criteria.history {
                    let norm = square.to_f64().sqrt();
                    self.histories[system].push(norm * 2f64.powi(self.scales[system]));
                }
            }
        }
    }

    /// Judges a stopped system. Returns true when it restarts: `r` then holds its true residual.
    /// Otherwise `x` holds its solution.
    fn settle(&mut self, system: usize, stop: Stop, x: &mut [T]) -> bool {
        let range = self.range(system);
        let scale = self.scales[system];
        let mut solution = x[range.clone()].to_vec();
        rescale(scale - self.matrix_scales[system], &mut solution);
        let mut r = vec![T::ZERO; range.len()];
        let entry = &self.entries[system];
        let mut check = self.with_system(system, |s| s.check(entry, &solution, &mut r));
        let left = self.iterations_left(system);
        match check.status(stop, self.restarts[system], left, self.criteria) {
            None => {
                rescale(-scale, &mut r);
                self.r[range].copy_from_slice(&r);
                self.restarts[system] += 1;
                true
            }
            Some(status) => {
                if status != Status::Converged {
                    let (entry, guess) = (&self.entries[system], self.guesses[system].as_deref());
                    self.with_system(system, |s| {
                        s.keep_better(entry, guess, &mut check, &mut solution, &mut r);
                    });
                }
                x[range].copy_from_slice(&solution);
                self.active[system] = false;
                self.outcomes[system] = Some(Outcome {
                    status,
                    iterations: self.iterations[system],
                    restarts: self.restarts[system],
                    residual_norm: check.residual_norm,
                    rhs_norm: self.entries[system].rhs_norm,
                    accepted_by_floor: check.floor_passed,
                    history: std::mem::take(&mut self.histories[system]),
                });
                if let Some(watch) = &self.criteria.watch {
                    watch.add(1);
                }
                false
            }
        }
    }

    /// Multiplies the solutions of the systems that stop, where products alone judge them.
    fn multiply_stopped(
        &mut self,
        on: &mut impl Primitives<T>,
        stops: &[Option<Stop>],
        x: &[T],
    ) -> Result<(), SolveError> {
        if self.judge.has_matrices() || stops.iter().all(Option::is_none) {
            return Ok(());
        }
        let mut solutions = vec![T::ZERO; x.len()];
        for system in (0..stops.len()).filter(|&system| stops[system].is_some()) {
            let range = self.range(system);
            solutions[range.clone()].copy_from_slice(&x[range.clone()]);
            rescale(self.scales[system] - self.matrix_scales[system], &mut solutions[range]);
        }
        on.spmv(&solutions, self.judge.product_mut())
    }

    /// Settles the systems that stop. Returns which of them restart.
    fn settle_all(
        &mut self,
        on: &mut impl Primitives<T>,
        stops: Vec<Option<Stop>>,
        x: &mut [T],
    ) -> Result<Vec<bool>, SolveError> {
        self.multiply_stopped(on, &stops, x)?;
        let settled = stops.into_iter().enumerate();
        Ok(settled.map(|(s, stop)| stop.is_some_and(|stop| self.settle(s, stop, x))).collect())
    }

    /// Refuses to go on when the solve was asked to stop; x is without the scales of the iterations
    /// then.
    fn go_on(&self, x: &mut [T]) -> Result<(), SolveError> {
        let stopped = go_on(&self.criteria.watch);
        if stopped.is_err() {
            for system in (0..self.active.len()).filter(|&system| self.active[system]) {
                let scale = self.scales[system] - self.matrix_scales[system];
                rescale(scale, &mut x[self.range(system)]);
            }
        }
        stopped
    }

    /// `y = A x` with A scaled as in the iterations.
    fn product(&self, on: &mut impl Primitives<T>, x: &[T], y: &mut [T]) -> Result<(), SolveError> {
        on.spmv(x, y)?;
        for (system, &scale) in self.matrix_scales.iter().enumerate() {
            rescale(-scale, &mut y[self.range(system)]);
        }
        Ok(())
    }

    /// `z = M r`, with M scaled as the inverse of the scaled A.
    fn precondition(
        &self,
        on: &mut impl Primitives<T>,
        r: &[T],
        z: &mut [T],
    ) -> Result<(), SolveError> {
        on.precondition(&self.active, r, z)?;
        for (system, &scale) in self.matrix_scales.iter().enumerate() {
            if self.active[system] && on.is_preconditioned() {
                rescale(scale, &mut z[self.range(system)]);
            }
        }
        Ok(())
    }

    /// Preconditioned CG.
    pub(crate) fn cg(
        &mut self,
        x: &mut [T],
        on: &mut impl Primitives<T>,
    ) -> Result<(), SolveError> {
        let (systems, len) = (self.systems(), x.len());
        let (ones, zeros) = (vec![T::ONE; systems], vec![T::ZERO; systems]);
        let (mut p, mut ap, mut z) = (vec![T::ZERO; len], vec![T::ZERO; len], vec![T::ZERO; len]);
        let mut rho = vec![T::ZERO; systems];
        let (mut curvature, mut rr, mut rz) = (rho.clone(), rho.clone(), rho.clone());
        let (mut alpha, mut minus_alpha, mut beta) = (rho.clone(), rho.clone(), rho.clone());
        self.precondition(on, &self.r, &mut z)?;
        on.dot(&self.active, &self.r, &z, &mut rho);
        self.fail_unless_positive(on, &rho, x)?;
        on.axpby(&self.active, &ones, &z, &zeros, &mut p);
        while self.any_active() {
            self.go_on(x)?;
            self.product(on, &p, &mut ap)?;
            on.dot(&self.active, &ap, &p, &mut curvature);
            for s in 0..systems {
                alpha[s] = if curvature[s] > T::ZERO { rho[s] / curvature[s] } else { T::ZERO };
                minus_alpha[s] = -alpha[s];
            }
            on.axpby(&self.active, &alpha, &p, &ones, x);
            on.axpby(&self.active, &minus_alpha, &ap, &ones, &mut self.r);
            on.dot(&self.active, &self.r, &self.r, &mut rr);
            self.count(&rr);
            let stops = (0..systems).map(|s| self.stop_of_cg(s, curvature[s], rr[s])).collect();
            let restarted = self.settle_all(on, stops, x)?;
            self.precondition(on, &self.r, &mut z)?;
            on.dot(&self.active, &self.r, &z, &mut rz);
            self.fail_unless_positive(on, &rz, x)?;
            for s in 0..systems {
                beta[s] = if restarted[s] { T::ZERO } else { rz[s] / rho[s] };
                rho[s] = rz[s];
            }
            on.axpby(&self.active, &ones, &z, &beta, &mut p);
        }
        Ok(())
    }

    /// Why a system stops after an iteration of CG, if it does, by `p'Ap` and `r'r`.
    fn stop_of_cg(&self, system: usize, curvature: T, rr: T) -> Option<Stop> {
        let bad = !is_positive(curvature);
        if !self.active[system] {
            None
        } else if rr <= self.squares[system] && !bad {
            Some(Stop::Passed)
        } else if !rr.is_finite() {
            Some(Stop::Failed(Status::NonFinite))
        } else if bad {
            Some(Stop::failed(curvature, Status::Indefinite))
        } else if !self.iterations_left(system) {
            Some(Stop::Failed(Status::MaxIterations))
        } else {
            None
        }
    }

    fn fail_unless_positive(
        &mut self,
        on: &mut impl Primitives<T>,
        rho: &[T],
        x: &mut [T],
    ) -> Result<(), SolveError> {
        let fails = |(s, &rho): (usize, &T)| {
            (self.active[s] && !is_positive(rho)).then(|| Stop::not_positive(rho))
        };
        let stops = rho.iter().enumerate().map(fails).collect();
        self.settle_all(on, stops, x).map(drop)
    }

    /// Right-preconditioned BiCGStab.
    pub(crate) fn bicgstab(
        &mut self,
        x: &mut [T],
        on: &mut impl Primitives<T>,
    ) -> Result<(), SolveError> {
        let (systems, len) = (self.systems(), x.len());
        let vector = || vec![T::ZERO; len];
        let (mut p, mut v, mut t) = (vector(), vector(), vector());
        let (mut p_hat, mut s_hat, mut shadow) = (vector(), vector(), vector());
        let ones = vec![T::ONE; systems];
        let (mut c, mut minus) = (BiCgStabScalars::zeros(systems), vec![T::ZERO; systems]);
        on.copy(&self.active, &self.r, &mut shadow);
        on.dot(&self.active, &self.r, &self.r, &mut c.rho);
        c.shadow_square.copy_from_slice(&c.rho);
        while self.any_active() {
            self.go_on(x)?;
            negate(&c.omega, &mut minus);
            on.axpby(&self.active, &minus, &v, &ones, &mut p);
            on.axpby(&self.active, &ones, &self.r, &c.beta, &mut p);
            self.precondition(on, &p, &mut p_hat)?;
            self.product(on, &p_hat, &mut v)?;
            on.dot(&self.active, &v, &shadow, &mut c.shadow_v);
            for s in 0..systems {
                let bad = vanishes(c.shadow_v[s]);
                c.alpha[s] = if bad { T::ZERO } else { c.rho[s] / c.shadow_v[s] };
            }
            negate(&c.alpha, &mut minus);
            on.axpby(&self.active, &minus, &v, &ones, &mut self.r);
            on.dot(&self.active, &self.r, &self.r, &mut c.ss);
            self.precondition(on, &self.r, &mut s_hat)?;
            self.product(on, &s_hat, &mut t)?;
            on.dot(&self.active, &t, &self.r, &mut c.ts);
            on.dot(&self.active, &t, &t, &mut c.tt);
            let stops = self.stabilise(&mut c);
            on.axpby(&self.active, &c.alpha, &p_hat, &ones, x);
            on.axpby(&self.active, &c.omega, &s_hat, &ones, x);
            negate(&c.omega, &mut minus);
            on.axpby(&self.active, &minus, &t, &ones, &mut self.r);
            on.dot(&self.active, &self.r, &self.r, &mut c.rr);
            on.dot(&self.active, &self.r, &shadow, &mut c.next_rho);
            self.count(&c.rr);
            let stops = self.end_iteration(stops, &mut c);
            let restarted = self.settle_all(on, stops, x)?;
            if restarted.contains(&true) {
                on.copy(&restarted, &self.r, &mut shadow);
                on.dot(&restarted, &self.r, &self.r, &mut c.rho);
                for s in (0..systems).filter(|&s| restarted[s]) {
                    (c.beta[s], c.omega[s], c.shadow_square[s]) = (T::ZERO, T::ZERO, c.rho[s]);
                    let range = self.range(s);
                    p[range.clone()].fill(T::ZERO);
                    v[range].fill(T::ZERO);
                }
            }
        }
        Ok(())
    }

    /// Computes `omega` of every active system, and returns why a system stops in the middle of the
    /// iteration, if it does; `omega` is 0 then.
    fn stabilise(&self, c: &mut BiCgStabScalars<T>) -> Vec<Option<Stop>> {
        let mut stops = vec![None; self.systems()];
        for (s, stop) in stops.iter_mut().enumerate() {
            if !self.active[s] {
                continue;
            }
            let bad_alpha = vanishes(c.shadow_v[s]);
            let bad_omega = vanishes(c.ts[s]) || !is_positive(c.tt[s]);
            c.omega[s] = T::ZERO;
            if bad_alpha {
                *stop = Some(Stop::broken(c.shadow_v[s], Status::BreakdownAlpha));
            } else if c.ss[s] <= self.squares[s] {
                *stop = Some(Stop::Passed);
            } else if bad_omega {
                *stop = Some(Stop::broken(c.ts[s] + c.tt[s], Status::BreakdownOmega));
            } else {
                c.omega[s] = c.ts[s] / c.tt[s];
            }
        }
        stops
    }

    /// Ends an iteration of BiCGStab: computes `beta` and `rho` of every active system. Returns why
    /// a system stops, if it does; `stops` holds those that stopped in the middle of the iteration.
    fn end_iteration(
        &self,
        mut stops: Vec<Option<Stop>>,
        c: &mut BiCgStabScalars<T>,
    ) -> Vec<Option<Stop>> {
        let tiny = T::EPSILON * T::EPSILON;
        for (s, stop) in stops.iter_mut().enumerate() {
            if !self.active[s] {
                continue;
            }
            let (rr, next_rho) = (c.rr[s], c.next_rho[s]);
            c.beta[s] = (next_rho / c.rho[s]) * (c.alpha[s] / c.omega[s]);
            c.rho[s] = next_rho;
            *stop = match *stop {
                Some(stop) => Some(stop),
                None if rr <= self.squares[s] => Some(Stop::Passed),
                None if !rr.is_finite() => Some(Stop::Failed(Status::NonFinite)),
                None if next_rho * next_rho <= tiny * (c.shadow_square[s] * rr) => {
                    Some(Stop::Broken(Status::BreakdownRho))
                }
                None if !self.iterations_left(s) => Some(Stop::Failed(Status::MaxIterations)),
                None => None,
            };
        }
        stops
    }
}

/// The scalars of BiCGStab, one of each for every system. In their names `s` is the residual in the
/// middle of an iteration, and `t` its product with the preconditioned matrix.
struct BiCgStabScalars<T> {
    /// Products of the residual with the shadow residual, before and after the iteration.
    rho: Vec<T>,
    next_rho: Vec<T>,
    alpha: Vec<T>,
    beta: Vec<T>,
    omega: Vec<T>,
    /// The square of the shadow residual.
    shadow_square: Vec<T>,
    /// The product of the shadow residual and of v, the product of the matrix and the direction.
    shadow_v: Vec<T>,
    ss: Vec<T>,
    ts: Vec<T>,
    tt: Vec<T>,
    /// The square of the residual after the iteration.
    rr: Vec<T>,
}

impl<T: Scalar> BiCgStabScalars<T> {
    fn zeros(systems: usize) -> Self {
        let zeros = || vec![T::ZERO; systems];
        Self {
            rho: zeros(),
            next_rho: zeros(),
            alpha: zeros(),
            beta: zeros(),
            omega: zeros(),
            shadow_square: zeros(),
            shadow_v: zeros(),
            ss: zeros(),
            ts: zeros(),
            tt: zeros(),
            rr: zeros(),
        }
    }
}

/// `v *= 2^exponent`, where it is not 0.
fn rescale<T: Scalar>(exponent: i32, v: &mut [T]) {
    if exponent != 0 {
        let scaled = by_power_of_two(exponent);
        v.iter_mut().for_each(|v| *v = scaled(*v));
    }
}

fn negate<T: Scalar>(values: &[T], out: &mut [T]) {
    for (out, &value) in out.iter_mut().zip(values) {
        *out = -value;
    }
}

/// False for NaN too.
fn is_positive<T: Scalar>(value: T) -> bool {
    value > T::ZERO
}

/// Zero or NaN.
fn vanishes<T: Scalar>(value: T) -> bool {
    value.partial_cmp(&T::ZERO).is_none_or(std::cmp::Ordering::is_eq)
}
