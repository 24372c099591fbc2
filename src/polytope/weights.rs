//! Weights of the sorted margins.

use crate::error::{Error, Result};

/// Weights ρ_1 >= .. >= ρ_m = 0 of the sorted margins, with ρ_1 > 0 (docs/mathematics/polytopes.md#two-families).
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    values: Vec<f64>,
    n_positive: usize,
}

impl Weights {
    /// Checks the weights; their number is checked later, against the number of classes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless they are finite, non-negative and non-increasing, the first weight is
    /// positive, and the last weight is 0.
    pub fn new(values: Vec<f64>) -> Result<Self> {
        let fail = |message: String| Err(Error::argument("weights", message));
        if let Some(bad) = values.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
            return fail(format!("must be finite and non-negative, found {bad}"));
        }
        if let Some(at) = values.windows(2).position(|pair| pair[0] < pair[1]) {
            let (before, after) = (values[at], values[at + 1]);
            return fail(format!("must not increase, but {before} is followed by {after}"));
        }
        match (values.first(), values.last()) {
            (Some(&first), Some(&last)) if first > 0.0 && last == 0.0 => {
                let n_positive = values.iter().filter(|weight| **weight > 0.0).count();
                Ok(Self { values, n_positive })
            }
            (Some(&0.0), _) => fail("the first one must be positive".into()),
            _ => fail("the last one must be 0 (one weight for each class, label included)".into()),
        }
    }

    /// All m weights, ρ_1 to ρ_m.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The positive weights, which come first.
    pub fn positive(&self) -> &[f64] {
        &self.values[..self.n_positive]
    }

    /// The sum ρ_1 + .. + ρ_m.
    pub fn sum(&self) -> f64 {
        self.values.iter().sum()
    }

    /// Checks that each class has exactly one weight.
    pub(super) fn check(&self, n_classes: usize) -> Result<()> {
        if self.values.len() == n_classes {
            return Ok(());
        }
        Err(Error::argument(
            "weights",
            format!(
                "has {} weights, but there are {n_classes} classes; give one weight for each class",
                self.values.len()
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sorted_weights_that_end_in_zero_pass() {
        assert_eq!(Weights::new(vec![0.5, 0.5, 0.0, 0.0]).unwrap().positive(), [0.5, 0.5]);
        let bad: [(&[f64], &str); 7] = [
            (&[], "last one must be 0"),
            (&[0.0, 0.0], "first one must be positive"),
            (&[1.0, 0.5], "last one must be 0"),
            (&[1.0, -1.0, 0.0], "non-negative, found -1"),
            (&[1.0, f64::NAN, 0.0], "finite"),
            (&[f64::INFINITY, 0.0], "finite"),
            (&[0.5, 0.6, 0.0], "0.5 is followed by 0.6"),
        ];
        for (values, expected) in bad {
            let message = Weights::new(values.to_vec()).unwrap_err().to_string();
            assert!(message.starts_with("weights: "), "{message}");
            assert!(message.contains(expected), "{values:?}: {message}");
        }
    }
}
