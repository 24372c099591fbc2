//! A digest of rows, to see whether others have written to what a fit has borrowed.

/// Independent chains: a step of each waits for its own last one only.
const LANES: usize = 8;

/// An odd constant of xxHash64's rounds.
const MIX: u64 = 0x9E37_79B1_85EB_CA87;

/// Values between two looks whether to go on: about a millisecond.
const VALUES_PER_CHECK: usize = 1 << 20;

/// A number that depends on all values and their order. Arrays that differ in one value have different ones, any
/// others that were not made to have the same one with a probability of about 1 − 2⁻⁶⁴ (rounds in the manner of
/// xxHash64, with one product instead of two, so that memory is what they wait for).
pub(super) fn digest<T: Copy>(values: &[T], bits: impl Fn(T) -> u64) -> u64 {
    let mut lanes = [0, 1, 2, 3, 4, 5, 6, 7].map(|lane: u64| MIX.wrapping_mul(lane + 1));
    let (whole, rest) = values.as_chunks::<LANES>();
    for block in whole {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane = round(*lane, bits(*value));
        }
    }
    let rest = rest.iter().map(|value| bits(*value));
    in_order(lanes.into_iter().chain(rest).chain([values.len() as u64]))
}

/// The digests of pieces of an array, joined.
pub(super) fn digest_in_pieces<T: Copy, E>(
    values: &[T],
    bits: impl Fn(T) -> u64,
    go_on: &mut impl FnMut() -> Result<(), E>,
) -> Result<u64, E> {
    let mut digests = Vec::new();
    for piece in values.chunks(VALUES_PER_CHECK) {
        go_on()?;
        digests.push(digest(piece, &bits));
    }
    Ok(in_order(digests))
}

/// A number that depends on the words and their order.
pub(crate) fn in_order(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, round)
}

/// A bijection of either argument for the other held.
fn round(lane: u64, word: u64) -> u64 {
    (lane.wrapping_add(word)).wrapping_mul(MIX).rotate_left(31)
}
