//! The sparse LU on a real GPU, compared with the CPU's: blocks of every size, few and many systems
//! side by side, flawed systems among them, and a graph.

use std::time::Instant;

use sparsebatch_cuda::testing::{device_or_skip, systems};
use sparsebatch_cuda::{Device, DeviceBuffer, Executor};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, CsrPattern, Pattern, UniformBatch};
use sparsebatch_solvers::gpu::{Confirmer, GpuLu, Guess, LuTuning};
use sparsebatch_solvers::{Method, Outcome, SolveOptions, Status, solve};
use sparsebatch_testing::random_vector;

fn options() -> SolveOptions {
    SolveOptions::new().method(Method::Lu).fallback(false)
}

/// A batch on the host and on the device.
struct Loaded {
    batch: UniformBatch<CsrPattern, f64>,
    rhs: Vec<f64>,
    values: DeviceBuffer<f64>,
    b: DeviceBuffer<f64>,
    x: DeviceBuffer<f64>,
}

/// Solutions that lie between the first right-hand side and the last solution.
type Row = [DeviceBuffer<f64>; 3];

/// Every bit of a solve's result.
#[derive(Debug, PartialEq)]
struct Bits(Vec<u64>, Vec<(Status, u32, u64)>);

impl Loaded {
    fn new(device: &Device, family: Family, nrows: usize, items: usize) -> Self {
        let problem = Problem::new(family, nrows).unwrap().batch(items).unwrap();
        let Batch::Uniform(batch) = problem.batch else { unreachable!("one pattern") };
        Self::of(device, batch, problem.rhs)
    }

    fn of(device: &Device, batch: UniformBatch<CsrPattern, f64>, rhs: Vec<f64>) -> Self {
        let BatchValues::ItemMajor(values) = batch.values() else { unreachable!("item-major") };
        Self {
            values: device.upload(values).unwrap(),
            b: device.upload(&rhs).unwrap(),
            x: device.alloc_zeroed(rhs.len()).unwrap(),
            batch,
            rhs,
        }
    }

    fn plan(&self, device: &Device, tuning: &LuTuning) -> GpuLu<Device, f64> {
        let (pattern, items) = (self.batch.pattern().view(), self.batch.nitems());
        GpuLu::with_tuning(device, pattern, items, &options(), tuning).unwrap()
    }

    fn solve(&mut self, device: &Device, plan: &mut GpuLu<Device, f64>) -> Bits {
        plan.solve(&self.values, &self.b, Guess::Zero, &mut self.x).unwrap();
        self.bits(device, &plan.outcomes().unwrap())
    }

    /// Solves with kept factors.
    fn solve_again(&mut self, device: &Device, plan: &mut GpuLu<Device, f64>) -> Bits {
        plan.factor(&self.values).unwrap();
        plan.solve_again(&self.b, Guess::Zero, &mut self.x).unwrap();
        self.bits(device, &plan.outcomes().unwrap())
    }

    /// Solves for b, for the solution of that, and so on, by substitution; all solves are verified
    /// together.
    fn substitute_in_a_row(&mut self, plan: &mut GpuLu<Device, f64>, others: &mut Row) {
        let [second, third, fourth] = others;
        plan.factor(&self.values).unwrap();
        plan.substitute(&self.b, second).unwrap();
        plan.substitute(second, third).unwrap();
        plan.substitute(third, fourth).unwrap();
        plan.substitute(fourth, &mut self.x).unwrap();
        let solves =
            [(&self.b, &*second), (&*second, &*third), (&*third, &*fourth), (&*fourth, &self.x)];
        plan.verify(&solves).unwrap();
    }

    fn bits(&self, device: &Device, outcomes: &[Outcome]) -> Bits {
        let x = device.download(&self.x).unwrap();
        let of = |o: &Outcome| (o.status, o.iterations, o.residual_norm.to_bits());
        Bits(x.iter().map(|v| v.to_bits()).collect(), outcomes.iter().map(of).collect())
    }
}

/// Checks equal statuses, and residuals within the tolerance where systems converged.
fn compare(what: &str, loaded: &Loaded, found: &[Outcome]) {
    let batch = Batch::Uniform(loaded.batch.clone());
    let cpu = solve(&batch, &loaded.rhs, None, &options()).unwrap();
    for (item, (gpu, cpu)) in found.iter().zip(&cpu.report.systems).enumerate() {
        let what = format!("{what} item {item}: {gpu:?}, {:?}", cpu.outcome);
        assert_eq!(gpu.status, cpu.outcome.status, "{what}");
        if gpu.status == Status::Converged {
            assert!(gpu.residual_norm <= 1e-10 * gpu.rhs_norm, "{what}");
            assert!(gpu.iterations.abs_diff(cpu.outcome.iterations) <= 1, "{what}");
        }
    }
}

#[test]
fn blocks_of_every_size_agree_with_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    for (family, nrows) in [
        (Family::Tri, 1),
        (Family::Tri, 50),
        (Family::Tri, 1024),
        (Family::Lap2d, 100),
        (Family::Lap2d, 225),
        (Family::Rand9, 54),
        (Family::Rand9, 72),
    ] {
        let mut loaded = Loaded::new(&device, family, nrows, systems(300));
        for (threads, systems) in [
            (None, None),
            (Some(32), Some(1)),
            (Some(64), Some(3)),
            (Some(128), Some(2)),
            (Some(256), Some(4)),
            (Some(512), Some(1)),
        ] {
            let tuning = LuTuning::default().threads(threads).systems(systems);
            let mut plan = loaded.plan(&device, &tuning);
            let first = loaded.solve(&device, &mut plan);
            let what = format!("{family:?} {nrows} {}", plan.explain());
            compare(&what, &loaded, &plan.outcomes().unwrap());
            assert_eq!(loaded.solve(&device, &mut plan), first, "{what}");
            let kept = loaded.solve_again(&device, &mut plan);
            compare(&format!("{what} by kept factors"), &loaded, &plan.outcomes().unwrap());
            assert_eq!(loaded.solve_again(&device, &mut plan), kept, "{what} by kept factors");
        }
    }
}

#[test]
fn what_converged_stays_so_when_it_is_confirmed() {
    let Some(device) = device_or_skip() else { return };
    let mut loaded = Loaded::new(&device, Family::Lap2d, 225, systems(2000));
    let mut plan = loaded.plan(&device, &LuTuning::default());
    loaded.solve(&device, &mut plan);
    let before = plan.outcomes().unwrap();
    let (pattern, items) = (loaded.batch.pattern().view(), loaded.batch.nitems());
    let confirmer = Confirmer::new(&device, pattern, items, &options()).unwrap();
    plan.confirm(&confirmer, &loaded.values, &loaded.b, &loaded.x).unwrap();
    assert_eq!(before, plan.outcomes().unwrap());
    assert!(before.iter().all(|outcome| outcome.status == Status::Converged), "{before:?}");
}

#[test]
fn flawed_systems_end_as_on_the_cpu_and_change_no_bit_of_others() {
    let Some(device) = device_or_skip() else { return };
    let items = systems(100);
    let problem = Problem::new(Family::Lap2d, 64).unwrap().batch(items).unwrap();
    let Batch::Uniform(sound) = problem.batch else { unreachable!("one pattern") };
    let BatchValues::ItemMajor(values) = sound.values() else { unreachable!("item-major") };
    let (mut values, nnz) = (values.to_vec(), sound.pattern().nnz());
    for item in (0..items).step_by(4) {
        let own = &mut values[item * nnz..(item + 1) * nnz];
        match item % 12 {
            0 => own.fill(0.0),
            4 => own[nnz / 2] = f64::NAN,
            _ => own.iter_mut().for_each(|value| *value *= 1e250),
        }
    }
    let (pattern, values) = (sound.pattern().clone(), BatchValues::ItemMajor(values));
    let flawed = UniformBatch::try_new(pattern, items, values).unwrap();
    let mut sound = Loaded::of(&device, sound, problem.rhs.clone());
    let mut flawed = Loaded::of(&device, flawed, problem.rhs);
    let mut plan = sound.plan(&device, &LuTuning::default());

    let without = sound.solve(&device, &mut plan);
    let with = flawed.solve(&device, &mut plan);

    let outcomes = plan.outcomes().unwrap();
    compare("flawed", &flawed, &outcomes);
    for status in [Status::ZeroPivot, Status::NonFinite, Status::Converged] {
        assert!(outcomes.iter().any(|outcome| outcome.status == status), "{status}");
    }
    let kept_with = flawed.solve_again(&device, &mut plan);
    compare("flawed, by kept factors", &flawed, &plan.outcomes().unwrap());
    let kept_without = sound.solve_again(&device, &mut plan);
    for item in (0..items).filter(|item| item % 4 != 0) {
        let rows = item * 64..(item + 1) * 64;
        for (with, without) in [(&with, &without), (&kept_with, &kept_without)] {
            assert_eq!(
                (&with.0[rows.clone()], with.1[item]),
                (&without.0[rows.clone()], without.1[item])
            );
        }
    }
}

/// Eight right-hand sides of an item have the bits of eight solves of one, transposed ones too.
#[test]
fn right_hand_sides_that_share_factors_end_as_alone() {
    let Some(device) = device_or_skip() else { return };
    for (family, n) in
        [(Family::Rand9, 54), (Family::Rand9, 16), (Family::Lap2d, 64), (Family::Tri, 128)]
    {
        let items = systems(10_000);
        let loaded = Loaded::new(&device, family, n, items);
        let n = loaded.batch.pattern().nrows();
        let (pattern, nrhs) = (loaded.batch.pattern().view(), 8);
        let b = random_vector::<f64>(items * nrhs * n, 3);
        let of_rhs = |all: &[f64], rhs: usize| -> Vec<f64> {
            (0..items).flat_map(|item| all[(item * nrhs + rhs) * n..][..n].to_vec()).collect()
        };
        // Solves of `nrhs` right-hand sides: the solutions, those of the transposed systems, and the
        // microseconds of a solve.
        let again = |nrhs: usize, b: &[f64]| {
            let options = options().nrhs(nrhs);
            let mut plan = GpuLu::<_, f64>::new(&device, pattern, items, &options).unwrap();
            let on_device = device.upload(b).unwrap();
            let mut x = device.alloc_zeroed(b.len()).unwrap();
            plan.factor(&loaded.values).unwrap();
            plan.solve_again(&on_device, Guess::Zero, &mut x).unwrap();
            let solution = device.download(&x).unwrap();
            let mut times: Vec<f64> = (0..9)
                .map(|_| {
                    device.synchronize().unwrap();
                    let begin = Instant::now();
                    for _ in 0..10 {
                        plan.solve_again(&on_device, Guess::Zero, &mut x).unwrap();
                    }
                    device.synchronize().unwrap();
                    begin.elapsed().as_secs_f64() * 1e5
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let outcomes = plan.outcomes().unwrap();
            assert!(outcomes.iter().all(|outcome| outcome.status == Status::Converged));
            plan.solve_transposed_again(&on_device, Guess::Zero, &mut x).unwrap();
            (solution, device.download(&x).unwrap(), times[times.len() / 2])
        };
        let together = again(nrhs, &b);
        let alone: Vec<_> = (0..nrhs).map(|rhs| again(1, &of_rhs(&b, rhs))).collect();
        println!(
            "{family:?} {n}, {items} items: one {:.1} us, eight {:.1} us, {:.2} x",
            alone[0].2,
            together.2,
            together.2 / alone[0].2
        );
        for (rhs, alone) in alone.iter().enumerate() {
            assert!(of_rhs(&together.0, rhs) == alone.0, "{family:?} {n} {rhs}");
            assert!(of_rhs(&together.1, rhs) == alone.1, "transposed {family:?} {n} {rhs}");
        }
    }
}

#[test]
fn solves_run_from_a_graph() {
    let Some(device) = device_or_skip() else { return };
    let mut loaded = Loaded::new(&device, Family::Lap2d, 100, systems(300));
    let mut plan = loaded.plan(&device, &LuTuning::default());
    let first = loaded.solve(&device, &mut plan);
    // Allocates the memory that must not be allocated in a graph.
    let again = loaded.solve_again(&device, &mut plan);
    for kept in [false, true] {
        let graph = device
            .capture(|_| {
                let solved = if kept {
                    let factored = plan.factor(&loaded.values);
                    factored.and_then(|()| plan.solve_again(&loaded.b, Guess::Zero, &mut loaded.x))
                } else {
                    plan.solve(&loaded.values, &loaded.b, Guess::Zero, &mut loaded.x)
                };
                solved.unwrap_or_else(|error| panic!("{error}"));
                Ok(())
            })
            .unwrap();
        for _ in 0..3 {
            device.fill_zero(&mut loaded.x).unwrap();
            // SAFETY: the buffers and the plan are alive until the downloads are done.
            #[expect(unsafe_code, reason = "the launch of a graph")]
            unsafe { graph.launch() }.unwrap();
            let expected = if kept { &again } else { &first };
            assert_eq!(loaded.bits(&device, &plan.outcomes().unwrap()), *expected);
        }
    }
}

/// Solves in a row that are verified together, and what they gave the first time.
struct InARow {
    plan: GpuLu<Device, f64>,
    loaded: Loaded,
    others: Row,
    /// Twice the matrices.
    doubled: DeviceBuffer<f64>,
    device: Device,
    first: Bits,
    what: String,
}

impl InARow {
    fn new(device: Device, family: Family, nrows: usize, items: usize) -> Self {
        let mut loaded = Loaded::new(&device, family, nrows, items);
        let mut plan = loaded.plan(&device, &LuTuning::default());
        let mut others: Row = std::array::from_fn(|_| device.alloc_zeroed(nrows * items).unwrap());
        loaded.substitute_in_a_row(&mut plan, &mut others);
        let outcomes = plan.verified().unwrap();
        let first = loaded.bits(&device, &outcomes);
        let what = format!("{family:?} {nrows} {items}");
        compare(&what, &loaded, &outcomes[..items]);
        assert!(outcomes.iter().all(|outcome| outcome.status == Status::Converged), "{what}");
        let BatchValues::ItemMajor(values) = loaded.batch.values() else { unreachable!() };
        let doubled: Vec<f64> = values.iter().map(|value| 2.0 * value).collect();
        let doubled = device.upload(&doubled).unwrap();
        Self { plan, loaded, others, doubled, device, first, what }
    }

    /// Other factors come first, which no later solve may use.
    fn repeat_after_other_factors(&mut self) {
        for _ in 0..5 {
            self.plan.factor(&self.doubled).unwrap();
            self.plan.substitute(&self.loaded.b, &mut self.others[0]).unwrap();
            self.loaded.substitute_in_a_row(&mut self.plan, &mut self.others);
            let outcomes = self.plan.verified().unwrap();
            assert_eq!(self.loaded.bits(&self.device, &outcomes), self.first, "{}", self.what);
        }
    }

    /// The same solves one after the other, each with its own verdict.
    fn solve_one_by_one(&mut self) {
        let mut b = self.device.download(&self.loaded.b).unwrap();
        for _ in 0..4 {
            let own = self.device.upload(&b).unwrap();
            self.plan.solve_again(&own, Guess::Zero, &mut self.loaded.x).unwrap();
            b = self.device.download(&self.loaded.x).unwrap();
        }
        let bits: Vec<u64> = b.iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits, self.first.0, "{}", self.what);
    }

    /// A recorded substitution uses the current factors: twice the matrix, half of the solution.
    fn record_a_substitution(&mut self) {
        let Self { device, loaded, plan, others, what, .. } = self;
        let half: Vec<f64> = device.download(&others[0]).unwrap().iter().map(|x| 0.5 * x).collect();
        plan.factor(&self.doubled).unwrap();
        let recorded = device
            .capture(|_| {
                plan.substitute(&loaded.b, &mut others[0]).unwrap();
                Ok(())
            })
            .unwrap();
        plan.substitute(&loaded.b, &mut loaded.x).unwrap();
        assert_eq!(device.download(&loaded.x).unwrap(), half, "{what}");
        device.fill_zero(&mut others[0]).unwrap();
        // SAFETY: the buffers and the plan are alive until the downloads are done.
        #[expect(unsafe_code, reason = "the launch of a graph")]
        unsafe { recorded.launch() }.unwrap();
        assert_eq!(device.download(&others[0]).unwrap(), half, "{what}");
    }

    /// Other factors and solves come between the launches of a graph of all solves in a row.
    fn record_all(&mut self) {
        let Self { device, loaded, plan, others, what, .. } = self;
        let graph = device
            .capture(|_| {
                loaded.substitute_in_a_row(plan, others);
                Ok(())
            })
            .unwrap();
        for _ in 0..3 {
            plan.factor(&self.doubled).unwrap();
            plan.substitute(&loaded.b, &mut loaded.x).unwrap();
            plan.verify(&[(&others[1], &loaded.x); 4]).unwrap();
            // SAFETY: the buffers and the plan are alive until the downloads are done.
            #[expect(unsafe_code, reason = "the launch of a graph")]
            unsafe { graph.launch() }.unwrap();
            assert_eq!(loaded.bits(device, &plan.verified().unwrap()), self.first, "{what}");
        }
    }
}

#[test]
fn solves_judged_together_are_those_one_by_one() {
    let Some(device) = device_or_skip() else { return };
    for (family, nrows, items) in [
        (Family::Tri, 7, 3000),
        (Family::Lap2d, 225, 5),
        (Family::Lap2d, 100, 300),
        (Family::Rand9, 72, 9000),
    ] {
        let mut solves = InARow::new(device.clone(), family, nrows, systems(items));
        solves.repeat_after_other_factors();
        solves.solve_one_by_one();
        solves.record_a_substitution();
        solves.record_all();
    }
}
