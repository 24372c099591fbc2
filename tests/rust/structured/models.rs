//! Structured models compared with an enumeration of all labels with explicit joint features.

use super::super::common::structured::*;
use dualgap::data::{Data, Dense};
use dualgap::linalg::Sparse;
use dualgap::structured::{
    Chain, Graph, Hamming, Matching, Model, Multiclass, Multilabel, Pairs, Work, assign,
};
use ndarray::Array2;
use proptest::prelude::*;

fn hamming(loss: Hamming, truth: &[u32], label: &[u32]) -> f64 {
    let wrong = truth.iter().zip(label).filter(|(a, b)| a != b).count() as f64;
    match loss {
        Hamming::Count => wrong,
        Hamming::Mean if truth.is_empty() => 0.0,
        Hamming::Mean => wrong / truth.len() as f64,
    }
}

fn hammings() -> impl Strategy<Value = Hamming> {
    prop_oneof![Just(Hamming::Count), Just(Hamming::Mean)]
}

fn dense(x: &Array2<f64>) -> Data<'_> {
    Data::Dense64(Dense::new(x.view()).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn chains_decode_optimally(
        seed in any::<u64>(),
        n_states in prop_oneof![1usize..5, Just(9), Just(26), Just(35)],
        n_features in 0usize..5,
        share in prop_oneof![Just(0.0), Just(0.7)],
        boundaries in any::<bool>(),
        loss in hammings(),
    ) {
        let mut grid = Grid::new(seed);
        let longest = if n_states > 4 { 2 } else { 4 };
        let lens: Vec<usize> = (0..4).map(|_| grid.below(longest + 1)).collect();
        let mut offsets = vec![0];
        lens.iter().for_each(|len| offsets.push(offsets[offsets.len() - 1] + len));
        let n_rows = offsets[4];
        let x = Array2::from_shape_simple_fn((n_rows, n_features), || grid.sparse(share));
        let labels = grid.labels(n_rows, n_states);
        let model =
            Chain::new(dense(&x), &offsets, Some(&labels), n_states, boundaries, loss).unwrap();
        let n_pairs = n_states * n_states;
        for (example, &len) in lens.iter().enumerate() {
            prop_assert_eq!(model.n_parts(example), len * n_states + n_pairs);
            let first = offsets[example];
            let phi = |label: &[u32]| {
                let mut phi = vec![0.0; model.n_weights()];
                let (nodes, others) = phi.split_at_mut(n_features * n_states);
                for (t, &state) in label.iter().enumerate() {
                    for feature in 0..n_features {
                        nodes[feature * n_states + state as usize] += x[(first + t, feature)];
                    }
                }
                for pair in label.windows(2) {
                    others[pair[0] as usize * n_states + pair[1] as usize] += 1.0;
                }
                if let (true, [start, ..], [.., end]) = (boundaries, label, label) {
                    others[n_pairs + *start as usize] += 1.0;
                    others[n_pairs + n_states + *end as usize] += 1.0;
                }
                phi
            };
            let truth = &labels[first..first + len];
            prop_assert_eq!(model.truth(example), truth);
            let all = all_tuples(len, n_states);
            check(&model, example, &mut grid, &all, phi, |label| hamming(loss, truth, label));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn multiclass_models_decode_optimally(
        seed in any::<u64>(),
        n_classes in prop_oneof![1usize..12, Just(40)],
        n_features in 0usize..6,
        share in prop_oneof![Just(0.0), Just(0.7)],
        unit in any::<bool>(),
    ) {
        let mut grid = Grid::new(seed);
        let n_rows = 3;
        let x = Array2::from_shape_simple_fn((n_rows, n_features), || grid.sparse(share));
        let labels = grid.labels(n_rows, n_classes);
        let cost = |right: usize, label: usize| match () {
            () if right == label => 0.0,
            () if unit => 1.0,
            () => ((right * 3 + label) % 4) as f64 / 2.0,
        };
        let costs: Vec<f64> = (0..n_classes * n_classes)
            .map(|at| cost(at / n_classes, at % n_classes))
            .collect();
        let costs = (!unit).then_some(&costs[..]);
        let model = Multiclass::new(dense(&x), Some(&labels), n_classes, costs).unwrap();
        for example in 0..n_rows {
            let right = labels[example];
            prop_assert_eq!(model.truth(example), &[right]);
            let phi = |label: &[u32]| {
                let mut phi = vec![0.0; n_features * n_classes];
                for feature in 0..n_features {
                    phi[feature * n_classes + label[0] as usize] = x[(example, feature)];
                }
                phi
            };
            let loss = |label: &[u32]| cost(right as usize, label[0] as usize);
            check(&model, example, &mut grid, &all_tuples(1, n_classes), phi, loss);
        }
    }

    #[test]
    fn multilabel_models_decode_optimally(
        seed in any::<u64>(),
        n_labels in 1usize..8,
        n_features in 0usize..4,
        full in any::<bool>(),
        density in 0usize..5,
        loss in hammings(),
    ) {
        let mut grid = Grid::new(seed);
        let n_rows = 3;
        let x = Array2::from_shape_simple_fn((n_rows, n_features), || grid.value());
        let labels: Vec<u8> = (0..n_rows * n_labels).map(|_| grid.below(2) as u8).collect();
        let mut graph = Graph::full(n_labels);
        if !full {
            // Pairs in any direction and order. With few pairs, the graph is a forest.
            let mut edges = graph.edges().to_vec();
            edges.retain(|_| grid.below(6) < density);
            edges.iter_mut().for_each(|edge| if grid.below(2) == 0 { edge.reverse() });
            let n_turns = grid.below(edges.len().max(1));
            edges.rotate_left(n_turns);
            graph = Graph::new(n_labels, &edges).unwrap();
        }
        let edges = graph.edges().to_vec();
        let model =
            Multilabel::new(dense(&x), Some(&labels), n_labels, graph, loss).unwrap();
        for example in 0..n_rows {
            let truth: Vec<u32> =
                labels[example * n_labels..][..n_labels].iter().map(|y| u32::from(*y)).collect();
            prop_assert_eq!(model.truth(example), &truth[..]);
            let phi = |y: &[u32]| {
                let mut phi = Vec::new();
                for feature in 0..n_features {
                    phi.extend(y.iter().map(|y| f64::from(*y) * x[(example, feature)]));
                }
                for [a, b] in &edges {
                    let state = [y[*a as usize], y[*b as usize]];
                    let states = [[0, 0], [0, 1], [1, 0], [1, 1]];
                    phi.extend(states.map(|other| f64::from(u8::from(state == other))));
                }
                phi
            };
            let all = all_tuples(n_labels, 2);
            check(&model, example, &mut grid, &all, phi, |y| hamming(loss, &truth, y));
        }
    }

    #[test]
    fn a_tree_of_many_labels_is_decoded_like_its_halves(seed in any::<u64>(), n_labels in 17usize..60) {
        // A chain with states 0 and 1 has the same scores as a path of labels.
        let mut grid = Grid::new(seed);
        let path: Vec<[u32; 2]> = (1..n_labels as u32).map(|label| [label - 1, label]).collect();
        let nothing = Array2::zeros((1, 0));
        let graph = Graph::new(n_labels, &path).unwrap();
        let model = Multilabel::new(dense(&nothing), None, n_labels, graph, Hamming::Count).unwrap();
        let scores = grid.values(model.n_parts(0));
        let mut label = Vec::new();
        model.decode(0, &scores, &mut Work::default(), &mut label);
        let mut best = [0.0, scores[0]];
        for (on, pair) in scores[1..n_labels].iter().zip(scores[n_labels..].chunks_exact(4)) {
            let into = |state: usize| (best[0] + pair[state]).max(best[1] + pair[2 + state]);
            best = [into(0), into(1) + on];
        }
        prop_assert_eq!(sparse_dot(&parts(&model, 0, &label), &scores), best[0].max(best[1]));
    }

    #[test]
    fn the_chow_liu_tree_has_the_most_information(seed in any::<u64>(), n_labels in 1usize..5) {
        let mut grid = Grid::new(seed);
        let n_rows = 12;
        let labels: Vec<u8> = (0..n_rows * n_labels).map(|_| grid.below(2) as u8).collect();
        let information = |[a, b]: [u32; 2]| {
            let share = |test: &dyn Fn(u8, u8) -> bool| {
                let rows = labels.chunks(n_labels);
                rows.filter(|row| test(row[a as usize], row[b as usize])).count() as f64 / 12.0
            };
            let states = [(0, 0), (0, 1), (1, 0), (1, 1)];
            let term = |(s, t): (u8, u8)| match share(&|x, y| (x, y) == (s, t)) {
                0.0 => 0.0,
                p => p * (p / (share(&|x, _| x == s) * share(&|_, y| y == t))).ln(),
            };
            states.map(term).iter().sum::<f64>()
        };
        let total = |edges: &[[u32; 2]]| edges.iter().map(|edge| information(*edge)).sum::<f64>();
        let tree = Graph::chow_liu(&labels, n_labels);
        prop_assert_eq!(tree.edges().len(), n_labels - 1);
        let all = Graph::full(n_labels).edges().to_vec();
        for subset in 0..1 << all.len() {
            let chosen = all.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1);
            let edges: Vec<_> = chosen.map(|(_, edge)| *edge).collect();
            // Only a tree connects all labels with this number of edges.
            let mut component: Vec<usize> = (0..n_labels).collect();
            for [a, b] in &edges {
                let [a, b] = [component[*a as usize], component[*b as usize]];
                component.iter_mut().filter(|of| **of == b).for_each(|of| *of = a);
            }
            if edges.len() == n_labels - 1 && component.iter().all(|of| *of == component[0]) {
                prop_assert!(total(&edges) <= total(tree.edges()) + 1e-12);
            }
        }
    }
}

const NONE: u32 = u32::MAX;

/// All partial matchings of rows with columns.
fn all_matchings(n_rows: usize, n_columns: usize) -> Vec<Vec<u32>> {
    let column = |code: u32| if code as usize == n_columns { NONE } else { code };
    let distinct = |label: &Vec<u32>| {
        let mut columns: Vec<u32> = label.iter().copied().filter(|c| *c != NONE).collect();
        columns.sort_unstable();
        columns.windows(2).all(|two| two[0] != two[1])
    };
    let tuples = all_tuples(n_rows, n_columns + 1).into_iter();
    tuples.map(|label| label.into_iter().map(column).collect()).filter(distinct).collect()
}

/// Draws correct pairs for examples of these sizes. Returns them with the start of each example's pairs.
fn random_pairs(
    grid: &mut Grid,
    sizes: &[[u32; 2]],
    one_to_one: bool,
) -> (Vec<[u32; 2]>, Vec<usize>) {
    let (mut pairs, mut offsets) = (Vec::new(), vec![0]);
    for &[rows, columns] in sizes {
        let start = pairs.len();
        for pair in (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column])) {
            let free = |other: &[u32; 2]| other[0] != pair[0] && other[1] != pair[1];
            if grid.below(3) == 0 && (!one_to_one || pairs[start..].iter().all(free)) {
                pairs.push(pair);
            }
        }
        pairs[start..].reverse();
        offsets.push(pairs.len());
    }
    (pairs, offsets)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn matchings_decode_optimally(
        seed in any::<u64>(),
        n_features in 0usize..20,
        share in prop_oneof![Just(0.0), Just(0.8)],
        one_to_one in any::<bool>(),
        false_positive in prop_oneof![Just(1.0), Just(0.5), Just(0.0)],
        false_negative in prop_oneof![Just(1.0), Just(3.0)],
    ) {
        let mut grid = Grid::new(seed);
        let sizes: Vec<[u32; 2]> = (0..3).map(|_| [0; 2].map(|_| grid.below(5) as u32)).collect();
        let n_pairs: u32 = sizes.iter().map(|[rows, columns]| rows * columns).sum();
        let shape = (n_pairs as usize, n_features);
        let x = Array2::from_shape_simple_fn(shape, || grid.sparse(share));
        let (pairs, offsets) = random_pairs(&mut grid, &sizes, one_to_one);
        let truth = Pairs { pairs: &pairs, offsets: &offsets };
        let model =
            Matching::new(dense(&x), &sizes, Some(truth), false_positive, false_negative).unwrap();
        let mut first = 0;
        for (example, &[n_rows, n_columns]) in sizes.iter().enumerate() {
            let [n_rows, n_columns] = [n_rows, n_columns].map(|n| n as usize);
            prop_assert_eq!(model.size(example), (n_rows, n_columns));
            let right = &pairs[offsets[example]..offsets[example + 1]];
            let matched = |label: &[u32]| -> Vec<[u32; 2]> {
                let rows = (0..).zip(label).filter(|(_, column)| **column != NONE);
                rows.map(|(row, column)| [row, *column]).collect()
            };
            let phi = |label: &[u32]| {
                let mut phi = vec![0.0; n_features];
                for [row, column] in matched(label) {
                    let row = x.row(first + row as usize * n_columns + column as usize);
                    phi.iter_mut().zip(row).for_each(|(phi, x)| *phi += x);
                }
                phi
            };
            let loss = |label: &[u32]| {
                let made = matched(label);
                let missed = right.iter().filter(|pair| !made.contains(pair)).count() as f64;
                let wrong = made.iter().filter(|pair| !right.contains(pair)).count() as f64;
                false_negative * missed + false_positive * wrong
            };
            let all = all_matchings(n_rows, n_columns);
            check(&model, example, &mut grid, &all, phi, loss);
            let mut parts_of_truth: Vec<u32> =
                right.iter().map(|[a, b]| a * n_columns as u32 + b).collect();
            parts_of_truth.sort_unstable();
            let truth = parts(&model, example, model.truth(example));
            prop_assert_eq!(truth, parts_of_truth.iter().map(|part| (*part, 1.0)).collect::<Sparse>());
            prop_assert!(!one_to_one || model.truth(example).len() == n_rows);
            first += n_rows * n_columns;
        }
    }

    #[test]
    fn assignments_are_optimal(
        seed in any::<u64>(),
        n_rows in 0usize..7,
        n_columns in 0usize..7,
        ties in any::<bool>(),
    ) {
        let mut grid = Grid::new(seed);
        let weights: Vec<f64> = (0..n_rows * n_columns)
            .map(|_| if ties { grid.value() } else { grid.real() })
            .collect();
        let mut matched = vec![3];
        assign(&weights, n_columns, &mut Work::default(), &mut matched);
        let weight = |row: usize, column: u32| weights[row * n_columns + column as usize];
        // Dynamic programme over rows: best[set of columns in use].
        let mut best = vec![f64::NEG_INFINITY; 1 << n_columns];
        best[0] = 0.0;
        for row in 0..n_rows {
            for taken in (0..best.len()).rev() {
                for column in (0..n_columns).filter(|column| taken >> column & 1 == 1) {
                    let value = best[taken ^ 1 << column] + weight(row, column as u32);
                    best[taken] = best[taken].max(value);
                }
            }
        }
        let best = best.into_iter().fold(0.0, f64::max);
        let mut value = 0.0;
        let mut taken = 0u64;
        for (row, &column) in matched.iter().enumerate().filter(|(_, column)| **column != NONE) {
            prop_assert!(weight(row, column) > 0.0 && taken >> column & 1 == 0);
            taken |= 1 << column;
            value += weight(row, column);
        }
        prop_assert!((value - best).abs() < 1e-12, "{value} for {best}: {matched:?}");
    }
}

#[test]
fn large_assignments_attain_the_dual_value() {
    // If the weights are u_a + v_b − s_ab with slacks s >= 0, and the slacks of a hidden matching
    // are 0, this matching is optimal.
    let mut grid = Grid::new(1);
    for (n_rows, n_columns) in [(60, 60), (40, 90), (90, 40)] {
        let n = n_rows.min(n_columns);
        let shift = 17;
        let (u, v): (Vec<f64>, Vec<f64>) =
            (0..n).map(|_| (1.0 + grid.real().abs(), grid.real().abs())).unzip();
        let hidden = |row: usize| (row * 7 + shift) % n;
        let weights: Vec<f64> = (0..n_rows * n_columns)
            .map(|at| {
                let (row, column) = (at / n_columns, at % n_columns);
                if row >= n || column >= n {
                    // Unmatched rows and columns have dual value 0.
                    let other = if row < n {
                        u[row]
                    } else if column < n {
                        v[column]
                    } else {
                        0.0
                    };
                    return other - grid.real().abs();
                }
                let slack = if hidden(row) == column { 0.0 } else { grid.sparse(0.3).abs() };
                u[row] + v[column] - slack
            })
            .collect();
        let mut matched = Vec::new();
        assign(&weights, n_columns, &mut Work::default(), &mut matched);
        let found: f64 = (0..n_rows)
            .filter(|row| matched[*row] != NONE)
            .map(|row| weights[row * n_columns + matched[row] as usize])
            .sum();
        let bound = u.iter().sum::<f64>() + v.iter().sum::<f64>();
        assert!((found - bound).abs() < 1e-10, "{found} for {bound}");
    }
}

/// Asserts that the error names the argument.
fn assert_error_names<T>(result: dualgap::Result<T>, argument: &str) {
    match result {
        Ok(_) => panic!("no error, although {argument} is wrong"),
        Err(error) => assert!(error.to_string().starts_with(&format!("{argument}: ")), "{error}"),
    }
}

#[test]
fn errors_name_the_wrong_argument() {
    let x = Array2::ones((4, 2));
    let infinite = Array2::from_elem((4, 2), f64::INFINITY);
    let loss = Hamming::Count;
    let y = [0, 1, 2, 0];

    let chain = |x, offsets: &[usize], labels: &[u32], n_states| {
        Chain::new(dense(x), offsets, Some(labels), n_states, false, loss)
    };
    assert!(chain(&x, &[0, 3, 3, 4], &y, 3).is_ok());
    assert_error_names(chain(&infinite, &[0, 4], &y, 3), "X");
    for offsets in [&[0, 3][..], &[1, 4], &[0, 3, 2, 4], &[]] {
        assert_error_names(chain(&x, offsets, &y, 3), "X");
    }
    assert_error_names(chain(&x, &[0, 4], &y, 2), "y");
    assert_error_names(chain(&x, &[0, 4], &y[..3], 3), "y");
    assert_error_names(chain(&x, &[0, 4], &y, 0), "n_states");

    let multiclass = |labels: &[u32], n_classes, costs: Option<&[f64]>| {
        Multiclass::new(dense(&x), Some(labels), n_classes, costs)
    };
    assert_error_names(multiclass(&y, 2, None), "y");
    assert_error_names(multiclass(&y[..2], 3, None), "y");
    assert_error_names(multiclass(&y, 0, None), "n_classes");
    for costs in [&[0.0; 8][..], &[1.0; 9], &[-1.0; 9], &[f64::NAN; 9]] {
        assert_error_names(multiclass(&y, 3, Some(costs)), "costs");
    }
}

#[test]
fn errors_of_label_sets_and_matchings_name_the_wrong_argument() {
    let x = Array2::ones((4, 2));
    let loss = Hamming::Count;
    let multilabel = |labels: &[u8], n_labels, graph| {
        Multilabel::new(dense(&x), Some(labels), n_labels, graph, loss)
    };
    assert!(multilabel(&[1; 4 * 16], 16, Graph::full(16)).is_ok());
    assert_error_names(multilabel(&[1; 4 * 17], 17, Graph::full(17)), "edges");
    assert_error_names(multilabel(&[1; 12], 3, Graph::full(4)), "edges");
    assert_error_names(multilabel(&[1; 11], 3, Graph::full(3)), "y");
    assert_error_names(multilabel(&[2; 12], 3, Graph::full(3)), "y");
    assert_error_names(multilabel(&[], 0, Graph::full(0)), "n_labels");
    for edges in [&[[0, 3]][..], &[[1, 1]], &[[0, 1], [1, 0]]] {
        assert_error_names(Graph::new(3, edges), "edges");
    }

    let matching = |sizes: &[[u32; 2]], pairs: &[[u32; 2]], offsets: &[usize], cost| {
        Matching::new(dense(&x), sizes, Some(Pairs { pairs, offsets }), cost, 1.0)
    };
    assert!(matching(&[[2, 2]], &[[0, 1], [0, 0]], &[0, 2], 1.0).is_ok());
    assert_error_names(matching(&[[2, 3]], &[], &[0, 0], 1.0), "X");
    assert_error_names(matching(&[[u32::MAX, u32::MAX]], &[], &[0, 0], 1.0), "X");
    for offsets in [&[0, 0][..], &[0, 1, 1], &[0], &[1, 1]] {
        assert_error_names(matching(&[[2, 2]], &[[0, 1]], offsets, 1.0), "y");
    }
    assert_error_names(matching(&[[2, 2]], &[[0, 2]], &[0, 1], 1.0), "y");
    assert_error_names(matching(&[[2, 2]], &[[2, 0]], &[0, 1], 1.0), "y");
    assert_error_names(matching(&[[2, 2]], &[[0, 1], [0, 1]], &[0, 2], 1.0), "y");
    assert_error_names(matching(&[[2, 2]], &[], &[0, 0], -1.0), "false_positive_cost");
    assert_error_names(
        Matching::new(dense(&x), &[[2, 2]], None, 1.0, f64::NAN),
        "false_negative_cost",
    );

    for &(name, loss) in Hamming::NAMES {
        assert_eq!(Hamming::parse(name), Ok(loss));
    }
    assert_error_names(Hamming::parse("zero-one"), "loss");
}

#[test]
fn costs_require_labels() {
    let x = Array2::ones((4, 2));
    let path = Graph::new(3, &[[0, 1], [1, 2]]).unwrap();
    let models: [Box<dyn Model>; 4] = [
        Box::new(Chain::new(dense(&x), &[0, 4], None, 2, true, Hamming::Mean).unwrap()),
        Box::new(Multiclass::new(dense(&x), None, 2, None).unwrap()),
        Box::new(Multilabel::new(dense(&x), None, 3, path, Hamming::Count).unwrap()),
        Box::new(Matching::new(dense(&x), &[[2, 2]], None, 1.0, 1.0).unwrap()),
    ];
    for model in models {
        let mut scores = vec![1.5; model.n_parts(0)];
        assert_eq!(model.add_costs(0, &mut scores), 0.0);
        assert!(scores.iter().all(|score| *score == 1.5));
        assert!(model.truth(0).is_empty());
    }
}
