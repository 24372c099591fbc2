//! A margin loss of your own: the hinge of the two largest margins of neighbouring classes.
//!
//! cargo run --release --example own_polytope
//!
//! A polytope needs the vertex that attains its support value, and a bound on the sums of its
//! points. Projections and distances, which the solver and its certificate use, follow from them.

use dualgap::polytope::{Scratch, Sparse};
use dualgap::prelude::*;

/// Convex hull of 0 and, for each pair of neighbouring classes, the point with ½ at both. The loss
/// is the largest mean margin of two neighbours, or 0 if no mean is positive.
#[derive(Debug, Clone)]
struct Neighbours;

impl Polytope for Neighbours {
    fn vertex(&self, v: &[f64], label: usize, _: &mut Scratch, vertex: &mut Sparse) -> f64 {
        vertex.clear();
        // The label's margin is 0 and does not count.
        let mean = |first: usize| 0.5 * (v[first] + v[first + 1]);
        let pairs = 0..v.len() - 1;
        let best = pairs.max_by(|a, b| mean(*a).total_cmp(&mean(*b)).then(b.cmp(a)));
        let Some(first) = best.filter(|first| mean(*first) > 0.0) else { return 0.0 };
        let classes = [first, first + 1].into_iter().filter(|class| *class != label);
        vertex.extend(classes.map(|class| (class as u32, 0.5)));
        mean(first)
    }

    fn radius(&self, _: usize) -> f64 {
        1.0
    }
}

fn main() -> Result<()> {
    let rows: Vec<f64> = (0..400).map(|i| f64::from(i * i % 97) / 97.0).collect();
    let rows = Dense::from_slice(&rows, 4)?;
    let labels: Vec<u8> = (0..100).map(|row| (rows.row(row)[0] * 4.99) as u8).collect();
    let model = MulticlassSvc::new().loss(Loss::own(Neighbours)).tol(1e-4).fit(rows, &labels)?;
    let predicted = model.predict(rows)?;
    let right = predicted.iter().zip(&labels).filter(|(found, label)| found == label).count();
    println!("{} epochs, relative gap {:.1e}", model.trace().epochs.len(), model.relative_gap());
    println!("{right} of {} rows right", labels.len());
    Ok(())
}
