//! The Hamming loss.

use crate::error::Result;
use crate::names::find;

/// The Hamming loss: the number, or the fraction, of an example's variables that differ from the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hamming {
    /// The number of wrong variables.
    #[default]
    Count,
    /// The number of wrong variables divided by the number of variables of the example.
    Mean,
}

impl Hamming {
    /// All forms of the loss with their names.
    pub const NAMES: &[(&str, Self)] = &[("hamming", Self::Count), ("mean-hamming", Self::Mean)];

    /// Returns the form called `name`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for an unknown name.
    pub fn parse(name: &str) -> Result<Self> {
        find("loss", name, Self::NAMES)
    }

    /// The cost of one wrong variable among `n_variables`.
    pub(super) fn cost(self, n_variables: usize) -> f64 {
        match self {
            Self::Count => 1.0,
            Self::Mean => 1.0 / n_variables.max(1) as f64,
        }
    }
}
