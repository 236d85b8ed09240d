//! How much memory a process may still take, and how much of it readers may use.

use crate::FormatError;

/// Without a limit by the caller, up to this many bytes are allowed without asking the system.
const UNASKED: u128 = 16 << 20;
/// The least margin of the available memory that is left unused.
const LEAST_MARGIN: u64 = 64 << 20;

/// The most memory that a reader may take.
///
/// Readers estimate the memory they need and compare it with the limit before they take it: an
/// estimate beyond the limit is [`FormatError::MemoryLimit`]. An allocation that the system refuses
/// all the same is [`FormatError::Memory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes allowed in all; `None` for what is available.
    most: Option<u64>,
    /// Bytes already taken that count towards `most`.
    held: u64,
}

impl MemoryLimit {
    /// The memory available at the time of each check, less a margin of a sixteenth and at least 64
    /// MiB; no limit where the system does not tell what is available.
    pub fn available() -> Self {
        Self::default()
    }

    /// A limit of `most` bytes in all.
    pub fn bytes(most: u64) -> Self {
        Self { most: Some(most), held: 0 }
    }

    /// The same limit with `held` more bytes already taken. They do not change a limit by the
    /// available memory, from which the system has subtracted them.
    pub fn with_held(self, held: u64) -> Self {
        Self { held: self.held.saturating_add(held), ..self }
    }

    /// Refuses to take `needed` more bytes where that exceeds the limit. `what` names what the
    /// bytes are for.
    ///
    /// # Errors
    /// [`FormatError::MemoryLimit`].
    pub fn check(self, what: impl FnOnce() -> String, needed: u128) -> Result<(), FormatError> {
        let (bytes, limit) = match self.most {
            Some(most) => (needed.saturating_add(u128::from(self.held)), Some(most)),
            None if needed <= UNASKED => return Ok(()),
            None => (needed, available_memory().map(less_margin)),
        };
        match limit {
            Some(limit) if bytes > u128::from(limit) => {
                Err(FormatError::MemoryLimit { what: what(), bytes, limit })
            }
            _ => Ok(()),
        }
    }
}

fn less_margin(available: u64) -> u64 {
    available.saturating_sub(LEAST_MARGIN.max(available / 16))
}

/// Bytes that this process may still take, where the system reports them: the least of the
/// available memory, the memory left in its control group, and the address space left under its
/// limit (`ulimit -v`).
pub fn available_memory() -> Option<u64> {
    [system_memory(), group_memory(), address_space()].into_iter().flatten().min()
}

/// `MemAvailable` of Linux.
fn system_memory() -> Option<u64> {
    field("/proc/meminfo", "MemAvailable:")
}

/// The bytes given by a line such as `MemAvailable: 1234 kB` in a system file.
fn field(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The memory left in the control group of a container: version 2, else version 1. Inactive file
/// pages, which the system would give up first, do not count as used.
fn group_memory() -> Option<u64> {
    let left = |most: &str, used: &str, stat: &str, file_pages: &str| {
        let number = |file: &str| {
            let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let (most, used) = (number(most)?, number(used)?);
        let stat = std::fs::read_to_string(format!("/sys/fs/cgroup/{stat}")).unwrap_or_default();
        let file_pages = stat.lines().find_map(|line| line.strip_prefix(file_pages));
        let file_pages = file_pages.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
        Some(most.saturating_sub(used.saturating_sub(file_pages)))
    };
    left("memory.max", "memory.current", "memory.stat", "inactive_file ").or_else(|| {
        left(
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file ",
        )
    })
}

/// The soft limit of the address space less what is mapped; `None` where it is unlimited.
fn address_space() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(field("/proc/self/status", "VmSize:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_counts_what_is_held() {
        let limit = MemoryLimit::bytes(100).with_held(30);
        let what = || "this".to_owned();

        assert!(limit.check(what, 70).is_ok());
        let error = limit.check(what, 71).unwrap_err().to_string();
        assert_eq!(error, "this would take 101 bytes of memory, expected at most 100");
    }

    #[test]
    fn what_no_machine_has_is_refused_by_default() {
        let available = MemoryLimit::available().with_held(u64::MAX);

        assert!(available.check(String::new, UNASKED).is_ok());
        if available_memory().is_some() {
            assert!(available.check(String::new, 1 << 63).is_err());
        }
    }

    #[test]
    fn a_margin_is_left() {
        assert_eq!(less_margin(64 << 20), 0);
        assert_eq!(less_margin(128 << 20), 64 << 20);
        assert_eq!(less_margin(16 << 30), 15 << 30);
    }
}
