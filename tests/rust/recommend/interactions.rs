//! The factor model of clicks: its objective, its minimum, and the structure that it recovers.

use std::ops::ControlFlow;

use dualgap::Error;
use dualgap::interrupt::Interrupt;
use dualgap::recommend::{
    InteractionFit, InteractionSettings, Interactions, factor_gram, fold_in_interactions,
};
use dualgap::run::{Outcome, Stopping, run};
use ndarray::Array2;

const N: usize = 40;

/// Returns clicks: each user clicks two thirds of the items in the user's half.
fn pairs() -> (Vec<u32>, Vec<u32>) {
    let all = (0..N * N).map(|pair| ((pair / N) as u32, (pair % N) as u32));
    all.filter(|(u, i)| u % 2 == i % 2 && (u / 2 + i / 2) % 3 > 0).unzip()
}

fn settings() -> InteractionSettings {
    InteractionSettings { n_components: 5, unobserved: 0.1, ridge: 0.2, tol: 0.0, seed: 1 }
}

fn fit(n_threads: usize) -> (Vec<f64>, Array2<f64>, Array2<f64>) {
    let (users, items) = pairs();
    let ones = vec![1.0; users.len()];
    let pairs = Interactions {
        users: &users,
        items: &items,
        targets: &ones,
        weights: &ones,
        n_users: N,
        n_items: N,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
    pool.install(|| {
        let mut solver = InteractionFit::new(pairs, settings()).unwrap();
        let stopping = Stopping { max_epochs: 30, relative: 0.0, floor: 0.0, null_objective: None };
        let interrupt = Interrupt::default();
        let trace =
            run(&mut solver, stopping, &interrupt, &mut |_| ControlFlow::Continue(())).unwrap();
        let (users, items) = solver.factors();
        (trace.epochs.iter().map(|epoch| epoch.objective.unwrap()).collect(), users, items)
    })
}

/// Returns the objective, computed from its definition.
fn objective(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
    let (users, items) = pairs();
    let InteractionSettings { unobserved, ridge, .. } = settings();
    let scores = a.dot(&b.t());
    let (mut total, mut of_user, mut of_item) =
        (unobserved * scores.mapv(|s| s * s).sum(), vec![0.0; N], vec![0.0; N]);
    for (&u, &i) in users.iter().zip(&items) {
        total += (1.0 - scores[(u as usize, i as usize)]).powi(2);
        of_user[u as usize] += 1.0;
        of_item[i as usize] += 1.0;
    }
    for (factors, weights) in [(a, of_user), (b, of_item)] {
        for (row, weight) in factors.rows().into_iter().zip(weights) {
            total += ridge * (weight + unobserved * N as f64).sqrt() * row.dot(&row);
        }
    }
    total
}

#[test]
fn the_objective_agrees_with_its_definition_and_falls() {
    let (objectives, a, b) = fit(2);
    assert!(objectives.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-12)));
    let last = objectives[objectives.len() - 1];
    assert!((objective(&a, &b) - last).abs() < 1e-8 * last, "{} {last}", objective(&a, &b));
    // No nearby point has a lower objective.
    for (r, step) in [(0, 0.05), (1, -0.05), (2, 0.02)] {
        let mut moved = b.clone();
        moved[(3, r)] += step;
        assert!(objective(&a, &moved) > last);
    }
}

#[test]
fn held_out_items_are_ranked_first() {
    let (_, a, b) = fit(1);
    let scores = a.dot(&b.t());
    for u in 0..N {
        for i in 0..N {
            let own = u % 2 == i % 2;
            assert!((scores[(u, i)] > 0.3) == own, "{u}, {i}: {}", scores[(u, i)]);
        }
    }
}

#[test]
fn threads_do_not_change_the_fit_and_folded_in_users_get_equal_scores() {
    let (one, two) = (fit(1), fit(2));
    assert_eq!(one.1, two.1);
    assert_eq!(one.2, two.2);
    let (users, items) = pairs();
    let ones = vec![1.0; users.len()];
    let pairs = Interactions {
        users: &users,
        items: &items,
        targets: &ones,
        weights: &ones,
        n_users: N,
        n_items: N,
    };
    let (interrupt, gram) = (Interrupt::default(), factor_gram(one.2.view()));
    assert!((&gram - &one.2.t().dot(&one.2)).iter().all(|error| error.abs() < 1e-9));
    let items = (one.2.view(), gram.view());
    let folded = fold_in_interactions(pairs, items, None, &settings(), &interrupt).unwrap();
    // The vectors may still rotate together, but the scores of the items no longer change.
    let moved = (&folded - &one.1).dot(&one.2.t());
    assert!(moved.iter().all(|error| error.abs() < 0.01), "{moved}");
}

#[test]
fn a_fit_ends_when_progress_is_small_and_errors_name_bad_input() {
    let (users, items) = pairs();
    let ones = vec![1.0; users.len()];
    let good = Interactions {
        users: &users,
        items: &items,
        targets: &ones,
        weights: &ones,
        n_users: N,
        n_items: N,
    };
    let mut solver =
        InteractionFit::new(good, InteractionSettings { tol: 0.05, ..settings() }).unwrap();
    let stopping = Stopping { max_epochs: 100, relative: 0.0, floor: 0.0, null_objective: None };
    let interrupt = Interrupt::default();
    let trace = run(&mut solver, stopping, &interrupt, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(trace.outcome, Outcome::Exhausted);
    assert!(trace.epochs.len() < 50);
    let named = |pairs, settings| match InteractionFit::new(pairs, settings) {
        Err(Error::InvalidArgument { argument, .. }) => argument,
        other => panic!("no error: {:?}", other.map(|_| ())),
    };
    assert_eq!(named(Interactions { n_items: 3, ..good }, settings()), "ratings");
    assert_eq!(named(Interactions { weights: &ones[1..], ..good }, settings()), "ratings");
    assert_eq!(named(good, InteractionSettings { n_components: 0, ..settings() }), "n_components");
    assert_eq!(named(good, InteractionSettings { ridge: 0.0, ..settings() }), "ridge");
    let none = InteractionSettings { unobserved: f64::NAN, ..settings() };
    assert_eq!(named(good, none), "unobserved");
}
