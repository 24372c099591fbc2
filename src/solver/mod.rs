//! Solvers: algorithms over the blocks of a [dual](crate::dual), driven by [`crate::run`]. They do
//! not depend on the meaning of a block.

mod active_set;
mod away;
mod block_frank_wolfe;
mod frank_wolfe;
mod line_search;
mod memory;
mod method;
mod newton;
mod path;
mod projected_gradient;
mod subgradient;

pub(crate) use active_set::{StepKind, largest};
pub use away::AwayFrankWolfe;
pub use block_frank_wolfe::{Block, BlockFrankWolfe, BlockOptions, Sampling, Step, SumTree};
pub(crate) use block_frank_wolfe::{NewtonEnd, Pace};
pub use frank_wolfe::{Drift, FrankWolfe, Start, StepRule};
pub(crate) use line_search::shorter_step;
pub(crate) use memory::{Memory, Pair};
pub use method::{Choices, DualPoint, Fit, Method, STEPS, Target, minimize};
pub use newton::{
    BestPoints, Blocks, FACTORISED, Newton, Proximal, SecondOrder, Summed, has_part_factors,
    n_sums, newton_direction, second_order, step_cost,
};
pub use path::{BlockPath, PathSettings, PathSolver, Piece, objective_at, path};
pub use projected_gradient::ProjectedGradient;
pub use subgradient::Subgradient;
