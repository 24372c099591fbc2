//! The rate at which the gap of a run falls.

/// Number of epochs until the gap falls to `allowed`. Assumes that the gap keeps falling as in the last `n_epochs`
/// epochs, in which it fell from `before` to `now`. Infinite if the gap has not fallen; 0 if it is already at most
/// `allowed`.
pub fn epochs_left((before, now): (f64, f64), n_epochs: usize, allowed: f64) -> f64 {
    let distance = (now / allowed).ln();
    if distance <= 0.0 {
        return 0.0;
    }
    let rate = (before / now).ln() / n_epochs as f64;
    if rate > 0.0 { distance / rate } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_epochs_follow_the_pace_of_the_last_epochs() {
        // The gap was halved in two epochs; three more halvings are needed.
        assert!((epochs_left((1.0, 0.5), 2, 0.0625) - 6.0).abs() < 1e-12);
        assert_eq!(epochs_left((1.0, 0.5), 1, 0.5), 0.0);
        assert_eq!(epochs_left((f64::INFINITY, 0.5), 1, 0.1), 0.0);
        for (before, now, allowed) in [(0.5, 0.5, 0.1), (0.4, 0.5, 0.1), (1.0, 0.5, 0.0)] {
            assert_eq!(epochs_left((before, now), 1, allowed), f64::INFINITY);
        }
        assert_eq!(epochs_left((f64::INFINITY, f64::INFINITY), 1, 0.1), f64::INFINITY);
    }
}
