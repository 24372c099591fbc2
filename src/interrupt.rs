//! How one thread asks the solver on another to stop, or to show its model.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::memory::reserve::shortages;

/// The arrays of a model: the weights of a linear one.
pub type ModelArrays = Vec<Vec<f64>>;

/// A flag by which one thread asks the solver on another to stop.
///
/// Solvers check it between bounded pieces of work, so that it takes effect well within a second. A clone is
/// the same flag. It is raised, too, from the moment when an allocation has been helped out of the reserve of memory.
#[derive(Debug, Clone)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    /// The shortages before the run.
    shortages: usize,
    /// The model after the last epoch, where it is wanted.
    shown: Option<Arc<Mutex<Option<ModelArrays>>>>,
}

impl Default for Interrupt {
    fn default() -> Self {
        Self { raised: Arc::default(), shortages: shortages(), shown: None }
    }
}

impl Interrupt {
    /// One whose run shows its model after each epoch.
    pub fn showing() -> Self {
        Self { shown: Some(Arc::default()), ..Self::default() }
    }

    /// Whether the run is to show its models.
    pub fn shows(&self) -> bool {
        self.shown.is_some()
    }

    /// Keeps the model of an epoch, where it is wanted, for the observer who is told next.
    pub(crate) fn show(&self, model: impl FnOnce() -> Option<ModelArrays>) {
        if let Some(shown) = &self.shown {
            *shown.lock().unwrap_or_else(PoisonError::into_inner) = model();
        }
    }

    /// The model of the epoch that the observer is told of, where it is wanted and the solver has it at hand.
    pub fn take_model(&self) -> Option<ModelArrays> {
        self.shown.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

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
