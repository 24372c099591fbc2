//! Matchings in which rows and columns may have several links, compared with an enumeration.

use super::super::common::structured::*;
use dualgap::data::{Data, Dense};
use dualgap::structured::{Matching, Model, Work};
use ndarray::Array2;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn matchings_with_several_links_are_decoded_optimally(
        seed in any::<u64>(),
        n_rows in 0usize..4,
        n_columns in 0usize..5,
        limits in [1usize..4, 1usize..4],
        ties in any::<bool>(),
    ) {
        let mut grid = Grid::new(seed);
        let n_pairs = n_rows * n_columns;
        let weights: Vec<f64> =
            (0..n_pairs).map(|_| if ties { grid.value() } else { grid.real() }).collect();
        let (x, size) = (Array2::zeros((n_pairs, 0)), [n_rows as u32, n_columns as u32]);
        let model = Matching::new(Data::Dense64(Dense::new(x.view()).unwrap()), &[size], None, 1.0, 1.0).unwrap();
        let model = model.with_max_links(limits).unwrap();
        let mut work = Work { values: vec![f64::NAN; 3], indices: vec![7; 90], ..Work::default() };
        let mut label = vec![3];
        model.decode(0, &weights, &mut work, &mut label);
        let found = parts(&model, 0, &label);
        let fits = |set: u32| {
            let linked = |pair: &usize| set >> pair & 1 == 1;
            let rows = (0..n_rows).all(|a| {
                (a * n_columns..(a + 1) * n_columns).filter(linked).count() <= limits[0]
            });
            let of_column = |b| (b..n_pairs).step_by(n_columns).filter(linked).count();
            rows && (0..n_columns).all(|b| of_column(b) <= limits[1])
        };
        let value = |set: u32| -> f64 {
            (0..n_pairs).filter(|pair| set >> pair & 1 == 1).map(|pair| weights[pair]).sum()
        };
        let best = (0..1 << n_pairs).filter(|set| fits(*set)).map(value).fold(0.0, f64::max);
        let own = found.iter().fold(0, |set, (part, _)| set | 1 << part);
        prop_assert!(found.windows(2).all(|two| two[0].0 < two[1].0));
        prop_assert!(fits(own) && found.iter().all(|(part, _)| weights[*part as usize] > 0.0));
        prop_assert!((value(own) - best).abs() < 1e-12, "{} for {best}", value(own));
    }
}

#[test]
fn zero_links_are_rejected() {
    let x = Array2::zeros((4, 1));
    let data = Data::Dense64(Dense::new(x.view()).unwrap());
    let model = Matching::new(data, &[[2, 2]], None, 1.0, 1.0).unwrap();
    let error = model.with_max_links([1, 0]).unwrap_err().to_string();
    assert!(error.starts_with("max_links: "), "{error}");
}
