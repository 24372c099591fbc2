//! Linear multi-category models. Classes are the parts of a block, and the loss of an example is the support function
//! of a polytope, evaluated at the margins.

mod batch;
mod block_descent;
mod bounds;
mod column_scales;
pub mod consensus;
mod costs;
mod cross_validation;
mod dual;
mod hand_over;
mod joint;
mod lambda_path;
mod layout;
mod linear;
mod map;
mod memory;
mod method;
mod newton;
mod path;
mod problem;
mod row_stats;

#[cfg(test)]
pub use block_descent::{Options as BlockDescentOptions, block_descent};
pub use costs::Costs;
pub use cross_validation::{Candidate, Fold, Measure, Scoring, Search};
pub use dual::MarginDual;
pub use joint::{JointMap, fit_joint, joint_method};
pub use layout::{Layout, Order};
pub use linear::Linear;
pub use map::{RowSize, ScoreMap};
pub use memory::{Size, require_joint_memory};
pub use method::{MarginPoint, MulticlassFit, MulticlassMethod, fit};
pub use path::regularization_path;
pub use problem::{MarginProblem, Workspace};
