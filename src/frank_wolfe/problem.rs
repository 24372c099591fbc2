//! The interface between a function on a set and the methods that minimise it.

use rand_pcg::Pcg64Mcg;

use crate::error::Result;
use crate::interrupt::Interrupt;

/// A vertex with its weight in a convex combination.
#[derive(Debug, Clone)]
pub(super) struct Weighted<A> {
    pub atom: A,
    pub weight: f64,
}

/// The direction of a step.
#[derive(Debug)]
pub(super) enum Direction<'a, A> {
    /// From the current point to a vertex.
    Towards(&'a A),
    /// From a vertex to the current point, and beyond this point.
    Away(&'a A),
    /// From the second vertex to the first vertex.
    Pairwise(&'a A, &'a A),
}

/// A function on a set, with a current point and the gradient there.
pub(super) trait Problem {
    /// A vertex of the set.
    type Atom: Clone;

    /// Recomputes the point from `active`, unless that is empty, and then value and gradient from
    /// the point.
    fn refresh(&mut self, active: &[Weighted<Self::Atom>], interrupt: &Interrupt) -> Result<()>;

    /// Whether steps update value and gradient, so that rounding errors accumulate until
    /// [`Problem::refresh`].
    fn is_incremental(&self) -> bool;

    /// The value of the function at the point.
    fn value(&self) -> f64;

    /// The slope ⟨gradient, point⟩.
    fn slope_here(&self) -> f64;

    /// The slope ⟨gradient, atom⟩.
    fn slope(&self, atom: &Self::Atom) -> f64;

    /// Finds a vertex that minimises the slope. If the search is not exact, the slope exceeds the minimum by about
    /// `error` at most.
    fn vertex(&mut self, error: f64, interrupt: &Interrupt) -> Result<Self::Atom>;

    /// Returns the best vertex of a random fraction of the vertices, or None if the set cannot list its vertices.
    fn sampled_vertex(&mut self, share: f64, random: &mut Pcg64Mcg) -> Option<Self::Atom>;

    /// Returns a lower bound on the minimum of the function over the set. `vertex` minimises the slope at the current
    /// point, and `gap` is the estimated gap.
    fn lower_bound(&mut self, vertex: &Self::Atom, gap: f64, interrupt: &Interrupt) -> Result<f64>;

    /// Whether a lower bound is cheap enough for every iteration.
    fn bounds_are_cheap(&self) -> bool;

    /// Fraction of the gap by which a lower bound may be too low, apart from rounding errors.
    fn bound_slack(&self) -> f64 {
        0.0
    }

    /// Moves by a step of at most `longest`, or of exactly `fixed` if given. Returns the step, which is 0 if no step
    /// lowers the value.
    fn walk(
        &mut self,
        direction: &Direction<'_, Self::Atom>,
        longest: f64,
        fixed: Option<f64>,
        interrupt: &Interrupt,
    ) -> Result<f64>;

    /// Whether two vertices are equal.
    fn is_same(&self, a: &Self::Atom, b: &Self::Atom) -> bool;
}
