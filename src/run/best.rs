//! The best model of a run.

use super::certificate::Certificate;
use crate::interrupt::ModelArrays;

/// The model that a run returns.
#[derive(Debug, Clone, PartialEq)]
pub enum Returned {
    /// The solver's model after the last epoch.
    Last,
    /// The model W = 0.
    Zero,
    /// The weights after an earlier epoch.
    Earlier(Vec<f64>),
}

/// The best certificate of a run so far, and the model to which it belongs.
pub struct Best {
    null_objective: Option<f64>,
    certificate: Option<Certificate>,
    model: Model,
    weights: Vec<f64>,
}

/// The model of the best certificate.
#[derive(Clone, Copy, PartialEq)]
enum Model {
    /// The solver's current model.
    Present,
    /// The model W = 0.
    Zero,
    /// The copy in `weights`.
    Copied,
}

impl Best {
    /// Starts without a certificate. `null_objective` is the objective of W = 0; see
    /// [`Stopping`](super::Stopping).
    pub fn new(null_objective: Option<f64>) -> Self {
        Self { null_objective, certificate: None, model: Model::Present, weights: Vec::new() }
    }

    /// Takes the certificate of the current model into account, and returns the best certificate so far, which combines
    /// the lowest objective of all models with the highest bound.
    pub fn update(&mut self, present: Certificate) -> Certificate {
        let Some(null_objective) = self.null_objective else { return present };
        let zero = Certificate { primal: null_objective, dual: 0.0 };
        let (known, other) = match self.certificate {
            // If no copy was made, the weights from before this epoch are lost.
            Some(known) if self.model == Model::Copied => (known, Model::Copied),
            Some(known) => (Certificate { dual: known.dual, ..zero }, Model::Zero),
            None => (zero, Model::Zero),
        };
        let is_better = present.primal <= known.primal;
        let (primal, model) =
            if is_better { (present.primal, Model::Present) } else { (known.primal, other) };
        let pair = Certificate { primal, dual: known.dual.max(present.dual) };
        // The gap is negative if the objective is below the bound of another epoch. A negative gap is only possible
        // if a decoder misses the best label.
        let (best, model) =
            if pair.gap() < 0.0 { (present, Model::Present) } else { (pair, model) };
        self.model = model;
        *self.certificate.insert(best)
    }

    /// If the current model is the best model so far, copies it with `copy` before the solver
    /// changes it.
    pub fn keep(&mut self, copy: impl FnOnce(&mut Vec<f64>) -> bool) {
        let is_present = self.certificate.is_some() && self.model == Model::Present;
        if is_present && copy(&mut self.weights) {
            self.model = Model::Copied;
        }
    }

    /// Returns the arrays of the best model, given the arrays of the current model.
    pub fn arrays(&self, present: impl FnOnce() -> Option<ModelArrays>) -> Option<ModelArrays> {
        match self.model {
            Model::Present => present(),
            Model::Copied => Some(vec![self.weights.clone()]),
            Model::Zero => {
                let mut arrays = present()?;
                arrays.iter_mut().for_each(|array| array.fill(0.0));
                Some(arrays)
            }
        }
    }

    /// The best model.
    pub fn returned(self) -> Returned {
        match self.model {
            Model::Present => Returned::Last,
            Model::Zero => Returned::Zero,
            Model::Copied => Returned::Earlier(self.weights),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(primal: f64, dual: f64) -> Certificate {
        Certificate { primal, dual }
    }

    /// Updates `best` with the certificate of a model with one weight, and keeps a copy of that model.
    fn go(best: &mut Best, weight: f64, primal: f64, dual: f64) -> Certificate {
        let found = best.update(certificate(primal, dual));
        best.keep(|weights| {
            *weights = vec![weight];
            true
        });
        found
    }

    #[test]
    fn the_lowest_objective_and_the_highest_bound_are_a_pair() {
        let mut best = Best::new(Some(1.0));
        assert_eq!(go(&mut best, 1.0, 3.0, -60.0), certificate(1.0, 0.0));
        assert_eq!(best.arrays(|| Some(vec![vec![7.0; 2]])), Some(vec![vec![0.0; 2]]));
        assert_eq!(go(&mut best, 2.0, 0.5, 0.1), certificate(0.5, 0.1));
        assert_eq!(go(&mut best, 3.0, 0.75, 0.25), certificate(0.5, 0.25));
        assert_eq!(best.arrays(|| None), Some(vec![vec![2.0]]));
        assert_eq!(best.returned(), Returned::Earlier(vec![2.0]));
    }

    #[test]
    fn without_copies_the_last_model_or_zero_is_returned() {
        let mut best = Best::new(Some(1.0));
        for (primal, expected) in [(0.5, 0.5), (0.75, 0.75), (2.0, 1.0), (0.9, 0.9)] {
            assert_eq!(best.update(certificate(primal, 0.0)).primal, expected);
            best.keep(|_| false);
        }
        assert_eq!(best.returned(), Returned::Last);
    }

    #[test]
    fn without_the_objective_at_zero_the_last_model_is_returned() {
        let mut best = Best::new(None);
        assert_eq!(go(&mut best, 1.0, 1.0, 0.5), certificate(1.0, 0.5));
        assert_eq!(go(&mut best, 2.0, 3.0, -1.0), certificate(3.0, -1.0));
        assert_eq!(best.returned(), Returned::Last);
    }

    #[test]
    fn an_objective_below_the_bound_of_another_epoch_is_not_trusted() {
        let mut best = Best::new(Some(1.0));
        assert_eq!(go(&mut best, 1.0, 0.2, 0.1), certificate(0.2, 0.1));
        assert_eq!(go(&mut best, 2.0, 0.5, 0.4), certificate(0.5, 0.4));
        assert_eq!(best.returned(), Returned::Earlier(vec![2.0]));
    }
}
