//! The example `radiation_diffusion`, at reduced size: references, orders, balances, every refusal.

use std::path::{Path, PathBuf};

use clap::Parser;
use serde_json::Value;
use sparsebatch::gpu::Device;
use sparsebatch::io::read_npz_array;
use sparsebatch::{Backend, Pattern};
use sparsebatch_drivers::radiation_diffusion::args::{Args, Case, Where};
use sparsebatch_drivers::radiation_diffusion::error::Error;
use sparsebatch_drivers::radiation_diffusion::march::schedule;
use sparsebatch_drivers::radiation_diffusion::operator::Operator;
use sparsebatch_drivers::radiation_diffusion::problem::{Groups, Limiter};
use sparsebatch_drivers::radiation_diffusion::reference::{Agreement, SuOlson};
use sparsebatch_drivers::radiation_diffusion::run::{References, Run};
use sparsebatch_drivers::radiation_diffusion::units::Units;
use sparsebatch_drivers::radiation_diffusion::{cases, convergence, execute, run};

fn args(line: &str) -> Args {
    let words = ["radiation_diffusion", "--backend", "cpu"].into_iter().chain(line.split(' '));
    Args::try_parse_from(words).unwrap()
}

fn try_run(case: Case, line: &str) -> Result<Run, Error> {
    let args = args(line);
    let references = References::read(&args)?;
    run::run(case, &args, &references, &Backend::Cpu, &mut |_, _| {})
}

/// A run in which every system converged and energy balances.
fn sound(case: Case, line: &str) -> Run {
    let run = try_run(case, line).unwrap();
    let tally = &run.march.tally;
    assert_eq!(tally.failed(), 0, "{:?}", tally.statuses);
    assert!(tally.systems > 0 && tally.coupled > 0);
    assert!(run.imbalance() < 1e-10, "{:e}", run.imbalance());
    run
}

fn assert_agrees(run: &Run) {
    for agreement in &run.agreements {
        assert!(agreement.passes(), "{agreement:?}");
    }
}

/// The largest difference over the largest value.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let size = b.iter().fold(0.0f64, |m, b| m.max(b.abs()));
    a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max((a - b).abs())) / size
}

#[test]
fn the_grey_wave_meets_every_case_of_the_reference() {
    let run = sound(Case::Grey, "grey --zones 192 --rays 6 --steps-per-decade 20");

    assert_agrees(&run);
    // 2 eps x 9 times x (U, V) with opacity 1, and those that rays of other opacities pass by.
    let whole = run.agreements.iter().filter(|a| a.label.ends_with("opacity 1")).count();
    assert!(whole >= 36, "{whole}");
    assert!(run.agreements.len() >= 120, "{}", run.agreements.len());
    assert!(run.agreements.iter().all(|a| a.points == 12));
    // The batch is ragged in opacity, mesh and eps, and IC(0) of three points is exact.
    assert_eq!(run.problem.items(), 12);
    assert_eq!(run.march.tally.most, 1);
}

#[test]
fn the_multigroup_wave_meets_every_case_of_the_reference() {
    let run = sound(Case::Multigroup, "multigroup --zones 128 --rays 3 --steps-per-decade 20");

    assert_agrees(&run);
    // 9 profiles at 3 times, and two times of each of the other rays.
    assert_eq!(run.agreements.len(), 9 * (3 + 2 + 2));
    assert_eq!(run.problem.items(), 24);
}

#[test]
fn a_mesh_that_is_too_coarse_misses_the_reference_and_says_so() {
    let folder = Folder::new();
    let plots = folder.path("plots");
    let line = "grey --zones 64 --rays 1 --steps-per-decade 10";
    let (done, text) = executed(&format!("{line} --plots {}", plots.display()));

    assert!(!done.unwrap(), "{text}");
    assert!(text.contains("35 of 36 profiles"), "{text}");
    let differ = text.lines().filter(|line| line.ends_with("  DIFFERS")).count();
    let agree = text.lines().filter(|line| line.ends_with("  agrees")).count();
    assert_eq!((differ, agree), (1, 8), "{text}");
}

#[test]
fn waves_are_of_order_two_in_space() {
    let args = args("convergence");
    let references = References::read(&args).unwrap();
    let zones = [48, 96, 192];

    let grey = convergence::grey(references.grey.as_ref().unwrap(), &zones, &args, &Backend::Cpu);
    let groups = references.multigroup.as_ref().unwrap();
    let groups = convergence::multigroup(groups, &zones, &args, &Backend::Cpu);

    for table in [grey.unwrap(), groups.unwrap()] {
        for row in 1..zones.len() {
            let order = table.order(row).unwrap();
            assert!((1.85..2.15).contains(&order), "{table:?}");
        }
    }
}

#[test]
fn convergence_takes_its_cases_from_the_references() {
    let folder = Folder::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data");
    let is_late: fn(&Value) -> bool = |case| case["epsilon"] == 1.0 && case["tau"] != 1.0;
    let is_last: fn(&Value) -> bool = |case| case["tau"] == 10.0;
    // The files without their usual cases, eps 0.1 and tau 1.
    for (name, keeps) in
        [("su_olson_reference.json", is_late), ("multigroup_marshak_reference.json", is_last)]
    {
        let text = std::fs::read_to_string(data.join(name)).unwrap();
        let mut file: Value = serde_json::from_str(&text).unwrap();
        file["cases"].as_array_mut().unwrap().retain(keeps);
        std::fs::write(folder.path(name), file.to_string()).unwrap();
    }
    let args = args(&format!("convergence --data {}", folder.0.path().display()));
    let references = References::read(&args).unwrap();
    let zones = [64, 128];

    let grey = references.grey.as_ref().unwrap();
    let grey = convergence::grey(grey, &zones, &args, &Backend::Cpu).unwrap();
    let groups = references.multigroup.as_ref().unwrap();
    let groups = convergence::multigroup(groups, &zones, &args, &Backend::Cpu).unwrap();

    assert!(grey.title.starts_with("grey wave, eps 1, tau 3, "), "{}", grey.title);
    assert!(groups.title.starts_with("multigroup wave, tau 10, "), "{}", groups.title);
    for table in [grey, groups] {
        assert!(table.order(1).is_some_and(|order| order > 1.5), "{table:?}");
    }
}

#[test]
fn a_profile_of_nan_does_not_pass() {
    let x = [0.5, 1.5, 2.5, 3.5];
    let tau = 1.0;
    let with = |values: &[f64; 4]| {
        Agreement::new(tau, "U".to_owned(), &x, values, &[1.0, 2.0], &[1.0, 1.0]).unwrap()
    };

    assert!(with(&[1.0; 4]).passes());
    assert!(!with(&[1.0, f64::NAN, 1.0, 1.0]).passes());
}

#[test]
fn the_grey_wave_is_of_order_two_in_time() {
    let state = |steps: usize| {
        let line = format!("grey --zones 64 --rays 1 --times 1 --steps-per-decade {steps}");
        sound(Case::Grey, &line).march.states.remove(0).u
    };
    let truth = state(320);
    let errors = [10, 20, 40].map(|steps| difference(&state(steps), &truth));

    for pair in errors.windows(2) {
        assert!((3.3..5.5).contains(&(pair[0] / pair[1])), "{errors:?}");
    }
}

#[test]
fn the_limited_plane_converges_in_time() {
    let args = args("2d --groups 2 --cells 10x10 --contrast 10");

    let table = convergence::plane(&args.plane(), &[10, 20, 40], &args, &Backend::Cpu).unwrap();

    // The limiter is extrapolated, and kept from growing more than twofold: a little less than 2.
    let whole = (table.rows[0].1 / table.rows[2].1).log2() / 2.0;
    assert!(whole > 1.5, "{table:?}");
}

#[test]
fn a_plane_uniform_in_y_is_a_ray() {
    let line = |cells: &str| {
        format!("2d --cells {cells} --size 12x3 --contrast 1 --groups 3 --steps-per-decade 12")
    };
    let plane = sound(Case::Plane, &line("40x5"));
    let ray = sound(Case::Plane, &line("40x1"));

    for output in 0..ray.times.len() {
        for y in 0..5 {
            let row = y * 40..(y + 1) * 40;
            for g in 0..3 {
                let off = difference(&plane.u(output, 0, g)[row.clone()], ray.u(output, 0, g));
                assert!(off < 1e-10, "output {output}, row {y}, group {g}: {off:e}");
            }
            let off = difference(&plane.v(output, 0)[row], ray.v(output, 0));
            assert!(off < 1e-10, "output {output}, row {y}: {off:e}");
        }
    }
}

#[test]
fn a_plane_without_limiter_is_su_and_olsons_wave() {
    let run = sound(
        Case::Plane,
        "2d --cells 160x3 --size 30x1 --contrast 1 --groups 1 --limiter none --times 0.3,1,3 \
         --steps-per-decade 20",
    );
    let reference = References::read(&args("grey")).unwrap().grey.unwrap();
    let x = run.problem.domains[0].mesh.centres(0);

    for (output, &tau) in run.times.iter().enumerate() {
        let case = reference.cases.iter().find(|c| c.epsilon == 0.1 && c.tau == tau).unwrap();
        for y in 0..3 {
            let row = y * 160..(y + 1) * 160;
            for (values, expected) in [(run.u(output, 0, 0), &case.u), (run.v(output, 0), &case.v)]
            {
                let label = format!("row {y}");
                let found = Agreement::new(tau, label, &x, &values[row.clone()], &case.x, expected)
                    .unwrap();
                assert!(found.passes(), "{found:?}");
            }
        }
    }
}

#[test]
fn the_limiter_slows_the_wave_ahead_and_clouds_cast_shadows() {
    let line = "2d --cells 24x24 --groups 4 --times 0.03,1 --steps-per-decade 15";
    let limited = sound(Case::Plane, line);
    let diffusive = sound(Case::Plane, &format!("{line} --limiter none"));

    // The thinnest group, far ahead: light has come 0.03 sqrt(3) / eps = 0.5 far.
    let ahead = |run: &Run| run.u(0, 0, 0)[12 * 24 + 16];
    assert!(ahead(&limited) < 0.5 * ahead(&diffusive), "{:e}", ahead(&limited));
    // Behind the cloud at half height.
    let clear = sound(Case::Plane, &format!("{line} --contrast 1"));
    let behind = |run: &Run| run.v(1, 0)[12 * 24 + 16];
    assert!(behind(&limited) < 0.8 * behind(&clear), "{:e}", behind(&limited));
    assert!(limited.march.states.iter().all(|s| s.u.iter().chain(&s.v).all(|x| x.is_finite())));
}

#[test]
fn limited_fluxes_are_at_most_those_of_free_streaming() {
    let limiter = Limiter::LevermorePomraning;
    assert_eq!(limiter.factor(0.0), 1.0);
    assert!((limiter.factor(1e6) - 3e-6).abs() < 1e-11);
    assert_eq!(Limiter::None.factor(1e6), 1.0);
    let r: Vec<f64> = (0..400).map(|k| 10f64.powf(f64::from(k) / 20.0 - 10.0)).collect();
    assert!(r.windows(2).all(|r| limiter.factor(r[1]) < limiter.factor(r[0]) + 1e-15));

    let problem = cases::plane(&args("2d --cells 9x7 --groups 2").plane()).unwrap();
    let cells = problem.cells();
    // Radiation that varies by many orders of magnitude, with cells that have none.
    let u: Vec<f64> = (0..cells)
        .map(|cell| if cell % 11 == 3 { 0.0 } else { 10f64.powf((cell * 37 % 23) as f64 - 20.0) })
        .collect();
    let mut through = vec![0.0; problem.topology.faces.len()];
    let mut left = vec![0.0; problem.topology.ny];
    for item in 0..problem.items() {
        problem.conductances(item, &u, &mut through, &mut left);
        let mesh = &problem.domains[0].mesh;
        for (face, &c) in problem.topology.faces.iter().zip(&through) {
            let area = mesh.widths(face.a)[1 - face.axis];
            let flux = c * (u[face.a] - u[face.b]).abs() / area;
            let most = 3f64.sqrt() * (u[face.a] + u[face.b]) / 2.0;
            assert!(c > 0.0 && c.is_finite());
            assert!(flux <= most * (1.0 + 1e-12), "{flux:e} over {most:e}");
        }
    }
}

#[test]
fn the_batch_holds_the_operator_and_the_coupled_one_is_symmetric() {
    let problem = cases::plane(&args("2d --cells 6x5 --groups 3").plane()).unwrap();
    let mut operator = Operator::new(&problem);
    let cells = problem.cells();
    let vector = |seed: u64| -> Vec<f64> {
        let n = problem.items() * cells;
        (0..n as u64).map(|k| ((k * 2_654_435_761 + seed) % 1009) as f64 / 1009.0).collect()
    };
    let (x, y) = (vector(1), vector(500));
    operator.set_conductances(&x);
    operator.set_delta(0.3);
    let (mut kx, mut ky) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    operator.apply(&x, &mut kx);
    operator.apply(&y, &mut ky);
    let weighted = |a: &[f64], b: &[f64]| -> f64 {
        let weight = |k: usize| problem.groups.weight[k / cells];
        a.iter().zip(b).enumerate().map(|(k, (a, b))| a * b / weight(k)).sum()
    };
    let (one, other) = (weighted(&x, &ky), weighted(&kx, &y));
    assert!((one - other).abs() < 1e-12 * one.abs(), "{one} {other}");
    assert!(weighted(&x, &kx) > 0.0);

    // Of one group the matrix of the batch is the whole operator.
    let problem = cases::plane(&args("2d --cells 6x5 --groups 1").plane()).unwrap();
    let mut operator = Operator::new(&problem);
    operator.set_conductances(&x[..cells]);
    operator.set_delta(0.3);
    let pattern = &problem.topology.pattern;
    let mut values = vec![f64::NAN; pattern.nnz()];
    operator.fill(&mut values);
    let mut flows = vec![0.0; cells];
    operator.apply(&x[..cells], &mut flows);
    let view = pattern.view();
    for (row, flow) in flows.iter().enumerate() {
        let ax: f64 = view.row(row).map(|k| values[k] * x[view.col_idx()[k] as usize]).sum();
        assert!((ax - flow).abs() < 1e-12, "row {row}: {ax} {flow}");
    }
}

#[test]
fn every_solver_gives_the_same_plane() {
    let line = "2d --cells 12x12 --groups 3 --times 0.3 --steps-per-decade 8";
    let expected = sound(Case::Plane, line);
    for options in [
        "--precond none",
        "--precond jacobi",
        "--precond ic0 --order min-degree",
        "--precond ic0 --order multicolor",
        "--solver bicgstab --precond ilu0",
        "--solver lu",
        "--rtol 1e-10",
    ] {
        let run = sound(Case::Plane, &format!("{line} {options}"));

        let off = difference(&run.march.states[0].u, &expected.march.states[0].u);
        assert!(off < 1e-9, "{options}: {off:e}");
        let off = difference(&run.march.states[0].v, &expected.march.states[0].v);
        assert!(off < 1e-9, "{options}: {off:e}");
    }
}

#[test]
fn systems_that_are_left_unsolved_are_counted_and_nothing_is_lost() {
    let line = "grey --zones 64 --rays 2 --times 0.1 --steps-per-decade 6 --precond jacobi \
                --max-iters 3";
    let left = try_run(Case::Grey, &format!("{line} --no-fallback")).unwrap();
    let solved = sound(Case::Grey, line);

    let tally = &left.march.tally;
    assert!(tally.failed() > 0 && tally.statuses["MaxIterations"] == tally.failed());
    assert!(tally.coupled_iterations > solved.march.tally.coupled_iterations);
    assert!(solved.march.tally.rungs.len() > 1, "{:?}", solved.march.tally.rungs);
    assert_agrees(&left);
    let off = difference(&left.march.states[0].u, &solved.march.states[0].u);
    assert!(off < 1e-9, "{off:e}");
}

#[test]
fn what_overflows_is_an_error_and_not_a_nan() {
    let error = try_run(Case::Plane, "2d --cells 6x6 --contrast 1e308").unwrap_err();

    assert_eq!(error.code(), 3, "{error}");
    assert!(error.to_string().contains("not finite"), "{error}");
}

#[test]
fn steps_are_geometric_and_end_at_outputs() {
    let steps = schedule(&[0.01, 0.03, 1.0], 10.0).unwrap();

    let mut time = 0.0;
    let mut outputs = Vec::new();
    for &(step, output) in &steps {
        assert!(step > 0.0);
        time += step;
        outputs.extend(output.map(|index| (index, time)));
    }
    assert_eq!(outputs.len(), 3);
    for ((index, time), expected) in outputs.into_iter().zip([0.01, 0.03, 1.0]) {
        assert!((time - expected).abs() < 1e-14, "{index}");
    }
    // 3 decades to the first output, about half of one, about one and a half.
    assert_eq!(steps.len(), 1 + 30 + 5 + 16);
}

#[test]
fn units_are_cgs() {
    // kappa_0 = 2 / cm, T = 1e6 K, eps = 0.1.
    let units = Units::new(2.0, 1e6, 0.1).unwrap();

    assert!((units.length * 2.0 * 3f64.sqrt() - 1.0).abs() < 1e-15);
    assert!((units.time - 1.0 / (0.1 * 2.997_924_58e10 * 2.0)).abs() < 1e-24);
    assert!((units.energy_density / 7.565_733e9 - 1.0).abs() < 1e-12);
}

#[test]
fn spread_groups_have_unit_share_and_unit_mean_opacity() {
    for n in [1, 2, 8, 31] {
        let groups = Groups::spread(n).unwrap();
        let mean: f64 = groups.kappa.iter().zip(&groups.weight).map(|(k, w)| k * w).sum();
        assert!((mean - 1.0).abs() < 1e-12);
        assert!((groups.weight.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn executed(line: &str) -> (Result<bool, Error>, String) {
    let mut out = Vec::new();
    let done = execute(&args(line), &mut out);
    (done, String::from_utf8(out).unwrap())
}

#[test]
fn a_whole_run_prints_its_comparison_and_writes_states_and_plots() {
    let folder = Folder::new();
    let (output, plots) = (folder.path("states.npz"), folder.path("plots"));
    let (done, text) = executed(&format!(
        "all --zones 96 --rays 1 --cells 12x10 --groups 2 --steps-per-decade 10 --output {} --plots {}",
        output.display(),
        plots.display()
    ));

    assert!(done.unwrap(), "{text}");
    for part in ["36 of 36 profiles", "27 of 27 profiles", "assembly", "solve", "control"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert!(!text.contains("NaN"), "{text}");
    let array = |name: &str| read_npz_array(&output, name).unwrap();
    assert_eq!(array("grey_shape"), [9.0, 2.0, 1.0, 1.0, 96.0]);
    assert_eq!(array("multigroup_u").len(), 3 * 8 * 96);
    assert_eq!(array("2d_v").len(), 5 * 120);
    for name in ["grey_u", "grey_v", "multigroup_u", "multigroup_v", "2d_u", "2d_v", "cgs"] {
        assert!(array(name).iter().all(|x| x.is_finite()), "{name}");
    }
    let names =
        ["grey_u_eps0.1", "grey_v_eps1", "multigroup_tau1", "2d_matter_tau10", "2d_opacity"];
    for name in names {
        let svg = std::fs::read_to_string(plots.join(format!("{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && !svg.contains("NaN"), "{name}");
        let shapes = if name.starts_with("2d") { "<rect" } else { "<circle" };
        assert!(svg.matches(shapes).count() > 40, "{name}: {}", svg.matches(shapes).count());
    }
}

/// Asserts bad input: its code, one line that holds each part, nothing but the head printed.
fn assert_refused(line: &str, parts: &[&str]) {
    let (done, _) = executed(line);
    let error = done.expect_err(line);
    assert_eq!(error.code(), 2, "{line}: {error}");
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in parts {
        assert!(text.contains(part), "{line}: {part:?} is missing: {text}");
    }
}

#[test]
fn bad_options_are_refused() {
    for (line, parts) in [
        ("grey --zones 0", &["mesh has 0 cells"][..]),
        ("grey --zones 3 --times 1", &["3 cells", "at least 4"]),
        ("grey --rays 0", &["0 rays"]),
        ("multigroup --rays 0", &["0 rays"]),
        ("grey --length 0", &["length of the domain is 0"]),
        ("grey --length -1", &["length of the domain is -1"]),
        ("grey --length nan", &["length of the domain is NaN"]),
        ("grey --length inf", &["length of the domain is inf"]),
        ("grey --length 5 --zones 16 --rays 1 --times 1", &["domain ends at", "of the reference"]),
        ("grey --times 0", &["last time is 0"]),
        ("grey --times 1,0.5", &["time 1 is 0.5", "more than the one before"]),
        ("2d --times 1,nan", &["time 1 is NaN"]),
        ("2d --times -1", &["time 0 is -1"]),
        ("2d --cells 0x4", &["mesh has 0 cells"]),
        ("2d --cells 100000x100000", &["1 x 8 systems of 100000 x 100000 cells", "at most"]),
        ("2d --cells 30000x20000 --groups 1", &["30000 x 20000 cells, expected at most 429496729"]),
        ("2d --groups 9999999999999", &["9999999999999 systems"]),
        ("grey --rays 18446744073709551615", &["systems of 256 x 1 cells", "at most"]),
        ("multigroup --zones 18446744073709551615", &["8 x 8 systems", "at most"]),
        ("2d --size 10x0", &["width of the domain is 0"]),
        ("2d --size -1x1", &["length of the domain is -1"]),
        ("2d --size 1e-310x1", &["vanish"]),
        ("2d --size 1e-150x1e-157", &["48 x 48 cells over", "vanish"]),
        ("2d --size 1e200x1e200", &["area of the domain is inf"]),
        ("2d --groups 0", &["0 groups"]),
        ("2d --contrast 0", &["contrast of clouds is 0"]),
        ("2d --contrast inf", &["contrast of clouds is inf"]),
        ("2d --epsilon 0", &["epsilon is 0"]),
        ("2d --epsilon nan", &["epsilon is NaN"]),
        ("2d --steps-per-decade 0", &["steps per decade is 0"]),
        ("2d --steps-per-decade 1e300", &["steps", "at most 10000000"]),
        ("2d --tolerance 0", &["tolerance of coupled systems is 0"]),
        ("2d --tolerance nan", &["tolerance of coupled systems is NaN"]),
        ("2d --rtol 0", &["--rtol is 0"]),
        ("2d --rtol 1", &["--rtol is 1"]),
        ("2d --max-iters 0", &["--max-iters is 0"]),
        ("2d --source-temperature 0", &["temperature of the source is 0"]),
        ("2d --source-temperature -5", &["temperature of the source is -5"]),
        ("2d --source-temperature 1e100", &["unit of energy in erg/cm^3 is inf"]),
        ("2d --opacity 0", &["reference opacity is 0"]),
        ("2d --opacity nan", &["reference opacity is NaN"]),
        ("2d --output states.csv", &["--output states.csv", ".npz"]),
        ("grey --data /nowhere", &["su_olson_reference.json", "No such file"]),
        ("multigroup --data /nowhere", &["multigroup_marshak_reference.json", "No such file"]),
    ] {
        assert_refused(line, parts);
    }
    if Device::new(0).is_err() {
        let error = run::backend(Where::Gpu).unwrap_err();
        assert_eq!(error.code(), 2);
        assert!(error.to_string().starts_with("--backend gpu: "), "{error}");
    }
}

#[test]
fn options_that_are_no_numbers_or_names_are_refused_by_the_command_line() {
    for line in ["4d", "2d --cells 4", "2d --cells 4x-1", "grey --zones -1", "grey --precond amg"] {
        let words = ["radiation_diffusion"].into_iter().chain(line.split(' '));
        assert!(Args::try_parse_from(words).is_err(), "{line}");
    }
}

fn changed(folder: &Path, name: &str, change: impl FnOnce(&mut serde_json::Value)) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data").join(name);
    let text = std::fs::read_to_string(source).unwrap();
    let mut value = serde_json::from_str(&text).unwrap();
    change(&mut value);
    std::fs::write(folder.join(name), value.to_string()).unwrap();
}

#[test]
fn malformed_references_are_refused() {
    type Change = fn(&mut serde_json::Value);
    let folder = Folder::new();
    let place = folder.path("");
    let grey: [(Change, &[&str]); 8] = [
        (|v| v["cases"][3]["U"][2] = (-1.0).into(), &["cases[3]", "U holds -1"]),
        (|v| v["cases"][3]["V"][2] = serde_json::Value::Null, &["su_olson_reference.json", "null"]),
        (|v| v["cases"][0]["tau"] = 0.into(), &["cases[0]: tau is 0"]),
        (|v| v["cases"][1]["epsilon"] = (-0.1).into(), &["cases[1]: epsilon is -0.1"]),
        (|v| v["cases"][2]["x"] = serde_json::json!([]), &["cases[2]", "x is empty"]),
        (|v| v["cases"][2]["x"] = serde_json::json!([1.0]), &["cases[2]", "expected 1"]),
        (|v| v["cases"][4]["x"][1] = (-2.0).into(), &["cases[4]", "x holds -2"]),
        (|v| v["cases"] = serde_json::json!([]), &["no cases"]),
    ];
    for (change, parts) in grey {
        changed(&place, "su_olson_reference.json", change);
        assert_refused(&format!("grey --data {}", place.display()), parts);
    }
    let groups: [(Change, &[&str]); 7] = [
        (|v| v["kappa"][0] = 0.into(), &["opacity of group 0 is 0"]),
        (|v| v["w"][7] = (-1.0).into(), &["share of group 7 is -1"]),
        (|v| v["w"] = serde_json::json!([1.0]), &["8 opacities and 1 shares"]),
        (|v| v["epsilon"] = 0.into(), &["epsilon is 0"]),
        (|v| v["cases"][1]["U_g"][0] = serde_json::json!([1.0]), &["cases[1]", "8 groups"]),
        (|v| v["cases"][1]["U_g"][0][3] = (-3.0).into(), &["cases[1]", "U_g holds -3"]),
        (|v| drop(v.as_object_mut().unwrap().remove("w")), &["missing field `w`"]),
    ];
    for (change, parts) in groups {
        changed(&place, "multigroup_marshak_reference.json", change);
        assert_refused(&format!("multigroup --data {}", place.display()), parts);
    }
    std::fs::write(folder.path("su_olson_reference.json"), "{\"cases\": [").unwrap();
    assert_refused(&format!("grey --data {}", place.display()), &["EOF while parsing"]);
}

#[test]
fn the_reference_files_are_whole() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data");
    let reference = SuOlson::read(&data.join("su_olson_reference.json")).unwrap();

    assert_eq!(reference.cases.len(), 18);
    assert_eq!(reference.epsilons(), [0.1, 1.0]);
    assert_eq!(reference.times(), [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]);
}
