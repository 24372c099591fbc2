//! The sets B whose support function at the margins is a multi-category loss.
//!
//! For an example with label y and scores s, the margins are v_j = Δ_j + s_j − s_y (so v_y = 0),
//! where Δ is the cost vector (1 for every class except the label for the plain losses). The loss
//! is Φ(s; y) = max over β in B of ⟨β, v⟩ (docs/mathematics/polytopes.md). A [`Polytope`] computes
//! the support value, a vertex that attains it, and the projection with a rank-one bias term.
//!
//! A set must implement only [`Polytope::vertex`] and [`Polytope::radius`]; a specialised projection is faster than the
//! default one. To add a built-in loss, add a file with a [`Polytope`] and a line in `REGISTRY`.

use std::fmt;

use crate::error::{Error, Result};
use crate::names::find;

mod capped;
mod cube;
mod distance;
mod faces;
mod max_hinge;
mod oracle;
mod root;
mod select;
mod sorted;
mod top_k;
mod usunier;
mod weighted_top_k;
mod weighted_usunier;
mod weights;

pub(crate) mod lifted;
pub(crate) mod moreau;
pub(crate) mod walrus;

pub use crate::dual::Curvatures;
pub use crate::linalg::Sparse;
pub(crate) use capped::Capped;
pub use cube::Cube;
pub use max_hinge::MaxHinge;
pub use top_k::TopK;
pub use usunier::Usunier;
pub use weighted_top_k::WeightedTopK;
pub use weighted_usunier::WeightedUsunier;
pub use weights::Weights;

/// Buffers that a polytope may use for any purpose, allocated once per thread and fit.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Values being sorted or selected.
    pub values: Vec<f64>,
    /// The indices of these values.
    pub order: Vec<usize>,
    /// Further work space of the projections.
    pub work: Vec<f64>,
    /// Margins divided by the smoothing parameter.
    pub margins: Vec<f64>,
    /// Starting point of the search for the multiplier in the next projection. A good guess, such as the last
    /// multiplier of the same example, saves time. The guess changes the result only by rounding errors.
    pub guess: Option<f64>,
    /// The multiplier of the last projection.
    pub multiplier: f64,
}

impl Scratch {
    /// Takes the guess and clears it, so that later projections do not depend on it.
    fn take_guess(&mut self) -> f64 {
        self.guess.take().unwrap_or(0.0)
    }
}

/// The set {0 <= β_j <= upper, 1ᵀβ <= cap}, or its points whose sum is at least `floor`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CappedBox {
    /// Upper bound on each β_j.
    pub upper: f64,
    /// Upper bound on the sum; infinite if only the box bounds the sum.
    pub cap: f64,
    /// The sum above which the polytope equals this set; 0 if it equals the set everywhere.
    pub floor: f64,
}

/// A polytope B in R^m, with one coordinate per class. The label's coordinate never matters, because v\[label\] = 0.
pub trait Polytope: Send + Sync + fmt::Debug {
    /// Checks that the set exists for `n_classes` classes: k or the number of weights must fit
    /// (docs/mathematics/polytopes.md#the-sets).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the parameter that does not fit.
    fn check(&self, _n_classes: usize) -> Result<()> {
        Ok(())
    }

    /// max over β in B of ⟨β, v⟩ (docs/mathematics/duality.md#losses-as-support-functions). `v[label]` is 0. The
    /// default returns the value of [`Polytope::vertex`].
    fn support(&self, v: &[f64], label: usize, scratch: &mut Scratch) -> f64 {
        self.vertex(v, label, scratch, &mut Sparse::new())
    }

    /// Writes a vertex that attains the support value as (class, weight) pairs in any order, without the label and
    /// without zeros; returns the support value. Ties go to the smaller class, and a loss of zero gives the empty
    /// vertex (docs/mathematics/polytopes.md#vertices).
    fn vertex(&self, v: &[f64], label: usize, scratch: &mut Scratch, vertex: &mut Sparse) -> f64;

    /// argmin over β in B of ½‖b‖² + bias/2 (1ᵀb)² − vᵀb, where b is β without its label's
    /// coordinate; b is written to `beta`, and `beta[label]` is 0.
    ///
    /// With bias = 0, this is the plain projection of v. Block steps of dual descent and Moreau
    /// envelopes use bias = 1 (docs/mathematics/polytopes.md#projection-with-a-rank-one-term).
    ///
    /// If the set is [symmetric](Polytope::is_symmetric), block descent also calls this method with a subset of the
    /// classes; all other classes have β_j = 0. The subset always contains the label and the classes of a vertex, or of
    /// some other point of B that is not 0.
    ///
    /// The default finds the projection by calls of [`Polytope::vertex`] (Wolfe 1976). Its time grows with the cube of
    /// the number of vertices that the result combines.
    fn project(&self, v: &[f64], label: usize, bias: f64, scratch: &mut Scratch, beta: &mut [f64]) {
        scratch.guess = None;
        let radius = self.radius(v.len());
        let vertex = &mut |at: &[f64], vertex: &mut _| self.vertex(at, label, scratch, vertex);
        oracle::nearest(vertex, radius, v, label, bias, beta);
        scratch.multiplier = bias * beta.iter().sum::<f64>();
    }

    /// Adds the derivative of the projection with bias 1, at an argument whose projection is `beta`, to the open block
    /// of `curvatures`. The coordinates belong to u = −α: β off the label and −1ᵀβ at the label. The derivative is
    /// the orthogonal projection onto the directions of the face that contains `beta`; any larger matrix is also
    /// allowed (docs/mathematics/newton.md#curvature).
    ///
    /// The default is valid for every set: all directions that leave classes with β = 0 unchanged.
    fn curvature(
        &self,
        beta: &[f64],
        label: usize,
        _scratch: &mut Scratch,
        curvatures: &mut Curvatures,
    ) {
        faces::largest_face(beta, label, curvatures);
    }

    /// An upper bound on the distance in ‖·‖₁ of a point from B, including the rounding error of the bound. It is 0 or
    /// nearly 0 for results of [`Polytope::vertex`] and [`Polytope::project`]. The point is given as (class, value)
    /// pairs without the label, for `n_classes` classes. Certificates account for this distance
    /// (docs/mathematics/duality.md#rounding). If a set returns infinity, only solvers whose points are known
    /// combinations of vertices can be used.
    ///
    /// The default is the distance to the projection, found as in [`Polytope::project`].
    fn distance(&self, beta: &[(u32, f64)], label: usize, n_classes: usize) -> f64 {
        let (scratch, radius) = (&mut Scratch::default(), self.radius(n_classes));
        let vertex = &mut |at: &[f64], vertex: &mut _| self.vertex(at, label, scratch, vertex);
        oracle::distance(vertex, radius, beta, label, n_classes)
    }

    /// Whether the set does not change when classes other than the label are permuted. If so, block descent may leave
    /// out classes, which makes it faster.
    fn is_symmetric(&self) -> bool {
        false
    }

    /// The set as a [`CappedBox`], if the two agree at least for points whose sum is above `floor`; None otherwise.
    fn capped_box(&self) -> Option<CappedBox> {
        None
    }

    /// [`capped_box`](Self::capped_box) if the whole set has this form. In such a set, single entries of a point may
    /// shrink independently.
    fn whole_box(&self) -> Option<CappedBox> {
        self.capped_box().filter(|set| set.floor == 0.0)
    }

    /// max over β in B of 1ᵀβ for `n_classes` classes: the loss of the model w = 0 with unit costs.
    fn radius(&self, n_classes: usize) -> f64;
}

/// Threshold on the ratio of the largest margin (or of the multiplier) to the largest sum of a point. Above it,
/// rounding leaves too few correct digits of the sum.
const STEEP: f64 = 1e6;

/// A larger threshold than [`STEEP`] on the same ratio, above which a vertex is as good as the projection.
const VERTICAL: f64 = 1e9;

/// Replaces a point that is noticeably outside the set by the vertex of the largest margins.
fn replace_by_vertex(
    set: &dyn Polytope,
    v: &[f64],
    label: usize,
    scratch: &mut Scratch,
    beta: &mut [f64],
) {
    let mut point: Sparse = (0..).zip(beta.iter().copied()).filter(|(_, b)| *b != 0.0).collect();
    if set.distance(&point, label, v.len()) <= 1e-9 * set.radius(v.len()) {
        return;
    }
    set.vertex(v, label, scratch, &mut point);
    beta.fill(0.0);
    for (class, value) in point {
        beta[class as usize] = value;
    }
}

/// Parameters of losses. Each loss accepts the parameters that it declares and rejects all others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    /// The number k of largest margins over which a loss averages.
    pub k: Option<usize>,
    /// The weights ρ of the sorted margins.
    pub weights: Option<Vec<f64>>,
}

type Boxed = Box<dyn Polytope>;

/// The constructor of a loss, which declares its parameters.
#[derive(Debug, Clone, Copy)]
pub enum LossConstructor {
    /// A loss without parameters.
    Plain(fn() -> Boxed),
    /// A loss with the parameter `k`.
    Counted(fn(usize) -> Result<Boxed>),
    /// A loss with the parameter `weights`.
    Weighted(fn(Weights) -> Boxed),
}

/// Every loss by its name.
pub const REGISTRY: &[(&str, LossConstructor)] = &[
    ("max-hinge", LossConstructor::Plain(|| Box::new(MaxHinge))),
    ("crammer-singer", LossConstructor::Plain(|| Box::new(MaxHinge))),
    ("weston-watkins", LossConstructor::Plain(|| Box::new(Cube))),
    ("top-k", LossConstructor::Counted(|k| Ok(Box::new(TopK::new(k)?)))),
    ("usunier", LossConstructor::Counted(|k| Ok(Box::new(Usunier::new(k)?)))),
    ("weighted-top-k", LossConstructor::Weighted(|weights| Box::new(WeightedTopK::new(weights)))),
    (
        "weighted-usunier",
        LossConstructor::Weighted(|weights| Box::new(WeightedUsunier::new(weights))),
    ),
];

/// The polytope of the loss called `name`.
///
/// # Errors
/// [`Error::InvalidArgument`] for an unknown name and for parameters that are missing, unusable or
/// rejected by the loss.
pub fn parse(name: &str, parameters: Parameters) -> Result<Box<dyn Polytope>> {
    find("loss", name, REGISTRY)?.polytope(name, parameters)
}

impl LossConstructor {
    /// Names of the loss's parameters.
    pub fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Plain(_) => &[],
            Self::Counted(_) => &["k"],
            Self::Weighted(_) => &["weights"],
        }
    }

    /// The polytope of the loss; `name` is its name in error messages.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for parameters that are missing, unusable or rejected by the
    /// loss.
    pub fn polytope(self, name: &str, given: Parameters) -> Result<Box<dyn Polytope>> {
        match (self, given) {
            (Self::Plain(build), Parameters { k: None, weights: None }) => Ok(build()),
            (Self::Counted(build), Parameters { k: Some(k), weights: None }) => build(k),
            (Self::Weighted(build), Parameters { k: None, weights: Some(weights) }) => {
                Ok(build(Weights::new(weights)?))
            }
            (_, given) => Err(self.misfit(name, &given)),
        }
    }

    /// The error for parameters that the loss does not have or that are missing.
    fn misfit(self, name: &str, given: &Parameters) -> Error {
        let takes = |parameter| self.parameters().contains(&parameter);
        let argument = if given.k.is_some() == takes("k") { "weights" } else { "k" };
        let verb = if takes(argument) { "needs" } else { "takes no" };
        Error::argument(argument, format!("the loss {name:?} {verb} {argument}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_builds_from_its_own_parameters_only() {
        let k = Parameters { k: Some(2), weights: None };
        let weights = Parameters { k: None, weights: Some(vec![0.6, 0.4, 0.0]) };
        let given = [Parameters::default(), k, weights];
        for (name, build) in REGISTRY {
            for (parameters, names) in given.iter().zip([&[][..], &["k"], &["weights"]]) {
                let built = parse(name, parameters.clone());
                let own = names == build.parameters();
                assert_eq!(built.is_ok(), own, "{name} from {parameters:?}");
                if let Ok(polytope) = built {
                    polytope.check(3).unwrap();
                    assert_eq!(polytope.check(2).is_ok(), names.is_empty(), "{name}, 2 classes");
                }
            }
        }
    }

    #[test]
    fn errors_name_the_argument() {
        let message = |name: &str, k, weights| {
            parse(name, Parameters { k, weights }).unwrap_err().to_string()
        };
        assert!(message("hinge", None, None).starts_with("loss: unknown name \"hinge\""));
        assert_eq!(message("max-hinge", Some(1), None), "k: the loss \"max-hinge\" takes no k");
        assert_eq!(message("top-k", None, None), "k: the loss \"top-k\" needs k");
        let weights = Some(vec![1.0, 0.0]);
        let expected = "weights: the loss \"usunier\" takes no weights";
        assert_eq!(message("usunier", Some(1), weights), expected);
        assert_eq!(message("top-k", Some(0), None), "k: must be at least 1");
        assert!(
            message("weighted-top-k", None, Some(vec![1.0, 2.0, 0.0])).starts_with("weights: ")
        );
        let error = parse("top-k", Parameters { k: Some(5), weights: None }).unwrap().check(5);
        assert_eq!(
            error.unwrap_err().to_string(),
            "k: must be below the number of classes (k = 5 with 5 classes)"
        );
    }
}
