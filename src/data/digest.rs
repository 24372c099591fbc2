//! A digest of rows, to see whether others have written to what a fit has borrowed.

use super::Real;

/// Independent chains: a step of each waits for its own last one only.
const LANES: usize = 8;

/// The odd constants of xxHash64's rounds.
const SPREAD: u64 = 0xC2B2_AE3D_27D4_EB4F;
const MIX: u64 = 0x9E37_79B1_85EB_CA87;

/// Values between two looks whether to go on: about a millisecond.
const PIECE: usize = 1 << 20;

/// A number that depends on all values and their order. Arrays that differ in one value have different ones, any
/// others that were not made to have the same one with a probability of about 1 − 2⁻⁶⁴ (rounds as in xxHash64,
/// whose bytes it does not reproduce).
pub(super) fn digest<T: Copy, E>(
    values: &[T],
    bits: impl Fn(T) -> u64,
    go_on: &mut impl FnMut() -> Result<(), E>,
) -> Result<u64, E> {
    let mut lanes = [0, 1, 2, 3, 4, 5, 6, 7].map(|lane: u64| MIX.wrapping_mul(lane + 1));
    let (whole, rest) = values.split_at(values.len() / LANES * LANES);
    for piece in whole.chunks(PIECE) {
        go_on()?;
        for block in piece.chunks_exact(LANES) {
            for (lane, value) in lanes.iter_mut().zip(block) {
                *lane = round(*lane, bits(*value));
            }
        }
    }
    let rest = rest.iter().map(|value| bits(*value));
    Ok(in_order(lanes.into_iter().chain(rest).chain([values.len() as u64])))
}

/// A number that depends on the words and their order.
pub(super) fn in_order(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, round)
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(SPREAD)).rotate_left(31).wrapping_mul(MIX)
}

/// [`digest`] of values of any precision.
pub(super) fn digest_reals<T: Real, E>(
    values: &[T],
    go_on: &mut impl FnMut() -> Result<(), E>,
) -> Result<u64, E> {
    digest(values, T::bits, go_on)
}
