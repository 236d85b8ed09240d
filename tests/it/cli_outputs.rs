//! Output files: none is an input or another output, what stands after a failure is said, and signals
//! leave nothing half written.

use std::path::Path;

use crate::common::{Folder, Run, SPD};

const B: &str = "%%MatrixMarket matrix array real general\n3 1\n1\n2\n3\n";

/// A folder with a matrix, its right-hand side, and both in a folder of their own.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.file("m.mtx", SPD);
    folder.file("b.mtx", B);
    std::fs::create_dir(folder.path().join("set")).unwrap();
    folder.file("set/one.mtx", SPD);
    folder
}

/// The content of all files below a folder, by their paths.
fn content(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(content(&path)),
            false => found.push((path.display().to_string(), std::fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

#[test]
fn an_output_that_is_an_input_or_another_output_is_refused() {
    let folder = folder();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("m.mtx", folder.path().join("link.mtx")).unwrap();
        std::fs::hard_link(folder.path().join("m.mtx"), folder.path().join("hard.mtx")).unwrap();
    }
    folder.file("m_rhs.mtx", B);
    folder.file("rows.jsonl", "");
    folder.file("h.csv", "item,iteration,residual\n");
    let before = content(folder.path());
    let table: &[(&[&str], &str)] = &[
        (&["solve", "m.mtx", "--output", "m.mtx"], "--output m.mtx: is also the input m.mtx"),
        (&["solve", "m.mtx", "--output", "./m.mtx"], "is also the input"),
        (&["solve", "m.mtx", "--output", "set/../m.mtx"], "is also the input"),
        (&["solve", "m.mtx", "--history", "m.mtx"], "--history m.mtx: is also the input"),
        (&["solve", "m.mtx", "--rhs", "b.mtx", "--output", "b.mtx"], "is also --rhs b.mtx"),
        (&["solve", "m.mtx", "--x0", "b.mtx", "--output", "b.mtx"], "is also --x0 b.mtx"),
        (&["solve", "m.mtx", "--output", "m_rhs.mtx"], "is also the input"),
        (&["solve", "set", "--output", "set/one.mtx"], "is also the input set"),
        (&["solve", "m.mtx", "set", "--history", "set/one.mtx"], "is also the input set"),
        (&["solve", "m.mtx", "--output", "o.npz", "--history", "o.npz"], "is also --output o.npz"),
        (&["solve", "m.mtx", "--history", "r.html", "--report", "./r.html"], "is also --history"),
        (&["spmv", "m.mtx", "--output", "m.mtx"], "is also the input"),
        (&["spmv", "m.mtx", "--x", "b.mtx", "--output", "b.mtx"], "is also --x b.mtx"),
        (&["info", "m.mtx", "--plot", "m.mtx"], "--plot m.mtx: is also the input"),
        (&["convert", "m.mtx", "m.mtx"], "the output m.mtx: is also the input"),
        (&["convert", "set", "set/one.mtx"], "the output set/one.mtx: is also the input"),
    ];

    for (args, part) in table {
        folder.run(args).assert_bad_input(&[part, "expected another file"]);
        assert!(content(folder.path()) == before, "{args:?}");
    }
    #[cfg(unix)]
    for name in ["link.mtx", "hard.mtx"] {
        let refused = folder.run(&["solve", "m.mtx", "--output", name]);
        refused.assert_bad_input(&[name, "is also the input"]);
        assert!(content(folder.path()) == before, "{name}");
    }
}

#[test]
fn outputs_beside_inputs_are_written() {
    let folder = folder();

    for _ in 0..2 {
        let done = folder.run(&[
            "solve",
            "m.mtx",
            "--output",
            "x.npz",
            "--history",
            "m.csv",
            "--report",
            "r.html",
        ]);
        assert_eq!(done.code, 0, "{done:?}");
        let done = folder.run(&["solve", "set", "--history", "set/h.csv"]);
        assert_eq!(done.code, 0, "{done:?}");
    }
    assert_eq!(folder.names(), ["b.mtx", "m.csv", "m.mtx", "r.html", "set", "x.npz"]);
}

#[cfg(target_os = "linux")]
#[test]
fn after_a_full_disk_it_is_said_what_stands() {
    let folder = folder();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("x.npz")).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("y.mtx")).unwrap();
    let solve = |output: &str| {
        let args =
            ["solve", "m.mtx", "--output", output, "--history", "h.csv", "--report", "r.html"];
        folder.run(&args)
    };

    for output in ["x.npz", "y.mtx"] {
        let failed = solve(output);

        assert_eq!(failed.code, 1, "{failed:?}");
        let line = format!(
            "error: {output}: No space left on device (os error 28); {output} is not written, h.csv and \
             r.html are written\n"
        );
        assert_eq!(failed.stderr, line);
        assert!(failed.stdout.contains("1 of 1"), "the report is printed: {failed:?}");
        for name in ["h.csv", "r.html"] {
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
    }
    let failed = folder.run(&["convert", "m.mtx", "x.npz"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    let line = "error: x.npz: No space left on device (os error 28); x.npz is not written\n";
    assert_eq!((failed.stderr.as_str(), failed.stdout.as_str()), (line, ""));
    assert_eq!(folder.names(), ["b.mtx", "m.mtx", "set", "x.npz", "y.mtx"]);
}

#[test]
fn what_a_killed_run_left_is_swept() {
    let folder = folder();
    folder.file(".x.npz.4000000-0.sparsebatch-tmp", "half");
    folder.file(".other.mtx.4000000-3.sparsebatch-tmp", "half");
    folder.file(".x.npz.4000000-0.tmp", "somebody's");

    let done = folder.run(&["solve", "m.mtx", "--output", "x.npz"]);

    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(folder.names(), [".x.npz.4000000-0.tmp", "b.mtx", "m.mtx", "set", "x.npz"]);
}

#[cfg(unix)]
mod signals {
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::common::finished;

    fn start(folder: &Folder, args: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_sparsebatch"))
            .args(args)
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    }

    /// Sends a signal and waits for the end.
    fn end(child: Child, signal: &str) -> Run {
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()));
        finished(child.wait_with_output().expect("it ends"))
    }

    fn wait_for(what: impl Fn() -> bool) {
        let begin = Instant::now();
        while !what() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not happen");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn has_hidden(folder: &Folder) -> bool {
        folder.names().iter().any(|name| name.starts_with('.'))
    }

    #[test]
    fn an_interrupted_solve_ends_with_130_and_says_what_stands() {
        for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
            let folder = folder();
            // Nobody reads from the pipe: the program waits there when the solution is written.
            let made = Command::new("mkfifo").arg(folder.path().join("h.csv")).status();
            assert!(made.is_ok_and(|status| status.success()));
            let args =
                ["solve", "m.mtx", "--output", "x.npz", "--history", "h.csv", "--report", "r.html"];
            let child = start(&folder, &args);
            wait_for(|| folder.path().join("x.npz").exists());
            // It notes what it has written.
            std::thread::sleep(Duration::from_millis(100));

            let ended = end(child, signal);

            assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{ended:?}");
            assert_eq!(ended.stderr, "error: interrupted; x.npz is written\n");
            assert_eq!(folder.names(), ["b.mtx", "h.csv", "m.mtx", "set", "x.npz"]);
        }
    }

    #[test]
    fn an_interrupted_writer_leaves_no_hidden_file() {
        let folder = Folder::new();
        folder.file("l.mtx.gz", "before");
        let args = ["generate", "laplace", "--stencil", "7", "--grid", "120x120x120", "l.mtx.gz"];
        let child = start(&folder, &args);
        // Behind the look at whether it can be written, which is over at once.
        let is_writing = || {
            let hidden = folder.names().into_iter().find(|name| name.starts_with('.'));
            let path = hidden.map(|name| folder.path().join(name));
            path.is_some_and(|path| std::fs::metadata(path).is_ok_and(|found| found.len() > 0))
        };
        wait_for(is_writing);

        let ended = end(child, "-INT");

        assert_eq!((ended.code, ended.stderr.as_str()), (130, "error: interrupted\n"), "{ended:?}");
        assert_eq!(folder.names(), ["l.mtx.gz"]);
        assert_eq!(std::fs::read(folder.path().join("l.mtx.gz")).unwrap(), b"before");
    }

    #[test]
    fn an_interrupted_bench_says_where_its_rows_are() {
        let folder = Folder::new();
        let args = [
            "bench",
            "flexible-batch",
            "--size",
            "small",
            "--backend",
            "cpu",
            "--output",
            "r.jsonl",
        ];
        let child = start(&folder, &args);
        let part = folder.path().join("r.jsonl.part");
        wait_for(|| std::fs::metadata(&part).is_ok_and(|found| found.len() > 0));

        let ended = end(child, "-INT");

        assert_eq!(ended.code, 130, "{ended:?}");
        assert_eq!(ended.stderr, "error: interrupted; r.jsonl.part holds the rows so far\n");
        assert_eq!(folder.names(), ["r.jsonl.part"]);
    }

    #[test]
    fn what_a_killed_writer_left_goes_with_the_next_run() {
        let folder = folder();
        let args = ["generate", "laplace", "--stencil", "7", "--grid", "120x120x120", "l.mtx.gz"];
        let mut child = start(&folder, &args);
        let is_writing = || {
            let hidden = folder.names().into_iter().find(|name| name.starts_with('.'));
            let path = hidden.map(|name| folder.path().join(name));
            path.is_some_and(|path| std::fs::metadata(path).is_ok_and(|found| found.len() > 0))
        };
        wait_for(is_writing);
        // While it lives its file stays.
        assert_eq!(folder.run(&["solve", "m.mtx", "--output", "x.npz"]).code, 0);
        assert!(has_hidden(&folder));

        child.kill().unwrap();
        child.wait().unwrap();

        assert!(has_hidden(&folder), "a kill cannot be caught");
        assert_eq!(folder.run(&["solve", "m.mtx", "--output", "x.npz"]).code, 0);
        assert!(!has_hidden(&folder), "{:?}", folder.names());
    }
}

#[cfg(unix)]
#[test]
fn a_bench_keeps_what_an_earlier_run_left_and_refuses_a_second_one() {
    let folder = Folder::new();
    let bench = || {
        let suite =
            ["bench", "flexible-batch", "--size", "small", "--backend", "cpu", "--items", "4"];
        let rest = ["--case", "tri 32", "--no-peer", "--output", "r.jsonl"];
        folder.run(&[&suite[..], &rest].concat())
    };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();

    // A link is not followed.
    folder.file("other", "kept");
    std::os::unix::fs::symlink("other", folder.path().join("r.jsonl.part")).unwrap();
    bench().assert_bad_input(&["r.jsonl.part: is a symbolic link"]);
    assert_eq!((read("other"), folder.names().len()), ("kept".to_owned(), 2));
    std::fs::remove_file(folder.path().join("r.jsonl.part")).unwrap();

    // A run that lasts has locked its file.
    let left = folder.file("r.jsonl.part", "rows of another run\n");
    let other = std::fs::File::open(left).unwrap();
    other.lock().unwrap();
    bench().assert_bad_input(&["r.jsonl.part", "another run"]);
    assert_eq!(folder.names(), ["other", "r.jsonl.part"]);
    drop(other);

    // What a run that was stopped left is kept.
    let done = bench();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("r.jsonl.1.part has what an earlier run left"), "{done:?}");
    assert_eq!(read("r.jsonl.1.part"), "rows of another run\n");
    assert_eq!(folder.names(), ["other", "r.jsonl", "r.jsonl.1.part"]);
    let row: serde_json::Value =
        serde_json::from_str(read("r.jsonl").lines().next().unwrap()).unwrap();
    assert_eq!(row["round_ms"].as_array().unwrap().len() as u64, row["rounds"].as_u64().unwrap());
}
