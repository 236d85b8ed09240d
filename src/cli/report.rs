//! The printed report of `solve`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use sparsebatch::{BatchReport, GpuRun, Order, RungRun, SchemeRun, Status, SystemReport};
use sparsebatch_mpi::Gathered;

use super::Global;
use super::distributed::AllParts;
use super::error::CliError;
use super::input::Listing;
use super::output::{self, SCHEMA, Skipped, Table, ms};

/// Most unconverged systems named in the summary.
const NAMED: usize = 10;

/// The data of the report besides the solver's own report.
pub(crate) struct Context<'a> {
    /// The systems solved.
    pub(crate) systems: Listing<'a>,
    /// The inputs in words.
    pub(crate) input: String,
    /// The source of the right-hand sides.
    pub(crate) rhs_source: String,
    /// The reason for the backend; the solver's report has the reason for work that it left to the
    /// CPU.
    pub(crate) backend_reason: &'a str,
    /// Number of threads.
    pub(crate) threads: usize,
    /// `f64` or `f32`.
    pub(crate) precision: &'static str,
    /// The requested elimination order.
    pub(crate) order: &'static str,
    /// The requested precision of the factors.
    pub(crate) precond_precision: &'static str,
    /// The requested precision of the iterations on a GPU.
    pub(crate) inner_precision: &'static str,
    /// The requested form of the sparse LU on a GPU.
    pub(crate) lu_form: &'static str,
    /// Whether the ladder was allowed.
    pub(crate) fallback: bool,
    /// What the ranks of MPI did; `None` in a process alone.
    pub(crate) ranks: Option<Gathered>,
    /// The parts of one matrix that ranks have; `None` where each has systems of its own.
    pub(crate) parts: Option<AllParts>,
    /// Total time.
    pub(crate) total_time: Duration,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    command: &'static str,
    version: &'static str,
    input: &'a str,
    systems: usize,
    rows: usize,
    nnz: usize,
    converged: usize,
    status: BTreeMap<&'static str, usize>,
    max_relative_residual: Option<f64>,
    max_relative_residual_all: Option<f64>,
    accepted_by_floor: usize,
    iterations: Iterations,
    rungs: BTreeMap<&'static str, usize>,
    backend: &'static str,
    backend_reason: &'a str,
    device: &'a str,
    threads: usize,
    precision: &'static str,
    solver: &'static str,
    preconditioner: &'static str,
    order: &'static str,
    precond_precision: &'static str,
    inner_precision: &'static str,
    lu_form: &'static str,
    reason: &'a str,
    methods: Vec<Method<'a>>,
    singular: usize,
    fallback: bool,
    format: &'static str,
    kernel: &'a str,
    runs: Vec<Run<'a>>,
    rhs: &'a str,
    times_ms: Times,
    product_cost: Option<Products>,
    unconverged: Vec<Item<'a>>,
    items: Option<Vec<Item<'a>>>,
    skipped: &'a [Skipped],
    ranks: Option<Ranks>,
    distributed: Option<&'a AllParts>,
}

#[derive(Serialize)]
struct Method<'a> {
    solver: &'static str,
    preconditioner: &'static str,
    systems: usize,
    reason: &'a str,
    kernel: &'a str,
}

impl<'a> Method<'a> {
    fn of(run: &'a SchemeRun) -> Self {
        let SchemeRun { scheme, systems, reason, kernel, .. } = run;
        let (solver, preconditioner) = (scheme.name(), scheme.preconditioner().name());
        Self { solver, preconditioner, systems: *systems, reason, kernel }
    }
}

#[derive(Serialize)]
struct Run<'a> {
    rung: &'static str,
    systems: usize,
    backend: &'static str,
    kernel: &'a str,
    chunks: usize,
    device_bytes: u64,
    cpu_reason: Option<&'a str>,
    composed_reason: Option<&'a str>,
    gpus: Vec<Gpu<'a>>,
}

#[derive(Serialize)]
struct Gpu<'a> {
    device: &'a str,
    systems: usize,
    lost: Option<&'a str>,
}

impl<'a> Gpu<'a> {
    fn of(run: &'a GpuRun) -> Self {
        Self { device: &run.device, systems: run.systems, lost: run.lost.as_deref() }
    }
}

impl<'a> Run<'a> {
    fn of(run: &'a RungRun) -> Self {
        Self {
            rung: run.rung.name(),
            systems: run.systems,
            backend: run.backend.name(),
            kernel: &run.kernel,
            chunks: run.chunks,
            device_bytes: run.device_bytes,
            cpu_reason: run.cpu_reason.as_deref(),
            composed_reason: run.composed_reason.as_deref(),
            gpus: run.gpus.iter().map(Gpu::of).collect(),
        }
    }
}

#[derive(Serialize)]
struct Iterations {
    min: u32,
    mean: f64,
    max: u32,
}

/// What the ranks of MPI did.
#[derive(Serialize)]
struct Ranks {
    ranks: usize,
    hosts: usize,
    systems: Spread<usize>,
    solve_ms: Spread<f64>,
    gather_ms: f64,
}

/// The least and the most of any rank.
#[derive(Serialize)]
struct Spread<T> {
    min: T,
    max: T,
}

impl Ranks {
    fn of(gathered: &Gathered) -> Self {
        let hosts: BTreeSet<&str> = gathered.ranks.iter().map(|rank| &*rank.host).collect();
        let systems = || gathered.ranks.iter().map(|rank| rank.systems);
        let solves = || gathered.ranks.iter().map(|rank| rank.solve);
        Self {
            ranks: gathered.ranks.len(),
            hosts: hosts.len(),
            systems: Spread {
                min: systems().min().unwrap_or(0),
                max: systems().max().unwrap_or(0),
            },
            solve_ms: Spread {
                min: ms(solves().min().unwrap_or_default()),
                max: ms(solves().max().unwrap_or_default()),
            },
            gather_ms: ms(gathered.time),
        }
    }

    /// In words.
    fn text(&self) -> String {
        let Self { ranks, hosts, systems, solve_ms, gather_ms } = self;
        format!(
            "{ranks} on {}, {} to {} systems each, solve {:.1} to {:.1} ms, report gathered in \
             {gather_ms:.2} ms",
            output::counted(*hosts, "host"),
            systems.min,
            systems.max,
            solve_ms.min,
            solve_ms.max
        )
    }
}

#[derive(Serialize)]
struct Times {
    read: f64,
    plan: f64,
    solve: f64,
    total: f64,
}

#[derive(Serialize)]
struct Products {
    products: u64,
    product_ms: f64,
    plan_ms: f64,
    break_even_products: u64,
    share_of_solve: f64,
}

#[derive(Serialize)]
struct Item<'a> {
    item: usize,
    name: &'a str,
    status: &'static str,
    iterations: u32,
    restarts: u32,
    relative_residual: f64,
    residual_norm: f64,
    rhs_norm: f64,
    rung: &'static str,
    accepted_by_floor: bool,
    singular: bool,
    over_budget: bool,
    advice: Option<&'static str>,
}

/// Prints the report of a solve.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn print(
    global: Global,
    context: &Context<'_>,
    report: &BatchReport,
) -> Result<(), CliError> {
    let json = json(global, context, report);
    output::result(global, &json, || text(global, context, report))
}

fn json<'a>(global: Global, context: &'a Context<'_>, report: &'a BatchReport) -> Report<'a> {
    let (min, mean, max) = report.iterations();
    let names = context.systems.names;
    let items = || {
        let describe = |(item, system)| describe(item, &names[item], system, context.fallback);
        report.systems.iter().enumerate().map(describe)
    };
    Report {
        schema: SCHEMA,
        command: "solve",
        version: env!("CARGO_PKG_VERSION"),
        input: &context.input,
        systems: report.systems.len(),
        rows: context.systems.nrows,
        nnz: context.systems.nnz,
        converged: report.converged(),
        status: report.status_counts().into_iter().map(|(s, n)| (s.name(), n)).collect(),
        max_relative_residual: report.max_relative_residual(),
        max_relative_residual_all: report.max_relative_residual_all(),
        accepted_by_floor: report.accepted_by_floor(),
        iterations: Iterations { min, mean, max },
        rungs: report.rung_counts().into_iter().map(|(r, n)| (r.name(), n)).collect(),
        backend: report.backend.name(),
        backend_reason: backend_reason(context, report),
        device: &report.device,
        threads: context.threads,
        precision: context.precision,
        solver: report.scheme.name(),
        preconditioner: report.scheme.preconditioner().name(),
        order: match report.scheme.preconditioner().order() {
            Order::Natural => context.order,
            taken => taken.name(),
        },
        precond_precision: context.precond_precision,
        inner_precision: context.inner_precision,
        lu_form: context.lu_form,
        reason: &report.reason,
        methods: report.schemes.iter().map(Method::of).collect(),
        singular: report.singular(),
        fallback: context.fallback,
        format: report.format,
        kernel: &report.kernel,
        runs: report.runs.iter().map(Run::of).collect(),
        rhs: &context.rhs_source,
        times_ms: times(context, report),
        product_cost: report.product_cost.as_ref().map(|cost| Products {
            products: cost.products,
            product_ms: ms(cost.product_time),
            plan_ms: ms(cost.plan_time),
            break_even_products: cost.break_even_products,
            share_of_solve: cost.share_of_solve,
        }),
        unconverged: items()
            .filter(|item| item.status != Status::Converged.name())
            .take(NAMED)
            .collect(),
        items: global.verbose.then(|| items().collect()),
        skipped: context.systems.skipped,
        ranks: context.ranks.as_ref().map(Ranks::of),
        distributed: context.parts.as_ref(),
    }
}

fn describe<'a>(item: usize, name: &'a str, system: &SystemReport, fallback: bool) -> Item<'a> {
    let outcome = &system.outcome;
    Item {
        item,
        name,
        status: outcome.status.name(),
        iterations: outcome.iterations,
        restarts: outcome.restarts,
        relative_residual: outcome.relative_residual(),
        residual_norm: outcome.residual_norm,
        rhs_norm: outcome.rhs_norm,
        rung: system.rung.name(),
        accepted_by_floor: outcome.accepted_by_floor,
        singular: system.singular,
        over_budget: system.over_budget,
        advice: system.advice(fallback),
    }
}

fn times(context: &Context<'_>, report: &BatchReport) -> Times {
    Times {
        read: ms(context.systems.read_time),
        plan: ms(report.plan_time),
        solve: ms(report.solve_time),
        total: ms(context.total_time),
    }
}

/// Names and values that describe a solve.
fn lines<'a>(context: &Context<'_>, report: &BatchReport) -> Vec<(&'a str, String)> {
    let systems = report.systems.len();
    let (min, mean, max) = report.iterations();
    let times = times(context, report);
    let mut lines = vec![
        ("input", format!("{}: {}", context.input, context.systems.described)),
        ("right-hand sides", context.rhs_source.clone()),
        ("solver", solver(context, report)),
        ("products", format!("{}, {}", report.format, report.kernel)),
        ("device", device(context, report)),
    ];
    if !report.gpus().is_empty() {
        lines.push(("GPUs", report.gpus().iter().map(of_gpu).collect::<Vec<_>>().join("; ")));
    }
    if let Some(ranks) = &context.ranks {
        match &context.parts {
            None => lines.push(("ranks", Ranks::of(ranks).text())),
            Some(parts) => lines.push(("ranks", parts.text())),
        }
    }
    if let Some(reason) = report.runs.first().and_then(|run| run.composed_reason.as_ref()) {
        lines.push(("not fused", reason.clone()));
    }
    lines.extend(report.runs.iter().skip(1).map(|run| ("retried by", later(run))));
    lines.extend([
        ("converged", format!("{} of {systems}", report.converged())),
        ("iterations", format!("min {min}, mean {mean:.1}, max {max}")),
        ("max ||b - A x|| / ||b||", residuals(report)),
        (
            "times",
            format!(
                "read {:.1} ms, plan {:.1} ms, solve {:.1} ms, total {:.1} ms",
                times.read, times.plan, times.solve, times.total
            ),
        ),
    ]);
    let of_many = |s: &&SystemReport| s.singular && s.outcome.status == Status::Converged;
    let of_many = report.systems.iter().filter(of_many).count();
    if of_many > 0 {
        let one = "converged systems have a singular matrix: their solution is one of many";
        lines.push(("not unique", format!("{of_many} {one}")));
    }
    if report.accepted_by_floor() > 0 {
        lines.push((
            "by rounding floor",
            format!("{} of the converged systems", report.accepted_by_floor()),
        ));
    }
    if let Some(cost) = &report.product_cost {
        lines.push(("cost of products", format!(
            "{} products, {:.0} % of the solve; plan {:.2} ms, below 1 % of the product time after \
             {} products",
            cost.products, 100.0 * cost.share_of_solve, ms(cost.plan_time), cost.break_even_products
        )));
    }
    lines
}

/// The methods that ran first, with their numbers of systems if there are several.
fn solver(context: &Context<'_>, report: &BatchReport) -> String {
    let several = report.schemes.len() > 1;
    let described = report.schemes.iter().map(|run| {
        let SchemeRun { scheme, systems, reason, .. } = run;
        let (solver, preconditioner) = (scheme.name(), scheme.preconditioner());
        let count = match several {
            true => format!("{}: ", output::counted(*systems, "system")),
            false => String::new(),
        };
        let precision = context.precision;
        format!("{count}{solver} in {precision}, preconditioner {preconditioner} ({reason})")
    });
    described.collect::<Vec<_>>().join("; ")
}

/// The names and values of the report, for a page.
pub(crate) fn facts(context: &Context<'_>, report: &BatchReport) -> Vec<(String, String)> {
    lines(context, report).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The parts of the time, in milliseconds.
pub(crate) fn times_by_name(context: &Context<'_>, report: &BatchReport) -> Vec<(String, f64)> {
    let Times { read, plan, solve, total } = times(context, report);
    let times = [("read", read), ("plan", plan), ("solve", solve), ("total", total)];
    times.map(|(name, time)| (name.to_owned(), time)).to_vec()
}

fn text(global: Global, context: &Context<'_>, report: &BatchReport) -> String {
    let mut text = output::pairs(&lines(context, report));
    text.push('\n');
    text.push_str(&groups(report).render(false));
    text.push_str(&unconverged(context, report));
    if global.verbose {
        text.push('\n');
        text.push_str(&per_system(context, report).render(true));
    }
    text
}

/// The reason why the solve ran on its backend.
fn backend_reason<'a>(context: &Context<'a>, report: &'a BatchReport) -> &'a str {
    report.cpu_reason().unwrap_or(context.backend_reason)
}

fn device(context: &Context<'_>, report: &BatchReport) -> String {
    let memory = match report.runs.first() {
        Some(RungRun { chunks, device_bytes, .. }) if *device_bytes > 0 => {
            let bytes = output::bytes(usize::try_from(*device_bytes).unwrap_or(usize::MAX));
            let chunks = if *chunks > 1 { format!(", {chunks} chunks") } else { String::new() };
            format!(", {bytes}{chunks}")
        }
        _ => String::new(),
    };
    let reason = backend_reason(context, report);
    format!("{}, {}{memory} ({reason})", report.backend, report.device)
}

/// What one of several GPUs did.
fn of_gpu(gpu: &GpuRun) -> String {
    let lost = gpu.lost.as_ref().map_or(String::new(), |why| format!(", then lost: {why}"));
    format!("{}, {}{lost}", gpu.device, output::counted(gpu.systems, "system"))
}

/// Describes the run of a rung after the first.
fn later(run: &RungRun) -> String {
    let RungRun { rung, systems, backend, kernel, .. } = run;
    let why = run.cpu_reason.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    format!("{rung}: {}, {backend}, {kernel}{why}", output::counted(*systems, "system"))
}

fn residuals(report: &BatchReport) -> String {
    let one = |value: Option<f64>| value.map_or("none".to_owned(), |v| format!("{v:.2e}"));
    let converged = one(report.max_relative_residual());
    if report.all_converged() {
        converged
    } else {
        let all = one(report.max_relative_residual_all());
        format!("{converged} among the converged, {all} among all finite ones")
    }
}

/// A table with one row per status and rung.
fn groups(report: &BatchReport) -> Table {
    let mut table = Table::new(&["status", "solved by", "systems", "iterations", "max residual"]);
    for (status, _) in report.status_counts() {
        for (rung, _) in report.rung_counts() {
            let group =
                || report.systems.iter().filter(|s| s.outcome.status == status && s.rung == rung);
            let count = group().count();
            if count == 0 {
                continue;
            }
            let iterations: u64 = group().map(|s| u64::from(s.outcome.iterations)).sum();
            let residual = group()
                .map(|s| s.outcome.relative_residual())
                .filter(|r| r.is_finite())
                .reduce(f64::max);
            table.row(vec![
                status.name().to_owned(),
                rung.name().to_owned(),
                count.to_string(),
                format!("{:.1}", iterations as f64 / count as f64),
                residual.map_or("-".to_owned(), |r| format!("{r:.2e}")),
            ]);
        }
    }
    table
}

/// The systems that did not converge: the first ones by name, and the number of further ones.
fn unconverged(context: &Context<'_>, report: &BatchReport) -> String {
    let failed =
        || report.systems.iter().enumerate().filter(|(_, s)| s.outcome.status != Status::Converged);
    let count = failed().count();
    if count == 0 {
        return String::new();
    }
    let named: Vec<String> = failed()
        .take(NAMED)
        .map(|(item, system)| {
            let name = output::one_line(&context.systems.names[item]);
            let outcome = &system.outcome;
            format!("{name} ({}, {:.1e})", outcome.status, outcome.relative_residual())
        })
        .collect();
    let more = match count.saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let mut advice: Vec<&str> =
        failed().filter_map(|(_, system)| system.advice(context.fallback)).collect();
    advice.sort_unstable();
    advice.dedup();
    let named = named.join(", ");
    format!("\nnot converged ({count}): {named}{more}\nwhat may help: {}\n", advice.join("; "))
}

fn per_system(context: &Context<'_>, report: &BatchReport) -> Table {
    let mut table = Table::new(&[
        "system",
        "rows",
        "entries",
        "status",
        "iterations",
        "restarts",
        "residual",
        "solved by",
    ]);
    for (item, system) in report.systems.iter().enumerate() {
        let (rows, entries) = context.systems.size(item);
        let outcome = &system.outcome;
        table.row(vec![
            context.systems.names[item].clone(),
            rows.to_string(),
            entries.to_string(),
            outcome.status.to_string(),
            outcome.iterations.to_string(),
            outcome.restarts.to_string(),
            format!("{:.2e}", outcome.relative_residual()),
            system.rung.to_string(),
        ]);
    }
    table
}
