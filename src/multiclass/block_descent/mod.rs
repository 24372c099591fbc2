//! Exact block coordinate descent on the dual: Walrus for the cube (Wang and Scott 2021), Crammer and Singer's
//! step for the simplex, and the like for every set that can be projected onto
//! (`docs/mathematics/block-descent.md`).

mod average;
mod candidates;
mod certificate;
mod dual_block;
mod estimate;
mod face;
mod feature_major;
mod few;
mod full;
mod kernels;
mod moved;
mod row;
mod scorer;
mod sparse_kernels;
mod sparse_scorer;
mod spread;
mod state;
mod visit;

pub use self::state::Options;

use self::scorer::{DenseScorer, Scorer};
use self::sparse_scorer::SparseScorer;
use self::state::State;
use crate::data::Data;
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::multiclass::MarginProblem;
use crate::run::{Certificate, Progress, Solver};

/// Block coordinate descent: for one example after the other, in random order, the dual is maximised
/// exactly over its β_i (`docs/mathematics/block-descent.md`).
///
/// With C_i = p_i/λ, A_i = ‖x_i‖², h = C_i A_i + γ and the margins v at the current weights, that is
/// the projection with bias 1 of u = (v + C_i A_i (β_i + 1ᵀβ_i)) / h.
///
/// A pass is one of two kinds. While many classes of many examples still move, it visits every example once and looks at
/// all classes; scores are computed for a block of examples at once (`full`). Later it visits only the examples that are
/// not optimal and looks at their candidate classes alone (`few`), with conjugate gradient steps in between for what
/// single blocks solve slowly (`face`). The first epoch may have passes of both kinds, a later one has the kind that the
/// last certificate speaks for; where candidates alone do not move, all classes are looked at as well. Either way a
/// certificate ends the epoch: it looks at all classes of all examples and names the next candidates, so nothing is left
/// out for good.
pub struct BlockDescent<'p>(Box<dyn Descent + 'p>);

trait Descent: Solver + Send {
    fn start(&mut self, origin: Vec<f64>, betas: &[f64], interrupt: &Interrupt) -> Result<()>;
    fn begin_at(&mut self, lambda: f64) -> Result<()>;
    fn move_to(&mut self, lambda: f64, interrupt: &Interrupt) -> Result<Certificate>;
    fn coefficients(&self) -> Vec<f64>;
    fn betas(&self) -> Vec<f64>;
    fn distance(&self) -> f64;
}

impl<'p> BlockDescent<'p> {
    /// Starts at the dual point 0, in the precision of the data.
    pub fn new(problem: &'p MarginProblem<'p>, options: Options) -> Self {
        let (bias, m) = (problem.map().bias(), problem.n_classes());
        Self(match problem.map().data() {
            Data::Dense16(x) => boxed(problem, DenseScorer::<_, f32>::new(x, bias, m), options),
            Data::Dense32(x) => boxed(problem, DenseScorer::<_, f32>::new(x, bias, m), options),
            Data::Dense64(x) => boxed(problem, DenseScorer::<_, f64>::new(x, bias, m), options),
            Data::Csr32(x) => boxed(problem, SparseScorer::<_, f32>::new(x, bias, m), options),
            Data::Csr64(x) => boxed(problem, SparseScorer::<_, f64>::new(x, bias, m), options),
        })
    }

    /// Moves to a dual point, β_i after β_i (examples × classes), each in the loss's set.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn start_at(&mut self, betas: &[f64], interrupt: &Interrupt) -> Result<()> {
        self.0.start(Vec::new(), betas, interrupt)
    }

    /// Like [`BlockDescent::start_at`], and replaces the regulariser by λ/2 ‖w − w₀‖².
    ///
    /// With the weights' origin w₀ (class after class, the constant feature's last) the weights of a
    /// dual point are w₀ + w(β), and nothing else of the block step changes.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn start_around(
        &mut self,
        origin: Vec<f64>,
        betas: &[f64],
        interrupt: &Interrupt,
    ) -> Result<()> {
        self.0.start(origin, betas, interrupt)
    }

    /// Takes another λ than the problem's, which stays as it is, for a start at the dual point 0.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::Error::InvalidArgument) unless λ is positive and finite.
    pub fn begin_at(&mut self, lambda: f64) -> Result<()> {
        self.0.begin_at(lambda)
    }

    /// Goes on with another λ than the problem's, which stays as it is, from a dual point near its optimum;
    /// returns the certificate of that.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::Error::InvalidArgument) unless λ is positive and finite, and
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn move_to(&mut self, lambda: f64, interrupt: &Interrupt) -> Result<Certificate> {
        self.0.move_to(lambda, interrupt)
    }

    /// The weights, class after class, the constant feature's last.
    pub fn coefficients(&self) -> Vec<f64> {
        self.0.coefficients()
    }

    /// A bound on what separates the weights from w(β) (and an origin) in exact arithmetic, right after a
    /// certificate.
    pub fn distance(&self) -> f64 {
        self.0.distance()
    }

    /// β_i after β_i (examples × classes), each a point of the loss's set, 0 at its label.
    pub fn betas(&self) -> Vec<f64> {
        self.0.betas()
    }
}

impl Solver for BlockDescent<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.0.advance(interrupt)
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.0.certify(interrupt)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        self.0.model_arrays()
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        self.0.copy_weights(weights)
    }
}

fn boxed<'p, M: Scorer + 'p>(
    problem: &'p MarginProblem<'p>,
    model: M,
    options: Options,
) -> Box<dyn Descent + 'p> {
    Box::new(State::new(problem, model, options))
}

impl<M: Scorer> Descent for State<'_, M> {
    fn start(&mut self, origin: Vec<f64>, betas: &[f64], interrupt: &Interrupt) -> Result<()> {
        self.start(origin, betas, interrupt)
    }

    fn begin_at(&mut self, lambda: f64) -> Result<()> {
        self.set_lambda(lambda)
    }

    fn move_to(&mut self, lambda: f64, interrupt: &Interrupt) -> Result<Certificate> {
        self.move_to(lambda, interrupt)
    }

    fn coefficients(&self) -> Vec<f64> {
        self.coefficients()
    }

    fn distance(&self) -> f64 {
        self.distance
    }

    fn betas(&self) -> Vec<f64> {
        self.betas()
    }
}
