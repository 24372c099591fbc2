//! Weston-Watkins fits by the textbook's block descent, one example at a time, with the inner solvers
//! that the Walrus paper compares: Shark's greedy one and Walrus's sorted sweep (its Figure 2).
//!
//! cargo run --release --example shark -- X.f64 y.u32 features classes C [shark|walrus]
//!
//! Rows and labels are raw little-endian numbers; `benches/block_descent.py shark` writes them.

#[path = "../benches/support/shark.rs"]
mod support;

use std::time::Instant;

use dualgap::polytope::walrus;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use support::shark;

fn read<const N: usize, T>(path: &str, convert: impl Fn([u8; N]) -> T) -> Vec<T> {
    let bytes = std::fs::read(path).expect("a readable file");
    bytes.as_chunks::<N>().0.iter().map(|chunk| convert(*chunk)).collect()
}

/// b from the multiplier of Walrus: clip(u − τ) with the sum of b in τ.
fn walrus_step(u: &[f64], b: &mut [f64], c: f64, sorted: &mut Vec<f64>) {
    let multiplier = walrus::multiplier_by_sorting(u, c, 1.0, sorted);
    for (b, u) in b.iter_mut().zip(u) {
        *b = (u - multiplier).clamp(0.0, c);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [x, y, d, m, c, inner] = &arguments[..] else {
        panic!("usage: shark X.f64 y.u32 features classes C shark|walrus")
    };
    let (x, labels) = (read(x, f64::from_le_bytes), read(y, u32::from_le_bytes));
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let (d, m, c): (usize, usize, f64) = (number(d), number(m), c.parse().expect("a number"));
    let n = labels.len();
    let (mut weights, mut betas) = (vec![0.0; m * d], vec![0.0; n * (m - 1)]);
    let (mut u, mut old, mut sorted) = (vec![0.0; m - 1], vec![0.0; m - 1], Vec::new());
    let mut order: Vec<usize> = (0..n).collect();
    let mut random = Pcg64::seed_from_u64(0);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let class = |j: usize, label: usize| j + usize::from(j >= label);
    let (mut seconds, mut first_gap, mut steps) = (0.0, f64::INFINITY, 0);
    for epoch in 1..=2000 {
        let start = Instant::now();
        order.shuffle(&mut random);
        for &i in &order {
            let (row, label) = (&x[i * d..][..d], labels[i] as usize);
            let norm = dot(row, row);
            if norm == 0.0 {
                continue;
            }
            let beta = &mut betas[i * (m - 1)..][..m - 1];
            let sum: f64 = beta.iter().sum();
            let right = dot(&weights[label * d..][..d], row);
            for (j, u) in u.iter_mut().enumerate() {
                let score = dot(&weights[class(j, label) * d..][..d], row);
                *u = (1.0 + score - right) / norm;
            }
            old.copy_from_slice(beta);
            if inner == "shark" {
                // The gradient at β is the margin itself.
                steps += shark(beta, &mut u, c, 1e-3 / norm);
            } else {
                u.iter_mut().zip(&*beta).for_each(|(u, b)| *u += b + sum);
                walrus_step(&u, beta, c, &mut sorted);
            }
            let mut total = 0.0;
            for (j, (new, old)) in beta.iter().zip(&old).enumerate() {
                let change = new - old;
                if change != 0.0 {
                    total += change;
                    let weights = &mut weights[class(j, label) * d..][..d];
                    weights.iter_mut().zip(row).for_each(|(w, x)| *w -= change * x);
                }
            }
            let weights = &mut weights[label * d..][..d];
            weights.iter_mut().zip(row).for_each(|(w, x)| *w += total * x);
        }
        seconds += start.elapsed().as_secs_f64();
        let mut loss = 0.0;
        for (row, label) in x.chunks_exact(d).zip(&labels) {
            let label = *label as usize;
            let right = dot(&weights[label * d..][..d], row);
            for j in 0..m - 1 {
                let score = dot(&weights[class(j, label) * d..][..d], row);
                loss += (1.0 + score - right).max(0.0);
            }
        }
        let gap = dot(&weights, &weights) + c * loss - betas.iter().sum::<f64>();
        first_gap = if epoch == 1 { gap } else { first_gap };
        if gap <= 0.01 * first_gap || seconds > 60.0 {
            let mean = steps as f64 / (epoch * n) as f64;
            println!("{seconds:.4} {epoch} {:.5} {mean:.1}", gap / first_gap);
            return;
        }
    }
}
