//! Sparse LU with kept factors, over lanes: the work of
//! [`LanePlan::factor`](super::LanePlan::factor) and
//! [`LanePlan::solve_again`](super::LanePlan::solve_again) on one part of a batch.
//!
//! The algorithm is that of [`super::direct`], and its results are bitwise the same. Residuals are
//! computed side by side here, in the order and with the rounding of [`System`], which computes
//! them one by one and judges the lanes that fail a test.

use sparsebatch_formats::{Batch, CsrPattern, Pattern, Scalar};

use super::evaluate::{MOST_LANES, Residual, norms};
use super::factored::{LuOnPattern, LuState};
use super::job::{Slot, ones};
use super::kept::AnyPart;
use super::matrix::LaneMatrix;
use crate::simd::{CpuScalar, Kernel, Vector, lane, set_lane, set_lanes};
use sparsebatch_solve_core::evaluate::{Sizes, norm2, pow2};
use sparsebatch_solve_core::verdict::{Check, Entry, Stop, System, plainly, threshold};
use sparsebatch_solve_core::{Criteria, Outcome, Status};

/// Groups of items, and the work vectors that their solves share in turn.
struct Part<V: Vector> {
    groups: Vec<Group<V>>,
    space: Space<V>,
}

/// Items side by side.
struct Group<V: Vector> {
    /// Values of A, as in CSR.
    a: Vec<V>,
    factors: LuState<V>,
    /// The Frobenius norm of A in each lane.
    norms: [f64; MOST_LANES],
    /// Lanes that met a zero or NaN pivot, one bit each; `None` before the first factorisation.
    without_pivot: Option<u32>,
    /// Lanes whose values are finite, one bit each; `None` until first computed.
    finite: Option<u32>,
}

/// Work vectors, each with one number per row and lane.
struct Space<V> {
    b: Vec<V>,
    /// `y` is the solution for `b`, `x` the one for `b * 2^-scale`.
    y: Vec<V>,
    x: Vec<V>,
    dx: Vec<V>,
    r: Vec<V>,
    /// The values of a group with other matrices than those that were factorised.
    a: Vec<V>,
}

impl<V: Vector> Part<V> {
    fn new(lu: &LuOnPattern, matrix: &LaneMatrix, groups: usize) -> Self {
        let (n, zero) = (matrix.nrows(), V::zero());
        let group = || Group {
            a: vec![zero; matrix.nvalues()],
            factors: lu.start(),
            norms: [0.0; MOST_LANES],
            without_pivot: None,
            finite: None,
        };
        let vector = || vec![zero; n];
        Self {
            groups: (0..groups).map(|_| group()).collect(),
            space: Space {
                b: vector(),
                y: vector(),
                x: vector(),
                dx: vector(),
                r: vector(),
                a: Vec::new(),
            },
        }
    }
}

/// Returns the number of lanes.
pub(super) struct Count;

impl<T: CpuScalar> Kernel<T> for Count {
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector<Scalar = T>>(self) -> usize {
        V::LANES
    }
}

/// Reads the values of an item, given its index in the part.
pub(super) struct TakeValues<'a> {
    pub(super) part: &'a AnyPart,
    pub(super) item: usize,
}

impl<T: CpuScalar> Kernel<T> for TakeValues<'_> {
    type Output = Option<Vec<T>>;

    #[inline(always)]
    fn run<V: Vector<Scalar = T>>(self) -> Option<Vec<T>> {
        let part = self.part.downcast_ref::<Part<V>>()?;
        let group = part.groups.get(self.item / V::LANES)?;
        Some(lane(&group.a, self.item % V::LANES).collect())
    }
}

/// Factorises the items of a part.
pub(super) struct FactorPart<'a, T> {
    pub(super) part: &'a mut AnyPart,
    pub(super) batch: &'a Batch<T>,
    pub(super) items: &'a [u32],
    pub(super) matrix: &'a LaneMatrix,
    pub(super) lu: &'a LuOnPattern,
}

impl<T: CpuScalar> Kernel<T> for FactorPart<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Scalar = T>>(self) {
        if !self.part.is::<Part<V>>() {
            let groups = self.items.len().div_ceil(V::LANES);
            *self.part = Box::new(Part::<V>::new(self.lu, self.matrix, groups));
        }
        let Some(part) = self.part.downcast_mut::<Part<V>>() else { return };
        let mut copy = Vec::new();
        for (group, items) in part.groups.iter_mut().zip(self.items.chunks(V::LANES)) {
            if !group.load(self.batch, items, &mut copy) {
                continue;
            }
            group.norms = norms(&group.a, (1u64 << items.len()) as u32 - 1);
            group.without_pivot = Some(self.lu.factor(&mut group.factors, &group.a));
            group.finite = None;
        }
    }
}

impl<V: Vector> Group<V> {
    /// Loads the values of items. Returns `false` if they are bitwise those already factorised.
    #[inline(always)]
    fn load(&mut self, batch: &Batch<V::Scalar>, items: &[u32], copy: &mut Vec<V::Scalar>) -> bool {
        let same = |l: usize, values: &[V::Scalar]| {
            let bits = |value: V::Scalar| value.to_f64().to_bits();
            lane(&self.a, l).zip(values).all(|(a, &value)| bits(a) == bits(value))
        };
        let mut lanes = items.iter().map(|&item| item as usize).enumerate();
        let known = self.without_pivot.is_some()
            && lanes.all(|(l, item)| same(l, batch.values_in(item, copy)));
        if known {
            return false;
        }
        load_values(&mut self.a, batch, items, copy);
        true
    }
}

/// Loads the values of items side by side; `copy` is a buffer.
#[inline(always)]
fn load_values<V: Vector>(
    a: &mut [V],
    batch: &Batch<V::Scalar>,
    items: &[u32],
    copy: &mut Vec<V::Scalar>,
) {
    let mut lanes = items.iter().map(|&item| item as usize).enumerate();
    let together: Option<Vec<_>> =
        lanes.clone().map(|(l, item)| Some((l, batch.item_values(item)?))).collect();
    match together {
        Some(together) => set_lanes(a, &together),
        None => lanes.by_ref().for_each(|(l, item)| {
            set_lane(a, l, batch.values_in(item, copy).iter().copied());
        }),
    }
}

/// The matrices of the solves of a part, by the kept factors.
#[derive(Clone, Copy)]
pub(super) enum PartMatrices<'a, T> {
    /// Those that were factorised.
    Kept,
    /// The transposed ones of these.
    Transposed(&'a TransposedClass),
    /// Those of another batch, whose residuals refine.
    Near(&'a Batch<T>, &'a [u32]),
}

/// The transposed pattern of a class, for solves with the transposed matrices.
pub(super) struct TransposedClass {
    pub(super) pattern: CsrPattern,
    pub(super) matrix: LaneMatrix,
    /// The entry of A that each entry of the transposed matrix is.
    pub(super) sources: Vec<u32>,
}

impl TransposedClass {
    pub(super) fn new(original: &CsrPattern) -> Self {
        let (pattern, map) = original.transpose();
        let mut sources = vec![0; original.nnz()];
        for k in 0..original.nnz() {
            sources[map.slot(k)] = k as u32;
        }
        let matrix = LaneMatrix::new(pattern.view());
        Self { pattern, matrix, sources }
    }
}

/// Solves the systems of a part.
pub(super) struct SolvePart<'a, 'x, T> {
    pub(super) part: &'a mut AnyPart,
    pub(super) pattern: &'a CsrPattern,
    pub(super) matrix: &'a LaneMatrix,
    pub(super) lu: &'a LuOnPattern,
    pub(super) matrices: PartMatrices<'a, T>,
    pub(super) nrhs: usize,
    pub(super) criteria: &'a Criteria,
    /// Systems item by item, the right-hand sides of an item one after the other.
    pub(super) slots: Vec<Slot<'x, T>>,
}

impl<T: CpuScalar> Kernel<T> for SolvePart<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Scalar = T>>(mut self) {
        let Some(part) = self.part.downcast_mut::<Part<V>>() else { return };
        let Part { groups, space } = part;
        let nrhs = self.nrhs;
        let (pattern, matrix) = match self.matrices {
            PartMatrices::Transposed(transposed) => (&transposed.pattern, &transposed.matrix),
            PartMatrices::Kept | PartMatrices::Near(..) => (self.pattern, self.matrix),
        };
        let sizes = Sizes::of(pattern.view());
        let (mut others, mut copy) = (std::mem::take(&mut space.a), Vec::new());
        let slots = self.slots.chunks_mut(V::LANES * nrhs);
        for (number, (group, slots)) in groups.iter_mut().zip(slots).enumerate() {
            let (mut other_norms, mut other_finite) = (group.norms, None);
            match self.matrices {
                PartMatrices::Kept => {}
                PartMatrices::Transposed(transposed) => {
                    others.clear();
                    others.extend(transposed.sources.iter().map(|&k| group.a[k as usize]));
                    other_finite = group.finite;
                }
                PartMatrices::Near(batch, items) => {
                    let first = number * V::LANES;
                    let items = &items[first..items.len().min(first + V::LANES)];
                    others.resize(group.a.len(), V::zero());
                    load_values(&mut others, batch, items, &mut copy);
                    other_norms = norms(&others, (1u64 << items.len()) as u32 - 1);
                }
            }
            let is_kept = matches!(self.matrices, PartMatrices::Kept);
            let Group { a, factors, norms, without_pivot, finite } = group;
            let mut solve = GroupSolve {
                a: if is_kept { a } else { &others },
                factors,
                norms: if is_kept { norms } else { &other_norms },
                without_pivot: without_pivot.unwrap_or(!0),
                finite: if is_kept { finite } else { &mut other_finite },
                is_transposed: matches!(self.matrices, PartMatrices::Transposed(_)),
                space,
                pattern,
                sizes,
                matrix,
                criteria: self.criteria,
                of_lane: Vec::new(),
            };
            for rhs in 0..nrhs {
                let mut slots: Vec<_> = slots.iter_mut().skip(rhs).step_by(nrhs).collect();
                solve.run(self.lu, &mut slots);
            }
        }
        space.a = others;
    }
}

/// `2^scale` and `2^-scale` of the system in each active lane. Both are 1 in the other lanes.
#[inline(always)]
fn scales<V: Vector>(entries: &[Entry; MOST_LANES], active: u32) -> (V, V)
where
    V::Scalar: CpuScalar,
{
    let (mut up, mut down) = (V::splat(V::Scalar::ONE), V::splat(V::Scalar::ONE));
    for l in ones(active) {
        let scale = entries[l].scale::<V::Scalar>();
        up.set(l, V::Scalar::from_f64(pow2(scale)));
        down.set(l, V::Scalar::from_f64(pow2(-scale)));
    }
    (up, down)
}

/// The solves of a group.
struct GroupSolve<'a, V: Vector> {
    /// The values of the matrices that are solved with.
    a: &'a [V],
    factors: &'a mut LuState<V>,
    norms: &'a [f64; MOST_LANES],
    /// Lanes that have no factors, one bit each.
    without_pivot: u32,
    finite: &'a mut Option<u32>,
    /// Whether the matrices are the transposed ones of the factors.
    is_transposed: bool,
    space: &'a mut Space<V>,
    pattern: &'a CsrPattern,
    sizes: Sizes,
    matrix: &'a LaneMatrix,
    criteria: &'a Criteria,
    /// Values of one lane, for systems that are judged alone.
    of_lane: Vec<V::Scalar>,
}

impl<V: Vector> GroupSolve<'_, V>
where
    V::Scalar: CpuScalar,
{
    /// Slot `l` is the system in lane `l`.
    #[inline(always)]
    fn run(&mut self, lu: &LuOnPattern, slots: &mut [&mut Slot<'_, V::Scalar>]) {
        let (entries, mut active) = self.enter(slots);
        let (up, down) = scales::<V>(&entries, active);
        let zero = V::zero();
        for (x, y) in self.space.x.iter_mut().zip(&self.space.y) {
            *x = y.mul(down).add(zero);
        }
        active &= !self.fail_without_factors(slots, &entries, active, [up, down]);
        let mut step = 0;
        while active != 0 {
            for r in &mut self.space.r {
                *r = r.mul(down).keep(active);
            }
            let Space { r, dx, .. } = &mut *self.space;
            match self.is_transposed {
                false => lu.solve(self.factors, r, dx),
                true => lu.solve_transposed(self.factors, r, dx),
            }
            let Space { x, dx, y, .. } = &mut *self.space;
            for ((x, &dx), y) in x.iter_mut().zip(&*dx).zip(y) {
                *x = x.add(dx);
                *y = x.mul(up);
            }
            step += 1;
            self.residual(active);
            let of_residuals = norms(&self.space.r, active);
            let of_solutions = norms(&self.space.y, active);
            for l in ones(active) {
                let system = slots[l].system;
                let iterations_left = step < self.criteria.max_iters.get(system);
                let stop = match iterations_left {
                    true => Stop::Passed,
                    false => Stop::Failed(Status::MaxIterations),
                };
                let norms = [of_residuals[l], of_solutions[l]];
                let mut check = self.check(l, slots[l], &entries[l], norms);
                let restarts = step - 1;
                let status = check.status(stop, restarts, iterations_left, self.criteria);
                if let Some(status) = status {
                    let guess = match status {
                        Status::Converged => None,
                        _ => Some(slots[l].x.to_vec()),
                    };
                    for (x, y) in slots[l].x.iter_mut().zip(lane(&self.space.y, l)) {
                        *x = y;
                    }
                    if let Some(guess) = guess {
                        self.keep_better(l, slots[l], &entries[l], &guess, &mut check);
                    }
                    let counts = [step, restarts];
                    *slots[l].outcome = Some(self.outcome(status, counts, &entries[l], &check));
                    active &= !(1 << l);
                }
            }
        }
    }

    /// Loads right-hand sides into `b`, guesses into `y` and residuals into `r`. Returns the
    /// entries of the systems and the lanes that need iterations, one bit each; the other systems
    /// have ended.
    #[inline(always)]
    fn enter(&mut self, slots: &mut [&mut Slot<'_, V::Scalar>]) -> ([Entry; MOST_LANES], u32) {
        let lanes = (1u64 << slots.len()) as u32 - 1;
        let together: Vec<_> = slots.iter().map(|slot| slot.b).enumerate().collect();
        set_lanes(&mut self.space.b, &together);
        let rhs_norms = norms(&self.space.b, lanes);

        // From x = 0 the residual is b, unless the matrix is not finite. (A fold, unlike `any`, is
        // vectorised.)
        let mut guesses = 0;
        let mut products = 0;
        for (l, slot) in slots.iter_mut().enumerate() {
            let rhs_norm = rhs_norms[l];
            if rhs_norm == 0.0 {
                slot.x.fill(V::Scalar::ZERO);
            }
            if slot.x.iter().fold(false, |any, &x| any | (x != V::Scalar::ZERO)) {
                guesses |= 1 << l;
            } else if rhs_norm <= threshold(slot.system, self.criteria, rhs_norm) {
                products |= 1 << l;
            }
        }
        if products != 0 {
            products &= !self.finite();
        }
        products |= guesses;
        self.space.y.fill(V::zero());
        let mut residual_norms = rhs_norms;
        if products == 0 {
            self.space.r.copy_from_slice(&self.space.b);
        } else {
            for l in ones(guesses) {
                set_lane(&mut self.space.y, l, slots[l].x.iter().copied());
            }
            self.residual(products);
            let of_products = norms(&self.space.r, products);
            for l in ones(products) {
                residual_norms[l] = of_products[l];
            }
        }

        let mut active = 0;
        let entries = std::array::from_fn(|l| {
            let Some(slot) = slots.get_mut(l) else {
                return Entry::new(0, self.criteria, 0.0, 0.0, true);
            };
            let entry = match guesses >> l & 1 == 1 && rhs_norms[l].is_finite() {
                true => self.enter_from_guess(l, slot, rhs_norms[l], residual_norms[l]),
                false => {
                    let passed =
                        residual_norms[l] <= threshold(slot.system, self.criteria, rhs_norms[l]);
                    Entry::new(slot.system, self.criteria, rhs_norms[l], residual_norms[l], passed)
                }
            };
            match entry.status {
                None => active |= 1 << l,
                Some(status) => {
                    *slot.outcome = Some(entry.outcome(status, self.criteria.history));
                }
            }
            entry
        });
        (entries, active)
    }

    /// The lanes whose values are finite, one bit each.
    #[inline(always)]
    fn finite(&mut self) -> u32 {
        if let Some(finite) = *self.finite {
            return finite;
        }
        // The sum is 0 for finite values, else NaN.
        let mut sum = V::zero();
        for value in self.a {
            sum = value.mul(V::zero()).add(sum);
        }
        let finite = sum.le(V::zero());
        *self.finite = Some(finite);
        finite
    }

    /// `r = b - A y` in the lanes of `lanes`, `r = b` in the others.
    #[inline(always)]
    fn residual(&mut self, lanes: u32) {
        let Space { b, y, r, .. } = &mut *self.space;
        V::call(Residual { matrix: self.matrix, a: self.a, b, y, r, lanes });
    }

    /// The entry of a system whose guess is in `y`, given the norms of b and of the residual.
    #[inline(never)]
    fn enter_from_guess(
        &mut self,
        l: usize,
        slot: &mut Slot<'_, V::Scalar>,
        rhs_norm: f64,
        residual_norm: f64,
    ) -> Entry {
        let threshold = threshold(slot.system, self.criteria, rhs_norm);
        let norms = [self.norms[l], norm2(slot.x), rhs_norm];
        let said = plainly::<V::Scalar>(self.sizes, norms, residual_norm, threshold);
        let known = said.filter(|_| residual_norm.is_finite());
        if let Some(passed) = known {
            return Entry::new(slot.system, self.criteria, rhs_norm, residual_norm, passed);
        }
        let mut r = vec![V::Scalar::ZERO; slot.x.len()];
        let entry = self.with_system(l, slot.system, slot.b, |system| system.enter(slot.x, &mut r));
        set_lane(&mut self.space.r, l, r.into_iter());
        entry
    }

    /// Judges a lane by the norms of its residual and of its solution, which is in `y`. If the
    /// residual is evaluated more accurately, it replaces the one in `r`.
    #[inline(always)]
    fn check(
        &mut self,
        l: usize,
        slot: &Slot<'_, V::Scalar>,
        entry: &Entry,
        [norm, of_solution]: [f64; 2],
    ) -> Check {
        let norms = [self.norms[l], of_solution, entry.rhs_norm];
        let said = plainly::<V::Scalar>(self.sizes, norms, norm, entry.threshold);
        match said.filter(|&passed| norm.is_finite() && (passed || self.criteria.floor.is_none())) {
            Some(passed) => {
                Check { residual_norm: norm, passed, floor_passed: false, is_accurate: true }
            }
            None => {
                let x: Vec<V::Scalar> = lane(&self.space.y, l).collect();
                self.check_alone(l, slot, entry, &x)
            }
        }
    }

    #[inline(never)]
    fn check_alone(
        &mut self,
        l: usize,
        slot: &Slot<'_, V::Scalar>,
        entry: &Entry,
        x: &[V::Scalar],
    ) -> Check {
        let mut r = vec![V::Scalar::ZERO; x.len()];
        let check =
            self.with_system(l, slot.system, slot.b, |system| system.check(entry, x, &mut r));
        set_lane(&mut self.space.r, l, r.into_iter());
        check
    }

    /// [`System::keep_better`] for a system whose guess in `slot.x` was overwritten by the
    /// solution.
    #[inline(never)]
    fn keep_better(
        &mut self,
        l: usize,
        slot: &mut Slot<'_, V::Scalar>,
        entry: &Entry,
        guess: &[V::Scalar],
        check: &mut Check,
    ) {
        let mut r = vec![V::Scalar::ZERO; guess.len()];
        let guess = Some(guess).filter(|x| x.iter().any(|&v| v != V::Scalar::ZERO));
        self.with_system(l, slot.system, slot.b, |system| {
            system.keep_better(entry, guess, check, slot.x, &mut r);
        });
    }

    /// Calls `f` with the system of a lane.
    fn with_system<R>(
        &mut self,
        l: usize,
        number: usize,
        b: &[V::Scalar],
        f: impl FnOnce(&System<'_, V::Scalar>) -> R,
    ) -> R {
        self.of_lane.clear();
        self.of_lane.extend(lane(self.a, l));
        f(&System::new(number, self.pattern.view(), &self.of_lane, b, self.criteria))
    }

    /// Ends the systems of `active` whose matrix has no factors. Returns their lanes, one bit each.
    #[inline(always)]
    fn fail_without_factors(
        &mut self,
        slots: &mut [&mut Slot<'_, V::Scalar>],
        entries: &[Entry; MOST_LANES],
        active: u32,
        [up, down]: [V; 2],
    ) -> u32 {
        let failed = self.without_pivot & active;
        for l in ones(failed) {
            // NaN and infinite values also fail the pivot test, but do not show singularity.
            let status = match self.finite() >> l & 1 {
                1 => Status::ZeroPivot,
                _ => Status::NonFinite,
            };
            self.fail(l, slots[l], &entries[l], status, [up.get(l), down.get(l)]);
        }
        failed
    }

    /// Ends a system whose matrix has no factors.
    #[inline(never)]
    fn fail(
        &mut self,
        l: usize,
        slot: &mut Slot<'_, V::Scalar>,
        entry: &Entry,
        status: Status,
        [up, down]: [V::Scalar; 2],
    ) {
        let guess = slot.x.to_vec();
        slot.x.iter_mut().for_each(|x| *x = (*x * down + V::Scalar::ZERO) * up);
        let mut check = self.check_alone(l, slot, entry, slot.x);
        let status = check.status(Stop::Failed(status), 0, true, self.criteria).unwrap_or(status);
        if status != Status::Converged {
            self.keep_better(l, slot, entry, &guess, &mut check);
        }
        *slot.outcome = Some(self.outcome(status, [0, 0], entry, &check));
    }

    fn outcome(
        &self,
        status: Status,
        [iterations, restarts]: [u32; 2],
        entry: &Entry,
        check: &Check,
    ) -> Outcome {
        let history = if self.criteria.history { vec![entry.residual_norm] } else { Vec::new() };
        Outcome {
            status,
            iterations,
            restarts,
            residual_norm: check.residual_norm,
            rhs_norm: entry.rhs_norm,
            accepted_by_floor: check.floor_passed,
            history,
        }
    }
}
