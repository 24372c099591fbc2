//! Solvers of linear multi-category problems: block descent, which hands over to Newton's method if it is slow, and the
//! general solvers of [`crate::solver`].

mod block_descent;
mod hand_over;
mod lambda_path;
mod margin_blocks;
mod method;
mod path;

pub use block_descent::{BlockDescent, Options as BlockDescentOptions, block_descent};
pub(super) use hand_over::HandOver;
pub(super) use lambda_path::LambdaPath;
pub(super) use margin_blocks::{MarginBlocks, betas_of, points_of};
pub(super) use method::Stages;
pub use method::{MarginPoint, MulticlassFit, MulticlassMethod, fit};
pub use path::regularization_path;
