//! The crate from outside, a folder for each problem.

mod common;

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
    mod project;
    mod vertex;
}
mod recommend {
    mod variational;
}
mod solver {
    mod methods;
}
mod structured {
    mod callback;
    mod marginals;
    mod models;
    mod solvers;
}
