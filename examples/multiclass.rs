//! Fits a classifier to generated rows, tests it on other rows, and writes a file for Python.
//!
//! cargo run --release --example multiclass -- [model.npz]

use dualgap::ndarray::Array2;
use dualgap::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const CLASSES: [&str; 4] = ["north", "east", "south", "west"];
const CENTRES: [[f64; 2]; 4] = [[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]];

/// Draws points around the centres of the classes, and returns them with their labels.
fn points(n: usize, seed: u64) -> (Array2<f64>, Vec<&'static str>) {
    let mut random = Pcg64::seed_from_u64(seed);
    let rows = Array2::from_shape_fn((n, 2), |(row, column)| {
        CENTRES[row % 4][column] + random.random_range(-0.8..0.8)
    });
    (rows, (0..n).map(|row| CLASSES[row % 4]).collect())
}

fn main() -> Result<()> {
    let ((rows, labels), (others, truth)) = (points(1000, 0), points(1000, 1));
    let share = |predicted: &[&str]| {
        let right = predicted.iter().zip(&truth).filter(|(found, label)| found == label);
        right.count() as f64 / truth.len() as f64
    };

    let svc = MulticlassSvc::new().loss("weston-watkins").tol(1e-4).fit(&rows, &labels)?;
    println!("SVC: {:.1} % of other points right", 100.0 * share(&svc.predict(&others)?));
    println!("     objective {:.4}, at most {:.1e} from the best", svc.objective(), svc.gap());

    let logistic = LogisticRegression::new().tol(1e-6).fit(&rows, &labels)?;
    println!("logistic: {:.1} %", 100.0 * share(&logistic.predict(&others)?));
    let probabilities = logistic.probabilities(&others)?;
    for (class, probability) in logistic.classes().iter().zip(&probabilities) {
        println!("     first point: {class} with probability {probability:.3}");
    }
    if let Some(path) = std::env::args().nth(1) {
        svc.save(path)?;
    }
    Ok(())
}
