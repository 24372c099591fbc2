//! How one thread asks the solver on another to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::memory::reserve::shortages;

/// A flag by which one thread asks the solver on another to stop.
///
/// Solvers check it between bounded pieces of work, so that it takes effect well within a second. A clone is
/// the same flag. It is raised, too, from the moment when an allocation has been helped out of the reserve of memory.
#[derive(Debug, Clone)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    /// The shortages before the run.
    shortages: usize,
}

impl Default for Interrupt {
    fn default() -> Self {
        Self { raised: Arc::default(), shortages: shortages() }
    }
}

impl Interrupt {
    /// Asks the run to stop.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// Whether the run was asked to stop.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed) || self.ran_out()
    }

    /// Whether memory ran out during the run.
    fn ran_out(&self) -> bool {
        shortages() != self.shortages
    }

    /// [`Error::Interrupted`] once the run was asked to stop, [`Error::MemoryRanOut`] where memory did.
    pub fn check(&self) -> Result<()> {
        if self.ran_out() {
            Err(Error::MemoryRanOut)
        } else if self.is_raised() {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }
}
