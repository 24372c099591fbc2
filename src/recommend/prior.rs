//! The prior of one side's blocks: a regression on features and a full covariance, both learned.

use ndarray::{Array1, Array2, Axis, Zip};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::data::{Csr, Rows};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::{self, Inverse};
use crate::linalg::products;

/// Features of one side, with one row per user or item.
pub type Features<'a> = Csr<'a, f64>;

/// Number of conjugate gradient steps per sweep. The next sweep continues from the result.
const CG_STEPS: usize = 5;

/// Settings for learning the prior of a side.
#[derive(Debug, Clone, Copy)]
pub(super) struct PriorSettings {
    /// Whether B (see [`Prior`]) has a column for the number of ratings.
    pub popularity: bool,
    /// Ridge η on the features' weights, relative to the prior precision.
    pub ridge: f64,
    /// Over-relaxation factor for steps of the means; used only with features.
    pub relaxation: f64,
}

/// The prior with the mean B Y₀ + F Y, where B = \[1\] or \[1, centred log(1 + number of ratings)\], F are the
/// features, and Y = Fᵀ A.
#[derive(Debug, Clone)]
pub(super) struct Prior<'a> {
    /// Prior mean of each id's block, n × (k + m).
    pub mean: Array2<f64>,
    covariance: Array2<f64>,
    base: Array2<f64>,
    /// Weights Y₀ of the columns of B: one or two rows of k + m values.
    base_weights: Array2<f64>,
    features: Option<Features<'a>>,
    /// A, n × (k + m): the features' weights in dual form.
    dual: Array2<f64>,
    /// The features' part F Fᵀ A of the mean.
    fitted: Array2<f64>,
    /// The ridge η Aᵀ F Fᵀ A on the features' weights.
    ridge: Array2<f64>,
    /// The mean of log(1 + number of ratings) over the ids with ratings. It is subtracted from the second column of B
    /// (for these ids).
    centre: f64,
    settings: PriorSettings,
    /// Degrees of freedom: n plus the effective number of feature weights, tr F Fᵀ (F Fᵀ + η I)⁻¹. The covariance is
    /// the scatter divided by this number. The feature weights count because their own prior, N(0, Σ/η), depends on Σ
    /// too.
    degrees: f64,
    /// Added to the scatter's diagonal. Consists of a small term, needed if all blocks are equal,
    /// and a term for the degrees of freedom beyond n, without which the covariance would shrink to
    /// 0 over the sweeps.
    floor: Array1<f64>,
    /// Sum of the logarithms of all scales by which the bases were divided. The objective's term for the degrees of
    /// freedom beyond n refers to the initial scale; otherwise, rescaling the bases would change the objective.
    log_scale: f64,
}

/// The learned prior, for ids that were not part of the fit.
#[derive(Debug, Clone)]
pub struct LearnedPrior {
    /// Weights Y₀ of the columns of B: one or two rows of k + m values.
    pub base: Array2<f64>,
    /// The mean of log(1 + number of ratings) over the ids with ratings. It is subtracted from a new id's logarithm
    /// before the multiplication by the second row of Y₀.
    pub centre: f64,
    /// Weights Y of the features, with one row per feature.
    pub features: Option<Array2<f64>>,
    /// Covariance Σ of a block.
    pub covariance: Array2<f64>,
}

impl<'a> Prior<'a> {
    pub fn new(
        counts: &[usize],
        (k, m): (usize, usize),
        features: Option<Features<'a>>,
        settings: PriorSettings,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let popularity = settings.popularity;
        let (n, d) = (counts.len(), k + m);
        if let Some(features) = &features
            && features.n_rows() != n
        {
            let message = format!("has {} rows, but there are {n} ids", features.n_rows());
            return Err(Error::argument("features", message));
        }
        let (mut base, mut centre) = (Array2::ones((n, 1 + usize::from(popularity))), 0.0);
        if popularity {
            let logs: Vec<f64> = counts.iter().map(|&count| (count as f64).ln_1p()).collect();
            // An id without ratings (known only by its features) gets the value 0, like an id of average popularity.
            // The weight of this column is learned from ids with ratings and must not be extrapolated to zero ratings.
            let rated = counts.iter().filter(|&&count| count > 0).count().max(1) as f64;
            centre = logs.iter().sum::<f64>() / rated;
            let logs: Vec<f64> =
                logs.into_iter().map(|log| if log > 0.0 { log - centre } else { 0.0 }).collect();
            base.column_mut(1).assign(&ndarray::aview1(&logs));
        }
        let mut degrees = n as f64;
        if let Some(features) = &features {
            degrees += determined(features, settings.ridge, interrupt)?;
        }
        let mut covariance = Array2::eye(d);
        for i in k..d {
            for j in k..d {
                covariance[(i, j)] = if i == j { 0.5 } else { 0.3 };
            }
        }
        Ok(Self {
            mean: Array2::zeros((n, d)),
            covariance,
            base_weights: Array2::zeros((base.ncols(), d)),
            base,
            features,
            dual: Array2::zeros((n, d)),
            fitted: Array2::zeros((n, d)),
            ridge: Array2::zeros((d, d)),
            centre,
            settings,
            degrees,
            floor: Array1::from_elem(d, FLOOR * n as f64 + SCALE * (degrees - n as f64)),
            log_scale: 0.0,
        })
    }

    /// A fixed prior with the given mean of each row and the given covariance.
    pub fn known(mean: Array2<f64>, covariance: Array2<f64>) -> Self {
        let (n, d) = mean.dim();
        Self {
            covariance,
            base_weights: Array2::zeros((1, d)),
            base: Array2::ones((n, 1)),
            features: None,
            dual: Array2::zeros((0, d)),
            fitted: Array2::zeros((0, d)),
            ridge: Array2::zeros((d, d)),
            centre: 0.0,
            settings: PriorSettings { popularity: false, ridge: 1.0, relaxation: 1.0 },
            degrees: n as f64,
            floor: Array1::from_elem(d, FLOOR * n as f64),
            log_scale: 0.0,
            mean,
        }
    }

    /// The learned prior, in a form that applies to new ids.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn learned(&self, interrupt: &Interrupt) -> Result<LearnedPrior> {
        let features = match &self.features {
            None => None,
            Some(features) => {
                let dual = self.dual.as_slice().unwrap_or_default();
                let d = self.dual.ncols();
                let weights = products::multiply_transposed(features, dual, d, interrupt)?;
                Some(shaped((features.n_cols(), d), weights)?)
            }
        };
        let Self { base_weights, centre, covariance, .. } = self;
        let (base, covariance) = (base_weights.clone(), covariance.clone());
        Ok(LearnedPrior { base, centre: *centre, features, covariance })
    }

    pub fn has_features(&self) -> bool {
        self.features.is_some()
    }

    pub fn covariance(&self) -> &Array2<f64> {
        &self.covariance
    }

    /// The covariance's inverse.
    pub fn precision(&self) -> Result<Inverse> {
        inverse(&self.covariance)
    }

    /// The divergence of the blocks from the prior without the term −½ Σ log det S, plus the penalty on the weights of
    /// the prior. The rows of `z` are the blocks' means.
    pub fn cost(&self, z: &Array2<f64>, covariance_sum: &Array2<f64>) -> Result<f64> {
        let precision = self.precision()?;
        let trace = (&precision.matrix * &self.scatter(z, covariance_sum)).sum();
        let n = z.nrows() as f64;
        let cost = 0.5 * (trace + self.degrees * precision.log_det - n * z.ncols() as f64);
        Ok(cost + (self.degrees - n) * self.log_scale)
    }

    /// The sum of Σ_a S_a, the scatter of the blocks' means around the prior means, the ridge on the features' weights,
    /// and `floor` on the diagonal. This is the optimal covariance times the degrees of freedom.
    fn scatter(&self, z: &Array2<f64>, covariance_sum: &Array2<f64>) -> Array2<f64> {
        let residual = z - &self.mean;
        let mut scatter = residual.t().dot(&residual) + covariance_sum + &self.ridge;
        let mut diagonal = scatter.diag_mut();
        diagonal += &self.floor;
        scatter
    }

    /// One step of coordinate descent on mean and covariance, given the blocks' means `z` and the sum of
    /// their covariances.
    pub fn learn(
        &mut self,
        z: &Array2<f64>,
        covariance_sum: &Array2<f64>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let ridge = self.settings.ridge;
        let step = self.step(z, interrupt)?;
        let length = self.length(&step, z)?;
        self.base_weights.scaled_add(length, &step.base_weights);
        if self.features.is_some() {
            self.dual.scaled_add(length, &step.dual);
            self.fitted.scaled_add(length, &step.fitted);
            self.ridge = self.dual.t().dot(&self.fitted) * ridge;
            self.ridge = (&self.ridge + &self.ridge.t()) * 0.5;
        }
        self.mean.scaled_add(length, &step.mean);
        self.covariance = self.scatter(z, covariance_sum) / self.degrees;
        Ok(())
    }

    /// Computes a step from the current weights to better weights: conjugate gradient steps for the features'
    /// weights, then the optimal base weights.
    fn step(&self, z: &Array2<f64>, interrupt: &Interrupt) -> Result<Step> {
        let ridge = self.settings.ridge;
        let mut dual = Array2::zeros((0, z.ncols()));
        let mut fitted = Array2::zeros((0, z.ncols()));
        let mut rest = z.clone();
        if let Some(features) = &self.features {
            let residual = z - &self.mean - &(&self.dual * ridge);
            dual = ridge_step(features, residual, ridge, interrupt)?;
            fitted = gram_product(features, &dual, interrupt)?;
            rest = rest - &self.fitted - &fitted;
        }
        let mut gram = self.base.t().dot(&self.base);
        // If all rows of a side have the same number of ratings, the second column of B is 0 and BᵀB is singular.
        gram.diag_mut().mapv_inplace(|g| g + 1e-9 * z.nrows() as f64);
        let best = inverse(&gram)?.matrix.dot(&self.base.t().dot(&rest));
        let base_weights = best - &self.base_weights;
        let mut mean = self.base.dot(&base_weights);
        if self.features.is_some() {
            mean += &fitted;
        }
        Ok(Step { base_weights, dual, fitted, mean })
    }

    /// Returns the factor by which a step is multiplied: the over-relaxation factor, reduced if the objective would
    /// otherwise increase.
    fn length(&self, step: &Step, z: &Array2<f64>) -> Result<f64> {
        let PriorSettings { ridge, relaxation, .. } = self.settings;
        if self.features.is_none() {
            return Ok(1.0);
        }
        let residual = z - &self.mean;
        let mut slope = self.fitted.t().dot(&step.dual) * ridge - residual.t().dot(&step.mean);
        let mut curvature = step.fitted.t().dot(&step.dual) * ridge + step.mean.t().dot(&step.mean);
        let precision = self.precision()?.matrix;
        slope *= &precision;
        curvature *= &precision;
        let (slope, curvature) = (slope.sum(), curvature.sum());
        if slope >= 0.0 || curvature <= 0.0 {
            return Ok(0.0);
        }
        // The quadratic along the step is below its starting value up to twice the distance to its minimum.
        Ok(relaxation.min(-1.9 * slope / curvature))
    }

    /// Adapts all quantities to factors that have been divided by `scale`.
    pub fn rescale(&mut self, scale: &[f64]) {
        let factor = |slot: usize| scale.get(slot).copied().unwrap_or(1.0);
        let Self { mean, base_weights, dual, fitted, .. } = self;
        for matrix in [mean, base_weights, dual, fitted] {
            for ((_, slot), value) in matrix.indexed_iter_mut() {
                *value /= factor(slot);
            }
        }
        self.log_scale += scale.iter().map(|scale| scale.ln()).sum::<f64>();
        for (slot, value) in self.floor.iter_mut().enumerate() {
            *value /= factor(slot) * factor(slot);
        }
        for matrix in [&mut self.covariance, &mut self.ridge] {
            for ((i, j), value) in matrix.indexed_iter_mut() {
                *value /= factor(i) * factor(j);
            }
        }
    }
}

/// A step of the prior mean: the changes of its weights and of the mean itself.
struct Step {
    base_weights: Array2<f64>,
    dual: Array2<f64>,
    fitted: Array2<f64>,
    mean: Array2<f64>,
}

/// Estimates tr F Fᵀ (F Fᵀ + ridge I)⁻¹ from products with a few random vectors of signs (Hutchinson 1989).
fn determined(f: &Features<'_>, ridge: f64, interrupt: &Interrupt) -> Result<f64> {
    let mut rng = Pcg64Mcg::seed_from_u64(0);
    let mut sign = || if rng.random::<bool>() { 1.0 } else { -1.0 };
    let probes = Array2::from_shape_simple_fn((f.n_rows(), PROBES), &mut sign);
    let solved = ridge_step(f, probes.clone(), ridge, interrupt)?;
    let image = gram_product(f, &solved, interrupt)?;
    Ok(((&probes * &image).sum() / PROBES as f64).max(0.0))
}

/// Number of random vectors of signs. The error of the trace is a few per cent, and its effect on the fit is far
/// smaller.
const PROBES: usize = 16;

/// Added to the variances, which would otherwise be 0 if all blocks were equal.
const FLOOR: f64 = 1e-6;

/// Variance that each degree of freedom of the features' weights adds to the scatter, in the scale of the random start.
const SCALE: f64 = 0.02;

/// Returns F Fᵀ B, where F are the features and B is any matrix.
fn gram_product(f: &Features<'_>, b: &Array2<f64>, interrupt: &Interrupt) -> Result<Array2<f64>> {
    let product = products::gram_product(f, b.as_slice().unwrap_or(&[]), b.ncols(), interrupt)?;
    shaped(b.dim(), product)
}

fn shaped(shape: (usize, usize), values: Vec<f64>) -> Result<Array2<f64>> {
    Array2::from_shape_vec(shape, values).map_err(|error| Error::Numerical(error.to_string()))
}

/// Takes a few conjugate gradient steps towards the solution of (F Fᵀ + ridge I) A = B, starting at 0, in all columns
/// at once.
///
/// With the inner product of F Fᵀ, each step is optimal for the function to be minimised, ½‖B − F Fᵀ A‖² + ½ ridge ⟨A,
/// F Fᵀ A⟩. With the standard inner product, it would be optimal for a different function, and the objective might
/// increase.
fn ridge_step(
    f: &Features<'_>,
    b: Array2<f64>,
    ridge: f64,
    interrupt: &Interrupt,
) -> Result<Array2<f64>> {
    let inner = |x: &Array2<f64>, y: &Array2<f64>| (x * y).sum_axis(Axis(0));
    // Columns that are solved up to rounding do not change.
    let ratio = |x: &Array1<f64>, y: &Array1<f64>, solved: &Array1<f64>| {
        Zip::from(x).and(y).and(solved).map_collect(
            |&x, &y, &solved| {
                if x > solved && y > 0.0 { x / y } else { 0.0 }
            },
        )
    };
    let mut a = Array2::zeros(b.dim());
    let mut residual = b;
    let mut residual_image = gram_product(f, &residual, interrupt)?;
    let (mut direction, mut image) = (residual.clone(), residual_image.clone());
    let mut squares = inner(&residual, &residual_image);
    let solved = squares.mapv(|square| 1e-26 * square.abs() + f64::MIN_POSITIVE);
    for _ in 0..CG_STEPS {
        let applied = &image + &(&direction * ridge);
        let step = ratio(&squares, &inner(&image, &applied), &solved);
        a += &(&direction * &step);
        residual -= &(&applied * &step);
        residual_image = gram_product(f, &residual, interrupt)?;
        let next = inner(&residual, &residual_image);
        let kept = ratio(&next, &squares, &solved);
        direction = &residual + &(&direction * &kept);
        image = &residual_image + &(&image * &kept);
        squares = next;
    }
    Ok(a)
}

/// The inverse of a covariance or of a precision.
pub(super) fn inverse(a: &Array2<f64>) -> Result<Inverse> {
    cholesky::invert(a).ok_or_else(indefinite)
}

/// The error returned if a matrix has no inverse.
pub(super) fn indefinite() -> Error {
    let message =
        "a covariance is no longer positive definite; use fewer components or less weight";
    Error::Numerical(message.into())
}
