//! Estimates of the memory that linear fits need, and the choice of a solver that fits into memory.

use super::problem::largest_of_columns;
use super::{JointMap, MulticlassMethod, ScoreMap};
use crate::data::Data;
use crate::error::Result;
use crate::memory::{fits, require};
use crate::solver::{Choices, FACTORISED, Method, has_part_factors};

/// Assumed number of candidate classes per example: one in `CANDIDATES.0` of all classes, but at least `CANDIDATES.1`.
const CANDIDATES: (usize, usize) = (5, 16);
/// Assumed maximum number of nonzero dual variables of an example in block Frank-Wolfe, which adds at most one per
/// pass.
const FRANK_WOLFE_DUALS: usize = 64;
/// [Spread](Size::spread) of the columns above which Newton's method is faster than block descent, whose time grows
/// with the spread. On raw tables with spreads of 50 to 300 (`benches/as_they_come.py`: Catsup, Yogurt, VietNamI, fgl,
/// Pima, tips) block descent took 4 to 14 times as long as Newton's method. On random rows with a spread of 30, it took
/// 1.6 to 2 times as long.
const MAX_SPREAD: f64 = 40.0;
/// A step of Newton's method takes longer with more weights, so the spread must also exceed the number of weights
/// divided by this constant. With 1000 weights, both methods take the same time at a spread of about 100 to 200.
const WEIGHTS_PER_SPREAD: f64 = 5.0;
/// Number of rows sampled to estimate the spread.
const SAMPLED_ROWS: usize = 1000;
/// Bytes per example for its position in the order, its sums, the location of its dual variables, and its norms.
const PER_EXAMPLE: usize = 128;

/// The sizes that determine the memory of a linear fit.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Number of examples n.
    pub n_examples: usize,
    /// Number of classes m.
    pub n_classes: usize,
    /// Number of features d, without the constant feature.
    pub n_features: usize,
    /// Bytes per number, in the precision of the fit.
    pub value: usize,
    /// Whether the problem is smoothed.
    pub smooth: bool,
    /// Whether the caller requests the dual variables.
    pub keep_dual: bool,
    /// Ratio between the sizes of the largest and the smallest column, including the constant feature; 1 if unknown.
    /// The size of a column is √(largest absolute value² + λ), because the regulariser dominates columns below √λ.
    pub spread: f64,
    /// Whether "auto" may use Newton's method.
    pub newton: bool,
}

/// The bytes that a fit uses besides the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes for the weights.
    pub weights: u128,
    /// Bytes for the dual variables.
    pub duals: u128,
}

impl Size {
    /// The sizes of a fit on these rows and classes.
    pub fn of(data: Data<'_>, n_classes: usize, smooth: bool, keep_dual: bool) -> Self {
        let value = match data {
            Data::Dense16(_) | Data::Dense32(_) | Data::Csr32(_) => 4,
            Data::Dense64(_) | Data::Csr64(_) => 8,
        };
        let (n_examples, n_features) = (data.n_rows(), data.n_cols());
        Self {
            n_examples,
            n_classes,
            n_features,
            value,
            smooth,
            keep_dual,
            spread: 1.0,
            newton: false,
        }
    }

    /// Allows "auto" to use Newton's method if its linear systems have a factorisation or factors of the classes.
    /// Computes the spread of the columns if there are few enough weights to factorise a matrix.
    pub fn with_newton(mut self, data: Data<'_>, bias: f64, lambda: f64) -> Self {
        self.newton = has_part_factors(self.n_features + 1, self.n_classes);
        if self.n_weights() <= FACTORISED {
            self.spread = spread(data, bias, lambda);
        }
        self
    }

    /// Number of weights, (d + 1) m.
    fn n_weights(&self) -> usize {
        (self.n_features + 1).saturating_mul(self.n_classes)
    }

    /// Memory of the large buffers of a fit.
    ///
    /// The weights take (d + 1) m numbers of 8 bytes, with the number of classes rounded up to full
    /// SIMD vectors of 64 bytes. Block descent keeps two copies (three for rows below double
    /// precision, because the certificate needs exact weights), Newton's method keeps eight, and
    /// other solvers keep three. The best weights so far and the result are two more copies.
    /// Newton's method also needs memory for its linear systems.
    ///
    /// For the dual variables, block descent is assumed to keep a fifth of all classes per example as candidates, but
    /// at least 16 (it may keep all if classes are indistinguishable). Each candidate takes a class (4 bytes) and a
    /// value. This is counted three times, because new candidates are written next to the old candidates, into storage
    /// that grows by doubling. Block Frank-Wolfe adds at most one variable per example and pass; 64 variables of 16
    /// bytes are assumed. Newton's method keeps 6 n m numbers. Frank-Wolfe and projected gradient keep n m numbers with
    /// smoothing and none without. If the caller requests the dual variables, they take 16 n m bytes. Active sets of
    /// vertices grow during the run and are not included.
    pub fn estimate(&self, method: MulticlassMethod) -> Estimate {
        let wide = |number: usize| number as u128;
        let Self { n_examples, n_classes, value, .. } = *self;
        let (n, m, d) = (wide(n_examples), wide(n_classes), wide(self.n_features) + 1);
        let padded = n_classes.checked_next_multiple_of(64 / value).unwrap_or(n_classes);
        let (copies, duals) = match method {
            MulticlassMethod::HandOver(seed) => {
                let stages = [MulticlassMethod::BlockDescent(seed), MulticlassMethod::Newton];
                let [first, second] = stages.map(|method| self.estimate(method));
                return Estimate {
                    weights: first.weights.max(second.weights),
                    duals: first.duals.max(second.duals),
                };
            }
            MulticlassMethod::BlockDescent(_) => {
                let (share, fewest) = CANDIDATES;
                let kept = n_classes.min(fewest.max(n_classes.div_ceil(share)));
                (2 + usize::from(value == 4), kept * 3 * (4 + value) + PER_EXAMPLE)
            }
            MulticlassMethod::Newton => (8, 8 * n_classes * 6 + PER_EXAMPLE),
            MulticlassMethod::Vertices(Method::FrankWolfe(_) | Method::ProjectedGradient)
                if self.smooth =>
            {
                (3, 8 * n_classes)
            }
            MulticlassMethod::Vertices(Method::BlockFrankWolfe(_)) => {
                (3, 16 * n_classes.min(FRANK_WOLFE_DUALS) + PER_EXAMPLE)
            }
            MulticlassMethod::Vertices(_) => (3, 0),
        };
        let n_weights = wide(self.n_weights());
        let system = match method {
            // The matrix of a linear system and the sums from which it is built, and the sums of a pass. The factors
            // of the preconditioner are left out if they do not fit in memory.
            MulticlassMethod::Newton => {
                let matrix = if self.n_weights() <= FACTORISED { 12 * n_weights } else { 0 };
                n_weights * (matrix + 8 * wide(n_examples.isqrt()))
            }
            _ => 0,
        };
        let returned = if self.keep_dual { 16 * m } else { 0 };
        Estimate {
            weights: d * (wide(copies * 8) * wide(padded) + 16 * m) + system,
            duals: n * (wide(duals) + returned),
        }
    }

    /// Returns an error unless memory suffices for the weights and dual variables of `n_fits` simultaneous fits.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::error::Error::Memory) if memory is insufficient.
    pub fn require(&self, method: MulticlassMethod, n_fits: usize) -> Result<()> {
        let Estimate { weights, duals } = self.estimate(method);
        let (n, m, d) = (self.n_examples, self.n_classes, self.n_features + 1);
        let what = || {
            let duals = if duals > 0 { "the dual variables and " } else { "" };
            format!("{duals}the weights for n = {n} rows, m = {m} classes and d = {d} features")
        };
        let remedy = if duals > 0 {
            "solver=\"block-frank-wolfe\" keeps only nonzero dual variables, and \"frank-wolfe\" keeps none \
             without smoothing; or use float32 rows, or fewer rows, features or classes"
        } else {
            "use fewer features or classes"
        };
        require(n_fits as u128 * (weights + duals), what, remedy)
    }

    /// The solver named by the choices. "auto" selects Newton's method if it is allowed and fits into memory, and the
    /// columns differ so much that block descent would stall. Otherwise it selects the first of these that fits: block
    /// descent with a hand-over to Newton's method (if allowed), block descent, block Frank-Wolfe, Frank-Wolfe. Without
    /// smoothing, each of these solvers usually keeps fewer dual variables than the previous solver. If none fits,
    /// "auto" selects block descent.
    ///
    /// # Errors
    /// As for [`MulticlassMethod::parse`].
    pub fn method(&self, choices: &Choices<'_>) -> Result<MulticlassMethod> {
        self.method_within(choices, fits)
    }

    /// The solver of `n_fits` simultaneous fits, among the solvers that use projections. Returns Newton's method, or
    /// block descent with a hand-over to it, if Newton's method is allowed and memory suffices. Otherwise returns block
    /// descent alone.
    pub fn projecting_method(&self, seed: u64, n_fits: usize) -> MulticlassMethod {
        let affordable = |method: &MulticlassMethod| {
            let Estimate { weights, duals } = self.estimate(*method);
            fits(n_fits as u128 * (weights + duals))
        };
        let method = self.with_newton_stage(seed).filter(affordable);
        method.unwrap_or(MulticlassMethod::BlockDescent(seed))
    }

    /// Newton's method if the columns differ so much that block descent would stall; otherwise block descent with a
    /// hand-over. None if Newton's method is not allowed.
    fn with_newton_stage(&self, seed: u64) -> Option<MulticlassMethod> {
        let most = MAX_SPREAD.max(self.n_weights() as f64 / WEIGHTS_PER_SPREAD);
        let badly_scaled = self.spread > most;
        let method =
            if badly_scaled { MulticlassMethod::Newton } else { MulticlassMethod::HandOver(seed) };
        self.newton.then_some(method)
    }

    fn method_within(
        &self,
        choices: &Choices<'_>,
        fits: impl Fn(u128) -> bool,
    ) -> Result<MulticlassMethod> {
        let chosen = MulticlassMethod::parse(choices)?;
        if choices.solver != "auto" {
            return Ok(chosen);
        }
        if let Some(method) = self.with_newton_stage(choices.seed) {
            let Estimate { weights, duals } = self.estimate(method);
            if fits(weights + duals) {
                return Ok(method);
            }
        }
        let others = ["block-frank-wolfe", "frank-wolfe"];
        let others = others.map(|solver| Choices { seed: choices.seed, ..Choices::of(solver) });
        let mut methods = vec![chosen];
        for other in &others {
            methods.push(MulticlassMethod::parse(other)?);
        }
        let affordable = |method: &&MulticlassMethod| {
            let Estimate { weights, duals } = self.estimate(**method);
            fits(weights + duals)
        };
        Ok(methods.iter().find(affordable).copied().unwrap_or(chosen))
    }
}

/// The spread of the columns (see [`Size::spread`]) in a sample of the rows. Columns of zeros are ignored.
fn spread(data: Data<'_>, bias: f64, lambda: f64) -> f64 {
    let mut largest = largest_of_columns(data, data.n_rows().div_ceil(SAMPLED_ROWS).max(1));
    largest.push(bias.abs());
    let found = || largest.iter().copied().filter(|value| *value > 0.0);
    let size = |largest: f64| largest.hypot(lambda.sqrt());
    let ratio = size(found().fold(0.0, f64::max)) / size(found().fold(f64::INFINITY, f64::min));
    if ratio.is_finite() { ratio } else { 1.0 }
}

/// Returns an error if memory does not suffice for a fit on joint features. The fit keeps five copies of the weights
/// (solver, kernels, certificate, best model and caller) and, for Frank-Wolfe or projected gradient with smoothing, n m
/// dual variables. The dual variables of block descent are not counted, because they are few and grow during the run.
///
/// # Errors
/// [`Error::Memory`](crate::error::Error::Memory) if memory is insufficient.
pub fn require_joint_memory(
    map: &JointMap<'_>,
    method: MulticlassMethod,
    smooth: bool,
) -> Result<()> {
    let (n, m, d) = (map.n_examples(), map.n_classes(), map.n_weights());
    let kept = matches!(
        method,
        MulticlassMethod::Vertices(Method::FrankWolfe(_) | Method::ProjectedGradient)
    );
    let kept = smooth && kept;
    let duals = if kept { 8 * n as u128 * m as u128 } else { 0 };
    let what = || format!("d = {d} weights, for n = {n} rows and m = {m} classes");
    require(40 * d as u128 + duals, what, "use fewer features of rows or classes")
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::Dense;

    fn large(smooth: bool) -> Size {
        Size {
            n_examples: 1_000_000,
            n_classes: 1000,
            n_features: 200,
            value: 4,
            smooth,
            keep_dual: false,
            spread: 1.0,
            newton: false,
        }
    }

    #[test]
    fn auto_takes_the_first_solver_that_fits() {
        let chosen = |solver: &str, gigabytes: u128| {
            let fits = |bytes| bytes <= gigabytes << 30;
            large(false).method_within(&Choices::of(solver), fits).unwrap().name()
        };
        assert_eq!(chosen("auto", 8), "block-descent");
        assert_eq!(chosen("auto", 2), "block-frank-wolfe");
        assert_eq!(chosen("auto", 1), "frank-wolfe");
        // Nothing fits, so a default is returned, and its memory check fails later.
        assert_eq!(chosen("auto", 0), "block-descent");
        assert_eq!(chosen("block-descent", 1), "block-descent");
    }

    #[test]
    fn auto_selects_newton_for_columns_of_different_scales() {
        let choose_at = |lambda: f64, scales: [f64; 2], bias: f64, n_classes: usize| {
            let x = Array2::from_shape_fn((5000, 2), |(row, column)| {
                scales[column] * ((row % 7) as f64 - 3.0)
            });
            let data = Data::Dense64(Dense::new(x.view()).unwrap());
            let size = Size::of(data, n_classes, false, false).with_newton(data, bias, lambda);
            size.method_within(&Choices::of("auto"), |_| true).unwrap().name()
        };
        let choose = |scales, bias, n_classes| choose_at(1e-4, scales, bias, n_classes);
        assert_eq!(choose([1.0, 30.0], 0.0, 3), "auto");
        assert_eq!(choose([1.0, 50.0], 0.0, 3), "newton");
        assert_eq!(choose([1e-4, 1e-4], 0.0, 3), "auto");
        assert_eq!(choose([1e-4, 1e-4], 1.0, 3), "newton");
        assert_eq!(choose([0.0, 1.0], 1.0, 3), "auto");
        // The regulariser dominates the small columns.
        assert_eq!(choose_at(1e-2, [1e-4, 1e-4], 1.0, 3), "auto");
        // With more weights, Newton's method needs more time.
        assert_eq!(choose([1.0, 300.0], 0.0, 600), "auto");
        assert_eq!(choose([1.0, 400.0], 0.0, 600), "newton");
        // Too many weights for a factorisation.
        assert_eq!(choose([1.0, 2000.0], 0.0, 1000), "auto");
        assert_eq!(choose([1.0, 2000.0], 0.0, 2000), "auto");
    }

    #[test]
    fn auto_hands_over_to_newton_unless_the_preconditioner_is_too_large() {
        let choose = |n_features, n_classes| {
            let x = Array2::<f32>::zeros((2, n_features));
            let data = Data::Dense32(Dense::new(x.view()).unwrap());
            let size = Size::of(data, n_classes, false, false).with_newton(data, 1.0, 1.0);
            size.method_within(&Choices::of("auto"), |_| true).unwrap().name()
        };
        assert_eq!(choose(100, 100), "auto");
        assert_eq!(choose(3000, 10), "auto");
        assert_eq!(choose(3000, 20), "block-descent");
        assert_eq!(choose(50_000, 2), "block-descent");
    }

    #[test]
    fn a_million_rows_of_a_thousand_classes_are_estimated_before_anything_is_allocated() {
        let choices = Choices::of("auto");
        let method = MulticlassMethod::parse(&choices).unwrap();
        let Estimate { weights, duals } = large(false).estimate(method);
        assert_eq!(duals, 1_000_000 * (200 * 24 + 128));
        assert!(weights < 20_000_000, "{weights}");
        let size = Size { n_examples: 1 << 40, keep_dual: true, ..large(true) };
        let message = size.require(method, 1).unwrap_err().to_string();
        assert!(message.contains("n = 1099511627776 rows, m = 1000 classes"), "{message}");
        assert!(message.contains("and d = 201 features need"), "{message}");
        assert!(message.contains("solver=\"block-frank-wolfe\" keeps only"), "{message}");
    }

    #[test]
    fn simultaneous_fits_each_need_the_same_memory() {
        let method = MulticlassMethod::BlockDescent(0);
        let size = Size { n_examples: 2, n_classes: 3, n_features: 1, ..large(false) };
        size.require(method, 1).unwrap();
        let error = size.require(method, usize::MAX).unwrap_err().to_string();
        assert!(error.contains("n = 2 rows, m = 3 classes and d = 2 features need"), "{error}");
    }

    #[test]
    fn few_classes_are_all_candidates_and_frank_wolfe_has_no_candidates() {
        let size = Size { n_classes: 3, value: 8, ..large(false) };
        let of = |solver| MulticlassMethod::parse(&Choices::of(solver)).unwrap();
        MulticlassMethod::names()[1..]
            .iter()
            .for_each(|solver| assert_eq!(of(solver).name(), *solver));
        assert_eq!(size.estimate(of("block-descent")).duals, 1_000_000 * (3 * 36 + 128));
        assert_eq!(size.estimate(of("frank-wolfe")).duals, 0);
        let smooth = Size { smooth: true, keep_dual: true, ..size };
        assert_eq!(smooth.estimate(of("frank-wolfe")).duals, 1_000_000 * (3 * 8 + 3 * 16));
    }
}
