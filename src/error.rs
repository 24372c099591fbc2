//! The error type of the crate.

use thiserror::Error as ThisError;

/// The reason why a fit or a prediction failed.
#[derive(Debug, Clone, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// An argument is invalid. The message names it and says what to do.
    #[error("{argument}: {message}")]
    InvalidArgument {
        /// Name of the argument in the public interface.
        argument: &'static str,
        /// The problem and its remedy.
        message: String,
    },
    /// The large buffers of a fit do not fit into memory. The message names them and the remedy.
    #[error("{0}")]
    Memory(String),
    /// Memory ran out during the run, in an allocation outside its large buffers.
    #[error("memory ran out")]
    MemoryRanOut,
    /// The run was interrupted from outside (a signal, or an error in a callback).
    #[error("the run was interrupted")]
    Interrupted,
    /// The computation reached NaN or infinity.
    #[error("{0}")]
    Numerical(String),
    /// A file cannot be read or written. The message says why.
    #[error("{0}")]
    File(String),
}

impl Error {
    /// Creates an [`Error::InvalidArgument`].
    pub fn argument(argument: &'static str, message: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, message: message.into() }
    }

    /// Creates an [`Error::Numerical`] and adds the remedy.
    pub fn numerical(problem: impl std::fmt::Display) -> Self {
        Self::Numerical(format!("{problem}; scale the data or regularise more"))
    }
}

/// The crate's result type.
pub type Result<T> = std::result::Result<T, Error>;
