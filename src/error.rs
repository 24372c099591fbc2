//! The one error type of the crate.

use thiserror::Error as ThisError;

/// What can go wrong in a fit or a prediction.
#[derive(Debug, Clone, PartialEq, ThisError)]
pub enum Error {
    /// An argument that cannot be used; the message names it and says what to do.
    #[error("{argument}: {message}")]
    InvalidArgument {
        /// Name of the argument, as the user wrote it.
        argument: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
    /// The run was interrupted from outside (a signal, or an error in a callback).
    #[error("the run was interrupted")]
    Interrupted,
    /// The computation left the finite numbers.
    #[error("{0}")]
    Numerical(String),
}

impl Error {
    /// An [`Error::InvalidArgument`].
    pub fn argument(argument: &'static str, message: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, message: message.into() }
    }
}

/// The crate's result type.
pub type Result<T> = std::result::Result<T, Error>;
