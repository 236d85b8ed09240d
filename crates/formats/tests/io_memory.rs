//! The Matrix Market reader's peak memory, in a process of its own.

use std::io::Write;

use sparsebatch_formats::io::{
    LoadOptions, MemoryLimit, load, read_matrix_market, read_matrix_market_from, read_npz,
};

/// A line such as `VmHWM: 1234 kB` of this process's status, in bytes.
fn status(field: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? * 1024.0)
}

/// What is measured is a maximum, so the largest need comes last.
#[test]
fn reading_takes_memory_in_proportion() {
    what_does_not_fit_together_is_not_unpacked();
    an_archive_bomb_takes_what_is_allowed();
    reading_takes_at_most_two_and_a_half_times_the_matrix();
}

/// Asserts that a call takes at most so many bytes more than are taken now.
fn takes_at_most(bytes: f64, call: impl FnOnce()) {
    let Some(before) = status("VmRSS:") else {
        eprintln!("skipped: the system does not tell the memory of a process");
        return;
    };
    call();
    let peak = status("VmHWM:").unwrap() - before;
    assert!(peak <= bytes, "{peak} bytes were taken, expected at most {bytes}");
}

/// An archive whose indices are 1 GB of zeros, packed to 1 MB, and are more than its values.
fn what_does_not_fit_together_is_not_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
    let zeros = vec![0u8; 1 << 20];
    for (name, descr, shape, pieces, rest) in [
        ("format", "|S3", "()", 0, &b"csr"[..]),
        ("shape", "<i8", "(2,)", 0, &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        ("indices", "<i8", "(134217728,)", 1024, &[]),
        ("indptr", "<i8", "(2,)", 0, &[0; 16]),
        ("data", "<f8", "(1,)", 0, &[0; 8]),
    ] {
        zip.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        zip.write_all(b"\x93NUMPY\x01\x00").unwrap();
        zip.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
        zip.write_all(header.as_bytes()).unwrap();
        (0..pieces).for_each(|_| zip.write_all(&zeros).unwrap());
        zip.write_all(rest).unwrap();
    }
    zip.finish().unwrap();
    drop(zeros);

    takes_at_most(32e6, || {
        let error = read_npz(&path).unwrap_err().to_string();
        assert!(error.contains("data has 1 entries, expected 134217728"), "{error}");
    });
}

/// A text of one entry again and again, packed to a 500th.
fn bomb(order: usize) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let header = "%%MatrixMarket matrix coordinate pattern general";
    packed.write_all(format!("{header}\n{order} {order} 20000000\n").as_bytes()).unwrap();
    let entries = b"1 1\n".repeat(100_000);
    (0..200).for_each(|_| packed.write_all(&entries).unwrap());
    let packed = packed.finish().unwrap();
    assert!(packed.len() < 1 << 20);
    packed
}

/// Of a small matrix duplicates are summed while they are read; else their number is limited.
fn an_archive_bomb_takes_what_is_allowed() {
    let memory = MemoryLimit::bytes(16 << 20);
    let path = std::path::Path::new("bomb.mtx.gz");
    let (small, large) = (bomb(2), bomb(10_000));

    takes_at_most(32e6, || {
        let matrix = read_matrix_market_from(&small[..], path, memory).unwrap();
        assert_eq!((matrix.nnz(), matrix.values()[0]), (1, 2e7));
    });
    takes_at_most(32e6, || {
        let error = read_matrix_market_from(&large[..], path, memory).unwrap_err().to_string();
        let expected = "bomb.mtx.gz: a matrix of 10000 rows and 20000000 entries would take";
        assert!(error.contains(expected), "{error}");
    });
    // With its length known, it is refused before anything is unpacked.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.mtx.gz");
    std::fs::write(&path, &large).unwrap();
    takes_at_most(32e6, || {
        let options = LoadOptions { memory, ..LoadOptions::default() };
        let error = load(&[path], options).unwrap_err().to_string();
        assert!(error.contains("would take 560040004 bytes of memory"), "{error}");
    });
}

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
