//! Batched products on the GPU beside cuSPARSE: `y = A x + y` over batches of the small real
//! matrices, every answer checked against exact arithmetic before it is timed.
//!
//! usage: batched MATRIX_FOLDER [--case NAME] [--items N] [--json FILE] [--sweep] [--no-peer]
//!
//! Share: useful bytes (10 per entry, 2 per row, 8 per element of x, 16 per element of y) over time
//! and over the bandwidth of a copy, measured at the start.

mod cusparse;

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use sparsebatch_formats::generate::{hetero, spmv_operands};
use sparsebatch_formats::testing::spmv_error;
use sparsebatch_formats::{Batch, Csr, RaggedCsr, io};
use sparsebatch_spmv_gpu::device::{Device, Event, measure_bandwidth};
use sparsebatch_spmv_gpu::{
    DeviceBuffer, Executor, GpuError, PackedKernel, PackedOptions, PackedPlan,
};

const ROUNDS: usize = 21;

struct Arguments {
    folder: PathBuf,
    case: Option<String>,
    items: usize,
    json: Option<PathBuf>,
    sweep: bool,
    peer: bool,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut given = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let folder = given.next().ok_or("usage: batched MATRIX_FOLDER [options]")?.into();
    let mut parsed =
        Arguments { folder, case: None, items: 10_000, json: None, sweep: false, peer: true };
    while let Some(option) = given.next() {
        let mut value = || given.next().ok_or(format!("{option} needs a value"));
        match option.as_str() {
            "--case" => parsed.case = Some(value()?),
            "--items" => parsed.items = value()?.parse()?,
            "--json" => parsed.json = Some(value()?.into()),
            "--sweep" => parsed.sweep = true,
            "--no-peer" => parsed.peer = false,
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    Ok(parsed)
}

type Failure = Box<dyn Error>;

fn matrices(folder: &Path) -> Result<Vec<(String, Csr<f64>)>, Failure> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|e| e == "mtx"));
    files.sort();
    let load = |file: &PathBuf| -> Result<_, Failure> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, io::read_matrix_market(file)?))
    };
    files.iter().map(load).collect()
}

/// Median milliseconds of one call.
fn timed(
    device: &Device,
    mut call: impl FnMut() -> Result<(), GpuError>,
) -> Result<[f64; 3], GpuError> {
    for _ in 0..3 {
        call()?;
    }
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let (start, end) = (Event::new(device)?, Event::new(device)?);
        start.record(device)?;
        call()?;
        end.record(device)?;
        end.wait()?;
        times.push(f64::from(start.elapsed_ms(&end)?));
    }
    times.sort_by(f64::total_cmp);
    Ok([times[ROUNDS / 2], times[0], times[ROUNDS - 1]])
}

struct Case<'a> {
    name: &'a str,
    batch: &'a RaggedCsr<f64>,
    useful_bytes: f64,
    nnz: f64,
    copy: f64,
    json: Option<&'a Path>,
    machine: String,
}

impl Case<'_> {
    fn report(
        &self,
        library: &str,
        configuration: &str,
        times: [f64; 3],
    ) -> Result<(), Box<dyn Error>> {
        let [median, min, max] = times;
        let share = self.useful_bytes / median / 1e6 / self.copy;
        let gflops = 2.0 * self.nnz / median / 1e6;
        println!(
            "{:<16} {library:<12} {configuration:<52} {median:>9.4} ms  {gflops:>7.1} GFLOP/s  share {share:.3}",
            self.name
        );
        if let Some(path) = self.json {
            let row = format!(
                "{{\"schema\":1,\"suite\":\"flexible-batch\",\"case\":\"{}\",\"library\":\"{library}\",\
                 \"configuration\":\"{configuration}\",\"operation\":\"spmv\",\"precision\":\"f64\",\
                 \"batch\":{},\"nnz\":{},\"rows\":{},\"median_ms\":{median},\"min_ms\":{min},\
                 \"max_ms\":{max},\"rounds\":{ROUNDS},\"gflops\":{gflops},\"bytes_moved\":{},\
                 \"share_of_copy\":{share},\"machine\":{},\"date\":\"{}\",\"commit\":\"{}\"}}",
                self.name,
                self.batch.nitems(),
                self.nnz,
                self.batch.row_offsets()[self.batch.nitems()],
                self.useful_bytes,
                self.machine,
                std::env::var("BENCH_DATE").unwrap_or_default(),
                std::env::var("BENCH_COMMIT").unwrap_or_default(),
            );
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            writeln!(file, "{row}")?;
        }
        Ok(())
    }
}

/// The largest error over its bound, of up to 200 systems spread over the batch.
fn check(batch: &RaggedCsr<f64>, x: &[f64], y: &[f64]) {
    let step = (batch.nitems() / 200).max(1);
    for item in (0..batch.nitems()).step_by(step) {
        let a = batch.item(item);
        let x = &x[batch.col_offsets()[item]..batch.col_offsets()[item + 1]];
        let y = &y[batch.row_offsets()[item]..batch.row_offsets()[item + 1]];
        // y was 0.
        if let Some((row, error)) = spmv_error(a, x, y) {
            panic!("item {item}, row {row}: {error}");
        }
    }
}

fn measure(device: &Device, case: &Case<'_>, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (x, y) = spmv_operands(case.batch);
    let x_device = device.upload(&x)?;
    let mut y_device: DeviceBuffer<f64> = device.upload(&y)?;
    let batch = Batch::Ragged(case.batch.clone());
    let default = PackedOptions::default();
    let sweep: Vec<PackedOptions> = if arguments.sweep {
        let kernel = |kernel| PackedOptions { kernel: Some(kernel), ..default };
        let stream = |steps, stages, warps| kernel(PackedKernel::Stream { steps, stages, warps });
        let mut sweep = vec![default];
        for warps in [2, 4] {
            let sizes = [(4, 3), (4, 4), (8, 2), (8, 3), (8, 4)];
            sweep.extend(sizes.map(|(steps, stages)| stream(steps, stages, warps)));
        }
        sweep.extend([1, 2, 6].map(|share| PackedOptions { share, ..default }));
        let entries = [Some(0), Some(512), Some(1024), Some(2048)];
        sweep.extend(entries.map(|group_entries| PackedOptions { group_entries, ..default }));

        sweep
    } else {
        vec![default]
    };
    for options in sweep {
        let plan = PackedPlan::new(device.clone(), &batch, options)?;
        device.fill_zero(&mut y_device)?;
        plan.apply(1.0, &x_device, 0.0, &mut y_device)?;
        check(case.batch, &x, &device.download(&y_device)?);
        let explain = plan.explain();
        let padding = explain.slots as f64 / explain.nnz as f64 - 1.0;
        let kernel = options.kernel.map_or("default".to_owned(), |kernel| format!("{kernel:?}"));
        let entries = options.group_entries.map_or(String::new(), |n| format!(" group {n}"));
        let configuration =
            format!("packed {kernel} share {}{entries} pad {:.1}%", options.share, 100.0 * padding);
        let times = timed(device, || plan.apply(1.0, &x_device, 1.0, &mut y_device))?;
        case.report("sparsebatch", &configuration, times)?;
    }
    if arguments.peer && cusparse::is_present() {
        for (name, algorithm) in cusparse::ALGORITHMS {
            let peer =
                cusparse::BlockDiagonal::new(device, case.batch, algorithm, &x_device, &y_device)?;
            let times = timed(device, || {
                peer.apply();
                Ok(())
            })?;
            case.report("cuSPARSE", name, times)?;
        }
    } else if arguments.peer {
        println!("{:<16} cuSPARSE: not found", case.name);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let device = Device::new(0)?;
    let bandwidth = measure_bandwidth(&device)?;
    let info = device.info();
    println!(
        "{}: copy {:.0} GB/s, read {:.0} GB/s",
        info.name, bandwidth.copy_gb_per_s, bandwidth.read_gb_per_s
    );
    let machine = format!(
        "{{\"gpu\":\"{}\",\"driver\":\"{}\",\"copy_gb_per_s\":{},\"read_gb_per_s\":{}}}",
        info.name, info.driver_version, bandwidth.copy_gb_per_s, bandwidth.read_gb_per_s
    );
    let matrices = matrices(&arguments.folder)?;
    let all: Vec<Csr<f64>> = matrices.iter().map(|(_, matrix)| matrix.clone()).collect();
    let large: Vec<Csr<f64>> = all.iter().filter(|m| m.nrows() >= 800).cloned().collect();
    let mut cases: Vec<(String, Vec<Csr<f64>>)> =
        vec![("hetero_all".to_owned(), all), ("hetero_800_1024".to_owned(), large)];
    cases.extend(matrices.into_iter().map(|(name, matrix)| (name, vec![matrix])));
    for (name, members) in cases {
        if arguments.case.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let batch = hetero(&members, arguments.items)?;
        let items = batch.nitems();
        let (rows, cols) = (batch.row_offsets()[items] as f64, batch.col_offsets()[items] as f64);
        let nnz = batch.total_nnz() as f64;
        let case = Case {
            name: &name,
            batch: &batch,
            useful_bytes: 10.0 * nnz + 18.0 * rows + 8.0 * cols,
            nnz,
            copy: bandwidth.copy_gb_per_s,
            json: arguments.json.as_deref(),
            machine: machine.clone(),
        };
        measure(&device, &case, &arguments)?;
    }
    Ok(())
}
