//! Tests of the interfaces between modules, with a folder for each problem.
//!
//! The tests run as a module of the unit tests, which avoids a second build of the crate. The
//! examples of the documentation use it from outside.

mod common;
mod contributing;

mod frank_wolfe {
    mod methods;
}
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
    mod newton;
}
mod structured {
    mod callback;
    mod links;
    mod marginals;
    mod models;
    mod solvers;
}
