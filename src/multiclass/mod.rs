//! Linear multi-category models. Classes are the parts of a block, and the loss of an example is the support function
//! of a polytope, evaluated at the margins.

pub mod consensus;
mod cross_validation;
mod joint;
mod memory;
mod problem;
mod solvers;

pub use cross_validation::{Candidate, Fold, Measure, Scoring, Search};
pub use joint::{JointMap, fit_joint, joint_method};
pub use memory::{Size, require_joint_memory};
pub use problem::{
    Costs, Layout, Linear, MarginDual, MarginProblem, Order, RowSize, ScoreMap, Workspace,
};
#[cfg(test)]
pub use solvers::{BlockDescentOptions, block_descent};
pub use solvers::{MarginPoint, MulticlassFit, MulticlassMethod, fit, regularization_path};
