use sparsebatch_cpu_ref::*;
use sparsebatch_formats::*;
use std::sync::Arc;
use std::time::Instant;
fn mix(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D049BB133111EB);
    x ^ (x >> 31)
}
fn u(s: u64, i: u64, j: u64) -> f64 {
    let key = mix(mix(s).wrapping_add(i));
    (mix(key.wrapping_add(j)) >> 11) as f64 * 2f64.powi(-53)
}
fn tri(n: usize, nb: usize) -> (Batch<f64>, Vec<f64>) {
    let (mut rp, mut ci) = (vec![0], vec![]);
    for r in 0..n {
        for c in r.saturating_sub(1)..=(r + 1).min(n - 1) {
            ci.push(c as i32);
        }
        rp.push(ci.len() as i32);
    }
    let (mut v, mut b) = (vec![], vec![]);
    for i in 0..nb as u64 {
        let shift = 0.1 + 0.4 * u(1, i, 0);
        for r in 0..n {
            if r > 0 {
                v.push(-(1.0 - 0.05 * u(2, i, r as u64 - 1)));
            }
            v.push((2.0 + shift) + 0.1 * u(3, i, r as u64));
            if r + 1 < n {
                v.push(-(1.0 - 0.05 * u(2, i, r as u64)));
            }
            b.push(2.0 * u(4, i, r as u64) - 1.0);
        }
    }
    let p = Arc::new(CsrPattern::try_new(n, n, rp, ci).unwrap());
    (
        UniformBatch::try_new(p, nb, BatchValues::ItemMajor(v))
            .unwrap()
            .into(),
        b,
    )
}
fn lap(m: usize, nb: usize) -> (Batch<f64>, Vec<f64>) {
    let n = m * m;
    let (mut rp, mut ci) = (vec![0], vec![]);
    for r in 0..n {
        let (y, x) = (r / m, r % m);
        if y > 0 {
            ci.push((r - m) as i32);
        }
        if x > 0 {
            ci.push(r as i32 - 1);
        }
        ci.push(r as i32);
        if x + 1 < m {
            ci.push(r as i32 + 1);
        }
        if y + 1 < m {
            ci.push((r + m) as i32);
        }
        rp.push(ci.len() as i32);
    }
    let (mut v, mut b) = (vec![], vec![]);
    for i in 0..nb as u64 {
        for r in 0..n {
            for k in rp[r]..rp[r + 1] {
                v.push(if ci[k as usize] as usize == r {
                    4.0 + 0.1 * u(11, i, r as u64)
                } else {
                    -1.0
                });
            }
            b.push(2.0 * u(12, i, r as u64) - 1.0);
        }
    }
    let p = Arc::new(CsrPattern::try_new(n, n, rp, ci).unwrap());
    (
        UniformBatch::try_new(p, nb, BatchValues::ItemMajor(v))
            .unwrap()
            .into(),
        b,
    )
}
struct Ws {
    x: Vec<f64>,
    r: Vec<f64>,
    p: Vec<f64>,
    ap: Vec<f64>,
}
fn scalar_cg(n: usize, rp: &[i32], ci: &[i32], v: &[f64], b: &[f64], w: &mut Ws) -> usize {
    w.x.fill(0.0);
    w.r.copy_from_slice(b);
    w.p.copy_from_slice(b);
    let mut rho: f64 = b.iter().map(|b| b * b).sum();
    let thr = 1e-20 * rho;
    let mut it = 0;
    while rho > thr && it < 1000 {
        it += 1;
        let mut pap = 0.0;
        for i in 0..n {
            let (s, e) = (rp[i] as usize, rp[i + 1] as usize);
            let mut acc = 0.0;
            for (v, c) in v[s..e].iter().zip(&ci[s..e]) {
                acc += v * w.p[*c as usize];
            }
            w.ap[i] = acc;
            pap += acc * w.p[i];
        }
        let alpha = rho / pap;
        let mut rr = [0.0; 4];
        for (((x, r), p), ap) in
            w.x.chunks_exact_mut(4)
                .zip(w.r.chunks_exact_mut(4))
                .zip(w.p.chunks_exact(4))
                .zip(w.ap.chunks_exact(4))
        {
            for k in 0..4 {
                x[k] += alpha * p[k];
                r[k] -= alpha * ap[k];
                rr[k] += r[k] * r[k];
            }
        }
        let new = rr[0] + rr[1] + rr[2] + rr[3];
        let beta = new / rho;
        rho = new;
        for (p, r) in w.p.iter_mut().zip(&w.r) {
            *p = r + beta * *p;
        }
    }
    it
}
fn sprs_cg(a: sprs::CsMatView<f64>, b: &[f64]) -> (Vec<f64>, usize) {
    let n = b.len();
    let mut x = vec![0.0; n];
    let mut r = b.to_vec();
    let mut p = b.to_vec();
    let mut ap = vec![0.0; n];
    let mut rho: f64 = r.iter().map(|v| v * v).sum();
    let thr = 1e-20 * rho;
    let mut it = 0;
    while rho > thr && it < 1000 {
        it += 1;
        ap.fill(0.0);
        sprs::prod::mul_acc_mat_vec_csr(a, &p[..], &mut ap[..]);
        let pap: f64 = p.iter().zip(&ap).map(|(a, b)| a * b).sum();
        let alpha = rho / pap;
        for i in 0..n {
            x[i] += alpha * p[i];
            r[i] -= alpha * ap[i];
        }
        let new: f64 = r.iter().map(|v| v * v).sum();
        let beta = new / rho;
        rho = new;
        for i in 0..n {
            p[i] = r[i] + beta * p[i];
        }
    }
    (x, it)
}
fn peers(name: &str, batch: &Batch<f64>, b: &[f64]) {
    use rayon::prelude::*;
    let p = batch.pattern(0);
    let n = p.nrows();
    let indptr: Vec<usize> = p.row_ptr().iter().map(|&v| v as usize).collect();
    let idx: Vec<usize> = p.col_idx().iter().map(|&v| v as usize).collect();
    let mut ts = vec![];
    for _ in 0..5 {
        let t = cpu_ms();
        (0..batch.nitems()).into_par_iter().for_each_init(
            || Ws {
                x: vec![0.0; n],
                r: vec![0.0; n],
                p: vec![0.0; n],
                ap: vec![0.0; n],
            },
            |w, i| {
                std::hint::black_box(scalar_cg(
                    n,
                    p.row_ptr(),
                    p.col_idx(),
                    batch.item_values(i).unwrap(),
                    &b[i * n..(i + 1) * n],
                    w,
                ));
            },
        );
        ts.push((cpu_ms() - t) / 2.0);
    }
    ts.sort_by(f64::total_cmp);
    println!("{name:10} tuned scalar {:7.2}", ts[2]);
    let mut ts = vec![];
    for _ in 0..3 {
        let t = cpu_ms();
        (0..batch.nitems()).into_par_iter().for_each(|i| {
            let a =
                sprs::CsMatView::new((n, n), &indptr[..], &idx[..], batch.item_values(i).unwrap());
            std::hint::black_box(sprs_cg(a, &b[i * n..(i + 1) * n]));
        });
        ts.push((cpu_ms() - t) / 2.0);
    }
    ts.sort_by(f64::total_cmp);
    println!("{name:10} sprs {:7.2}", ts[1]);
}
fn cpu_ms() -> f64 {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|t| {
            std::fs::read_to_string(t.unwrap().path().join("schedstat"))
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .parse::<f64>()
                .unwrap()
        })
        .sum::<f64>()
        / 1e6
}
fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let c = Criteria {
        rel_tol: PerSystem::All(1e-10),
        abs_tol: PerSystem::All(0.0),
        max_iters: PerSystem::All(1000),
        max_restarts: 4,
        floor: None,
        history: false,
    };
    for (name, (batch, b)) in [
        ("tri 32", tri(32, 10000)),
        ("tri 128", tri(128, 10000)),
        ("lap2d 256", lap(16, 10000)),
    ] {
        if !only.is_empty() && !name.contains(&only) {
            continue;
        }
        peers(name, &batch, &b);
        for isa in [Isa::Avx2, Isa::Avx512] {
            for lanes in [4, 8, 16] {
                for chunk in [160usize] {
                    let mut best = f64::MAX;
                    let mut all = vec![];
                    let mut o = vec![];
                    for _ in 0..9 {
                        let mut x = vec![0.0; b.len()];
                        let t = cpu_ms();
                        o = lanes::cg_bench(&batch, &b, &mut x, &c, isa, lanes, chunk, false);
                        let t = (cpu_ms() - t) / 2.0;
                        best = best.min(t);
                        all.push(t);
                    }
                    all.sort_by(f64::total_cmp);
                    let conv = o.iter().filter(|o| o.status == Status::Converged).count();
                    let it = o.iter().map(|o| o.iterations as f64).sum::<f64>() / o.len() as f64;
                    let res = o.iter().map(|o| o.relative_residual()).fold(0.0, f64::max);
                    println!(
                        "{name:10} {:9} {lanes:2} chunk {chunk:5}: median {:7.2} min {best:7.2} ms  conv {conv} iters {it:.1} res {res:.2e} restarts {}",
                        isa.name(),
                        all[4],
                        o.iter().map(|o| o.restarts).sum::<u32>()
                    );
                }
            }
        }
    }
}
