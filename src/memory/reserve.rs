//! A memory reserve: if a run exhausts the memory, the run ends with an error instead of ending the
//! process.
//!
//! Large buffers are compared with the available memory before a run ([`super::require`]). The rest
//! of a run's memory consists of thousands of small vectors, in this crate and its dependencies. If
//! the allocation of such a vector failed, the process would end. Instead, [`Allocator`] releases a
//! block of the reserve and tries again. [`shortages`] reports this to every run, and the run ends
//! when it next checks its `Interrupt`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes per block: more than the 32 MB of freed memory that glibc may keep.
const BLOCK_BYTES: usize = 33 << 20;
const N_BLOCKS: usize = 4;

/// Total bytes of the reserve. Unused bytes take only address space.
pub const RESERVE: usize = BLOCK_BYTES * N_BLOCKS;

/// The reserve of the process.
static OWN: Reserve = Reserve::new();

/// Returns how often the reserve of this process has released a block because an allocation had
/// failed.
pub fn shortages() -> usize {
    OWN.shortages.load(Ordering::Relaxed)
}

/// Fills the reserve if necessary, or empties it if the system cannot provide all of its blocks.
/// Returns whether it is full.
pub fn fill() -> bool {
    OWN.fill()
}

/// Unused blocks of memory, which can be released.
struct Reserve {
    blocks: [AtomicPtr<u8>; N_BLOCKS],
    shortages: AtomicUsize,
    /// Locked while a thread fills the reserve or takes a block from it.
    taking: Mutex<()>,
}

fn layout() -> Layout {
    Layout::new::<[u8; BLOCK_BYTES]>()
}

impl Reserve {
    const fn new() -> Self {
        Self {
            blocks: [const { AtomicPtr::new(null_mut()) }; N_BLOCKS],
            shortages: AtomicUsize::new(0),
            taking: Mutex::new(()),
        }
    }

    fn take_turns(&self) -> MutexGuard<'_, ()> {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self) -> bool {
        let is_full = || self.blocks.iter().all(|slot| !slot.load(Ordering::Relaxed).is_null());
        if is_full() {
            return true;
        }
        let _turn = self.take_turns();
        for slot in &self.blocks {
            if slot.load(Ordering::Relaxed).is_null() {
                // SAFETY: the size of a block is not 0.
                slot.store(unsafe { System.alloc(layout()) }, Ordering::Relaxed);
            }
        }
        let full = is_full();
        while !full && self.release() {}
        full
    }

    /// Returns a block to the system, if there is one.
    fn release(&self) -> bool {
        let mut held = self.blocks.iter().map(|slot| slot.swap(null_mut(), Ordering::Relaxed));
        let Some(held) = held.find(|held| !held.is_null()) else { return false };
        // SAFETY: `fill` allocated this block with the same allocator and layout, and `swap` returned it only to this
        // thread.
        unsafe { System.dealloc(held, layout()) };
        true
    }

    /// Retries an allocation, and releases blocks of the reserve until it succeeds. Requests larger
    /// than the reserve fail: such buffers are compared with the available memory before a run.
    #[cold]
    fn help(&self, size: usize, attempt: impl Fn() -> *mut u8) -> *mut u8 {
        if size > RESERVE {
            return null_mut();
        }
        let _turn = self.take_turns();
        loop {
            // Another thread may have released memory while this thread waited.
            let found = attempt();
            if !found.is_null() || !self.release() {
                return found;
            }
            self.shortages.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether the system can allocate `bytes` now, without the reserve.
pub fn grants(bytes: usize) -> bool {
    let Ok(layout) = Layout::array::<u8>(bytes.max(1)) else { return false };
    // Without `black_box`, the optimiser would remove an unused allocation and treat it as
    // successful.
    //
    // SAFETY: the size is not 0.
    let found = std::hint::black_box(unsafe { System.alloc(layout) });
    if !found.is_null() {
        // SAFETY: the block was allocated above with the same layout.
        unsafe { System.dealloc(found, layout) };
    }
    !found.is_null()
}

/// The system's allocator, backed by the reserve after [`fill`] has filled it.
///
/// The Python module declares it as `#[global_allocator]`. A Rust program that wants this
/// protection declares it in the same way, and calls [`fill`] before its runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allocator;

// SAFETY: every method calls the same method of the system's allocator. It repeats the call only if
// the result was null, in which case nothing had changed. Nothing here allocates or panics.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `System` has the same contract as this method, and the caller fulfils it.
        let attempt = || unsafe { System.alloc(layout) };
        let found = attempt();
        if found.is_null() { OWN.help(layout.size(), attempt) } else { found }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract of `System`, which allocated all pointers.
        unsafe { System.dealloc(pointer, layout) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let attempt = || unsafe { System.alloc_zeroed(layout) };
        let found = attempt();
        if found.is_null() { OWN.help(layout.size(), attempt) } else { found }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; a failed call leaves the old block unchanged.
        let attempt = || unsafe { System.realloc(pointer, layout, size) };
        let found = attempt();
        if found.is_null() { OWN.help(size, attempt) } else { found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_allocations_are_retried_while_the_reserve_lasts() {
        let own = Reserve::new();
        let never = |size| own.help(size, null_mut).is_null();
        let shortages = || own.shortages.load(Ordering::Relaxed);
        assert!(never(8) && shortages() == 0);
        assert!(own.fill() && own.fill());
        let failures = AtomicUsize::new(2);
        let attempt = || {
            let left = failures.load(Ordering::Relaxed);
            failures.store(left.saturating_sub(1), Ordering::Relaxed);
            if left == 0 { std::ptr::dangling_mut() } else { null_mut() }
        };
        assert!(!own.help(1 << 20, attempt).is_null());
        assert_eq!(shortages(), 2);
        assert!(never(RESERVE + 1) && shortages() == 2);
        assert!(never(8) && shortages() == N_BLOCKS);
        assert!(own.fill() && own.release() && own.fill());
        while own.release() {}
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends where an allocation fails")]
    fn more_than_the_available_memory_is_not_granted() {
        assert!(grants(0) && grants(1 << 20) && !grants(1 << 60) && !grants(usize::MAX));
    }

    #[test]
    fn the_allocator_behaves_like_the_system_allocator() {
        let layout = Layout::new::<[u64; 9]>();
        // SAFETY: sizes are not 0, and each block is freed once with its layout.
        unsafe {
            let zeros = Allocator.alloc_zeroed(layout);
            assert_eq!(*zeros.cast::<[u64; 9]>(), [0; 9]);
            zeros.cast::<u64>().write(7);
            let more = Allocator.realloc(zeros, layout, 2 * layout.size());
            assert_eq!(more.cast::<u64>().read(), 7);
            Allocator.dealloc(more, Layout::new::<[u64; 18]>());
            let found = Allocator.alloc(layout);
            assert!(!found.is_null());
            Allocator.dealloc(found, layout);
        }
    }
}
