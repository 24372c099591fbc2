//! Frank-Wolfe methods for any smooth convex function over any set with a linear oracle
//! (docs/mathematics/frank-wolfe.md#any-function-and-any-set).
//!
//! A [`LinearOracle`] returns the vertex of a set that minimises a linear function. A
//! [`SmoothFunction`] returns its value and its gradient. [`FrankWolfeOptions::minimize`] minimises
//! the function over the set by batch, away, pairwise or randomised away steps, and returns a lower
//! bound on the minimum.
//!
//! ```
//! use dualgap::Result;
//! use dualgap::frank_wolfe::{FrankWolfeOptions, Simplex, SmoothFunction};
//!
//! /// Half the squared distance from (0.5, 0.9, −1).
//! struct Distance;
//!
//! impl SmoothFunction for Distance {
//!     fn n_coordinates(&self) -> usize {
//!         3
//!     }
//!
//!     fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
//!         for (g, (x, target)) in gradient.iter_mut().zip(x.iter().zip([0.5, 0.9, -1.0])) {
//!             *g = x - target;
//!         }
//!         Ok(0.5 * gradient.iter().map(|g| g * g).sum::<f64>())
//!     }
//! }
//!
//! let nearest = FrankWolfeOptions::default().minimize(&Distance, &Simplex::new(3, 1.0)?)?;
//! assert!((nearest.x[0] - 0.3).abs() < 1e-2 && nearest.x[2] == 0.0);
//! assert!(nearest.certificate.gap() <= 1e-6);
//! # Ok::<(), dualgap::Error>(())
//! ```

mod block_krylov;
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
