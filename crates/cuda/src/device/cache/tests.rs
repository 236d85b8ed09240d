use std::thread;

use tempfile::TempDir;

use super::*;
use crate::device::nvrtc::CompiledKernel;
use crate::device::resources::Resources;

const VERSION: CudaVersion = CudaVersion { major: 13, minor: 0 };
const PROGRAM: Program<'static> = Program {
    name: "a.cu",
    source: "source",
    expressions: &["a<double>", "a<float>"],
    architecture: "sm_90",
    options: &["-DB=1"],
};

fn compiled(image: &[u8]) -> Compiled {
    let kernel = |expression: &str, resources| CompiledKernel {
        expression: expression.to_owned(),
        symbol: format!("_Z{expression}"),
        resources,
    };
    let used = Resources { registers: 32, shared_bytes: 512, ..Resources::default() };
    Compiled {
        image: image.to_vec(),
        kernels: vec![kernel("a<double>", Some(used)), kernel("a<float>", None)],
        log: "ptxas info\n".to_owned(),
    }
}

fn key(source: &str) -> CacheKey {
    CacheKey::new(&Program { source, ..PROGRAM }, VERSION)
}

fn cache() -> (TempDir, DiskCache) {
    let root = tempfile::tempdir().unwrap();
    let cache = DiskCache::in_folder(root.path().join("deep/sparsebatch"));
    (root, cache)
}

#[test]
fn stored_programs_come_back_whole() {
    let (_root, cache) = cache();
    let program = compiled(&[0, 1, 255]);

    assert_eq!(cache.load(key("a")), None);
    assert!(cache.store(key("a"), &program));

    assert_eq!(cache.load(key("a")), Some(program));
    assert_eq!(cache.load(key("b")), None);
}

#[test]
fn keys_differ_by_everything_that_the_code_depends_on() {
    let of = |program: Program<'_>| CacheKey::new(&program, VERSION);
    let keys = [
        of(PROGRAM),
        of(Program { source: "source ", ..PROGRAM }),
        of(Program { architecture: "sm_100", ..PROGRAM }),
        of(Program { options: &["-DB=1", ""], ..PROGRAM }),
        of(Program { options: &[], expressions: &["-DB=1", "a<double>", "a<float>"], ..PROGRAM }),
        of(Program { expressions: &["a<double>"], ..PROGRAM }),
        of(Program { expressions: &["a<double>a<float>"], ..PROGRAM }),
        CacheKey::new(&PROGRAM, CudaVersion { minor: 1, ..VERSION }),
    ];

    for (i, a) in keys.iter().enumerate() {
        assert!(keys[..i].iter().all(|b| a != b), "key {i}");
    }
}

#[test]
fn the_name_of_the_source_is_not_part_of_the_key() {
    assert_eq!(CacheKey::new(&Program { name: "b.cu", ..PROGRAM }, VERSION), key("source"));
}

#[test]
fn a_changed_byte_anywhere_makes_a_file_absent_and_removes_it() {
    let (_root, cache) = cache();
    let whole = entry::encode(&compiled(&[7; 20]), key("a"));
    cache.store(key("a"), &compiled(&[7; 20]));
    let path = cache.folder().unwrap().join(key("a").file_name());

    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(&path, &changed).unwrap();

        assert_eq!(cache.load(key("a")), None, "byte {at}");
        assert!(!path.exists(), "byte {at}");
    }
}

#[test]
fn a_file_cut_off_anywhere_is_absent() {
    let whole = entry::encode(&compiled(&[7; 20]), key("a"));

    for len in 0..whole.len() {
        assert_eq!(entry::decode(&whole[..len], key("a")), None, "{len} bytes");
    }
    assert_eq!(entry::decode(&[whole.as_slice(), &[0]].concat(), key("a")), None);
    assert!(entry::decode(&whole, key("a")).is_some());
}

#[test]
fn a_file_under_the_name_of_another_is_absent() {
    let (_root, cache) = cache();
    cache.store(key("a"), &compiled(&[1]));
    let folder = cache.folder().unwrap();

    fs::rename(folder.join(key("a").file_name()), folder.join(key("b").file_name())).unwrap();

    assert_eq!(cache.load(key("b")), None);
}

#[test]
fn writers_and_readers_at_once_see_whole_programs_only() {
    let (_root, cache) = cache();
    let program = compiled(&[9; 100_000]);

    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert!(cache.store(key("a"), &program));
                    assert_eq!(cache.load(key("a")).as_ref(), Some(&program));
                }
            });
        }
    });

    let left: Vec<_> = cache.folder().unwrap().read_dir().unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn the_oldest_programs_go_beyond_the_limit() {
    let (_root, mut cache) = cache();
    let folder = cache.folder().unwrap().to_path_buf();
    let sources = ["a", "b", "c"];
    for (age, source) in sources.iter().enumerate() {
        cache.store(key(source), &compiled(&[0; 1000]));
        let file = File::options().write(true).open(folder.join(key(source).file_name())).unwrap();
        // The first is the oldest.
        let then = SystemTime::now() - Duration::from_secs(100 - age as u64);
        file.set_modified(then).unwrap();
    }
    let bytes = fs::metadata(folder.join(key("a").file_name())).unwrap().len();

    cache.limit_bytes = 2 * bytes + bytes / 2;
    cache.store(key("d"), &compiled(&[0; 1000]));

    let found: Vec<bool> =
        ["a", "b", "c", "d"].iter().map(|source| cache.load(key(source)).is_some()).collect();
    assert_eq!(found, [false, false, true, true]);
}

#[test]
fn temporary_files_left_behind_are_removed_once_old() {
    let (_root, cache) = cache();
    cache.store(key("a"), &compiled(&[1]));
    let folder = cache.folder().unwrap();
    let temporary = |count: u32| folder.join(format!("{}.1.{count}.tmp", key("a").file_name()));
    let (old, new) = (temporary(0), temporary(1));
    fs::write(&new, "").unwrap();
    fs::write(&old, "").unwrap();
    age(&old);

    cache.store(key("b"), &compiled(&[1]));

    assert!(!old.exists());
    assert!(new.exists());
}

/// Makes a file so old that its writer is taken for dead.
fn age(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
}

#[test]
fn files_that_the_cache_did_not_name_stay() {
    let (_root, mut cache) = cache();
    let folder = cache.folder().unwrap().to_path_buf();
    fs::create_dir_all(&folder).unwrap();
    let hash = key("a").file_name();
    let names = [
        "notes.tmp".to_owned(),
        "mine.kernel".to_owned(),
        format!("x{hash}"),
        format!("{hash}.tmp"),
        format!("{hash}.x.0.tmp"),
        hash.to_uppercase(),
    ];
    for name in &names {
        fs::write(folder.join(name), vec![0; 5000]).unwrap();
        age(&folder.join(name));
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.join("notes.tmp"), folder.join(key("l").file_name()))
        .unwrap();
    cache.limit_bytes = 1;

    assert!(cache.store(key("b"), &compiled(&[1])));

    for name in &names {
        assert!(folder.join(name).exists(), "{name}");
    }
    assert!(!folder.join(key("b").file_name()).exists(), "beyond the limit");
}

#[cfg(unix)]
#[test]
fn programs_that_somebody_else_could_have_written_are_absent_and_stay() {
    use std::os::unix::fs::PermissionsExt;
    let (root, cache) = cache();
    assert!(cache.store(key("a"), &compiled(&[1])));
    let path = cache.folder().unwrap().join(key("a").file_name());
    let change = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();

    for mode in [0o620, 0o602, 0o666] {
        change(mode);
        assert_eq!(cache.load(key("a")), None, "{mode:o}");
    }
    change(0o644);
    assert!(cache.load(key("a")).is_some());
    // A link, although its target is a valid file.
    let elsewhere = root.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert_eq!(cache.load(key("a")), None);
    assert!(path.symlink_metadata().is_ok() && elsewhere.exists());
}

#[cfg(unix)]
#[test]
fn folders_and_files_of_somebody_else_are_not_used() {
    use std::os::unix::fs::chown;
    let (_root, cache) = cache();
    assert!(cache.store(key("a"), &compiled(&[1])));
    let folder = cache.folder().unwrap();
    let path = folder.join(key("a").file_name());
    if chown(&path, Some(4321), None).is_err() {
        println!("skipped: only root can give files away");
        return;
    }

    assert_eq!(cache.load(key("a")), None);
    chown(&path, Some(0), None).unwrap();
    assert!(cache.load(key("a")).is_some());
    chown(folder, Some(4321), None).unwrap();
    assert_eq!(cache.load(key("a")), None);
    assert!(!cache.store(key("b"), &compiled(&[1])));
    assert!(cache.refusal().unwrap().ends_with("belongs to somebody else"));
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let (_root, cache) = cache();
    assert!(cache.store(key("a"), &compiled(&[1])));
    let folder = cache.folder().unwrap();
    let change = |mode| fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();

    change(0o555);
    let found = (cache.refusal(), cache.load(key("a")).is_some());
    change(0o755);

    assert_eq!(found, (None, true));
}

#[test]
fn the_environment_chooses_the_folder() {
    let of = |set: &[(&str, &str)]| {
        DiskCache::from_variables(|name| {
            set.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into())
        })
    };
    let folder = |set: &[(&str, &str)]| of(set).folder().map(Path::to_path_buf).ok();

    let all = [("SPARSEBATCH_CACHE", "/c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
    assert_eq!(folder(&all), Some("/c".into()));
    assert_eq!(folder(&all[1..]), Some("/x/sparsebatch".into()));
    assert_eq!(folder(&all[2..]), Some("/h/.cache/sparsebatch".into()));
    assert_eq!(folder(&[("XDG_CACHE_HOME", "here"), ("HOME", "/h")]), folder(&all[2..]));
    assert_eq!(folder(&[("SPARSEBATCH_CACHE", ""), ("HOME", "/h")]), folder(&all[2..]));
    assert_eq!(of(&[("SPARSEBATCH_CACHE", "off")]).folder(), Err("SPARSEBATCH_CACHE is off"));
    assert!(of(&[]).folder().unwrap_err().contains("HOME"));
}

#[test]
fn a_cache_that_is_off_stores_nothing() {
    let cache = DiskCache::off("for a test");

    assert!(!cache.store(key("a"), &compiled(&[1])));
    assert_eq!(cache.load(key("a")), None);
}

#[test]
fn a_folder_that_cannot_be_made_stores_nothing() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();

    for folder in [file.clone(), file.join("below")] {
        let cache = DiskCache::in_folder(folder);

        assert!(!cache.store(key("a"), &compiled(&[1])));
        assert_eq!(cache.load(key("a")), None);
    }
}

#[cfg(unix)]
#[test]
fn folder_and_files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (_root, cache) = cache();
    cache.store(key("a"), &compiled(&[1]));
    let folder = cache.folder().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;

    assert_eq!(mode(folder), 0o700);
    assert_eq!(mode(&folder.join(key("a").file_name())), 0o600);
}

#[cfg(unix)]
#[test]
fn a_folder_that_others_can_write_to_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let (_root, cache) = cache();
    cache.store(key("a"), &compiled(&[1]));
    let folder = cache.folder().unwrap();

    for mode in [0o777, 0o775, 0o1777] {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();

        assert!(!cache.store(key("b"), &compiled(&[1])), "{mode:o}");
        assert_eq!(cache.load(key("a")), None, "{mode:o}");
        assert!(cache.refusal().unwrap().ends_with("may be written to by others"), "{mode:o}");
    }
}
