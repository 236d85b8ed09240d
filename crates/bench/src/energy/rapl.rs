//! The energy counters of a processor: RAPL, as Linux shows it in `/sys/class/powercap`.

use std::path::{Path, PathBuf};

use super::Meter;

/// The folder of the counters.
pub(crate) const POWERCAP: &str = "/sys/class/powercap";

/// The packages of a processor. A package's counter covers its cores and caches, usually not the
/// memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rapl {
    zones: Vec<Zone>,
}

#[derive(Clone, Debug, PartialEq)]
struct Zone {
    counter: PathBuf,
    /// Microjoules at which the counter wraps around to 0.
    range: u64,
}

/// Whether a folder is that of a package, such as `intel-rapl:0`, rather than of a part of one,
/// such as `intel-rapl:0:1`, or of another interface to it.
fn is_package(name: &str) -> bool {
    let number = name.strip_prefix("intel-rapl:");
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn number(path: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => "; only root may read it by default",
            _ => "",
        };
        format!("{}: {error}{hint}", path.display())
    })?;
    let text = text.trim();
    text.parse().map_err(|_| format!("{}: expected a number, found {text:?}", path.display()))
}

/// Microjoules between two readings of a counter that wraps around at `range`.
fn difference(before: u64, after: u64, range: u64) -> u64 {
    if after >= before { after - before } else { range.saturating_sub(before) + after }
}

impl Rapl {
    /// Finds the packages below a folder and checks that each can be read.
    ///
    /// # Errors
    /// The reason why there is none, in one sentence.
    pub(crate) fn find(folder: &Path) -> Result<Self, String> {
        let absent = || format!("no intel-rapl counter in {}", folder.display());
        let mut zones = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|_| absent())?.flatten() {
            if !is_package(&entry.file_name().to_string_lossy()) {
                continue;
            }
            let counter = entry.path().join("energy_uj");
            number(&counter)?;
            let range = number(&entry.path().join("max_energy_range_uj"))?;
            zones.push(Zone { counter, range });
        }
        zones.sort_by(|a, b| a.counter.cmp(&b.counter));
        if zones.is_empty() { Err(absent()) } else { Ok(Self { zones }) }
    }
}

impl Meter for Rapl {
    fn read(&self) -> Result<Vec<u64>, String> {
        self.zones.iter().map(|zone| number(&zone.counter)).collect()
    }

    fn joules(&self, before: &[u64], after: &[u64]) -> f64 {
        let zones = self.zones.iter().zip(before.iter().zip(after));
        let microjoules = zones.map(|(zone, (&from, &to))| difference(from, to, zone.range));
        1e-6 * microjoules.map(|count| count as f64).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like the system's, with the given counters.
    fn powercap(zones: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, energy) in zones {
            let zone = folder.path().join(name);
            std::fs::create_dir(&zone).unwrap();
            std::fs::write(zone.join("energy_uj"), energy).unwrap();
            std::fs::write(zone.join("max_energy_range_uj"), "1000000\n").unwrap();
        }
        folder
    }

    #[test]
    fn packages_are_added_and_their_parts_are_not() {
        let folder = powercap(&[
            ("intel-rapl:0", "100\n"),
            ("intel-rapl:0:0", "90\n"),
            ("intel-rapl:1", "200\n"),
            ("intel-rapl-mmio:0", "100\n"),
            ("dtpm", "1\n"),
        ]);
        let rapl = Rapl::find(folder.path()).unwrap();

        let before = rapl.read().unwrap();
        std::fs::write(folder.path().join("intel-rapl:0/energy_uj"), "500100\n").unwrap();
        let after = rapl.read().unwrap();

        assert_eq!((before.as_slice(), after.as_slice()), (&[100, 200][..], &[500_100, 200][..]));
        assert_eq!(rapl.joules(&before, &after), 0.5);
    }

    #[test]
    fn counters_begin_again_after_their_range() {
        assert_eq!(difference(10, 15, 100), 5);
        assert_eq!(difference(90, 15, 100), 25);
        assert_eq!(difference(7, 7, 100), 0);
        let folder = powercap(&[("intel-rapl:0", "1")]);
        let rapl = Rapl::find(folder.path()).unwrap();

        assert!((rapl.joules(&[999_999], &[1]) - 2e-6).abs() < 1e-15);
    }

    #[test]
    fn why_nothing_can_be_read_is_one_sentence() {
        let found = |folder: &tempfile::TempDir| Rapl::find(folder.path()).unwrap_err();

        let none = powercap(&[("intel-rapl", "1")]);
        assert!(found(&none).starts_with("no intel-rapl counter in "), "{}", found(&none));
        let text = powercap(&[("intel-rapl:0", "much")]);
        assert!(found(&text).ends_with("expected a number, found \"much\""), "{}", found(&text));
        let gone = powercap(&[("intel-rapl:0", "1")]);
        std::fs::remove_file(gone.path().join("intel-rapl:0/energy_uj")).unwrap();
        assert!(found(&gone).contains("intel-rapl:0/energy_uj: No such file"), "{}", found(&gone));
        assert!(Rapl::find(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn a_counter_that_is_lost_on_the_way_says_so() {
        let folder = powercap(&[("intel-rapl:0", "1")]);
        let rapl = Rapl::find(folder.path()).unwrap();
        std::fs::remove_dir_all(folder.path().join("intel-rapl:0")).unwrap();

        assert!(rapl.read().unwrap_err().contains("energy_uj"));
    }
}
