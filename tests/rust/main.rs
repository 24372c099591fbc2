//! The crate from outside, a folder for each problem.
//!
//! The tests run as a module of the unit tests, which spares a second build of the crate. `cargo clippy --all-targets`
//! checks them as a crate of their own, too: they use what is public.

// What the example of CONTRIBUTING imports from the crate it is to become a part of.
pub use dualgap::{error, linalg};

mod common;
mod contributing;

mod multiclass {
    mod active_sets;
    mod block_descent;
    mod consensus;
    mod solvers;
}
mod polynomial {
    mod fits;
}
mod polytope {
    mod curvature;
    mod project;
    mod vertex;
}
mod recommend {
    mod interactions;
    mod variational;
}
mod solver {
    mod methods;
}
mod structured {
    mod callback;
    mod links;
    mod marginals;
    mod models;
    mod solvers;
}
