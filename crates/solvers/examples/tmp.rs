use sparsebatch_solvers::*; use sparsebatch_formats::*; use std::time::Instant;
fn main() {
    let dir = std::path::Path::new("/work/shared");
    for f in ["matrices/batch/lidryer.batch", "matrices/batch/drm19.batch", "matrices/batch/gri12.batch", "matrices/batch/gri30.batch", "matrices/batch/dodecane_lu.batch", "matrices/batch/isooctane.batch", "astro/batch_alpha13.bin", "astro/batch_mid57.bin", "astro/batch_sn156.bin", "astro/batch_raddiff1d.bin", "astro/batch_raddiff2d.bin"] {
        let file = io::read_batch(dir.join(f)).unwrap();
        for (m, p, o, fb) in [(Method::Auto, Preconditioner::Auto, Order::Natural, false), (Method::BiCgStab, Preconditioner::None, Order::Natural, false), (Method::BiCgStab, Preconditioner::Jacobi, Order::Natural, false), (Method::BiCgStab, Preconditioner::BlockJacobi, Order::Natural, false), (Method::BiCgStab, Preconditioner::Ilu0, Order::Natural, false), (Method::BiCgStab, Preconditioner::Ilu0, Order::MinDegree, false), (Method::Cg, Preconditioner::Jacobi, Order::Natural, false), (Method::Cg, Preconditioner::Ic0, Order::Natural, false), (Method::Lu, Preconditioner::Auto, Order::Natural, false), (Method::BiCgStab, Preconditioner::Jacobi, Order::Natural, true)] {
            if m == Method::Cg && !f.contains("raddiff") { continue; }
            let options = SolveOptions { method: m, preconditioner: p, order: o, fallback: fb, floor: fb.then_some(4.0), ..Default::default() };
            let t = Instant::now();
            let s = solve(&file.batch, &file.rhs, None, &options).unwrap();
            println!("{f:32} {:9} {:13} {:10} fb {fb:5} {}/{} {:?} rungs {:?} max {:.2e} floor {} it {:?} {:.1} ms", s.report.solver, p.name(), o.name(), s.report.converged(), file.batch.nitems(), s.report.status_counts(), s.report.rung_counts(), s.report.max_relative_residual_all().unwrap_or(f64::NAN), s.report.accepted_by_floor(), s.report.iterations(), t.elapsed().as_secs_f64() * 1e3);
        }
    }
}
