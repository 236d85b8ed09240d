//! The suite `distributed`: one large matrix over ranks, GPUs or parts of the processor.
//!
//! The matrix is a Laplacian on a cube with seven entries a row, of which each rank makes its rows.
//! Measured are the product whose vectors stay where the parts are, CG for a fixed number of
//! iterations, and CG, pipelined CG and BiCGStab to a tolerance, on 1, 2, 4 and all GPUs, and on 1 and
//! 2 ranks of the processor; beside them, on one GPU, the product of a plan of the whole matrix.

use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use sparsebatch_cuda::device::{availability, measure_bandwidth};
use sparsebatch_cuda::{Device, Executor};
use sparsebatch_formats::Csr;
use sparsebatch_mpi::{
    DistributedMatrix, DistributedOptions, DistributedReport, Failure, MatrixOptions, MpiError,
    Partition, Ranks,
};
use sparsebatch_rows::summary::OURS;
use sparsebatch_rows::{Gap, Machine, Row};
use sparsebatch_solvers::{Backend as RankBackend, Gpu, Method, Preconditioner, SolveOptions};
use sparsebatch_spmv_gpu::{SingleOptions, SinglePlan};

use super::Size;
use crate::phases::Phase::{Ceilings, Measuring};
use crate::phases::timed;
use crate::processor;
use crate::recorder::Recorder;
use crate::session::{Costs, Label, Measured, Problem, Target, machine};
use crate::timing::Timing;
use crate::{Backend, BenchError, Outcome, begin};

/// Rows that a thread makes at a time.
const PART: usize = 1 << 14;

/// Iterations of the solve that warms up a method.
const WARM_UP: u32 = 10;

/// Rounds of products and of solves.
const ROUNDS: usize = 7;

/// Milliseconds of a round of products.
const ROUND_MS: f64 = 30.0;

/// Most products of a round.
const MOST_PRODUCTS: usize = 200;

/// Relative residual of the solves to a tolerance.
const TOLERANCE: f64 = 1e-8;

/// What to measure.
#[derive(Clone, Debug, Default)]
pub struct Distributed {
    /// Points along an edge of the cube, one for each case; by the size when empty.
    pub edges: Vec<usize>,
    /// The numbers of the GPUs; all when empty.
    pub ordinals: Vec<usize>,
    /// Iterations of the solves of a fixed number; 100 when absent.
    pub iterations: Option<u32>,
    /// Extent of the suite: cubes of 40 at small size, of 200 by default, of 300 and 400 at full size.
    pub size: Size,
    /// The devices to measure; when absent both, if there is a GPU.
    pub backend: Option<Backend>,
    /// The file that the rows are written to.
    pub output: Option<PathBuf>,
}

impl Distributed {
    fn edges(&self) -> Vec<usize> {
        match (&self.edges[..], self.size) {
            ([], Size::Small) => vec![40],
            ([], Size::Paper) => vec![200],
            ([], Size::Full) => vec![300, 400],
            (edges, _) => edges.to_vec(),
        }
    }

    fn devices(&self) -> Result<Vec<Device>, BenchError> {
        let ordinals = match &self.ordinals[..] {
            [] => (0..availability()?.device_count).collect(),
            ordinals => ordinals.to_vec(),
        };
        Ok(ordinals.into_iter().map(Device::new).collect::<Result<_, _>>()?)
    }
}

/// Runs the suite.
///
/// # Errors
/// For an edge of 0 or a cube whose rows have more than 32 bits; for GPUs that are not there; where
/// rows cannot be written.
pub fn distributed(options: &Distributed, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let edges = options.edges();
    if let Some(edge) = edges.iter().find(|&&edge| !(1..=670).contains(&edge)) {
        return Err(BenchError::Option {
            option: "--edge",
            expected: "1 to 670, so that entries are counted in 31 bits".to_owned(),
            found: edge.to_string(),
        });
    }
    let target = Target::with_host(options.backend)?;
    let devices = if target.no_gpu.is_none() { options.devices()? } else { Vec::new() };
    let on_gpu = devices.first().map(|device| {
        Ok::<_, BenchError>(machine(device, timed(Ceilings, || measure_bandwidth(device))?))
    });
    let on_gpu = on_gpu.transpose()?;
    let on_cpu = target.host.then(|| {
        let found = timed(Ceilings, processor::measure_bandwidth);
        Machine {
            copy_gb_per_s: found.map_or(0.0, |found| found.copy_gb_per_s),
            read_gb_per_s: found.map(|found| found.read_gb_per_s),
            ..processor::machine()
        }
    });
    let first = on_gpu.clone().or(on_cpu.clone()).unwrap_or_default();
    let run = begin("distributed", first);
    let mut recorder = Recorder::new(run, options.output.as_deref(), report)?;
    if let Some(reason) = &target.no_gpu {
        recorder.gap(Gap::new("all", OURS, "all GPUs", reason))?;
    }
    for edge in edges {
        let mut cube = Cube::new(edge, options.iterations.unwrap_or(100), &mut recorder);
        if let Some(machine) = &on_gpu {
            cube.on_gpus(&devices, machine)?;
        }
        if let Some(machine) = &on_cpu {
            cube.on_cpu(machine)?;
        }
    }
    copies_at_end(&mut recorder, devices.first(), on_cpu.as_ref());
    recorder.finish()
}

/// Measures the bandwidth of copies again, so that rows show whether the machine was as it was.
fn copies_at_end(recorder: &mut Recorder<'_>, gpu: Option<&Device>, cpu: Option<&Machine>) {
    if let Some(gpu) = gpu
        && let Ok(found) = timed(Ceilings, || measure_bandwidth(gpu))
    {
        recorder.copy_at_end(Some(&gpu.info().name), found.copy_gb_per_s);
    }
    if let Some(cpu) = cpu
        && let Some(found) = timed(Ceilings, processor::measure_bandwidth)
    {
        recorder.copy_at_end(cpu.device.as_deref(), found.copy_gb_per_s);
    }
}

/// Numbers of ranks: powers of two, and all.
fn counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..).map(|k| 1 << k).take_while(|&count| count < all).collect();
    counts.push(all);
    counts
}

/// The Laplacian on a cube, and where its rows go.
struct Cube<'r, 'a> {
    case: String,
    edge: usize,
    iterations: u32,
    recorder: &'r mut Recorder<'a>,
}

/// The times of all ranks: of each round or solve that of the slowest.
struct Times {
    /// Milliseconds of a product in each round, and products of a round.
    product: Vec<f64>,
    products: usize,
    solves: Vec<Solves>,
    plan_ms: f64,
    /// The parts of rank 0, and the bytes that a product of all moves.
    parts: String,
    bytes_moved: u64,
    received: usize,
}

/// Solves that are alike.
struct Solves {
    kind: Kind,
    /// Milliseconds of the iterations of each.
    iterations_ms: Vec<f64>,
    /// Milliseconds of the fastest, entry and verdict included.
    wall_ms: f64,
    /// The report of the last.
    report: DistributedReport,
}

/// What is solved.
#[derive(Clone, Copy)]
struct Kind {
    method: Method,
    pipelined: bool,
    /// The number of iterations, instead of a tolerance.
    iterations: Option<u32>,
}

impl Kind {
    fn all(iterations: u32) -> [Self; 4] {
        let cg = Self { method: Method::Cg, pipelined: false, iterations: None };
        [
            Self { iterations: Some(iterations), ..cg },
            cg,
            Self { pipelined: true, ..cg },
            Self { method: Method::BiCgStab, ..cg },
        ]
    }

    /// The end of the name of a configuration.
    fn name(&self) -> String {
        let pipelined = if self.pipelined { "pipelined, " } else { "" };
        match self.iterations {
            Some(iterations) => format!("{pipelined}{iterations} iterations"),
            None => format!("{pipelined}to {TOLERANCE:e}"),
        }
    }

    fn options(&self, edge: usize) -> DistributedOptions {
        let solve = SolveOptions::new().method(self.method).preconditioner(Preconditioner::None);
        let solve = match self.iterations {
            Some(iterations) => solve.rel_tol(0.0).abs_tol(0.0).max_iters(iterations),
            None => solve.rel_tol(TOLERANCE).max_iters(20 * edge as u32 + 100),
        };
        DistributedOptions::new().solve(solve).pipelined(self.pipelined)
    }
}

/// Median times in milliseconds, by what was measured.
type Medians = Vec<(String, f64)>;

impl<'r, 'a> Cube<'r, 'a> {
    fn new(edge: usize, iterations: u32, recorder: &'r mut Recorder<'a>) -> Self {
        Self { case: format!("laplace7 {edge}"), edge, iterations, recorder }
    }

    fn on_gpus(&mut self, devices: &[Device], machine: &Machine) -> Result<(), BenchError> {
        let plain = self.plain(&devices[0], machine)?;
        let mut one = None;
        for count in counts(devices.len()) {
            let backend = |rank: usize| RankBackend::Gpu(Gpu::new(devices[rank].clone()));
            let name = if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") };
            let Some(found) = self.on_ranks(count, &backend, (&name, "gpu"), machine)? else {
                continue;
            };
            if let (1, Some(plain)) = (count, plain) {
                let line = format!(
                    "{}: the product on 1 GPU takes {:.3} of the time of a plan of the whole",
                    self.case,
                    found[0].1 / plain
                );
                self.recorder.note(&line)?;
            }
            self.compare(&name, count, found, &mut one)?;
        }
        Ok(())
    }

    fn on_cpu(&mut self, machine: &Machine) -> Result<(), BenchError> {
        let mut one = None;
        for count in [1, 2] {
            let backend = |_: usize| RankBackend::Cpu;
            let name = if count == 1 { "1 rank".to_owned() } else { format!("{count} ranks") };
            if let Some(found) = self.on_ranks(count, &backend, (&name, "cpu"), machine)? {
                // Ranks divide the threads of the processor, so that the same speed is expected.
                self.compare(&name, count, found, &mut one)?;
            }
        }
        Ok(())
    }

    /// Prints how many times as fast as one rank several are.
    fn compare(
        &mut self,
        name: &str,
        count: usize,
        found: Medians,
        one: &mut Option<Medians>,
    ) -> Result<(), BenchError> {
        if count == 1 {
            *one = Some(found);
            return Ok(());
        }
        let Some(one) = one else { return Ok(()) };
        let factors = one.iter().zip(&found);
        let factors: Vec<String> = factors
            .map(|((what, one), (_, found))| format!("{:.3} in {what}", one / found))
            .collect();
        self.recorder.note(&format!(
            "{}: {name}, times as fast as one: {}",
            self.case,
            factors.join("; ")
        ))
    }

    /// The product by a plan of the whole matrix on one GPU, in milliseconds.
    fn plain(&mut self, device: &Device, machine: &Machine) -> Result<Option<f64>, BenchError> {
        let rows = self.edge.pow(3);
        let matrix = laplacian_rows(self.edge, 0..rows)?;
        let measured = timed(Measuring, || plain_products(device, &matrix));
        let (timing, bytes, kernel, plan_ms) = match measured {
            Ok(measured) => measured,
            Err(error) => {
                let gap = Gap::new(&self.case, OURS, "plan of the whole", error.to_string());
                self.recorder.gap(gap)?;
                return Ok(None);
            }
        };
        let label = Label::ours(format!("plan of the whole, {kernel}"), false);
        let costs = Costs { bytes_moved: bytes, plan_ms: Some(plan_ms) };
        let row = self.product_row(machine, &label, (&timing, costs), "gpu");
        self.recorder.row(row)?;
        Ok(Some(timing.median_ms))
    }

    fn product_row(
        &self,
        machine: &Machine,
        label: &Label,
        (timing, costs): (&Timing, Costs),
        backend: &'static str,
    ) -> Row {
        let n = self.edge.pow(3);
        let problem = Problem {
            case: &self.case,
            experiment: None,
            batch: 1,
            nrows: n,
            ncols: n,
            nnz: entries(self.edge),
            oracle: &|_| None,
        };
        let measured = Measured { timing, copies: 1, costs, backend: Some(backend) };
        problem.row(self.recorder.run(), machine, label, &measured)
    }

    /// Measures some ranks; returns the median times, first that of the product.
    fn on_ranks(
        &mut self,
        count: usize,
        backend: &(dyn Fn(usize) -> RankBackend + Sync),
        (name, device): (&str, &'static str),
        machine: &Machine,
    ) -> Result<Option<Medians>, BenchError> {
        let (edge, iterations) = (self.edge, self.iterations);
        let ended = timed(Measuring, || {
            Ranks::on_threads(count, |ranks| {
                times_of(ranks, &backend(ranks.rank()), edge, iterations)
            })
        });
        let times = match ended.into_iter().next() {
            Some(Ok(times)) => times,
            Some(Err(error)) => {
                let is_fault = error.to_string().contains(WRONG);
                let gap = Gap::new(&self.case, OURS, name, error.to_string());
                self.recorder.gap(Gap { is_fault, ..gap })?;
                return Ok(None);
            }
            None => return Ok(None),
        };
        let line = format!(
            "{}: {name}: {}; {} elements of x received by a rank at the most",
            self.case, times.parts, times.received
        );
        self.recorder.note(&line)?;
        let timing = Timing::of(times.product.clone(), times.products);
        let costs = Costs { bytes_moved: times.bytes_moved, plan_ms: Some(times.plan_ms) };
        let label = Label::ours(name, true);
        let mut row = self.product_row(machine, &label, (&timing, costs), device);
        if device == "gpu" {
            // Of the bandwidth of all GPUs.
            row.share_of_copy = row.share_of_copy.map(|share| share / count as f64);
            row.share_moved = row.share_moved.map(|share| share / count as f64);
        }
        let mut medians = vec![("products".to_owned(), timing.median_ms)];
        let solves: Vec<Row> = times.solves.iter().map(|solves| solve_row(&row, solves)).collect();
        self.recorder.row(row)?;
        for (row, solves) in solves.into_iter().zip(&times.solves) {
            let name = format!("{}, {}", solves.kind.method, solves.kind.name());
            medians.push((name, row.median_ms));
            self.recorder.row(row)?;
        }
        Ok(Some(medians))
    }
}

/// The row of solves beside that of the product.
fn solve_row(product: &Row, solves: &Solves) -> Row {
    let Solves { kind, iterations_ms, wall_ms, report } = solves;
    let timing = Timing::of(iterations_ms.clone(), 1);
    let outcome = &report.outcome;
    let row = Row {
        configuration: format!("{}, {}", product.configuration, kind.name()),
        operation: kind.method.name().to_owned(),
        preconditioner: Some("none".to_owned()),
        median_ms: timing.median_ms,
        min_ms: timing.min_ms,
        max_ms: timing.max_ms,
        round_ms: sparsebatch_rows::short(&timing.round_ms),
        rounds: timing.round_ms.len() as u64,
        products: 1,
        share_of_copy: None,
        share_moved: None,
        bytes_moved: None,
        gflops: None,
        mean_iterations: Some(f64::from(outcome.iterations)),
        ..product.clone()
    };
    match kind.iterations {
        Some(_) => row,
        None => Row {
            max_relative_residual: Some(outcome.relative_residual()),
            converged: Some(u64::from(report.converged())),
            wall_ms: Some(*wall_ms),
            ..row
        },
    }
}

/// Products by a plan of the whole matrix, issued one after the other: times, bytes, kernel, and
/// milliseconds of the plan.
fn plain_products(
    device: &Device,
    matrix: &Csr<f64>,
) -> Result<(Timing, u64, String, f64), BenchError> {
    let start = Instant::now();
    let mut plan = SinglePlan::new(device, matrix.view(), &SingleOptions::default())?;
    let plan_ms = ms(start.elapsed());
    let n = matrix.nrows();
    let x: Vec<f64> = (0..n).map(element).collect();
    let x = device.upload(&x)?;
    let mut y = device.alloc::<f64>(n)?;
    let mut products = 1;
    let mut rounds = Vec::new();
    // The first round warms up and says how many products a round has.
    for round in 0..=ROUNDS + 1 {
        let start = Instant::now();
        for _ in 0..products {
            plan.apply(1.0, &x, 0.0, &mut y)?;
        }
        device.synchronize()?;
        let each = ms(start.elapsed()) / products as f64;
        match round {
            0 => {}
            1 => products = of_round(each),
            _ => rounds.push(each),
        }
    }
    let explain = plan.explain();
    let bytes = explain.bytes_moved(true) as u64;
    Ok((Timing::of(rounds, products), bytes, explain.kernel.to_string(), plan_ms))
}

fn of_round(product_ms: f64) -> usize {
    (ROUND_MS / product_ms.max(1e-6)).ceil().clamp(1.0, MOST_PRODUCTS as f64) as usize
}

/// The words of a wrong product.
const WRONG: &str = "differs from the stencil";

/// Measures on this rank.
fn times_of(
    ranks: &Ranks,
    backend: &RankBackend,
    edge: usize,
    iterations: u32,
) -> Result<Times, MpiError> {
    // The threads of this rank, of which this one is the first.
    let threads = ranks.threads();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build();
    let _pool = ranks.agree(pool.map_err(|error| Failure::internal(error.to_string())))?;
    let n = edge.pow(3);
    let rows = Partition::even(n, ranks.size());
    let range = rows.range(ranks.rank());
    let start = Instant::now();
    let own = ranks.run(|| {
        laplacian_rows(edge, range.clone()).map_err(|error| Failure::internal(error.to_string()))
    })?;
    let options = MatrixOptions::new();
    let mut matrix = DistributedMatrix::from_rows_on(ranks, backend, own, &rows, &rows, &options)?;
    let plan_ms = ms(start.elapsed());
    let x: Vec<f64> = range.clone().map(element).collect();
    let mut y = vec![f64::NAN; range.len()];
    ranks.agree(matrix.apply(1.0, &x, 0.0, &mut y))?;
    ranks.agree(check(edge, range, &y))?;
    let (product, products) = product_times(ranks, &mut matrix, &x, &mut y)?;
    let b = vec![1.0; y.len()];
    let mut solves = Vec::new();
    for kind in Kind::all(iterations) {
        // The processor takes longer, and needs no warming up.
        let solves_alike = match (matrix.is_on_gpu(), kind.iterations) {
            (true, Some(_)) => ROUNDS,
            (true, None) | (false, Some(_)) => 2,
            (false, None) => 1,
        };
        if matrix.is_on_gpu() {
            let options = Kind { iterations: Some(WARM_UP), ..kind }.options(edge);
            y.fill(0.0);
            matrix.solve(&b, &mut y, &options)?;
        }
        let options = kind.options(edge);
        let (iterations_ms, wall_ms, report) =
            solve_times(ranks, &mut matrix, (&b, &mut y), &options, solves_alike)?;
        solves.push(Solves { kind, iterations_ms, wall_ms, report });
    }
    let parts = matrix.parts();
    let bytes =
        parts.local.product_bytes + parts.remote.as_ref().map_or(0, |remote| remote.product_bytes);
    let all: Vec<[usize; 2]> = ranks.all_gather(&[bytes, parts.received])?;
    Ok(Times {
        product,
        products,
        solves,
        plan_ms: slowest(ranks, &[plan_ms])?[0],
        parts: parts.to_string(),
        bytes_moved: all.iter().map(|[bytes, _]| *bytes as u64).sum(),
        received: all.iter().map(|[_, received]| *received).max().unwrap_or(0),
    })
}

/// Milliseconds of a product in each round, and products of a round.
fn product_times(
    ranks: &Ranks,
    matrix: &mut DistributedMatrix<'_, f64>,
    x: &[f64],
    y: &mut [f64],
) -> Result<(Vec<f64>, usize), MpiError> {
    let on_gpu = matrix.is_on_gpu();
    if on_gpu {
        ranks.agree(matrix.load(x))?;
    }
    let mut products = 1;
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS + 1 {
        ranks.barrier();
        let start = Instant::now();
        let mut ended = Ok(());
        for _ in 0..products {
            let multiplied = match on_gpu {
                true => matrix.multiply_loaded(),
                false => matrix.apply(1.0, x, 0.0, y),
            };
            ended = ended.and(multiplied);
        }
        if on_gpu {
            ended = ended.and(matrix.wait());
        }
        let own = ms(start.elapsed()) / products as f64;
        ranks.agree(ended)?;
        let each = slowest(ranks, &[own])?[0];
        match round {
            0 => {}
            1 => products = of_round(each),
            _ => rounds.push(each),
        }
    }
    Ok((rounds, products))
}

/// Milliseconds of the iterations of each solve, of the fastest whole solve, and the last report.
fn solve_times(
    ranks: &Ranks,
    matrix: &mut DistributedMatrix<'_, f64>,
    (b, x): (&[f64], &mut [f64]),
    options: &DistributedOptions,
    solves: usize,
) -> Result<(Vec<f64>, f64, DistributedReport), MpiError> {
    let (mut iterations, mut walls) = (Vec::new(), Vec::new());
    let mut last;
    loop {
        x.fill(0.0);
        ranks.barrier();
        last = matrix.solve(b, x, options)?;
        iterations.push(ms(last.iteration_time));
        walls.push(ms(last.solve_time));
        if iterations.len() == solves {
            break;
        }
    }
    let iterations = slowest(ranks, &iterations)?;
    let walls = slowest(ranks, &walls)?;
    let wall = walls.into_iter().fold(f64::INFINITY, f64::min);
    Ok((iterations, wall, last))
}

/// Of each time that of the slowest rank.
fn slowest(ranks: &Ranks, own: &[f64]) -> Result<Vec<f64>, MpiError> {
    let all: Vec<Vec<f64>> = ranks.all_gather(&own.to_vec())?;
    let of = |k: usize| all.iter().map(|times| times[k]).fold(0.0, f64::max);
    Ok((0..own.len()).map(of).collect())
}

fn ms(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// Element i of the x of products: small whole numbers, so that sums are exact in any order.
fn element(i: usize) -> f64 {
    (i % 17) as f64 - 8.0
}

/// The entries of the whole matrix.
fn entries(edge: usize) -> usize {
    7 * edge.pow(3) - 6 * edge.pow(2)
}

/// The columns and values of a row, by ascending columns.
fn row_of(edge: usize, row: usize) -> impl Iterator<Item = (usize, f64)> {
    let (plane, place) = (edge * edge, [row % edge, row / edge % edge, row / (edge * edge)]);
    let strides = [1, edge, plane];
    let before = [2, 1, 0].into_iter().filter(move |&axis| place[axis] > 0);
    let before = before.map(move |axis| (row - strides[axis], -1.0));
    let behind = [0, 1, 2].into_iter().filter(move |&axis| place[axis] + 1 < edge);
    let behind = behind.map(move |axis| (row + strides[axis], -1.0));
    before.chain([(row, 6.0)]).chain(behind)
}

/// Some rows of the Laplacian on a cube, with all columns.
fn laplacian_rows(
    edge: usize,
    rows: Range<usize>,
) -> Result<Csr<f64>, sparsebatch_formats::FormatError> {
    let n = edge.pow(3);
    let mut row_ptr = vec![0; rows.len() + 1];
    let lengths = row_ptr[1..].par_iter_mut().zip(rows.clone());
    lengths.for_each(|(length, row)| *length = row_of(edge, row).count() as i32);
    for row in 0..rows.len() {
        row_ptr[row + 1] += row_ptr[row];
    }
    let nnz = row_ptr[rows.len()] as usize;
    let (mut col_idx, mut values) = (vec![0; nnz], vec![0.0; nnz]);
    let mut parts = Vec::new();
    let (mut cols, mut entries) = (&mut col_idx[..], &mut values[..]);
    for first in (0..rows.len()).step_by(PART) {
        let part = first..(first + PART).min(rows.len());
        let len = (row_ptr[part.end] - row_ptr[part.start]) as usize;
        let (own_cols, own_entries);
        (own_cols, cols) = cols.split_at_mut(len);
        (own_entries, entries) = entries.split_at_mut(len);
        parts.push((rows.start + part.start..rows.start + part.end, own_cols, own_entries));
    }
    parts.into_par_iter().for_each(|(rows, cols, values)| {
        let entries = rows.flat_map(|row| row_of(edge, row));
        for ((to_col, to_value), (col, value)) in cols.iter_mut().zip(values).zip(entries) {
            (*to_col, *to_value) = (col as i32, value);
        }
    });
    Csr::try_new(rows.len(), n, row_ptr, col_idx, values)
}

/// Compares products of [`element`] with the stencil: both are exact.
fn check(edge: usize, rows: Range<usize>, y: &[f64]) -> Result<(), Failure> {
    let expected = |row| row_of(edge, row).map(|(col, value)| value * element(col)).sum::<f64>();
    let wrong = rows.into_par_iter().zip(y).find_first(|&(row, &found)| expected(row) != found);
    match wrong {
        None => Ok(()),
        Some((row, found)) => {
            let expected = expected(row);
            Err(Failure::internal(format!("row {row} is {found}, which {WRONG}: {expected}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::generate::{Stencil, laplace};

    use super::*;

    #[test]
    fn rows_of_ranks_are_those_of_the_laplacian() {
        let whole = laplace(Stencil::Point7, &[5, 5, 5]).unwrap();

        assert_eq!(laplacian_rows(5, 0..125).unwrap(), whole);
        assert_eq!(whole.nnz(), entries(5));
        let some = laplacian_rows(5, 40..77).unwrap();
        assert!((0..37).all(|row| some.row(row) == whole.row(40 + row)));
        assert_eq!(laplacian_rows(1, 0..1).unwrap().values(), [6.0]);
    }

    #[test]
    fn a_wrong_product_is_a_fault() {
        let mut y: Vec<f64> =
            (0..27).map(|row| row_of(3, row).map(|(col, a)| a * element(col)).sum()).collect();

        assert_eq!(check(3, 0..27, &y), Ok(()));
        y[13] += 1.0;
        assert!(check(3, 0..27, &y).unwrap_err().message.contains(WRONG));
    }

    #[test]
    fn numbers_of_ranks_double_up_to_all() {
        assert_eq!(
            [1, 2, 3, 8].map(counts),
            [vec![1], vec![1, 2], vec![1, 2, 3], vec![1, 2, 4, 8]]
        );
    }

    /// The whole suite on two ranks of the processor.
    #[test]
    fn the_processor_is_measured() {
        let options = Distributed {
            edges: vec![8],
            iterations: Some(5),
            backend: Some(Backend::Cpu),
            ..Distributed::default()
        };
        let mut report = Vec::new();

        let outcome = distributed(&options, &mut report).unwrap();

        let rows: Vec<(&str, &str)> = outcome
            .rows
            .iter()
            .map(|row| (row.configuration.as_str(), row.operation.as_str()))
            .collect();
        let expected = [
            ("1 rank", "spmv"),
            ("1 rank, 5 iterations", "cg"),
            ("1 rank, to 1e-8", "cg"),
            ("1 rank, pipelined, to 1e-8", "cg"),
            ("1 rank, to 1e-8", "bicgstab"),
            ("2 ranks", "spmv"),
            ("2 ranks, 5 iterations", "cg"),
            ("2 ranks, to 1e-8", "cg"),
            ("2 ranks, pipelined, to 1e-8", "cg"),
            ("2 ranks, to 1e-8", "bicgstab"),
        ];
        assert_eq!(rows, expected);
        let solved = |row: &&Row| row.configuration.ends_with("1e-8");
        assert!(outcome.rows.iter().filter(solved).all(|row| row.converged == Some(1)));
        let text = String::from_utf8(report).unwrap();
        assert!(text.contains("2 ranks, times as fast as one: "), "{text}");
        assert_eq!(outcome.faults().count(), 0);
    }

    #[test]
    fn cubes_without_points_are_refused() {
        for edge in [0, 671] {
            let options = Distributed { edges: vec![edge], ..Distributed::default() };
            let error = distributed(&options, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--edge is {edge}, expected 1 to 670")), "{error}");
        }
    }
}
