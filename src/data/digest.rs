//! A digest of rows, to see whether others have written to what a fit has borrowed.

use super::Real;

/// Independent chains: a step of each waits for its own last one only.
const LANES: usize = 8;

/// The odd constants of xxHash64's rounds.
const SPREAD: u64 = 0xC2B2_AE3D_27D4_EB4F;
const MIX: u64 = 0x9E37_79B1_85EB_CA87;

/// A number that depends on all values and their order: two arrays that differ have the same one with a
/// probability of about 2⁻⁶⁴ (rounds as in xxHash64, whose bytes it does not reproduce).
pub(super) fn digest<T: Copy>(values: &[T], bits: impl Fn(T) -> u64) -> u64 {
    let round = |lane: u64, word: u64| {
        lane.wrapping_add(word.wrapping_mul(SPREAD)).rotate_left(31).wrapping_mul(MIX)
    };
    let mut lanes = [0, 1, 2, 3, 4, 5, 6, 7].map(|lane: u64| MIX.wrapping_mul(lane + 1));
    let mut blocks = values.chunks_exact(LANES);
    for block in &mut blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane = round(*lane, bits(*value));
        }
    }
    let rest = blocks.remainder().iter().map(|value| bits(*value));
    let words = lanes.into_iter().chain(rest).chain([values.len() as u64]);
    words.fold(0, round)
}

/// The same of values of any precision.
pub(super) fn digest_reals<T: Real>(values: &[T]) -> u64 {
    digest(values, T::bits)
}
