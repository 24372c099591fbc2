//! Checks, before a fit starts, that the available memory is large enough for it.
//!
//! A failed allocation ends the process. On systems that overcommit memory (Linux by default), the
//! allocation does not even fail; instead, the process is killed when it writes to the memory.
//! [`reserve`] covers memory that grows during a run.

use std::cell::RefCell;

use crate::error::{Error, Result};

pub mod reserve;

/// Bytes that every fit may use in addition to its large buffers: scratch memory of the threads,
/// and small vectors.
const SLACK: u128 = 32 << 20;

/// Number of bytes up to which [`require`] does not read the available memory. Reading it takes 50 μs, a large part of
/// a short request to a model, and the reserve is larger than such buffers.
const SMALL: u128 = 1 << 20;

/// Bytes of address space that every fit may use: the stacks of threads, and the 64 MB arenas that
/// an allocator gives to threads. A limit on address space (`ulimit -v`) counts both.
const ADDRESSES: u128 = 64 << 20;

thread_local! {
    /// Message about the large buffers of the run on this thread: their purpose and a remedy. Empty until [`require`]
    /// sets it.
    static NEEDED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The message of this thread's last [`require`], to be passed to the thread that continues the
/// run.
pub fn needed() -> String {
    NEEDED.with_borrow(String::clone)
}

/// Sets this thread's message to one that [`needed`] returned on another thread.
pub fn set_needed(needed: String) {
    NEEDED.set(needed);
}

/// Returns the error for a run on this thread during which memory ran out.
pub fn ran_out() -> Error {
    let needed = needed();
    let besides =
        if needed.is_empty() { String::new() } else { format!(", in addition to {needed}") };
    Error::Memory(format!("not enough memory for small buffers during a run{besides}"))
}

/// Returns an error unless `bytes` of memory are available for the large buffers of a call.
///
/// Up to [`SMALL`] bytes are always granted. More bytes, plus some slack, are compared with [`available`]. Memory of
/// this size is then allocated for a moment, because nothing else reveals a limit on the process (`ulimit -v`). `what`
/// describes the buffers and the sizes that determine them, and `remedy` tells the user what to do.
///
/// # Errors
/// [`Error::Memory`].
pub fn require(bytes: u128, what: impl FnOnce() -> String, remedy: &str) -> Result<()> {
    let is_small = bytes <= SMALL;
    let limit = if is_small { None } else { available() };
    let bytes = bytes.saturating_add(SLACK);
    let fits = limit.is_none_or(|limit| bytes <= u128::from(limit));
    let gigabytes = |bytes: u128| format!("{:.1} GB", bytes as f64 / 1e9);
    if is_small || fits && can_reserve(bytes.saturating_add(ADDRESSES)) {
        set_needed(format!("the {} of {}; {remedy}", gigabytes(bytes), what()));
        return Ok(());
    }
    let there = match limit {
        Some(limit) if !fits => format!("{} are available", gigabytes(limit.into())),
        _ => "the system does not provide them".to_owned(),
    };
    let needed = gigabytes(bytes);
    Err(Error::Memory(format!("{} need {needed} of memory, and {there}; {remedy}", what())))
}

/// Whether [`require`] would succeed for this number of bytes.
pub fn fits(bytes: u128) -> bool {
    let bytes = bytes.saturating_add(SLACK);
    available().is_none_or(|limit| bytes <= u128::from(limit))
        && can_reserve(bytes.saturating_add(ADDRESSES))
}

fn can_reserve(bytes: u128) -> bool {
    usize::try_from(bytes).is_ok_and(reserve::grants)
}

/// Makes room for `more` values in a vector whose final length is unknown; returns whether that
/// succeeded.
pub fn make_room<T>(values: &mut Vec<T>, more: usize) -> bool {
    values.capacity() - values.len() >= more || values.try_reserve(more).is_ok()
}

/// Returns an error if buffers of `bytes` bytes, which grow during a run, cannot be allocated.
///
/// # Errors
/// [`Error::Memory`].
pub fn check_growth(bytes: usize, what: impl FnOnce() -> String, remedy: &str) -> Result<()> {
    let granted = can_reserve((bytes as u128).saturating_add(SLACK));
    if granted { Ok(()) } else { Err(refused(bytes, what, remedy)) }
}

/// Returns the error for a failed allocation.
pub fn refused(bytes: usize, what: impl FnOnce() -> String, remedy: &str) -> Error {
    let (what, needed) = (what(), bytes as f64 / 1e9);
    let message =
        format!("{what} need {needed:.1} GB of memory, and the system does not provide them; ");
    Error::Memory(message + remedy)
}

/// Memory that can still be used, in bytes: free memory, caches and swap, limited to the memory
/// that is left in a container. None on systems without `/proc/meminfo`, which only Linux has.
pub fn available() -> Option<u64> {
    let machine = in_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(machine.min(in_container().unwrap_or(u64::MAX)))
}

fn in_meminfo(text: &str) -> Option<u64> {
    let kilobytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kilobytes("MemAvailable:")? + kilobytes("SwapFree:").unwrap_or(0)).saturating_mul(1024))
}

/// Memory that is left in a container (cgroup version 2).
fn in_container() -> Option<u64> {
    let number = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    // Cached files count as used, but the system drops them when memory is short.
    let used = number("memory.current")?;
    let stat = std::fs::read_to_string("/sys/fs/cgroup/memory.stat").ok()?;
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let cached = cached.and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(0);
    Some(number("memory.max")?.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_up_to_the_available_memory_are_granted() {
        require(1 << 20, String::new, "").unwrap();
        for bytes in [1 << 60, u128::from(u64::MAX), u128::MAX] {
            let error = require(bytes, || "9 numbers".to_owned(), "take fewer").unwrap_err();
            let Error::Memory(message) = error else { panic!("{error}") };
            assert!(message.starts_with("9 numbers need "), "{message}");
            assert!(message.ends_with("; take fewer"), "{message}");
        }
    }

    #[test]
    fn growth_beyond_the_available_memory_is_rejected() {
        check_growth(1 << 20, String::new, "").unwrap();
        let error = check_growth(1 << 62, || "9 numbers".to_owned(), "take fewer").unwrap_err();
        assert!(error.to_string().starts_with("9 numbers need 4611686018.4 GB"), "{error}");
        let mut values = vec![1u64];
        assert!(!make_room(&mut values, 1 << 58) && make_room(&mut values, 5));
        assert!(values.capacity() >= 6);
    }

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal: 9 kB\nMemAvailable:   5 kB\nSwapFree:  2 kB\n";
        assert_eq!(in_meminfo(text), Some(7 * 1024));
        assert_eq!(in_meminfo("MemTotal: 9 kB\n"), None);
    }
}
