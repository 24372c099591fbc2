//! Lets one thread stop a solver on another thread, or read the solver's current model.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::memory::reserve::shortages;

/// The arrays of a model; for a linear model, its weights.
pub type ModelArrays = Vec<Vec<f64>>;

/// The model of an epoch.
#[derive(Debug, Clone)]
pub(crate) struct EpochModel {
    /// The arrays of the model.
    pub arrays: ModelArrays,
    /// Number of epochs so far that Newton's method did not compute.
    pub n_first: usize,
}

/// A flag with which one thread stops a solver on another thread.
///
/// Solvers check it between bounded pieces of work, so that it takes effect well within a second.
/// Clones share the flag. The flag also counts as raised after an allocation has used the memory
/// reserve.
#[derive(Debug, Clone)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    /// The number of memory shortages in this process before the run.
    shortages: usize,
    /// The model after the last epoch, if an observer wants it.
    epoch_model: Option<Arc<Mutex<Option<EpochModel>>>>,
}

impl Default for Interrupt {
    fn default() -> Self {
        Self { raised: Arc::default(), shortages: shortages(), epoch_model: None }
    }
}

impl Interrupt {
    /// Creates a flag that makes the run keep its model after each epoch.
    pub(crate) fn showing() -> Self {
        Self { epoch_model: Some(Arc::default()), ..Self::default() }
    }

    /// Whether the run keeps its model after each epoch.
    pub(crate) fn shows(&self) -> bool {
        self.epoch_model.is_some()
    }

    /// Keeps the model of an epoch for the observer, if the flag was created with [`Interrupt::showing`].
    pub(crate) fn show(&self, model: impl FnOnce() -> Option<EpochModel>) {
        if let Some(epoch_model) = &self.epoch_model {
            *epoch_model.lock().unwrap_or_else(PoisonError::into_inner) = model();
        }
    }

    /// Returns the model of the observed epoch, if it was kept.
    pub(crate) fn take_model(&self) -> Option<EpochModel> {
        self.epoch_model.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Stops the run.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// Whether the run was stopped.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed) || self.ran_out()
    }

    /// Whether memory ran out during the run.
    fn ran_out(&self) -> bool {
        shortages() != self.shortages
    }

    /// [`Error::Interrupted`] if the run was stopped, [`Error::MemoryRanOut`] if memory ran out.
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
