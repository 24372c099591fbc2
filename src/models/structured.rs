//! Structured support vector machines for a decoder that the user writes.

use std::ops::ControlFlow;

use crate::dual::Shares;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::parallel::map_items;
use crate::run::Trace;
use crate::solver::{Choices, Target, minimize};
use crate::structured::{CallbackDual, Oracle, StructuredChoices, StructuredMethod};

/// Examples with structured labels, such as words, alignments, rankings or trees.
///
/// A label y of an example x has joint features φ(x, y) and, compared with the true label, a loss
/// L(y) >= 0, which is 0 for the true label.
pub trait StructuredExamples: Sync {
    /// Number of examples.
    fn n_examples(&self) -> usize;

    /// Number of weights: the length of φ.
    fn n_weights(&self) -> usize;

    /// Finds a label y of an example that maximises L(y) + ⟨weights, φ(x, y)⟩ exactly. Writes φ(x, y) − φ(x, true
    /// label) to `difference`, which is all zeros before the call, and returns L(y).
    ///
    /// # Errors
    /// Errors of the implementation. An error ends the fit.
    fn decode(&self, example: usize, weights: &[f64], difference: &mut [f64]) -> Result<f64>;
}

/// Options of a structured support vector machine. A fit minimises λ/2 ‖w‖² plus the mean structured
/// hinge loss of the examples, with λ = 1/(C × number of examples). The structured hinge loss of an
/// example is the maximum over y of L(y) + ⟨w, φ(x, y) − φ(x, true label)⟩.
///
/// ```
/// use dualgap::models::{StructuredExamples, StructuredSvm};
///
/// /// Pairs of numbers. Each number has a label 0 or 1; the numbers of a pair prefer the same label.
/// struct Pairs(Vec<([f64; 2], [usize; 2])>);
///
/// /// Features of a labelling: the sum of the numbers labelled 1, and whether both labels are equal.
/// fn features(x: [f64; 2], y: [usize; 2]) -> [f64; 2] {
///     [x[0] * y[0] as f64 + x[1] * y[1] as f64, f64::from(u8::from(y[0] == y[1]))]
/// }
///
/// impl StructuredExamples for Pairs {
///     fn n_examples(&self) -> usize {
///         self.0.len()
///     }
///     fn n_weights(&self) -> usize {
///         2
///     }
///     fn decode(&self, example: usize, w: &[f64], difference: &mut [f64]) -> dualgap::Result<f64> {
///         let (x, truth) = self.0[example];
///         let loss = |y: [usize; 2]| f64::from(u8::from(y[0] != truth[0])) + f64::from(u8::from(y[1] != truth[1]));
///         let score = |y: [usize; 2]| loss(y) + features(x, y).iter().zip(w).map(|(f, w)| f * w).sum::<f64>();
///         let labels = [[0, 0], [0, 1], [1, 0], [1, 1]];
///         let best = labels.into_iter().reduce(|a, b| if score(b) > score(a) { b } else { a }).unwrap();
///         for (k, d) in difference.iter_mut().enumerate() {
///             *d = features(x, best)[k] - features(x, truth)[k];
///         }
///         Ok(loss(best))
///     }
/// }
///
/// let examples = Pairs(vec![([1.0, 2.0], [1, 1]), ([-1.0, -3.0], [0, 0]), ([2.0, -2.0], [1, 0])]);
/// let fitted = StructuredSvm { c: 10.0, tol: 1e-6, ..StructuredSvm::default() }.fit(&examples)?;
/// assert!(fitted.trace.gap().unwrap() <= 1e-6 * fitted.trace.objective);
/// assert!(fitted.weights[0] > 0.0);
/// # Ok::<(), dualgap::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StructuredSvm {
    /// Weight of the losses relative to the regulariser.
    pub c: f64,
    /// Duality gap, relative to the objective, at which a fit has converged.
    pub tol: f64,
    /// Maximum number of epochs.
    pub max_iter: usize,
    /// Name of the solver: "auto", "block-frank-wolfe", "frank-wolfe", "away-frank-wolfe" or
    /// "subgradient".
    pub solver: String,
    /// Seed for the order of the examples.
    pub seed: u64,
    /// A flag with which another thread can stop the fit. Calls of `decode` are not interrupted.
    pub interrupt: Interrupt,
}

impl Default for StructuredSvm {
    fn default() -> Self {
        Self {
            c: 1.0,
            tol: 1e-3,
            max_iter: 1000,
            solver: "auto".into(),
            seed: 0,
            interrupt: Interrupt::default(),
        }
    }
}

/// A fitted structured support vector machine.
#[derive(Debug, Clone, PartialEq)]
pub struct StructuredFit {
    /// The weights.
    pub weights: Vec<f64>,
    /// The record of the fit, with its certificate. Bounds hold if `decode` is exact.
    pub trace: Trace,
}

/// Decodes batches of examples in parallel.
struct Decoder<'a>(&'a dyn StructuredExamples);

impl Oracle for Decoder<'_> {
    fn vertices(
        &self,
        blocks: &[u32],
        weights: &[f64],
        found: &mut dyn FnMut(&[f64], f64),
    ) -> Result<()> {
        let decoded = map_items(blocks, 1, |example| {
            let mut difference = vec![0.0; weights.len()];
            let loss = self.0.decode(*example as usize, weights, &mut difference)?;
            Ok((difference, loss))
        });
        let decoded: Vec<(Vec<f64>, f64)> = decoded.into_iter().collect::<Result<_>>()?;
        decoded.iter().for_each(|(difference, loss)| found(difference, *loss));
        Ok(())
    }
}

impl StructuredSvm {
    /// Fits weights to the examples. Examples are decoded in parallel, in batches.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for options that cannot be used and for results of `decode` that
    /// are not finite or contradict each other; errors of `decode`; [`Error::Interrupted`].
    pub fn fit(&self, examples: &dyn StructuredExamples) -> Result<StructuredFit> {
        let Self { c, tol, max_iter, solver, seed, interrupt } = self;
        let positive = |value: f64| value > 0.0 && value.is_finite();
        if !positive(*c) {
            return Err(Error::argument("c", format!("is {c}; must be positive and finite")));
        }
        if !(*tol >= 0.0 && tol.is_finite()) {
            return Err(Error::argument("tol", format!("is {tol}; must be finite and at least 0")));
        }
        if *max_iter == 0 {
            return Err(Error::argument("max_iter", "is 0; must be at least 1"));
        }
        let (n, n_weights) = (examples.n_examples(), examples.n_weights());
        if n == 0 || n_weights == 0 {
            let message =
                format!("have {n} examples and {n_weights} weights; need at least one of each");
            return Err(Error::argument("examples", message));
        }
        let common = Choices { seed: *seed, ..Choices::of(solver) };
        let choices = StructuredChoices { common, projection: None, radius: None };
        let method = StructuredMethod::parse(&choices)?.vertices()?;
        let decoder = Decoder(examples);
        let shares = Shares::new(n, 1.0 / (c * n as f64))?;
        let mut dual = CallbackDual::new(&decoder, n_weights, shares);
        let target = Target { tol: *tol, max_epochs: *max_iter };
        let go_on = &mut |_: &_| ControlFlow::Continue(());
        let fitted = minimize(&mut dual, method, target, None, interrupt, go_on)?;
        let weights = fitted.model.unwrap_or_else(|| fitted.point.weights().to_vec());
        Ok(StructuredFit { weights, trace: fitted.trace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;
    use crate::models::MulticlassSvc;

    /// Multi-class rows as structured examples with the max-hinge loss.
    struct Classes {
        rows: Vec<[f64; 2]>,
        labels: Vec<usize>,
    }

    impl StructuredExamples for Classes {
        fn n_examples(&self) -> usize {
            self.rows.len()
        }

        fn n_weights(&self) -> usize {
            6
        }

        fn decode(&self, example: usize, w: &[f64], difference: &mut [f64]) -> Result<f64> {
            let (row, label) = (self.rows[example], self.labels[example]);
            let loss = |class: usize| f64::from(u8::from(class != label));
            let score =
                |class: usize| loss(class) + row[0] * w[2 * class] + row[1] * w[2 * class + 1];
            let best = (0..3).reduce(|a, b| if score(b) > score(a) { b } else { a }).unwrap();
            for (k, value) in row.into_iter().enumerate() {
                difference[2 * best + k] += value;
                difference[2 * label + k] -= value;
            }
            Ok(loss(best))
        }
    }

    fn classes() -> Classes {
        let noise = |i: usize| ((i * 7919 + 13) % 1009) as f64 / 1009.0 - 0.5;
        let labels: Vec<usize> = (0..30).map(|row| row % 3).collect();
        let centres = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]];
        let row = |i: usize| [centres[i % 3][0] + noise(i), centres[i % 3][1] + noise(i + 100)];
        Classes { rows: (0..30).map(row).collect(), labels }
    }

    #[test]
    fn classes_as_structured_examples_have_the_objective_of_the_linear_classifier() {
        let examples = classes();
        let values: Vec<f64> = examples.rows.concat();
        let labels: Vec<u8> = examples.labels.iter().map(|label| *label as u8).collect();
        let data = Dense::from_slice(&values, 2).unwrap();
        let svc = MulticlassSvc::new().c(3.0).tol(1e-9).fit_intercept(false);
        let expected = svc.fit(data, &labels).unwrap().objective();
        for solver in ["auto", "block-frank-wolfe", "frank-wolfe"] {
            let options = StructuredSvm {
                c: 3.0,
                tol: 1e-2,
                max_iter: 20_000,
                solver: solver.into(),
                ..StructuredSvm::default()
            };
            let fitted = options.fit(&examples).unwrap();
            let found = fitted.trace.certificate.unwrap();
            assert!(found.dual <= expected * (1.0 + 1e-9), "{solver}: {found:?} {expected}");
            assert!(found.primal >= expected * (1.0 - 2e-9), "{solver}: {found:?} {expected}");
            assert!(found.relative_gap() <= 1e-2, "{solver}: {found:?}");
            let losses = (0..30).map(|example| {
                let mut difference = [0.0; 6];
                let loss = examples.decode(example, &fitted.weights, &mut difference).unwrap();
                let score: f64 = difference.iter().zip(&fitted.weights).map(|(d, w)| d * w).sum();
                loss + score
            });
            let square: f64 = fitted.weights.iter().map(|w| w * w).sum();
            let objective = square / (2.0 * 3.0 * 30.0) + losses.sum::<f64>() / 30.0;
            assert!((objective - found.primal).abs() <= 1e-9 * objective, "{solver}");
        }
    }

    #[test]
    fn unusable_options_and_errors_of_the_decoder_end_the_fit() {
        struct Broken(f64);
        impl StructuredExamples for Broken {
            fn n_examples(&self) -> usize {
                2
            }
            fn n_weights(&self) -> usize {
                1
            }
            fn decode(&self, _: usize, _: &[f64], difference: &mut [f64]) -> Result<f64> {
                difference[0] = self.0;
                if self.0 == 0.0 { Err(Error::argument("words", "are empty")) } else { Ok(1.0) }
            }
        }
        let message = |options: StructuredSvm, examples: &dyn StructuredExamples| {
            options.fit(examples).unwrap_err().to_string()
        };
        let default = StructuredSvm::default;
        assert_eq!(message(default(), &Broken(0.0)), "words: are empty");
        assert!(message(default(), &Broken(f64::NAN)).contains("must return 1 finite numbers"));
        let options = StructuredSvm { c: -1.0, ..default() };
        assert!(message(options, &classes()).starts_with("c: is -1"));
        let options = StructuredSvm { solver: "simplex".into(), ..default() };
        assert!(message(options, &classes()).starts_with("solver: "));
        let options = StructuredSvm { solver: "extragradient".into(), ..default() };
        assert!(message(options, &classes()).contains("requires a built-in model"));
        let options = default();
        options.interrupt.raise();
        assert_eq!(message(options, &classes()), "the run was interrupted");
    }
}
