//! Structure-aware fuzzing with bolero: each input is a valid file (from a corpus that the test
//! writes) after a few mutations, so that most inputs pass the first checks of a reader.
//!
//! A run takes about two seconds; `BOLERO_RANDOM_TEST_TIME_MS` sets another time. A failure prints
//! the seed that repeats it (`BOLERO_RANDOM_SEED`). Targets are separate programs, since the memory
//! of the process is checked.

use std::error::Error;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bolero::produce;

/// Maximum memory that readers may use: 64 MiB.
pub const MEMORY: u64 = 64 << 20;

/// One change of a file: kind, position, length and value.
type Mutation = (u8, u16, u8, u8);

/// Eight-byte numbers at the limits of valid sizes.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 61,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// The range of the word or number at position `at`.
fn word(bytes: &[u8], at: usize) -> Range<usize> {
    let in_word = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-._".contains(byte);
    let before = bytes[..at].iter().rev().take_while(in_word).count();
    let after = bytes[at..].iter().take_while(in_word).count();
    at - before..at + after
}

fn mutate(bytes: &mut Vec<u8>, (kind, place, length, value): Mutation, tokens: &[&[u8]]) {
    let at = usize::from(place) % (bytes.len() + 1);
    let end = (at + usize::from(length) % 32).min(bytes.len());
    match kind % 12 {
        0 if at < bytes.len() => bytes[at] = value,
        1 if at < bytes.len() => bytes[at] ^= 1 << (value % 8),
        2 => bytes.insert(at, value),
        3 => drop(bytes.drain(at..end)),
        4 => bytes.truncate(at),
        5 => {
            let copy = bytes[at..end].to_vec();
            let to = usize::from(value) % (bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
        // More frequent than other kinds, since they mostly turn a valid file into a valid one.
        6 | 7 | 10 | 11 if !tokens.is_empty() => {
            let token = tokens[usize::from(value) % tokens.len()];
            let place = match kind % 12 {
                6 => at..end,
                _ if !bytes.contains(&0) => word(bytes, at),
                // In binary files the following bytes keep their positions.
                _ => at..(at + token.len()).min(bytes.len()),
            };
            bytes.splice(place, token.iter().copied());
        }
        8 if at + 8 <= bytes.len() => {
            let edge = EDGES[usize::from(value) % EDGES.len()];
            bytes[at..at + 8].copy_from_slice(&edge.to_le_bytes());
        }
        9 if at + 8 <= bytes.len() => {
            // Sizes in binary files are at multiples of eight.
            let at = at / 8 * 8;
            let edge = EDGES[usize::from(value) % EDGES.len()];
            bytes[at..at + 8].copy_from_slice(&edge.to_le_bytes());
        }
        _ => {}
    }
}

/// The peak resident memory of this process so far, in bytes; `None` if the system does not report
/// it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Asserts that the message of a reader's error is one line that names the file.
///
/// # Panics
/// When the message has several lines, or does not contain `name`.
pub fn assert_names(error: &dyn Error, name: &str) {
    let message = error.to_string();
    assert_eq!(message.lines().count(), 1, "{message:?}");
    assert!(message.contains(name), "{message:?} does not name {name}");
}

/// Calls `check` (which panics when a reader misbehaves and returns whether the input was accepted)
/// on mutations of `seeds`. The seeds themselves must be accepted, and memory must stay bounded.
///
/// # Panics
/// When a seed is refused, `check` panics, or the peak memory is 512 MiB or more.
pub fn run(name: &str, seeds: &[Vec<u8>], tokens: &[&[u8]], check: impl Fn(&[u8]) -> bool) {
    // After a panic the closure is not used again.
    let check = AssertUnwindSafe(check);
    let (runs, accepted) = (AtomicU64::new(0), AtomicU64::new(0));
    for (number, seed) in seeds.iter().enumerate() {
        assert!(check(seed), "seed {number} was refused");
    }
    bolero::check!()
        .with_test_time(Duration::from_secs(2))
        .with_generator((produce::<u8>(), produce::<Vec<Mutation>>().with().len(1usize..5)))
        .for_each(|(seed, mutations): &(u8, Vec<Mutation>)| {
            let mut bytes = seeds[usize::from(*seed) % seeds.len()].clone();
            for &mutation in mutations {
                mutate(&mut bytes, mutation, tokens);
            }
            runs.fetch_add(1, Ordering::Relaxed);
            if check(&bytes) {
                accepted.fetch_add(1, Ordering::Relaxed);
            }
        });
    let (runs, accepted) = (runs.into_inner(), accepted.into_inner());
    println!("fuzz {name}: {runs} inputs, {accepted} accepted");
    assert!(runs > 0);
    if let Some(peak) = peak_memory() {
        assert!(peak < 1 << 29, "{peak} bytes were used at the peak");
    }
}
