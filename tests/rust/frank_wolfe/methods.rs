//! Frank-Wolfe methods with a function and a set that are defined outside the crate.

use dualgap::Result;
use dualgap::frank_wolfe::{
    FrankWolfeMethod, FrankWolfeOptions, LinearOracle, SmoothFunction, Vertex,
};
use dualgap::rand_pcg::Pcg64Mcg;

/// Half the squared distance from a point.
struct Distance(Vec<f64>);

impl SmoothFunction for Distance {
    fn n_coordinates(&self) -> usize {
        self.0.len()
    }

    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        for ((g, x), target) in gradient.iter_mut().zip(x).zip(&self.0) {
            *g = x - target;
        }
        Ok(0.5 * gradient.iter().map(|g| g * g).sum::<f64>())
    }
}

/// The cube [−1, 1]^n, whose vertices need not be listed.
struct Cube;

impl LinearOracle for Cube {
    fn vertex(&self, gradient: &[f64]) -> Result<Vertex> {
        Ok(Vertex::Dense(gradient.iter().map(|g| if *g > 0.0 { -1.0 } else { 1.0 }).collect()))
    }

    fn sampled_vertex(&self, gradient: &[f64], _: f64, _: &mut Pcg64Mcg) -> Option<Vertex> {
        self.vertex(gradient).ok()
    }
}

#[test]
fn every_method_bounds_the_distance_from_a_cube() {
    let target = vec![0.25, -3.0, 1.5, -0.5];
    // The nearest point of the cube is the target with its coordinates clipped.
    let optimum = 0.5 * (2.0 * 2.0 + 0.5 * 0.5);
    for method in [
        FrankWolfeMethod::FrankWolfe,
        FrankWolfeMethod::Away,
        FrankWolfeMethod::Pairwise,
        FrankWolfeMethod::RandomizedAway { share: 0.5 },
    ] {
        let options = FrankWolfeOptions { method, tol: 1e-3, ..FrankWolfeOptions::default() };
        let found = options.minimize(&Distance(target.clone()), &Cube).unwrap();
        let certificate = found.certificate;
        assert!(certificate.dual <= optimum && optimum <= certificate.primal + 1e-15, "{method:?}");
        assert!(certificate.gap() <= 1e-3 * certificate.primal.max(1.0), "{method:?}");
        assert!(found.x.iter().all(|x| x.abs() <= 1.0 + 1e-12), "{method:?}");
    }
}
