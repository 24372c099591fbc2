//! Frank-Wolfe methods for any smooth convex function over any set with a linear oracle
//! (docs/mathematics/frank-wolfe.md#any-function-and-any-set).
//!
//! A [`LinearOracle`] returns the vertex of a set that minimises a linear function. A
//! [`SmoothFunction`] returns its value and its gradient. [`FrankWolfeOptions::minimize`] minimises
//! the function over the set by batch, away, pairwise or randomised away steps, and returns a lower
//! bound on the minimum.

mod columns;
mod completion;
mod dense_point;
mod function;
mod low_rank;
mod method;
mod minimize;
mod minimizer;
mod oracle;
mod problem;
mod rank_one;
mod residuals;
mod search;
mod vertex;

pub use completion::MatrixCompletion;
pub use function::{FunctionRounding, LeastSquares, LogisticSum, SmoothFunction};
pub use method::FrankWolfeMethod;
pub use minimize::{ActiveVertex, FrankWolfeOptions, LowRankMinimum, Minimum};
pub use oracle::{
    Birkhoff, ConvexHull, KSparse, L1Ball, LinearOracle, NuclearNormBall, ProductSet, Simplex,
};
pub use search::StepSize;
pub use vertex::Vertex;
