//! The Matrix Market reader's peak memory, in a process of its own.

use std::io::Write;

use sparsebatch_formats::io::read_matrix_market;

/// A line such as `VmHWM: 1234 kB` of this process's status, in bytes.
fn status(field: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? * 1024.0)
}

/// The two files are read by one test, the larger need last: what is measured is a maximum.
#[test]
fn reading_takes_at_most_two_and_a_half_times_the_matrix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mtx");
    // Both give 1.5 million entries in 75,000 rows: 20 diagonals, from one triangle or in full,
    // the latter with columns descending so that every row has to be sorted.
    let (n, width) = (75_000usize, 20usize);
    for kind in ["symmetric", "general"] {
        let stored = if kind == "general" { width } else { width / 2 };
        let mut text = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
        writeln!(text, "%%MatrixMarket matrix coordinate real {kind}").unwrap();
        writeln!(text, "{n} {n} {}", n * stored).unwrap();
        for row in 0..n {
            for k in (1..=stored).rev() {
                let col = (row + n - k) % n;
                let (i, j) =
                    if kind == "general" { (row, col) } else { (row.max(col), row.min(col)) };
                writeln!(text, "{} {} {}.25", i + 1, j + 1, k).unwrap();
            }
        }
        text.into_inner().unwrap();

        let Some(before) = status("VmRSS:") else {
            eprintln!("skipped: the system does not tell the memory of a process");
            return;
        };
        let matrix = read_matrix_market(&path).unwrap();
        let peak = status("VmHWM:").unwrap() - before;

        assert_eq!(matrix.nnz(), n * width);
        let ratio = peak / matrix.bytes() as f64;
        println!("{kind}: {ratio:.2} times the matrix");
        assert!(ratio <= 2.5, "{kind}: {ratio}");
    }
}
