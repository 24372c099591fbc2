//! Linear multi-category models: classes are the parts, and an example's loss is a polytope's support
//! function of its margins.

mod block_descent;
mod consensus;
mod dual;
mod feature_map;
mod linear;
mod method;
mod oracle;
mod problem;
mod subgradient;

pub use block_descent::{BlockDescent, Options as BlockDescentOptions};
pub use consensus::{Answer, Question, answer};
pub use dual::MarginDual;
pub use feature_map::FeatureMap;
pub use linear::{Layout, Order, linear};
pub use method::{DualPoint, Method, Settings, minimize};
pub use oracle::MarginOracle;
pub(crate) use problem::{BLOCK, shares};
pub use problem::{Costs, Problem, Workspace};
pub use subgradient::Subgradient;
