//! `sparsebatch corpus` against a server of its own on loopback.

use std::io::Read;
use std::path::Path;

use crate::common::{Folder, Run, finished, run};
use crate::server::{Answer, Server, archive, closed_port, market, with_zeros};

/// Runs `corpus` in a folder, straight to loopback whatever proxies the environment names.
fn corpus(folder: &Path, args: &[&str]) -> Run {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sparsebatch"))
        .arg("corpus")
        .args(args)
        .current_dir(folder)
        .env("NO_PROXY", "*")
        .env_remove("SPARSEBATCH_CORPUS")
        .env_remove("SPARSEBATCH_CORPUS_URL")
        .output()
        .expect("the program starts");
    finished(output)
}

fn fetch(folder: &Folder, server: &Server, list: &str, more: &[&str]) -> Run {
    let base = server.base();
    corpus(
        folder.path(),
        &[&["fetch", "--list", list, "--into", "c", "--base", &base], more].concat(),
    )
}

/// The whole corpus folder, but for the file that claims it.
fn tree(folder: &Folder) -> Vec<String> {
    let mut found = Vec::new();
    for part in ["", "flexible", "single"] {
        let Ok(entries) = std::fs::read_dir(folder.path().join("c").join(part)) else { continue };
        let names = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        found.extend(names.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()));
    }
    found.retain(|name| name != ".fetching");
    found.sort();
    found
}

#[test]
fn matrices_are_fetched_checked_and_locked() {
    let server = Server::start(Answer::Resumable);
    server.put("HB", "jgl011", archive("jgl011", &market(11, 11, 76)));
    server.put("Bai", "tols90", archive("tols90", &market(90, 90, 1_746)));
    let folder = Folder::new();

    let done = fetch(&folder, &server, "jgl011,Bai/tols90", &[]);

    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.ends_with("2 of 2 matrices in c\n"), "{}", done.stdout);
    assert_eq!(done.stdout.matches(" fetched ").count(), 2, "{}", done.stdout);
    assert_eq!(tree(&folder), ["corpus.lock", "jgl011.mtx.gz", "tols90.mtx.gz"]);
    let info = folder.run(&["info", "c/flexible/tols90.mtx.gz", "--json"]).json();
    assert_eq!((&info["rows"], &info["nnz"]), (&90.into(), &1_746.into()));

    let again = fetch(&folder, &server, "jgl011,tols90", &["--json"]).json();
    assert_eq!(server.requests().len(), 2, "nothing is downloaded twice");
    assert_eq!((&again["command"], &again["action"]), (&"corpus".into(), &"fetch".into()));
    assert_eq!((&again["there"], &again["folder"]), (&2.into(), &"c".into()));
    let item = &again["matrices"][1];
    assert_eq!((&item["name"], &item["status"]), (&"jgl011".into(), &"there".into()));
    assert_eq!((&item["rows"], &item["nonzeros"]), (&11.into(), &76.into()));
    assert_eq!(item["lists"], serde_json::json!(["flexible"]));
    assert_eq!(item["file"], "c/flexible/jgl011.mtx.gz");
    let lock = std::fs::read_to_string(folder.path().join("c/corpus.lock")).unwrap();
    let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
    let locked = &lock["matrices"]["HB/jgl011"];
    assert_eq!(item["archive_sha256"], locked["archive_sha256"]);
    assert_eq!(item["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(locked["from"], format!("{}/MM/HB/jgl011.tar.gz", server.base()));
}

#[test]
fn a_cut_download_goes_on_where_it_ended() {
    let whole = archive("tols90", &market(90, 90, 1_746));
    let server = Server::start(Answer::CutAfter(1_000));
    server.put("Bai", "tols90", whole.clone());
    let folder = Folder::new();

    // Each connection brings a thousand bytes.
    let done = fetch(&folder, &server, "tols90", &[]);

    assert_eq!(done.code, 0, "{done:?}");
    let ranges = server.requests();
    assert_eq!(ranges.len(), whole.len().div_ceil(1_000));
    assert_eq!(ranges[..3], [None, Some(1_000), Some(2_000)]);

    // An attempt of another process left some of it, and what it was unpacking.
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path().join("c/flexible")).unwrap();
    folder.file("c/flexible/.tols90.a1b2c3.mtx.gz", "half");
    folder.file("c/flexible/tols90.tar.gz.partial", &whole[..700]);
    let server = Server::start(Answer::Resumable);
    server.put("Bai", "tols90", whole);
    let done = fetch(&folder, &server, "tols90", &["--json"]).json();
    assert_eq!(done["matrices"][0]["status"], "resumed");
    assert_eq!(server.requests(), [Some(700)]);
    assert_eq!(tree(&folder), ["corpus.lock", "tols90.mtx.gz"]);
}

#[test]
fn a_server_without_ranges_sends_all_again() {
    let whole = archive("tols90", &market(90, 90, 1_746));
    let server = Server::start(Answer::NoRanges);
    server.put("Bai", "tols90", whole.clone());
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path().join("c/flexible")).unwrap();
    folder.file("c/flexible/tols90.tar.gz.partial", &whole[..700]);

    let done = fetch(&folder, &server, "tols90", &[]);

    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(server.requests(), [Some(700)]);
}

#[test]
fn what_another_file_left_is_thrown_away() {
    let whole = archive("tols90", &market(90, 90, 1_746));
    for left in [vec![1; 700], vec![1; whole.len()], vec![1; whole.len() + 5]] {
        let server = Server::start(Answer::Resumable);
        server.put("Bai", "tols90", whole.clone());
        let folder = Folder::new();
        std::fs::create_dir_all(folder.path().join("c/flexible")).unwrap();
        folder.file("c/flexible/tols90.tar.gz.partial", &left);

        let done = fetch(&folder, &server, "tols90", &[]);

        assert_eq!(done.code, 0, "{} bytes: {done:?}", left.len());
        assert_eq!(server.requests(), [Some(left.len() as u64), None]);
    }
}

#[test]
fn a_connection_that_brings_nothing_is_given_up() {
    let whole = archive("tols90", &market(90, 90, 1_746));
    let expected = format!("ended after 0 of {} bytes; run again", whole.len());
    let server = Server::start(Answer::CutAfter(0));
    server.put("Bai", "tols90", whole);
    let folder = Folder::new();

    fetch(&folder, &server, "tols90", &[]).assert_bad_input(&[&expected]);
    assert_eq!(server.requests().len(), 3);
    assert!(tree(&folder).is_empty());
}

#[test]
fn what_came_before_the_server_went_is_kept() {
    let whole = archive("tols90", &market(90, 90, 1_746));
    let server = Server::start(Answer::Once(1_000));
    server.put("Bai", "tols90", whole.clone());
    let folder = Folder::new();

    fetch(&folder, &server, "tols90", &[]).assert_bad_input(&["cannot be reached"]);

    assert_eq!(tree(&folder), ["tols90.tar.gz.partial"]);
    let server = Server::start(Answer::Resumable);
    server.put("Bai", "tols90", whole);
    assert_eq!(fetch(&folder, &server, "tols90", &[]).code, 0);
    assert_eq!(server.requests(), [Some(1_000)]);
}

#[test]
fn a_server_that_does_not_go_on_is_asked_four_times() {
    let whole = archive("tols90", &market(90, 90, 1_746));
    let expected = format!("ended after 1000 of {} bytes; run again", whole.len());
    let server = Server::start(Answer::NoRangesCutAfter(1_000));
    server.put("Bai", "tols90", whole);
    let folder = Folder::new();

    fetch(&folder, &server, "tols90", &[]).assert_bad_input(&[&expected]);

    // It ignores the range once; then there is nothing to go on with.
    assert_eq!(server.requests(), [None, Some(1_000), None, None]);
}

#[test]
fn a_download_takes_no_longer_than_it_may() {
    let server = Server::start(Answer::Drip);
    server.put("Bai", "tols90", archive("tols90", &market(90, 90, 1_746)));
    server.put("HB", "jgl011", archive("jgl011", &market(11, 11, 76)));
    let folder = Folder::new();
    let begin = std::time::Instant::now();

    let slow = fetch(&folder, &server, "tols90,jgl011", &["--timeout", "2"]);

    slow.assert_bad_input(&[
        "tols90.tar.gz: expected the archive within 2 s (--timeout), found ",
        "run again",
    ]);
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    // The other one would be as slow, and what came is gone on with.
    assert_eq!((server.requests().len(), tree(&folder)), (1, vec!["tols90.tar.gz.partial".into()]));
    fetch(&folder, &server, "tols90", &["--timeout", "0"]).assert_bad_input(&["--timeout"]);
}

#[test]
fn more_bytes_than_a_matrix_can_have_are_not_taken() {
    // 1 MiB and 128 bytes for each of 1,746 entries.
    let most = (1 << 20) + 128 * 1_746;
    let declared = 1u64 << 62;
    for (answer, found) in
        [(Answer::Endless, "more".to_owned()), (Answer::Declares(declared), declared.to_string())]
    {
        let server = Server::start(answer);
        server.put("Bai", "tols90", Vec::new());
        let folder = Folder::new();

        let refused = fetch(&folder, &server, "tols90", &[]);

        let line = format!("tols90.tar.gz: expected at most {most} bytes, found {found}\n");
        refused.assert_bad_input(&[&line]);
        assert_eq!((server.requests().len(), tree(&folder).len()), (1, 0), "{:?}", tree(&folder));
    }
}

#[test]
fn archives_that_unpack_to_far_more_than_a_matrix_are_refused() {
    let mut tar =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(64 << 20);
    header.set_cksum();
    tar.append_data(&mut header, "jgl011/other.mtx", std::io::repeat(0).take(64 << 20)).unwrap();
    let packed = tar.into_inner().unwrap().finish().unwrap();
    let server = Server::start(Answer::Resumable);
    server.put("HB", "jgl011", packed);
    let folder = Folder::new();

    let refused = fetch(&folder, &server, "jgl011", &[]);

    refused.assert_bad_input(&["jgl011.tar.gz", "far more than a matrix of its size"]);
    assert!(tree(&folder).is_empty(), "{:?}", tree(&folder));
}

#[test]
fn a_matrix_is_compared_whichever_way_it_comes() {
    let changed = || {
        let text = String::from_utf8(market(11, 11, 76)).unwrap();
        text.replacen(&format!(" {}\n", 2.0f64.sqrt()), " 1.5\n", 1).into_bytes()
    };
    assert_ne!(changed(), market(11, 11, 76));
    let server = Server::start(Answer::Resumable);
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    let copy = |content: Vec<u8>| {
        folder.file("mine/jgl011.mtx", content);
        corpus(folder.path(), &["fetch", "--into", "c", "--from", "mine", "--list", "jgl011"])
    };
    let forget = || {
        for name in ["c/flexible/jgl011.mtx", "c/flexible/jgl011.mtx.gz"] {
            let _ = std::fs::remove_file(folder.path().join(name));
        }
    };
    let locked = || std::fs::read(folder.path().join("c/corpus.lock")).unwrap();

    // First from a folder, then another matrix from the server.
    assert_eq!(copy(market(11, 11, 76)).code, 0);
    let before = locked();
    forget();
    server.put("HB", "jgl011", archive("jgl011", &changed()));
    let refused = ["jgl011.tar.gz: expected SHA-256", "corpus.lock"];
    fetch(&folder, &server, "jgl011", &[]).assert_bad_input(&refused);
    assert_eq!((locked(), tree(&folder)), (before, vec!["corpus.lock".to_owned()]));

    // The same matrix from the server, then another one from the folder, and the same again.
    server.put("HB", "jgl011", archive("jgl011", &market(11, 11, 76)));
    assert_eq!(fetch(&folder, &server, "jgl011", &[]).code, 0);
    forget();
    copy(changed()).assert_bad_input(&["mine/jgl011.mtx: expected SHA-256", "corpus.lock"]);
    let mut commented = market(11, 11, 76);
    commented.extend(b"% of another day\n");
    assert_eq!(copy(commented).code, 0);

    // The archive stays locked, too.
    forget();
    let mut repacked = market(11, 11, 76);
    repacked.extend(b"% packed again\n");
    server.put("HB", "jgl011", archive("jgl011", &repacked));
    fetch(&folder, &server, "jgl011", &[]).assert_bad_input(&refused);
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_no_sources() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    let take =
        || corpus(folder.path(), &["fetch", "--into", "c", "--from", "mine", "--list", "jgl011"]);
    let made =
        std::process::Command::new("mkfifo").arg(folder.path().join("mine/jgl011.mtx")).status();
    assert!(made.is_ok_and(|status| status.success()));
    take().assert_bad_input(&["mine/jgl011.mtx: is a pipe or a device"]);
    std::fs::remove_file(folder.path().join("mine/jgl011.mtx")).unwrap();
    for name in ["mine/jgl011.mtx", "mine/jgl011.tar.gz"] {
        let path = folder.path().join(name);
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        take().assert_bad_input(&[name, "is a pipe or a device"]);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn other_dimensions_than_published_are_refused() {
    let server = Server::start(Answer::Resumable);
    let folder = Folder::new();
    let refused = |rows, columns, nonzeros, part: &str| {
        server.put("HB", "jgl011", archive("jgl011", &market(rows, columns, nonzeros)));
        fetch(&folder, &server, "jgl011", &[]).assert_bad_input(&["HB/jgl011: ", part]);
        assert!(tree(&folder).is_empty(), "{:?}", tree(&folder));
    };

    refused(12, 11, 76, "expected 11 rows, found 12");
    refused(11, 10, 76, "expected 11 columns, found 10");
    refused(11, 11, 75, "expected 76 nonzeros, found 75");
}

#[test]
fn both_triangles_are_counted_and_explicit_zeros_are_not() {
    // 66 x 66, all places: the lower triangle stands in the file.
    let mut text = "%%MatrixMarket matrix coordinate real symmetric\n66 66 2211\n".to_owned();
    for row in 1..=66 {
        (1..=row).for_each(|column| text += &format!("{row} {column} 2.5\n"));
    }
    let server = Server::start(Answer::Resumable);
    let folder = Folder::new();
    let zero = text.replace("66 66 2.5", "66 66 0");
    server.put("HB", "bcsstk02", archive("bcsstk02", zero.as_bytes()));
    let refused = fetch(&folder, &server, "bcsstk02", &[]);
    refused.assert_bad_input(&["HB/bcsstk02: expected 4356 nonzeros, found 4355"]);
    server.put("HB", "bcsstk02", archive("bcsstk02", text.as_bytes()));
    assert_eq!(fetch(&folder, &server, "bcsstk02", &[]).code, 0);
    let explicit = with_zeros(989, 3_518, 19);
    server.put("HB", "west0989", archive("west0989", &explicit));
    let done = fetch(&folder, &server, "west0989", &["--json"]).json();
    assert_eq!(done["matrices"][0]["explicit_zeros"], 19);
    assert_eq!(done["matrices"][0]["status"], "fetched");
}

#[test]
fn archives_that_are_not_whole_are_refused() {
    let server = Server::start(Answer::Resumable);
    let whole = archive("tols90", &market(90, 90, 1_746));
    let folder = Folder::new();
    let refused = |bytes: &[u8], parts: &[&str]| {
        server.put("Bai", "tols90", bytes.to_vec());
        fetch(&folder, &server, "tols90", &[]).assert_bad_input(parts);
        assert!(tree(&folder).is_empty(), "{:?}", tree(&folder));
    };

    let named = "tols90.tar.gz: expected a whole archive with tols90.mtx, found ";
    refused(&whole[..whole.len() / 2], &[named]);
    refused(&whole[..whole.len() - 4], &[named]);
    refused(b"<html>", &[named]);
    refused(&archive("tols91", b"x"), &[named, "no such file in it"]);
    refused(&archive("tols90", &vec![b'%'; 2 << 20]), &[named, "bytes of it, above"]);
    refused(&archive("tols90", b"no matrix"), &["tols90.mtx.gz:1"]);
}

#[test]
fn a_download_that_changed_is_refused_until_its_entry_goes() {
    let server = Server::start(Answer::Resumable);
    server.put("HB", "jgl011", archive("jgl011", &market(11, 11, 76)));
    let folder = Folder::new();
    assert_eq!(fetch(&folder, &server, "jgl011", &[]).code, 0);
    let file = folder.path().join("c/flexible/jgl011.mtx.gz");
    let before = std::fs::read(folder.path().join("c/corpus.lock")).unwrap();

    // The file is not what it was.
    let kept = std::fs::read(&file).unwrap();
    folder.file("c/flexible/jgl011.mtx.gz", "x");
    let changed = ["jgl011.mtx.gz: expected SHA-256", "corpus.lock"];
    fetch(&folder, &server, "jgl011", &[]).assert_bad_input(&changed);
    let listed =
        corpus(folder.path(), &["list", "--list", "jgl011", "--into", "c", "--json"]).json();
    assert_eq!(
        (&listed["matrices"][0]["status"], &listed["there"]),
        (&"changed".into(), &0.into())
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"x");

    // The server has another file.
    std::fs::remove_file(&file).unwrap();
    let mut other = market(11, 11, 76);
    other.extend(b"% of another day\n");
    server.put("HB", "jgl011", archive("jgl011", &other));
    let changed = ["jgl011.tar.gz: expected SHA-256", "corpus.lock"];
    fetch(&folder, &server, "jgl011", &[]).assert_bad_input(&changed);
    assert_eq!(std::fs::read(folder.path().join("c/corpus.lock")).unwrap(), before);
    assert!(!file.exists());

    // The same archive again.
    server.put("HB", "jgl011", archive("jgl011", &market(11, 11, 76)));
    assert_eq!(fetch(&folder, &server, "jgl011", &[]).code, 0);
    assert_eq!(std::fs::read(&file).unwrap(), kept);
}

#[test]
fn one_matrix_that_fails_does_not_keep_others_from_coming() {
    let server = Server::start(Answer::Resumable);
    server.put("HB", "jgl011", archive("jgl011", &market(11, 11, 76)));
    let folder = Folder::new();

    let done = fetch(&folder, &server, "jgl011,ck656,tols90", &["--json"]);

    assert_eq!(done.code, 2, "{done:?}");
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    let first =
        format!("{}/MM/Bai/ck656.tar.gz: expected status 200 or 206, found 404", server.base());
    assert!(done.stderr.contains(&format!("2 matrices failed, the first: {first}")), "{done:?}");
    let object = done.json();
    let statuses: Vec<&str> =
        (0..3).map(|k| object["matrices"][k]["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["failed", "failed", "fetched"]);
    assert_eq!(object["matrices"][0]["error"], first);
    assert_eq!(tree(&folder), ["corpus.lock", "jgl011.mtx.gz"]);
}

#[test]
fn without_network_there_is_one_line() {
    let folder = Folder::new();
    let base = format!("http://127.0.0.1:{}", closed_port());
    let fetch = |base: &str| {
        let args = ["fetch", "--list", "flexible", "--into", "c", "--base", base];
        corpus(folder.path(), &args)
    };

    fetch(&base).assert_bad_input(&[&base, "cannot be reached", "--from FOLDER"]);
    fetch("somewhere").assert_bad_input(&["somewhere/MM/Bai/ck656.tar.gz is no address"]);
    assert!(tree(&folder).is_empty(), "{:?}", tree(&folder));
}

#[test]
fn of_complex_matrices_the_real_parts_are_kept() {
    let mut text =
        "%%MatrixMarket matrix coordinate complex general\n49152 49152 1916928\n".to_owned();
    for row in 1..=49_152 {
        (0..39).for_each(|k| text += &format!("{row} {} {k} 1\n", (row + k) % 49_152 + 1));
    }
    let server = Server::start(Answer::Resumable);
    server.put("QCD", "conf5_4-8x8-05", archive("conf5_4-8x8-05", text.as_bytes()));
    let folder = Folder::new();

    let done = fetch(&folder, &server, "conf5_4-8x8-05", &[]);

    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("real parts of a complex matrix"), "{}", done.stdout);
    let info = folder.run(&["info", "c/single/conf5_4-8x8-05.mtx.gz", "--json"]).json();
    assert_eq!(info["nnz"], 1_916_928);
    assert_eq!(info["items"][0]["explicit_zeros"], 49_152);
}

#[test]
fn folders_are_taken_without_network() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path().join("mine/deeper")).unwrap();
    folder.file("mine/deeper/jgl011.mtx", market(11, 11, 76));
    folder.file("mine/tols90.tar.gz", archive("tols90", &market(90, 90, 1_746)));
    let take = |more: &[&str]| {
        corpus(
            folder.path(),
            &[&["fetch", "--into", "c", "--from", "mine", "--list"], more].concat(),
        )
    };

    let done = take(&["jgl011,tols90,ck656,dense2", "--json"]);

    let object = done.json();
    let statuses: Vec<&str> =
        (0..4).map(|k| object["matrices"][k]["status"].as_str().unwrap()).collect();
    assert_eq!((done.code, statuses), (0, vec!["missing", "copied", "copied", "made"]));
    assert_eq!(tree(&folder), ["corpus.lock", "dense2.mtx.gz", "jgl011.mtx", "tols90.mtx.gz"]);
    take(&["ck656"]).assert_bad_input(&["mine: expected files like ck656.mtx, found none"]);
    folder.file("mine/ck656.mtx", market(656, 656, 3_883));
    take(&["ck656"]).assert_bad_input(&["Bai/ck656: expected 3884 nonzeros, found 3883"]);
    let nowhere = ["fetch", "--into", "c", "--from", "nowhere"];
    corpus(folder.path(), &nowhere).assert_bad_input(&["nowhere", "No such file"]);

    let listed = corpus(folder.path(), &["list", "--into", "c", "--list", "flexible"]);
    assert!(listed.stdout.ends_with("2 of 32 matrices in c\n"), "{}", listed.stdout);
    let line = listed.stdout.lines().find(|line| line.starts_with("FIDAP/ex25 ")).unwrap();
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>()[1..],
        ["848", "848", "24369", "missing", "flexible"]
    );
}

#[test]
fn bad_names_places_and_lock_files_are_refused() {
    run(&["corpus", "fetch", "--list", "anzt"])
        .assert_bad_input(&["anzt", "flexible, bell-garland"]);
    run(&["corpus", "list", "--list", "HB/cant"]).assert_bad_input(&["HB/cant is neither"]);
    run(&["corpus"]).assert_bad_input(&["corpus"]);
    let folder = Folder::new();
    let both = ["fetch", "--from", ".", "--base", "http://127.0.0.1"];
    corpus(folder.path(), &both).assert_bad_input(&["--base"]);
    std::fs::create_dir(folder.path().join("c")).unwrap();
    folder.file("c/corpus.lock", "{}");
    let list = ["list", "--into", "c"];
    corpus(folder.path(), &list).assert_bad_input(&["c/corpus.lock: expected a lock file"]);
    folder.file("file", "");
    let into = ["fetch", "--into", "file/c", "--base", "http://127.0.0.1:1", "--list", "jgl011"];
    corpus(folder.path(), &into).assert_bad_input(&["file/c"]);
}

#[test]
fn the_matrices_of_the_sources_that_are_here_pass_the_checks() {
    let Some(shared) = sparsebatch_testing::shared_dir() else { return };
    let folder = Folder::new();
    let matrices = shared.join("matrices").canonicalize().unwrap();
    let from = ["fetch", "--into", "c", "--json", "--from", matrices.to_str().unwrap()];

    let done = corpus(folder.path(), &from);

    assert_eq!(done.code, 0, "{}", done.stderr);
    let object = done.json();
    let copied = |part: &str| {
        let items = object["matrices"].as_array().unwrap().iter();
        let copied = items.filter(|item| item["status"] == "copied");
        copied.filter(|item| item["file"].as_str().unwrap().contains(part)).count()
    };
    assert_eq!((copied("c/flexible/"), copied("c/single/")), (24, 2));
}
