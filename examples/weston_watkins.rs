//! Seconds per epoch of block descent on rows like those of ALOI: 1000 classes, 128 features.
//!
//! cargo run --release --example weston_watkins -- [loss] [f32|f64] [threads] [block size] [classes]

use std::time::Instant;

use dualgap::data::{Data, Dense};
use dualgap::dual::Shares;
use dualgap::interrupt::Interrupt;
use dualgap::multiclass::{BlockDescent, BlockDescentOptions, Linear, MarginProblem, Order};
use dualgap::polytope::{self, Parameters};
use dualgap::run::{Progress, Solver};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Unit rows around class centres: |centre + 0.35 normal| (20 rows a class).
fn rows(n: usize, d: usize, m: usize) -> (Array2<f64>, Vec<u32>) {
    let mut random = Pcg64::seed_from_u64(0);
    let centres = Array2::from_shape_simple_fn((m, d), || random.random_range(0.0..1.0));
    let mut normal = || {
        let (u, v): (f64, f64) = (random.random_range(1e-12..1.0), random.random());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    let labels: Vec<u32> = (0..n).map(|i| (i % m) as u32).collect();
    let noisy = |(i, k): (usize, usize)| (centres[(i % m, k)] + 0.35 * normal()).abs();
    let mut x = Array2::from_shape_fn((n, d), noisy);
    for mut row in x.rows_mut() {
        let norm = row.dot(&row).sqrt();
        row /= norm;
    }
    (x, labels)
}

/// Seconds that this thread was on a processor, where the system tells (other programs do not count).
fn busy() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = statistics.split_whitespace().next().and_then(|field| field.parse().ok());
    nanoseconds.unwrap_or(f64::NAN) * 1e-9
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, otherwise: &str| -> String {
        arguments.get(at).cloned().unwrap_or_else(|| otherwise.into())
    };
    let number = |at: usize, otherwise: usize| argument(at, "").parse().unwrap_or(otherwise);
    let (n, d, m) = (20_000, number(5, 128), number(4, 1000));
    let (x, labels) = rows(n, d, m);
    let single = x.mapv(|x| x as f32);
    let data = match argument(1, "f32").as_str() {
        "f64" => Data::Dense64(Dense::new(x.view()).expect("C order")),
        _ => Data::Dense32(Dense::new(single.view()).expect("C order")),
    };
    let name = argument(0, "weston-watkins");
    let k = name.contains("usunier").then_some(5).or(name.contains("top").then_some(5));
    let set = polytope::parse(&name, Parameters { k, weights: None }).expect("a loss");
    let map = Linear::new(data, m, 0.0, Order::Examples);
    let shares = Shares::new(n, 1.0 / n as f64).expect("a positive lambda");
    let problem = MarginProblem::new(map, &labels, set, shares).expect("a problem");
    let options =
        BlockDescentOptions { block_size: argument(3, "").parse().ok(), ..Default::default() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(number(2, 1)).build().expect("threads");
    pool.install(|| {
        let interrupt = Interrupt::default();
        let start = Instant::now();
        let mut solver = BlockDescent::new(&problem, options);
        println!("set up   {:.3} s", start.elapsed().as_secs_f64());
        let mut first_gap = f64::INFINITY;
        for epoch in 1..=40 {
            let (start, start_busy) = (Instant::now(), busy());
            let progress = solver.advance(&interrupt).expect("an epoch");
            let (seconds, busy) = (start.elapsed().as_secs_f64(), busy() - start_busy);
            let start = Instant::now();
            let certificate = solver.certify(&interrupt).expect("a certificate");
            let certify = start.elapsed().as_secs_f64();
            let gap = n as f64 * certificate.gap();
            if epoch == 1 {
                first_gap = gap;
            }
            let kind = if matches!(progress, Progress::Exhausted(_)) { "exhausted" } else { "" };
            println!(
                "{epoch:3} {seconds:.3} s ({busy:.3} busy)  certificate {certify:.3} s  primal {:.6e}  gap {gap:.4e}  {:.5} {kind}",
                n as f64 * certificate.primal,
                gap / first_gap,
            );
            if gap <= 0.01 * first_gap {
                break;
            }
        }
    });
}
