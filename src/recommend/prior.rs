//! The prior of one side's blocks: a regression on features, and a full covariance; both learned.

use ndarray::{Array2, ArrayView2, Axis};

use crate::data::{Csr, Rows};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::{self, Inverse};
use crate::linalg::products;

/// Features of one side's rows, one row each.
pub type Features<'a> = Csr<'a, f64>;

/// Conjugate gradient steps per sweep: the sweeps themselves continue them.
const CG_STEPS: usize = 5;

/// mean = B Y₀ + F Y, with B = \[1\] or \[1, centred log(1 + ratings)\], and Y = Fᵀ A.
#[derive(Debug)]
pub(super) struct Prior<'a> {
    /// n × (k + m).
    pub mean: Array2<f64>,
    covariance: Array2<f64>,
    base: Array2<f64>,
    /// Y₀.
    base_weights: Array2<f64>,
    features: Option<Features<'a>>,
    /// A, n × (k + m): the features' weights in dual form.
    dual: Array2<f64>,
}

impl<'a> Prior<'a> {
    pub fn new(
        counts: &[usize],
        (k, m): (usize, usize),
        features: Option<Features<'a>>,
        popularity: bool,
    ) -> Result<Self> {
        let (n, d) = (counts.len(), k + m);
        if let Some(features) = &features
            && features.n_rows() != n
        {
            let message = format!("{} rows of features for {n} ids", features.n_rows());
            return Err(Error::argument("features", message));
        }
        let mut base = Array2::ones((n, 1 + usize::from(popularity)));
        if popularity {
            let logs: Vec<f64> = counts.iter().map(|&count| (count as f64).ln_1p()).collect();
            // An id without ratings (known by its features) counts as an average one: the weight
            // was learned from ids with ratings and must not be extrapolated to none.
            let rated = counts.iter().filter(|&&count| count > 0).count().max(1) as f64;
            let average = logs.iter().sum::<f64>() / rated;
            let logs: Vec<f64> =
                logs.into_iter().map(|log| if log > 0.0 { log - average } else { 0.0 }).collect();
            base.column_mut(1).assign(&ndarray::aview1(&logs));
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
        })
    }

    pub fn has_features(&self) -> bool {
        self.features.is_some()
    }

    /// The covariance's inverse.
    pub fn precision(&self) -> Result<Inverse> {
        inverse(&self.covariance)
    }

    /// One step of coordinate descent on mean and covariance, given the blocks' means `z` and the sum of
    /// their covariances.
    pub fn learn(
        &mut self,
        z: &Array2<f64>,
        covariance_sum: &Array2<f64>,
        ridge: f64,
        relaxation: f64,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let n = z.nrows() as f64;
        let fitted = match &self.features {
            None => None,
            Some(features) => {
                let target = z - &self.base.dot(&self.base_weights);
                ridge_step(features, &target, ridge, &mut self.dual, interrupt)?;
                Some(gram_product(features, &self.dual, interrupt)?)
            }
        };
        let rest = match &fitted {
            Some(fitted) => z - fitted,
            None => z.clone(),
        };
        let mut gram = self.base.t().dot(&self.base);
        // A side whose rows all have equally many ratings has a second column of zeros.
        gram.diag_mut().mapv_inplace(|g| g + 1e-9 * n);
        self.base_weights = inverse(&gram)?.matrix.dot(&self.base.t().dot(&rest));
        let mut mean = self.base.dot(&self.base_weights);
        let relaxation = match &fitted {
            Some(fitted) => {
                mean += fitted;
                relaxation
            }
            None => 1.0,
        };
        self.mean = &self.mean + &((mean - &self.mean) * relaxation);
        let residual = z - &self.mean;
        self.covariance = (residual.t().dot(&residual) + covariance_sum) / n;
        self.covariance.diag_mut().mapv_inplace(|v| v + 1e-6);
        Ok(())
    }

    /// Divides the factors' part of everything by `scale`.
    pub fn rescale(&mut self, scale: &[f64]) {
        let factor = |slot: usize| scale.get(slot).copied().unwrap_or(1.0);
        for matrix in [&mut self.mean, &mut self.base_weights, &mut self.dual] {
            for ((_, slot), value) in matrix.indexed_iter_mut() {
                *value /= factor(slot);
            }
        }
        for ((i, j), value) in self.covariance.indexed_iter_mut() {
            *value /= factor(i) * factor(j);
        }
    }
}

/// F Fᵀ B.
fn gram_product(f: &Features<'_>, b: &Array2<f64>, interrupt: &Interrupt) -> Result<Array2<f64>> {
    let product = products::gram_product(f, b.as_slice().unwrap_or(&[]), b.ncols(), interrupt)?;
    Array2::from_shape_vec(b.dim(), product).map_err(|error| Error::Numerical(error.to_string()))
}

/// A few conjugate gradient steps on (F Fᵀ + ridge I) A = B, all columns at once.
fn ridge_step(
    f: &Features<'_>,
    b: &Array2<f64>,
    ridge: f64,
    a: &mut Array2<f64>,
    interrupt: &Interrupt,
) -> Result<()> {
    let apply = |x: &Array2<f64>| -> Result<Array2<f64>> {
        Ok(gram_product(f, x, interrupt)? + &(x * ridge))
    };
    let column_squares = |x: ArrayView2<'_, f64>| x.mapv(|v| v * v).sum_axis(Axis(0));
    let mut residual = b - &apply(a)?;
    let mut direction = residual.clone();
    let mut squares = column_squares(residual.view());
    for _ in 0..CG_STEPS {
        let image = apply(&direction)?;
        let curvature = (&direction * &image).sum_axis(Axis(0));
        let step = &squares / &curvature.mapv(|c| c.max(1e-300));
        *a += &(&direction * &step);
        residual -= &(&image * &step);
        let next = column_squares(residual.view());
        direction = &residual + &(&direction * &(&next / &squares.mapv(|s| s.max(1e-300))));
        squares = next;
    }
    Ok(())
}

/// The inverse of a covariance or of a precision.
pub(super) fn inverse(a: &Array2<f64>) -> Result<Inverse> {
    let message =
        "a covariance is no longer positive definite; use fewer components or less weight";
    cholesky::invert(a).ok_or_else(|| Error::Numerical(message.into()))
}
