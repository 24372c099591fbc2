//! Solvers: verbs over the blocks of a dual, driven by [`crate::run`].

mod active_set;
mod away;
mod block_frank_wolfe;
mod frank_wolfe;
mod path;
mod subgradient;

pub use away::{AwayFrankWolfe, AwayStep};
pub use block_frank_wolfe::{Atom, Block, BlockFrankWolfe, BlockOptions, BlockStep, Sampling};
pub use frank_wolfe::{FrankWolfe, Start, StepRule};
pub use path::{PathSettings, Piece, path};
pub use subgradient::BlockSubgradient;
