//! The variational refit on synthetic ratings: its objective, threads, accuracy and errors.

use std::ops::ControlFlow;

use dualgap::Error;
use dualgap::data::Csr;
use dualgap::interrupt::Interrupt;
use dualgap::penalty;
use dualgap::recommend::{
    Factors, FittedOutput, FittedSide, Groups, Likelihood, NewPrior, Ratings, VariationalRefit,
    VariationalSettings as Settings, fold_in,
};
use dualgap::run::{Stopping, Trace, run};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const N_USERS: usize = 60;
const N_ITEMS: usize = 50;

/// Ratings in columns, which the solver borrows.
#[derive(Default)]
struct Table {
    users: Vec<u32>,
    items: Vec<u32>,
    values: Vec<f64>,
}

impl Table {
    fn push(&mut self, user: usize, item: usize, value: f64) {
        self.users.push(user as u32);
        self.items.push(item as u32);
        self.values.push(value);
    }

    fn ratings(&self) -> Ratings<'_> {
        let Self { users, items, values } = self;
        Ratings {
            users,
            items,
            values,
            weights: &[],
            n_users: N_USERS,
            n_items: N_ITEMS,
            groups: Default::default(),
        }
    }

    fn rmse(&self, predict: impl Fn(usize, usize) -> f64) -> f64 {
        let pairs = self.users.iter().zip(&self.items).zip(&self.values);
        let squares: f64 =
            pairs.map(|((&u, &i), y)| (y - predict(u as usize, i as usize)).powi(2)).sum();
        (squares / self.values.len() as f64).sqrt()
    }
}

/// Training and test ratings: biases plus one factor, plus noise of standard deviation 0.3.
fn planted_ratings() -> (Table, Table) {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let mut draw = |n: usize, width: f64| -> Vec<f64> {
        (0..n).map(|_| width * (2.0 * rng.random::<f64>() - 1.0)).collect()
    };
    let (user_bias, item_bias) = (draw(N_USERS, 0.8), draw(N_ITEMS, 0.8));
    let (p, q) = (draw(N_USERS, 1.7), draw(N_ITEMS, 1.7));
    let (noise, side) = (draw(N_USERS * N_ITEMS, 0.3 * 3f64.sqrt()), draw(N_USERS * N_ITEMS, 1.0));
    let (mut train, mut test) = (Table::default(), Table::default());
    for u in 0..N_USERS {
        for i in 0..N_ITEMS {
            let pair = u * N_ITEMS + i;
            let value = 3.0 + user_bias[u] + item_bias[i] + p[u] * q[i] + noise[pair];
            match side[pair] {
                s if s < 0.0 => train.push(u, i, value),
                s if s < 0.4 => test.push(u, i, value),
                _ => {}
            }
        }
    }
    (train, test)
}

/// The same ratings, rounded to the levels 0 to 4.
fn rating_levels() -> Table {
    let (mut train, _) = planted_ratings();
    train.values.iter_mut().for_each(|value| *value = (*value - 1.0).round().clamp(0.0, 4.0));
    train
}

fn settings(likelihood: Likelihood, penalty: &dyn penalty::Penalty) -> Settings<'_> {
    Settings {
        n_components: 3,
        likelihood,
        penalty,
        radius: f64::INFINITY,
        output_ridge: 0.1,
        hold: 3,
        feature_ridge: 1.0,
        relaxation: 1.0,
        popularity: false,
        tol: 0.0,
        seed: 0,
    }
}

fn ordinal() -> Likelihood {
    Likelihood::Ordinal(vec![0.6; 4])
}

fn fit(table: &Table, settings: Settings<'_>, sweeps: usize) -> (Trace, Factors) {
    let interrupt = Interrupt::default();
    let mut solver =
        VariationalRefit::new(table.ratings(), None, None, settings, &interrupt).unwrap();
    let stopping = Stopping { max_epochs: sweeps, relative: 0.0, floor: 0.0, null_objective: None };
    let trace = run(&mut solver, stopping, &interrupt, &mut |_| ControlFlow::Continue(())).unwrap();
    (trace, solver.factors())
}

#[test]
fn the_objective_falls_with_every_sweep() {
    let table = rating_levels();
    let penalty = penalty::parse("l1/l2").unwrap();
    for likelihood in [ordinal(), Likelihood::Gaussian] {
        // There is no ball, because the scale of the bases moves into U, and a ball would shrink it
        // again.
        let (trace, _) = fit(&table, settings(likelihood.clone(), &*penalty), 40);
        let objectives: Vec<f64> =
            trace.epochs.iter().map(|epoch| epoch.objective.unwrap()).collect();
        for (sweep, pair) in objectives.windows(2).enumerate() {
            let (before, after) = (pair[0], pair[1]);
            let allowed = before + 1e-6 * before.abs();
            assert!(after <= allowed, "{likelihood:?}: sweep {sweep}: {before} to {after}");
        }
        assert!(objectives[39] < 0.95 * objectives[0], "little was gained: {objectives:?}");
    }
}

/// Ratings that are one level higher on each user's odd days, with groups for users and days.
fn with_days() -> (Table, Vec<u32>, Vec<u32>) {
    let mut table = rating_levels();
    let (mut days, mut months) = (Vec::new(), Vec::new());
    for at in 0..table.values.len() {
        let (user, item) = (table.users[at], table.items[at]);
        // Users and items do not explain these ratings.
        let mixed = (50 * user + item).wrapping_mul(2_654_435_761);
        let day = (mixed >> 16) % 4;
        table.values[at] = (table.values[at] + f64::from(day % 2)).min(4.0);
        days.push(4 * user + day);
        months.push(2 * item + (mixed >> 20) % 2);
    }
    (table, days, months)
}

#[test]
fn groups_of_ratings_are_learned_and_the_objective_falls() {
    let (table, days, months) = with_days();
    let penalty = penalty::parse("l1/l2").unwrap();
    let interrupt = Interrupt::default();
    let [by_day, by_month] =
        [(&days, 4 * N_USERS), (&months, 2 * N_ITEMS)].map(|(of, n)| Groups { of, n });
    for likelihood in [ordinal(), Likelihood::Gaussian] {
        for groups in
            [[by_day, by_month], [by_day, Groups::default()], [Groups::default(), by_month]]
        {
            let outcome = |n_threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
                pool.install(|| {
                    let ratings = Ratings { groups, ..table.ratings() };
                    let settings = settings(likelihood.clone(), &*penalty);
                    let mut solver =
                        VariationalRefit::new(ratings, None, None, settings, &interrupt).unwrap();
                    let stopping = Stopping {
                        max_epochs: 30,
                        relative: 0.0,
                        floor: 0.0,
                        null_objective: None,
                    };
                    let watch = &mut |_: &_| ControlFlow::Continue(());
                    let trace = run(&mut solver, stopping, &interrupt, watch).unwrap();
                    (trace, solver.effects())
                })
            };
            let ((trace, effects), (_, other)) = (outcome(1), outcome(2));
            assert_eq!(effects, other, "one thread and two");
            let objectives: Vec<f64> =
                trace.epochs.iter().map(|epoch| epoch.objective.unwrap()).collect();
            for pair in objectives.windows(2) {
                assert!(pair[1] <= pair[0] + 1e-7 * pair[0].abs(), "{likelihood:?}: {pair:?}");
            }
            assert_eq!(effects[0].is_some(), groups[0].n > 0);
            assert_eq!(effects[1].is_some(), groups[1].n > 0);
            if let Some(effects) = &effects[0] {
                let mean = |odd: usize| {
                    let rows = (0..4 * N_USERS).filter(|group| group % 2 == odd);
                    rows.map(|group| effects.row(group).sum()).sum::<f64>() / (2.0 * N_USERS as f64)
                };
                // Odd days raise ratings: cumulative probabilities fall, and Gaussian means grow.
                let lift = mean(1) - mean(0);
                let sign = if likelihood == Likelihood::Gaussian { 1.0 } else { -1.0 };
                assert!(sign * lift > 0.2, "{likelihood:?}: {lift}");
            }
        }
    }
}

#[test]
fn groups_that_are_not_numbered_by_rows_are_rejected() {
    let (table, mut days, _) = with_days();
    let penalty = penalty::parse("l1").unwrap();
    let assert_groups_rejected = |days: &[u32], n: usize, words: &str| {
        let groups = [Groups { of: days, n }, Groups::default()];
        let ratings = Ratings { groups, ..table.ratings() };
        let settings = settings(ordinal(), &*penalty);
        let interrupt = Interrupt::default();
        let error = VariationalRefit::new(ratings, None, None, settings, &interrupt).unwrap_err();
        let Error::InvalidArgument { argument: name, message } = error else { panic!("{error}") };
        assert!(name == "ratings" && message.contains(words), "{name}: {message}");
    };
    assert_groups_rejected(&days, 4 * N_USERS - 1, "a group below the number of groups");
    assert_groups_rejected(&days[1..], 4 * N_USERS, "a group below the number of groups");
    days.reverse();
    assert_groups_rejected(&days, 4 * N_USERS, "numbered row by row");
}

#[test]
fn a_weight_of_two_equals_a_repeated_rating() {
    let table = rating_levels();
    let penalty = penalty::parse("l1").unwrap();
    for likelihood in [ordinal(), Likelihood::Gaussian] {
        let mut doubled = rating_levels();
        let mut weights = vec![1.0; table.values.len()];
        for at in (0..weights.len()).step_by(3) {
            weights[at] = 2.0;
            doubled.push(table.users[at] as usize, table.items[at] as usize, table.values[at]);
        }
        let interrupt = Interrupt::default();
        let outcome = |ratings: Ratings<'_>| {
            let settings = settings(likelihood.clone(), &*penalty);
            let mut solver =
                VariationalRefit::new(ratings, None, None, settings, &interrupt).unwrap();
            let stopping =
                Stopping { max_epochs: 6, relative: 0.0, floor: 0.0, null_objective: None };
            let trace =
                run(&mut solver, stopping, &interrupt, &mut |_| ControlFlow::Continue(())).unwrap();
            (trace.objective, solver.factors().users)
        };
        let (once, twice) =
            (outcome(Ratings { weights: &weights, ..table.ratings() }), outcome(doubled.ratings()));
        // The start differs, because it depends on the mean of the ratings.
        assert!((once.0 - twice.0).abs() < 0.01 * twice.0.abs(), "{} {}", once.0, twice.0);
    }
}

#[test]
fn a_folded_in_user_gets_the_factors_of_the_fit() {
    let table = rating_levels();
    let penalty = penalty::parse("l1").unwrap();
    let interrupt = Interrupt::default();
    let settings = settings(ordinal(), &*penalty);
    let mut solver =
        VariationalRefit::new(table.ratings(), None, None, settings, &interrupt).unwrap();
    let stopping = Stopping { max_epochs: 40, relative: 0.0, floor: 0.0, null_objective: None };
    run(&mut solver, stopping, &interrupt, &mut |_| ControlFlow::Continue(())).unwrap();
    let (factors, [(prior, _), (_, spread)]) =
        (solver.factors(), solver.learned(&interrupt).unwrap());
    let mut counts = vec![0u32; N_ITEMS];
    table.items.iter().for_each(|&item| counts[item as usize] += 1);
    let other = FittedSide {
        means: factors.items.view(),
        counts: ndarray::aview1(&counts),
        spread: spread.view(),
    };
    let output = FittedOutput {
        weights: factors.output.clone(),
        intercept: factors.intercept.clone(),
        precision: 1.0,
        likelihood: ordinal(),
    };
    let mean = ndarray::Array2::from_shape_fn((N_USERS, 7), |(_, c)| prior.base[(0, c)]);
    let new = NewPrior { mean, covariance: prior.covariance };
    let folded = fold_in(table.ratings(), other, &output, new, &interrupt).unwrap();
    let scale = factors.users.iter().map(|z| z * z).sum::<f64>().sqrt();
    let error = (&folded - &factors.users).iter().map(|e| e * e).sum::<f64>().sqrt();
    assert!(error < 0.05 * scale, "{error} of {scale}");
}

#[test]
fn one_and_two_threads_give_the_same_bits() {
    let table = rating_levels();
    let penalty = penalty::parse("l1/l2").unwrap();
    for likelihood in [ordinal(), Likelihood::Gaussian] {
        let fit_with = |n_threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| fit(&table, settings(likelihood.clone(), &*penalty), 8).1)
        };
        let (one, two) = (fit_with(1), fit_with(2));
        assert_eq!(one.users, two.users);
        assert_eq!(one.items, two.items);
        assert_eq!(one.output, two.output);
        assert_eq!(one.intercept, two.intercept);
    }
}

#[test]
fn a_planted_factor_is_recovered() {
    let (train, test) = planted_ratings();
    let penalty = penalty::parse("l1/l2").unwrap();
    let settings = Settings { n_components: 1, ..settings(Likelihood::Gaussian, &*penalty) };
    let (_, factors) = fit(&train, settings, 60);
    let biases =
        |u: usize, i: usize| factors.intercept[0] + factors.users[(u, 1)] + factors.items[(i, 1)];
    let full = test.rmse(|u, i| {
        biases(u, i) + factors.output[(0, 0)] * factors.users[(u, 0)] * factors.items[(i, 0)]
    });
    // The noise alone is 0.3; the factor contributes 1.0.
    assert!(full < 0.4, "test RMSE {full}");

    let least_squares = bias_model(&train);
    let without = test.rmse(least_squares);
    assert!(without > 0.8, "the data has no factor to recover: {without}");
    assert!(full < 0.5 * without, "{full} against {without} by biases alone");
}

/// Fits biases by alternating means.
fn bias_model(train: &Table) -> impl Fn(usize, usize) -> f64 {
    let mean = train.values.iter().sum::<f64>() / train.values.len() as f64;
    let (mut users, mut items) = (vec![0.0; N_USERS], vec![0.0; N_ITEMS]);
    for _ in 0..20 {
        users = means(&train.users, N_USERS, |r| {
            train.values[r] - mean - items[train.items[r] as usize]
        });
        items = means(&train.items, N_ITEMS, |r| {
            train.values[r] - mean - users[train.users[r] as usize]
        });
    }
    move |u, i| mean + users[u] + items[i]
}

fn means(ids: &[u32], n: usize, value: impl Fn(usize) -> f64) -> Vec<f64> {
    let (mut sums, mut counts) = (vec![0.0; n], vec![0.0; n]);
    for (row, &id) in ids.iter().enumerate() {
        sums[id as usize] += value(row);
        counts[id as usize] += 1.0;
    }
    sums.iter().zip(&counts).map(|(sum, count)| sum / f64::max(*count, 1.0)).collect()
}

#[test]
fn the_output_layer_stays_in_its_ball() {
    let table = rating_levels();
    for (name, build) in penalty::REGISTRY {
        let penalty = build();
        let (_, free) = fit(&table, settings(ordinal(), &*penalty), 12);
        let unbounded = penalty.value(free.output.view());
        for radius in [0.5 * unbounded, 0.05 * unbounded] {
            let settings = Settings { radius, ..settings(ordinal(), &*penalty) };
            let (_, factors) = fit(&table, settings, 12);
            let value = penalty.value(factors.output.view());
            assert!(value <= radius * (1.0 + 1e-9), "{name}: {value} > {radius}");
        }
    }
}

#[test]
fn unused_levels_and_users_without_ratings_give_finite_factors() {
    let table = Table { users: vec![3, 5], items: vec![0, 7], values: vec![1.0, 1.0] };
    let penalty = penalty::parse("l1").unwrap();
    for likelihood in [ordinal(), Likelihood::Gaussian] {
        let (_, factors) = fit(&table, settings(likelihood, &*penalty), 30);
        let finite = |values: &ndarray::Array2<f64>| values.iter().all(|value| value.is_finite());
        assert!(finite(&factors.users) && finite(&factors.items) && finite(&factors.output));
    }
}

/// Returns the argument that the error of [`VariationalRefit::new`] names for `table`.
fn argument_of_error(
    table: &Table,
    settings: Settings<'_>,
    features: Option<Csr<'_, f64>>,
) -> &'static str {
    match VariationalRefit::new(table.ratings(), features, None, settings, &Interrupt::default()) {
        Err(Error::InvalidArgument { argument, .. }) => argument,
        other => panic!("no error: {:?}", other.map(|_| ())),
    }
}

#[test]
fn errors_name_the_bad_argument() {
    let penalty = penalty::parse("l1").unwrap();
    let good = || settings(ordinal(), &*penalty);
    let table = |user: u32, item: u32, value: f64| Table {
        users: vec![0, user],
        items: vec![0, item],
        values: vec![0.0, value],
    };
    for bad in [
        table(N_USERS as u32, 0, 1.0),
        table(0, N_ITEMS as u32, 1.0),
        table(0, 0, 5.0),
        table(0, 0, -1.0),
        table(0, 0, 1.5),
        table(0, 0, f64::NAN),
        Table::default(),
        Table { users: vec![0], items: vec![0, 1], values: vec![0.0, 1.0] },
    ] {
        assert_eq!(argument_of_error(&bad, good(), None), "ratings");
    }
    let fine = table(1, 1, 4.0);
    for (argument, settings) in [
        ("n_components", Settings { n_components: 0, ..good() }),
        ("radius", Settings { radius: 0.0, ..good() }),
        ("radius", Settings { radius: f64::NAN, ..good() }),
        ("tempering", Settings { likelihood: Likelihood::Ordinal(vec![]), ..good() }),
        ("tempering", Settings { likelihood: Likelihood::Ordinal(vec![0.0; 4]), ..good() }),
    ] {
        assert_eq!(argument_of_error(&fine, settings, None), argument);
    }
    let too_few = Csr::new(&[0, 1], &[0], &[1.0], 1).unwrap();
    assert_eq!(argument_of_error(&fine, good(), Some(too_few)), "features");
}

#[test]
fn an_interrupt_ends_a_sweep() {
    let table = rating_levels();
    let penalty = penalty::parse("l1").unwrap();
    let interrupt = Interrupt::default();
    let settings = settings(ordinal(), &*penalty);
    let mut solver =
        VariationalRefit::new(table.ratings(), None, None, settings, &interrupt).unwrap();
    interrupt.raise();
    let stopping = Stopping { max_epochs: 5, relative: 0.0, floor: 0.0, null_objective: None };
    let result = run(&mut solver, stopping, &interrupt, &mut |_| ControlFlow::Continue(()));
    assert_eq!(result, Err(Error::Interrupted));
}
